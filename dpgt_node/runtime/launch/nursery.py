"""Nodes that are forked from one process which has imported all that a node needs (``cli.running.nursery``).

They are this process's children like any other: it adopts them, waits for them, and they die with it.
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

MANY = 16
"""From so many nodes on a launch forks them; fewer start one by one, each a process of its own from the beginning."""
_MODULE = "dpgt_node.cli.running.nursery"


class Forked:
    """A child of this process that something else started: as much of ``asyncio.subprocess.Process`` as is used."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)

    def send_signal(self, number: int) -> None:
        """ProcessLookupError when it is gone."""
        signal.pidfd_send_signal(self._fd, number)

    async def wait(self) -> int:
        """Its exit code, negative: the signal.  To be called once."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        loop.add_reader(self._fd, ended.set_result, None)
        try:
            await ended
        finally:
            loop.remove_reader(self._fd)
        _, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status)


class Nursery:
    """Forks nodes of the run at ``run_file``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def open(cls, run_file: Path, log: Path) -> Nursery | None:
        """None where the system cannot do it.  What goes wrong in it stands in ``log``."""
        if not adopt_orphans():
            return None
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", _MODULE, str(os.getpid()), str(run_file)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=output,
                start_new_session=True,
            )
        return cls(process)

    async def fork(self, arguments: Sequence[str], log: Path) -> Forked | None:
        """A node with these arguments of ``dpgt``, whose output goes to the end of ``log``; None: it cannot be."""
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None and answers is not None
        with contextlib.suppress(OSError, ValueError):
            to.write(json.dumps({"arguments": list(arguments), "log": str(log)}).encode() + b"\n")
            await to.drain()
            return Forked(int(await answers.readline()))
        return None

    async def close(self) -> None:
        """Its nodes live on."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
