"""Time for judging others: seconds in which this process itself was awake."""

from __future__ import annotations

import time
from collections.abc import Callable

HEARTBEAT_S = 2.0


def heartbeat_s(round_timeout_s: float) -> float:
    """How often both ends of an agent's stream to the coordinator give a sign of life: eight times in the bound, at
    least every 2 s.
    """
    return min(HEARTBEAT_S, round_timeout_s / 8)


class AwakeClock:
    """Monotonic time without what this process slept through: stopped, swapped out, its event loop blocked.

    A process that was away must not take its own absence for the others' silence.  Whoever uses the clock asks it at
    least every ``step_s``; of a longer span between two questions only ``step_s`` counts.
    """

    def __init__(self, step_s: float, source: Callable[[], int] = time.monotonic_ns) -> None:
        self._step_ns = int(step_s * 1e9)
        self._source = source
        self._last_ns = source()
        self._slept_ns = 0

    def now_ns(self) -> int:
        """Nanoseconds, never going back."""
        now = self._source()
        self._slept_ns += max(0, now - self._last_ns - self._step_ns)
        self._last_ns = now
        return now - self._slept_ns

    def now_s(self) -> float:
        """The same in seconds."""
        return self.now_ns() / 1e9
