"""Rehearsals and the search: small shapes, because only the machinery is tested here, not how good plans are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpgt_node.accounts.planner import Target, calibrate, route
from dpgt_node.config import model
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.synthetic import synthetic
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.privacy.accountants.rounding import within
from dpgt_node.sim import planning
from dpgt_node.sim.planning import Planner
from dpgt_node.sim.rehearsal import Outcome, Rehearsal, Shape, Table
from tests.oracles import mechanisms

RING = ((0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.5, 1.0, 0.0))
CHORD = ((0.0, 0.3, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.2))
SHAPE = Shape(16, 3, (300, 310, 400))


def run(**privacy: float) -> model.RunConfig:
    return model.RunConfig(
        "plan",
        model.Algorithm(5),
        model.SchemeS2(0.3, 0.2, 1.0, 1.0, samples="full"),
        model.Noise(None, None, multiplier=0.0),
        model.Graph(("a", "b", "c"), RING, CHORD),
        model.Data("digits", normalise="l2"),
        model.Model(bias=0.2),
        model.Privacy(**(privacy or {"clip_l2": 1.0})),
    )


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner(run(), SHAPE)


@pytest.mark.parametrize("mechanism", ["paper", "published-point", "public-state", "noise-once"])
def test_a_rehearsal_is_the_mechanism_on_stand_in_data(mechanism: str) -> None:
    config = run()
    config = replace(config, algorithm=replace(config.algorithm, mechanism=mechanism))
    rehearsal = Rehearsal(config, SHAPE)
    x0 = np.zeros((3, rehearsal.dimension))
    nothing = np.zeros((config.K + 1, 3, rehearsal.dimension))

    def gradient(i: int, k: int, x: np.ndarray) -> np.ndarray:
        return rehearsal.gradients(np.tile(x, (3, 1)), Clip(2, 1.0))[i]

    x, _, _ = mechanisms.run(mechanism, RING, CHORD, 0.3, 0.2, 1.0, x0, gradient, nothing, nothing)
    np.testing.assert_allclose(rehearsal.final(config, 0), x[-1], atol=1e-12)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_a_rehearsal_draws_the_noise_of_the_run(law: str) -> None:
    """Gradient 0 (a clip of nearly nothing), one round: x_1 is -gamma times the noise."""
    config = run(clip_l2=1e-12)
    noise = model.NoiseStream("constant", (1.0, 2.0, 3.0))
    config = replace(
        config,
        algorithm=model.Algorithm(0, mechanism="noise-once"),
        noise=model.Noise(noise, noise, law=law, multiplier=1.0),  # type: ignore[arg-type]
    )
    rehearsal = Rehearsal(config, SHAPE)
    x = np.concatenate([rehearsal.final(config, seed) for seed in range(200)], axis=1)
    std = np.sqrt(2.0) if law == "laplace" else 1.0
    np.testing.assert_allclose(x.std(axis=1), std * np.array([1.0, 2.0, 3.0]), rtol=0.05)


def test_public_data_stand_in() -> None:
    public = synthetic(16, 3, 5000, 300, seed=7)
    rehearsal = Rehearsal(run(), SHAPE, public)
    assert rehearsal.dimension == 3 * 17
    with pytest.raises(ConfigError, match="--public: has 16 numbers a sample"):
        Rehearsal(run(), replace(SHAPE, p=9), public)
    with pytest.raises(ConfigError, match="--public: has 3 classes"):
        Rehearsal(run(), replace(SHAPE, classes=4), public)


def test_the_table_is_bilinear_and_knows_the_early_regime() -> None:
    table = Table(np.array([1.0, 10.0]), np.array([0.1, 1.0]), np.array([[0.4, 0.2], [0.8, 0.6]]))

    def at(time: float, rate: float) -> float:
        return float(table(np.array([time]), np.array([rate * np.sqrt(time)]))[0])

    assert at(1.0, 0.1) == pytest.approx(0.4) and at(10.0, 1.0) == pytest.approx(0.6)
    assert at(np.sqrt(10.0), np.sqrt(0.1)) == pytest.approx(0.5)
    assert at(1000.0, 0.1) == pytest.approx(0.8) and at(1.0, 99.0) == pytest.approx(0.2)
    # Before the first time only noise over time counts.
    assert float(table(np.array([0.01]), np.array([0.01 * 0.1]))[0]) == pytest.approx(0.4)


def test_one_step_is_one_over_the_curvature() -> None:
    rehearsal = Rehearsal(run(clip_l2=100.0), SHAPE)
    phi = np.hstack([rehearsal._pooled._x, np.full((rehearsal._pooled.samples, 1), 0.2)])
    largest = np.linalg.eigvalsh(phi.T @ phi / len(phi))[-1] / 3  # softmax of 3 equal classes: (I - 1/3)/3
    assert rehearsal.one_step == pytest.approx(1.0 / largest, rel=0.02)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "ROUNDS", (3, 8, 20))
    monkeypatch.setattr(planning, "STEPS", (0.25, 0.75))
    monkeypatch.setattr(planning, "_COARSE_ROUNDS", (3, 8))
    monkeypatch.setattr(planning, "_COARSE_STEPS", (0.5,))


@pytest.mark.parametrize(
    ("privacy", "target"),
    [
        ({"clip_l2": 1.0}, Target(2.0)),
        ({"clip_l1": 2.0}, Target(5.0, 0.0)),
        ({"clip_l1": 2.0}, Target(5.0, 1e-6, "zcdp", "published-point")),
        ({"clip_l1": 2.0}, Target(5.0, None, None, "paper")),
        ({"C": 4.0}, Target(5.0, 0.0, None, "public-state")),
    ],
)
@pytest.mark.usefixtures("small")
def test_a_plan_keeps_its_promise(privacy: dict[str, float], target: Target) -> None:
    planner = Planner(run(**privacy), SHAPE)
    found = planner.plan(target, rehearsals=3)
    costs = found.epsilon[found.route.accountant]
    assert all(cost is not None and target.epsilon * (1 - 1e-6) <= cost <= target.epsilon for cost in costs)
    more = replace(found.run, algorithm=replace(found.run.algorithm, iterations=found.run.K + 1))
    assert not any(within(account.total(found.route.accountant), target.epsilon) for account in planner.accounts(more))
    assert 0.2 <= found.outcome.worst <= found.outcome.mean <= 1.0 and found.rehearsed <= 3
    assert found.run.scheme.samples == "full" and found.run.algorithm.mechanism == found.route.mechanism
    assert found.run.graph == run().graph and found.run.data == run().data


@pytest.mark.usefixtures("small")
def test_equal_questions_get_equal_plans(planner: Planner) -> None:
    one, two = planner.plan(Target(2.0), 4), Planner(run(), SHAPE).plan(Target(2.0), 4)
    assert one.run == two.run and one.outcome == two.outcome


@pytest.mark.usefixtures("small")
def test_more_epsilon_predicts_more_accuracy(planner: Planner) -> None:
    low, high = planner.plan(Target(0.02), 4), planner.plan(Target(5.0), 4)
    assert low.outcome.mean + 0.1 < high.outcome.mean
    assert high.outcome.worst > 0.65  # three classes, three values of K


@pytest.mark.usefixtures("small")
def test_a_clip_far_above_every_gradient_is_lowered_when_allowed(planner: Planner) -> None:
    """Clip 20 for gradients of norm 1.4 at most: twenty times too much noise."""
    target = Target(2.0)
    kept = Planner(run(clip_l2=20.0), SHAPE).plan(target, 12)
    tuned = Planner(run(clip_l2=20.0), SHAPE, tune_clip=True).plan(target, 12)
    assert kept.run.privacy.clip_l2 == 20.0
    assert tuned.run.privacy.clip_l2 is not None and tuned.run.privacy.clip_l2 < 15.0
    assert tuned.outcome.score > kept.outcome.score
    costs = tuned.epsilon["gdp"]
    assert all(cost is not None and 2.0 * (1 - 1e-6) <= cost <= 2.0 for cost in costs)


def test_another_method_is_not_planned() -> None:
    for method, mechanism in (("atc-dsgd", "noise-once"), ("s-ab", "paper")):
        other = replace(run(), algorithm=model.Algorithm(5, method, mechanism))
        with pytest.raises(ConfigError, match=rf"Algorithm 1 \(dpgt\), not of {method}"):
            Planner(other, SHAPE)


def test_a_rehearsal_clips_each_release_as_the_run_does() -> None:
    """Without noise: class sums first, then gradients under their own clip; nothing in rounds that release nothing."""
    once = replace(run(clip_l2=1.0), algorithm=model.Algorithm(5, mechanism="noise-once"))
    scheme = replace(once.scheme, releases=(0, 3), settle=1, first="class-sums", first_scale=0.5)
    config = replace(once, scheme=scheme, privacy=replace(once.privacy, by_release=(2.0, 0.1)))
    rehearsal = Rehearsal(config, SHAPE)
    A = np.eye(3) - 0.3 * (np.diag(np.sum(RING, 1)) - np.array(RING))
    B = np.eye(3) - 0.2 * (np.diag(np.sum(CHORD, 0)) - np.array(CHORD))
    x, y, held = np.zeros((3, rehearsal.dimension)), np.zeros((3, rehearsal.dimension)), 0.0
    for k in range(6):
        if k in (0, 3):
            new = rehearsal.gradients(x, Clip(2, 0.1)) if k else 0.5 * rehearsal.class_sums(Clip(2, 2.0))
            y, held = y + new - held, new
        x, y = A @ x - (y if k < 5 else 0.0), B @ y
    np.testing.assert_allclose(rehearsal.final(config, 0), x, atol=1e-12)


@pytest.mark.usefixtures("small")
def test_too_much_epsilon_is_refused_with_the_nearest(planner: Planner) -> None:
    with pytest.raises(ConfigError, match=r"needs so little noise .*; \S+ is possible"):
        planner.plan(Target(1e12), 2)


def test_a_graph_nobody_can_learn_over_is_refused() -> None:
    config = run()
    broken = replace(config, graph=replace(config.graph, R=((0.0,) * 3,) * 3))
    with pytest.raises(ConfigError, match=r"graph\.R"):
        Planner(broken, SHAPE)


def test_the_predictor_ranks_as_rehearsals_do(planner: Planner) -> None:
    """Spearman correlation over a spread of candidates."""
    target = Target(1.0)
    way = route(run(), target)
    candidates = planner._predict(list(planner._candidates(way, target)))[::180]
    rehearsed = []
    for c in candidates:
        steps = Planner._with_steps(way.apply(run()), c.K, c.alpha, c.beta, c.gamma)
        ready = calibrate(steps, way.accountant, target.epsilon, planner.accounts, tolerance=1e-3)
        rehearsed.append(Outcome.of([planner.rehearsal.accuracies(ready, seed) for seed in (1, 2)]).worst)
    ranks = [np.argsort(np.argsort(values)) for values in ([c.predicted for c in candidates], rehearsed)]
    assert np.corrcoef(*ranks)[0, 1] > 0.5
    assert np.mean(rehearsed[:3]) > np.mean(rehearsed) + 0.05  # and it is the best ones that count
