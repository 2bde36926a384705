"""Spans that sessions measure: heartbeats, waits between attempts, and time in which this process was awake."""

from __future__ import annotations

from dataclasses import field

from dpgt_node.values import dataclass

SECOND = 1_000_000_000
"""Nanoseconds; all times of machines are nanoseconds of one monotonic clock."""
HEARTBEAT_NS = 2 * SECOND
BACKOFF_NS = (SECOND // 20, SECOND)
"""The wait after a first failure, and the longest."""
CAUSES = 8
"""So many causes of one spell of trouble are said."""


def heartbeat_ns(round_timeout_s: float) -> int:
    """How often both ends of an agent's call to the coordinator give a sign of life: eight times in the bound, at
    least every 2 s.
    """
    return int(min(HEARTBEAT_NS, round_timeout_s * SECOND / 8))


class Awake:
    """Monotonic time without what this process slept through: stopped, swapped out, its event loop blocked.

    A process that was away must not take its own absence for the others' silence.  Whoever uses it asks at least every
    ``step_ns``; of a longer span between two questions only ``step_ns`` counts.
    """

    __slots__ = ("_last_ns", "_slept_ns", "_step_ns")

    def __init__(self, step_ns: int, now_ns: int) -> None:
        self._step_ns = step_ns
        self._last_ns = now_ns
        self._slept_ns = 0

    def at(self, now_ns: int) -> int:
        """``now_ns`` of the machine's clock as awake time, nanoseconds, never going back."""
        self._slept_ns += max(0, now_ns - self._last_ns - self._step_ns)
        self._last_ns = now_ns
        return now_ns - self._slept_ns

    def reached_ns(self, awake_ns: int) -> int:
        """The first moment of the machine's clock at which it may be ``awake_ns``."""
        return awake_ns + self._slept_ns


@dataclass(slots=True)
class Backoff:
    """Waits between attempts, doubling from 50 ms to 1 s; ``worked`` after success.

    A spell of trouble is worth a line for each of its causes, not one for every attempt.  Causes may come from others,
    so there is an end to them.
    """

    _wait_ns: int = BACKOFF_NS[0]
    _said: set[str] = field(default_factory=set)

    def news(self, cause: str) -> bool:
        """Whether ``cause`` was not said yet in this spell."""
        if cause in self._said or len(self._said) >= CAUSES:
            return False
        self._said.add(cause)
        return True

    @property
    def causes(self) -> int:
        """How many this spell has."""
        return len(self._said)

    def worked(self, for_ns: int) -> None:
        """The connection was good for so long.  One that is closed at once is no success, or attempts would race."""
        if for_ns >= BACKOFF_NS[1]:
            self._wait_ns = BACKOFF_NS[0]
            self._said.clear()

    def next_ns(self) -> int:
        """How long to wait now."""
        wait_ns, self._wait_ns = self._wait_ns, min(BACKOFF_NS[1], 2 * self._wait_ns)
        return wait_ns
