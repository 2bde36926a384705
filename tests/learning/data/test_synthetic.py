from __future__ import annotations

import numpy as np
import pytest

from dpgt_node.learning.data.synthetic import calibrated_on, synthetic
from dpgt_node.learning.nets.models import SoftmaxOracle


@pytest.mark.parametrize(("p", "classes"), [(784, 10), (64, 10), (13, 3), (2, 2), (16, 4), (1, 2)])
def test_the_shape_asked_for(p: int, classes: int) -> None:
    data = synthetic(p, classes, 200, 100)
    assert data.x_train.shape == (200, p) and data.x_test.shape == (100, p) and data.classes == classes
    for x in (data.x_train, data.x_test):
        assert np.isfinite(x).all() and x.min() >= 0.0 and x.max() <= 1.0
    assert set(data.y_train) == set(range(classes))


def test_equal_arguments_give_equal_data() -> None:
    one, two, other = synthetic(64, 10, 20, 5), synthetic(64, 10, 20, 5), synthetic(64, 10, 20, 5, seed=1)
    assert (one.x_train == two.x_train).all() and (one.y_test == two.y_test).all()
    assert (one.x_train != other.x_train).any()


def test_each_kind_names_the_real_data_behind_its_constants() -> None:
    assert {p for p in (2, 13, 64, 784, 3072, 1024) if "MNIST" in calibrated_on(p)} == {784, 1024}
    assert "digits" in calibrated_on(64)


@pytest.mark.parametrize(("p", "at_50", "at_150"), [(64, 0.846, 0.895), (784, 0.645, 0.771)])
def test_softmax_learns_them_as_fast_as_digits(p: int, at_50: float, at_150: float) -> None:
    """Reference: L2-normalised training digits of 8x8 and 28x28, see the module; gradient flow, bias 0.2."""
    data = synthetic(p, 10, 1000, 1000)
    for x in (data.x_train, data.x_test):
        x.setflags(write=True)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    oracle = SoftmaxOracle(data, None, bias=0.2)
    x, accuracy = oracle.initial().copy(), {}
    for step in range(1, 31):
        x -= 5.0 * oracle.gradient(x, np.arange(1000))
        accuracy[5 * step] = oracle.evaluate(x).accuracy_test
    assert accuracy[50] == pytest.approx(at_50, abs=0.1)
    assert accuracy[150] == pytest.approx(at_150, abs=0.1)


def test_a_class_of_strokes_is_one_stroke_and_no_two_samples_are_alike() -> None:
    data = synthetic(784, 4, 400, 0)
    pictures = data.x_train / np.linalg.norm(data.x_train, axis=1, keepdims=True)
    alike = pictures @ pictures.T
    same = data.y_train[:, None] == data.y_train
    apart = ~np.eye(400, dtype=bool)
    assert alike[same & apart].mean() > alike[~same].mean() + 0.1
    assert alike[apart].max() < 0.999
    # Ink in the middle, none along the border of most pictures.
    assert (data.x_train.reshape(-1, 28, 28)[:, [0, -1]].max(axis=(1, 2)) < 0.1).mean() > 0.8
