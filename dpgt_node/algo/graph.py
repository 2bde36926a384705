"""The two directed graphs of a run: who sends what to whom, weights, Laplacians, Assumption 1.

``R[i][j] > 0``: agent i receives x̆ from j.  ``C[i][j] > 0``: agent i receives y̆ from j.  The in-set of i is the
support of ROW i in both matrices, the out-set the support of COLUMN i (the paper prints ``N^+_C and N^+_C``; the first
is the in-set ``N^-_C,i = {j : C[i][j] > 0}``).  Self-loops are members of both sets: an agent mixes the value it
RELEASED itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from dpgt_node.config import model
from dpgt_node.types import F64

Edge = tuple[int, float]
Fault = Literal["R", "C", "common root"]


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """Weights and neighbour sets of one run; agent i is row i (0-based) of both matrices.

    ``R``, ``C``: float64 (n, n), read-only.  ``r``: (n,) in-weights of R (row sums).  ``c``: (n,) OUT-weights of C
    (column sums): agent i must know its column, not only its row.  Both are correctly rounded and count self-loops.
    ``roots_R``: agents whose x̆ reaches every agent.  ``roots_C``: agents that every y̆ reaches, i.e. roots of the
    graph of C transposed.  ``common_roots``: in both; Assumption 1 asks for at least one.  All sorted.
    """

    names: tuple[str, ...]
    R: F64
    C: F64
    r: F64
    c: F64
    roots_R: tuple[int, ...]
    roots_C: tuple[int, ...]
    common_roots: tuple[int, ...]

    @classmethod
    def from_config(cls, graph: model.Graph) -> Topology:
        """Build from validated square nonnegative matrices (``config`` rejects others)."""
        return cls.from_matrices(graph.agents, graph.R, graph.C)

    @classmethod
    def from_matrices(cls, names: Sequence[str], R: npt.ArrayLike, C: npt.ArrayLike) -> Topology:
        """The same from arrays of shape (n, n), entries finite and >= 0."""
        Rm, Cm = _frozen(np.array(R, dtype=np.float64)), _frozen(np.array(C, dtype=np.float64))
        n = len(names)
        for M in (Rm, Cm):
            assert M.shape == (n, n) and np.isfinite(M).all() and (M >= 0).all(), "config lets only valid weights pass"
        roots_R, roots_C = roots(Rm), roots(Cm.T)
        return cls(
            names=tuple(names),
            R=Rm,
            C=Cm,
            r=_frozen(np.array([math.fsum(row) for row in Rm])),
            c=_frozen(np.array([math.fsum(col) for col in Cm.T])),
            roots_R=roots_R,
            roots_C=roots_C,
            common_roots=tuple(sorted(set(roots_R) & set(roots_C))),
        )

    @property
    def n(self) -> int:
        return len(self.names)

    @property
    def L1(self) -> F64:
        """In-Laplacian of R, diag(R 1) - R, shape (n, n).  A self-loop cancels; the diagonal is summed without it."""
        return in_laplacian(self.R)

    @property
    def L2(self) -> F64:
        """Out-Laplacian of C, diag(1' C) - C, shape (n, n)."""
        return in_laplacian(self.C.T).T

    def breakers(self) -> dict[Fault, tuple[str, ...]]:
        """Agents that break Assumption 1, by name; empty when it holds.

        ``"R"``: agents that the most far-reaching x̆ does not reach.  ``"C"``: agents whose y̆ does not reach the most
        widely fed agent.  ``"common root"``: both graphs have roots, but none in common: the roots of both.
        """
        found: dict[Fault, tuple[str, ...]] = {}
        if not self.roots_R:
            found["R"] = self._names(unreached(self.R))
        if not self.roots_C:
            found["C"] = self._names(unreached(self.C.T))
        if not found and not self.common_roots:
            found["common root"] = self._names(sorted(set(self.roots_R) | set(self.roots_C)))
        return found

    def _names(self, agents: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.names[i] for i in agents)


def in_laplacian(M: F64) -> F64:
    """diag(M 1) - M with the diagonal of M left out of both terms, so that no digits cancel."""
    off = np.where(np.eye(len(M), dtype=bool), 0.0, M)
    return np.diag(np.array([math.fsum(row) for row in off])) - off


def reachability(M: F64) -> npt.NDArray[np.bool_]:
    """(n, n): entry (i, j) says whether agent i hears from j over a path of edges j -> i (M[i][j] > 0), or i = j.

    Boolean squaring: a graph library would double the start time and the memory of an idle node.
    """
    reach = (M > 0) | np.eye(len(M), dtype=bool)
    while True:
        wider = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
        if np.array_equal(wider, reach):
            return reach
        reach = wider


def components(M: F64) -> list[tuple[tuple[int, ...], bool]]:
    """Strongly connected components, each with whether it is closed (nothing enters from outside); by lowest member."""
    reach = reachability(M)
    mutual = reach & reach.T
    firsts = [i for i in range(len(M)) if i == int(np.argmax(mutual[i]))]
    return [
        (tuple(int(j) for j in np.flatnonzero(mutual[i])), bool(np.array_equal(reach[i], mutual[i]))) for i in firsts
    ]


def roots(M: F64) -> tuple[int, ...]:
    """Agents from which every other is reachable, sorted.  O(n^2): every node of a large run asks."""
    seen = np.zeros(len(M), dtype=bool)
    last = 0
    for start in range(len(M)):
        if not seen[start]:
            seen, last = reached_from(M, start, seen), start
    # Whatever a root could be, ``last`` is one: an earlier root would have left nothing unseen.
    if not reached_from(M, last).all():
        return ()
    return tuple(int(j) for j in np.flatnonzero(reached_from(M.T, last)))


def reached_from(M: F64, start: int, seen: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.bool_]:
    """Mask (n,) of ``seen`` and of everyone that hears from ``start`` over edges j -> i (M[i][j] > 0)."""
    found = np.zeros(len(M), dtype=bool) if seen is None else seen.copy()
    found[start] = True
    frontier = np.array([start])
    while frontier.size:
        hears = (M[:, frontier] > 0.0).any(axis=1) & ~found
        found |= hears
        frontier = np.flatnonzero(hears)
    return found


def separated(names: Sequence[str], M: F64) -> tuple[str, ...]:
    """The agents outside the largest strongly connected part; none where everybody hears from everybody."""
    parts = [members for members, _ in components(M)]
    largest = max(parts, key=len)
    return tuple(name for i, name in enumerate(names) if i not in largest)


@lru_cache(maxsize=8)
def metropolis(t: Topology) -> F64:
    """Metropolis weights of the undirected closure of G_R, (n, n): w_ij = 1/(1 + max(deg_i, deg_j)) on its edges, and
    w_ii = 1 - sum_{j != i} w_ij > 0.
    """
    edges = (t.R > 0) | (t.R.T > 0)
    edges &= ~np.eye(t.n, dtype=bool)
    degree = edges.sum(axis=1)
    W = np.where(edges, 1.0 / (1.0 + np.maximum.outer(degree, degree)), 0.0)
    return _frozen(W + np.diag([1.0 - math.fsum(row) for row in W]))


def unreached(M: F64) -> tuple[int, ...]:
    """Agents out of reach of the agent that reaches most (the lowest-numbered one of equals)."""
    reach = reachability(M)
    best = int(np.argmax(reach.sum(axis=0)))
    return tuple(int(i) for i in np.flatnonzero(~reach[:, best]))


def _frozen(a: F64) -> F64:
    a.setflags(write=False)
    return a
