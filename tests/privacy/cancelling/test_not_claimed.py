"""Why nothing is claimed for an observer of a part of the messages, nor for noise that is correlated over rounds."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles.accountants import worst_energy
from tests.oracles.partial import RING_C, RING_R, Tracking, closed, seen_by, worst_signs

SLOPES = (1.1, -0.5, 0.1, 0.9, 0.6)
"""Of quadratic losses whose sum is strongly convex; the closed loop is stable."""


@pytest.mark.parametrize(
    ("K", "formula", "steady", "worst", "whole"),
    [
        (5, 1.03893, 1.34664, 1.34664, 2.44949),
        (10, 1.65236, 2.24710, 2.33961, 3.31662),
        (40, 3.57465, 3.80228, 5.54896, 6.40312),
    ],
)
def test_the_row_space_formula_is_exceeded_where_points_are_hidden(K, formula, steady, worst, whole) -> None:
    """mu of owner 1 towards agent 4, which sees its own messages: claimed, and from the exact law of what it sees."""
    claimed = worst_energy(seen_by(Tracking(RING_R, RING_C, K), 1, 4)) ** 0.5
    P = seen_by(Tracking(RING_R, RING_C, K, slopes=SLOPES), 1, 4)
    assert claimed == pytest.approx(formula, abs=2e-5)
    assert P.sum() ** 0.5 == pytest.approx(steady, abs=2e-5)
    assert worst_energy(P) ** 0.5 == pytest.approx(worst, abs=2e-5)
    assert pytest.approx(whole, abs=1e-5) == (K + 1) ** 0.5
    assert claimed < P.sum() ** 0.5 <= worst_energy(P) ** 0.5 * (1 + 1e-6) < whole
    if K == 5:
        assert worst_signs(P) == pytest.approx(P.sum())


def test_the_same_for_gossip_over_a_path() -> None:
    """D-SGD over four nodes in a row with Metropolis weights: node 0 towards node 3."""
    W = np.array([[2, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 2]]) / 3

    def mu(slopes: tuple[float, ...], steps: int = 6) -> float:
        n, x, rows = 4, np.zeros((4, 4 * steps)), []
        for k in range(steps):
            g = np.array(slopes)[:, None] * x
            g[np.arange(n), np.arange(n) * steps + k] += 1.0
            half = x - g
            rows.append(half[2])  # what node 2 sends to node 3
            x = W @ half
        view = np.array(rows)[:, : 3 * steps]  # node 3 knows its own
        P = view.T @ np.linalg.pinv(view @ view.T) @ view
        return float(worst_energy(P[:steps, :steps]) ** 0.5)

    assert mu((0, 0, 0, 0)) == pytest.approx(0.5001, abs=1e-4)
    assert mu((0, -0.3, 0, 0)) == pytest.approx(0.6770, abs=1e-4)


def test_a_directed_ring_where_it_holds() -> None:
    ring = [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    np.testing.assert_allclose(seen_by(Tracking(ring, ring, 2), 0, 2), np.diag([1, 9 / 109, 0]), atol=1e-9)


def test_what_is_sound_is_hardly_less() -> None:
    K, run = 40, Tracking(RING_R, RING_C, 40)
    for observer, formula, sound in ((1, 0.979, 0.998), (2, 0.928, 0.984), (3, 0.676, 0.972), (4, 0.813, 0.951)):
        assert (worst_energy(seen_by(run, 0, observer)) / (K + 1)) ** 0.5 == pytest.approx(formula, abs=1e-3)
        assert (worst_energy(closed(run, 0, observer)) / (K + 1)) ** 0.5 == pytest.approx(sound, abs=1e-3)
    steep = Tracking(RING_R, RING_C, K, slopes=np.ones(5))
    assert (worst_energy(seen_by(run, 2, 1)) / (K + 1)) ** 0.5 == pytest.approx(0.555, abs=1e-3)
    assert (worst_energy(seen_by(steep, 2, 1)) / (K + 1)) ** 0.5 == pytest.approx(0.948, abs=2e-3)


def test_noise_that_is_correlated_over_rounds_gains_nothing() -> None:
    """tr(W X^-1) S(X) >= (sum of sqrt W_kk)^2, S the worst squared sensitivity of one sample in every round."""

    def price(W: np.ndarray, X: np.ndarray) -> float:
        return float(np.trace(W @ np.linalg.inv(X))) * worst_energy(X)

    n = 20
    sums = np.tril(np.ones((n, n)))
    root = sqrt_of_prefix_sums(n)
    np.testing.assert_allclose(root @ root, sums, atol=1e-9)
    last, all_ = np.ones((n, n)), sums.T @ sums
    assert price(last, np.eye(n)) == pytest.approx(400) and price(last, root.T @ root) == pytest.approx(526, abs=1)
    assert price(all_, np.eye(n)) == pytest.approx(4200)
    assert price(all_, root.T @ root) == pytest.approx(9019, abs=1)
    assert price(all_, np.diag(np.sqrt(np.diag(all_)))) == pytest.approx(3803, abs=1)
    fading = np.diag(0.8 ** (2.0 * np.arange(10)[::-1]))
    assert price(fading, np.eye(10)) == pytest.approx(27.46, abs=5e-3)
    assert price(fading, np.diag(np.sqrt(np.diag(fading)))) == pytest.approx(19.92, abs=5e-3)
    rng = np.random.default_rng(3)
    for _ in range(200):
        m = int(rng.integers(1, 7))
        B, Q = rng.normal(size=(2, m, m))
        W, X = B @ B.T, Q @ Q.T + 0.05 * np.eye(m)
        assert price(W, X) >= float(np.sqrt(np.diag(W)).sum()) ** 2 * (1 - 1e-6)


def sqrt_of_prefix_sums(n: int) -> np.ndarray:
    """Lower triangular Toeplitz, with the coefficients of (1 - z)^-1/2."""
    first = [1.0]
    for k in range(1, n):
        first.append(first[-1] * (2 * k - 1) / (2 * k))
    return np.array([[first[i - j] if i >= j else 0.0 for j in range(n)] for i in range(n)])
