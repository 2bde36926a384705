"""What drawing shared noise on a grid costs, and when it may not be done.

The shared part of a pair is drawn as r g (j + 1/2): a normal number of deviation sigma = r s, rounded to the middle of
its cell of width r g, g = s/256.  So a release is a function of v + s N + B M with M on that lattice, v the private
values of all agents.  Against real-valued sigma Z + U, U uniform on a cell, which is post-processing of what Theorem A
accounts for, the density of one coordinate of all releases of a round satisfies

    |ln p/p*| <= -ln(1 - e0),   e0 = sum over k in Z^E, k != 0, of exp(-2 pi^2 tau^2 |k|^2/(r g)^2),
    tau^2 = 1/(1/sigma^2 + lambda_max(L)/s^2)

(Poisson summation: docs/explanation/theory-cancelling.md, Lemma E).  It is a pure epsilon of twice that for every
coordinate of every release, far below anything a double can show wherever tau is at least eight cells.
"""

from __future__ import annotations

import math
from typing import Final

from dpgt_node.privacy.accountants.rounding import up
from dpgt_node.privacy.laws.gaussian_grid import CELLS

LEAST_CELLS: Final = 8
"""Cells of the shared lattice that tau must span."""
LEAST_CHARGE: Final = 2.0**-1000


def exponent(s: float, sigma: float, lattice: float, stiffness: float) -> float:
    """2 pi^2 tau^2/lattice^2; ``stiffness``: lambda_max(L) or more.  Rounded down."""
    tau2 = 1.0 / (1.0 / sigma**2 + stiffness / s**2)
    return 2.0 * math.pi**2 * tau2 / lattice**2 * (1.0 - 2.0**-48)


def log_error(c: float, edges: int) -> float:
    """ln e0 for the exponent ``c`` and that many pairs, rounded up: it may be far below what a double can hold.

    e0 = theta^edges - 1 with theta = 1 + 2 sum_m e^{-c m^2} <= 1 + 2 q/(1 - q^3), q = e^-c.
    """
    log_y = math.log(2.0 * edges) - c - math.log1p(-math.exp(-3.0 * c))
    y = math.exp(min(log_y, 700.0))  # theta^edges <= e^y
    total = math.log(math.expm1(y)) if 1e-8 < y < 700.0 else log_y + y
    return total + abs(total) * 2.0**-48


def spread(r: int, stiffness: int) -> float:
    """tau in cells of the shared lattice, tau/(r g) = 256/sqrt(1 + r^2 lambda_max)."""
    return CELLS / math.sqrt(1.0 + r * r * stiffness)


def charge(dimension: int, releases: int, r: int, stiffness: int, edges: int) -> float:
    """Pure epsilon of drawing every shared part of a run on the grid: at least 2^-1000; ValueError below 8 cells.

    ``dimension`` = d; ``releases``: how many are charged; ``edges``: pairs of the mask graph.
    """
    refuse(r, stiffness)
    error = math.exp(log_error(exponent(1.0, r, r / CELLS, stiffness), edges))
    return max(up(-2.0 * dimension * releases * math.log1p(-error), 16), LEAST_CHARGE)


def refuse(r: int, stiffness: int) -> None:
    """ValueError where tau is less than eight cells of the shared lattice."""
    if spread(r, stiffness) < LEAST_CELLS:
        raise ValueError(
            f"r = {r} is too much for this mask graph: r^2 lambda_max must be at most "
            f"{CELLS * CELLS // LEAST_CELLS**2 - 1}, and {r * r * stiffness} is what is known of it; take a smaller r, "
            "or fewer partners"
        )
