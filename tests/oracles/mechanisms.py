"""The four mechanisms, agent by agent and entry by entry, from their one-line definitions (privacy.md, section 2)."""

from __future__ import annotations

import numpy as np


def run(mechanism, R, C, alpha, beta, gamma, x0, gradient, zeta, eta):
    """All x (K+2, n, d) and what is sent, x_sent and y_sent (K+1, n, d); ``gradient(i, k, x)``; noise (K+1, n, d)."""
    R, C = np.asarray(R, float), np.asarray(C, float)
    n, rounds = len(R), len(eta)
    x = [np.array(v, float) for v in x0]
    y: list = [None] * n
    g_old: list = [None] * n
    mixed: list = [None] * n
    xs, x_sents, y_sents = [np.stack(x)], [], []
    for k in range(rounds):
        x_sent, y_sent = [], []
        for i in range(n):
            noisy_x = mechanism in ("paper", "published-point")
            out = x[i] + zeta[k][i] if noisy_x else x[i]
            point = out if mechanism == "published-point" else x[i]
            g = gradient(i, k, point)
            if mechanism == "noise-once":
                g = g + eta[k][i]
            y[i] = g if k == 0 else mixed[i] + g - g_old[i]
            g_old[i] = g
            x_sent.append(out)
            y_sent.append(y[i] if mechanism == "noise-once" else y[i] + eta[k][i])
        x_sents.append(np.stack(x_sent)), y_sents.append(np.stack(y_sent))
        nxt = []
        for i in range(n):
            own = y_sent[i] if mechanism == "public-state" else y[i]
            new = (1 - alpha * R[i].sum()) * x[i] - gamma * own
            mixed[i] = (1 - beta * C[:, i].sum()) * y[i]
            for j in range(n):
                new = new + alpha * R[i][j] * x_sent[j]
                mixed[i] = mixed[i] + beta * C[i][j] * y_sent[j]
            nxt.append(new)
        x = nxt
        xs.append(np.stack(x))
    return np.stack(xs), np.stack(x_sents), np.stack(y_sents)
