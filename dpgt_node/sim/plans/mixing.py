"""From a recipe to a run: how fast this graph mixes, and how many rounds lie between releases and after the last.

Every round moves the agents' mean by gamma v1'v2/n times the mean of what was released, v1 and v2 the stationary
vectors of the two graphs.  What differs between agents shrinks by a factor a round, the second largest modulus of
I - alpha L1 or I - beta L2.  So all that a graph decides is that factor, and rounds that release nothing are free.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.spectrum import Spectrum, spectrum, stationary, weight_step_bound
from dpgt_node.config import RunConfig, SchemeS2
from dpgt_node.config.model import NoiseStream
from dpgt_node.errors import invariant
from dpgt_node.sim.plans.recipe import Budget, Recipe, farther, short
from dpgt_node.values import dataclass

_PARTS: Final = tuple(p / 20 for p in range(1, 20))
"""Steps that are tried, as parts of the largest one of Lemma 1."""
_ALONE: Final = 0.5
"""A step where nobody mixes: no graph bounds it."""
BETWEEN: Final = (0.1, 0.001)
AFTER: Final = 0.005
"""What is left of a difference between agents at the next release, at most and at least; and at the end."""
CHEAP: Final = 100
"""So many rounds cost nobody much: then less is left."""
LONGEST: Final = 3_000
"""Rounds of a plan, at most."""


@dataclass(frozen=True, slots=True)
class Mixing:
    """Steps of S2; ``every``: rounds from one release to the next; ``settle``: rounds that only average, at the end."""

    alpha: float
    beta: float
    every: int
    settle: int

    def rounds(self, recipe: Recipe) -> int:
        """K + 1."""
        return recipe.releases * self.every + self.settle


@dataclass(frozen=True, slots=True)
class Network:
    """What a graph does to a recipe.  ``speed``: v1'v2/n.  ``factor``: see the module; 0 for one agent."""

    alpha: float
    beta: float
    factor: float
    speed: float

    @classmethod
    def of(cls, topology: Topology) -> Network:
        """With the steps that mix fastest, within the bounds of Lemma 1.  The graph must satisfy Assumption 1."""
        v1, v2 = stationary(topology.in_R), stationary(topology.in_C)
        invariant(v1 is not None and v2 is not None, "the graph satisfies Assumption 1")
        assert v1 is not None and v2 is not None  # for mypy
        alpha, a = _fastest(spectrum(topology.in_R), weight_step_bound(topology.r))
        beta, b = _fastest(spectrum(topology.in_C), weight_step_bound(topology.c))
        return cls(alpha, beta, max(a, b), float(v1 @ v2) / topology.n)

    def mixing(self, recipe: Recipe) -> Mixing:
        """Where a search begins."""
        if self.factor == 0.0:
            return Mixing(self.alpha, self.beta, 1, 0)
        settle = min(self._until(AFTER), LONGEST // 4)
        most, least = (self._until(left) for left in BETWEEN)
        every = min(max(most, min(least, CHEAP // recipe.releases)), max((LONGEST - settle) // recipe.releases, 1))
        return Mixing(self.alpha, self.beta, every, settle)

    def _until(self, left: float) -> int:
        return max(1, math.ceil(math.log(left) / math.log(self.factor)))

    def run(self, base: RunConfig, recipe: Recipe, mixing: Mixing, budget: Budget, order: int) -> RunConfig:
        """``base`` with this recipe; scales are still to be calibrated.  ``order``: of the clips, 1 or 2."""
        sums, moved = recipe.sums, mixing.every * self.speed
        first = None if sums is None else sums.reach / sums.clip / moved
        gamma = recipe.step / moved if recipe.gradients else first
        clip = short(recipe.clip) if recipe.gradients or sums is None else sums.clip
        invariant(gamma is not None, "a recipe releases something")
        assert gamma is not None  # for mypy
        scheme = SchemeS2(
            alpha=mixing.alpha,
            beta=mixing.beta,
            gamma=short(gamma),
            p_m=1.0,
            samples="full",
            release_every=mixing.every if mixing.every > 1 else None,
            settle=mixing.settle,
        )
        clips = scales = None
        if sums is not None and first is not None:
            scheme = replace(scheme, first="class-sums", first_scale=short(first / gamma) if recipe.gradients else 1.0)
            if recipe.gradients:
                noise = budget.noise(sums.clip, recipe.part(0)) / budget.noise(recipe.clip, recipe.part(1))
                clips, scales = (short(sums.clip / clip), 1.0), (short(noise), 1.0)
        # A C that is declared and not enforced stays as it is.
        by_order = (None, None) if not base.privacy.enforced else (clip, None) if order == 1 else (None, clip)
        ones = NoiseStream("constant", (1.0,) * base.n)
        return replace(
            base,
            algorithm=replace(base.algorithm, iterations=mixing.rounds(recipe) - 1),
            scheme=scheme,
            noise=replace(base.noise, zeta=None, eta=ones, multiplier=1.0, by_release=scales),
            privacy=replace(base.privacy, clip_l1=by_order[0], clip_l2=by_order[1], by_release=clips),
        )


def _fastest(spectrum: Spectrum, by_weights: float) -> tuple[float, float]:
    """The step and its factor."""
    largest = min(by_weights, spectrum.step_bound)
    if math.isinf(largest):
        return _ALONE, 0.0
    steps = [short(part * largest) for part in _PARTS]
    return min(((s, spectrum.factor(s)) for s in steps), key=lambda f: f[1])


def neighbours(recipe: Recipe, mixing: Mixing) -> Iterator[tuple[Recipe, Mixing]]:
    """More rounds, then other steps in as many."""
    for more in (replace(mixing, every=math.ceil(1.6 * mixing.every)), replace(mixing, settle=2 * mixing.settle)):
        if mixing.settle and more.rounds(recipe) <= LONGEST:
            yield recipe, more
    for factor in (1.4, 1.0 / 1.4):
        yield farther(recipe, factor), mixing
