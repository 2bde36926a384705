"""Quantised SGD with binomial noise: weighted SGD whose gradients are sent as integers with coins in them.

    code_k = Q(clip(g_k, +-B)) + Bin(trials, 1/2), g_k at x_k                                         (qb,1)  sent
    x_{k+1} = x_k - (gamma/n) sum_j of what code_{j,k} stands for                                     (qb,2)

Q rounds at random to ``levels`` levels of step q = 2B/(levels - 1), and a code stands for q (code - trials/2) - B
(:mod:`dpgt_node.privacy.counts.code`).  Coins of q sqrt(trials)/2 standard deviation match Laplace noise of scale sigma
at trials = 8 sigma^2/q^2.  Codes are drawn once, stored, and sent as integers of 8, 16 or 32 bits.  A round that
releases nothing sends the lowest code and leaves x.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from dpgt_node.algo.edges import Edges
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.base import Demand, Mixing, Pick, Setting, Site, Vectors
from dpgt_node.algo.methods.dsgd.weighted_sgd import WEIGHTED_SGD, WeightedSgd
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.declare.keys import Key
from dpgt_node.config.declare.kinds import Integer, Number
from dpgt_node.config.methods import method_options
from dpgt_node.config.model import RunConfig
from dpgt_node.privacy.counts.code import BinomialCode
from dpgt_node.privacy.laws.laplace import LAPLACE
from dpgt_node.privacy.mechanisms import CODED_COINS
from dpgt_node.types import F64, Codes
from dpgt_node.values import dataclass

_MOST = (1 << 31) - 1
"""Of a code."""


@dataclass(frozen=True, slots=True)
class Options:
    """``bound`` B, ``trials``, ``levels``."""

    bound: Annotated[
        float, Key("B: each coordinate of a gradient is clipped to +-B", Number(at_least=1e-100, at_most=1e100))
    ]
    trials: Annotated[int, Key("fair coins in every code", Integer(1, _MOST))]
    levels: Annotated[int, Key("values of a coordinate, from -B to B", Integer(2, 1 << 24))] = 129


class BinomialSgd(WeightedSgd):
    """The state is that of weighted SGD."""

    def __init__(self, schedule: Schedule, code: BinomialCode) -> None:
        super().__init__(schedule)
        self._code = code

    @classmethod
    def build(cls, run: RunConfig, topology: Topology, schedule: Schedule, pick: Pick[Any]) -> BinomialSgd:
        return cls(schedule, coins(run))

    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        """(qb,1)."""
        if self._release(k) is None:
            site.send("X", k, self._code.codes.values(np.zeros(v["x"].shape)))
            return v
        site.send("X", k, site.coined(k, v["g"], self._code))
        return {"x": v["x"]}

    def final(self, site: Site, k: int, v: Vectors) -> F64:
        """(qb,2)."""
        return v["x"].copy() if self._release(k) is None else super().final(site, k, v)


def coins(run: RunConfig) -> BinomialCode:
    """The code of the run's gradients; without noise it has no coins."""
    options = method_options(run, Options)
    return BinomialCode(options.bound, options.levels, options.trials if run.noise.multiplier else 0)


def _codes(run: RunConfig) -> Codes:
    return coins(run).codes


def _equal(run: RunConfig, topology: Topology) -> Edges:
    return Edges.of(np.full((topology.n, topology.n), 1.0 / topology.n))


def _too_large(setting: Setting) -> tuple[str, ...]:
    options = method_options(setting.run, Options)
    return () if options.levels - 1 + options.trials <= _MOST else setting.topology.names


def _scaled(setting: Setting) -> tuple[str, ...]:
    noise = setting.run.noise
    plain = noise.multiplier in (0.0, 1.0) and noise.by_release is None and not setting.schedule.class_sums
    return () if plain and setting.schedule.noise_decay == 1.0 else setting.topology.names


def _lawful(setting: Setting) -> tuple[str, ...]:
    return () if setting.run.noise.law == LAPLACE.name else setting.topology.names


QUANTISED_BINOMIAL_SGD = replace(
    WEIGHTED_SGD,
    name="quantised-binomial-sgd",
    title="everybody's gradient as an integer, with coins in it",
    status="ours",
    source="Yan et al. 2024, from the abstract, without its server; bound, levels and coins are ours",
    rules={CODED_COINS.name: BinomialSgd},
    sends=(Mixing("X", "the complete graph", _equal),),
    demands=(
        Demand("method.trials alone says how much noise there is, in every round", "noise", _scaled),
        Demand("coins are the noise and have no law: leave noise.law out", "noise.law", _lawful),
        Demand("levels - 1 + trials fits into 32 bits", "method.trials", _too_large),
    ),
    options=Options,
    codes=_codes,
    coins=coins,
)
