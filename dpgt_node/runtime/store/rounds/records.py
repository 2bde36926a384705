"""A round as rows and files, and back: what is stored is checked on the way in, what is read against its seals."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from dpgt_node.errors import StoreError, invariant
from dpgt_node.protocol.types import LedgerRow, Payload, RoundRecord, State
from dpgt_node.runtime.store.faults import DAMAGED
from dpgt_node.runtime.store.ledger import cost_text, next_head
from dpgt_node.runtime.store.limits import FILE_BYTES
from dpgt_node.runtime.store.rounds import rows
from dpgt_node.runtime.store.rounds.blobs import BlobFolder
from dpgt_node.runtime.store.schema import REPLACE_CHECKPOINT, ROUNDS_MAX, round_key
from dpgt_node.types import Stream
from dpgt_node.values import value

BLOBS = "blobs"
"""Folder of the files, in the state directory."""
File = tuple[str, Sequence[bytes | memoryview]]
"""Name and parts."""


@value(frozen=True, slots=True)
class Stored:
    """Values of the statements that commit a round (``schema``).

    ``charged``: of its ledger rows, ``head`` behind the last of them.  ``files``: what is too large for a row.
    ``state``: its checkpoint, where it has one.
    """

    round: tuple[Any, ...] = field(repr=False)
    payloads: tuple[Any, ...] = field(repr=False)
    charged: Sequence[tuple[Any, ...]]
    head: bytes
    files: Sequence[File] = field(repr=False)
    state: StoredState | None


@value(frozen=True, slots=True)
class StoredState:
    """A checkpoint before round ``k``: its row, and the file where it is too large for one."""

    k: int
    row: tuple[Any, ...] = field(repr=False)
    files: Sequence[File] = field(repr=False)


def stored(
    run: int, run_id: bytes, record: RoundRecord, rows_charged: Sequence[LedgerRow], head: bytes, text: str
) -> Stored:
    """``record`` of run number ``run``, its rows as they are charged, behind ``head`` in the ledger; ``text``: the part
    that rows share.

    Broken: the record holds vectors of two rounds or shapes, or a stream twice.
    """
    k, sent = record.k, {payload.stream: payload for payload in record.payloads}
    dtype, dimension = _checked(record, rows_charged, sent)
    files: list[File] = []

    def placed(what: str, data: bytes | memoryview | None) -> bytes | memoryview | None:
        if data is None or memoryview(data).nbytes <= FILE_BYTES:
            return data
        files.append((file_name(run_id, k, what), (data,)))
        return None

    charged = []
    for row in rows_charged:
        cost = cost_text(row.cost)
        head = next_head(head, text, row, cost)
        charged.append((run, k, row.stream, row.mechanism, row.law, row.scale, row.sensitivity, row.sha256, cost, head))
    batch = rows.batch_bytes(record.batch)
    g = None if record.noisy_gradient is None else rows.f64_bytes(record.noisy_gradient)
    g_sha256 = None if g is None else hashlib.sha256(g).digest()
    x, y = sent.get("X"), sent.get("Y")
    x_sha256, y_sha256 = None if x is None else x.sha256, None if y is None else y.sha256
    seal = rows.payloads_seal(run_id, k, dtype, dimension, x_sha256, y_sha256, batch, g_sha256)
    x_data, y_data = placed("X", None if x is None else x.data), placed("Y", None if y is None else y.data)
    payloads = (
        round_key(run, k), dtype, dimension, x_data, y_data, batch, g_sha256, placed("G", g), seal,
    )  # fmt: skip
    state = None if record.checkpoint is None else stored_state(run, run_id, record.checkpoint)
    at = (round_key(run, k), x_sha256, y_sha256, not charged)
    return Stored(at, payloads, charged, head, files if state is None else [*files, *state.files], state)


def _checked(record: RoundRecord, rows_charged: Sequence[LedgerRow], sent: dict[Stream, Payload]) -> tuple[str, int]:
    """dtype and dimension of the round's vectors."""
    k, shapes = record.k, set()
    for payload in record.payloads:
        invariant(payload.k == k, "a record holds one round")
        shapes.add((rows.format_text(payload.dtype, payload.codes), payload.dimension))
    invariant(len(sent) == len(record.payloads), "one vector a stream")
    if record.noisy_gradient is not None and not shapes:
        shapes.add(("float64", record.noisy_gradient.size))
    invariant(len(shapes) == 1, "all payloads of a round have one shape")
    before = ""
    for row in rows_charged:
        invariant(row.k == k and row.stream > before, "a stream is charged once")
        before = row.stream
    return shapes.pop()


def stored_state(run: int, run_id: bytes, at: State) -> StoredState:
    """``at`` of run number ``run``.  Broken: it is not complete."""
    vectors, parts, digest = rows.layout(at), rows.state_parts(at), hashlib.sha256()
    for part in parts:
        digest.update(part)
    files: list[File] = []
    if large := rows.size_of(vectors) > FILE_BYTES:  # no copy of hundreds of megabytes
        files.append((file_name(run_id, at.k, "state"), parts))
    drawn = rows.batch_bytes(at.batch)
    sealed = rows.checkpoint_seal(run_id, at.k, vectors, digest.digest(), drawn)
    row = (run, at.k, vectors, digest.digest(), None if large else b"".join(parts), drawn, sealed)
    return StoredState(at.k, row, files)


def replace_state(db: sqlite3.Connection, run_id: bytes, new: StoredState) -> list[str]:
    """Put ``new`` in the place of the run's checkpoint, in a transaction; files to be removed once it committed."""
    old = db.execute("SELECT k, data IS NULL FROM checkpoints WHERE run = ?", new.row[:1]).fetchone()
    invariant(old is None or old[0] < new.k, "a state follows an older one")
    db.execute(REPLACE_CHECKPOINT, new.row)
    return [file_name(run_id, old[0], "state")] if old is not None and old[1] else []


def record_of(
    where: Path, blobs: BlobFolder, run_id: bytes, values: tuple[Any, ...], charged: Sequence[LedgerRow]
) -> RoundRecord:
    """The round of a row of ``SELECT_PAYLOADS``.  StoreError naming ``where``: torn; OSError: a file is not there."""
    key, dtype, dimension, x_sha256, x_data, y_sha256, y_data, batch, g_sha256, g_data, seal = values
    k = key % ROUNDS_MAX
    if seal != rows.payloads_seal(run_id, k, dtype, dimension, x_sha256, y_sha256, batch, g_sha256):
        raise StoreError(f"{where}: the row of round {k} is torn: it is not what was stored; {DAMAGED}")
    name, codes = rows.format_of(dtype)
    nbytes = dimension * np.dtype(name).itemsize

    def vector(what: str, data: bytes | None, sha256: bytes, nbytes: int) -> bytes | memoryview:
        raw = blobs.read(file_name(run_id, k, what), nbytes) if data is None else data
        return rows.intact(raw, sha256, nbytes, f"{where}: {what} of round {k}")

    def payload(stream: Stream, data: bytes | None, sha256: bytes) -> Payload:
        return Payload(stream, k, name, dimension, vector(stream, data, sha256, nbytes), sha256, codes)

    noisy = None
    if g_sha256 is not None:
        noisy = np.array(np.frombuffer(vector("G", g_data, g_sha256, 8 * dimension), dtype="<f8"))
    held: tuple[tuple[Stream, bytes | None, bytes | None], ...]
    held = (("X", x_data, x_sha256), ("Y", y_data, y_sha256))
    payloads = tuple(payload(stream, data, sha256) for stream, data, sha256 in held if sha256 is not None)
    return RoundRecord(k, payloads, tuple(charged), rows.batch_array(batch), None, noisy)


def checkpoint_of(
    where: Path,
    blobs: BlobFolder,
    run_id: bytes,
    k: int,
    vectors: str,
    sha256: bytes,
    data: bytes | None,
    batch: bytes,
    seal: bytes,
) -> State:
    """The state of a row of ``checkpoints`` (without its run).  Raises as ``record_of``."""
    what = f"{where}: the checkpoint of round {k}"
    if seal != rows.checkpoint_seal(run_id, k, vectors, sha256, batch):
        raise StoreError(f"{what} is torn: its row is not what was stored; {DAMAGED}")
    nbytes = rows.size_of(vectors)
    raw = blobs.read(file_name(run_id, k, "state"), nbytes) if data is None else data
    return rows.state_of(k, vectors, rows.intact(raw, sha256, nbytes, what), batch)


def file_name(run_id: bytes, k: int, what: str) -> str:
    """Where a vector of more than FILE_BYTES lies: X, Y, G of round ``k``, or the "state" before it."""
    return f"{run_id.hex()}-{k:010d}-{what}"


def blob_path(state_dir: Path, run_id: bytes, k: int, what: str) -> Path:
    """Where a vector lies whose bytes are not in the database."""
    return state_dir / BLOBS / file_name(run_id, k, what)


def large_files(db: sqlite3.Connection, ids: Mapping[bytes, int]) -> set[str]:
    """The files that rows say are there.  ``ids``: the number of each run."""
    names = {number: run_id for run_id, number in ids.items()}
    large = "SELECT id, g_sha256 IS NOT NULL AND g_data IS NULL, x_data IS NULL FROM payloads"
    found: set[str] = set()
    for key, g, xy in db.execute(large):
        run_id, k = names.get(key // ROUNDS_MAX, b""), key % ROUNDS_MAX
        found.update(file_name(run_id, k, what) for what in ("XY" if xy else "") + ("G" if g else ""))
    for run, k in db.execute("SELECT run, k FROM checkpoints WHERE data IS NULL"):
        found.add(file_name(names.get(run, b""), k, "state"))
    return found
