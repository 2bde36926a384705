"""Lower bounds of epsilon that presume no law of the noise: the event itself is learnt from trials.

A trial says where the release lay between what it hides in both worlds.  The first half of the trials picks the event:

    threshold   the position is at least, or at most, t
    set         the position is in a set of intervals, those that tell the worlds apart best (a hockey-stick divergence)
    place       a threshold for one canary alone: a fault of one coordinate is lost among all

The second half gives the counts, and Clopper-Pearson the bound.  So it holds whatever the law is.  The likelihood
ratio of the stated law is the best statistic where that law holds, and may be blind where it does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import astuple, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from dpgt_node.adversary.audit.bounds import CAUTION, Bound, Direction, Measure, Rates, clopper_pearson, value_of
from dpgt_node.adversary.audit.replay import Replay, World, no_noise_shows
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

BINS: Final = 40
"""Intervals of a learnt set."""
QUANTILES: Final = 200
LEAST_ALONE: Final = 8
"""Trials of one canary in either world, below which it is not looked at alone."""
_FEW: Final = 12
"""Thresholds of one canary."""

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Positions of trials in one world, and which canary each is of: float64 (n,) and int64 (n,)."""

    at: F64 = field(repr=False)
    canary: I64 = field(repr=False)

    def halves(self) -> tuple[Places, Places]:
        half = len(self.at) // 2
        return self.some(slice(half)), self.some(slice(half, None))

    def some(self, chosen: slice | Bools | I64) -> Places:
        return Places(self.at[chosen], self.canary[chosen])

    def by_canary(self, size: int) -> list[Places]:
        """Those of canaries 0..``size`` - 1, each in the order they were made."""
        order = np.argsort(self.canary, kind="stable")
        ends = np.searchsorted(self.canary[order], np.arange(1, size))
        return [self.some(part) for part in np.split(order, ends)]


def alone(p: Places, q: Places, least: int) -> Iterator[tuple[int, Places, Places]]:
    """Canaries of which there are ``least`` trials in either world, and these."""
    size = int(max(p.canary.max(), q.canary.max())) + 1
    for canary, (mine, others) in enumerate(zip(p.by_canary(size), q.by_canary(size), strict=True)):
        if min(len(mine.at), len(others.at)) >= least:
            yield canary, mine, others


@dataclass(frozen=True, slots=True, eq=False)
class _Event:
    """Trials that count (``among``), and those in the event (``inside``), as functions of trials."""

    words: str
    threshold: float
    among: Callable[[Places], Bools] = field(repr=False)
    inside: Callable[[Places], Bools] = field(repr=False)

    def rates(self, looked_for: Places, other: Places, miss: float) -> Rates:
        """Hits and false alarms, with their bounds."""
        (hits, n), (alarms, m) = (
            (int((self.inside(p) & self.among(p)).sum()), int(self.among(p).sum())) for p in (looked_for, other)
        )
        low = clopper_pearson(hits, n, miss)[0] if n else 0.0
        return Rates(hits, n, alarms, m, low, clopper_pearson(alarms, m, miss)[1] if m else 1.0)


def positions(replay: Replay, first: World, second: World) -> F64:
    """Where the releases lie between both worlds' private parts, float64 (d,), summed over releases.

    Each counts by its shift over its squared scale.  What is added to the private parts is not asked.
    """
    total: F64 | None = None
    for one in replay.run((first, second)):
        here, there = one.private
        part = (one.draw.values - 0.5 * (here + there)) * (there - here) / one.draw.scale**2
        total = part if total is None else total + part
    if total is None:
        raise no_noise_shows()
    return total


def event_bound(
    absent: Places, present: Places, *, measure: Measure = "epsilon", delta: float = 0.0, confidence: float = 0.95
) -> Bound:
    """Trials in D and in D', in the order they were made, at least two each."""
    if min(len(absent.at), len(present.at)) < 2:
        raise ValueError("a bound needs at least two trials in each world")
    (absent, tested_absent), (present, tested_present) = absent.halves(), present.halves()
    miss = (1.0 - confidence) / 2.0
    best: tuple[float, Direction, _Event | None] = (-math.inf, "D'", None)
    worlds: tuple[tuple[Direction, Places, Places], ...] = (("D'", present, absent), ("D", absent, present))
    for direction, looked_for, other in worlds:
        for event, mine, others in _events(looked_for, other, upwards=direction == "D'"):
            rates = event.rates(mine, others, miss / CAUTION)
            value = value_of(measure, rates.low, rates.high, delta)
            if value > best[0]:
                best = value, direction, event
    _, direction, picked = best
    assert picked is not None, "there is a threshold"
    pair = (tested_present, tested_absent) if direction == "D'" else (tested_absent, tested_present)
    rates = picked.rates(*pair, miss)
    value = value_of(measure, rates.low, rates.high, delta)
    bound = Bound(measure, value, confidence, direction, picked.threshold, *astuple(rates))
    return replace(bound, event=picked.words)


def _events(looked_for: Places, other: Places, *, upwards: bool) -> Iterator[tuple[_Event, Places, Places]]:
    """Events, and the trials to count them in."""
    both = np.concatenate((looked_for.at, other.at))
    for t in _quantiles(both, QUANTILES):
        yield _beyond(t, upwards, "all canaries", lambda p: np.ones(len(p.at), dtype=bool)), looked_for, other
    edges = np.unique(np.quantile(both, np.linspace(0.0, 1.0, BINS + 1)[1:-1]))
    hits, alarms = (np.bincount(np.searchsorted(edges, p.at), minlength=len(edges) + 1) for p in (looked_for, other))
    order = np.argsort(-(hits + 0.5) / (alarms + 0.5), kind="stable")
    for size in range(1, len(order)):
        yield _in_set(edges, order[:size]), looked_for, other
    for canary, mine, others in alone(looked_for, other, LEAST_ALONE):
        for t in _quantiles(np.concatenate((mine.at, others.at)), _FEW):
            yield _beyond(t, upwards, f"canary {canary}", _of(canary)), mine, others


def _of(canary: int) -> Callable[[Places], Bools]:
    return lambda p: p.canary == canary


def _quantiles(values: F64, count: int) -> list[float]:
    found: list[float] = np.unique(np.quantile(values, np.linspace(0.0, 1.0, count), method="lower")).tolist()
    return found


def _beyond(t: float, upwards: bool, whose: str, among: Callable[[Places], Bools]) -> _Event:
    words = f"{whose}: position {'>=' if upwards else '<='} {t:.4g}"
    return _Event(words, t, among, (lambda p: p.at >= t) if upwards else (lambda p: p.at <= t))


def _in_set(edges: F64, bins: I64) -> _Event:
    words = f"all canaries: position in {len(bins)} of {len(edges) + 1} intervals"
    return _Event(
        words,
        math.nan,
        lambda p: np.ones(len(p.at), dtype=bool),
        lambda p: np.isin(np.searchsorted(edges, p.at), bins),
    )
