"""The two forms of sampled DSGD that put noise on x: one vector on one undirected graph, sent as x̆_k = x_k + noise.

    x_{k+1} = (1 - alpha_k s_i) x_k + alpha_k sum_{j != i} w_ij x̆_{j,k} - gamma_k g_k                   (sd,1)

w holds the Metropolis weights of the undirected closure of G_R, and s_i = sum_{j != i} w_ij.  The own x enters as it
is, without noise.  The mechanism says where g_k is taken:

    state-noise       at the private x_k
    released-state    at the agent's own x̆_k, which is drawn first

x is kept as private part + transcript part, x = px + tx, as in Algorithm 1: px sees gradients alone, tx what came in.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.base import Pick, Rounds, Rule, Site, Vectors, relaxed
from dpgt_node.algo.methods.derived import closure_couplings
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import RunConfig
from dpgt_node.types import F64


class StateForm(Rule):
    """g_k at the private x_k; noise on x."""

    state = ("px", "tx", "g")
    raw_gradient = "g"

    def __init__(self, s: Any, schedule: Schedule) -> None:
        self._s, self._schedule = s, schedule

    @classmethod
    def build(cls, run: RunConfig, topology: Topology, schedule: Schedule, pick: Pick[Any]) -> StateForm:
        return cls(pick(closure_couplings(topology)[0]), schedule)

    @staticmethod
    def point(v: Vectors) -> F64:
        return v["px"] + v["tx"]

    def begin(self, site: Site, x0: F64) -> Vectors:
        """x_0 is public, so it is all transcript part."""
        return {"px": np.zeros(x0.shape), "tx": x0, "g": site.gradient(0, x0)}

    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        """Noise on the private part; the transcript part is added after it (post-processing)."""
        site.noised("X", k, v["px"], v["tx"], self.rounded(k))
        return v

    def rounded(self, k: int) -> Rounds | None:
        """What of x_k + noise is sent; None: all of it."""
        return None

    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        """(sd,1), and g at the new x."""
        px, tx = self._private(k, v), self._public(site, k, v)
        return {"px": px, "tx": tx, "g": site.gradient(k + 1, px + tx)}

    def final(self, site: Site, k: int, v: Vectors) -> F64:
        """(sd,1) once more."""
        return self._private(k, v) + self._public(site, k, v)

    def _private(self, k: int, v: Vectors) -> F64:
        keep, gamma = 1.0 - self._schedule.alpha_at(k) * self._s, self._schedule.gamma_at(k)
        px: F64 = keep * v["px"] - gamma * v["g"]
        return px

    def _public(self, site: Site, k: int, v: Vectors) -> F64:
        alpha = self._schedule.alpha_at(k)
        return relaxed(alpha * self._s, v["tx"], alpha, site.mixing("X", k), site.block)


class ReleasedForm(StateForm):
    """g_k at the agent's own x̆_k as it is released, so that adjacent data sets see the same point.

    Until the release of round k ``g`` lacks it.
    """

    pending = True

    def begin(self, site: Site, x0: F64) -> Vectors:
        """g_0 comes when x̆_0 is known."""
        nothing = np.zeros(x0.shape)
        return {"px": nothing, "tx": x0, "g": nothing}

    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        """Draw x̆_k, then take g_k at it."""
        return self.complete(site, k, super().release(site, k, v))

    def complete(self, site: Site, k: int, v: Vectors) -> Vectors:
        """g_k at x̆_k."""
        return {**v, "g": site.gradient(k, site.own("X", k))}

    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        """(sd,1)."""
        px = self._private(k, v)
        return {"px": px, "tx": self._public(site, k, v), "g": px}
