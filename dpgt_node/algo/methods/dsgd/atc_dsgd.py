"""ATC-DSGD: adapt then combine, one vector on one undirected graph, with noise on each gradient once.

    g~_k   = g_k + noise, g_k at x_k
    v_k    = x_k - gamma g~_k                                              (atc,1)  sent
    x_{k+1} = sum_j w_ij v_{j,k}, the agent's own v_k among them           (atc,2)

A round that releases nothing takes no gradient and sends v_k = x_k: it only mixes.

W holds the Metropolis weights of the undirected closure of G_R: w_ij = 1/(1 + max(deg_i, deg_j)), rows and columns sum
to 1.  x and v are functions of the perturbed gradients and of what came in, so a run costs what its g~ cost.
"""

from __future__ import annotations

from typing import Any, ClassVar

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.base import Method, Pick, Rule, Seen, Site, Vectors, added, mixed
from dpgt_node.algo.methods.derived import CLOSURE, CONNECTED, uncoupled
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import RunConfig
from dpgt_node.privacy.mechanisms import NOISE_ONCE
from dpgt_node.types import F64


class AtcDsgd(Rule):
    """``x`` is x_k.  Until the release of round k the raw g_k waits in ``g`` for its noise."""

    state: ClassVar[tuple[str, ...]] = ("x",)
    pending = True

    def __init__(self, schedule: Schedule) -> None:
        self._release, self._factor, self.gamma = schedule.release, schedule.factor, schedule.gamma

    @classmethod
    def build(cls, run: RunConfig, topology: Topology, schedule: Schedule, pick: Pick[Any]) -> AtcDsgd:
        return cls(schedule)

    def begin(self, site: Site, x0: F64) -> Vectors:
        """x_0 and the raw g_0."""
        return {"x": x0, "g": site.gradient(0, x0)}

    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        """(atc,1)."""
        if self._release(k) is None:
            site.send("X", k, self.held(v))
            return v
        start, step = self.start(v), -self.gamma * self._factor(k)
        noisy = site.perturbed(k, v["g"], Seen("X", start, step))
        site.send("X", k, added(start, step, noisy, site.block))
        return self.stepped(k, v, noisy)

    def held(self, v: Vectors) -> F64:
        """What is sent in a round that releases nothing."""
        return v["x"]

    def start(self, v: Vectors) -> F64:
        """v_k without g~_k."""
        return v["x"]

    def stepped(self, k: int, v: Vectors, noisy: F64) -> Vectors:
        """The complete state of a round that released ``noisy``: what follows from it was sent."""
        return {name: v[name] for name in self.state}

    def complete(self, site: Site, k: int, v: Vectors) -> Vectors:
        if self._release(k) is None:
            return v
        return self.stepped(k, v, site.drawn(k) if self.keeps_drawn else v["g"])

    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        """(atc,2), and the raw gradient there."""
        after = self.mixed(site, k, v)
        if self._release(k + 1) is None:
            return after
        return {**after, "g": site.gradient(k + 1, after["x"])}

    def mixed(self, site: Site, k: int, v: Vectors) -> Vectors:
        """(atc,2): a state without a gradient."""
        return {**v, "x": self.final(site, k, v)}

    def final(self, site: Site, k: int, v: Vectors) -> F64:
        """(atc,2)."""
        return mixed(site, "X", k, v["x"])


ATC_DSGD = Method(
    name="atc-dsgd",
    title="adapt-then-combine decentralised SGD, each gradient perturbed once",
    status="known",
    source="D-SGD of Koloskova et al. 2020, in the form of Wang et al. 2023; the weights W are ours",
    rules={NOISE_ONCE.name: AtcDsgd},
    sends=(CLOSURE,),
    demands=(CONNECTED,),
    couplings=uncoupled,
    theorems=False,
)
