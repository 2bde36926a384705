from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from dpgt_node.privacy.laws import compiled, gaussian_proposal, gaussian_sampler
from dpgt_node.privacy.laws.gaussian_proposal import COARSE_MARGIN, Scratch, coarse_lines, coarsely, fine_table, kernel
from dpgt_node.privacy.laws.gaussian_sampler import (
    CHUNK,
    GaussianSampler,
    LazyUniform,
    cell_probability,
    exact_cell,
    largest_quantile_error,
    normal_cdf,
)
from dpgt_node.privacy.laws.keystream import CtrStream
from dpgt_node.privacy.laws.sampler import words
from tests.oracles import grid as oracle

ACCEPT, REJECT = 1e-3, 1e-9  # fixed seeds: a verdict never changes between runs


def stream(seed: int = 0) -> CtrStream:
    return CtrStream(seed.to_bytes(16, "big"), bytes(16))


class Words:
    """Given 64-bit words, then nothing."""

    def __init__(self, *words: int) -> None:
        self.left = b"".join(word.to_bytes(8, "little") for word in words)

    def take(self, nbytes: int) -> bytes:
        assert nbytes <= len(self.left), "more was drawn than needed"
        piece, self.left = self.left[:nbytes], self.left[nbytes:]
        return piece


# --- Phi -------------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.floats(-9.5, 9.5), st.integers(8, 140))
@example(0.0, 64)
@example(-5e-324, 72)
def test_phi_against_another_series(c, bits):
    low, high = normal_cdf(Fraction(c), bits)
    exact = oracle.normal_cdf(Fraction(c)) * 2**bits
    assert low - Fraction(1, 10**3) <= exact <= high + Fraction(1, 10**3)
    assert high - low <= 2


@pytest.mark.parametrize("c", [-40, -12, 12, 40])
def test_phi_far_out(c):
    low, high = normal_cdf(Fraction(c), 400)
    assert high - low <= 2
    tail = math.erfc(abs(c) / math.sqrt(2)) / 2
    assert (low if c < 0 else 2**400 - high) / 2**400 == pytest.approx(tail, rel=1e-9, abs=2.0**-398)


# --- every bit -------------------------------------------------------------------------------------------------------

SPECIAL = [2**38, 2**38 - 1, 2**50, 2**62, 2**63 - 1, 2**63 - 2]


@pytest.mark.parametrize("scale", [1.0, 0.3, 1e-280, 1e280])
def test_word_by_word(scale):
    words = np.frombuffer(stream(1).take(8 * 60), "<u8").tolist() + SPECIAL + [w | 1 << 63 for w in SPECIAL]
    v = np.random.default_rng(2).normal(size=len(words)) * np.geomspace(1e-9, 1e4, len(words)) * scale
    source = Words(*words)
    out = GaussianSampler().perturb(v, scale, source)
    cells = [oracle.normal_cell(float(x), scale, word) for x, word in zip(v, words, strict=True)]
    assert out.tolist() == [scale / 256 * (j + 0.5) for j in cells]
    assert source.left == b""


@pytest.mark.parametrize("sign", [0, 1])
def test_far_out_in_the_tail(sign):
    z = -9.123 if not sign else 9.123
    bits = edge_bits(Fraction(-9123, 1000), 128)
    source = Words((bits >> 64) | sign << 63, bits & (2**64 - 1))
    assert bits >> 64 == 0, "64 bits say next to nothing there"
    (out,) = GaussianSampler().perturb(np.array([0.5]), 1.0, source)
    assert abs(out - (z + 0.5)) <= 0.5 / 256 and source.left == b""


def test_the_bits_do_not_depend_on_the_mathematical_library(monkeypatch):
    v, exact = np.linspace(-2, 2, 3000), gaussian_sampler._quantile
    expected = GaussianSampler().perturb(v, 1.0, stream(3)).tolist()

    def wrong_by(error: float) -> list[float]:
        rng = np.random.default_rng(4)
        monkeypatch.setattr(
            gaussian_sampler, "_quantile", lambda low: exact(low) + error * rng.uniform(-1, 1, low.size)
        )
        return GaussianSampler().perturb(v, 1.0, stream(3)).tolist()

    assert wrong_by(2.0**-33) == expected
    assert largest_quantile_error() < 1
    assert wrong_by(1e-4) != expected, "this checker can see a library that is too inaccurate"
    assert largest_quantile_error() > 1


SIZES = np.array([1e-9, 1e-3, 1.0, 30.0, 6e4])


def proposed(v: np.ndarray, scale: float, w: np.ndarray, *, fine=None) -> tuple[np.ndarray, list[int]]:
    """What the kernel makes of one row, and what it leaves."""
    cells, left = np.empty((1, v.size)), np.empty(v.size, dtype=np.int64)
    table = fine_table() if fine is None else fine
    args = coarse_lines(), table, np.empty(v.size), left, cells
    with np.errstate(all="ignore"):
        found = kernel(v[None], w.view("<i8")[None], np.array([256 / scale]), *args)
    return cells[0], left[:found].tolist()


@pytest.mark.parametrize("scale", [1.0, 0.37, 1e-280, 1e280])
def test_both_proposals_are_the_same_cells(scale):
    """The coarse one where it is certain, the fine one everywhere."""
    v = (np.random.default_rng(14).uniform(-1.0, 1.0, (4000, 5)) * SIZES * scale).ravel()
    w, expected = words(stream(15), v.size), GaussianSampler()
    right = expected._decided(v, np.array(scale), w, (stream(),))
    cells, left = proposed(v, scale, w)
    np.testing.assert_array_equal(cells, right)
    assert not left
    rough = np.empty((1, v.size))
    unsure = coarsely(v[None], w[None], np.array(256 / scale), Scratch(v.size), rough)
    sure = np.setdiff1d(np.arange(v.size), unsure)
    np.testing.assert_array_equal(rough[0, sure], right[sure])
    assert 0 < unsure.size < v.size / 200


@pytest.mark.parametrize("compiled", [False, True])
def test_long_vectors_and_rows_are_the_library_s_cell_by_cell(compiled, monkeypatch):
    monkeypatch.setattr("dpgt_node.privacy.laws.compiled.machine_code", lambda loop: loop)
    rng, n = np.random.default_rng(17), 5000
    v = rng.normal(size=(3, n)) * np.geomspace(1e-9, 7e4, n)
    scales = np.array([0.3, 1.0, 2.5])
    one = GaussianSampler(compiled=compiled)
    together = one.perturb_rows(v, scales, [stream(i) for i in range(3)])
    plain = GaussianSampler()
    for i, scale in enumerate(scales.tolist()):
        j = plain._decided(v[i], np.array(scale), words(stream(i), n), (stream(),))
        np.testing.assert_array_equal(together[i], (j + 0.5) * (scale / 256))
        np.testing.assert_array_equal(GaussianSampler().perturb(v[i], scale, stream(i)), together[i])
    assert one.clipped == plain.clipped > 0
    with pytest.raises(ValueError, match="not finite"):
        one.perturb(np.full(n, math.inf), 1.0, stream())


def test_a_coarse_line_that_is_wrong_would_be_seen(monkeypatch):
    rng = np.random.default_rng(18)
    exact = gaussian_proposal.library
    for build, most in ((coarse_lines, COARSE_MARGIN / 2 / 256), (fine_table, 2.0**-40)):
        for error in (4 * most, most / 2):

            def wrong(p: np.ndarray, error: float = error) -> np.ndarray:
                return exact(p) + error * rng.uniform(-1, 1, p.shape)

            monkeypatch.setattr(gaussian_proposal, "library", wrong)
            with pytest.raises(RuntimeError, match="not smooth"):
                build.__wrapped__()


def test_a_wrong_polynomial_would_be_seen():
    v, w = np.linspace(-2.0, 2.0, 3000), words(stream(3), 3000)
    cells, _ = proposed(v, 1.0, w, fine=fine_table() + 1e-2 * (np.arange(6) == 0))
    assert ((cells + 0.5) / 256).tolist() != GaussianSampler().perturb(v, 1.0, stream(3)).tolist()


JUST_BEYOND = 65_536.0 + 2.0**-10  # a quarter of a cell: it is clipped


@pytest.mark.parametrize(
    ("value", "word"),
    [(value, 2**60) for value in (math.nan, math.inf, 70_000.0, JUST_BEYOND, -JUST_BEYOND)]
    + [(0.0, 2**38 - 2), (0.0, -(2**63))],
)
def test_odd_values_and_tails_are_left_to_the_library(value, word):
    v, w = np.array([0.1, value]), np.array([2**61 + 12345, word])
    assert proposed(v, 1.0, w)[1] == [1]
    with np.errstate(all="ignore"):
        unsure = coarsely(v[None], w.view("<u8")[None], np.array(256.0), Scratch(2), np.empty((1, 2)))
    assert unsure.tolist() == [1]


@pytest.mark.parametrize("off", [-1, 0, 1])
def test_the_kernel_leaves_edges_of_cells_to_numpy(off):
    word = edge_bits(Fraction(-256, 256), 64) + off * 1000
    assert proposed(np.zeros(1), 1.0, np.array([word]))[1] == [0]


def test_the_polynomials_are_far_better_than_needed():
    """Against the exact Phi at both ends of parts and inside, p next to 2^-26 and 1/2 included."""
    table, rng = fine_table(), np.random.default_rng(16)
    assert len(table) == 25 * 64 + 1
    for part in (0, 1, 63, 64, *rng.integers(65, 1598, 40).tolist(), 1598, 1599):
        start, width = Fraction(2) ** (38 + part // 64), Fraction(2) ** (38 + part // 64 - 6)
        for t in (-1.0, float(rng.uniform(-1, 1)), 1.0):
            z = float(np.polynomial.polynomial.polyval(t, table[part]))
            p = (start + width * (part % 64) + width * (Fraction(t) + 1) / 2) / 2**64
            error = (sum(normal_cdf(Fraction(z), 128)) * 0.5 / 2.0**128 - float(p)) / stats.norm.pdf(z)
            assert abs(error) < 2.0**-43, "2^-33 would do"


def test_a_compiled_path_is_taken_piece_by_piece(monkeypatch):
    calls = []

    def counted(v: np.ndarray, *rest: object) -> int:
        calls.append(v.size)
        return kernel(v, *rest)

    monkeypatch.setattr(compiled, "machine_code", lambda loop: counted)
    v = np.zeros(CHUNK + 10)
    v[CHUNK + 3] = 1e30  # left to numpy
    shared = [(1, stream(20)), (-1, stream(21))]
    fast, plain = GaussianSampler(compiled=True), GaussianSampler(compiled=False)
    out = fast.perturb_shared(v, 1.0, stream(7), shared, 2)
    shared = [(1, stream(20)), (-1, stream(21))]
    np.testing.assert_array_equal(out, plain.perturb_shared(v, 1.0, stream(7), shared, 2))
    assert calls == [CHUNK, CHUNK, CHUNK, 10, 10, 10] and fast.clipped == plain.clipped == 1


def test_floating_point_only_proposes(monkeypatch):
    v = np.random.default_rng(5).normal(size=300)
    expected = GaussianSampler().perturb(v, 0.7, stream(6)).tolist()
    monkeypatch.setattr(gaussian_sampler, "MARGIN", 1.0)  # everything is doubtful
    monkeypatch.setattr(gaussian_sampler, "_quantile", lambda low: np.full(low.size, -0.7))
    assert GaussianSampler().perturb(v, 0.7, stream(6)).tolist() == expected


def test_the_quantile_is_far_better_than_needed():
    assert 1e-9 < largest_quantile_error() < 1e-3


def edge_bits(c: Fraction, bits: int) -> int:
    """The first ``bits`` of Phi(c)."""
    return math.floor(oracle.normal_cdf(c) * 2**bits)


@pytest.mark.parametrize("c", [Fraction(-1, 3), Fraction(-5, 2), Fraction(-11, 256)])
def test_more_bits_where_64_do_not_decide(c):
    bits = edge_bits(c, 128)
    first, second = bits >> 64, bits & (2**64 - 1)
    below, above = Words(second - 1), Words(second + 1)
    assert LazyUniform(first, below).below(c)
    assert not LazyUniform(first, above).below(c)
    assert below.left == above.left == b"", "one word each"
    assert LazyUniform(first - 1, Words()).below(c)
    assert not LazyUniform(first + 1, Words()).below(c)


@pytest.mark.parametrize("cell", [-300, -1, 0, 17])
def test_a_doubtful_coordinate_takes_further_words_after_those_of_its_piece(cell):
    c = Fraction(cell, 256) - Fraction(1, 3)
    v, scale = 1 / 3, 1.0
    c = Fraction(cell, 256) - Fraction(v)
    upper = c > 0
    bits = edge_bits(-c if upper else c, 128)
    word, second = (bits >> 64) | upper << 63, bits & (2**64 - 1)
    plain = 12345678901234567890
    for step, expected in ((-1, cell if upper else cell - 1), (1, cell - 1 if upper else cell)):
        source = Words(word, plain, second + step)
        out = GaussianSampler().perturb(np.full(2, v), scale, source)
        assert out[0] == (expected + 0.5) / 256 and source.left == b""
        assert exact_cell(v, scale, expected + 5, word, Words(second + step)) == expected


@pytest.mark.parametrize("d", [0, 1, CHUNK, CHUNK + 1, 2 * CHUNK + 7])
def test_pieces(d):
    v = np.linspace(-5.0, 5.0, d)
    out, again = GaussianSampler().perturb(v, 2.0, stream(7)), stream(7)
    pieces = [GaussianSampler().perturb(v[at : at + CHUNK], 2.0, again) for at in range(0, d, CHUNK)]
    np.testing.assert_array_equal(out, np.concatenate([np.empty(0), *pieces]))


@pytest.mark.parametrize("doubtful", [False, True])
def test_rows_have_the_bits_of_single_vectors(doubtful, monkeypatch):
    if doubtful:
        monkeypatch.setattr(gaussian_sampler, "MARGIN", 1.0)
    rng = np.random.default_rng(13)
    for n, d in ((7, 20),) if doubtful else ((700, 100), (3, CHUNK), (1, 1), (5, 0)):
        v, scales = rng.normal(size=(n, d)), rng.uniform(0.1, 3.0, n)
        together = GaussianSampler().perturb_rows(v, scales, [stream(i) for i in range(n)])
        for i in range(n):
            np.testing.assert_array_equal(together[i], GaussianSampler().perturb(v[i], scales[i], stream(i)))
    with pytest.raises(ValueError, match="rows"):
        GaussianSampler().perturb_rows(np.zeros((1, CHUNK + 1)), np.ones(1), [stream()])


def test_rows_continue_in_their_own_streams():
    c = Fraction(17, 256) - Fraction(1 / 3)
    bits = edge_bits(c, 128)
    for steps in ((-1, 1), (1, -1)):
        rows = [(bits >> 64, (bits & (2**64 - 1)) + step) for step in steps]
        streams = [Words(*row) for row in rows]
        together = GaussianSampler().perturb_rows(np.full((2, 1), 1 / 3), np.ones(2), streams)
        assert [s.left for s in streams] == [b"", b""]
        for i, row in enumerate(rows):
            assert together[i] == GaussianSampler().perturb(np.full(1, 1 / 3), 1.0, Words(*row))
        assert together[0] != together[1]


def test_a_row_among_many_continues_in_its_own_stream(monkeypatch):
    """Where only its coordinate is left over by the coarse proposal."""
    monkeypatch.setattr(gaussian_sampler, "_MANY", 1)
    bits = edge_bits(Fraction(17, 256) - Fraction(1 / 3), 128)
    word, second, sure = bits >> 64, bits & (2**64 - 1), 1 << 62
    for step, cell in ((-1, 16), (1, 17)):
        streams = [Words(sure, sure), Words(word, sure, second + step), Words(sure, sure)]
        out = GaussianSampler().perturb_rows(np.full((3, 2), 1 / 3), np.ones(3), streams)
        assert out[1, 0] == (cell + 0.5) / 256 and [s.left for s in streams] == [b""] * 3


@pytest.mark.parametrize("scale", [0.0, math.nan, 1e300])
def test_one_row_with_a_senseless_scale_is_refused(scale):
    with pytest.raises(ValueError, match="scale"):
        GaussianSampler().perturb_rows(np.zeros((2, 3)), np.array([1.0, scale]), [stream(0), stream(1)])


# --- the law ---------------------------------------------------------------------------------------------------------


def ks(noise: np.ndarray, scale: float) -> float:
    return float(stats.kstest(noise, stats.norm(scale=scale).cdf).pvalue)


@pytest.mark.parametrize("scale", [1e-200, 0.37, 2310.0, 1e280])
@pytest.mark.parametrize("center", [0.0, 1.003, -60_000.0])
def test_accepted_at_its_scale_and_rejected_off_it(scale, center):
    noise = GaussianSampler().perturb(np.full(100_000, center * scale), scale, stream(8)) / scale - center
    assert ks(noise, 1.0) > ACCEPT
    assert ks(noise, 0.7) < REJECT and ks(noise, 1.3) < REJECT
    assert np.var(noise) == pytest.approx(1.0, rel=0.02)
    assert ks(stats.norm.ppf(stats.laplace.cdf(noise)), 1.0) < REJECT, "another law"


def test_chi_square_over_cells():
    v, scale, n = 0.3, 1.0, 2_000_000
    out = GaussianSampler().perturb(np.full(n, v), scale, stream(9))
    j = np.floor(out * 256).astype(np.int64)
    counts = np.bincount(np.clip(j, -400, 400) + 400, minlength=801)[1:-1]
    expected = np.array([float(cell_probability(v, scale, at, 64)) for at in range(-399, 400)]) * n
    rest = [n - counts.sum(), n - expected.sum()]
    assert stats.chisquare([*counts, rest[0]], [*expected, rest[1]]).pvalue > ACCEPT
    shifted = np.concatenate((expected[8:], expected[-8:]))
    assert stats.chisquare([*counts, rest[0]], [*shifted, n - shifted.sum()]).pvalue < REJECT


def test_cell_probabilities_add_up():
    total = sum(cell_probability(1.0, 2.0, j) for j in range(-1500, 1500))
    assert abs(total - 1) < Fraction(1, 10**6)
    j = 100
    expected = stats.norm.cdf((j + 1) / 256 - 0.5) - stats.norm.cdf(j / 256 - 0.5)
    assert float(cell_probability(1.0, 2.0, j)) == pytest.approx(expected, rel=1e-9)


# --- odd values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tiny", [-0.0, 5e-324, -5e-324, 1e-310])
def test_zeros_and_subnormals_are_zero(tiny):
    a, b = (GaussianSampler().perturb(np.full(500, v), 1.0, stream(10)) for v in (tiny, 0.0))
    assert a.tobytes() == b.tobytes()


def test_outputs_lie_on_one_grid_whatever_the_value():
    for v in (0.0, 1.0, 1 / 3):
        out = GaussianSampler().perturb(np.full(10_000, v), 0.3, stream(11))
        j = np.floor(out / (0.3 / 256))
        np.testing.assert_array_equal(out, (j + 0.5) * (0.3 / 256))


def test_clipping_is_to_the_range_and_counted():
    sampler = GaussianSampler()
    edge = sampler.range(2.0)
    assert edge == 2.0 * 65_536
    out = sampler.perturb(np.array([edge, -edge, edge * 1.001, -1e300]), 2.0, stream(12))
    assert sampler.clipped == 2
    assert out.tolist() == GaussianSampler().perturb(np.array([edge, -edge, edge, -edge]), 2.0, stream(12)).tolist()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_no_numbers_are_refused(bad):
    with pytest.raises(ValueError, match="not finite"):
        GaussianSampler().perturb(np.array([0.0, bad]), 1.0, stream())


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 1e-300, 1e300])
def test_scales_that_would_release_nonsense_are_refused(scale):
    with pytest.raises(ValueError, match="scale"):
        GaussianSampler().perturb(np.zeros(3), scale, stream())


def test_nothing_is_left_over():
    assert GaussianSampler().lam(10**7, 0.1) == 0.0
