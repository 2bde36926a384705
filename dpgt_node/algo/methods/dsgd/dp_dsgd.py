"""DP-DSGD: ATC-DSGD with momentum.

    h_k    = mu h_{k-1} + g~_k, h_{-1} = 0
    v_k    = x_k - gamma h_k                                               (mom,1)  sent
    x_{k+1} = sum_j w_ij v_{j,k}, the agent's own v_k among them           (mom,2)

A round that releases nothing leaves h as it is and sends x_k.  h follows from the perturbed gradients, so a run costs
what its g~ cost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.base import Pick, Site, Vectors
from dpgt_node.algo.methods.dsgd.atc_dsgd import ATC_DSGD, AtcDsgd
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.declare.keys import Key
from dpgt_node.config.declare.kinds import Number
from dpgt_node.config.methods import method_options
from dpgt_node.config.model import RunConfig
from dpgt_node.privacy.mechanisms import NOISE_ONCE
from dpgt_node.types import F64
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """``momentum``: mu."""

    momentum: Annotated[float, Key("mu of h+ = mu h + g~", Number(at_least=0.0, below=1.0))] = 0.9


class DpDsgd(AtcDsgd):
    """``x`` and ``h``, which holds g~_k once round k is released."""

    state = ("x", "h")
    keeps_drawn = True

    def __init__(self, schedule: Schedule, momentum: float) -> None:
        super().__init__(schedule)
        self._momentum = momentum

    @classmethod
    def build(cls, run: RunConfig, topology: Topology, schedule: Schedule, pick: Pick[Any]) -> DpDsgd:
        return cls(schedule, method_options(run, Options).momentum)

    def begin(self, site: Site, x0: F64) -> Vectors:
        """h_{-1} = 0."""
        return {**super().begin(site, x0), "h": np.zeros(x0.shape)}

    def start(self, v: Vectors) -> F64:
        """x_k - gamma mu h_{k-1}."""
        return v["x"] - (self.gamma * self._momentum) * v["h"]

    def stepped(self, k: int, v: Vectors, noisy: F64) -> Vectors:
        """h_k."""
        return {"x": v["x"], "h": self._momentum * v["h"] + self._factor(k) * noisy}


DP_DSGD = replace(
    ATC_DSGD,
    name="dp-dsgd",
    title="adapt-then-combine decentralised SGD with momentum, each gradient perturbed once",
    source="Bayrooti, Gao and Prorok 2023, arXiv 2306.13892, from their code; agents step at the same time here",
    rules={NOISE_ONCE.name: DpDsgd},
    options=Options,
)
