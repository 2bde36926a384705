"""Laplace noise: pure epsilon for L1 shifts, and zero-concentrated for L2 ones; drawn on the grid of grid.py."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dpgt_node.privacy.laws import grid
from dpgt_node.privacy.laws.law import Law, Rng
from dpgt_node.types import F64, I64

if TYPE_CHECKING:
    from dpgt_node.privacy.laws.noise import SoundSampler

_WEIGHTS: Final = np.array(grid.WEIGHTS, dtype=np.float64)
_TAILS: Final = np.cumsum(_WEIGHTS[::-1])[::-1] / 2.0**grid.TOTAL_BITS
"""P(lo >= l)."""
_LN2: Final = math.log(2.0)


@lru_cache(maxsize=1)
def _variance() -> float:
    """E[(N + 1/2)^2] in units of the scale: G = 64 hi + lo, P(hi = h) = 2^-(h+1), E hi = 1, E hi^2 = 3."""
    low = np.arange(grid.BLOCK, dtype=np.float64) + 0.5
    weights = _WEIGHTS / sum(grid.WEIGHTS)
    block = float(grid.BLOCK)
    return float(grid.KAPPA) ** 2 * float(3.0 * block**2 + 2.0 * block * (weights @ low) + weights @ (low * low))


def _log_cells(cells: I64, private: F64, scale: float) -> F64:
    """The vectorised ``grid.grid_laplace_pmf``."""
    n, up = _from_private(cells, private, scale)
    low_hi, low = _weight(n)
    high_hi, high = _weight(n - 1)
    base = np.minimum(low_hi, high_hi)  # they differ by at most one
    mixed = (1.0 - up) * np.ldexp(low, base - low_hi) + up * np.ldexp(high, base - high_hi)
    return np.asarray(np.log(mixed) - _LN2 * (base + grid.TOTAL_BITS + 2.0))


def _from_private(cells: I64, private: F64, scale: float) -> tuple[I64, F64]:
    """(cell - i, the chance that i is one more), where i is the lower integer beside the private part in cells."""
    limit = float(grid.LIMIT_CELLS << grid.FRACTION_BITS)
    with np.errstate(over="ignore"):
        q = np.clip(private / (grid.cell(scale) * 2.0**-grid.FRACTION_BITS), -limit, limit).astype(np.int64)
    up = (q & ((1 << grid.FRACTION_BITS) - 1)).astype(np.float64) * 2.0**-grid.FRACTION_BITS
    return cells - (q >> grid.FRACTION_BITS), up


def _below(cells: I64, private: F64, scale: float) -> F64:
    n, up = _from_private(cells, private, scale)
    return (1.0 - up) * _lower(n) + up * _lower(n - 1)


def _lower(n: I64) -> F64:
    """P(N < n), N = G or -1 - G with equal chances: half of P(G >= -n) for n <= 0, else 1 less half of P(G >= n)."""
    hi, lo = np.divmod(np.abs(n), grid.BLOCK)
    half = np.ldexp(0.5 + 0.5 * _TAILS[lo], -1 - np.minimum(hi, 2000))
    return np.asarray(np.where(n <= 0, half, 1.0 - half))


def _weight(n: I64) -> tuple[I64, F64]:
    """(hi, weight of lo) of N = n."""
    magnitude = np.where(n >= 0, n, -1 - n)
    hi, lo = np.divmod(magnitude, grid.BLOCK)
    return hi, _WEIGHTS[lo]


def _plain(rng: Rng, size: Any) -> F64:
    return np.asarray(rng.laplace(size=size))


def _sampler(compiled: bool | None) -> SoundSampler:
    from dpgt_node.privacy.laws.grid_sampler import GridLaplaceSampler

    return GridLaplaceSampler(compiled)


def _defect() -> str | None:
    if grid.certificate(grid.tables(grid.WEIGHTS)) != grid.certificate(grid.TABLES) or grid.KAPPA_UP > 0.0109:
        return "the noise table is damaged: it has no certificate"
    return None


LAPLACE: Final = Law(
    "laplace",
    "Laplace",
    frozenset(("epsilon", "rho")),
    norm=1,
    ideal_variance=2.0,
    drawn_variance=_variance,
    cell=grid.cell,
    log_cells=_log_cells,
    below=_below,
    plain=_plain,
    sampler=_sampler,
    answer="5da344147e8cecd1f033389c07b462f56bdd53845c7791a69fad91d0def368df",
    defect=_defect,
)
