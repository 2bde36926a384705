"""``dpgt plan``: the run file that meets an epsilon at the best accuracy found, without a look at anybody's data.

1. ``accounts.planner.route``: mechanism, law, accountant.
2. Every candidate (K, alpha, beta, gamma) of a grid is predicted (``accounts.forecast``, ``rehearsal.Table``).
3. The most promising are rehearsed, then the best one's neighbours, until none is better (``sim.rehearsal``).
4. ``accounts.planner.calibrate`` sets the winner's noise by the accounts themselves.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpgt_node.accounts.account import AgentAccount, totals
from dpgt_node.accounts.forecast import Response, need, respond
from dpgt_node.accounts.planner import Route, Target, calibrate, route
from dpgt_node.agent.noise import account_for, check_range
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import method_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.algo.spectrum import weight_step_bound
from dpgt_node.algo.theory import hard_failures
from dpgt_node.config import Privacy, RunConfig, SchemeS2
from dpgt_node.errors import ConfigError, Problem
from dpgt_node.learning.data.datasets import Dataset
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.sim.alike import Alike
from dpgt_node.sim.rehearsal import Outcome, Rehearsal, Shape, Table
from dpgt_node.types import F64

ROUNDS = (3, 5, 8, 12, 18, 26, 38, 55, 80, 115, 165, 240, 350, 500)
"""K of the grid."""
STEPS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.95)
"""alpha and beta as parts of the largest step with every a_i and b_i below 1."""
GAMMAS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 0.9, 1.3, 1.8)
"""gamma as a part of the step at which the steepest direction would be solved in one round (2 is unstable)."""
_COARSE_ROUNDS, _COARSE_STEPS = (5, 12, 26, 55, 115), (0.1, 0.4, 0.9)
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
_ABOVE_CHANCE = 0.1
_MANY_AGENTS = 64
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


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """``run``: complete and calibrated.  ``epsilon``: by accountant, one value an agent, None where it says nothing.

    ``candidate``, ``outcome``: what was predicted and rehearsed for it, on synthetic data.  ``considered``,
    ``rehearsed``: how many candidates.  ``one_step``: 1 over the steepest curvature at the start, synthetic data.
    ``chance``: accuracy there of a model that always says the most frequent class.  ``kept``: K and steps are the run
    file's own.
    """

    run: RunConfig
    target: Target
    route: Route
    epsilon: dict[str, list[float | None]]
    candidate: Candidate
    outcome: Outcome
    considered: int
    rehearsed: int
    one_step: float
    chance: float
    kept: bool = False

    @property
    def useless(self) -> bool:
        """Whether the model is about as good as one that has seen nothing."""
        return self.outcome.mean < self.chance + _ABOVE_CHANCE * (1.0 - self.chance)


class Planner:
    """Plans for one run file and shape; synthetic data and predictions are shared between targets."""

    def __init__(
        self,
        run: RunConfig,
        shape: Shape,
        public: Dataset | None = None,
        *,
        alike: Alike | None = None,
        tune_clip: bool = False,
        progress: Callable[[str], None] = lambda line: None,
    ) -> None:
        """``public``, ``alike``: see :class:`Rehearsal`.  ``tune_clip``: a smaller clip may be taken.
        ``progress`` gets a line now and then.

        Raises ConfigError where the run cannot be planned: toys, another method, or a graph that breaks Assumption 1.
        """
        method = method_of(run)
        if not (method.theorems and method.noisy):
            message = f"a plan sets steps and noise of Algorithm 1 (dpgt), not of {method.name}"
            raise ConfigError.one("run file", "algorithm.method", message)
        self._run, self._shape, self._public, self._alike = run, shape, public, alike
        self._progress, self._tune_clip = progress, tune_clip and run.privacy.enforced
        self._topology = Topology.from_config(run.graph)
        probe = self._with_steps(run, 1, *self._part(0.5, 0.5), 1.0)
        failures = hard_failures(probe, self._topology, Schedule.from_config(probe), shape.samples)
        if failures:
            raise ConfigError(Problem("run file", key, message) for key, message in failures)

    @cached_property
    def rehearsal(self) -> Rehearsal:
        """The stand-in for the agents' data."""
        return Rehearsal(self._run, self._shape, self._public, alike=self._alike)

    def plan(self, target: Target, rehearsals: int = REHEARSALS, *, keep_steps: bool = False) -> Plan:
        """The best run found for ``target`` in that many rehearsals.  Raises ConfigError for what is impossible.

        ``keep_steps``: nothing is searched; K, alpha, beta and gamma are the run file's, which must be of scheme S2.
        So are its releases, where it says which rounds have one or that they differ.
        """
        way = route(self._run, target)
        if _says_what(self._run):
            self._check_given(way, target, keep_steps)
        base = way.apply(self._run)
        rehearsals = 1 if keep_steps else rehearsals
        if _says_what(self._run):
            predicted = [self._own_steps()]
        else:
            # What cannot be met with any steps is refused before the search.
            self._calibrated(base, way, target, Candidate(1, *self._part(0.5, 0.5), 1.0, 1.0, 0.0))
            candidates = [self._kept(way, target)] if keep_steps else list(self._candidates(way, target))
            self._progress(f"epsilon {target.epsilon:g}: predicting {len(candidates)} candidates")
            predicted = self._predict(candidates)
        self._progress(f"epsilon {target.epsilon:g}: rehearsing the best, up to {rehearsals}")
        best, outcome, rehearsed = self._best(base, way, target, predicted, rehearsals)
        run = self._calibrated(base, way, target, best)
        self._check_range(run, way, target)
        epsilon, count, chance = totals(self.accounts(run)), len(predicted), self.rehearsal.chance
        return Plan(run, target, way, epsilon, best, outcome, count, rehearsed, self._one_step, chance, keep_steps)

    def _check_given(self, way: Route, target: Target, keep_steps: bool) -> None:
        if not keep_steps:
            message = "the run file says what is released, and a search would change it: plan with --keep-steps"
            raise ConfigError.one("command line", "--keep-steps", message)
        if not way.accounted.once:
            message = f"{way.mechanism} releases in every round, and the run file says otherwise"
            raise ConfigError.one(target.source, "--mechanism", message)

    def accounts(self, run: RunConfig) -> Sequence[AgentAccount]:
        """The accounts of a run, as its agents will keep them."""
        schedule = Schedule.from_config(run)
        return [
            account_for(run, self._topology, schedule, i, D, self.rehearsal.dimension)
            for i, D in enumerate(self._shape.samples)
        ]

    # ---------------------------------------------------------------- candidates and their prediction
    @property
    def _one_step(self) -> float:
        return self.rehearsal.one_step

    def _part(self, alpha: float, beta: float) -> tuple[float, float]:
        """Parts of the largest steps as steps."""
        r, c = weight_step_bound(self._topology.r), weight_step_bound(self._topology.c)
        return _short(alpha * min(r, _FREE)), _short(beta * min(c, _FREE))

    def _candidates(self, way: Route, target: Target) -> Iterator[tuple[Candidate, F64, F64]]:
        """Every candidate of the grid with its (T, nu), one an agent; ``predicted`` is still 0."""
        n = self._run.n
        rounds, steps = (ROUNDS, STEPS) if way.accounted.once and n <= _MANY_AGENTS else (_COARSE_ROUNDS, _COARSE_STEPS)
        unit = self._unit(way)
        for parts in itertools.product(steps, steps):
            alpha, beta = self._part(*parts)
            response = self._response(way, alpha, beta, rounds[-1])
            speed = float((response.time[-1] - response.time[-2]).mean())
            for K, part in itertools.product(rounds, GAMMAS):
                gamma = _short(part * self._one_step / speed)
                yield self._placed(way, target, Candidate(K, alpha, beta, gamma, 1.0, 0.0), response, unit)

    def _own_steps(self) -> Candidate:
        """Those of the run file; the predictor, which knows one kind of release, says nothing of them yet."""
        run, scheme = self._run, self._run.scheme
        if not isinstance(scheme, SchemeS2):
            raise ConfigError.one("command line", "--keep-steps", 'needs scheme.kind = "S2" in the run file')
        failures = hard_failures(run, self._topology, Schedule.from_config(run), self._shape.samples)
        if failures:
            raise ConfigError(Problem("run file", key, message) for key, message in failures)
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
        table: Table = self.rehearsal.table(float(times.max()), (least, min(float(rates.max()), _RATE_SPAN * least)))
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
            yield replace(c, clip=c.clip * _CLIP_FACTOR, gamma=_short(c.gamma / _CLIP_FACTOR))
            if c.clip < 1.0:
                yield replace(c, clip=c.clip / _CLIP_FACTOR, gamma=_short(c.gamma * _CLIP_FACTOR))
        for factor in (1.35, 1 / 1.35):
            yield replace(c, gamma=_short(c.gamma * factor))
        for factor in (0.75, 1 / 0.75):
            K = max(1, round(c.K * factor))
            if K != c.K:
                yield replace(c, K=K, gamma=_short(c.gamma * (c.K + 1) / (K + 1)))
                yield replace(c, K=K)
        if way.both_streams:
            yield replace(c, ratio=_short(2.0 * c.ratio))
            yield replace(c, ratio=_short(0.5 * c.ratio))
        largest_alpha, largest_beta = self._part(1.0, 1.0)
        for factor in (1.25, 0.8):
            alpha, beta = _short(c.alpha * factor), _short(c.beta * factor)
            if max(alpha / largest_alpha, beta / largest_beta) <= 0.96:
                yield replace(c, alpha=alpha, beta=beta)
            if beta / largest_beta <= 0.96:
                yield replace(c, beta=beta)

    # ---------------------------------------------------------------- complete runs
    def _calibrated(
        self, base: RunConfig, way: Route, target: Target, c: Candidate, tolerance: float | None = None
    ) -> RunConfig:
        run = self._with_steps(base, c.K, c.alpha, c.beta, c.gamma)
        run = replace(run, privacy=_clipped(run.privacy, c.clip))
        ratio = c.ratio if way.both_streams else None
        options = {} if tolerance is None else {"tolerance": tolerance}
        return calibrate(run, way.accountant, target.epsilon, self.accounts, ratio=ratio, **options)

    @staticmethod
    def _with_steps(run: RunConfig, K: int, alpha: float, beta: float, gamma: float) -> RunConfig:
        scheme = SchemeS2(alpha=alpha, beta=beta, gamma=gamma, p_m=1.0, samples="full")
        if _says_what(run) and isinstance(run.scheme, SchemeS2) and run.K == K:
            scheme = replace(run.scheme, p_m=1.0, samples="full")
        return replace(run, algorithm=replace(run.algorithm, iterations=K), scheme=scheme)

    def _check_range(self, run: RunConfig, way: Route, target: Target) -> None:
        """Noise may be too little for the sampler's range: then the nearest possible epsilon is a smaller one."""
        problem, nearest = self._range_problem(run), run
        if problem is None:
            return
        while self._range_problem(nearest) is not None:
            nearest = replace(nearest, noise=replace(nearest.noise, multiplier=2.0 * nearest.noise.multiplier))
        known = [account.total(way.accountant) for account in self.accounts(nearest)]
        possible = min(value for value in known if value is not None)
        raise ConfigError.one(
            target.source,
            "--epsilon",
            f"{target.epsilon:g} needs so little noise that the sampler cannot cover a clipped gradient "
            f"({problem}); {possible:.3g} is possible, or no noise at all (noise.multiplier = 0)",
        )

    def _range_problem(self, run: RunConfig) -> str | None:
        schedule = Schedule.from_config(run)
        try:
            for i in range(run.n):
                check_range(run, self._topology, schedule, i)
        except ConfigError as error:
            return error.problems[0].message
        return None


class _Trials:
    """Rehearsals of one plan, each draw of each candidate once."""

    def __init__(self, planner: Planner, base: RunConfig, way: Route, target: Target) -> None:
        self._planner, self._frame = planner, (base, way, target)
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
            self._runs[c] = self._planner._calibrated(*self._frame, c, tolerance=1e-3)
        found = self._found.setdefault(c, [])
        for seed in _DRAWS[len(found) : draws]:
            with np.errstate(all="ignore"):
                found.append(self._planner.rehearsal.accuracies(self._runs[c], seed))
            self._rounds += c.K + 1
        return Outcome.of(found[:draws])


def _says_what(run: RunConfig) -> bool:
    """Whether the run file says what is released: in which rounds, or that releases differ."""
    own = (run.noise.by_release, run.noise.decay, run.privacy.by_release, run.privacy.decay)
    return run.scheme.apart or run.scheme.first != "gradient" or any(own)


def _clipped(privacy: Privacy, part: float) -> Privacy:
    """A clip of ``part`` of the run file's, to three digits."""
    if part == 1.0:
        return privacy
    if privacy.clip_l1 is not None:
        return replace(privacy, clip_l1=_short(part * privacy.clip_l1))
    assert privacy.clip_l2 is not None
    return replace(privacy, clip_l2=_short(part * privacy.clip_l2))


def _by_rounds(predicted: list[Candidate]) -> Iterator[tuple[int, Iterator[Candidate]]]:
    """Groups of equal K, each best first."""
    return itertools.groupby(sorted(predicted, key=lambda c: (c.K, -c.predicted)), key=lambda c: c.K)


def _short(value: float) -> float:
    """Three significant digits, rounded towards zero: easy to read, and never beyond a bound."""
    exponent = np.floor(np.log10(value)) - 2
    text = f"{np.floor(value / 10.0**exponent + 1e-9):.0f}e{exponent:.0f}"
    return float(text)
