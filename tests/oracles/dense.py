"""Algorithm 1 as dense matrices, straight from the compact forms (eq7) and (eq8): nothing shared with the product.

    x_{k+1} = (I - alpha L1) x_k + alpha R zeta_k - gamma y_k           L1 = diag(R 1) - R
    y_{k+1} = (I - beta  L2) y_k + beta  C eta_k  + g_{k+1} - g_k       L2 = diag(1' C) - C

All states are float64 (n, d), row i is agent i.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Gradient = Callable[[int, int, np.ndarray], np.ndarray]
"""``gradient(agent, k, x)`` -> g_{i,k} at ``x`` (d,), the same arrays for the same batch."""


@dataclass
class Trajectory:
    """``x`` (K+2, n, d) holds x_0..x_{K+1}; ``y`` and ``g`` likewise (y_{K+1}, g_{K+1} are never released)."""

    x: np.ndarray
    y: np.ndarray
    g: np.ndarray


def laplacians(R: np.ndarray, C: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    R, C = np.asarray(R, float), np.asarray(C, float)
    n = len(R)
    return np.diag(R @ np.ones(n)) - R, np.diag(np.ones(n) @ C) - C


def algorithm1(R, C, alpha, beta, gamma, x0, gradient: Gradient, zeta, eta) -> Trajectory:
    """Iterate from ``x0`` (n, d) with given noise: ``zeta``, ``eta`` (K+1, n, d); zeros switch it off."""
    R, C, zeta, eta = (np.asarray(v, float) for v in (R, C, zeta, eta))
    L1, L2 = laplacians(R, C)
    n = len(R)
    A, B = np.eye(n) - alpha * L1, np.eye(n) - beta * L2
    x = np.asarray(x0, float)
    g = np.stack([gradient(i, 0, x[i]) for i in range(n)])
    y = g
    xs, ys, gs = [x], [y], [g]
    for k in range(len(zeta)):
        x_next = A @ x + alpha * R @ zeta[k] - gamma * y
        g_next = np.stack([gradient(i, k + 1, x_next[i]) for i in range(n)])
        y_next = B @ y + beta * C @ eta[k] + g_next - g
        x, y, g = x_next, y_next, g_next
        xs.append(x), ys.append(y), gs.append(g)
    return Trajectory(np.stack(xs), np.stack(ys), np.stack(gs))


def algorithm1_released(R, C, alpha, beta, gamma, x0, gradient: Gradient, x_breve, y_breve) -> Trajectory:
    """The same when the RELEASED values are given instead of the noise: ``x_breve``, ``y_breve`` (K+1, n, d).

    Agent by agent, entry by entry, from (alg,1) and (alg,2) with C[i][j]: a self-loop mixes the agent's own release.
    """
    R, C = np.asarray(R, float), np.asarray(C, float)
    n = len(R)
    x = [np.array(v, float) for v in x0]
    g = [gradient(i, 0, x[i]) for i in range(n)]
    y = list(g)
    xs, ys, gs = [np.stack(x)], [np.stack(y)], [np.stack(g)]
    for k in range(len(x_breve)):
        x_next, y_mixed = [], []
        for i in range(n):
            out_x = (1 - alpha * sum(R[i][j] for j in range(n))) * x[i] - gamma * y[i]
            out_y = (1 - beta * sum(C[j][i] for j in range(n))) * y[i]
            for j in range(n):
                out_x = out_x + alpha * R[i][j] * x_breve[k][j]
                out_y = out_y + beta * C[i][j] * y_breve[k][j]
            x_next.append(out_x), y_mixed.append(out_y)
        g_next = [gradient(i, k + 1, x_next[i]) for i in range(n)]
        y = [y_mixed[i] + g_next[i] - g[i] for i in range(n)]
        x, g = x_next, g_next
        xs.append(np.stack(x)), ys.append(np.stack(y)), gs.append(np.stack(g))
    return Trajectory(np.stack(xs), np.stack(ys), np.stack(gs))


def mass_defect(C, beta, trajectory: Trajectory, eta) -> np.ndarray:
    """(K+2,): per round the largest entry of |sum_i y_i - sum_i g_i - beta sum_{t<k} sum_i (C eta_t)_i|.

    ``eta`` (K+1, n, d) := released minus y.  Zero in exact arithmetic; a doubled or lost y̆ shows at once.
    """
    C = np.asarray(C, float)
    injected = np.zeros_like(trajectory.y[0][0])
    defects = []
    for k in range(len(trajectory.y)):
        defects.append(np.abs(trajectory.y[k].sum(0) - trajectory.g[k].sum(0) - beta * injected).max())
        if k < len(eta):
            injected = injected + (C @ np.asarray(eta[k], float)).sum(0)
    return np.array(defects)
