"""``dpgt launch`` starts again what crashed, with real processes: who comes back, where, how often, what is said."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from dpgt_node import cli
from dpgt_node.runtime.store.store import Store
from tests.e2e.processes import ENDLESS, Launch, eventually, no_traceback, quadratic, same_bits

pytestmark = pytest.mark.e2e
KEY = "00ff"


def run_file(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def killed(launch: Launch, name: str, number: signal.Signals = signal.SIGKILL) -> None:
    """Kill ``name`` and wait until its successor runs."""
    old = launch.pid(name)
    os.kill(old, number)
    eventually(f"{name} runs again", lambda: launch.pid(name) != old and psutil.pid_exists(launch.pid(name)))


def joined(launch: Launch, name: str, times: int) -> None:
    """Wait until ``name`` registered so often."""
    eventually(f"{name} is back", lambda: launch.log("coordinator").count(f"{name} registered from") >= times)


def test_agents_and_coordinator_come_back_on_their_addresses_to_the_same_bits(tmp_path: Path) -> None:
    run = run_file(tmp_path, quadratic(3, 700, every=350))
    out = tmp_path / "out"
    with Launch(out, "launch", run, "--test-keystream", KEY) as launch:
        launch.running()
        config = (out / "agents" / "agent-2" / "node.toml").read_bytes()
        address = json.loads((out / "coordinator.json").read_text())["address"]
        killed(launch, "agent-2", signal.SIGSEGV)
        joined(launch, "agent-2", 2)
        killed(launch, "coordinator")
        joined(launch, "agent-1", 2)
        assert launch.wait() == 0, launch.said
    no_traceback(launch.everything_said())
    assert "agent-2 killed by SIGSEGV; started again (1 of at most 5 in 60 s)" in launch.said
    assert "coordinator killed by SIGKILL; started again (1 of at most 5 in 60 s)" in launch.said
    assert json.loads((out / "coordinator.json").read_text())["address"] == address
    assert (out / "agents" / "agent-2" / "node.toml").read_bytes() == config
    summary = json.loads((out / "summary.json").read_text())
    assert summary["restarts"] == {"agent-2": 1, "coordinator": 1}
    assert [agent["releases"] for agent in summary["agents"]] == [1402] * 3
    assert "INFO dpgt launch: agent-2 killed by SIGSEGV" in launch.log("agent-2")
    assert cli.run(["simulate", str(run), "--out", str(tmp_path / "sim"), "--test-keystream", KEY]) == 0
    same_bits(out, tmp_path / "sim")


def test_forked_nodes_are_killed_and_come_back_like_any_others_to_the_same_bits(tmp_path: Path) -> None:
    run = run_file(tmp_path, quadratic(4, 150, every=150))
    out = tmp_path / "out"
    with Launch(out, "launch", run, "--test-keystream", KEY) as launch:
        launch.running()
        os.kill(launch.pid("coordinator"), signal.SIGSTOP)  # else the rounds may be over before all is looked at
        nodes = {name: launch.pid(name) for name in launch.names()}
        assert {*nodes.values(), launch.pid("coordinator")} == {child.pid for child in launch.children()}
        assert (out / "nursery.log").read_text() == ""
        for name, pid in nodes.items():
            command = psutil.Process(pid).cmdline()
            assert command[1:3] == ["-m", "dpgt_node"] and str(out / "agents" / name / "node.toml") in command
        os.kill(launch.pid("coordinator"), signal.SIGCONT)
        killed(launch, "agent-2")
        joined(launch, "agent-2", 2)
        assert launch.wait() == 0, launch.said
    no_traceback(launch.everything_said())
    assert "agent-2 killed by SIGKILL; started again (1 of at most 5 in 60 s)" in launch.said
    assert json.loads((out / "summary.json").read_text())["restarts"] == {"agent-2": 1}
    assert cli.run(["simulate", str(run), "--out", str(tmp_path / "sim"), "--test-keystream", KEY]) == 0
    same_bits(out, tmp_path / "sim")


def test_nodes_forked_from_one_process_draw_different_noise(tmp_path: Path) -> None:
    text = quadratic(4, 1).replace('"quadratic"\ndim', '"zeros"\ndim')
    with Launch(tmp_path / "out", "launch", run_file(tmp_path, text), "--insecure") as launch:
        assert launch.wait() == 0, launch.said
    released: set[bytes] = set()
    for name in launch.names():
        store = Store(launch.out / "agents" / name / "state", "process")
        try:
            (kept,) = store.runs()
            released |= {entry.row.sha256 for entry in store.ledger(kept.run_id).entries if entry.row.k == 0}
        finally:
            store.close()
    assert len(released) == 2 * 4, "nobody has data, so all that differs is noise"


def test_the_sixth_crash_of_one_process_ends_the_launch_by_name(tmp_path: Path) -> None:
    with Launch(tmp_path / "out", "launch", run_file(tmp_path, quadratic(2, ENDLESS)), "--insecure") as launch:
        launch.running()
        for _ in range(5):
            killed(launch, "agent-2")
        launch.kill("agent-2")
        assert launch.wait() == 6
    last = launch.said.splitlines()[-1]
    assert last.startswith("dpgt launch: agent-2 was lost: killed by SIGKILL, after 5 restarts in 60 s (log: ")
    assert json.loads((launch.out / "summary.json").read_text())["restarts"] == {"agent-2": 5}
    assert "agent-2 was lost" in launch.log("agent-1")
    no_traceback(launch.everything_said())


def test_an_interrupt_while_a_child_comes_back_is_an_interrupt(tmp_path: Path) -> None:
    with Launch(tmp_path / "out", "launch", run_file(tmp_path, quadratic(2, ENDLESS)), "--insecure") as launch:
        launch.running()
        killed(launch, "coordinator")
        launch.process.send_signal(signal.SIGINT)
        assert launch.wait() == 5
    assert launch.said.splitlines()[-2] == "dpgt launch: interrupted"
    assert not any(psutil.pid_exists(launch.pid(name)) for name in (*launch.names(), "coordinator"))
    no_traceback(launch.everything_said())


def test_a_killed_launch_is_gone_on_with_by_the_same_command(tmp_path: Path) -> None:
    run = run_file(tmp_path, quadratic(3, 300, every=150))
    out = tmp_path / "out"
    arguments = ("launch", run, "--test-keystream", KEY)
    with Launch(out, *arguments) as launch:
        launch.running()
        launch.process.kill()
        launch.wait()
        with Launch(out, *arguments) as again:  # at once: the children of the first may still be dying
            assert again.wait() == 0, again.said
    assert cli.run(["simulate", str(run), "--out", str(tmp_path / "sim"), "--test-keystream", KEY]) == 0
    same_bits(out, tmp_path / "sim")
    no_traceback(again.everything_said())
