"""Noise on x and on s, the running sum of the gradients, which x follows by its differences.

    s_{k+1} = (1 - b_k) s_k + (what came in) + gamma_k g_k
    x_{k+1} = (1 - a_k) x_k + (what came in) - (s_{k+1} - s_k)

A gradient of round l reaches the releases of round l + 1 as (x, s) = (-gamma_l, gamma_l), and from there

    s <- (1 - b_k) s,      x <- (1 - a_k) x + b_k s

x's part may change its sign, so sums of absolute values are formed entry by entry: O(K^2), a vector operation a round.
What rounding may have taken is bounded by the same recursions with all signs positive.  Squares are bounded by the row
sums of |M| alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpgt_node.privacy.accountants.pure import Sensitivity
from dpgt_node.privacy.accountants.responses.response import Steps, at_most
from dpgt_node.privacy.accountants.rounding import gamma, up
from dpgt_node.types import F64

_LEAST_RATIO = 1e-150


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """``steps`` of one agent."""

    steps: Steps

    def shifts(self, unit: float) -> Sensitivity:
        """Sums of the absolute responses of every round."""
        K = self.steps.K
        x, y = np.zeros(K + 1), np.zeros(K + 1)
        slack = gamma(4 * K + 16)
        for k, cx, cs, size in self._responses():
            x[k], y[k] = float(np.abs(cx).sum() + slack * size.sum()), float(cs.sum())
        return Sensitivity(up(unit * x, 4 * K + 32), up(unit * y, 4 * K + 32))

    def corrected(self, m: int, C: float) -> Sensitivity:
        """The recursions with all signs positive: gradients may move in any direction."""
        s = self.steps
        gradients = at_most(s, m, C)
        x, y = np.zeros(s.K + 1), np.zeros(s.K + 1)
        sx = ss = 0.0
        rounds = zip(s.a.tolist(), s.b.tolist(), (s.gamma * gradients).tolist(), strict=True)
        for k, (a, b, moves) in enumerate(rounds):
            x[k], y[k] = sx, ss
            sx, ss = abs(1.0 - a) * sx + b * ss + moves, abs(1.0 - b) * ss + moves
        return Sensitivity(up(x, 8 * s.K + 8), up(y, 8 * s.K + 8))

    def weights(self, unit: float, sigma_x: F64, sigma_y: F64, left_x: F64, left_y: F64) -> F64:
        """Column sums over the scales: later releases only."""
        K = self.steps.K
        w, slack = np.zeros(K + 1), gamma(4 * K + 16)
        inverse = np.full((2, K + 1), math.inf)
        for row, sigma in zip(inverse, (sigma_x, sigma_y), strict=True):
            np.divide(1.0, sigma, out=row, where=sigma > 0.0)
        for k, cx, cs, size in self._responses():
            w[:k] += (np.abs(cx) + slack * size) * inverse[0, k] + cs * inverse[1, k]
        w *= unit
        for left in (left_x, left_y):
            w[:-1] += np.cumsum(left[:0:-1])[::-1]
        return up(w, 8 * K + 64)

    def norms(self, sigma_x: F64, sigma_y: F64) -> F64:
        """By the row sums of |M|, M = A' S^-2 A."""
        K = self.steps.K
        if K == 0:
            return np.zeros(1)
        noised = np.concatenate((sigma_x[1:], sigma_y[1:]))
        if not (noised > 0.0).all():
            return np.full(K + 1, math.inf)
        least = float(noised.min())
        rows = self.gram_rows(*(np.square(np.maximum(least / sigma, _LEAST_RATIO)) for sigma in (sigma_x, sigma_y)))
        with np.errstate(over="ignore"):
            return up(np.sqrt(np.cumsum(rows)) / least, K + 16)

    def gram_rows(self, inverse_x: F64, inverse_y: F64) -> F64:
        """Row sums of |M|, upper bounds, float64 (K+1,); ``inverse``: 1/scale^2 a round.

        For l < l' the entry is the state that batch l left at round l' + 1, times what batch l' makes of such a state.
        """
        K = self.steps.K
        share = self.steps.gamma * self.steps.share
        answers, bounds = (self._answers(inverse_x, inverse_y, sign) for sign in (-1.0, 1.0))
        rows, lost = np.zeros(K + 1), np.zeros(K + 1)
        for k, cx, cs, size in self._responses():
            last, into = k - 1, share[k - 1]
            entries = into * np.abs(cx * answers[0, last] + cs * answers[1, last])
            missed = into * (size * bounds[0, last] + cs * bounds[1, last])
            for total, of in ((rows, entries), (lost, missed)):
                total[:last] += of[:last]
                total[last] += float(of.sum())
        return up(rows + gamma(12 * K + 64) * lost, 12 * K + 64)

    def _responses(self) -> Iterator[tuple[int, F64, F64, F64]]:
        """(k, x's part, s's part, x's part with all signs positive) of batches 0..k-1, k = 1..K; share included."""
        s = self.steps
        cx, cs, size = np.zeros(s.K), np.zeros(s.K), np.zeros(s.K)
        inject = (s.gamma * s.share).tolist()
        for k in range(1, s.K + 1):
            a, b = float(s.a[k - 1]), float(s.b[k - 1])
            old = slice(0, k - 1)
            cx[old] = (1.0 - a) * cx[old] + b * cs[old]
            size[old] = abs(1.0 - a) * size[old] + b * cs[old]
            cs[old] *= abs(1.0 - b)
            cx[k - 1], cs[k - 1], size[k - 1] = -inject[k - 1], inject[k - 1], inject[k - 1]
            yield k, cx[:k], cs[:k], size[:k]

    def _answers(self, inverse_x: F64, inverse_y: F64, sign: float) -> F64:
        """W_{l+1} (sign, 1) of every l, float64 (2, K+1): what batch l, per unit of gamma_l, asks of a state there.

        W_j adds up T' S^-2 T over the rounds from j on.  ``sign`` +1: with all signs positive, for error bounds.
        """
        s = self.steps
        out = np.zeros((2, s.K + 1))
        xx = xs = ss = 0.0
        for k in range(s.K, 0, -1):
            a, b = abs(1.0 - float(s.a[k])), float(s.b[k])
            keep = abs(1.0 - b)
            xx, xs, ss = (
                float(inverse_x[k]) + a * a * xx,
                a * (b * xx + keep * xs),
                float(inverse_y[k]) + b * b * xx + 2.0 * b * keep * xs + keep * keep * ss,
            )
            out[:, k - 1] = sign * xx + xs, sign * xs + ss
        return out
