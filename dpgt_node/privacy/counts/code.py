"""Fair coins beside the code of a gradient: what is sent is an integer.

    v = (clip(g, -B, B) + B)/q,   q = 2B/(levels - 1)          a number from 0 to levels - 1
    code = floor(v) + [u < v - floor(v)] + Bin(trials, 1/2)     u uniform on [0, 1)

The first part is stochastic rounding, the second one counts so many fair coins.  A code stands for
q (code - trials/2) - B, which is g without bias where |g| <= B, with variance q^2 trials/4 of the coins and at most
q^2/4 of the rounding.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np

from dpgt_node.privacy.laws.noise import ByteStream
from dpgt_node.privacy.laws.sampler import U64, words
from dpgt_node.types import F64, Codes
from dpgt_node.values import dataclass

COINS = "coins"
"""What a ledger calls this noise."""
_BITS = 192
_DEVIATIONS = 14
_UNIFORM = 11
"""Bits of a word that a uniform number leaves out."""


@dataclass(frozen=True, slots=True)
class BinomialCode:
    """``bound`` B > 0, ``levels`` >= 2, ``trials`` >= 0.  Everything here is public but the draws."""

    bound: float
    levels: int
    trials: int

    @property
    def step(self) -> float:
        """q."""
        return 2.0 * self.bound / (self.levels - 1)

    @property
    def scale(self) -> float:
        """Standard deviation that the coins add to a coordinate."""
        return 0.5 * self.step * math.sqrt(self.trials)

    @property
    def codes(self) -> Codes:
        """What the integers stand for, and their range."""
        offset = -self.bound - 0.5 * self.step * self.trials
        return Codes(self.step, offset, 0, self.levels - 1 + self.trials)

    def levelled(self, g: F64) -> F64:
        """v of every coordinate of ``g``, float64."""
        top = self.levels - 1
        v: F64 = np.minimum((np.clip(g, -self.bound, self.bound) + self.bound) * top / (2.0 * self.bound), top)
        return v

    def drawn(self, g: F64, stream: ByteStream) -> F64:
        """A code for every coordinate of ``g`` (d,), as float64 whole numbers: a new array.

        Takes a word a coordinate for the rounding, then one a coordinate for its coins.
        """
        v = self.levelled(g)
        low = np.floor(v)
        u = (words(stream, g.size) >> np.uint64(_UNIFORM)).astype(np.float64) * 2.0**-53
        low += u < v - low
        if self.trials:
            low += heads(self.trials, g.size, stream)
        return low


def heads(trials: int, count: int, stream: ByteStream) -> F64:
    """``count`` draws of Bin(trials, 1/2), ``trials`` >= 1, as float64 whole numbers.

    A draw is the number of thresholds F(k) 2^128 that a uniform number of 128 bits reaches.  Its lower word is taken
    only where the upper one does not decide, which is after all others.  In total variation a draw is off by less than
    2^-100: thresholds are rounded, and what lies beyond 14 standard deviations is left out.
    """
    first, upper, lower = _thresholds(trials)
    u = words(stream, count)
    found = np.searchsorted(upper, u, side="left")
    undecided = np.flatnonzero(np.searchsorted(upper, u, side="right") != found)
    for i in undecided.tolist():
        more = words(stream, 1)[0]
        while found[i] < len(upper) and upper[found[i]] == u[i] and lower[found[i]] <= more:
            found[i] += 1
    return found.astype(np.float64) + first


@lru_cache(maxsize=4)
def _thresholds(trials: int) -> tuple[int, U64, U64]:
    """(first k, upper words, lower words) of F(k) 2^128 for k from there on, ascending; F of Bin(trials, 1/2).

    Weights are integers with 192 bits behind the point: p(k+1)/p(k) = (trials - k)/(k + 1), from the middle outwards.
    """
    middle, reach = trials // 2, math.isqrt(trials * _DEVIATIONS**2 // 4) + 2
    low, high = max(0, middle - reach), min(trials, middle + reach)
    up, down = [1 << _BITS], list[int]()
    for k in range(middle, high):
        up.append(up[-1] * (trials - k) // (k + 1))
    weight = 1 << _BITS
    for k in range(middle, low, -1):
        weight = weight * k // (trials - k + 1)
        down.append(weight)
    sums = list(itertools.accumulate(itertools.chain(reversed(down), up)))
    cut = [min((part << 128) // sums[-1], (1 << 128) - 1) for part in sums[:-1]]  # the last weights may be 0
    mask = (1 << 64) - 1
    upper, lower = (np.array(part, dtype=np.uint64) for part in ([c >> 64 for c in cut], [c & mask for c in cut]))
    for part in (upper, lower):
        part.setflags(write=False)
    return low, upper, lower
