"""Agents that are stopped (SIGSTOP) in a real run: named, waited for and taken back, or the end of the run."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import ENDLESS, Launch, asked, eventually, no_traceback, quadratic

pytestmark = pytest.mark.e2e

RUNTIME = '[runtime]\nround_timeout = {T}\non_agent_loss = "{on_loss}"\n'


def run_file(folder: Path, on_loss: str) -> Path:
    path = folder / "run.toml"
    path.write_text(quadratic(3, ENDLESS) + RUNTIME.format(T=8, on_loss=on_loss))
    return path


def status(out: Path) -> dict[str, Any]:
    done = asked("status", "--run", out, "--format", "json")
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {"agents": []}


def agent(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next((a for a in document["agents"] if a["name"] == name), {"missing_s": None})


def test_a_stopped_agent_is_missing_by_name_and_comes_back(tmp_path: Path) -> None:
    with Launch(tmp_path / "out", "launch", run_file(tmp_path, "wait")) as launch:
        launch.running()
        os.kill(launch.pid("agent-2"), signal.SIGSTOP)
        held = eventually("it is missing", lambda: (s := status(launch.out)) and agent(s, "agent-2")["missing_s"] and s)
        assert agent(held, "agent-2")["state"] in ("left", "silent") and held["reason"].startswith("agent-2 ")
        assert agent(held, "agent-1")["missing_s"] is None
        text = asked("status", "--run", launch.out).stdout
        assert "agent-2: " in text and "MISSING for " in text
        eventually("it is lost", lambda: "waiting for it (on_agent_loss = wait)" in launch.log("coordinator"))
        os.kill(launch.pid("agent-2"), signal.SIGCONT)
        eventually("it goes on", lambda: status(launch.out).get("k", -1) > held["k"] + 5)
        assert "agent-2 is back after " in launch.log("coordinator")
        assert asked("stop", "--run", launch.out).returncode == 0
        assert launch.wait() == 5
        no_traceback(launch.everything_said())
    over = status(launch.out)
    assert over["state"] == "stopped" and {a["state"] for a in over["agents"]} == {"ended"}


@pytest.mark.long
def test_a_stopped_agent_ends_a_run_that_does_not_wait(tmp_path: Path) -> None:
    with Launch(tmp_path / "out", "launch", run_file(tmp_path, "stop")) as launch:
        launch.running()
        os.kill(launch.pid("agent-2"), signal.SIGSTOP)
        assert launch.wait() == 6
        last = launch.said.strip().splitlines()[-1]
        assert "agent-2 left in round " in last or "agent-2 gave no sign of life for " in last
        for name in ("agent-1", "agent-3"):
            assert "stopped: agent-2 " in launch.log(name), "everybody knows why"
