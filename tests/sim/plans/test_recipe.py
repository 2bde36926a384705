"""What one holder of all samples learns from a recipe, and the search among recipes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.sim.plans import recipe
from dpgt_node.sim.plans.recipe import Budget, Centre, Recipe, Sums
from dpgt_node.sim.plans.rehearsal import Rehearsal
from tests.sim.plans.cases import SHAPE, run

NO_NOISE = Budget(0.0, 2)
THREE = Recipe(3, 0.5, 4.0, Sums(0.8, 0.4, 2.0))


@pytest.fixture(scope="module")
def rehearsal() -> Rehearsal:
    return Rehearsal(run(), SHAPE)


@pytest.mark.parametrize(("order", "given"), [(2, THREE), (1, THREE), (2, replace(THREE, sums=None))])
def test_a_recipe_is_so_many_steps_of_one_holder(rehearsal: Rehearsal, order: int, given: Recipe) -> None:
    x = rehearsal.start()
    if given.sums is not None:
        x = x - 2.0 / 0.8 * rehearsal._oracle(None, Clip(order, 0.8)).class_sums(np.arange(1010))
    for _ in range(3):
        x = x - 4.0 / (0.5 * 3) * rehearsal._oracle(None, Clip(order, 0.5)).gradient(x, np.arange(1010))
    found = Centre(rehearsal, NO_NOISE, order).point(given, np.random.default_rng(0))
    np.testing.assert_allclose(found, x, atol=1e-12)


@pytest.mark.parametrize("power", [1, 2])
def test_the_parts_of_a_recipe_use_the_whole_budget(power: int) -> None:
    """A release under clip c with noise s shifts by c/s; shifts, or their squares, add up to what is allowed."""
    budget = Budget(0.25, power)
    for given in (THREE, replace(THREE, sums=None)):
        clips = [given.clip if k or given.sums is None else given.sums.clip for k in range(given.releases)]
        shifts = [clip / budget.noise(clip, given.part(k)) for k, clip in enumerate(clips)]
        assert sum(shift**power for shift in shifts) == pytest.approx(4.0**power)


def test_the_noise_of_a_recipe_is_what_it_says(rehearsal: Rehearsal) -> None:
    """Under a clip of nothing only noise is left: steps times it, release by release."""
    budget, given = Budget(1e6, 2), Recipe(3, 1e-9, 3e-9, Sums(1e-9, 0.5, 2e-9))
    ends = [Centre(rehearsal, budget, 2).point(given, np.random.default_rng(seed)) for seed in range(60)]
    one = 1e-9 * 1e6
    expected = np.sqrt(3 * (one / np.sqrt(0.5 / 3)) ** 2 + (2.0 * one / np.sqrt(0.5)) ** 2)
    assert np.std(ends) == pytest.approx(expected, rel=0.05)


def brute(centre: Centre) -> dict[Recipe, float]:
    """Every recipe of a coarse grid, judged by draws that no search saw."""
    clips, reaches = (0.02, 0.1, 0.5), tuple(4.0**e for e in range(-1, 6))
    first = (None, 0.2, 0.6)
    grid = itertools.product((1, 3, 8), clips, reaches, first)
    made = [Recipe(n, c, r, None if part is None else Sums(1.0, part, r)) for n, c, r, part in grid]
    return {one: centre.accuracy(one, roughly=True) for one in made}


@pytest.mark.parametrize(("order", "epsilon"), [(2, 0.01), (1, 0.1)])
def test_the_search_finds_what_a_grid_finds(
    rehearsal: Rehearsal, order: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe, "GRADIENTS", (1, 3, 8))
    monkeypatch.setattr(recipe, "_FIRST", (8, 1))
    monkeypatch.setattr(recipe, "_SCAN", tuple(4.0**e for e in range(-1, 6)))
    budget = Budget(2.0 / 1010 / epsilon, order)
    centre = Centre(rehearsal, budget, order)
    found = brute(centre)
    serious = sorted(found, key=lambda one: -found[one])[:8]
    best, top = centre.best(sums=True), max(map(centre.judged, serious))
    assert centre.judged(best) > top - 0.01
    # What a search finds that knows no noise, or too little of it, does not do.
    blind = Centre(rehearsal, replace(budget, spread=budget.spread / 100.0), order).best(sums=True)
    assert centre.judged(blind) < top - 0.02


def test_a_kept_clip_is_kept(rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "_FIRST", (1,))
    monkeypatch.setattr(recipe, "_SCAN", (1.0, 4.0))
    assert Centre(rehearsal, Budget(0.01, 2), 2, 0.123456).best(sums=False).clip == 0.123456
