"""Ticks at which messages leave, where [traffic] of the run file wants that: what happens between two is not seen."""

from __future__ import annotations

import asyncio
import math

_LATE = 0.25
_TRIES = 8


class Ticks:
    """Every ``interval_s`` seconds of this process's monotonic clock, the same for all calls of a process.

    Whoever is woken more than a quarter of the interval late, because the process was busy, waits for the next tick:
    how late it was would say how long the work took.  After eight of them it goes: a machine that is never in time
    keeps the run alive.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s

    async def next(self) -> None:
        """Return at the next tick."""
        loop = asyncio.get_running_loop()
        for _ in range(_TRIES):
            now = loop.time()
            tick = (math.floor(now / self._interval_s) + 1) * self._interval_s
            await asyncio.sleep(tick - now)
            if loop.time() - tick <= _LATE * self._interval_s:
                return
