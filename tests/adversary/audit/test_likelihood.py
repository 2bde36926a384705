"""Exact probabilities of what samplers draw, and draws found again in what was sent."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpgt_node.adversary.audit.likelihood import Counted, Draw, Interval, Quantised, recover
from dpgt_node.privacy.counts.code import BinomialCode
from dpgt_node.privacy.laws.gaussian_sampler import cell_probability
from dpgt_node.privacy.laws.grid import grid_laplace_pmf
from dpgt_node.privacy.laws.keystream import TestKeystream
from dpgt_node.privacy.laws.registry import LAWS as VALUES
from dpgt_node.privacy.laws.sampler import LaplaceSampler
from dpgt_node.types import NoiseLaw
from tests.oracles import binomial as dumb

LAWS: tuple[NoiseLaw, NoiseLaw] = ("laplace", "gaussian")
SCALE = 0.37


def drawn(law: NoiseLaw, private: np.ndarray, scale: float = SCALE) -> np.ndarray:
    return VALUES[law].sampler(None).perturb(private, scale, TestKeystream("5eed", 0).stream(0, "Y"))


def exact(law: NoiseLaw, values: np.ndarray) -> Draw:
    draw = recover(values, np.zeros(values.size), SCALE, law, "float64")
    assert draw.kind == "exact"
    return draw


def test_laplace_probabilities_are_those_of_the_table() -> None:
    rng = np.random.default_rng(0)
    private = rng.normal(size=200) * rng.choice([1e-9, 1.0, 30.0], size=200)
    out = drawn("laplace", private)
    for shifted in (private, private + 0.01, private - 5.0, private + 100.0):
        got = exact("laplace", out).log_probability(shifted)
        for value, v, p in zip(out.tolist(), shifted.tolist(), got.tolist(), strict=True):
            pmf = grid_laplace_pmf(v, SCALE)
            exactly = pmf.probability(pmf.index(value))
            assert p == pytest.approx(math.log(exactly.numerator) - math.log(exactly.denominator), abs=1e-12)


def test_gaussian_probabilities_are_those_of_the_cells() -> None:
    rng = np.random.default_rng(1)
    private = rng.normal(size=20)
    out = drawn("gaussian", private)
    for shifted in (private, private + 0.01, private - 2.0):
        got = exact("gaussian", out).log_probability(shifted)
        for value, v, p in zip(out.tolist(), shifted.tolist(), got.tolist(), strict=True):
            exactly = cell_probability(v, SCALE, math.floor(value * 256 / SCALE))
            assert p == pytest.approx(math.log(exactly.numerator) - math.log(exactly.denominator), abs=1e-11)


@pytest.mark.parametrize("law", LAWS)
def test_values_beyond_the_range_count_as_the_sampler_clips_them(law: NoiseLaw) -> None:
    reach = VALUES[law].sampler(None).range(SCALE)
    draw = exact(law, drawn(law, np.full(5, reach)))
    assert (draw.log_probability(np.full(5, 3 * reach)) == draw.log_probability(np.full(5, 2 * reach))).all()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("dtype", "size"), [("float64", 1e9), ("float32", 3e3)])
def test_a_draw_is_found_again_under_a_transcript_part(law: NoiseLaw, dtype: str, size: float) -> None:
    rng = np.random.default_rng(2)
    transcript = rng.normal(size=1000) * size * (0.1 if law == "gaussian" else 1.0)
    out = drawn(law, rng.normal(size=1000))
    sent = (out + transcript).astype(dtype).astype(np.float64)
    found = recover(sent, transcript, SCALE, law, dtype)  # type: ignore[arg-type]
    assert found.kind == "exact"
    assert (found.values == out).all()


@pytest.mark.parametrize("law", LAWS)
def test_what_rounding_hides_is_bounded_and_not_invented(law: NoiseLaw) -> None:
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=500), rng.normal(size=500)
    transcript = rng.normal(size=500) * 1e6
    out = drawn(law, first)
    sent = (out + transcript).astype(np.float32).astype(np.float64)
    found = recover(sent, transcript, SCALE, law, "float32")
    assert found.kind == "rounded"
    known = recover(out, np.zeros(500), SCALE, law, "float64")

    def ratio(draw: Draw) -> np.ndarray:
        t, u = (draw.values - first) / SCALE, (draw.values - second) / SCALE
        return np.abs(t) - np.abs(u) if law == "laplace" else 0.5 * (t * t - u * u)

    assert (np.abs(found.log_probability(second) - found.log_probability(first) - ratio(found)) < 1e-9).all()
    assert (np.abs(ratio(found) - ratio(known)) <= found.doubt(first, second) * (1 + 1e-12) + 1e-9).all()


@pytest.mark.parametrize("law", LAWS)
def test_another_sampler_or_scale_is_foreign(law: NoiseLaw) -> None:
    private, nothing = np.linspace(-1, 1, 50), np.zeros(50)
    assert recover(drawn(law, private, SCALE / 2), nothing, SCALE, law, "float64").kind == "foreign"
    plain = LaplaceSampler().perturb(private, SCALE, TestKeystream("5eed", 0).stream(0, "Y"))
    assert recover(plain, nothing, SCALE, law, "float64").kind == "foreign"


@pytest.mark.parametrize("law", LAWS)
def test_what_lies_between_two_ends_has_the_sum_of_its_grid_points(law: NoiseLaw) -> None:
    """Far away on either side, too; ends between grid points and on them."""
    g = VALUES[law].cell(SCALE)
    for private in (0.0, 0.013, -4.0 * SCALE, 6.0 * SCALE):
        for low, high in ((-0.4, 0.3), (2.0, 2.5), (-3.0, -2.9), (0.5 * g, 7.5 * g)):
            cells = [j for j in range(-6000, 6000) if low < g * (j + 0.5) <= high]
            at = np.array(cells)
            each = VALUES[law].log_cells(at, np.full(len(at), private), SCALE)
            draw, exactly = Interval(law, SCALE, np.array([low]), np.array([high])), math.fsum(np.exp(each))
            assert draw.log_probability(np.array([private]))[0] == pytest.approx(math.log(exactly), abs=1e-8)
            (lost,) = draw.doubt(np.array([private]), np.array([low]))
            assert lost > 2.0**-52 / exactly, "both distribution functions are rounded"


def test_codes_with_coins_have_the_law_of_the_definition() -> None:
    code = BinomialCode(0.5, 9, 12)
    for private in (-0.6, -0.5, -0.27, 0.1, 0.5):
        law = dumb.law(12, (min(max(private, -0.5), 0.5) + 0.5) * 8)
        for k in range(22):
            told = Counted(code, np.array([float(k)])).log_probability(np.array([private]))[0]
            assert told == pytest.approx(math.log(law[k]) if k in law else -700.0, abs=1e-9)


def test_a_quantiser_sends_what_it_sends_so_often() -> None:
    values = np.array([-2.0, 0.0, 2.0])
    for x, p in ((0.5, (0.0, 0.75, 0.25)), (-1.0, (0.5, 0.5, 0.0)), (3.0, (0.0, 0.0, 1.0))):
        told = np.exp(Quantised(2.0, values).log_probability(np.full(3, x)))
        assert told == pytest.approx(p, abs=1e-12)
