"""Noise that cancels in whole runs: the sum over the agents, what is left of it, and both simulators."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.errors import Broken
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.privacy.laws.sampler import LaplaceSampler
from dpgt_node.protocol import types as t
from dpgt_node.sim import simulate
from dpgt_node.sim.fast import TOLERANCE, FastRun
from dpgt_node.sim.world import Observer, World
from dpgt_node.types import F64
from tests.sim import cases
from tests.sim.test_fast import both

KEY = "0011223344"
S = 0.01
RING = "the demo's ring with chords"


def run(r: int | None = 2, *, pair: str = RING, d: int = 7, K: int = 12, graph: Any = None, **scheme: Any) -> Any:
    config = cases.run(pair, K=K, data=model.Data("zeros", params={"dimension": d}))
    eta = model.NoiseStream("constant", (S,) * config.n)
    return replace(
        config,
        algorithm=replace(config.algorithm, mechanism="noise-once"),
        scheme=replace(config.scheme, alpha=0.3, beta=0.3, gamma=1.0, **scheme),
        noise=replace(config.noise, law="gaussian", eta=eta, cancel=r, mask_graph=graph),
        evaluate=model.Evaluation(every=100, metrics="study"),
    )


def play(config: model.RunConfig) -> tuple[dict[tuple[int, int], t.RoundRecord], F64]:
    """Every stored round by (agent, k), and x_{K+1} (n, d)."""
    topology, schedule = Topology.from_config(config.graph), Schedule.from_config(config)
    oracles = tuple(build_oracle(config, i) for i in range(config.n))
    records: dict[tuple[int, int], t.RoundRecord] = {}

    def persisted(i: int, record: t.RoundRecord) -> None:
        records[i, record.k] = record

    agents = simulate.build_agents(config, topology, schedule, oracles, KEY)
    World(config.graph.agents, agents, config.K, observer=Observer(persisted=persisted)).run()
    return records, np.stack([agent.x_final for agent in agents])  # type: ignore[misc]


def drawn(records: dict[tuple[int, int], t.RoundRecord], n: int, k: int) -> F64:
    """g~_k of all agents, in units of the grid's half cells."""
    found = np.stack([records[i, k].noisy_gradient for i in range(n)])  # type: ignore[misc]
    units = np.rint(found / (S / 512))
    assert (units * 0.5 * (S / 256) == found).all()
    return units


@pytest.mark.parametrize("graph", [None, "ring", ((1, 2), (3, 4), (4, 5))])
def test_the_sum_over_the_agents_is_that_of_their_own_noise(graph: Any) -> None:
    shared, plain = play(run(graph=graph))[0], play(run(None))[0]
    for k in range(13):
        with_, own = drawn(shared, 5, k), drawn(plain, 5, k)
        assert with_.sum(axis=0).tolist() == own.sum(axis=0).tolist()
        assert (with_ != own).any(axis=1).all()
        # y is conserved: its sum is that of g~.
        y = sum(shared[i, k].on("Y").array() for i in range(5))
        assert np.allclose(y, with_.sum(axis=0) * S / 512, rtol=0, atol=1e-12)
    moved = [drawn(shared, 5, k) - drawn(plain, 5, k) for k in range(13)]
    assert len({m.tobytes() for m in moved}) == 13, "every release has numbers of its own"


@pytest.mark.parametrize(("every", "K", "deviation"), [(1, 100, 0.48), (1, 140, 0.48), (4, 100, 0.75)])
def test_what_is_left_after_settling_does_not_grow_with_the_releases(every: int, K: int, deviation: float) -> None:
    """Constant gradients: in units of gamma and of what a pair shares, on every pair."""
    ends = [play(run(r, d=3000, K=K, settle=60, release_every=every))[1] for r in (1, None)]
    left = (ends[0] - ends[1]) / S
    assert np.abs(left - left.mean(axis=0)).max() < 1e-4, "all agents have the same"
    assert left.std() == pytest.approx(deviation, rel=0.06)


@pytest.mark.parametrize("method", ["dpgt", "atc-dsgd"])
@pytest.mark.parametrize("graph", [None, ((1, 2), (2, 3), (3, 4), (1, 5))])
def test_the_fast_simulator_draws_the_same(method: str, graph: Any, tmp_path: Path) -> None:
    config = run(graph=graph)
    config = replace(config, algorithm=replace(config.algorithm, method=method))
    config = replace(
        config, data=model.Data("quadratic", params={"dimension": 7}), scheme=replace(config.scheme, gamma=0.03)
    )
    error, _, _ = both(config, tmp_path)
    assert error < TOLERANCE


def test_long_vectors_in_the_fast_simulator(tmp_path: Path) -> None:
    error, _, _ = both(run(d=40_000, K=1), tmp_path)
    assert error < TOLERANCE


def test_entropy_of_the_system_gives_all_agents_the_same_pairs(tmp_path: Path) -> None:
    config = run(d=50, K=3)
    oracles = [build_oracle(config, i) for i in range(5)]
    one, two = FastRun(config, oracles, None), FastRun(config, oracles, None)
    draws = [made.perturb("Y", 0, np.zeros((5, 50))) for made in (one, two)]
    assert (draws[0] != draws[1]).any()
    for noisy in draws:  # own noise alone is left in the sum: five of them, not fifty
        assert np.abs(noisy.sum(axis=0)).max() < 5.5 * np.sqrt(5) * S < 2 * np.abs(noisy).max() * np.sqrt(5)
    names = simulate.simulate(config, tmp_path, bytes(16))[1]
    assert names is not None


def test_keys_and_a_sampler_are_needed() -> None:
    config = run()
    topology, schedule = Topology.from_config(config.graph), Schedule.from_config(config)
    oracles = tuple(build_oracle(config, i) for i in range(5))
    from dpgt_node.agent.noise import sampler_for
    from dpgt_node.agent.work import AgentWork
    from dpgt_node.privacy.laws.keystream import TestKeystream

    with pytest.raises(Broken, match="keys of the pairs are missing"):
        AgentWork(config, topology, schedule, 0, oracles[0], TestKeystream(KEY, 0), sampler_for(config))
    with pytest.raises(ValueError, match="draws no noise that cancels"):
        simulate.build_agents(config, topology, schedule, oracles, KEY, lambda _: LaplaceSampler())
