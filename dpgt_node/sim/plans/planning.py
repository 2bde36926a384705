"""``dpgt plan``: the run file that meets an epsilon at the best accuracy found, without a look at anybody's data.

``accounts.planner.route`` picks mechanism, law and accountant.  ``releasing`` searches where each gradient is perturbed
once, ``everyround`` elsewhere.  ``accounts.planner.calibrate`` sets the winner's noise by the accounts themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dpgt_node.accounts.account import AgentAccount, totals
from dpgt_node.accounts.planner import Route, Target, route
from dpgt_node.config import Privacy, RunConfig
from dpgt_node.errors import ConfigError, invariant
from dpgt_node.learning.data.datasets import Dataset
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.privacy.strength import void
from dpgt_node.record.guessing import SKILL_MIN
from dpgt_node.sim.plans.alike import Alike
from dpgt_node.sim.plans.everyround import EveryRound, Found
from dpgt_node.sim.plans.frame import Frame
from dpgt_node.sim.plans.recipe import short
from dpgt_node.sim.plans.refusing import free, refusals
from dpgt_node.sim.plans.rehearsal import Outcome, Shape
from dpgt_node.sim.plans.releasing import Drawn, Releasing
from dpgt_node.values import dataclass

REHEARSALS = 16
"""How many runs are rehearsed at most."""
_CLIP = 0.5
"""Where a search over every round begins: a part of the median norm of a gradient."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """``run``: complete and calibrated.  ``epsilon``: by accountant, one value an agent, None where it says nothing.

    ``found``: how it was searched for, with how many candidates.  ``outcome``: rehearsed, on synthetic data.
    ``one_step``: 1 over the steepest curvature at the start, synthetic data.  ``chance``: accuracy there of a model
    that always says the most frequent class.  ``kept``, ``kept_clip``: K and steps, or the clip, are the run file's
    own.  ``starts_at``: about the epsilon from which on such data learn, whatever
    the target; None: not known.
    """

    run: RunConfig
    target: Target
    route: Route
    epsilon: dict[str, list[float | None]]
    found: Found | Drawn
    one_step: float
    chance: float
    kept: bool
    kept_clip: bool
    starts_at: float | None = None

    @property
    def outcome(self) -> Outcome:
        return self.found.outcome

    @property
    def begins(self) -> float | None:
        """``starts_at``, where the plan itself does not contradict it: it is about so much."""
        known = self.starts_at is not None and (self.starts_at > self.target.epsilon) == self.useless
        return self.starts_at if known else None

    @property
    def useless(self) -> bool:
        """Whether the model is about as good as one that has seen nothing."""
        return self.outcome.mean < learnt(self.chance)


def learnt(chance: float) -> float:
    """The accuracy from which a model has learnt something: as far above chance as a run's outcome asks for."""
    return chance + SKILL_MIN * (1.0 - chance)


class Planner:
    """Plans for one run file and shape; synthetic data and predictions are shared between targets."""

    def __init__(
        self,
        run: RunConfig,
        shape: Shape,
        public: Dataset | None = None,
        *,
        alike: Alike | None = None,
        keep_clip: bool = False,
        progress: Callable[[str], None] = lambda line: None,
    ) -> None:
        """``public``, ``alike``: see :class:`Rehearsal`.  ``keep_clip``: the clip is the run file's, or its declared C.
        ``progress`` gets a line now and then.
        """
        self._run, self._shape, self._keep_clip = run, shape, keep_clip
        self._given = (shape, public, alike, progress)
        self._frames: dict[Privacy, Frame] = {}
        self._searches: dict[Target, Releasing] = {}

    def plan(self, target: Target, rehearsals: int = REHEARSALS, *, keep_steps: bool = False) -> Plan:
        """The best run found for ``target`` in that many rehearsals.

        Raises ConfigError for what is impossible, see :func:`refusals`.

        ``keep_steps``: nothing is searched; K, alpha, beta and gamma are the run file's, which must be of scheme S2.
        So are its clip and its releases, where it says which rounds have one or that they differ.
        """
        kept = keep_steps or self._keep_clip
        target = replace(target, delta=self._delta(target))
        if reasons := refusals(
            self._run, target, self._shape.samples, keep_clip=self._keep_clip, keep_steps=keep_steps
        ):
            raise ConfigError(reasons)
        given = self._run if kept else replace(self._run, privacy=free(self._run.privacy))
        way = route(given, target)
        if not kept:
            given = self._clipped(given, way)
        if not keep_steps:
            given = _nothing_said(given)
        frame, base = self._frame(given), way.apply(given)
        chance = frame.rehearsal.chance
        found: Found | Drawn
        if keep_steps:
            found = EveryRound(frame, tune_clip=False).kept(base, way, target)
        elif way.accounted.once:
            search = Releasing(frame, base, way, target, _bound(given.privacy) if kept else None)
            found = search.search(rehearsals, learnt(chance))
            self._searches[target] = search
        else:
            found = EveryRound(frame, tune_clip=not kept).search(base, way, target, rehearsals)
        frame.check_range(found.run, way, target)
        epsilon = totals(frame.accounts(found.run))
        one_step = frame.rehearsal.one_step
        return Plan(found.run, target, way, epsilon, found, one_step, chance, keep_steps, kept)

    def begins(self, found: Plan) -> Plan:
        """``found`` of this planner, with ``starts_at``; as it is where nothing was searched for."""
        search = self._searches.get(found.target)
        if search is None:
            return found
        self._given[-1](f"epsilon {found.target.epsilon:g}: looking for the epsilon where learning begins")
        return replace(found, starts_at=search.starts_at(learnt(found.chance)))

    def accounts(self, run: RunConfig) -> Sequence[AgentAccount]:
        """The accounts of a run, as its agents will keep them."""
        return self._frame(run).accounts(run)

    def _frame(self, run: RunConfig) -> Frame:
        if run.privacy not in self._frames:
            self._frames[run.privacy] = Frame(run, *self._given)
        return self._frames[run.privacy]

    def _delta(self, target: Target) -> float | None:
        """As asked for, else the run file's where it protects one sample of the largest agent, else a smaller one."""
        largest = max(self._shape.samples)
        if target.delta is not None or not void(self._run.privacy.delta, largest):
            return target.delta
        return float(f"1e-{len(str(largest)) + 1}")

    def _clipped(self, run: RunConfig, way: Route) -> RunConfig:
        """With a clip of the norm that the noise calls for; a search finds its size, or goes on from this one."""
        order = 1 if way.pure or ACCOUNTANTS[way.accountant].clip_l1 or MECHANISMS[way.mechanism].printed else 2
        clip = 1.0 if way.accounted.once else short(_CLIP * self._frame(run).rehearsal.gradient_norm(order))
        both = (clip, None) if order == 1 else (None, clip)
        return replace(run, privacy=replace(run.privacy, clip_l1=both[0], clip_l2=both[1]))


def _bound(privacy: Privacy) -> float:
    """The clip; where C is declared, the clip that would enforce it."""
    if privacy.clip_l2 is not None:
        return privacy.clip_l2
    invariant(privacy.adjacency is not None, "a route has a bound")
    return 0.5 * (privacy.adjacency or 0.0)


def _nothing_said(run: RunConfig) -> RunConfig:
    """Without what the run file says of releases and of shared noise: that is for the search to choose."""
    noise = replace(run.noise, by_release=None, decay=None, cancel=None)
    return replace(run, noise=noise, privacy=replace(run.privacy, by_release=None, decay=None))
