"""Equal messages in a stream of record sizes: how large one is, and when each began."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpgt_node.types import I64
from dpgt_node.values import dataclass

CONTROL_BYTES = 80
"""Records that carry less are HTTP/2's own: pings, window updates, settings."""
_HEADER_BYTES = 400
"""Records that carry less may be the header of a vector whose values follow."""
_INLINE_BYTES = 64 << 10
_MAX_FIRST = 12
_MAX_RECORDS = 6000
_COVERED = 0.9
_SLACK_BYTES = 64


@dataclass(frozen=True, slots=True)
class Messages:
    """``count`` messages of about ``nbytes`` bytes each (what records carry, HTTP/2 framing included), the i-th begun
    at ``starts_ns[i]``, its last record at ``ends_ns[i]``.  ``chunked``: each is a header and then chunks of one
    vector, else one message of a round.
    """

    count: int
    nbytes: float
    starts_ns: I64
    ends_ns: I64
    chunked: bool


def equal_messages(times_ns: Sequence[int], carried: Sequence[int]) -> Messages | None:
    """The smallest size of which the stream is made, where one is (at least 3 messages); else None.

    Records of HTTP/2's own are left out; a few bytes more or less do not matter, nor do the first records (the call's
    opening) and an incomplete end.
    """
    sizes: I64 = np.asarray(carried, dtype=np.int64)
    kept = sizes >= CONTROL_BYTES
    sizes, times = sizes[kept], np.asarray(times_ns, dtype=np.int64)[kept]
    ends: I64 = np.concatenate(([0], np.cumsum(sizes)))
    best: tuple[float, I64] | None = None
    for first in range(min(_MAX_FIRST, len(sizes))):
        total = ends[-1] - ends[first]
        for after in range(first + 1, min(len(sizes), first + _MAX_RECORDS)):
            size = ends[after] - ends[first]
            if 3 * size > total or (best is not None and size >= best[0] - _SLACK_BYTES):
                break
            at = _walk(ends, sizes, first, after)
            if len(at) > 3 and (len(at) - 1) * size >= _COVERED * total and _begins(sizes, at, float(size)):
                best = (float(size), at)
    if best is None:
        return None
    at = best[1]
    steps = np.diff(ends[at])
    chunked = best[0] > _INLINE_BYTES and _small_first(sizes, at) > 0.8
    return Messages(len(steps), float(np.median(steps)), times[at[:-1]], times[at[1:] - 1], chunked)


def _walk(ends: I64, sizes: I64, first: int, after: int) -> I64:
    """Records that begin messages as large as the one from ``first`` to ``after``, and where the last one ends."""
    size = ends[after] - ends[first]
    slack = min(_SLACK_BYTES, int(size) // 8) + size // 500
    found, missed = [first, after], 0
    while True:
        target = ends[found[-1]] + size
        low, high = np.searchsorted(ends, (target - slack, target + slack + 1))
        if low < high:
            away = np.abs(ends[low:high] - target)
            if size > 2 * _INLINE_BYTES:  # a header is there, and where it ends is nearly as good a place
                away[: len(sizes) - low] += slack * (sizes[low:high] >= _HEADER_BYTES)
            found.append(int(low + np.argmin(away)))
        else:
            if target > ends[-1] + slack:
                return np.asarray(found, dtype=np.int64)
            missed += 1
            if missed > len(found) // 20:
                return np.asarray(found, dtype=np.int64)
            found.append(found[-1] + 1)


def _small_first(sizes: I64, at: I64) -> float:
    return float(np.mean(sizes[at[:-1]] < _HEADER_BYTES))


def _begins(sizes: I64, at: I64, size: float) -> bool:
    """Whether vectors may begin there: what is larger than two that travel whole has a header of its own."""
    return size <= 2.1 * _INLINE_BYTES or _small_first(sizes, at) > 0.8
