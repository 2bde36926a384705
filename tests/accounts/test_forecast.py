"""The predictor's T and nu against the mechanisms themselves, run with a constant gradient and one unit of noise."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from dpgt_node.accounts import forecast
from dpgt_node.accounts.forecast import need, respond
from dpgt_node.algo.edges import Edges
from dpgt_node.algo.graph import Topology
from dpgt_node.privacy.accountants import gaussian
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.privacy.mechanisms import MECHANISMS, NOISE_ONCE, PAPER, PUBLISHED_POINT
from tests.oracles import mechanisms

R = ((0.0, 0.0, 1.0), (1.0, 0.1, 0.0), (0.5, 1.0, 0.0))
C = ((0.0, 0.3, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.2))
NAMES = ("a", "b", "c")
ALPHA, BETA, GAMMA, K = 0.3, 0.4, 0.7, 6
WEIGHTS_X, WEIGHTS_Y = np.array([1.0, 0.5, 2.0]), np.array([0.3, 1.0, 1.7])


def impulses(stream: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise (K+1, n, (K+1) n) twice: coordinate (k, i) is one unit of agent i in round k, on one stream."""
    unit = np.eye((K + 1) * 3).reshape(K + 1, 3, -1)
    return (unit, 0.0 * unit) if stream == 0 else (0.0 * unit, unit)


@pytest.mark.parametrize("mechanism", ["paper", "published-point", "public-state", "noise-once"])
def test_noise_is_the_sum_of_squared_impulse_responses(mechanism: str) -> None:
    found = respond(
        Topology.from_matrices(NAMES, R, C), ALPHA, BETA, MECHANISMS[mechanism].accounted, K, WEIGHTS_X, WEIGHTS_Y
    )
    x0 = np.zeros((3, (K + 1) * 3))
    variance = np.zeros((2, 3))
    for stream, weights in enumerate((WEIGHTS_X, WEIGHTS_Y)):
        x, _, _ = mechanisms.run(mechanism, R, C, ALPHA, BETA, GAMMA, x0, lambda i, k, x: 0.0 * x, *impulses(stream))
        variance[stream] = np.square(x[-1]).reshape(3, K + 1, 3).sum(axis=1) @ weights
    both = mechanism in ("paper", "published-point")
    np.testing.assert_allclose(found.noise_x[K], variance[0] if both else np.zeros(3), rtol=1e-12)
    np.testing.assert_allclose(GAMMA**2 * found.noise_y[K], variance[1], rtol=1e-12)


@pytest.mark.parametrize("mechanism", ["paper", "noise-once"])
def test_many_agents_are_reckoned_with_their_edges(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = (Topology.from_matrices(NAMES, R, C), ALPHA, BETA, MECHANISMS[mechanism].accounted, K, WEIGHTS_X, WEIGHTS_Y)
    whole = respond(*given)
    monkeypatch.setattr(forecast, "DENSE_MOST", 2)
    monkeypatch.setattr(forecast, "_AT_ONCE", 6)  # two columns, then one
    sparse = respond(*given)
    for name in ("time", "noise_x", "noise_y"):
        np.testing.assert_allclose(getattr(sparse, name), getattr(whole, name), rtol=1e-13)


def test_the_predictor_has_no_place_for_every_pair_of_many_agents() -> None:
    n, K_max = 3_000, 0
    ring = Edges(np.arange(n + 1), (np.arange(n) - 1) % n, np.full(n, 0.5))
    topology = Topology._of([str(i) for i in range(n)], ring, ring)
    tracemalloc.start()
    found = respond(topology, ALPHA, BETA, PAPER.accounted, K_max, np.ones(n), np.ones(n))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * n * n / 2, peak
    np.testing.assert_allclose(found.noise_x[0], (ALPHA * 0.5) ** 2)


def test_time_is_how_far_a_constant_gradient_carries() -> None:
    found = respond(Topology.from_matrices(NAMES, R, C), ALPHA, BETA, PAPER.accounted, K, WEIGHTS_X, WEIGHTS_Y)
    nothing = np.zeros((K + 1, 3, 1))
    x, _, _ = mechanisms.run("paper", R, C, ALPHA, BETA, GAMMA, np.zeros((3, 1)), lambda i, k, x: 1.0, nothing, nothing)
    for k in range(K + 1):
        np.testing.assert_allclose(GAMMA * found.time[k], -x[k + 1][:, 0], rtol=1e-12)


def test_noise_once_takes_noise_back_and_the_others_pile_it_up() -> None:
    """What y keeps for ever grows as K^3 in x; what is taken back a round later grows as K."""
    grown = {}
    for mechanism in ("noise-once", "public-state"):
        ones = np.ones(3)
        found = respond(
            Topology.from_matrices(NAMES, R, C), ALPHA, BETA, MECHANISMS[mechanism].accounted, 400, ones, ones
        )
        grown[mechanism] = float(found.noise_y[400].mean() / found.noise_y[200].mean())
    assert grown["noise-once"] == pytest.approx(2.0, rel=0.05)
    assert grown["public-state"] == pytest.approx(8.0, rel=0.05)


def test_two_scales_meet_the_goal_with_the_least_noise() -> None:
    a, b, unit = np.full(3, 0.3), np.full(3, 0.4), np.full(3, 0.01)
    for accountant in ("tight", "zcdp"):
        asked = need(PUBLISHED_POINT.accounted, ACCOUNTANTS[accountant], 1.0, 1e-5, K, GAMMA, a, b, unit)
        noise_x, noise_y = np.full(3, 0.7), np.full(3, 2.0)
        eta, ratio = asked.scales(noise_x, noise_y)

        def variance(r: float, p: int = asked.power, asked=asked, nx=0.7, ny=2.0) -> float:  # type: ignore[no-untyped-def]
            scale = ((asked.cost_x[0] / r) ** p + asked.cost_y[0] ** p) / asked.goal**p
            return float(scale ** (2.0 / p) * (ny + r * r * nx))

        assert variance(ratio) == pytest.approx(eta[0] ** 2 * (2.0 + ratio**2 * 0.7), rel=1e-12)
        assert all(variance(ratio) <= variance(ratio * factor) for factor in (0.5, 0.9, 1.1, 2.0))


def test_one_release_a_round_needs_what_the_closed_form_says() -> None:
    unit = np.array([0.02, 0.01, 0.01])
    zero = np.zeros(3)

    def least(name: str, delta: float) -> np.ndarray:
        asked = need(NOISE_ONCE.accounted, ACCOUNTANTS[name], 0.5, delta, 9, 1.0, zero, zero, unit)
        return asked.scales(zero, np.ones(3))[0]

    eta = least("amplified", 0.0)
    np.testing.assert_allclose(eta, 10 * unit / 0.5)
    eta = least("gdp", 1e-5)
    np.testing.assert_allclose(eta, unit * np.sqrt(10) / gaussian.gdp_mu(0.5, 1e-5))
    eta = least("zcdp", 1e-5)
    rho = 5 * (unit / eta) ** 2
    np.testing.assert_allclose(rho + 2 * np.sqrt(rho * np.log(1e5)), 0.5)
