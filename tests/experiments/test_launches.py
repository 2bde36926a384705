"""Labels told from the transcripts of whole runs: in the simulator here, in real launches on request."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.bench.studies.audit import LAUNCH_SAMPLES, launch_run, launch_text
from dpgt_node.cli import run as command_line
from dpgt_node.config import parse_run
from dpgt_node.config.emit import to_toml
from dpgt_node.errors import ConfigError
from dpgt_node.experiments.launches import Flips
from dpgt_node.experiments.trials import Trial, present
from dpgt_node.sim.simulate import simulate


def simulated(flips: Flips, r: int) -> Trial:
    """What ``flips.trial`` does with processes."""
    flips.folder.mkdir(parents=True, exist_ok=True)
    run = flips.written(flips.folder / "data.npz", present(flips.count, r))
    out = flips.folder / f"out-{r}"
    simulate(run, out, bytes(16), test_keystream=f"{r:04x}")
    T, foreign = flips.heard(out, run)
    return Trial(r, T.tolist(), foreign)


def test_an_agent_is_judged_by_what_it_received_and_not_by_what_others_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flips = Flips.of(launch_run("noise-once", 0, 0.004), 1, LAUNCH_SAMPLES, tmp_path)
    seen: list[Path] = []
    monkeypatch.setattr(Observation, "load", lambda paths, _: seen.extend(paths))
    monkeypatch.setattr(Flips, "ratios", lambda *_: (np.zeros(1), 0))
    flips.heard(tmp_path, flips.run)
    assert seen == [tmp_path / "agents" / flips.run.graph.agents[1] / "state" / "transcript"]


@pytest.mark.parametrize(
    ("mechanism", "K", "index"),
    [("noise-once", 0, 0), ("noise-once", 2, 1), ("published-point", 2, 0), ("public-state", 2, 1)],
)
def test_labels_are_told_and_never_better_than_claimed(tmp_path: Path, mechanism: str, K: int, index: int) -> None:
    """Guesses are right with the probability that the ratio says, and no ratio is above the claim."""
    flips = Flips.of(launch_run(mechanism, K, 0.01 * (K + 1)), index, None, tmp_path)
    trials = flips.kept()
    for r in range(4):
        trials.add(simulated(flips, r))
    absent, inside = trials.worlds(2 * LAUNCH_SAMPLES)
    claims = {c.accountant: c for c in flips.judge(trials, 2 * LAUNCH_SAMPLES).claims}
    assert trials.foreign == 0
    assert max(np.abs(absent).max(), np.abs(inside).max()) <= claims["tight"].claimed
    right = (np.count_nonzero(absent < 0) + np.count_nonzero(inside > 0)) / (4 * LAUNCH_SAMPLES)
    told = 1.0 / (1.0 + np.exp(-np.abs(np.concatenate((absent, inside)))))
    assert right == pytest.approx(told.mean(), abs=0.07)  # three standard deviations of 400 guesses
    assert right > 0.6
    assert not any(c.refuted for c in claims.values())


def test_at_k_0_the_whole_claim_is_reached(tmp_path: Path) -> None:
    flips = Flips.of(launch_run("noise-once", 0, 0.02), 0, None, tmp_path)
    trial = simulated(flips, 0)
    claim = next(c for c in flips.judge(kept(flips, trial), LAUNCH_SAMPLES // 2).claims if c.accountant == "tight")
    assert claim.claimed == pytest.approx(1.0, rel=1e-5)
    assert max(trial.T) == pytest.approx(1.0, rel=0.02)


def kept(flips: Flips, trial: Trial):
    trials = flips.kept()
    trials.add(trial)
    return trials


def test_what_cannot_be_launched_is_refused(tmp_path: Path) -> None:
    run = launch_run("noise-once", 0, 0.02)
    with pytest.raises(ConfigError, match="needs clip_l1 or clip_l2"):
        Flips.of(replace(run, privacy=replace(run.privacy, clip_l1=None, C=2.0)), 0, None, tmp_path)
    with pytest.raises(ConfigError, match="the noise is off"):
        Flips.of(replace(run, noise=replace(run.noise, multiplier=0.0)), 0, None, tmp_path)
    assert Flips.of(replace(run, scheme=replace(run.scheme, samples="full")), 0, 40, tmp_path).count == 40


def test_runs_that_hide_sizes_are_launched_without(tmp_path: Path) -> None:
    """[traffic] needs mTLS, which these launches do without: what they write must be a run file that can be read."""
    run = parse_run(launch_text("noise-once", 0, 0.02) + '[traffic]\npad_to = "power-of-two"\n', "run.toml", tmp_path)
    assert run.traffic.pad_to is not None
    flips = Flips.of(run, 0, None, tmp_path)
    text = to_toml(flips.written(tmp_path / "data.npz", present(flips.count, 0)))
    assert parse_run(text, "run.toml", tmp_path).traffic.pad_to is None


@pytest.mark.e2e
@pytest.mark.long
def test_real_launches_go_on_where_they_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, folder = tmp_path / "run.toml", tmp_path / "kept"
    path.write_text(launch_text("noise-once", 2, 0.06))
    common = ["eavesdrop", "audit", str(path), "--resume", str(folder), "--format", "json", "--launches"]
    assert command_line([*common, "1"]) == 0
    first = (folder / "agent-1" / "trials.jsonl").read_text()
    capsys.readouterr()
    assert command_line([*common, "3"]) == 0
    assert (folder / "agent-1" / "trials.jsonl").read_text().startswith(first)
    tight = next(c for c in json.loads(capsys.readouterr().out)["claims"] if c["accountant"] == "tight")
    assert tight["claimed"] == pytest.approx(1.0, rel=1e-5)
    assert tight["trials"] == 150
    assert not list((folder / "agent-1").glob("launch-*"))
