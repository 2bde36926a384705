"""An owner's policy in real processes: everybody's exit code, and who is named."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.e2e.processes import Launch, asked, eventually, no_traceback, quadratic

pytestmark = pytest.mark.e2e

ROUNDS = 8_001


def run_file(folder: Path) -> Path:
    """noise-once, tight: 0.5 / 0.01 = 50 a round."""
    text = quadratic(2, ROUNDS - 1).replace("[algorithm]", '[algorithm]\nmechanism = "noise-once"')
    path = folder / "run.toml"
    path.write_text(text + "[privacy]\nC = 1.0\n", encoding="utf-8")
    return path


def give_policy(launch: Launch, name: str, policy: str) -> None:
    with (launch.out / "agents" / name / "node.toml").open("a", encoding="utf-8") as file:
        file.write(f"\n[policy]\nallow_declared = true\nallow_study = true\n{policy}\n")


def totals(launch: Launch, name: str) -> dict[str, float]:
    result = asked("ledger", launch.out / "agents" / name / "state", "--format", "json")
    assert result.returncode == 0, result.stderr
    found: dict[str, float] = json.loads(result.stdout)["totals"]
    return found


def test_a_cap_in_mid_run_ends_everybody_with_4_and_a_forbidden_run_with_3(tmp_path: Path) -> None:
    run = run_file(tmp_path)
    with Launch(tmp_path / "out", "launch", run, "--insecure") as launch:
        launch.running()
        eventually("agent-2 has released something", lambda: totals(launch, "agent-2")["tight"] > 0)
        launch.process.send_signal(signal.SIGINT)
        assert launch.wait() == 5
    spent = totals(launch, "agent-2")["tight"]
    give_policy(launch, "agent-2", f'epsilon_max = {spent + 1010.0}\naccountant = "tight"')
    with Launch(tmp_path / "out", "launch", run, "--insecure") as launch:
        assert launch.wait() == 4
    line = launch.said.splitlines()[-1]
    assert line.startswith("dpgt launch: ") and "agent-2: the privacy budget does not cover the next round" in line
    assert totals(launch, "agent-2")["tight"] == pytest.approx(spent + 1000.0)
    assert json.loads((launch.out / "summary.json").read_text())["status"] == "budget"
    give_policy(launch, "agent-1", 'mechanisms = ["published-point"]')
    with Launch(tmp_path / "out", "launch", run, "--insecure") as launch:
        assert launch.wait() == 3
    line = launch.said.splitlines()[-1]
    assert "agent-1 refused: the policy of the data's owner forbids this run; its own log says more" in line
    assert "forbids this run: mechanism noise-once is not" in launch.everything_said()
    no_traceback(launch.everything_said())
