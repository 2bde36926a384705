"""How near recovered pictures are to true ones: PSNR, SSIM, and which recovered picture belongs to which true one."""

from __future__ import annotations

import math

import numpy as np

from dpgt_node.types import F64, I64

PSNR_MAX = 300.0
"""dB; equal pictures have this much, so that every figure is a finite number."""
_SIGMA, _RADIUS = 1.5, 5  # SSIM's window of 11 x 11 pixels (Wang et al. 2004)
_K1, _K2 = 0.01, 0.03


def psnr(true: F64, found: F64) -> float:
    """10 log10(1 / mean squared error), dB, for values whose range is 1; at most :data:`PSNR_MAX`.  Equal shapes."""
    return psnr_of(float(np.mean(np.square(found - true))))


def psnr_of(mse: float) -> float:
    """The same of a mean squared error."""
    return PSNR_MAX if mse <= 10.0 ** (-PSNR_MAX / 10.0) else -10.0 * math.log10(mse)


def ssim(true: F64, found: F64) -> float:
    """Mean structural similarity of pictures (height, width) or (channels, height, width) whose range is 1; 1: equal.

    Gaussian window (sigma 1.5, 11 x 11), population moments, mirrored at the borders.
    """
    from scipy.ndimage import gaussian_filter1d

    def local(values: F64) -> F64:
        for axis in (-1, -2):
            values = gaussian_filter1d(values, _SIGMA, axis=axis, radius=_RADIUS, mode="reflect")
        return values

    a, b = local(true), local(found)
    var_a, var_b = local(true * true) - a * a, local(found * found) - b * b
    covariance = local(true * found) - a * b
    c1, c2 = _K1**2, _K2**2
    ratio = (2.0 * a * b + c1) * (2.0 * covariance + c2) / ((a * a + b * b + c1) * (var_a + var_b + c2))
    return float(ratio.mean())


def matched(true: F64, found: F64) -> I64:
    """For every true sample the index of its own recovered one, (m,): least total squared error, each used once.

    ``true``, ``found``: (m, ...) of equal shape; a batch has no order that an adversary could know.
    """
    from scipy.optimize import linear_sum_assignment

    a, b = true.reshape(len(true), -1), found.reshape(len(found), -1)
    cost = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2.0 * (a @ b.T)
    return np.asarray(linear_sum_assignment(cost)[1], dtype=np.int64)
