"""Robust mixing: what one in-neighbour sends moves an agent by a bounded amount.

Agent i mixes sum_j w_ij v_j over its in-neighbours.  s is its own released vector of the stream; a self-loop w_ii s
always counts as it is.  With ||.|| of L2 and clip_t(z) = z min(1, t/||z||), the others' part becomes

    clipped-gossip   sum_j w_ij (s + clip_tau(v_j - s))                                                      (rob,1)
    self-clip        the same with tau_k = the (m - b)-th smallest of ||v_j - s||, m in-neighbours           (rob,2)
    trimmed-mean     W sum_{j in T} w_ij v_j / sum_{j in T} w_ij,  W = sum_j w_ij,  in every coordinate, T the
                     in-neighbours without the b smallest and the b largest values (equal ones by sender)    (rob,3)
    norm-clip        sum_j w_ij clip_tau(v_j)                                                                (rob,4)

(rob,1) is ClippedGossip, first called self-centred clipping (He, Karimireddy, Jaggi 2022), with a given radius; (rob,2)
takes the radius from b; (rob,3) is the trimmed mean of Yin et al. 2018 over in-neighbours, BRIDGE-T (Fang, Yang, Bajwa
2022) with weights.  What bounds them, whatever in-neighbour j sends:

    (rob,1), (rob,4)  it moves the sum by at most 2 w_ij tau in L2
    (rob,2)           the same with tau_k, at most the largest distance of an honest one while at most b are not honest
    (rob,3)           every coordinate of the mean lies between the least and the largest honest value, likewise

Centred clipping (Karimireddy, He, Jaggi 2021) takes the past aggregate for its centre.  s is that, less a step and with
the noise of its release, so (rob,1) comes close.  The aggregate itself is a function of all earlier rounds: one more
vector of the state, to be kept, replayed and audited like x.  There is no rule for it.

A vector within the radius counts as it came, to the last bit: a run in which nothing is clipped is the run without.

Privacy.  Every input is a released value, of others or of the agent itself; none is a private part.  So what is mixed
is a function of the transcript, as the plain sum is.  The recursion of the private parts does not change, and no
sensitivity, scale, charge or epsilon does.  A centre at the private x_i would break that.

Tracking.  sum_i y_i = sum_i g_i + beta sum_{t<k} 1'C eta_t rests on columns of C.  (rob,1) on y keeps it to the letter
where C is symmetric: clip_tau(v_j - v_i) + clip_tau(v_i - v_j) = 0, so what i gains by an edge, j loses.  An attacker
adds at most beta w_ij tau a round to the sum of the others, in every round: there is no bound for all K.  On other
C the pairs do not cancel, and it is refused.  (rob,4) takes any C; what it cuts off is missing for ever.  (rob,2) and
(rob,3) on y would cut honest values in every round, so there is no word for them.  Where x travels by push-sum, all of
them break its weights as well, and are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from dpgt_node.algo.checks import Check, compare, listed
from dpgt_node.algo.graph import Edge, Topology
from dpgt_node.algo.methods.base import Method, Mix
from dpgt_node.algo.methods.sums import Received, add_mixed
from dpgt_node.config.mixing.robust import Robust, Rule, TrackerRule
from dpgt_node.config.model import RunConfig
from dpgt_node.types import F64, Floats, Stream
from dpgt_node.values import dataclass

BLOCK = 1 << 14
"""Coordinates of one partial sum of a norm, wherever it is taken: another size would give other bits."""


@dataclass(frozen=True, slots=True)
class Guard:
    """How one stream is bounded.  ``radius``: L2, inf where the rule has its own.
    ``outliers``: b.
    """

    rule: Rule | TrackerRule
    radius: float = math.inf
    outliers: int = 0

    @property
    def by_norm(self) -> bool:
        """Whether it takes norms, of all coordinates together."""
        return self.rule != "trimmed-mean"


def guards_of(run: RunConfig) -> dict[Stream, Guard]:
    """By stream; a stream that counts as it came in has none."""
    robust, found = run.robust, dict[Stream, Guard]()
    if robust.rule != "none":
        found["X"] = Guard(robust.rule, math.inf if robust.radius is None else robust.radius, robust.outliers or 0)
    if robust.tracker_radius is not None:
        found["Y"] = Guard(robust.tracker, robust.tracker_radius)
    return found


def mix_of(
    guard: Guard | None,
    index: int,
    edges: tuple[Edge, ...],
    received: Mapping[int, Floats],
    own: Callable[[], F64],
    noted: Callable[[Mapping[int, float]], None] | None = None,
) -> Mix:
    """The weighted sum of what agent ``index`` received, by ``guard``; None: as it came in.

    ``received``: released vectors (d,) by sender, itself on a self-loop.  ``own``: its own of the same stream and
    round, which is asked for where the rule has a centre.  ``noted``: takes the distance of every other agent's vector
    to it, or to 0 where the rule has no centre.
    """
    others = () if guard is None else tuple(edge for edge in edges if edge[0] != index)
    if guard is None or not others:
        return Received(edges, received)
    wide = {j: v.astype(np.float64, copy=False) for j, v in received.items()}
    itself = tuple(edge for edge in edges if edge[0] == index)
    if guard.rule == "trimmed-mean" and noted is None:
        return _trimmed(guard.outliers, itself, others, wide)
    centre = None if guard.rule == "norm-clip" else own()
    far = {j: distance(wide[j], centre) for j, _ in others}
    if noted is not None:
        noted(far)
    if guard.rule == "trimmed-mean":
        return _trimmed(guard.outliers, itself, others, wide)
    shares = clips(guard, far)
    centred = {j: _Clipped(v, centre, shares.get(j, 1.0)) for j, v in wide.items()}

    def mix(step: float, into: F64, block: slice) -> None:
        add_mixed(edges, {j: v.at(block) for j, v in centred.items()}, step, into, slice(None))

    return mix


def clips(guard: Guard, far: Mapping[int, float]) -> dict[int, float]:
    """min(1, tau/distance) by in-neighbour; ``far``: its distance."""
    radius = guard.radius
    if guard.rule == "self-clip":
        radius = sorted(far.values())[len(far) - 1 - guard.outliers]
    return {j: 1.0 if length <= radius else radius / length for j, length in far.items()}


def distance(v: F64, centre: F64 | None) -> float:
    """||v - centre||_2 of vectors (d,); infinite where a difference is."""
    with np.errstate(over="ignore"):
        total = _squares(v, centre, 1.0)
        if math.isfinite(total) or math.isnan(total):
            return math.sqrt(total)
        largest = max(float(np.abs(_minus(v, centre, at)).max()) for at in _blocks(len(v)))
        return math.inf if math.isinf(largest) else largest * math.sqrt(_squares(v, centre, largest))


def _squares(v: F64, centre: F64 | None, unit: float) -> float:
    return math.fsum(float(np.add.reduce(np.square(_minus(v, centre, at) / unit))) for at in _blocks(len(v)))


def _minus(v: F64, centre: F64 | None, at: slice) -> F64:
    return v[at] if centre is None else v[at] - centre[at]


def _blocks(d: int) -> list[slice]:
    return [slice(start, start + BLOCK) for start in range(0, d, BLOCK)]


@dataclass(frozen=True, slots=True, eq=False)
class _Clipped:
    """centre + share (v - centre), block by block; v itself with ``share`` 1.  ``share`` 0: the distance is no number,
    and v is not looked at.
    """

    v: F64
    centre: F64 | None
    share: float

    def at(self, block: slice) -> F64:
        if self.share == 1.0:
            return self.v[block]
        if self.share == 0.0:
            return np.zeros(len(self.v[block])) if self.centre is None else self.centre[block]
        part: F64 = _minus(self.v, self.centre, block) * self.share
        return part if self.centre is None else part + self.centre[block]


def _trimmed(b: int, itself: tuple[Edge, ...], others: tuple[Edge, ...], received: Mapping[int, F64]) -> Mix:
    weights = np.array([[w] for _, w in others])
    whole = math.fsum(w for _, w in others)

    def mix(step: float, into: F64, block: slice) -> None:
        values = np.stack([received[j][block] for j, _ in others])
        kept = np.argsort(values, axis=0, kind="stable")[b : len(others) - b]
        used = np.broadcast_to(weights, values.shape)
        used, values = np.take_along_axis(used, kept, 0), np.take_along_axis(values, kept, 0)
        # Shares first: they add up to 1, so that no sum of large values overflows.
        total = np.add.reduce(used / np.add.reduce(used, axis=0) * values, axis=0)
        total *= step * whole
        into += total
        add_mixed(itself, received, step, into, block)

    return mix


def robust_rows(run: RunConfig, method: Method, topology: Topology) -> list[tuple[str, Check]]:
    """(key of the run file, row) of what [robust] asks of the run's method and graph."""
    robust, rows, keys = run.robust, list[tuple[str, Check]](), {"X": "robust.rule", "Y": "robust.tracker"}
    sends = {one.stream: one for one in method.sends}

    def row(key: str, what: str, against: list[str], said: str) -> None:
        judged = compare(what, float(len(against)), "=", 0.0, hard=True, note=listed(against))
        rows.append((key, replace(judged, said=said)))

    for stream in guards_of(run):
        name = stream.lower()
        why = sends[stream].unbounded if stream in sends else f"{method.name} sends no {name}"
        what = f"robust mixing of {name}"
        row(keys[stream], f"{what}: reasons against it", [why] if why else [], f"there is no {what} here: {why}")
    if robust.tracker == "clipped-gossip" and "Y" in sends:
        C = sends["Y"].weights(run, topology)
        uneven = [name for i, name in enumerate(topology.names) if C.row(i) != C.reverse.row(i)]
        said = (
            f'tracker = "clipped-gossip" needs a symmetric C, C_ij = C_ji: {listed(uneven)} send y by other weights '
            'than they receive it by. Make C of [graph] symmetric, or take tracker = "norm-clip", which serves any C'
        )
        row(keys["Y"], "clipped-gossip of y: agents that give by other weights than they get", uneven, said)
    if robust.outliers is not None:
        most = robust.outliers if robust.rule == "self-clip" else 2 * robust.outliers
        R = sends["X"].weights(run, topology)
        heard = np.diff(R.without_loops().starts).tolist()
        few = {name: m for name, m in zip(topology.names, heard, strict=True) if 0 < m <= most}
        what = f"{robust.rule}: agents that receive x from 1 to {most} others"
        row("robust.outliers", what, list(few), _too_few(robust, most, few) if few else "")
    return rows


def _too_few(robust: Robust, most: int, few: Mapping[str, int]) -> str:
    """What agents with ``few`` in-neighbours of x, ``most`` or less, lack, and the ways out."""
    fits = min(few.values()) - 1 if robust.rule == "self-clip" else (min(few.values()) - 1) // 2
    lower = f"set outliers = {fits}, " if fits else ""
    return (
        f'rule = "{robust.rule}" with outliers = {robust.outliers} needs at least {most + 1} in-neighbours of x at '
        f"every agent: {listed([f'{name} has {m}' for name, m in few.items()])}. Give these agents more in-neighbours "
        f'in R of [graph], {lower}or take rule = "clipped-gossip" with a radius, which serves any graph'
    )
