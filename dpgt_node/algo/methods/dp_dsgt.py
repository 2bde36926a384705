"""DP-DSGT: gradient tracking on one undirected graph, adapt then combine, with noise on each gradient once.

    y_k     = t_k + g~_k, g_k at x_k, t_0 = 0
    x_{k+1} = sum_j w_ij (x_{j,k} - gamma y_{j,k})                         (gt,1)  x - gamma y is sent
    t_{k+1} = sum_j w_ij y_{j,k} - g~_k                                    (gt,2)  y is sent

so that y_0 = g~_0 and y_{k+1} = sum_j w_ij y_{j,k} + g~_{k+1} - g~_k.  W holds the Metropolis weights of the undirected
closure of G_R; an agent mixes what it sent among the others.  x and y are functions of the perturbed gradients and of
what came in, so a run costs what its g~ cost.  In a round that releases nothing g~_k = g~_{k-1}: y is only mixed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.base import Pick, Rule, Seen, Site, Vectors, added, mixed
from dpgt_node.algo.methods.derived import CLOSURE
from dpgt_node.algo.methods.dsgd.atc_dsgd import ATC_DSGD
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import RunConfig
from dpgt_node.privacy.mechanisms import NOISE_ONCE
from dpgt_node.types import F64


class DpDsgt(Rule):
    """``x``, ``y`` and ``g`` = g~_k.  Until the release of round k ``y`` is t_k, and the raw g_k waits in ``raw``."""

    state = ("x", "y", "g")
    pending = True
    keeps_drawn = True

    def __init__(self, schedule: Schedule) -> None:
        self._release, self._factor, self._gamma_at = schedule.release, schedule.factor, schedule.gamma_at

    @classmethod
    def build(cls, run: RunConfig, topology: Topology, schedule: Schedule, pick: Pick[Any]) -> DpDsgt:
        return cls(schedule)

    @staticmethod
    def tracker(v: Vectors) -> F64 | None:
        return v["y"]

    def begin(self, site: Site, x0: F64) -> Vectors:
        """x_0 and the raw g_0."""
        nothing = np.zeros(x0.shape)
        return {"x": x0, "y": nothing, "g": nothing, "raw": site.gradient(0, x0)}

    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        """y_k, and what is sent of it."""
        if self._release(k) is not None:
            v = self._with(k, v, site.perturbed(k, v["raw"], Seen("Y", v["y"], self._factor(k))), site.block)
        site.send("X", k, added(v["x"], -self._gamma_at(k), v["y"], site.block))
        site.send("Y", k, v["y"])
        return v

    def complete(self, site: Site, k: int, v: Vectors) -> Vectors:
        return v if self._release(k) is None else self._with(k, v, site.drawn(k), site.block)

    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        """(gt,1), (gt,2), and the raw gradient there."""
        x, y = self.final(site, k, v), mixed(site, "Y", k, v["y"])
        if self._release(k + 1) is None:
            return {"x": x, "y": y, "g": v["g"]}
        y -= v["g"]
        return {"x": x, "y": y, "g": v["g"], "raw": site.gradient(k + 1, x)}

    def final(self, site: Site, k: int, v: Vectors) -> F64:
        """(gt,1)."""
        return mixed(site, "X", k, v["x"])

    def _with(self, k: int, v: Vectors, noisy: F64, block: int) -> Vectors:
        """``v`` once g~_k is drawn."""
        factor = self._factor(k)
        g = noisy if factor == 1.0 else factor * noisy
        return {"x": v["x"], "y": added(v["y"], 1.0, g, block), "g": g}


DP_DSGT = replace(
    ATC_DSGD,
    name="dp-dsgt",
    title="gradient tracking on an undirected graph, each gradient perturbed once",
    source="Bayrooti, Gao and Prorok 2023, arXiv 2306.13892, from their code; agents step at the same time here",
    rules={NOISE_ONCE.name: DpDsgt},
    sends=(CLOSURE, replace(CLOSURE, stream="Y")),
)
