"""What is released and how far it moves x, whoever mixes it: the part of a plan that needs no graph.

Where the rounds between two releases mix well, every agent's x follows that of one holder of all samples whose
gradients carry the mean of the agents' noise.  So recipes are compared at that holder, on stand-in samples: a few
gradients each, instead of a run of all agents.  ``sim.plans.mixing`` makes a run of the winner.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.sim.plans.rehearsal import Rehearsal
from dpgt_node.types import F64
from dpgt_node.values import dataclass

GRADIENTS: Final = (1, 2, 3, 5, 8, 12, 20, 40)
"""How many gradients a recipe may release."""
PARTS: Final = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8)
"""What part of the budget class sums may have."""
_SEEDS: Final = tuple(range(31, 39))
_MANY: Final = 8
"""Recipes with fewer gradients are tried with more draws: there are fewer terms in their noise, and they are quick."""
_FRESH: Final = tuple(range(41, 49))
"""Draws that choose nothing: the best of many recipes owes some of its accuracy to the draws it was chosen by."""
_NOTICEABLE: Final = 0.001
"""Accuracy that is worth more gradients."""
_HOPELESS: Final = 0.02
_BEHIND: Final = 0.08
"""What is so far behind is not looked at again; before a search has begun, not searched from."""
_CLIP: Final = 0.05
"""Where a search begins: a clip as a part of the median norm of a gradient."""
_OVER: Final = (0.5, 2.0, 8.0)
"""The reach of class sums over that of gradients, there."""
_SCAN: Final = tuple(4.0**e for e in range(-2, 9))
_T = TypeVar("_T")
_FIRST: Final = (40, 8, 1)
"""Gradients of the recipes that are tried first."""
_NORMS: Final = 0.99
"""This part of the stand-in samples has features within the clip of class sums."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Class sums as the first release: ``clip`` of a sample's features, ``part`` of the budget, and ``reach`` as of
    the gradients.
    """

    clip: float
    part: float
    reach: float


@dataclass(frozen=True, slots=True)
class Recipe:
    """``gradients`` releases of gradients under ``clip``, after ``sums``.

    ``reach``: clip times what all gradients together are multiplied with; x moves no further, in the norm of the clip.
    """

    gradients: int
    clip: float
    reach: float
    sums: Sums | None = None

    @property
    def releases(self) -> int:
        """All of them."""
        return self.gradients + (self.sums is not None)

    @property
    def step(self) -> float:
        """What each gradient is multiplied with."""
        return self.reach / (self.clip * self.gradients)

    def part(self, release: int) -> float:
        """Of the budget."""
        if self.sums is None:
            return 1.0 / self.gradients
        return self.sums.part if release == 0 else (1.0 - self.sums.part) / self.gradients


@dataclass(frozen=True, slots=True)
class Budget:
    """What one release costs: a release under clip c that has part a of it carries noise c ``spread`` a^(-1/``power``).

    ``spread``: of the agents' mean, a standard deviation.  ``power``: 1 where shifts add up, 2 where their squares do.
    """

    spread: float
    power: int

    def noise(self, clip: float, part: float) -> float:
        """Standard deviation in the agents' mean."""
        return float(clip * self.spread * part ** (-1.0 / self.power))


class Centre:
    """One holder of a rehearsal's stand-in samples under a budget; every recipe is tried once.

    ``order``: of the clips, 1 or 2.  ``kept``: the clip of gradients, where it is not to be chosen.
    """

    def __init__(self, rehearsal: Rehearsal, budget: Budget, order: int, kept: float | None = None) -> None:
        self._rehearsal, self._budget, self._order, self._kept = rehearsal, budget, order, kept
        self._found: dict[Recipe, list[float]] = {}

    @property
    def tried(self) -> int:
        """How many recipes."""
        return len(self._found)

    def accuracy(self, recipe: Recipe, *, roughly: bool = False) -> float:
        """Test accuracy on stand-in data, mean over draws of the noise; ``roughly``: over fewer of them."""
        draws = len(_SEEDS) if recipe.gradients <= _MANY else self._rehearsal.draws
        if roughly:
            draws //= 2
        found = self._found.setdefault(recipe, [])
        found += [self._one(recipe, seed) for seed in _SEEDS[len(found) : draws]]
        return float(np.mean(found[:draws]))

    def judged(self, recipe: Recipe) -> float:
        """As :meth:`accuracy`, by draws that no search sees."""
        return float(np.mean([self._one(recipe, seed) for seed in _FRESH]))

    def _one(self, recipe: Recipe, seed: int) -> float:
        with np.errstate(all="ignore"):
            return self._rehearsal.accuracy(self.point(recipe, np.random.default_rng(seed)))

    def point(self, recipe: Recipe, rng: np.random.Generator) -> F64:
        """Where it ends: float64 (d,)."""
        rehearsal, budget, sums = self._rehearsal, self._budget, recipe.sums
        x = rehearsal.start()
        if sums is not None:
            noise = budget.noise(sums.clip, sums.part) * rng.standard_normal(len(x))
            x -= sums.reach / sums.clip * (rehearsal.pooled_sums(Clip(self._order, sums.clip)) + noise)
        clip = Clip(self._order, recipe.clip)
        scale = budget.noise(recipe.clip, recipe.part(1)) if recipe.gradients else 0.0
        for _ in range(recipe.gradients):
            x -= recipe.step * (rehearsal.pooled(x, clip) + scale * rng.standard_normal(len(x)))
        return x

    def best(self, *, sums: bool) -> Recipe:
        """The recipe of the best accuracy that a search finds.  ``sums``: class sums may come first."""
        starts = self.starts(sums=sums)
        top = max(self.accuracy(recipe, roughly=True) for recipe in starts)
        serious = [recipe for recipe in starts if self.accuracy(recipe, roughly=True) >= top - _BEHIND]
        return self._simplest([self.climbed(recipe) for recipe in serious])

    def starts(self, *, sums: bool, few: bool = False) -> list[Recipe]:
        """The best of a few recipes far apart: of gradients alone, and with class sums if they may come first.

        ``few``: of those with few releases, which are the best ones under much noise, and the quick ones.
        """
        counts = _FIRST[1:] if few else _FIRST
        clip = short(_CLIP * self._rehearsal.gradient_norm(self._order)) if self._kept is None else self._kept
        sets = [[Recipe(count, clip, reach) for count in counts for reach in _SCAN]]
        if sums:
            bound = short(self._rehearsal.feature_norm(self._order, _NORMS))
            each = itertools.product(_FIRST[1:], _SCAN, _OVER)
            sets.append([Recipe(count, clip, reach, Sums(bound, 0.45, f * reach)) for count, reach, f in each])
        return [max(some, key=lambda recipe: self.accuracy(recipe, roughly=True)) for some in sets]

    def climbed(self, recipe: Recipe) -> Recipe:
        """From ``recipe`` to better neighbours, until none is better: far ones roughly, then near ones."""
        for factor, roughly in ((2.0, True), (2.0**0.5, False)):
            improved = True
            while improved:
                improved = False
                for other in self._neighbours(recipe, factor):
                    if self._better(other, recipe, roughly):
                        recipe, improved = other, True
        return recipe

    def _better(self, other: Recipe, recipe: Recipe, roughly: bool) -> bool:
        """Fewer releases for the same accuracy are better; more must earn something."""
        if self.accuracy(other, roughly=True) < self.accuracy(recipe, roughly=True) - _HOPELESS:
            return False
        gain = self.accuracy(other, roughly=roughly) - self.accuracy(recipe, roughly=roughly)
        if other.gradients < recipe.gradients:
            return gain >= 0.0
        return gain > (_NOTICEABLE if other.gradients > recipe.gradients else 0.0)

    def _simplest(self, recipes: list[Recipe]) -> Recipe:
        """The first one that is no worse than any other by more than is noticeable."""
        top = max(map(self.accuracy, recipes))
        return next(recipe for recipe in recipes if self.accuracy(recipe) >= top - _NOTICEABLE)

    def _neighbours(self, r: Recipe, factor: float) -> Iterator[Recipe]:
        sums = r.sums
        for f in (factor, 1.0 / factor):
            yield farther(r, f)
            if sums is not None:
                yield replace(r, reach=f * r.reach)
        for f in (1.0 / factor, factor):
            if self._kept is None:
                yield replace(r, clip=short(f * r.clip))
        for near in _beside(GRADIENTS, r.gradients):
            yield replace(r, gradients=near)
            yield replace(r, gradients=near, reach=r.reach * near / r.gradients)
        if sums is not None:
            for part in _beside(PARTS, sums.part):
                yield replace(r, sums=replace(sums, part=part))


def farther(recipe: Recipe, factor: float) -> Recipe:
    """The same with all its steps times ``factor``."""
    sums = recipe.sums and replace(recipe.sums, reach=factor * recipe.sums.reach)
    return replace(recipe, reach=factor * recipe.reach, sums=sums)


def _beside(ladder: Sequence[_T], rung: _T) -> list[_T]:
    at = ladder.index(rung)
    return [ladder[i] for i in (at - 1, at + 1) if 0 <= i < len(ladder)]


def short(value: float) -> float:
    """Three significant digits, rounded towards zero: easy to read, and never beyond a bound."""
    exponent = math.floor(math.log10(value)) - 2
    return float(f"{math.floor(value / 10.0**exponent + 1e-9):d}e{exponent:d}")
