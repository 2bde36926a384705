"""What a round looks like on an edge of a run that pads or covers: on every edge the same.

An edge carries one vector for each stream of the run, and a dummy where the graph has none.  So frames are as many and
as long on all of them.  To make the sum what the run file asks for, the last frame with vectors that fit into it
grows, and frames of padding go before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from dpgt_node.config.privacy.traffic import Traffic
from dpgt_node.protocol.dummies import Dummy
from dpgt_node.protocol.messages import Prefix
from dpgt_node.protocol.types import Payload
from dpgt_node.types import Codes, Stream, WireDtype
from dpgt_node.wire import codec
from dpgt_node.wire.fields import RUN_ID_BYTES
from dpgt_node.wire.traffic.padding import LEAST, padded, padding
from dpgt_node.wire.traffic.room import Limits

FRAME_BYTES = 1 << 20
"""A padded frame is no longer, nor is one of padding."""
_FROM_BYTE = 6
"""Bytes of a header that says from which byte on its vector goes on."""


class Shape:
    """Of every round of a run: ``streams`` in the order in which they are sent, all ``names`` of its agents.

    ``round_bytes``: of all frames of a round; ``vectors_bytes``: of those that hold vectors, as long as they get;
    ``open_bytes``: of these in a run without [traffic], at most.
    """

    def __init__(
        self,
        traffic: Traffic,
        names: Sequence[str],
        streams: Sequence[Stream],
        dtype: WireDtype,
        dimension: int,
        last_round: int,
        codes: Codes | None = None,
    ) -> None:
        self._streams, self._dtype, self._dimension, self._codes = tuple(streams), dtype, dimension, codes
        self._last_round = last_round
        nbytes = dimension * codec.DTYPE[dtype].itemsize
        self._inline = nbytes <= codec.INLINE_BYTES
        self._zeros = np.zeros(nbytes, dtype=np.uint8).data.toreadonly()  # pages that nobody wrote to take no memory
        longest = next(codec.encode_vectors(bytes(RUN_ID_BYTES), max(names, key=len), self._full({}, last_round)))
        self._header = len(longest) + _FROM_BYTE + LEAST
        self.vectors_bytes, self.open_bytes = self._header, len(longest)
        if not self._inline:
            starts = range(0, nbytes, codec.CHUNK_BYTES)
            chunks = sum(codec.chunk_frame_bytes(min(codec.CHUNK_BYTES, nbytes - start)) for start in starts)
            self.vectors_bytes = len(self._streams) * (self._header + chunks)
            self.open_bytes = len(self._streams) * (len(longest) + chunks)
        self.round_bytes = traffic.padded(self.vectors_bytes)
        if 0 < self.round_bytes - self.vectors_bytes < LEAST:
            self.round_bytes = traffic.padded(self.vectors_bytes + LEAST)

    def frames(
        self, run_id: bytes, sender: str, payloads: Iterable[Payload], k: int, prefix: Prefix | None = None
    ) -> Iterator[bytes]:
        """Those of round ``k``, which hold ``payloads``; dummies among these count as absent.

        ``prefix`` as of ``codec.encode_vectors``: a vector that goes on in its midst makes the round shorter by what
        the receiver has already.
        """
        there = {payload.stream: payload for payload in payloads if not isinstance(payload, Dummy)}
        full, rest = self._full(there, k), self.round_bytes - self.vectors_bytes
        if self._inline:
            last = max(self._header, min(self._header + rest, FRAME_BYTES))
            if 0 < self._header + rest - last < LEAST:
                last -= LEAST
            yield from _paddings(self._header + rest - last)
            for frame in codec.encode_vectors(run_id, sender, full):
                yield padded(frame, last)
            return
        yield from _paddings(rest)
        for frame in codec.encode_vectors(run_id, sender, full, prefix=prefix):
            yield padded(frame, self._header) if frame[0] == codec.HEADER_TAG else frame

    def limits(self) -> Limits:
        """Of one call.  A dummy may be of a round that its receiver has mixed: nobody waited for it."""
        paddings = -(-self.round_bytes // FRAME_BYTES) + 1
        return Limits(FRAME_BYTES, paddings, len(self._streams), self._last_round)

    def _full(self, there: Mapping[Stream, Payload], k: int) -> list[Payload]:
        return [there.get(stream) or self._dummy(stream, k) for stream in self._streams]

    def _dummy(self, stream: Stream, k: int) -> Dummy:
        return Dummy(stream, k, self._dtype, self._dimension, self._zeros, bytes(32), self._codes)


def _paddings(nbytes: int) -> Iterator[bytes]:
    """Frames of padding, ``nbytes`` (0, or at least ``LEAST``) in all."""
    while nbytes:
        size = min(nbytes, FRAME_BYTES)
        if 0 < nbytes - size < LEAST:
            size -= LEAST
        yield padding(size)
        nbytes -= size
