from __future__ import annotations

import math
import sys
import tracemalloc
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpgt_node.algo.methods.dpgt import Steps
from dpgt_node.privacy.laws import compiled, grid, grid_sampler
from dpgt_node.privacy.laws.gaussian_sampler import GaussianSampler
from dpgt_node.privacy.laws.grid_sampler import CHUNK, GridLaplaceSampler, Scratch, kernel, read
from dpgt_node.privacy.laws.keystream import CtrStream
from dpgt_node.privacy.laws.noise import Sampler
from dpgt_node.privacy.laws.sampler import Ahead, LaplaceSampler
from tests.oracles import grid as oracle
from tests.states import Agent, step_x, step_y

ACCEPT, REJECT = 1e-3, 1e-9  # fixed seeds: a verdict never changes between runs


def stream(seed: int = 0) -> CtrStream:
    return CtrStream(seed.to_bytes(16, "big"), bytes(16))


class Recorded:
    """Given bytes first, then a stream; ``read_into`` is missing on purpose: only ``take`` is the interface."""

    def __init__(self, first: bytes, then: CtrStream | None = None) -> None:
        self._first, self._then, self.taken = first, then or stream(99), 0

    def take(self, nbytes: int) -> bytes:
        self.taken += nbytes
        piece, self._first = self._first[:nbytes], self._first[nbytes:]
        return piece + self._then.take(nbytes - len(piece))


def packed(long: list[int], short: list[int], further: list[int]) -> bytes:
    return b"".join(w.to_bytes(8, "little") for w in long) + b"".join(
        [w.to_bytes(4, "little") for w in short] + [w.to_bytes(8, "little") for w in further]
    )


def random_words(seed: int, n: int) -> tuple[list[int], list[int]]:
    bits = stream(seed).take(12 * n)
    return np.frombuffer(bits[: 8 * n], "<u8").tolist(), np.frombuffer(bits[8 * n :], "<u4").tolist()


# --- every bit -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 3e-7, 1e280, 1e-280])
def test_word_by_word(scale):
    n = 800
    long, short = random_words(1, n)
    v = np.random.default_rng(2).normal(size=n) * scale * np.geomspace(1e-12, 1e4, n)
    edges = np.cumsum([0, *grid.WEIGHTS])
    for at in range(64):  # the first and the last r of every lo
        long[2 * at] = int(edges[at]) << 40 | long[2 * at] & (2**40 - 1)
        long[2 * at + 1] = int(edges[at + 1] - 1) << 40 | (2**40 - 1)
    for at in range(31):  # every hi that fits, with either sign
        short[at] = (1 << at) | (at % 2) << 31
    further = [0, 0, 1 << 63, 5, 1 << 62]
    short[40], short[41], short[700] = 0, 1 << 31, 0
    out = GridLaplaceSampler().perturb(v, scale, Recorded(packed(long, short, further)))
    expected = [
        oracle.released(float(x), grid.KAPPA, scale, a, b, further, list(grid.WEIGHTS))
        for x, a, b in zip(v, long, short, strict=True)
    ]
    assert further == []
    assert out.tolist() == expected


@pytest.mark.parametrize("d", [0, 1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5])
def test_pieces(d):
    v = np.linspace(-5.0, 5.0, d)
    source = Recorded(b"", stream(3))
    out = GridLaplaceSampler().perturb(v, 2.0, source)
    assert source.taken == 12 * d
    one_by_one = GridLaplaceSampler()
    again = stream(3)
    pieces = [one_by_one.perturb(v[at : at + CHUNK], 2.0, again) for at in range(0, d, CHUNK)]
    np.testing.assert_array_equal(out, np.concatenate([np.empty(0), *pieces]))


def test_rows_have_the_bits_of_single_vectors():
    rng = np.random.default_rng(4)
    for n, d in ((700, 100), (3, CHUNK), (1, 1), (5, 0)):
        v, scales = rng.normal(size=(n, d)), rng.uniform(0.1, 3.0, n)
        together = GridLaplaceSampler().perturb_rows(v, scales, [stream(i) for i in range(n)])
        for i in range(n):
            np.testing.assert_array_equal(together[i], GridLaplaceSampler().perturb(v[i], scales[i], stream(i)))
    with pytest.raises(ValueError, match="rows"):
        GridLaplaceSampler().perturb_rows(np.zeros((1, CHUNK + 1)), np.ones(1), [stream()])


def test_rows_of_a_compiled_loop_have_the_same_bits(monkeypatch):
    monkeypatch.setattr("dpgt_node.privacy.laws.compiled.machine_code", lambda loop: loop)
    rng = np.random.default_rng(6)
    v, scales = rng.normal(size=(3, 300)), rng.uniform(0.1, 3.0, 3)
    v[1, 17] = 1e30  # left to numpy
    rows = [GridLaplaceSampler(one).perturb_rows(v, scales, [stream(i) for i in range(3)]) for one in (True, False)]
    np.testing.assert_array_equal(*rows)


def test_rows_that_share_a_stream_share_no_bytes():
    shared = Recorded(b"", stream(5))
    out = GridLaplaceSampler().perturb_rows(np.zeros((4, 30)), np.ones(4), [shared] * 4)
    assert shared.taken == 4 * 12 * 30
    assert all(np.count_nonzero(out[i] == out[j]) < 10 for i in range(4) for j in range(i))


@pytest.mark.parametrize("compiled", [False, True])
def test_rows_continue_in_their_own_streams(compiled, monkeypatch):
    monkeypatch.setattr("dpgt_node.privacy.laws.compiled.machine_code", lambda loop: loop)
    monkeypatch.setattr(grid_sampler, "_CALL", 1)
    rows = [packed([1, 2], [4, 0], [8]), packed([1, 2], [0, 0], [16, 32]), packed([1, 2], [1, 1], [])]
    rows.append(packed([1, 2], [0, 4], [64]))
    v = np.zeros((4, 2))
    with monkeypatch.context() as patched:
        patched.setattr(grid_sampler, "CHUNK", 4)  # two rows at a time
        together = GridLaplaceSampler(compiled).perturb_rows(v, np.ones(4), [Recorded(row) for row in rows])
    for i, row in enumerate(rows):
        np.testing.assert_array_equal(together[i], GridLaplaceSampler().perturb(v[i], 1.0, Recorded(row)))


def test_the_input_is_left_alone():
    v = np.arange(50.0)
    GridLaplaceSampler().perturb(v, 0.5, stream())
    assert v.tolist() == list(range(50)) and v.flags.writeable


def test_scratch_memory_is_small():
    v = np.zeros(1_000_000)
    sampler = GridLaplaceSampler(compiled=False)
    tracemalloc.start()
    try:
        out = sampler.perturb(v, 1.0, stream(8))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < out.nbytes + 4 * 2**20


# --- the compiled path, here in plain Python; test_compiled.py compiles it --------------------------------------------


def test_the_kernel_draws_the_same_bits():
    n = 6000
    v = np.random.default_rng(5).normal(size=n) * 100
    s = Scratch(n)
    a, b = read(stream(6), s)
    g, out = grid.cell(1.5), np.empty(n)
    assert kernel(v, g * 2.0**-40, g, a, b, grid.TABLES.direct, grid.TABLES.edges, out)
    np.testing.assert_array_equal(out, GridLaplaceSampler().perturb(v, 1.5, stream(6)))


@pytest.mark.parametrize(
    ("value", "short"), [(0.0, 0), (0.0, 1 << 31), (1e30, 1), (math.nan, 1), (math.inf, 1), (-1e30, 1)]
)
def test_the_kernel_leaves_the_rare_cases_to_numpy(value, short):
    a, b = np.zeros(2, dtype=np.int64), np.array([1, short], dtype=np.uint32).view(np.int32)
    g = grid.cell(1.0)
    tables = grid.TABLES
    assert not kernel(np.array([0.0, value]), g * 2.0**-40, g, a, b, tables.direct, tables.edges, np.empty(2))


def test_the_compiled_path_is_taken_chunk_by_chunk(monkeypatch):
    calls = []

    def counted(v: np.ndarray, *rest: object) -> bool:
        calls.append(v.size)
        return kernel(v, *rest)

    monkeypatch.setattr(compiled, "machine_code", lambda loop: counted)
    v = np.zeros(CHUNK + 10)
    v[CHUNK + 3] = 1e30  # the second piece must go back to numpy
    out = GridLaplaceSampler(compiled=True).perturb(v, 1.0, stream(7))
    np.testing.assert_array_equal(out, GridLaplaceSampler(compiled=False).perturb(v, 1.0, stream(7)))
    assert calls == [CHUNK, 10]


def test_without_numba(monkeypatch):
    monkeypatch.setattr(compiled, "machine_code", lambda loop: None)
    monkeypatch.setattr(compiled, "COMPILED_FROM", 10)
    for sampler in (GridLaplaceSampler, GaussianSampler):
        assert sampler().perturb(np.zeros(20), 1.0, stream()).size == 20
        with pytest.raises(ValueError, match=r"dpgt-node\[fast\]"):
            sampler(compiled=True).perturb(np.zeros(20), 1.0, stream())
    for numba in (None, ModuleType("numba")):
        monkeypatch.setitem(sys.modules, "numba", numba)
        assert compiled.compiles(10) == (numba is not None) and not compiled.compiles(9)
        assert compiled.worth_compiling(1 << 40) == (True if numba else None)


# --- the law ---------------------------------------------------------------------------------------------------------

REACH = 64 * 9


def cell_counts(draw: Callable[[int], np.ndarray], pieces: int, scale: float) -> np.ndarray:
    """How many outputs in every grid cell from -REACH to REACH, with everything beyond in the first and last."""
    counts = np.zeros(2 * REACH + 2, dtype=np.int64)
    for piece in range(pieces):
        j = np.floor(draw(piece) / grid.cell(scale))
        counts += np.bincount((np.clip(j, -REACH - 1, REACH) + REACH + 1).astype(np.int64), minlength=2 * REACH + 2)
    return counts


def law_chi_square(counts: np.ndarray, v: float, scale: float) -> float:
    law = grid.grid_laplace_pmf(v, scale)
    inside = np.array([float(law.probability(j)) for j in range(-REACH, REACH)])
    above = float(sum(law.probability(j) for j in range(REACH, REACH + 64 * 40)))
    expected = np.concatenate(([1 - inside.sum() - above], inside, [above])) * counts.sum()
    assert expected.min() > 30
    return float(stats.chisquare(counts, expected).pvalue)


def test_chi_square_over_ten_million_draws():
    sampler, source, scale, v = GridLaplaceSampler(), stream(10), 0.37, 0.004
    private = np.full(1_000_000, v)
    counts = cell_counts(lambda _: sampler.perturb(private, scale, source), 10, scale)
    assert law_chi_square(counts, v, scale) > ACCEPT
    assert law_chi_square(counts, v + grid.cell(scale), scale) < REJECT, "one cell off"


@pytest.mark.parametrize("factor", [0.7, 1.3, 0.99, 1.01])
def test_another_scale_is_rejected(factor):
    source = stream(11)
    counts = cell_counts(lambda _: GridLaplaceSampler().perturb(np.zeros(1_000_000), factor, source), 1, 1.0)
    # ``factor`` cells wide outputs fall into unit cells unevenly; blocks of 32 cells forgive that and not the scale.
    blocks = np.add.reduceat(counts[1:-1], np.arange(0, 2 * REACH, 32))
    law = grid.grid_laplace_pmf(0.0, 1.0)
    p = np.add.reduceat([float(law.probability(j)) for j in range(-REACH, REACH)], np.arange(0, 2 * REACH, 32))
    assert stats.chisquare(blocks, p / p.sum() * blocks.sum()).pvalue < REJECT


@pytest.mark.parametrize("scale", [1e-200, 0.1, 1.0, 2310.0, 1e280])
@pytest.mark.parametrize("center", [0.0, 1.0, -40_000.0])
def test_variance_and_mean_at_scale(scale, center):
    noise = GridLaplaceSampler().perturb(np.full(200_000, center * scale), scale, stream(12)) / scale - center
    assert np.var(noise) == pytest.approx(2 * 1.006**2, rel=0.02)
    assert abs(noise.mean()) < 5 * math.sqrt(2 / 200_000)


def test_coordinates_are_independent():
    noise = GridLaplaceSampler().perturb(np.zeros(200_000), 1.0, stream(13))
    cells = np.floor(8 * stats.laplace.cdf(noise / 1.006)).astype(int)
    for lag in (1, 2, CHUNK):
        table = np.zeros((8, 8))
        np.add.at(table, (cells[:-lag], cells[lag:]), 1)
        assert stats.chi2_contingency(table).pvalue > ACCEPT
    table = np.zeros((8, 8))
    np.add.at(table, (np.repeat(cells, 2)[:-1], np.repeat(cells, 2)[1:]), 1)
    assert stats.chi2_contingency(table).pvalue < REJECT


# --- low bits --------------------------------------------------------------------------------------------------------


def impossible_without_shift(out: np.ndarray) -> float:
    """Which part of the outputs float Laplace(1) noise alone cannot be: no j gives -ln(j 2^-53) to the last bit."""
    magnitude = np.abs(out)
    j = np.rint(np.exp(-magnitude) * 2.0**53)
    reached = np.zeros(out.size, dtype=bool)
    for step in range(-8, 9):
        reached |= -np.log(np.clip(j + step, 1, 2.0**53) * 2.0**-53) == magnitude
    return float(1 - reached.mean())


def test_the_low_bits_give_float_noise_away_and_not_grid_noise():
    def rates(sampler: LaplaceSampler | GridLaplaceSampler) -> tuple[list[float], list[int]]:
        outs = [sampler.perturb(np.full(200_000, v), 1.0, stream(14 + at)) for at, v in enumerate((0.0, 1.0))]
        # Above both values the two exact laws are the same exponential: whatever differs here is the arithmetic.
        outs = [out[(out > 2) & (out < 8)] for out in outs]
        return [impossible_without_shift(out) for out in outs], [out.size for out in outs]

    (at_zero, at_one), _ = rates(LaplaceSampler())
    assert at_zero == 0.0 and at_one > 0.7, "seven outputs in ten prove v = 1"
    (at_zero, at_one), (n, m) = rates(GridLaplaceSampler())
    assert abs(at_zero - at_one) < 4 * math.sqrt(0.25 / n + 0.25 / m)


def test_both_worlds_release_the_same_set_of_doubles():
    outs = [set(GridLaplaceSampler().perturb(np.full(300_000, v), 1.0, stream(20)).tolist()) for v in (0.0, 1.0)]
    common = [{x for x in out if abs(x) < 4} for out in outs]
    assert common[0] == common[1]
    floats = [set(LaplaceSampler().perturb(np.full(300_000, v), 1.0, stream(20)).tolist()) for v in (0.0, 1.0)]
    assert len(floats[0] & floats[1]) < 1000


# --- hostile and odd values ------------------------------------------------------------------------------------------


def test_hostile_magnitudes_do_not_touch_the_noise():
    """A neighbour's 1e16 goes into the transcript part; the noise covers the private part, to the bit."""
    params = Agent(Steps(0.1, 0.2, 0.3, 0.1, 0.2), ((1, 1.0),), ((1, 1.0),))
    rng = np.random.default_rng(21)
    px, p, g, g_next = rng.normal(size=(4, 100)) * 1e-3
    seen = []
    for size in (0.0, 1e16, -1e300):
        received = {1: np.full(100, size)}
        private_x, _ = step_x(params, px, np.zeros(100), p, np.zeros(100), received)
        private_y, t = step_y(params, p, np.zeros(100), received, g, g_next)
        out = [GridLaplaceSampler().perturb(v, 1e-3, stream(22)) for v in (private_x, private_y)]
        seen.append(np.concatenate(out).tolist())
        naive = GridLaplaceSampler()
        with np.errstate(over="ignore"):
            naive.perturb(private_y + t, 1e-3, stream(22))
        assert naive.clipped == (100 if size else 0), "noise on the whole vector would have to clip"
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("tiny", [-0.0, 5e-324, -5e-324, 1e-310, -1e-300])
def test_zeros_and_subnormals_are_zero(tiny):
    for scale in (1.0, 1e-280):
        a = GridLaplaceSampler().perturb(np.full(500, tiny), scale, stream(23))
        b = GridLaplaceSampler().perturb(np.zeros(500), scale, stream(23))
        assert a.tobytes() == b.tobytes()
        assert (a != 0).all() and np.isfinite(a).all()


def test_clipping_is_to_the_range_and_counted():
    sampler = GridLaplaceSampler()
    edge = sampler.range(2.0)
    v = np.array([0.0, edge, -edge, edge * 1.001, -1e18, 1e300, -1e308])
    out = sampler.perturb(v, 2.0, stream(24))
    assert sampler.clipped == 4
    limit = grid.LIMIT_CELLS * grid.cell(2.0)
    at_the_edge = np.array([0.0, limit, -limit, limit, -limit, limit, -limit])
    other = GridLaplaceSampler()
    np.testing.assert_allclose(out, other.perturb(at_the_edge, 2.0, stream(24)), atol=2 * grid.cell(2.0))
    assert other.clipped == 0


class Held(Recorded):
    """As a daemon's: noise is drawn ahead of the vectors."""

    def __init__(self, first: bytes, then: CtrStream | None = None) -> None:
        super().__init__(first, then)
        self.ahead: dict[Any, Ahead] = {}

    def held(self) -> dict[Any, Ahead]:
        return self.ahead


@pytest.mark.parametrize(
    ("sampler", "nbytes"), [(GridLaplaceSampler(compiled=False), 12), (GaussianSampler(compiled=False), 8)]
)
@pytest.mark.parametrize(("d", "vectors"), [(1, 128), (100, 128), (1024, 16)])
def test_a_daemon_draws_the_noise_of_many_short_vectors_at_once(
    d: int, vectors: int, sampler: Sampler, nbytes: int
) -> None:
    held = Held(b"", stream(24))
    for _ in range(vectors):
        sampler.perturb(np.zeros(d), 1.0, held)
        assert held.taken == vectors * nbytes * d
    sampler.perturb(np.zeros(d), 1.0, held)
    assert held.taken == 2 * vectors * nbytes * d


@pytest.mark.parametrize("sampler", [GridLaplaceSampler(compiled=False), GaussianSampler(compiled=False)])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_a_value_beyond_the_range_is_clipped_however_small_or_large_its_square(sampler: Sampler, scale: float) -> None:
    before = sampler.clipped
    noisy = sampler.perturb(np.array([scale * 1e30, 0.0]), scale, Held(b"", stream(24)))
    assert sampler.clipped == before + 1
    assert abs(noisy[0] / sampler.range(scale) - 1.0) < 0.01


@pytest.mark.parametrize("kind", [Recorded, Held])
@pytest.mark.parametrize("others", [0, 1, 99])
@pytest.mark.parametrize(
    ("share", "clipped"), [(0.4, 0), (0.6, 0), (0.999, 0), (1.001, 1), (1.2, 1), (1e9, 1), (-1.2, 1)]
)
def test_one_value_beyond_the_range_is_clipped_among_any_number(
    share: float, clipped: int, others: int, kind: type[Recorded]
) -> None:
    scale = 0.25
    for sampler in (GridLaplaceSampler(), GaussianSampler()):
        private = np.zeros(1 + others)
        private[others // 2] = share * sampler.range(scale)
        noisy = sampler.perturb(private, scale, kind(b"", stream(24)))
        assert sampler.clipped == clipped
        nearest = np.clip(private, -sampler.range(scale), sampler.range(scale))
        assert np.abs(noisy - nearest).max() < 100 * scale


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("d", [3, CHUNK + 3])
def test_values_that_are_no_numbers_are_refused(bad, d):
    v = np.zeros(d)
    v[-1] = bad
    for sampler in (GridLaplaceSampler(), GaussianSampler()):
        for given in (stream(), Held(b"", stream(24))):
            with pytest.raises(ValueError, match="not finite"):
                sampler.perturb(v, 1.0, given)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 1e-300, 1e300])
def test_scales_that_would_release_nonsense_are_refused(scale):
    for sampler in (GridLaplaceSampler(), GaussianSampler()):
        for given in (stream(), Held(b"", stream(24))):
            with pytest.raises(ValueError, match="scale"):
                sampler.perturb(np.zeros(3), scale, given)


def test_leftover_and_range_are_those_of_the_law():
    sampler = GridLaplaceSampler()
    assert sampler.lam(7, 0.5) == grid.lam(7, 0.5) and sampler.lam(7, 0.5, 2.0) == grid.lam(7, 0.5, 2.0)
    assert sampler.range(0.5) == grid.clip_range(0.5)
    assert LaplaceSampler().lam(7, 0.5) == math.inf == LaplaceSampler().range(0.5)
