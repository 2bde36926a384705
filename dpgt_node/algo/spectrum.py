"""Lemma 1 in numbers: eigenvalues, stationary vectors and contraction rates of the two Laplacians.

Functions take ``M``, the nonnegative weights of ONE graph in "row receives from column" form: R itself, or C
transposed.  Then in_laplacian(M) is L1, or L2 transposed (the same eigenvalues), and its left null vector v1, or v2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from dpgt_node.algo import bounds
from dpgt_node.algo.edges import Edges, edges_of
from dpgt_node.algo.graph import in_laplacian
from dpgt_node.types import F64
from dpgt_node.values import dataclass

Eigenvalues = tuple[complex, ...]
DENSE_MOST: Final = 500
"""Agents of a strongly connected component whose eigenvalues are computed: about a second.  Of a larger one, bounds."""


@dataclass(frozen=True, slots=True)
class Spectrum:
    """The eigenvalues of one Laplacian: computed, or bounded where a component has more than DENSE_MOST agents.

    ``values``: the computed ones, by modulus, each closed component's zero among them.  ``parts``: large components.
    """

    values: Eigenvalues
    parts: tuple[bounds.Part, ...] = ()

    @property
    def bounded(self) -> bool:
        """Whether the figures below are bounds on the safe side, and no more."""
        return bool(self.parts)

    @property
    def zeros(self) -> int:
        return sum(w == 0 for w in self.values)

    @property
    def least(self) -> float:
        """The least real part of all eigenvalues but one zero, or a lower bound on it; infinite for one agent."""
        return _least((w.real for w in self.values[1:]), (part.least for part in self.parts))

    @property
    def radius(self) -> float:
        """The largest modulus, or an upper bound on it."""
        return max(*(abs(w) for w in self.values), *(part.radius for part in self.parts), 0.0)

    @property
    def step_bound(self) -> float:
        """:func:`spectral_step_bound`, or a lower bound on it."""
        return _least([spectral_step_bound(self.values)], (part.step_bound for part in self.parts))

    def factor(self, step: float) -> float:
        """The largest modulus of 1 - step w over all eigenvalues but one zero, or an upper bound on it; 0 for none."""
        found = [abs(1.0 - step * w) for w in self.values[1:]]
        return max([*found, *(1.0 - step * part.contraction(step) for part in self.parts)], default=0.0)

    def contraction(self, step: float) -> float:
        """:func:`contraction_rate`, or a lower bound on it."""
        return _least([contraction_rate(self.values, step)], (part.contraction(step) for part in self.parts))


def _least(values: Iterable[float], more: Iterable[float]) -> float:
    return min([*values, *more], default=math.inf)


def spectrum(M: F64 | Edges) -> Spectrum:
    """The eigenvalues of in_laplacian(M): all of them, or bounds on those of components of many agents.

    Those of a graph where every agent hears from the same places around it (a ring, a circulant, everybody) are the
    discrete Fourier transform of one row, however many they are.
    """
    edges = edges_of(M)
    parts = edges.components
    if all(len(members) <= DENSE_MOST for members, _ in parts):
        return Spectrum(laplacian_eigenvalues(edges))
    if len(parts) == 1 and (turned := _circulant(edges)) is not None:
        return Spectrum(turned)
    heard = edges.sums(loops=False)
    found: list[complex] = []
    large: list[bounds.Part] = []
    for members, closed in parts:
        if len(members) <= DENSE_MOST:
            found += _block(edges, heard, members, closed)
            continue
        among = edges.among(members)
        L = among.laplacian()
        if closed:
            found.append(0j)
            least = bounds.closed(L, bounds.stationary_of(among))
        else:
            L = _with_diagonal(L, heard[list(members)])
            least = bounds.entered(L)
        large.append(bounds.Part(least, float(L.diagonal().max()), len(members)))
    return Spectrum(_by_modulus(found), tuple(large))


def _with_diagonal(L: Any, diagonal: F64) -> Any:
    L.setdiag(diagonal)
    return L


def _circulant(edges: Edges) -> Eigenvalues | None:
    """All eigenvalues of a circulant graph; None of any other."""
    n, starts = len(edges), edges.starts
    counts = np.diff(starts)
    if len(set(counts.tolist())) != 1 or counts[0] == 0:
        return None
    away = (edges.senders - edges.receivers) % n
    order = np.lexsort((away, edges.receivers))
    offsets, weights = away[order].reshape(n, -1), edges.weights[order].reshape(n, -1)
    if (offsets != offsets[0]).any() or (weights != weights[0]).any():
        return None
    row = np.zeros(n)
    row[offsets[0]] = -weights[0]
    row[0] = math.fsum(w for at, w in zip(offsets[0], weights[0], strict=True) if at)
    values = np.fft.fft(row)
    values[0] = 0.0
    return _by_modulus([complex(w) for w in values])


def laplacian_eigenvalues(M: F64 | Edges) -> Eigenvalues:
    """All n eigenvalues of in_laplacian(M), by modulus.

    One strongly connected component at a time: the Laplacian is block triangular, and a dense solver would spread the
    repeated eigenvalues of a chain or a tree (one Jordan block) by eps^(1/n).  A closed component's block is singular
    with a simple zero, and only such blocks are, so that zeros are exact.
    """
    edges = edges_of(M)
    heard = edges.sums(loops=False)
    return _by_modulus([w for members, closed in edges.components for w in _block(edges, heard, members, closed)])


def _block(edges: Edges, heard: F64, members: tuple[int, ...], closed: bool) -> list[complex]:
    if len(members) == 1:
        return [0j] if closed else [complex(heard[members[0]])]
    block = in_laplacian(edges.among(members).dense)
    np.fill_diagonal(block, heard[list(members)])
    values = [complex(v) for v in np.linalg.eigvals(block)]
    if closed:
        values.remove(min(values, key=abs))
        values.append(0j)
    return values


def _by_modulus(values: list[complex]) -> Eigenvalues:
    return tuple(sorted(values, key=lambda w: (round(abs(w), 12), w.real, w.imag)))


def stationary(M: F64 | Edges) -> F64 | None:
    """The nonnegative v with v' in_laplacian(M) = 0 and sum n, or None when it is not unique (no spanning tree).

    Grassmann-Taksar-Heyman elimination on the closed component: no subtraction, so every entry is accurate and none
    negative; agents outside it get exactly 0.  Of more than DENSE_MOST agents by :func:`bounds.stationary_of`.
    """
    edges = edges_of(M)
    closed = [members for members, is_closed in edges.components if is_closed]
    if len(closed) != 1:
        return None
    members = closed[0]
    v = np.zeros(len(edges))
    if len(members) > DENSE_MOST:
        v[list(members)] = bounds.stationary_of(edges.among(members)) * (len(edges) / len(members))
        return v
    A = edges.among(members).dense.copy()
    for k in range(len(A) - 1, 0, -1):
        A[:k, k] /= A[k, :k].sum()
        A[:k, :k] += np.outer(A[:k, k], A[k, :k])
    weights = np.ones(len(A))
    for k in range(1, len(A)):
        weights[k] = weights[:k] @ A[:k, k]
    v[list(members)] = weights * (len(edges) / math.fsum(weights))
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
