"""The mechanisms through machines and per-agent functions, against their definitions; replay draws nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpgt_node.config import model
from dpgt_node.privacy.mechanisms import MECHANISMS, TRACKING
from dpgt_node.protocol import types as t
from tests.oracles import mechanisms
from tests.sim import cases
from tests.sim.test_dense_oracle import Watched, relative_error

WORDS = [one.name for one in TRACKING]


def run(pair: str, mechanism: str, **options: object) -> model.RunConfig:
    config = cases.run(pair, **options)  # type: ignore[arg-type]
    return replace(config, algorithm=replace(config.algorithm, mechanism=mechanism))


def bent(i: int, k: int, x: np.ndarray) -> np.ndarray:
    """Gradient of the quadratic: it depends on the point, so a gradient taken at the wrong point shows."""
    return x - (i + 1)


@pytest.mark.parametrize("mechanism", WORDS)
@pytest.mark.parametrize("pair", cases.PAIRS)
def test_each_mechanism_equals_its_definition(pair: str, mechanism: str) -> None:
    seen = Watched(run(pair, mechanism))
    R, C = seen.matrices()
    zeta, eta = seen.drawn()
    x, x_sent, y_sent = mechanisms.run(mechanism, R, C, 0.11, 0.07, 0.03, seen.x0, bent, zeta, eta)
    assert relative_error(seen.x, x) < 1e-12
    assert relative_error(seen.x_breve, x_sent) < 1e-12
    assert relative_error(seen.y_breve, y_sent) < 1e-12


@pytest.mark.parametrize("mechanism", WORDS)
def test_the_definitions_differ_from_one_another(mechanism: str) -> None:
    """The oracle above can tell them apart: each one's trajectory is wrong for every other."""
    seen = Watched(run("non-uniform weights", mechanism))
    R, C = seen.matrices()
    zeta, eta = seen.drawn()
    for other in set(WORDS) - {mechanism}:
        x, _, _ = mechanisms.run(other, R, C, 0.11, 0.07, 0.03, seen.x0, bent, zeta, eta)
        assert relative_error(seen.x, x) > 1e-4


@pytest.mark.parametrize("mechanism", ["public-state", "noise-once"])
def test_x_is_a_function_of_what_was_sent(mechanism: str) -> None:
    seen = Watched(run("self-loops everywhere", mechanism))
    assert (seen.x_breve == seen.x[:-1]).all()
    assert (seen.y_breve != seen.y).any() == (mechanism == "public-state")


@pytest.mark.parametrize("mechanism", WORDS)
def test_only_what_costs_is_charged(mechanism: str) -> None:
    rows: list[t.LedgerRow] = []

    class Charged(Watched):
        def _persisted(self, i: int, record: t.RoundRecord) -> None:
            super()._persisted(i, record)
            rows.extend(record.rows)

    config = run("two agents", mechanism, K=3)
    Charged(config)
    assert len(rows) == 2 * 4 * len(MECHANISMS[mechanism].charged)
    assert {row.stream for row in rows} == set(MECHANISMS[mechanism].charged)
    assert {row.mechanism for row in rows} == {mechanism}


class Replayed(Watched):
    """Keeps the records of one agent and every state it computed."""

    def __init__(self, config: model.RunConfig, agent: int) -> None:
        self.agent = agent
        self.records: list[t.RoundRecord] = []
        super().__init__(config)

    def _persisted(self, i: int, record: t.RoundRecord) -> None:
        super()._persisted(i, record)
        if i == self.agent:
            self.records.append(record)


@pytest.mark.parametrize("wire", ["float64", "float32"])
@pytest.mark.parametrize("mechanism", WORDS)
def test_replay_from_a_checkpoint_gives_the_same_bits_and_draws_nothing(mechanism: str, wire: str) -> None:
    """A crash after round 9 with the checkpoint of round 2: rounds 3..9 come from records and the neighbours'
    payloads.
    """
    from dpgt_node.agent.work import AgentWork
    from dpgt_node.algo.graph import Topology
    from dpgt_node.algo.methods import network_of
    from dpgt_node.algo.schedule import Schedule
    from dpgt_node.learning.oracle import build_oracle
    from dpgt_node.privacy.laws.sampler import LaplaceSampler

    class NoEntropy:
        def stream(self, k: int, purpose: str) -> None:
            raise AssertionError(f"{purpose} of round {k} was drawn again")

    data = model.Data("pl-linear", params={"dimension": 5, "rows": 10, "start": 0.5})
    config = run("self-loops everywhere", mechanism, K=12, data=data)
    config = replace(config, runtime=replace(config.runtime, wire_dtype=wire))
    first = Replayed(config, agent=1)
    topology, schedule = Topology.from_config(config.graph), Schedule.from_config(config)
    work = AgentWork(config, topology, schedule, 1, build_oracle(config, 1), NoEntropy(), LaplaceSampler())
    incoming = network_of(config, topology).incoming(1)
    state = first.records[2].checkpoint
    assert state is not None and not state.pending
    for k in range(2, 9):
        record = first.records[k]
        x_in = {j: first.x_breve[k, j] for j, _ in incoming["X"]}
        y_in = {j: first.y_breve[k, j] for j, _ in incoming["Y"]}
        state = work.advance(t.Advance(state, {"X": x_in, "Y": y_in}, record.payloads, first.records[k + 1])).state
        expected = first.records[k + 1].checkpoint
        assert expected is not None and state.k == expected.k and not state.pending
        assert list(state.vectors) == list(expected.vectors) and state.batch.tobytes() == expected.batch.tobytes()
        for name, vector in state.vectors.items():
            assert vector.tobytes() == expected.vectors[name].tobytes(), (k, name)
