"""Noisy gradient tracking: x and the running sum s of the gradients travel with noise, over two directed graphs.

    s_{k+1} = (1 - beta_k c_i) s_k + beta_k sum_j C[i][j] s̆_{j,k} + gamma_k g_k,       s_0 = 0          (nt,1)
    x_{k+1} = (1 - alpha_k r_i) x_k + alpha_k sum_j R[i][j] x̆_{j,k} - (s_{k+1} - s_k)                    (nt,2)

s travels as stream Y.  Without noise and at constant steps this is Algorithm 1, and its y_k is
(s_{k+1} - s_k)/gamma.  With noise, what is added to s enters that y as a difference: it cancels instead of adding up.
The mechanism says where g_k is taken:

    sum-noise       at the private x_k
    released-sum    at the agent's own x̆_k, which is drawn first

Both states are kept as private part + transcript part, as in Algorithm 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.base import Demand, Method, Pick, Rule, Setting, Site, Vectors, relaxed
from dpgt_node.algo.methods.dpgt import DPGT
from dpgt_node.algo.methods.states.pace import TrackedOptions
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import RunConfig
from dpgt_node.privacy.mechanisms import RELEASED_SUM, SUM_NOISE
from dpgt_node.types import F64


class SumForm(Rule):
    """g_k at the private x_k."""

    state = ("px", "tx", "ps", "ts", "g")
    raw_gradient = "g"

    def __init__(self, r: Any, c: Any, schedule: Schedule) -> None:
        self._r, self._c, self._schedule = r, c, schedule

    @classmethod
    def build(cls, run: RunConfig, topology: Topology, schedule: Schedule, pick: Pick[Any]) -> SumForm:
        return cls(pick(topology.r), pick(topology.c), schedule)

    @staticmethod
    def point(v: Vectors) -> F64:
        return v["px"] + v["tx"]

    def begin(self, site: Site, x0: F64) -> Vectors:
        """x_0 is public and s_0 = 0: both are all transcript part."""
        nothing = np.zeros(x0.shape)
        return {"px": nothing, "tx": x0, "ps": nothing, "ts": nothing, "g": site.gradient(0, x0)}

    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        """Noise on both private parts; the transcript parts are added after it (post-processing)."""
        site.noised("X", k, v["px"], v["tx"])
        site.noised("Y", k, v["ps"], v["ts"])
        return v

    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        """(nt,1), (nt,2), and g at the new x."""
        moved = self._moved(site, k, v)
        return {**moved, "g": site.gradient(k + 1, moved["px"] + moved["tx"])}

    def final(self, site: Site, k: int, v: Vectors) -> F64:
        """(nt,1) and (nt,2) once more."""
        moved = self._moved(site, k, v)
        return moved["px"] + moved["tx"]

    def _moved(self, site: Site, k: int, v: Vectors) -> Vectors:
        s = self._schedule
        alpha, beta = s.alpha_at(k), s.beta_at(k)
        ps = (1.0 - beta * self._c) * v["ps"] + s.gamma_at(k) * v["g"]
        px = (1.0 - alpha * self._r) * v["px"] - (ps - v["ps"])
        ts = relaxed(beta * self._c, v["ts"], beta, site.mixing("Y", k), site.block)
        tx = relaxed(alpha * self._r, v["tx"], alpha, site.mixing("X", k), site.block)
        tx -= ts - v["ts"]
        return {"px": px, "tx": tx, "ps": ps, "ts": ts}


class ReleasedSumForm(SumForm):
    """g_k at the agent's own x̆_k as it is released.  Until the release of round k ``g`` lacks it."""

    pending = True

    def begin(self, site: Site, x0: F64) -> Vectors:
        """g_0 comes when x̆_0 is known."""
        nothing = np.zeros(x0.shape)
        return {"px": nothing, "tx": x0, "ps": nothing, "ts": nothing, "g": nothing}

    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        """Draw both, then take g_k at x̆_k."""
        return self.complete(site, k, super().release(site, k, v))

    def complete(self, site: Site, k: int, v: Vectors) -> Vectors:
        """g_k at x̆_k."""
        return {**v, "g": site.gradient(k, site.own("X", k))}

    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        """(nt,1) and (nt,2)."""
        moved = self._moved(site, k, v)
        return {**moved, "g": moved["px"]}


def _rootless(setting: Setting) -> tuple[str, ...]:
    topology = setting.topology
    return () if topology.common_roots else topology.names


def _steep(setting: Setting) -> tuple[str, ...]:
    t, s = setting.topology, setting.schedule
    return tuple(name for name, r, c in zip(t.names, t.r, t.c, strict=True) if not max(s.alpha * r, s.beta * c) < 1.0)


NOISY_GT = Method(
    name="noisy-gt",
    title="gradient tracking that sends x and the running sum of the gradients, both with noise",
    status="ours",
    source="Wang and Basar 2023, from the abstract: decaying coupling, noise that does not add up; the rule is ours",
    rules={SUM_NOISE.name: SumForm, RELEASED_SUM.name: ReleasedSumForm},
    sends=(DPGT.sends[0], replace(DPGT.sends[1], unbounded="y is a sum over all rounds here and has no bound")),
    demands=(
        Demand("R and the transpose of C have a common root", "graph", _rootless),
        Demand("alpha r_i < 1 and beta c_i < 1", "scheme", _steep),
    ),
    options=TrackedOptions,
    theorems=False,
)
