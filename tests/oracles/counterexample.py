"""The counterexample of privacy.md, section 1: linear gradients, full batch, and the exact log-likelihood ratio."""

from __future__ import annotations

import numpy as np

R = np.array([[0.0, 0.02], [1.0, 0.0]])
C = np.array([[0.0, 1.0], [0.02, 0.0]])
ALPHA = BETA = 0.2
GAMMA = 0.05
K = 300
M = 53
CONSTANT = 1e-6
SLOPES = np.array([-1.6, 1.7])  # of f_1 = -0.8 x^2 and f_2 = +0.85 x^2
A1 = ALPHA * 0.02
B1 = BETA * 0.02


def sigma(k):
    return (k + 1) ** 0.1


def log_ratios(mechanism: str, runs: int, seed: int, offset: float = CONSTANT / M) -> np.ndarray:
    """ln p_D/p_D' of ``runs`` transcripts drawn under D; agent 1's mean gradient is larger by ``offset`` in D'.

    Agent 1's private states under D' are rebuilt from the transcript, round by round, beside those under D.
    """
    rng = np.random.default_rng(seed)
    x = np.zeros((2, runs))
    other_x = np.zeros(runs)  # agent 1 in the world D'
    total = np.zeros(runs)
    g = y = other_g = kept = other_kept = None  # kept: y_{k+1} before the step of g
    for k in range(K + 1):
        s = sigma(k)
        zeta, eta = rng.laplace(0.0, s, (2, runs)), rng.laplace(0.0, s, (2, runs))
        x_breve = x + zeta if mechanism in ("paper", "published-point") else x
        point, other_point = (x_breve, x_breve[0]) if mechanism == "published-point" else (x, other_x)
        g_next, other_next = SLOPES[:, None] * point, SLOPES[0] * other_point + offset
        if mechanism == "noise-once":
            noisy = g_next + eta  # g~_k: the release, and all that y and x are made of
            total += (np.abs(noisy[0] - other_next) - np.abs(noisy[0] - g_next[0])) / s
            y = noisy if k == 0 else y + BETA * (C @ y - C.sum(axis=0)[:, None] * y) + noisy - g
            g = noisy
            x = x + ALPHA * (R @ x - R.sum(axis=1)[:, None] * x) - GAMMA * y
            other_x = x[0]
            continue
        y = g_next if k == 0 else kept + g_next - g
        other_y = other_next if k == 0 else other_kept + other_next - other_g
        g, other_g = g_next, other_next
        y_breve = y + eta
        if mechanism != "public-state":
            total += (np.abs(x_breve[0] - other_x) - np.abs(x_breve[0] - x[0])) / s
        total += (np.abs(y_breve[0] - other_y) - np.abs(y_breve[0] - y[0])) / s
        step, other_step = (y_breve, y_breve[0]) if mechanism == "public-state" else (y, other_y)
        mixed_x, mixed_y = ALPHA * R @ x_breve, BETA * C @ y_breve
        x, other_x = (
            (1 - ALPHA * R.sum(axis=1))[:, None] * x + mixed_x - GAMMA * step,
            (1 - A1) * other_x + mixed_x[0] - GAMMA * other_step,
        )
        kept = (1 - BETA * C.sum(axis=0))[:, None] * y + mixed_y
        other_kept = (1 - B1) * other_y + mixed_y[0]
    return total
