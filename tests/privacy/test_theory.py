"""Steps of docs/explanation/theory.md that no accountant's own test isolates."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from dpgt_node.algo.methods.dpgt import Steps
from dpgt_node.privacy.accountants import gaussian, kernels, pure
from dpgt_node.privacy.accountants.rounding import private_state
from tests.oracles import accountants as oracle
from tests.oracles import counterexample
from tests.states import Agent, step_x


def rates(rng: np.random.Generator, runs: int):
    for _ in range(runs):
        a, b = rng.uniform(0, 1, 2) * 10.0 ** -rng.integers(0, 4, 2).astype(float)
        yield float(a), float(b), float(rng.uniform(0.01, 3.0))


def test_the_step_that_lemma_4_drops() -> None:
    # Full batch, slope s: dx_1 = -gamma dg_0, so dg_1 = s dx_1 + C/m: all m gradients moved.
    s, gamma, move = (Fraction(str(v)) for v in (counterexample.SLOPES[0], counterexample.GAMMA, 1e-6 / 53))
    assert abs(s * -gamma * move + move) == Fraction(108, 100) * move


def test_closed_form_and_row_sums() -> None:
    K = 12
    for a, b, gamma in ((0.3, 0.2, 0.7), (0.2, 0.3, 0.7), (0.0, 0.4, 1.0), (0.4, 0.0, 1.0)):
        A, B, G = (Fraction(v) for v in (a, b, gamma))
        cx, cy = oracle.response_matrices(A, B, G, K)
        for k in range(K + 1):
            assert sum(abs(v) for v in cy[k]) == 2 - (1 - B) ** k
            for at in range(k):
                n = k - 1 - at
                assert cy[k][at] == -B * (1 - B) ** n
                assert cx[k][at] == -G * (A * (1 - A) ** n - B * (1 - B) ** n) / (A - B)


def test_sums_of_x_shifts() -> None:
    largest = 0.0
    for a, b, gamma in rates(np.random.default_rng(1), 300):
        shifts = np.abs(kernels.published_point(a, b, gamma, 3000).x).sum()
        largest = max(largest, shifts * max(a, b) / (2.0 * gamma))
    assert 0.95 < largest <= 1.0


def test_lemma5_covers_published_point() -> None:
    for a, b, gamma in rates(np.random.default_rng(2), 100):
        paper = pure.lemma4(a=a, b=b, gamma=gamma, m=3, C=1.0, K=60)
        tight = pure.tight_shifts(kernels.published_point(a, b, gamma, 60), 1.0 / 3)
        assert (tight.x <= paper.x * (1 + 1e-12)).all() and (tight.y <= paper.y * (1 + 1e-12)).all()


def test_more_out_weight_costs_more_where_x_is_public() -> None:
    K, none, scales = 200, np.zeros(201), (np.arange(201) + 1.0) ** 0.1
    weights = (0.0, 0.005, 0.01, 0.1, 0.5)
    tight = [pure.tight(kernels.public_state(b, K), 1.0, scales, scales, none, none)[-1] for b in weights]
    paper = [pure.lemma5(pure.lemma4(a=0.1, b=b, gamma=0.1, m=1, C=1.0, K=K), scales, scales)[-1] for b in weights]
    assert tight == sorted(tight) and tight[-1] > 1.9 * tight[0]
    assert paper == sorted(paper, reverse=True)


def test_where_the_corrected_recursion_settles() -> None:
    a, b, gamma, m, C = 0.3, 0.1, 0.2, 7, 2.0
    for Lam, settles in ((0.5, True), (0.7, True), (0.76, False)):
        x, _ = oracle.corrected_shifts(a, b, gamma, m, C, 6000, Lam)
        if settles:
            assert x[-1] == pytest.approx(2 * gamma * C / (m * (a - 2 * gamma * Lam)), rel=1e-6)
        else:
            assert x[-1] > 1e3 * x[300]


def test_a_huge_value_of_a_neighbour_moves_the_point_of_paper() -> None:
    params = Agent(Steps(0.5, 0.5, 0.1, 0.5, 0.5), ((0, 1.0),), ((0, 1.0),))
    nothing = np.zeros(1)

    def point(p: float) -> float:
        px, tx = step_x(params, nothing, nothing, np.array([p]), nothing, {0: np.array([2e16])})
        return float((px + tx)[0])

    border = -10.0  # px = 1, half way between two doubles near 1e16
    assert abs(point(border - 1e-8) - point(border + 1e-8)) == 2.0  # dx is 2e-9


def test_a_pure_cost_is_concentrated() -> None:
    for t in (1e-3, 0.1, 1.0, 4.0):
        for z in (1.01, 2.0, 10.0):
            two_points = (math.exp(z * t) + math.exp(t - z * t)) / (1.0 + math.exp(t))
            assert math.log(two_points) <= z * (z - 1.0) * t * t / 2.0 + 1e-15
            # A shifted Laplace variable lies below the two-point law.
            laplace = z / (2 * z - 1) * math.exp((z - 1) * t) + (z - 1) / (2 * z - 1) * math.exp(-z * t)
            assert laplace <= two_points * (1 + 1e-12)


def test_adaptive_shifts() -> None:
    """The second of two Gaussian releases has a shift that the first output chooses; mu is the budget."""
    first, mu = 0.6, 1.3
    left = math.sqrt(mu * mu - first * first)
    z = np.linspace(-12.0, 12.0, 200_001)
    weight = norm.pdf(z) * (z[1] - z[0])
    loss = first * z + first * first / 2.0  # of the first release, under P
    chosen = {"all of it": np.full(z.size, left), "by sign": np.where(z > 0, left, 0.0), "by size": left / (1 + z * z)}
    for epsilon in (0.0, 0.5, 2.0):
        for name, second in chosen.items():
            s = np.maximum(second, 1e-9)
            rest = epsilon - loss
            delta = norm.cdf(s / 2 - rest / s) - np.exp(np.minimum(rest, 700.0) + norm.logcdf(-s / 2 - rest / s))
            total, claim = float((weight * delta).sum()), gaussian.gdp_delta(mu, epsilon)
            assert total <= claim * (1 + 1e-6)
            assert (total > 0.999 * claim) == (name == "all of it")
    for order in (1.5, 4.0):
        for second in chosen.values():
            # E_P[(dP/dQ)^(order-1)], the second release integrated out.
            moment = float((weight * np.exp((order - 1) * loss + order * (order - 1) * second**2 / 2.0)).sum())
            assert moment <= math.exp(order * (order - 1) * mu * mu / 2.0) * (1 + 1e-9)


def test_rounding_of_the_private_state_is_charged() -> None:
    """p and px in doubles, in two worlds, against the same in fractions: L1 distance beyond the exact shift."""
    rng = np.random.default_rng(5)
    felt = 0.0
    for keep_a, keep_b, gamma in ((0.96, 0.995, 0.05), (1.0, 1.0, 0.3), (0.3, 0.7, 1.1)):
        K, d, C = 60, 3, 1.0
        A, B, G = (Fraction(v) for v in (keep_a, keep_b, gamma))
        bound = private_state(keep_a=keep_a, keep_b=keep_b, gamma_K=gamma, C=C, K=K)
        g = rng.standard_normal((2, K + 1, d))
        g *= C / 2 / np.abs(g).sum(axis=2, keepdims=True)
        p, px = g[:, 0].copy(), np.zeros((2, d))
        exact_p, exact_x = exactly(p), exactly(px)
        for k in range(K + 1):
            for value, exact, error in ((p, exact_p, bound.error_y[k]), (px, exact_x, bound.error_x[k])):
                off = exactly(value) - exact
                apart = float(np.abs(off[0] - off[1]).sum())
                assert apart <= error
                felt = max(felt, apart / error if error else 0.0)
            if k < K:
                exact_x, exact_p = A * exact_x - G * exact_p, B * exact_p + exactly(g[:, k + 1]) - exactly(g[:, k])
                px = keep_a * px - gamma * p
                p = keep_b * p + (g[:, k + 1] - g[:, k])
    assert 1e-3 < felt < 1.0


def exactly(values: np.ndarray) -> np.ndarray:
    return np.array([[Fraction(float(v)) for v in row] for row in values], dtype=object)
