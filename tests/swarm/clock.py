"""Virtual time: what happens next is whatever is due first, and what was asked for first among equals."""

from __future__ import annotations

import heapq
from collections.abc import Callable

SECOND = 1_000_000_000
"""Nanoseconds in a second; all times of the swarm are nanoseconds."""


class Clock:
    """``now_ns`` moves only from one due call to the next."""

    __slots__ = ("_asked", "_due", "now_ns")

    def __init__(self) -> None:
        self.now_ns = 0
        self._asked = 0
        self._due: list[tuple[int, int, Callable[[], None]]] = []

    def at(self, time_ns: int, call: Callable[[], None]) -> None:
        """Call at ``time_ns``, or now if that is past."""
        self._asked += 1
        heapq.heappush(self._due, (max(time_ns, self.now_ns), self._asked, call))

    def after(self, delay_ns: int, call: Callable[[], None]) -> None:
        """Call in ``delay_ns``."""
        self.at(self.now_ns + delay_ns, call)

    def step(self) -> bool:
        """Make the next call; False when there is none."""
        if not self._due:
            return False
        self.now_ns, _, call = heapq.heappop(self._due)
        call()
        return True
