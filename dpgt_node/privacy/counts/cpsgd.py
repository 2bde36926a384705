"""Binomial noise: one release by Theorem 1 of cpSGD (Agarwal et al. 2018), many by optimal composition.

One release.  Two vectors of integers that differ by D1, D2 and Dinf in L1, L2 and the largest coordinate, plus
Bin(N, 1/2) a coordinate, are (epsilon, delta)-indistinguishable with v = N/4, provided that
v >= max(23 ln(10 d/delta), 2 Dinf):

    epsilon =  D2 sqrt(2 ln(1.25/delta))/sqrt(v)  +  (D2 c sqrt(ln(10/delta)) + D1 b)/(v (1 - delta/10))
             + ((2/3) Dinf ln(1.25/delta) + Dinf e ln(20 d/delta) ln(10/delta))/v,    b = 1/3, c = 7 sqrt(2)/4, e = 2/3

What the integers differ by.  Gradients differ by w = dg/q, and stochastic rounding with one uniform number in both
worlds turns w into integers: each is floor|w| or one more, the latter with probability f = |w| - floor|w|.  With B = 1
where it is one more, D1 = ||w||_1 + sum (B - f) and D2 <= ||w||_2 + sqrt(sum (B - f)^2).  Both sums have
variance at most F = min(||w||_1, d/4), so by Bernstein's inequality each of

    D1 <= ||w||_1 + s,   D2 <= ||w||_2 + sqrt(F + s),   s = sqrt(2 F L) + 2L/3

fails with probability at most e^-L; that is added to delta.  Dinf <= floor(max|w|) + 1.  The uniform number may be
known.

Many releases.  Kairouz, Oh, Viswanath 2015: K releases of (epsilon, delta_0) each are, for every i <= K/2,

    ((K - 2i) epsilon, 1 - (1 - delta_0)^K (1 - delta_i))-private,
    delta_i = sum_{l < i} C(K, l) (e^{(K-l) epsilon} - e^{(K-2i+l) epsilon})/(1 + e^epsilon)^K

which nothing beats; releases that differ are composed by their Theorem 3.5.
"""

from __future__ import annotations

import math

import numpy as np

from dpgt_node.types import F64

_B, _C, _E = 1.0 / 3.0, 1.75 * math.sqrt(2.0), 2.0 / 3.0
"""b_p, c_p and d_p of the theorem at p = 1/2."""
_EXACT = 4096
"""So many releases at most are composed by the optimal rule; it costs a sum over all of them."""


def epsilon_of(d: int, delta: float, D1: float, D2: float, Dinf: float, trials: int) -> float:
    """Epsilon of one release by Theorem 1, shifts in integers; inf where its condition fails."""
    v = 0.25 * trials
    if v < least_variance(d, delta, Dinf):
        return math.inf
    ten, more = math.log(10.0 / delta), math.log(1.25 / delta)
    first = D2 * math.sqrt(2.0 * more) / math.sqrt(v)
    second = (D2 * _C * math.sqrt(ten) + D1 * _B) / (v * (1.0 - delta / 10.0))
    third = (2.0 / 3.0 * Dinf * more + Dinf * _E * math.log(20.0 * d / delta) * ten) / v
    return first + second + third


def least_variance(d: int, delta: float, Dinf: float) -> float:
    """What N/4 must be at least."""
    return max(23.0 * math.log(10.0 * d / delta), 2.0 * Dinf)


def rounded(d: int, w1: float, w2: float, failing: float) -> tuple[float, float, float]:
    """(D1, D2, Dinf) of integers whose numbers differ by ``w1`` in L1 and ``w2`` in L2.

    It fails with probability ``failing`` at most.
    """
    L, F = math.log(2.0 / failing), min(w1, 0.25 * d)
    s = math.sqrt(2.0 * F * L) + 2.0 * L / 3.0
    return min(w1 + s, w1 + d), w2 + math.sqrt(min(F + s, float(d))), math.floor(min(w1, w2)) + 1.0


def composed(epsilons: F64, slack: float) -> F64:
    """Epsilon after every release, (R,), where ``slack`` is left of delta beside those of the releases."""
    curve = _heterogeneous(epsilons, slack)
    if len(epsilons) <= _EXACT and 0.0 < epsilons[0] < math.inf and (epsilons == epsilons[0]).all():
        best = np.array([optimal(float(epsilons[0]), count, slack) for count in range(1, len(epsilons) + 1)])
        curve = np.minimum(curve, best)
    return np.maximum.accumulate(curve)


def optimal(epsilon: float, count: int, slack: float) -> float:
    """The least (K - 2i) epsilon with delta_i <= ``slack``."""
    low, high = 0, count // 2  # delta_0 = 0, and delta_i grows with i
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _delta(epsilon, count, middle) <= slack else (low, middle - 1)
    return (count - 2 * low) * epsilon


def _delta(epsilon: float, count: int, i: int) -> float:
    """delta_i, rounded up: sums of logarithms lose at most 2^-30 of it."""
    from scipy.special import gammaln, logsumexp  # not above: a node that trains softmax needs no scipy

    few = np.arange(i, dtype=np.float64)
    choose = gammaln(count + 1.0) - gammaln(few + 1.0) - gammaln(count - few + 1.0)
    whole = count * np.logaddexp(0.0, epsilon)
    gap = -np.expm1(-2.0 * (i - few) * epsilon)  # e^{(K-l) epsilon} (1 - e^{-2 (i-l) epsilon})
    return float(np.exp(logsumexp(choose + (count - few) * epsilon - whole, b=gap))) * (1.0 + 2.0**-30) if i else 0.0


def _heterogeneous(epsilons: F64, slack: float) -> F64:
    """Theorem 3.5: the least of the sum and the two advanced bounds."""
    with np.errstate(over="ignore", invalid="ignore"):
        plain, squares = np.cumsum(epsilons), np.cumsum(np.square(epsilons))
        drift = np.cumsum(np.tanh(0.5 * epsilons) * epsilons)  # (e^x - 1)/(e^x + 1) = tanh(x/2)
        first = drift + np.sqrt(2.0 * squares * np.log(math.e + np.sqrt(squares) / slack))
        second = drift + np.sqrt(2.0 * squares * math.log(1.0 / slack))
    found: F64 = np.fmin(plain, np.fmin(first, second))
    return found
