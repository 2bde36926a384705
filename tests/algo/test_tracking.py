from __future__ import annotations

import numpy as np
import pytest

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from tests.algo.cases import DEMO_C, DEMO_R, graph
from tests.oracles import dense, graphs
from tests.states import Agent, network, step_x, step_y

CHAIN = np.diag([1.0, 0.5, 2.0], -1)
LOOPS = np.array(DEMO_R, float) + np.diag([0.3, 0, 0.7, 0, 1.1])
PAIRS = {
    "demo": (DEMO_R, DEMO_C),
    "self-loops": (LOOPS, np.array(DEMO_C, float) * 0.4 + np.diag([0, 0.2, 0, 0.9, 0])),
    "roots": (CHAIN, CHAIN.T),
    "alone": ([[0.0]], [[0.0]]),
    "alone-with-loops": ([[0.4]], [[0.6]]),
    **{f"random-{s}": graphs.random_pair(np.random.default_rng(s), 3 + s) for s in range(5)},
}


class World:
    """Quadratics with a fresh offset every round, iterated agent by agent through the product's own steps."""

    def __init__(self, R, C, noise: float, K: int = 40, d: int = 4) -> None:
        self.topology = Topology.from_config(graph(R, C))
        n = self.topology.n
        rng = np.random.default_rng(n)
        self.alpha = 0.5 / max(1.0, self.topology.r.max())
        self.beta = 0.3 / max(1.0, self.topology.c.max())
        self.gamma, self.K, self.d = 0.05, K, d
        self.targets = rng.normal(size=(K + 2, n, d))
        self.x0 = rng.normal(size=(n, d))
        self.zeta, self.eta = noise * rng.laplace(size=(2, K + 1, n, d))
        schedule = Schedule("S2", K, self.alpha, self.beta, self.gamma, 1, 1.0, None, None, range(K + 1))
        self.agents = [Agent.build(self.topology, schedule, i) for i in range(n)]

    def gradient(self, i: int, k: int, x: np.ndarray) -> np.ndarray:
        return x - self.targets[k, i]

    def iterate(self) -> tuple[dense.Trajectory, np.ndarray, np.ndarray]:
        n, zero = self.topology.n, np.zeros(self.d)
        g = [self.gradient(i, 0, self.x0[i]) for i in range(n)]
        parts = [(self.x0[i], zero, g[i], zero) for i in range(n)]
        xs, ys, gs, sent_x, sent_y = [self.x0], [np.stack(g)], [np.stack(g)], [], []
        for k in range(self.K + 1):
            xb = {i: px + tx + self.zeta[k, i] for i, (px, tx, _, _) in enumerate(parts)}
            yb = {i: p + t + self.eta[k, i] for i, (_, _, p, t) in enumerate(parts)}
            after = []
            for i, params in enumerate(self.agents):
                px, tx, p, t = parts[i]
                mixed_x = {j: xb[j] for j in reversed([j for j, _ in params.in_R])}
                px1, tx1 = step_x(params, px, tx, p, t, mixed_x)
                g1 = self.gradient(i, k + 1, px1 + tx1)
                p1, t1 = step_y(params, p, t, {j: yb[j] for j, _ in params.in_C}, g[i], g1)
                g[i] = g1
                after.append((px1, tx1, p1, t1))
            parts = after
            sent_x.append(np.stack([xb[i] for i in range(n)]))
            sent_y.append(np.stack([yb[i] for i in range(n)]))
            xs.append(np.stack([px + tx for px, tx, _, _ in parts]))
            ys.append(np.stack([p + t for _, _, p, t in parts]))
            gs.append(np.stack(g))
        return dense.Trajectory(np.stack(xs), np.stack(ys), np.stack(gs)), np.stack(sent_x), np.stack(sent_y)


def relative_error(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("pair", PAIRS)
def test_agents_follow_both_dense_oracles(pair: str, noise: float) -> None:
    R, C = PAIRS[pair]
    world = World(R, C, noise)
    got, sent_x, sent_y = world.iterate()
    steps = (R, C, world.alpha, world.beta, world.gamma, world.x0, world.gradient)
    for oracle in (
        dense.algorithm1(*steps, world.zeta, world.eta),
        dense.algorithm1_released(*steps, sent_x, sent_y),
    ):
        assert relative_error(got.x, oracle.x) < 1e-12
        assert relative_error(got.y, oracle.y) < 1e-12


@pytest.mark.parametrize("pair", PAIRS)
def test_mass_identity_every_round(pair: str) -> None:
    R, C = PAIRS[pair]
    world = World(R, C, noise=1.0)
    got, _, sent_y = world.iterate()
    assert dense.mass_defect(C, world.beta, got, sent_y - got.y[:-1]).max() < 1e-11


def test_the_printed_index_of_alg2_loses_mass() -> None:
    # Erratum 1: with C_ji in the received sum, as printed, the same check fails; with C_ij it holds (above).
    C = np.array(DEMO_C, float) * np.linspace(0.5, 1.5, 5)
    world = World(DEMO_R, C, noise=1.0)
    printed = dense.algorithm1(
        DEMO_R, C.T, world.alpha, world.beta, world.gamma, world.x0, world.gradient, world.zeta, world.eta
    )
    assert dense.mass_defect(C, world.beta, printed, world.eta).max() > 1e-3


def test_a_doubled_release_breaks_the_mass_identity() -> None:
    world = World(DEMO_R, DEMO_C, noise=1.0)
    params = world.agents[0]
    d, rng = world.d, np.random.default_rng(0)
    p, t, g = rng.normal(size=(3, d))
    received = {j: rng.normal(size=d) for j, _ in params.in_C}
    once = sum(step_y(params, p, t, received, g, g))
    twice = sum(step_y(params, p, t, {j: 2 * v for j, v in received.items()}, g, g))
    assert np.abs(twice - once).max() > 1e-6


def test_a_self_loop_mixes_the_released_own_value() -> None:
    # Erratum 7: x+ - x must contain alpha R_ii (x̆_i - x_i), hence the agent's own noise.
    world = World([[0.4]], [[0.6]], noise=0.0)
    params = world.agents[0]
    x, y, noise = np.ones(4), np.zeros(4), np.full(4, 0.25)
    assert [j for j, _ in params.in_R] == [j for j, _ in params.in_C] == [0]
    moved = sum(step_x(params, x, y, y, y, {0: x + noise})) - x
    assert np.allclose(moved, world.alpha * 0.4 * noise, rtol=1e-12)
    moved = sum(step_y(params, x, y, {0: x + noise}, y, y)) - x
    assert np.allclose(moved, world.beta * 0.6 * noise, rtol=1e-12)


def test_a_root_without_in_edges_only_descends() -> None:
    world = World(CHAIN, CHAIN.T, noise=0.0)
    params = world.agents[0]
    assert (params.steps.a, params.in_R) == (0.0, ())
    assert params.steps.b == 0.0 and network(world.topology).outgoing(0)["Y"] == ()
    px, p = np.ones(4), np.full(4, 2.0)
    px1, tx1 = step_x(params, px, np.zeros(4), p, np.zeros(4), {})
    assert np.array_equal(px1, px - params.steps.gamma * p) and not tx1.any()


def test_private_parts_do_not_see_received_values() -> None:
    params = World(LOOPS, DEMO_C, noise=0.0).agents[0]
    rng = np.random.default_rng(1)
    px, tx, p, t, g, g1 = rng.normal(size=(6, 4))
    tame = {j: rng.normal(size=4) for j in range(5)}
    hostile = {j: np.full(4, 1e16) for j in range(5)}
    assert np.array_equal(step_x(params, px, tx, p, t, tame)[0], step_x(params, px, 1e9 * tx, p, t, hostile)[0])
    assert np.array_equal(step_y(params, p, t, tame, g, g1)[0], step_y(params, p, 1e9 * t, hostile, g, g1)[0])


def test_inputs_are_left_alone_and_arrival_order_does_not_matter() -> None:
    params = World(*PAIRS["random-4"], noise=0.0).agents[2]
    rng = np.random.default_rng(2)
    inputs = rng.normal(size=(6, 4))
    inputs.setflags(write=False)
    px, tx, p, t, g, g1 = inputs
    values = {j: rng.normal(size=4) * 10.0 ** rng.integers(-8, 8) for j in range(8)}
    for v in values.values():
        v.setflags(write=False)
    for _ in range(5):
        shuffled = {j: values[j] for j in rng.permutation(8)}
        for a, b in zip(step_x(params, px, tx, p, t, values), step_x(params, px, tx, p, t, shuffled), strict=True):
            assert np.array_equal(a, b)
        for a, b in zip(step_y(params, p, t, values, g, g1), step_y(params, p, t, shuffled, g, g1), strict=True):
            assert np.array_equal(a, b)


def test_a_missing_neighbour_is_a_bug_not_a_zero() -> None:
    params = World(DEMO_R, DEMO_C, noise=0.0).agents[2]
    zero = np.zeros(4)
    with pytest.raises(KeyError):
        step_x(params, zero, zero, zero, zero, {0: zero})
