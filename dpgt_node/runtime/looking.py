"""When a daemon's event loop asks the system what has come in: not while it has work of the last time."""

from __future__ import annotations

import selectors

PASSED_OVER = 3
"""So many times in a row at most; then what has come in gets its turn."""


class Patient(selectors.DefaultSelector):
    """For ``asyncio.SelectorEventLoop``, which asks before each batch of callbacks, with a timeout of 0 where some are
    waiting.

    A message is read in two or three of them, each scheduled by the one before: the question in between takes as long
    as what they do.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed_over = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready after at most ``timeout`` s; nothing, unasked, where it is 0 and the last time is near."""
        if timeout == 0 and self._passed_over < PASSED_OVER:
            self._passed_over += 1
            return []
        self._passed_over = 0
        return super().select(timeout)
