"""Renyi divergences of releases, from below: the inequality, the bets, and planted bugs refuted at one in 10^9."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.adversary.audit import divergence
from dpgt_node.adversary.audit.divergence import bet, mean_above, proves, randomised_response, renyi_bound
from dpgt_node.adversary.audit.events import Places
from dpgt_node.adversary.audit.report import Audit
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.agent.noise import sampler_for
from dpgt_node.bench.studies.audit import calibrated, launch_run
from dpgt_node.experiments.canary_runs import conduct
from dpgt_node.experiments.launches import Flips
from dpgt_node.experiments.trials import Trial, present
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.sim.simulate import simulate
from tests.adversary.audit.test_noise import BUGS, Planted

SURE = 1.0 - 1e-9


def audited(bug: str, n: int, *, law: str = "laplace", width: int = 1000) -> Audit:
    """``n`` trials a world at K = 0 and a claim of 1, each refutation wrong once in 10^9."""
    plant = BUGS[bug][0] if bug else None
    campaign = replace(
        calibrated("noise-once", law, 1.0, 0, width=width, test_keystream="e7e2"),  # type: ignore[arg-type]
        lawless=True,
        sampler=lambda of: Planted(sampler_for(of), plant(sampler_for(of), law)) if plant else sampler_for(of),
    )
    trials = campaign.kept_in(None)
    conduct(campaign, trials, n)
    return campaign.judge(trials, n, test="renyi", confidence=SURE)


@pytest.mark.parametrize(
    ("bug", "n", "width", "whose"),
    [
        ("half the scale", 4_000, 1000, "all canaries"),
        ("0.8 of the scale, on the grid", 60_000, 1000, "all canaries"),
        ("tails cut", 30_000, 1000, "all canaries"),
        ("no noise in one coordinate, on the grid", 18 * 1_000, 18, "canary 17"),
        ("half the noise in one coordinate, on the grid", 18 * 2_000, 18, "canary 17"),
    ],
)
def test_planted_bugs_are_refuted_once_and_for_all(bug: str, n: int, width: int, whose: str) -> None:
    audit = audited(bug, n, width=width)
    refuted = [claim.accountant for claim in audit.claims if claim.refuted]
    assert "tight" in refuted, [(claim.accountant, claim.realised) for claim in audit.claims]
    bound = audit.bounds["tight"]
    assert f": {whose}" in bound.event and bound.order > 1.0 and f"D_{bound.order:g} >=" in bound.event


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_an_honest_sampler_is_not(law: str) -> None:
    audit = audited("", 20_000, law=law)
    assert not audit.refuted
    one = next(claim for claim in audit.claims if claim.accountant == ("tight" if law == "laplace" else "gdp"))
    assert one.realised is not None and one.realised > 0.6 * one.claimed


@pytest.mark.parametrize("factor", [1.0, 2.0, 1e3])
def test_a_clip_that_is_wider_or_missing_is_refuted(factor: float, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Labels of whole runs: the data's own gradients, clipped by the oracle of the agents, at ``factor`` times."""
    honest = Clip.from_config
    monkeypatch.setattr(Clip, "from_config", lambda privacy: (honest(privacy) or Clip(1, 1.0)).times(factor))
    run = launch_run("noise-once", 0, 0.004)
    flips = Flips.of(replace(run, scheme=replace(run.scheme, samples="full")), 0, 500, tmp_path, lawless=True)
    trials, runs = flips.kept(), 56 if factor == 2.0 else 16
    for r in range(runs):
        out = tmp_path / f"out-{r}"
        written = flips.written(tmp_path / "data.npz", present(flips.count, r))
        simulate(written, out, bytes(16), test_keystream=f"{r:04x}")
        seen = [out / "agents" / name / "state" / "transcript" for name in run.graph.agents]
        T, foreign = flips.ratios(Observation.load(seen, written))
        trials.add(Trial(r, T.tolist(), foreign))
    audit = flips.judge(trials, runs // 2 * flips.count, test="renyi", confidence=SURE)
    assert audit.refuted == (factor > 1.0), [(claim.accountant, claim.realised) for claim in audit.claims]


# ---------------------------------------------------------------- what they rest on
@pytest.mark.parametrize("order", [1.1, 2.0, 10.0])
def test_the_inequality_is_an_equality_at_the_ratio_and_at_no_other_witness(order: float) -> None:
    rng = np.random.default_rng(2)
    p, q = rng.dirichlet(np.ones(12)), rng.dirichlet(np.ones(12))
    true = math.log(float((p**order * q ** (1 - order)).sum())) / (order - 1)

    def shown(h: np.ndarray) -> float:
        return order / (order - 1) * math.log(float(p @ h ** (order - 1))) - math.log(float(q @ h**order))

    assert shown(p / q) == pytest.approx(true) == pytest.approx(shown(7.0 * p / q))
    for _ in range(50):
        assert shown(p / q * np.exp(rng.normal(size=12))) < true


def test_a_divergence_proves_what_its_claim_would_need() -> None:
    for epsilon in (0.1, 1.0, 6.0):
        p = math.exp(epsilon) / (1 + math.exp(epsilon))
        for order in (1.02, 2.0, 30.0):
            true = math.log(p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)) / (order - 1)
            assert randomised_response(order, epsilon) == pytest.approx(true, rel=1e-9)
            assert proves("epsilon", order, true) == pytest.approx(epsilon, rel=1e-9)
    assert proves("mu", 3.0, 3.0 * 1.3**2 / 2) == pytest.approx(1.3), "two normal laws mu apart"
    assert proves("rho", 3.0, 3.0 * 0.4) == pytest.approx(0.4)
    assert proves("epsilon", 2.0, 0.0) == proves("mu", 2.0, -1.0) == 0.0


def test_a_bet_made_beforehand_misses_no_more_often_than_it_says() -> None:
    """1,000 bounds: at most 5 % above the mean (95 would be one in 10^9), and not far below it."""
    rng, values, shares = np.random.default_rng(7), np.array([0.2, 0.3, 1.1]), [0.5, 0.45, 0.05]
    size = bet(values, rng.multinomial(200, shares).astype(float), 0.05, 200.0)
    came = rng.multinomial(200, shares, size=1_000).astype(float)
    assert 0 < sum(mean_above(values, counts, 0.05, size) > values @ shares for counts in came) < 95
    sample = rng.multinomial(4_000, shares).astype(float)
    low = mean_above(values, sample, 0.025, bet(values, sample, 0.025, 4_000.0))
    mean = float(sample @ values) / 4_000
    spread = math.sqrt(float(sample @ np.square(values - mean)) / 4_000 / 4_000)
    assert 1.9 * spread < mean - low < 3.2 * spread, "a normal law would say 1.96"
    assert mean_above(values, sample, 0.025, 0.0) == 0.2, "who bets nothing learns nothing"
    certain = mean_above(np.array([0.0, 1.0]), np.array([0.0, 50.0]), 0.01, 1e9)
    assert certain == pytest.approx(0.0, abs=1e-8), "a bet may be too large"


def test_the_bound_misses_no_more_often_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two worlds alike: above 0 in at most 5 % of 50 audits (17 would be one in 10^9), and in more where means are
    bounded from the wrong side.
    """
    rng = np.random.default_rng(3)
    worlds = [[Places(rng.laplace(size=200), np.zeros(200, dtype=np.int64)) for _ in "ab"] for _ in range(50)]
    bounds = [renyi_bound(*pair) for pair in worlds]
    assert sum(bound.value > 0.0 for bound in bounds) < 17
    assert {bound.in_present for bound in bounds} == {100}, "the half that did not pick it"
    misses: list[float] = []

    def noted(values: np.ndarray, counts: np.ndarray, miss: float, size: float) -> float:
        misses.append(miss)
        return mean_above(values, counts, miss, size)

    with monkeypatch.context() as patched:
        patched.setattr(divergence, "mean_above", noted)
        patched.setattr(divergence, "bet", lambda *given: 0.5)
        renyi_bound(*worlds[0], confidence=0.9)
    assert misses == pytest.approx([0.05, 0.05]), "both means together miss once in ten"
    monkeypatch.setattr(divergence, "mean_above", lambda values, *given: -mean_above(-values, *given))
    assert sum(renyi_bound(*pair).value > 0.0 for pair in worlds) >= 17


def test_a_bet_is_made_from_trials_that_are_not_those_it_is_made_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second halves are far from the first ones: no bet has seen them."""
    rng, bets = np.random.default_rng(5), []
    near, far = rng.laplace(size=(2, 100)), 50.0 + rng.laplace(size=(2, 100))
    worlds = [Places(np.concatenate(pair), np.zeros(200, dtype=np.int64)) for pair in zip(near, far, strict=True)]
    monkeypatch.setattr(divergence, "bet", lambda values, counts, *given: bets.append(counts) or 0.5)
    renyi_bound(worlds[0], worlds[1])
    assert len(bets) == 2 and all(counts.sum() == 100 and np.count_nonzero(counts) > 1 for counts in bets)


def test_few_trials_are_refused() -> None:
    few = Places(np.zeros(3), np.zeros(3, dtype=np.int64))
    with pytest.raises(ValueError, match="four trials"):
        renyi_bound(few, few)
