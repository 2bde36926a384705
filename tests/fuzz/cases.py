"""What an input of the decoder's fuzzer is: one byte that says which decoder, then what a peer sends to it.

Kinds below ``len(PROFILES)`` are calls of a sender of vectors, frames with a length of two bytes before each; the next
ones are the message decoders of ``convert``.  A frame that is ``BREAK`` is none: there the call ends, and the
sender opens another one.  Limits are small here (an inline vector has at most 64 bytes, a chunk at
most 48), so that a chunked vector is a hundred bytes and the fuzzer reaches every state in few steps; the tests of the
codec use the real ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from dpgt_node.types import Stream, WireDtype
from dpgt_node.wire import convert
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2, coordinator_pb2
from tests.oracles.gate import Expectation

RUN_ID = bytes(range(16))
SENDER = "agent-1"
INLINE_BYTES, CHUNK_BYTES = 64, 48
HEADER_BYTES = 2 * (INLINE_BYTES + 1024)
_NUMBER = {"X": 1, "Y": 2}


@dataclass(frozen=True)
class Profile:
    """One call's gate: ``first`` round of each stream, ``last`` round of all."""

    first: dict[Stream, int]
    dimension: int
    dtype: WireDtype = "float64"
    last: int = 9
    study: bool = False

    @property
    def nbytes(self) -> int:
        return self.dimension * (8 if self.dtype == "float64" else 4)

    def gate(self, codec: Any, first: Mapping[Stream, int] | None = None) -> Any:
        first = first or self.first
        return codec.Gate(
            RUN_ID,
            SENDER,
            frozenset(self.first),
            self.dtype,
            self.dimension,
            lambda stream: (first[stream], self.last),
            self.study,
        )

    def expectation(self) -> Expectation:
        streams = {_NUMBER[name]: (name, k) for name, k in self.first.items()}
        if self.study:
            streams = {3: ("X", self.first["X"])}
        return Expectation(
            RUN_ID,
            SENDER,
            streams,
            self.last,
            1 if self.dtype == "float64" else 2,
            self.dimension,
            self.study,
            INLINE_BYTES,
            CHUNK_BYTES,
            HEADER_BYTES,
        )


PROFILES = (
    Profile({"X": 0, "Y": 0}, 4),
    Profile({"X": 3}, 3, "float32", last=5),
    Profile({"Y": 0}, 5),
    Profile({"X": 0, "Y": 0}, 20),
    Profile({"X": 0, "Y": 7}, 33, "float32"),
    Profile({"X": 0}, 4, last=100, study=True),
    Profile({"X": 0}, 20, last=100, study=True),
    Profile({"X": 2, "Y": 0}, 8),
    Profile({"X": 0, "Y": 0}, 1),
)


@dataclass(frozen=True)
class Decoder:
    """A message decoder, its inverse and the protobuf type it reads."""

    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes]
    message: type[Any]


DECODERS = (
    Decoder(convert.decode_agent_message, convert.encode_agent_message, coordinator_pb2.AgentMessage),
    Decoder(convert.decode_coordinator_message, convert.encode_coordinator_message, coordinator_pb2.CoordinatorMessage),
    Decoder(convert.decode_exchange_reply, convert.encode_exchange_reply, agent_pb2.ExchangeReply),
    Decoder(convert.decode_upload_reply, convert.encode_upload_reply, coordinator_pb2.UploadReply),
    Decoder(convert.decode_status_request, convert.encode_status_request, coordinator_pb2.StatusRequest),
    Decoder(convert.decode_status_reply, convert.encode_status_reply, coordinator_pb2.StatusReply),
    Decoder(convert.decode_control_request, convert.encode_control_request, coordinator_pb2.ControlRequest),
    Decoder(convert.decode_control_reply, convert.encode_control_reply, coordinator_pb2.ControlReply),
)
KINDS = len(PROFILES) + len(DECODERS)
MAX_FRAMES = 12
BREAK = b"\xff"


def kind_of(data: bytes) -> int:
    """Which decoder an input is for."""
    return data[0] % KINDS if data else 0


def split(data: bytes) -> list[bytes]:
    """The frames of an input for a profile; what is cut off at the end is a shorter frame."""
    frames, at = [], 1
    while at + 2 <= len(data) and len(frames) < MAX_FRAMES:
        size = int.from_bytes(data[at : at + 2], "little")
        frames.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return frames


def join(kind: int, frames: Sequence[bytes]) -> bytes:
    """The input of these frames."""
    return bytes((kind,)) + b"".join(len(frame).to_bytes(2, "little") + frame for frame in frames if len(frame) < 65536)


@contextlib.contextmanager
def small_limits(codec: Any) -> Iterator[None]:
    """``codec``, the module, with the limits of this folder."""
    limits = {"INLINE_BYTES": INLINE_BYTES, "CHUNK_BYTES": CHUNK_BYTES, "_MAX_HEADER_FRAME": HEADER_BYTES}
    with mock.patch.multiple(codec, **limits):
        yield
