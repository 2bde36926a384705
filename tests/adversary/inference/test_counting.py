"""Counts of labels from clipped, noisy gradients of the output bias, against plain sums over samples."""

from __future__ import annotations

import numpy as np
import pytest

from dpgt_node.adversary.inference import counting
from dpgt_node.adversary.inference.knowledge import Samples, Softmax
from dpgt_node.adversary.membership.matched import AS_IT_IS, Clipping
from dpgt_node.learning.data.datasets import load_dataset
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.learning.nets.models import SoftmaxOracle

DIGITS = load_dataset("digits")
MODEL = Softmax(10, 64, 1.0)
PUBLIC = Samples(DIGITS.real_test(slice(None)), DIGITS.y_test, 10)


def clipping(clip: Clip | None) -> Clipping:
    return AS_IT_IS if clip is None else Clipping(clip, lambda _: 1.0)


def answers(x: np.ndarray, clip: Clip | None = None) -> counting.Responses:
    return counting.responses(MODEL, x, PUBLIC, lambda e, phi: clipping(clip).clipped(0, MODEL, e, phi))


def point(scale: float) -> np.ndarray:
    return scale * np.random.default_rng(1).standard_normal(650)


@pytest.mark.parametrize("clip", [None, Clip(1, 8.0), Clip(2, 1.5)])
@pytest.mark.parametrize("scale", [0.0, 0.1])
def test_responses_are_means_over_single_gradients(clip: Clip | None, scale: float) -> None:
    """Of each sample by itself, clipped as a whole vector."""
    x = point(scale)
    found = answers(x, clip)
    rows = np.flatnonzero(PUBLIC.labels == 3)
    single = []
    for g in MODEL.gradients(x, PUBLIC.phi[rows], PUBLIC.labels[rows]):
        norm = np.abs(g).sum() if clip is not None and clip.order == 1 else np.sqrt(g @ g)
        single.append(g[640:] * (1.0 if clip is None else min(1.0, clip.bound / norm)))
    np.testing.assert_allclose(found.mean[3], np.mean(single, axis=0), atol=1e-6)
    np.testing.assert_allclose(found.spread(np.eye(10)[3]), np.cov(np.array(single).T, bias=True), atol=1e-6)


def test_shares_are_solved_for_and_rounded() -> None:
    answer = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]) - np.eye(3)
    pi = np.array([0.2, 0.5, 0.3])
    np.testing.assert_allclose(counting.shares(pi @ answer, answer), pi, atol=1e-6)
    assert counting.shares(np.array([0.9, -0.9, 0.0]), answer)[1] == pytest.approx(1.0)  # nearest within the simplex
    assert counting.rounded(np.array([[1.6, 1.6, 0.8]]), 4).tolist() in ([[2, 1, 1]], [[1, 2, 1]])


def batches(m: int, x: np.ndarray, clip: Clip | None, b: float, count: int = 300, classes: int = 10):
    """(gradient of the bias, true counts) of random batches, the gradient by the agents' own code."""
    rng, oracle = np.random.default_rng(2), SoftmaxOracle(DIGITS, None, bias=1.0, clip=clip)
    rows = np.flatnonzero(DIGITS.y_train < classes)
    for _ in range(count):
        batch = rng.choice(rows, m, replace=False)
        g = oracle.gradient(x, batch)[640:]
        yield g + rng.laplace(0.0, b, 10), np.bincount(DIGITS.y_train[batch], minlength=10)


@pytest.mark.parametrize(("clip", "scale", "b"), [(Clip(2, 1.0), 0.0, 0.0), (Clip(1, 6.0), 0.1, 3e-4),
                                                  (Clip(2, 0.5), 0.1, 3e-4), (None, 0.1, 2e-3)])  # fmt: skip
def test_errors_of_counts_are_as_predicted(clip: Clip | None, scale: float, b: float) -> None:
    m, x = 20, point(scale)
    known, errors, said, right, forecast = answers(x, clip), [], [], [], []
    rng = np.random.default_rng(3)
    tangent = np.linalg.svd(np.ones((1, 10)))[2][1:].T
    for gap, true in batches(m, x, clip, b):
        free = tangent @ np.linalg.lstsq(known.mean.T @ tangent, gap - known.mean.mean(axis=0), rcond=None)[0] + 0.1
        errors.append(np.mean((m * free - true) ** 2))
        said.append(m * m * np.trace(counting.covariance(known, true / m, m, 2 * b * b)) / 10)
        found = counting.shares(gap, known.mean, 2 * b * b)
        right.append(np.minimum(counting.rounded(m * found[None], m)[0], true).sum() / m)
        forecast.append(counting.expected_right(known, found, m, 2 * b * b, rng, draws=4))
    # Batches are drawn from training samples and the responses are of test samples, which differ a little.
    assert np.mean(errors) == pytest.approx(np.mean(said), rel=0.35)
    assert np.mean(right) == pytest.approx(np.mean(forecast), abs=0.05)


def test_a_clip_that_is_not_looked_at_shifts_the_counts() -> None:
    """Exactly as much as it scales: the mutant that the responses guard against."""
    x, clip = point(0.0), Clip(2, 1.0)
    with_it, without = answers(x, clip), answers(x)
    better = [
        [np.abs(20 * counting.shares(gap, r.mean) - true).sum() for r in (with_it, without)]
        for gap, true in batches(20, x, clip, 0.0, count=50)
    ]
    knows, does_not = np.mean(better, axis=0)
    assert knows < 0.4 * does_not


def test_without_public_samples_a_missing_class_tells_the_scale() -> None:
    for gap, true in batches(6, point(0.0), Clip(2, 0.2), 0.0, count=50, classes=8):
        found = counting.rounded(6 * counting.shares_up_to_scale(gap)[None], 6)[0]
        assert np.abs(found - true).sum() <= 2  # classes' mean sizes differ by some per cent


def test_one_sample_under_noise_is_right_as_often_as_predicted() -> None:
    x, b, rng = point(0.1), 0.25, np.random.default_rng(4)
    known, right, forecast = answers(x), [], []
    for gap, true in batches(1, x, None, b):
        right.append(true[gap.argmin()])
        forecast.append(counting.expected_right(known, true.astype(float), 1, 2 * b * b, rng))
    assert 0.3 < np.mean(right) < 0.98 and np.mean(right) == pytest.approx(np.mean(forecast), abs=0.08)


def test_drowned_counts_are_no_worse_than_equal_shares() -> None:
    x, clip = point(0.0), Clip(2, 0.5)
    known, found, equal = answers(x, clip), [], []
    for gap, true in batches(20, x, clip, 1.0, count=60):
        found.append(np.minimum(counting.counted(gap, known, 20, 2.0), true).sum())
        equal.append(np.minimum(2, true).sum())
    assert np.mean(found) > 0.95 * np.mean(equal)
