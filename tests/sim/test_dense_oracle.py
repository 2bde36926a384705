"""The simulated world, machines and per-agent functions included, against Algorithm 1 as dense matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dpgt_node.agent.noise import sampler_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.privacy.laws.noise import Sampler
from dpgt_node.privacy.laws.sampler import LaplaceSampler
from dpgt_node.protocol.types import RoundRecord
from dpgt_node.sim.simulate import build_agents
from dpgt_node.sim.world import Observer, World
from tests.oracles import dense, noise
from tests.sim import cases
from tests.states import parts

KEY = "00112233445566778899"


class Watched:
    """Runs a world and keeps every state, release and gradient it saw.

    With the plain sampler noise does not depend on what it is added to, so an oracle can draw it by itself.
    """

    def __init__(
        self,
        run: model.RunConfig,
        order_seed: int | None = None,
        sampler: Callable[[model.RunConfig], Sampler] = lambda _: LaplaceSampler(),
    ) -> None:
        self.run = run
        topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
        oracles = tuple(build_oracle(run, i) for i in range(run.n))
        agents = build_agents(run, topology, schedule, oracles, KEY, sampler)
        n, K, d = run.n, run.K, agents[0].work.dimension
        self.x0 = np.stack([oracle.initial() for oracle in oracles])
        self.x = np.full((K + 2, n, d), np.nan)
        self.y, self.g = np.full((K + 1, n, d), np.nan), np.full((K + 1, n, d), np.nan)
        self.x_breve, self.y_breve = np.full((K + 1, n, d), np.nan), np.full((K + 1, n, d), np.nan)
        world = World(run.graph.agents, agents, K, observer=Observer(persisted=self._persisted), order_seed=order_seed)
        self.conclude = world.run()
        for i, agent in enumerate(agents):
            self.x[K + 1, i] = agent.x_final

    def _persisted(self, i: int, record: RoundRecord) -> None:
        state = parts(record.checkpoint)
        self.x[record.k, i], self.y[record.k, i], self.g[record.k, i] = state.x, state.y, state.g
        self.x_breve[record.k, i], self.y_breve[record.k, i] = record.on("X").array(), record.on("Y").array()

    def matrices(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.run.graph.R), np.array(self.run.graph.C)

    def drawn(self) -> tuple[np.ndarray, np.ndarray]:
        """zeta and eta (K+1, n, d) as an independent reading of the keystream gives them."""
        run = self.run
        shape = self.x_breve.shape
        zeta, eta = np.zeros(shape), np.zeros(shape)
        if run.noise.multiplier:
            for k in range(shape[0]):
                for i in range(shape[1]):
                    zeta[k, i] = noise.laplace(KEY, i, k, "X", shape[2], run.noise.zeta.values[i])
                    eta[k, i] = noise.laplace(KEY, i, k, "Y", shape[2], run.noise.eta.values[i])
        return zeta, eta


def quadratic(i: int, k: int, x: np.ndarray) -> np.ndarray:
    """Gradient of ||x - b_i||^2 / 2, b_i = i + 1 in each coordinate."""
    return x - (i + 1)


def relative_error(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max() / max(1.0, np.abs(b).max()))


@pytest.mark.parametrize("noisy", [False, True], ids=["noise off", "noise on"])
@pytest.mark.parametrize("pair", cases.PAIRS)
def test_world_equals_the_dense_recursion(pair: str, noisy: bool) -> None:
    seen = Watched(cases.run(pair, noisy=noisy))
    zeta, eta = seen.drawn()
    R, C = seen.matrices()
    expected = dense.algorithm1(R, C, 0.11, 0.07, 0.03, seen.x0, quadratic, zeta, eta)
    assert relative_error(seen.x, expected.x) < 1e-12
    assert relative_error(seen.y, expected.y[:-1]) < 1e-12
    assert relative_error(seen.x_breve, expected.x[:-1] + zeta) < 1e-12
    assert relative_error(seen.y_breve, expected.y[:-1] + eta) < 1e-12


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("pair", cases.PAIRS)
def test_mixing_uses_what_was_released(pair: str, law: str) -> None:
    """With the samplers that runs really use."""
    run = cases.run(pair)
    seen = Watched(replace(run, noise=replace(run.noise, law=law)), sampler=sampler_for)
    R, C = seen.matrices()
    expected = dense.algorithm1_released(R, C, 0.11, 0.07, 0.03, seen.x0, quadratic, seen.x_breve, seen.y_breve)
    assert relative_error(seen.x, expected.x) < 1e-12
    assert relative_error(seen.y, expected.y[:-1]) < 1e-12


def mass_defect(seen: Watched, y_breve: np.ndarray) -> float:
    _, C = seen.matrices()
    trajectory = dense.Trajectory(seen.x, seen.y, seen.g)
    return float(dense.mass_defect(C, 0.07, trajectory, y_breve - seen.y).max())


@pytest.mark.parametrize("pair", cases.PAIRS)
def test_mass_is_conserved_every_round(pair: str) -> None:
    seen = Watched(cases.run(pair), sampler=sampler_for)
    assert mass_defect(seen, seen.y_breve) < 1e-11


def test_one_lost_tracker_breaks_the_mass_identity() -> None:
    seen = Watched(cases.run("the demo's ring with chords"))
    lost = seen.y_breve.copy()
    lost[17, 2] = 0.0
    assert mass_defect(seen, lost) > 1e-4


@pytest.mark.parametrize("seed", range(20))
def test_delivery_order_changes_no_bit(seed: int) -> None:
    calm = Watched(cases.run("non-uniform weights"))
    shuffled = Watched(cases.run("non-uniform weights"), order_seed=seed)
    assert shuffled.conclude.exit_code == 0
    for name in ("x", "y", "g", "x_breve", "y_breve"):
        assert getattr(calm, name).tobytes() == getattr(shuffled, name).tobytes()


def test_float32_wire_mixes_the_rounded_values() -> None:
    run = cases.run("self-loops everywhere")
    seen = Watched(replace(run, runtime=replace(run.runtime, wire_dtype="float32")))
    assert (seen.x_breve == seen.x_breve.astype(np.float32)).all()
    R, C = seen.matrices()
    expected = dense.algorithm1_released(R, C, 0.11, 0.07, 0.03, seen.x0, quadratic, seen.x_breve, seen.y_breve)
    assert relative_error(seen.x, expected.x) < 1e-12
