"""The audit that presumes no law: events learnt from trials, through the real clip, oracle and sampler."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node import cli
from dpgt_node.adversary.audit.bounds import clopper_pearson
from dpgt_node.adversary.audit.events import Places, event_bound
from dpgt_node.adversary.audit.report import Audit
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.agent.noise import sampler_for
from dpgt_node.bench.studies.audit import launch_run, launch_text
from dpgt_node.experiments.canary_runs import conduct
from dpgt_node.experiments.launches import Flips
from dpgt_node.experiments.trials import Test, Trial, lower_bound, present
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.sim.simulate import simulate
from tests.adversary.audit.test_noise import BUGS, Planted
from tests.experiments.test_canary_runs import calibrated


@pytest.mark.parametrize("test", ["threshold", "event"])
def test_only_claims_that_have_a_delta_may_spend_it(test: Test) -> None:
    """A pure epsilon, a mu or a rho is not made less of by a delta that its claim does not use."""
    rng, nobody = np.random.default_rng(1), np.zeros(400, dtype=np.int64)
    absent, seen = rng.normal(size=400), rng.normal(size=400) + 2.0
    canaries = (nobody, nobody) if test == "event" else None
    for accountant, one in ACCOUNTANTS.items():
        proved = [
            lower_bound(accountant, absent, seen, delta=delta, test=test, canaries=canaries)[1].value
            for delta in (1e-9, 0.2)
        ]
        assert 0.0 < proved[1] < proved[0] if one.guarantee == "approximate" else proved[0] == proved[1] > 0.0


def audited(n: int, *, law: str = "laplace", bug: str = "", count: int = 1000, lawless: bool = True) -> Audit:
    """``n`` trials a world at K = 0 and a claim of 1, of canaries in coordinates of their own."""
    campaign = calibrated("noise-once", law, 1.0, 0)
    plant = BUGS[bug][0] if bug else None
    campaign = replace(
        campaign,
        canaries=replace(campaign.canaries, count=count),
        lawless=lawless,
        sampler=lambda of: Planted(sampler_for(of), plant(sampler_for(of), law)) if plant else sampler_for(of),
    )
    campaign = replace(campaign, test_keystream="e7e2")
    trials = campaign.kept_in(None)
    conduct(campaign, trials, n)
    return campaign.judge(trials, n, test="event" if lawless else "threshold")


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_an_honest_sampler_comes_near_its_claim_and_not_above(law: str) -> None:
    audit = audited(6_000, law=law)
    assert not audit.refuted
    one = next(claim for claim in audit.claims if claim.accountant == ("tight" if law == "laplace" else "gdp"))
    assert one.realised is not None and one.realised > 0.6 * one.claimed


@pytest.mark.parametrize(
    ("bug", "n", "count", "event"),
    [
        ("half the scale", 1_000, 1000, "all canaries"),
        ("tails cut", 6_000, 1000, "all canaries"),
        ("one side", 1_000, 1000, "all canaries"),
        ("no noise in one coordinate", 40 * 80, 40, "canary 17"),
        ("no noise in one coordinate, on the grid", 40 * 80, 40, "canary 17"),
    ],
)
def test_planted_bugs_are_refuted_without_their_law(bug: str, n: int, count: int, event: str) -> None:
    audit = audited(n, bug=bug, count=count)
    refuted = [claim.accountant for claim in audit.claims if claim.refuted]
    assert "tight" in refuted, [(claim.accountant, claim.realised) for claim in audit.claims]
    assert audit.bounds["tight"].event.startswith(event)
    if bug == "tails cut" or event == "canary 17":  # where the ratio of the stated law sees nothing
        assert not audited(n, bug=bug, count=count, lawless=False).refuted


@pytest.mark.parametrize("factor", [1.0, 4.0, 1e3])
def test_a_wider_clip_moves_more_than_is_claimed(factor: float, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Labels of whole runs: the data's own gradients, clipped by the oracle of the agents, at ``factor`` times."""
    honest = Clip.from_config
    monkeypatch.setattr(Clip, "from_config", lambda privacy: (honest(privacy) or Clip(1, 1.0)).times(factor))
    flips = Flips.of(launch_run("noise-once", 0, 0.02), 0, None, tmp_path, lawless=True)
    trials = flips.kept()
    for r in range(14):
        run = flips.written(tmp_path / "data.npz", present(flips.count, r))
        out = tmp_path / f"out-{r}"
        simulate(run, out, bytes(16), test_keystream=f"{r:04x}")
        seen = [out / "agents" / name / "state" / "transcript" for name in run.graph.agents]
        T, foreign = flips.ratios(Observation.load(seen, run))
        trials.add(Trial(r, T.tolist(), foreign))
    audit = flips.judge(trials, 7 * flips.count, test="event")
    assert audit.refuted == (factor > 1.0), [(claim.accountant, claim.realised) for claim in audit.claims]


def test_the_bound_misses_no_more_often_than_it_says() -> None:
    """Laplace shifts of 1: above 1 in at most 5 % of 100 audits (24 would be one in 10^9)."""
    rng = np.random.default_rng(3)
    over = 0
    for _ in range(100):
        worlds = [Places(rng.laplace(size=200) + at, np.arange(200) % 5) for at in (-0.5, 0.5)]
        bound = event_bound(*worlds)
        over += bound.value > 1.0
    assert over < 24
    low, _ = clopper_pearson(bound.hits, bound.in_present, 0.025)
    _, high = clopper_pearson(bound.alarms, bound.in_absent, 0.025)
    assert (bound.rate_low, bound.rate_high) == (low, high), "5 % in all, half of it on either side"
    assert max(bound.in_present, bound.in_absent) <= 100, "the half that did not pick it"


def test_a_set_of_intervals_is_learnt_where_no_threshold_serves() -> None:
    """Both worlds have the same quantiles of |position|, and mirror images of them in stripes."""
    rng = np.random.default_rng(5)
    stripes = rng.integers(0, 10, 4000)
    worlds = [Places(2.0 * stripes + odd + rng.random(4000), np.zeros(4000, dtype=np.int64)) for odd in (0.0, 1.0)]
    bound = event_bound(*worlds)
    assert bound.value > 2.0 and "intervals" in bound.event


def test_the_command_learns_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.toml"
    path.write_text(launch_text("noise-once", 0, 0.02), encoding="utf-8")
    argv = ["eavesdrop", "audit", str(path), "--runs", "400", "--resume", str(tmp_path / "kept"), "--format", "json"]
    assert cli.run([*argv, "--test", "event"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {claim["bound"]["event"] for claim in document["claims"]} != {None}
    assert cli.run([*argv, "--test", "threshold"]) == 2  # what is kept there are positions
    assert "holds trials of --test event and renyi" in capsys.readouterr().err
