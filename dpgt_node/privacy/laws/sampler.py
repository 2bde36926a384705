"""From uniform bytes to noise and to batches.

:class:`LaplaceSampler` is the plain floating-point sampler: its law is Laplace up to float64 rounding, and the low bits
of a sum ``v + noise`` can tell two values of v apart (privacy.md, section 6), so the pure epsilon it is charged holds
for the ideal real-valued mechanism only.  :mod:`dpgt_node.privacy.laws.grid_sampler` has the sound one, behind the same
``Sampler`` interface.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from dpgt_node.privacy.laws.noise import ByteStream
from dpgt_node.types import F64, I64

U64 = npt.NDArray[np.uint64]

CHUNK = 1 << 14  # words a pass: 128 KiB, so that the scratch arrays stay in the second-level cache
_SIGN = np.uint64(63)
_LOW = np.uint64(11)
AHEAD = 1 << 14  # coordinates whose noise is drawn at once
AHEAD_BELOW = 1 << 10  # coordinates of a vector; above, a pass over one is as cheap
_AHEAD_VECTORS = 128  # at most: with more of them, drawing is cheap beside using what was drawn
_SQUARES = 1e-150, 1e150  # between them squares are neither 0 nor infinite


def words(stream: ByteStream, count: int) -> U64:
    """The next ``count`` uniform 64-bit words of ``stream``, read-only, little-endian whatever the machine."""
    return np.frombuffer(stream.take(8 * count), dtype="<u8")


def take_rows(streams: Sequence[ByteStream], nbytes: int) -> bytes:
    """The next ``nbytes`` of every stream, one after the other."""
    if streams.count(streams[0]) == len(streams):  # production: one stream for all
        return streams[0].take(len(streams) * nbytes)
    return b"".join([stream.take(nbytes) for stream in streams])


def rows_of_words(streams: Sequence[ByteStream], d: int) -> U64:
    """The next ``d`` words of every stream: (streams, d), read-only."""
    return np.frombuffer(take_rows(streams, 8 * d), dtype="<u8").reshape(len(streams), d)


def ahead(d: int) -> int:
    """Of how many vectors of ``d`` coordinates the noise is drawn at once."""
    return min(_AHEAD_VECTORS, AHEAD // d)


class Ahead:
    """What was drawn for the next vectors of one length: the rows of ``drawn``, of which nobody gets one again."""

    __slots__ = ("_drawn", "_next")

    def __init__(self, drawn: Sequence[npt.NDArray[Any]]) -> None:
        self._drawn, self._next = drawn, 0

    def take(self) -> list[npt.NDArray[Any]] | None:
        """The next row of each; None: all were taken."""
        row, self._next = self._next, self._next + 1
        return [one[row] for one in self._drawn] if row < len(self._drawn[0]) else None


Draw = Callable[[ByteStream, int, int], Sequence[npt.NDArray[Any]]]
"""``draw(stream, n, d)``: what belongs to the next n vectors of d coordinates, rows (n, d)."""


def held_by(stream: ByteStream, d: int) -> dict[tuple[Draw, int], Ahead] | None:
    """Where a daemon's ``stream`` keeps what was drawn ahead; None: it draws each vector (d,) in its turn."""
    held = getattr(stream, "held", None)
    return None if held is None or not 0 < d <= AHEAD_BELOW else held()


def next_row(held: dict[tuple[Draw, int], Ahead], draw: Draw, stream: ByteStream, d: int) -> Any:
    """What ``draw`` drew for the next vector (d,); it draws for ``ahead(d)`` of them where none is left."""
    found = held.get((draw, d))
    row = None if found is None else found.take()
    if row is None:
        found = held[draw, d] = Ahead(draw(stream, ahead(d), d))
        row = found.take()
    return row


def surely_within(private: F64, limit: float) -> bool:
    """Whether one look at a vector (d,) says that all is finite and far from ``limit``; False: that look does not tell.

    No number is larger than the root of the sum of squares, give or take its rounding.  Where that overflows, numpy
    warns unless told otherwise.
    """
    least, most = _SQUARES
    return least < limit < most and bool(private.dot(private) <= 0.25 * limit * limit)


def unit_uniform(w: U64) -> F64:
    """Uniform on the 2^53 points j 2^-53, j = 1..2^53, so in (0, 1]: the logarithm is finite.  Uses the top 53 bits."""
    u = (w >> _LOW).astype(np.float64)
    u += 1.0
    u *= 2.0**-53
    return u


def laplace(stream: ByteStream, count: int, scale: float) -> F64:
    """``count`` independent Lap(scale) values, float64, |value| <= 36.8 scale: inverse CDF, one 64-bit word each.

    The top 53 bits give the magnitude ``-scale ln u``, the lowest bit the sign.
    """
    w = words(stream, count)
    out = unit_uniform(w)
    np.log(out, out=out)
    out *= scale
    bits = out.view(np.uint64)
    bits ^= w << _SIGN
    return out


class LaplaceSampler:
    """Plain float64 Laplace noise (see the module's warning)."""

    __slots__ = ()
    clipped: int = 0

    def perturb(self, private: F64, scale: float, stream: ByteStream) -> F64:
        """``private + Lap(scale)^d``: a new float64 array (d,).  0 < ``scale`` < 1e300; takes 8 d bytes."""
        if not 0.0 < scale < 1e300:
            raise ValueError(f"Laplace scale must be positive and below 1e300, got {scale}")
        d = private.size
        if d <= CHUNK:
            out = laplace(stream, d, scale)
            out += private
            return out
        out = np.empty(d)
        for start in range(0, d, CHUNK):
            part = private[start : start + CHUNK]
            np.add(laplace(stream, part.size, scale), part, out=out[start : start + CHUNK])
        return out

    def lam(self, dimension: int, scale: float, norm: float | None = None) -> float:
        """inf: the low bits of a float sum can tell any two values apart."""
        return math.inf

    def range(self, scale: float) -> float:
        """inf: nothing is clipped."""
        return math.inf


def uniform_subset(stream: ByteStream, population: int, size: int) -> I64:
    """``size`` distinct indices of ``range(population)``, int64: a uniformly distributed SUBSET.

    Every subset of that size has the same probability, without modulo bias: 64-bit words above the last whole multiple
    of ``population`` are thrown away.  The order is random too.  The whole population takes no bytes.
    Raises ValueError unless 0 <= size <= population.
    """
    if not 0 <= size <= population:
        raise ValueError(f"cannot choose {size} of {population}")
    if size == population:
        return np.arange(population, dtype=np.int64)
    if 2 * size > population:
        keep = np.ones(population, dtype=np.bool_)
        keep[uniform_subset(stream, population, population - size)] = False
        # In a random order: in ascending order a replaced sample would shift the PLACE of others in the batch, and the
        # proof of `amplified` would need a matrix product whose rounding does not depend on the place.
        return np.flatnonzero(keep)[np.argsort(words(stream, size), kind="stable")]
    last = np.uint64((1 << 64) // population * population - 1)
    chosen: dict[int, None] = {}
    while len(chosen) < size:
        missing = size - len(chosen)
        w = words(stream, missing + missing // 4 + 4)
        # The first ``size`` distinct accepted draws are a uniform ordered sample; what is drawn beyond is dropped.
        chosen.update(dict.fromkeys((w[w <= last] % np.uint64(population)).tolist()))
    return np.fromiter(islice(chosen, size), dtype=np.int64, count=size)
