"""What every daemon process does to itself once, before it serves."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

log = logging.getLogger(__name__)

_MALLOC = ((-4, 0), (-8, 1), (-1, 2**31 - 1))
"""M_MMAP_MAX, M_ARENA_MAX, M_TRIM_THRESHOLD."""
FILES_MAX = 1 << 16
"""More open files no process here needs; a limit of millions costs some libraries time."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_WATCH_S = 0.5
_ARGUMENTS = 48, 49
"""Fields of /proc/PID/stat, from 1: where the command line begins in the memory of a process, and ends."""


def tune_malloc() -> None:
    """Keep freed vectors instead of giving their pages back to the system each round (glibc only).

    glibc maps what is larger than 32 MiB anew each time, whatever its threshold; a fresh page costs more than the
    arithmetic on it.  One arena, or each thread would keep such buffers of its own.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
        mallopt = libc.mallopt
    except (OSError, AttributeError):
        return
    if not all(mallopt(which, value) for which, value in _MALLOC):
        log.debug("mallopt refused the settings")


def give_back() -> None:
    """Give the system the pages that were only used for a while, as at a start (glibc only): see ``tune_malloc``."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def raise_open_files() -> None:
    """Raise the soft limit on open files to the hard one, children's included; a system may refuse, and then does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def peak_rss_mib() -> float:
    """Largest resident set this process ever had, MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20) if sys.platform == "darwin" else peak / 1024


def die_with_parent(parent: int) -> None:
    """Make this process end when process ``parent`` ends, however it ends.

    State is safe at any instant (persist before send), so a hard end is as good as a polite one and surer.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) == 0:
            if os.getppid() != parent:  # it died before prctl took effect
                os._exit(int(signal.SIGKILL) + 128)
            return
    threading.Thread(target=_watch, args=(parent,), daemon=True, name="dpgt-parent").start()


def adopt_orphans(yes: bool) -> bool:
    """Make this process the parent of whatever its children leave behind from now on, or no longer.

    False where the system cannot (Linux can).
    """
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0) == 0)


@contextlib.contextmanager
def taking_turns(processes: int) -> Iterator[None]:
    """Where ``processes`` is more than the processors, those that this one starts meanwhile do not interrupt each other
    (Linux).

    A message wakes who waits for it.  That one would take the processor from whoever has it, often from the sender in
    the midst of its other messages, find the first of them, and wait again.  As a batch job it waits for its turn and
    finds them all.  Shares of the processors stay as they are, and so does another policy that somebody chose.
    """
    changed = False
    with contextlib.suppress(OSError):  # a system may refuse it; musl's libc refuses even to say what it is
        usual = hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER
        if usual and processes > len(os.sched_getaffinity(0)):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
            changed = True
    try:
        yield
    finally:
        if changed:
            with contextlib.suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def show_as(command: Sequence[str]) -> None:
    """Show this process under ``command`` to whoever lists processes, as far as its own command line has room."""
    text = b"".join(os.fsencode(word) + b"\0" for word in command)
    with contextlib.suppress(OSError, ValueError, IndexError):
        after_name = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        begin, end = (int(after_name[place - 3]) for place in _ARGUMENTS)
        if 0 < begin < end:
            ctypes.memmove(begin, text[: end - begin - 1].ljust(end - begin, b"\0"), end - begin)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os._exit(int(signal.SIGKILL) + 128)
