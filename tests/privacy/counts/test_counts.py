"""Codes with fair coins and what they cost, against outcomes one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom, chi2

from dpgt_node.privacy.counts import code as coding
from dpgt_node.privacy.counts import cpsgd
from dpgt_node.privacy.counts.code import BinomialCode
from dpgt_node.privacy.laws.keystream import CtrStream
from dpgt_node.types import F64
from tests.oracles import binomial as dumb

CODES = (BinomialCode(1.0, 129, 2000), BinomialCode(8.0, 129, 64), BinomialCode(0.3, 2, 1), BinomialCode(2.0, 9, 0))


class Words:
    """Bytes that are known: of words, in order."""

    def __init__(self, *words: int) -> None:
        self.left = b"".join(word.to_bytes(8, "little") for word in words)

    def take(self, nbytes: int) -> bytes:
        taken, self.left = self.left[:nbytes], self.left[nbytes:]
        assert len(taken) == nbytes, "more bytes were taken than the code needs"
        return taken


def stream(seed: int) -> CtrStream:
    return CtrStream(bytes(16), seed.to_bytes(16, "big"))


# --- the code -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_its_definition_on_the_very_words(code: BinomialCode) -> None:
    """A word a coordinate for the rounding, then one a coordinate for the coins; nothing is left over."""
    rng = np.random.default_rng(code.trials)
    g = np.concatenate([rng.normal(scale=2.0 * code.bound, size=30), [code.bound, -code.bound, 0.0]])
    rounding, coins = rng.integers(0, 2**64, (2, 33), dtype=np.uint64).tolist()
    expected = []
    for value, word, own in zip(g, rounding, coins, strict=True):
        heads = dumb.quantile(code.trials, own) if code.trials else 0
        expected.append(dumb.code(float(value), code.bound, code.levels, (word >> 11) * 2.0**-53, heads))
    source = Words(*rounding, *(coins if code.trials else ()))
    found = code.drawn(g, source)
    assert source.left == b"" and found.tolist() == expected
    assert found.min() >= code.codes.low and found.max() <= code.codes.high
    values = [dumb.decoded(one, code.bound, code.levels, code.trials) for one in expected]
    np.testing.assert_allclose(
        code.codes.values(found), values, rtol=1e-12, atol=1e-12 * code.bound * (1 + code.trials)
    )


@pytest.mark.parametrize("N", [1, 2, 37, 300, 2000])
def test_thresholds_are_those_of_the_exact_law(N: int) -> None:
    first, upper, lower = coding._thresholds(N)
    total = 0
    for k in range(N):
        total += math.comb(N, k)
        if first <= k < first + len(upper):
            found = (int(upper[k - first]) << 64) + int(lower[k - first])
            assert abs((found << N) - (total << 128)) < 1 << N + 8
        else:
            assert min(total, (1 << N) - total) << 120 < 1 << N


def test_a_word_that_meets_a_threshold_is_decided_by_the_next_one() -> None:
    first, upper, lower = coding._thresholds(150)
    at = 70
    meets, beyond = int(upper[at]), int(lower[at])
    assert 0 < beyond < 2**64 - 1
    below, other = first + at, coding.heads(150, 1, Words(5))[0]
    assert coding.heads(150, 2, Words(meets, 5, beyond - 1)).tolist() == [below, other]
    assert coding.heads(150, 2, Words(meets, 5, beyond)).tolist() == [below + 1, other]
    assert coding.heads(150, 1, Words(meets + 1)).tolist() == [below + 1]
    assert coding.heads(150, 1, Words(meets - 1)).tolist() == [below]


def test_two_thousand_million_coins_have_their_mean_and_deviation() -> None:
    N = 2**31 - 200
    found = coding.heads(N, 20_000, stream(5))
    assert abs(found.mean() - N / 2) < 4 * math.sqrt(N / 4 / 20_000)
    assert found.var() == pytest.approx(N / 4, rel=0.05)


def p_value(counts: F64, N: int) -> float:
    """Of ``counts`` under Bin(N, 1/2), classes with less than ten expected put together."""
    expected = binom.pmf(np.arange(N + 1), N, 0.5) * len(counts)
    seen = np.bincount(counts.astype(np.int64), minlength=N + 1).astype(float)
    edge = np.flatnonzero(expected >= 10)
    low, high = edge[0], edge[-1] + 1

    def join(v):
        return np.concatenate([[v[:low].sum()], v[low:high], [v[high:].sum()]])

    statistic = float(((join(seen) - join(expected)) ** 2 / np.maximum(join(expected), 1e-9)).sum())
    return float(chi2.sf(statistic, len(join(expected)) - 1))


@pytest.mark.parametrize("N", [1, 63, 64, 65, 200])
def test_the_coins_are_fair_and_as_many_as_were_asked_for(N: int) -> None:
    counts = BinomialCode(1.0, 3, N).drawn(np.zeros(40_000), stream(N)) - 1.0
    assert p_value(counts, N) > 1e-4
    if N > 1:
        assert p_value(np.minimum(counts, N - 1), N - 1) < 1e-10, "one coin less is noticed"


def test_the_rounding_is_unbiased() -> None:
    code = BinomialCode(1.0, 5, 0)
    for g in (-0.9, -0.5, 0.1, 0.37, 0.9999):
        values = code.codes.values(code.drawn(np.full(100_000, g), stream(7)))
        assert abs(values.mean() - g) < 4 * 0.5 * code.step / math.sqrt(100_000)


# --- one release ----------------------------------------------------------------------------------------------------


def test_theorem_1_as_printed() -> None:
    assert cpsgd.epsilon_of(1, 1e-6, 1.0, 1.0, 1.0, 2000) == pytest.approx(0.637513410643578, rel=1e-14)
    for d, delta, D1, D2, Dinf, N in (
        (1, 1e-6, 1, 1, 1, 2000),
        (3930, 1e-7, 40.0, 7.0, 3.0, 9000),
        (10, 1e-5, 1, 1, 1, 500),
    ):
        assert cpsgd.epsilon_of(d, delta, D1, D2, Dinf, N) == pytest.approx(
            dumb.theorem_1(d, delta, 1.0, N, D1, D2, Dinf), rel=1e-13
        )
    assert cpsgd.epsilon_of(1, 1e-6, 1.0, 1.0, 1.0, 1482) == math.inf, "N/4 is below 23 ln(10 d/delta)"
    assert cpsgd.epsilon_of(1, 1e-6, 1.0, 1.0, 1.0, 1483) < math.inf


@pytest.mark.parametrize(("N", "shift"), [(2000, 1), (2000, 5), (4000, 3)])
def test_theorem_1_bounds_the_exact_delta_of_a_shift(N: int, shift: int) -> None:
    epsilon = cpsgd.epsilon_of(1, 1e-6, shift, shift, shift, N)
    assert dumb.delta_of_shift(N, shift, epsilon) <= 1e-6
    assert dumb.delta_of_shift(N, shift, 0.25 * epsilon) > 1e-6, "a quarter of it would be too little"


@pytest.mark.parametrize("d", [1, 40, 2000])
@pytest.mark.parametrize("size", [0.05, 3.0, 60.0])
def test_rounded_gradients_differ_by_no_more_than_the_bounds(d: int, size: float) -> None:
    """At a failing probability of one half, half the draws would be allowed to; the bounds are far from that."""
    rng = np.random.default_rng(d)
    failed = 0
    for _ in range(200):
        a = rng.uniform(-50, 50, d)
        w = rng.dirichlet(np.ones(d)) * size * rng.choice([-1.0, 1.0], d)
        u = rng.random(d)
        rounded = [np.floor(v) + (u < v - np.floor(v)) for v in (a, a + w)]
        dw = rounded[1] - rounded[0]
        D1, D2, Dinf = cpsgd.rounded(d, float(np.abs(w).sum()), float(np.linalg.norm(w)), 1e-2)
        assert np.abs(dw).max() <= Dinf
        failed += bool(np.abs(dw).sum() > D1 or np.linalg.norm(dw) > D2)
    assert failed <= 6, "one in a hundred, at most"


def test_without_the_part_of_chance_the_bounds_fail() -> None:
    """A mutant: the shift of the numbers themselves."""
    rng, w = np.random.default_rng(1), np.full(400, 0.02)
    found = [np.linalg.norm(np.floor(w + u) - np.floor(u)) for u in rng.random((200, 400))]
    assert np.mean(np.array(found) > np.linalg.norm(w)) > 0.9


# --- many releases --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [2, 5, 10, 13])
@pytest.mark.parametrize("epsilon", [0.05, 0.7, 2.0])
def test_optimal_composition_is_that_of_randomised_responses(K: int, epsilon: float) -> None:
    for i in range(K // 2 + 1):
        exact = dumb.composed_delta(epsilon, K, (K - 2 * i) * epsilon)
        assert cpsgd._delta(epsilon, K, i) == pytest.approx(exact, rel=1e-8, abs=1e-15)
        found = cpsgd.optimal(epsilon, K, exact * (1 + 1e-6) + 1e-300)
        assert found == pytest.approx((K - 2 * i) * epsilon)


def test_unlike_releases_are_composed_by_the_other_theorem() -> None:
    epsilons, slack = np.array([0.1, 0.2, 0.1, 0.3] * 40), 1e-6
    found = cpsgd.composed(epsilons, slack)
    squares, drift = (epsilons**2).sum(), (np.expm1(epsilons) / (np.exp(epsilons) + 1) * epsilons).sum()
    bounds = [
        epsilons.sum(),
        drift + math.sqrt(2 * squares * math.log(math.e + math.sqrt(squares) / slack)),
        drift + math.sqrt(2 * squares * math.log(1 / slack)),
    ]
    assert found[-1] == pytest.approx(min(bounds), rel=1e-12) and (np.diff(found) >= 0).all()
    assert found[0] == pytest.approx(0.1), "one release costs what it costs"
    alike = cpsgd.composed(np.full(60, 0.1), 1e-6)
    assert alike[-1] == pytest.approx(3.6) and alike[0] == pytest.approx(0.1)


@pytest.mark.parametrize(
    "mutant",
    [
        lambda epsilon, count, i: 0.5 * delta(epsilon, count, i),
        lambda epsilon, count, i: delta(epsilon, count, max(i - 1, 0)),
    ],
)
def test_another_delta_is_noticed(mutant: Callable[..., float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpsgd, "_delta", mutant)
    exact = [dumb.composed_delta(0.7, 9, (9 - 2 * i) * 0.7) for i in range(5)]
    found = [cpsgd.optimal(0.7, 9, value * (1 + 1e-6) + 1e-300) for value in exact]
    assert found != pytest.approx([(9 - 2 * i) * 0.7 for i in range(5)])


delta = cpsgd._delta


def test_coins_that_are_not_fair_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    first, upper, lower = coding._thresholds(64)
    monkeypatch.setattr(coding, "_thresholds", lambda trials: (first, upper - upper // np.uint64(50), lower))
    with pytest.raises(AssertionError):
        test_the_coins_are_fair_and_as_many_as_were_asked_for(64)
