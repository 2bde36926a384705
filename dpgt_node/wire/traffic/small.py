"""Small vectors as they stand in a frame, by hand: all but the round, the hash and the values is the same each time.

The bytes are those that the protobuf runtime writes, which takes three times as long.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpgt_node.protocol.types import Payload
from dpgt_node.types import Codes, Stream, WireDtype
from dpgt_node.wire.fields import varint

SHA256_BYTES = 32
MAX_VARINT_BYTES = 5
"""Of a round."""


class Small:
    """A vector in a frame: ``head(k)``, its SHA-256, ``middle``, its values.  Of no round but k >= 1."""

    __slots__ = ("_after", "_before", "middle", "nbytes")

    def __init__(self, run_id: bytes, sender: str, stream: int, dtype: int, dimension: int, nbytes: int) -> None:
        name = sender.encode()
        before = b"".join((b"\x0a", varint(len(run_id)), run_id, b"\x12", varint(len(name)), name, b"\x18"))
        shape = b"\x30" + varint(dimension) + b"\x38" + varint(nbytes)
        self._after = b"\x20" + varint(stream) + b"\x28" + varint(dtype) + shape + b"\x42" + varint(SHA256_BYTES)
        self.middle, self.nbytes = b"\x4a" + varint(nbytes), nbytes
        rest = len(before) + len(self._after) + SHA256_BYTES + len(self.middle) + nbytes
        self._before = [b"\x0a" + varint(rest + size) + before for size in range(MAX_VARINT_BYTES + 1)]

    def head(self, k: int) -> bytes:
        """Of round ``k`` >= 1: protobuf does not write a number that is 0."""
        round_ = varint(k)
        return self._before[len(round_)] + round_ + self._after


@lru_cache(maxsize=256)
def small(run_id: bytes, sender: str, stream: int, dtype: int, dimension: int, nbytes: int) -> Small:
    """That of one stream of one sender; the same again where it was asked for lately."""
    return Small(run_id, sender, stream, dtype, dimension, nbytes)


class Usual:
    """Frames as they come in nearly every round: one small vector of each stream, all of the round that is next.

    ``forms``: by stream, in the order in which they stand.  The others as of ``codec.Gate``.
    """

    __slots__ = ("_codes", "_dimension", "_dtype", "_format", "_forms", "_window")

    def __init__(
        self,
        forms: Mapping[Stream, Small],
        window: Callable[[Stream], tuple[int, int]],
        dtype: WireDtype,
        dimension: int,
        codes: Codes | None,
    ) -> None:
        self._forms, self._window = tuple(forms.items()), window
        self._dtype, self._dimension, self._codes = dtype, dimension, codes
        self._format = np.dtype(dtype).newbyteorder("<")

    def read(self, frame: bytes | memoryview, following: dict[Stream, int]) -> list[Payload] | None:
        """The vectors of ``frame``, if all is right with it and it has the very bytes that ``codec.encode_vectors``
        writes; None: it is not for here to say what it is.  ``following``: the next round by stream, which moves on.
        """
        k = min(following.values(), default=0)
        if k < 1 or not isinstance(frame, bytes):
            return None
        payloads, end = [], 0
        for stream, form in self._forms:
            low, high = self._window(stream)
            head = form.head(k)
            if following[stream] != k or not low <= k <= high or not frame.startswith(head, end):
                return None
            start = end + len(head) + SHA256_BYTES
            sha256 = frame[start - SHA256_BYTES : start]
            if not frame.startswith(form.middle, start):
                return None
            start += len(form.middle)
            end = start + form.nbytes
            data = frame[start:end]
            if len(frame) < end or hashlib.sha256(data).digest() != sha256:
                return None
            if not valid(np.frombuffer(data, dtype=self._format), self._codes):
                return None
            payloads.append(Payload(stream, k, self._dtype, self._dimension, data, sha256, self._codes))
        if end != len(frame):
            return None
        for stream in following:
            following[stream] = k + 1
        return payloads


def valid(values: npt.NDArray[Any], codes: Codes | None) -> bool:
    """Whether all are finite, or, of integers, within the range of ``codes``."""
    if codes is not None:
        return values.size == 0 or (codes.low <= int(values.min()) and int(values.max()) <= codes.high)
    return int(np.count_nonzero(np.isfinite(values))) == values.size  # twice as fast as .all() at d = 100
