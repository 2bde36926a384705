"""The event loops of verbs.  Apart from ``signals``, so that a verb that needs none imports no asyncio."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from dpgt_node.cli.signals import ASKED, ending_signals


class _GivesBack(asyncio.AbstractEventLoop):
    """Gives signals back, at its end, to whoever had them before; none is lost in between, and none meets nobody."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._before: dict[signal.Signals, Callable[[int, FrameType | None], Any] | int | None] = {
            number: signal.getsignal(number) for number in ending_signals()
        }

    def close(self) -> None:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ASKED)
        try:
            super().close()
            for number, handler in self._before.items():
                if handler is not None:  # not of Python
                    signal.signal(number, handler)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


class Loop(_GivesBack, asyncio.SelectorEventLoop):
    """Python's own loop."""


def daemons_loop() -> asyncio.AbstractEventLoop:
    """For thousands of messages a second: uvloop's where that is installed (extra ``fast``), else Python's."""
    from dpgt_node.runtime.looking import Busy, Gathering

    kinds: tuple[type, ...] = (Gathering, Loop)
    given: tuple[Busy, ...] = ()
    try:
        import uvloop

        kinds = (Gathering, _GivesBack, uvloop.Loop)
    except ImportError:
        given = (Busy(),)
    loop: asyncio.AbstractEventLoop = type("DaemonsLoop", kinds, {})(*given)
    return loop
