"""The runs that a state directory knows."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from dpgt_node.runtime.store.schema import ROUNDS_MAX

_RUNS = (
    "SELECT run_id, run_sha256, name, x_final_sha256 IS NOT NULL,"
    f" (SELECT max(rounds.id) % {ROUNDS_MAX} FROM rounds WHERE rounds.id BETWEEN runs.id * {ROUNDS_MAX}"
    f" AND runs.id * {ROUNDS_MAX} + {ROUNDS_MAX - 1}) FROM runs ORDER BY id"
)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run this state directory knows.  ``last_durable_round``: -1 when there is none."""

    run_id: bytes
    run_sha256: str
    name: str
    finished: bool
    last_durable_round: int


def select_runs(connection: sqlite3.Connection) -> tuple[RunInfo, ...]:
    """All of them, in the order in which they were begun."""
    found = connection.execute(_RUNS).fetchall()
    return tuple(RunInfo(i, sha, name, bool(done), -1 if k is None else k) for i, sha, name, done, k in found)


def salt_of(connection: sqlite3.Connection, run_id: bytes) -> bytes:
    """The salt of the seal of that run's data; it stays on this host."""
    found = connection.execute("SELECT salt FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    return b"" if found is None else bytes(found[0])
