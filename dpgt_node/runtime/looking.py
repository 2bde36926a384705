"""How often a daemon's event loop is woken by gRPC, once for all that has come in, and how often it looks."""

from __future__ import annotations

import asyncio
import functools
import selectors
import socket
from collections.abc import Callable
from typing import Any, TypeVarTuple

Given = TypeVarTuple("Given")
AT_ONCE = 256


class Busy(selectors.DefaultSelector):
    """Looks at its sockets every other time while the loop has something to do anyway.

    A message goes through the loop in steps of which each makes the next ready: asyncio asks before each of them.
    """

    _passed = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._passed = timeout == 0 and not self._passed
        return [] if self._passed else super().select(timeout)


class Gathering(asyncio.AbstractEventLoop):
    """A loop that wakes once for all that gRPC has to say at that moment.

    gRPC's thread puts an event into a queue, then writes a byte into a socket.  Its callback, in the loop, takes one
    byte and then all events: for the bytes of the others it would be woken in vain, every other time at a coordinator.
    Here they are taken before it.  The event of each is in the queue by then, so nothing is missed.
    """

    gathers = 0
    """How many sockets are read so."""

    def add_reader(self, fd: Any, callback: Callable[[*Given], Any], *args: *Given) -> None:
        inside = getattr(callback.func, "__name__", "") if isinstance(callback, functools.partial) else ""
        if not (isinstance(fd, socket.socket) and inside == "_handle_events"):
            super().add_reader(fd, callback, *args)
            return
        self.gathers += 1
        super().add_reader(fd, gathered(fd, callback), *args)


def gathered(woken: socket.socket, callback: Callable[[*Given], Any]) -> Callable[[*Given], None]:
    """``callback``, which takes one byte from ``woken``, called with no other left there."""

    def once(*args: *Given) -> None:
        here = len(woken.recv(AT_ONCE, socket.MSG_PEEK))
        if here > 1:
            woken.recv(here - 1)
        callback(*args)

    return once
