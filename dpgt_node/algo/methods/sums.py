"""The weighted sum of what came in: float64 whatever crossed the wire, in ascending order of sender.

A large vector goes through numba where that is installed, with the bits of numpy: the same products and sums of the
same numbers in the same order.  It reads float32 as it lies there; numpy widens it into a copy first.
"""

from __future__ import annotations

from collections.abc import Mapping

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


_WEIGH, _FINISH = Loop(weigh), Loop(finish)


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
