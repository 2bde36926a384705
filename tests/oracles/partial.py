"""What one agent that sees only its own messages learns: noise-once as explicit matrices over all rounds."""

from __future__ import annotations

import numpy as np

RING_R = [[0, 0, 0, 0, 1], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]]
RING_C = [[0, 0, 1, 0, 1], [1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]]
ROOT = 1e-9


class Tracking:
    """x and y of every agent and round as rows over the perturbations (agent, round), with gradients ``slopes`` x."""

    def __init__(self, R, C, K, *, alpha=0.3, beta=0.3, gamma=1.0, slopes=None):
        R, C = np.array(R, float), np.array(C, float)
        n = len(R)
        self.n, self.K, self.R, self.C = n, K, R, C
        slopes = np.zeros(n) if slopes is None else np.array(slopes)
        A = np.eye(n) - alpha * (np.diag(R.sum(1)) - R)
        B = np.eye(n) - beta * (np.diag(C.sum(0)) - C)
        size = n * (K + 1)
        x, y, before = np.zeros((n, size)), np.zeros((n, size)), np.zeros((n, size))
        self.x, self.y = [], []
        for k in range(K + 1):
            released = slopes[:, None] * x
            released[np.arange(n), np.arange(n) * (K + 1) + k] += 1.0
            y = released if k == 0 else B @ y + released - before
            self.x.append(x)
            self.y.append(y)
            x, before = A @ x - gamma * y, released

    def columns(self, agent):
        return slice(agent * (self.K + 1), (agent + 1) * (self.K + 1))

    def received(self, observer):
        """(round, stream, sender, row) of all that ``observer`` receives, in the order of time."""
        for k in range(self.K + 1):
            yield from ((k, "x", j, self.x[k][j]) for j in range(self.n) if self.R[observer][j] > 0)
            yield from ((k, "y", j, self.y[k][j]) for j in range(self.n) if self.C[observer][j] > 0)

    def others(self, observer):
        return [c for c in range(self.n * (self.K + 1)) if c // (self.K + 1) != observer]


def projection(rows, columns, own):
    """The part of the row space of ``rows[:, columns]`` on the columns ``own``: shift u costs u'Pu at unit noise."""
    view = np.array(rows)[:, columns]
    _, values, V = np.linalg.svd(view, full_matrices=False)
    V = V[values > ROOT * values[0]]
    at = [columns.index(c) for c in own]
    return V[:, at].T @ V[:, at]


def seen_by(run: Tracking, owner, observer):
    """P of ``owner`` towards ``observer`` by what it receives."""
    columns, where = run.others(observer), run.columns(owner)
    rows = [row for *_, row in run.received(observer)]
    return projection(rows, columns, list(range(where.start, where.stop)))


def closed(run: Tracking, owner, observer):
    """The same with every hidden gradient point that enters the view added to it, in the order of time."""
    columns, where = run.others(observer), run.columns(owner)
    rows: list[np.ndarray] = []
    basis = np.zeros((0, len(columns)))
    entered: set[tuple[int, int]] = set()

    def add(row):
        nonlocal basis
        rest = row - basis.T @ (basis @ row)
        rest -= basis.T @ (basis @ rest)
        if (size := np.linalg.norm(rest)) > 1e-8 * max(1.0, np.linalg.norm(row)):
            basis = np.vstack((basis, rest / size))
            rows.append(row)

    def close(full):
        """Points of the gradients in a row come before it."""
        for k in range(run.K + 1):
            for j in range(run.n):
                if j != observer and (j, k) not in entered and abs(full[j * (run.K + 1) + k]) > 1e-12:
                    entered.add((j, k))
                    close(run.x[k][j])
                    add(run.x[k][j][columns])

    for *_, row in run.received(observer):
        close(row)
        add(row[columns])
    at = [columns.index(c) for c in range(where.start, where.stop)]
    return basis[:, at].T @ basis[:, at]


def worst_signs(P):
    """The largest u'Pu over u in [-1, 1]^n in one dimension: over all signs where they are few, else by flips."""
    n = len(P)
    best = 0.0
    starts = [np.ones(n), *np.random.default_rng(0).choice([-1.0, 1.0], (60, n))]
    for u in starts:
        u = u.copy()
        moved = True
        while moved:
            moved = False
            for i in range(n):
                gain = -4 * u[i] * (P[i] @ u - P[i, i] * u[i])
                if gain > 1e-12:
                    u[i], moved = -u[i], True
        best = max(best, float(u @ P @ u))
    return best
