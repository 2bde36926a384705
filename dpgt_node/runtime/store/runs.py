"""The runs that a state directory knows."""

from __future__ import annotations

import sqlite3
from dataclasses import field

from dpgt_node.runtime.store.schema import ROUNDS_MAX
from dpgt_node.values import dataclass

_RUNS = (
    "SELECT run_id, run_sha256, name, x_final_sha256 IS NOT NULL, {},"
    f" (SELECT max(rounds.id) % {ROUNDS_MAX} FROM rounds WHERE rounds.id BETWEEN runs.id * {ROUNDS_MAX}"
    f" AND runs.id * {ROUNDS_MAX} + {ROUNDS_MAX - 1}) FROM runs ORDER BY id"
)

_SEALED_SINCE = 5
"""The version of the database that first recorded salts and seals."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run this state directory knows.  ``last_durable_round``: -1 when there is none.

    ``salt`` and ``seal`` of its data, PRIVATE: empty without data, or where they were not recorded.
    """

    run_id: bytes
    run_sha256: str
    name: str
    finished: bool
    last_durable_round: int
    salt: bytes = field(default=b"", repr=False, compare=False)
    seal: str = field(default="", repr=False, compare=False)


def select_runs(connection: sqlite3.Connection) -> tuple[RunInfo, ...]:
    """All of them, in the order in which they were begun."""
    recorded = connection.execute("PRAGMA user_version").fetchone()[0] >= _SEALED_SINCE
    found = connection.execute(_RUNS.format("salt, data_seal" if recorded else "x'', ''")).fetchall()
    return tuple(
        RunInfo(i, sha, name, bool(done), -1 if k is None else k, bytes(salt), seal)
        for i, sha, name, done, salt, seal, k in found
    )


def salt_of(connection: sqlite3.Connection, run_id: bytes) -> bytes:
    """The salt of the seal of that run's data; it stays on this host."""
    found = connection.execute("SELECT salt FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    return b"" if found is None else bytes(found[0])
