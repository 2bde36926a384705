"""Algorithm 1 in the paper's compact form: all agents are the rows of one matrix.

    x+ = (I - alpha L1) x + alpha R zeta - gamma y                (eq7)
    y+ = (I - beta  L2) y + beta  C eta  + g+ - g                 (eq8)

written with what is released, as in (alg,1) and (alg,2): row i keeps (1 - a_i) of its own value and mixes x̆, y̆.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.types import F64

SPARSE_FROM_AGENTS = 32
SPARSE_BELOW_DENSITY = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class MatrixForm:
    """One run's recursion on float64 matrices (n, columns); a column is a coordinate of an agent's vector.

    ``keep_x``, ``keep_y``: (n, 1), 1 - a_i and 1 - b_i.  ``mix_x``, ``mix_y``: alpha R and beta C, numpy or scipy CSR.
    """

    keep_x: F64
    keep_y: F64
    mix_x: Any
    mix_y: Any
    gamma: float

    @classmethod
    def build(cls, topology: Topology, schedule: Schedule) -> MatrixForm:
        """The recursion of a run; a large graph with few edges becomes sparse."""
        return cls(
            keep_x=1.0 - schedule.alpha * topology.r[:, None],
            keep_y=1.0 - schedule.beta * topology.c[:, None],
            mix_x=_mixing(schedule.alpha * topology.R),
            mix_y=_mixing(schedule.beta * topology.C),
            gamma=schedule.gamma,
        )

    def next_x(self, x: F64, y: F64, released: F64) -> F64:
        """x_{k+1} from x_k, y_k and x̆_k: a new matrix."""
        new: F64 = self.mix_x @ released
        new += self.keep_x * x
        new -= self.gamma * y
        return new

    def next_y(self, y: F64, released: F64, g: F64, g_next: F64) -> F64:
        """y_{k+1} from y_k, y̆_k, g_k and g_{k+1}: a new matrix."""
        new = self.mixed_y(y, released)
        new += g_next - g
        return new

    def mixed_y(self, t: F64, released: F64) -> F64:
        """What (alg,2) makes of y's transcript part: a new matrix."""
        new: F64 = self.mix_y @ released
        new += self.keep_y * t
        return new

    def own_x(self, px: F64, p: F64) -> F64:
        """What (alg,1) makes of x's private part, which meets no neighbour: a new matrix."""
        new = self.keep_x * px
        new -= self.gamma * p
        return new

    def own_y(self, p: F64, g: F64, g_next: F64 | float) -> F64:
        """What (alg,2) makes of y's private part: a new matrix."""
        new = self.keep_y * p
        new += g_next - g
        return new


def _mixing(weights: F64) -> Any:
    n = len(weights)
    if n < SPARSE_FROM_AGENTS or np.count_nonzero(weights) > SPARSE_BELOW_DENSITY * n * n:
        return weights
    from scipy.sparse import csr_array

    return csr_array(weights)
