"""Estimators A, X, B, D, E: what each is of the true noise, to rounding; its variance; and what holes leave of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.adversary.attack import NotApplicable
from dpgt_node.adversary.inference import estimators as es
from dpgt_node.adversary.inference import predictions as pr
from dpgt_node.adversary.inference.dead_reckoning import dead_reckoned, gain, gradient_points
from dpgt_node.config import RunConfig
from dpgt_node.privacy.laws import grid
from dpgt_node.privacy.laws.gaussian_sampler import GaussianSampler
from dpgt_node.privacy.laws.grid_sampler import GridLaplaceSampler
from dpgt_node.privacy.laws.keystream import CtrStream
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.privacy.mechanisms import MECHANISMS as FACTS
from tests.adversary.record import Play, play, run_of

EXACT = ("public-state", "noise-once")
MECHANISMS = ("paper", "published-point", "public-state", "noise-once")


@pytest.fixture(scope="module")
def plays() -> dict[str, Play]:
    return {m: play(run_of(mechanism=m, K=9)) for m in MECHANISMS}


def the_view(p: Play, tmp_path: Path, i: int, **what: object) -> es.View:
    return es.view(p.observe(tmp_path / "t", **what), i)


def noise_of(p: Play, i: int) -> tuple[np.ndarray, np.ndarray]:
    """zeta_k and eta_k as they were drawn: released minus private; of noise-once g~ - g, by the definition of y."""
    released = {(j, q.stream, q.k): q.array() for j, q in p.payloads}
    rounds = p.run.K + 1
    x = np.array([released[i, "X", k] for k in range(rounds)])
    y = np.array([released[i, "Y", k] for k in range(rounds)])
    if p.run.algorithm.mechanism != "noise-once":
        return x - p.true(i, "x"), y - p.true(i, "y")
    facts = es.Facts.of(p.run)
    params, incoming = facts.steps(i), facts.network.incoming(i)
    noisy = [y[0]]
    for k in range(rounds - 1):
        mixed = params.beta * sum((w * released[j, "Y", k] for j, w in incoming["Y"]), np.zeros(x.shape[1]))
        noisy.append(y[k + 1] - (1 - params.b) * y[k] - mixed + noisy[-1])
    return np.zeros_like(x), np.array(noisy) - p.true(i, "g")


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("i", [0, 1, 2, 3])
def test_each_estimator_is_its_target_plus_the_stated_noise(
    plays: dict[str, Play], tmp_path: Path, mechanism: str, i: int
) -> None:
    p = plays[mechanism]
    v, g, y, x = the_view(p, tmp_path, i), p.true(i, "g"), p.true(i, "y"), p.true(i, "x")
    zeta, eta = noise_of(p, i)
    assert np.abs(eta).mean() > 0.01
    a, b, gamma = v.params.a, v.params.b, v.params.gamma
    rho, hold = 1 - a, 1 - b
    rounds = len(g)
    M = np.array(
        [[1.0 if k == j else -b * hold ** (k - 1 - j) if j < k else 0.0 for j in range(rounds)] for k in range(rounds)]
    )
    N = np.zeros((rounds, rounds))  # N_kl = sum over j of rho^{k-1-j} M_jl
    for k in range(rounds):
        for j in range(k):
            N[k] += rho ** (k - 1 - j) * M[j]
    running = np.concatenate([np.zeros((1, eta.shape[1])), np.cumsum(eta, axis=0)[:-1]])
    fade = np.array([[rho ** (k - 1 - j) if j < k else 0.0 for j in range(rounds)] for k in range(rounds)])
    nu = (rho * zeta[:-1] - zeta[1:]) / gamma
    expected = {
        "paper": {
            "A": g[1:] - g[:-1] + eta[1:] - hold * eta[:-1],
            "X": y[:-1] + nu,
            "B": g + eta + b * running,
            "D": M @ g + eta,
            "E": -gamma * N @ g + zeta,
            "B from x": g[:-1] + nu + b * np.concatenate([np.zeros((1, g.shape[1])), np.cumsum(nu, axis=0)[:-1]]),
            "x": x - gamma * fade @ eta,
        },
        "public-state": {
            "A": g[1:] - g[:-1] + eta[1:] - hold * eta[:-1],
            "X": y[:-1] + eta[:-1],
            "B": g + eta + b * running,
            "D": M @ g + eta,
            "E": -gamma * fade @ (M @ g + eta),
            "B from x": (g + eta + b * running)[:-1],
            "x": x,
        },
        "noise-once": {
            "A": g[1:] - g[:-1] + eta[1:] - eta[:-1],
            "X": y[:-1],
            "B": g + eta,
            "D": M @ (g + eta),
            "E": -gamma * N @ (g + eta),
            "B from x": (g + eta)[:-1],
            "x": x,
        },
    }
    expected["published-point"] = expected["paper"]
    got = {
        "A": es.difference(v),
        "X": es.tracker_from_x(v),
        "B": es.absolute(v),
        "D": es.innovation(v),
        "E": es.from_x(v),
        "B from x": es.absolute_from_x(v),
        "x": dead_reckoned(v),
    }
    silent = i == 3  # sends no y̆: what needs it is not there, or comes from x
    for name, value in expected[mechanism].items():
        unseen = np.isnan(got[name]).all(axis=1)
        assert not np.isnan(got[name][~unseen]).any()
        if silent and name in "ABD":
            assert unseen.all() if mechanism not in EXACT else unseen.tolist() == [False] * (len(unseen) - 1) + [True]
        else:
            assert not unseen.any()
        if not (silent and name == "x" and mechanism not in EXACT):
            np.testing.assert_allclose(got[name][~unseen], value[~unseen], atol=1e-12, err_msg=name)
    private = es.private_parts(v, g)
    np.testing.assert_allclose(private[0], M @ g, atol=1e-12)
    np.testing.assert_allclose(private[1], -gamma * N @ g, atol=1e-12)
    np.testing.assert_allclose(pr.kernel_y(b, rounds), M, atol=1e-12)
    np.testing.assert_allclose(pr.kernel_x(a, b, gamma, rounds), -gamma * N, atol=1e-12)
    point = p.true(i, "x") if mechanism != "published-point" else v.x
    assert silent or np.abs(gradient_points(v) - point).mean() < 0.02


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_variances_are_those_of_the_coefficients(mechanism: str) -> None:
    """Every prediction against the squared coefficients of a run of the estimator on unit noises, one at a time."""
    a, b, gamma, rounds = 0.3, 0.17, 0.2, 7
    rho, hold = 1 - a, 1 - b
    vx, vy = np.linspace(0.1, 0.9, rounds), np.linspace(2.0, 0.5, rounds) ** 2
    zeta, eta = (
        np.hstack([np.eye(rounds), np.zeros((rounds, rounds))]),
        np.hstack([np.zeros((rounds, rounds)), np.eye(rounds)]),
    )
    exact = mechanism in EXACT
    if mechanism == "noise-once":  # p and y hold M eta; x moves by it
        y = pr.kernel_y(b, rounds) @ eta
        x = pr.kernel_x(a, b, gamma, rounds) @ eta
    else:
        y, x = eta, zeta
        if exact:
            x = np.zeros_like(eta)
            for k in range(rounds - 1):
                x[k + 1] = rho * x[k] - gamma * y[k]
    X = (rho * x[:-1] - x[1:]) / gamma
    v = np.concatenate([0 * vx if exact else vx, vy])

    def absolute(z: np.ndarray) -> np.ndarray:
        return z + b * np.concatenate([np.zeros((1, z.shape[1])), np.cumsum(z, axis=0)[:-1]])

    pairs = {
        "A": (y[1:] - hold * y[:-1], pr.difference(FACTS[mechanism], b, vy)),
        "B": (absolute(y), pr.absolute(FACTS[mechanism], b, vy)),
        "D": (y, pr.innovation(FACTS[mechanism], b, vy)),
        "E": (x, pr.from_x(FACTS[mechanism], a, b, gamma, vx, vy)),
        "B from x": (absolute(X), pr.absolute_from_x(FACTS[mechanism], a, b, gamma, vx, vy)),
    }
    if mechanism != "noise-once":  # there X is y_k with its noise, so not an error
        pairs["X"] = (X, pr.tracker_from_x(FACTS[mechanism], a, gamma, vx, vy))
    for name, (coefficients, predicted) in pairs.items():
        np.testing.assert_allclose(predicted, coefficients**2 @ v, rtol=1e-9, atol=1e-15, err_msg=name)


def test_the_noise_has_the_predicted_variance() -> None:
    for law, sampler in (("laplace", GridLaplaceSampler(False)), ("gaussian", GaussianSampler())):
        drawn = sampler.perturb(np.zeros(400_000), 0.7, CtrStream(bytes(16), bytes(16)))
        assert np.var(drawn) / LAWS[law].variance(0.7) == pytest.approx(1.0, rel=0.015)
    exact = sum(float(grid.noise_probability(n)) * (n + 0.5) ** 2 for n in range(-6000, 6000))
    assert LAWS["laplace"].variance(2.0) == pytest.approx(exact * (2 * float(grid.KAPPA)) ** 2, rel=1e-9)
    assert LAWS["laplace"].variance(1.0) == pytest.approx(2 * 1.006**2, rel=1e-3)
    assert LAWS["gaussian"].variance(3.0) == 9.0 and LAWS["laplace"].variance(0.0) == 0.0
    assert pr.cosine(0.0) == 1.0 and pr.cosine(1.0) == pytest.approx(0.5**0.5)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_without_noise_gradients_are_exact(tmp_path: Path, mechanism: str) -> None:
    p = play(run_of(mechanism=mechanism, multiplier=0.0, K=6))
    for i in range(4):
        v, g = the_view(p, tmp_path, i), p.true(i, "g")
        if i != 3:
            np.testing.assert_allclose(es.absolute(v), g, atol=1e-14)
        np.testing.assert_allclose(es.absolute_from_x(v), g[:-1], atol=1e-13)
        np.testing.assert_allclose(dead_reckoned(v), p.true(i, "x"), atol=1e-14)


def test_estimators_refuse_a_method_that_is_not_algorithm_1(tmp_path: Path) -> None:
    """S-AB is, without noise; what it sends tells every gradient."""
    run = run_of(mechanism="paper", K=9)
    quiet = replace(run, noise=replace(run.noise, multiplier=0.0))
    p = play(replace(quiet, algorithm=replace(run.algorithm, method="s-ab")))
    assert np.abs(es.absolute(the_view(p, tmp_path, 1)) - p.true(1, "g")).max() < 1e-9
    other = replace(run, algorithm=replace(run.algorithm, method="atc-dsgd", mechanism="noise-once"))
    observation = replace(p.observe(tmp_path / "t"), facts=es.Facts.of(other))
    with pytest.raises(NotApplicable, match="the estimators are of Algorithm 1, not of 'atc-dsgd'"):
        es.view(observation, 1)


def test_a_float32_wire_costs_its_rounding_only(tmp_path: Path) -> None:
    p = play(run_of(multiplier=0.0, K=6, dtype="float32"))
    v = the_view(p, tmp_path, 1)
    assert v.rounding == 2.0**-24
    np.testing.assert_allclose(es.absolute(v), p.true(1, "g"), atol=1e-6)


def test_dead_reckoning_gains_what_it_should() -> None:
    assert gain(0.1, 0.1, 1.0, 1.0) == pytest.approx(4.36, abs=0.01)  # S2, r = 1
    assert gain(0.08, 0.05, 1.0, 1.0) == pytest.approx(7.84, abs=0.01)  # S1, r = 2
    assert gain(0.1, 0.1, 1.0, 0.0) == float("inf") and gain(0.0, 0.1, 1.0, 1.0) == 0.0


# ---------------------------------------------------------------- missing data
def availability(p: Play, tmp_path: Path, i: int, **what: object) -> dict[str, list[int]]:
    v = the_view(p, tmp_path, i, **what)
    series = {
        "A": es.difference(v),
        "X": es.tracker_from_x(v),
        "B": es.absolute(v),
        "D": es.innovation(v),
        "E": es.from_x(v),
    }
    return {name: np.flatnonzero(~np.isnan(values).any(axis=1)).tolist() for name, values in series.items()}


def test_a_lost_message_costs_what_it_must(plays: dict[str, Play], tmp_path: Path) -> None:
    def lost(name: str, stream: str, k: int) -> object:
        return lambda sender, receiver, q: None if (sender, q.stream, q.k) == (name, stream, k) else ()

    p = plays["paper"]
    every = list(range(10))
    # Agent 1 mixes y̆ of 0 and 2, x̆ of 0 and 2.  Its own y̆_4: no self-loop of agent 1.
    own = availability(p, tmp_path, 1, missing=lost("agent-2", "Y", 4))
    assert own["A"] == [0, 1, 2, 5, 6, 7, 8] and own["B"] == [0, 1, 2, 3]
    assert own["D"] == [0, 1, 2, 3, 5, 6, 7, 8, 9] and own["E"] == every and own["X"] == every[:-1]
    other = availability(p, tmp_path, 1, missing=lost("agent-1", "Y", 4))
    assert other["A"] == [0, 1, 2, 3, 5, 6, 7, 8] and other["B"] == other["D"] == [0, 1, 2, 3, 4]
    assert other["E"] == [0, 1, 2, 3, 4, 5]  # tx_6 is the first that needs t_5
    x = availability(p, tmp_path, 1, missing=lost("agent-3", "X", 4))
    assert x["X"] == [0, 1, 2, 3, 5, 6, 7, 8] and x["E"] == [0, 1, 2, 3, 4] and x["B"] == x["D"] == every


def test_where_x_is_exact_it_stands_in_for_a_lost_y(plays: dict[str, Play], tmp_path: Path) -> None:
    for mechanism in EXACT:
        p = plays[mechanism]
        hidden = the_view(p, tmp_path, 1, missing=lambda s, r, q: None if (s, q.stream) == ("agent-2", "Y") else ())
        whole = the_view(p, tmp_path, 1)
        assert np.isnan(hidden.y).all()
        np.testing.assert_allclose(es.absolute(hidden)[:-1], es.absolute(whole)[:-1], atol=1e-12)
        assert np.isnan(es.absolute(hidden)[-1]).all()


def test_holes_are_by_coordinate(plays: dict[str, Play], tmp_path: Path) -> None:
    holed = the_view(
        plays["paper"],
        tmp_path,
        1,
        missing=lambda s, r, q: ((80, 100),) if (s, q.stream, q.k) == ("agent-1", "Y", 3) else (),
    )
    lost = np.isnan(es.absolute(holed))
    assert np.flatnonzero(lost.any(axis=0)).tolist() == [10, 11, 12] and not lost[:4].any() and lost[4:, 10:13].all()


def test_a_partial_vantage_sees_round_0_and_no_more(plays: dict[str, Play], tmp_path: Path) -> None:
    """A tap on one edge: y̆_0 = g_0 + eta_0 needs nothing else, every other value needs the agent's in-edges."""
    seen = availability(plays["paper"], tmp_path, 1, links=[("agent-2", "agent-3")])
    assert seen["B"] == seen["D"] == [0] and seen["A"] == seen["X"] == []
    assert seen["E"] == [0]


def test_a_semi_honest_agent_reads_who_it_hears_wholly(tmp_path: Path) -> None:
    run = run_of(R=[[0, 1], [1, 0]], C=[[0, 1], [1, 0]], K=4)
    p = play(run)
    v = es.view(p.observe(tmp_path / "t", observer="agent-1"), 1)
    np.testing.assert_allclose(es.absolute(v), es.absolute(es.view(p.observe(tmp_path / "u"), 1)))


def test_x0_of_every_start_is_known(tmp_path: Path) -> None:
    def start(run: RunConfig) -> float:
        p = play(run)
        return float(np.abs(the_view(p, tmp_path, 0).x0 - p.true(0, "x")[0]).max())

    assert start(run_of(K=1, model="init_seed = 3")) == 0.0
    assert start(run_of(K=1, data='dataset = "pl-sine"\nstart = 1.5', m=1)) == 0.0
    assert start(run_of(K=1, data='dataset = "quadratic"\ndimension = 3', m=1)) == 0.0
