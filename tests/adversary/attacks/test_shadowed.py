"""LiRA, RMIA and shadow runs: formulas against loops, the best test of a toy, and runs whose members are known."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom, norm
from scipy.stats import t as student

from dpgt_node.adversary.attack import NotApplicable, Options
from dpgt_node.adversary.attacks import population as population_module
from dpgt_node.adversary.attacks import shadowed
from dpgt_node.adversary.attacks.membership import verdict
from dpgt_node.adversary.attacks.population import attack as population
from dpgt_node.adversary.audit.bounds import clopper_pearson
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.adversary.membership import grouped, likelihood, rates
from dpgt_node.adversary.membership.likelihood import Moments
from dpgt_node.adversary.membership.rates import Guarantee
from dpgt_node.adversary.membership.shadows import NOBODY, Shadows, Signals
from dpgt_node.adversary.membership.signals import Lens, logit, published
from dpgt_node.config import RunConfig
from dpgt_node.config.model import Privacy
from dpgt_node.errors import ConfigError
from dpgt_node.experiments import shadow_runs
from dpgt_node.learning.data.datasets import load_dataset
from dpgt_node.sim.simulate import build_oracles
from tests.adversary.record import play, run_of

RING = [[0, 0, 1], [1, 0, 0], [0, 1, 0]]


# ---------------------------------------------------------------- formulas
@pytest.mark.parametrize("runs", [6, 12, 120])
def test_likelihood_ratios_are_those_of_loops(runs: int) -> None:
    rng = np.random.default_rng(runs)
    signals, held = rng.normal(size=(runs, 9)) * np.arange(1, 10), rng.integers(-1, 3, (runs, 9))
    target = rng.normal(size=9)
    moments = Moments.of(signals, held == 0, held == NOBODY)
    online, offline = likelihood.lira_online(target, moments), likelihood.lira_offline(target, moments)
    pooled, free = [], []
    for z in range(9):
        sides = [signals[held[:, z] == who, z] for who in (0, NOBODY)]
        pooled.append(sum(((side - side.mean()) ** 2).sum() for side in sides if len(side)))
        free.append(sum(len(side) for side in sides) - 2)
    for z in range(9):
        here, there = (signals[held[:, z] == who, z] for who in (0, NOBODY))
        if min(len(here), len(there)) < likelihood.LEAST:
            assert np.isnan(online[z])
            continue
        if min(len(here), len(there)) >= likelihood.ENOUGH:
            spread = [here.std(ddof=1), there.std(ddof=1)]
        elif free[z] >= 6:
            spread = [math.sqrt(pooled[z] / free[z])] * 2
        else:
            told = [k for k in range(9) if free[k] > 0]
            spread = [math.sqrt(sum(pooled[k] for k in told) / sum(free[k] for k in told))] * 2
        ratio = norm.logpdf(target[z], here.mean(), spread[0]) - norm.logpdf(target[z], there.mean(), spread[1])
        assert online[z] == pytest.approx(ratio, rel=1e-9)
        if len(there) > 6:
            assert offline[z] == pytest.approx(norm.logcdf(target[z], there.mean(), there.std(ddof=1)), rel=1e-9)


@pytest.mark.parametrize("gamma", [1.0, 2.0])
def test_rmia_counts_the_public_samples_that_are_dominated(gamma: float) -> None:
    rng = np.random.default_rng(3)
    p, references = rng.uniform(0.1, 1, 7), rng.uniform(0.1, 1, (12, 7))
    public, beside = rng.uniform(0.1, 1, 30), rng.uniform(0.1, 1, (12, 30)).mean(axis=0)
    held = rng.integers(-1, 1, (12, 7))
    moments, a = Moments.of(references, held == 0, held == NOBODY), 0.3
    online = likelihood.rmia(p, likelihood.reference_online(moments), public, beside, gamma)
    offline = likelihood.rmia(p, likelihood.reference_offline(moments, a), public, beside, gamma)
    for z in range(7):
        here, there = (references[held[:, z] == who, z].mean() for who in (0, NOBODY))
        for got, reference in ((online, (here + there) / 2), (offline, ((1 + a) * there + 1 - a) / 2)):
            won = sum((p[z] / reference) / (public[u] / beside[u]) >= gamma for u in range(30))
            assert got[z] == pytest.approx(won / 30)
    (tie,) = likelihood.rmia(np.array([1.0]), np.array([0.5]), np.ones(4), np.ones(4), 2.0)
    assert tie == 1.0, "at least gamma times as likely"


# ---------------------------------------------------------------- a toy whose best test is known
def toy(mu: float, leak: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """LiRA's scores of members and others in runs where a member's signal is moved by ``mu`` standard deviations, and
    every sample has an offset of its own.  ``leak``: the run under attack is one of its own shadow runs.
    """
    rng = np.random.default_rng(1)
    samples, runs = 4000, 160
    offset = rng.normal(size=samples) * 50.0
    held = np.where(rng.random((runs + 1, samples)) < 0.5, 0, NOBODY)
    signals = offset + mu * (held == 0) + rng.normal(size=(runs + 1, samples))
    shadows = slice(0, runs)
    if leak:
        few = np.r_[0:8, runs]
        signals, held = signals[few], held[few]
        shadows, runs = slice(0, 9), 8
    moments = Moments.of(signals[shadows], held[shadows] == 0, held[shadows] == NOBODY)
    scores = likelihood.lira_online(signals[runs], moments)
    known = ~np.isnan(scores)
    return scores[known & (held[runs] == 0)], scores[known & (held[runs] == NOBODY)]


def is_the_best(members: np.ndarray, others: np.ndarray, mu: float) -> bool:
    """Whether the attack reaches the closed form of the best test, and no more than it."""
    near = abs(rates.area(members, others) - norm.cdf(mu / math.sqrt(2))) < 0.02
    return bool(near and abs(rates.hits(members, others, 0.01) - norm.cdf(norm.ppf(0.01) + mu)) < 0.05)


@pytest.mark.parametrize("mu", [0.0, 1.0, 2.5])
def test_it_is_the_best_test_of_a_toy(mu: float) -> None:
    assert is_the_best(*toy(mu), mu)


@pytest.mark.parametrize("mutant", ["shuffled", "swapped", "leak", "no shadows"])
def test_a_broken_attack_is_not_the_best(mutant: str) -> None:
    members, others = toy(1.0, leak=mutant == "leak")
    if mutant == "shuffled":
        both = np.random.default_rng(0).permutation(np.concatenate([members, others]))
        members, others = both[: len(members)], both[len(members) :]
    elif mutant == "swapped":
        members, others = others, members
    elif mutant == "no shadows":  # signals by themselves: the offsets hide everything
        rng = np.random.default_rng(2)
        members, others = rng.normal(size=2000) * 50.0 + 1.0, rng.normal(size=2000) * 50.0
    assert not is_the_best(members, others, 1.0)


# ---------------------------------------------------------------- what a guarantee allows
def test_the_ceiling_is_the_best_test_of_two_gaussians() -> None:
    alpha = np.array([0.001, 0.01, 0.3])
    np.testing.assert_allclose(Guarantee("gdp", 5.0, 1e-5, 1.3).ceiling(alpha), norm.cdf(norm.ppf(alpha) + 1.3))
    both = rates.ceiling([Guarantee("gdp", 5.0, 1e-5, 1.3), Guarantee("tight", 0.1)], alpha)
    turned = rates.ceiling([Guarantee("tight", 0.1), Guarantee("gdp", 5.0, 1e-5, 1.3)], alpha)
    np.testing.assert_array_equal(turned, both)
    np.testing.assert_allclose(both, np.minimum(math.exp(0.1) * alpha, 1 - math.exp(-0.1) * (1 - alpha)))
    assert rates.bounds([Guarantee("gdp", 5.0, 1e-5, 1.3)])["bound_auc"] == pytest.approx(
        norm.cdf(1.3 / math.sqrt(2)), abs=1e-3
    )
    assert rates.bounds([]) == {} and Guarantee("tight", math.inf).ceiling(alpha).tolist() == [1.0] * 3


def test_randomised_response_attains_the_ceiling_of_a_pure_epsilon() -> None:
    """Telling the truth with probability e^eps/(1 + e^eps) is the worst (eps, 0) mechanism at its own false alarms."""
    epsilon = 1.2
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    (top,) = Guarantee("tight", epsilon).ceiling(np.array([1 - truth]))
    assert top == pytest.approx(truth)


def test_the_inverse_of_a_ceiling_is_its_inverse() -> None:
    for one in (Guarantee("gdp", 5.0, 1e-5, 1.3), Guarantee("tight", 0.7), Guarantee("zcdp", 1.0, 0.1)):
        for hits in (0.11, 0.5, 0.9):
            assert float(one.ceiling(np.array([one.false_alarms(hits)]))[0]) == pytest.approx(hits), one
        assert one.false_alarms(0.0) == 0.0 and one.false_alarms(1.0) == pytest.approx(1.0 - one.delta, abs=1e-4)
    assert Guarantee("tight", math.inf).false_alarms(1.0) == Guarantee("gdp", 9.0, 0.0, math.inf).false_alarms(1.0) == 0


GDP, PURE = Guarantee("gdp", 5.0, 1e-5, 1.0), Guarantee("tight", 1.5)


@pytest.mark.parametrize(
    ("mu", "guarantee", "found"),
    [(1.0, GDP, False), (1.0, PURE, False), (2.0, PURE, True), (6.0, GDP, True), (2.0, GDP, False)],
)
def test_a_guarantee_is_refuted_by_what_breaks_it_alone(mu: float, guarantee: Guarantee, found: bool) -> None:
    """A sample exchanged for another moves two independent scores, each by mu/sqrt 2: together they are mu apart.

    In the last case the truth is above the claim.  But mu = 1 allows one run in a million to tell nearly everybody.
    """
    rng = np.random.default_rng(4)
    members, others = rng.normal(size=4000) + mu / math.sqrt(2), rng.normal(size=4000)
    assert (grouped.broken(members, others, [guarantee]) is not None) == found
    assert grouped.broken(members, others, ()) is None


def test_few_samples_refute_as_much_as_few_samples_can() -> None:
    """Five members, each above a thousand others."""
    members, others = np.arange(5.0) + 2.0, np.linspace(0.0, 1.0, 10_000)
    said = grouped.broken(members, others, [Guarantee("tight", 2.0)])
    assert said is not None and said.startswith("5 of 5 members are named rightly among 1000 samples each, in 5 groups")
    assert grouped.broken(members, others, [Guarantee("tight", 5.0)]) is None
    assert grouped.broken(members, others[:40], [Guarantee("tight", 1.0)]) is None
    assert rates.auc(members, others) == (1.0, pytest.approx(0.025 ** (1 / 5)), 1.0), "the fewer side counts"
    assert rates.auc(others[:9], members) == (0.0, 0.0, pytest.approx(1.0 - 0.025 ** (1 / 5)))


@pytest.mark.parametrize(("k", "m", "epsilon"), [(1, 40, 0.5), (1, 200, 2.0), (9, 60, 1.0), (99, 30, 3.0)])
def test_names_of_randomised_response_are_as_likely_as_they_are(k: int, m: int, epsilon: float) -> None:
    """It names the member with e^epsilon times the chance of each other, group by group: N is binomial, its tails are
    possible, and not much more is.
    """
    truth, guarantee = math.exp(epsilon) / (math.exp(epsilon) + k), [Guarantee("tight", epsilon)]
    for right in {round(m * truth), min(m, round(m * truth + 3 * math.sqrt(m * truth))), m}:
        tail = float(binom.sf(right - 1, m, truth))
        assert grouped.possible(right, m, m, k, guarantee, tail)
        far = right > m * truth + 2 * math.sqrt(m * truth)
        assert not far or not grouped.possible(right, m, m, k, guarantee, min(1.0, 40 * tail)), (right, tail)


def test_members_of_a_run_that_leaks_all_or_nothing_are_one_piece_of_evidence() -> None:
    """With probability delta all is told: (0, delta) holds, and one run in 1/delta names everybody."""
    guarantee = [Guarantee("zcdp", 0.0, 0.01)]
    assert grouped.possible(200, 200, 200, 1, guarantee, 0.01)
    assert not grouped.possible(200, 200, 200, 1, guarantee, 0.03)
    assert not grouped.possible(200, 200, 200, 1, [Guarantee("tight", 0.0)], 1e-6)
    assert not grouped.possible(200, 200, 200, 1, [Guarantee("zcdp", 9.0, 0.1), guarantee[0]], 0.03), "both hold"
    both = np.arange(200.0)
    assert grouped.broken(both + 200.0, both, guarantee) is None
    assert grouped.broken(both + 200.0, both, [Guarantee("gdp", 1.0, 1e-5, 0.5)]) is not None


def test_every_sample_is_in_one_group_alone_and_all_looks_miss_once_in_a_million(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten members below all others spoil ten groups, ten others above all members ten as well: no more, no fewer."""
    members, others = np.arange(100.0) + 200.0, np.arange(100.0)
    for spoilt in ((np.where(members < 210, -1.0, members), others), (members, np.where(others < 10, 999.0, others))):
        assert grouped.named_right(*spoilt, 1, 100, 100, np.random.default_rng(1)) == 90
    misses: list[float] = []

    def never_broken(*given: object) -> bool:
        misses.append(given[-1])  # type: ignore[arg-type]
        return True

    monkeypatch.setattr(grouped, "possible", never_broken)
    assert grouped.broken(members, np.arange(9_000.0), [PURE]) is None
    assert len(misses) > 8 and sum(misses) == pytest.approx(1e-6)


def test_ties_name_nobody_s_member() -> None:
    """Equal scores are guesses: of 4,000 pairs half are right, of tens a tenth (binomial, 1e-9)."""
    same = np.zeros(40_000)
    for k, low, high in ((1, 1810, 2190), (9, 290, 520)):
        right = grouped.named_right(same[:4000], same, k, 4000, 4000, np.random.default_rng(2))
        assert low < right < high
    members, others = np.arange(100.0), np.arange(100.0) + 0.5
    best = grouped.named_right(members + 50.0, others, 1, 100, 10, np.random.default_rng(3))
    assert best == 10, "named where the gap is widest"


def test_a_delta_allows_what_it_allows() -> None:
    (top,) = Guarantee("zcdp", 1.0, 0.1).ceiling(np.array([0.05]))
    assert top == pytest.approx(math.e * 0.05 + 0.1)
    (high,) = Guarantee("zcdp", 1.0, 0.1).ceiling(np.array([0.6]))
    assert high == pytest.approx(1.0 - (1.0 - 0.1 - 0.6) / math.e)


def test_an_interval_of_the_auc_is_delong_s_on_the_logit() -> None:
    members, others = np.array([0.1, 0.9, 1.5, 2.0]), np.array([0.0, 0.5, 1.0])
    wins = [[float(a > b) for b in others] for a in members]
    value = sum(map(sum, wins)) / 12
    spread = np.var([np.mean(row) for row in wins], ddof=1) / 4 + np.var(np.mean(wins, axis=0), ddof=1) / 3
    half = norm.ppf(0.975) * math.sqrt(spread) / (value * (1 - value))
    expected = [value, *(1 / (1 + math.exp(-(math.log(value / (1 - value)) + side * half))) for side in (-1, 1))]
    assert rates.auc(members, others) == pytest.approx(expected)
    np.testing.assert_allclose(logit(np.log([0.25, 0.9])), [math.log(1 / 3), math.log(9)])


def test_a_widened_interval_covers_the_rate_over_runs_and_one_of_members_does_not() -> None:
    """50 members of a run, which are found with a chance that the run's noise decides for all of them: Beta(2, 6)."""
    chance, m, covered, within = np.random.default_rng(3), 50, 0, 0
    for _ in range(400):
        counts = chance.binomial(m, chance.beta(2.0, 6.0, size=17))
        low, high = clopper_pearson(int(counts[0]), m, 0.025)
        found = {"auc": 0.7, "tpr": counts[0] / m, "tpr_low": low, "tpr_high": high, "members": 50.0}
        wide = rates.widened(found, [{"tpr": count / m} for count in counts[1:]])
        assert wide["tpr_low"] <= low and wide["tpr_high"] >= high and 0.0 <= wide["tpr_low"] <= wide["tpr_high"] <= 1.0
        assert {key: wide[key] for key in ("auc", "tpr", "members")} == {k: found[k] for k in ("auc", "tpr", "members")}
        covered += wide["tpr_low"] <= 0.25 <= wide["tpr_high"]
        within += low <= 0.25 <= high
    assert covered > 0.93 * 400 > 0.75 * 400 > within
    one = {"tpr": 0.4, "tpr_low": 0.3, "tpr_high": 0.5}
    assert rates.widened(one, [{"tpr": 0.4}]) == one, "one other run shows no deviation"
    assert rates.widened(one, [{"tpr": 0.4}] * 3) == one, "runs that are alike make nothing narrower"
    half = student.ppf(0.975, 2) * 0.1
    assert rates.widened(one, [{"tpr": x} for x in (0.1, 0.2, 0.3)])["tpr_high"] == pytest.approx(0.4 + half)


def test_a_run_is_one_draw_however_many_agents_are_scored_in_it() -> None:
    """Three runs in place of the one under attack; in the last neither agent holds anything that is scored."""
    rng = np.random.default_rng(9)
    of = [[(rng.normal(1.0 + 0.2 * s, 1.0, m), rng.normal(size=m)) for s, m in enumerate((30, 20, 20))] for _ in "ab"]
    nobody = (np.array([]), rng.normal(size=20))
    scored = []
    for i, ((members, others), *runs) in enumerate(of):
        expected = tuple(({"": one}, {"": rest}) for one, rest in (*runs, nobody))
        scored.append(shadowed._Scored({"": members}, {"": others}, expected, (i,)))
    together = shadowed._together(scored)
    assert together.agents == (0, 1) and len(together.expected) == 3
    both = [[np.concatenate(side) for side in zip(*runs, strict=True)] for runs in zip(*of, strict=True)]
    found, likely = together.rates("")
    assert found == rates.widened(rates.measured(*both[0]), [rates.expected(*run) for run in both[1:]])
    (a, b), (c, e) = both[1:]
    assert likely == rates.expected(np.concatenate([a, c]), np.concatenate([b, e, nobody[1], nobody[1]]))


@pytest.mark.parametrize(
    ("low", "hits", "said"),
    [
        (0.95, 0.0, "succeeds"),
        (0.6, 0.55, "succeeds"),
        (0.6, 0.0, "partly"),
        (0.4, 0.3, "partly"),
        (0.4, 0.02, "fails"),
    ],
)
def test_a_verdict_looks_at_the_auc_and_at_few_false_alarms(low: float, hits: float, said: str) -> None:
    assert verdict({"auc_low": low, "tpr_at_1_percent_low": hits, "others": 100.0}) == said


def test_thresholds_of_public_samples_are_their_upper_quantiles() -> None:
    scores = (np.arange(100.0), np.array([150.0, 50.0]), np.array([60.0, 98.0, 160.0, 2.0]))
    finding = population_module._finding("agent-1", scores, {})
    found = finding.measured
    assert finding.note == rates.WITHIN, "no other run is known"
    assert (found["tpr_at_own_threshold_1_percent"], found["fpr_at_own_threshold_1_percent"]) == (0.5, 0.25)


def test_a_curve_of_false_alarms_counts() -> None:
    rng = np.random.default_rng(5)
    members, others = rng.normal(size=30) + 1, np.round(rng.normal(size=20), 1)
    x, y = rates.roc(members, others)
    for i, threshold in enumerate(sorted(others, reverse=True)):
        assert x[i + 1] == (i + 1) / 20 and y[i + 1] == np.mean(members > threshold)
    assert rates.area(members, others) == pytest.approx(rates.auc(members, others)[0])
    found = rates.measured(members, others)
    assert found["tpr_at_1_percent_low"] <= found["tpr_at_1_percent"] <= found["tpr_at_1_percent_high"]


# ---------------------------------------------------------------- shadow runs
@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty samples an agent, and 120 test samples."""
    data = load_dataset("digits")
    path = tmp_path_factory.mktemp("data") / "few.npz"
    x, y = data.x_train, data.y_train
    np.savez(path, x_train=x[:60], y_train=y[:60], x_test=x[200:320], y_test=y[200:320])
    return path


def small(few: Path, b: float = 0.0, **settings: object) -> RunConfig:
    noise = {"zeta": b, "eta": b} if b else {"multiplier": 0.0}
    data = f'dataset = "npz:{few}"\npartition = "iid"'
    return run_of(R=RING, C=RING, **{"K": 10, "m": 10, "data": data, **noise, **settings})


def test_what_is_kept_of_a_shadow_run_is_what_its_agents_send(few: Path) -> None:
    run = small(few, 0.1)
    tapped = shadow_runs._Tapped(run, list(build_oracles(run, None)), "5eed")
    while tapped.k <= run.K:
        tapped.step()
    sent = play(run).payloads
    assert len(sent) == 2 * run.n * (run.K + 1)
    for i, payload in sent:
        np.testing.assert_allclose(tapped.sent_in[payload.stream, payload.k][i], payload.array(), atol=1e-9)


def test_every_shadow_run_draws_noise_of_its_own(few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is added to x_0, which is public, is another in every shadow run, and the same where a run is made again."""
    game = shadow_runs.Game.of(play(small(few, 0.1)).observe(tmp_path / "t"), 1, None)
    seen: list[Observation] = []
    monkeypatch.setattr(Lens, "look", lambda self, observation: seen.append(observation))
    for s in (0, 1, 0):
        game.shadow(s, game.lens())
    first, other, again = (np.stack([one.vectors[i, "X", 0] for i in range(3)]) for one in seen)
    np.testing.assert_array_equal(first, again)
    start = build_oracles(game.run, None)[0].initial()
    assert abs(np.corrcoef((first - start).ravel(), (other - start).ravel())[0, 1]) < 0.15  # 6 deviations of 1,950


@pytest.fixture(scope="module")
def open_case(few: Path, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A run without noise beside its shadow runs."""
    folder = tmp_path_factory.mktemp("open")
    p = play(small(few))
    observation = p.observe(folder / "t")
    shadows = shadow_runs.conduct(observation, 16, seed=1, folder=folder / "kept")
    return SimpleNamespace(play=p, observation=observation, shadows=shadows, kept=folder / "kept")


def test_shadow_runs_deal_the_pool_anew(open_case: SimpleNamespace) -> None:
    shadows: Shadows = open_case.shadows
    oracles = build_oracles(open_case.play.run, None)
    for i, oracle in enumerate(oracles):
        mine = shadows.pool.phi[shadows.own == i]
        np.testing.assert_array_equal(mine, oracle.inputs(np.arange(oracle.samples)))
    assert np.bincount(shadows.own + 1).tolist() == [80, 20, 20, 20]  # 40 of 120 test samples are public
    assert not set(map(bytes, shadows.pool.phi)) & set(map(bytes, shadows.pool.public_phi))
    for held in shadows.held:
        assert np.bincount(held + 1).tolist() == [80, 20, 20, 20]
    assert len({bytes(held) for held in shadows.held}) == 16
    agree = (shadows.held == shadows.own).mean()
    assert agree == pytest.approx((80 / 140) ** 2 + 3 * (20 / 140) ** 2, abs=0.06)  # no deal knows the run's


def test_kept_shadow_runs_are_not_made_again(
    open_case: SimpleNamespace, few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(shadow_runs.Game, "shadow", refuse)
    again = shadow_runs.conduct(open_case.observation, 16, seed=1, folder=open_case.kept)
    for name in Signals.__slots__:
        np.testing.assert_array_equal(getattr(again.signals, name), getattr(open_case.shadows.signals, name))
    with pytest.raises(ConfigError, match="another run, seed or vantage point"):
        shadow_runs.conduct(open_case.observation, 16, seed=2, folder=open_case.kept)
    by_label = small(few, data=f'dataset = "npz:{few}"\npartition = "by-label"\nclass_assignment_mode = "random"')
    with pytest.raises(NotApplicable, match="deals by label"):
        shadow_runs.conduct(play(by_label).observe(tmp_path / "t"), 4)


def test_members_are_found_and_nobody_else(open_case: SimpleNamespace) -> None:
    """Of all agents together: without noise well above guessing, and as the shadow runs expect."""
    options = Options(shadows=open_case.shadows)
    found = shadowed.lira.run(open_case.observation, None, options)
    together = found.findings[-1]
    assert together.agent == "" and together.measured["auc_low"] > 0.6
    assert together.measured["auc"] == pytest.approx(together.predicted["auc"], abs=0.12)
    assert together.measured["offline_auc"] == pytest.approx(together.predicted["offline_auc"], abs=0.12)
    assert "knows 140 samples" in found.vantage and "16 shadow runs" in found.vantage
    for agent in (shadowed.lira_model, shadowed.rmia):
        result = agent.run(open_case.observation, None, options)
        assert "only each agent's published model, the mean x̆ of rounds 5 to 10" in result.vantage
        assert result.findings[-1].measured["auc"] == pytest.approx(result.findings[-1].predicted["auc"], abs=0.12)
    # The control: the agents' samples are dealt to the wrong ones.
    turned = np.where(open_case.shadows.own >= 0, (open_case.shadows.own + 1) % 3, NOBODY)
    wrong = shadowed.lira.run(open_case.observation, None, Options(shadows=replace(open_case.shadows, own=turned)))
    assert wrong.findings[-1].measured["auc"] < together.measured["auc_low"]
    plain = population.run(open_case.observation, None, options)
    assert [f.measured["members"] for f in plain.findings] == [20.0] * 3
    with pytest.raises(NotApplicable, match="needs shadow runs"):
        shadowed.lira.run(open_case.observation, None, Options())


def test_shadow_runs_are_seen_through_the_holes_of_the_run(open_case: SimpleNamespace) -> None:
    seen = open_case.observation
    name = (1, "X", 3)
    holed = replace(seen, vectors={**seen.vectors, name: np.where(np.arange(650) < 9, np.nan, seen.vectors[name])})
    game = shadow_runs.Game.of(holed, 1, None)
    assert game.key() != shadow_runs.Game.of(seen, 1, None).key()
    sent = {(stream, k): np.ones((3, 650)) for _, stream, k in seen.vectors}
    shadow = game._seen(sent)
    assert shadow.vectors.keys() == seen.vectors.keys()
    for key, vector in shadow.vectors.items():
        assert int(np.isnan(vector).sum()) == (9 if key == name else 0)


def test_the_published_model_is_the_mean_of_the_second_half(open_case: SimpleNamespace) -> None:
    for i in range(3):
        rows = [open_case.observation.vectors[i, "X", k] for k in range(5, 11)]
        np.testing.assert_allclose(published(open_case.observation, i), np.mean(rows, axis=0), rtol=1e-12)


def test_who_another_agent_holds_is_neither_member_nor_other() -> None:
    held = np.array([0, 1, NOBODY, 0, NOBODY, 2])
    inside, outside = shadowed._told({"": np.arange(6.0)}, held, 0)
    assert inside[""].tolist() == [0.0, 3.0] and outside[""].tolist() == [2.0, 4.0]
    rng = np.random.default_rng(8)
    signals, shadows, deals = rng.normal(size=5), rng.normal(size=(40, 5)), rng.integers(-1, 2, (40, 5))
    moments = Moments.of(shadows, deals == 1, deals == NOBODY)
    found = shadowed._two_sided(signals, shadows, deals, 1)
    np.testing.assert_array_equal(found[""], likelihood.lira_online(signals, moments))
    np.testing.assert_array_equal(found["offline_"], likelihood.lira_offline(signals, moments))


def test_what_stands_as_guaranteed_is_proven_and_has_its_delta(few: Path, tmp_path: Path) -> None:
    for mechanism, law, clip, expected in (
        ("paper", "laplace", "clip_l1", {"corrected": True}),
        ("published-point", "laplace", "clip_l1", {"tight": True, "zcdp": False, "amplified": True}),
        ("published-point", "gaussian", "clip_l2", {"zcdp": False, "gdp": False}),
    ):
        run = replace(small(few, 5.0, mechanism=mechanism, law=law), privacy=Privacy(**{clip: 1.0}))
        game = shadow_runs.Game.of(play(run).observe(tmp_path / f"{mechanism}-{law}"), 0, None)
        claims = {one.accountant: one for one in game.guarantees()["agent-1"]}
        assert {name: one.delta == 0.0 for name, one in claims.items()} == expected
        assert {one.delta for one in claims.values()} <= {0.0, run.privacy.delta}


def test_under_noise_nothing_is_found_and_the_guarantee_stands_beside_it(few: Path, tmp_path: Path) -> None:
    run = small(few, 20.0, mechanism="published-point", law="gaussian")
    run = replace(run, privacy=Privacy(clip_l2=1.0))
    observation = play(run).observe(tmp_path / "t")
    shadows = shadow_runs.conduct(observation, 24)
    one = shadowed.lira.run(observation, None, Options(shadows=shadows)).findings[-1]
    (gdp,) = [g for g in shadows.guarantees["agent-1"] if g.mu is not None]
    assert gdp.mu is not None and 0.0 < gdp.mu < 0.1
    assert one.verdict == "fails" and one.predicted["bound_auc"] == pytest.approx(norm.cdf(gdp.mu / 2**0.5), abs=1e-3)
    assert one.predicted["bound_tpr_at_1_percent"] == pytest.approx(norm.cdf(norm.ppf(0.01) + gdp.mu))
    assert one.predicted["auc"] == pytest.approx(0.5, abs=0.08)


def test_an_attack_above_the_guarantee_refutes_it() -> None:
    rng = np.random.default_rng(6)
    inside, outside = {"": rng.normal(size=2000) + 1.5}, {"": rng.normal(size=2000)}
    scored = shadowed._Scored(inside, outside, ((inside, outside),), (0,))
    for epsilon, refuted in ((0.5, True), (12.0, False)):
        claims = SimpleNamespace(guarantees={"agent-1": (Guarantee("tight", epsilon),)})
        finding = shadowed._finding("agent-1", scored, claims, {})  # type: ignore[arg-type]
        assert finding.note.startswith("REFUTES") == refuted
        assert finding.verdict == ("succeeds" if refuted else "partly")
    # Of several agents the weakest guarantee bounds, and nothing is refuted: their scores are on scales of their own.
    claims = SimpleNamespace(guarantees={"agent-1": (Guarantee("tight", 0.5),), "agent-2": (Guarantee("tight", 0.1),)})
    finding = shadowed._finding("", replace(scored, agents=(0, 1)), claims, {})  # type: ignore[arg-type]
    assert finding.note == "all agents together" and finding.verdict == "partly"
    assert finding.predicted["bound_tpr_at_1_percent"] == pytest.approx(0.01 * math.exp(0.5))


def test_population_without_shadow_runs_needs_the_study_files(open_case: SimpleNamespace, tmp_path: Path) -> None:
    alone = population.run(open_case.observation, None, Options())
    assert {f.verdict for f in alone.findings} == {"not measured"}
    told = population.run(open_case.observation, open_case.play.study(tmp_path / "out"), Options())
    for finding, i in zip(told.findings, range(3), strict=True):
        assert finding.measured["members"] == 20.0 and finding.measured["others"] == 60.0, i
