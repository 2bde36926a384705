"""Processes that a nursery forks: what a launcher sees of them is what it sees of those it starts itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from dpgt_node.cli.running import nursery as forking
from dpgt_node.config import to_toml
from dpgt_node.runtime.launch import nursery as module
from dpgt_node.runtime.launch.nursery import Forked, Nursery
from tests.runtime.cluster import make_run


@pytest.fixture
async def nursery(tmp_path: Path) -> AsyncIterator[Nursery]:
    (tmp_path / "run.toml").write_text(to_toml(make_run()), encoding="utf-8")
    opened = await Nursery.open(tmp_path / "run.toml", tmp_path / "nursery.log")
    assert opened is not None
    yield opened
    await opened.close()
    assert (tmp_path / "nursery.log").read_text() == ""


async def _forked(nursery: Nursery, log: Path, *arguments: str) -> Forked:
    log.touch()
    child = await nursery.fork(arguments, log)
    assert child is not None
    return child


async def test_a_forked_process_is_a_child_with_its_own_exit_code_log_session_and_command_line(
    nursery: Nursery, tmp_path: Path
) -> None:
    waits = ["coordinator", "--config", str(tmp_path / "run.toml"), "--listen", "127.0.0.1:0", "--insecure"]
    first = await _forked(nursery, tmp_path / "first.log", *waits, "--out", str(tmp_path / "first"))
    second = await _forked(nursery, tmp_path / "second.log", *waits, "--out", str(tmp_path / "second"))
    failing = await _forked(nursery, tmp_path / "third.log", "node", "--config", str(tmp_path / "none.toml"))
    try:
        assert await failing.wait() == 2
        assert (tmp_path / "third.log").read_text().startswith("dpgt node: ")
        with pytest.raises(ProcessLookupError):
            failing.send_signal(signal.SIGTERM)

        async with asyncio.timeout(60):
            for place in ("first", "second"):
                while not (tmp_path / place / "coordinator.json").exists():
                    await asyncio.sleep(0.01)
        shown = psutil.Process(first.pid)
        assert shown.ppid() == os.getpid() and os.getsid(first.pid) == first.pid
        line = [word for word in shown.cmdline() if word]  # the rest of its room is empty
        assert line == [sys.executable, "-m", "dpgt_node", *waits, "--out", str(tmp_path / "first")]
        # what a process draws for itself must not have been drawn before the fork
        ids = {json.loads((tmp_path / place / "run_id.json").read_text())["run_id"] for place in ("first", "second")}
        assert len(ids) == 2
    finally:
        first.send_signal(signal.SIGKILL)
        second.send_signal(signal.SIGTERM)
        assert [await first.wait(), await second.wait()] == [-signal.SIGKILL, 5]


async def test_a_nursery_that_is_gone_or_a_process_that_cannot_be_watched_is_none(
    nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").touch()
    children = psutil.Process().children
    known = {child.pid for child in children()}

    def full(_pid: int) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "pidfd_open", full)
        assert await nursery.fork(["--version"], tmp_path / "log") is None
        assert await Nursery.open(tmp_path / "run.toml", tmp_path / "nursery.log") is None
    assert {child.pid for child in children()} == known, "what cannot be watched is ended, or there would be two"
    nursery.kill()
    await nursery.close()
    assert await nursery.fork(["--version"], tmp_path / "log") is None


def test_a_process_with_a_thread_is_not_forked(tmp_path: Path) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        with pytest.raises(RuntimeError, match="threads in a process that is to be forked"):
            forking.fork(str(tmp_path / "log"))
    finally:
        stop.set()
        thread.join()
