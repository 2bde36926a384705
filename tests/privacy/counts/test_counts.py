"""Codes with fair coins and what they cost, against outcomes one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom, chi2

from dpgt_node.privacy.counts import code as coding
from dpgt_node.privacy.counts import renyi
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


# --- what it costs --------------------------------------------------------------------------------------------------

SHIFTS = (0.01, 0.3, 0.5, 1.0, 1.25, 2.0, 2.7)
STARTS = (0.0, 0.2, 0.5, 0.7, 0.9, 1.0)


def epsilon(N: int, shift: float, d: int = 1, releases: int = 1, delta: float = 1e-3) -> float:
    return float(renyi.curve(N, np.full(releases, shift), d, delta)[-1])


@pytest.mark.parametrize(("N", "delta"), [(60, 1e-3), (201, 1e-3), (400, 1e-5)])
def test_no_pair_of_values_has_a_larger_delta(N: int, delta: float) -> None:
    """Every outcome one at a time, in both directions, wherever the values lie between whole numbers."""
    for shift in SHIFTS:
        told, exact = epsilon(N, shift, delta=delta), list[float]()
        for start in STARTS:
            P, Q = dumb.law(N, start), dumb.law(N, start + shift)
            exact += [dumb.delta_of([pair], told) for pair in ((P, Q), (Q, P))]
            exact += [dumb.delta_of([(P, Q)], 0.6 * told)]
        assert max(exact[0::3] + exact[1::3]) <= delta
        assert shift not in (0.5, 1.0) or max(exact[2::3]) > delta, "it is not far from the least there is"


def test_coordinates_add_up_by_their_squares_and_releases_do() -> None:
    N, delta = 80, 1e-3
    for parts in ((0.6, 0.8), (1.0, 0.0), (0.28, 0.96)):
        pairs = [(dumb.law(N, 0.3), dumb.law(N, 0.3 + part)) for part in parts]
        assert dumb.delta_of(pairs, epsilon(N, 1.0, 2)) <= delta
        assert dumb.delta_of(pairs, epsilon(N, max(parts), 1, 2)) <= delta, "as two releases of the larger shift"
    both = renyi.curve(N, np.array([0.6, 0.8]), 1, delta)
    pairs = [(dumb.law(N, 0.0), dumb.law(N, part)) for part in (0.6, 0.8)]
    assert dumb.delta_of(pairs[:1], float(both[0])) <= delta and dumb.delta_of(pairs, float(both[1])) <= delta
    assert both[0] < both[1]
    assert dumb.delta_of(pairs, float(both[0])) > delta, "one release does not pay for two"


def test_epsilon_is_where_tails_and_moments_add_up_to_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forwards, from moments that are given: both tails, and what a coordinate leaves out, of every release."""
    N, d, delta, least, shifts = 4000, 30, 0.9, 2.0**-115, np.array([0.9, 0.5, 1.0])
    etas: list[float] = []

    def given(trials: int, largest: float, eta: float, orders: tuple[float, ...]) -> tuple[F64, float]:
        assert (trials, largest) == (N, 1.0)
        etas.append(eta)
        return np.array([3.0 * order * (order - 1.0) for order in orders]), least

    monkeypatch.setattr(renyi, "_growth", given)
    found = renyi.curve(N, shifts, d, delta)
    (eta,) = etas
    tails = 2 * d * len(shifts) * eta
    assert 0 < tails < 0.002 * delta

    def deltas(epsilon: float, square: float) -> list[float]:
        left_out = d * len(shifts) * (eta + 4.0 * 2.0**-124 / least)
        exponents = [3.0 * a * (a - 1.0) * square + a * left_out + (1.0 - a) * epsilon for a in renyi.ORDERS.tolist()]
        return [
            tails + (math.exp(e) / a * (1.0 - 1.0 / a) ** (a - 1.0) if e < 700 else math.inf)
            for a, e in zip(renyi.ORDERS.tolist(), exponents, strict=True)
        ]

    for at, epsilon in enumerate(found.tolist()):
        square = float(np.square(shifts[: at + 1]).sum())
        assert min(deltas(epsilon, square)) <= delta < min(deltas(0.9999 * epsilon, square))


def moments_are_bounded(N: int = 300, eta: float = 1e-9) -> None:
    orders = tuple(renyi.ORDERS[renyi.ORDERS < 60].tolist()[::7])
    wide = renyi.reach(N, eta)
    for largest, shifts in ((0.4, (0.05, 0.4)), (1.0, (0.05, 0.5, 1.0)), (3.0, (0.5, 1.0, 1.3, 1.6, 2.5, 3.0))):
        growth, least = renyi._growth(N, largest, eta, orders)
        steps = math.ceil(largest)
        kept = range(N // 2 - wide, N - N // 2 + wide + steps + 2)
        assert float(dumb.pmf(N, kept[-1])) >= 0.99 * least
        for shift in shifts:
            for start in STARTS:
                P, Q = dumb.law(N, start), dumb.law(N, start + shift)
                assert 1 - sum(P.get(k, 0) for k in kept) <= eta and 1 - sum(Q.get(k, 0) for k in kept) <= eta
                for order, c in zip(orders, growth.tolist(), strict=True):
                    found = max(dumb.moment(P, Q, order, kept), dumb.moment(Q, P, order, kept))
                    assert math.log(found) <= c * shift**2 + order * eta + 1e-12, (largest, shift, start, order)


def test_orders_are_those_whose_second_derivative_is_convex() -> None:
    """(p - 2)(p - 3) >= 0 of p = alpha and p = 1 - alpha: else the ends of an interval bound nothing between them."""
    powers = np.concatenate([renyi.ORDERS, 1.0 - renyi.ORDERS])
    assert (renyi.ORDERS > 1.0).all() and ((powers - 2.0) * (powers - 3.0) >= 0.0).all()


def test_chords_bound_everything_between_whole_shifts() -> None:
    rng = np.random.default_rng(3)
    for flat in (0.0, 1.0):  # where S does not rise, the quotient is largest at a part's beginning
        heights = rng.uniform(0.1, 2.0, 4) + flat * np.cumsum(np.cumsum(rng.uniform(0.0, 3.0, (5, 4)), axis=0), axis=0)
        heights = np.broadcast_to(heights, (5, 4))
        t = np.linspace(1.0, 5.0, 4001)
        for column, found in zip(heights.T, renyi._chords(heights).tolist(), strict=True):
            exact = float((np.log1p(np.interp(t, np.arange(1.0, 6.0), column)) / t**2).max())
            assert exact <= found * (1 + 1e-12) and found < 1.3 * exact


def test_moments_grow_no_faster_than_the_squares_of_shifts() -> None:
    moments_are_bounded()


@pytest.mark.parametrize(
    "mutant",
    [
        ("_curvature", lambda weights, ratio, p, first: 0.9 * curvature(weights, ratio, p, 0.0)),
        ("_first", lambda weights, ratio, p, first: renyi._curvature(weights, ratio, p, 0.0)),
        ("_chords", lambda heights: np.zeros(heights.shape[1])),
        ("_convex", lambda weights, x, p: 0.9 * convex(weights, x, p)),
    ],
    ids=["too flat", "at the first end alone", "no larger shifts", "too little in between"],
)
def test_other_bounds_are_noticed(mutant: tuple[str, Callable[..., F64]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renyi, *mutant)
    renyi._growth.cache_clear()
    try:
        with pytest.raises(AssertionError):
            moments_are_bounded(N=100)
    finally:
        renyi._growth.cache_clear()


curvature, convex = renyi._curvature, renyi._convex


def test_rounding_costs_nothing_on_top_of_the_coins() -> None:
    """To leading order it is Gaussian noise of variance N/4, however small the shift."""
    orders = (3.0, 8.0, 20.0)
    growth, _ = renyi._growth(1_000_000, 0.01, 1e-12, orders)
    np.testing.assert_allclose(growth, [2.0 * a * (a - 1.0) / 1e6 for a in orders], rtol=1e-3)


def test_cpsgd_asks_for_more() -> None:
    """Its Theorem 1 as printed, on the value known for it, and the exact delta of that shift."""
    theirs = dumb.theorem_1(1, 1e-6, 1.0, 2000, 1.0, 1.0, 1.0)
    assert theirs == pytest.approx(0.637513410643578, rel=1e-14)
    ours = epsilon(2000, 1.0, delta=1e-6)
    assert dumb.delta_of_shift(2000, 1, ours) <= 1e-6 < dumb.delta_of_shift(2000, 1, 0.75 * ours)
    assert ours < 0.5 * theirs


def test_as_few_coins_as_are_enough_to_hide_anything() -> None:
    for largest, coordinates in ((0.02, 600_000), (10.5, 1), (15.0, 10**6)):
        least = renyi.least_trials(largest, coordinates, 1e-5)
        assert epsilon(least, largest, coordinates, delta=1e-5) < math.inf
        assert epsilon(least - 1, largest, coordinates, delta=1e-5) == math.inf
    assert epsilon(10**6, renyi.MOST_STEPS + 0.1) == math.inf


def test_coins_that_are_not_fair_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    first, upper, lower = coding._thresholds(64)
    monkeypatch.setattr(coding, "_thresholds", lambda trials: (first, upper - upper // np.uint64(50), lower))
    with pytest.raises(AssertionError):
        test_the_coins_are_fair_and_as_many_as_were_asked_for(64)
