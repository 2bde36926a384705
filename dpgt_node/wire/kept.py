"""A vector whose chunks are coming, and what one call of an edge hands to the next: how far it came."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dpgt_node.protocol.messages import Prefix
from dpgt_node.protocol.types import Payload
from dpgt_node.types import Stream


class OpenVector:
    """A vector in chunks whose header passed the gate: ``payload``, without its data."""

    __slots__ = ("buffer", "checked", "digest", "payload", "received", "values", "view")

    def __init__(self, payload: Payload, nbytes: int, dtype: np.dtype[Any]) -> None:
        self.payload = payload
        self.buffer = np.empty(nbytes, dtype=np.uint8)  # pages are committed as chunks arrive, not on a declaration
        self.view = self.buffer.data
        self.values: npt.NDArray[Any] = self.buffer.view(dtype)
        self.digest = hashlib.sha256()
        self.received = 0
        self.checked = 0


class Kept:
    """``vector``: the one that an edge's last call left incomplete.  One at most: no memory that the call had not."""

    __slots__ = ("_stop", "vector")

    def __init__(self) -> None:
        self.vector: OpenVector | None = None
        self._stop: Callable[[], None] = lambda: None

    def hand_on(self, stop: Callable[[], None]) -> None:
        """A new call begins, which ``stop`` ends: the one before takes no more, or both would write into one vector."""
        self._stop()
        self._stop = stop

    def prefix(self, first: Mapping[Stream, int]) -> Prefix | None:
        """What the sender is told, who begins with round ``first[stream]`` of each stream of the edge.

        Only if the vector is the very next one.  Otherwise it is dropped, for another would take its place.
        """
        if self.vector is None:
            return None
        payload = self.vector.payload
        if min((k, stream) for stream, k in first.items()) != (payload.k, payload.stream):
            self.vector = None
            return None
        return Prefix(payload.stream, payload.k, self.vector.received, payload.sha256)
