"""The frame of a model whose data are on its owners' hosts alone: d and the run file say it all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.config.model import Data, Model, RunConfig
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.arrays import Dataset
from dpgt_node.learning.published import Frame, frame_of, judge, predicted, write_model
from dpgt_node.learning.temperature import best_temperature, losses
from tests.learning.cases import run

ABSENT = "csv:nobody.csv"
NAMED = {"label": "y", "classes": ("a", "b", "c")}


@pytest.mark.parametrize(
    ("features", "normalise", "bias", "size", "numbers"),
    [
        ("raw", "none", 1.0, 3 * (5 + 1), 5),
        ("raw", "sphere", 0.2, 3 * (5 + 1 + 1), 5),
        ("raw", "l2", 0.0, 3 * 5, 5),
        ("hog", "none", 1.0, 3 * (392 + 1), 784),
        ("hog", "none", 1.0, 3 * 392, None),
        ("mine:features", "none", 1.0, 3 * 6, None),
        ("raw", "none", 1.0, 3 * 6 + 1, None),
        ("raw", "sphere", 1.0, 3 * 2, None),
    ],
)
def test_it_follows_from_the_number_of_parameters(
    features: str, normalise: str, bias: float, size: int, numbers: int | None
) -> None:
    data = Data(ABSENT, features=features, normalise=normalise, params=NAMED)  # type: ignore[arg-type]
    given = replace(run(ABSENT), data=data, model=Model(bias=bias))
    if numbers is None:
        with pytest.raises(ConfigError, match="the run's data are not here: give an agent's own file"):
            frame_of(given, None, None, size)
        return
    assert frame_of(given, None, None, size) == Frame((numbers,), 3, ("a", "b", "c"))
    unstated = replace(given, data=replace(data, params={"label": "y"}))
    with pytest.raises(ConfigError, match="not here"):
        frame_of(unstated, None, None, size)


def corners(*names: str, labels: tuple[int, ...] = (0, 1, 2)) -> Dataset:
    """Three samples of each part, the unit vectors, of classes ``labels``; only the test part is told apart."""
    x = np.eye(3)
    return Dataset(x[::-1].copy(), np.array(labels), x, np.array(labels), 3, names=names)


def model(folder: Path, *names: str) -> RunConfig:
    """In ``folder``: one whose class c is that of the unit vector c."""
    given = replace(run(ABSENT), data=Data(ABSENT, params=NAMED), model=Model(bias=1.0))
    write_model(folder, given, Frame((3,), 3, names), np.concatenate([9.0 * np.eye(3).ravel(), np.zeros(3)]), {})
    return given


def test_a_class_of_the_data_is_the_model_s_of_the_same_name(tmp_path: Path) -> None:
    given = model(tmp_path, "a", "b", "c")
    for data, accuracy in (
        (corners("a", "b", "c"), 1.0),
        (corners("c", "a", "b", labels=(1, 2, 0)), 1.0),
        (corners("c", "a", "b"), 0.0),
        (corners(labels=(0, 1, 2)), 1.0),
        (corners(labels=(0, 2, 2)), 2 / 3),
    ):
        assert judge(tmp_path, given, data, "test").accuracy == pytest.approx(accuracy)
    assert judge(tmp_path, given, corners("a", "b", "c"), "train").accuracy == pytest.approx(1 / 3)
    with pytest.raises(ConfigError, match="has a class 'd', the model's 3 classes are a, b, c"):
        judge(tmp_path, given, corners("a", "b", "d"), "test")
    with pytest.raises(ConfigError, match="has label 3, the model 3 classes"):
        judge(tmp_path, given, corners(labels=(0, 1, 3)), "test")


def test_samples_beyond_the_first_thousand_count_like_the_others(tmp_path: Path) -> None:
    given, count = model(tmp_path), 1025
    at = np.arange(count) % 3
    labels, chances, _ = predicted(tmp_path, given, np.eye(3)[at])
    assert labels.tolist() == at.tolist() and chances.shape == (count, 3)
    y = np.where(np.arange(2048) < 1024, np.arange(2048) % 3, (np.arange(2048) + 1) % 3)  # the second half is wrong
    x = np.eye(3)[np.arange(2048) % 3]
    score = judge(tmp_path, given, Dataset(x[:3], y[:3], x, y, 3), "test")
    T = best_temperature([9.0 * x], y)
    assert (score.samples, score.accuracy, score.temperature) == (2048, 0.5, pytest.approx(T, rel=1e-9)) and T > 9.0
    assert score.loss_then == pytest.approx(losses(9.0 * x / T, y).mean())


def test_classes_without_names_are_their_numbers(tmp_path: Path) -> None:
    given = model(tmp_path)
    assert judge(tmp_path, given, corners("2", "0", "1", labels=(1, 2, 0)), "test").accuracy == 1.0
    assert judge(tmp_path, given, corners("x", "y", "z"), "test").accuracy == 1.0, "in their order"
    labels, chances, names = predicted(tmp_path, given, np.eye(3)[[2, 0]])
    assert labels.tolist() == [2, 0] and names == ("0", "1", "2") and chances.sum() == pytest.approx(2.0)
