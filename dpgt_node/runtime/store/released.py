"""The released states of an agent's state directory, read without disturbing the agent."""

from __future__ import annotations

import sqlite3
from dataclasses import field
from pathlib import Path

import numpy as np

from dpgt_node.errors import StoreError
from dpgt_node.protocol.types import Payload
from dpgt_node.record.released import SUM_FILE, ReleasedSum, read_sum, window_start
from dpgt_node.runtime.store.finals import X_FINAL, checked_final
from dpgt_node.runtime.store.ledger import DATABASE, Charge, look_on, select_charges
from dpgt_node.runtime.store.rounds import rows
from dpgt_node.runtime.store.rounds.records import blob_path
from dpgt_node.runtime.store.schema import ROUNDS_MAX, SELECT_X, round_key
from dpgt_node.types import F64
from dpgt_node.values import dataclass

_RUN = "SELECT id, run_id, run_sha256, name, x_final_sha256 FROM runs ORDER BY id DESC LIMIT 1"


@dataclass(frozen=True, slots=True)
class Kept:
    """What a state directory holds of its newest run.

    ``last``: x̆ of round ``last_k``.  ``mean``: of the x̆ of rounds ``first``..``last_k``; None before the window of the
    average.  ``final``: x_{i,K+1}, private unless the mechanism says otherwise; None before the end.  ``charge``: what
    the run has cost so far; ``charges``: what every run of the directory has.
    """

    run_id: bytes
    run_sha256: str
    name: str
    last_k: int
    last: F64 = field(repr=False)
    first: int
    mean: F64 | None = field(repr=False)
    final: F64 | None = field(repr=False)
    charge: Charge
    charges: tuple[Charge, ...]


def read_released(state_dir: Path, last_round: int) -> Kept:
    """The newest run of ``state_dir``, whose K is ``last_round``.  StoreError: none, damaged, nothing released yet."""

    def look(db: sqlite3.Connection) -> Kept:
        charges, _ = select_charges(db, state_dir / DATABASE)
        run = db.execute(_RUN).fetchone()
        if run is None or not any(charge.run_id == run[1] for charge in charges):
            raise StoreError(f"{state_dir}: nothing was released here yet")
        number, run_id, sha256, name, final_sha256 = run
        of_run = (round_key(number, 0), round_key(number, ROUNDS_MAX - 1))
        newest = db.execute("SELECT max(id) FROM payloads WHERE id BETWEEN ? AND ?", of_run).fetchone()[0]
        if newest is None:
            raise StoreError(f"{state_dir}: no released x of run {run_id.hex()} is kept any more")
        last_k, total = newest % ROUNDS_MAX, read_sum(state_dir / SUM_FILE)
        if total is not None and total.run_id != run_id:
            total = None
        since = window_start(last_round) if total is None else total.through + 1
        wanted = (round_key(number, min(since, last_k)), newest)
        for row in db.execute(SELECT_X, wanted).fetchall():
            k, last = row[0] % ROUNDS_MAX, _vector(state_dir, run_id, *row)
            if k >= since:
                if total is None or k != total.through + 1:
                    total = ReleasedSum.empty(run_id, k, last.size)
                total.add(k, last)
        final = None if final_sha256 is None else checked_final(state_dir / X_FINAL, final_sha256, run_id)
        charge = next(charge for charge in charges if charge.run_id == run_id)
        first, mean = (last_k, None) if total is None else (total.first, total.mean())
        return Kept(run_id, sha256, name, last_k, last, first, mean, final, charge, charges)

    try:
        return look_on(state_dir, look)
    except OSError as error:
        again = "if its agent is running, try again"
        raise StoreError(f"{state_dir}: a stored release cannot be read: {error}; {again}") from error


def _vector(
    state_dir: Path, run_id: bytes, key: int, dtype: str, dimension: int, sha256: bytes, data: bytes | None
) -> F64:
    k, path = key % ROUNDS_MAX, blob_path(state_dir, run_id, key % ROUNDS_MAX, "X")
    raw: bytes | memoryview = path.read_bytes() if data is None else data
    name, codes = rows.format_of(dtype)
    if data is None:
        path.stat()  # while it was read the agent may have dropped it, and written another round into its blocks
    raw = rows.intact(raw, sha256, dimension * np.dtype(name).itemsize, f"{state_dir}: X of round {k}")
    return Payload("X", k, name, dimension, raw, sha256, codes).array()
