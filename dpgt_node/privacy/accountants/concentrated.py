"""Zero-concentrated DP: what the L2 shifts of all releases add up to, and what that means as (epsilon, delta).

A coordinate's shift t under Laplace noise of scale s is (t/s)-DP, hence (t/s)^2/2-zCDP (Bun and Steinke 2016, 1.4);
under Gaussian noise of standard deviation s it is (t/s)^2/2-zCDP as well.  Coordinates and rounds add, so with
M = A' S^-2 A, A = [cx; cy] (kernels), and ||dg_l||_2 <= C2/m,

    rho <= (1/2) (C2/m)^2 min( sum |M[l,l']|, (K+1) lambda_max(M), tr(D) lambda_max(D^-1/2 M D^-1/2) ),   D = diag(M)

Each is the trace of a diagonal matrix that is at least M: that of the row sums of |M|, lambda_max I, and lambda D.  The
last follows noise whose scale changes over the rounds, and is usually within 1 % of the worst case.

The shifts of a round may depend on the transcript; their squares add up to at most the bound on every path, which is
what adaptive composition asks for (Feldman and Zrnic 2021).

The prefix up to round k: its own Gram matrix is at most M restricted to l <= k (later rows only add), and each of the
three diagonal matrices is at least M.  So sum_{l<=k} of any of them bounds it, without computing a matrix a round: the
square of ``shift[k]``, nondecreasing, and exactly the bound above at k = K.  No absolute size is squared, so that no
scale or clip that a run file may have makes a cost 0 by underflow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpgt_node.privacy.accountants.kernels import Kernel
from dpgt_node.privacy.accountants.pure import later_sums
from dpgt_node.privacy.accountants.rounding import gamma, least_proven, never_zero, up
from dpgt_node.types import F64

_SHIFT = 2.0**-44
"""Covers 5 x (formation + factorisation) <= 5 x 40 u of a pentadiagonal matrix, see :func:`largest_eigenvalue`."""
_BISECTIONS = 40
_TINY = 1e-200
"""Of the largest 1/scale^2: below it products would lose digits to underflow, and the certificate its proof."""
_LEAST_RHO = 2.0**-1000
_LEAST_RATIO = 1e-150
"""Ratios are squared; one that is smaller counts as this."""


def shift(kernel: Kernel, sigma_x: F64, sigma_y: F64) -> F64:
    """Upper bounds of sqrt(sum of ||shift_k||^2/scale_k^2) per unit of C2/m, after each round, float64 (K+1,)."""
    K = kernel.K
    if not (sigma_y > 0.0).all() or (kernel.x.any() and not (sigma_x[1:] > 0.0).all()):
        return np.full(K + 1, math.inf)
    noised = np.concatenate((sigma_y, sigma_x[1:])) if kernel.x.any() else sigma_y
    least = float(noised.min())
    inverse_y = np.square(np.maximum(least / sigma_y, _LEAST_RATIO))
    inverse_x = np.zeros(K + 1)
    if kernel.x.any():
        inverse_x[1:] = np.square(np.maximum(least / sigma_x[1:], _LEAST_RATIO))  # x̆_0 holds no gradient
    rows, diagonal = gram_rows(kernel, inverse_x, inverse_y)
    total = np.cumsum(rows)
    bounds = (np.ones(K + 1), diagonal) if kernel.x.any() or kernel.y.any() else (np.ones(K + 1),)
    for weights in bounds:
        if not (weights > _TINY).all():
            continue
        low, trace = float((diagonal / weights).max()), np.cumsum(weights)
        # lambda_max is at least the largest diagonal entry: below this line it cannot win.
        if low * trace[-1] < total[-1]:
            high = float((rows / weights).max())  # rounding up left room for one division
            largest = largest_eigenvalue(kernel, inverse_x, inverse_y, weights, low, high)
            total = np.minimum(total, largest * trace)
    with np.errstate(over="ignore"):
        return up(np.sqrt(total) / least, K + 16)


def gram_rows(kernel: Kernel, inverse_x: F64, inverse_y: F64) -> tuple[F64, F64]:
    """Row sums of |M| (upper bounds) and M's diagonal, float64 (K+1,) each.  ``inverse``: 1/scale^2 a round.  O(K^2).

    Batch l' leaves the state e = (-gamma, -b) of (dx, dy) at round l'+1; from there the state obeys T.  With
    W_j = sum_{k>=j} (T^{k-j})' S_k^-2 T^{k-j}: M[l,l'] = cx_n h1 + cy_n h2, n = l'-1-l, h = (0, 1/sigma_y^2) + T'W e.
    """
    K = kernel.K
    h1, h2, diagonal = _responses(kernel.keep_a, kernel.keep_b, kernel.gamma, -1.0, inverse_x, inverse_y)
    a1, a2, _ = _responses(kernel.keep_a, kernel.keep_b, kernel.gamma, 1.0, inverse_x, inverse_y)
    rows = diagonal.copy()
    if kernel.x.any():
        x, y = kernel.x[::-1].copy(), kernel.y[::-1].copy()
        for j in range(1, K + 1):
            entries = h1[j] * x[K - j :] + h2[j] * y[K - j :]
            np.abs(entries, out=entries)
            rows[:j] += entries
            rows[j] += entries.sum()
    elif kernel.y.any():
        _add_products(rows, np.abs(kernel.y), np.abs(h2))
    # What rounding may have taken from the absolute values: both kernels and h have about 5 K roundings a path.
    lost = np.zeros(K + 1)
    _add_products(lost, kernel.size_x, a1)
    _add_products(lost, kernel.abs_y, a2)
    return up(rows + gamma(12 * K + 64) * lost, 12 * K + 64), diagonal


def largest_eigenvalue(kernel: Kernel, inverse_x: F64, inverse_y: F64, weights: F64, low: float, high: float) -> float:
    """A proven lambda with M <= lambda diag(``weights``), between ``low`` (not proven) and ``high`` (proven).

    O(K) a trial; ``weights`` (K+1,), positive.  With N the shift by one round, dg = B v,
    B = (I - (1-a)N)(I - (1-b)N), gives dy = (I-N)(I-(1-a)N) v and dx = -gamma N(I-N) v: so M <= lambda W exactly when
    the pentadiagonal P = lambda B'WB - dy'S^-2 dy - dx'S^-2 dx is positive semidefinite.  P is tested with its diagonal
    lowered by 2^-44 (lambda B'WB + ...): entries are formed with at most 20 roundings, and |E_ij| <= eps sqrt(d_i d_j)
    in five diagonals is at most 5 eps diag(d); a band factorisation that ends with positive pivots is exact for a
    matrix within the same kind of distance.  So a pass is a proof; where a and b are small, B'WB is nearly singular and
    the bound found is larger by about 2^-44 cond(B'WB).
    """
    bands = _pencil(kernel, inverse_x, inverse_y, weights)
    if not _positive(bands, high):
        return high
    return least_proven(lambda value: _positive(bands, value), low, high, _BISECTIONS)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """epsilon of (epsilon, delta)-DP from rho-zCDP: rho + 2 sqrt(rho ln(1/delta)), rounded up; 0 < delta < 1."""
    return up(rho + 2.0 * math.sqrt(rho) * math.sqrt(-math.log(delta)), 16)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The largest rho of which :func:`zcdp_epsilon` may have made ``epsilon``, rounded up; 0 < delta <= 1.

    It undoes that formula and no other: one that is tighter would need rows that say so.
    """
    if math.isinf(epsilon):
        return math.inf
    log = abs(math.log(delta))
    part = epsilon / (math.sqrt(log + epsilon) + math.sqrt(log)) if epsilon else 0.0
    return max(up(part * part, 32), _LEAST_RHO)


def shift_norm(curve: F64, unit: float, leftover: F64) -> F64:
    """sqrt of the sum of ||shift||^2/scale^2 after every row, (2(K+1),): Minkowski over the shifts and what is left.

    ``curve`` (K+1,) from :func:`shift`; ``unit`` = C2/m; ``leftover`` (2(K+1),): norm of the additional shift of every
    row, in scales.  Row 2k (x̆_k) holds the batches before k only.
    """
    per_row = np.repeat(curve, 2)
    per_row[2::2] = curve[:-1]
    per_row[0] = 0.0
    largest = float(leftover.max()) or 1.0
    part = np.where(leftover > 0.0, np.maximum(leftover / largest, _LEAST_RATIO), 0.0)
    with np.errstate(over="ignore"):
        total = up(unit * per_row + largest * np.sqrt(np.cumsum(np.square(part))), len(leftover) + 16)
    return never_zero(total, after=1)


def zcdp(norms: F64, delta: float) -> F64:
    """Cumulative (epsilon, delta)-DP epsilon after every row, from :func:`shift_norm`: with rho = norm^2/2."""
    with np.errstate(over="ignore"):
        return up(norms * (0.5 * norms + math.sqrt(-2.0 * math.log(delta))), 16)


def _add_products(rows: F64, weights: F64, size: F64) -> None:
    """Row sums of the symmetric matrix with entries weights[l'-1-l] size[l'], l < l', added to ``rows``."""
    if weights.any():
        rows += later_sums(weights, size)
        rows[1:] += np.cumsum(weights) * size[1:]


def _responses(keep_a: float, keep_b: float, gamma_K: float, sign: float, ix: F64, iy: F64) -> tuple[F64, F64, F64]:
    """h (two arrays) and the diagonal of M; ``sign`` +1: the same with absolute values, for error bounds."""
    K = len(ix) - 1
    b = 1.0 - keep_b
    e1, e2 = sign * gamma_K, sign * b
    h1, h2, diagonal = np.empty(K + 1), np.empty(K + 1), np.empty(K + 1)
    w11 = w12 = w22 = 0.0
    cross = sign * gamma_K  # T = [[keep_a, cross], [0, keep_b]]
    for j in range(K, -1, -1):
        f1, f2 = w11 * e1 + w12 * e2, w12 * e1 + w22 * e2  # W_{j+1} e
        h1[j] = keep_a * f1
        h2[j] = iy[j] + cross * f1 + keep_b * f2
        diagonal[j] = iy[j] + e1 * f1 + e2 * f2
        w11, w12, w22 = (
            ix[j] + keep_a * keep_a * w11,
            keep_a * (cross * w11 + keep_b * w12),
            iy[j] + cross * cross * w11 + 2.0 * cross * keep_b * w12 + keep_b * keep_b * w22,
        )
    return h1, h2, diagonal


_Bands = tuple[F64, F64, F64, F64, F64, F64]


def _pencil(kernel: Kernel, inverse_x: F64, inverse_y: F64, weights: F64) -> _Bands:
    """Diagonal, first and second off-diagonal of B'WB, then those of dy'S^-2 dy + dx'S^-2 dx."""
    a, b = kernel.keep_a, kernel.keep_b
    B = _gram_bands((1.0, -(a + b), a * b), weights)
    Y = _gram_bands((1.0, -(1.0 + a), a), inverse_y)
    X = _gram_bands((0.0, -kernel.gamma, kernel.gamma), inverse_x)
    return (*B, Y[0] + X[0], Y[1] + X[1], Y[2] + X[2])


def _gram_bands(lags: tuple[float, float, float], weight: F64) -> tuple[F64, F64, F64]:
    """Bands of F'diag(weight)F where F[j+i, j] = lags[i]."""
    n = len(weight)
    w = np.concatenate((weight, np.zeros(2)))
    one, two = w[1 : n + 1], w[2 : n + 2]
    c0, c1, c2 = lags
    return (
        c0 * c0 * weight + c1 * c1 * one + c2 * c2 * two,
        (c0 * c1 * one + c1 * c2 * two)[: n - 1],
        (c0 * c2 * two)[: max(n - 2, 0)],
    )


def _positive(bands: _Bands, value: float) -> bool:
    """Whether the lowered pencil at ``value`` factors with positive pivots."""
    b0, b1, b2, q0, q1, q2 = bands
    diagonal: Sequence[float] = (value * b0 - q0 - _SHIFT * (value * b0 + q0)).tolist()
    first: Sequence[float] = [0.0, *(value * b1 - q1).tolist()]
    second: Sequence[float] = [0.0, 0.0, *(value * b2 - q2).tolist()][: len(diagonal)]
    before, last = 1.0, 1.0  # pivots of rows j-2 and j-1
    l1_last = 0.0
    for d, f, s in zip(diagonal, first, second, strict=True):
        l2 = s / before
        l1 = (f - s * l1_last) / last
        pivot = d - s * l2 - l1 * l1 * last
        if not pivot > 0.0:
            return False
        before, last, l1_last = last, pivot, l1
    return True
