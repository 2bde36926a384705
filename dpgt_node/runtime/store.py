"""An agent's durable memory: one SQLite database (WAL) and a folder of large files in its state directory.

A release is durable before a byte of it leaves, and is drawn once: payloads, ledger rows, batch and checkpoint of a
round commit in one transaction, files first, and a second commit of the same round fails on the primary key.

Durability "process": survives the end of the process at any instruction (``kill -9``), not a power cut.  "power":
every commit is fsynced.  One process at a time, held by a lock on ``lock``; ``ledger.read_ledger`` may look on.
Synchronous; usable from any thread, one call at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpgt_node.errors import StoreError
from dpgt_node.protocol.types import F64, I64, LedgerRow, Payload, Recovered, RoundRecord, State, Stream
from dpgt_node.runtime.blobs import BlobFolder, Durability, write_whole
from dpgt_node.runtime.ledger import (
    DATABASE,
    NO_HEAD,
    Charge,
    Ledger,
    Terms,
    cost_text,
    next_head,
    select_charges,
    select_ledger,
    select_rows,
    select_terms,
)
from dpgt_node.runtime.schema import (
    APPLICATION,
    FILE_COLUMNS,
    INSERT_LEDGER,
    INSERT_ROUND,
    INSERT_RUN,
    SCHEMA,
    SELECT_ROUND,
    VERSION,
)

FILE_BYTES = 1 << 20  # larger payloads and checkpoints are files
X_FINAL = "x_final.npy"


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run this state directory knows.  ``last_durable_round``: -1 when there is none."""

    run_id: bytes
    run_sha256: str
    name: str
    finished: bool
    last_durable_round: int


class Store:
    """Opens or creates the state directory.  StoreError: cannot be read or written, in use, of a foreign version."""

    def __init__(self, state_dir: Path, durability: Durability) -> None:
        self._state_dir = state_dir
        self._durability: Durability = durability
        with contextlib.ExitStack() as undo, self._blamed("cannot be opened"):
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            undo.callback(os.close, self._lock)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(f"{state_dir}: in use by another process") from None
            self._blobs = BlobFolder(state_dir / "blobs", durability)
            path = state_dir / DATABASE
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite would make it world-readable
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)
            undo.callback(self._db.close)
            self._prepare(path)
            runs = select_terms(self._db)
            self._ids = {run_id: number for number, (run_id, _) in runs.items()}
            self._texts = {run_id: terms.text(run_id) for run_id, terms in runs.values()}
            self._pruned: dict[bytes, int] = {}  # rounds up to here have nothing left to drop; only saves looking again
            last = self._db.execute("SELECT head FROM ledger ORDER BY id DESC LIMIT 1").fetchone()
            self._head: bytes = last[0] if last else NO_HEAD
            named = " UNION ".join(f"SELECT {c} FROM {t}" for c, t in FILE_COLUMNS)
            self._blobs.sweep({name for (name,) in self._db.execute(named) if name is not None})
            undo.pop_all()

    def _prepare(self, path: Path) -> None:
        one = self._pragma
        if one("application_id") != APPLICATION:
            if self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise StoreError(f"{path}: a database of another program")
        elif one("user_version") != VERSION:
            raise StoreError(f"{path}: version {one('user_version')}; this version of dpgt knows {VERSION}")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA synchronous = {'FULL' if self._durability == 'power' else 'OFF'}")
        if one("application_id") != APPLICATION:
            marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
            self._db.executescript(f"BEGIN IMMEDIATE; {SCHEMA} {marks} COMMIT;")

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    @contextlib.contextmanager
    def _blamed(self, what: str) -> Iterator[None]:
        """Whatever the file system or SQLite refuses is the operator's to mend: say where and what."""
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self._state_dir}: {what}: {error}") from error
        except OSError as error:
            raise StoreError(f"{self._state_dir}: {what}: {error}") from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Release the directory; the store is of no more use.  Harmless when it is closed."""
        self._db.close()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    # --- runs

    def begin_run(self, run_id: bytes, run_sha256: str, name: str, terms: Terms) -> None:
        """Remember a run (16 bytes; hex hash of its canonical run file) and what its charges mean.

        Again with the same hash and data set: nothing happens.
        """
        with self._blamed("cannot record the run"):
            known = self._db.execute("SELECT run_sha256, data_id FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            if known is None:
                values = (run_id, run_sha256, name, terms.data_id, terms.delta, terms.adjacency)
                with self._transaction() as db:
                    (self._ids[run_id],) = db.execute(INSERT_RUN, values).fetchone()
                self._texts[run_id] = terms.text(run_id)
            elif known[0] != run_sha256:
                raise StoreError(f"{self._state_dir}: run {run_id.hex()} was begun with another run file")
            elif known[1] != terms.data_id:
                raise StoreError(
                    f'{self._state_dir}: run {run_id.hex()} was begun on data set "{known[1]}", not "{terms.data_id}"'
                )

    def runs(self) -> tuple[RunInfo, ...]:
        """Every run, oldest first."""
        query = (
            "SELECT run_id, run_sha256, name, x_final_sha256 IS NOT NULL,"
            " (SELECT max(k) FROM rounds WHERE run = runs.id) FROM runs ORDER BY id"
        )
        with self._blamed("cannot be read"):
            rows = self._db.execute(query).fetchall()
        return tuple(RunInfo(i, sha, name, bool(done), -1 if k is None else k) for i, sha, name, done, k in rows)

    def find_run(self, run_sha256: str) -> bytes | None:
        """The newest run of this run file, finished or not: others may still have to finish it."""
        found = [run.run_id for run in self.runs() if run.run_sha256 == run_sha256]
        return found[-1] if found else None

    def is_finished(self, run_id: bytes) -> bool:
        """Whether ``finish_run`` was completed for this run."""
        return any(run.run_id == run_id and run.finished for run in self.runs())

    def releases(self, run_id: bytes) -> int:
        """Payloads made durable in this run: two a round."""
        with self._blamed("cannot be read"):
            query = "SELECT 2 * count(*) FROM rounds WHERE run = ?"
            return int(self._db.execute(query, (self._ids.get(run_id),)).fetchone()[0])

    def finish_run(self, run_id: bytes, x_final: F64) -> Path:
        """Write x_{i,K+1} (float64, shape (d,)) to STATE_DIR/x_final.npy at once, then mark the run finished."""
        path = self._state_dir / X_FINAL
        values = np.ascontiguousarray(x_final, dtype="<f8")
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(values))
        digest = hashlib.sha256(values.data).digest()
        with self._blamed("cannot save the result"):
            write_whole(path, (header.getvalue(), values.data), self._durability)
            with self._transaction() as db:
                db.execute("UPDATE runs SET x_final_sha256 = ? WHERE id = ?", (digest, self._ids[run_id]))
        return path

    def final(self, run_id: bytes) -> F64:
        """x_{i,K+1} of a finished run.  StoreError when x_final.npy is missing, torn or of another run."""
        path = self._state_dir / X_FINAL
        with self._blamed("the result cannot be read"):
            query = "SELECT x_final_sha256 FROM runs WHERE run_id = ?"
            row = self._db.execute(query, (run_id,)).fetchone()
            try:
                values: F64 = np.load(path, allow_pickle=False)
            except ValueError as error:
                raise StoreError(f"{path}: not a NumPy file: {error}") from error
        if row is None or row[0] != hashlib.sha256(np.ascontiguousarray(values).data).digest():
            raise StoreError(f"{path}: not the result of run {run_id.hex()}")
        return values

    # --- rounds

    def commit_round(self, run_id: bytes, record: RoundRecord) -> None:
        """Make ``record`` durable, all of it or nothing.

        StoreError: the disk is full or broken, nothing was committed.  RuntimeError: the round is durable already;
        whatever was drawn a second time must never leave.
        """
        run, k, x, y = self._ids[run_id], record.k, record.x, record.y
        assert x.k == y.k == k and (x.stream, y.stream) == ("X", "Y"), "a record holds one round"
        assert (x.dtype, x.dimension) == (y.dtype, y.dimension), "both payloads have one shape"
        head, text = self._head, self._texts[run_id]
        charged = []
        for row in record.rows:
            cost = cost_text(row.cost)
            head = next_head(head, text, row, cost)
            charged.append(
                (run, row.k, row.stream, row.mechanism, row.law, row.scale, row.sensitivity, row.sha256, cost, head)
            )
        x_file = self._file_name(run_id, k, "X", x.nbytes)
        y_file = self._file_name(run_id, k, "Y", y.nbytes)
        noisy = record.noisy_gradient
        g_bytes = None if noisy is None else np.ascontiguousarray(noisy, dtype="<f8").data.cast("B")
        g_file = None if g_bytes is None else self._file_name(run_id, k, "G", g_bytes.nbytes)
        g_sha256 = None if g_bytes is None else hashlib.sha256(g_bytes).digest()
        values = (
            run, k, x.dtype, x.dimension, x.sha256, x.data if x_file is None else None, x_file,
            y.sha256, y.data if y_file is None else None, y_file, _batch_bytes(record.batch),
            g_sha256, g_bytes if g_file is None else None, g_file,
        )  # fmt: skip
        written: list[str] = []
        replaced: list[str] = []
        with self._blamed(f"round {k} cannot be made durable"):
            try:
                with self._transaction() as db:
                    db.execute(INSERT_ROUND, values)  # before the files: a second draw must not reach the first one's
                    db.executemany(INSERT_LEDGER, charged)
                    if record.checkpoint is not None:
                        replaced = self._replace_checkpoint(db, run_id, record.checkpoint, written)
                    for data, file in ((x.data, x_file), (y.data, y_file), (g_bytes, g_file)):
                        if file is not None and data is not None:
                            written.append(file)
                            self._blobs.write(file, (data,))
            except sqlite3.IntegrityError as error:
                raise RuntimeError(f"round {k} of run {run_id.hex()} is durable already; it is drawn once") from error
            except BaseException:
                with contextlib.suppress(OSError):
                    self._blobs.remove(written)
                raise
            self._head = head
            self._blobs.remove(replaced)

    @staticmethod
    def _file_name(run_id: bytes, k: int, what: str, nbytes: int) -> str | None:
        return f"{run_id.hex()}-{k:010d}-{what}" if nbytes > FILE_BYTES else None

    def _replace_checkpoint(self, db: sqlite3.Connection, run_id: bytes, state: State, written: list[str]) -> list[str]:
        """Write the checkpoint (its file is appended to ``written``); the files to delete after the commit."""
        run, vectors = self._ids[run_id], (state.px, state.tx, state.p, state.t, state.g)
        assert all(v.shape == vectors[0].shape for v in vectors), "a state is five vectors of one size"
        nbytes = 5 * 8 * vectors[0].size
        file = self._file_name(run_id, state.k, "state", nbytes)
        # Small: one array.  Large: no copy of hundreds of megabytes.
        arrays = vectors if file is not None else (np.concatenate(vectors),)
        parts = [np.ascontiguousarray(a, dtype="<f8").data.cast("B") for a in arrays]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        data = parts[0] if file is None else None
        old = db.execute("SELECT file FROM checkpoints WHERE run = ?", (run,)).fetchone()
        row = (run, state.k, vectors[0].size, digest.digest(), data, file, _batch_bytes(state.batch))
        db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        if file is not None:
            written.append(file)
            self._blobs.write(file, parts)
        return [] if old is None or old[0] in (None, file) else [old[0]]

    def payloads(self, run_id: bytes, k: int) -> tuple[Payload, Payload]:
        """The stored X and Y of round ``k``, for resends.  StoreError when there are none or they were pruned."""
        with self._blamed(f"round {k} cannot be read"):
            row = self._db.execute(f"{SELECT_ROUND} WHERE run = ? AND k = ?", (self._ids[run_id], k)).fetchone()
            if row is None:
                raise StoreError(f"{self._state_dir}: round {k} of run {run_id.hex()} is not here")
            return self._payload("X", k, row[0], row[1], *row[2:5]), self._payload("Y", k, row[0], row[1], *row[5:8])

    def _payload(
        self, stream: Stream, k: int, dtype: Any, dimension: int, sha256: bytes, data: bytes | None, file: str | None
    ) -> Payload:
        nbytes = dimension * np.dtype(dtype).itemsize
        value = self._blobs.read(file, nbytes) if file is not None else data
        if value is None:
            raise StoreError(f"{self._state_dir}: {stream} of round {k} was pruned")
        return Payload(stream, k, dtype, dimension, value, sha256)

    def recover(self, run_id: bytes) -> Recovered | None:
        """The last checkpoint of the run and every durable round from it on (their ``checkpoint`` is None), checked
        against their hashes.  None when nothing was committed.  StoreError names what is torn.
        """
        run = self._ids.get(run_id, -1)
        with self._blamed("cannot be read"):
            row = self._db.execute("SELECT * FROM checkpoints WHERE run = ?", (run,)).fetchone()
            if row is None:
                if self._db.execute("SELECT 1 FROM rounds WHERE run = ? LIMIT 1", (run,)).fetchone():
                    raise StoreError(f"{self._state_dir}: the checkpoint of run {run_id.hex()} is missing")
                return None
            state = self._state(*row[1:])
            select = (
                "SELECT k, batch, dimension, g_sha256, g_data, g_file FROM rounds WHERE run = ? AND k >= ? ORDER BY k"
            )
            found = self._db.execute(select, (run, state.k)).fetchall()
            if [k for k, *_ in found] != list(range(state.k, state.k + len(found))):
                raise StoreError(f"{self._state_dir}: rounds are missing after the checkpoint of round {state.k}")
            charged: dict[int, list[LedgerRow]] = {k: [] for k, *_ in found}
            for row in select_rows(self._db, run, state.k):
                charged[row.k].append(row)
        records = []
        for k, batch, dimension, *held in found:
            x, y = self.payloads(run_id, k)
            for payload in (x, y):
                if hashlib.sha256(payload.data).digest() != payload.sha256:
                    raise StoreError(f"{self._state_dir}: {payload.stream} of round {k} is torn")
            noisy = self._noisy_gradient(k, dimension, *held)
            records.append(RoundRecord(k, x, y, tuple(charged[k]), _batch_array(batch), None, noisy))
        return Recovered(state, tuple(records))

    def _state(
        self, k: int, dimension: int, sha256: bytes, data: bytes | None, file: str | None, batch: bytes
    ) -> State:
        raw = data if file is None else self._blobs.read(file, 5 * 8 * dimension)
        assert raw is not None
        if hashlib.sha256(raw).digest() != sha256:
            raise StoreError(f"{self._state_dir}: the checkpoint of round {k} is torn")
        px, tx, p, t, g = np.array(np.frombuffer(raw, dtype="<f8")).reshape(5, dimension)  # copied out of the mapping
        return State(k, px, tx, p, t, g, _batch_array(batch))

    def _noisy_gradient(
        self, k: int, dimension: int, sha256: bytes | None, data: bytes | None, file: str | None
    ) -> F64 | None:
        if sha256 is None:
            return None
        raw = data if file is None else self._blobs.read(file, 8 * dimension)
        if raw is None or hashlib.sha256(raw).digest() != sha256:
            raise StoreError(f"{self._state_dir}: the perturbed gradient of round {k} is torn")
        return np.array(np.frombuffer(raw, dtype="<f8"))

    def prune(self, run_id: bytes, through: int) -> None:
        """Drop payload bytes and batches of rounds <= ``through``; hashes and ledger rows stay.

        What ``recover`` needs (rounds from the last checkpoint on) stays too, whatever ``through`` says.
        """
        run, done = self._ids[run_id], self._pruned.get(run_id, -1)
        with self._blamed("cannot be pruned"):
            row = self._db.execute("SELECT k FROM checkpoints WHERE run = ?", (run,)).fetchone()
            through = min(through, row[0] - 1 if row else -1)
            if through <= done:
                return
            where, which = "run = ? AND k > ? AND k <= ?", (run, done, through)
            files = self._db.execute(f"SELECT x_file, y_file, g_file FROM rounds WHERE {where}", which).fetchall()
            nothing = ", ".join(
                f"{column} = NULL" for column in ("x_data", "x_file", "y_data", "y_file", "batch", "g_data", "g_file")
            )
            with self._transaction() as db:
                db.execute(f"UPDATE rounds SET {nothing} WHERE {where}", which)
            self._pruned[run_id] = through
            self._blobs.remove(name for names in files for name in names if name is not None)

    # --- ledger

    def ledger(self, run_id: bytes | None = None) -> Ledger:
        """The ledger, its chain verified; the entries of one run, or of all.  LedgerBroken names the first bad row."""
        with self._blamed("cannot be read"):
            return select_ledger(self._db, run_id, self._state_dir / DATABASE)

    def charges(self) -> tuple[Charge, ...]:
        """What every run has cost so far, the chain verified.  LedgerBroken names the first bad row."""
        with self._blamed("cannot be read"):
            return select_charges(self._db, self._state_dir / DATABASE)


def _batch_bytes(batch: I64) -> bytes:
    return np.ascontiguousarray(batch, dtype="<i8").tobytes()


def _batch_array(batch: bytes | None) -> I64:
    return np.frombuffer(batch or b"", dtype="<i8")
