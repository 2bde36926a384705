from __future__ import annotations

import hashlib
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgt_node.learning.common import spaced
from dpgt_node.learning.data.datasets import Dataset, load_dataset
from dpgt_node.learning.nets import models
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.learning.nets.models import SoftmaxOracle
from tests.learning.cases import blobs, stream
from tests.oracles import softmax

CLIPS = [None, Clip(1, 7.0), Clip(2, 2.4), Clip(1, 1e9), Clip(2, 1e-3)]


def oracle(data: Dataset, **options) -> SoftmaxOracle:
    return SoftmaxOracle(data, None, **options)


def point(o: SoftmaxOracle, seed: int = 1, size: float = 0.7) -> np.ndarray:
    return size * np.random.default_rng(seed).standard_normal(o.dimension)


def relative_error(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.parametrize("bias", [0.0, 1.0, -0.3])
@pytest.mark.parametrize("clip", CLIPS)
def test_gradient_against_one_sample_at_a_time(clip, bias):
    data = blobs()
    o = oracle(data, bias=bias, clip=clip)
    x, batch = point(o), np.array([3, 29, 0, 17, 8, 11])
    order, bound = (clip.order, clip.bound) if clip else (None, 0.0)
    expected = softmax.gradient(x, data.x_train[batch], data.y_train[batch], 3, bias, order, bound)
    assert relative_error(o.gradient(x, batch), expected) < 1e-12
    everything = softmax.gradient(x, data.x_train, data.y_train, 3, bias, order, bound)
    assert relative_error(o.gradient(x, np.arange(30)), everything) < 1e-12


def test_the_cases_above_clip_some_samples_and_not_others():
    data = blobs()
    o = oracle(data)
    samples = [
        softmax.sample_gradient(point(o), *pair, 3, 1.0) for pair in zip(data.x_train, data.y_train, strict=True)
    ]
    for clip in CLIPS[1:3]:
        assert 0 < sum(np.linalg.norm(g, clip.order) > clip.bound for g in samples) < 30


def test_a_hand_computed_gradient():
    data = Dataset(np.array([[2.0]]), np.array([0]), np.zeros((0, 1)), np.zeros(0, dtype=np.int64), 2)
    x, batch = np.zeros(4), np.array([0])
    # p = (1/2, 1/2), p - e_y = (-1/2, 1/2), phi = 2: W (-1, 1), b (-1/2, 1/2); L1 norm 3, L2 norm sqrt(5/2)
    np.testing.assert_array_equal(oracle(data).gradient(x, batch), [-1.0, 1.0, -0.5, 0.5])
    np.testing.assert_array_equal(oracle(data, bias=0.0).gradient(x[:2], batch), [-1.0, 1.0])
    np.testing.assert_array_equal(oracle(data, bias=3.0).gradient(x, batch), [-1.0, 1.0, -1.5, 1.5])
    halved = oracle(data, clip=Clip(1, 1.5)).gradient(x, batch)
    np.testing.assert_allclose(halved, [-0.5, 0.5, -0.25, 0.25], rtol=3e-7)
    unit = oracle(data, clip=Clip(2, 1.0)).gradient(x, batch)
    np.testing.assert_allclose(unit, np.array([-1.0, 1.0, -0.5, 0.5]) / math.sqrt(2.5), rtol=3e-7)
    metrics = oracle(data).evaluate(x)
    assert metrics.loss_train == pytest.approx(math.log(2)) and metrics.grad_norm == pytest.approx(math.sqrt(2.5))
    assert metrics.accuracy_train == 1.0 and metrics.accuracy_test is None


@pytest.mark.parametrize("bias", [0.0, 1.0, 0.4])
def test_gradient_against_finite_differences_of_the_loss(bias):
    o = oracle(blobs(), bias=bias)
    x, h = point(o), 1e-6
    steps = h * np.eye(o.dimension)
    numerical = [(o.evaluate(x + s).loss_train - o.evaluate(x - s).loss_train) / (2 * h) for s in steps]
    gradient = o.gradient(x, np.arange(30))
    np.testing.assert_allclose(gradient, numerical, atol=1e-8)
    assert o.evaluate(x).grad_norm == pytest.approx(np.linalg.norm(gradient), rel=1e-12)


def test_grad_norm_is_unclipped():
    x = point(oracle(blobs()))
    assert oracle(blobs(), clip=Clip(1, 1e-3)).evaluate(x) == oracle(blobs()).evaluate(x)


@pytest.mark.parametrize("rows", [1, 7, 30, 8192])
def test_metrics_against_one_sample_at_a_time(rows, monkeypatch):
    monkeypatch.setattr(models, "_EVALUATION_ROWS", rows)
    data = blobs(seed=3)
    o = oracle(data)
    x = point(o, 5)
    metrics = o.evaluate(x)
    losses = [softmax.loss(x, phi, y, 3, 1.0) for phi, y in zip(data.x_train, data.y_train, strict=True)]

    def accuracy(phis, labels) -> float:
        hits = [int(np.argmax(softmax.probabilities(x, phi, 3, 1.0))) == y for phi, y in zip(phis, labels, strict=True)]
        return sum(hits) / len(hits)

    assert metrics.loss_train == pytest.approx(sum(losses) / 30, rel=1e-12)
    assert metrics.accuracy_train == accuracy(data.x_train, data.y_train)
    assert metrics.accuracy_test == accuracy(data.x_test, data.y_test)
    assert metrics.accuracy_test != metrics.accuracy_train


# --- the bound holds in float64 ------------------------------------------------------------------------------------


def exact_norm(g: np.ndarray, order: int) -> float:
    return math.fsum(map(abs, g.tolist())) if order == 1 else math.sqrt(math.fsum(v * v for v in g.tolist()))


class Slack(Clip):
    """A mutant: no room for rounding."""

    @property
    def threshold(self) -> float:
        return self.bound * (1.0 + 1e-12)


def worst_excess(clip: Clip, seeds) -> float:
    """Largest norm of one clipped sample over the bound."""
    ratios = []
    for seed in seeds:
        data = blobs(12, features=17, classes=5, seed=seed, spread=10.0 ** (seed % 7))
        o = oracle(data, clip=clip, bias=0.5)
        x = point(o, seed)
        ratios += [exact_norm(o.gradient(x, np.array([j])), clip.order) / clip.bound for j in range(12)]
    return max(ratios)


@pytest.mark.parametrize("order", [1, 2])
@settings(deadline=None)
@given(st.floats(1e-6, 1e6), st.integers(0, 1000))
def test_no_sample_exceeds_the_bound(order, bound, seed):
    assert worst_excess(Clip(order, bound), [seed]) <= 1.0


@pytest.mark.parametrize("order", [1, 2])
def test_the_bound_checker_rejects_a_clip_without_room(order):
    assert worst_excess(Slack(order, 0.5), range(7)) > 1.0
    assert 1.0 - 2.0**-21 < worst_excess(Clip(order, 0.5), range(7)) <= 1.0


@pytest.mark.parametrize("clip", CLIPS[1:3])
def test_samples_that_are_not_finite_become_zero_and_stay_in_the_divisor(clip):
    data = blobs(6)
    features = data.x_train.copy()
    features[2] = 1e200
    spoilt = Dataset(features, data.y_train, data.x_test, data.y_test, 3)
    o = oracle(spoilt, clip=clip)
    x = point(o) * 1e200
    x[12:] = 0.0
    batch = np.array([1, 2, 4])
    with np.errstate(all="ignore"):
        both, alone = o.gradient(x, batch), o.gradient(x, np.array([1, 4]))
        assert not np.isfinite(oracle(spoilt).gradient(x, batch)).all()
    assert np.isfinite(both).all() and np.linalg.norm(both) > 0
    np.testing.assert_allclose(3 * both, 2 * alone, rtol=1e-15)


@pytest.mark.parametrize("x_value", [math.nan, math.inf])
def test_a_lost_x_gives_a_zero_gradient_under_clipping(x_value):
    o = oracle(blobs(), clip=Clip(1, 1.0))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(o.gradient(np.full(o.dimension, x_value), np.array([1, 2])), 0.0)


# --- shapes, starts, batches ---------------------------------------------------------------------------------------


def test_the_shard_is_the_agents_own_data():
    data = blobs()
    shard = np.array([4, 9, 2])
    own = SoftmaxOracle(data, shard)
    assert own.samples == 3
    np.testing.assert_array_equal(
        own.gradient(point(own), np.array([1])), oracle(data).gradient(point(own), shard[1:2])
    )


def test_dimension_and_shape_hash():
    with_bias, without = oracle(blobs()), oracle(blobs(), bias=0.0)
    assert (with_bias.dimension, without.dimension) == (15, 12)
    assert with_bias.shape_sha256 == hashlib.sha256(b"W:3x4\nb:3\n").hexdigest()
    assert without.shape_sha256 == hashlib.sha256(b"W:3x4\n").hexdigest()
    assert oracle(blobs(features=3, classes=4)).shape_sha256 != with_bias.shape_sha256


def test_start():
    assert not oracle(blobs()).initial().any()
    o = oracle(blobs(), init_seed=4)
    np.testing.assert_array_equal(o.initial()[:12], np.random.default_rng(4).standard_normal(12) / 2.0)
    assert not o.initial()[12:].any()


def test_batches_are_distinct_samples_of_the_shard():
    batch = SoftmaxOracle(blobs(), np.arange(20)).draw_batch(9, stream())
    assert len(set(batch.tolist())) == 9 and batch.min() >= 0 and batch.max() < 20


def test_other_processes_get_the_same_bits():
    code = (
        "import hashlib, numpy as np\n"
        "from dpgt_node.learning.nets.clipping import Clip\n"
        "from dpgt_node.learning.data.datasets import load_dataset\n"
        "from dpgt_node.learning.nets.models import SoftmaxOracle\n"
        "o = SoftmaxOracle(load_dataset('digits'), np.arange(287), clip=Clip(1, 40.0))\n"
        "x = np.random.default_rng(0).standard_normal(650)\n"
        "g = [o.gradient(x, np.arange(j, j + 55)) for j in range(50)]\n"
        "print(hashlib.sha256(np.stack(g).tobytes()).hexdigest())\n"
    )
    o = SoftmaxOracle(load_dataset("digits"), np.arange(287), clip=Clip(1, 40.0))
    x = np.random.default_rng(0).standard_normal(650)
    here = np.stack([o.gradient(x, np.arange(j, j + 55)) for j in range(50)])
    there = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    assert hashlib.sha256(here.tobytes()).hexdigest() == there


def test_digits_are_learnt():
    o = SoftmaxOracle(load_dataset("digits"), None, clip=Clip(1, 40.0))
    x, source = o.initial(), stream()
    for _ in range(300):
        x = x - 0.5 * o.gradient(x, o.draw_batch(55, source))
    assert o.evaluate(x).accuracy_test > 0.93


def test_agents_with_test_sets_of_their_own_share_no_part_of_one():
    x = np.random.default_rng(8).normal(size=oracle(blobs()).dimension)
    several = [oracle(blobs(seed=seed)) for seed in (1, 2)]
    for samples, looking in ((4, several), (3, several), (5, several[1:]), (4, several[1:])):
        for _ in range(2):
            for o in looking:
                rows = spaced(o.tested, samples)
                logits = x[: o._weights].reshape(o._classes, -1) @ o._x_test[rows].T + x[o._weights :, None]
                hits = np.count_nonzero(logits.argmax(axis=0) == o._y_test[rows])
                assert o.evaluate(x, samples).accuracy_test == hits / samples


def test_a_partial_evaluation_is_that_of_evenly_spaced_samples():
    data = blobs(samples=40)
    o, rows, tests = oracle(data), np.arange(8) * 40 // 8, np.arange(8) * 10 // 8
    part = SoftmaxOracle(
        Dataset(data.x_train[rows], data.y_train[rows], data.x_test[tests], data.y_test[tests], 3), None
    )
    x = point(o)
    assert o.evaluate(x, 8) == part.evaluate(x) != o.evaluate(x)
    assert o.evaluate(x, 40) == o.evaluate(x) and o.tested == 10
