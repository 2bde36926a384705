"""Noise on x and on s, the running sum of the gradients, which x follows by its differences.

    s_{k+1} = (1 - b_k) s_k + (what came in) + gamma_k g_k
    x_{k+1} = (1 - a_k) x_k + (what came in) - (s_{k+1} - s_k)

A gradient of round l reaches the releases of round l + 1 as (x, s) = (-gamma_l, gamma_l), and from there

    s <- (1 - b_k) s,      x <- (1 - a_k) x + b_k s

x's part may change its sign, so sums of absolute values are formed entry by entry: O(K^2), a vector operation a round.
What rounding may have taken is bounded by the same recursions with all signs positive.

Squares, M = A' S^-2 A: by the row sums of |M|, and by lambda diag(w) >= M.  The latter holds exactly if no input u
makes sum_k z_k' S_k^-2 z_k - lambda sum_l w_l u_l^2 positive, z = (x, s).  The best that can still be made of z_k is
z_k' P_k z_k, which goes backwards by

    P_k = S_k^-2 + T_k' (P + P h h' P/(lambda w_k - h' P h)) T_k,      P = P_{k+1},   h = gamma_k share_k (-1, 1)

with T_k = [[1 - a_k, b_k], [0, 1 - b_k]], and the pivots lambda w_k - h' P h must stay positive.  P_k grows with
P_{k+1} in the order of symmetric matrices.  So raising the diagonal by more than what a step may lose by rounding makes
a pass a proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dpgt_node.privacy.accountants.pure import Sensitivity
from dpgt_node.privacy.accountants.responses.response import STEP, Steps, at_most, least_traces
from dpgt_node.privacy.accountants.rounding import U, gamma, least_proven, up
from dpgt_node.types import F64
from dpgt_node.values import dataclass

_LEAST_RATIO = 1e-150
_BISECTIONS = 60
_RAISED = 64.0 * U
"""Of the terms of an entry of P: covers the roundings of one step."""


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
        """The least trace of three kinds of diagonal matrices that are at least M."""
        K = self.steps.K
        if K == 0:
            return np.zeros(1)
        noised = np.concatenate((sigma_x[1:], sigma_y[1:]))
        if not (noised > 0.0).all():
            return np.full(K + 1, math.inf)
        least = float(noised.min())
        inverse = [np.square(np.maximum(least / sigma, _LEAST_RATIO)) for sigma in (sigma_x, sigma_y)]
        rows, diagonal = (of[:-1] for of in self.gram(*inverse))
        total = least_traces(
            rows, (np.ones(K), diagonal, rows), diagonal, lambda *of: self.largest(inverse[0], inverse[1], *of)
        )
        with np.errstate(over="ignore"):
            found = up(np.sqrt(total) / least, K + 16)
        # The gradient of the last round enters nothing that is released.
        return np.append(found, found[-1])

    def largest(self, inverse_x: F64, inverse_y: F64, weights: F64, low: float, high: float) -> float:
        """A proven lambda with M <= lambda diag(``weights``) between ``low`` (not proven) and ``high`` (proven)."""
        s = self.steps
        steps = (1.0 - s.a[1:], s.b[1:], 1.0 - s.b[1:], np.square(s.gamma * s.share)[:-1], weights)
        columns = (inverse_x[1:], inverse_y[1:], *steps)
        rounds = list(zip(*(column.tolist() for column in columns), strict=True))[::-1]
        return least_proven(lambda value: _bounded(rounds, value), low, high, _BISECTIONS)

    def gram(self, inverse_x: F64, inverse_y: F64) -> tuple[F64, F64]:
        """Row sums of |M|, upper bounds, and its diagonal, float64 (K+1,) each; ``inverse``: 1/scale^2 a round.

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
        diagonal = np.square(share) * (answers[1] - answers[0])
        return up(rows + gamma(12 * K + 64) * lost, 12 * K + 64), diagonal

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


def _bounded(rounds: Sequence[tuple[float, ...]], value: float) -> bool:
    """Whether every pivot is positive at lambda = ``value``; ``rounds``: the last one first.

    P's entries are xx, xs, ss.  An error whose entries are at most e_ij is at most diag(sums of its rows of e).
    """
    xx = xs = ss = 0.0
    for inverse_x, inverse_y, keep_a, b, keep_b, squared, weight in rounds:
        # P_k of this round, of what the later ones asked
        half = keep_a * xx, b * xx + keep_b * xs
        cross = keep_a * abs(b * xx) + keep_a * keep_b * abs(xs)
        below = b * b * xx + 2.0 * b * keep_b * abs(xs) + keep_b * keep_b * ss
        now_xx = inverse_x + keep_a * half[0]
        now_ss = inverse_y + b * (half[1] + keep_b * xs) + keep_b * keep_b * ss
        xs = keep_a * half[1]
        xx = now_xx + _RAISED * (now_xx + cross)
        ss = now_ss + _RAISED * (inverse_y + below + cross)
        # ... and what one batch, which enters here, makes of it
        qx, qs = xs - xx, ss - xs
        pivot = value * weight * (1.0 - 4.0 * U) - squared * (qs - qx + 8.0 * U * (abs(qs) + abs(qx)))
        if not pivot > 0.0:
            return False
        gain = squared / (pivot * (1.0 - 4.0 * U)) * STEP
        size = gain * abs(qx * qs) + abs(xs)
        xx, ss = ((of + gain * q * q) * STEP + _RAISED * size for of, q in ((xx, qx), (ss, qs)))
        xs += gain * qx * qs
    return True
