"""Labelled data of a given shape that are nobody's: what a plan is rehearsed on.

Two kinds, both with values in [0, 1].  Square samples of 16 x 16 and more become *strokes*: every class has a smooth
pen stroke through a few random points, every sample moves the points, shears and shifts the stroke and draws it with a
pen of its own.  Other sizes become a *mixture*: Gaussian low-frequency coefficients, one component a class, seen
through a soft threshold (smaller square samples as pictures, the rest as curves).

Constants were set so that softmax regression learns them about as fast as handwritten digits: test accuracy at 4 times
of the gradient flow times 3 levels of steady noise, no noise included, L2-normalised raw pixels, "hog" and "edges",
mean of the 12 absolute differences.  Compared with nothing but TRAINING samples, each part for itself:

* mixture: scikit-learn's 8x8 digits, the 1,438 training samples, 5-fold cross-validation; 0.049.
  (1.3, 3, 0.75), as before, is the best of 8 choices of (deformation, centre, quantile); the next have 0.055, 0.066;
* strokes: the 60,000 training images of MNIST, split 50,000/10,000 by ``default_rng(123).permutation``: 1,500 of the
  one to learn from, 1,500 of the other to score; 0.045 raw, 0.041 "hog", 0.058 "edges" (the mixture: 0.130, 0.095,
  0.128), the best of 6 choices of (wobble, shear) for "hog", means of seeds 0 and 1.
"""

from __future__ import annotations

import math

import numpy as np

from dpgt_node.learning.data.datasets import Dataset
from dpgt_node.types import F64, I64

_FREQUENCIES = 7
_DEFORMATION = 1.3
"""Within-class spread over between-class spread."""
_CENTRE = 3.0
"""What all samples have in common, as images that fill the same part of the picture do."""
_QUANTILE = 0.75
"""This part of a picture is black."""
_FEW = 16

_INFORMATIVE, APART, _WITHIN, _OFF = 4, 1.2, 0.2, 0.7
"""Of :func:`table_like`: directions with classes in them, their spread and that within a class; means of columns."""

_STROKES_FROM = 16
_POINTS, _DOTS = 5, 24
_WOBBLE, _SHEAR, _SHIFT = 0.05, 0.15, 0.03
"""Standard deviations within a class: of the points and of the place, in sides of the picture; of the matrix."""
_PEN, _PEN_SPREAD, _BLUR = 0.045, 0.2, 0.45
"""Radius in sides, standard deviation of its logarithm; what the pixels add to it, in pixels."""


def calibrated_on(p: int) -> str:
    """The real data that the constants behind samples of ``p`` numbers were set on, in words: they were looked at."""
    return "MNIST's 60,000 training images" if _are_strokes(p) else "the 1,438 training samples of digits"


def table_like(
    p: int, classes: int, train: int, test: int, seed: int = 0, labels: I64 | None = None, *, apart: float = APART
) -> Dataset:
    """Rows of a made-up table with ``p`` columns in [-1, 1]: what stands in for tables that nobody here has looked at.

    Class centres are Gaussian in as many random directions as classes, 4 at least, where they differ by ``apart``
    standard deviations of what differs within a class; the other directions have no class in them.  Every column has a
    mean of its own, which all classes share, and the last class is twice as frequent as the first: as in tables, whose
    bounds nobody centred.  ``labels`` (train,): of the training rows instead.
    """
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((p, min(p, max(_INFORMATIVE, classes)))))[0].T
    centres = apart * rng.standard_normal((classes, len(basis))) @ basis
    shares = np.linspace(1.0, 2.0, classes)
    y = rng.choice(classes, size=train + test, p=shares / shares.sum()).astype(np.int64)
    if labels is not None:
        y[: len(labels)] = labels
    middle = rng.uniform(-_OFF, _OFF, p)
    x = np.clip(middle + _WITHIN * (centres[y] + rng.standard_normal((train + test, p))), -1.0, 1.0)
    parts = (x[:train], y[:train], x[train:], y[train:])
    for part in parts:
        part.setflags(write=False)
    return Dataset(*parts, classes)


def _are_strokes(p: int) -> bool:
    side = math.isqrt(p)
    return side * side == p and side >= _STROKES_FROM


def synthetic(p: int, classes: int, train: int, test: int, seed: int = 0, labels: I64 | None = None) -> Dataset:
    """``train`` + ``test`` samples of ``p`` numbers in [0, 1], labels 0..classes-1, equally likely.

    ``labels`` (train,): of the training samples instead.  Equal arguments give equal data; a seed has the same classes
    whatever the labels.
    """
    rng = np.random.default_rng(seed)
    x, y = (_strokes if _are_strokes(p) else _mixture)(rng, p, classes, train + test, labels)
    parts = (x[:train], y[:train], x[train:], y[train:])
    for part in parts:
        part.setflags(write=False)
    return Dataset(*parts, classes)


def _labels(rng: np.random.Generator, classes: int, total: int, first: I64 | None) -> I64:
    y = rng.integers(classes, size=total)
    if first is not None:
        y[: len(first)] = first
    return y


def _strokes(rng: np.random.Generator, p: int, classes: int, total: int, labels: I64 | None) -> tuple[F64, I64]:
    side = math.isqrt(p)
    prototypes = rng.uniform(0.22, 0.78, (classes, _POINTS, 2))
    y = _labels(rng, classes, total, labels)
    points = prototypes[y] + _WOBBLE * rng.standard_normal((total, _POINTS, 2))
    shear = np.eye(2) + _SHEAR * rng.standard_normal((total, 2, 2))
    points = (points - points.mean(axis=1, keepdims=True)) @ shear.transpose(0, 2, 1) + 0.5
    points += _SHIFT * rng.standard_normal((total, 1, 2))
    dots = _smooth(points)
    pen = _PEN * np.exp(_PEN_SPREAD * rng.standard_normal(total))
    radius = np.sqrt(pen**2 + (_BLUR / side) ** 2)[:, None, None]
    place = (np.arange(side) + 0.5) / side
    x = np.empty((total, p))
    for start in range(0, total, 256):
        rows = slice(start, start + 256)
        # A dot of the pen is a product of two bells.
        across, down = (np.exp(-0.5 * np.square((dots[rows, :, axis, None] - place) / radius[rows])) for axis in (0, 1))
        ink = np.einsum("ntv,ntu->nvu", down, across, optimize=True)
        x[rows] = np.minimum(1.0, 1.3 * ink).reshape(len(ink), -1)
    return x, y


def _smooth(points: F64) -> F64:
    """(m, _DOTS, 2): a Catmull-Rom curve through the points (m, _POINTS, 2)."""
    t = np.linspace(0.0, _POINTS - 1.0, _DOTS)
    first = np.minimum(t.astype(np.int64), _POINTS - 2)
    u = (t - first)[None, :, None]
    a, b, c, d = (points[:, np.clip(first + step, 0, _POINTS - 1)] for step in (-1, 0, 1, 2))
    curve: F64 = b + 0.5 * u * (c - a + u * (2.0 * a - 5.0 * b + 4.0 * c - d + u * (3.0 * (b - c) + d - a)))
    return curve


def _mixture(rng: np.random.Generator, p: int, classes: int, total: int, labels: I64 | None) -> tuple[F64, I64]:
    basis, weights = _basis(p)
    centres = rng.standard_normal((classes, len(weights))) * weights
    y = _labels(rng, classes, total, labels)
    coefficients = centres[y]
    coefficients[:, 0] += _CENTRE * weights[0]
    coefficients += _DEFORMATION * rng.standard_normal((total, len(weights))) * weights
    axis = 1 if p >= _FEW else None  # of a few numbers, some share above a level says nothing
    x = np.empty((total, p))
    for start in range(0, total, 1024):
        field = coefficients[start : start + 1024] @ basis
        level = np.quantile(field, _QUANTILE, axis=axis, keepdims=True)
        width = field.std(axis=axis, keepdims=True)
        x[start : start + 1024] = np.clip((field - level) / width + 0.5, 0.0, 1.0)
    return x, y


def _basis(p: int) -> tuple[F64, F64]:
    """Smooth functions (q, p) that vanish towards the border, and their weights (q,)."""
    side = math.isqrt(p)
    if side * side == p and side >= 4:
        one, order = _waves(side)
        basis = np.einsum("ui,vj->uvij", one, one).reshape(len(one) ** 2, p)
        frequency = np.add.outer(order**2, order**2).reshape(-1)
    else:
        basis, order = _waves(p)
        frequency = order**2
    return basis, 1.0 / np.sqrt(1.0 + frequency)


def _waves(length: int) -> tuple[F64, F64]:
    order = np.arange(1.0, min(_FREQUENCIES, length) + 1.0)
    place = (np.arange(length) + 0.5) / length
    return np.sin(np.pi * np.outer(order, place)), order
