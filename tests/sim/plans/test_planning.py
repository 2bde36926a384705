"""Rehearsals and the search: small shapes, because only the machinery is tested here, not how good plans are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.accounts.planner import Target, route
from dpgt_node.accounts.towards import sharing
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.algo.theory import step_warnings
from dpgt_node.config import model, parse_run, to_toml
from dpgt_node.errors import ConfigError
from dpgt_node.privacy.accountants.rounding import within
from dpgt_node.sim.plans import everyround, recipe
from dpgt_node.sim.plans.everyround import EveryRound
from dpgt_node.sim.plans.frame import Frame
from dpgt_node.sim.plans.planning import Planner
from dpgt_node.sim.plans.rehearsal import Outcome
from tests.sim.plans.cases import SHAPE, run


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner(run(), SHAPE)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everyround, "ROUNDS", (3, 8))
    monkeypatch.setattr(everyround, "STEPS", (0.5,))
    monkeypatch.setattr(recipe, "GRADIENTS", (1, 3, 8))
    monkeypatch.setattr(recipe, "_FIRST", (8, 1))
    monkeypatch.setattr(recipe, "_SCAN", tuple(4.0**e for e in range(-1, 6)))


@pytest.mark.parametrize(
    ("privacy", "target", "keep_clip"),
    [
        ({"clip_l2": 1.0}, Target(2.0), False),
        ({"clip_l2": 1.0}, Target(5.0, 0.0), False),
        ({}, Target(5.0, 1e-6, "zcdp", "published-point"), False),
        ({"clip_l1": 2.0}, Target(5.0, None, None, "paper"), True),
        ({"C": 4.0}, Target(5.0, 0.0, None, "public-state"), True),
        ({"C": 4.0}, Target(5.0, 0.0), True),
    ],
)
def test_a_plan_keeps_its_promise(privacy: dict[str, float], target: Target, keep_clip: bool) -> None:
    given = run(**privacy)
    planner = Planner(given, SHAPE, keep_clip=keep_clip)
    found = planner.plan(target, rehearsals=3)
    costs = found.epsilon[found.route.accountant]
    assert all(cost is not None and target.epsilon * (1 - 1e-6) <= cost <= target.epsilon for cost in costs)
    assert 0.2 <= found.outcome.worst <= found.outcome.mean + 1e-12 <= 1.0 and found.found.rehearsed <= 3
    assert found.run.scheme.samples == "full" and found.run.algorithm.mechanism == found.route.mechanism
    assert found.run.graph == given.graph and found.run.data == given.data
    chosen = found.run.privacy
    if keep_clip:
        assert (chosen.clip_l1, chosen.clip_l2, chosen.C) == tuple(privacy.get(k) for k in ("clip_l1", "clip_l2", "C"))
    else:  # the norm that the noise calls for
        assert (chosen.clip_l1 is None, chosen.clip_l2 is None) == (not found.route.pure, found.route.pure)
    assert parse_run(to_toml(found.run), "planned", Path()) == found.run
    schedule = Schedule.from_config(found.run)
    assert not step_warnings(Topology.from_config(found.run.graph), schedule)
    if found.route.accounted.once:  # one release more is too much
        more = replace(found.run.scheme, release_every=None, releases=(*schedule.releases, found.run.K))
    else:
        more = found.run.scheme
    longer = replace(
        found.run, scheme=replace(more, settle=0), algorithm=replace(found.run.algorithm, iterations=found.run.K + 1)
    )
    assert not any(
        within(account.total(found.route.accountant), target.epsilon) for account in planner.accounts(longer)
    )


def test_equal_questions_get_equal_plans(planner: Planner) -> None:
    one, two = planner.plan(Target(2.0), 4), Planner(run(), SHAPE).plan(Target(2.0), 4)
    assert one.run == two.run and one.outcome == two.outcome


def test_more_epsilon_more_accuracy_and_where_it_starts(planner: Planner) -> None:
    nothing, high = (planner.begins(planner.plan(Target(epsilon), 4)) for epsilon in (4e-3, 5.0))
    assert nothing.useless and not high.useless and high.starts_at is not None
    assert nothing.outcome.mean + 0.3 < high.outcome.mean and high.outcome.worst > 0.8
    assert nothing.starts_at is not None and 4e-3 < nothing.starts_at < 5.0
    assert nothing.starts_at == high.starts_at, "a figure of the data and the agents, whatever is asked for"
    assert (nothing.begins, replace(nothing, starts_at=3e-3).begins) == (nothing.starts_at, None)
    assert (high.begins, replace(high, starts_at=6.0).begins) == (high.starts_at, None)
    assert not planner.plan(Target(2.0 * nothing.starts_at), 4).useless
    least = planner.begins(planner.plan(Target(1e-10), 4))  # where nothing learns by far, it is said soon
    assert least.useless and least.found.rehearsed == 1
    assert least.starts_at == nothing.starts_at


@pytest.mark.parametrize("colluding", [0, 1])
def test_epsilon_towards_few_others_is_met_by_noise_that_they_share(planner: Planner, colluding: int) -> None:
    """At an epsilon where noise matters.  All share one scale: the smallest agent decides."""
    target = Target(0.2, towards=colluding)
    found = planner.plan(target, 4)
    shared = sharing(found.run)
    assert shared is not None and found.run.noise.eta is not None and len(set(found.run.noise.eta.values)) == 1
    assert parse_run(to_toml(found.run), "planned", Path()) == found.run

    def most(t: int) -> float:
        costs = zip(shared, found.epsilon["gdp"], strict=True)
        return max(one.towards("gdp", cost or 0.0, 1e-5, t) for one, cost in costs)

    assert 0.2 * (1 - 1e-6) <= most(colluding) <= 0.2 < most(colluding + 1) <= most(2)
    own = planner.plan(Target(0.2), 4)
    assert own.run.noise.cancel is None and found.outcome.score > own.outcome.score
    assert own.run.privacy.delta == found.run.privacy.delta == 1e-5  # the run file's, which protects


def test_what_shared_noise_cannot_help_has_none(planner: Planner) -> None:
    pure = Planner(run(clip_l1=1.0), SHAPE).plan(Target(1.0, 0.0, towards=1), 2)
    everybody = planner.plan(Target(1.0, towards=2), 2)
    assert pure.run.noise.cancel is None and everybody.run.noise.cancel is None
    with pytest.raises(ConfigError, match=r"--towards: must be 0 \(an eavesdropper\) to 2 \(all others\), not 3"):
        planner.plan(Target(1.0, towards=3))


def test_a_delta_that_protects_nobody_is_lowered_unless_asked_for() -> None:
    many = Planner(replace(run(), privacy=model.Privacy(clip_l2=1.0, delta=1e-2)), SHAPE)
    assert many.plan(Target(2.0), 1).run.privacy.delta == 1e-4
    assert many.plan(Target(2.0, 1e-2), 1).run.privacy.delta == 1e-2


def test_what_a_run_file_says_of_releases_is_chosen_anew(planner: Planner) -> None:
    scheme = model.SchemeS2(0.3, 0.2, 1.0, 1.0, samples="full", releases=(0, 2), settle=2)
    once = model.Algorithm(5, mechanism="noise-once")
    said = replace(run(), scheme=scheme, algorithm=once, privacy=model.Privacy(clip_l2=1.0, by_release=(2.0, 1.0)))
    assert Planner(said, SHAPE).plan(Target(2.0), 2).run == planner.plan(Target(2.0), 2).run


def test_another_method_is_not_planned() -> None:
    for method, mechanism in (("atc-dsgd", "noise-once"), ("s-ab", "paper")):
        other = replace(run(), algorithm=model.Algorithm(5, method, mechanism))
        with pytest.raises(ConfigError, match=rf"Algorithm 1 \(dpgt\), not of {method}"):
            Planner(other, SHAPE).plan(Target(2.0))


def test_too_much_epsilon_is_refused_with_the_nearest(planner: Planner) -> None:
    with pytest.raises(ConfigError, match=r"needs so little noise .*; \S+ is possible"):
        planner.plan(Target(1e12), 2)


def test_a_graph_nobody_can_learn_over_is_refused() -> None:
    config = run()
    broken = replace(config, graph=replace(config.graph, R=((0.0,) * 3,) * 3))
    with pytest.raises(ConfigError, match=r"graph\.R"):
        Planner(broken, SHAPE).plan(Target(2.0))


def test_the_predictor_ranks_as_rehearsals_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spearman correlation over a spread of candidates, of a mechanism that releases in every round."""
    monkeypatch.setattr(everyround, "ROUNDS", (3, 8, 20, 55))
    monkeypatch.setattr(everyround, "STEPS", (0.25, 0.75))
    target = Target(1.0, mechanism="public-state")
    way = route(run(), target)
    frame = Frame(run(), SHAPE, None, None, lambda line: None)
    search = EveryRound(frame, tune_clip=False)
    candidates = search._predict(list(search._candidates(way, target)))[::12]
    rehearsed = []
    for c in candidates:
        ready = search.calibrated(way.apply(run()), way, target, c, tolerance=1e-3)
        rehearsed.append(Outcome.of([frame.rehearsal.accuracies(ready, seed) for seed in (1, 2)]).worst)
    ranks = [np.argsort(np.argsort(values)) for values in ([c.predicted for c in candidates], rehearsed)]
    assert np.corrcoef(*ranks)[0, 1] > 0.5
    assert np.mean(rehearsed[:3]) > np.mean(rehearsed) + 0.05  # and it is the best ones that count
