from __future__ import annotations

import math

import numpy as np
import pytest

from dpgt_node.privacy.accountants.gaussian import gdp_epsilon, gdp_mu
from dpgt_node.privacy.cancelling.exposure import precision, share
from tests.oracles import cancelling as oracle

RING = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)]


def partners(agent: int, edges: list) -> list[int]:
    return [sum(edge) - agent for edge in edges if agent in edge]


@pytest.mark.parametrize(
    ("epsilon", "mu"), [(0.1, 0.032520784), (0.5, 0.142210559), (1.0, 0.268051123), (3.0, 0.719117435)]
)
def test_mu_of_epsilon(epsilon: float, mu: float) -> None:
    assert gdp_mu(epsilon, 1e-5) == pytest.approx(mu, abs=1e-9)


def test_three_agents() -> None:
    _, Sigma = oracle.covariance([1, 1, 1], 2, oracle.complete(3))
    inverse = np.linalg.inv(Sigma)
    np.testing.assert_allclose(np.diag(inverse), 5 / 13)
    assert inverse[0, 1] == pytest.approx(4 / 13)
    for t, squared in enumerate((25 / 13, 25 / 9, 5.0)):
        assert 5 * precision(1.0, [1.0, 1.0], 2.0, t) == pytest.approx(squared, rel=1e-12)
        assert 5 * oracle.worst(0, [1, 1, 1], 2, oracle.complete(3), t) == pytest.approx(squared)


def test_five_agents_and_what_each_coalition_costs() -> None:
    for t, phi in enumerate((5 / 21, 5 / 17, 5 / 13, 5 / 9, 1.0)):
        assert share(4, 2, t) == pytest.approx(phi, rel=1e-12) and share(4, 2, t) >= min(phi, 1.0)
    unit = math.sqrt(41) * 0.04 / 12_000
    # Calibrated to epsilon 1 at t = 1, and at t = 0.
    for at, s, epsilons in (
        (1, 4.318307691e-05, (0.89055, 1.00000, 1.15891, 1.41957, 1.96757)),
        (0, 3.885334344e-05, (1.0, 1.12315, 1.30206, 1.59579, 2.21437)),
    ):
        assert unit * math.sqrt(share(4, 2, at)) / gdp_mu(1.0, 1e-5) == pytest.approx(s, rel=1e-9)
        for t, epsilon in enumerate(epsilons):
            assert gdp_epsilon(unit / s * math.sqrt(share(4, 2, t)), 1e-5) == pytest.approx(epsilon, abs=6e-6)
    mus = [unit / 4.318307691e-05 * math.sqrt(share(4, 2, t)) for t in range(5)]
    assert mus == pytest.approx([0.2411751, 0.2680511, 0.3065282, 0.3684010, 0.4942618], abs=1e-7)


def test_many_agents() -> None:
    # A table of what epsilon 8 of its own noise becomes, r = 2.
    mu = gdp_mu(8.0, 1e-5)
    for n, table in (
        (100, {0: 0.670, 1: 0.674, 50: 0.978, 98: 5.64, 99: 8.0}),
        (20, {0: 1.615, 1: 1.661, 10: 2.362, 18: 5.64, 19: 8.0}),
    ):
        for t, epsilon in table.items():
            assert gdp_epsilon(mu * math.sqrt(share(n - 1, 2, t)), 1e-5) == pytest.approx(epsilon, abs=6e-3)


@pytest.mark.parametrize(
    ("coalition", "phi"),
    [((), 0.287128713), ((1,), 0.410430839), ((2,), 0.328798186), ((1, 4), 1.0), ((2, 3), 0.384615385)],
)
def test_a_ring(coalition: tuple, phi: float) -> None:
    exact = oracle.exact(0, [1] * 5, 2, RING, coalition)
    assert exact == pytest.approx(phi, abs=1e-9)
    assert exact <= share(2, 2, len(coalition)) * (1 + 1e-12)


def test_unequal_scales() -> None:
    s = [1.0, 2.0, 1.0, 0.5]
    found = [oracle.exact(i, s, 1.5, oracle.complete(4)) for i in range(4)]
    assert found == pytest.approx([0.2683125972, 0.1765163297, 0.2683125972, 0.3048211509], abs=1e-9)
    for i in range(4):
        assert found[i] <= precision(s[i], [s[j] for j in range(4) if j != i], 1.5, 0)


def test_no_coalition_on_any_graph_sees_more() -> None:
    rng = np.random.default_rng(5)
    closest = 0.0
    for _ in range(300):
        n = int(rng.integers(2, 7))
        edges = [e for e in oracle.complete(n) if rng.random() < 0.7]
        s, sigma = np.exp(rng.normal(0, 1, n)), float(np.exp(rng.normal(0, 1.5)))
        agent = int(rng.integers(n))
        own = [float(s[j]) for j in partners(agent, edges)]
        for t in range(n):
            claim = precision(float(s[agent]), own, sigma, t)
            found = oracle.worst(agent, s, sigma, edges, t)
            assert found <= claim * (1 + 1e-9)
            closest = max(closest, found / claim)
        assert precision(float(s[agent]), own, sigma, n - 1) == pytest.approx(1 / s[agent] ** 2)
    assert closest > 1 - 1e-9
    for n, t, r in ((2, 0, 1), (5, 1, 2), (9, 7, 3)):  # equality for complete graphs with equal s
        exact = oracle.worst(0, [1.0] * n, r, oracle.complete(n), t)
        assert share(n - 1, r, t) == pytest.approx(exact, rel=1e-12)


def test_more_colluding_never_cost_less_and_all_others_never_more_than_own_noise() -> None:
    for degree in (1, 4, 99):
        for r in (1, 2, 8):
            curve = [share(degree, r, t) for t in range(120)]
            assert curve == sorted(curve) and curve[degree - 1] < curve[degree] == curve[-1] == 1.0


def test_no_noise_of_its_own_is_refused_whatever_is_shared() -> None:
    with pytest.raises(ValueError, match="no guarantee"):
        precision(0.0, [1.0, 1.0], 1e6, 0)
    # A partner without noise of its own hides nothing.
    assert precision(1.0, [0.0, 0.0], 3.0, 0) == pytest.approx(1.0)


def test_an_observer_that_chooses_by_what_it_saw_gains_nothing() -> None:
    """Three agents, five releases, one sample that shifts agent 0 by +-1 as the last sum's sign says."""
    rng = np.random.default_rng(7)
    runs = 200_000
    for coalition, squared in (((), 25 / 13), ((2,), 25 / 9)):
        honest, Sigma = oracle.covariance([1, 1, 1], 2, oracle.complete(3), coalition)
        inverse, root = np.linalg.inv(Sigma), np.linalg.cholesky(Sigma)
        ratio, sign = np.zeros(runs), np.ones(runs)
        for _ in range(5):
            shift = np.zeros((runs, len(honest)))
            shift[:, 0] = sign
            seen = shift + rng.normal(size=(runs, len(honest))) @ root.T
            # ln p(seen | shifted)/p(seen | not shifted)
            ratio += np.einsum("ri,ij,rj->r", seen - 0.5 * shift, inverse, shift)
            sign = np.where(seen.sum(axis=1) > 0, 1.0, -1.0)
        assert ratio.mean() == pytest.approx(squared / 2, abs=0.02)
        assert ratio.var() == pytest.approx(squared, rel=0.02)


def test_pure_epsilon_gains_nothing() -> None:
    """Laplace noise: the least sum of |w|/scale over what shifts agent 0 by 1 in every view of the transcript."""
    from scipy.optimize import linprog

    def epsilon(s: list[float], sigma: float) -> float:
        n, edges = len(s), oracle.complete(len(s))
        B = np.zeros((n, n + len(edges)))
        B[:, :n] = np.eye(n)
        for at, (i, j) in enumerate(edges):
            B[i, n + at], B[j, n + at] = 1.0, -1.0
        cost = np.array([*(1 / v for v in s), *([1 / sigma] * len(edges))])
        shift = np.eye(n)[0]
        return linprog(np.tile(cost, 2), A_eq=np.hstack((B, -B)), b_eq=shift, bounds=(0, None)).fun

    for r in (0.5, 1.0, 2.0, 10.0):
        for n in (3, 5):
            assert epsilon([0.7] * n, r * 0.7) == pytest.approx(1 / 0.7)
    assert epsilon([0.2, 1.0, 1.0], 2.0) == pytest.approx(1.5)
