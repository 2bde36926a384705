"""Where a Laplacian is too large for its eigenvalues: proved bounds on them, from the edges alone.

L = in_laplacian(M) of n agents, one strongly connected component at a time (L is block triangular).  d is the largest
diagonal entry of L.  Every eigenvalue w lies in a disc |w - L_ii| <= L_ii (Gershgorin), so that

    |w|^2 <= 2 d Re w,                                                                                            (1)

and all that Lemma 1 asks follows from d and one number, lambda <= Re w for every w but the simple zero:

    Re w/(1 + |w|^2)   >=  lambda/(1 + 2 d lambda),                              as x/(1 + 2 d x) increases in x   (2)
    (1 - |1 - s w|)/s  >=  2 lambda (1 - s d)/(1 + sqrt(1 - 2 s lambda (1 - s d))),   0 < s <= 1/d                 (3)
    |w|                <=  2 d.                                                                                   (4)

(3): |1 - s w|^2 = 1 - 2 s Re w + s^2 |w|^2 <= 1 - 2 s Re w (1 - s d).  For s > 1/d only 2 - s 2 d, from (4), is left.

**A component that something enters** has a nonsingular block B = c I - A, A >= 0.  For any x > 0, A x <= (c - t) x
with t = min_i (B x)_i/x_i, so rho(A) <= c - t and Re w >= t (Collatz and Wielandt).

**A closed component** has one zero, with v > 0, v'L = 0.  Let V = diag(v) and S = (V L + L'V)/2, a weighted undirected
Laplacian.  An eigenvector u of w != 0 has v'u = 0, hence Re w = u*S u/u*V u >= lambda_2(S, V) (Fill; Chung).  Two lower
bounds on lambda_2, of which the larger serves:

- Remove one agent: lambda_2 >= the least eigenvalue of the rest (interlacing) >= min_i (S x)_i/(v_i x_i) for any x > 0
  (Barta).  Sharp to a factor 4 on a ring, poor where every agent hears from many.
- Lanczos on 2 d I - V^-1/2 S V^-1/2, which is positive semidefinite, its known vector taken out, from a random start:
  after k steps the largest eigenvalue is at most theta/(1 - e), e = (ln(1.648 sqrt(n)/p)/(2 k - 1))^2, but for
  probability p (Kuczynski and Wozniakowski 1992, theorem 4.1).  p is 1e-12.  Sharp on random graphs, poor on rings.

Numbers are float64: v and x are found by iteration or sparse elimination, and what is printed is as accurate as they.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Final

import numpy as np

from dpgt_node.algo.edges import Edges
from dpgt_node.types import F64
from dpgt_node.values import dataclass

_P: Final = 1e-12
_LANCZOS: Final = 300
"""Steps of Lanczos: 24 MB of vectors for ten thousand agents."""
_POWERS: Final = 3_000
_ROUNDING: Final = 1e-9
"""Relative, taken off every bound."""
_LEAST: Final = 1e-290
"""Of a stationary vector with mean 1: far above the floats that have lost digits."""
_STATIONARY: Final = 1e-10
"""How far v'L may be from 0, as a part of what cancels there."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is known of a large component's eigenvalues other than a closed one's zero: ``lambda <= Re w``, and d."""

    least: float
    weight: float
    agents: int

    @property
    def step_bound(self) -> float:
        """Equation (2)."""
        return self.least / (1.0 + 2.0 * self.weight * self.least)

    @property
    def radius(self) -> float:
        """Equation (4)."""
        return 2.0 * self.weight

    def contraction(self, step: float) -> float:
        """Equation (3)."""
        room = 1.0 - step * self.weight
        if room <= 0.0:
            return min(0.0, 2.0 / step - self.radius)
        lost = 2.0 * self.least * room
        return lost / (1.0 + math.sqrt(max(0.0, 1.0 - step * lost)))


def entered(L: Any) -> float:
    """lambda of a block (CSR, n x n) of a strongly connected component that something enters."""
    c = 1.01 * float(L.diagonal().max())
    x = np.ones(L.shape[0])
    for _ in range(_POWERS // 10):
        for _ in range(10):
            x = x - (L @ x) / c
        x /= x.max()
        ratios = (L @ x) / x
        if ratios.min() > 0.5 * ratios.max():
            return _safe(ratios.min())
    solve = _eliminated(L)
    found = [x] if solve is None else [x, solve(np.ones(L.shape[0]))]
    best = max((float(((L @ z) / z).min()) for z in found if (z > 0.0).all()), default=0.0)
    return _safe(best)


def closed(L: Any, v: F64) -> float:
    """lambda of a closed component's Laplacian (CSR, n x n) with stationary ``v`` (n,).

    0, which says nothing, where v is not known so well: along a ring whose agents all hear from one more its entries
    fall by half from one to the next, and soon no float holds them.
    """
    from scipy.sparse import diags_array

    if not (v.min() >= _LEAST and (np.abs(L.T @ v) <= _STATIONARY * L.diagonal() * v).all()):
        return 0.0
    weighted = diags_array(v) @ L
    S = ((weighted + weighted.T) / 2.0).tocsr()
    found, above = _lanczos(S, v)
    # What Lanczos saw is an upper bound: where its own lower one is near, elimination has nothing to add.
    return _safe(found if found >= 0.5 * above else max(found, _grounded(S, v)))


def _lanczos(S: Any, v: F64) -> tuple[float, float]:
    """A lower bound on lambda_2 of (S, V), negative where it says nothing, and an upper one."""
    from scipy.linalg import eigvalsh_tridiagonal

    n, root = len(v), np.sqrt(v)
    c = 2.0 * float((S.diagonal() / v).max())
    known = root / np.linalg.norm(root)

    def without(z: F64) -> F64:
        left: F64 = z - known * (known @ z)
        return left

    steps = min(_LANCZOS, n - 1)
    basis = np.zeros((steps, n))
    q = without(_start(n))
    basis[0] = q / np.linalg.norm(q)
    alpha, beta = np.zeros(steps), np.zeros(steps)
    for k in range(steps):
        z = c * basis[k] - (S @ (basis[k] / root)) / root
        alpha[k] = basis[k] @ z
        for _ in range(2):  # orthogonal to all before, twice: rounding makes no copies of eigenvalues
            z = without(z - basis[: k + 1].T @ (basis[: k + 1] @ z))
        beta[k] = np.linalg.norm(z)
        if k + 1 == steps or beta[k] <= 1e-13 * c:
            break
        basis[k + 1] = z / beta[k]
    theta = float(eigvalsh_tridiagonal(alpha[: k + 1], beta[:k])[-1])
    e = (math.log(1.648 * math.sqrt(n) / _P) / (2 * (k + 1) - 1)) ** 2
    return c - theta / (1.0 - e) if e < 1.0 else -math.inf, c - theta


def _start(n: int) -> F64:
    """n standard normal numbers from a fixed hash, by Box and Muller: nobody builds a graph against them."""
    words = np.frombuffer(hashlib.shake_256(b"where Lanczos starts").digest(16 * n), dtype="<u8").reshape(2, n)
    radius, angle = (words + 0.5) / 2.0**64
    drawn: F64 = np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * np.pi * angle)
    return drawn


def _grounded(S: Any, v: F64) -> float:
    """Barta's bound with the heaviest agent removed; 0 where elimination fails."""
    kept = np.delete(np.arange(len(v)), int(np.argmax(S.diagonal())))
    rest, w = S[kept][:, kept], v[kept]
    x = np.ones(len(kept))
    best = 0.0
    solve = _eliminated(rest)
    for _ in range(0 if solve is None else 8):
        x = solve(w * x)
        x /= np.abs(x).max()
        if not (x > 0.0).all():
            break
        best = max(best, float(((rest @ x) / (w * x)).min()))
    return best


def stationary_of(edges: Edges) -> F64:
    """v > 0 with v'L = 0 and sum n of one strongly connected graph, float64 (n,), to about 1e-12 of each entry that is
    not smaller than any float; those are 0.

    Where every agent sends as much as it hears (rings, circulants, undirected graphs) it is 1 for all.  Else powers of
    I - L'/c, which serve where mixing is fast; else sparse elimination, which serves where few edges join the parts.
    """
    heard, sent = edges.sums(loops=False), edges.reverse.sums(loops=False)
    if np.allclose(heard, sent, rtol=1e-15, atol=0.0):
        return np.ones(len(edges))
    T = edges.laplacian().T.tocsr()
    c = 1.01 * float(heard.max())
    v = 1.0 / heard
    for _ in range(_POWERS // 10):
        for _ in range(10):
            v = v - (T @ v) / c
        v *= len(v) / v.sum()
        if (np.abs(T @ v) <= 1e-14 * heard * v).all():
            return v
    first = int(np.argmax(v))
    kept = np.delete(np.arange(len(v)), first)
    if (solve := _eliminated(T[kept][:, kept])) is not None:
        v = np.insert(np.abs(solve(-T[kept][:, [first]].toarray().ravel())), first, 1.0)
    found: F64 = v * (len(v) / math.fsum(v))
    return found


def _eliminated(A: Any) -> Any:
    """What solves A x = b; None where rounding leaves a pivot 0, as where an eigenvalue is far below all others."""
    from scipy.sparse.linalg import splu

    options = {"SymmetricMode": True}
    try:
        return splu(A.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options).solve
    except RuntimeError:
        return None


def _safe(bound: float) -> float:
    return max(0.0, float(bound)) * (1.0 - _ROUNDING)
