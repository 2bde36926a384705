"""One command in a process of its own, and what it said.

It lives no longer than the value here: when this process ends, or drops the value, the command's standard input ends,
and the command with it, in order.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import IO

from dpgt_node.errors import BudgetReached, ConfigError, DpgtError, ExitCode, PeerLost, Problem, RefusedError

log = logging.getLogger("dpgt_node.api")

LINES_KEPT = 1000
"""So many of the last lines on standard error are kept."""


class Stopped(DpgtError):
    """The run was stopped or interrupted; the same call goes on with it."""

    exit_code = ExitCode.STOPPED


def ask(arguments: Sequence[str], *, fails: bool = False) -> tuple[int, Child]:
    """``dpgt ARGUMENTS`` to its end; ``fails``: exit code 1 is an answer.  Raises what else it ends with."""
    child = Child(arguments, answers=True)
    try:
        code = child.wait()
    except KeyboardInterrupt:
        child.stop()
        raise
    assert code is not None
    answered = fails and code == ExitCode.CHECK_FAILED
    if not answered and (error := child.failure(code)) is not None:
        raise error
    return code, child


class Child:
    """``dpgt ARGUMENTS``; ``answers``: whether standard output is wanted.

    What it says on standard error is logged as a warning of ``dpgt_node.api``, except the words of its last error.
    """

    def __init__(self, arguments: Sequence[str], *, answers: bool = False) -> None:
        self._verb = arguments[0]
        receiver, sender = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dpgt_node.cli.child", str(sender), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if answers else subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(sender,),
                start_new_session=True,  # a Ctrl-C in the terminal is for this process, which passes it on
            )
        except BaseException:
            os.close(receiver)
            raise
        finally:
            os.close(sender)
        assert self._process.stdin is not None and self._process.stderr is not None
        self._input = self._process.stdin
        self._error = os.fdopen(receiver, encoding="utf-8")
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._output = b""
        self._readers = [_reader(self._read_lines, self._process.stderr)]
        if self._process.stdout is not None:
            self._readers.append(_reader(self._read_output, self._process.stdout))

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._input.close()

    def _read_lines(self, stream: IO[bytes]) -> None:
        own = f"dpgt {self._verb}: "
        for raw in stream:
            line = raw.decode("utf-8", "replace").rstrip()
            self._lines.append(line)
            if not line.startswith(own):
                log.warning("%s", line)

    def _read_output(self, stream: IO[bytes]) -> None:
        self._output = stream.read()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The exit code; None after ``timeout_s``."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        for reader in self._readers:
            reader.join()
        return code

    def stop(self) -> None:
        """End it in order and wait until it is gone; a Ctrl-C meanwhile ends it at once."""
        while self.alive:
            self._process.terminate()
            try:
                self.wait()
            except KeyboardInterrupt:
                continue

    def output(self) -> str:
        """Standard output, once it ended."""
        return self._output.decode("utf-8")

    def failure(self, code: int) -> Exception | None:
        """What exit code ``code`` says; None for 0."""
        if code == 0:
            return None
        text = self._error.read()
        own = f"dpgt {self._verb}: "
        last = "\n".join(line.removeprefix(own) for line in self._lines if line.startswith(own))
        if not text:  # no error of ours: a usage error, a signal, a bug
            return _as_error(code, last or "\n".join(list(self._lines)[-20:]), [])
        told = json.loads(text)
        problems = [_as_argument(Problem(*parts)) for parts in told["problems"]]
        return _as_error(told["exit_code"], told["message"], problems)


_ARGUMENTS = {"--as": "which", "DIR": "folder", "FOLDER": "folder", "RUN.toml": "run", "NODE.toml": "node"}
"""Of a function, by the words of its command; other options have the name of the argument."""


def _as_argument(problem: Problem) -> Problem:
    """A problem of an option as one of the argument that stands for it."""
    if problem.source != "command line":
        return problem
    key = _ARGUMENTS.get(problem.key, problem.key.removeprefix("--").replace("-", "_"))
    return replace(problem, source="argument", key=key)


def _reader(read: Callable[[IO[bytes]], None], stream: IO[bytes]) -> threading.Thread:
    thread = threading.Thread(target=read, args=(stream,), daemon=True, name="dpgt-api")
    thread.start()
    return thread


def _as_error(code: int, message: str, problems: Sequence[Problem]) -> Exception:
    if code == ExitCode.CONFIG:
        return ConfigError(problems or [Problem("dpgt", "", line) for line in message.splitlines() or ["refused"]])
    if code == ExitCode.CHECK_FAILED:
        failed = DpgtError(message)
        failed.exit_code = ExitCode.CHECK_FAILED
        return failed
    if code == ExitCode.REFUSED:
        return RefusedError(message)
    if code == ExitCode.BUDGET:
        return BudgetReached(message)
    if code == ExitCode.PEER_LOST:
        return PeerLost(message)
    if code == ExitCode.STOPPED or code < 0:
        return Stopped(message or f"ended by signal {-code}")
    return RuntimeError(message or f"the command exited {code}")
