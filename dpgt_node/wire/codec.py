"""Vectors on the wire: payloads to frames, frames to payloads, and the one validation gate.

Small vectors (<= 64 KiB) travel inside one protobuf ``Frame``, X and Y of a round together.  A larger one is a Frame
with its header, then Frames that hold only a chunk of <= 1 MiB.  Chunk frames are valid protobuf too, but are written
and read by hand: one copy on the way out (value bytes into the frame), one on the way in (frame into the vector's
buffer), where the protobuf runtime would make two or three.  A vector that a broken call left incomplete goes on in
the next one where it stopped, if both ends still have it.

Nothing a peer sends gets past :class:`Reassembler` unless run, sender, edge, round, dtype, dimension, size, finiteness
(range, of integers) and hash are right; inside, only assertions are left.  A buffer is allocated only after its
declared size was found to be the size this run needs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dpgt_node.errors import PeerError
from dpgt_node.protocol.dummies import Dummy
from dpgt_node.protocol.messages import Prefix
from dpgt_node.protocol.types import Payload
from dpgt_node.types import F64, Codes, Stream, WireDtype
from dpgt_node.values import dataclass
from dpgt_node.wire.fields import RUN_ID_BYTES, malformed, parse, shown, varint
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2
from dpgt_node.wire.kept import Kept, OpenVector
from dpgt_node.wire.traffic.room import Limits, Room, zeros
from dpgt_node.wire.traffic.small import Usual, small, valid

INLINE_BYTES = 64 << 10
CHUNK_BYTES = 1 << 20
MAX_VECTOR_BYTES = 4 << 30
_MAX_HEADER_FRAME = 2 * (INLINE_BYTES + 1024)
HEADER_TAG = 0x0A  # field 1, length-delimited
_CHUNK_TAG = 0x12  # field 2, length-delimited
_STUDY = int(agent_pb2.STUDY)
_COVER = int(agent_pb2.COVER)
STREAM_NUMBER: dict[Stream, int] = {"X": int(agent_pb2.X), "Y": int(agent_pb2.Y)}
_STREAM_NAME: dict[int, str] = {1: "X", 2: "Y", 3: "STUDY"}
DTYPE_NUMBER: dict[WireDtype, int] = {
    "float64": int(agent_pb2.FLOAT64),
    "float32": int(agent_pb2.FLOAT32),
    "int8": int(agent_pb2.INT8),
    "int16": int(agent_pb2.INT16),
    "int32": int(agent_pb2.INT32),
}
DTYPE_NAME: dict[int, WireDtype] = {number: name for name, number in DTYPE_NUMBER.items()}
DTYPE: dict[WireDtype, np.dtype[Any]] = {name: np.dtype(name).newbyteorder("<") for name in DTYPE_NUMBER}
_FLOATS: tuple[WireDtype, ...] = ("float64", "float32")

# --- out ----------------------------------------------------------------------------------------------------------


def study_payload(k: int, x: F64) -> Payload:
    """x_{i,k}, float64, shape (d,), as a payload for ``encode_vectors(..., study=True)``; shares memory with ``x``."""
    data = np.ascontiguousarray(x, dtype="<f8").data.cast("B").toreadonly()
    return Payload("X", k, "float64", x.shape[0], data, hashlib.sha256(data).digest())


def encode_vectors(
    run_id: bytes, sender: str, payloads: Iterable[Payload], *, study: bool = False, prefix: Prefix | None = None
) -> Iterator[bytes]:
    """The frames of one round's payloads (at most one X and one Y), to be sent in this order with nothing in between.

    ``study``: the payloads are private x_{i,k} for the coordinator (``study_payload``), one at a time.  ``prefix``:
    what the receiver has, perhaps of one of them: the chunks of that one begin behind it.
    """
    inline: list[bytes | memoryview] = []
    large: list[Payload] = []
    for payload in payloads:
        if (nbytes := payload.nbytes) > INLINE_BYTES:
            large.append(payload)
        elif payload.k and nbytes:
            number = _number(payload, study)
            form = small(run_id, sender, number, DTYPE_NUMBER[payload.dtype], payload.dimension, nbytes)
            inline += form.head(payload.k), payload.sha256, form.middle, payload.data
        else:
            frame = agent_pb2.Frame()
            _header(frame, run_id, sender, payload, study).data = bytes(payload.data)
            inline.append(frame.SerializeToString())
    if inline:
        yield b"".join(inline)
    for payload in large:
        frame = agent_pb2.Frame()
        begin = prefix.nbytes if prefix is not None and is_of(prefix, payload) else 0
        _header(frame, run_id, sender, payload, study).from_byte = begin
        yield frame.SerializeToString()
        data = memoryview(payload.data)
        for start in range(begin, data.nbytes, CHUNK_BYTES):
            chunk = data[start : start + CHUNK_BYTES]
            yield b"".join((_chunk_prefix(chunk.nbytes), chunk))


def is_of(prefix: Prefix, payload: Payload) -> bool:
    """Whether these are the first bytes of this very payload, and not all of it."""
    same = (prefix.stream, prefix.k, prefix.sha256) == (payload.stream, payload.k, payload.sha256)
    return same and 0 < prefix.nbytes < payload.nbytes


def _header(frame: agent_pb2.Frame, run_id: bytes, sender: str, payload: Payload, study: bool) -> agent_pb2.Vector:
    return frame.vectors.add(
        run_id=run_id,
        sender=sender,
        round=payload.k,
        stream=_number(payload, study),
        dtype=DTYPE_NUMBER[payload.dtype],
        dimension=payload.dimension,
        nbytes=payload.nbytes,
        sha256=payload.sha256,
    )


def _number(payload: Payload, study: bool) -> int:
    if study:
        return _STUDY
    return _COVER if isinstance(payload, Dummy) else STREAM_NUMBER[payload.stream]


def _chunk_prefix(nbytes: int) -> bytes:
    return bytes((_CHUNK_TAG,)) + varint(nbytes)


def chunk_frame_bytes(nbytes: int) -> int:
    """Of the frame of a chunk of ``nbytes``."""
    return len(_chunk_prefix(nbytes)) + nbytes


def _chunk_body(frame: memoryview) -> memoryview:
    """The chunk of a frame that holds nothing else, without a copy; refused unless written the one way."""
    declared = 0
    for position in range(1, min(5, frame.nbytes)):
        byte = frame[position]
        declared |= (byte & 0x7F) << 7 * (position - 1)
        if byte < 0x80:
            body = frame[position + 1 :]
            if declared != body.nbytes:
                raise malformed(f"chunk frame declares {declared} bytes and holds {body.nbytes}")
            if byte == 0 and position > 1:
                raise malformed("chunk frame with a length longer than it need be")
            return body
    raise malformed("chunk frame without a valid length")


# --- in -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gate:
    """What is acceptable on one call.

    ``sender``: the peer's proven name.  ``streams``: those of this directed edge (an R-only edge: only X).
    ``window(stream)``: the rounds (low, high), both included, acceptable at this moment; when the Reassembler is made,
    low is the round this call must begin with (Resume).  ``study``: Upload; every vector is STUDY, arrives as a
    Payload of stream "X", and rounds increase instead of being consecutive.  ``codes``: of an integer dtype.
    ``limits``: of padding and dummies, which are handed on as ``Dummy``; None: they are refused.
    """

    run_id: bytes
    sender: str
    streams: frozenset[Stream]
    dtype: WireDtype
    dimension: int
    window: Callable[[Stream], tuple[int, int]]
    study: bool = False
    codes: Codes | None = None
    limits: Limits | None = None

    def __post_init__(self) -> None:
        assert len(self.run_id) == RUN_ID_BYTES
        assert self.dimension >= 1
        assert self.dtype in _FLOATS if self.codes is None else self.dtype == self.codes.dtype
        assert not self.study or self.streams == {"X"}


class Reassembler:
    """Frames of one call to complete, valid payloads.  One call, one reader; after a PeerError it refuses everything.

    ``feed`` of a chunk frame hashes up to 1 MiB (about 1 ms): callers may run it in a thread, one frame at a time.
    ``kept``: what calls of this edge hand to the next one.
    """

    __slots__ = ("_broken", "_dtype", "_gate", "_kept", "_nbytes", "_next", "_open", "_room", "_streams", "_usual")

    def __init__(self, gate: Gate, kept: Kept | None = None) -> None:
        self._gate = gate
        self._kept = kept or Kept()
        self._kept.hand_on(self.stop)
        self._dtype = DTYPE[gate.dtype]
        self._nbytes = gate.dimension * self._dtype.itemsize
        self._streams: dict[int, Stream] = {
            _STUDY if gate.study else STREAM_NUMBER[stream]: stream for stream in gate.streams
        }
        self._next: dict[Stream, int] = {stream: gate.window(stream)[0] for stream in gate.streams}
        self._open: OpenVector | None = None
        self._room = Room(gate.limits)
        self._usual: Usual | None = None
        if self._nbytes <= INLINE_BYTES and not gate.study and gate.limits is None:
            shape = DTYPE_NUMBER[gate.dtype], gate.dimension, self._nbytes
            forms = {s: small(gate.run_id, gate.sender, STREAM_NUMBER[s], *shape) for s in sorted(gate.streams)}
            self._usual = Usual(forms, gate.window, gate.dtype, gate.dimension, gate.codes)
        self._broken = False

    def feed(self, frame: bytes | memoryview) -> list[Payload]:
        """The payloads that ``frame`` completed, in the order of the frame.

        PeerError, naming what is wrong, with the status to answer, for anything that is not exactly the protocol.
        """
        if self._broken:  # a reader that goes on after a refusal would count rounds that were never handed out
            raise malformed("a frame after one that was refused")
        try:
            usual = None if self._usual is None else self._usual.read(frame, self._next)
            return self._feed(frame) if usual is None else usual
        except PeerError:
            self._kept.vector = None
            self.stop()
            raise

    def _feed(self, frame: bytes | memoryview) -> list[Payload]:
        view = memoryview(frame)
        if view.nbytes == 0:
            raise malformed("empty frame")
        if view[0] == _CHUNK_TAG:
            return self._feed_chunk(_chunk_body(view))
        if self._open is not None:
            raise malformed(f"a header arrived while {self._described(self._open)} was incomplete")
        if view.nbytes > (most := self._room.frame_bytes(_MAX_HEADER_FRAME)):
            message = f"header frame of {view.nbytes} bytes; the limit is {most}"
            raise PeerError(message, grpc_status="RESOURCE_EXHAUSTED")
        parsed = parse(agent_pb2.Frame, frame if isinstance(frame, bytes) else bytes(frame), "frame")
        if self._room.takes_padding(parsed):
            return []
        vectors = parsed.vectors
        count = len(vectors)
        if parsed.chunk or not 1 <= count <= 2:
            raise malformed(f"frame with {count} vectors and a chunk of {len(parsed.chunk)} bytes")
        if count == 1 and not vectors[0].data:
            self._open_chunked(vectors[0])
            return []
        if count == 2 and vectors[0].round != vectors[1].round:
            raise malformed(f"frame with rounds {vectors[0].round} and {vectors[1].round}")
        return [self._inline(vector) for vector in vectors]

    def stop(self) -> None:
        """Refuse whatever comes from here on."""
        self._broken, self._open = True, None

    def finish(self) -> str | None:
        """At the end of the call: None, or which vector was left incomplete (it was never handed out)."""
        return None if self._open is None else f"the call ended while {self._described(self._open)} was incomplete"

    # --- headers

    def _stream(self, vector: agent_pb2.Vector) -> Stream | None:
        """Everything a header says, checked against the gate; the stream it is of, None for a dummy."""
        gate = self._gate
        if vector.run_id != gate.run_id:
            raise PeerError(f"vector of run {shown(vector.run_id.hex())}, this is run {gate.run_id.hex()}")
        if vector.sender != gate.sender:
            message = f"vector of sender {shown(vector.sender)} on the call of {gate.sender}"
            raise PeerError(message, grpc_status="PERMISSION_DENIED")
        stream = self._streams.get(vector.stream)
        dummy = stream is None and self._room.takes_dummy(vector)
        if stream is not None:
            self._check_round(stream, vector.round)
        elif not dummy:
            name = _STREAM_NAME.get(vector.stream, str(vector.stream))
            message = f"stream {name} is not on the edge from {gate.sender}"
            raise PeerError(message, grpc_status="PERMISSION_DENIED")
        if vector.dtype != DTYPE_NUMBER[gate.dtype]:
            named = DTYPE_NAME.get(vector.dtype, "not known here")
            raise malformed(f"dtype number {vector.dtype} ({named}), this run has {gate.dtype}")
        if vector.dimension != gate.dimension:
            raise malformed(f"dimension {vector.dimension}, this run has {gate.dimension}")
        if vector.nbytes != self._nbytes:
            raise malformed(f"nbytes {vector.nbytes}, {gate.dimension} {gate.dtype} values have {self._nbytes}")
        if self._nbytes > MAX_VECTOR_BYTES:
            message = f"vector of {self._nbytes} bytes; the limit is {MAX_VECTOR_BYTES}"
            raise PeerError(message, grpc_status="RESOURCE_EXHAUSTED")
        if len(vector.sha256) != 32:
            raise malformed(f"sha256 of {len(vector.sha256)} bytes")
        if vector.from_byte and self._nbytes <= INLINE_BYTES:
            raise malformed(f"a vector of {self._nbytes} bytes, which travels whole, from byte {vector.from_byte} on")
        return stream

    def _check_round(self, stream: Stream, k: int) -> None:
        """A gap would lose a vector for ever, a repetition would count one twice: neither gets in."""
        expected = self._next[stream]
        low, high = self._gate.window(stream)
        if not (k >= expected if self._gate.study else k == expected):
            message = f"{stream} of round {k} from {self._gate.sender}, expected round {expected}"
            raise PeerError(message, grpc_status="OUT_OF_RANGE")
        if not low <= k <= high:
            message = f"{stream} of round {k} from {self._gate.sender} is outside the window of rounds {low} to {high}"
            raise PeerError(message, grpc_status="OUT_OF_RANGE")

    def _payload(self, stream: Stream | None, vector: agent_pb2.Vector, data: bytes | memoryview) -> Payload:
        gate = self._gate
        made = Dummy if stream is None else Payload
        return made(stream or "X", vector.round, gate.dtype, gate.dimension, data, vector.sha256, gate.codes)

    # --- whole vectors

    def _inline(self, vector: agent_pb2.Vector) -> Payload:
        stream = self._stream(vector)
        data = vector.data
        if self._nbytes > INLINE_BYTES or len(data) != self._nbytes:
            raise malformed(f"inline data of {len(data)} bytes for a vector of {self._nbytes}")
        payload = self._payload(stream, vector, data)
        if stream is None:
            zeros(data, "dummy")
            return payload
        if not valid(np.frombuffer(data, dtype=self._dtype), payload.codes):
            raise self._not_valid(payload)
        if hashlib.sha256(data).digest() != payload.sha256:
            raise self._wrong_hash(payload)
        self._next[stream] = payload.k + 1
        return payload

    # --- chunks

    def _open_chunked(self, vector: agent_pb2.Vector) -> None:
        stream = self._stream(vector)
        if self._nbytes <= INLINE_BYTES:
            raise malformed(f"no data in the header of a vector of {self._nbytes} bytes, which travels inline")
        header = self._payload(stream, vector, b"")
        kept = self._kept.vector
        if not vector.from_byte:
            self._open = OpenVector(header, self._nbytes, self._dtype)
        elif kept is None or kept.payload != header:
            raise malformed(f"{stream} of round {vector.round} from byte {vector.from_byte} on, which nobody asked for")
        elif kept.received != vector.from_byte:
            raise malformed(f"{self._described(kept)} goes on from byte {vector.from_byte}")
        else:
            self._open = kept

    def _feed_chunk(self, chunk: memoryview) -> list[Payload]:
        vector = self._open
        if vector is None:
            raise malformed("a chunk arrived without a header")
        if not 1 <= chunk.nbytes <= CHUNK_BYTES:
            raise malformed(f"chunk of {chunk.nbytes} bytes; allowed are 1 to {CHUNK_BYTES}")
        end = vector.received + chunk.nbytes
        if end > self._nbytes:
            raise malformed(f"{end} bytes of chunks for {self._described(vector)}")
        if isinstance(vector.payload, Dummy):
            return self._feed_dummy(vector, chunk, end)
        vector.view[vector.received : end] = chunk
        vector.digest.update(chunk)
        vector.received = end
        whole = end // self._dtype.itemsize  # a chunk may end inside a value
        if not valid(vector.values[vector.checked : whole], self._gate.codes):
            raise self._not_valid(vector.payload)
        vector.checked = whole
        if end < self._nbytes:
            self._kept.vector = vector
            return []
        opened = vector.payload
        self._kept.vector = None
        if vector.digest.digest() != opened.sha256:
            raise self._wrong_hash(opened)
        self._open = None
        self._next[opened.stream] = opened.k + 1
        data = vector.view.toreadonly()
        return [replace(opened, data=data)]

    def _feed_dummy(self, vector: OpenVector, chunk: memoryview, end: int) -> list[Payload]:
        """Nothing of it is kept: nobody will read it."""
        zeros(chunk, "dummy")
        vector.received = end
        if end < self._nbytes:
            return []
        self._open = None
        return [replace(vector.payload, data=vector.view.toreadonly())]

    # --- words

    def _described(self, vector: OpenVector) -> str:
        payload = vector.payload
        return f"{payload.stream} of round {payload.k} ({vector.received} of {self._nbytes} bytes)"

    def _not_valid(self, payload: Payload) -> PeerError:
        codes = self._gate.codes
        what = "value that is not finite" if codes is None else f"code outside {codes.low} to {codes.high}"
        return malformed(f"{payload.stream} of round {payload.k} from {self._gate.sender} holds a {what}")

    def _wrong_hash(self, payload: Payload) -> PeerError:
        message = f"{payload.stream} of round {payload.k} from {self._gate.sender} does not have the sha256 it declares"
        return PeerError(message, grpc_status="DATA_LOSS")
