"""Lower bounds of epsilon from repeated runs in two worlds: whatever the statistic, they hold with their confidence.

The first half of the runs picks the test, the second gives the counts, so that picking costs no confidence.

    threshold   say D' where T >= t (or D where T <= t): hit rate TPR, false alarms FPR.
                epsilon >= ln((TPR - delta)/FPR);  mu >= z(TPR) - z(FPR);  rho >= D_alpha(TPR, FPR)/alpha for all alpha;
                total variation >= TPR - FPR
    guess       guess the sign of T where |T| >= t: a guess is right with a probability of at most
                e^epsilon/(1 + e^epsilon) (pure epsilon) or, guessing always, Phi(mu/2)

Both rates, and the share, are replaced by their Clopper-Pearson bounds.
"""

from __future__ import annotations

import math
from dataclasses import astuple
from typing import Literal

import numpy as np

from dpgt_node.types import F64
from dpgt_node.values import dataclass

Measure = Literal["epsilon", "mu", "rho", "total-variation"]
Direction = Literal["D'", "D"]
_DIRECTIONS: tuple[Direction, Direction] = ("D'", "D")
_QUANTILES = 400
CAUTION = 20.0
"""The best of many thresholds was lucky, the more so where counts are small: they are picked by wider intervals."""
_ORDERS: tuple[float, ...] = tuple(1.0 + 10.0 ** (e / 20) for e in range(-60, 61))


def clopper_pearson(successes: int, trials: int, miss: float) -> tuple[float, float]:
    """(low, high) of the probability of success; each is wrong with a probability of at most ``miss``."""
    from scipy.special import betaincinv

    low = float(betaincinv(successes, trials - successes + 1, miss)) if successes > 0 else 0.0
    high = float(betaincinv(successes + 1, trials - successes, 1.0 - miss)) if successes < trials else 1.0
    return low, high


@dataclass(frozen=True, slots=True)
class Bound:
    """What the second half of the runs proves: ``value`` of ``measure`` from below, with ``confidence``.

    ``hits`` of ``in_present`` runs in the world that the test looks for, ``alarms`` of ``in_absent`` in the other; for
    a guess right guesses of all, ``in_absent`` 0.  ``rate_low``, ``rate_high``: the Clopper-Pearson bounds used.
    ``event``: in words, where it was learnt.  ``order``: of a Renyi divergence, 0 where there is none; ``rate_low`` and
    ``rate_high`` bound two means then, and nothing is hit.
    """

    measure: Measure
    value: float
    confidence: float
    direction: Direction | None
    threshold: float
    hits: int
    in_present: int
    alarms: int
    in_absent: int
    rate_low: float
    rate_high: float
    event: str = ""
    order: float = 0.0


def threshold_bound(
    absent: F64, present: F64, *, measure: Measure = "epsilon", delta: float = 0.0, confidence: float = 0.95
) -> Bound:
    """``absent``, ``present``: T of independent runs in D and in D', in the order they were made, at least two each."""
    picked_absent, picked_present, absent, present = _halves(absent, present)
    miss = (1.0 - confidence) / 2.0
    both = np.concatenate((picked_absent, picked_present))
    best: tuple[float, Direction, float] = (-math.inf, "D'", math.inf)
    for candidate in _candidates(both).tolist():
        for direction in _DIRECTIONS:
            rates = _rates(picked_absent, picked_present, direction, candidate, miss / CAUTION)
            value = value_of(measure, rates.low, rates.high, delta)
            if value > best[0]:
                best = (value, direction, candidate)
    _, direction, threshold = best
    rates = _rates(absent, present, direction, threshold, miss)
    value = value_of(measure, rates.low, rates.high, delta)
    return Bound(measure, value, confidence, direction, threshold, *astuple(rates))


@dataclass(frozen=True, slots=True)
class Rates:
    """Hits and false alarms of a test, the least hit rate that they prove (``low``), the largest of false alarms."""

    hits: int
    in_present: int
    alarms: int
    in_absent: int
    low: float
    high: float


def _rates(absent: F64, present: F64, direction: Direction, threshold: float, miss: float) -> Rates:
    """Counts of the test "say ``direction`` where T is on that side of ``threshold``", and what they prove."""
    if direction == "D'":
        hits, alarms = np.count_nonzero(present >= threshold), np.count_nonzero(absent >= threshold)
        looked_for, other = len(present), len(absent)
    else:
        hits, alarms = np.count_nonzero(absent <= threshold), np.count_nonzero(present <= threshold)
        looked_for, other = len(absent), len(present)
    low, high = clopper_pearson(int(hits), looked_for, miss)[0], clopper_pearson(int(alarms), other, miss)[1]
    return Rates(int(hits), looked_for, int(alarms), other, low, high)


def guess_bound(
    absent: F64, present: F64, *, measure: Literal["epsilon", "mu"] = "epsilon", confidence: float = 0.95
) -> Bound:
    """As :func:`threshold_bound`, by guesses: ``epsilon`` guesses where |T| is large, ``mu`` always."""
    picked_absent, picked_present, absent, present = _halves(absent, present)
    miss, threshold = 1.0 - confidence, 0.0
    if measure == "epsilon":
        sizes = _candidates(np.abs(np.concatenate((picked_absent, picked_present)))).tolist()
        threshold = max(sizes, key=lambda size: _share(*_guesses(picked_absent, picked_present, size), miss / CAUTION))
    right, guesses = _guesses(absent, present, threshold)
    share = _share(right, guesses, miss)
    if measure == "epsilon":
        value = math.log(share / (1.0 - share)) if 0.5 < share < 1.0 else 0.0
    else:
        value = max(0.0, 2.0 * _normal_quantile(share))
    return Bound(measure, value, confidence, None, threshold, right, guesses, 0, 0, share, 1.0)


def _share(right: int, guesses: int, miss: float) -> float:
    return clopper_pearson(right, guesses, miss)[0] if guesses else 0.0


def _guesses(absent: F64, present: F64, size: float) -> tuple[int, int]:
    """(right, all): the sign of T says which world, where |T| >= ``size``; T = 0 is a wrong guess."""
    sure_absent, sure_present = np.abs(absent) >= size, np.abs(present) >= size
    right = np.count_nonzero(absent[sure_absent] < 0.0) + np.count_nonzero(present[sure_present] > 0.0)
    return int(right), int(np.count_nonzero(sure_absent) + np.count_nonzero(sure_present))


def _halves(absent: F64, present: F64) -> tuple[F64, F64, F64, F64]:
    """First halves of both, then second halves; all to 1/1000 of the largest |T| of the first ones.

    T has atoms (beyond both means it is the whole shift), which rounding blurs: a threshold must not cut one in two.
    """
    if min(len(absent), len(present)) < 2:
        raise ValueError("a bound needs at least two runs in each world")
    i, j = len(absent) // 2, len(present) // 2
    largest = max(float(np.abs(absent[:i]).max()), float(np.abs(present[:j]).max()))
    unit = largest / 1000 if largest > 0.0 else 1.0
    a, b, c, d = (np.rint(T / unit) * unit for T in (absent[:i], present[:j], absent[i:], present[j:]))
    return a, b, c, d


def _candidates(T: F64) -> F64:
    """Thresholds to pick from: quantiles of what the first half gave."""
    return np.unique(np.quantile(T, np.linspace(0.0, 1.0, _QUANTILES), method="lower"))


def value_of(measure: Measure, hit: float, alarm: float, delta: float) -> float:
    """What a hit rate and a rate of false alarms prove of ``measure``, from below."""
    if not hit > max(alarm, delta):
        return 0.0
    if measure == "epsilon":
        return max(0.0, math.log((hit - delta) / alarm))
    if measure == "mu":
        return max(0.0, _normal_quantile(hit) - _normal_quantile(alarm))
    if measure == "total-variation":
        return hit - alarm
    return max(_renyi(hit, alarm, order) / order for order in _ORDERS)


def _renyi(p: float, q: float, order: float) -> float:
    """Divergence of that order between two coins, p > q: at most rho x order under rho-zCDP, by post-processing."""
    above = order * math.log(p) + (1.0 - order) * math.log(q)
    below = order * math.log1p(-p) + (1.0 - order) * math.log1p(-q) if p < 1.0 else -math.inf
    top = max(above, below)
    return float((top + math.log(math.exp(above - top) + math.exp(below - top))) / (order - 1.0))


def _normal_quantile(p: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(p) if 0.0 < p < 1.0 else math.copysign(math.inf, p - 0.5)
