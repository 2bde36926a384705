"""Methods that send states with noise on them, with dense matrices, from their equations; and impulse responses.

All agents are the rows of float64 (n, d) matrices.  What was sent is given, so noise, quantisers and wire are in it.
``gradient(k, x)`` gives every agent's gradient at its row.  Nothing is shared with the product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.oracles.methods import metropolis

Matrix = np.ndarray[Any, Any]
Gradient = Callable[[int, Matrix], Matrix]


@dataclass
class Steps:
    """alpha_k, beta_k, gamma_k of rounds 0..K."""

    alpha: Sequence[float]
    beta: Sequence[float]
    gamma: Sequence[float]


def state_form(R: Any, s: Steps, x0: Matrix, gradient: Gradient, sent: Sequence[Matrix], released: bool) -> Matrix:
    """x_0..x_{K+1}: x+ = (1 - alpha s) x + alpha Wo X - gamma g, g at X where ``released``, else at x."""
    W = metropolis(R)
    Wo = W - np.diag(np.diag(W))
    xs = [x0]
    for k, X in enumerate(sent):
        x = xs[-1]
        g = gradient(k, X if released else x)
        xs.append(x - s.alpha[k] * Wo.sum(1)[:, None] * x + s.alpha[k] * Wo @ X - s.gamma[k] * g)
    return np.stack(xs)


def sum_form(
    R: Any,
    C: Any,
    s: Steps,
    x0: Matrix,
    gradient: Gradient,
    sent: Sequence[tuple[Matrix, Matrix]],
    released: bool,
) -> tuple[Matrix, Matrix]:
    """x_0..x_{K+1} and s_0..s_{K+1}; ``sent``: (X, S) = (x, s) + noise of every round.

    s+ = s - beta c s + beta C S + gamma g,   x+ = x - alpha r x + alpha R X - (s+ - s)
    """
    R, C = np.array(R, float), np.array(C, float)
    xs, ss = [x0], [np.zeros(x0.shape)]
    for k, (X, S) in enumerate(sent):
        x, old = xs[-1], ss[-1]
        g = gradient(k, X if released else x)
        new = old - s.beta[k] * C.sum(0)[:, None] * old + s.beta[k] * C @ S + s.gamma[k] * g
        xs.append(x - s.alpha[k] * R.sum(1)[:, None] * x + s.alpha[k] * R @ X - (new - old))
        ss.append(new)
    return np.stack(xs), np.stack(ss)


def impulses(a: Sequence[float], b: Sequence[float], push: Sequence[float]) -> dict[str, Matrix]:
    """Responses [k, j] of one agent's releases to g_j, the transcript fixed: "x" alone, and the pair "px", "ps"."""
    n = len(a)
    out = {name: np.zeros((n, n)) for name in ("x", "px", "ps")}
    for j in range(n):
        x = px = ps = 0.0
        for k in range(n):
            out["x"][k, j], out["px"][k, j], out["ps"][k, j] = x, px, ps
            g = push[k] if k == j else 0.0
            x = (1.0 - a[k]) * x - g
            new = (1.0 - b[k]) * ps + g
            px, ps = (1.0 - a[k]) * px - (new - ps), new
    return out


def same_point(a: float, gamma: float, m: float, C: float, sigma: Sequence[float]) -> float:
    """D_0 = 0, D_{k+1} = |1 - a| D_k + gamma C/m, and the sum of D_k/sigma_k."""
    moved = total = 0.0
    for scale in sigma:
        total += moved / scale
        moved = abs(1.0 - a) * moved + gamma * C / m
    return total


def ternary_delta(a: float, gamma: float, m: float, C: float, r: float, rounds: int, *, product: bool = True) -> float:
    """delta_k = min(1, D_k/r); 1 - prod(1 - delta_k), or the sum, which is never below."""
    moved, kept, total = 0.0, 1.0, 0.0
    for _ in range(rounds):
        delta = min(1.0, moved / r)
        kept, total = kept * (1.0 - delta), total + delta
        moved = abs(1.0 - a) * moved + gamma * C / m
    return 1.0 - kept if product else min(1.0, total)
