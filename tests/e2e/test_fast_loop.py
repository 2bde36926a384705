"""The extra [fast]: daemons on uvloop's event loop make the same bits, and end as they do on Python's (make fast)."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from dpgt_node import cli
from dpgt_node.cli import common
from dpgt_node.cli.running.loops import daemons_loop
from dpgt_node.errors import ExitCode
from tests.e2e.processes import ENDLESS, Launch, interrupted, no_traceback, quadratic, same_bits

pytestmark = pytest.mark.fast


def on_uvloop(pid: int) -> bool:
    """Whether that process has it loaded."""
    return "uvloop" in Path(f"/proc/{pid}/maps").read_text()


def test_the_loop_gives_signals_back() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), asyncio.Event()

    async def main() -> str:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, seen.set)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(seen.wait(), 60)
        return type(loop).__mro__[3].__module__

    assert common.run_async(main(), daemons_loop) == "uvloop"
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_same_bits_and_a_stop_in_order(tmp_path: Path) -> None:
    run, out, sim = tmp_path / "run.toml", tmp_path / "out", tmp_path / "sim"
    run.write_text(quadratic(3, 60), encoding="utf-8")
    with Launch(out, "launch", run, "--test-keystream", "00ff") as launch:
        assert launch.wait() == 0, launch.said
    no_traceback(launch.everything_said())
    assert cli.run(["simulate", str(run), "--out", str(sim), "--test-keystream", "00ff"]) == 0
    same_bits(out, sim)

    endless, out = tmp_path / "endless.toml", tmp_path / "stopped"
    endless.write_text(quadratic(3, ENDLESS), encoding="utf-8")
    with Launch(out, "launch", endless) as launch:
        launch.running()
        assert all(on_uvloop(launch.pid(name)) for name in (*launch.names(), "coordinator"))
        launch.process.send_signal(signal.SIGINT)
        assert launch.wait() == ExitCode.STOPPED
    interrupted(launch)
