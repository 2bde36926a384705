"""Pictures of nobody's: one to three shaded boxes and ellipses on black that fill the frame, half mirrored.

What photographs of single things and drawn signs have in common, and all that is meant by it: an outline in the
middle, edges inside it that are weaker than the outline, black around.  "hog-shapes" is whitened by them
(``learning.features``).  The constants were chosen for that, among a few dozen, on training images of MNIST and
Fashion-MNIST, 12,000 to learn from and 10,000 others to score.
"""

from __future__ import annotations

import math

import numpy as np

from dpgt_node.types import F64

_PARTS = 3
_SIZES = (0.12, 0.6)
"""Half-sides of a part, log-uniform; places are uniform in [-0.5, 0.5]^2.  The whole is scaled to the frame."""
_TILT = 0.3
"""Standard deviation of the angle, in radians."""
_MIRRORED = 0.5
_FILLED = 0.96
"""The longer side of the whole, in sides of the frame."""
_GREYS, _SEAM = (0.4, 1.0), 0.3
"""Grey of a picture; how far each part's may be from it, as a part of it."""
_CLOUD, _STRIPED, _STRIPES, _WAVES = 0.25, 0.4, 0.2, 14
"""Shading: standard deviation of the strength of the 1/f cloud; share of striped pictures, strength of the stripes;
number of waves along each side of a cloud."""


def shapes(count: int, side: int, seed: int) -> F64:
    """(count, side * side) pictures, row-major, values in [0, 1].  Equal arguments give equal pictures."""
    rng = np.random.default_rng(seed)
    blocks = [_block(rng, min(256, count - start), side) for start in range(0, count, 256)]
    return np.concatenate(blocks).reshape(count, side * side)


def _block(rng: np.random.Generator, m: int, side: int) -> F64:
    there = np.arange(_PARTS) < rng.integers(1, _PARTS + 1, (m, 1))
    there = np.hstack([there, there & (rng.random((m, 1)) < _MIRRORED)])
    centre = rng.uniform(-0.5, 0.5, (m, _PARTS, 2))
    centre = np.hstack([centre, centre * (-1.0, 1.0)])
    half = _twice(np.exp(rng.uniform(math.log(_SIZES[0]), math.log(_SIZES[1]), (m, _PARTS, 2))))
    angle = _TILT * rng.standard_normal((m, _PARTS))
    angle = np.hstack([angle, -angle])
    roundness = _twice(rng.random((m, _PARTS)))
    grey = rng.uniform(*_GREYS, (m, 1)) * _twice(1.0 + _SEAM * rng.uniform(-1.0, 1.0, (m, _PARTS)))

    cos, sin = np.cos(angle), np.sin(angle)
    turn = np.abs(np.stack([np.stack([cos, sin], 2), np.stack([sin, cos], 2)], 2))
    reach = np.einsum("mpij,mpj->mpi", turn, half)
    low = np.where(there[:, :, None], centre - reach, np.inf).min(axis=1)
    high = np.where(there[:, :, None], centre + reach, -np.inf).max(axis=1)
    scale = (high - low).max(axis=1) / (2.0 * _FILLED)
    place = ((2.0 * np.arange(side) + 1.0) / side - 1.0) * scale[:, None]
    across, down = (0.5 * (low + high)[:, axis, None] + place for axis in (0, 1))

    picture = np.zeros((m, side, side))
    for part in range(2 * _PARTS):
        x, y = (across - centre[:, part, 0, None])[:, None, :], (down - centre[:, part, 1, None])[:, :, None]
        numbers = (cos, sin, half[:, :, 0], half[:, :, 1], grey, roundness, there)
        c, s, a, b, own_grey, ellipse, on = (values[:, part, None, None] for values in numbers)
        u, v = np.abs(c * x + s * y) / a, np.abs(c * y - s * x) / b
        inside = 1.0 - np.where(ellipse >= 0.5, np.sqrt(u * u + v * v), np.maximum(u, v))
        pixels = np.minimum(a, b) * side / (2.0 * scale[:, None, None])
        cover = on * np.clip(inside * pixels + 0.5, 0.0, 1.0)  # a pixel on the outline is covered in part
        picture += cover * (own_grey - picture)
    return np.clip(picture * _shading(rng, m, side), 0.0, 1.0)


def _twice(values: F64) -> F64:
    return np.hstack([values, values])


def _shading(rng: np.random.Generator, m: int, side: int) -> F64:
    """(m, side, side), around 1: a cloud, and in some pictures stripes: 1 to 8 periods, mostly upright or level."""
    place = (np.arange(side) + 0.5) / side
    order = np.arange(_WAVES)
    waves = np.cos(np.pi * np.outer(order, place))
    frequency = np.hypot.outer(order, order)
    frequency[0, 0] = np.inf
    cloud = np.einsum(
        "mij,iy,jx->myx", rng.standard_normal((m, _WAVES, _WAVES)) / frequency, waves, waves, optimize=True
    )
    cloud -= cloud.mean(axis=(1, 2), keepdims=True)
    cloud /= cloud.std(axis=(1, 2), keepdims=True)
    strength = _CLOUD * np.abs(rng.standard_normal((m, 1, 1)))
    angle = rng.uniform(0.0, math.pi, (m, 1, 1))
    angle = np.where(rng.random((m, 1, 1)) < 0.6, np.round(angle * 2.0 / math.pi) * math.pi / 2.0, angle)
    periods = np.exp(rng.uniform(0.0, math.log(8.0), (m, 1, 1)))
    phase = 2.0 * math.pi * (periods * (np.cos(angle) * place + np.sin(angle) * place[:, None]) + rng.random((m, 1, 1)))
    striped = rng.random((m, 1, 1)) < _STRIPED
    return np.asarray(1.0 + strength * cloud + striped * _STRIPES * math.sqrt(2.0) * np.cos(phase))
