"""Fair coins beside the code of a gradient: what is sent is an integer, and every integer of it is exact.

    v = (clip(g, -B, B) + B)/q,   q = 2B/(levels - 1)          a number from 0 to levels - 1
    code = floor(v) + [u < v - floor(v)] + Bin(trials, 1/2)     u uniform on [0, 1)

The first part is stochastic rounding, the second one counts so many fair coins.  A code stands for
q (code - trials/2) - B, which is g without bias where |g| <= B, with variance q^2 trials/4 of the coins and at most
q^2/4 of the rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpgt_node.privacy.laws.noise import ByteStream
from dpgt_node.privacy.laws.sampler import CHUNK, U64, words
from dpgt_node.types import F64, Codes

_COINS = 64
"""Of a word."""
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

    def drawn(self, g: F64, stream: ByteStream) -> F64:
        """A code for every coordinate of ``g`` (d,), as float64 whole numbers: a new array.

        Takes a word a coordinate for the rounding, then the coins of one coordinate after another.
        """
        v = np.minimum(
            (np.clip(g, -self.bound, self.bound) + self.bound) * (self.levels - 1) / (2.0 * self.bound), self.levels - 1
        )
        low = np.floor(v)
        u = (words(stream, g.size) >> np.uint64(_UNIFORM)).astype(np.float64) * 2.0**-53
        low += u < v - low
        low += self._coins(g.size, stream)
        return low

    def _coins(self, d: int, stream: ByteStream) -> F64:
        """How many of ``trials`` fair coins show heads, (d,)."""
        heads, each = np.zeros(d), -(-self.trials // _COINS)
        if each == 0:
            return heads
        last = np.uint64((1 << (self.trials - _COINS * (each - 1))) - 1)
        together = max(1, CHUNK // each)
        for start in range(0, d, together):
            part = heads[start : start + together]
            coins = words(stream, part.size * each).reshape(part.size, each).copy()
            coins[:, -1] &= last
            part[:] = _ones(coins).sum(axis=1)
        return heads


def _ones(w: U64) -> U64:
    """Bits that are set, word by word (numpy counts them from 2.0 on; this does on every version)."""
    w = w - ((w >> np.uint64(1)) & np.uint64(0x5555555555555555))
    w = (w & np.uint64(0x3333333333333333)) + ((w >> np.uint64(2)) & np.uint64(0x3333333333333333))
    w = (w + (w >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (w * np.uint64(0x0101010101010101)) >> np.uint64(56)
