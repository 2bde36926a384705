from __future__ import annotations

import numpy as np

from dpgt_node.learning.data.shapes import shapes


def test_equal_arguments_give_equal_pictures():
    first = shapes(300, 28, seed=5)
    assert first.shape == (300, 784) and first.dtype == np.float64
    np.testing.assert_array_equal(first, shapes(300, 28, seed=5))
    assert (first != shapes(300, 28, seed=6)).any()
    assert shapes(1, 16, seed=0).shape == (1, 256)


def test_pictures_are_things_on_black_that_fill_the_frame():
    drawn = shapes(400, 28, seed=1)
    assert drawn.min() >= 0.0 and drawn.max() <= 1.0
    lit = drawn.reshape(-1, 28, 28) > 0.0
    sides = []
    for along in (1, 2):
        found = lit.any(axis=along)
        first, last = found.argmax(axis=1), 27 - found[:, ::-1].argmax(axis=1)
        assert (np.abs(first + last - 27) <= 6).all()  # in the middle
        sides.append(last - first + 1)
    assert (np.maximum(*sides) >= 20).all()
    assert 0.1 < lit.mean() < 0.7
    assert all(len(np.unique(picture)) > 20 for picture in drawn)  # shaded


def test_half_of_the_outlines_are_their_own_mirror_images():
    lit = shapes(400, 28, seed=2).reshape(-1, 28, 28) > 0.0
    mirrored = (lit == lit[:, :, ::-1]).all(axis=(1, 2)).mean()
    assert 0.4 < mirrored < 0.65
    assert (lit == lit[:, ::-1]).all(axis=(1, 2)).mean() < 0.2
