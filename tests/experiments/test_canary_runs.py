"""Empirical audit of the release path: how well can the best test tell two adjacent data sets apart, measured?

The daemon's own AgentWork and sampler, full batches, many canaries a run, each in its own world.  A bound above the
claim would refute the CODE; one far below it would say that the audit sees nothing.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.adversary.audit.canaries import Canaries
from dpgt_node.agent.noise import sampler_for
from dpgt_node.algo.methods import METHODS
from dpgt_node.bench.studies import audit as campaigns
from dpgt_node.bench.studies.audit import WIDTH, HalfNoise, audited_run, claim
from dpgt_node.config import model
from dpgt_node.errors import ConfigError
from dpgt_node.experiments.canary_runs import Campaign, conduct
from dpgt_node.experiments.trials import AFFORDABLE, Test, Trials, affordable, left_out, lower_bound, present, runs_for
from dpgt_node.privacy.counts.code import BinomialCode
from tests.sim.cases import CARRIED


@pytest.mark.parametrize(("count", "rounds"), [(1, 100), (3, 7), (5, 20_001), (12, 51), (64, 1)])
def test_as_many_trials_are_made_as_are_affordable_and_the_rest_is_named(count: int, rounds: int) -> None:
    wanted = 1_000
    n = affordable(count, rounds, wanted)
    assert n == max((m for m in range(4, wanted + 1) if runs_for(count, m) * rounds <= AFFORDABLE), default=4)
    said = left_out(count, rounds, n, wanted)
    assert said.startswith(f"{n} trials a world, not 1000: these have ") if n < wanted else said == ""


def campaign_of(mechanism: str, law: str, K: int, scale: float, **options) -> Campaign:
    run = audited_run(mechanism, law, K, scale, options.pop("m", "full"))
    options = {"dimension": WIDTH, "samples": WIDTH, "test_keystream": "00", **options}
    return Campaign.of(run, 0, **options)


@lru_cache(maxsize=64)
def calibrated(mechanism: str, law: str, target: float, K: int, half: bool = False, stacked: bool | None = None):
    """A campaign where ``tight``, or mu, is ``target``."""
    campaign = campaigns.calibrated(mechanism, law, target, K, half=half, stacked=stacked)
    assert claim(campaign, "tight" if law == "laplace" else "gdp") == pytest.approx(target, rel=1e-4)
    return campaign


def measured(campaign: Campaign, n: int, test: Test = "guess") -> float:
    """The lower bound of epsilon, or of mu under Gaussian noise, from ``n`` trials a world."""
    trials = campaign.kept_in(None)
    conduct(campaign, trials, n)
    accountant = "tight" if campaign.run.noise.law == "laplace" else "gdp"
    delta = campaign.run.privacy.delta
    return lower_bound(accountant, *trials.worlds(n), delta=delta, test=test)[1].value


@pytest.mark.parametrize("claimed", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_the_measured_bound_lies_just_below_the_claim(law: str, claimed: float) -> None:
    assert 0.85 * claimed < measured(calibrated("noise-once", law, claimed, 2), 20_000) <= claimed


ONCE = [name for name in CARRIED if "noise-once" in METHODS[name].rules]


@pytest.mark.parametrize("sampler", [sampler_for, HalfNoise], ids=["its noise", "half of it"])
@pytest.mark.parametrize("method", ONCE)
def test_whatever_the_method_the_claim_is_nearly_reached_and_half_the_noise_is_caught(method: str, sampler) -> None:
    """What the last round draws shows in x_{K+1} alone where x is sent before the step: three of four releases."""
    run = calibrated("noise-once", "laplace", 2.0, 3).run
    options = {"step": 0.0} if method == "q-dpsgd" else {}
    run = replace(run, algorithm=replace(run.algorithm, method=method), method_options=options)
    campaign = Campaign.of(run, 0, dimension=WIDTH, samples=WIDTH, test_keystream="00", sampler=sampler)
    claimed = 1.5 if method in ("sampled-dsgd", "q-dpsgd") else 2.0
    found = measured(campaign, 6_000)
    assert 0.85 * claimed < found <= claimed if sampler is sampler_for else found > 2.0


class Fewer:
    """A planted bug: codes with a sixteenth of their coins, in the middle of where all of them would lie."""

    def __init__(self, monkeypatch) -> None:
        drawn = BinomialCode.drawn

        def few(self, g, stream):
            fewer = replace(self, trials=self.trials // 16)
            return drawn(fewer, g, stream) + (self.trials - fewer.trials) // 2

        monkeypatch.setattr(BinomialCode, "drawn", few)


class Coarser(HalfNoise):
    """A planted bug: a quantiser that takes an eighth of its range for the whole."""

    def perturb(self, private, scale, stream):
        return 8.0 * self.sampler.perturb(private, scale / 8.0, stream)


INTEGERS = {
    # method, mechanism, accountant, keys, the least part of the claim that must be reached
    "coins": ("quantised-binomial-sgd", "coded-coins", "binomial", {"bound": 0.01, "trials": 4000}, 0.25),
    "rounded gradients": ("q-dpsgd", "noise-once", "tight", {"step": 2e-4}, 0.6),
    "rounded states": ("quantised-dsgd", "released-state", "tight", {"step": 3e-4}, 0.3),
    "three values": ("ternary-dsgd", "quantised-state", "variation", {"r": 1e-3}, 0.3),
}


@pytest.mark.parametrize("bug", [False, True], ids=["as it is", "with less noise"])
@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_are_audited_too(kind: str, bug: bool, monkeypatch) -> None:
    """Counts of coins, noise that is rounded, and a quantiser alone: by trials, whatever of T they let be known."""
    method, mechanism, accountant, options, least = INTEGERS[kind]
    run = calibrated("noise-once", "laplace", 2.0, 3).run
    K = 1 if kind == "three values" else 3
    run = replace(
        run,
        algorithm=replace(run.algorithm, method=method, mechanism=mechanism, iterations=K),
        method_options=options,
        privacy=model.Privacy(clip_l2=1.0) if kind == "coins" else run.privacy,
    )
    if kind == "rounded states":
        run = replace(run, noise=replace(run.noise, zeta=model.NoiseStream("constant", (6e-4,))))
    if bug and kind == "coins":
        Fewer(monkeypatch)
    sampler = sampler_for if not bug or kind == "coins" else Coarser if kind == "three values" else HalfNoise
    campaign = Campaign.of(run, 0, dimension=WIDTH, samples=WIDTH, test_keystream="00", sampler=sampler)
    trials = campaign.kept_in(None)
    conduct(campaign, trials, 20_000)
    claims = {one.accountant: one for one in campaign.judge(trials, 20_000).claims}
    one = claims[accountant]
    assert one.realised is not None
    assert one.refuted if bug else least * one.claimed < one.realised <= one.claimed


@pytest.mark.parametrize(("law", "K", "least"), [("laplace", 0, 0.9), ("laplace", 2, 0.75), ("gaussian", 2, 0.85)])
def test_the_tracker_s_releases_too(law: str, K: int, least: float) -> None:
    """public-state: beyond one round no canary in one coordinate reaches the bound (theory.md, theorem 1)."""
    assert least < measured(calibrated("public-state", law, 1.0, K, stacked=True), 20_000) <= 1.0


@pytest.mark.parametrize("mechanism", ["noise-once", "public-state", "published-point"])
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("K", [0, 2])
def test_half_the_noise_is_caught(mechanism: str, law: str, K: int) -> None:
    assert measured(calibrated(mechanism, law, 1.0, K, half=True, stacked=True), 15_000) > 1.3


@pytest.mark.parametrize(("target", "expected"), [(1.0, 0.90), (2.0, 1.86), (4.0, 3.66)])
def test_thresholds_reach_what_is_expected_of_one_release(target: float, expected: float) -> None:
    """1e4 runs a world, half of them for testing; five times the error of the smaller count is allowed."""
    found = measured(calibrated("noise-once", "laplace", target, 0), 10_000, "threshold")
    assert expected * 0.93 < found <= target


@pytest.mark.parametrize("mechanism", ["paper", "published-point", "public-state"])
def test_canaries_spread_over_coordinates_attain_the_whole_claim(mechanism: str) -> None:
    """The largest |T| that any transcript can show is `tight` itself (`lemma5`, at K = 0, of `paper`)."""
    K, accountant = (0, "lemma5") if mechanism == "paper" else (2, "tight")
    campaign = campaign_of(mechanism, "laplace", K, 0.02, stacked=False, dimension=300, samples=100)
    trials = campaign.kept_in(None)
    conduct(campaign, trials, 3_000)
    absent, inside = trials.worlds(3_000)
    total = claim(campaign, accountant)
    assert max(np.abs(absent).max(), np.abs(inside).max()) <= total
    assert inside.max() > 0.97 * total
    assert not any(one.refuted for one in campaign.judge(trials, 3_000).claims)


def test_sampled_batches_test_the_amplified_claim() -> None:
    """m = D/2: the ratio of mixtures never exceeds `amplified` and comes near it; half the noise is caught."""

    def audited(sampler) -> tuple[Campaign, Trials]:
        campaign = campaign_of("noise-once", "laplace", 0, 0.03, m=50, samples=100, dimension=4, sampler=sampler)
        trials = campaign.kept_in(None)
        conduct(campaign, trials, 400)
        return campaign, trials

    campaign, trials = audited(sampler_for)
    absent, inside = trials.worlds(400)
    total = claim(campaign, "amplified")
    assert total < 0.7 * claim(campaign, "tight")
    assert 0.9 * total < inside.max() <= total
    assert absent.min() > np.log(1 - 0.5)  # that a canary seems to be missing says little
    assert not campaign.judge(trials, 400).refuted
    mutant, trials = audited(HalfNoise)
    assert [c.accountant for c in mutant.judge(trials, 400).claims if c.refuted] == ["amplified"]


def test_an_audit_without_power_says_so() -> None:
    """Twelve runs cannot tell anything about epsilon = 4: never "private", never "not refuted"."""
    campaign = calibrated("noise-once", "laplace", 4.0, 0)
    trials = campaign.kept_in(None)
    conduct(campaign, trials, 12)
    assert {c.verdict for c in campaign.judge(trials, 12).claims} == {"no power"}


def test_a_large_model_is_audited_in_as_many_coordinates_as_canaries_need() -> None:
    """The claim, and the dtype on the wire, are those of d."""
    large = campaign_of("public-state", "laplace", 4, 0.02, dimension=11_000_000, samples=50)
    assert large.canaries.dimension == 10_000
    assert large.canaries.count == 50
    assert large.run.runtime.wire_dtype == "float32"
    small = campaign_of("public-state", "laplace", 4, 0.02, dimension=1000, samples=50)
    assert claim(large, "tight") > claim(small, "tight")  # the sampler's leftover grows with d
    trials = large.kept_in(None)
    conduct(large, trials, 25)
    assert trials.foreign == 0


def test_a_foreign_sampler_is_named() -> None:
    campaign = calibrated("noise-once", "laplace", 1.0, 0, half=True)
    trials = campaign.kept_in(None)
    conduct(campaign, trials, 1000)
    assert trials.foreign == runs_for(WIDTH, 1000)
    assert "not its sampler" in " ".join(campaign.judge(trials, 1000).notes)


# ---------------------------------------------------------------- runs: worlds, files, processes
def test_both_worlds_get_their_share() -> None:
    for count in (1, 2, 3, 7, 100):
        for n in (4, 9, 250):
            inside = np.array([present(count, r) for r in range(runs_for(count, n))])
            assert min(inside.sum(), (~inside).sum()) >= n
            fewer = inside[:-1]
            assert min(fewer.sum(), (~fewer).sum()) < n


def test_a_campaign_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    campaign = campaign_of("noise-once", "laplace", 0, 0.002, count=50)
    whole = campaign.kept_in(None)
    conduct(campaign, whole, 200)

    first = campaign.kept_in(tmp_path)
    for trial in campaign.trials(range(3)):
        first.add(trial)
    path = tmp_path / "trials.jsonl"
    with path.open("ab") as file:
        file.write(b'{"run": 3, "T": [0.1')  # torn off
    second = campaign.kept_in(tmp_path)
    assert sorted(second.done) == [0, 1, 2]
    before = path.read_bytes()
    conduct(campaign, second, 200)
    assert path.read_bytes().startswith(before)  # nothing is done twice
    third = campaign.kept_in(tmp_path)
    assert third.done == whole.done
    assert [json.loads(line)["run"] for line in path.read_text().splitlines()[1:]] == list(range(8))


def test_trials_of_another_run_are_refused(tmp_path: Path) -> None:
    campaign_of("noise-once", "laplace", 0, 0.002).kept_in(tmp_path)
    with pytest.raises(ConfigError, match="of another run, agent or canary"):
        campaign_of("noise-once", "laplace", 0, 0.001).kept_in(tmp_path)
    (tmp_path / "trials.jsonl").write_text("nonsense\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        campaign_of("noise-once", "laplace", 0, 0.002).kept_in(tmp_path)


def test_processes_make_the_same_runs() -> None:
    campaign = campaign_of("noise-once", "laplace", 0, 0.002, count=50)
    one, two = campaign.kept_in(None), campaign.kept_in(None)
    conduct(campaign, one, 200)
    conduct(campaign, two, 200, jobs=2)
    assert one.done == two.done


# ---------------------------------------------------------------- what cannot be audited
def plan(**changes) -> Canaries:
    settings = {
        "mechanism": "public-state", "law": "laplace", "releases": 6, "dimension": 30, "samples": 9, "m": 9, "C": 2.0,
    }  # fmt: skip
    return Canaries.plan(**{**settings, **changes})


def test_as_many_canaries_as_fit() -> None:
    assert (plan().count, plan().width) == (5, 6)
    assert (plan(dimension=600).count, plan(dimension=600).width) == (9, 6)  # one sample each
    assert plan(dimension=4).width == 4
    assert plan(m=3).count == 1
    stacked = plan(law="gaussian")
    assert (stacked.count, stacked.width, stacked.alternate) == (9, 1, True)


def test_the_mean_gradient_moves_by_all_that_is_allowed() -> None:
    for canaries in (plan(), plan(law="gaussian"), plan(m=3)):
        for k in range(6):
            one = np.ones(canaries.count)
            moved = canaries.gradient(k, one) - canaries.gradient(k, -one)
            assert np.abs(moved).sum() == pytest.approx(canaries.count * 2.0 / canaries.m)
            assert np.count_nonzero(moved) == canaries.count


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"m": 3, "dimension": 5}, "needs 6 coordinates, one a release"),
        ({"count": 6}, "must be in 1..5"),
        ({"m": 3, "count": 2}, "must be in 1..1"),
    ],
)
def test_impossible_canaries_are_refused(changes, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        plan(**changes)
