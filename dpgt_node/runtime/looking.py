"""How often a daemon's event loop turns to what has come in: not while it has work of before, once for many."""

from __future__ import annotations

import asyncio
import functools
import selectors
import socket
from collections.abc import Callable
from typing import Any, TypeVarTuple

Given = TypeVarTuple("Given")
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


AT_ONCE = 256


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
