"""A temperature makes chances worth more and changes no class."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpgt_node.learning.temperature import best_temperature, chances, losses


def dumb(logits: np.ndarray, labels: np.ndarray, T: float = 1.0) -> float:
    total = 0.0
    for row, label in zip(logits / T, labels, strict=True):
        total -= math.log(math.exp(row[label]) / sum(map(math.exp, row)))
    return total / len(labels)


def test_losses_and_chances_are_those_of_softmax_also_far_from_zero() -> None:
    rng = np.random.default_rng(0)
    logits, labels = 3.0 * rng.standard_normal((40, 4)), rng.integers(4, size=40)
    assert losses(logits, labels).mean() == pytest.approx(dumb(logits, labels))
    assert chances(logits)[3, 2] == pytest.approx(math.exp(logits[3, 2]) / np.exp(logits[3]).sum())
    np.testing.assert_allclose(losses(logits + 5e3, labels), losses(logits, labels), rtol=1e-9)


@pytest.mark.parametrize("size", [0.02, 1.0, 40.0])
def test_the_best_temperature_has_the_least_loss_of_a_fine_grid(size: float) -> None:
    """Labels drawn from the chances at scale 1, so logits of another size want that size back."""
    rng = np.random.default_rng(1)
    true = 1.5 * rng.standard_normal((400, 3))
    labels = np.array([rng.choice(3, p=row) for row in chances(true)])
    found = best_temperature([size * true, 1.1 * size * true], labels)
    grid = found * np.geomspace(0.5, 2.0, 201)
    loss = [dumb(size * true, labels, T) + dumb(1.1 * size * true, labels, T) for T in grid]
    assert abs(int(np.argmin(loss)) - 100) <= 1
    assert 0.5 * size < found < 2.0 * size


def test_what_is_always_right_or_always_wrong_ends_at_the_edge() -> None:
    logits, labels = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([0, 1])
    assert best_temperature([logits], labels) < 0.1
    assert best_temperature([logits], 1 - labels) == pytest.approx(1e3, rel=1e-6)
