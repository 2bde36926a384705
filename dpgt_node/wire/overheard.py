"""Frames as somebody reads them who was not asked: what is there, with holes, of any run.

The gate (:mod:`dpgt_node.wire.codec`) knows what must come and refuses the rest; a tap knows nothing beforehand, and
parts of what it has may be missing.  Ranges are [start, end), of the bytes of a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpgt_node.errors import PeerError
from dpgt_node.types import Stream, WireDtype
from dpgt_node.values import dataclass
from dpgt_node.wire.codec import (
    CHUNK_BYTES,
    DTYPE,
    DTYPE_NAME,
    DTYPE_NUMBER,
    INLINE_BYTES,
    MAX_VECTOR_BYTES,
    STREAM_NUMBER,
)
from dpgt_node.wire.fields import RUN_ID_BYTES, bytes_field, malformed, name_field, parse, require, shown, varint
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2

VECTOR_TAG, CHUNK_TAG = 0x0A, 0x12
_DATA_FIELD = 9
_STREAM_NUMBERS: dict[Stream | None, int] = {None: int(agent_pb2.STUDY)} | STREAM_NUMBER
_STREAM_NAMES = {number: name for name, number in _STREAM_NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class Overheard:
    """The header of a vector.  ``stream`` None: a private vector on its way to the coordinator of a study run.

    ``sha256``: as declared; empty: it was not seen.  ``values``: where they are in the frame, None when chunks follow.
    ``from_byte``: those chunks begin there, for what is before crossed on an earlier call.
    """

    run_id: bytes
    sender: str
    k: int
    stream: Stream | None
    dtype: WireDtype
    dimension: int
    sha256: bytes
    values: tuple[int, int] | None
    from_byte: int = 0

    @property
    def nbytes(self) -> int:
        return self.dimension * DTYPE[self.dtype].itemsize


def read_vectors(frame: memoryview, holes: Sequence[tuple[int, int]] = ()) -> tuple[Overheard, ...]:
    """The headers in a frame of vectors that are there without a hole.  PeerError, naming what is wrong, for anything
    that is no such frame even where it was seen.
    """
    found = []
    at = count = 0
    while at < len(frame):
        try:
            require(frame[at] == VECTOR_TAG, f"field {frame[at] >> 3} where a vector is expected")
            size, start = read_varint(frame, at + 1)
            require(start + size <= len(frame), "a vector longer than its frame")
        except PeerError:
            if holes:
                break  # it may be a hole's doing
            raise
        try:
            found.append(_vector(frame, at, start, start + size, holes))
        except PeerError:
            if not any(a < start + size and b > at for a, b in holes):
                raise
        at = start + size
        count += 1
    require(count <= 2 and (count > 0 or bool(holes)), f"a frame with {count} vectors")
    return tuple(found)


def _vector(frame: memoryview, begin: int, start: int, end: int, holes: Sequence[tuple[int, int]]) -> Overheard:
    values = None
    at = start
    while at < end:
        tag, body = read_varint(frame, at)
        if tag == _DATA_FIELD << 3 | 2:
            size, body = read_varint(frame, body)
            require(body + size == end, "values that are not the last field of a vector")
            values = body, end
            break
        require(tag & 7 in (0, 2), f"wire type {tag & 7}")
        number, at = read_varint(frame, body)
        at += number if tag & 7 == 2 else 0
    last = values[0] if values else end
    require(not any(a < last and b > begin for a, b in holes), "a header of which a part is missing")
    head = frame[start : at if values else end]
    message = parse(agent_pb2.Vector, bytes(head), "vector")
    dtype = DTYPE_NAME.get(message.dtype)
    if dtype is None or message.stream not in _STREAM_NAMES:
        raise malformed(f"stream {message.stream} or dtype {message.dtype} is not known")
    size = message.dimension * DTYPE[dtype].itemsize
    require(message.dimension >= 1 and message.nbytes == size, "a size that is not the dimension's")
    require(message.nbytes <= MAX_VECTOR_BYTES, f"a vector of {message.nbytes} bytes")
    inline = message.nbytes <= INLINE_BYTES
    require(inline == (values is not None), "values that should be in chunks, or chunks that should be inline")
    require(values is None or values[1] - values[0] == message.nbytes, "values of another size than declared")
    most = 0 if inline else message.nbytes - 1
    require(message.from_byte <= most, f"a vector of {message.nbytes} bytes from byte {message.from_byte} on")
    return Overheard(
        bytes_field(message.run_id, "run id", RUN_ID_BYTES),
        name_field(message.sender, "sender"),
        message.round,
        _STREAM_NAMES[message.stream],
        dtype,
        message.dimension,
        bytes_field(message.sha256, "sha256", 32),
        values,
        message.from_byte,
    )


def predicted(pattern: Sequence[Overheard], k: int) -> tuple[int, tuple[Overheard, ...]]:
    """The size of the frame with the same vectors of round ``k``, and its headers, their hashes not seen."""
    size = 0
    heads = []
    for like in pattern:
        inline = like.nbytes <= INLINE_BYTES
        vector = agent_pb2.Vector(
            run_id=like.run_id,
            sender=like.sender,
            round=k,
            stream=_STREAM_NUMBERS[like.stream],  # type: ignore[arg-type]
            dtype=DTYPE_NUMBER[like.dtype],  # type: ignore[arg-type]
            dimension=like.dimension,
            nbytes=like.nbytes,
            sha256=bytes(32),
        )
        body = vector.ByteSize() + (1 + len(varint(like.nbytes)) + like.nbytes if inline else 0)
        size += 1 + len(varint(body)) + body
        heads.append(replace(like, k=k, sha256=b"", values=(size - like.nbytes, size) if inline else None, from_byte=0))
    return size, tuple(heads)


def chunk_frame_bytes(size: int) -> int:
    """Size of the frame of a chunk of ``size`` bytes."""
    return 1 + len(varint(size)) + size


def read_chunk(frame: memoryview) -> tuple[int, int]:
    """Where the values of a chunk frame begin and end; PeerError if it is none."""
    size, start = read_varint(frame, 1)
    require(frame[0] == CHUNK_TAG and start + size == len(frame), "a chunk frame that holds something else")
    require(0 < size <= CHUNK_BYTES, f"a chunk of {size} bytes")
    return start, len(frame)


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number at ``at`` and where it ends; PeerError when it does not."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise malformed(f"a number that does not end: {shown(bytes(data[at - 1 : at + 4]))}")
