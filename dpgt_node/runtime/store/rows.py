"""What a row of the store says as bytes, and the seals that make a flipped bit in any of it show.

SQLite has no checksums.  Vectors carry their SHA-256; a seal covers the small fields beside them (round, shape,
batch, the hashes themselves) and the run, so that no row can stand in for another.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np

from dpgt_node.errors import StoreError, invariant
from dpgt_node.protocol.types import State
from dpgt_node.types import F64, I64

_WHERE = struct.Struct("<16sqq8s")


def batch_bytes(batch: I64) -> bytes:
    """Little-endian int64."""
    return np.ascontiguousarray(batch, dtype="<i8").tobytes()


def batch_array(batch: bytes) -> I64:
    """The indices again, read-only."""
    return np.frombuffer(batch, dtype="<i8")


def f64_bytes(vector: F64) -> memoryview:
    """Little-endian float64; no copy where the vector is that already."""
    return np.ascontiguousarray(vector, dtype="<f8").data.cast("B")


def payloads_seal(
    run_id: bytes, k: int, dtype: str, dimension: int, x: bytes, y: bytes, batch: bytes, g: bytes | None
) -> bytes:
    """Seal of a row of ``payloads``; ``x``, ``y``, ``g``: SHA-256 of the vectors, 32 bytes."""
    head = _WHERE.pack(run_id, k, dimension, dtype.encode())
    return hashlib.sha256(b"".join((head, x, y, g or bytes(32), batch))).digest()


def checkpoint_seal(run_id: bytes, k: int, dimension: int, sha256: bytes, batch: bytes) -> bytes:
    """Seal of a row of ``checkpoints``."""
    return hashlib.sha256(b"".join((_WHERE.pack(run_id, k, dimension, b"state"), sha256, batch))).digest()


def state_parts(state: State) -> list[memoryview]:
    """The five vectors of a checkpoint."""
    vectors = (state.px, state.tx, state.p, state.t, state.g)
    invariant(all(v.shape == vectors[0].shape for v in vectors), "a state is five vectors of one size")
    return [f64_bytes(v) for v in vectors]


def state_of(k: int, dimension: int, raw: bytes | memoryview, batch: bytes) -> State:
    """The checkpoint again, copied out of ``raw`` (5 * 8 * dimension bytes)."""
    px, tx, p, t, g = np.array(np.frombuffer(raw, dtype="<f8")).reshape(5, dimension)
    return State(k, px, tx, p, t, g, batch_array(batch))


def intact(data: bytes | memoryview | None, sha256: bytes, nbytes: int, what: str) -> bytes | memoryview:
    """``data``, if it is what was hashed.  StoreError: ``what`` is torn."""
    if data is None or memoryview(data).nbytes != nbytes or hashlib.sha256(data).digest() != sha256:
        raise StoreError(f"{what} is torn: its bytes are not those that were stored")
    return data
