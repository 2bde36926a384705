"""What an agent holds of its in-neighbours: one released vector per (sender, round, stream), in a bounded window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpgt_node.errors import invariant
from dpgt_node.protocol.types import Payload
from dpgt_node.types import Floats, Stream


class Inbox:
    """Rounds ``low``..``high`` of every in-edge; ``high = low + width``.

    ``senders``: in-neighbours by stream, the agent itself included where it has a self-loop.  ``own``: the agent's
    index. An exact copy of what was received is dropped; another vector for the same (sender, round, stream) breaks
    an invariant that the gate in ``wire`` guards (it compares hashes), so here it is Broken.
    """

    def __init__(self, senders: Mapping[Stream, Sequence[int]], own: int, low: int, width: int) -> None:
        assert width >= 0
        self._senders = {stream: tuple(sorted(js)) for stream, js in senders.items()}
        self._sets = {stream: frozenset(js) for stream, js in senders.items()}
        self._own = own
        self._width = width
        self.low = low
        self._held: dict[tuple[int, Stream], dict[int, Payload]] = {
            (j, stream): {} for stream, js in self._senders.items() for j in js
        }
        self._absent = 0
        self._recount()

    @property
    def high(self) -> int:
        """Last round that may be received now."""
        return self.low + self._width

    def put(self, sender: int, payload: Payload) -> bool:
        """Keep a vector; False when it is a copy of one that is held or was mixed already."""
        held = self._held[sender, payload.stream]
        if payload.k < self.low:
            return False
        invariant(payload.k <= self.high, "the gate let a round through that lies beyond the window")
        present = held.get(payload.k)
        if present is not None:
            invariant(present.sha256 == payload.sha256, "two different vectors for one (sender, round, stream)")
            return False
        held[payload.k] = payload
        if payload.k == self.low:
            self._absent -= 1
        return True

    def put_own(self, payload: Payload) -> None:
        """Keep the agent's own released vector where it has a self-loop."""
        if self._own in self._sets[payload.stream]:
            self.put(self._own, payload)

    def __len__(self) -> int:
        return sum(len(held) for held in self._held.values())

    def complete(self, k: int) -> bool:
        """Whether every vector of round ``k`` = ``low`` is here."""
        invariant(k == self.low, "only the oldest round in the window is mixed")
        return self._absent == 0

    def missing(self, k: int) -> tuple[tuple[int, Stream], ...]:
        """The (sender, stream) pairs that round ``k`` still lacks."""
        return tuple(key for key, held in self._held.items() if k not in held)

    def take(self, stream: Stream) -> dict[int, Floats]:
        """The vectors of round ``low`` by sender, read-only; ``advance`` drops them."""
        return {j: self._held[j, stream][self.low].floats() for j in self._senders[stream]}

    def advance(self, low: int) -> None:
        """Move the window: rounds below ``low`` are dropped."""
        before, self.low = self.low, low
        absent = 0
        for held in self._held.values():
            for k in range(before, low):
                held.pop(k, None)
            absent += low not in held
        self._absent = absent

    def first_missing(self, sender: int, stream: Stream) -> int:
        """First round not held from ``sender`` on ``stream`` (``low`` when the edge does not carry it)."""
        held = self._held.get((sender, stream), {})
        k = self.low
        while k in held:
            k += 1
        return k

    def _recount(self) -> None:
        self._absent = sum(1 for held in self._held.values() if self.low not in held)
