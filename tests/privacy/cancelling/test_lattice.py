from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpgt_node.privacy.cancelling import lattice
from dpgt_node.privacy.cancelling.masks import MaskGraph


def error(s: float, sigma: float, cell: float, reach: float) -> float:
    """The largest |ln p/p*| within ``reach`` for one agent and one pair: on the lattice against real-valued."""
    at = np.linspace(-reach, reach, 8001)
    j = np.arange(-math.ceil((reach + 12 * sigma) / cell), math.ceil((reach + 12 * sigma) / cell))
    below, above = np.where(j >= 0, -j - 1, j) * cell, np.where(j >= 0, -j, j + 1) * cell  # in the lower tail
    weight = stats.norm.cdf(above, scale=sigma) - stats.norm.cdf(below, scale=sigma)
    drawn = stats.norm.pdf(at[:, None] - (j + 0.5) * cell, scale=s) @ weight
    nodes, shares = np.polynomial.legendre.leggauss(40)  # U uniform on a cell
    real = stats.norm.pdf(at[:, None] - nodes * cell / 2, scale=math.hypot(s, sigma)) @ shares / 2
    return float(np.abs(np.log(drawn / real)).max())


@pytest.mark.parametrize(
    ("s", "sigma", "cell", "found", "bound"),
    [(1, 1, 0.7, 2.932e-9, 3.576e-9), (1, 1, 1.5, 0.02359, 0.02520), (1, 2, 2, 0.03799, 0.03936)],
)
def test_in_one_dimension(s: float, sigma: float, cell: float, found: float, bound: float) -> None:
    claim = -math.log1p(-math.exp(lattice.log_error(lattice.exponent(s, sigma, cell, 1.0), 1)))
    assert claim == pytest.approx(bound, rel=3e-2) and bound <= claim * (1 + 1e-3)
    # The error grows with the distance towards the bound.
    near, far = error(s, sigma, cell, 5.0), error(s, sigma, cell, 24.0)
    assert near < found < far < bound and far > 0.9 * bound


def test_the_exponent_of_what_is_drawn() -> None:
    # On a lattice of width s/256; the pairs' own lattice is r times as wide, which divides the exponent by r^2.
    for n, fine in ((5, 246_405), (100, 12_904)):
        assert lattice.exponent(1.0, 2.0, 1 / 256, n) == pytest.approx(fine, abs=0.6)
        assert lattice.exponent(1.0, 2.0, 2 / 256, n) == pytest.approx(fine / 4, abs=0.6)


def test_the_error_of_many_pairs() -> None:
    for c in (2.0, 5.0, 20.0):
        theta = 1 + 2 * sum(math.exp(-c * m * m) for m in range(1, 30))
        for edges in (1, 3, 40):
            exact = theta**edges - 1
            assert exact <= math.exp(lattice.log_error(c, edges)) * (1 + 1e-12)
            if exact < 1e-3:
                assert math.log(exact) == pytest.approx(lattice.log_error(c, edges), abs=2e-3)
    assert lattice.log_error(61_601.0, 10) == pytest.approx(-61_601 + math.log(20))


def test_the_largest_charge_that_is_allowed_is_the_least_there_is() -> None:
    for n in (2, 5, 100, 1000):
        graph = MaskGraph.complete(n) if n <= 100 else MaskGraph.ring(n)
        largest = max(r for r in range(1, 40) if lattice.spread(r, graph.stiffness) >= 8)
        for r in (1, largest):
            charged = lattice.charge(100_000_000, 1_000_000, r, graph.stiffness, len(graph.edges))
            assert charged == lattice.LEAST_CHARGE
        with pytest.raises(ValueError, match=f"r = {largest + 1} is too much"):
            lattice.charge(1, 1, largest + 1, graph.stiffness, len(graph.edges))


def test_a_coarse_lattice_would_cost_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lattice, "LEAST_CELLS", 1)
    graph = MaskGraph.complete(100)
    assert lattice.spread(20, graph.stiffness) < 2
    assert lattice.charge(1000, 10, 20, graph.stiffness, len(graph.edges)) > 1e-20


def test_tau_of_eight_cells() -> None:
    assert lattice.spread(1, 1023) == 8.0
    lattice.refuse(1, 1023)
    with pytest.raises(ValueError, match="must be at most 1023, and 1024 is what is known"):
        lattice.refuse(1, 1024)
