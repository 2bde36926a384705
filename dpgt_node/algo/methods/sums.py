"""The weighted sum of what came in: float64 whatever crossed the wire, in ascending order of sender.

A large vector goes through numba where that is installed, with the bits of numpy: the same products and sums of the
same numbers in the same order.  It reads float32 as it lies there; numpy widens it into a copy first.  A whole equation
then is one pass: at tens of megabytes a vector, memory is what it costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from dpgt_node.algo.graph import Edge
from dpgt_node.privacy.laws.compiled import Loop, fixed
from dpgt_node.types import F64, Floats


def weigh(v: Floats, weight: float, first: bool, total: F64) -> None:
    """``total`` becomes, or grows by, ``weight v``; (n,) each.  For numba, but plain Python."""
    if first:
        for i in range(v.size):
            total[i] = np.float64(v[i]) * weight
    else:
        for i in range(v.size):
            total[i] += np.float64(v[i]) * weight


def finish(v: Floats, weight: float, first: bool, total: F64, step: float, into: F64) -> None:
    """The last ``weight v`` joins ``total``, and ``step`` times that goes into ``into``; (n,) each."""
    if first:
        for i in range(v.size):
            into[i] += np.float64(v[i]) * weight * step
    else:
        for i in range(v.size):
            into[i] += (total[i] + np.float64(v[i]) * weight) * step


def keep(v: F64, kept: float, less: float, other: F64, out: F64) -> None:
    """``out = kept v - less other``, without what there is none of (size 0)."""
    if other.size:
        for i in range(v.size):
            out[i] = v[i] * kept - less * other[i]
    else:
        for i in range(v.size):
            out[i] = v[i] * kept


def step_on(
    v: F64, kept: float, step: float, r: Floats, weight: float, total: F64, less: float, other: F64, out: F64
) -> None:
    """``out = kept v + step (total + weight r) - less other``, without what there is none of (size 0)."""
    if total.size and other.size:
        for i in range(v.size):
            out[i] = (v[i] * kept + (total[i] + np.float64(r[i]) * weight) * step) - less * other[i]
    elif total.size:
        for i in range(v.size):
            out[i] = v[i] * kept + (total[i] + np.float64(r[i]) * weight) * step
    elif other.size:
        for i in range(v.size):
            out[i] = (v[i] * kept + np.float64(r[i]) * weight * step) - less * other[i]
    else:
        for i in range(v.size):
            out[i] = v[i] * kept + np.float64(r[i]) * weight * step


def track(y: F64, kept: float, g: F64, g_next: F64, out: F64) -> None:
    """``out = kept y + (g_next - g)``."""
    for i in range(y.size):
        out[i] = y[i] * kept + (g_next[i] - g[i])


_WEIGH, _FINISH = Loop(weigh), Loop(finish)
_KEEP, _STEP_ON, _TRACK = Loop(keep), Loop(step_on), Loop(track)
_BLOCK = 1 << 14
"""Coordinates whose sum over several senders stays in the cache."""
_NONE: F64 = fixed(np.empty(0))


def _plain(kept: Any, out: F64, *vectors: F64) -> bool:
    """Whether all is of one agent: numbers, and whole vectors (d,) of float64."""
    return isinstance(kept, float) and all(
        v.shape == out.shape and v.ndim == 1 and v.dtype == out.dtype and v.flags.c_contiguous for v in (out, *vectors)
    )


def kept_part(kept: Any, vector: F64, step: float, less: float, other: F64 | None, out: F64) -> bool:
    """``out = kept vector - less other``, compiled, where nothing came in; False: nothing was done."""
    loop = _KEEP.of(out.size)
    if loop is None or not _plain(kept, out, vector, vector if other is None else other):
        return False
    loop(fixed(vector), kept, less, _NONE if other is None else fixed(other), out)
    return True


def tracked(kept: Any, y: F64, g: F64, g_next: F64, out: F64) -> bool:
    """``out = kept y + (g_next - g)``, compiled; False: nothing was done."""
    loop = _TRACK.of(out.size)
    if loop is None or not _plain(kept, out, y, g, g_next):
        return False
    loop(fixed(y), kept, fixed(g), fixed(g_next), out)
    return True


class Alone(Protocol):
    """The arithmetic of private parts, where somebody does it for all agents at once: a ``Mix`` to which nothing came.

    What is returned is new.
    """

    def __call__(self, step: float, into: F64, block: slice) -> None: ...

    def tracked(self, keep: Any, y: F64, g: F64, g_next: F64) -> F64:
        """``keep y + (g_next - g)``."""
        ...

    def plus(self, one: F64, other: F64) -> F64:
        """``one + other``."""
        ...


class Received:
    """The weighted sum of ``received``, vectors (d,) by sender, over ``edges``: a ``Mix``."""

    __slots__ = ("_edges", "_received")

    def __init__(self, edges: tuple[Edge, ...], received: Mapping[int, Floats]) -> None:
        self._edges, self._received = edges, received

    def __call__(self, step: float, into: F64, block: slice) -> None:
        add_mixed(self._edges, self._received, step, into, block)

    def combine(self, kept: Any, vector: F64, step: float, less: float, other: F64 | None, out: F64) -> bool:
        """See ``algo.methods.base.combined``; False: nothing was done."""
        edges, d = self._edges, out.size
        if not edges:
            return kept_part(kept, vector, step, less, other, out)
        weighs, steps = _WEIGH.of(d), _STEP_ON.of(d)
        if weighs is None or steps is None or not _plain(kept, out, vector, vector if other is None else other):
            return False
        v, o = fixed(vector), _NONE if other is None else fixed(other)
        came = [(fixed(self._received[j]), weight) for j, weight in edges]
        last, weight = came.pop()
        block = _BLOCK if came else d
        scratch = np.empty(min(block, d) if came else 0)
        for begin in range(0, d, block):
            at = slice(begin, min(begin + block, d))
            total = scratch[: at.stop - begin]
            for place, (one, share) in enumerate(came):
                weighs(one[at], share, place == 0, total)
            steps(v[at], kept, step, last[at], weight, fixed(total), less, o[at], out[at])
        return True


def add_mixed(edges: tuple[Edge, ...], received: Mapping[int, Floats], step: float, into: F64, block: slice) -> None:
    """``into += step * sum_j w_j v_j[block]`` in ascending order of sender: arrival order would give other bits.

    Every v_j counts as float64.  A block should stay in the cache.
    """
    if not edges:
        return
    d = received[edges[0][0]].size
    weighs, finishes = _WEIGH.of(d), _FINISH.of(d)
    if weighs is not None and finishes is not None and into.ndim == 1 and into.flags.c_contiguous:
        total = np.empty(into.size)
        for place, (j, weight) in enumerate(edges):
            one = fixed(received[j][block])
            if place < len(edges) - 1:
                weighs(one, weight, place == 0, total)
            else:
                finishes(one, weight, place == 0, total, step, into)
        return
    first, weight = edges[0]
    total = np.multiply(received[first][block], weight, dtype=np.float64)
    for j, weight in edges[1:]:
        total += np.multiply(received[j][block], weight, dtype=np.float64)
    total *= step
    into += total
