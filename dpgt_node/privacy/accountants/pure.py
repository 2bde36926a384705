"""Pure epsilon: the paper's Lemmas 4 and 5, the corrected recursion, ``tight`` and ``amplified`` (privacy.md, 1-4).

Every curve is float64 (2(K+1),): row 2k after x̆_k, row 2k+1 after y̆_k, nondecreasing, rounded up.  Scales are Laplace
scales (K+1,); scale 0 is no noise and costs infinity wherever the shift is not 0.  ``left_x``, ``left_y`` (K+1,) are
what a release costs whatever the shift (the sampler's leftover and the rounding of the private state).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dpgt_node.privacy.accountants.kernels import Kernel
from dpgt_node.privacy.accountants.rounding import up
from dpgt_node.privacy.laws.law import Guarantee
from dpgt_node.types import F64
from dpgt_node.values import dataclass

_CARE = 1.0 + 2.0**-40  # covers erf, erfc, exp and tanh, a few units in the last place each
_LARGEST_EPSILON, _LEAST_MU = 600.0, 2.0**-500
_EXP_MAX = 500.0  # e^w is far from overflow below it, and 1 + q(e^w - 1) is not needed above it


@dataclass(frozen=True, slots=True, eq=False)
class Sensitivity:
    """L1 shifts: ``x[k]`` = ||dx_k||_1, ``y[k]`` = ||dy_k||_1, float64 (K+1,), k = 0..K."""

    x: F64
    y: F64


def amounts(epsilon: float, delta: float) -> Mapping[Guarantee, float]:
    """What pure ``epsilon`` is worth in the other currencies, rounded up; ``delta`` does not matter.

    Of all pairs with pure epsilon, randomised response is the easiest to tell apart.  Its Renyi divergence of order
    alpha is at most alpha epsilon tanh(epsilon/2).  Its trade-off lies above that of two Gaussians mu apart once
    Phi(-mu/2) <= 1/(1 + e^epsilon): a convex curve is below its chords.
    """
    mu = _gaussian_mu(epsilon)
    return {"epsilon": epsilon, "rho": up(epsilon * math.tanh(0.5 * epsilon), 16), "mu": up(mu * mu, 1)}


def _gaussian_mu(epsilon: float) -> float:
    """The least mu found with erf(mu/sqrt8) >= tanh(epsilon/2), by erfc where both are near 1."""
    if epsilon > _LARGEST_EPSILON:
        return math.inf

    def enough(mu: float) -> bool:
        x = mu / math.sqrt(8.0)
        if epsilon < 1.0:
            return math.erf(x) >= math.tanh(0.5 * epsilon) * _CARE
        return math.erfc(x) * _CARE <= 2.0 / (1.0 + math.exp(epsilon))

    low, high = 0.0, 2.0 + 2.0 * math.sqrt(2.0 * epsilon)
    while high - low > 2.0**-50 * high and high > _LEAST_MU:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def lemma4(*, a: float, b: float, gamma: float, m: int, C: float, K: int) -> Sensitivity:
    """Shifts of agent i's x_k and y_k when one of its samples is replaced, as the paper bounds them.

    ||dx_0|| = 0, ||dx_k|| = |1-a| ||dx_{k-1}|| + gamma ||dy_{k-1}||; ||dy_0|| = C/m, ||dy_k|| = |1-b| ||dy_{k-1}|| +
    2C/m (the lemma unrolled).  ``a`` = alpha r_i, ``b`` = beta c_i (self-loops counted, 0 legal), ``m`` >= 1 samples a
    gradient, ``C`` the L1 adjacency constant of Definition 3.
    """
    x, y = np.empty(K + 1), np.empty(K + 1)
    keep_x, keep_y, swap = abs(1.0 - a), abs(1.0 - b), 2.0 * C / m
    dx, dy = 0.0, C / m
    for k in range(K + 1):
        x[k], y[k] = dx, dy
        dx, dy = keep_x * dx + gamma * dy, keep_y * dy + swap
    return Sensitivity(x=x, y=y)


def lemma5(shifts: Sensitivity, sigma_x: F64, sigma_y: F64) -> F64:
    """Cumulative epsilon after every row, as the paper adds it up: sum of shift/scale."""
    return _cumulative(shifts, sigma_x, sigma_y, 6 * len(shifts.x))


def corrected_shifts(*, a: float, b: float, gamma: float, m: int, C: float, K: int) -> Sensitivity:
    """Shifts of ``paper`` under clipping with the term that Lemma 4 drops (docs/explanation/theory.md, section 5).

        sg_0 = C/m,  sg_k = C for k >= 1       sy_k = sh_k + sg_k
        sh_{k+1} = |1-b| sh_k + b sg_k         sx_{k+1} = |1-a| sx_k + gamma sy_k

    For k >= 1 all m gradients move with x_k, but no two means of clipped gradients differ by more than C.
    """
    x, y = np.empty(K + 1), np.empty(K + 1)
    sx = sh = 0.0
    for k in range(K + 1):
        sg = C if k else C / m
        x[k], y[k] = sx, sh + sg
        sx, sh = abs(1.0 - a) * sx + gamma * (sh + sg), abs(1.0 - b) * sh + b * sg
    return Sensitivity(x=x, y=y)


def corrected(shifts: Sensitivity, sigma_x: F64, sigma_y: F64, left_x: F64, left_y: F64) -> F64:
    """Cumulative epsilon of ``paper`` from :func:`corrected_shifts`."""
    return _cumulative(shifts, sigma_x, sigma_y, 16 * len(shifts.x), left_x, left_y)


def tight_shifts(kernel: Kernel, unit: float) -> Sensitivity:
    """||dx_k||_1 and ||dy_k||_1 when every sampled gradient may move by ``unit`` = C/m: attained when d >= K+1."""
    zero = np.zeros(1)
    return Sensitivity(
        x=unit * np.concatenate((zero, np.cumsum(kernel.abs_x))),
        y=unit * (1.0 + np.concatenate((zero, np.cumsum(kernel.abs_y)))),
    )


def tight(kernel: Kernel, unit: float, sigma_x: F64, sigma_y: F64, left_x: F64, left_y: F64) -> F64:
    """Cumulative ``tight``; a kernel without x terms charges its y rows alone."""
    return released(tight_shifts(kernel, unit), sigma_x, sigma_y, left_x, left_y)


def released(shifts: Sensitivity, sigma_x: F64, sigma_y: F64, left_x: F64, left_y: F64) -> F64:
    """Cumulative cost of the largest shifts with the transcript fixed."""
    return _cumulative(shifts, sigma_x, sigma_y, 4 * len(shifts.x) + 28, left_x, left_y)


def participation_weights(kernel: Kernel, unit: float, sigma_x: F64, sigma_y: F64, left_x: F64, left_y: F64) -> F64:
    """w_l, float64 (K+1,): what the sample's part in batch l alone costs over all releases k >= l of the run."""
    inverse_x, inverse_y = _inverse(sigma_x), _inverse(sigma_y)
    w = unit * (inverse_y + later_sums(kernel.abs_y, inverse_y) + later_sums(kernel.abs_x, inverse_x))
    w += np.cumsum(left_y[::-1])[::-1]
    # x̆_l itself holds nothing of batch l.
    if kernel.x.any():
        w[:-1] += np.cumsum(left_x[:0:-1])[::-1]
    w[np.isinf(sigma_y)] = 0.0  # no gradient was taken: there is no batch to swap
    return up(w, 4 * kernel.K + 32)


def amplified(w: F64, q: float | F64) -> F64:
    """sum over l <= k of ln(1 + q (e^{w_l} - 1)), (K+1,): batch l is paid for when it is drawn, for the whole run.

    ``q`` = m/D in (0, 1], or one a round, (K+1,).
    Pure epsilon (hybrid over the rounds; batches are independent).  The prefix up to round k is
    a function of the transcript of the whole run, so its cost is bounded by the terms l <= k with the full w_l.
    """
    small = np.minimum(w, _EXP_MAX)
    term = np.log1p(q * np.expm1(small))
    large = w > _EXP_MAX
    if large.any():
        term = np.where(large, w + np.log(q + (1.0 - q) * np.exp(-np.maximum(w, _EXP_MAX))), term)
    # expm1, log1p, exp, log: a few units in the last place each; log1p never enlarges a relative error.
    total: F64 = np.cumsum(term)
    return up(total, len(w) + 64)


def later_sums(weights: F64, values: F64) -> F64:
    """sum over n >= 0 of weights[n] values[l+1+n], for l = 0..K: float64 (K+1,).

    ``weights`` (K,), ``values`` (K+1,); O(K^2).  einsum, because numpy.dot starts threads for long vectors (on a busy
    machine 50 times slower) and numpy.correlate computes twice what is asked for.
    """
    K = len(weights)
    out = np.zeros(K + 1)
    if weights.any():
        for first in range(K):
            out[first] = np.einsum("i,i->", weights[: K - first], values[first + 1 :])
    return out


def _cumulative(
    shifts: Sensitivity,
    sigma_x: F64,
    sigma_y: F64,
    roundings: int,
    left_x: F64 | None = None,
    left_y: F64 | None = None,
) -> F64:
    rows = np.empty(2 * len(shifts.x))
    rows[0::2] = _per_scale(shifts.x, sigma_x, left_x)
    rows[1::2] = _per_scale(shifts.y, sigma_y, left_y)
    # Plain left-to-right partial sums, so that they are nondecreasing.
    total: F64 = np.cumsum(rows)
    return up(total, roundings + len(rows) + 8)


def _per_scale(shift: F64, sigma: F64, left: F64 | None) -> F64:
    cost = np.full(len(shift), math.inf)
    with np.errstate(over="ignore"):  # infinite is what such a cost is
        np.divide(shift, sigma, out=cost, where=sigma > 0.0)
    if left is not None:
        cost += left
    cost[shift == 0.0] = 0.0  # equal bits in both worlds: x̆_0, or a stream that is a function of the transcript
    return cost


def _inverse(sigma: F64) -> F64:
    inverse = np.full(len(sigma), math.inf)
    np.divide(1.0, sigma, out=inverse, where=sigma > 0.0)
    return inverse
