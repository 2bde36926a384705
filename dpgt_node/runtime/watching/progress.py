"""How fast a run goes, over the last few seconds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

RATE_WINDOW_S = 5.0


class Progress:
    """Rounds a second over the last ``RATE_WINDOW_S``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, k: int) -> None:
        if self._seen and self._seen[-1][1] == k:
            return
        now = self._clock()
        self._seen.append((now, k))
        while len(self._seen) > 2 and now - self._seen[0][0] > RATE_WINDOW_S:
            self._seen.popleft()

    def rate(self) -> float:
        """Rounds a second; 0.0 before the second round.

        Who has stood still for longer than the window makes at most one round in that time.
        """
        if len(self._seen) < 2:
            return 0.0
        (t0, k0), (t1, k1) = self._seen[0], self._seen[-1]
        rate, still_s = ((k1 - k0) / (t1 - t0) if t1 > t0 else 0.0), self._clock() - t1
        return min(rate, 1 / still_s) if still_s > RATE_WINDOW_S else rate
