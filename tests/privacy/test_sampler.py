from __future__ import annotations

import math
import tracemalloc
from collections import Counter
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpgt_node.privacy.laws.keystream import CtrStream
from dpgt_node.privacy.laws.sampler import CHUNK, LaplaceSampler, laplace, uniform_subset

ACCEPT, REJECT = 1e-3, 1e-9  # fixed seeds: a verdict never changes between runs
N = 40_000


def stream(seed: int = 0) -> CtrStream:
    return CtrStream(seed.to_bytes(16, "big"), bytes(16))


class Fixed:
    """The same 64-bit word for ever."""

    def __init__(self, *words: int) -> None:
        self._bytes = b"".join(word.to_bytes(8, "little") for word in words)
        self.taken = 0

    def take(self, nbytes: int) -> bytes:
        start, self.taken = self.taken % len(self._bytes), self.taken + nbytes
        return (self._bytes * (nbytes // len(self._bytes) + 2))[start : start + nbytes]


# --- Laplace -------------------------------------------------------------------------------------------------------


def ks(values: np.ndarray, scale: float) -> float:
    return float(stats.kstest(values, stats.laplace(scale=scale).cdf).pvalue)


def chi_square(values: np.ndarray, scale: float, bins: int = 64) -> float:
    """Equiprobable bins of Lap(scale)."""
    edges = stats.laplace(scale=scale).ppf(np.linspace(0, 1, bins + 1)[1:-1])
    return float(stats.chisquare(np.bincount(np.searchsorted(edges, values), minlength=bins)).pvalue)


@pytest.mark.parametrize("check", [ks, chi_square])
@pytest.mark.parametrize("scale", [1e-6, 0.1, 1.0, 2310.0])
def test_laplace_is_accepted_at_its_scale_and_rejected_off_it(check, scale):
    noise = LaplaceSampler().perturb(np.zeros(N), scale, stream(1))
    assert check(noise, scale) > ACCEPT
    assert check(noise, 0.7 * scale) < REJECT
    assert check(noise, 1.3 * scale) < REJECT


@pytest.mark.parametrize("check", [ks, chi_square])
def test_the_checkers_reject_mutants(check):
    noise = laplace(stream(2), N, 1.0)
    assert check(np.abs(noise), 1.0) < REJECT, "the sign bit"
    assert check(np.repeat(noise[: N // 100], 100), 1.0) < REJECT, "every draw used a hundred times"
    assert check(stats.norm.ppf(stats.laplace.cdf(noise)), 1.0) < REJECT, "a normal law"


def pairs_chi_square(values: np.ndarray) -> float:
    """Are neighbours independent?  8 x 8 equiprobable cells."""
    cells = np.floor(8 * stats.laplace.cdf(values)).astype(int).reshape(-1, 2)
    return float(stats.chisquare(np.bincount(8 * cells[:, 0] + cells[:, 1], minlength=64)).pvalue)


def test_neighbouring_draws_are_independent():
    noise = laplace(stream(3), N, 1.0)
    assert pairs_chi_square(noise) > ACCEPT
    assert pairs_chi_square(np.repeat(noise[::2], 2)) < REJECT


def test_moments():
    noise = laplace(stream(4), 400_000, 3.0)
    assert abs(noise.mean()) < 5 * 3.0 * math.sqrt(2 / 400_000)
    assert np.var(noise) == pytest.approx(2 * 3.0**2, rel=0.02)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (0, -53 * math.log(2)),  # the smallest uniform, 2^-53
        (1, 53 * math.log(2)),  # the lowest bit is the sign
        (2**64 - 1, 0.0),  # the largest uniform, 1
        (2**64 - 2, 0.0),
        (2**63 - 2048, -math.log(2)),  # (2^52 - 1 + 1) / 2^53
        (2**63 - 2048 + 2046, -math.log(2)),  # bits 1..10 are unused
    ],
)
def test_every_word_gives_a_finite_number(word, expected):
    (value,) = LaplaceSampler().perturb(np.zeros(1), 2.0, Fixed(word))
    assert value == pytest.approx(2.0 * expected, rel=1e-15)


def test_against_the_formula_word_by_word():
    words = np.frombuffer(stream(5).take(8 * 500), "<u8").tolist()
    expected = [(1 if w & 1 else -1) * -0.25 * math.log(((w >> 11) + 1) / 2**53) for w in words]
    np.testing.assert_allclose(laplace(stream(5), 500, 0.25), expected, rtol=1e-14)


def test_noise_is_added_and_the_input_left_alone():
    private = np.arange(50.0)
    out = LaplaceSampler().perturb(private, 0.5, stream(6))
    np.testing.assert_array_equal(out, laplace(stream(6), 50, 0.5) + np.arange(50.0))
    np.testing.assert_array_equal(private, np.arange(50.0))


@pytest.mark.parametrize("d", [CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_chunks_continue_one_stream(d):
    private = np.linspace(-1.0, 1.0, d)
    out = LaplaceSampler().perturb(private, 2.0, stream(7))
    np.testing.assert_array_equal(out, laplace(stream(7), d, 2.0) + private)


def test_scratch_memory_is_small():
    private = np.zeros(1_000_000)
    tracemalloc.start()
    try:
        out = LaplaceSampler().perturb(private, 1.0, stream(8))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < out.nbytes + 4 * 2**20


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_scale_that_would_release_nonsense_is_a_bug(scale):
    with pytest.raises(ValueError, match="scale"):
        LaplaceSampler().perturb(np.zeros(3), scale, stream())


# --- subsets -------------------------------------------------------------------------------------------------------


def plain_modulo(source: CtrStream, population: int, size: int) -> np.ndarray:
    """A mutant: modulo without rejection."""
    words = np.frombuffer(source.take(8 * size), "<u8")
    return (words % np.uint64(population)).astype(np.int64)


def epochs(source: CtrStream, population: int, size: int) -> np.ndarray:
    """A mutant: consecutive blocks, each index equally often but not every subset."""
    start = int(plain_modulo(source, population, 1)[0])
    return (start + np.arange(size)) % population


def subset_chi_square(draw, population: int, size: int, draws: int = 6000) -> float:
    """Every subset equally likely?"""
    source = stream(9)
    counts = Counter(tuple(sorted(draw(source, population, size).tolist())) for _ in range(draws))
    subsets = list(combinations(range(population), size))
    assert set(counts) <= set(subsets)
    return float(stats.chisquare([counts[s] for s in subsets]).pvalue)


def thirds_chi_square(draw) -> float:
    """A population of 3/8 of all words: without rejection the lower part comes up more often."""
    population, source = 3 << 61, stream(10)
    values = np.concatenate([draw(source, population, 1) for _ in range(3000)])
    return float(stats.chisquare(np.bincount(values // (1 << 61), minlength=3)).pvalue)


@pytest.mark.parametrize(("population", "size"), [(6, 1), (6, 2), (6, 3), (6, 4), (6, 5), (7, 3)])
def test_every_subset_is_equally_likely(population, size):
    assert subset_chi_square(uniform_subset, population, size) > ACCEPT


def test_the_subset_checker_rejects_blocks():
    assert subset_chi_square(epochs, 6, 2) < REJECT


def test_no_modulo_bias():
    assert thirds_chi_square(uniform_subset) > ACCEPT
    assert thirds_chi_square(plain_modulo) < REJECT


def test_words_above_the_last_multiple_are_thrown_away():
    high, low = 2**64 - 1, 5
    assert uniform_subset(Fixed(high, low), 3 << 61, 1).tolist() == [5]


@given(st.integers(0, 400).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), st.integers(0, 99))
def test_distinct_and_in_range(case, seed):
    population, size = case
    subset = uniform_subset(stream(seed), population, size)
    assert subset.dtype == np.int64 and subset.shape == (size,)
    assert len(set(subset.tolist())) == size
    assert all(0 <= j < population for j in subset.tolist())


def test_the_same_bytes_give_the_same_subset():
    assert uniform_subset(stream(1), 287, 55).tolist() == uniform_subset(stream(1), 287, 55).tolist()
    assert uniform_subset(stream(1), 287, 55).tolist() != uniform_subset(stream(2), 287, 55).tolist()


@pytest.mark.parametrize(
    ("population", "size", "words"), [(10**12, 55, 80), (12_000, 12_000, 0), (12_000, 11_999, 12_010)]
)
def test_few_bytes_are_taken(population, size, words):
    class Counting:
        taken, inner = 0, stream(3)

        def take(self, nbytes: int) -> bytes:
            self.taken += nbytes
            return self.inner.take(nbytes)

    source = Counting()
    uniform_subset(source, population, size)
    assert source.taken <= 8 * words


@pytest.mark.parametrize(("population", "size"), [(4, 2), (4, 3)])
def test_every_order_of_a_subset_is_equally_likely(population, size):
    """What `amplified` leans on: a replaced sample does not shift the place of the others in a batch."""
    source = stream(12)
    counts = Counter(tuple(uniform_subset(source, population, size).tolist()) for _ in range(12_000))
    orders = list(permutations(range(population), size))
    assert set(counts) <= set(orders)
    assert stats.chisquare([counts[o] for o in orders]).pvalue > 1e-9


@pytest.mark.parametrize(("population", "size"), [(3, 4), (3, -1), (0, 1)])
def test_more_than_there_is(population, size):
    with pytest.raises(ValueError, match="choose"):
        uniform_subset(stream(), population, size)
