"""DYN-D2P: SGD by push-sum over a directed graph, with noise on each gradient once.

    v_k     = u_k - gamma g~_k, g_k at z_k = u_k / w_k                     (push,1)  sent
    u_{k+1} = sum_j P_ij v_{j,k}, the agent's own v_k among them           (push,2)
    w_{k+1} = P w_k, w_0 = 1                                               (push,3)

P = I - beta L2 has columns that sum to 1 and needs only C.  w is a function of the graph: every agent computes it, and
nothing more is sent.  z is what is trained.  A round that releases nothing sends v_k = u_k.

Clip and noise follow the run file's own decay: clip_k = clip rho_c^(-k/K) is privacy.decay = rho_c, and a budget that
grows as rho_mu^(k/K) is noise.decay = rho_c rho_mu.

Where C is not strongly connected some w_i go to 0, and z_i with them to nowhere: such graphs are refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dpgt_node.algo.edges import Edges
from dpgt_node.algo.graph import Topology, separated
from dpgt_node.algo.methods.base import Demand, Mixing, Pick, Setting, Site, Vectors
from dpgt_node.algo.methods.dsgd.atc_dsgd import ATC_DSGD, AtcDsgd
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import RunConfig
from dpgt_node.privacy.mechanisms import NOISE_ONCE
from dpgt_node.types import F64


class DynD2p(AtcDsgd):
    """``x`` is z_k and ``u`` is u_k."""

    state = ("x", "u")

    def __init__(self, schedule: Schedule, P: F64, pick: Pick[Any]) -> None:
        super().__init__(schedule)
        self._P, self._pick = P, pick
        self._w, self._of = np.ones(len(P)), 0

    @classmethod
    def build(cls, run: RunConfig, topology: Topology, schedule: Schedule, pick: Pick[Any]) -> DynD2p:
        return cls(schedule, push(run, topology), pick)

    def begin(self, site: Site, x0: F64) -> Vectors:
        """u_0 = z_0."""
        return {**super().begin(site, x0), "u": x0}

    def held(self, v: Vectors) -> F64:
        """u_k."""
        return v["u"]

    def start(self, v: Vectors) -> F64:
        """u_k."""
        return v["u"]

    def mixed(self, site: Site, k: int, v: Vectors) -> Vectors:
        """(push,2), and z there."""
        u = super().final(site, k, v)
        return {"x": u / self._weight(k + 1), "u": u}

    def final(self, site: Site, k: int, v: Vectors) -> F64:
        """z_{k+1}."""
        return self.mixed(site, k, v)["x"]

    def _weight(self, k: int) -> Any:
        """(push,3): w_{i,k}.  Rounds are asked for in order, but for a replay from a checkpoint."""
        if k < self._of:
            self._w, self._of = np.ones(len(self._P)), 0
        while self._of < k:
            self._w, self._of = self._P @ self._w, self._of + 1
        return self._pick(self._w)


def push(run: RunConfig, topology: Topology) -> F64:
    """P (n, n)."""
    return np.eye(topology.n) - Schedule.from_config(run).beta * topology.L2


def _pushed(run: RunConfig, topology: Topology) -> Edges:
    """P by its edges.  What is below 0 in a run that a demand refuses is left out."""
    return Edges.of(np.maximum(push(run, topology), 0.0))


def _apart(setting: Setting) -> tuple[str, ...]:
    return separated(setting.topology.names, setting.topology.C)


def _steep(setting: Setting) -> tuple[str, ...]:
    kept = np.diag(push(setting.run, setting.topology))
    return tuple(name for name, share in zip(setting.topology.names, kept, strict=True) if share <= 0.0)


DYN_D2P = replace(
    ATC_DSGD,
    name="dyn-d2p",
    title="SGD by push-sum over a directed graph, each gradient perturbed once",
    status="ours",
    source="arXiv 2505.06651, from the abstract; its schedules as in Dynamic DP-SGD, arXiv 2111.00173",
    rules={NOISE_ONCE.name: DynD2p},
    sends=(Mixing("X", "I - beta L2 of C", _pushed, "push-sum divides by weights that only a plain sum has"),),
    demands=(
        Demand("C is strongly connected", "graph.C", _apart),
        Demand("beta times an agent's weight to others is below 1", "scheme", _steep),
    ),
    couplings=lambda topology: (np.zeros(topology.n), topology.c),
)
