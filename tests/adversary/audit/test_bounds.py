"""Lower bounds hold with their confidence, come close, and would not if one of three things were wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpgt_node.adversary.audit import bounds
from dpgt_node.adversary.audit.bounds import Bound, clopper_pearson, guess_bound, threshold_bound


def test_clopper_pearson_is_the_quantile_of_the_beta_law() -> None:
    for successes, trials in ((0, 10), (1, 10), (7, 10), (10, 10), (123, 5000), (4999, 5000)):
        low, high = clopper_pearson(successes, trials, 0.025)
        assert low == pytest.approx(stats.beta.ppf(0.025, successes, trials - successes + 1) if successes else 0.0)
        expected = stats.beta.ppf(0.975, successes + 1, trials - successes) if successes < trials else 1.0
        assert high == pytest.approx(expected)


def miss_rates(interval, trials: int, miss: float) -> tuple[float, float]:
    """The largest probability, over p, that the low end lies above p, and that the high end lies below it: exactly."""
    worst_low = worst_high = 0.0
    ends = [interval(s, trials, miss) for s in range(trials + 1)]
    for p in np.linspace(0.01, 0.99, 99):
        pmf = stats.binom.pmf(np.arange(trials + 1), trials, p)
        worst_low = max(worst_low, sum(w for w, (low, _) in zip(pmf, ends, strict=True) if low > p))
        worst_high = max(worst_high, sum(w for w, (_, high) in zip(pmf, ends, strict=True) if high < p))
    return worst_low, worst_high


def test_each_side_misses_no_more_often_than_it_says_and_the_sides_swapped_do() -> None:
    low, high = miss_rates(clopper_pearson, 30, 0.025)
    assert 0.01 < low <= 0.025
    assert 0.01 < high <= 0.025
    swapped = miss_rates(lambda s, n, miss: clopper_pearson(s, n, miss)[::-1], 30, 0.025)
    assert min(swapped) > 0.5
    two_sided_read_as_one = miss_rates(lambda s, n, miss: clopper_pearson(s, n, 2 * miss), 30, 0.025)
    assert max(two_sided_read_as_one) > 0.025


def laplace_worlds(epsilon: float, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """T of one Laplace release whose shift is ``epsilon`` scales: exactly what K = 0 gives."""
    rng = np.random.default_rng(seed)
    noise = rng.laplace(size=(2, n)) + np.array([[0.0], [epsilon]])
    T = np.abs(noise) - np.abs(noise - epsilon)
    return T[0], T[1]


@pytest.mark.parametrize(("epsilon", "expected"), [(1.0, 0.90), (2.0, 1.86), (4.0, 3.66)])
def test_the_expected_bounds_of_one_release(epsilon: float, expected: float) -> None:
    found = [threshold_bound(*laplace_worlds(epsilon, 10_000, seed)).value for seed in range(5)]
    assert np.mean(found) == pytest.approx(expected, rel=0.05)
    assert max(found) <= epsilon


@pytest.mark.parametrize(("measure", "truth", "least"), [("mu", 1.0, 0.85), ("rho", 0.5, 0.22)])
def test_gaussian_measures_come_close_from_below(measure: bounds.Measure, truth: float, least: float) -> None:
    found, guessed = [], []
    for seed in range(4):
        absent, present = np.random.default_rng(seed).normal(size=(2, 10_000)) + np.array([[-0.5], [0.5]])
        found.append(threshold_bound(absent, present, measure=measure).value)
        guessed.append(guess_bound(absent, present, measure="mu").value)
    assert least < np.mean(found)
    assert max(found) <= truth
    assert np.mean(guessed) > 0.9
    assert max(guessed) <= 1.0


def test_delta_is_taken_off_the_hits() -> None:
    absent, present = laplace_worlds(1.0, 4000, 5)
    plain, less = threshold_bound(absent, present), threshold_bound(absent, present, delta=0.1)
    again = (less.rate_low - 0.1) / less.rate_high
    assert less.value == pytest.approx(math.log(again))
    assert less.value < plain.value


def test_the_direction_is_found() -> None:
    """A secret that shows only where D' is rare: T <= t says D, T >= t says little."""
    rng = np.random.default_rng(6)
    absent = np.where(rng.random(4000) < 0.3, -5.0, rng.normal(size=4000))
    present = rng.normal(size=4000)
    found = threshold_bound(absent, present)
    assert found.direction == "D"
    assert found.value > 2.0
    turned = threshold_bound(-present, -absent)
    assert turned.direction == "D'"
    assert turned.value == found.value


CONFIDENCE = 0.6
"""Low, so that what goes wrong goes wrong often."""


def overclaims(bound, repeats: int = 60, n: int = 80) -> float:
    """How often a bound above 0 is claimed of two worlds that are the same."""
    wrong = 0
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        wrong += bound(rng.normal(size=n), rng.normal(size=n), confidence=CONFIDENCE).value > 0.0
    return wrong / repeats


def test_a_threshold_picked_on_the_test_half_overclaims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_QUANTILES", 40)
    monkeypatch.setattr(bounds, "CAUTION", 1.0)

    def same_half(by):
        def mutant(absent: np.ndarray, present: np.ndarray, confidence: float) -> Bound:
            return by(np.tile(absent, 2), np.tile(present, 2), confidence=confidence)

        return mutant

    for by in (threshold_bound, guess_bound):
        assert overclaims(by) <= 1.0 - CONFIDENCE
        assert overclaims(same_half(by)) > 1.2 * (1.0 - CONFIDENCE)


def test_a_bound_with_the_sides_swapped_refutes_what_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = laplace_worlds(1.0, 2000, 8)
    assert threshold_bound(*worlds).value <= 1.0
    honest = bounds.clopper_pearson
    monkeypatch.setattr(bounds, "clopper_pearson", lambda s, n, miss: honest(s, n, miss)[::-1])
    assert threshold_bound(*worlds).value > 1.0


def test_a_wrong_sign_of_T_shows_nothing() -> None:
    absent, present = laplace_worlds(2.0, 4000, 9)
    assert guess_bound(absent, present).value > 1.5
    assert guess_bound(-absent, -present).value == 0.0
    assert threshold_bound(absent, present).value > 1.5
    assert threshold_bound(-absent, -present).value == 0.0


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="two runs"):
        threshold_bound(np.zeros(1), np.zeros(5))
