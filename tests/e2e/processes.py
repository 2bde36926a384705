"""Real ``dpgt`` processes for tests: started in a folder of their own, polled, never slept on."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil
import pytest

from dpgt_node import cli

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120.0
"""No test waits longer for anything; a machine that needs this long is broken, not slow."""

T = TypeVar("T")

QUADRATIC = """
name = "quadratic"
[algorithm]
iterations = {K}
[scheme]
kind = "S2"
alpha = 0.2
beta = 0.2
gamma = 0.02
p_m = 1.0
[noise]
scale_zeta = 0.1
scale_eta = 0.01
[graph]
agents = {n}
R = {{ generator = "ring" }}
C = {{ generator = "ring" }}
[data]
dataset = "quadratic"
dimension = 3
[evaluate]
every = {every}
metrics = "study"
"""
ENDLESS = 1_000_000


def quadratic(n: int, K: int, every: int = 1000) -> str:
    """A small run on a ring of ``n`` agents."""
    return QUADRATIC.format(n=n, K=K, every=every)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "dpgt_node", *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def dpgt(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run one command line to its end."""
    return subprocess.run(
        command(*arguments),
        env=environment(),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def asked(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """As `dpgt`, in this process: for a command that only asks or prepares, where its imports are most of its time."""
    given = [str(argument) for argument in arguments]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("COLUMNS", environment()["COLUMNS"])
        stack.enter_context(contextlib.chdir(cwd or "."))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        code = cli.run(given)
    return subprocess.CompletedProcess(given, code, out.getvalue(), err.getvalue())


def on_a_terminal(*arguments: object) -> tuple[int, str]:
    """The exit code of one command line on a terminal of 80 columns, and all that it showed there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    known = {name: value for name, value in environment().items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        command(*arguments),
        env={**known, "TERM": "xterm-256color"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = []
    try:
        while True:
            ready, _, _ = select.select([ours], [], [], LIMIT_S)
            assert ready, "it shows nothing any more"
            shown.append(os.read(ours, 65536))
    except OSError as error:  # so a terminal ends whose last process is gone
        assert error.errno == errno.EIO
    finally:
        os.close(ours)
        if process.poll() is None:
            process.wait(LIMIT_S)
    return process.returncode, b"".join(shown).decode()


def eventually(what: str, probe: Callable[[], T | None]) -> T:
    """The first result of ``probe`` that is not None or False."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        found = probe()
        if found is not None and found is not False:
            return found
        time.sleep(0.01)
    raise AssertionError(f"it never came about that {what}")


class Launch:
    """One ``dpgt launch`` (or demo) under ``out``; with ``--format json`` its standard output is ``answer``."""

    def __init__(self, out: Path, *arguments: object) -> None:
        self.out = out
        self._said, self._answer = (out.parent / f"{out.name}.{name}" for name in ("said", "answer"))
        with self._said.open("ab") as said, self._answer.open("ab") as answer:
            self.process = subprocess.Popen(
                command(*arguments, "--out", out),
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=answer if "--format" in arguments else said,
                stderr=said,
            )

    def __enter__(self) -> Launch:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT_S)

    def wait(self) -> int:
        """The exit code."""
        return self.process.wait(LIMIT_S)

    @property
    def said(self) -> str:
        """Standard output and standard error so far."""
        return self._said.read_text(encoding="utf-8")

    @property
    def answer(self) -> str:
        """Standard output of a launch with ``--format json``."""
        return self._answer.read_text(encoding="utf-8")

    def log(self, name: str) -> str:
        """What ``coordinator`` or an agent logged so far."""
        path = self.out / "coordinator.log" if name == "coordinator" else self.out / "agents" / name / "node.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.out / "agents").iterdir())

    def pid(self, name: str) -> int:
        if name == "coordinator":
            return int(json.loads((self.out / "coordinator.json").read_text())["pid"])
        return int((self.out / "agents" / name / "node.pid").read_text())

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def running(self, starts: int = 1) -> None:
        """Wait until rounds are being made, in the start of this number in ``out``."""

        def begun() -> bool:
            assert self.process.poll() is None, self.said
            return self.log("coordinator").count("agents registered; ") >= starts

        eventually("the rounds begin", begun)

    def kill(self, name: str) -> None:
        os.kill(self.pid(name), signal.SIGKILL)

    def everything_said(self) -> str:
        """All output of all processes."""
        return "\n".join([self.said, self.log("coordinator"), *(self.log(name) for name in self.names())])


def interrupted(launch: Launch) -> None:
    """What a launch leaves that was told to end: its last words, no process, a summary, no traceback."""
    assert launch.said.splitlines()[-2:] == [
        "dpgt launch: interrupted",
        f"dpgt launch: go on with the same command and --out {launch.out}",
    ]
    assert not any(psutil.pid_exists(launch.pid(name)) for name in (*launch.names(), "coordinator"))
    assert json.loads((launch.out / "summary.json").read_text())["status"] == "stopped"
    no_traceback(launch.everything_said())


def no_traceback(text: str) -> None:
    """One line with the cause: no stack, no unraisable, no complaint of asyncio."""
    found = re.search(r"Traceback|Error in|never retrieved|was destroyed|never awaited|this is a bug", text)
    assert found is None, text


def finals(out: Path, *, state: bool = True) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """x_final by agent: the agents' own files, or the coordinator's copies."""
    folder = out / "agents"
    return {
        path.name: np.load(path / "state" / "x_final.npy" if state else path / "x_final.npy")
        for path in sorted(folder.iterdir())
    }


def same_bits(a: Path, b: Path) -> None:
    """Every agent ended with the same bits in both output folders."""
    first, second = finals(a), finals(b)
    assert first.keys() == second.keys() and first
    for name, x in first.items():
        assert x.dtype == np.float64 and np.isfinite(x).all()
        assert x.tobytes() == second[name].tobytes(), name
