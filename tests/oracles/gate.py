"""What a receiver may accept, decided the dumb way: every frame is parsed whole with protobuf, every rule of
``proto/dpgt/v1/agent.proto`` is a line here, and nothing is shared with the codec.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from dpgt_node.wire.gen.dpgt.v1 import agent_pb2

Accepted = tuple[str, int, bytes]  # stream, k, values


@dataclass(frozen=True)
class Expectation:
    """One call: who sends, on which streams (by number, with the name and the first round of each), up to where."""

    run_id: bytes
    sender: str
    streams: Mapping[int, tuple[str, int]]
    last_round: int
    dtype: int  # 1 float64, 2 float32, 3 int8, 4 int16, 5 int32
    dimension: int
    study: bool
    inline_bytes: int = 65_536
    chunk_bytes: int = 1_048_576
    header_bytes: int = 2 * (65_536 + 1024)
    codes: tuple[int, int] = (0, 0)  # of integers, the lowest and the highest


class Refused(Exception):
    """The frame breaks a rule."""


@dataclass
class Judge:
    """Frames in, accepted vectors out; ``headers`` counts the headers that break no rule.

    ``kept``: the header of a vector that a call broke off, and the bytes of it that came.
    """

    expect: Expectation
    headers: int = 0
    dead: bool = False
    open: agent_pb2.Vector | None = None
    body: bytes = b""
    following: dict[int, int] = field(default_factory=dict)
    kept: tuple[agent_pb2.Vector, bytes] | None = None

    def judge(self, frame: bytes) -> list[Accepted] | None:
        """The vectors that ``frame`` completes; None when it must be refused, and whatever follows with it."""
        if self.dead:
            return None
        try:
            return self._chunk(frame) if frame[:1] == b"\x12" else self._headers(frame)
        except (Refused, DecodeError):
            self.dead = True
            return None

    def broke(self) -> tuple[int, int, int, bytes] | None:
        """The call is over, another one begins.  What the sender is told: stream, round, bytes and hash of a prefix."""
        if self.dead or self.expect.study:
            self.kept = None
        elif self.open is not None and self.body:
            self.kept = self.open, self.body
        self.dead, self.open, self.body = False, None, b""
        if self.kept is None:
            return None
        vector, body = self.kept
        lacks = {number: self.following.get(number, first) for number, (_, first) in self.expect.streams.items()}
        if any((k, number) < (vector.round, vector.stream) for number, k in lacks.items()):
            self.kept = None
            return None
        return vector.stream, vector.round, len(body), vector.sha256

    def _chunk(self, frame: bytes) -> list[Accepted]:
        message = agent_pb2.Frame.FromString(frame)
        if message.vectors or agent_pb2.Frame(chunk=message.chunk).SerializeToString() != frame:
            raise Refused  # something else than one chunk, written the one way
        if self.open is None or not 1 <= len(message.chunk) <= self.expect.chunk_bytes:
            raise Refused
        self.body += message.chunk
        if len(self.body) > self.open.nbytes:
            raise Refused
        self._finite(self.body)
        if len(self.body) < self.open.nbytes:
            return []
        vector, body, self.open, self.body = self.open, self.body, None, b""
        self.kept = None
        return [self._whole(vector, body)]

    def _headers(self, frame: bytes) -> list[Accepted]:
        if self.open is not None or not 1 <= len(frame) <= self.expect.header_bytes:
            raise Refused
        message = agent_pb2.Frame.FromString(frame)
        vectors = list(message.vectors)
        if message.padding:
            raise Refused  # this run does not pad
        if message.chunk or len(vectors) not in (1, 2) or len({vector.round for vector in vectors}) != 1:
            raise Refused
        size = self.expect.dimension * {1: 8, 2: 4, 3: 1, 4: 2, 5: 4}[self.expect.dtype]
        if len(vectors) == 1 and not vectors[0].data:
            self._header(vectors[0], size)
            if size <= self.expect.inline_bytes:
                raise Refused
            self._opened(vectors[0])
            return []
        accepted = []
        for vector in vectors:
            self._header(vector, size)
            if size > self.expect.inline_bytes or len(vector.data) != size:
                raise Refused
            self._finite(vector.data)
            accepted.append(self._whole(vector, vector.data))
        return accepted

    def _opened(self, vector: agent_pb2.Vector) -> None:
        kept = self.kept
        if vector.from_byte:
            if kept is None or vector.from_byte != len(kept[1]):
                raise Refused
            if any(getattr(vector, name) != getattr(kept[0], name) for name in ("stream", "round", "sha256")):
                raise Refused
            self.body = kept[1]
        self.open = vector

    def _header(self, vector: agent_pb2.Vector, size: int) -> None:
        expect = self.expect
        if vector.run_id != expect.run_id or vector.sender != expect.sender or vector.stream not in expect.streams:
            raise Refused
        following = self.following.get(vector.stream, expect.streams[vector.stream][1])
        if vector.round < following or vector.round > expect.last_round:
            raise Refused
        if vector.round != following and not expect.study:
            raise Refused
        if (vector.dtype, vector.dimension, vector.nbytes) != (expect.dtype, expect.dimension, size):
            raise Refused
        if len(vector.sha256) != 32 or size > 4 << 30:
            raise Refused
        if vector.from_byte and size <= self.expect.inline_bytes:
            raise Refused
        self.headers += 1

    def _finite(self, data: bytes) -> None:
        width, letter = {1: (8, "d"), 2: (4, "f"), 3: (1, "b"), 4: (2, "h"), 5: (4, "i")}[self.expect.dtype]
        for value in struct.unpack_from(f"<{len(data) // width}{letter}", data):
            if not (math.isfinite(value) if letter in "df" else self.expect.codes[0] <= value <= self.expect.codes[1]):
                raise Refused

    def _whole(self, vector: agent_pb2.Vector, data: bytes) -> Accepted:
        if hashlib.sha256(data).digest() != vector.sha256:
            raise Refused
        self.following[vector.stream] = vector.round + 1
        return self.expect.streams[vector.stream][0], vector.round, data
