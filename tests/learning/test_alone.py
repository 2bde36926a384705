"""What an agent reaches alone: chosen by its own samples, judged by the test set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpgt_node.config.model import Evaluation, Model, Privacy
from dpgt_node.learning import alone as module
from dpgt_node.learning.alone import alone, fitted
from dpgt_node.learning.common import Metrics
from dpgt_node.learning.nets.models import SoftmaxOracle
from tests.learning.cases import blobs, run, save

MODEL = Model(bias=0.5)


def test_it_is_the_minimiser_for_one_of_the_penalties():
    data = blobs(200, spread=2.0)
    x, oracle = fitted(data, MODEL), SoftmaxOracle(data, None, bias=0.5)
    _, gradient = oracle.loss_and_gradient(x)
    penalty = -float(gradient @ x) / float(x @ x)
    found = penalty / oracle.mean_square
    (chosen,) = [each for each in module._PENALTIES if abs(found / each - 1.0) < 0.05]
    rest = gradient + chosen * oracle.mean_square * x
    assert np.abs(rest).max() < 1e-4 * oracle.mean_square**0.5


def test_samples_kept_back_choose_and_are_then_fitted_too(monkeypatch):
    """Labels that are noise: a fifth kept back asks for a large penalty; a choice by all would ask for the least."""
    data = blobs(40, features=30)
    noise = replace(data, y_train=np.random.default_rng(3).integers(3, size=40))
    penalties: list[tuple[int, float]] = []
    real = module._minimiser

    def watched(oracle, penalty, start):
        penalties.append((oracle.samples, penalty / oracle.mean_square))
        return real(oracle, penalty, start)

    monkeypatch.setattr(
        module, "_minimiser", lambda o, p, s: penalties.append((o.samples, p / o.mean_square)) or real(o, p, s)
    )
    fitted(noise, MODEL)
    assert penalties[-1][0] == 40 and {samples for samples, _ in penalties[:-1]} == {32}
    assert penalties[-1][1] >= 10**-3.1 and len(penalties) < 8


def test_test_samples_choose_nothing():
    data = blobs(60, spread=2.0)
    other = replace(data, x_test=-data.x_test, y_test=(data.y_test + 1) % 3)
    assert fitted(data, MODEL).tobytes() == fitted(other, MODEL).tobytes()


@pytest.mark.parametrize("samples", [1, 2, 4, 5, 6])
def test_few_samples_and_a_single_class(samples):
    data = blobs(samples)
    one = replace(data, y_train=np.zeros(samples, dtype=np.int64))
    oracle = SoftmaxOracle(one, None, bias=0.5)
    assert oracle.evaluate(fitted(one, MODEL)).accuracy_train == 1.0


def test_alone_of_a_run_ignores_clip_noise_and_the_others(tmp_path):
    made = replace(run("digits"), evaluate=Evaluation(10, "study"))
    found = alone(made, 1)
    assert found is not None and found.metrics.accuracy_test is not None and 0.9 < found.metrics.accuracy_test < 1.0
    assert (found.samples, found.tested) == (479, 359) and found.kept_back is not None and 0.8 < found.kept_back <= 1.0
    clipped = replace(made, privacy=Privacy(clip_l2=1e-3), noise=replace(made.noise, multiplier=9.0))
    assert alone(clipped, 1) == found
    assert alone(made, 0) != found
    path = save(tmp_path / "own.npz", blobs(60))
    own = replace(made, data=replace(made.data, params={"classes": 3}))
    own = replace(own, data=replace(own.data, dataset=f"npz:{path}"))
    found = alone(own, 0, data_path=path)
    assert found is not None and found.samples == 60 and found.metrics.accuracy_test is not None
    few = alone(own, 0, data_path=save(tmp_path / "few.npz", blobs(4)))
    assert few is not None and few.samples == 4 and few.kept_back is None


def test_toys_have_nobody_alone():
    assert alone(run("quadratic", dimension=3), 0) is None


class Line:
    """One number to find: ``goal``.  Its accuracy is best where x is near ``best``."""

    samples = 10

    def __init__(self, goal: float, best: float) -> None:
        self.goal, self.best, self.asked = goal, best, 0

    def initial(self):
        return np.zeros(1)

    def gradient(self, x, batch):
        self.asked += 1
        assert len(set(batch.tolist())) == len(batch) == 4
        return x - self.goal

    def evaluate(self, x, samples=None):
        return Metrics(accuracy_train=1.0 - min(1.0, abs(float(x[0]) - self.best)))


def test_torch_models_take_as_many_gradients_as_are_best_on_what_is_kept_back():
    whole, part, kept = Line(1.0, 1.0), Line(1.0, 1.0), Line(1.0, 0.05)
    choice = module._trained(whole, part, kept, 1000, 4)
    assert part.asked == 1000 and whole.asked == 50  # one step is 0.001: 50 of them are the best that was looked at
    assert abs(float(choice.x[0]) - 0.05) < 0.005 and choice.kept_back is not None and choice.kept_back > 0.99


@pytest.mark.torch
def test_a_torch_model_alone():
    made = run("digits", K=40, samples=32)
    found = alone(replace(made, model=Model(name="mlp")), 0)
    assert found is not None and found.metrics.accuracy_test is not None and found.metrics.accuracy_test > 0.3
