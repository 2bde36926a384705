"""States of Algorithm 1 by the names of their vectors, and its equations at one agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpgt_node.algo.graph import Edge, Topology
from dpgt_node.algo.methods import METHODS
from dpgt_node.algo.methods.base import AgentEdges, Mix, Network
from dpgt_node.algo.methods.dpgt import Paper, Steps, mixed_y, next_x, own_y
from dpgt_node.algo.methods.sums import add_mixed
from dpgt_node.algo.schedule import Schedule
from dpgt_node.protocol.types import State

BLOCK = 1 << 14


class Parts(NamedTuple):
    px: np.ndarray
    tx: np.ndarray
    p: np.ndarray
    t: np.ndarray
    g: np.ndarray

    @property
    def x(self) -> np.ndarray:
        return self.px + self.tx

    @property
    def y(self) -> np.ndarray:
        return self.p + self.t


def parts(state: State) -> Parts:
    return Parts(**state.vectors)


def tracking(k: int, px, tx, p, t, g, batch) -> State:  # type: ignore[no-untyped-def]
    return State(k, {"px": px, "tx": tx, "p": p, "t": t, "g": g}, batch)


def network(topology: Topology) -> Network:
    weights = {one.stream: one.weights(None, topology) for one in METHODS["dpgt"].sends}  # type: ignore[arg-type]
    return Network(topology.names, weights, Paper.point)


def edges(
    in_R: tuple[Edge, ...] = (),
    in_C: tuple[Edge, ...] = (),
    out_R: tuple[int, ...] = (),
    out_C: tuple[int, ...] = (),
    *,
    index: int = 0,
    name: str = "",
) -> AgentEdges:
    return AgentEdges(
        index, name or f"agent-{index + 1}", {"X": in_R, "Y": in_C}, {"X": out_R, "Y": out_C}, Paper.point
    )


@dataclass(frozen=True)
class Agent:
    """Steps and in-edges of one agent."""

    steps: Steps[float]
    in_R: tuple[Edge, ...]
    in_C: tuple[Edge, ...]

    @classmethod
    def build(cls, topology: Topology, schedule: Schedule, i: int) -> Agent:
        incoming = network(topology).incoming(i)
        return cls(Steps.of(topology, schedule, lambda values: float(values[i])), incoming["X"], incoming["Y"])


def step_x(agent: Agent, px, tx, p, t, received):  # type: ignore[no-untyped-def]
    """(alg,1) of both parts."""
    s = agent.steps
    return next_x(s, px, p, None, BLOCK), next_x(s, tx, t, _mix(agent.in_R, received), BLOCK)


def step_y(agent: Agent, p, t, received, g, g_next):  # type: ignore[no-untyped-def]
    """(alg,2) of both parts."""
    s = agent.steps
    return own_y(s, p, g, g_next, BLOCK), mixed_y(s, t, _mix(agent.in_C, received), BLOCK)


def _mix(incoming: tuple[Edge, ...], received: Mapping[int, np.ndarray]) -> Mix:
    def mix(step: float, into: np.ndarray, block: slice) -> None:
        add_mixed(incoming, received, step, into, block)

    return mix
