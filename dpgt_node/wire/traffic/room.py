"""What a receiver lets in beside vectors on a run that pads or covers, and how much of it."""

from __future__ import annotations

import numpy as np

from dpgt_node.values import dataclass
from dpgt_node.wire.fields import malformed, require
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one call: ``frame_bytes`` of one frame, ``paddings`` frames of padding in a row, ``dummies`` a round, which
    go up to ``last``.
    """

    frame_bytes: int
    paddings: int
    dummies: int
    last: int


class Room:
    """Counts what came on one call, against its ``limits``; None: nothing may."""

    __slots__ = ("_dummies", "_limits", "_paddings", "_round")

    def __init__(self, limits: Limits | None) -> None:
        self._limits = limits
        self._round = -1
        self._dummies = self._paddings = 0

    def frame_bytes(self, plain: int) -> int:
        """The longest frame with headers, where ``plain`` is that of other runs."""
        return plain if self._limits is None else max(plain, self._limits.frame_bytes)

    def takes_padding(self, frame: agent_pb2.Frame) -> bool:
        """Whether ``frame`` is padding and nothing else.  PeerError if it may not have any."""
        alone = not frame.vectors and not frame.chunk
        if self._limits is None:
            require(not frame.padding, f"padding of {len(frame.padding)} bytes on a run that does not pad")
            return False
        zeros(frame.padding, "padding")
        self._paddings = self._paddings + 1 if alone else 0
        require(self._paddings <= self._limits.paddings, f"{self._paddings} frames of padding in a row")
        return alone

    def takes_dummy(self, vector: agent_pb2.Vector) -> bool:
        """Whether ``vector`` is the header of a dummy.  PeerError if it is one that may not come now."""
        if vector.stream != agent_pb2.COVER or self._limits is None:
            return False
        limits, k = self._limits, vector.round
        require(self._round <= k <= limits.last, f"dummy of round {k} after round {self._round}")
        self._dummies = self._dummies + 1 if k == self._round else 1
        self._round = k
        require(self._dummies <= limits.dummies, f"{self._dummies} dummies of round {k}")
        require(not vector.from_byte and not any(vector.sha256), f"dummy of round {k} that says something")
        return True


def zeros(data: bytes | memoryview, what: str) -> None:
    """PeerError unless all of ``data`` is zero: what is dropped is no way to say something."""
    if np.frombuffer(data, dtype=np.uint8).any():
        raise malformed(f"{what} that is not zeros")
