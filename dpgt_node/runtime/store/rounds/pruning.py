"""Drops the payloads that every agent has; what a published model averages is counted before it goes."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from dpgt_node.durable import Durability, write_whole
from dpgt_node.errors import StoreError
from dpgt_node.protocol.types import Payload
from dpgt_node.record.released import SUM_FILE, ReleasedSum, read_sum
from dpgt_node.runtime.store.rounds import rows
from dpgt_node.runtime.store.rounds.blobs import BlobFolder
from dpgt_node.runtime.store.rounds.records import file_name
from dpgt_node.runtime.store.schema import ROUNDS_MAX, SELECT_X, round_key

log = logging.getLogger(__name__)


class Pruning:
    """Of the state directory ``state_dir``, whose database is ``db`` and whose large files are ``blobs``.

    ``transaction``: opens one on ``db``.
    """

    def __init__(
        self,
        state_dir: Path,
        durability: Durability,
        db: sqlite3.Connection,
        transaction: Callable[[], AbstractContextManager[sqlite3.Connection]],
        blobs: BlobFolder,
    ) -> None:
        self._state_dir = state_dir
        self._durability: Durability = durability
        self._db = db
        self._transaction = transaction
        self._blobs = blobs
        self._done: dict[int, int] = {}  # rounds up to here have nothing left to drop; only saves looking again
        self.average_from: dict[bytes, int] = {}
        """By run id: the first round whose x̆ counts in ``x_released.sum``; no entry: no sum."""

    def prune(self, run: int, run_id: bytes, through: int) -> None:
        """See ``Store.prune``; ``run``: the run's number in the database."""
        done = self._done.get(run, -1)
        row = self._db.execute("SELECT k FROM checkpoints WHERE run = ?", (run,)).fetchone()
        through = min(through, row[0] - 1 if row else -1)
        if through <= done:
            return
        span = round_key(run, done + 1), round_key(run, through)
        large = "SELECT id, g_sha256 IS NOT NULL FROM payloads WHERE x_data IS NULL AND id BETWEEN ? AND ?"
        files = self._db.execute(large, span).fetchall()
        self._count(run, run_id, through)
        with self._transaction() as db:
            db.execute("DELETE FROM payloads WHERE id BETWEEN ? AND ?", span)
        self._done[run] = through
        self._blobs.remove(
            file_name(run_id, key % ROUNDS_MAX, what) for key, g in files for what in ("XYG" if g else "XY")
        )

    def _count(self, run: int, run_id: bytes, through: int) -> None:
        """Add what is about to go to the sum, which says through which round: a crash in between counts none twice."""
        first, path = self.average_from.get(run_id), self._state_dir / SUM_FILE
        if first is None or through < first:
            return
        try:
            found = read_sum(path)
        except StoreError as error:  # public, and of no use to the run: never a reason to end it
            log.warning("%s; the average for a published model begins anew", error)
            found = None
        if found is not None and found.run_id != run_id:
            found = None
        span = round_key(run, first if found is None else found.through + 1), round_key(run, through)
        for key, dtype, dimension, sha256, data in self._db.execute(SELECT_X, span):
            name, codes = rows.format_of(dtype)
            k, nbytes = key % ROUNDS_MAX, dimension * np.dtype(name).itemsize
            raw = self._blobs.read(file_name(run_id, k, "X"), nbytes) if data is None else data
            raw = rows.intact(raw, sha256, nbytes, f"{self._state_dir}: X of round {k}")
            if found is None or k != found.through + 1:  # rounds went uncounted: the window begins with what is left
                found = ReleasedSum.empty(run_id, k, dimension)
            found.add(k, Payload("X", k, name, dimension, raw, sha256, codes).floats())
        if found is not None and found.through == through:
            write_whole(path, found.parts(), self._durability)
