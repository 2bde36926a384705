"""Algorithm 1, one agent, one round: the numbered equations as pure functions.

    x_{k+1} = (1 - a_i) x_k + alpha sum_{j in N-_R,i} R[i][j] x̆_{j,k} - gamma y_k               (alg,1)
    y_{k+1} = (1 - b_i) y_k + beta  sum_{j in N-_C,i} C[i][j] y̆_{j,k} + g_{k+1} - g_k           (alg,2)

with a_i = alpha r_i, b_i = beta c_i.  The paper prints C_ji in the sum of (alg,2); its own compact form (eq8) and the
conservation of sum_i y_i need C[i][j], the weight of the edge the value came over.

Both states are kept as private part + transcript part (privacy.md, section 6): x = px + tx, y = p + t.  px and p start
at x_0's and g_0's private part and see only gradients; tx and t are functions of released values alone, so noise need
only cover the small parts and a neighbour that sends 1e16 cannot turn float64 rounding into a shift of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from dpgt_node.algo.graph import Edge, Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.types import F64

_BLOCK = 1 << 14


@dataclass(frozen=True, slots=True)
class AgentParams:
    """Everything agent ``index`` (0-based) needs to iterate; neighbours sorted by index, self-loops included."""

    index: int
    name: str
    alpha: float
    beta: float
    gamma: float
    a: float
    b: float
    in_R: tuple[Edge, ...]
    in_C: tuple[Edge, ...]
    out_R: tuple[int, ...]
    out_C: tuple[int, ...]

    @classmethod
    def build(cls, topology: Topology, schedule: Schedule, i: int) -> AgentParams:
        """Agent i's part of a run.  a = alpha r_i, b = beta c_i: [0, 1) in the theory (0: a root); not checked here."""
        return cls(
            index=i,
            name=topology.names[i],
            alpha=schedule.alpha,
            beta=schedule.beta,
            gamma=schedule.gamma,
            a=float(schedule.alpha * topology.r[i]),
            b=float(schedule.beta * topology.c[i]),
            in_R=topology.in_R(i),
            in_C=topology.in_C(i),
            out_R=topology.out_R(i),
            out_C=topology.out_C(i),
        )


def step_x(params: AgentParams, px: F64, tx: F64, p: F64, t: F64, received: Mapping[int, F64]) -> tuple[F64, F64]:
    """(alg,1): the private and the transcript part of x_{k+1}.

    ``px + tx`` = x_k, ``p + t`` = y_k, float64 (d,).  ``received[j]``: x̆_{j,k} of every j in ``params.in_R``, the
    agent's own released value under its own index when it has a self-loop (other keys are ignored; a missing one is a
    bug: KeyError).  Returns new arrays; inputs are left alone.
    """
    return _minus(1.0 - params.a, px, params.gamma, p), mixed_x(params, tx, t, received)


def mixed_x(params: AgentParams, tx: F64, t: F64, received: Mapping[int, F64]) -> F64:
    """The transcript part of :func:`step_x` alone, a new array."""
    out = np.empty(tx.shape)
    for block in _blocks(len(tx)):
        part = np.multiply(tx[block], 1.0 - params.a, out=out[block])
        _mix(params.in_R, received, params.alpha, part, block)
        part -= params.gamma * t[block]
    return out


def step_y(
    params: AgentParams, p: F64, t: F64, received: Mapping[int, F64], g: F64, g_next: F64 | None
) -> tuple[F64, F64]:
    """(alg,2): the private and the transcript part of y_{k+1}.

    ``p + t`` = y_k, ``g`` = g_k, ``g_next`` = g_{k+1} (None: it is added later), float64 (d,).  ``received[j]``:
    y̆_{j,k} of every j in ``params.in_C``, as in :func:`step_x`.  Returns new arrays; inputs are left alone.
    """
    p_next = np.empty(p.shape)
    for block in _blocks(len(p)):
        part = np.multiply(p[block], 1.0 - params.b, out=p_next[block])
        if g_next is None:
            part -= g[block]
        else:
            part += g_next[block] - g[block]
    return p_next, mixed_y(params, t, received)


def mixed_y(params: AgentParams, t: F64, received: Mapping[int, F64]) -> F64:
    """The transcript part of :func:`step_y` alone, a new array."""
    out = np.empty(t.shape)
    for block in _blocks(len(t)):
        part = np.multiply(t[block], 1.0 - params.b, out=out[block])
        _mix(params.in_C, received, params.beta, part, block)
    return out


def _blocks(size: int) -> Iterator[slice]:
    """Parts of a vector that stay in the cache: whole temporary vectors would cost more than the arithmetic."""
    for start in range(0, size, _BLOCK):
        yield slice(start, start + _BLOCK)


def _minus(keep: float, v: F64, step: float, w: F64) -> F64:
    """keep v - step w, a new array."""
    out = np.empty(v.shape)
    for block in _blocks(len(v)):
        part = np.multiply(v[block], keep, out=out[block])
        part -= step * w[block]
    return out


def _mix(edges: tuple[Edge, ...], received: Mapping[int, F64], step: float, into: F64, block: slice) -> None:
    """``into += step * sum_j w_j v_j[block]`` in ascending order of sender: arrival order would give other bits."""
    if not edges:
        return
    first, weight = edges[0]
    total = weight * received[first][block]
    for j, weight in edges[1:]:
        total += weight * received[j][block]
    total *= step
    into += total
