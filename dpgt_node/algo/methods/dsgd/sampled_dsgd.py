"""Sampled DSGD: one vector on one undirected graph, mixed with a small step.

    x_{k+1} = (1 - alpha_k s_i) x_k + alpha_k sum_{j != i} w_ij x̆_{j,k} - gamma_k g_k                 (sd,1)

w holds the Metropolis weights of the undirected closure of G_R, and s_i = sum_{j != i} w_ij.  Forms are mechanisms:

    noise-once        the gradient form: g~_k = g_k + noise takes the place of g_k, and x̆_k = x_k
    state-noise       the output form: x̆_k = x_k + noise, g_k at the private x_k
    released-state    the same with g_k at the agent's own x̆_k as it is released

The last two are in ``states.forms``.  Steps may decay and batches grow, by [method].  In the gradient form x is a
function of the perturbed gradients and of what came in, so a run costs what its g~ cost.  What round k
draws shows in what round k+1 sends.  A round that releases nothing takes no gradient: it only mixes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.base import Method, Pick, Rule, Seen, Site, Vectors, added, relaxed
from dpgt_node.algo.methods.derived import CONNECTED, LAZY, NEIGHBOURS, closure_couplings
from dpgt_node.algo.methods.states.forms import ReleasedForm, StateForm
from dpgt_node.algo.methods.states.pace import SampledOptions
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import RunConfig
from dpgt_node.privacy.mechanisms import NOISE_ONCE, RELEASED_STATE, STATE_NOISE
from dpgt_node.types import F64


class GradientForm(Rule):
    """``x`` is x_k and ``g`` is g~_k, once round k is released: until then g_k without noise, or 0 in a round that
    releases nothing.
    """

    state = ("x", "g")
    pending = True
    keeps_drawn = True

    def __init__(self, s: Any, schedule: Schedule) -> None:
        self._s, self._schedule = s, schedule
        self._release, self._factor = schedule.release, schedule.factor

    @classmethod
    def build(cls, run: RunConfig, topology: Topology, schedule: Schedule, pick: Pick[Any]) -> GradientForm:
        return cls(cls.coupling(topology, pick), schedule)

    @staticmethod
    def coupling(topology: Topology, pick: Pick[Any]) -> Any:
        """s_i."""
        return pick(closure_couplings(topology)[0])

    def begin(self, site: Site, x0: F64) -> Vectors:
        """x_0 and the raw g_0."""
        return {"x": x0, "g": site.gradient(0, x0)}

    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        """x_k is sent; g~_k shows in x_{k+1}."""
        site.send("X", k, self.told(k, v["x"]))
        if self._release(k) is None:
            return v
        return {"x": v["x"], "g": site.perturbed(k, v["g"], self.seen(site, k, v))}

    def told(self, k: int, x: F64) -> F64:
        """What the others get of x_k."""
        return x

    def seen(self, site: Site, k: int, v: Vectors) -> Seen:
        """x_{k+1} = what was mixed - gamma g~_k."""
        return Seen("X", lambda: self._mixed(site, k, v), self._step(k), later=True)

    def complete(self, site: Site, k: int, v: Vectors) -> Vectors:
        return v if self._release(k) is None else {"x": v["x"], "g": site.drawn(k)}

    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        """(sd,1), and the raw gradient there."""
        x = self.final(site, k, v)
        return {"x": x, "g": np.zeros(x.shape) if self._release(k + 1) is None else site.gradient(k + 1, x)}

    def final(self, site: Site, k: int, v: Vectors) -> F64:
        """(sd,1)."""
        return added(self._mixed(site, k, v), self._step(k), v["g"], site.block)

    def _step(self, k: int) -> float:
        return -self._schedule.gamma_at(k) * self._factor(k)

    def _mixed(self, site: Site, k: int, v: Vectors) -> F64:
        """(sd,1) without its gradient."""
        alpha = self._schedule.alpha_at(k)
        return relaxed(alpha * self._s, v["x"], alpha, site.mixing("X", k), site.block)


SAMPLED_DSGD = Method(
    name="sampled-dsgd",
    title="decentralised SGD that mixes with a small step",
    status="ours",
    source="Wang and Zhang 2024, from the abstract; weights and exponents are ours",
    rules={NOISE_ONCE.name: GradientForm, STATE_NOISE.name: StateForm, RELEASED_STATE.name: ReleasedForm},
    sends=(NEIGHBOURS,),
    demands=(CONNECTED, LAZY),
    couplings=closure_couplings,
    options=SampledOptions,
    theorems=False,
)
