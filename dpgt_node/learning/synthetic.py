"""Labelled data of a given shape that are nobody's: what a plan is rehearsed on.

A Gaussian mixture of low-frequency coefficients, one component a class, seen through a soft threshold.  Square sample
sizes become images (bright shapes on black, values in [0, 1]), so that fixed image features make the same kind of
vectors of them as of real images; other sizes become curves.  The two numbers below were set so that softmax regression
learns them about as fast, in gradient-flow time and under noise, as it learns handwritten digits of 8x8 and 28x28.
"""

from __future__ import annotations

import math

import numpy as np

from dpgt_node.learning.datasets import Dataset
from dpgt_node.privacy.noise import F64

_FREQUENCIES = 7
_DEFORMATION = 1.3
"""Within-class spread over between-class spread."""
_CENTRE = 3.0
"""What all samples have in common, as images that fill the same part of the picture do."""
_QUANTILE = 0.75
"""This part of a picture is black."""
_FEW = 16


def synthetic(p: int, classes: int, train: int, test: int, seed: int = 0) -> Dataset:
    """``train`` + ``test`` samples of ``p`` numbers in [0, 1], labels 0..classes-1, equally likely.

    Equal arguments give equal data.
    """
    rng = np.random.default_rng(seed)
    basis, weights = _basis(p)
    centres = rng.standard_normal((classes, len(weights))) * weights
    total = train + test
    y = rng.integers(classes, size=total)
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
    parts = (x[:train], y[:train], x[train:], y[train:])
    for part in parts:
        part.setflags(write=False)
    return Dataset(*parts, classes)


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
