from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpgt_node.privacy.laws import grid
from dpgt_node.privacy.laws.grid import KAPPA, TABLES, WEIGHTS, Tables, certificate, drawn_weights, tables
from tests.oracles import grid as oracle

scales = st.floats(1e-290, 1e290)


# --- the certificate -------------------------------------------------------------------------------------------------


def test_the_shipped_weights_are_the_largest_remainder_rounding():
    assert list(WEIGHTS) == oracle.largest_remainder(64, 2**24)


def test_the_certificate():
    assert KAPPA == certificate(TABLES) == oracle.steepest(list(WEIGHTS)) == Fraction(1097, 100_698)
    assert f"{float(KAPPA):.9f}" == "0.010893960"
    assert Fraction(grid.KAPPA_UP) >= KAPPA > Fraction(math.nextafter(grid.KAPPA_UP, 0))


def test_every_one_of_the_2_to_24_values_draws_what_the_certificate_counted():
    counts = np.zeros(64, dtype=np.int64)
    for start in range(0, 1 << 24, 1 << 20):
        r = np.arange(start, start + (1 << 20))
        lo = TABLES.direct[r >> 10].astype(np.int64)
        mixed = lo == grid.MIXED
        lo[mixed] = np.searchsorted(TABLES.edges, r[mixed], side="right") - 1
        counts += np.bincount(lo, minlength=64)
    assert tuple(counts) == drawn_weights(TABLES) == WEIGHTS


def changed(array: np.ndarray, at: int, value: int) -> np.ndarray:
    copy = array.copy()
    copy[at] = value
    return copy


def weights_with(**changes: int) -> tuple[int, ...]:
    w = list(WEIGHTS)
    for at, by in changes.items():
        w[int(at[1:])] += by
    return tuple(w)


@pytest.mark.parametrize(
    "mutant",
    [
        tables(weights_with(_5=10, _40=-10)),
        tables(weights_with(_0=-10, _30=10)),
        tables(weights_with(_63=-10, _30=10)),
        tables((WEIGHTS[1], WEIGHTS[0], *WEIGHTS[2:])),
        tables(tuple(reversed(WEIGHTS))),
        Tables(changed(TABLES.direct, 500, 2), TABLES.edges),
        Tables(changed(TABLES.direct, int(np.flatnonzero(TABLES.direct == grid.MIXED)[7]), 7), TABLES.edges),
        Tables(TABLES.direct, changed(TABLES.edges, 9, int(TABLES.edges[9]) + 30)),
    ],
    ids=["weights", "first", "last", "swapped", "reversed", "direct", "mixed", "edge"],
)
def test_a_changed_table_is_charged_more(mutant):
    assert certificate(mutant) > KAPPA


@pytest.mark.parametrize(
    "mutant",
    [
        tables(weights_with(_3=1)),
        tables(weights_with(_3=-1)),
        tables(weights_with(_3=WEIGHTS[4], _4=-WEIGHTS[4])),
        Tables(changed(TABLES.direct, 0, 64), TABLES.edges),
        Tables(TABLES.direct, changed(TABLES.edges, 9, 5)),
        Tables(TABLES.direct, changed(TABLES.edges, 0, 1)),
        Tables(TABLES.direct[:-1], TABLES.edges),
        Tables(TABLES.direct, TABLES.edges[:-1]),
    ],
)
def test_a_table_that_is_no_law_has_no_certificate(mutant):
    with pytest.raises(ValueError, match="sampler table"):
        certificate(mutant)


def test_the_tables_cannot_be_changed():
    assert not TABLES.direct.flags.writeable and not TABLES.edges.flags.writeable


# --- the theorem -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [[5, 4], [6, 5, 4], [19, 16, 13, 11], [3, 5, 4]])
def test_the_theorem_on_small_tables_outcome_by_outcome(weights):
    bits, blocks = 3, 5
    kappa = oracle.steepest(weights)
    laws = oracle.enumerated(weights, bits, blocks)
    reach = (blocks - 1) * len(weights)
    steepest = Fraction(0)
    for q, law in laws.items():
        if q == 2**bits:
            continue
        for j in range(-reach, reach):
            one, other = law[j], laws[q + 1][j]
            assert max(one / other, other / one) <= 1 + kappa / 2**bits
            steepest = max(steepest, abs(other - one) * 2**bits / min(one, other))
    assert steepest == kappa, "the certificate is attained, so it cannot be lowered"


@pytest.mark.parametrize("fraction", [Fraction(0), Fraction(1, 2), Fraction(1, 3), 1 - Fraction(1, 2**40)])
def test_the_slope_of_the_log_probability(fraction):
    worst = Fraction(0)
    for n in range(-200, 200):
        here, next_ = grid.noise_probability(n), grid.noise_probability(n - 1)
        slope = abs(next_ - here) / ((1 - fraction) * here + fraction * next_)
        assert slope <= KAPPA
        worst = max(worst, slope)
    assert worst > KAPPA * Fraction(98, 100)


def test_the_slope_numerically():
    for x in np.linspace(-1.99, 1.99, 41):
        law, moved = (grid.GridPmf(Fraction(float(at)), 1.0) for at in (x, x + 1e-7))
        for j in range(-150, 150, 7):
            slope = (math.log(moved.probability(j)) - math.log(law.probability(j))) / 1e-7
            assert abs(slope) <= float(KAPPA) + 1e-7


@settings(deadline=None, max_examples=20)
@given(st.floats(-1e4, 1e4), st.floats(1e-2, 1e4))
def test_probabilities_add_up(v, scale):
    law = grid.grid_laplace_pmf(v, scale)
    middle, blocks = math.floor(law.x), 8
    inside = sum(law.probability(middle + j) for j in range(-64 * blocks + 1, 64 * blocks))
    assert 1 - Fraction(3, 2**blocks) < inside < 1


def test_the_mean_is_the_value():
    law = grid.GridPmf(Fraction(37, 100), 1.0)
    mean = sum(law.probability(j) * Fraction(2 * j + 1, 2) for j in range(-3000, 3000))
    assert float(mean) == pytest.approx(0.37, abs=1e-9)


def test_the_standard_deviation_is_a_little_above_the_ideal():
    variance = sum(grid.noise_probability(n) * Fraction(2 * n + 1, 2) ** 2 for n in range(-64 * 60, 64 * 60))
    assert math.sqrt(2 * variance * KAPPA**2) / 2 == pytest.approx(1.006, abs=5e-4)


# --- cells, ranges, rounding -----------------------------------------------------------------------------------------


@settings(deadline=None)
@given(scales)
@example(1.0)
def test_a_cell_is_the_smallest_double_that_will_do(scale):
    g = grid.cell(scale)
    assert Fraction(g) >= KAPPA * Fraction(scale) > Fraction(math.nextafter(g, 0.0))


@settings(deadline=None)
@given(scales)
def test_nothing_within_range_is_clipped(scale):
    limit = grid.LIMIT_CELLS << grid.FRACTION_BITS
    edge = grid.clip_range(scale)
    assert abs(grid.quantise(edge, scale)) <= limit
    assert edge / (grid.cell(scale) * 2.0**-40) <= limit
    assert edge > 45_000 * scale
    assert grid.quantise(math.nextafter(edge, math.inf) * 1.001, scale) == limit


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 9e-291, 1.1e290, -math.inf])
def test_scales_out_of_range(scale):
    for function in (grid.cell, grid.clip_range, lambda s: grid.lam(3, s), lambda s: grid.grid_laplace_pmf(0.0, s)):
        with pytest.raises(ValueError, match="scale"):
            function(scale)


@pytest.mark.parametrize("v", [math.nan, math.inf, -math.inf])
def test_no_law_for_what_is_no_number(v):
    with pytest.raises(ValueError, match="finite"):
        grid.grid_laplace_pmf(v, 1.0)


def cost(v: float, w: float, scale: float) -> Fraction:
    """The most that |log P - log P'| can be: the theorem for the quantised values."""
    return KAPPA * Fraction(abs(grid.quantise(v, scale) - grid.quantise(w, scale)), 2**40)


def overcharge(v: float, w: float, scale: float, *, norm: float | None) -> Fraction:
    """What is charged less what it costs; the bound holds where it is >= 0."""
    charged = abs(Fraction(v) - Fraction(w)) / Fraction(scale) + Fraction(grid.lam(1, scale, norm))
    return charged - cost(v, w, scale)


def cases() -> st.SearchStrategy[tuple[float, float, float]]:
    """A value, one near it or not, and a scale: all in units that make them meet."""
    multiple = st.one_of(st.floats(-1e5, 1e5), st.floats(-50, 50), st.floats(-1e-9, 1e-9), st.just(0.0))
    return st.tuples(multiple, multiple, st.floats(1e-12, 1e12), st.booleans()).map(
        lambda c: (c[0] * c[2], (c[0] + c[1] * 1e-9) * c[2] if c[3] else c[1] * c[2], c[2])
    )


@settings(deadline=None)
@given(cases())
@example((1.0, math.nextafter(1.0, 2.0), 1.0))
@example((0.0, 5e-324, 1e-290))
def test_what_is_charged_covers_rounding(case):
    v, w, scale = case
    assert overcharge(v, w, scale, norm=None) >= 0
    assert overcharge(v, w, scale, norm=max(abs(v), abs(w))) >= 0


def test_the_shift_alone_would_not_cover_it():
    rng = np.random.Generator(np.random.PCG64(5))
    short = 0
    for v, relative in zip(rng.uniform(-40_000, 40_000, 400), rng.uniform(0, 1e-15, 400), strict=True):
        w = float(v) * (1 + float(relative))
        short += cost(float(v), w, 1.0) > abs(Fraction(float(v)) - Fraction(w))
    assert short > 20, "this checker can see a missing leftover"


@pytest.mark.parametrize(
    ("d", "norm", "expected"),
    [
        (1, 0.0, float(KAPPA) * 2**-40),
        (1000, None, 1000 * float(KAPPA) * (2**-40 + 2**-30)),
        (1000, 7.0, 1000 * float(KAPPA) * 2**-40 + 2**-52 * 3.5),
        (11_175_370, 0.0, 1.107e-7),
    ],
)
def test_leftover(d, norm, expected):
    assert grid.lam(d, 2.0, norm) == pytest.approx(expected, rel=1e-3)
    assert grid.lam(d, 2.0, norm) >= expected or d > 1000


def test_index_and_value_are_inverse():
    law = grid.grid_laplace_pmf(3.0, 0.7)
    assert [law.index(law.value(j)) for j in range(-300, 300)] == list(range(-300, 300))
