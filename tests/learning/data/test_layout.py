"""How arrays hold pictures: what can be meant is taken, what can hardly be meant is refused with the way out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.datasets import load_dataset
from dpgt_node.learning.data.pictures.layout import FIRST, LAST, Unlike, arranged, divisor, looks

RNG = np.random.default_rng(1)


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        ((3, 32, 32), FIRST),
        ((1, 2, 2), FIRST),
        ((64, 3, 3), FIRST),
        ((12, 32, 32), FIRST),
        ((32, 32, 3), LAST),
        ((28, 28, 1), LAST),
        ((8, 8, 6), LAST),
        ((32, 24, 4), LAST),
        ((2, 8, 4), None),
        ((8, 3, 2), None),
        ((6, 8, 9), None),
    ],
)
def test_what_an_array_looks_like(shape: tuple[int, int, int], found: str | None) -> None:
    assert looks(shape) == found


def saved(folder: Path, x: np.ndarray) -> str:
    np.savez(folder / "d.npz", x_train=x, y_train=np.arange(len(x)) % 3, x_test=x[:6], y_test=np.arange(6) % 3)
    return f"npz:{folder / 'd.npz'}"


def test_channels_last_are_read_where_they_are_stated_and_refused_where_not(tmp_path: Path) -> None:
    x = RNG.random((9, 7, 6, 3))
    name = saved(tmp_path, x)
    with pytest.raises(
        ConfigError, match=r'x_test: .*transpose\(0, 3, 1, 2\), or state layout = "channels-last" under'
    ):
        load_dataset(name)
    data = load_dataset(name, params={"layout": "channels-last"})
    assert data.image == (3, 7, 6)
    for i, row in enumerate(data.x_train):
        assert [row[c * 42 + r * 6 + k] for c, r, k in ((0, 0, 0), (2, 6, 5), (1, 3, 4))] == [
            x[i, 0, 0, 0],
            x[i, 6, 5, 2],
            x[i, 3, 4, 1],
        ]
    assert load_dataset(name, params={"layout": "channels-first"}).image == (7, 6, 3), "whoever means it"


def test_grey_pictures_need_no_channel_and_what_could_be_either_is_said(tmp_path: Path) -> None:
    data = load_dataset(saved(tmp_path, RNG.random((9, 7, 6))))
    assert data.image == (1, 7, 6) and data.remarks == ("samples of shape 7 x 6 are taken as grey pictures",)
    data = load_dataset(saved(tmp_path, RNG.random((9, 2, 7, 4))))
    (remark,) = data.remarks
    assert data.image == (2, 7, 4) and "are taken as 2 channels of 7 x 4 pixels; where channels come last" in remark


def test_a_model_of_pictures_takes_them_in_every_shape_that_can_be_meant() -> None:
    x = RNG.random((5, 3, 7, 6))
    flat = x.reshape(5, -1)
    for given in (x, np.moveaxis(x, 1, 3), flat):
        np.testing.assert_array_equal(arranged(given, (3, 7, 6), None), flat)
    for given in (x[0], np.moveaxis(x[0], 0, 2)):
        np.testing.assert_array_equal(arranged(given, (3, 7, 6), None), flat[:1])
    grey = x[:, :1]
    for given in (grey, grey[:, 0], np.moveaxis(grey, 1, 3)):
        np.testing.assert_array_equal(arranged(given, (1, 7, 6), None), grey.reshape(5, -1))
    np.testing.assert_array_equal(arranged(grey[2, 0], (1, 7, 6), None), grey[2].reshape(1, -1))
    cube = RNG.random((2, 3, 3, 3))
    np.testing.assert_array_equal(arranged(cube, (3, 3, 3), None), cube.reshape(2, -1))
    np.testing.assert_array_equal(arranged(cube, (3, 3, 3), LAST), cube.transpose(0, 3, 1, 2).reshape(2, -1))


@pytest.mark.parametrize(
    ("given", "shape", "words"),
    [
        ((5, 8, 8, 3), (3, 7, 6), r"\(N, 3, 7, 6\), \(N, 7, 6, 3\) or \(N, 126\)"),
        ((5, 6, 7), (1, 7, 6), r"\(N, 1, 7, 6\), \(N, 7, 6\), \(N, 7, 6, 1\) or \(N, 42\)"),
        ((5, 7, 6, 3), (126,), r"rows of 126 numbers: use x.reshape\(len\(x\), -1\)"),
        ((5, 7), (126,), r"rows of 126 numbers: \(N, 126\)"),
    ],
)
def test_what_is_no_picture_of_the_model_s_is_refused(
    given: tuple[int, ...], shape: tuple[int, ...], words: str
) -> None:
    with pytest.raises(Unlike, match=words):
        arranged(np.zeros(given), shape, None)


def test_bytes_are_divided_and_other_numbers_must_be_there_already() -> None:
    assert divisor(np.array([0, 9], np.uint8)) == 255.0 and divisor(np.zeros(3, np.uint8)) == 255.0
    assert divisor(np.array([0.0, 1.0])) == 1.0 and divisor(np.array([0, 1])) == 1.0
    for bad, words in ((np.array([0, 255.0]), "from 0 to 255"), (np.array([-1, 1]), "from -1 to 1")):
        with pytest.raises(Unlike, match=words):
            divisor(bad)
    with pytest.raises(Unlike, match="the bytes 0 and 1"):
        divisor(np.array([0, 1], np.uint8))
