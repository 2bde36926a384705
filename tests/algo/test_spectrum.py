from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgt_node.algo.spectrum import (
    contraction_rate,
    laplacian_eigenvalues,
    spectral_step_bound,
    stationary,
    weight_step_bound,
)
from tests.oracles import dense, graphs


def random_pair(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    return graphs.random_pair(np.random.default_rng(seed), n)


pairs = st.builds(random_pair, st.integers(0, 10**6), st.integers(1, 8))


@settings(deadline=None)
@given(pairs)
def test_eigenvalues_have_one_zero_and_the_traces_of_the_dense_laplacian(pair) -> None:
    # Traces, not a sorted comparison: a dense solver may be off by eps^(1/n) on repeated eigenvalues, traces are not.
    for M, L in zip((pair[0], pair[1].T), dense.laplacians(*pair), strict=True):
        w = np.array(laplacian_eigenvalues(M))
        assert len(w) == len(M) and w[0] == 0 and (w[1:].real > 0).all()
        for power in range(1, 4):
            trace = np.trace(np.linalg.matrix_power(L, power))
            assert np.isclose((w**power).sum(), trace, rtol=1e-9, atol=1e-9)
        characteristic = [abs(np.linalg.det(L - v * np.eye(len(M)))) for v in w]
        assert max(characteristic) < 1e-8 * max(1.0, np.abs(L).max()) ** len(M) * 10 ** len(M)


@settings(deadline=None)
@given(pairs)
def test_stationary_vectors_of_lemma_1(pair) -> None:
    R, C = pair
    n = len(R)
    L1, L2 = dense.laplacians(R, C)
    v1, v2 = stationary(R), stationary(C.T)
    assert v1 is not None and v2 is not None
    assert np.allclose(v1 @ (np.eye(n) - 0.1 * L1), v1, atol=1e-12)
    assert np.allclose((np.eye(n) - 0.1 * L2) @ v2, v2, atol=1e-12)
    assert (v1 >= 0).all() and (v2 >= 0).all() and v1.sum() == pytest.approx(n) and v2.sum() == pytest.approx(n)
    assert set(np.flatnonzero(v1)) == graphs.roots(R) and set(np.flatnonzero(v2)) == graphs.roots(C.T)
    assert v1 @ v2 > 0


@settings(deadline=None)
@given(pairs, st.floats(0.001, 0.999))
def test_contraction_against_the_dense_spectral_radius_inside_lemma_1s_bounds(pair, fraction: float) -> None:
    R, C = pair
    n = len(R)
    L1, L2 = dense.laplacians(R, C)
    for M, L, weights in ((R, L1, R.sum(1)), (C.T, L2, C.sum(0))):
        w, v = laplacian_eigenvalues(M), stationary(M)
        assert v is not None
        bound = min(weight_step_bound(weights), spectral_step_bound(w))
        step = fraction * (bound if np.isfinite(bound) else 1.0)
        ones = np.ones(n)
        W = np.eye(n) - (np.outer(ones, v) if L is L1 else np.outer(v, ones)) / n
        rho = np.abs(np.linalg.eigvals(W - step * L)).max()
        rate = contraction_rate(w, step)
        assert contraction(w, step) == pytest.approx(rho, abs=2e-3)  # the dense solver's accuracy, not ours
        assert rate > 0 and contraction(w, step) <= 1 - rate * step * (1 - 1e-9)
        # The paper's own r of appendix B is valid there, so the sharpest one is no smaller.
        paper = min(((2 + abs(z) ** 2) * z.real / (2 + 2 * abs(z) ** 2) for z in w[1:]), default=0.0)
        assert rate >= paper * (1 - 1e-9)
        assert contraction_rate(w, step / 2) >= rate * (1 - 1e-9)  # it serves every smaller step


def contraction(eigenvalues: tuple[complex, ...], step: float) -> float:
    """rho(W - step L) = max over l = 2..n of |1 - step w_l|; 0 for one agent."""
    return max((abs(1.0 - step * w) for w in eigenvalues[1:]), default=0.0)


@pytest.mark.parametrize("n", [5, 30])
def test_a_chains_repeated_eigenvalue_is_exact(n: int) -> None:
    order = np.random.default_rng(0).permutation(n)
    chain = np.diag(np.ones(n - 1), -1)[np.ix_(order, order)]
    assert laplacian_eigenvalues(chain) == (0j,) + (1 + 0j,) * (n - 1)


def test_two_closed_components_have_two_zeros_and_no_stationary_vector() -> None:
    split = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 5.0]])
    assert [w == 0 for w in laplacian_eigenvalues(split)] == [True, True, False]
    assert stationary(split) is None
    assert contraction_rate(laplacian_eigenvalues(split), 0.1) == 0.0 and spectral_step_bound((0j, 0j, 2 + 0j)) == 0.0


def test_one_agent() -> None:
    assert laplacian_eigenvalues(np.array([[3.0]])) == (0j,)
    assert np.array_equal(stationary(np.zeros((1, 1))), [1.0])
    assert contraction((0j,), 0.5) == 0.0 and contraction_rate((0j,), 0.5) == 2.0
    assert weight_step_bound(np.array([0.0])) == np.inf == spectral_step_bound((0j,))


def test_outside_the_bounds_the_rate_turns_negative() -> None:
    ring = np.roll(np.eye(3), 1, axis=0)
    w = laplacian_eigenvalues(ring)
    assert contraction(w, 1.5) > 1 and contraction_rate(w, 1.5) < 0


def test_stationary_is_accurate_for_stiff_weights() -> None:
    tiny = np.array([[0, 1e-12, 0], [0, 0, 1.0], [1e12, 0, 0]])  # v_i proportional to 1/r_i on a ring
    v = stationary(tiny)
    assert v is not None
    expected = np.array([1e12, 1.0, 1e-12])
    assert np.allclose(v, 3 * expected / expected.sum(), rtol=1e-13, atol=0)
