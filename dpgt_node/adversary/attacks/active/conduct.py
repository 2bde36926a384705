"""Does what an agent released follow from gradients within the run's clip?  A check of conduct, from released values.

Whoever sees what agent i mixed can take it away (:mod:`dpgt_node.adversary.inference.estimators`):

    B_k = y̆_k + sum_{t<k} (b y̆_t - w_t) = g_k + n_k            n_k = eta_k + b sum_{t<k} eta_t
    E_k = x̆_k - tx_k                     = -gamma (N g)_k + zeta_k

A mean of clipped gradients has ||g_k|| <= c, c the clip and ||.|| its norm, so of an agent that follows the protocol

    ||B_k|| <= c + tau_k,     ||E_k|| <= c sum_l |(gamma N)_kl| + tau'_k

but with the probability that noise alone exceeds tau_k.  Where x is public (public-state, noise-once) it obeys (alg,1)
exactly.  What is not named is what an agent with other data could do: sum_i y_i = sum_i B_i but for noise, so it is off
by c and the noise's reach at most in every round, and a push that would add up for ever is named.

What was mixed must have been seen on the agent's own in-links, and alike on all links: of an agent that got something
else from an equivocator than the observer, B and E say nothing.  So without that (round 0 needs none of it) the verdict
is no more than "partly", and names both.

tau_k is Bernstein's.  Moments of Laplace noise n of scales s_t obey E n^2m <= (2m)! sigma^2m with sigma^2 the sum of
all s_t^2, so for clip_l1, over d coordinates, X = |n|, V = 2 sigma^2 and c = sigma sqrt(4/3) for the odd ones,

    P(sum_c X_c > d E X + sqrt(2 L d V) + c L) <= exp(-L)

For clip_l2 X = n^2 is cut off at M, which n exceeds nowhere but with probability delta/2 (Chernoff):

    P(sum_c X_c > d E X + t) <= exp(-L) + d P(|n| > M),    t = L M^2/3 + sqrt((L M^2/3)^2 + 2 L d E n^4)

Gaussian noise is below both.  Scales count SAFE times, for what the sampler draws on its grid (a test computes it).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from dpgt_node import figures
from dpgt_node.adversary.attack import Finding, NotApplicable, Options, Result
from dpgt_node.adversary.attacks.common import result, targets
from dpgt_node.adversary.inference import estimators as es
from dpgt_node.adversary.inference import predictions as pr
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.record.truth import Truth
from dpgt_node.types import F64, Stream
from dpgt_node.values import dataclass
from dpgt_node.wire.transcript import Link

FALSE_ALARM = 1e-9
"""Of a whole run of honest agents, all agents, streams and rounds together, at most."""
SAFE = 1.02
_ROUNDING = 16.0
_EXPONENTS = np.linspace(0.02, 0.98, 49)
"""Chernoff's u, times the largest scale of one term."""


@dataclass(frozen=True, slots=True)
class Test:
    """One stream of one agent: ``size`` and ``limit`` of every round, (rounds,); NaN where nothing was seen."""

    stream: Stream
    size: F64
    limit: F64

    @property
    def ratio(self) -> F64:
        """Above 1: it does not follow from such gradients."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(self.limit > 0.0, self.size / self.limit, np.where(self.size > 0.0, np.inf, 0.0))
        return np.asarray(np.where(np.isnan(self.size), np.nan, found))


class _Conduct:
    name: ClassVar[str] = "conduct"
    needs: ClassVar[frozenset[str]] = frozenset()

    def run(self, observation: Observation, truth: Truth | None, options: Options) -> Result:
        """One finding an agent."""
        run = observation.facts.run
        clip = Clip.from_config(run.privacy)
        if clip is None:
            message = "without clip_l1 or clip_l2 nothing bounds a gradient: every conduct is possible"
            raise NotApplicable.one("run file", "privacy", message)
        if run.noise.cancel is not None:
            raise NotApplicable.one(
                "run file", "noise.cancel", "agents share noise, which is larger than the check knows"
            )
        schedule = observation.facts.schedule
        if schedule.factor(0) != 1.0 or any(schedule.release(k) is None for k in range(run.K + 1)):
            raise NotApplicable.one("run file", "scheme", "needs a gradient and a release in every round")
        delta = FALSE_ALARM / (2 * len(observation.facts.names) * (run.K + 1))
        findings = []
        for i in targets(observation, options):
            v = es.view(observation, i)
            findings.append(_finding(v, tuple(tests(v, clip, delta)), _vouched(observation, i)))
        named = [f.agent for f in findings if f.verdict in ("succeeds", "partly")]
        text = f"{', '.join(named)} released what no gradients within the clip explain" if named else (
            "all that was seen follows from gradients within the clip"
            if any(f.verdict == "clean" for f in findings)
            else "of nobody was enough seen to judge"
        )  # fmt: skip
        return result(self.name, text, findings, observation)


def _vouched(observation: Observation, i: int) -> frozenset[Stream]:
    """The streams of which all that agent ``i`` mixed was seen on its own links, and no copy was another one."""
    facts, found = observation.facts, set[Stream]()
    torn = {(one.sender, one.stream) for one in observation.conflicts}
    for stream, edges in facts.network.incoming(i).items():
        senders = [j for j, _ in edges if j != i]
        links = {(Link(facts.names[j], facts.names[i]), stream) for j in senders}
        if links <= observation.links and torn.isdisjoint((j, stream) for j in senders):
            found.add(stream)
    return frozenset(found)


def tests(v: es.View, clip: Clip, delta: float) -> Iterator[Test]:
    """What is tested of one agent.  ``delta``: probability of a false alarm of each stream and round."""
    b, gamma = v.params.b, v.params.gamma
    once = v.mechanism.accounted.once
    sums = np.eye(v.rounds) if once else np.tril(np.full((v.rounds, v.rounds), b), -1) + np.eye(v.rounds)
    seen = np.cumsum(_sizes(v.y, clip.order) + _sizes(v.w, clip.order))
    y = es.absolute(v)
    yield Test("Y", _norms(y, clip), _limits(v, y, clip, clip.bound, sums, v.scale_y, delta) + _slack(v, seen))
    seen = np.cumsum(_sizes(v.x, clip.order) + _sizes(v.u, clip.order) + gamma * seen)
    if v.mechanism.x_public:
        steps = np.array([v.params.gamma_at(k) for k in range(v.rounds - 1)])[:, None]
        off = np.full_like(v.x, np.nan)
        off[1:] = v.rho * v.x[:-1] + v.u[:-1] - steps * v.y[:-1] - v.x[1:]
        if not once:
            yield Test("X", _norms(off, clip), _slack(v, seen))
        return
    x = es.from_x(v)
    reach = clip.bound * np.abs(_kernel_x(v)).sum(axis=1)
    yield Test("X", _norms(x, clip), _limits(v, x, clip, reach, np.eye(v.rounds), v.scale_x, delta) + _slack(v, seen))


def _kernel_x(v: es.View) -> F64:
    """-gamma N, (rounds, rounds), with the gamma of every round."""
    M, out = pr.kernel_y(v.params.b, v.rounds), np.zeros((v.rounds, v.rounds))
    for k in range(v.rounds - 1):
        out[k + 1] = v.rho * out[k] - v.params.gamma_at(k) * M[k]
    return out


def _limits(v: es.View, rows: F64, clip: Clip, bound: F64 | float, sums: F64, scales: F64, delta: float) -> F64:
    """(rounds,): ``bound`` and the noise's tau; row k of ``sums`` says how often noise of each round is in row k."""
    d = (~np.isnan(rows)).sum(axis=1)
    noise = [tail(int(n), clip.order, v.law.norm, row * scales, delta) for n, row in zip(d, sums, strict=True)]
    return np.asarray(bound + np.array(noise))


def tail(d: int, order: int, law: int, scales: F64, delta: float) -> float:
    """tau: ||n||_order > tau with probability at most ``delta``, n (d,) with independent coordinates, each the sum of
    noise of these ``scales``; ``law`` 1: Laplace, 2: Gaussian.
    """
    s = SAFE * scales[scales > 0.0]
    if not d or not s.size:
        return 0.0
    total = float(np.square(s).sum())
    variance = (2.0 if law == 1 else 1.0) * total
    if order == 1:
        largest = float(s.max())  # E|n| <= E|largest| + root of the others' variance
        mean = min(math.sqrt(variance), largest + math.sqrt(2.0 * max(total - largest**2, 0.0)))
        if law == 2:
            mean = math.sqrt(2.0 * variance / math.pi)
        L = math.log(1.0 / delta)
        return d * mean + math.sqrt(2.0 * L * d * variance) + L * math.sqrt(4.0 * total / 3.0)
    L, each = math.log(2.0 / delta), math.log(4.0 * d / delta)  # P(|n| > M) <= 2 exp(-each) a coordinate
    if law == 1:
        u = _EXPONENTS / s.max()
        most = float(np.min((each - np.log1p(-np.square(np.outer(u, s))).sum(axis=1)) / u))
        fourth = 3.0 * variance**2 + 12.0 * float((s**4).sum())
    else:
        most, fourth = math.sqrt(2.0 * variance * each), 3.0 * variance**2
    third = L * most**2 / 3.0
    beyond = third + math.sqrt(third * third + 2.0 * L * d * fourth)
    return math.sqrt(min(d * variance + beyond, d * most**2))


def _norms(rows: F64, clip: Clip) -> F64:
    """Of every row over the coordinates that were seen, which is no more than over all; NaN where none was."""
    sizes = _sizes(rows, clip.order)
    return np.where(np.isnan(rows).all(axis=1), np.nan, sizes)


def _sizes(rows: F64, order: int) -> F64:
    magnitudes = np.abs(np.nan_to_num(rows, nan=0.0, posinf=np.inf, neginf=-np.inf))
    with np.errstate(over="ignore"):
        return np.asarray(magnitudes.sum(axis=1) if order == 1 else np.sqrt(np.square(magnitudes).sum(axis=1)))


def _slack(v: es.View, seen: F64) -> F64:
    """What rounding, here and on the wire, can make of sums of vectors that are ``seen`` long together."""
    return _ROUNDING * v.rounding * seen


def _finding(v: es.View, found: tuple[Test, ...], vouched: frozenset[Stream]) -> Finding:
    measured: dict[str, float | None] = {}
    notes, certain = [], False
    for one in found:
        ratio = one.ratio
        known = ratio[~np.isnan(ratio)]
        measured[f"{one.stream.lower()}_ratio"] = float(min(known.max(), 1e300)) if known.size else None
        beyond = np.flatnonzero(ratio > 1.0)
        if beyond.size:
            k, worst = int(beyond[0]), float(np.nanmax(ratio))
            notes.append(
                f"{one.stream} of round {k} is the first of {beyond.size} that no gradients within the clip explain; "
                f"the worst is {figures.number(worst)} times as far as they and the noise reach"
            )
            measured[f"{one.stream.lower()}_first_round"] = float(k)
            certain |= k == 0 or vouched >= ({"Y"} if one.stream == "Y" else {"X", "Y"})
    limits = {key: 1.0 for key in measured if key.endswith("ratio")}
    if notes and certain:
        return Finding(v.name, "succeeds", measured, limits, "; ".join(notes))
    if notes:
        notes.append(f"{v.name} did so, or got other values from those it hears than were seen here (retries, digests)")
        return Finding(v.name, "partly", measured, limits, "; ".join(notes))
    if any(value is not None for value in measured.values()):
        return Finding(v.name, "clean", measured, limits)
    return Finding(v.name, "no power", measured, limits, "what it mixed was not seen")


attack = _Conduct()
