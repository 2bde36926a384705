"""Noise on x alone: x_{k+1} = (1 - a_k) x_k + (what came in) - gamma_k g_k, and x_k + noise is sent.

    response[k, l] = gamma_l prod_{l < t < k} (1 - a_t),  l < k;      D_{k+1} = (1 - a_k) D_k + gamma_k share_k C/m

All entries have one sign, so D_k, the largest shift of x_k, is their sum, and adding them up loses nothing.  Every sum
below is of nonnegative terms and costs O(K).

Squares: M = A' S^-2 A >= 0 entry by entry.  Its row sums are A' S^-2 (A 1) = A' S^-2 D; and M <= lambda diag(w) holds
exactly if the control problem  sum_k x_k^2/scale_k^2 - lambda sum_l w_l u_l^2 <= 0  holds for every input u.  Its value
P_k x^2 goes backwards by

    P_k = 1/scale_k^2 + (1 - a_k)^2 P_{k+1} / (1 - P_{k+1} gamma_k^2/(lambda w_k))

and the pivots lambda w_k - P_{k+1} gamma_k^2 must stay positive.  P_k grows with P_{k+1}, so rounding each step up
makes a pass a proof.
"""

from __future__ import annotations

import math

import numpy as np

from dpgt_node.privacy.accountants.pure import Sensitivity
from dpgt_node.privacy.accountants.responses.response import STEP, Steps, at_most, least_traces
from dpgt_node.privacy.accountants.rounding import U, least_proven, up
from dpgt_node.types import F64
from dpgt_node.values import dataclass

_BISECTIONS = 60
_LEAST_RATIO = 1e-150


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """``steps`` of one agent; its b plays no part."""

    steps: Steps

    def shifts(self, unit: float) -> Sensitivity:
        """D_k of every round; nothing is released on the other stream."""
        return self._moved(unit * self.steps.share)

    def corrected(self, m: int, C: float) -> Sensitivity:
        """The same recursion on larger bounds."""
        return self._moved(at_most(self.steps, m, C))

    def _moved(self, gradients: F64) -> Sensitivity:
        s = self.steps
        x = np.zeros(s.K + 1)
        reach = 0.0
        for k, (a, gamma, moves) in enumerate(zip(s.a.tolist(), s.gamma.tolist(), gradients.tolist(), strict=True)):
            x[k] = reach
            reach = abs(1.0 - a) * reach + gamma * moves
        return Sensitivity(up(x, 4 * s.K + 8), np.zeros(s.K + 1))

    def weights(self, unit: float, sigma_x: F64, sigma_y: F64, left_x: F64, left_y: F64) -> F64:
        """gamma_l share_l unit (1/sigma_{l+1} + (1 - a_{l+1}) (1/sigma_{l+2} + ...)): later releases only."""
        s = self.steps
        inverse = np.full(s.K + 1, math.inf)
        np.divide(1.0, sigma_x, out=inverse, where=sigma_x > 0.0)
        w = unit * s.gamma * s.share * _later(inverse, np.abs(1.0 - s.a))
        w[:-1] += np.cumsum(left_x[:0:-1])[::-1]
        return up(w, 4 * s.K + 32)

    def norms(self, sigma_x: F64, sigma_y: F64) -> F64:
        """The least of three diagonal matrices that are at least M, as in ``concentrated``."""
        s = self.steps
        if s.K == 0:
            return np.zeros(1)
        if not (sigma_x[1:] > 0.0).all():
            return np.full(s.K + 1, math.inf)
        least = float(sigma_x[1:].min())
        inverse = np.zeros(s.K + 1)  # x_0 holds no gradient
        inverse[1:] = np.square(np.maximum(least / sigma_x[1:], _LEAST_RATIO))
        inject, rows, diagonal = self.gram(inverse)
        total = least_traces(rows, (np.ones(s.K), diagonal), diagonal, lambda *of: self.largest(inverse, inject, *of))
        with np.errstate(over="ignore"):
            found = up(np.sqrt(total) / least, s.K + 16)
        # The gradient of the last round enters nothing that is released.
        return np.append(found, found[-1])

    def gram(self, inverse: F64) -> tuple[F64, F64, F64]:
        """gamma_l share_l, row sums of M and its diagonal, float64 (K,) each; ``inverse``: 1/scale^2 a round."""
        s = self.steps
        keep = np.abs(1.0 - s.a)
        inject = s.gamma * s.share
        rows = inject * _later(self.shifts(1.0).x * inverse, keep)
        diagonal = np.square(inject) * _later(inverse, np.square(keep))
        return inject[:-1], up(rows[:-1], 12 * s.K + 64), diagonal[:-1]

    def largest(self, inverse: F64, inject: F64, weights: F64, low: float, high: float) -> float:
        """A proven lambda with M <= lambda diag(``weights``) between ``low`` (not proven) and ``high`` (proven)."""
        keep = np.square(1.0 - self.steps.a).tolist()
        rounds = list(zip(inverse[1:].tolist(), np.square(inject).tolist(), keep[1:], weights.tolist(), strict=True))

        def proven(value: float) -> bool:
            reach = 0.0  # P_{k+1}
            for release, squared, kept, weight in reversed(rounds):
                reach = (release + kept * reach) * STEP
                pivot = value * weight * (1.0 - 4.0 * U) - reach * squared * (1.0 + 4.0 * U)
                if not pivot > 0.0:
                    return False
                reach = reach * (value * weight) / (pivot * (1.0 - 4.0 * U)) * STEP
            return True

        return least_proven(proven, low, high, _BISECTIONS)


def _later(values: F64, keep: F64) -> F64:
    """sum over k > l of values[k] prod_{l < t < k} keep[t], float64 (K+1,)."""
    out = np.zeros(len(values))
    total = 0.0
    pairs = list(zip(values.tolist(), keep.tolist(), strict=True))
    for at in range(len(pairs) - 1, 0, -1):
        value, kept = pairs[at]
        total = value + kept * total
        out[at - 1] = total
    return out
