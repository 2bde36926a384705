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
from dpgt_node.types import F64, I64, Codes, WireDtype

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
    run_id: bytes,
    k: int,
    dtype: str,
    dimension: int,
    x: bytes | None,
    y: bytes | None,
    batch: bytes,
    g: bytes | None,
) -> bytes:
    """Seal of a row of ``payloads``; ``x``, ``y``, ``g``: SHA-256 of the vectors, 32 bytes, or None."""
    text = dtype.encode()
    head = _WHERE.pack(run_id, k, dimension, text[:8]) + text[8:]
    hashes = (one or bytes(32) for one in (x, y, g))
    return hashlib.sha256(b"".join((head, *hashes, batch))).digest()


def format_text(dtype: WireDtype, codes: Codes | None) -> str:
    """``payloads.dtype``: the dtype, and after integers what they stand for, so that a row can be read by itself."""
    if codes is None:
        return dtype
    return f"{dtype} {codes.step.hex()} {codes.offset.hex()} {codes.low} {codes.high}"


def format_of(text: str) -> tuple[WireDtype, Codes | None]:
    """What :func:`format_text` wrote.  ValueError: it wrote something else."""
    name, *said = text.split(" ")
    if not said and name == "float64":
        return "float64", None
    if not said and name == "float32":
        return "float32", None
    if len(said) != 4:
        raise ValueError(f"{text!r} is no format of vectors")
    step, offset, low, high = said
    codes = Codes(float.fromhex(step), float.fromhex(offset), int(low), int(high))
    if codes.dtype != name:
        raise ValueError(f"{text!r} is no format of vectors: the range has another dtype")
    return codes.dtype, codes


def checkpoint_seal(run_id: bytes, k: int, vectors: str, sha256: bytes, batch: bytes) -> bytes:
    """Seal of a row of ``checkpoints``."""
    head = _WHERE.pack(run_id, k, len(vectors), b"state")
    return hashlib.sha256(b"".join((head, vectors.encode(), sha256, batch))).digest()


def layout(state: State) -> str:
    """Names and sizes of a checkpoint's vectors, in their order."""
    return " ".join(f"{name}={vector.size}" for name, vector in state.vectors.items())


def size_of(vectors: str) -> int:
    """Bytes of a checkpoint of this layout."""
    return sum(8 * size for _, size in _parsed(vectors))


def state_parts(state: State) -> list[memoryview]:
    invariant(not state.pending, "a state is stored once it is complete")
    return [f64_bytes(vector) for vector in state.vectors.values()]


def state_of(k: int, vectors: str, raw: bytes | memoryview, batch: bytes) -> State:
    """The checkpoint again, copied out of ``raw``."""
    values, found, start = np.array(np.frombuffer(raw, dtype="<f8")), dict[str, F64](), 0
    for name, size in _parsed(vectors):
        found[name] = values[start : start + size]
        start += size
    return State(k, found, batch_array(batch))


def _parsed(vectors: str) -> list[tuple[str, int]]:
    pairs = (one.split("=") for one in vectors.split())
    return [(name, int(size)) for name, size in pairs]


def intact(data: bytes | memoryview | None, sha256: bytes, nbytes: int, what: str) -> bytes | memoryview:
    """``data``, if it is what was hashed.  StoreError: ``what`` is torn."""
    if data is None or memoryview(data).nbytes != nbytes or hashlib.sha256(data).digest() != sha256:
        raise StoreError(f"{what} is torn: its bytes are not those that were stored")
    return data
