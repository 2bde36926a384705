"""The walk-through of deploy/two-hosts: five agents on two hosts that only a cable joins.  Needs root (make hosts)."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.processes import eventually

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "deploy" / "two-hosts" / "run.sh"
LIMIT_S = 200
AGENTS = [f"agent-{i}" for i in range(1, 6)]

pytestmark = pytest.mark.hosts


def hosts_left(output: str) -> list[str]:
    """Which of the two namespaces that the script said it made still exist."""
    made = re.findall(r"dpgt-[ab]-\d+", output)
    assert len(made) == 2, output
    listing = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [name for name in made if name in listing]


@pytest.fixture
def dpgt(tmp_path: Path) -> Path:
    """The command of this very checkout and interpreter, whatever is installed elsewhere."""
    command = tmp_path / "dpgt"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m dpgt_node "$@"\n')
    command.chmod(0o755)
    return command


def walk_through(dpgt: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DPGT": str(dpgt), "LIMIT_S": str(LIMIT_S)}
    command = [str(SCRIPT), *arguments]
    return subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S + 60,
        stdin=subprocess.DEVNULL,
    )


def test_five_agents_on_two_hosts(dpgt: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = walk_through(dpgt, "--out", str(out))
    assert result.returncode == 0, result.stdout + result.stderr
    assert hosts_left(result.stdout) == []

    summary = json.loads((out / "results" / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert summary["rounds"] == 51
    assert [agent["name"] for agent in summary["agents"]] == AGENTS
    for agent in summary["agents"]:
        assert agent["releases"] == 2 * 51
        assert agent["accuracy_test"] is None, "metrics stay on the agents' hosts"
        with (out / "hosts" / agent["name"] / "state" / "metrics.csv").open(encoding="utf-8") as file:
            accuracy = float(list(csv.DictReader(file))[-1]["accuracy_test"])
        assert accuracy > 0.5  # far above chance (0.1): the hosts learned from each other's data
        x_final = np.load(out / "hosts" / agent["name"] / "state" / "x_final.npy")
        assert x_final.dtype == np.float64 and np.isfinite(x_final).all()
    assert (out / "results" / "report.html").stat().st_size > 0

    # x of 3 -> 4 and 5 -> 1 (and y alike) cross the cable every round: 650 float64 values each.
    received, sent = (int(n) for n in re.findall(r"[RT]X:.*\n\s+(\d+)", result.stdout))
    assert min(received, sent) > 51 * 650 * 8


def test_each_host_gets_its_own_key_and_no_other(dpgt: Path, tmp_path: Path) -> None:
    out = tmp_path / "hosts"
    hosts = [f"--host={name}=10.77.0.{i}:7701" for i, name in enumerate(AGENTS, start=2)]
    command = [str(dpgt), "pki", "init", str(ROOT / "deploy" / "run.toml"), "--out", str(out)]
    subprocess.run([*command, "--host=coordinator=10.77.0.1:7700", *hosts], check=True, capture_output=True)
    keys = [(out / name / "key.pem") for name in ("coordinator", *AGENTS)]
    assert [stat.S_IMODE(key.stat().st_mode) for key in keys] == [0o600] * 6
    assert len({key.read_bytes() for key in keys}) == 6
    assert len({(out / name / "ca.pem").read_bytes() for name in ("coordinator", *AGENTS)}) == 1
    for name in AGENTS:
        assert {p.name for p in (out / name).iterdir()} == {"NODE.toml", "run.toml", "ca.pem", "cert.pem", "key.pem"}


def test_a_failure_leaves_no_host_and_no_process(dpgt: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text((ROOT / "deploy" / "run.toml").read_text().replace("iterations = 50", "iterations = -1"))
    result = walk_through(dpgt, "--run", str(broken))
    assert result.returncode == 2, result.stdout + result.stderr
    assert "iterations" in result.stdout + result.stderr
    assert hosts_left(result.stdout) == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_whatever_ends_it_ends_every_process_and_host(dpgt: Path, tmp_path: Path, how: signal.Signals) -> None:
    endless = tmp_path / "endless.toml"
    endless.write_text((ROOT / "deploy" / "run.toml").read_text().replace("iterations = 50", "iterations = 1000000"))
    environment = {**os.environ, "DPGT": str(dpgt), "LIMIT_S": str(LIMIT_S)}
    process = subprocess.Popen(
        [str(SCRIPT), "--run", str(endless), "--out", str(tmp_path / "out")],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    output = ""
    try:
        for line in process.stdout:
            output += line
            if line.startswith("== agents"):
                break
        process.send_signal(how)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == (143 if how == signal.SIGTERM else -9)
    eventually("no host is left", lambda: hosts_left(output) == [])
