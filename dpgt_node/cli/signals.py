"""Signals where a verb has no handlers of its own: as it starts, between its phases, when its exit code is known."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from collections import namedtuple
from types import FrameType
from typing import NoReturn

from dpgt_node.cli.logs import tell
from dpgt_node.errors import ExitCode

ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a process to end."""
_SHOW_CURSOR = "\x1b[?25h"


def ending_signals() -> tuple[signal.Signals, ...]:
    """What asks a command to end in order.  SIGHUP and SIGINT too, unless they are ignored: nohup ignores the one, a
    shell without job control the other for what it starts with ``&``.  SIGTERM always.
    """
    return tuple(n for n in ASKED if n is signal.SIGTERM or signal.getsignal(n) is not signal.SIG_IGN)


def end_now(verb: str, words: str = "interrupted", code: ExitCode = ExitCode.STOPPED) -> NoReturn:
    """End this process without another step: what it stored is safe at any instant."""
    lost = contextlib.suppress(OSError, ValueError, RuntimeError)  # the last: the signal came in the midst of a print
    with lost:
        if sys.stdout.isatty():  # a live view hides it
            sys.stdout.write(_SHOW_CURSOR)
        sys.stdout.flush()
    with lost:
        tell(f"dpgt {verb}: {words}")
    os._exit(int(code))


def begin(verb: str, *, at_once: bool) -> None:
    """``at_once``: until ``verb`` has handlers of its own, and between them, each signal ends it.  Else Ctrl-C raises
    KeyboardInterrupt, and the others do what the system does.
    """
    atexit.register(_ignore)

    def end(_number: int, _frame: FrameType | None) -> None:
        end_now(verb)

    for number in _heeded():
        usual = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
        signal.signal(number, end if at_once else usual)


def over(code: int) -> None:
    """The exit code is known: a signal can only bring the end forward."""

    def end(_number: int, _frame: FrameType | None) -> None:
        os._exit(code)

    for number in _heeded():
        signal.signal(number, end)
    # Where KeyboardInterrupt came up in code that was compiled from a string, as a dataclass's methods are, Python ends
    # the process by SIGINT, whatever became of the exception: unless it has run another such piece since, as this does.
    namedtuple("Nothing", "")


def _heeded() -> list[signal.Signals]:
    return [number for number in ASKED if signal.getsignal(number) is not signal.SIG_IGN]


def _ignore() -> None:
    """No thread is waited for any more: what is left takes no time."""
    for number in ending_signals():
        signal.signal(number, signal.SIG_IGN)
