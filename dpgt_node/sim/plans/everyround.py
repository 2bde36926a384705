"""The search for mechanisms that release in every round: predict a grid of (K, alpha, beta, gamma), rehearse the best.

1. Every candidate of the grid is predicted (``accounts.forecast``, ``rehearsal.Table``).
2. The most promising are rehearsed, then the best one's neighbours, until none is better.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from dpgt_node.accounts.forecast import Response, need, respond
from dpgt_node.accounts.planner import Route, Target, calibrate
from dpgt_node.algo.spectrum import spectrum, weight_step_bound
from dpgt_node.config import Privacy, RunConfig, SchemeS2
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.sim.plans.frame import Frame
from dpgt_node.sim.plans.recipe import short
from dpgt_node.sim.plans.refusing import says_what
from dpgt_node.sim.plans.rehearsal import Outcome, Table
from dpgt_node.types import F64
from dpgt_node.values import dataclass

ROUNDS = (5, 12, 26, 55, 115)
"""K of the grid."""
STEPS = (0.1, 0.4, 0.9)
"""alpha and beta as parts of the largest step of Lemma 1."""
GAMMAS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 0.9, 1.3, 1.8)
"""gamma as a part of the step at which the steepest direction would be solved in one round (2 is unstable)."""
_FINALISTS, _SERIOUS, _DRAWS = 8, 3, (11, 12, 13)
_HOPELESS = 0.01
"""A candidate that is this much behind in its first draw gets no other."""
REHEARSALS = 30
"""How many candidates are rehearsed at most ..."""
_ROUNDS_REHEARSED = 7_000
"""... and how many rounds, all draws together, before the search ends: about half a minute for 4,000 unknowns."""
_CLIP_FACTOR = 0.5**0.5
_RATE_SPAN = 300.0
_NOTICEABLE = 0.002
"""Accuracy that is worth more rounds; smaller differences are within the noise of three draws."""
_FREE = 1e6
"""A step that no weight bounds: a single agent, which mixes with nobody."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Steps and K; ``predicted``: accuracy of the worst agent by the predictor; ``clip``: as a part of the run's."""

    K: int
    alpha: float
    beta: float
    gamma: float
    ratio: float
    predicted: float
    clip: float = 1.0


@dataclass(frozen=True, slots=True)
class Found:
    """``run``: calibrated.  ``considered``, ``rehearsed``: how many candidates."""

    run: RunConfig
    candidate: Candidate
    outcome: Outcome
    considered: int
    rehearsed: int

    @property
    def predicted(self) -> float:
        """Accuracy before any rehearsal; NaN: nothing was predicted."""
        return self.candidate.predicted


class EveryRound:
    """Plans of a mechanism that releases in every round.  ``tune_clip``: a smaller clip than the run's may be taken."""

    def __init__(self, frame: Frame, *, tune_clip: bool) -> None:
        self._frame, self._run, self._shape, self._topology = frame, frame.run, frame.shape, frame.topology
        self._tune_clip = tune_clip

    def search(self, base: RunConfig, way: Route, target: Target, rehearsals: int) -> Found:
        """The best candidate of the grid and around it."""
        # What cannot be met with any steps is refused before the search.
        self.calibrated(base, way, target, Candidate(1, *self._part(0.5, 0.5), 1.0, 1.0, 0.0))
        candidates = list(self._candidates(way, target))
        self._frame.progress(f"epsilon {target.epsilon:g}: predicting {len(candidates)} candidates")
        predicted = self._predict(candidates)
        self._frame.progress(f"epsilon {target.epsilon:g}: rehearsing the best, up to {rehearsals}")
        best, outcome, rehearsed = self._best(base, way, target, predicted, rehearsals)
        return Found(self.calibrated(base, way, target, best), best, outcome, len(predicted), rehearsed)

    def kept(self, base: RunConfig, way: Route, target: Target) -> Found:
        """The run file's own steps, rehearsed."""
        best = self._own_steps()
        if not says_what(self._run):
            (best,) = self._predict([self._kept(way, target)])
        outcome = _Trials(self, base, way, target).outcome(best)
        return Found(self.calibrated(base, way, target, best), best, outcome, 1, 1)

    # ---------------------------------------------------------------- candidates and their prediction
    def _part(self, alpha: float, beta: float) -> tuple[float, float]:
        """Parts of the largest steps as steps."""
        a, b = self._largest
        return short(alpha * a), short(beta * b)

    @cached_property
    def _largest(self) -> tuple[float, float]:
        """Of Lemma 1, the largest alpha and beta."""
        ends = ((self._topology.r, self._topology.in_R), (self._topology.c, self._topology.in_C))
        a, b = (min(weight_step_bound(w), spectrum(edges).step_bound, _FREE) for w, edges in ends)
        return a, b

    def _candidates(self, way: Route, target: Target) -> Iterator[tuple[Candidate, F64, F64]]:
        """Every candidate of the grid with its (T, nu), one an agent; ``predicted`` is still 0."""
        unit = self._unit(way)
        for parts in itertools.product(STEPS, STEPS):
            alpha, beta = self._part(*parts)
            response = self._response(way, alpha, beta, ROUNDS[-1])
            speed = float((response.time[-1] - response.time[-2]).mean())
            for K, part in itertools.product(ROUNDS, GAMMAS):
                gamma = short(part * self._frame.rehearsal.one_step / speed)
                yield self._placed(way, target, Candidate(K, alpha, beta, gamma, 1.0, 0.0), response, unit)

    def _own_steps(self) -> Candidate:
        """Those of the run file; the predictor, which knows one kind of release, says nothing of them yet."""
        run, scheme = self._run, self._run.scheme
        assert isinstance(scheme, SchemeS2), "refusals has spoken of others"
        return Candidate(run.K, scheme.alpha, scheme.beta, scheme.gamma, 1.0, math.nan)

    def _kept(self, way: Route, target: Target) -> tuple[Candidate, F64, F64]:
        """The run file's own steps, as :meth:`_candidates` gives them."""
        c = self._own_steps()
        return self._placed(way, target, c, self._response(way, c.alpha, c.beta, c.K), self._unit(way))

    def _response(self, way: Route, alpha: float, beta: float, K_max: int) -> Response:
        unit = self._unit(way)
        weights = np.square(unit / unit.mean())
        return respond(self._topology, alpha, beta, way.accounted, K_max, weights, weights)

    def _placed(
        self, way: Route, target: Target, c: Candidate, response: Response, unit: F64
    ) -> tuple[Candidate, F64, F64]:
        noise_x, noise_y = response.noise_x[c.K], c.gamma**2 * response.noise_y[c.K]
        a, b = c.alpha * self._topology.r, c.beta * self._topology.c
        asked = need(way.accounted, ACCOUNTANTS[way.accountant], target.epsilon, way.delta, c.K, c.gamma, a, b, unit)
        eta, ratio = asked.scales(noise_x, noise_y)
        variance = eta.mean() ** 2 * (noise_y + ratio**2 * noise_x) * LAWS[way.law].ideal_variance
        return replace(c, ratio=ratio), c.gamma * response.time[c.K], np.sqrt(variance)

    def _unit(self, way: Route) -> F64:
        privacy = self._run.privacy
        C = 2.0 * privacy.clip_l2 if privacy.clip_l2 is not None else privacy.adjacency
        assert C is not None, "route refuses a run without a bound"
        return C / np.array(self._shape.samples, dtype=float)

    def _predict(self, candidates: list[tuple[Candidate, F64, F64]]) -> list[Candidate]:
        """Best first."""
        times = np.stack([time for _, time, _ in candidates])
        noises = np.stack([noise for _, _, noise in candidates])
        rates = noises / np.sqrt(times)
        least = float(rates.min())
        most = min(float(rates.max()), _RATE_SPAN * least)
        table: Table = self._frame.rehearsal.table(float(times.max()), (least, most))
        worst = table(times, noises).min(axis=1)
        found = [replace(c, predicted=float(w)) for (c, _, _), w in zip(candidates, worst, strict=True)]
        return sorted(found, key=lambda c: (-c.predicted, c.K, c.gamma))

    # ---------------------------------------------------------------- rehearsals
    def _best(
        self, base: RunConfig, way: Route, target: Target, predicted: list[Candidate], rehearsals: int
    ) -> tuple[Candidate, Outcome, int]:
        """The finalists (the best of each K), then walks from the best one to better neighbours."""
        trials = _Trials(self, base, way, target)
        finalists = [next(group) for _, group in _by_rounds(predicted)]
        finalists = sorted(finalists, key=lambda c: -c.predicted)[: min(_FINALISTS, rehearsals)]
        finalists = sorted(finalists, key=lambda c: -trials.outcome(c, 1).score)[:_SERIOUS]
        top = max(trials.outcome(c).score for c in finalists)
        best = min((c for c in finalists if trials.outcome(c).score >= top - _NOTICEABLE), key=lambda c: c.K)
        improved = True
        while improved and trials.left(rehearsals):
            improved = False
            for other in self._neighbours(best, way):
                if not trials.left(rehearsals):
                    break
                if trials.outcome(other, 1).score < trials.outcome(best, 1).score - _HOPELESS:
                    continue
                # Fewer rounds for the same accuracy are an improvement, more rounds must earn something.
                gain = trials.outcome(other).score - trials.outcome(best).score
                if gain > (_NOTICEABLE if other.K > best.K else 0.0):
                    best, improved = other, True
                    break
        return best, trials.outcome(best), trials.count

    def _neighbours(self, c: Candidate, way: Route) -> Iterator[Candidate]:
        if self._tune_clip:
            # Where the clip binds, a smaller one with a larger step moves as far with less noise.
            yield replace(c, clip=c.clip * _CLIP_FACTOR, gamma=short(c.gamma / _CLIP_FACTOR))
            if c.clip < 1.0:
                yield replace(c, clip=c.clip / _CLIP_FACTOR, gamma=short(c.gamma * _CLIP_FACTOR))
        for factor in (1.35, 1 / 1.35):
            yield replace(c, gamma=short(c.gamma * factor))
        for factor in (0.75, 1 / 0.75):
            K = max(1, round(c.K * factor))
            if K != c.K:
                yield replace(c, K=K, gamma=short(c.gamma * (c.K + 1) / (K + 1)))
                yield replace(c, K=K)
        if way.both_streams:
            yield replace(c, ratio=short(2.0 * c.ratio))
            yield replace(c, ratio=short(0.5 * c.ratio))
        largest_alpha, largest_beta = self._part(1.0, 1.0)
        for factor in (1.25, 0.8):
            alpha, beta = short(c.alpha * factor), short(c.beta * factor)
            if max(alpha / largest_alpha, beta / largest_beta) <= 0.96:
                yield replace(c, alpha=alpha, beta=beta)
            if beta / largest_beta <= 0.96:
                yield replace(c, beta=beta)

    # ---------------------------------------------------------------- complete runs
    def calibrated(
        self, base: RunConfig, way: Route, target: Target, c: Candidate, tolerance: float | None = None
    ) -> RunConfig:
        run = self._with_steps(base, c.K, c.alpha, c.beta, c.gamma)
        run = replace(run, privacy=_clipped(run.privacy, c.clip))
        ratio = c.ratio if way.both_streams else None
        options = {} if tolerance is None else {"tolerance": tolerance}
        colluding = target.colluding(run.n)
        accounts = self._frame.accounts
        return calibrate(run, way.accountant, target.epsilon, accounts, ratio=ratio, colluding=colluding, **options)

    @staticmethod
    def _with_steps(run: RunConfig, K: int, alpha: float, beta: float, gamma: float) -> RunConfig:
        scheme = SchemeS2(alpha=alpha, beta=beta, gamma=gamma, p_m=1.0, samples="full")
        if says_what(run) and isinstance(run.scheme, SchemeS2) and run.K == K:
            scheme = replace(run.scheme, p_m=1.0, samples="full")
        return replace(run, algorithm=replace(run.algorithm, iterations=K), scheme=scheme)


class _Trials:
    """Rehearsals of one plan, each draw of each candidate once."""

    def __init__(self, search: EveryRound, base: RunConfig, way: Route, target: Target) -> None:
        self._search, self._given = search, (base, way, target)
        self._runs: dict[Candidate, RunConfig] = {}
        self._found: dict[Candidate, list[F64]] = {}
        self._rounds = 0

    @property
    def count(self) -> int:
        return len(self._found)

    def left(self, rehearsals: int) -> bool:
        """Whether another candidate may be tried."""
        return self.count < rehearsals and self._rounds < _ROUNDS_REHEARSED

    def outcome(self, c: Candidate, draws: int = len(_DRAWS)) -> Outcome:
        """Of the first ``draws`` draws."""
        c = replace(c, predicted=0.0)
        if c not in self._runs:
            self._runs[c] = self._search.calibrated(*self._given, c, tolerance=1e-3)
        found = self._found.setdefault(c, [])
        for seed in _DRAWS[len(found) : draws]:
            with np.errstate(all="ignore"):
                found.append(self._search._frame.rehearsal.accuracies(self._runs[c], seed))
            self._rounds += c.K + 1
        return Outcome.of(found[:draws])


def _clipped(privacy: Privacy, part: float) -> Privacy:
    """A clip of ``part`` of the run file's, to three digits."""
    if part == 1.0:
        return privacy
    if privacy.clip_l1 is not None:
        return replace(privacy, clip_l1=short(part * privacy.clip_l1))
    assert privacy.clip_l2 is not None
    return replace(privacy, clip_l2=short(part * privacy.clip_l2))


def _by_rounds(predicted: list[Candidate]) -> Iterator[tuple[int, Iterator[Candidate]]]:
    """Groups of equal K, each best first."""
    return itertools.groupby(sorted(predicted, key=lambda c: (c.K, -c.predicted)), key=lambda c: c.K)
