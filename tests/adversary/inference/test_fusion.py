"""Fusion against dense algebra that knows nothing of recursions, and never worse than its parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog

from dpgt_node.adversary.inference import estimators as es
from dpgt_node.adversary.inference import predictions as pr
from dpgt_node.adversary.inference.fusion import least_squares, log_likelihood, patterns
from dpgt_node.adversary.inference.map_l1 import MAX_ROUNDS, most_probable
from dpgt_node.adversary.inference.smoothing import Prior, smooth
from dpgt_node.algo.methods.dpgt import Steps
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.privacy.mechanisms import MECHANISMS

PARAMS = Steps(0.2, 0.3, 0.4, 0.25, 0.3)


def made(
    rounds: int, d: int, *, mechanism: str = "paper", seed: int = 0, law: str = "laplace"
) -> tuple[es.View, np.ndarray]:
    """A view built literally from (alg,1) and (alg,2) with arbitrary received values, and its gradients."""
    rng = np.random.default_rng(seed)
    g = rng.standard_normal((rounds, d))
    u, w, x0 = rng.standard_normal((rounds, d)), rng.standard_normal((rounds, d)), rng.standard_normal(d)
    scale_x, scale_y = np.linspace(0.3, 0.6, rounds), np.linspace(0.5, 0.2, rounds)
    draw = rng.laplace if law == "laplace" else rng.normal
    zeta, eta = draw(size=(rounds, d)) * scale_x[:, None], draw(size=(rounds, d)) * scale_y[:, None]
    used = g + eta if mechanism == "noise-once" else g
    x, y = np.empty((rounds, d)), np.empty((rounds, d))
    x[0], y[0] = x0, used[0]
    for k in range(rounds - 1):
        step = y[k] + eta[k] if mechanism == "public-state" else y[k]
        x[k + 1] = (1 - PARAMS.a) * x[k] + u[k] - PARAMS.gamma * step
        y[k + 1] = (1 - PARAMS.b) * y[k] + w[k] + used[k + 1] - used[k]
    exact = mechanism in ("public-state", "noise-once")
    factor = 2.0 if law == "laplace" else 1.0
    view = es.View(
        "a", MECHANISMS[mechanism], LAWS[law], PARAMS,
        x if exact else x + zeta, y if mechanism == "noise-once" else y + eta, u, w, x0,
        scale_x * (not exact), scale_y, factor * scale_x**2 * (not exact), factor * scale_y**2,
    )  # fmt: skip
    return view, g


def holed(v: es.View, seed: int, share: float = 0.12) -> es.View:
    """The same holes in every coordinate."""
    rng = np.random.default_rng(seed)
    cut = {}
    for name in ("x", "y", "u", "w"):
        values = getattr(v, name).copy()
        values[rng.random(v.rounds) < share] = np.nan
        cut[name] = values
    return replace(v, **cut)


def dense(v: es.View) -> tuple[np.ndarray, np.ndarray]:
    """Weighted least squares with what was not seen of u and w as further unknowns; NaN where g_k is not determined."""
    rounds = v.rounds
    M, N = pr.kernel_y(PARAMS.b, rounds), pr.kernel_x(PARAMS.a, PARAMS.b, PARAMS.gamma, rounds)
    lost_w, lost_u = (np.flatnonzero(np.isnan(a[:-1, 0])) for a in (v.w, v.u))
    t, tx = es.transcript_parts(v, bridge=True)
    shift_y, shift_x = np.zeros((rounds, len(lost_w))), np.zeros((rounds, len(lost_w) + len(lost_u)))
    for column, at in enumerate(lost_w):
        for k in range(at, rounds - 1):
            shift_y[k + 1, column] = (1 - PARAMS.b) * shift_y[k, column] + (k == at)
            shift_x[k + 1, column] = (1 - PARAMS.a) * shift_x[k, column] - PARAMS.gamma * shift_y[k, column]
    for column, at in enumerate(lost_u, start=len(lost_w)):
        for k in range(at, rounds - 1):
            shift_x[k + 1, column] = (1 - PARAMS.a) * shift_x[k, column] + (k == at)
    top = np.hstack([M, shift_y, np.zeros((rounds, len(lost_u)))])
    design = np.vstack([top, np.hstack([N, shift_x])])
    data = np.vstack([v.y - t, v.x - tx])
    weight = 1 / np.sqrt(np.concatenate([v.var_y, v.var_x]))
    rows = ~np.isnan(data[:, 0])
    rows[rounds] = False  # E_0 is zeta_0 alone
    A, c = (design * weight[:, None])[rows], (data * weight[:, None])[rows]
    inverse = np.linalg.pinv(A, rcond=1e-10)
    determined = np.abs((inverse @ A - np.eye(A.shape[1]))[:rounds]).max(axis=1) < 1e-6
    estimate, variance = (inverse @ c)[:rounds], np.diag(inverse @ inverse.T)[:rounds].copy()
    estimate[~determined], variance[~determined] = np.nan, np.nan
    return estimate, variance


@pytest.mark.parametrize("seed", range(40))
def test_least_squares_is_the_dense_one_whatever_is_missing(seed: int) -> None:
    v, _ = made(3 + seed % 9, 3, seed=seed)
    v = holed(v, seed) if seed % 4 else v
    fused, (g, variance) = least_squares(v), dense(v)
    np.testing.assert_allclose(fused.g, g, atol=1e-6)
    np.testing.assert_allclose(fused.variance[:, 0], variance, rtol=1e-5)


@pytest.mark.parametrize("rounds", [1, 2])
def test_runs_of_one_and_two_rounds_are_fused_as_well(rounds: int) -> None:
    v, _ = made(rounds, 3)
    fused, (g, variance) = least_squares(v), dense(v)
    np.testing.assert_allclose(fused.g, g, atol=1e-6)
    np.testing.assert_allclose(fused.variance[:, 0], variance, rtol=1e-5)


def test_coordinates_with_other_holes_do_not_disturb_each_other() -> None:
    v, _ = made(8, 6)
    whole = least_squares(v)
    w = v.w.copy()
    w[3, 2:4] = np.nan
    y = v.y.copy()
    y[5, 5] = np.nan
    cut = replace(v, w=w, y=y)
    assert [len(group) for group in patterns(cut)] == [3, 2, 1]
    fused = least_squares(cut)
    np.testing.assert_allclose(fused.g[:, :2], whole.g[:, :2])
    assert np.isnan(fused.g[4:, 2:4]).all() and not np.isnan(fused.g[:4, 2:4]).any()
    assert not np.isnan(fused.g[:, 5]).any()  # y̆_5 comes from x
    assert fused.variance[5, 5] > fused.variance[5, 0]
    np.testing.assert_allclose(fused.x[:, :2], whole.x[:, :2])


@pytest.mark.parametrize("mechanism", ["paper", "published-point", "public-state", "noise-once"])
def test_fusion_is_never_worse_than_its_parts(mechanism: str) -> None:
    v, g = made(12, 20_000, mechanism=mechanism)
    fused = least_squares(v)
    error = np.sqrt(np.mean((fused.g - g) ** 2, axis=1))
    np.testing.assert_allclose(error, np.sqrt(fused.variance[:, 0]), rtol=0.03)
    for part in (es.absolute(v), es.absolute_from_x(v)):
        assert (error[: len(part)] <= 1.01 * np.sqrt(np.mean((part - g[: len(part)]) ** 2, axis=1))).all()
    if mechanism == "paper":  # and here x helps a good deal
        assert error[5] < 0.98 * np.sqrt(np.mean((es.absolute(v) - g)[5] ** 2))


def test_a_weight_that_is_wrong_is_noticed() -> None:
    """The mutant: least squares that believes x a hundred times better than it is loses to B."""
    v, g = made(12, 5000)
    wrong = least_squares(replace(v, var_x=v.var_x * 1e-4))
    assert np.mean((wrong.g - g)[:-1] ** 2) > 1.05 * np.mean((es.absolute(v) - g)[:-1] ** 2)


def test_the_private_state_is_fused_too() -> None:
    v, g = made(10, 4000)
    truth = es.private_parts(v, g)[1] + es.transcript_parts(v)[1]
    error = np.mean((least_squares(v).x - truth) ** 2, axis=1)
    assert (error <= 1.02 * pr.dead_reckoned(PARAMS.a, PARAMS.gamma, v.var_y)).all()
    assert (error[1:] < np.mean((v.x - truth) ** 2, axis=1)[1:]).all()


# ---------------------------------------------------------------- with a prior
def conditional_mean(v: es.View, prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """E[g | D, E] by one dense Gaussian formula."""
    rounds = v.rounds
    at = np.arange(rounds)
    S = prior.initial + prior.walk * np.minimum.outer(at, at) + prior.sampling * np.eye(rounds)
    if v.mechanism.accounted.once:
        A, data, noise = np.eye(rounds), es.absolute(v), v.var_y
    elif v.mechanism.x_public:
        A, data, noise = pr.kernel_y(PARAMS.b, rounds), es.innovation(v), v.var_y
    else:
        A = np.vstack([pr.kernel_y(PARAMS.b, rounds), pr.kernel_x(PARAMS.a, PARAMS.b, PARAMS.gamma, rounds)[1:]])
        data, noise = np.vstack([es.innovation(v), es.from_x(v)[1:]]), np.concatenate([v.var_y, v.var_x[1:]])
    seen = ~np.isnan(data[:, 0])
    A, data, noise = A[seen], data[seen], noise[seen]
    gain = S @ A.T @ np.linalg.inv(A @ S @ A.T + np.diag(noise))
    return gain @ data, np.diag(S - gain @ A @ S)


@pytest.mark.parametrize("mechanism", ["paper", "public-state", "noise-once"])
def test_the_smoother_is_the_conditional_mean(mechanism: str) -> None:
    prior = Prior(0.7, 0.05, 0.3)
    v, _ = made(9, 4, mechanism=mechanism)
    got = smooth(v, prior)
    mean, variance = conditional_mean(v, prior)
    np.testing.assert_allclose(got.g, mean, atol=1e-9)
    np.testing.assert_allclose(got.variance[:, 0], variance, atol=1e-9)
    if mechanism == "paper":
        y = v.y.copy()
        y[4] = np.nan
        np.testing.assert_allclose(
            smooth(replace(v, y=y), prior).g, conditional_mean(replace(v, y=y), prior)[0], atol=1e-9
        )


def test_a_fitted_prior_finds_how_gradients_move() -> None:
    v, _ = made(40, 600)
    rng = np.random.default_rng(1)
    g = rng.normal(0, 0.8, 600) + np.cumsum(rng.normal(0, 0.2, (40, 600)), axis=0) + rng.normal(0, 0.5, (40, 600))
    p, px = es.private_parts(v, g)
    t, tx = es.transcript_parts(v)
    noise = rng.normal(size=(2, 40, 600)) * np.sqrt(np.stack([v.var_y, v.var_x]))[:, :, None]
    v = replace(v, y=t + p + noise[0], x=tx + px + noise[1])
    found = smooth(v)
    assert found.prior.walk == pytest.approx(0.04, rel=0.5)
    assert found.prior.sampling == pytest.approx(0.25, rel=0.5)
    error = np.mean((found.g - g) ** 2)
    assert error < 0.8 * np.mean((least_squares(v).g - g) ** 2)
    assert error == pytest.approx(float(np.mean(found.variance)), rel=0.15)


def test_after_a_hole_the_smoother_claims_no_more_than_was_seen() -> None:
    v, _ = made(8, 3)
    w = v.w.copy()
    w[4] = np.nan
    assert np.flatnonzero(~np.isnan(smooth(replace(v, w=w), Prior(1, 1, 1)).g[:, 0])).tolist() == [0, 1, 2, 3, 4]


# ---------------------------------------------------------------- Laplace
@pytest.mark.parametrize("mechanism", ["paper", "public-state", "noise-once"])
def test_the_most_probable_gradients_minimise_l1(mechanism: str) -> None:
    v, _ = made(6, 5, mechanism=mechanism, seed=3)
    got = most_probable(v, None, iterations=3000)
    rounds = v.rounds
    if mechanism == "noise-once":
        A, data, scale = np.eye(rounds), es.absolute(v), v.scale_y
    else:
        A, data, scale = pr.kernel_y(PARAMS.b, rounds), es.innovation(v), v.scale_y
    if mechanism == "paper":
        A = np.vstack([A, pr.kernel_x(PARAMS.a, PARAMS.b, PARAMS.gamma, rounds)[1:]])
        data, scale = np.vstack([data, es.from_x(v)[1:]]), np.concatenate([scale, v.scale_x[1:]])
    A, data = A / scale[:, None], data / scale[:, None]
    for j in range(5):
        n = len(A)
        best = linprog(
            np.r_[np.zeros(rounds), np.ones(n)],
            A_ub=np.vstack([np.hstack([A, -np.eye(n)]), np.hstack([-A, -np.eye(n)])]),
            b_ub=np.r_[data[:, j], -data[:, j]],
            bounds=[(None, None)] * rounds + [(0, None)] * n,
        ).fun
        assert np.abs(data[:, j] - A @ got[:, j]).sum() == pytest.approx(best, rel=1e-3, abs=1e-4)
        constant = 0.0 if v.mechanism.x_public else float(np.abs(es.from_x(v)[0, j])) / v.scale_x[0]  # E_0 is zeta_0
        assert -log_likelihood(v, got)[j] - constant == pytest.approx(best, rel=1e-3, abs=1e-4)


def test_the_likelihood_is_the_density_of_the_noise() -> None:
    for law in ("laplace", "gaussian"):
        v, g = made(5, 3, law=law)
        p, px = es.private_parts(v, g)
        t, tx = es.transcript_parts(v)
        eta, zeta = (v.y - t - p) / v.scale_y[:, None], (v.x - tx - px) / v.scale_x[:, None]
        expected = -(np.abs(eta) + np.abs(zeta)) if law == "laplace" else -(eta**2 + zeta**2) / 2
        np.testing.assert_allclose(log_likelihood(v, g), expected.sum(axis=0))
    quiet = replace(v, scale_y=np.zeros(5))
    assert (log_likelihood(quiet, g) == -np.inf).all()


def test_the_l1_estimate_says_where_it_has_nothing() -> None:
    v, _ = made(5, 3)
    w = v.w.copy()
    w[2, 1] = np.nan
    got = most_probable(replace(v, w=w), Prior(1.0, 0.1, 0.1))
    assert np.isnan(got[:, 1]).all() and not np.isnan(got[:, [0, 2]]).any()
    assert np.isnan(most_probable(replace(v, law=LAWS["gaussian"]), None)).all()
    with pytest.raises(ValueError, match="at most"):
        most_probable(made(MAX_ROUNDS + 1, 1)[0], None)


def test_a_real_run_with_holes(tmp_path: Path) -> None:
    """Fusion of an agent that sends no y̆ at all: gradients from x alone."""
    from tests.adversary.record import play, run_of

    p = play(run_of(K=8, zeta=1e-4))
    v = es.view(p.observe(tmp_path / "t"), 3)
    fused, g = least_squares(v), p.true(3, "g")
    assert np.isnan(v.y).all() and np.isnan(fused.g[-1]).all()
    error = np.sqrt(np.mean((fused.g - g)[:-1] ** 2, axis=1))
    np.testing.assert_allclose(error, np.sqrt(fused.variance[:-1, 0]), rtol=0.1)
