"""Algorithm 1 of the paper: gradient tracking over two directed graphs, with noise on what is sent.

    x_{k+1} = (1 - a_i) x_k + alpha sum_{j in N-_R,i} R[i][j] x̆_{j,k} - gamma y_k               (alg,1)
    y_{k+1} = (1 - b_i) y_k + beta  sum_{j in N-_C,i} C[i][j] y̆_{j,k} + g_{k+1} - g_k           (alg,2)

with a_i = alpha r_i, b_i = beta c_i and y_0 = g_0.  The paper prints C_ji in the sum of (alg,2); its own compact form
(eq8) and the conservation of sum_i y_i need C[i][j], the weight of the edge the value came over.

Both states are kept as private part + transcript part (privacy.md, section 6): x = px + tx, y = p + t.  px and p start
at x_0's and g_0's private part and see only gradients; tx and t are functions of released values alone, so noise need
only cover the small parts and a neighbour that sends 1e16 cannot turn float64 rounding into a shift of them.

The four mechanisms (privacy.md, section 2) say where the gradient is taken, and what the noise goes on:

    paper             g_k at the private x_k; noise on x and on y
    published-point   g_k at the agent's own x̆_k, which is drawn first; noise on x and on y
    public-state      the own step uses the released y̆_k, so x is a function of the transcript and is sent as it is;
                      noise on y
    noise-once        g~_k = g_k + noise, once; x and y are functions of all g~ and are sent as they are
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, Generic

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.base import (
    Method,
    Mix,
    Mixing,
    Number,
    Pick,
    Rule,
    Seen,
    Site,
    Vectors,
    blocks,
    combined,
    empty,
    relaxed,
)
from dpgt_node.algo.methods.sums import Alone, kept_part, tracked
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import RunConfig
from dpgt_node.privacy import mechanisms
from dpgt_node.types import F64
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Steps(Generic[Number]):
    """Numbers of one agent, or columns (n, 1) of all: ``a`` = alpha r_i, ``b`` = beta c_i.

    Both are in [0, 1) in the theory (0: a root); not checked here.  ``settles``: the first round with gamma = 0.
    """

    alpha: float
    beta: float
    gamma: float
    a: Number
    b: Number
    settles: float = math.inf

    @classmethod
    def of(cls, topology: Topology, schedule: Schedule, pick: Pick[Number]) -> Steps[Number]:
        """The steps of a run."""
        alpha, beta = schedule.alpha, schedule.beta
        a, b = pick(alpha * topology.r), pick(beta * topology.c)
        return cls(alpha, beta, schedule.gamma, a, b, schedule.K - schedule.settle + 1)

    def gamma_at(self, k: int) -> float:
        """gamma of round ``k``."""
        return self.gamma if k < self.settles else 0.0


def next_x(s: Steps[Any], x: F64, y: F64, mix: Mix | None, block: int, k: int = 0) -> F64:
    """(alg,1) of round ``k``, a new array; inputs are left alone.

    ``mix`` None: of private parts, which meet no neighbour.  In a round that settles y is left out: gamma = 0.
    """
    return combined(1.0 - s.a, x, s.alpha, mix, block, s.gamma, y if k < s.settles else None)


def mixed_y(s: Steps[Any], y: F64, mix: Mix, block: int) -> F64:
    """(alg,2) up to the gradients, a new array: what it makes of a transcript part."""
    return relaxed(s.b, y, s.beta, mix, block)


def own_y(s: Steps[Any], y: F64, g: F64, g_next: F64 | None, block: int, alone: Alone | None = None) -> F64:
    """(alg,2) without neighbours, a new array: what it makes of a private part.  ``g_next`` None: it is added later."""
    keep = 1.0 - s.b
    if alone is not None:
        return combined(keep, y, 0.0, alone, block, 1.0, g) if g_next is None else alone.tracked(keep, y, g, g_next)
    out = empty(y, g)
    if kept_part(keep, y, 0.0, 1.0, g, out) if g_next is None else tracked(keep, y, g, g_next, out):
        return out
    for at in blocks(out, block):
        part = np.multiply(y[..., at], keep, out=out[..., at])
        if g_next is None:
            part -= g[..., at]
        else:
            part += g_next[..., at] - g[..., at]
    return out


class Tracking(Rule):
    """What the four mechanisms share: x = px + tx, y = p + t, and g."""

    state = ("px", "tx", "p", "t", "g")
    raw_gradient: ClassVar[str | None] = "g"

    def __init__(self, steps: Steps[Any]) -> None:
        self.steps = steps

    @classmethod
    def build(cls, run: RunConfig, topology: Topology, schedule: Schedule, pick: Pick[Any]) -> Tracking:
        return cls(Steps.of(topology, schedule, pick))

    @staticmethod
    def point(v: Vectors) -> F64:
        return v["px"] + v["tx"]

    @staticmethod
    def tracker(v: Vectors) -> F64 | None:
        return v["p"] + v["t"]

    @abstractmethod
    def release(self, site: Site, k: int, v: Vectors) -> Vectors: ...

    def _public_x(self, site: Site, k: int, x: F64, y: F64) -> F64:
        """(alg,1) of transcript parts, or of an x and y that are public as they are."""
        return next_x(self.steps, x, y, site.mixing("X", k), site.block, k)

    def _private_x(self, site: Site, v: Vectors) -> F64:
        """(alg,1) of private parts."""
        return next_x(self.steps, v["px"], v["p"], site.alone, site.block)

    def _public_y(self, site: Site, k: int, y: F64) -> F64:
        """(alg,2) of the transcript part."""
        return mixed_y(self.steps, y, site.mixing("Y", k), site.block)

    def _private_y(self, site: Site, v: Vectors, g_next: F64 | None) -> F64:
        """(alg,2) of the private part."""
        return own_y(self.steps, v["p"], v["g"], g_next, site.block, site.alone)


class Paper(Tracking):
    """Algorithm 1 as it is printed."""

    def begin(self, site: Site, x0: F64) -> Vectors:
        """y_0 = g_0; x_0 is public, so it is all transcript part, and y_0 is all private part."""
        g, nothing = site.gradient(0, x0), np.zeros(x0.shape)
        return {"px": nothing, "tx": x0, "p": g, "t": nothing, "g": g}

    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        """Noise on both private parts; the transcript parts are added after it (post-processing)."""
        site.noised("X", k, v["px"], v["tx"])
        site.noised("Y", k, v["p"], v["t"])
        return v

    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        """(alg,1), g at the new x, (alg,2)."""
        px, tx = self._private_x(site, v), self._public_x(site, k, v["tx"], v["t"])
        g = site.gradient(k + 1, _whole(site, px, tx))
        return {"px": px, "tx": tx, "p": self._private_y(site, v, g), "t": self._public_y(site, k, v["t"]), "g": g}

    def final(self, site: Site, k: int, v: Vectors) -> F64:
        """(alg,1) once more."""
        return _whole(site, self._private_x(site, v), self._public_x(site, k, v["tx"], v["t"]))


def _whole(site: Site, private: F64, public: F64) -> F64:
    """Their sum."""
    return private + public if site.alone is None else site.alone.plus(private, public)


class PublishedPoint(Paper):
    """The gradient sits at the released point, so that adjacent data sets see the same point (privacy.md, section
    2).  Between rounds p still lacks it.
    """

    pending = True

    def begin(self, site: Site, x0: F64) -> Vectors:
        """p starts at 0 and gets g_0 when x̆_0 is known."""
        nothing = np.zeros(x0.shape)
        return {"px": nothing, "tx": x0, "p": nothing, "t": nothing, "g": nothing}

    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        """Draw x̆_k, take g_k at it exactly as it is released (wire rounding included), then draw y̆_k."""
        site.noised("X", k, v["px"], v["tx"])
        whole = self.complete(site, k, v)
        site.noised("Y", k, whole["p"], whole["t"])
        return whole

    def complete(self, site: Site, k: int, v: Vectors) -> Vectors:
        """g_k at x̆_k."""
        g = site.gradient(k, site.own("X", k))
        return {**v, "p": v["p"] + g, "g": g}

    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        """(alg,1), and (alg,2) up to g_{k+1}."""
        px, tx = self._private_x(site, v), self._public_x(site, k, v["tx"], v["t"])
        return {"px": px, "tx": tx, "p": self._private_y(site, v, None), "t": self._public_y(site, k, v["t"]), "g": px}


class PublicState(Paper):
    """x_{k+1} = (1 - a) x_k + alpha sum_j R x_j - gamma y̆_{i,k}: a function of the transcript, sent without noise.

    Only y is private: all of x is its transcript part.
    """

    @staticmethod
    def point(v: Vectors) -> F64:
        return v["tx"]

    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        """x as it is; noise on the private part of y."""
        site.send("X", k, v["tx"])
        site.noised("Y", k, v["p"], v["t"])
        return v

    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        """The public step, g at the public x, (alg,2)."""
        tx = self.final(site, k, v)
        g = site.gradient(k + 1, tx)
        return {**v, "tx": tx, "p": self._private_y(site, v, g), "t": self._public_y(site, k, v["t"]), "g": g}

    def final(self, site: Site, k: int, v: Vectors) -> F64:
        """(alg,1) with the released y̆ in place of y."""
        return self._public_x(site, k, v["tx"], site.own("Y", k))


class NoiseOnce(Tracking):
    """y_0 = g~_0 and y gets g~_{k+1} - g~_k: everything sent is post-processing of the perturbed gradients.

    ``g`` holds g~_k.  Until the release of round k the raw g_k waits in ``p`` for its noise, and ``t`` lacks g~_k.
    Class sums count as g~_0 times a public factor.  In a round that releases nothing g~_k = g~_{k-1}: no gradient is
    taken, nothing is drawn, and y is only mixed.
    """

    raw_gradient: ClassVar[str | None] = None
    pending = True
    keeps_drawn = True

    def __init__(self, steps: Steps[Any], schedule: Schedule) -> None:
        super().__init__(steps)
        self._release, self._factor = schedule.release, schedule.factor

    @classmethod
    def build(cls, run: RunConfig, topology: Topology, schedule: Schedule, pick: Pick[Any]) -> NoiseOnce:
        return cls(Steps.of(topology, schedule, pick), schedule)

    @staticmethod
    def point(v: Vectors) -> F64:
        return v["tx"]

    def begin(self, site: Site, x0: F64) -> Vectors:
        nothing = np.zeros(x0.shape)
        return {"px": nothing, "tx": x0, "p": site.gradient(0, x0), "t": nothing, "g": nothing}

    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        """g~_k = g_k + noise; x and y follow.  A round that releases nothing sends them all the same."""
        draws, seen = self._release(k) is not None, Seen("Y", v["t"], self._factor(k))
        whole = self._with(k, v, site.perturbed(k, v["p"], seen)) if draws else v
        site.send("X", k, whole["tx"])
        site.send("Y", k, whole["t"])
        return whole

    def complete(self, site: Site, k: int, v: Vectors) -> Vectors:
        return v if self._release(k) is None else self._with(k, v, site.drawn(k))

    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        """(alg,1) and (alg,2) on public values, up to g~_{k+1}."""
        tx, t = self.final(site, k, v), self._public_y(site, k, v["t"])
        if self._release(k + 1) is None:
            return {**v, "tx": tx, "t": t}
        t -= v["g"]
        return {"px": v["px"], "tx": tx, "p": site.gradient(k + 1, tx), "t": t, "g": v["px"]}

    def final(self, site: Site, k: int, v: Vectors) -> F64:
        """(alg,1); y is public here."""
        return self._public_x(site, k, v["tx"], v["t"])

    def _with(self, k: int, v: Vectors, noisy: F64) -> Vectors:
        if (factor := self._factor(k)) != 1.0:
            noisy = factor * noisy
        return {**v, "p": v["px"], "t": v["t"] + noisy, "g": noisy}


DPGT = Method(
    name="dpgt",
    title="differentially private gradient tracking (Algorithm 1)",
    status="known",
    source="Chen, Wang, Zhang: the paper's Algorithm 1",
    rules={
        mechanisms.PAPER.name: Paper,
        mechanisms.PUBLISHED_POINT.name: PublishedPoint,
        mechanisms.PUBLIC_STATE.name: PublicState,
        mechanisms.NOISE_ONCE.name: NoiseOnce,
    },
    sends=(
        Mixing("X", "R", lambda run, topology: topology.in_R),
        Mixing("Y", "C", lambda run, topology: topology.in_C.reverse),
    ),
)
