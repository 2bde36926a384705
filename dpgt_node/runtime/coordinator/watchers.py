"""Who asks again and again where the run stands, terminals and pages: the coordinator leaves when they know the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

LATE_S: Final = 2.0
"""Who has not asked again so long after it should have is gone."""
EVERY_MOST_S: Final = 4.0
FAREWELL_S: Final = EVERY_MOST_S + LATE_S
"""The longest that a coordinator stays for them after a run that finished."""
STOPPED_S: Final = 2.5
"""The same after any other end: somebody waits for that."""
KEPT: Final = 64


class Watchers:
    """``clock``: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due_s: dict[str, float] = {}
        self._told = asyncio.Event()

    def asked(self, who: str, every_s: float, *, told: bool) -> None:
        """``who`` asks every ``every_s`` seconds, as it says.  ``told``: the answer to this question is the end."""
        self._due_s.pop(who, None)
        if told:
            self._told.set()
            return
        now_s = self._clock()
        if len(self._due_s) >= KEPT:
            self._due_s = {name: due_s for name, due_s in self._due_s.items() if due_s > now_s}
        if len(self._due_s) < KEPT:
            self._due_s[who] = now_s + min(every_s, EVERY_MOST_S) + LATE_S

    async def farewell(self, leave: asyncio.Event, *, finished: bool) -> None:
        """The run is over: until all who asked lately were told so, or are gone, or ``leave`` is set anew.

        At most FAREWELL_S; nothing where nobody asks.
        """
        until_s = self._clock() + (FAREWELL_S if finished else STOPPED_S)
        leaving = asyncio.ensure_future(asyncio.Event().wait() if leave.is_set() else leave.wait())
        try:
            while not leaving.done():
                self._told.clear()
                now_s = self._clock()
                left_s = min(until_s, max(self._due_s.values(), default=now_s)) - now_s
                if left_s <= 0:
                    return
                told = asyncio.ensure_future(self._told.wait())
                await asyncio.wait((told, leaving), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                told.cancel()
        finally:
            leaving.cancel()
