"""Staying alone against an exchange, on data that are nobody's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpgt_node.config.model import Model, Noise, NoiseStream, Privacy, SchemeS2
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.datasets import Dataset
from dpgt_node.learning.data.synthetic import synthetic
from dpgt_node.sim.plans.alike import Alike
from dpgt_node.sim.plans.rehearsal import Outcome, Rehearsal, Shape
from dpgt_node.sim.plans.staying import Ground, Staying, alone
from tests.learning.cases import run

SHAPE = Shape(64, 4, (200, 200, 200))
TWO = Alike.stated("by-label:2")


def private(scale: float):
    made = run("npz:nobody.npz", K=60, samples="full", privacy=Privacy(clip_l2=1.0))
    made = replace(made, algorithm=replace(made.algorithm, mechanism="noise-once"))
    made = replace(made, scheme=SchemeS2(alpha=0.4, beta=0.4, gamma=1.0, p_m=1.0, samples="full"))
    return replace(made, noise=Noise(None, NoiseStream("constant", (scale,) * 3), law="gaussian"))


def test_two_classes_an_agent_pay_and_all_classes_under_noise_do_not():
    ground = Ground(private(1e-4), SHAPE, TWO)
    pays = ground.compare(private(1e-4))
    assert pays.alone < 0.6 < 0.8 < pays.exchange.worst and not pays.better
    noisy = Ground(private(1e-4), SHAPE, Alike()).compare(private(10.0))
    assert noisy.better and noisy.alone > 0.8 > noisy.exchange.worst


def test_the_temperature_is_of_the_first_agent_s_model_on_the_stand_in_samples_and_never_sharpens():
    ground, run = Ground(private(1e-4), SHAPE, Alike()), private(1.0)
    found = ground.compare(run).temperature
    logits = [ground._rehearsal._logits(ground._rehearsal.final(run, seed)[0]) for seed in (21, 22, 23)]
    y = ground._rehearsal._data.y_test

    def loss(T):
        return np.mean(
            [-np.log(np.exp(z / T) / np.exp(z / T).sum(axis=1, keepdims=True))[range(len(y)), y] for z in logits]
        )

    grid = np.geomspace(0.9, 1.1, 41) * found
    assert found > 1.0 and abs(np.argmin([loss(T) for T in grid]) - 20) <= 1
    assert ground.compare(private(1e-4)).temperature == 1.0, "few steps without noise: not sure enough"


def test_words():
    found = Staying(0.978, Outcome(0.97, 0.9749), Alike(), 12_000, "synthetic data", 1.0)
    assert found.words == (
        "12,000 samples an agent, all classes: training alone costs no privacy and is expected to reach 97.8 %; this "
        "run 97.5 % (worst agents, on synthetic data). By this forecast, on synthetic data and no row of the agents, "
        "staying alone is better."
    )
    pays = replace(found, alone=0.187, alike=TWO)
    assert "divided like by-label (2)" in pays.words and not pays.better and "better" not in pays.words
    assert replace(found, exchange=Outcome(0.99, 0.97)).better, "the worst agent's view"
    assert replace(found, alone=0.9749).better, "an exchange that gains nothing is not worth its cost"


def test_more_samples_alone_are_worth_more():
    few, many = (alone(private(1.0), replace(SHAPE, samples=(D,) * 3), Alike()) for D in (8, 800))
    assert many > few + 0.05


def test_the_smallest_agent_counts():
    assert alone(private(1.0), Shape(64, 4, (800, 8, 800)), Alike()) == alone(
        private(1.0), Shape(64, 4, (8,) * 3), Alike()
    )


def test_the_worst_of_those_that_differ_counts():
    class OneIsPoor(Alike):
        def mixtures(self, classes, samples):
            return [np.full(4, 50), np.array([200, 0, 0, 0]), np.full(4, 50)]

    assert alone(private(1.0), SHAPE, OneIsPoor("by-label")) < 0.4


def test_public_data_stand_in_by_their_classes():
    data = synthetic(64, 4, 900, 300, seed=5)
    one_sided = alone(private(1.0), SHAPE, TWO, data)
    assert one_sided < 0.6 < alone(private(1.0), SHAPE, Alike(), data)
    scarce = Dataset(data.x_train[:40], data.y_train[:40], data.x_test, data.y_test, 4)
    assert 0.0 <= alone(private(1.0), SHAPE, TWO, scarce) <= 1.0


def test_synthetic_classes_are_the_same_whatever_the_labels():
    """Labels of one side, the same strokes: a model of all classes knows them."""
    for p in (64, 256):
        labels = np.repeat([0, 2], 150)
        some = synthetic(p, 4, 300, 200, labels=labels)
        np.testing.assert_array_equal(some.y_train, labels)
        whole = synthetic(p, 4, 300, 200)
        means = np.stack([whole.x_train[whole.y_train == c].mean(axis=0) for c in range(4)])
        distance = ((some.x_train[:, None] - means) ** 2).sum(axis=2)
        assert (distance.argmin(axis=1) == labels).mean() > 0.8
        np.testing.assert_array_equal(some.y_test, whole.y_test)


def test_a_rehearsal_divides_its_samples_as_stated():
    rehearsal = Rehearsal(private(1.0), SHAPE, alike=TWO)
    held = [set(rehearsal._data.y_train[shard].tolist()) for shard in rehearsal._shards]
    assert held == [{0, 1}, {2, 3}, {0, 1}] and rehearsal._batches[0].size == rehearsal._shards[0].size
    by_file = Rehearsal(
        replace(private(1.0), data=replace(private(1.0).data, partition="by-label", params=TWO.params)), SHAPE
    )
    assert [s.tolist() for s in by_file._shards] == [s.tolist() for s in rehearsal._shards]


def test_other_models_are_refused():
    with pytest.raises(ConfigError, match="only softmax"):
        Ground(replace(private(1.0), model=Model(name="mlp")), SHAPE, Alike())
