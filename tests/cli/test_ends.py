"""How commands end: signals at any time, a terminal that goes away, too few descriptors, a run file that was edited."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from dpgt_node.cli import common
from dpgt_node.errors import ExitCode
from dpgt_node.runtime import process
from dpgt_node.runtime.launch import hostcheck
from tests.e2e import processes
from tests.e2e.processes import ENDLESS, Launch, eventually, quadratic


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(quadratic(2, ENDLESS), encoding="utf-8")
    return path


def start(*arguments: object, before: str = "") -> subprocess.Popen[bytes]:
    line = ["bash", "-c", f'{before} exec "$@"', "-", *processes.command(*arguments)]
    return subprocess.Popen(line, env=processes.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def wait(started: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, said = started.communicate(timeout=processes.LIMIT_S)
    return started.returncode, said.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_simulation_ends_in_order(number: signal.Signals, endless: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    started = start("simulate", endless, "--out", out)
    eventually("it makes rounds", (out / "metrics.csv").exists)
    started.send_signal(number)
    code, said = wait(started)
    assert code == ExitCode.STOPPED and f"go on with the same command and --out {out}" in said


def test_nohup_is_meant(endless: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    started = start("simulate", endless, "--out", out, before="trap '' HUP;")
    eventually("it makes rounds", (out / "metrics.csv").exists)
    started.send_signal(signal.SIGHUP)
    size = (out / "metrics.csv").stat().st_size
    eventually("it goes on", lambda: (out / "metrics.csv").stat().st_size > size)
    started.send_signal(signal.SIGTERM)
    assert wait(started)[0] == ExitCode.STOPPED


@pytest.mark.e2e
def test_nohup_is_meant_by_a_launch_too(endless: Path, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        launch = Launch(tmp_path / "out", "launch", endless, "--insecure")
    finally:
        signal.signal(signal.SIGHUP, before)
    with launch:
        launch.running()
        launch.process.send_signal(signal.SIGHUP)
        log = launch.out / "metrics.csv"
        eventually("there are metrics", log.exists)
        size = log.stat().st_size
        eventually("it goes on", lambda: log.stat().st_size > size)
        launch.process.send_signal(signal.SIGTERM)
        assert launch.wait() == ExitCode.STOPPED


@pytest.mark.parametrize("rounds", [0, 1])
def test_before_the_first_round_a_signal_ends_at_once(rounds: int, endless: Path, tmp_path: Path) -> None:
    """A cost that takes for ever to compute must not need a kill -9; nor a round that never ends, the second time."""
    script = f"""
import os, signal, sys
from dpgt_node import cli
import dpgt_node.sim.simulate as module
def simulate(run, out, run_id, *, on_round, should_stop, **_):
    class Recorder:
        accuracy = dict.fromkeys(run.graph.agents); consensus = None; accountant = None
        def spent(self, name, k): return None
        def worth(self, name, k): return None
    if {rounds}: on_round(0, Recorder(), 0.1)
    print("busy", flush=True)
    while True: pass
module.simulate = simulate
sys.exit(cli.run(["simulate", {str(endless)!r}, "--out", {str(tmp_path / "out")!r}]))
"""
    started = subprocess.Popen(
        [processes.command()[0], "-c", script],
        env=processes.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    while "busy" not in (line := started.stdout.readline()):
        assert line, "it never began"
    for number in (signal.SIGTERM, signal.SIGINT)[: 1 + rounds]:  # two of a kind may arrive as one
        started.send_signal(number)
    _, said = started.communicate(timeout=processes.LIMIT_S)
    assert started.returncode == ExitCode.STOPPED and "dpgt simulate: interrupted" in said


def test_an_ignored_hangup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert common.ending_signals() == (signal.SIGINT, signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.SIGHUP in common.ending_signals()


# --- descriptors


@pytest.mark.parametrize("verb", ["launch", "coordinator"])
def test_too_few_descriptors_are_named_before_anything_starts(verb: str, tmp_path: Path) -> None:
    run = tmp_path / "run.toml"
    run.write_text(quadratic(12, 3), encoding="utf-8")
    out, how = tmp_path / "out", {"launch": [run], "coordinator": ["--config", run, "--listen", "127.0.0.1:0"]}[verb]
    code, said = wait(start(verb, *how, "--out", out, "--insecure", before="ulimit -n 40;"))
    assert code == ExitCode.CONFIG and "open files: limit 40, about 224 needed: ulimit -n 224" in said, said
    assert not out.exists()


def test_the_soft_limit_is_raised_to_the_hard_one(monkeypatch: pytest.MonkeyPatch) -> None:
    set_: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: set_.append(limits))
    for soft, hard, expected in (
        (40, 4096, [(4096, 4096)]),
        (4096, 4096, []),
        (256, resource.RLIM_INFINITY, [(process.FILES_MAX, resource.RLIM_INFINITY)]),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, []),
        (1 << 20, 1 << 20, []),
    ):
        set_.clear()
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=(soft, hard): limits)
        process.raise_open_files()
        assert set_ == expected

    def refused(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refused)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (40, 4096))
    process.raise_open_files()


def test_a_study_of_300_agents_fits_where_the_hard_limit_does(tmp_path: Path) -> None:
    limit = f"ulimit -Sn 1024; ulimit -Hn {resource.getrlimit(resource.RLIMIT_NOFILE)[1]};"
    assert hostcheck.open_files(2 * 300).found.startswith("limit")
    run = tmp_path / "run.toml"
    run.write_text(quadratic(300, 0), encoding="utf-8")
    code, said = wait(start("simulate", run, "--out", tmp_path / "out", before=limit))
    assert code == 0, said


# --- true advice


def test_an_edited_run_file_names_the_key(endless: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    endless.write_text(quadratic(2, 3), encoding="utf-8")
    assert processes.dpgt("simulate", endless, "--out", out).returncode == 0
    endless.write_text(quadratic(2, 4), encoding="utf-8")
    done = processes.dpgt("simulate", endless, "--out", out)
    assert done.returncode == 2 and "or undo what was edited: algorithm.iterations: 4 here, 3 there" in done.stderr
    os.truncate(out / "run.toml", 3)
    assert "choose another folder\n" in processes.dpgt("simulate", endless, "--out", out).stderr
