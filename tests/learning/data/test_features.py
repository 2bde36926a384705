from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgt_node.errors import ConfigError, ExitCode
from dpgt_node.learning.data import features
from dpgt_node.learning.data.datasets import Dataset
from dpgt_node.learning.data.features import HOG_SHIFT, size, transform
from dpgt_node.learning.data.shapes import shapes
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.learning.nets.models import SoftmaxOracle
from tests.oracles import features as dumb

KINDS = ("raw", "pool14", "hog", "hog-shapes", "edges")
NORMS = ("none", "l1", "l2")
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def images(count: int = 6, seed: int = 0) -> np.ndarray:
    """Smooth strokes on black, an upright bar, a level bar, one pixel in a corner, noise of both signs, and nothing."""
    rng = np.random.default_rng(seed)
    r, c = np.mgrid[:28, :28]
    found = [np.exp(-((r - a) ** 2 + (c - b) ** 2) / 30.0) * (r > 4) for a, b in rng.uniform(4, 24, (count, 2))]
    upright, level, corner = np.zeros((3, 28, 28))
    upright[3:25, 12:15] = level[0:3, :] = corner[27, 27] = 1.0
    found += [upright, level, corner, rng.standard_normal((28, 28)), np.zeros((28, 28))]
    return np.stack(found).reshape(len(found), -1)


@cache
def whitening() -> tuple[list[float], list[list[float]]]:
    """The windows of 3,000 pictures would take minutes one pixel at a time; a test below compares those of some."""
    return dumb.whitening(features._smooth_windows(shapes(3000, 28, seed=5)), power=0.35, ridge=0.1)


@cache
def plain(kind: str) -> list[list[float]]:
    """Features of ``images()``, not normalised."""
    maps = {
        "raw": lambda im: list(chain(*im)),
        "pool14": dumb.pool14,
        "hog": lambda im: dumb.hog(im, HOG_SHIFT),
        "hog-shapes": lambda im: dumb.hog_shapes(im, *whitening()),
        "edges": dumb.edges,
    }
    return [maps[kind](image) for image in images().reshape(-1, 28, 28).tolist()]


def by_hand(kind: str, normalise: str = "none") -> np.ndarray:
    return np.array([phi if normalise == "none" else dumb.unit(phi, int(normalise[1])) for phi in plain(kind)])


def test_sizes():
    assert [size(kind, 784, "d") for kind in KINDS] == [784, 196, 392, 392, 128]
    assert size("raw", 5, "d") == 5
    assert [transform(images(), kind, "none").shape[1] for kind in KINDS] == [784, 196, 392, 392, 128]


@pytest.mark.parametrize(("p", "seen"), [(64, "8 x 8 = 64"), (785, "have 785"), (1024, "32 x 32 = 1024")])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_other_shapes_are_refused(kind, p, seen):
    with pytest.raises(ConfigError, match=f"'{kind}' needs samples of 28 x 28 = 784 pixels; those of 'mine'") as caught:
        size(kind, p, "'mine'")
    assert seen in str(caught.value) and caught.value.exit_code is ExitCode.CONFIG
    assert [problem.key for problem in caught.value.problems] == ["data.features"]


# --- against one pixel at a time -----------------------------------------------------------------------------------


@pytest.mark.parametrize("normalise", NORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_against_one_pixel_at_a_time(kind, normalise):
    np.testing.assert_allclose(transform(images(), kind, normalise), by_hand(kind, normalise), rtol=0, atol=1e-13)


def hog_agrees(product: Callable[[np.ndarray], np.ndarray]) -> bool:
    return np.allclose(product(images()), by_hand("hog"), rtol=0, atol=1e-9)


def unsigned(rows):
    """Orientations half a turn apart fall into one bin."""
    return features.hog(np.abs(rows))


def transposed(rows):
    return features.hog(rows.reshape(-1, 28, 28).transpose(0, 2, 1).reshape(-1, 784))


def bins_first(rows):
    return features.hog(rows).reshape(-1, 49, 8).transpose(0, 2, 1).reshape(-1, 392)


def no_shift(rows):
    return features.l2_unit(features.hog(rows) + HOG_SHIFT)


def turned(rows):
    return np.roll(features.hog(rows).reshape(-1, 49, 8), 1, axis=2).reshape(-1, 392)


def wrong_windows(rows):
    return np.roll(features.hog(rows).reshape(-1, 7, 7, 8), 1, axis=1).reshape(-1, 392)


def test_the_comparison_notices_mutants():
    assert hog_agrees(features.hog)
    for mutant in (unsigned, transposed, bins_first, no_shift, turned, wrong_windows):
        assert not hog_agrees(mutant), mutant.__name__


@pytest.mark.parametrize(("old", "new"), [("EDGES_POWER", 1.0), ("_EDGES_CELL", features._cell_of_pixel(3, 6))])
def test_the_comparison_notices_mutants_of_edges(monkeypatch, old, new):
    monkeypatch.setattr(features, old, new)
    assert not np.allclose(features.edges(images()), by_hand("edges"), rtol=0, atol=1e-9)


def flat(rows):
    return features.l2_unit(features._smooth_windows(rows) - features._whitening()[0])


def not_centred(rows):
    return features.l2_unit(features._smooth_windows(rows) @ features._whitening()[1])


def whitened_twice(rows):
    matrix = features._whitening()[1]
    return features.l2_unit((features._smooth_windows(rows) - features._whitening()[0]) @ matrix @ matrix)


def boxes(rows):
    mean, matrix = features._whitening()
    return features.l2_unit((features._windows(rows) - mean) @ matrix)


def test_the_comparison_notices_mutants_of_hog_shapes():
    expected = by_hand("hog-shapes")
    assert np.allclose(features.hog_shapes(images()), expected, rtol=0, atol=1e-9)
    for mutant in (features.hog, flat, not_centred, whitened_twice, boxes):
        assert not np.allclose(mutant(images()), expected, rtol=0, atol=1e-3), mutant.__name__


def test_smooth_windows_of_drawn_shapes_against_one_pixel_at_a_time():
    drawn = shapes(3, 28, seed=1)
    expected = [dumb.smooth_windows(image) for image in drawn.reshape(-1, 28, 28).tolist()]
    np.testing.assert_allclose(features._smooth_windows(drawn), expected, rtol=0, atol=1e-13)


def test_shapes_are_whitened():
    """Of other shapes of the same kind the spread of the directions becomes more even, the mean nearly zero."""
    other = shapes(1000, 28, seed=6)
    before, after = (np.linalg.eigvalsh(np.cov(f(other).T)) for f in (features._smooth_windows, features.hog_shapes))
    assert after[-1] / after.sum() < 0.5 * before[-1] / before.sum()
    assert np.linalg.norm(features.hog_shapes(other).mean(axis=0)) < 0.3


def test_pixels_near_the_border_are_no_edges():
    x = np.zeros((2, 28, 28))
    x[0, 0, :] = x[0, :, 27] = x[1, 0, :] = 1.0
    x[1, 14, 14] = 1e-3
    found = features.edges(x.reshape(2, -1))
    assert not found[0].any() and np.abs(found[1]).sum() == pytest.approx(1.0)


def test_an_edge_by_hand():
    """Left half black, right half white: every gradient points to the right (bin 0), in columns 13 and 14, until the
    right border, where it points to the left (bin 4)."""
    x = np.zeros((1, 28, 28))
    x[:, :, 14:] = 1.0
    raw = (features.hog(x.reshape(1, -1)) * 100).reshape(7, 7, 8)
    inside = raw[3]  # no upper or lower border in this row of windows
    base = inside[0, 0]  # a window of the black part: only the shift
    seen = {(w, j) for w in range(7) for j in range(8) if inside[w, j] > base + 1e-9}
    # windows start at 0, 4, .. in padded columns; the edge is in padded columns 15 and 16, the border in 29 and 30
    assert seen == {(2, 0), (3, 0), (4, 0), (6, 4)}
    strengths = np.square(inside - base)  # before the root: one or two columns of the window
    assert strengths[3, 0] == pytest.approx(2 * strengths[2, 0]) == pytest.approx(2 * strengths[4, 0])


def test_angles_between_two_bins_are_shared_linearly():
    """A ramp of slope tan(18 degrees): 60 % in bin 0, 40 % in bin 1, in a window that sees no border."""
    r, c = np.mgrid[:28, :28]
    x = (c + math.tan(math.radians(18.0)) * r).reshape(1, -1)
    window = features.hog(x).reshape(7, 7, 8)[3, 3]
    strengths = np.square(window - window[2])
    np.testing.assert_allclose(strengths / strengths.sum(), [0.6, 0.4, 0, 0, 0, 0, 0, 0], atol=1e-12)


def test_nothing_at_all_has_features_too():
    blank = transform(np.zeros((1, 784)), "hog", "none")
    np.testing.assert_allclose(blank, -1.0 / math.sqrt(392), rtol=1e-14)
    assert (
        not transform(np.zeros((2, 784)), "pool14", "l1").any() and not transform(np.zeros((2, 5)), "raw", "l2").any()
    )


# --- data independence ---------------------------------------------------------------------------------------------


def is_rowwise(product: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Row i depends on row i alone, to the bit: whatever stands beside it, wherever it stands."""
    x, other = images(), 5.0 * images(seed=1)
    whole, alone = product(x), np.vstack([product(x[i : i + 1]) for i in range(len(x))])
    replaced = x.copy()
    replaced[1:] = other[1:]
    order = np.random.default_rng(0).permutation(len(x))
    return (
        np.array_equal(whole, alone)
        and np.array_equal(product(replaced)[0], whole[0])
        and np.array_equal(product(x[order]), whole[order])
    )


@pytest.mark.parametrize("normalise", NORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_row_depends_on_itself_alone(kind, normalise, monkeypatch):
    monkeypatch.setattr(features, "_ROWS", 4)  # across blocks, too
    assert is_rowwise(lambda x: transform(x, kind, normalise))


def test_a_fitted_map_is_noticed():
    assert not is_rowwise(lambda x: x - x.mean(axis=0))
    assert not is_rowwise(lambda x: features.l2_unit(x + np.abs(x).max()))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64, ">f8"])
@pytest.mark.parametrize("kind", KINDS)
def test_types_of_files(kind, dtype):
    x = np.abs(images() * 99).astype(dtype)
    found = transform(x, kind, "l1")
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, transform(x.astype(np.float64), kind, "l1"))


@pytest.mark.parametrize("kind", ["raw", "pool14", "hog"])
@pytest.mark.parametrize("normalise", ["none", "l2"])
def test_bytes_are_divided_a_block_at_a_time_to_the_same_bits(kind, normalise):
    stored = np.random.default_rng(3).integers(0, 256, (features._ROWS + 3, 784), dtype=np.uint8)
    assert transform(stored, kind, normalise, 255.0).tobytes() == transform(stored / 255.0, kind, normalise).tobytes()


def test_scale_does_not_matter_where_it_says_so():
    x = images()
    for factor in (2.0**-1000, 2.0**900):  # squares of these underflow and overflow
        for kind, normalise in (("hog", "none"), ("hog-shapes", "none"), ("pool14", "l2"), ("raw", "l1")):
            found, expected = transform(x * factor, kind, normalise), transform(x, kind, normalise)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)


# --- norms ---------------------------------------------------------------------------------------------------------


def hostile(kind: str, seed: int = 0) -> np.ndarray:
    """Rows that look for large norms: equal entries, one entry, extremes of the number range, mixed signs."""
    rng = np.random.default_rng(seed)
    p = 784
    tiny, huge = np.nextafter(0.0, 1.0), np.finfo(float).max
    rows = [np.ones(p), -np.ones(p), np.eye(p)[400], np.full(p, huge), np.full(p, -huge), np.full(p, tiny)]
    rows += [np.full(p, 1.5e-162), np.full(p, 2.3e-308), rng.choice([-huge, huge], p), rng.choice([tiny, huge], p)]
    rows += [10.0 ** rng.uniform(-300, 300, p), rng.standard_normal(p), rng.random(p) < 0.01]
    return np.array(rows, dtype=float)


def exact_norm(row: np.ndarray, order: int) -> float:
    peak = max(map(abs, row.tolist()))
    return peak * math.fsum(abs(v / peak) ** order for v in row.tolist()) ** (1.0 / order) if peak else 0.0


@pytest.mark.parametrize(("kind", "normalise"), [(kind, norm) for kind in KINDS for norm in ("l1", "l2")])
def test_hostile_rows_become_unit_vectors_too(kind, normalise):
    with np.errstate(all="raise", under="ignore"):
        found = transform(np.vstack([hostile(kind), images()]), kind, normalise)
    norms = [exact_norm(row, int(normalise[1])) for row in found]
    assert all(norm == 0.0 or norm == pytest.approx(1.0, rel=1e-12) for norm in norms)
    assert (norms[-1] == 0.0) == (not kind.startswith("hog"))  # the empty image, which they shift


@settings(deadline=None)
@given(st.lists(st.lists(FINITE, min_size=3, max_size=3), min_size=1, max_size=3), st.sampled_from(["l1", "l2"]))
def test_normalised_rows_are_unit_vectors(rows, normalise):
    x = np.array(rows)
    found = transform(x, "raw", normalise)
    for row, phi in zip(x, found, strict=True):
        assert exact_norm(phi, int(normalise[1])) == (pytest.approx(1.0, rel=1e-12) if row.any() else 0.0)
        peak = np.abs(row).argmax()
        assert math.copysign(1.0, phi[peak]) == math.copysign(1.0, row[peak])


@pytest.mark.parametrize("bias", [0.0, 0.2, 1.0])
@pytest.mark.parametrize(("normalise", "order"), [("l1", 1), ("l2", 2)])
def test_a_clip_of_the_documented_size_never_binds_on_unit_features(normalise, order, bias):
    phi, y = transform(images(40), "raw", normalise), np.arange(45) % 10
    data = Dataset(phi, y, phi[:0], y[:0], 10)
    largest = 2.0 * (1.0 + bias) if order == 1 else math.sqrt(2.0 * (1.0 + bias * bias))
    clips = (None, Clip(order, largest), Clip(order, 0.9 * largest))
    free, exact, small = (SoftmaxOracle(data, None, bias=bias, clip=clip) for clip in clips)
    x = 300.0 * np.random.default_rng(0).standard_normal(free.dimension)  # confident, and wrong nine times in ten
    g = [o.gradient(x, np.arange(45)) for o in (free, exact, small)]
    np.testing.assert_allclose(g[1], g[0], rtol=0, atol=3e-7)
    assert np.abs(g[2] - g[0]).max() > 1e-4
