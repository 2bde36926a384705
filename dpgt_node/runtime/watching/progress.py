"""How fast a run goes, over the last few seconds."""

from __future__ import annotations

import time
from collections import deque

RATE_WINDOW_S = 5.0


class Progress:
    """Rounds a second over the last ``RATE_WINDOW_S``."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, k: int) -> None:
        if self._seen and self._seen[-1][1] == k:
            return
        now = time.monotonic()
        self._seen.append((now, k))
        while len(self._seen) > 2 and now - self._seen[0][0] > RATE_WINDOW_S:
            self._seen.popleft()

    def rate(self) -> float:
        """Rounds a second; 0.0 before the second round."""
        if len(self._seen) < 2:
            return 0.0
        (t0, k0), (t1, k1) = self._seen[0], self._seen[-1]
        return (k1 - k0) / (t1 - t0) if t1 > t0 else 0.0
