"""The processes of a launch: started, started again after a crash, ended, and what is to be said of each.

A process that was killed by a signal, or ended by a bug, is started again with the same arguments: its state is safe
at any instant, so it goes on where it was.  One that ended by itself (0, 2-6) or was told to (SIGTERM, SIGINT) is not.

Children live in sessions of their own, so a Ctrl-C in the terminal reaches only the launcher, which then stops the
run in order; and each child dies with the launcher, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import IO

from dpgt_node.durable import write_text
from dpgt_node.errors import ExitCode
from dpgt_node.record.lines import json_line, read_line
from dpgt_node.record.summary import RESTARTS_FILE, read_restarts
from dpgt_node.runtime.coordinator.outdir import blamed
from dpgt_node.runtime.launch.nursery import Forked, Nursery
from dpgt_node.values import dataclass

RESTARTS = 5
"""So often one process is started again within :data:`WINDOW_S`; the crash after that ends the launch."""
WINDOW_S = 60.0
PATIENCE_S = 3.0
"""How long children of a run that ended may take to end by themselves."""
_ASKED_FOR = frozenset({signal.SIGTERM, signal.SIGINT})
_MARK = "dpgt launch"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a launch ended: its exit code and, unless it is 0, one line that says why."""

    exit_code: ExitCode
    reason: str


def crashed(code: int) -> bool:
    """Whether a process with this exit code (negative: the signal) ended by no decision of its own or of anybody."""
    return code == ExitCode.BUG or (code < 0 and -code not in _ASKED_FOR)


@dataclass(slots=True)
class Child:
    """One process and its successors.  ``recent``: when it was started again, seconds, those that still count."""

    name: str
    command: Sequence[str]
    log_path: Path
    pid_path: Path | None
    process: asyncio.subprocess.Process | Forked
    exited: asyncio.Task[int]
    recent: list[float] = field(default_factory=list)
    given_up: bool = False

    def signal(self, number: signal.Signals) -> None:
        """Send ``number``, unless the process is gone."""
        if not self.exited.done():
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class Supervisor:
    """Children of one launch under ``out``.

    ``ended()`` is called whenever a process ends, ``say`` with one line for each one that is started again.
    ``options``: arguments of every child.  ``restart`` False: whatever ended stays so.  ``clock``: seconds, monotonic.
    """

    def __init__(
        self,
        out: Path,
        options: Sequence[str],
        *,
        log_level: str,
        log_format: str = "text",
        restart: bool,
        ended: Callable[[], None],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = out
        self._json = log_format == "json"
        self._options = [*options, "--log-format", "json"] if self._json else options
        self._log_level = log_level
        self._restart = restart
        self._ended = ended
        self._say = say
        self._clock = clock
        self._restarts = read_restarts(out)
        self.children: dict[str, Child] = {}

    async def start(
        self,
        name: str,
        arguments: Sequence[str],
        log_path: Path,
        pid_path: Path | None = None,
        *,
        enter: Sequence[str] = (),
        nursery: Nursery | None = None,
    ) -> Child:
        """Start ``ENTER dpgt ARGUMENTS`` as ``name``, by ``nursery`` where there is one; ConfigError when its files
        cannot be written.
        """
        given = ["--log-level", self._log_level, *arguments, "--die-with-parent", str(os.getpid()), *self._options]
        command = [*enter, sys.executable, "-m", "dpgt_node", *given]
        process, exited = await self._spawn(command, log_path, pid_path, nursery, given)
        child = self.children[name] = Child(name, command, log_path, pid_path, process, exited)
        return child

    async def _spawn(
        self,
        command: Sequence[str],
        log_path: Path,
        pid_path: Path | None,
        nursery: Nursery | None = None,
        given: Sequence[str] = (),
    ) -> tuple[asyncio.subprocess.Process | Forked, asyncio.Task[int]]:
        with blamed(log_path):
            log_path.parent.mkdir(parents=True, exist_ok=True)
            output: IO[bytes] = log_path.open("ab")
        process: asyncio.subprocess.Process | Forked | None = None
        with output:
            if nursery is not None:
                process = await nursery.fork(given, log_path)
            if process is None:
                process = await asyncio.create_subprocess_exec(
                    *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                )
        exited = asyncio.ensure_future(process.wait())
        exited.add_done_callback(lambda _: self._ended())
        if pid_path is not None:
            with blamed(pid_path):
                write_text(pid_path, f"{process.pid}\n")
        return process, exited

    # --- after a crash ------------------------------------------------------------------------------------------

    def may_return(self, child: Child) -> bool:
        """Whether the process is gone and :meth:`revive` would start it again."""
        return self._restart and not child.given_up and child.exited.done() and crashed(child.exited.result())

    async def revive(self) -> None:
        """Start again what crashed, unless it did so too often."""
        for child in list(self.children.values()):
            if not self.may_return(child):
                continue
            now_s = self._clock()
            child.recent = [at_s for at_s in child.recent if now_s - at_s < WINDOW_S]
            if len(child.recent) >= RESTARTS:
                child.given_up = True
                continue
            child.recent.append(now_s)
            self._note(child)
            child.process, child.exited = await self._spawn(child.command, child.log_path, child.pid_path)

    def _note(self, child: Child) -> None:
        """One line to the user and in the child's log, and a count for summary.json."""
        self._restarts[child.name] = self._restarts.get(child.name, 0) + 1
        line = (
            f"{child.name} {cause(child)}; started again ({len(child.recent)} of at most {RESTARTS} in {WINDOW_S:g} s)"
        )
        with contextlib.suppress(OSError):  # a full disk is for the child to find and to name
            write_text(self._out / RESTARTS_FILE, json.dumps(self._restarts) + "\n")
            with child.log_path.open("a", encoding="utf-8") as log:
                stamp = time.strftime("%Y-%m-%d %H:%M:%S")
                said = (
                    json_line(time.time(), "info", _MARK, line) if self._json else f"{stamp},000 INFO {_MARK}: {line}"
                )
                log.write(said + "\n")
        self._say(line)

    # --- the end ------------------------------------------------------------------------------------------------

    def failed(self, child: Child) -> bool:
        """Whether the process ended for good, and not well."""
        return child.exited.done() and child.exited.result() != 0 and not self.may_return(child)

    async def end(self, *, at_once: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        """Every child is gone when this returns: they have ``patience_s`` to end by themselves, then SIGTERM.

        ``at_once``: whether to wait for nothing any more.
        """
        for number, wait_s in ((None, patience_s), (signal.SIGTERM, 5.0), (signal.SIGKILL, None)):
            alive = [child for child in self.children.values() if not child.exited.done()]
            if not alive:
                break
            if number is not None:
                for child in alive:
                    child.signal(number)
            if number is not signal.SIGKILL and at_once():
                continue
            await asyncio.wait([child.exited for child in alive], timeout=wait_s)

    def verdict(self, child: Child, *, name_it: bool) -> Ended:
        """What the end of ``child`` makes of the launch.  ``name_it``: put its name before what it said itself."""
        code = child.exited.result() if child.exited.done() else None
        if code == 0:
            return Ended(ExitCode.DONE, "")
        if code is None:
            return Ended(ExitCode.PEER_LOST, f"{child.name} hangs (log: {child.log_path})")
        if -code in _ASKED_FOR:
            return Ended(ExitCode.STOPPED, f"{child.name} {cause(child)}")
        if child.given_up:
            often = f"after {RESTARTS} restarts in {WINDOW_S:g} s"
            return Ended(ExitCode.PEER_LOST, f"{child.name} was lost: {cause(child)}, {often} (log: {child.log_path})")
        if code < 0:
            return Ended(ExitCode.PEER_LOST, f"{child.name} was lost: {cause(child)} (log: {child.log_path})")
        line = last_line(child.log_path)
        said = f"{child.name}: {line}" if name_it and line else line
        try:
            return Ended(ExitCode(code), said or f"{child.name} exited {code} (log: {child.log_path})")
        except ValueError:
            return Ended(ExitCode.BUG, f"{child.name} exited {code} (log: {child.log_path})")


def cause(child: Child) -> str:
    """``killed by SIGKILL``; ``exited 70: this is a bug: ...``.  For a process that is gone."""
    code = child.exited.result()
    if code < 0:
        return f"killed by {_signal_name(-code)}"
    line = last_line(child.log_path)
    return f"exited {code}: {line}" if line else f"exited {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"


def last_line(path: Path) -> str:
    """The last line a child printed that says a cause: by house rule ``dpgt VERB: cause``, else its last warning.

    What it said before it was last started again does not count.
    """
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 8192))
            read = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    lines = [read_line(line) for line in read if line.strip()]
    starts = [i for i, line in enumerate(lines) if line.logger == _MARK]
    lines = lines[starts[-1] + 1 :] if starts else lines
    said = [line.text.partition(": ")[2] for line in lines if line.text.startswith("dpgt ")]
    warned = [line.text for line in lines if not line.info]
    return (said or warned or [line.text for line in lines] or [""])[-1]
