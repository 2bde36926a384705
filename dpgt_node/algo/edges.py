"""One directed graph by its edges: what a graph of ten thousand agents costs follows their number, not n^2.

An edge j -> i stands where agent i hears from agent j (``M[i][j] > 0``).  "Row receives from column": R itself, or C
transposed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpgt_node.config.graphs.sparse import SparseRows
from dpgt_node.types import F64, I64


class Edges:
    """n agents and the positive weights between them, as compressed sparse rows.

    ``starts``: int64 (n + 1); ``senders``: int64, ascending within a row; ``weights``: float64 > 0.  Row i is
    ``senders[starts[i]:starts[i + 1]]``; self-loops are edges.  All three are read-only.
    """

    def __init__(self, starts: I64, senders: I64, weights: F64) -> None:
        assert np.isfinite(weights).all() and (weights > 0).all(), "config lets only valid weights pass"
        self.starts, self.senders, self.weights = _frozen(starts), _frozen(senders), _frozen(weights)

    @classmethod
    def of(cls, M: npt.ArrayLike) -> Edges:
        """From weights (n, n), entries finite and >= 0; of ``SparseRows`` no zero is looked at."""
        if isinstance(M, SparseRows):
            return cls(np.array(M.starts), np.array(M.columns), np.array(M.weights))
        dense = np.array(M, dtype=np.float64)
        assert dense.ndim == 2 and len(set(dense.shape)) <= 1, "config lets only square matrices pass"
        assert np.isfinite(dense).all() and (dense >= 0).all(), "config lets only valid weights pass"
        rows, columns = np.nonzero(dense)
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(dense)))]).astype(np.int64)
        made = cls(starts, columns.astype(np.int64), dense[rows, columns])
        made.__dict__["dense"] = _frozen(dense)
        return made

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def receivers(self) -> I64:
        """The row of every edge."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @cached_property
    def dense(self) -> F64:
        """Weights as (n, n), read-only: 800 MB for ten thousand agents, so only who multiplies by it asks."""
        whole = np.zeros((len(self), len(self)))
        whole[self.receivers, self.senders] = self.weights
        whole.setflags(write=False)
        return whole

    @cached_property
    def reverse(self) -> Edges:
        """Every edge turned round: the transposed matrix."""
        order = np.argsort(self.senders, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(self.senders, minlength=len(self)))]).astype(np.int64)
        turned = Edges(starts, self.receivers[order], self.weights[order])
        turned.__dict__["reverse"] = self
        if "dense" in self.__dict__:
            turned.__dict__["dense"] = self.dense.T
        return turned

    def sums(self, *, loops: bool = True) -> F64:
        """(n,): the sum of every row, correctly rounded; without self-loops on request."""
        weights = self.weights if loops else np.where(self.receivers == self.senders, 0.0, self.weights)
        return np.array([math.fsum(weights[a:b]) for a, b in zip(self.starts[:-1], self.starts[1:], strict=True)])

    def row(self, i: int) -> tuple[tuple[int, float], ...]:
        """(j, weight) of everyone whom agent ``i`` hears, ascending, itself included on a self-loop."""
        here = slice(self.starts[i], self.starts[i + 1])
        return tuple(zip(self.senders[here].tolist(), self.weights[here].tolist(), strict=True))

    def without_loops(self) -> Edges:
        """The edges between different agents."""
        off = self.receivers != self.senders
        starts = np.concatenate([[0], np.cumsum(np.bincount(self.receivers[off], minlength=len(self)))])
        return Edges(starts.astype(np.int64), self.senders[off], self.weights[off])

    def among(self, members: Sequence[int] | I64) -> Edges:
        """The edges between ``members``, which become 0, 1, ... in that order."""
        place = np.full(len(self), -1)
        place[np.asarray(members)] = np.arange(len(members))
        rows, columns = place[self.receivers], place[self.senders]
        kept = np.flatnonzero((rows >= 0) & (columns >= 0))
        kept = kept[np.lexsort((columns[kept], rows[kept]))]
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=len(members)))]).astype(np.int64)
        return Edges(starts, columns[kept], self.weights[kept])

    def laplacian(self) -> Any:
        """diag(M 1) - M as scipy CSR (n, n), without self-loops, so that no digits cancel."""
        from scipy.sparse import csr_array

        off = np.flatnonzero(self.receivers != self.senders)
        here = np.arange(len(self))
        values = np.concatenate([-self.weights[off], self.sums(loops=False)])
        places = (np.concatenate([self.receivers[off], here]), np.concatenate([self.senders[off], here]))
        return csr_array((values, places), shape=(len(self), len(self)))

    def reached_from(self, start: int, seen: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.bool_]:
        """Mask (n,) of ``seen`` and of everyone that hears from ``start``, over any number of edges."""
        found = np.zeros(len(self), dtype=bool) if seen is None else seen.copy()
        found[start] = True
        frontier, hear = [start], self.reverse
        while frontier:
            nearby = np.concatenate([hear.senders[hear.starts[j] : hear.starts[j + 1]] for j in frontier])
            frontier = sorted(set(nearby[~found[nearby]].tolist()))  # np.unique imports numpy.ma, in every daemon
            found[frontier] = True
        return found

    def roots(self) -> tuple[int, ...]:
        """Agents from which every other is reached, sorted; in time linear in agents and edges."""
        seen, last = np.zeros(len(self), dtype=bool), 0
        for start in range(len(self)):
            if not seen[start]:
                seen, last = self.reached_from(start, seen), start
        # Whatever a root could be, ``last`` is one: an earlier root would have left nothing unseen.
        if not self.reached_from(last).all():
            return ()
        return tuple(int(j) for j in np.flatnonzero(self.reverse.reached_from(last)))

    @cached_property
    def components(self) -> tuple[tuple[tuple[int, ...], bool], ...]:
        """Strongly connected components, each with whether it is closed (nothing enters it); by lowest member.

        Tarjan's algorithm with a stack of its own: linear in agents and edges, and a chain of ten thousand agents
        recurses nowhere.
        """
        n, starts, senders = len(self), self.starts.tolist(), self.senders.tolist()
        order, low, waiting = [-1] * n, [0] * n, [False] * n
        stack: list[int] = []
        of, count, number = [-1] * n, 0, 0
        following = starts[:-1].copy()
        for root in range(n):
            path = [root] if order[root] < 0 else []
            while path:
                i = path[-1]
                if order[i] < 0:
                    order[i] = low[i] = number
                    number += 1
                    stack.append(i)
                    waiting[i] = True
                while following[i] < starts[i + 1]:
                    j = senders[following[i]]
                    if order[j] < 0:
                        path.append(j)
                        break
                    following[i] += 1
                    if waiting[j]:
                        low[i] = min(low[i], low[j])
                else:
                    path.pop()
                    if low[i] == order[i]:
                        while True:
                            j = stack.pop()
                            waiting[j], of[j] = False, count
                            if j == i:
                                break
                        count += 1
        return self._listed(np.array(of), count)

    def _listed(self, of: I64, count: int) -> tuple[tuple[tuple[int, ...], bool], ...]:
        enters = of[self.receivers] != of[self.senders]
        closed = np.ones(count, dtype=bool)
        closed[of[self.receivers[enters]]] = False
        grouped = np.split(np.argsort(of, kind="stable"), np.cumsum(np.bincount(of, minlength=count))[:-1])
        found = [(tuple(members.tolist()), bool(closed[c])) for c, members in enumerate(grouped)]
        return tuple(sorted(found, key=lambda part: part[0][0]))


def edges_of(M: F64 | Edges) -> Edges:
    """``M`` as edges."""
    return M if isinstance(M, Edges) else Edges.of(M)


def _frozen(a: Any) -> Any:
    a.setflags(write=False)
    return a
