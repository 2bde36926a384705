"""How one sampled gradient enters every later release (privacy.md, section 3).

With the transcript fixed, dy_k = sum_l cy[k,l] dg_l and dx_k = sum_l cx[k,l] dg_l, where

    cy[k,k] = 1   cy[k,l] = -b (1-b)^n   cx[k,l] = -gamma [a (1-a)^n - b (1-b)^n]/(a-b)   n = k-1-l >= 0

The second one is evaluated by its recursion cx_{n+1} = (1-a) cx_n - gamma cy_n, cx_0 = -gamma, which needs no limit at
a = b and holds for a = 0 and b = 0.
"""

from __future__ import annotations

import numpy as np

from dpgt_node.privacy.accountants.rounding import gamma, up
from dpgt_node.types import F64
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """``x[n]`` = cx[l+1+n, l], ``y[n]`` = cy[l+1+n, l], n = 0..K-1, float64, signed, nearest.

    ``abs_x``, ``abs_y``: upper bounds of their absolute values.  ``size_x``: the recursion with absolute values,
    for error bounds.  ``keep_a`` = 1 - a, ``keep_b`` = 1 - b and ``gamma`` as the algorithm uses them.
    """

    keep_a: float
    keep_b: float
    gamma: float
    x: F64
    y: F64
    abs_x: F64
    abs_y: F64
    size_x: F64

    @property
    def K(self) -> int:
        """Last round."""
        return len(self.y)


def published_point(a: float, b: float, gamma_K: float, K: int) -> Kernel:
    """Both streams are noised: a, b in [0, 1), gamma_K >= 0."""
    keep_a, keep_b = 1.0 - a, 1.0 - b
    x, y, size = np.empty(K), np.empty(K), np.empty(K)
    cx, cy, majorant = -gamma_K, -b, gamma_K
    for n in range(K):
        x[n], y[n], size[n] = cx, cy, majorant
        cx, majorant = keep_a * cx - gamma_K * cy, keep_a * majorant - gamma_K * cy
        cy = keep_b * cy
    # Four roundings a step (products, difference, the step of cy), a few for b = 1 - keep_b and gamma.
    slack = gamma(4 * K + 16)
    return Kernel(keep_a, keep_b, gamma_K, x, y, up(np.abs(x) + slack * size, 4), up(np.abs(y), 2 * K + 4), size)


def public_state(b: float, K: int) -> Kernel:
    """x is a function of the transcript: no x terms."""
    return published_point(0.0, b, 0.0, K)


def noise_once(K: int) -> Kernel:
    """One release a round of g_k itself: every release holds one batch."""
    return published_point(0.0, 0.0, 0.0, K)
