"""GT-SAGA and GT-SVRG the dumb way: dense, a whole table of gradients, its mean taken anew; nothing shared.

All agents are the rows of float64 (n, d) matrices.  f_i(x) = (1/D) sum_j (a_ij' x - b_ij)^2 / 2.
"""

from __future__ import annotations

import numpy as np


class LeastSquares:
    """a, b standard normal from ``default_rng(seed)``, and the sample of round k at each agent."""

    def __init__(self, n: int = 5, D: int = 20, d: int = 4, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.A, self.b = rng.standard_normal((n, D, d)), rng.standard_normal((n, D))
        self.picks = rng.integers(0, D, (100_000, n))

    def table(self, x):  # type: ignore[no-untyped-def]
        """The gradient of every sample, (n, D, d)."""
        return self.A * (np.einsum("nDd,nd->nD", self.A, x) - self.b)[:, :, None]

    def best(self) -> np.ndarray:
        return np.linalg.lstsq(self.A.reshape(-1, self.A.shape[2]), self.b.reshape(-1), rcond=None)[0]


def run(W, gamma: float, table, batches, x0, K: int, period: int | None = None) -> list[np.ndarray]:  # type: ignore[no-untyped-def]
    """x_0..x_{K+1}.  ``table(x)``: one array (D_i, d) an agent.  ``batches(k)``: indices an agent.  ``period`` T: SVRG,
    else SAGA.
    """
    agents = range(len(x0))
    held = [t.copy() for t in table(x0)]
    full = np.array([t.mean(0) for t in held])
    x, y, v, tau = x0.copy(), full.copy(), full.copy(), x0.copy()
    xs = [x]
    for k in range(1, K + 2):
        x = W @ x - gamma * y
        now, then, new = table(x), table(tau), np.empty_like(v)
        for i, batch in zip(agents, batches(k), strict=True):
            if period is None:
                new[i] = (now[i][batch] - held[i][batch]).mean(0) + held[i].mean(0)
                held[i][batch] = now[i][batch]
            elif k % period == 0:
                full[i] = now[i].mean(0)
                new[i] = full[i]
            else:
                new[i] = (now[i][batch] - then[i][batch]).mean(0) + full[i]
        if period is not None and k % period == 0:
            tau = x.copy()
        y, v = W @ y + new - v, new
        xs.append(x)
    return xs
