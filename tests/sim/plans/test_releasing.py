"""The search over all agents: which noise to share, and how many rounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpgt_node.accounts.planner import Target, route
from dpgt_node.accounts.towards import sharing
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.sim.plans.frame import Frame
from dpgt_node.sim.plans.mixing import Mixing
from dpgt_node.sim.plans.recipe import Recipe, farther
from dpgt_node.sim.plans.releasing import Releasing, Sketch
from tests.sim.plans.cases import SHAPE, run

GIVEN = Recipe(3, 0.05, 2.0)


def searching(target: Target, graph: model.Graph | None = None) -> Releasing:
    given = run() if graph is None else replace(run(), graph=graph)
    way = route(given, target)
    return Releasing(Frame(given, SHAPE, None, None, lambda line: None), way.apply(given), way, target, None)


def test_shared_noise_is_chosen_as_rehearsing_every_kind_of_it_would() -> None:
    search = searching(Target(0.2, towards=0))
    own = search._begin(GIVEN, None)
    found = search._shared(own)
    scores = {
        r: search._outcome(search._begin(GIVEN if r is None else farther(GIVEN, 1.5), r)).score for r in (None, 1, 2, 4)
    }
    best = max(scores, key=lambda r: scores[r])
    assert best is not None and found.r is not None, "less noise is worth more here"
    assert search._outcome(found).score >= scores[best] - 0.01 > scores[None]


def test_a_budget_knows_what_is_shared() -> None:
    """Noise in the mean falls by sqrt(phi); what an account reads towards the coalition stays the target."""
    search = searching(Target(0.2, towards=1))
    plain, shared = search._budget(search._target, None), search._budget(search._target, 2)
    equal = plain.spread * (3 / 300**2 / sum(1 / D**2 for D in SHAPE.samples)) ** 0.5
    assert shared.spread == pytest.approx(equal * ((1 + 4) / (1 + 2 * 4)) ** 0.5, rel=1e-6)
    made = search._run(search._begin(GIVEN, 2), exact=True)
    by_agent = sharing(made)
    assert by_agent is not None
    totals = [account.total("gdp") or 0.0 for account in search._frame.accounts(made)]
    read = [one.towards("gdp", cost, 1e-5, 1) for one, cost in zip(by_agent, totals, strict=True)]
    assert 0.2 * (1 - 1e-6) <= max(read) <= 0.2 < max(totals)


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_a_budget_foretells_the_noise_that_calibration_finds(epsilon: float) -> None:
    """The standard deviation in the agents' mean, though their scales differ."""
    search = searching(Target(epsilon))
    made = search._run(search._begin(GIVEN, None), exact=True)
    schedule = Schedule.from_config(made)
    scales = np.array([schedule.sigma("Y", i, 0) for i in range(made.n)])
    assert len(set(scales)) == made.n
    expected = search._budget(search._target, None).noise(GIVEN.clip, GIVEN.part(0))
    assert np.linalg.norm(scales) / made.n == pytest.approx(expected, rel=1e-5)


def test_the_agent_with_the_fewest_partners_says_what_is_exposed() -> None:
    """On a path: whoever colludes with the one partner of an end knows all that the end shares."""
    search = searching(Target(0.2, towards=1))
    search._base = replace(search._base, noise=replace(search._base.noise, mask_graph=((1, 2), (2, 3))))
    assert search._exposed(2) == 1.0


def test_more_rounds_are_taken_where_agents_are_still_apart() -> None:
    """One round between releases and none after them: each agent keeps much of its own noise.  Then nothing is left."""
    search = searching(Target(1.0))
    hasty = Sketch(GIVEN, Mixing(search._network.alpha, search._network.beta, 1, 1))
    found = search._climbed(hasty, 12)
    assert found.mixing.rounds(found.recipe) > 2 * hasty.mixing.rounds(GIVEN)
    assert search._outcome(found).worst > search._outcome(hasty).worst + 0.01
    ready = search._begin(GIVEN, None)
    kept = search._climbed(ready, 12)
    assert search._outcome(kept).worst <= search._outcome(ready).worst + 0.02


@pytest.mark.parametrize("least", [1e-4, 0.07, 0.3, 0.99, 1.0, 1.1, 3.0, 100.0, 5e5])
def test_where_learning_begins_is_the_least_of_its_ladder(least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Releasing, "_learns", lambda self, epsilon, useless: epsilon >= least)
    found = object.__new__(Releasing).starts_at(0.5)
    assert found is not None and least <= found <= 2.0**0.5 * least * (1.0 + 1e-12)


def test_where_no_noise_is_little_enough_nothing_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Releasing, "_learns", lambda self, epsilon, useless: False)
    assert object.__new__(Releasing).starts_at(0.5) is None
