"""Renyi divergences of integer codes with fair coins in them, and the epsilon that follows.

A coordinate v is coded as P_v = (1 - f) B_i + f B_{i+1}, i = floor(v), f = v - i, B_i = i + Bin(N, 1/2): stochastic
rounding and coins.  Of order alpha > 1 and on outputs E that leave out the tails,

    sum over E of P_v^alpha P_{v+t}^{1-alpha}  <=  1 + S(t) + alpha eta,     eta >= the mass of a law outside E

1. Laws are linear in v between whole numbers, and (p, q) -> p^alpha q^{1-alpha} is convex: for a given t the sum is
   largest where v or v + t is whole.  By symmetry there are two cases: B_0 against P_t, and P_t against B_0.
2. With x = P_t/B_0 both are sums of B_0 phi(x), phi(x) = x^p, p = 1 - alpha or alpha.  S(t) is that of
   phi(x) - 1 - p(x - 1) >= 0, which a larger window only makes larger; the linear part adds up to |p| eta at most.
3. Up to t = 1, x = 1 + t(r - 1), r(k) = k/(N - k + 1).  S'' is convex for p <= 0, p in (1, 2] and p >= 3.  So is
   S(t)/t^2, which is the mean of (1 - s) S''(s t) over s in [0, 1]: on an interval both are largest at an end.
   Between larger whole numbers S is convex itself, and lies below its chords.

So ln(1 + S(t)) <= c t^2 up to the largest shift of a coordinate.  A release whose shifts have L2 norm w adds at most
c w^2 to the logarithm of the product over coordinates and rounds, whatever the transcript before.  With M that product,

    delta = P(not E) + e^{(1-alpha) epsilon} M (1/alpha) (1 - 1/alpha)^{alpha-1}

To leading order c = 2 alpha (alpha - 1)/N: that of Gaussian noise of variance N/4.  Rounding costs nothing on top.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Final

import numpy as np

from dpgt_node.types import F64

ORDERS: Final = np.concatenate((1.0 + np.geomspace(2.0**-8, 1.0, 12), np.geomspace(3.0, 3e4, 44)))
"""Between 2 and 3, S'' need not be convex."""
MOST_STEPS: Final = 160
"""A coordinate may move by so many steps of the code."""
_TAIL: Final = 2.0**-10
"""The part of delta that all tails together get."""
_PARTS: Final = 16
"""Of the way between two whole shifts."""
_AT_ONCE: Final = 1 << 21
"""Numbers of a table of counts and orders that is worked on at a time."""
_FLAT: Final = 1.02
"""Where S'' rises by no more than that, its largest value will do."""
_TRIED: Final = 6
"""So many orders at most are computed where a coordinate moves by more than one step, which takes long."""
_COINS: Final = 2.0**-124
"""How far the probability of a count may be from that of fair coins (:func:`~dpgt_node.privacy.counts.code.heads`)."""
_UP: Final = 1.0 + 2.0**-20
"""Covers what sums over a window lose: weights are off by less than 2^-28 of themselves."""


def curve(trials: int, shifts: F64, dimension: int, delta: float) -> F64:
    """Epsilon after every release, float64 (R,), nondecreasing; ``shifts``: L2, in steps of the code.

    inf where the coins are too few, or a shift is above ``MOST_STEPS``.
    """
    coordinates = dimension * len(shifts)
    eta, largest = _TAIL * delta / coordinates, float(shifts.max())
    if not largest <= MOST_STEPS or 2 * (reach(trials, eta) + _margin(largest)) > trials:
        return np.full(len(shifts), math.inf)
    orders = ORDERS
    if largest > 1.0:
        lower = _epsilons(trials, shifts, 1.0, coordinates, eta, delta, ORDERS)
        best = np.unique(lower.argmin(axis=1))
        orders = ORDERS[best[np.unique(np.linspace(0, len(best) - 1, _TRIED).round().astype(int))]]
    found = _epsilons(trials, shifts, largest, coordinates, eta, delta, orders).min(axis=1)
    return np.maximum.accumulate(np.maximum(found, 0.0)) * _UP


def _epsilons(trials: int, shifts: F64, largest: float, coordinates: int, eta: float, delta: float, orders: F64) -> F64:
    """By release and order, float64 (R, orders), where no coordinate moves by more than ``largest``."""
    growth, least = _growth(trials, largest, eta, tuple(orders.tolist()))
    # A ratio of two laws whose weights are each off by so much, in every coordinate of every release.
    beside = coordinates * orders * (eta + 4.0 * _COINS / least)
    moments = np.cumsum(np.square(shifts))[:, None] * growth + beside
    told = math.log(1.0 / (delta * (1.0 - 2.0 * _TAIL))) + (orders - 1.0) * np.log1p(-1.0 / orders) - np.log(orders)
    found: F64 = (moments + told) / (orders - 1.0)
    return found


def _margin(largest: float) -> int:
    """How much wider than ``reach`` the window of counts is, above."""
    return max(1, math.ceil(largest)) + 3


def reach(trials: int, eta: float) -> int:
    """Counts further than that from trials/2 have probability ``eta`` at most, by Hoeffding's inequality."""
    return math.ceil(math.sqrt(0.5 * trials * math.log(2.0 / eta)))


def least_trials(largest: float, coordinates: int, delta: float) -> int:
    """The fewest coins for which :func:`curve` is finite."""
    eta = _TAIL * delta / coordinates
    found = 2
    while 2 * (reach(found, eta) + _margin(largest)) > found:
        found = 2 * (reach(found, eta) + _margin(largest))
    while 2 * (reach(found - 1, eta) + _margin(largest)) <= found - 1:
        found -= 1
    return found


@lru_cache(maxsize=64)
def _growth(trials: int, largest: float, eta: float, orders: tuple[float, ...]) -> tuple[F64, float]:
    """c for every order, (orders,), up to the shift ``largest``; and the least weight in the window."""
    steps = max(1, math.ceil(largest))
    k, weights = _window(trials, reach(trials, eta), steps)
    powers = np.array([p for a in orders for p in (1.0 - a, a)])
    size = max(1, _AT_ONCE // len(k))
    with np.errstate(over="ignore", invalid="ignore"):
        parts = [_largest(k, weights, trials, powers[i : i + size], largest) for i in range(0, len(powers), size)]
    found = np.concatenate(parts).reshape(-1, 2).max(axis=1)
    found = found * _UP
    found.setflags(write=False)
    return found, float(weights.min())


def _largest(k: F64, weights: F64, trials: int, p: F64, largest: float) -> F64:
    """The largest ln(1 + S(t))/t^2 up to ``largest``, for every power ``p``."""
    ratio = k / (trials - k + 1.0)  # B_1/B_0
    found = _first(weights, ratio, p, min(largest, 1.0))
    if largest <= 1.0:
        return found
    heights, shifted = [_convex(weights, ratio, p)], ratio
    for n in range(1, math.ceil(largest)):
        shifted = shifted * ((k - n) / (trials - k + n + 1.0))
        heights.append(_convex(weights, shifted, p))
    return np.maximum(found, _chords(np.array(heights)))


def _window(trials: int, wide: int, steps: int) -> tuple[F64, F64]:
    """Counts around the middle, and their probabilities, from above: their sum is made 1."""
    k = np.arange(trials // 2 - wide - 1, trials - trials // 2 + wide + steps + 3, dtype=np.float64)
    logs = np.concatenate(((0.0,), np.cumsum(np.log((trials - k[:-1]) / (k[:-1] + 1.0)))))
    weights = np.exp(logs - logs.max())
    return k, weights / weights.sum()


def _first(weights: F64, ratio: F64, p: F64, first: float) -> F64:
    """The largest ln(1 + S(t))/t^2 for t in (0, ``first``], ``first`` <= 1."""
    flat = _curvature(weights, ratio, p, first)
    if (flat <= _FLAT * _curvature(weights, ratio, p, 0.0)).all():
        return flat
    ends = [(part + 1) / _PARTS * first for part in range(_PARTS)]
    height = [_convex(weights, 1.0 + t * (ratio - 1.0), p) / t**2 for t in ends]
    found = _curvature(weights, ratio, p, ends[0])
    for t, here, there in zip(ends[:-1], height[:-1], height[1:], strict=True):
        found = np.maximum(found, np.log1p(t * t * np.maximum(here, there)) / t**2)
    return np.minimum(flat, found)


def _curvature(weights: F64, ratio: F64, p: F64, first: float) -> F64:
    """Half the largest second derivative of S over [0, ``first``]."""
    ends = [
        np.power(1.0 + t * (ratio - 1.0), p[:, None] - 2.0) @ (weights * np.square(ratio - 1.0)) for t in (0, first)
    ]
    return np.asarray(0.5 * p * (p - 1.0) * np.maximum(*ends))


def _chords(heights: F64) -> F64:
    """The largest ln(1 + S(t))/t^2 for t from 1 on, (columns,), from S(1), S(2), ..., (steps, columns).

    S lies below its chords, and each part of a chord counts with its least t.
    """
    best = np.zeros(heights.shape[1])
    for n, (here, there) in enumerate(itertools.pairwise(heights), start=1):
        for part in range(_PARTS):
            top = np.maximum(*(here + (part + i) / _PARTS * (there - here) for i in (0, 1)))
            top[np.isnan(top)] = math.inf  # between two infinite ends
            best = np.maximum(best, np.log1p(top) / (n + part / _PARTS) ** 2)
    return best


def _convex(weights: F64, x: F64, p: F64) -> F64:
    """Mean of x^p - 1 - p(x - 1), and of what its terms lose as they cancel."""
    power, linear = np.power(x, p[:, None]), p[:, None] * (x - 1.0)
    return np.asarray((power - 1.0 - linear + 2.0**-49 * (power + 1.0 + np.abs(linear))) @ weights)
