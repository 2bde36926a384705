"""Fixed features of one sample at a time: they learn nothing from the data, so they cost no privacy.

Every map here is total (any finite row gives a finite row), looks at one row only and has no parameter that was
fitted to anybody's data ("hog-shapes" is fitted to pictures that the program draws).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.arrays import Reals
from dpgt_node.learning.data.frozen import frozen
from dpgt_node.learning.data.shapes import shapes
from dpgt_node.types import F64, I64

SIDE = 28
HOG_SHIFT = 0.04
"""A fixed number, never a mean of the data; near 1/sqrt(392), the entries of a unit vector of equal entries."""
EDGES_POWER = 1.5
_LAST = 0.25
"""Of "sphere", times sqrt(p): of 1/4 and 1/2 the better one on three small tables (results.md, "Init on tables")."""
_BINS = 8
_PADDED = SIDE + 4
_HOG_CELLS = 8  # of 4 x 4 pixels, along each side of the padded image
_WINDOWS = _HOG_CELLS - 1
_EDGES_CELLS, _EDGES_PIXELS = 4, 6  # cells of 6 x 6 pixels in the middle of it
_HOG_SIZE = _WINDOWS * _WINDOWS * _BINS
_FINE_CELLS = 16  # of 2 x 2 pixels
_TENT = (1.0, 3.0, 5.0, 5.0, 3.0, 1.0)
"""Weights of the cells along each side of a window of "hog-shapes": a tent, 12 pixels wide."""
_SIZES = {"pool14": SIDE * SIDE // 4, "hog": _HOG_SIZE, "hog-shapes": _HOG_SIZE, "edges": _EDGES_CELLS**2 * _BINS}
_STAND_INS = (3_000, SIDE, 5)
"""Pictures, side, seed: what "hog-shapes" is whitened by."""
_WHITENING, _RIDGE = 0.35, 0.1
"""Power of the inverse covariance; what is added to its eigenvalues, as a part of their mean."""
_ROWS = 512  # bounds the scratch memory, and keeps it in the cache


def size(features: str, p: int, what: str) -> int:
    """Number of features of samples with ``p`` numbers.  ConfigError when they are no 28 x 28 images."""
    if features == "raw":
        return p
    if ":" in features:
        return frozen(features, p).size
    if p != SIDE * SIDE:
        side = math.isqrt(p)
        seen = f"{side} x {side} = {p}" if side * side == p else f"{p}"
        message = f"'{features}' needs samples of {SIDE} x {SIDE} = {SIDE * SIDE} pixels; those of {what} have {seen}"
        raise ConfigError.one("run file", "data.features", message)
    return _SIZES[features]


def width(normalise: str, size: int) -> int:
    """Number of features after ``normalise``, of ``size`` before it."""
    return size + (normalise == "sphere")


def transform(x: Reals, features: str, normalise: str, divisor: float = 1.0) -> F64:
    """Rows (m, p), divided by ``divisor``, to float64 rows (m, size).

    ``features``: raw | pool14 | hog | hog-shapes | edges | module:function.

    ``pool14``: means over 2 x 2 pixels, row-major.  The others: see :func:`hog`, :func:`hog_shapes`, :func:`edges`.
    Then ``normalise``, none | l1 | l2 | sphere: each row divided by its norm, a zero row stays zero; see
    :func:`sphere`.  ``x`` is finite and has as many columns as :func:`size` asks for.  A row's bits do not depend on
    the other rows, nor on how many there are.
    """
    kind = frozen(features, x.shape[1]) if ":" in features else _FEATURES[features]
    norm = _NORMS[normalise]
    if kind is None and norm is None:
        return np.ascontiguousarray(x if divisor == 1.0 else x / np.float64(divisor), dtype=np.float64)
    out = np.empty((len(x), width(normalise, size(features, x.shape[1], "the data"))))
    for start in range(0, len(x), _ROWS):
        rows = np.ascontiguousarray(x[start : start + _ROWS], dtype=np.float64)  # whole, bytes would be 8 times
        rows = rows if divisor == 1.0 else rows / divisor
        rows = rows if kind is None else kind(rows)
        out[start : start + _ROWS] = rows if norm is None else norm(rows)
    return out


def l1_unit(rows: F64) -> F64:
    """Rows divided by their L1 norms; zero rows stay zero.  Any finite numbers."""
    rows = _peak_one(rows)
    return _divide(rows, np.abs(rows).sum(axis=1))


def l2_unit(rows: F64) -> F64:
    """Rows divided by their L2 norms; zero rows stay zero.  Any finite numbers."""
    rows = _peak_one(rows)
    return _divide(rows, np.sqrt(np.square(rows).sum(axis=1)))


def sphere(rows: F64) -> F64:
    """Rows (m, p) to unit L2 vectors (m, p + 1): a last number sqrt(p)/4 first.  Any finite numbers.

    A row of p numbers of size 1 then has a last number of about 1/4, a row of small ones nearly 1: rows that differ in
    size alone stay apart, which :func:`l2_unit` would make equal.
    """
    last = np.full((len(rows), 1), math.sqrt(rows.shape[1]) * _LAST)
    return l2_unit(np.hstack([rows, last]))


def _peak_one(rows: F64) -> F64:
    """Rows scaled to a largest magnitude of 1: what follows can neither overflow nor lose digits to underflow."""
    return _divide(rows, np.abs(rows).max(axis=1))


def _divide(rows: F64, norms: F64) -> F64:
    norms[norms == 0.0] = 1.0
    return np.asarray(rows / norms[:, None])


def pool14(rows: F64) -> F64:
    """(m, 784) to (m, 196): the means of 2 x 2 pixels."""
    quarters = 0.25 * rows.reshape(-1, SIDE, SIDE)  # before the sum, which could overflow
    pairs = quarters[:, 0::2] + quarters[:, 1::2]
    return (pairs[:, :, 0::2] + pairs[:, :, 1::2]).reshape(len(rows), -1)


def hog(rows: F64) -> F64:
    """(m, 784) to (m, 392), oriented gradients: 7 x 7 windows (row-major) of 8 bins, L2 norm 1 (privacy.md, section 8).

    Central differences on the image zero-padded by 2 (zeros beyond, too); the magnitude of each is split linearly
    between the two nearest of 8 signed orientations j pi/4; summed over windows of 8 x 8 pixels with stride 4; square
    root, divided by the L2 norm, minus ``HOG_SHIFT``, divided by the L2 norm.  Invariant to the scale of the image, so
    means instead of sums, or halved differences, would give the same.
    """
    return l2_unit(_windows(rows) - HOG_SHIFT)


def hog_shapes(rows: F64) -> F64:
    """(m, 784) to (m, 392): :func:`hog` with smooth windows, a mean and a covariance of its own taken out, L2 norm 1.

    u: the unit vectors of :func:`hog` before the shift, but from windows 12 pixels wide around the same places, whose
    cells of 2 x 2 pixels count the less the farther they are from the middle.  mu, C: mean and covariance of u over
    drawn shapes (``learning.shapes``), which are nobody's data.  (C + ridge)^(-0.35) (u - mu), divided by the L2 norm:
    what all pictures share, and what neighbouring windows tell twice, no longer fills the unit vector.
    """
    mean, matrix = _whitening()
    # A product of always the same shape: other rows, and how many there are, must not change the last bit of a row.
    block = np.zeros((-(-len(rows) // _ROWS) * _ROWS, _HOG_SIZE))
    block[: len(rows)] = _smooth_windows(rows) - mean
    return l2_unit(np.concatenate([part @ matrix for part in np.split(block, len(block) // _ROWS)])[: len(rows)])


@cache
def _whitening() -> tuple[F64, F64]:
    """mu (392,) and the symmetric matrix (392, 392); machines agree on them to rounding."""
    pictures = shapes(*_STAND_INS)
    found = np.concatenate([_smooth_windows(pictures[i : i + _ROWS]) for i in range(0, len(pictures), _ROWS)])
    mean: F64 = found.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(found.T))
    powers = (np.maximum(values, 0.0) + _RIDGE * values.mean()) ** -_WHITENING
    return mean, (vectors * powers) @ vectors.T


def _smooth_windows(rows: F64) -> F64:
    """The unit vectors of :func:`hog_shapes` before the whitening; zeros for an image without edges."""
    cells = _oriented(rows, _FINE_CELL, _FINE_CELLS**2).reshape(len(rows), _FINE_CELLS, _FINE_CELLS, _BINS)
    cells = np.pad(cells, ((0, 0), (1, 1), (1, 1), (0, 0)))
    for _ in range(2):  # down, then across
        taps = [w * cells[:, i : i + 2 * _WINDOWS - 1 : 2] for i, w in enumerate(_TENT)]
        cells = np.add.reduce(taps).swapaxes(1, 2)
    return l2_unit(np.sqrt(cells.reshape(len(rows), -1)))


def _windows(rows: F64) -> F64:
    """The unit vectors of :func:`hog` before the shift; zeros for an image without edges."""
    cells = _oriented(rows, _HOG_CELL, _HOG_CELLS**2).reshape(len(rows), _HOG_CELLS, _HOG_CELLS, _BINS)
    pairs = cells[:, :-1] + cells[:, 1:]  # a window is 2 x 2 cells
    windows = (pairs[:, :, :-1] + pairs[:, :, 1:]).reshape(len(rows), -1)
    return l2_unit(np.sqrt(windows))


def edges(rows: F64) -> F64:
    """(m, 784) to (m, 128), few and sparse oriented gradients: 4 x 4 cells (row-major) of 8 bins, L1 norm 1.

    The gradients of :func:`hog`, summed over cells of 6 x 6 pixels that fill the middle 24 x 24, to the power 1.5,
    divided by the L1 norm.  Laplace noise is as large in every coordinate as the L1 norm of a sample allows, so what
    matters is a large L2 norm for it: few numbers, most of them near zero.
    """
    return l1_unit(_oriented(rows, _EDGES_CELL, _EDGES_CELLS**2) ** EDGES_POWER)


def _oriented(rows: F64, cell_of_pixel: I64, count: int) -> F64:
    """Summed edge strength (m, count * 8) of the padded image; pixels of cell ``count`` are left out."""
    m = len(rows)
    image = np.zeros((m, _PADDED + 2, _PADDED + 2))
    image[:, 3:-3, 3:-3] = _peak_one(rows).reshape(m, SIDE, SIDE)
    across = (image[:, 1:-1, 2:] - image[:, 1:-1, :-2]).reshape(-1)
    down = (image[:, 2:, 1:-1] - image[:, :-2, 1:-1]).reshape(-1)
    found = np.flatnonzero((across != 0.0) | (down != 0.0))  # most pixels are flat
    across, down = across[found], down[found]
    strength, turn = np.sqrt(across * across + down * down), np.arctan2(down, across) * (_BINS / (2.0 * math.pi))
    low = np.floor(turn)
    upper_share = strength * (turn - low)
    low_bin = low.astype(np.int64)  # -4..4, and -4 is 4: modulo 8 below
    image_number, pixel = np.divmod(found, cell_of_pixel.size)
    first = (image_number * (count + 1) + cell_of_pixel[pixel]) * _BINS
    total = m * (count + 1) * _BINS
    cells = np.bincount(first + (low_bin & 7), strength - upper_share, total)
    cells += np.bincount(first + ((low_bin + 1) & 7), upper_share, total)
    return np.ascontiguousarray(cells.reshape(m, count + 1, _BINS)[:, :count].reshape(m, -1))


def _cell_of_pixel(margin: int, pixels: int) -> I64:
    """Cell of every pixel of the padded image, row-major; those within ``margin`` of its border belong to none."""
    side = (_PADDED - 2 * margin) // pixels
    place = np.arange(_PADDED)
    line = (place - margin) // pixels
    inside = (place >= margin) & (place < _PADDED - margin)
    cell = np.add.outer(line * side, line)
    return np.where(np.logical_and.outer(inside, inside), cell, side * side).reshape(-1)


_HOG_CELL = _cell_of_pixel(0, _PADDED // _HOG_CELLS)
_FINE_CELL = _cell_of_pixel(0, _PADDED // _FINE_CELLS)
_EDGES_CELL = _cell_of_pixel((_PADDED - _EDGES_CELLS * _EDGES_PIXELS) // 2, _EDGES_PIXELS)
_FEATURES: dict[str, Callable[[F64], F64] | None] = {
    "raw": None,
    "pool14": pool14,
    "hog": hog,
    "hog-shapes": hog_shapes,
    "edges": edges,
}
_NORMS: dict[str, Callable[[F64], F64] | None] = {"none": None, "l1": l1_unit, "l2": l2_unit, "sphere": sphere}
