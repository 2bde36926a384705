"""Weighted SGD: every agent sends its perturbed gradient to every other, and all make the same step.

    g~_k   = g_k + noise, g_k at x_k                                       (wsgd,1)  sent
    x_{k+1} = x_k - gamma sum_j p_j g~_{j,k}                               (wsgd,2)

p_j are public shares, of which the mean gradient is made; D_j/sum D where they are the agents' shares of the samples.
x_0 is one and the same, so x_k is.  No server is needed.  A round that releases nothing sends zeros and leaves x.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from dpgt_node.algo.edges import Edges
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.base import Demand, Method, Mixing, Pick, Rule, Seen, Setting, Site, Vectors, added, blocks
from dpgt_node.algo.methods.derived import uncoupled
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.declare.keys import Key
from dpgt_node.config.declare.kinds import Number
from dpgt_node.config.methods import method_options
from dpgt_node.config.model import RunConfig
from dpgt_node.config.own_kinds import PerAgent
from dpgt_node.privacy.mechanisms import NOISE_ONCE
from dpgt_node.types import F64
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """``shares``: to which the p_j are proportional."""

    shares: Annotated[
        tuple[float, ...] | None,
        Key(
            "p_j, up to a common factor: public, so not to be taken from a private number of samples",
            PerAgent(Number(above=0.0)),
            absent="one and the same for all agents",
        ),
    ] = None


class WeightedSgd(Rule):
    """``x`` is x_k, the same at every agent.  Until the release of round k the raw g_k waits in ``g`` for its noise."""

    state = ("x",)
    pending = True

    def __init__(self, schedule: Schedule) -> None:
        self._release, self._factor, self.gamma = schedule.release, schedule.factor, schedule.gamma

    @classmethod
    def build(cls, run: RunConfig, topology: Topology, schedule: Schedule, pick: Pick[Any]) -> WeightedSgd:
        return cls(schedule)

    def begin(self, site: Site, x0: F64) -> Vectors:
        """x_0 and the raw g_0."""
        return {"x": x0, "g": site.gradient(0, x0)}

    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        """(wsgd,1)."""
        nothing = np.zeros(v["x"].shape)
        if self._release(k) is None:
            site.send("X", k, nothing)
            return v
        seen = Seen("X", nothing, self._factor(k))
        site.send("X", k, added(nothing, seen.factor, site.perturbed(k, v["g"], seen), site.block))
        return {"x": v["x"]}

    def complete(self, site: Site, k: int, v: Vectors) -> Vectors:
        """x_k alone: g~_k was sent."""
        return {"x": v["x"]}

    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        """(wsgd,2), and the raw gradient there."""
        x = self.final(site, k, v)
        return {"x": x} if self._release(k + 1) is None else {"x": x, "g": site.gradient(k + 1, x)}

    def final(self, site: Site, k: int, v: Vectors) -> F64:
        """(wsgd,2)."""
        mix, x = site.mixing("X", k), v["x"].copy()
        for at in blocks(x, site.block):
            mix(-self.gamma, x[..., at], at)
        return x


def shares(run: RunConfig, topology: Topology) -> Edges:
    """[i][j] = p_j, (n, n): every agent mixes everybody's."""
    given = method_options(run, Options).shares or (1.0,)
    p = np.array(given if len(given) == topology.n else given[:1] * topology.n)
    return Edges.of(np.tile(p / p.sum(), (topology.n, 1)))


def _left_out(setting: Setting) -> tuple[str, ...]:
    """Agents without a share, where some have one."""
    given = method_options(setting.run, Options).shares
    names = setting.topology.names
    return () if given is None or len(given) in (1, len(names)) else names[len(given) :] or names


WEIGHTED_SGD = Method(
    name="weighted-sgd",
    title="everybody's perturbed gradient, weighted, at one common point",
    status="ours",
    source="Kang et al. 2021, from the abstract; shares and the lack of a server are ours",
    rules={NOISE_ONCE.name: WeightedSgd},
    sends=(Mixing("X", "the complete graph, each agent by its share", shares),),
    demands=(Demand("shares are one number, or one for each agent", "method.shares", _left_out),),
    couplings=uncoupled,
    theorems=False,
    options=Options,
)
