"""How gradients enter later releases, whatever the recursion: what an accountant asks of it.

    shift of the release of round k  =  sum over l of response[k, l] dg_l,     ||dg_l|| <= share_l C/m

with the transcript fixed.  :class:`Tracking` is Algorithm 1, with constant steps; the other recursions have modules of
their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from dpgt_node.privacy.accountants import concentrated, pure
from dpgt_node.privacy.accountants.kernels import Kernel
from dpgt_node.privacy.accountants.pure import Sensitivity
from dpgt_node.privacy.accountants.rounding import U, up
from dpgt_node.types import F64
from dpgt_node.values import dataclass

_TINY = 1e-200
STEP = 1.0 + 16.0 * U
"""Covers the roundings of one step of a recursion of nonnegative terms."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """``a``, ``b``, ``gamma`` of every round of one agent, float64 (K+1,): a_k = alpha_k s_i, and so on.

    ``share``: how far one sample moves g_k, as a part of C/m.
    """

    a: F64
    b: F64
    gamma: F64
    share: F64

    @classmethod
    def constant(cls, a: float, b: float, gamma: float, K: int) -> Steps:
        """The same in every round, with one batch size and one clip."""
        one = np.ones(K + 1)
        return cls(a * one, b * one, gamma * one, one)

    @classmethod
    def read(cls, data: bytes) -> Steps:
        """What :meth:`tobytes` wrote."""
        a, b, gamma, share = np.frombuffer(data).reshape(4, -1)
        return cls(a, b, gamma, share)

    def tobytes(self) -> bytes:
        """Of equal steps the same bytes."""
        return np.stack((self.a, self.b, self.gamma, self.share)).tobytes()

    @property
    def K(self) -> int:
        """Last round."""
        return len(self.a) - 1

    @property
    def contract(self) -> bool:
        """Whether every a_k and b_k is in [0, 1), as rigorous accountants ask."""
        return all(((of >= 0.0) & (of < 1.0)).all() for of in (self.a, self.b))


class Response(Protocol):
    """``sigma_x``, ``sigma_y``: scales of both streams, float64 (K+1,); upper bounds throughout."""

    def shifts(self, unit: float) -> Sensitivity:
        """The largest L1 shift of every release, where one gradient moves by share ``unit``, ``unit`` = C/m."""
        ...

    def weights(self, unit: float, sigma_x: F64, sigma_y: F64, left_x: F64, left_y: F64) -> F64:
        """w_l, float64 (K+1,): what the sample's part in batch l alone costs over the whole run."""
        ...

    def norms(self, sigma_x: F64, sigma_y: F64) -> F64:
        """sqrt(sum of ||shift||^2/scale^2) per unit of C2/m, of the batches up to k, float64 (K+1,)."""
        ...

    def corrected(self, m: int, C: float) -> Sensitivity:
        """L1 shifts under clipping where the gradient is taken at a private point: g_0 moves by C/m, any other by C."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Tracking:
    """Algorithm 1 at constant steps, or an identity where each gradient is perturbed once: a kernel of lags."""

    kernel: Kernel
    steps: Steps

    def shifts(self, unit: float) -> Sensitivity:
        """By the kernel."""
        return pure.tight_shifts(self.kernel, unit)

    def weights(self, unit: float, sigma_x: F64, sigma_y: F64, left_x: F64, left_y: F64) -> F64:
        """By the kernel."""
        return pure.participation_weights(self.kernel, unit, sigma_x, sigma_y, left_x, left_y)

    def norms(self, sigma_x: F64, sigma_y: F64) -> F64:
        """By the kernel."""
        return concentrated.shift(self.kernel, sigma_x, sigma_y)

    def corrected(self, m: int, C: float) -> Sensitivity:
        """Of Algorithm 1 as printed."""
        a, b, gamma = (float(of[0]) for of in (self.steps.a, self.steps.b, self.steps.gamma))
        return pure.corrected_shifts(a=a, b=b, gamma=gamma, m=m, C=C, K=self.steps.K)


def at_most(steps: Steps, m: int, C: float) -> F64:
    """How far each gradient may move, float64 (K+1,): the first by one sample, later ones from end to end."""
    moves = np.full(steps.K + 1, C)
    moves[0] = steps.share[0] * C / m
    return moves


def least_traces(rows: F64, bounds: Sequence[F64], diagonal: F64, largest: Callable[[F64, float, float], float]) -> F64:
    """What squares of the batches up to k add up to at most, float64 (K,): traces of diagonal matrices >= M.

    ``rows``: row sums of |M|.  Beside them lambda W for each W of ``bounds``, with
    ``largest(W, low, high)`` a proven lambda; ``diagonal``: of M.
    """
    total = np.cumsum(rows)
    for weights in bounds:
        if not (weights > _TINY).all():
            continue
        low, trace = float((diagonal / weights).max()), np.cumsum(weights)
        if low * trace[-1] < total[-1]:  # lambda is at least low: above this line it cannot win
            high = float((rows / weights).max()) * STEP
            total = np.minimum(total, up(largest(weights, low, high) * trace, len(rows) + 8))
    return total
