"""What a noise law is: words and numbers that anybody may know, and who draws it.

A value carries its exact density for audits and its sampler as a factory that imports when it is called.  So whoever
only knows a law, an adversary above all, loads no sampler and no keystream with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from dpgt_node.types import F64, I64, NoiseLaw
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.privacy.laws.noise import SoundSampler

Guarantee = Literal["epsilon", "rho", "mu", "total-variation", "approximate"]
"""What a shift costs: epsilon, its L1 norm over the scale; rho, half the square of its L2 norm over the scale; mu, that
norm itself, as the exact trade-off of two Gaussians; total variation and an
epsilon with its delta, which no law of noise gives."""


class Rng(Protocol):
    """A generator of floating-point noise, for forecasts: NumPy's."""

    def standard_normal(self, *, size: Any) -> Any:
        """Normal values of deviation 1."""
        ...

    def laplace(self, *, size: Any) -> Any:
        """Laplace values of scale 1."""
        ...


@dataclass(frozen=True, slots=True)
class Law:
    """``name``: the run file's word.  ``admits``: the guarantees it gives.

    ``norm``: its density is exp(-|t|^norm/norm) up to a constant, t in scales, and shifts count in this norm.
    ``ideal_variance``: of that density; ``drawn_variance()``: of what the sampler draws at scale 1, without rounding to
    the grid, below 2e-5 of it.  ``cell(scale)``: g, a draw is an odd multiple of g/2.  ``log_cells(cells, private,
    scale)``: ln of the exact probability that the draw is g (cell + 1/2), float64 (d,).  ``below(cells, private,
    scale)``: the probability of a lower cell, float64 (d,), to full relative precision where it is small; that of a
    higher one is ``below(-1 - cells, -private, scale)``.

    ``plain(rng, size)``: floating-point noise of scale 1.  ``sampler(compiled)``: a new sound sampler; ``answer``:
    SHA-256 of its known answers; ``defect()``: what is wrong with it on this machine, None for nothing.
    """

    name: NoiseLaw
    label: str
    admits: frozenset[Guarantee]
    norm: Literal[1, 2]
    ideal_variance: float
    drawn_variance: Callable[[], float] = field(repr=False)
    cell: Callable[[float], float] = field(repr=False)
    log_cells: Callable[[I64, F64, float], F64] = field(repr=False)
    below: Callable[[I64, F64, float], F64] = field(repr=False)
    plain: Callable[[Rng, Any], F64] = field(repr=False)
    sampler: Callable[[bool | None], SoundSampler] = field(repr=False)
    answer: str = field(repr=False)
    defect: Callable[[], str | None] = field(repr=False)

    @property
    def leftover_l1(self) -> bool:
        """Whether a sampler's leftover is an L1 cost of a whole vector, which spreads over the coordinates.

        Else it is an L2 shift in scales.
        """
        return self.norm == 1

    def variance(self, scale: float) -> float:
        """Variance of what is added to one coordinate, as it is drawn; 0 at scale 0."""
        return scale * scale * self.drawn_variance() if scale else 0.0

    def log_density(self, t: F64) -> F64:
        """ln of the density at ``t`` scales, up to a constant."""
        return -np.abs(t) if self.norm == 1 else -0.5 * t * t

    def doubt(self, error: F64, shift: F64) -> F64:
        """How far the ln of the ratio of two densities ``shift`` apart may be off where t is known to ``error``."""
        return np.minimum(2.0 * error, 2.0 * shift) if self.norm == 1 else error * shift
