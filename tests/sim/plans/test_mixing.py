"""A recipe carried out over a graph is the same recipe, and no step is slower than it must be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpgt_node.algo import spectrum
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.hard import hard_failures
from dpgt_node.algo.schedule import Schedule
from dpgt_node.algo.theory import step_warnings
from dpgt_node.config import model
from dpgt_node.sim.plans.mixing import LONGEST, Mixing, Network, neighbours
from dpgt_node.sim.plans.recipe import Budget, Centre, Recipe, Sums
from dpgt_node.sim.plans.rehearsal import Rehearsal
from tests.sim.plans.cases import CHORD, RING, SHAPE, run

GIVEN = Recipe(3, 0.5, 0.6, Sums(0.8, 0.4, 0.5))
BUDGET = Budget(0.1, 2)
COMPLETE = tuple(tuple(0.0 if i == j else 1.0 for j in range(6)) for i in range(6))
CHAIN = tuple(tuple(1.0 if j == i - 1 or (i, j) == (0, 11) else 0.0 for j in range(12)) for i in range(12))


def graph(R: model.Matrix, C: model.Matrix) -> model.Graph:
    return model.Graph(tuple(f"a{i}" for i in range(len(R))), R, C)


@pytest.mark.parametrize("given", [GIVEN, replace(GIVEN, sums=None), replace(GIVEN, gradients=0)])
def test_a_run_carries_a_recipe_out(given: Recipe) -> None:
    """Without noise, with rounds enough between releases, all agents end where one holder does."""
    base = replace(run(), algorithm=model.Algorithm(1, mechanism="noise-once"))
    network, rehearsal = Network.of(Topology.from_config(base.graph)), Rehearsal(run(), SHAPE)

    def ends(network: Network) -> np.ndarray:
        mixing = Mixing(network.alpha, network.beta, 400, 300)
        made = network.run(base, given, mixing, BUDGET, 2)
        made = replace(made, noise=replace(made.noise, multiplier=0.0))
        assert made.K + 1 == mixing.rounds(given) == 400 * given.releases + 300
        assert len(Schedule.from_config(made).releases) == given.releases
        return rehearsal.final(made, 0)

    pooled = Centre(rehearsal, Budget(0.0, 2), 2).point(given, np.random.default_rng(0))
    # One holder's mean is over all samples, the network's over agents: nearly the same agents' means here.
    np.testing.assert_allclose(ends(network), np.tile(pooled, (3, 1)), atol=0.03 * np.abs(pooled).max())
    for wrong in (0.8, 1.25):
        moved = ends(replace(network, speed=wrong * network.speed))
        assert np.abs(moved - pooled).max() > 0.1 * np.abs(pooled).max()


@pytest.mark.parametrize("matrix", [COMPLETE, CHAIN])
def test_of_many_agents_the_factor_is_bounded_from_above(matrix: model.Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = Topology.from_config(graph(matrix, matrix))
    exact = Network.of(topology)
    monkeypatch.setattr(spectrum, "DENSE_MOST", 4)
    monkeypatch.setattr(spectrum, "_circulant", lambda edges: None)
    bounded = Network.of(topology)
    assert exact.factor <= bounded.factor < 1.0 and bounded.speed == pytest.approx(exact.speed, rel=1e-9)
    w = np.array(spectrum.laplacian_eigenvalues(topology.in_R)[1:])
    assert np.abs(1.0 - bounded.alpha * w).max() <= bounded.factor * (1 + 1e-9)


def test_scales_and_clips_by_release_are_the_recipe_s() -> None:
    made = Network.of(Topology.from_config(run().graph)).run(run(), GIVEN, Mixing(0.3, 0.3, 5, 7), BUDGET, 2)
    assert made.privacy.clip_l2 == 0.5 and made.privacy.by_release == (1.6, 1.0)
    assert made.noise.by_release == (pytest.approx(1.6 * np.sqrt(0.6 / 3 / 0.4), rel=0.01), 1.0)
    pure = Network.of(Topology.from_config(run().graph)).run(run(), GIVEN, Mixing(0.3, 0.3, 5, 7), Budget(0.1, 1), 1)
    assert pure.privacy.clip_l1 == 0.5 and pure.privacy.clip_l2 is None
    assert pure.noise.by_release == (pytest.approx(1.6 * 0.6 / 3 / 0.4, rel=0.01), 1.0)


@pytest.mark.parametrize(("R", "C"), [(RING, CHORD), (COMPLETE, COMPLETE), (CHAIN, CHAIN)])
def test_steps_mix_as_fast_as_lemma_1_lets_them(R: model.Matrix, C: model.Matrix) -> None:
    topology = Topology.from_config(graph(R, C))
    network = Network.of(topology)
    base = replace(run(), graph=graph(R, C), algorithm=model.Algorithm(1, mechanism="noise-once"))
    made = network.run(base, GIVEN, network.mixing(GIVEN), BUDGET, 2)
    schedule = Schedule.from_config(made)
    assert not step_warnings(topology, schedule) and not hard_failures(made, topology, schedule, (500,) * topology.n)

    def decay(step: float, L: np.ndarray) -> float:
        return float(np.sort(np.abs(1.0 - step * np.linalg.eigvals(L)))[-2])

    own = max(decay(network.alpha, topology.L1), decay(network.beta, topology.L2))
    assert network.factor == pytest.approx(own, abs=1e-6)
    for step in np.linspace(0.01, 1.0, 100):
        tried = replace(schedule, alpha=float(step), beta=float(step))
        if not any("alpha" in line for line in step_warnings(topology, tried)):
            assert decay(network.alpha, topology.L1) <= decay(float(step), topology.L1) + 0.05
    # What the first rounds between two releases leave of a difference is what they are meant to leave.
    mixing = network.mixing(GIVEN)
    assert network.factor**mixing.every <= 0.1 and (network.factor ** (mixing.every - 1) > 0.001 or mixing.every == 1)
    assert mixing.rounds(GIVEN) <= LONGEST


def test_one_agent_mixes_with_nobody() -> None:
    network = Network.of(Topology.from_config(graph(((0.0,),), ((0.0,),))))
    mixing = network.mixing(GIVEN)
    assert (network.factor, network.speed, mixing.every, mixing.settle) == (0.0, 1.0, 1, 0)
    assert [one for _, one in neighbours(GIVEN, mixing)] == [mixing, mixing]


def test_neighbours_are_never_longer_than_a_plan_may_be() -> None:
    long = Mixing(0.1, 0.1, LONGEST // 5, LONGEST // 5)
    assert all(mixing.rounds(one) <= LONGEST for one, mixing in neighbours(GIVEN, long))


def test_shared_noise_of_a_rehearsal_has_the_law_of_the_run_s() -> None:
    """Gradients of nothing, one release: the rows' covariance is s^2 (I + r^2 L), and their sum has own noise alone."""
    base = run(clip_l2=1e-12)
    noise = model.NoiseStream("constant", (0.5,) * 3)
    shared = model.Noise(None, noise, law="gaussian", cancel=2, mask_graph=((1, 2), (2, 3)))
    made = replace(base, algorithm=model.Algorithm(0, mechanism="noise-once"), noise=shared)
    rehearsal = Rehearsal(made, SHAPE)
    x = np.concatenate([rehearsal.final(made, seed) for seed in range(300)], axis=1)
    L = np.array([[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]])
    np.testing.assert_allclose(np.cov(x), 0.25 * (np.eye(3) + 4.0 * L), atol=0.1)
    assert x.sum(axis=0).std() == pytest.approx(0.5 * np.sqrt(3), rel=0.05)
