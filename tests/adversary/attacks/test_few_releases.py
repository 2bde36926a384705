"""Attacks on a run whose rounds do not all release: a release that stands for several rounds is one, not several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.adversary.attack import Attack, Options, Result
from dpgt_node.adversary.attacks.floats import attack as floats
from dpgt_node.adversary.attacks.gradients import attack as gradients
from dpgt_node.adversary.attacks.membership import attack as membership
from dpgt_node.adversary.attacks.reuse import attack as reuse
from dpgt_node.adversary.inference import estimators
from dpgt_node.adversary.inference.estimators import absolute, tracker_from_x, view
from dpgt_node.adversary.inference.fusion import log_likelihood
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.config import model
from dpgt_node.record.truth import find_truth
from dpgt_node.sim.simulate import simulate
from tests.sim import cases

RELEASES, K, SETTLE = (0, 5, 6, 11), 18, 4
FREE = [k for k in range(K + 1) if k not in RELEASES]


def run() -> model.RunConfig:
    config = cases.run("the demo's ring with chords", K=K, data=model.Data("digits"))
    scheme = replace(config.scheme, samples="full", releases=RELEASES, settle=SETTLE, first="class-sums")
    return replace(
        config,
        algorithm=replace(config.algorithm, mechanism="noise-once"),
        scheme=replace(scheme, first_scale=0.3),
        noise=replace(config.noise, by_release=(2.0, 1.0)),
        privacy=model.Privacy(clip_l1=4.0, by_release=(3.0, 1.0)),
        adversary=model.Adversary(config.graph.agents, truth=True),
    )


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("few")
    simulate(run(), folder, bytes(16), test_keystream="c0")
    return folder


def observed(out: Path) -> Observation:
    config = run()
    return Observation.load([out / "agents" / name / "state" / "transcript" for name in config.graph.agents], config)


def on(attack: Attack, out: Path) -> Result:
    return attack.run(observed(out), find_truth(out, run().graph.agents), Options(agents=("agent-1", "agent-4")))


def test_a_release_that_stands_is_no_noise_used_twice(out: Path) -> None:
    for finding in on(reuse, out).findings:
        assert finding.verdict == "clean" and finding.measured["releases"] == len(RELEASES)


def test_the_grid_is_seen_through_the_public_factor(out: Path) -> None:
    assert [f.verdict for f in on(floats, out).findings] == ["clean"] * 2


def test_gradients_are_measured_where_they_were_taken(out: Path) -> None:
    for finding in on(gradients, out).findings:
        assert finding.measured["B_rms"] == pytest.approx(finding.predicted["B_rms"], rel=0.1)
    assert [f.measured["rounds"] for f in on(membership, out).findings] == [
        len(RELEASES) - 1
    ] * 2  # class sums say nothing here


def test_what_stands_in_free_rounds_is_no_new_evidence(out: Path) -> None:
    v = view(observed(out), 0)
    assert np.isnan(absolute(v)[FREE]).all() and not np.isnan(absolute(v)[list(RELEASES)]).any()
    known = tracker_from_x(v)
    assert np.isnan(known[K - SETTLE + 1 :]).all()
    np.testing.assert_allclose(known[: K - SETTLE + 1], v.y[: K - SETTLE + 1], atol=1e-10)
    g = np.zeros_like(v.y)
    whole = log_likelihood(v, g).sum()
    assert log_likelihood(replace(v, taken=None), g).sum() < 2.0 * whole < 0.0, "each release would count several times"


def test_an_estimator_that_counts_every_round_is_caught(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators, "_where_taken", lambda v, g: g)
    assert any(f.verdict == "succeeds" for f in on(reuse, out).findings)
