"""Nodes that are forked from one process which has imported all that a node needs (``cli.running.nursery``).

They are this process's children like any other: it adopts them, waits for them, and they die with it.  One that is
started again after a crash is a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from dpgt_node.runtime.process import adopt_orphans

SEVERAL = 2
"""From so many nodes on a launch forks them: one import for all of them.  A single one starts by itself."""
_MODULE = "dpgt_node.cli.running.nursery"
_ROOM = 4096
"""Bytes of the longest command line that a forked node can show."""
_UNKNOWN = 255
"""The exit code of a process of which the system kept none, as in ``asyncio``."""


class Forked:
    """A child of this process that something else started: as much of ``asyncio.subprocess.Process`` as is used."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)

    def send_signal(self, number: int) -> None:
        """ProcessLookupError when it is gone."""
        if self._fd < 0:
            raise ProcessLookupError
        signal.pidfd_send_signal(self._fd, number)

    async def wait(self) -> int:
        """Its exit code, negative: the signal.  To be called once."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._fd, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:  # who started this process had it ignore the ends of its children
            return _UNKNOWN


class Nursery:
    """Forks nodes of one run."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def open(cls, run_file: Path, log: Path) -> Nursery | None:
        """For the run at ``run_file``; None where the system cannot do it.  What goes wrong in it stands in ``log``."""
        try:
            os.close(os.pidfd_open(os.getpid()))
        except (AttributeError, OSError):  # an old kernel, or another system
            return None
        if not adopt_orphans(True):
            return None
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", _MODULE, str(os.getpid()), str(run_file), " " * _ROOM),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=output,
                start_new_session=True,
            )
        return cls(process)

    async def fork(self, arguments: Sequence[str], log: Path) -> Forked | None:
        """A node with these arguments of ``dpgt``, whose output goes to the end of ``log``; None: there is none.

        A node whose number got lost on the way holds its state directory, so that a second one could do no harm.
        """
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None and answers is not None
        try:
            to.write(json.dumps({"arguments": list(arguments), "log": str(log)}).encode() + b"\n")
            await to.drain()
            pid = int(await answers.readline())
        except (OSError, ValueError):  # it has ended
            return None
        try:
            return Forked(pid)
        except OSError:  # no more open files
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None

    def kill(self) -> None:
        """End it at once; who waits for a node gets none.  Its nodes live on."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        """:meth:`kill`, and it is gone."""
        self.kill()
        await self._process.wait()
        adopt_orphans(False)
