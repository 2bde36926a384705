"""The search for a mechanism that perturbs each gradient once: a recipe, then as few rounds as let it reach everybody.

1. ``recipe.Centre``: what is released, tried at one holder of all stand-in samples.
2. ``mixing.Network``: the run that carries it out over this graph, rehearsed with all agents.
3. Where epsilon counts towards few others only: how much noise pairs of agents share, by such rehearsals too.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from dpgt_node.accounts.planner import Route, Target, calibrate
from dpgt_node.config import RunConfig
from dpgt_node.config.privacy.cancelling import masks
from dpgt_node.config.privacy.releases import no_class_sums
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.privacy.cancelling.exposure import share
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.sim.plans.frame import Frame
from dpgt_node.sim.plans.mixing import Mixing, Network, neighbours
from dpgt_node.sim.plans.recipe import Budget, Centre, Recipe, farther
from dpgt_node.sim.plans.rehearsal import Outcome
from dpgt_node.types import F64
from dpgt_node.values import dataclass

SHARED: Final = (2, 1, 4)
"""r of shared noise that is tried; a recipe is searched for under the first one."""
_REACH: Final = 0.87
"""x moves so much farther, as a power, where there is less noise: where the next search begins."""
_SEEDS: Final = tuple(range(11, 19))
_MANY: Final = 100
"""From so many agents on every rehearsal is said."""
_NOTICEABLE: Final = 0.002
"""Accuracy that is worth more rounds, other steps or shared noise."""
_HOPELESS: Final = 0.01
_WORK: Final = 2e9
"""Numbers that rehearsals update, rounds times agents times d, before a search ends: about half a minute."""
_DOUBLINGS: Final = 40
_HOPE: Final = 8.0
"""Where even so many times the epsilon teaches nothing, a search for the best recipe compares noise with noise."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """A recipe and its rounds, with noise of ``r`` times an agent's own shared by pairs, None: nobody shares any."""

    recipe: Recipe
    mixing: Mixing
    r: int | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """``run``: calibrated.  ``predicted``: its recipe's accuracy at one holder.  ``recipes``, ``rehearsed``: counts."""

    run: RunConfig
    sketch: Sketch
    outcome: Outcome
    predicted: float
    recipes: int
    rehearsed: int


class Releasing:
    """One search.  ``base``: the run with mechanism, law and clip set.  ``kept``: the clip that it must have."""

    def __init__(self, frame: Frame, base: RunConfig, way: Route, target: Target, kept: float | None) -> None:
        self._frame, self._base, self._way, self._target, self._kept = frame, base, way, target, kept
        self._order = 1 if base.privacy.clip_l2 is None else 2
        self._network = Network.of(frame.topology)
        self._sums = no_class_sums(base.algorithm, base.data, base.model, base.privacy) is None
        self._centres: dict[int | None, Centre] = {}
        self._runs: dict[Sketch, RunConfig] = {}
        self._found: dict[Sketch, list[F64]] = {}
        self._work = 0.0

    def search(self, rehearsals: int, useless: float) -> Drawn:
        """The best run found; where nothing gets better than ``useless``, soon the best of a few.  ConfigError: no
        noise meets the target.
        """
        frame, target = self._frame, self._target
        frame.progress(f"epsilon {target.epsilon:g}: the noise that it takes")
        self._run(
            self._begin(Recipe(1, self._kept or 1.0, 1.0), None)
        )  # what cannot be met is refused before the search
        frame.progress(f"epsilon {target.epsilon:g}: what to release, tried at one holder of all stand-in samples")
        if (alike := self._hopeless(useless)) is not None:
            frame.progress(f"epsilon {target.epsilon:g}: nothing learns, at {_HOPE:g} times as much neither: no search")
            best = self._begin(alike, None)
        else:
            best = self._begin(self._centre(None).best(sums=self._sums), None)
            if target.shares(frame.run.n) and not self._way.pure:
                best = self._shared(best)
            frame.progress(f"epsilon {target.epsilon:g}: rehearsing {best.recipe.releases} releases with all agents")
            best = self._climbed(best, rehearsals)
        tried = sum(centre.tried for centre in self._centres.values())
        central = self._centre(best.r).accuracy(best.recipe)
        return Drawn(self._run(best, exact=True), best, self._outcome(best), central, tried, len(self._found))

    def starts_at(self, useless: float) -> float | None:
        """About the least epsilon, a power of sqrt(2), at which one holder's model is better than ``useless``; None
        where no noise is little enough.

        The target's own epsilon has no part in it: the search begins at 1, whatever is asked for.
        """
        below, above = 0, 0
        if self._learns(1.0, useless):
            while above > -_DOUBLINGS and self._learns(2.0 ** (above - 1), useless):
                above -= 1
            below = above - 1
        else:
            above = 1
            while not self._learns(2.0**above, useless):  # by leaps first: it may be far
                if above == _DOUBLINGS:
                    return None
                below, above = above, min(2 * above, _DOUBLINGS)
        while above - below > 1:
            middle = (below + above) // 2
            if self._learns(2.0**middle, useless):
                above = middle
            else:
                below = middle
        nearer: float = 2.0 ** (above - 0.5)
        return nearer if self._learns(nearer, useless) else 2.0**above

    def _hopeless(self, useless: float) -> Recipe | None:
        """The best of a few recipes, where none of them is better than ``useless``, nor with far less noise; else None.

        Noise that is shared may be less than the target says, so there it is not known.
        """
        if self._target.shares(self._frame.run.n):
            return None
        centre = self._centre(None)
        best = max(centre.starts(sums=self._sums, few=True), key=centre.judged)
        if centre.judged(best) >= useless or self._learns(_HOPE * self._target.epsilon, useless):
            return None
        return best

    def _learns(self, epsilon: float, useless: float) -> bool:
        centre = self._centre_of(replace(self._target, epsilon=epsilon), None)
        return max(map(centre.judged, centre.starts(sums=self._sums, few=True))) >= useless

    # ---------------------------------------------------------------- one holder
    def _centre(self, r: int | None) -> Centre:
        if r not in self._centres:
            self._centres[r] = self._centre_of(self._target, r)
        return self._centres[r]

    def _centre_of(self, target: Target, r: int | None) -> Centre:
        return Centre(self._frame.rehearsal, self._budget(target, r), self._order, self._kept)

    def _budget(self, target: Target, r: int | None) -> Budget:
        """What the agents' noise leaves in their mean; where it is shared, all have the scale of the smallest."""
        samples, n = np.array(self._frame.shape.samples, dtype=float), self._frame.run.n
        one = ACCOUNTANTS[self._way.accountant]
        goal, power = one.goal(target.epsilon, self._way.delta), 1 if one.pure else 2
        units = 2.0 / samples
        if r is not None:
            units, goal = np.full(n, units.max()), goal / math.sqrt(self._exposed(r))
        spread = math.sqrt(LAWS[self._way.law].ideal_variance * float(np.square(units).sum())) / n / goal
        return Budget(spread, power)

    def _exposed(self, r: int) -> float:
        """The largest part of any agent's squared shift that the target's coalition sees."""
        base = self._sharing(self._base, r)
        graph, t = masks(base), self._target.colluding(base.n)
        assert graph is not None
        return max(share(len(graph.partners(i)), r, t) for i in range(base.n))

    @staticmethod
    def _sharing(base: RunConfig, r: int | None) -> RunConfig:
        mask = None if r is None else base.noise.mask_graph or "complete"
        return replace(base, noise=replace(base.noise, cancel=r, mask_graph=mask))

    # ---------------------------------------------------------------- all agents
    def _begin(self, recipe: Recipe, r: int | None) -> Sketch:
        return Sketch(recipe, self._network.mixing(recipe), r)

    def _shared(self, own: Sketch) -> Sketch:
        """``own``, or one with shared noise where that is noticeably better."""
        best, recipe, budget = own, own.recipe, self._budget(self._target, None)
        for r in SHARED:
            self._frame.progress(f"epsilon {self._target.epsilon:g}: sharing {r} times an agent's own noise")
            less = self._budget(self._target, r)
            recipe, budget = farther(recipe, (budget.spread / less.spread) ** _REACH), less
            if r == SHARED[0]:
                recipe = self._centre(r).climbed(recipe)
            other = self._begin(recipe, r)
            if self._outcome(other).score > self._outcome(best).score + (_NOTICEABLE if best.r is None else 0.0):
                best = other
        return best

    def _climbed(self, best: Sketch, rehearsals: int) -> Sketch:
        """To noticeably better neighbours, until none is."""
        improved = True
        while improved and self._left(rehearsals):
            improved = False
            for recipe, mixing in neighbours(best.recipe, best.mixing):
                other = Sketch(recipe, mixing, best.r)
                if other in self._found or not self._left(rehearsals):
                    continue
                if self._frame.run.n >= _MANY:  # each takes a while
                    self._frame.progress(f"rehearsing a variant, {len(self._found)} of at most {rehearsals} done")
                if self._outcome(other, 1).score < self._outcome(best, 1).score - _HOPELESS:
                    continue
                if self._outcome(other).score > self._outcome(best).score + _NOTICEABLE:
                    best, improved = other, True
                    break
        return best

    def _left(self, rehearsals: int) -> bool:
        """Whether another sketch may be tried."""
        return len(self._found) < rehearsals and self._work < _WORK

    def _outcome(self, sketch: Sketch, draws: int | None = None) -> Outcome:
        """Of the first ``draws`` draws, None: of as many as are worth their time."""
        draws = self._frame.rehearsal.draws if draws is None else draws
        run, found = self._run(sketch), self._found.setdefault(sketch, [])
        for seed in _SEEDS[len(found) : draws]:
            with np.errstate(all="ignore"):
                found.append(self._frame.rehearsal.accuracies(run, seed))
            self._work += float(run.K) * run.n * self._frame.rehearsal.dimension
        return Outcome.of(found[:draws])

    def _run(self, sketch: Sketch, *, exact: bool = False) -> RunConfig:
        """``exact``: calibrated as closely as a plan is; else within a thousandth."""
        if not exact and sketch in self._runs:
            return self._runs[sketch]
        recipe, budget = sketch.recipe, self._budget(self._target, sketch.r)
        run = self._network.run(self._sharing(self._base, sketch.r), recipe, sketch.mixing, budget, self._order)
        options = {} if exact else {"tolerance": 1e-3}
        colluding = self._target.colluding(run.n)
        epsilon, accounts = self._target.epsilon, self._frame.accounts
        run = calibrate(run, self._way.accountant, epsilon, accounts, colluding=colluding, **options)
        self._runs[sketch] = run
        return run
