from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from scipy import stats

from dpgt_node.config.model import Privacy
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.learning.oracle import build_oracle, constants
from dpgt_node.learning.toys import PlLinear, PlSine, Quadratic, Zeros
from tests.learning.cases import run, stream

ACCEPT, REJECT = 1e-3, 1e-9


def xi(*values: float) -> np.ndarray:
    return np.array(values).view(np.int64)


def l_sine(x: float, noise: float) -> float:
    return x**2 + (3 + noise) * math.sin(x) ** 2 + 2 * noise * math.cos(x)


def l_linear(toy: PlLinear, agents: int, x: np.ndarray, noise: float) -> float:
    norm = np.linalg.norm(x)
    return float(np.linalg.norm(toy.A @ x - toy.d) ** 2 / (2 * agents) + norm * noise / (1 + norm))


# --- values --------------------------------------------------------------------------------------------------------


def test_quadratic_by_hand():
    toy = Quadratic(2, index=2)  # b_3 = (3, 3)
    x = np.array([4.0, 1.0])
    assert toy.initial().tolist() == [0.0, 0.0] and toy.draw_batch(9, stream()).size == 0
    assert toy.gradient(x, xi()).tolist() == [1.0, -2.0]
    metrics = toy.evaluate(x)
    assert (metrics.loss_train, metrics.grad_norm) == (2.5, pytest.approx(math.sqrt(5)))
    assert metrics.accuracy_train is None and metrics.accuracy_test is None


def test_zeros():
    toy = Zeros(3)
    assert toy.gradient(np.ones(3), xi()).tolist() == [0.0] * 3 and toy.evaluate(np.ones(3)).loss_train == 0.0


def test_pl_sine_by_hand():
    quarter = math.pi / 4
    # 2x = pi/2, sin 2x = 1, sin x = 1/sqrt 2
    assert PlSine().gradient(np.array([quarter]), xi(1.0))[0] == pytest.approx(math.pi / 2 + 4 - math.sqrt(2))
    assert PlSine().gradient(np.array([quarter]), xi(1.0, -1.0))[0] == pytest.approx(math.pi / 2 + 3)
    assert PlSine().evaluate(np.array([quarter])).loss_train == pytest.approx(quarter**2 + 1.5)
    assert PlSine().initial().tolist() == [2.0] and PlSine(-1.5).initial().tolist() == [-1.5]


def test_pl_linear_by_hand():
    toy = PlLinear(2, 3, agents=4, seed=0)
    toy.A, toy.d = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), np.array([1.0, 0.0, 5.0])
    x = np.array([3.0, 4.0])  # A x - d = (2, 8, -5), A'(Ax - d) = (2, 16), ||x|| = 5, xi x / (5 * 36)
    np.testing.assert_allclose(toy.gradient(x, xi(36.0)), [0.5 + 0.6, 4.0 + 0.8])
    assert toy.evaluate(x).loss_train == pytest.approx(93 / 8)
    np.testing.assert_allclose(toy.gradient(np.zeros(2), xi(1e6)), toy.A.T @ -toy.d / 4)


def test_pl_linear_is_public_and_common():
    a, b = (build_oracle(run("pl-linear", seed=7, dimension=4, rows=6, start=0.5), shard) for shard in (0, 2))
    rng = np.random.default_rng(7)
    for toy in (a, b):
        rng = np.random.default_rng(7)
        np.testing.assert_array_equal(toy.A, rng.standard_normal((6, 4)))
        np.testing.assert_array_equal(toy.d, rng.standard_normal(6))
    assert a.initial().tolist() == [0.5] * 4


# --- gradients of the stated losses --------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [-3.0, -0.2, 0.7, 2.0])
@pytest.mark.parametrize("noise", [-2.0, 0.0, 5.0])
def test_pl_sine_against_finite_differences(x, noise):
    h = 1e-6
    numerical = (l_sine(x + h, noise) - l_sine(x - h, noise)) / (2 * h)
    assert PlSine().gradient(np.array([x]), xi(noise))[0] == pytest.approx(numerical, abs=1e-7)


@pytest.mark.parametrize("noise", [-2.0, 0.0, 5.0])
def test_pl_linear_against_finite_differences(noise):
    toy, x, h = PlLinear(4, 7, agents=3, seed=1), np.array([0.3, -1.0, 2.0, 0.1]), 1e-6
    numerical = [(l_linear(toy, 3, x + s, noise) - l_linear(toy, 3, x - s, noise)) / (2 * h) for s in h * np.eye(4)]
    np.testing.assert_allclose(toy.gradient(x, xi(noise)), numerical, atol=1e-7)


@pytest.mark.parametrize("toy", [PlSine(), PlLinear(3, 6, agents=5, seed=2)], ids=["sine", "linear"])
def test_gradients_are_unbiased(toy):
    x = np.linspace(0.5, 1.5, toy.dimension)
    batch = toy.draw_batch(200_000, stream(1))
    exact = toy._mean_objective(x)[1]
    single = np.stack([toy.gradient(x, batch[j : j + 1]) for j in range(500)])
    error = np.abs(toy.gradient(x, batch) - exact)
    assert (error < 5 * single.std(axis=0) / math.sqrt(200_000)).all()
    assert (np.abs(single - exact) > error.max()).any(), "single samples do move"
    np.testing.assert_allclose(toy.gradient(x, batch[:500]), single.mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize(
    ("toy", "law"), [(PlSine(), stats.laplace(scale=0.5)), (PlLinear(2, 4, 3, seed=0), stats.norm(scale=2.0))]
)
def test_the_law_of_xi(toy, law):
    values = toy.draw_batch(40_000, stream(2)).view(np.float64)
    assert stats.kstest(values, law.cdf).pvalue > ACCEPT
    for factor in (0.7, 1.3):
        assert stats.kstest(factor * values, law.cdf).pvalue < REJECT


@pytest.mark.parametrize("name", ["quadratic", "zeros", "pl-sine", "pl-linear"])
def test_a_replayed_batch_gives_the_same_bits(name):
    o = build_oracle(run(name, dimension=3), 1)
    batch = o.draw_batch(20, stream(3))
    x = np.linspace(1.0, 2.0, o.dimension)
    assert batch.dtype == np.int64
    stored = np.frombuffer(batch.tobytes(), dtype=np.int64)
    assert o.gradient(x, batch).tobytes() == o.gradient(x, stored).tobytes()


# --- minimisers and constants --------------------------------------------------------------------------------------


def test_minimisers():
    grid = np.linspace(-20, 20, 4001)
    losses = [PlSine().evaluate(np.array([x])).loss_train for x in grid]
    assert grid[int(np.argmin(losses))] == pytest.approx(0.0, abs=1e-9)
    assert PlSine().evaluate(np.zeros(1)) == PlSine().evaluate(-np.zeros(1))
    assert PlSine().evaluate(np.zeros(1)).loss_train == PlSine().evaluate(np.zeros(1)).grad_norm == 0.0
    toy = PlLinear(5, 10, agents=5, seed=0)
    best = np.linalg.lstsq(toy.A, toy.d)[0]
    assert toy.evaluate(best).grad_norm < 1e-12
    mean = np.mean([Quadratic(4, i).gradient(np.full(4, 3.0), xi()) for i in range(5)], axis=0)
    assert not mean.any()  # (n + 1) / 2


def pl_ratio(f: np.ndarray, gradient: np.ndarray) -> float:
    return float((gradient[f > 1e-12] ** 2 / (2 * f[f > 1e-12])).min())


def test_constants_of_pl_sine():
    L1, mu = constants(run("pl-sine"))
    x = np.linspace(-30, 30, 600_001)
    f, gradient = x**2 + 3 * np.sin(x) ** 2, 2 * x + 3 * np.sin(2 * x)
    assert mu <= pl_ratio(f, gradient) < 10 * mu
    assert np.abs(np.gradient(gradient, x)).max() == pytest.approx(L1, rel=1e-6)


def test_constants_of_pl_linear_and_quadratic():
    L1, mu = constants(run("pl-linear", dimension=4, rows=9, seed=3))
    toy = build_oracle(run("pl-linear", dimension=4, rows=9, seed=3), 0)
    hessian = toy.A.T @ toy.A / 3
    assert (mu, L1) == pytest.approx((np.linalg.eigvalsh(hessian)[0], np.linalg.eigvalsh(hessian)[-1]))
    assert constants(run("quadratic", dimension=2)) == (1.0, 1.0)
    assert constants(run("zeros", dimension=2)) is None


# --- clipping and memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", ["quadratic", "zeros", "pl-sine", "pl-linear"])
def test_clipping_is_enforced(name, order):
    privacy = Privacy(clip_l1=0.3) if order == 1 else Privacy(clip_l2=0.3)
    bounded, free = (build_oracle(run(name, privacy=p, dimension=3), 1) for p in (privacy, Privacy()))
    x = np.linspace(0.5, 1.5, free.dimension)
    batch = free.draw_batch(7, stream(4))
    pieces = [batch[j : j + 1] for j in range(len(batch))] or [batch]
    samples = [free.gradient(x, piece) for piece in pieces]
    threshold = 0.3 * (1 - 2**-22)
    clipped = [g * min(1.0, threshold / max(np.linalg.norm(g, order), 1e-300)) for g in samples]
    np.testing.assert_allclose(bounded.gradient(x, batch), np.mean(clipped, axis=0), rtol=1e-12)
    if name != "zeros":
        assert any(np.linalg.norm(g, order) > 0.3 for g in samples)
    assert bounded.evaluate(x) == free.evaluate(x)


@pytest.mark.parametrize("toy", [Zeros(1_000_000), Quadratic(1_000_000, 1), Quadratic(1_000_000, 1, Clip(1, 1.0))])
def test_a_large_toy_holds_one_vector_and_works_in_two(toy):
    x = np.zeros(toy.dimension)
    assert toy.initial() is toy.initial() and not toy.initial().flags.writeable
    tracemalloc.start()
    try:
        toy.gradient(x, xi())
        toy.evaluate(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.1 * x.nbytes


def test_shapes_tell_models_apart():
    hashes = {build_oracle(run(name, dimension=d), 0).shape_sha256 for name in ("zeros", "quadratic") for d in (2, 3)}
    assert len(hashes) == 2
    assert build_oracle(run("zeros", dimension=2), 0).samples is None
