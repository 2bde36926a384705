"""Rehearsals: the very mechanism, on data that are nobody's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpgt_node.config import model
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.arrays import Dataset
from dpgt_node.learning.data.synthetic import synthetic
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.sim.plans.rehearsal import Outcome, Rehearsal, Shape, Table
from tests.oracles import mechanisms
from tests.sim.plans.cases import CHORD, RING, SHAPE, run


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


def test_stand_in_samples_are_shared_as_the_agents_hold_theirs() -> None:
    """Each has its own number up to an equal part; where public data are too few, all get the same part of that."""

    def sizes(public: Dataset | None = None, **options: int) -> list[int]:
        made = Rehearsal(run(), Shape(16, 3, (60, 300, 500)), public, **options)
        assert sorted(np.concatenate(made._shards).tolist()) == list(range(len(made._data.y_train)))
        return [len(shard) for shard in made._shards]

    assert sizes() == [60, 300, 500] and sizes(together=300) == [60, 100, 100] and sizes(together=9) == [50] * 3
    rng = np.random.default_rng(0)
    few = Dataset(rng.random((130, 16)), np.arange(130) % 3, rng.random((9, 16)), np.arange(9) % 3, 3)
    assert sizes(few, together=300) == [30, 50, 50]


def test_an_outcome_is_the_mean_and_the_worst_agent_of_each_draw() -> None:
    found = Outcome.of([np.array([0.9, 0.5]), np.array([0.6, 0.8])])
    assert (found.mean, found.worst, found.score) == pytest.approx((0.7, 0.55, 0.625))
