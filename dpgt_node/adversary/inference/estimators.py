"""What released vectors say about one agent's private ones: the estimators A, X, B, D and E.

One agent, one coordinate, hold = 1 - b = 1 - beta c_i and rho = 1 - a = 1 - alpha r_i (self-loops counted).  Everything
an agent mixes was RELEASED, so w_k = beta sum_j C_ij y̆_jk and u_k = alpha sum_j R_ij x̆_jk are known to whoever sees its
in-edges, and so are the two recursions that hold nothing else:

    t_0 = 0,    t_{k+1}  = hold t_k + w_k;       tx_0 = x_0,  tx_{k+1} = rho tx_k + u_k - gamma t_k

They are the transcript parts of y and x.  What is left, p = y - t and px = x - tx, holds the gradients alone:

    p_k = g_k - (1 - hold) sum_{l<k} hold^{k-1-l} g_l = (M g)_k;   px_{k+1} = rho px_k - gamma p_k = -gamma (N g)_{k+1}

    A  difference   y̆_{k+1} - hold y̆_k - w_k             = g_{k+1} - g_k + eta_{k+1} - hold eta_k
    X  from x alone [rho x̆_k + u_k - x̆_{k+1}]/gamma      = y_k + (rho zeta_k - zeta_{k+1})/gamma
    B  absolute     y̆_k + sum_{t<k} (b y̆_t - w_t)        = g_k + eta_k + b sum_{t<k} eta_t
    D  innovation   y̆_k - t_k                            = (M g)_k + eta_k
    E  from x       x̆_k - tx_k                           = -gamma (N g)_k + zeta_k

This is for ``paper`` and ``published-point``.  Under ``public-state`` x moves by y̆ and is sent as it is, so X is y̆_k
itself and E is -gamma N applied to D, noise included.  Under ``noise-once`` x and y are sent as they are and hold
g~_k = g_k + eta_k instead of g_k: A, B, D, E have g~ for g and no further noise, X is y_k exactly.

B is M^-1 applied to D.  All arrays here are float64 (rounds, d), NaN where what is needed was not seen: a hole in an
in-edge ends D, B and E at that coordinate for good, while A and X miss that round only.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from dpgt_node.adversary.attack import NotApplicable
from dpgt_node.adversary.inference.knowledge import start
from dpgt_node.adversary.inference.observation import Facts, Observation
from dpgt_node.algo.methods import rule_of
from dpgt_node.algo.methods.dpgt import Steps, Tracking
from dpgt_node.algo.methods.robust import guards_of, mix_of
from dpgt_node.privacy.laws.law import Law
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.privacy.mechanisms import MECHANISMS, Mechanism
from dpgt_node.types import F64, Stream
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """What was seen of one agent, and the public facts about it.

    ``x``, ``y``: released, (rounds, d).  ``u``, ``w``: what it mixed in, NaN where an in-edge was not seen.  ``x0``:
    (d,), NaN where it is not known.  ``var_x``, ``var_y``: variance of one coordinate's noise in every round,
    (rounds,); under noise-once ``var_y`` is that of g~, under both exact mechanisms ``var_x`` is 0.  ``rounding``:
    relative error of one value on the wire.  ``factor``: times what round 0 released, once it was noised.  ``taken``:
    rounds that took a gradient, (rounds,); None: all.
    """

    name: str
    mechanism: Mechanism
    law: Law
    params: Steps[float]
    x: F64 = field(repr=False)
    y: F64 = field(repr=False)
    u: F64 = field(repr=False)
    w: F64 = field(repr=False)
    x0: F64 = field(repr=False)
    scale_x: F64
    scale_y: F64
    var_x: F64
    var_y: F64
    rounding: float = 2.0**-53
    factor: float = 1.0
    taken: npt.NDArray[np.bool_] | None = None

    @property
    def rounds(self) -> int:
        """Number of rounds looked at: 0..rounds-1."""
        return len(self.y)

    @property
    def rho(self) -> float:
        """1 - alpha r_i."""
        return 1.0 - self.params.a

    @property
    def hold(self) -> float:
        """1 - beta c_i."""
        return 1.0 - self.params.b


def view(observation: Observation, i: int, through: int | None = None) -> View:
    """Agent ``i`` in rounds 0..``through`` (None: the last round of which anything was seen).

    NotApplicable: another method than Algorithm 1.
    """
    facts = observation.facts
    if not issubclass(rule_of(facts.run), Tracking):
        message = f"the estimators are of Algorithm 1, not of {facts.run.algorithm.method!r}"
        raise NotApplicable.one("run file", "algorithm.method", message)
    if through is None:
        through = max(k for _, _, k in observation.vectors)
    params, incoming = facts.steps(i), facts.network.incoming(i)
    shape = observation.series(i, "X", through).shape

    guards = guards_of(facts.run)
    if observation.coordinates is not None and any(guard.by_norm for guard in guards.values()):
        message = "[robust] takes norms of whole vectors, and of these only some coordinates were kept"
        raise NotApplicable.one("transcript", "", message)

    def mixed(stream: Stream, step: float) -> F64:
        """What it mixes, by the algorithm's own code; all rounds at once where it is a plain sum."""
        out, edges, guard = np.zeros(shape), incoming[stream], guards.get(stream)
        received, own = {j: observation.series(j, stream, through) for j, _ in edges}, (x if stream == "X" else y)
        if guard is None:
            mix_of(None, i, edges, received, lambda: own)(step, out, slice(None))
            return out
        for k, row in enumerate(out):
            here = {j: rounds[k] for j, rounds in received.items()}
            mix_of(guard, i, edges, here, partial(own.__getitem__, k))(step, row, slice(None))
            for vector in here.values():  # what is sorted would hide a hole
                row[np.isnan(vector)] = np.nan
        return out

    x, y = observation.series(i, "X", through), observation.series(i, "Y", through)
    mechanism = MECHANISMS[facts.run.algorithm.mechanism]
    exact = mechanism.x_public
    x0 = start(facts.run, observation.dimension)
    if x0 is not None and observation.coordinates is not None:
        x0 = x0[observation.coordinates]
    if x0 is None:
        x0 = x[0].copy() if exact else np.full(shape[1], np.nan)
    law = LAWS[facts.run.noise.law]
    scale_x = _scales(facts, "X", i, through) * (not exact)
    scale_y = _scales(facts, "Y", i, through)
    return View(
        facts.names[i],
        mechanism,
        law,
        params,
        x,
        y,
        mixed("X", params.alpha),
        mixed("Y", params.beta),
        x0,
        scale_x,
        scale_y,
        np.array([law.variance(s) for s in scale_x.tolist()]),
        np.array([law.variance(s) for s in scale_y.tolist()]),
        2.0**-24 if observation.dtype == "float32" else 2.0**-53,
        facts.schedule.factor(0),
        np.array([facts.schedule.release(k) is not None for k in range(through + 1)]),
    )


def _scales(facts: Facts, stream: Stream, i: int, through: int) -> F64:
    """Of what is known in each round: one that releases nothing leaves the last release standing."""
    schedule = facts.schedule
    releases = (schedule.last_release(k) for k in range(through + 1))
    return np.array([schedule.sigma(stream, i, k) * schedule.factor(k) for k in releases])


def columns(v: View, chosen: slice | np.ndarray[tuple[int], np.dtype[np.generic]]) -> View:
    """The same for some coordinates."""
    return replace(v, x=v.x[:, chosen], y=v.y[:, chosen], u=v.u[:, chosen], w=v.w[:, chosen], x0=v.x0[chosen])


# --- the estimators


def difference(v: View) -> F64:
    """A, (rounds - 1, d)."""
    v = completed(v)
    return np.asarray(v.y[1:] - v.hold * v.y[:-1] - v.w[:-1])


def tracker_from_x(v: View) -> F64:
    """X, (rounds - 1, d): y_k from x alone.  NaN wherever gamma is 0."""
    steps = np.array([v.params.gamma_at(k) for k in range(v.rounds - 1)])
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.asarray((v.rho * v.x[:-1] + v.u[:-1] - v.x[1:]) / steps[:, None])
    found[steps == 0.0] = np.nan
    return found


def absolute(v: View) -> F64:
    """B, (rounds, d)."""
    return _absolute(v, completed(v).y)


def absolute_from_x(v: View) -> F64:
    """B from x alone, (rounds - 1, d): X in the place of y̆; needs w all the same."""
    return _absolute(v, tracker_from_x(v))


def _absolute(v: View, y: F64) -> F64:
    steps = v.params.b * y - v.w[: len(y)]
    out = y.copy()
    out[1:] += np.cumsum(steps[:-1], axis=0)
    return _where_taken(v, out)


def _where_taken(v: View, g: F64) -> F64:
    """``g`` (rounds, d), NaN in rounds that took none: what stands there is the last release once more."""
    if v.taken is not None:
        g[~v.taken[: len(g)]] = np.nan
    return g


def innovation(v: View) -> F64:
    """D, (rounds, d)."""
    return np.asarray(completed(v).y - transcript_parts(v)[0])


def from_x(v: View) -> F64:
    """E, (rounds, d)."""
    return np.asarray(v.x - transcript_parts(v)[1])


def completed(v: View) -> View:
    """``v`` with y̆ filled in from x where the mechanism makes X exact; others as they are.

    In float arithmetic what is filled in is as precise as x divided by gamma.
    """
    if not v.mechanism.x_public:
        return v
    y = v.y.copy()
    holes = np.isnan(y[:-1])
    if not holes.any():
        return v
    y[:-1][holes] = tracker_from_x(v)[holes]
    return replace(v, y=y)


def transcript_parts(v: View, *, bridge: bool = False) -> tuple[F64, F64]:
    """t and tx, (rounds, d) each.  ``bridge``: take what was not seen of u and w as 0 instead of NaN."""
    u, w = (np.nan_to_num(a, nan=0.0) for a in (v.u, v.w)) if bridge else (v.u, v.w)
    t, tx = np.empty_like(v.y), np.empty_like(v.x)
    t[0], tx[0] = 0.0, v.x0
    for k in range(v.rounds - 1):
        t[k + 1] = v.hold * t[k] + w[k]
        tx[k + 1] = v.rho * tx[k] + u[k] - v.params.gamma_at(k) * t[k]
    return t, tx


# --- what they estimate, for tests and for reports: functions of the true gradients


def private_parts(v: View, g: F64) -> tuple[F64, F64]:
    """p = M g and px = -gamma N g, (rounds, d) each, by their recursions; ``g`` (rounds, d)."""
    p, px = np.empty_like(g), np.zeros_like(g)
    p[0] = g[0]
    for k in range(len(g) - 1):
        px[k + 1] = v.rho * px[k] - v.params.gamma_at(k) * p[k]
        p[k + 1] = v.hold * p[k] + g[k + 1] - g[k]
    return p, px


def gradients_of(v: View, p: F64) -> F64:
    """M^-1 p: g_k = p_k + b sum_{t<k} p_t; NaN from the first round on whose p or earlier w is not known, and where no
    gradient was taken.
    """
    out = p.copy()
    out[1:] += v.params.b * np.cumsum(p[:-1], axis=0)
    lost = np.cumsum(np.isnan(v.w[: len(p) - 1]), axis=0) > 0
    out[1:][lost] = np.nan
    return _where_taken(v, out)
