"""GT-SAGA and GT-SVRG: gradient tracking with variance reduction over one undirected graph, without noise.

    x_{k+1} = W x_k - gamma y_k                                                                       (gtvr,1)
    y_{k+1} = W y_k + v_{k+1} - v_k,     y_0 = v_0 = the full local gradient at x_0                   (gtvr,2)

v_k estimates the full gradient at x_k from a fresh batch B of round k, and its variance goes to 0 as x settles:

    SAGA    v = mean over B of (g_j(x) - table_j) + mean of the table; then table_j <- g_j(x) for j in B
    SVRG    v = g_B(x) - g_B(tau) + g(tau); where T divides k: tau <- x_k and v = g(tau), all samples, no batch

W holds the Metropolis weights of the undirected closure of G_R.  The published methods take one sample a round
(``samples = 1``) and have no step sizes but gamma, called alpha there.  Nothing is private: every epsilon is infinite.

The table and the snapshot tau are parts of the state.  They are in its checkpoints, so a restart goes on from them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.base import Demand, Method, Pick, Rule, Setting, Site, Vectors, blocks, mixed
from dpgt_node.algo.methods.derived import CLOSURE, CONNECTED
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.declare.keys import Key
from dpgt_node.config.declare.kinds import Integer
from dpgt_node.config.methods import method_options
from dpgt_node.config.model import RunConfig
from dpgt_node.config.vocabulary import STOCHASTIC_TOYS
from dpgt_node.privacy.mechanisms import PAPER
from dpgt_node.types import F64
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class SvrgOptions:
    """``snapshot_every``: T."""

    snapshot_every: Annotated[int, Key("T: a full gradient is taken in every T-th round, from 0 on", Integer(1))] = 100


class VarianceReduced(Rule):
    """``x``, ``y``, ``v`` are x_k, y_k, v_k; the other vectors are what v_{k+1} is made from."""

    raw_gradient: ClassVar[str | None] = "v"

    def __init__(self, schedule: Schedule) -> None:
        self._gamma_at = schedule.gamma_at

    @classmethod
    def build(cls, run: RunConfig, topology: Topology, schedule: Schedule, pick: Pick[Any]) -> VarianceReduced:
        return cls(schedule)

    @staticmethod
    def tracker(v: Vectors) -> F64 | None:
        return v["y"]

    @abstractmethod
    def begin(self, site: Site, x0: F64) -> Vectors: ...

    @abstractmethod
    def estimate(self, site: Site, k: int, x: F64, v: Vectors) -> Vectors:
        """v_k at ``x``, the new x_k, as ``v``, and what later ones are made from; ``v``: the state before."""

    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        """x and y with noise of scale 0: as they are, and the ledger says what that costs."""
        nothing = np.zeros(v["x"].shape)
        site.noised("X", k, v["x"], nothing)
        site.noised("Y", k, v["y"], nothing)
        return v

    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        """(gtvr,1), v_{k+1} there, (gtvr,2)."""
        x = self.final(site, k, v)
        made, y = self.estimate(site, k + 1, x, v), mixed(site, "Y", k, v["y"])
        for at in blocks(y, site.block):
            y[..., at] += made["v"][..., at] - v["v"][..., at]
        return {"x": x, "y": y, **made}

    def final(self, site: Site, k: int, v: Vectors) -> F64:
        """(gtvr,1)."""
        x, gamma = mixed(site, "X", k, v["x"]), self._gamma_at(k)
        for at in blocks(x, site.block):
            x[..., at] -= gamma * v["y"][..., at]
        return x


class Saga(VarianceReduced):
    """``table`` holds the last gradient of every sample, ``mean`` its mean."""

    state = ("x", "y", "v", "mean", "table")
    keeps_table = True

    def begin(self, site: Site, x0: F64) -> Vectors:
        g = site.whole(0, x0)
        return {"x": x0, "y": g, "v": g, "mean": g, "table": site.table(x0)}

    def estimate(self, site: Site, k: int, x: F64, v: Vectors) -> Vectors:
        """SAGA."""
        change, table, drift = site.exchanged(k, x, v["table"])
        return {"v": change + v["mean"], "mean": v["mean"] + drift, "table": table}


class Svrg(VarianceReduced):
    """``tau`` is the point of the last snapshot, ``full`` the full gradient there."""

    state = ("x", "y", "v", "tau", "full")

    def __init__(self, schedule: Schedule, every: int) -> None:
        super().__init__(schedule)
        self._every = every

    @classmethod
    def build(cls, run: RunConfig, topology: Topology, schedule: Schedule, pick: Pick[Any]) -> Svrg:
        return cls(schedule, method_options(run, SvrgOptions).snapshot_every)

    def begin(self, site: Site, x0: F64) -> Vectors:
        g = site.whole(0, x0)
        return {"x": x0, "y": g, "v": g, "tau": x0, "full": g}

    def estimate(self, site: Site, k: int, x: F64, v: Vectors) -> Vectors:
        """SVRG."""
        if k % self._every == 0:
            g = site.whole(k, x)
            return {"v": g, "tau": x, "full": g}
        g = site.gradient(k, x)
        return {"v": g - site.again(k, v["tau"]) + v["full"], "tau": v["tau"], "full": v["full"]}


def _endless(setting: Setting) -> tuple[str, ...]:
    return setting.topology.names if setting.run.data.dataset in STOCHASTIC_TOYS else ()


GT_SAGA = Method(
    name="gt-saga",
    title="gradient tracking with SAGA: a table of the last gradient of every sample, without noise",
    status="known",
    source="Xin, Khan, Kar 2020, with combine-then-adapt steps; the weights W are ours",
    rules={PAPER.name: Saga},
    sends=(CLOSURE, replace(CLOSURE, stream="Y")),
    noisy=False,
    demands=(CONNECTED, Demand("the objective is a finite sum", "data.dataset", _endless)),
    theorems=False,
)
GT_SVRG = replace(
    GT_SAGA,
    name="gt-svrg",
    title="gradient tracking with SVRG: a full gradient now and then, without noise",
    rules={PAPER.name: Svrg},
    options=SvrgOptions,
)
