"""Drawing from the grid Laplace law of grid.py: vectorised numpy, and the same bits compiled where numba is installed.

A coordinate takes 96 bits: a 64-bit word (the top 24 give lo, the low 40 round) and a 32-bit word (trailing zeros of
the low 31 give hi, the top bit the sign).  All-zero 31 bits, one coordinate in 2^31, continue in further words.  The
words of up to ``CHUNK`` coordinates come first, then their short words, then the continuations in order.

What a short vector is perturbed with does not depend on it: in a daemon the noise of several (``sampler.ahead``) is
drawn at once, each used once.  It is in the memory of the process that drew it and nowhere else.

Every step is integer arithmetic or one correctly rounded division, so all machines and both paths draw the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from dpgt_node.privacy.laws import grid
from dpgt_node.privacy.laws.compiled import Code, Loop, fixed
from dpgt_node.privacy.laws.noise import ByteStream
from dpgt_node.privacy.laws.sampler import AHEAD_BELOW, held_by, next_row, surely_within, take_rows, words
from dpgt_node.types import F64, I64

I32 = npt.NDArray[np.int32]

CHUNK: Final = 1 << 15  # part of the definition of the bits
_CALL: Final = 1 << 8  # coordinates from which on a row is worth a call of a compiled loop
SPARE: Final = 15  # bytes that a stream's read_into may scribble over
_LIMIT: Final = float(grid.LIMIT_CELLS << grid.FRACTION_BITS)
_LOW40: Final = (1 << grid.FRACTION_BITS) - 1
_LOW31: Final = 0x7FFFFFFF
_BIAS: Final = 127 * grid.BLOCK  # the exponent bias of float32, in cells
_DIRECT_SHIFT: Final = 64 - grid.DIRECT_BITS
_DIRECT_MASK: Final = (1 << grid.DIRECT_BITS) - 1


def kernel(v: F64, unit: float, g: float, a: I64, b: I32, direct: npt.NDArray[np.uint8], edges: I64, out: F64) -> bool:
    """One chunk for numba; False when it met what only the numpy path handles, and then ``out`` holds nothing.

    ``direct``, ``edges``: grid.TABLES.  Plain Python, so that it can be checked without numba.  Loops without a branch,
    which become vector instructions: one loop over all of it takes four times as long.
    """
    good, n = True, np.empty(v.size, np.int32)
    for i in range(v.size):
        out[i] = v[i] / unit
        good &= abs(out[i]) <= _LIMIT
    for i in range(v.size):  # 64 times the place of the lowest bit of b, bit by bit
        low = int(b[i]) & -int(b[i])
        good &= low & _LOW31 != 0
        odd, pairs, fours = low & 0xAAAAAAAA != 0, low & 0xCCCCCCCC != 0, low & 0xF0F0F0F0 != 0
        eights, half = low & 0xFF00FF00 != 0, low & 0xFFFF0000 != 0
        n[i] = (odd << 6) + (pairs << 7) + (fours << 8) + (eights << 9) + (half << 10)
    if not good:
        return False
    for i in range(v.size):
        lo = int(direct[(a[i] >> _DIRECT_SHIFT) & _DIRECT_MASK])
        if lo == grid.MIXED:
            lo, r = 0, (a[i] >> 40) & 0xFFFFFF
            while edges[lo + 1] <= r:
                lo += 1
        n[i] += lo
    for i in range(v.size):
        out[i] = g * (((int(out[i]) + (a[i] & _LOW40)) >> 40) + (n[i] ^ (b[i] >> 31)) + 0.5)
    return True


class Scratch:
    """Working memory for ``n`` coordinates."""

    __slots__ = ("bits", "float32", "lo", "long", "n", "short", "sign", "t", "x")

    def __init__(self, n: int) -> None:
        self.n = n
        self.bits = np.empty(12 * n + SPARE, dtype=np.uint8)
        self.t = np.empty(n)
        self.x, self.long = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
        self.lo = np.empty(n, dtype=np.uint8)
        self.short, self.sign = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
        self.float32 = np.empty(n, dtype=np.float32)

    def first(self, n: int) -> Scratch:
        """Views of the first ``n`` <= self.n coordinates."""
        if n == self.n:
            return self
        part = Scratch.__new__(Scratch)
        part.n, part.bits = n, self.bits[: 12 * n + SPARE]
        for name in ("t", "x", "long", "lo", "short", "sign", "float32"):
            setattr(part, name, getattr(self, name)[:n])
        return part


def read(stream: ByteStream, s: Scratch) -> tuple[I64, I32]:
    """The next words and short words for ``s.n`` coordinates; they live in the scratch memory."""
    size = 12 * s.n
    read_into = getattr(stream, "read_into", None)
    if read_into is not None:
        read_into(s.bits, size)
    else:
        s.bits[:size] = np.frombuffer(stream.take(size), dtype=np.uint8)
    return s.bits[: 8 * s.n].view("<i8"), s.bits[8 * s.n : size].view("<i4")


def read_rows(streams: Sequence[ByteStream], d: int) -> tuple[I64, I32]:
    """The next words and short words for ``d`` coordinates of each stream, row after row."""
    rows = np.frombuffer(take_rows(streams, 12 * d), dtype=np.uint8).reshape(len(streams), 12 * d)
    long, short = rows[:, : 8 * d].ravel(), rows[:, 8 * d :].ravel()
    return long.view("<i8"), short.view("<i4")


def draw(s: Scratch, a: I64, b: I32, streams: Sequence[ByteStream]) -> I64:
    """The cells i + N for the quantised values in ``s.t`` (units of 2^-40 cells, up to 2^62); overwrites the scratch.

    ``streams``: those of equally long consecutive rows, for the continuations.
    """
    # i = (q + U) >> 40.  Truncation, not rounding: monotone all the same, and one pass less.
    np.copyto(s.x, s.t, casting="unsafe")
    np.bitwise_and(a, _LOW40, out=s.long)
    np.add(s.x, s.long, out=s.x)
    np.right_shift(s.x, grid.FRACTION_BITS, out=s.x)
    np.add(s.x, cells(s, a, b, streams), out=s.x)
    return s.x


def cells(s: Scratch, a: I64, b: I32, streams: Sequence[ByteStream]) -> I32:
    """N alone, in the scratch memory; arguments as for ``draw``."""
    # lo
    np.right_shift(a.view(np.uint64), np.uint64(_DIRECT_SHIFT), out=s.long.view(np.uint64))
    np.take(grid.TABLES.direct, s.long, out=s.lo, mode="clip")
    if np.maximum.reduce(s.lo) == grid.MIXED:
        at = np.flatnonzero(s.lo == grid.MIXED)
        r = (a[at] >> 40) & 0xFFFFFF
        s.lo[at] = np.searchsorted(grid.TABLES.edges, r, side="right") - 1
    # 64 hi: the lowest set bit of b as a float32 carries its place in the exponent.
    np.negative(b, out=s.short)
    np.bitwise_and(s.short, b, out=s.short)
    np.copyto(s.float32, s.short, casting="unsafe")
    np.right_shift(s.float32.view(np.int32), 17, out=s.short)
    empty = np.flatnonzero(s.short < _BIAS).tolist() if np.minimum.reduce(s.short) < _BIAS else []
    np.add(s.short, s.lo, out=s.short)
    np.subtract(s.short, _BIAS, out=s.short)
    for j in empty:
        s.short[j] = continue_hi(streams[j * len(streams) // s.n]) * grid.BLOCK + int(s.lo[j])
    # N = G or -1 - G
    np.right_shift(b, 31, out=s.sign)
    np.bitwise_xor(s.short, s.sign, out=s.short)
    return s.short


def continue_hi(stream: ByteStream) -> int:
    """hi of a coordinate whose 31 bits were all zero: 31 + the zeros at the low end of the words that follow."""
    hi = 31
    while not (word := int(words(stream, 1)[0])):
        hi += 64
    return hi + (word & -word).bit_length() - 1


def drawn_ahead(stream: ByteStream, n: int, d: int) -> tuple[I64, F64]:
    """U (units of 2^-40 cells) and N + 1/2 of the next ``n`` vectors (n, d), as if each were drawn in its turn."""
    streams = (stream,) * n
    a, b = read_rows(streams, d)
    noise = np.add(cells(Scratch(a.size), a, b, streams), 0.5, dtype=np.float64)
    low: I64 = a & _LOW40
    return low.reshape(n, d), noise.reshape(n, d)


class GridLaplaceSampler:
    """Sound Laplace noise: ``||v - v'||_1 / scale + lam`` bounds the cost of a release for these very doubles.

    Not for concurrent use.  ``compiled``: draw with numba; None: from 2^18 coordinates on, where it is installed.
    """

    __slots__ = ("_compiled", "_kernel", "_scratch", "clipped")

    def __init__(self, compiled: bool | None = None) -> None:
        self.clipped = 0
        self._compiled = compiled
        self._kernel = Loop(kernel, compiled)
        self._scratch = Scratch(0)

    def lam(self, dimension: int, scale: float, norm: float | None = None) -> float:
        """See :func:`dpgt_node.privacy.laws.grid.lam`."""
        return grid.lam(dimension, scale, norm)

    def range(self, scale: float) -> float:
        """The largest magnitude that is not clipped, about 45,700 ``scale``."""
        return grid.clip_range(scale)

    def perturb(self, private: F64, scale: float, stream: ByteStream) -> F64:
        """``private`` + noise: float64 (d,), odd multiples of g/2; takes 12 d bytes (and 8 more, once in 2^31).

        Coordinates beyond ``range(scale)`` are clipped to it and counted in ``clipped``.  Raises ValueError for values
        that are not finite and for scales outside 1e-290..1e290.
        """
        g = grid.cell(scale)
        held = None if self._compiled else held_by(stream, private.size)
        if held is not None:
            drawn = next_row(held, drawn_ahead, stream, private.size)
            return self._perturb_ahead(private, g, *drawn)
        out = np.empty(private.size)
        s = self._scratch_for(min(private.size, CHUNK))
        fast = self._kernel.of(private.size)
        for start in range(0, private.size, CHUNK):
            v, into = private[start : start + CHUNK], out[start : start + CHUNK]
            part = s.first(v.size)
            self._drawn(fast, v, g, *read(stream, part), part, stream, into)
        return out

    def perturb_rows(self, private: F64, scales: F64, streams: Sequence[ByteStream]) -> F64:
        """Row i is ``perturb(private[i], scales[i], streams[i])``, to the bit: many short vectors in one pass.

        ``private`` (n, d) with d <= CHUNK, ``scales`` (n,).
        """
        n, d = private.shape
        if d > CHUNK:
            raise ValueError(f"rows of at most {CHUNK} coordinates, got {d}")
        out = np.empty((n, d))
        together = max(1, CHUNK // max(d, 1))
        s = self._scratch_for(min(n, together) * d)
        fast = self._kernel.of(d) if d >= _CALL else None
        for start in range(0, n, together):
            part = slice(start, start + together)
            g = np.array([[grid.cell(scale)] for scale in scales[part].tolist()])
            rows, (a, b) = private[part], read_rows(streams[part], d)
            if fast is None:
                self._chunk(rows, g, a, b, s.first(rows.size), streams[part], out[part])
                continue
            for i, row in enumerate(rows):
                words, own = slice(i * d, (i + 1) * d), float(g[i, 0])
                self._drawn(fast, row, own, a[words], b[words], s.first(d), streams[start + i], out[start + i])
        return out

    def _drawn(
        self, fast: Code | None, v: F64, g: float, a: I64, b: I32, s: Scratch, stream: ByteStream, out: F64
    ) -> None:
        """One chunk, by ``fast`` if it can."""
        if fast is not None:
            v, a, b, tables = fixed(v.astype(np.float64, copy=False)), fixed(a), fixed(b), grid.TABLES
            if fast(v, g * 2.0**-grid.FRACTION_BITS, g, a, b, tables.direct, tables.edges, out):
                return
        self._chunk(v, g, a, b, s, (stream,), out)

    def _perturb_ahead(self, private: F64, g: float, low: I64, noise: F64) -> F64:
        out, unit = np.empty(private.size), g * 2.0**-grid.FRACTION_BITS
        if surely_within(private, _LIMIT * unit):
            np.divide(private, unit, out=out)
        else:
            self._quantised(private, g, out)
        x = out.astype(np.int64)
        x += low
        x >>= grid.FRACTION_BITS
        np.add(x, noise, out=out)  # exact: all are multiples of 1/2 below 2^50
        return np.multiply(out, g, out=out)

    def _chunk(
        self, v: F64, g: float | F64, a: I64, b: I32, s: Scratch, streams: Sequence[ByteStream], out: F64
    ) -> None:
        if not v.size:
            return
        self._quantised(v, g, s.t.reshape(v.shape))
        np.add(draw(s, a, b, streams).reshape(v.shape), 0.5, out=out)
        np.multiply(out, g, out=out)

    def _quantised(self, v: F64, g: float | F64, t: F64) -> F64:
        """``v`` in units of 2^-40 cells, clipped, into ``t`` and returned."""
        with np.errstate(over="ignore"):
            np.divide(v, g * 2.0**-grid.FRACTION_BITS, out=t)
            if t.ndim == 1 and t.size <= AHEAD_BELOW and t.dot(t) <= _LIMIT * _LIMIT / 4:
                return t  # no number is larger than the root of this sum, give or take its rounding
        if not (np.minimum.reduce(t, axis=None) >= -_LIMIT and np.maximum.reduce(t, axis=None) <= _LIMIT):
            if not np.isfinite(v).all():
                raise ValueError("a private value is not finite: no noise was added")
            self.clipped += int(np.count_nonzero(np.abs(t) > _LIMIT))
            np.clip(t, -_LIMIT, _LIMIT, out=t)
        return t

    def _scratch_for(self, n: int) -> Scratch:
        if self._scratch.n != n:
            self._scratch = Scratch(n)
        return self._scratch
