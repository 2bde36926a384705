"""Gaussian differential privacy: the exact trade-off of one Gaussian release with shift/scale mu.

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)

With t = epsilon/mu - mu/2 this is [erfc(t/sqrt2) - e^{-t^2/2} erfcx((t + mu)/sqrt2)]/2, where nothing overflows.  It
holds for a whole transcript whose shifts are chosen adaptively and whose squares add up to at most mu^2 on every path:
pad with a dummy release up to exactly mu^2, then the log-likelihood ratio is N(+-mu^2/2, mu^2) (Smith and Thakurta
2022; Koskela et al. 2022); batches mix by convexity of delta.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from dpgt_node.privacy.accountants.rounding import U
from dpgt_node.types import F64

_SQRT2: Final = math.sqrt(2.0)
_SQRT_PI: Final = math.sqrt(math.pi)
_FRACTION_FROM: Final = 6.0
_TINY_T: Final = 37.0  # erfc(t/sqrt2) < 1e-298 from here on
_TINY: Final = 1e-290
_MARGIN: Final = 2.0**-42
_LARGEST_MU: Final = 2.0**24  # further up rounding hides delta


def gdp_delta(mu: float, epsilon: float) -> float:
    """delta(epsilon) of mu-GDP, an upper bound (relative error about 1e-14/mu); mu >= 0, epsilon >= 0."""
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    first, second, error = _halves(mu, epsilon)
    return min(1.0, max(first - second, 0.0) + error)


def gdp_epsilon(mu: float, delta: float, start: float | None = None) -> float:
    """An epsilon >= 0 with ``gdp_delta(mu, epsilon) <= delta``, above the least one by about 1e-12; 0 < delta < 1.

    ``start``: a guess (scaled from a slightly smaller mu).  Newton on ln delta, which is concave: every step after
    the first comes from the safe side.
    """
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    if math.isinf(mu):
        return math.inf
    goal = math.log(delta)
    epsilon = start if start else mu * mu / 2.0 + mu * math.sqrt(-2.0 * goal)
    for _ in range(60):
        first, second, _ = _halves(mu, epsilon)
        gap = first - second
        if gap <= _TINY:
            epsilon *= 0.9
            continue
        step = (math.log(gap) - goal) * gap / second if second > 0.0 else 0.0
        epsilon = max(epsilon + step, 0.0)
        if abs(step) <= _MARGIN * epsilon:
            break
    margin = _MARGIN
    while gdp_delta(mu, epsilon * (1.0 + margin)) > delta:
        margin *= 2.0
    return epsilon * (1.0 + margin)


def gdp_mu(epsilon: float, delta: float) -> float:
    """Largest mu found with ``gdp_delta(mu, epsilon) <= delta``, rounded down; epsilon >= 0, 0 < delta < 1."""
    low, high = 0.0, 1.0
    while gdp_delta(high, epsilon) <= delta:
        low, high = high, 2.0 * high
    while high - low > 2.0 * U * high:
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if gdp_delta(middle, epsilon) <= delta:
            low = middle
        else:
            high = middle
    return low


def gdp_mu_above(epsilon: float, delta: float) -> float:
    """A mu that no run has whose epsilon at ``delta`` is at most ``epsilon``; above the largest of them by a
    part of it that is about 1e-14/delta.

    Where ``epsilon`` is 0 that is the largest mu that costs nothing at ``delta``.  Infinite where no mu is excluded.
    """
    low, high = 0.0, 1.0
    while not _exceeds(high, epsilon, delta):
        low, high = high, 2.0 * high
        if high > _LARGEST_MU:
            return math.inf
    while high - low > 4.0 * U * high:
        middle = 0.5 * (low + high)
        if _exceeds(middle, epsilon, delta):
            high = middle
        else:
            low = middle
    return high


def _exceeds(mu: float, epsilon: float, delta: float) -> bool:
    """Whether delta(epsilon) of mu-GDP is proven to be above ``delta``."""
    first, second, error = _halves(mu, epsilon)
    return first - second - error > delta


def gdp(norms: F64, delta: float) -> F64:
    """Cumulative epsilon after every row; ``norms`` nondecreasing mu after every row (:func:`shift_norm`)."""
    out = np.empty(len(norms))
    seen = epsilon = 0.0
    for row, mu in enumerate(norms.tolist()):
        if mu > seen:
            # From far below, Newton's first step would lead nowhere: one release may cost more than all before it.
            guess = epsilon * mu / seen if seen and mu < 2.0 * seen else None
            seen, epsilon = mu, max(epsilon, gdp_epsilon(mu, delta, guess))
        out[row] = epsilon
    return out


def _halves(mu: float, epsilon: float) -> tuple[float, float, float]:
    """The two terms of delta and a bound of the error of their difference."""
    ratio = epsilon / mu
    t = ratio - 0.5 * mu
    if t > _TINY_T:
        return 0.0, 0.0, _TINY
    first = 0.5 * math.erfc(t / _SQRT2)
    second = 0.5 * math.exp(-0.5 * t * t) * _erfcx((t + mu) / _SQRT2)
    # t is off by 2u(ratio + mu/2), which moves either term by that times (|t| + 1) of itself; exp and erfc of
    # arguments up to 37 and 6 add some u t^2 and 80 u.
    relative = U * (100.0 + 4.0 * t * t + 8.0 * (abs(t) + 1.0) * (ratio + mu))
    return first, second, relative * (first + second)


def _erfcx(x: float) -> float:
    """e^{x^2} erfc(x), x >= 0."""
    if x < _FRACTION_FROM:
        return math.exp(x * x) * math.erfc(x)
    tail = x
    for n in range(40, 0, -1):
        tail = x + 0.5 * n / tail
    return 1.0 / (_SQRT_PI * tail)
