"""S-AB and ATC-DSGD with dense matrices, from their one-line definitions; nothing shared with the product.

All agents are the rows of float64 (n, d) matrices.  ``gradient(k, x)`` gives every agent's gradient at its row.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Gradient = Callable[[int, np.ndarray], np.ndarray]
DEMO = (
    [[0, 0, 0, 0, 1], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]],
    [[0, 0, 1, 0, 1], [1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]],
)


def metropolis(R) -> np.ndarray:  # type: ignore[no-untyped-def]
    """w_ij = 1/(1 + max(deg_i, deg_j)) on the undirected closure of R, entry by entry; rows sum to 1."""
    n = len(R)
    near = [[i != j and (R[i][j] > 0 or R[j][i] > 0) for j in range(n)] for i in range(n)]
    W = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if near[i][j]:
                W[i, j] = 1 / (1 + max(sum(near[i]), sum(near[j])))
        W[i, i] = 1 - sum(W[i])
    return W


def s_ab(R, C, alpha: float, beta: float, gamma: float, x0: np.ndarray, gradient: Gradient, K: int) -> list[np.ndarray]:  # type: ignore[no-untyped-def]
    """x_0..x_{K+1}: x+ = (I - alpha L1) x - gamma y, y+ = (I - beta L2) y + g+ - g."""
    R, C = np.array(R, float), np.array(C, float)
    A = np.eye(len(R)) - alpha * (np.diag(R.sum(1)) - R)
    B = np.eye(len(R)) - beta * (np.diag(C.sum(0)) - C)
    x = x0.copy()
    y = g = gradient(0, x)
    xs = [x]
    for k in range(K + 1):
        x = A @ x - gamma * y
        g_next = gradient(k + 1, x)
        y, g = B @ y + g_next - g, g_next
        xs.append(x)
    return xs


def atc_dsgd(  # type: ignore[no-untyped-def]
    R, gamma: float, x0: np.ndarray, gradient: Gradient, K: int, noise: np.ndarray | None = None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """x_0..x_{K+1} and v_0..v_K: v = x - gamma (g + noise_k), x+ = W v."""
    W, x, vs = metropolis(R), x0.copy(), []
    xs = [x]
    for k in range(K + 1):
        vs.append(x - gamma * (gradient(k, x) + (0.0 if noise is None else noise[k])))
        x = W @ vs[-1]
        xs.append(x)
    return xs, vs


def consensus_error(x: np.ndarray) -> float:
    return float(np.sqrt(((x - x.mean(0)) ** 2).sum(1).mean()))


def slope(errors: list[float], low: int, high: int) -> float:
    """Of the logarithm of the errors over rounds ``low``..``high`` - 1."""
    return float(np.polyfit(np.arange(low, high), np.log(errors[low:high]), 1)[0])
