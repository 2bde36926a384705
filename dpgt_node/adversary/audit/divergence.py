"""Renyi divergences from below, whatever the law: a witness is learnt from trials, and two means of it are bounded.

For every h > 0 and every order alpha > 1, by Hoelder's inequality (equality where h is the density of P in Q),

    D_alpha(P || Q)  >=  alpha/(alpha - 1) ln E_P[h^(alpha - 1)]  -  ln E_Q[h^alpha].

h is a function of where a release lies (:mod:`.events`), constant on intervals, so both powers are bounded.  The first
half of the trials picks order, direction, witness, and the size of a bet; the second half gives two means.  With X in
[0, 1] and a size b fixed beforehand, prod_i (1 + b (X_i - mu)) has mean 1 at mu = E X, and is never negative while
b mu <= 1.  So it is above 1/miss with a probability of at most ``miss`` (Markov; Waudby-Smith and Ramdas 2024), and
every mu at which it is above is too small.  No law and no large number is presumed.

What a divergence proves of a claim, each from what the claim allows:

    rho  D_alpha/alpha        mu  sqrt(2 D_alpha/alpha)        epsilon  randomised response has that D_alpha
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field
from statistics import NormalDist
from typing import Final

import numpy as np

from dpgt_node.adversary.audit.bounds import CAUTION, Bound, Direction, Measure
from dpgt_node.adversary.audit.events import LEAST_ALONE, Places, alone
from dpgt_node.types import F64
from dpgt_node.values import dataclass

ORDERS: Final = (1.02, 1.1, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
CELLS: Final = 256
"""Intervals on which a witness is constant."""
LEARNT: Final = (4, 10, 30)
"""Groups of intervals, whose shares in both worlds are learnt."""
SLOPES: Final = (0.5, 1.0, 1.5, 2.0, 4.0)
"""Witnesses exp(slope x position) of the position, cut at its outer quantiles."""
ALONE: Final = 3
"""Groups of a canary alone."""
_BETS: Final = 40


@dataclass(frozen=True, slots=True, eq=False)
class Witness:
    """ln h by interval, float64 (J,), at most 0; ``edges`` (J - 1,) between them.  ``canary``: of which one alone."""

    words: str
    edges: F64 = field(repr=False)
    log_h: F64 = field(repr=False)
    canary: int | None = None

    def counts(self, places: Places) -> F64:
        """Trials by interval, of those that count."""
        mine = places if self.canary is None else places.some(places.canary == self.canary)
        return np.bincount(np.searchsorted(self.edges, mine.at, side="right"), minlength=len(self.log_h)).astype(
            np.float64
        )


def renyi_bound(absent: Places, present: Places, *, measure: Measure = "epsilon", confidence: float = 0.95) -> Bound:
    """Trials in D and in D', in the order they were made, at least four each."""
    if min(len(absent.at), len(present.at)) < 4:
        raise ValueError("a divergence needs at least four trials in each world")
    (absent, tested_absent), (present, tested_present) = absent.halves(), present.halves()
    miss = (1.0 - confidence) / 2.0
    best: tuple[float, Direction, float, Witness | None] = (-math.inf, "D'", ORDERS[0], None)
    worlds: tuple[tuple[Direction, Places, Places], ...] = (("D'", present, absent), ("D", absent, present))
    for direction, p, q in worlds:
        for witness, log_h, counts_p, counts_q in _looked_at(p, q):
            for order in ORDERS:
                found = proves(measure, order, _seems(log_h, counts_p, counts_q, order, miss / CAUTION))
                if found > best[0]:
                    best = found, direction, order, witness
    _, direction, order, chosen = best
    assert chosen is not None, "there is a witness"
    (p, q), (tested_p, tested_q) = (
        ((present, absent), (tested_present, tested_absent))
        if direction == "D'"
        else ((absent, present), (tested_absent, tested_present))
    )
    over, under = (order - 1.0) * chosen.log_h, order * chosen.log_h
    picked_p, picked_q, counts_p, counts_q = (chosen.counts(one) for one in (p, q, tested_p, tested_q))
    low = mean_above(np.exp(over), counts_p, miss, bet(np.exp(over), picked_p, miss, float(counts_p.sum())))
    high = -mean_above(-np.exp(under), counts_q, miss, bet(-np.exp(under), picked_q, miss, float(counts_q.sum())))
    divergence = max(0.0, order / (order - 1.0) * math.log(low) - math.log(high)) if low > 0.0 else 0.0
    words = f"D_{order:g} >= {divergence:.4g}: {chosen.words}"
    n, m = int(counts_p.sum()), int(counts_q.sum())
    value = proves(measure, order, divergence)
    return Bound(measure, value, confidence, direction, math.nan, 0, n, 0, m, low, high, words, order)


def proves(measure: Measure, order: float, divergence: float) -> float:
    """The least value of ``measure`` whose claim allows ``divergence`` of that order; none of a total variation."""
    if measure == "total-variation":
        raise ValueError("a Renyi divergence proves no total variation")
    if divergence <= 0.0:
        return 0.0
    if measure == "rho":
        return divergence / order
    if measure == "mu":
        return math.sqrt(2.0 * divergence / order)
    low, high = divergence, 2.0 * divergence + 1.0  # D_alpha is at most epsilon
    while randomised_response(order, high) < divergence:
        high *= 2.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if randomised_response(order, middle) < divergence else (low, middle)
    return low


def randomised_response(order: float, epsilon: float) -> float:
    """D_alpha of two coins whose odds are e^epsilon and e^-epsilon: no pure epsilon allows more."""
    # ln p = -ln(1 + e^-eps), ln(1 - p) = ln p - eps;  sum of p^a (1 - p)^(1 - a) and (1 - p)^a p^(1 - a)
    log_p = -math.log1p(math.exp(-epsilon))
    first, second = log_p + (order - 1.0) * epsilon, log_p - order * epsilon
    return (first + math.log1p(math.exp(second - first))) / (order - 1.0)


# ---------------------------------------------------------------- means of bounded values
def mean_above(values: F64, counts: F64, miss: float, size: float) -> float:
    """A bound of the mean from below, wrong with a probability of at most ``miss``: of ``values`` (J,), which are all
    that can come, each came ``counts`` times.  ``size`` of the bet, >= 0, was fixed before they were seen.
    """
    least, span, x = _scaled(values)
    needed, low, high = -math.log(miss), 0.0, 1.0 if size <= 1.0 else 1.0 / size
    if not span or _won(x, counts, size, 0.0) < needed:
        return least
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _won(x, counts, size, middle) >= needed else (low, middle)
    return least + span * low


def bet(values: F64, counts: F64, miss: float, n: float) -> float:
    """The size that would have served best, had ``n`` values come in the shares of these."""
    _, span, x = _scaled(values)
    total = float(counts.sum())
    if not span or not total or not n or not float(counts @ x):
        return 0.0
    sizes = np.geomspace(1e-3, 1.0, _BETS) * (total / float(counts @ x))
    return float(max(sizes, key=lambda size: mean_above(values, counts * (n / total), miss, float(size))))


def _scaled(values: F64) -> tuple[float, float, F64]:
    """The least value, how far the largest is from it, and all of them as parts of that, in [0, 1]."""
    least = float(values.min())
    span = float(values.max()) - least
    return least, span, (values - least) / span if span else np.zeros_like(values)


def _won(x: F64, counts: F64, size: float, mu: float) -> float:
    """ln of the product: it falls with ``mu``."""
    came = counts > 0
    with np.errstate(divide="ignore"):
        return float(counts[came] @ np.log1p(np.maximum(size * (x[came] - mu), -1.0)))


# ---------------------------------------------------------------- what is looked at
def _looked_at(p: Places, q: Places) -> Iterator[tuple[Witness, F64, F64, F64]]:
    """Every witness; what it would be had it been learnt on one part of these trials (ln h by interval), and how many
    of the other part are in each interval under ``p`` and ``q``.  Else the best one would be the luckiest.
    """
    learn_p, learn_q, look_p, look_q = _parted(p, q)
    for whole, learnt in zip(_witnesses(p, q), _witnesses(learn_p, learn_q), strict=True):
        yield whole, learnt.log_h, learnt.counts(look_p), learnt.counts(look_q)
    for canary, mine, others in alone(p, q, 2 * LEAST_ALONE):
        edges, words = _edges(mine, others, ALONE), f"canary {canary}, shares of {ALONE} intervals"
        learn_p, learn_q, look_p, look_q = _parted(mine, others)
        learnt = _learnt(words, edges, learn_p, learn_q, canary)
        yield _learnt(words, edges, mine, others, canary), learnt.log_h, learnt.counts(look_p), learnt.counts(look_q)


def _parted(p: Places, q: Places) -> tuple[Places, Places, Places, Places]:
    """Every other trial of both, then the rest of both."""
    even, odd = slice(0, None, 2), slice(1, None, 2)
    return p.some(even), q.some(even), p.some(odd), q.some(odd)


def _seems(log_h: F64, counts_p: F64, counts_q: F64, order: float, miss: float) -> float:
    """The divergence that as many trials again would prove, by the normal law: it picks, and proves nothing."""
    ends = []
    for counts, power, side in ((counts_p, order - 1.0, -1.0), (counts_q, order, 1.0)):
        n, x = float(counts.sum()), np.exp(power * log_h)
        if n < 2.0:
            return -math.inf
        mean = float(counts @ x) / n
        spread = math.sqrt(max(0.0, float(counts @ np.square(x)) / n - mean * mean) / (2.0 * n))
        # One value more, as large as can be, is never ruled out.
        ends.append(mean + side * _quantile(miss) * spread + (0.0 if side < 0.0 else -math.log(miss) / (2.0 * n)))
    if ends[0] <= 0.0:
        return -math.inf
    return order / (order - 1.0) * math.log(ends[0]) - math.log(ends[1])


def _quantile(miss: float) -> float:
    return -NormalDist().inv_cdf(miss)


def _edges(p: Places, q: Places, groups: int) -> F64:
    """Between as many intervals with equal shares of all."""
    both = np.concatenate((p.at, q.at))
    return np.unique(np.quantile(both, np.linspace(0.0, 1.0, groups + 1)[1:-1]))


def _witnesses(p: Places, q: Places) -> Iterator[Witness]:
    edges = _edges(p, q, CELLS)
    middles = np.concatenate((edges[:1], 0.5 * (edges[1:] + edges[:-1]), edges[-1:]))
    for slope in SLOPES:
        yield _witness(f"all canaries, exp({slope:g} position)", edges, slope * middles)
        yield _witness(f"all canaries, exp(-{slope:g} position)", edges, -slope * middles)
    for groups in LEARNT:
        yield _learnt(f"all canaries, shares of {groups} intervals", _edges(p, q, groups), p, q)


def _learnt(words: str, edges: F64, p: Places, q: Places, canary: int | None = None) -> Witness:
    plain = Witness(words, edges, np.zeros(len(edges) + 1), canary)
    here, there = plain.counts(p), plain.counts(q)
    return _witness(words, edges, np.log((here + 0.5) / (there + 0.5)), canary)


def _witness(words: str, edges: F64, log_h: F64, canary: int | None = None) -> Witness:
    """At most 0: a factor of h changes nothing."""
    return Witness(words, edges, log_h - log_h.max(), canary)
