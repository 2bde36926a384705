"""ln of the exact probability of what an agent drew, coordinate by coordinate (docs/explanation/theory-sampler.md).

A sampler returns grid points g (j + 1/2); what goes over the wire is such a point plus a transcript part, rounded.  So
the transcript part is subtracted, the nearest grid point taken, and the probability is that of the sampler's own
integer law.  Where rounding hides which point it was (a float32 wire and large values) or where the values lie on no
such grid (another sampler than the run file's), the continuous density stands in, and the draw says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from dpgt_node.privacy.laws import grid
from dpgt_node.types import F64, NoiseLaw, WireDtype

Kind = Literal["exact", "rounded", "foreign"]

GAUSSIAN_CELLS: Final = 256  # a standard deviation; its clip is LIMIT of them
GAUSSIAN_LIMIT: Final = 1 << 24
_UNIT: Final[dict[WireDtype, float]] = {"float64": 2.0**-53, "float32": 2.0**-24}
_WEIGHTS: Final = np.array(grid.WEIGHTS, dtype=np.float64)
_LN2: Final = math.log(2.0)


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """One vector as the sampler returned it: private part + noise of ``scale``.

    ``kind``: ``exact``, the very grid points; ``rounded``, known to ``error`` (d,); ``foreign``, not on the grid of
    this law and scale.  ``values`` float64 (d,); ``cells`` their j, int64 (d,), meaningless unless ``exact``.
    """

    law: NoiseLaw
    scale: float
    kind: Kind
    values: F64 = field(repr=False)
    cells: npt.NDArray[np.int64] = field(repr=False)
    error: F64 = field(repr=False)


def recover(sent: F64, transcript: F64, scale: float, law: NoiseLaw, dtype: WireDtype, factor: float = 1.0) -> Draw:
    """The draw in ``sent`` = wire rounding of (``factor`` * draw + ``transcript``); ``scale`` > 0."""
    values = sent - transcript
    bound = _UNIT[dtype] * np.abs(sent) + 2.0**-52 * (np.abs(sent) + np.abs(transcript) + np.abs(values)) + 5e-324
    if factor != 1.0:  # one more rounding each, of the product there and of the quotient here
        values, bound = values / factor, (bound + 2.0**-52 * np.abs(values)) / abs(factor)
    g = cell_of(law, scale)
    at = np.rint(values / g - 0.5)
    points = (at + 0.5) * g
    if (bound >= 0.5 * g).any():
        return Draw(law, scale, "rounded", values, np.zeros(values.size, dtype=np.int64), bound)
    if (np.abs(values - points) > bound + 2.0**-50 * np.abs(points)).any():
        return Draw(law, scale, "foreign", values, np.zeros(values.size, dtype=np.int64), bound)
    return Draw(law, scale, "exact", points, at.astype(np.int64), np.zeros(values.size))


def cell_of(law: NoiseLaw, scale: float) -> float:
    """g, the width of a cell."""
    return grid.cell(scale) if law == "laplace" else scale / GAUSSIAN_CELLS


def log_probability(draw: Draw, private: F64) -> F64:
    """ln P(draw | private part), float64 (d,); up to a constant of the draw where the density stands in."""
    if draw.kind == "exact":
        return (_grid_laplace if draw.law == "laplace" else _grid_gaussian)(draw.cells, private, draw.scale)
    t = (draw.values - private) / draw.scale
    return -np.abs(t) if draw.law == "laplace" else -0.5 * t * t


def doubt(draw: Draw, first: F64, second: F64) -> F64:
    """How far the ln of the ratio of both worlds' probabilities may be off for what rounding hides: float64 (d,)."""
    shift = np.abs(first - second) / draw.scale
    error = draw.error / draw.scale
    return np.minimum(2.0 * error, 2.0 * shift) if draw.law == "laplace" else error * shift


def _grid_laplace(cells: npt.NDArray[np.int64], private: F64, scale: float) -> F64:
    """The vectorised ``grid.grid_laplace_pmf``."""
    limit = float(grid.LIMIT_CELLS << grid.FRACTION_BITS)
    with np.errstate(over="ignore"):
        q = np.clip(private / (grid.cell(scale) * 2.0**-grid.FRACTION_BITS), -limit, limit).astype(np.int64)
    up = (q & ((1 << grid.FRACTION_BITS) - 1)).astype(np.float64) * 2.0**-grid.FRACTION_BITS
    n = cells - (q >> grid.FRACTION_BITS)
    low_hi, low = _weight(n)
    high_hi, high = _weight(n - 1)
    base = np.minimum(low_hi, high_hi)  # they differ by at most one
    mixed = (1.0 - up) * np.ldexp(low, base - low_hi) + up * np.ldexp(high, base - high_hi)
    return np.asarray(np.log(mixed) - _LN2 * (base + grid.TOTAL_BITS + 2.0))


def _weight(n: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], F64]:
    """(hi, weight of lo) of N = n."""
    magnitude = np.where(n >= 0, n, -1 - n)
    hi, lo = np.divmod(magnitude, grid.BLOCK)
    return hi, _WEIGHTS[lo]


def _grid_gaussian(cells: npt.NDArray[np.int64], private: F64, scale: float) -> F64:
    from scipy.special import log_ndtr  # slow to import, and only this law needs it

    reach = scale * (GAUSSIAN_LIMIT / GAUSSIAN_CELLS)
    z = np.clip(private, -reach, reach) / scale
    a, b = cells / GAUSSIAN_CELLS - z, (cells + 1) / GAUSSIAN_CELLS - z
    upper = a + b > 0.0
    a, b = np.where(upper, -b, a), np.where(upper, -a, b)  # the lower tail, where the logarithm is accurate
    top: F64 = log_ndtr(b)
    return np.asarray(top + np.log(-np.expm1(log_ndtr(a) - top)))
