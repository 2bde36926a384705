"""What floating point proposes for cells of Gaussian noise: fast, and wrong only where it says that it is in doubt.

Two ways to the normal quantile z of p in (0, 1/2), both piecewise, both made from the library's and checked against it:

- coarse: straight lines over 512 parts of every power of two, in float32, from the first 31 bits of p.  Off by less
  than 2^-11 of a cell, so one coordinate in 500 is left in doubt.
- fine: polynomials over 64 parts, in float64.  Off by less than 2^-32 of a cell: one in seven million.

numpy works with the coarse one and has the library do the rest; the compiled loop has both.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dpgt_node.privacy.laws.gaussian_grid import CELLS, LIMIT_CELLS
from dpgt_node.privacy.laws.sampler import U64
from dpgt_node.types import F64, I64

F32 = npt.NDArray[np.float32]

MARGIN: Final = 2.0**-24  # of a cell; what the fine quantile and the library's may be wrong by is below 2^-27
COARSE_MARGIN: Final = 2.0**-10
_CERTAIN: Final = 0.5 - COARSE_MARGIN  # from the middle of a cell
_NEAR: Final = LIMIT_CELLS - 1.0  # cells; beyond, somebody looks whether a value is clipped

# Coarse: p 2^32 = h + 1/2.  The parts begin with h = 2^19: below, one unit of h moves z too far.
_COARSE_LEADING: Final = 9  # bits of h's significand
_COARSE_SHIFT: Final = 23 - _COARSE_LEADING
_COARSE_FIRST: Final = (127 + 19) << _COARSE_LEADING  # of the biased exponent of float32 and these bits
_COARSE_PARTS: Final = (12 << _COARSE_LEADING) + 1  # the last for what rounds up to p = 1/2
_LOW31: Final = 0x7FFFFFFF

# Fine: p 2^64, from 2^38 on.
_LEADING: Final = 6
_FIRST: Final = (1023 + 38) << _LEADING
_PARTS: Final = (25 << _LEADING) + 1
_DEGREE: Final = 5


def kernel(
    v: F64, w: I64, per: F64, lines: tuple[F32, F32], table: F64, z: F64, doubtful: I64, cells: F64
) -> int:  # fmt: skip
    """j of every coordinate of ``v`` (n, d), into ``cells``, for numba: how many are left to others.

    ``doubtful`` (n d + 1,): their places, flat, ascending.  ``w`` (n, d): words; ``per`` (n,): cells in a unit;
    ``lines``: coarse_lines(); ``table``: fine_table(); ``z`` (d,): scratch.  Plain Python, so that it can be checked
    without numba.
    """
    left = 0
    offsets, slopes = lines
    n, d = v.shape
    for row in range(n):
        cells_in_a_unit = per[row]
        # Loops that machines do many numbers of at a time.
        for i in range(d):
            word = w[row, i]
            h = np.float32(np.int32((word >> 32) & _LOW31))
            part = max(np.int64(h.view(np.int32) >> _COARSE_SHIFT) - _COARSE_FIRST, np.int64(-1))
            at = np.uint64(part + 1)
            y = offsets[at] + slopes[at] * h
            z[i] = y if word >= 0 else -y
        for i in range(d):
            x = v[row, i] * cells_in_a_unit
            c = x + z[i]
            j = np.floor(c)
            cells[row, i] = j
            z[i] = abs(c - j - 0.5) if abs(x) <= _NEAR else 1.0
        begin = left
        for i in range(d):
            doubtful[left] = i
            if not z[i] <= _CERTAIN:
                left += 1
        # The few in doubt, again.
        unsure, left = left, begin
        for place in range(begin, unsure):
            i = doubtful[place]
            word = w[row, i]
            p = np.float64(word & 0x7FFFFFFFFFFFFFFF) + 0.5
            bits = np.float64(p).view(np.int64)
            part = (bits >> 46) - _FIRST
            x = v[row, i] * cells_in_a_unit
            if abs(x) <= _NEAR and part >= 0:
                t = np.float64(bits & 0x3FFFFFFFFFFF) * 2.0**-45 - 1.0
                a = table[part]
                y = ((((a[5] * t + a[4]) * t + a[3]) * t + a[2]) * t + a[1]) * t + a[0]
                c = x + (256.0 * y if word >= 0 else -256.0 * y)
                j = np.floor(c)
                if MARGIN <= c - j <= 1.0 - MARGIN:
                    cells[row, i] = j
                    continue
            doubtful[left] = row * d + i
            left += 1
    return left


class Scratch:
    """Working memory for ``n`` coordinates."""

    __slots__ = ("at", "cells", "distance", "h", "n", "offset", "slope", "unsure")

    def __init__(self, n: int) -> None:
        self.n = n
        self.h, self.at = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int64)
        self.offset, self.slope = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.float32)
        self.distance, self.cells = np.empty(n), np.empty(n)
        self.unsure = np.empty(n, dtype=np.bool_)

    def first(self, n: int) -> Scratch:
        """Views of the first ``n`` <= self.n coordinates."""
        if n == self.n:
            return self
        part = Scratch.__new__(Scratch)
        part.n = n
        for name in self.__slots__:
            if name != "n":
                setattr(part, name, getattr(self, name)[:n])
        return part


def coarsely(v: F64, w: U64, per: F64, s: Scratch, cells: F64) -> I64:
    """j of every coordinate of ``v`` (n, d), contiguous, into ``cells``; the places, flat, of those in doubt.

    ``w`` (n, d): words; ``per`` (n, 1) or (): cells in a unit; ``s``: of as many coordinates.
    """
    offsets, slopes = coarse_lines()
    high = w.reshape(-1).view("<i4")[1::2]
    np.bitwise_and(high, _LOW31, out=s.h)
    np.copyto(s.slope, s.h, casting="unsafe")
    np.right_shift(s.slope.view(np.int32), _COARSE_SHIFT, out=s.h)
    np.subtract(s.h, _COARSE_FIRST - 1, out=s.h)
    np.maximum(s.h, 0, out=s.at)
    np.take(slopes, s.at, out=s.offset, mode="clip")
    np.multiply(s.slope, s.offset, out=s.slope)
    np.take(offsets, s.at, out=s.offset, mode="clip")
    np.add(s.offset, s.slope, out=s.offset)
    np.bitwise_and(high, ~_LOW31, out=s.h)
    np.bitwise_xor(s.offset.view(np.int32), s.h, out=s.offset.view(np.int32))  # the sign
    c = s.distance.reshape(v.shape)
    np.multiply(v, per, out=c)
    near = np.minimum.reduce(c, axis=None) >= -_NEAR and np.maximum.reduce(c, axis=None) <= _NEAR
    beyond = None if near else ~(np.abs(c) <= _NEAR)
    np.add(c, s.offset.reshape(v.shape), out=c)
    np.floor(c, out=cells)
    np.subtract(c, cells, out=c)
    np.subtract(c, 0.5, out=c)
    np.abs(c, out=c)
    unsure = s.unsure.reshape(v.shape)
    np.less_equal(c, _CERTAIN, out=unsure)  # false of what is no number
    np.logical_not(unsure, out=unsure)
    if beyond is not None:
        np.logical_or(unsure, beyond, out=unsure)
    return np.flatnonzero(s.unsure)


@lru_cache(maxsize=1)
def coarse_lines() -> tuple[F32, F32]:
    """(offsets, slopes), float32 (parts + 1,): in part i 256 z is offsets[i + 1] + slopes[i + 1] h; no number in [0].

    RuntimeError where that is not as near to the library's quantile as it should be, h rounded and cut short.
    """
    at = np.arange(_COARSE_FIRST, _COARSE_FIRST + _COARSE_PARTS)
    start = np.ldexp(1.0 + (at & 511) / 512, (at >> _COARSE_LEADING) - 127)
    width = np.ldexp(1.0 / 512, (at >> _COARSE_LEADING) - 127)
    low, high = (start + width * (0.5 - half) for half in (np.sqrt(0.125), -np.sqrt(0.125)))
    steps = (_in_cells(high) - _in_cells(low)) / (high - low)
    levels = _in_cells(low) - steps * low
    levels[-1], steps[-1] = 0.0, 0.0  # p = 1/2
    offsets, slopes = (np.concatenate(([np.nan], each)).astype(np.float32) for each in (levels, steps))
    for t in np.linspace(0.0, 1.0, 9):
        h = np.floor(start + width * t)[:-1]
        found = offsets[1:-1] + slopes[1:-1] * h.astype(np.float32)
        for end in (h, h + 1.0):  # of what the bits of h leave open
            if not np.abs(found - _in_cells(end)).max() < COARSE_MARGIN / 2:
                raise RuntimeError(
                    "the normal quantile of this machine's library is not smooth: do not release anything"
                )
    offsets.setflags(write=False)
    slopes.setflags(write=False)
    return offsets, slopes


def _in_cells(h: F64) -> F64:
    """256 z for p = ``h`` 2^-32."""
    return CELLS * library(np.minimum(h, 2.0**31) * 2.0**32)


@lru_cache(maxsize=1)
def fine_table() -> F64:
    """(parts, 6): in each part of (2^-26, 1/2) the polynomial in t, -1 to 1 across it, that is z with Phi(z) = p.

    RuntimeError where it is not as near to the library's quantile as it should be: 2^-40.
    """
    powers = np.arange(_DEGREE + 1)
    nodes = np.cos(np.pi * (2 * powers + 1) / (2 * _DEGREE + 2))
    table = library(_places(nodes)) @ np.linalg.inv(nodes[:, None] ** powers).T
    between = np.linspace(-1.0, 1.0, 9)
    if not np.abs(table @ (between[:, None] ** powers).T - library(_places(between))).max() < 2.0**-40:
        raise RuntimeError("the normal quantile of this machine's library is not smooth: do not release anything")
    table.setflags(write=False)
    return np.ascontiguousarray(table)


def _places(t: F64) -> F64:
    """p 2^64 at ``t`` (n,) of every part: (parts, n)."""
    at = np.arange(_FIRST, _FIRST + _PARTS)
    start = np.ldexp(1.0 + (at & 63) / 64, (at >> _LEADING) - 1023)
    width = np.ldexp(1.0 / 64, (at >> _LEADING) - 1023)
    return np.asarray(start[:, None] + width[:, None] * (t + 1.0) / 2)


def library(p: F64) -> F64:
    """z with Phi(z) = ``p`` 2^-64; overwrites ``p``."""
    from scipy.special import ndtri  # slow to import, and only this law needs it

    p *= 2.0**-64
    z: Any = ndtri(p)
    return np.asarray(z)
