"""Capped waiting between attempts, with one log line a spell of trouble instead of one an attempt."""

from __future__ import annotations

import asyncio
import logging

FIRST_S = 0.05
CAP_S = 1.0


class Backoff:
    """Doubles the wait from 50 ms up to 1 s; ``reset`` after success."""

    def __init__(self) -> None:
        self._delay_s = FIRST_S
        self._noted: str | None = None

    def note(self, log: logging.Logger, what: str, error: BaseException) -> None:
        """Log a failure the first time and whenever its cause changes."""
        text = str(error) or type(error).__name__
        if text != self._noted:
            self._noted = text
            log.warning("%s: %s (trying again)", what, text)

    def reset(self) -> None:
        """The connection works."""
        self._delay_s = FIRST_S
        self._noted = None

    async def wait(self) -> None:
        """Sleep for the current delay and double it."""
        await asyncio.sleep(self._delay_s)
        self._delay_s = min(CAP_S, 2 * self._delay_s)
