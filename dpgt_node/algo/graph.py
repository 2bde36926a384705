"""The two directed graphs of a run: who sends what to whom, weights, Laplacians, Assumption 1.

``R[i][j] > 0``: agent i receives x̆ from j.  ``C[i][j] > 0``: agent i receives y̆ from j.  The in-set of i is the
support of ROW i in both matrices, the out-set the support of COLUMN i (the paper prints ``N^+_C and N^+_C``; the first
is the in-set ``N^-_C,i = {j : C[i][j] > 0}``).  Self-loops are members of both sets: an agent mixes the value it
RELEASED itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from dpgt_node.algo.edges import Edges, edges_of
from dpgt_node.config import model
from dpgt_node.types import F64
from dpgt_node.values import dataclass

Edge = tuple[int, float]
Fault = Literal["R", "C", "common root"]


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """Weights and neighbour sets of one run; agent i is row i (0-based) of both matrices.

    ``in_R``: the edges of R, ``in_C`` those of C transposed.  ``R``, ``C``: float64 (n, n), read-only, made from them
    when first asked for.  ``r``: (n,) in-weights of R (row sums).  ``c``: (n,) OUT-weights of C (column sums): agent i
    must know its column, not only its row.  Both are correctly rounded and count self-loops.
    ``roots_R``: agents whose x̆ reaches every agent.  ``roots_C``: agents that every y̆ reaches, i.e. roots of the
    graph of C transposed.  ``common_roots``: in both; Assumption 1 asks for at least one.  All sorted.
    """

    names: tuple[str, ...]
    in_R: Edges
    in_C: Edges
    r: F64
    c: F64
    roots_R: tuple[int, ...]
    roots_C: tuple[int, ...]
    common_roots: tuple[int, ...]

    @classmethod
    def from_config(cls, graph: model.Graph) -> Topology:
        """Build from validated square nonnegative matrices (``config`` rejects others)."""
        return cls._of(graph.agents, Edges.of(graph.R), Edges.of(graph.C).reverse)

    @classmethod
    def from_matrices(cls, names: Sequence[str], R: npt.ArrayLike, C: npt.ArrayLike) -> Topology:
        """The same from arrays of shape (n, n), entries finite and >= 0."""
        return cls._of(names, Edges.of(R), Edges.of(C).reverse)

    @classmethod
    def _of(cls, names: Sequence[str], in_R: Edges, in_C: Edges) -> Topology:
        assert len(names) == len(in_R) == len(in_C), "config lets only one row an agent pass"
        roots_R, roots_C = in_R.roots(), in_C.roots()
        common = tuple(sorted(set(roots_R) & set(roots_C)))
        return cls(tuple(names), in_R, in_C, _frozen(in_R.sums()), _frozen(in_C.sums()), roots_R, roots_C, common)

    @property
    def R(self) -> F64:
        return self.in_R.dense

    @property
    def C(self) -> F64:
        return self.in_C.reverse.dense

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
            found["R"] = self._names(unreached(self.in_R))
        if not self.roots_C:
            found["C"] = self._names(unreached(self.in_C))
        if not found and not self.common_roots:
            found["common root"] = self._names(sorted(set(self.roots_R) | set(self.roots_C)))
        return found

    def _names(self, agents: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.names[i] for i in agents)


def in_laplacian(M: F64) -> F64:
    """diag(M 1) - M with the diagonal of M left out of both terms, so that no digits cancel."""
    off = np.where(np.eye(len(M), dtype=bool), 0.0, M)
    return np.diag(np.array([math.fsum(row) for row in off])) - off


def components(M: F64 | Edges) -> tuple[tuple[tuple[int, ...], bool], ...]:
    """Strongly connected components, each with whether it is closed (nothing enters from outside); by lowest member."""
    return edges_of(M).components


def separated(names: Sequence[str], M: F64 | Edges) -> tuple[str, ...]:
    """The agents outside the largest strongly connected part; none where everybody hears from everybody."""
    _, largest = min((-len(members), members) for members, _ in components(M))
    kept = set(largest)
    return tuple(name for i, name in enumerate(names) if i not in kept)


@lru_cache(maxsize=8)
def metropolis_edges(t: Topology) -> Edges:
    """Metropolis weights of the undirected closure of G_R, (n, n): w_ij = 1/(1 + max(deg_i, deg_j)) on its edges, and
    w_ii = 1 - sum_{j != i} w_ij > 0.
    """
    n, hears = t.n, t.in_R
    off = hears.receivers != hears.senders
    one, other = hears.receivers[off], hears.senders[off]
    pairs = np.unique(np.concatenate([one * n + other, other * n + one]))
    i, j = pairs // n, pairs % n
    degree = np.bincount(i, minlength=n)
    weights = 1.0 / (1.0 + np.maximum(degree[i], degree[j]))
    starts = np.concatenate([[0], np.cumsum(degree)])
    own = np.array([1.0 - math.fsum(weights[a:b]) for a, b in itertools.pairwise(starts)])
    places = np.concatenate([pairs, np.arange(n) * (n + 1)])
    order = np.argsort(places)
    return Edges(starts + np.arange(n + 1), places[order] % n, np.concatenate([weights, own])[order])


def metropolis(t: Topology) -> F64:
    """:func:`metropolis_edges` as a matrix, (n, n)."""
    return metropolis_edges(t).dense


def unreached(M: F64 | Edges) -> tuple[int, ...]:
    """Agents out of reach of the agent that reaches most (the lowest-numbered one of equals)."""
    edges = edges_of(M)
    # Whom others reach, they reach more than: so that the agent is in a part that nothing enters.
    sources = [members[0] for members, closed in edges.components if closed]
    widest = max((edges.reached_from(start) for start in sources), key=lambda reached: int(reached.sum()))
    return tuple(int(i) for i in np.flatnonzero(~widest))


def _frozen(a: F64) -> F64:
    a.setflags(write=False)
    return a
