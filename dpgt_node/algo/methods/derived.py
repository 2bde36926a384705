"""Weights that methods derive from the graphs of a run file, and what they then ask of these."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dpgt_node.algo.edges import Edges
from dpgt_node.algo.graph import Topology, metropolis_edges, separated
from dpgt_node.algo.methods.base import Demand, Mixing, Setting
from dpgt_node.config.model import RunConfig
from dpgt_node.types import F64


@lru_cache(maxsize=8)
def neighbours(topology: Topology) -> Edges:
    """Wo (n, n): the Metropolis weights of R's undirected closure without those that agents give themselves."""
    return metropolis_edges(topology).without_loops()


@lru_cache(maxsize=8)
def closure_couplings(topology: Topology) -> tuple[F64, F64]:
    """s_i = sum_{j != i} w_ij, (n,): a_i = alpha s_i where an agent mixes Wo.  Nothing is coupled by beta."""
    return metropolis_edges(topology).sums(loops=False), np.zeros(topology.n)


def uncoupled(topology: Topology) -> tuple[F64, F64]:
    """Neither alpha nor beta plays a part."""
    return np.zeros(topology.n), np.zeros(topology.n)


def _closure(run: RunConfig, topology: Topology) -> Edges:
    return metropolis_edges(topology)


def _neighbours(run: RunConfig, topology: Topology) -> Edges:
    return neighbours(topology)


def _nobody(run: RunConfig, topology: Topology) -> Edges:
    n = topology.n
    return Edges(np.arange(n + 1), np.arange(n), np.ones(n))


def _apart(setting: Setting) -> tuple[str, ...]:
    return separated(setting.topology.names, metropolis_edges(setting.topology))


def _steep(setting: Setting) -> tuple[str, ...]:
    a = setting.schedule.alpha * closure_couplings(setting.topology)[0]
    return tuple(name for name, one in zip(setting.topology.names, a, strict=True) if one >= 1.0)


CLOSURE = Mixing("X", "the Metropolis weights of R's undirected closure", _closure)
"""An agent mixes its own vector among the others."""
NEIGHBOURS = Mixing("X", "the Metropolis weights of R's undirected closure, an agent's own left out", _neighbours)
NOBODY = Mixing("X", "no graph: an agent's own vector alone", _nobody, "nobody mixes anything of others")
LAZY = Demand("a_i = alpha s_i < 1", "scheme", _steep)
"""s_i: the Metropolis weight that an agent gives to others."""
CONNECTED = Demand("the undirected closure of R is connected", "graph.R", _apart)
