"""What an eavesdropper keeps of a run that does not fit into memory: counts, digests of the last rounds, statistics."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import field
from typing import Generic, TypeVar

import numpy as np

from dpgt_node.types import Stream, WireDtype
from dpgt_node.values import dataclass
from dpgt_node.wire.codec import DTYPE
from dpgt_node.wire.overheard import Overheard

T = TypeVar("T")
_WINDOW = 4096
_BLOCK = 1 << 14


class Rounds:
    """A set of rounds as ranges: a run's are consecutive."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, k: int) -> bool:
        """Put ``k`` in; whether it is new."""
        starts, ends = self._starts, self._ends
        at = bisect_right(starts, k)
        if at and k < ends[at - 1]:
            return False
        left, right = bool(at) and ends[at - 1] == k, at < len(starts) and starts[at] == k + 1
        if left and right:
            ends[at - 1] = ends.pop(at)
            starts.pop(at)
        elif left:
            ends[at - 1] = k + 1
        elif right:
            starts[at] = k
        else:
            starts.insert(at, k)
            ends.insert(at, k + 1)
        return True

    def __len__(self) -> int:
        return sum(end - start for start, end in zip(self._starts, self._ends, strict=True))


@dataclass(slots=True)
class Statistics:
    """Of the released vectors of one agent and stream that were seen whole, each once.

    ``mean``: of all values.  ``norm_*``: L2 norms.  ``not_finite``: vectors with such a value, left out of the rest.
    """

    count: int = 0
    mean: float = 0.0
    norm_mean: float = 0.0
    norm_min: float = math.inf
    norm_max: float = 0.0
    norm_last: float = 0.0
    not_finite: int = 0

    def add(self, values: memoryview, dtype: WireDtype) -> None:
        """One more vector; codes count as the integers that they are."""
        numbers = np.frombuffer(values, dtype=DTYPE[dtype])
        if numbers.dtype.kind == "i":
            numbers = numbers.astype(np.float64)
        total = square = 0.0
        for start in range(0, len(numbers), _BLOCK):  # in the vector's own precision: within a block it is enough
            block = numbers[start : start + _BLOCK]
            total += float(block.sum())
            square += float(block @ block)
        if not math.isfinite(square):
            self.not_finite += 1
            return
        self.count += 1
        norm = math.sqrt(square)
        self.mean += (total / len(numbers) - self.mean) / self.count
        self.norm_mean += (norm - self.norm_mean) / self.count
        self.norm_min, self.norm_max, self.norm_last = min(self.norm_min, norm), max(self.norm_max, norm), norm


@dataclass(slots=True)
class _Series(Generic[T]):
    """Rounds of one sender and stream (on one edge, or altogether): all that came, and what is known of the last."""

    rounds: Rounds = field(default_factory=Rounds)
    recent: OrderedDict[int, T] = field(default_factory=OrderedDict)

    def remember(self, k: int, what: T) -> None:
        self.recent[k] = what
        if len(self.recent) > _WINDOW:
            self.recent.popitem(last=False)


@dataclass(slots=True)
class Copy:
    """The first copy of one (agent, round, stream) on one edge: where it is in the transcript, how often it came."""

    digest: bytes
    at: int | None = None
    copies: int = 1


@dataclass(slots=True)
class Edge:
    """What was seen on one edge: messages of X and of Y; ``again``: further copies of either."""

    sender: str
    receiver: str
    X: int = 0
    Y: int = 0
    again: int = 0


class Tally:
    """Counts messages: one is one (agent, round, stream) on one edge, however often and in however many parts it came.

    ``resent``: further copies.  ``conflicting``: copies of one (agent, round, stream), on any edge, with other bytes,
    both whole and with the hash that they declare: damaged ones accuse nobody.
    ``wrong_hash``: messages seen whole whose hash is not the one declared.  ``unverified``: seen whole, but the header
    with the hash was not.
    """

    def __init__(self) -> None:
        self.messages = self.complete = self.resent = self.conflicting = self.wrong_hash = self.unverified = 0
        self.bytes = 0
        self.rounds = Rounds()
        self.edges: dict[tuple[str, str], Edge] = {}
        self.statistics: dict[tuple[str, Stream], Statistics] = {}
        self._released: dict[tuple[str, Stream], _Series[bytes]] = {}
        self._crossed: dict[tuple[str, str, Stream], _Series[Copy]] = {}

    @property
    def agents(self) -> list[str]:
        """Senders and receivers, by name."""
        return sorted({name for edge in self.edges for name in edge if name and ":" not in name})

    def declared(self, head: Overheard) -> bytes:
        """The hash of this release: its own, or that of another copy; empty: not known."""
        series = self._released.get((head.sender, head.stream or "X"))
        return head.sha256 or (series.recent.get(head.k, b"") if series else b"")

    def add(self, head: Overheard, receiver: str, digest: bytes, values: memoryview) -> tuple[Copy, bool]:
        """One vector, on the edge to ``receiver``.  ``digest``: of all its bytes; empty: some are missing.

        Returns the first copy on its edge, and whether this one tells anything new: it is the first, the first whole
        one, or has other bytes.
        """
        stream: Stream = head.stream or "X"
        released = self._released.setdefault((head.sender, stream), _Series())
        crossed = self._crossed.setdefault((head.sender, receiver, stream), _Series())
        declared = self.declared(head)
        whole = bool(digest) and digest == declared
        known = released.recent.get(head.k)
        conflict = whole and known not in (None, digest)
        self.conflicting += conflict
        self.bytes += head.nbytes
        if whole and known is None:
            released.remember(head.k, digest)
            if released.rounds.add(head.k):
                self.statistics.setdefault((head.sender, stream), Statistics()).add(values, head.dtype)
        edge = self.edges.setdefault((head.sender, receiver), Edge(head.sender, receiver))
        if crossed.rounds.add(head.k):
            self.rounds.add(head.k)
            setattr(edge, stream, getattr(edge, stream) + 1)
            self.messages += 1
            self.complete += whole
            self.wrong_hash += bool(digest) and bool(declared) and not whole
            self.unverified += bool(digest) and not declared
            crossed.remember(head.k, first := Copy(digest if whole else b""))
            return first, True
        self.resent += 1
        edge.again += 1
        before = crossed.recent.get(head.k)
        if before is None:
            return Copy(b""), conflict  # long ago: it counts as a copy of what was seen then
        before.copies += 1
        better = whole and not before.digest
        if better:
            self.complete += 1
            before.digest = digest
        return before, conflict or better
