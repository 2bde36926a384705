"""Lemma 1 in numbers: eigenvalues, stationary vectors and contraction rates of the two Laplacians.

Functions take ``M``, the nonnegative weights of ONE graph in "row receives from column" form: R itself, or C
transposed.  Then in_laplacian(M) is L1, or L2 transposed (the same eigenvalues), and its left null vector v1, or v2.
"""

from __future__ import annotations

import math

import numpy as np

from dpgt_node.algo.graph import components, in_laplacian
from dpgt_node.types import F64

Eigenvalues = tuple[complex, ...]


def laplacian_eigenvalues(M: F64) -> Eigenvalues:
    """All n eigenvalues of in_laplacian(M), by modulus.

    One strongly connected component at a time: the Laplacian is block triangular, and a dense solver would spread the
    repeated eigenvalues of a chain or a tree (one Jordan block) by eps^(1/n).  A closed component's block is singular
    with a simple zero, and only such blocks are, so that zeros are exact.
    """
    L = in_laplacian(M)
    found: list[complex] = []
    for members, closed in components(M):
        block = L[np.ix_(members, members)]
        values = [complex(v) for v in (np.diag(block) if len(members) == 1 else np.linalg.eigvals(block))]
        if closed:
            values.remove(min(values, key=abs))
            values.append(0j)
        found += values
    return tuple(sorted(found, key=lambda w: (round(abs(w), 12), w.real, w.imag)))


def stationary(M: F64) -> F64 | None:
    """The nonnegative v with v' in_laplacian(M) = 0 and sum n, or None when it is not unique (no spanning tree).

    Grassmann-Taksar-Heyman elimination on the closed component: no subtraction, so every entry is accurate and none
    negative; agents outside it get exactly 0.
    """
    closed = [members for members, is_closed in components(M) if is_closed]
    if len(closed) != 1:
        return None
    members = closed[0]
    A = M[np.ix_(members, members)].copy()
    for k in range(len(A) - 1, 0, -1):
        A[:k, k] /= A[k, :k].sum()
        A[:k, :k] += np.outer(A[:k, k], A[k, :k])
    weights = np.ones(len(A))
    for k in range(1, len(A)):
        weights[k] = weights[:k] @ A[:k, k]
    v = np.zeros(len(M))
    v[list(members)] = weights * (len(M) / math.fsum(weights))
    return v


def spectral_step_bound(eigenvalues: Eigenvalues) -> float:
    """min over l = 2..n of Re(w_l) / (1 + |w_l|^2); infinite for one agent, 0 without a spanning tree."""
    return min((w.real / (1.0 + abs(w) ** 2) for w in eigenvalues[1:]), default=math.inf)


def weight_step_bound(weights: F64) -> float:
    """min_i 1/weights_i, where 1/0 is infinite (a root without that weight sets no bound)."""
    return min((1.0 / float(w) for w in weights if w > 0.0), default=math.inf)


def contraction_rate(eigenvalues: Eigenvalues, step: float) -> float:
    """The largest r with rho(W - step L) <= 1 - r step, i.e. (1 - rho)/step; positive iff the mixing contracts.

    It serves every smaller step too: (1 - |1 - s w|)/s does not increase with s.  Written without the cancellation of
    1 - rho for small steps.
    """
    return min(
        ((2.0 * w.real - step * abs(w) ** 2) / (1.0 + abs(1.0 - step * w)) for w in eigenvalues[1:]),
        default=1.0 / step,
    )
