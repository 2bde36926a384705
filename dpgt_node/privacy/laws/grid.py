"""The law of the grid Laplace noise, exactly: table, certificate, probabilities (docs/explanation/theory-sampler.md).

A private coordinate v becomes x = v/g in cells of width g, x is rounded up or down at random without bias to an integer
i, and an integer N is added; g (i + N + 1/2) is released.  N = G or -1 - G with equal probability, G = 64 hi + lo with
P(hi = h) = 2^-(h+1) and P(lo = l) = WEIGHTS[l] / 2^24.  So the probability of every output is a convex combination of
two neighbouring weights, piecewise linear in x, and |d/dx log P| <= KAPPA, the largest ratio of neighbouring weights
less one.  With g >= KAPPA scale a shift of v by t costs at most t/scale: pure differential privacy with no term for the
grid.  Everything below is integers and fractions; nothing is drawn here.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from dpgt_node.values import dataclass

BLOCK: Final = 64  # cells in which the weights halve
TOTAL_BITS: Final = 24
FRACTION_BITS: Final = 40  # of a cell: the resolution of x
LIMIT_CELLS: Final = 1 << 22  # |x| beyond it is clipped, so that x fits 63 bits with its fraction
DIRECT_BITS: Final = 14
MIXED: Final = 255  # in Tables.direct: more than one lo begins with these bits
MIN_SCALE: Final = 1e-290
MAX_SCALE: Final = 1e290

# 2^24 2^(-l/64) / sum, rounded by largest remainder; strictly decreasing; the last is more than half of the first.
# fmt: off
WEIGHTS: Final = (
    361_448, 357_554, 353_703, 349_893, 346_124, 342_395, 338_707, 335_058,
    331_449, 327_879, 324_347, 320_853, 317_397, 313_978, 310_596, 307_250,
    303_940, 300_666, 297_427, 294_224, 291_054, 287_919, 284_818, 281_750,
    278_714, 275_712, 272_742, 269_804, 266_898, 264_023, 261_179, 258_365,
    255_582, 252_829, 250_106, 247_412, 244_746, 242_110, 239_502, 236_922,
    234_370, 231_845, 229_348, 226_877, 224_434, 222_016, 219_624, 217_259,
    214_918, 212_603, 210_313, 208_048, 205_806, 203_590, 201_396, 199_227,
    197_081, 194_958, 192_858, 190_780, 188_725, 186_692, 184_681, 182_692,
)
# fmt: on


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """How 24 uniform bits r become lo: ``direct[r >> 10]``, where that is MIXED the l with edges[l] <= r < edges[l+1].

    ``direct``: uint8 (2^14,).  ``edges``: int64 (65,), from 0 to 2^24.  Both read-only.
    """

    direct: npt.NDArray[np.uint8]
    edges: npt.NDArray[np.int64]


def tables(weights: tuple[int, ...]) -> Tables:
    """The tables that give lo = l to exactly ``weights[l]`` of the 2^24 values of r."""
    edges = np.concatenate(([0], np.cumsum(weights, dtype=np.int64)))
    first = np.arange(1 << DIRECT_BITS, dtype=np.int64) << (TOTAL_BITS - DIRECT_BITS)
    last = first + (1 << (TOTAL_BITS - DIRECT_BITS)) - 1
    low, high = (np.searchsorted(edges, at, side="right") - 1 for at in (first, last))
    direct = np.where(low == high, low, MIXED).astype(np.uint8)
    direct.setflags(write=False)
    edges.setflags(write=False)
    return Tables(direct, edges)


def drawn_weights(t: Tables) -> tuple[int, ...]:
    """How many of the 2^24 values of r give each lo, counted from the tables themselves.

    Raises ValueError when some value of r gives none, two or one outside 0..63.
    """
    edges, direct = t.edges, t.direct
    if edges.shape != (BLOCK + 1,) or direct.shape != (1 << DIRECT_BITS,):
        raise ValueError("sampler table: wrong size")
    if edges[0] != 0 or edges[-1] != 1 << TOTAL_BITS or not (np.diff(edges) > 0).all():
        raise ValueError("sampler table: the edges must rise strictly from 0 to 2^24")
    mixed = np.flatnonzero(direct == MIXED)
    plain = direct[direct != MIXED]
    if plain.size and plain.max() >= BLOCK:
        raise ValueError("sampler table: a direct entry outside 0..63")
    width = 1 << (TOTAL_BITS - DIRECT_BITS)
    begin = (mixed.astype(np.int64) * width)[:, None]
    overlap = np.minimum(edges[1:], begin + width) - np.maximum(edges[:-1], begin)
    counts = np.bincount(plain, minlength=BLOCK) * width + np.maximum(overlap, 0).sum(axis=0)
    return tuple(int(c) for c in counts)


def certificate(t: Tables) -> Fraction:
    """kappa: max over neighbouring cells of (larger weight / smaller weight), the block edge included, minus 1.

    Computed from the tables that draw.  Raises ValueError for tables that are no probability law.
    """
    w = drawn_weights(t)
    if sum(w) != 1 << TOTAL_BITS or min(w) < 1:
        raise ValueError("sampler table: the weights must be positive and add up to 2^24")
    # Cell 64 h + 63 is followed by cell 64 (h + 1), whose weight carries another factor 1/2.
    ratios = [Fraction(w[j], w[j + 1]) for j in range(BLOCK - 1)] + [Fraction(2 * w[-1], w[0])]
    return max(max(r, 1 / r) for r in ratios) - 1


TABLES: Final = tables(WEIGHTS)
KAPPA: Final = certificate(TABLES)  # 1097/100698 = 0.010893960...


def _up(exact: Fraction) -> float:
    """The smallest double >= ``exact``."""
    near = float(exact)
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)


KAPPA_UP: Final = _up(KAPPA)


def check_scale(scale: float) -> None:
    """Raises ValueError unless 1e-290 <= ``scale`` <= 1e290: beyond, cells and outputs leave the range of doubles."""
    if not MIN_SCALE <= scale <= MAX_SCALE:
        raise ValueError(f"noise scale must lie between {MIN_SCALE:g} and {MAX_SCALE:g}, got {scale}")


@lru_cache(maxsize=4096)
def cell(scale: float) -> float:
    """g, the width of a cell: the smallest double >= KAPPA ``scale``.  Raises ValueError (check_scale)."""
    check_scale(scale)
    return _up(KAPPA * Fraction(scale))


def clip_range(scale: float) -> float:
    """The largest magnitude that is not clipped: 2^22 cells, about 45,700 scales, rounded down."""
    return math.nextafter(LIMIT_CELLS * cell(scale), 0.0)


def lam(dimension: int, scale: float, norm: float | None = None) -> float:
    """What rounding may add to the cost ||v - v'||_1 / scale of one release of ``dimension`` coordinates, rounded up.

    ``norm``: a bound on ||v||_1 that holds in both worlds; without it the clip bounds every coordinate instead:
    d kappa 2^-40 + 2^-52 norm/scale, or d kappa (2^-40 + 2^-52 2^22).
    """
    check_scale(scale)
    rounding = dimension * KAPPA_UP * 2.0**-FRACTION_BITS
    division = dimension * KAPPA_UP * LIMIT_CELLS * 2.0**-52
    if norm is not None:
        division = min(division, norm / scale * 2.0**-52)
    return (rounding + division) * (1.0 + 2.0**-40)


def quantise(v: float, scale: float) -> int:
    """x in units of 2^-40 cells, as the sampler computes it from ``v`` (finite)."""
    unit = cell(scale) * 2.0**-FRACTION_BITS
    with np.errstate(over="ignore"):
        t = float(np.float64(v) / np.float64(unit))
    limit = float(LIMIT_CELLS << FRACTION_BITS)
    return int(max(-limit, min(limit, t)))


def noise_probability(n: int) -> Fraction:
    """P(N = n), exactly."""
    hi, lo = divmod(n if n >= 0 else -1 - n, BLOCK)
    return Fraction(WEIGHTS[lo], 1 << (TOTAL_BITS + hi + 2))


@dataclass(frozen=True, slots=True)
class GridPmf:
    """The exact law of one released coordinate: out = ``value(j)`` with ``probability(j)``, j any integer."""

    x: Fraction  # the private value in cells, as quantised
    g: float

    def value(self, j: int) -> float:
        """g (j + 1/2): the grid point."""
        return self.g * (j + 0.5)

    def index(self, out: float) -> int:
        """The j of a released value."""
        return math.floor(out / self.g)

    def probability(self, j: int) -> Fraction:
        """P(out = value(j))."""
        i = math.floor(self.x)
        f = self.x - i
        return (1 - f) * noise_probability(j - i) + f * noise_probability(j - i - 1)


def grid_laplace_pmf(v: float, scale: float) -> GridPmf:
    """The law of the released coordinate whose private value is ``v``; for audits: no keystream, nothing drawn."""
    if not math.isfinite(v):
        raise ValueError(f"a private value must be finite, got {v}")
    return GridPmf(Fraction(quantise(v, scale), 1 << FRACTION_BITS), cell(scale))
