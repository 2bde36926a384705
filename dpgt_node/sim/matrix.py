"""Sums over neighbours with all agents as the rows of one matrix: the compact form of the paper, (eq7) and (eq8)."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpgt_node.algo.edges import Edges
from dpgt_node.privacy.laws.compiled import Loop, fixed
from dpgt_node.sim.team import Team
from dpgt_node.types import F64, I64

SPARSE_FROM_AGENTS = 32
SPARSE_BELOW_DENSITY = 0.2
_BLOCK_NUMBERS = 1 << 17
"""Of one block of a matrix: it stays in the cache."""
_LEAST, _LEAST_COMPILED = 128, 1024
"""Columns of a block: a shorter piece of a row costs more to reach than to read."""


def sums(
    starts: I64, senders: I64, weights: F64, keep: F64, step: float, less: float,
    vector: F64, sent: F64, other: F64, out: F64, first: int, stop: int, width: int, total: F64
) -> None:  # fmt: skip
    """Columns ``first`` to ``stop`` of ``out`` = keep vector + step W sent - less other, (n, d) each, for numba.

    W: as ``Edges`` has it; ``keep`` (n,); no ``other`` where ``less`` is 0.  ``width`` columns at a time, with
    ``total`` (width,) to work in.  Plain Python, so that it can be checked without numba.
    """
    for begin in range(first, stop, width):
        past = min(begin + width, stop)
        some, t = range(past - begin), total[: past - begin]
        for i in range(out.shape[0]):
            for c in some:
                t[c] = 0.0
            edge, end = starts[i], starts[i + 1]
            # A loop over pieces of rows runs on vectors; one over the columns of a matrix looks for negative ones.
            while edge + 4 <= end:  # the sum is read and written once for four senders
                s0, s1 = sent[senders[edge], begin:past], sent[senders[edge + 1], begin:past]
                s2, s3 = sent[senders[edge + 2], begin:past], sent[senders[edge + 3], begin:past]
                w0, w1, w2, w3 = weights[edge], weights[edge + 1], weights[edge + 2], weights[edge + 3]
                for c in some:
                    t[c] += w0 * s0[c] + w1 * s1[c] + w2 * s2[c] + w3 * s3[c]
                edge += 4
            while edge < end:
                s0, w0 = sent[senders[edge], begin:past], weights[edge]
                for c in some:
                    t[c] += w0 * s0[c]
                edge += 1
            own, to, held = keep[i], out[i, begin:past], vector[i, begin:past]
            if less == 0.0:
                for c in some:
                    to[c] = own * held[c] + step * t[c]
            else:
                minus = other[i, begin:past]
                for c in some:
                    to[c] = own * held[c] + step * t[c] - less * minus[c]


class Weights:
    """One stream's weights (n, n); ``times(step)`` is step * weights, numpy or scipy CSR: a large graph with few edges
    stays sparse.

    ``compiled``: as ``Loop`` takes it, for sparse ones.
    """

    def __init__(self, weights: Edges, compiled: bool | None = False, team: Team | None = None) -> None:
        n = len(weights)
        self._dense = n < SPARSE_FROM_AGENTS or len(weights.weights) > SPARSE_BELOW_DENSITY * n * n
        self._edges, self.team = weights, team or Team()
        self._weights = weights.dense if self._dense else _sparse(weights)
        self._last: tuple[float, Any] | None = None
        self._loop = Loop(sums, compiled)

    def times(self, step: float) -> Any:
        """What is sent, as rows, is multiplied by this; kept until another step is asked for."""
        if self._last is None or self._last[0] != step:
            self._last = (step, step * self._weights)
        return self._last[1]

    def combine(self, sent: F64, keep: Any, vector: F64, step: float, less: float, other: F64 | None, out: F64) -> None:
        """``out`` = keep vector + step W sent - less other, (n, d) each; ``keep``: a column, or one number."""
        n, d = out.shape
        width = max(_BLOCK_NUMBERS // n, _LEAST)
        loop = None if self._dense else self._loop.of(d)
        if loop is None:
            weights = self.times(step)

            def some(blocks: slice, _: int) -> None:
                for begin in range(blocks.start * width, min(blocks.stop * width, d), width):
                    at = slice(begin, min(begin + width, d))
                    part = weights @ np.ascontiguousarray(sent[:, at])
                    part += keep * vector[:, at]
                    if other is not None:
                        part -= less * other[:, at]
                    out[:, at] = part

        else:
            keeps = np.array(np.broadcast_to(np.ravel(keep), n))
            edges = [fixed(one) for one in (self._edges.starts, self._edges.senders, self._edges.weights)]
            read = [fixed(one) for one in (vector, sent, vector if other is None else other)]
            factor = 0.0 if other is None else less
            # A number's bits do not depend on its block here.
            width = min(max(width, _LEAST_COMPILED), -(-d // self.team.threads))

            def some(blocks: slice, _: int) -> None:
                first, stop = blocks.start * width, min(blocks.stop * width, d)
                loop(*edges, keeps, step, factor, *read, out, first, stop, width, np.empty(width))

        # By whole blocks, so that a product has the same bits whoever else is at work.
        self.team.over(-(-d // width), some)


class Mixing:
    """What one stream's weights make of ``sent`` (n, d): a ``Mix``, and the whole of an equation at once."""

    def __init__(self, weights: Weights, sent: F64) -> None:
        self._weights, self._sent = weights, sent
        self.empty = weights.team.empty

    def __call__(self, step: float, into: F64, block: slice) -> None:
        into += self._weights.times(step) @ self._sent[:, block]

    def combine(self, keep: Any, vector: F64, step: float, less: float, other: F64 | None, out: F64) -> bool:
        """See ``algo.methods.base.combined``."""
        self._weights.combine(self._sent, keep, vector, step, less, other, out)
        return True


class Parts:
    """The equations of private parts (n, d), a few rows at a time: an ``Alone``, with ``combine`` as ``Mixing`` has."""

    def __init__(self, team: Team) -> None:
        self._team, self.empty = team, team.empty

    def __call__(self, step: float, into: F64, block: slice) -> None:
        """Nothing came in."""

    def combine(self, keep: Any, vector: F64, step: float, less: float, other: F64 | None, out: F64) -> bool:
        """``out`` = keep vector - less other."""

        def part(at: slice) -> None:
            np.multiply(vector[at], _rows(keep, at), out=out[at])
            if other is not None:
                out[at] -= less * other[at]

        self._team.by_parts(out, part)
        return True

    def tracked(self, keep: Any, y: F64, g: F64, g_next: F64) -> F64:
        """See ``Alone``."""
        out = self.empty(y.shape)

        def part(at: slice) -> None:
            np.multiply(y[at], _rows(keep, at), out=out[at])
            out[at] += g_next[at] - g[at]

        self._team.by_parts(out, part)
        return out

    def plus(self, one: F64, other: F64) -> F64:
        """See ``Alone``."""
        out = self.empty(one.shape)

        def part(at: slice) -> None:
            np.add(one[at], other[at], out=out[at])

        self._team.by_parts(out, part)
        return out


def _rows(keep: Any, at: slice) -> Any:
    """Those of a column; a number is everybody's."""
    return keep[at] if np.ndim(keep) else keep


def _sparse(edges: Edges) -> Any:
    from scipy.sparse import csr_array

    return csr_array((edges.weights, edges.senders, edges.starts), shape=(len(edges), len(edges)))
