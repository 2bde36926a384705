"""Rounding the safe way: a reported cost is never below the real-number bound it stands for.

    |fl(v) - v| <= gamma_N A,   gamma_N = N u/(1 - N u),   u = 2^-53

for a value v that float64 computes with at most N roundings on any path from input to output; A is the same
expression with every term replaced by its absolute value (Higham, Accuracy and Stability, section 3.1).  Sums of
nonnegative terms have A = v, so ``up(v, N)`` is an upper bound of the exact value; where terms cancel, A is computed
alongside and ``gamma(N) A`` is added.

Two errors of the PRODUCT, not of the accountant, are charged as well (clipped runs; with a declared C nothing bounds a
gradient, and its accounts are those of real arithmetic):

- a mean of m clipped gradients, each of norm <= C/2, is off by at most gamma_{m+8} C/2 whatever the order of summation,
  so two data sets' means differ by at most (C/m)(1 + m gamma_{m+8}) instead of C/m: ``inflated``;
- the private recursions p_{k+1} = (1-b) p_k + (g_{k+1} - g_k) and px_{k+1} = (1-a) px_k - gamma p_k round in each of
  the two worlds: ``private_state``; those of a state alone, or of a running sum, likewise: ``private_sum``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np

from dpgt_node.types import F64
from dpgt_node.values import dataclass

Value = TypeVar("Value", float, F64)

U: Final = 2.0**-53
ALLOWANCE: Final = 2.0**-20
"""Least inflation of C in every rigorous account."""
LEAST_COST: Final = 1e-290
"""No release of private data costs less, see ``never_zero``."""
CAP_SLACK: Final = 2.0**-19
"""What ``within`` forgives, as a part of the cap: the inflation above, squared (rho grows as C^2), and rounding up."""


def gamma(roundings: int) -> float:
    """gamma_N, rounded up.  ValueError where N is so large that nothing is bounded."""
    part = roundings * U
    if not part < 0.5:
        raise ValueError(f"{roundings} roundings are more than any account has")
    return part / (1.0 - part) * (1.0 + 4.0 * U)


def up(value: Value, roundings: int) -> Value:
    """An upper bound of the exact value (>= 0) that ``roundings`` roundings of nonnegative terms gave as ``value``."""
    return value * (1.0 + (gamma(roundings) * 1.5 + 4.0 * U))


def never_zero(curve: F64, *, after: int) -> F64:
    """``curve`` with at least 1e-290 from row ``after`` on, where every exact value is above 0.

    A quotient below 1e-308 has lost digits or is 0; 10^17 of them add up to less than 1e-290.
    """
    curve[after:] = np.maximum(curve[after:], LEAST_COST)
    return curve


def within(cost: float | None, cap: float) -> bool:
    """Whether ``cost`` keeps to ``cap``: one plan that costs exactly the cap does, one more release does not.

    Costs are rounded up and hold the inflation of C, so a plan that costs the cap in real numbers reads up to 2e-6 of
    it more; that much is forgiven (a single further release among K+1 costs far more as long as K is below 10^5).  No
    value, no guarantee: None is within no cap.
    """
    return cost is not None and cost <= cap * (1.0 + CAP_SLACK)


def inflated(C: float, m: int) -> float:
    """C that covers the rounding of a mean over ``m`` samples: C (1 + 2^-20), more only above m = 90,000."""
    return C * (1.0 + max(ALLOWANCE, m * gamma(m + 8)))


@dataclass(frozen=True, slots=True, eq=False)
class PrivateState:
    """Bounds of the private parts of a clipped run, in the norm of the clip, per round, float64 (K+1,).

    ``error_x``, ``error_y``: how far rounding can move px_k and p_k apart between two worlds, beyond their exact shift.
    ``norm_x``, ``norm_y``: ||px_k|| and ||p_k||.
    """

    error_x: F64
    error_y: F64
    norm_x: F64
    norm_y: F64


def private_state(*, keep_a: float, keep_b: float, gamma_K: float, C: float, K: int) -> PrivateState:
    """Follow px and p of Algorithm 1 (module docstring); ``keep_a``, ``keep_b`` in [0, 1].

    Per-sample gradients have norm <= C/2, so ||p_k|| <= C and ||px_{k+1}|| <= (1-a) ||px_k|| + gamma C.  A step of p
    makes at most 4uC of error in a world, one of px at most 4u(||px|| + gamma C), forming v/g at the release another
    2u||v||.  Twice that for two worlds, and doubled for second-order terms.
    """
    x, y, size = np.zeros(K + 1), np.empty(K + 1), np.zeros(K + 1)
    moved_x = moved_y = size_x = 0.0
    for k in range(K + 1):
        x[k] = moved_x + 8.0 * U * size_x
        y[k] = moved_y + 8.0 * U * C
        size[k] = size_x
        moved_x = keep_a * moved_x + gamma_K * moved_y + 16.0 * U * (size_x + gamma_K * C)
        moved_y = keep_b * moved_y + 16.0 * U * C
        size_x = keep_a * size_x + gamma_K * C
    return PrivateState(x, y, up(size, 4 * K + 8), np.full(K + 1, C))


def private_sum(*, keep_a: F64, keep_b: F64 | None, gamma_k: F64, C: float) -> PrivateState:
    """Follow ps_{k+1} = (1-b_k) ps_k + gamma_k g_k and px_{k+1} = (1-a_k) px_k - (ps_{k+1} - ps_k), (K+1,) each.

    ``keep_b`` None: px_{k+1} = (1-a_k) px_k - gamma_k g_k alone.  ||g_k|| <= C.  A step makes at most 8u of the sizes
    it adds up in a world; twice that for two worlds, and doubled for second-order terms.
    """
    K = len(keep_a) - 1
    errors, sizes = np.zeros((2, K + 1)), np.zeros((2, K + 1))
    moved_x = moved_s = size_x = size_s = 0.0
    for k in range(K + 1):
        errors[:, k] = moved_x + 8.0 * U * size_x, moved_s + 8.0 * U * size_s
        sizes[:, k] = size_x, size_s
        a, step = abs(float(keep_a[k])), float(gamma_k[k]) * C
        moved_x = a * moved_x + 32.0 * U * (size_x + 2.0 * size_s + step)
        size_x = a * size_x + step
        if keep_b is not None:
            b = abs(float(keep_b[k]))
            next_s = b * moved_s + 32.0 * U * (size_s + step)
            moved_x += moved_s + next_s
            size_x += abs(1.0 - float(keep_b[k])) * size_s
            moved_s, size_s = next_s, b * size_s + step
    x, s = up(sizes, 8 * K + 8)
    return PrivateState(errors[0], errors[1], x, s)


def least_proven(proven: Callable[[float], bool], low: float, high: float, trials: int) -> float:
    """A proven value in (``low``, ``high``] by ``trials`` halvings at most, to 1e-13 of itself.

    ``high`` is proven already, and what is above a proven value is proven.
    """
    for _ in range(trials):
        middle = 0.5 * (low + high)
        if proven(middle):
            high = middle
        else:
            low = middle
        if high - low <= 1e-13 * high:
            break
    return high
