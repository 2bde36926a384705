"""Gaussian noise as an exact function of the ideal mechanism (docs/explanation/theory-sampler.md).

A private coordinate v is clipped to a public range and released as g (j + 1/2) with j = floor((v + s Z)/g), Z exactly
standard normal and g = s/256: post-processing of v + N(0, s^2), real-valued and without rounding.  So zcdp and gdp hold
with the shift ||v - v'||_2 itself; nothing is charged for the grid or for floating point.

Z is the normal quantile of a uniform number whose first 64 bits are drawn at once.  Floating point only proposes j:
where the sum lies within 2^-24 of an edge of a cell, or far out in a tail, integer arithmetic decides, with more bits
if 64 are too few.  That happens to one coordinate in seven million.  So the result does not depend on the machine's
mathematical library as long as its normal quantile is right to 2^-33, a hundred thousand times its actual error.
Nor does it depend on who proposes: see gaussian_proposal.py.  In a daemon Z of several short vectors is proposed at
once (``sampler.ahead``), each used once; it is in the memory of the process that drew it and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import floor, isqrt, nextafter
from typing import Final

import numpy as np

from dpgt_node.privacy.laws.compiled import Code, Loop, fixed
from dpgt_node.privacy.laws.gaussian_grid import CELLS, LIMIT_CELLS
from dpgt_node.privacy.laws.gaussian_proposal import (
    MARGIN,
    Scratch,
    coarse_lines,
    coarsely,
    fine_table,
    kernel,
    library,
)
from dpgt_node.privacy.laws.grid import check_scale
from dpgt_node.privacy.laws.noise import ByteStream, Shared, SharedPair
from dpgt_node.privacy.laws.sampler import U64, held_by, next_row, rows_of_words, surely_within, words
from dpgt_node.types import F64, I64

CHUNK: Final = 1 << 14  # part of the definition of the bits
_MANY: Final = 1 << 12  # coordinates from which on a coarse proposal pays
_TAIL: Final = np.uint64(1 << 38)  # below it one unit in the last of the 63 bits moves Z too far
_LOW63: Final = np.uint64((1 << 63) - 1)
_SIGN: Final = np.uint64(63)


class GaussianSampler:
    """Sound Gaussian noise of standard deviation ``scale``, behind the same interface.  Not for concurrent use.

    ``compiled``: propose with numba; None: from 2^18 coordinates on, where it is installed.
    """

    __slots__ = ("_kernel", "_scratch", "clipped")

    def __init__(self, compiled: bool | None = None) -> None:
        self.clipped = 0
        self._kernel = Loop(kernel, compiled)
        self._scratch = Scratch(0)

    def lam(self, dimension: int, scale: float, norm: float | None = None) -> float:
        """0: what is released is a function of the ideal mechanism's output."""
        return 0.0

    def range(self, scale: float) -> float:
        """The largest magnitude that is not clipped: 65,536 ``scale``."""
        return scale * (LIMIT_CELLS / CELLS)

    def perturb(self, private: F64, scale: float, stream: ByteStream) -> F64:
        """``private`` + N(0, scale^2): (d,), odd multiples of scale/512.  Takes 8 d bytes (8 more, once in 2^50).

        Coordinates beyond ``range(scale)`` are clipped to it and counted in ``clipped``.  Raises ValueError for values
        that are not finite and for scales outside 1e-290..1e290.
        """
        held = held_by(stream, private.size)
        if held is None or self._kernel.of(private.size) is not None:
            return self.perturb_shared(private, scale, stream, (), 0)
        check_scale(scale)
        w, proposed = next_row(held, _drawn_ahead, stream, private.size)
        return _on_grid(self._decided(private, np.array(scale), w, (stream,), proposed=proposed), scale)

    def perturb_shared(self, private: F64, scale: float, stream: ByteStream, shared: Sequence[Shared], r: int) -> F64:
        """``private`` + N(0, scale^2) + the sum of +-``r`` ``scale`` times a normal number of every shared stream.

        (d,), multiples of scale/512: with the cell j of the own draw and the cells j_M of 256 standard deviations that
        each shared stream draws from,

            (scale/512) (2 j + 1 + sum of +-r (2 j_M + 1))

        The integers are added before they are multiplied, once: added as doubles, a third of the sums would leave the
        grid, and show how they split.  Two ends of a stream that take it with opposite signs cancel exactly.
        """
        check_scale(scale)
        out, fast = np.empty(private.size), self._kernel.of(private.size)
        for start in range(0, private.size, CHUNK):
            part = private[start : start + CHUNK]
            cells = out[start : start + CHUNK]
            self._cells(part, np.array(scale), words(stream, part.size), (stream,), cells, fast)
            for sign, other in shared:
                cells += (sign * r) * (shared_cells(other, part.size, self, fast) + 0.5)
            _on_grid(cells, scale)
        return out

    def perturb_pairs(
        self, private: F64, scale: float, streams: Sequence[ByteStream], pairs: Sequence[SharedPair], r: int
    ) -> F64:
        """See ``CancellingSampler``: all agents of a simulation at once."""
        check_scale(scale)
        out = np.empty(private.shape)
        for start in range(0, private.shape[1], CHUNK):
            rows = private[:, start : start + CHUNK]
            cells = np.empty(rows.shape)
            for i, (row, stream) in enumerate(zip(rows, streams, strict=True)):
                self._cells(row, np.array(scale), words(stream, row.size), (stream,), cells[i])
            for i, j, stream in pairs:
                shared = r * (shared_cells(stream, rows.shape[1]) + 0.5)
                cells[i] += shared
                cells[j] -= shared
            out[:, start : start + CHUNK] = _on_grid(cells, scale)
        return out

    def perturb_rows(self, private: F64, scales: F64, streams: Sequence[ByteStream]) -> F64:
        """Row i is ``perturb(private[i], scales[i], streams[i])``, to the bit: many short vectors in one pass.

        ``private`` (n, d) with d <= CHUNK, ``scales`` (n,).
        """
        n, d = private.shape
        if d > CHUNK:
            raise ValueError(f"rows of at most {CHUNK} coordinates, got {d}")
        for scale in scales.tolist():
            check_scale(scale)
        out, fast = np.empty((n, d)), self._kernel.of(d)
        together = max(1, CHUNK // max(d, 1))
        for start in range(0, n, together):
            part = slice(start, start + together)
            rows, scale = private[part], scales[part, None]
            w = rows_of_words(streams[part], d)
            self._cells(rows, scale, w, streams[part], out[part], fast)
            _on_grid(out[part], scale)
        return out

    def _cells(
        self,
        private: F64,
        scale: F64,
        w: U64,
        streams: Sequence[ByteStream],
        cells: F64,
        fast: Code | None = None,
    ) -> None:
        """j of every coordinate, whole numbers below 2^26, into ``cells``; proposed by ``fast`` if there is one.

        ``private``, ``w``: (d,), or one row a stream and ``scale`` (n, 1).
        """
        d = private.shape[-1]
        if not private.size or (fast is None and private.size < _MANY):
            cells[...] = self._decided(private, scale, w, streams)
            return
        rows = private.reshape(-1, d)
        per, into = CELLS / scale, cells.reshape(-1, d)
        with np.errstate(invalid="ignore", over="ignore"):
            s = self._scratch_for(rows.size)
            if fast is None:
                left = coarsely(rows, w.reshape(rows.shape), per, s, into)
            else:
                v, bits = fixed(rows.astype(np.float64, copy=False)), fixed(w.view("<i8").reshape(rows.shape))
                tables = coarse_lines(), fine_table()
                left = s.at[: fast(v, bits, np.ravel(per), *tables, s.distance, s.at, into)]
        if left.size:
            row = left // d
            own = scale.reshape(-1)[row] if scale.size > 1 else scale
            into.reshape(-1)[left] = self._decided(rows.reshape(-1)[left], own, w.reshape(-1)[left], streams, row)

    def _decided(
        self,
        private: F64,
        scale: F64,
        w: U64,
        streams: Sequence[ByteStream],
        row: I64 | None = None,
        proposed: F64 | None = None,
    ) -> F64:
        """j of every coordinate; ``row`` (private.size,): whose stream it continues in, None: they lie in order.
        ``proposed``: of ``w``, where it is known; of one vector (d,) alone.
        """
        g, limit = scale / CELLS, scale * (LIMIT_CELLS / CELLS)  # both exact
        within = proposed is not None and surely_within(private, float(limit))  # as in a daemon's round
        v = private if within else self._clipped(private, limit)
        low = w & _LOW63
        cells = v / g
        cells += _proposed(w) if proposed is None else proposed
        j = np.floor(cells)
        cells -= j
        doubtful = (cells < MARGIN) | (cells > 1.0 - MARGIN) | (low < _TAIL)
        for at in np.flatnonzero(doubtful).tolist():
            stream = streams[at * len(streams) // v.size if row is None else row[at]]
            own = float(np.broadcast_to(scale, v.shape).flat[at])
            j.flat[at] = exact_cell(float(v.flat[at]), own, int(j.flat[at]), int(w.flat[at]), stream)
        return np.asarray(j)

    def _clipped(self, private: F64, limit: F64) -> F64:
        if not np.isfinite(private).all():
            raise ValueError("a private value is not finite: no noise was added")
        v = np.clip(private, -limit, limit)
        self.clipped += int(np.count_nonzero(v != private))
        return v

    def _scratch_for(self, n: int) -> Scratch:
        if self._scratch.n < n:
            self._scratch = Scratch(n)
        return self._scratch.first(n)


def shared_cells(
    stream: ByteStream, count: int, sampler: GaussianSampler | None = None, fast: Code | None = None
) -> F64:
    """floor(256 Z) of ``count`` standard normal numbers, whole numbers: what both ends of a pair draw.

    ``count`` at most CHUNK: a longer vector takes its pieces one after the other.  Takes 8 bytes each, as a draw does.
    """
    cells = np.empty(count)
    (sampler or GaussianSampler())._cells(np.zeros(count), np.array(1.0), words(stream, count), (stream,), cells, fast)
    return cells


def _on_grid(cells: F64, scale: float | F64) -> F64:
    """The middles of ``cells``, in place: cells + 1/2 is a multiple of 1/2 below 2^52, so only the product rounds."""
    cells += 0.5
    cells *= scale / CELLS
    return cells


def _proposed(w: U64) -> F64:
    """256 Z of every word, in floating point."""
    return np.asarray(CELLS * np.copysign(_quantile(w & _LOW63), (w >> _SIGN).astype(np.float64) - 0.5))


def _drawn_ahead(stream: ByteStream, n: int, d: int) -> tuple[U64, F64]:
    """Words and what they propose for the next ``n`` vectors (n, d), as if each were drawn in its turn."""
    w = words(stream, n * d).reshape(n, d)
    return w, _proposed(w)


def _quantile(low: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]) -> F64:
    """z <= 0 with Phi(z) = (low + 1/2) / 2^64, in floating point."""
    p = low.astype(np.float64)
    p += 0.5
    return library(p)


def exact_cell(v: float, scale: float, j: int, word: int, stream: ByteStream) -> int:
    """The cell of v + ``scale`` Z, by integer arithmetic; ``j`` is a first guess.

    ``word``: 64 bits: the top one set means Z > 0, the others are the first of p in (0, 1/2), and Phi(-|Z|) = p.
    """
    uniform = LazyUniform(word & int(_LOW63), stream)
    upper = bool(word >> 63)
    offset = Fraction(v) / Fraction(scale)

    def reaches(cell: int) -> bool:
        edge = Fraction(cell, CELLS) - offset  # is Z >= edge?
        return uniform.below(-edge) if upper else not uniform.below(edge)

    while not reaches(j):
        j -= 1
    while reaches(j + 1):
        j += 1
    return j


class LazyUniform:
    """A uniform number p in (0, 1/2) of which only as many bits are drawn as comparisons ask for."""

    __slots__ = ("_bits", "_stream", "_value")

    def __init__(self, first63: int, stream: ByteStream) -> None:
        self._value, self._bits, self._stream = first63, 64, stream

    def below(self, c: Fraction) -> bool:
        """Is p < Phi(c)?  Never equal: p has infinitely many bits."""
        while True:
            low, high = normal_cdf(c, self._bits + 8)
            if (self._value + 1) << 8 <= low:
                return True
            if self._value << 8 >= high:
                return False
            self._value = (self._value << 64) | int(words(self._stream, 1)[0])
            self._bits += 64


def normal_cdf(c: Fraction, bits: int) -> tuple[int, int]:
    """Integers (low, high), at most 2 apart, with low <= 2^bits Phi(c) <= high.

    Phi(c) = 1/2 + (2 pi)^-1/2 sum_k (-1)^k c^(2k+1) / (2^k k! (2k+1)) in fixed point.  Terms grow to e^(c^2/2) before
    they fall; every one of n terms is truncated three times and carries on its predecessor's error times
    c^2/(2k): together less than 4 n^2 (c^2 + 2) e^(c^2/2) units in the last place, hence the guard bits.
    """
    square = floor(c * c) + 1
    work = bits + 96 + square + 2 * square.bit_length()
    x = (c.numerator << work) // c.denominator
    x2 = (x * x) >> work
    total, term, k = 0, x, 0
    while abs(term) > 1 or k <= square:
        total += term // (2 * k + 1)
        k += 1
        term = -(term * x2 >> work) // (2 * k)
    value = (1 << (work - 1)) + (total * _inverse_root_two_pi(work) >> work)
    drop = work - bits
    slack = 1 << (drop - 16)  # far more than the error above
    return (value - slack) >> drop, -(-(value + slack) >> drop)


@lru_cache(maxsize=64)
def _inverse_root_two_pi(work: int) -> int:
    """2^work / sqrt(2 pi), to a unit or two in the last place."""
    extra = work + 32
    pi = 4 * (4 * _arctan_inverse(5, extra) - _arctan_inverse(239, extra))
    return isqrt((1 << (2 * work + extra)) // (2 * pi))


def _arctan_inverse(n: int, work: int) -> int:
    """2^work arctan(1/n)."""
    total, power, k = 0, (1 << work) // n, 0
    while power:
        total += (power if k % 2 == 0 else -power) // (2 * k + 1)
        power //= n * n
        k += 1
    return total


def cell_probability(v: float, scale: float, j: int, bits: int = 128) -> Fraction:
    """P(out = (scale/256)(j + 1/2)) for a private ``v`` within range, to 2^(2 - bits); for audits: nothing is drawn."""
    offset = Fraction(v) / Fraction(scale)
    ends = [sum(normal_cdf(Fraction(at, CELLS) - offset, bits)) for at in (j, j + 1)]
    return Fraction(ends[1] - ends[0], 2 << bits)


def largest_quantile_error(points: int = 257) -> float:
    """How far floating point's normal quantile is from the exact one at ``points`` places, in units of what is allowed.

    Below 1: the proposal is good enough everywhere it was looked at.  A sound machine gives about 1e-5.
    """
    low = (np.geomspace(float(_TAIL), 2.0**63 * (1 - 2.0**-30), points)).astype(np.uint64)
    allowed = MARGIN / 2 / CELLS
    worst = 0.0
    for integer, z in zip(low.tolist(), _quantile(low).tolist(), strict=True):
        # |Phi(z) - p| / phi(z), with phi from below: its value at the far end of the allowed step.
        reached = sum(normal_cdf(Fraction(z), 128)) * 0.5
        density = float(np.exp(-0.5 * (abs(z) + allowed) ** 2)) * 0.3989
        error = abs(reached - (integer + 0.5) * 2.0**64) / 2.0**128 / density
        worst = max(worst, error)
    return nextafter(worst / allowed, 2.0)
