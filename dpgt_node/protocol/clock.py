"""Spans that sessions measure: heartbeats, waits between attempts, and time in which this process was awake."""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 1_000_000_000
"""Nanoseconds; all times of machines are nanoseconds of one monotonic clock."""
HEARTBEAT_NS = 2 * SECOND
BACKOFF_NS = (SECOND // 20, SECOND)
"""The wait after a first failure, and the longest."""


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
    """Waits between attempts, doubling from 50 ms to 1 s; ``reset`` after success.

    A spell of trouble is worth a line when it begins and when its cause changes, not one for every attempt.
    """

    _wait_ns: int = BACKOFF_NS[0]
    _said: str | None = None

    def news(self, cause: str) -> bool:
        """Whether ``cause`` was not said yet in this spell."""
        known, self._said = self._said, cause
        return cause != known

    def reset(self) -> None:
        """The connection works."""
        self._wait_ns, self._said = BACKOFF_NS[0], None

    def next_ns(self) -> int:
        """How long to wait now."""
        wait_ns, self._wait_ns = self._wait_ns, min(BACKOFF_NS[1], 2 * self._wait_ns)
        return wait_ns
