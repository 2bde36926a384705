"""GT-SAGA and GT-SVRG against a calculation that keeps whole tables, on every simulator and over a restart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpgt_node import cli
from dpgt_node.agent.noise import sampler_for
from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.hard import hard_failures
from dpgt_node.algo.methods import METHODS, network_of, variance_reduced
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model, to_toml
from dpgt_node.errors import ConfigError
from dpgt_node.learning import tables
from dpgt_node.learning.common import Metrics
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.privacy.laws.keystream import TestKeystream
from dpgt_node.protocol import types as t
from dpgt_node.runtime.disk import agent_need
from dpgt_node.sim import simulate
from dpgt_node.sim.fast import FastRun
from dpgt_node.sim.world import Observer, World
from dpgt_node.types import F64, I64
from tests.oracles import methods, softmax
from tests.oracles import variance_reduced as dumb
from tests.sim import cases
from tests.sim.test_fast import both

KEY, RING = "00112233445566778899", "the demo's ring with chords"
REDUCED = ("gt-saga", "gt-svrg")
SUM = dumb.LeastSquares()


@dataclass
class Round:
    """In place of random bytes: which round is asked for."""

    k: int

    def stream(self, k: int, purpose: str) -> Round:
        return Round(k)


class Squares:
    """The least squares of one agent, whole gradients kept."""

    dimension, samples, tested, sample_size, shape_sha256 = 4, 20, 0, 4, "00"

    def __init__(self, i: int) -> None:
        self.A, self.b, self.picks = SUM.A[i], SUM.b[i], SUM.picks[:, i]

    def initial(self) -> F64:
        return np.zeros(4)

    def draw_batch(self, m: int, stream: Any) -> I64:
        return (self.picks[stream.k] + np.arange(m)) % 20

    def under(self, share: float) -> Squares:
        return self

    def gradient(self, x: F64, batch: I64) -> F64:
        return ((self.A[batch] @ x - self.b[batch]) @ self.A[batch]) / len(batch)

    def evaluate(self, x: F64, samples: int | None = None) -> Metrics:
        return Metrics()


class Residuals(Squares):
    """The same, of which a number a sample is kept."""

    part_size = 1

    def parts(self, x: F64, batch: I64) -> F64:
        return (self.A[batch] @ x - self.b[batch])[:, None]

    def of_parts(self, parts: F64, batch: I64) -> F64:
        return (parts[:, 0] @ self.A[batch]) / len(batch)


def reduced(method: str, K: int, period: int = 20, **changes: Any) -> model.RunConfig:
    run = cases.run(RING, K=K, noisy=False)
    options = {"snapshot_every": period} if method == "gt-svrg" else {}
    run = replace(run, scheme=model.SchemeS2(0.4, 0.3, 0.02, 1.0, samples=1), method_options=options, **changes)
    return replace(run, algorithm=replace(run.algorithm, method=method, mechanism="paper"))


def quick(run: model.RunConfig, oracles: Any) -> list[F64]:
    """x_0..x_{K+1} of the fast simulator, the samples being those of the round's number."""
    state = FastRun(run, oracles, KEY)
    state._keystreams = [Round(0)] * 5  # type: ignore[assignment,list-item]
    xs = [state.x]
    for _ in range(run.K + 1):
        state.step()
        xs.append(state.x)
    return xs


def machines(run: model.RunConfig, oracles: Any) -> tuple[F64, dict[tuple[int, int], t.RoundRecord]]:
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    records: dict[tuple[int, int], t.RoundRecord] = {}

    def persisted(i: int, record: t.RoundRecord) -> None:
        records[i, record.k] = record

    agents = simulate.build_agents(run, topology, schedule, oracles, KEY)
    World(run.graph.agents, agents, run.K, observer=Observer(persisted=persisted)).run()
    return np.stack([agent.x_final for agent in agents]), records  # type: ignore[misc]


def dense(method: str, K: int, period: int = 20, m: int = 1) -> list[np.ndarray]:
    def batches(k: int) -> I64:
        return (SUM.picks[k][:, None] + np.arange(m)) % 20

    W = methods.metropolis(methods.DEMO[0])
    return dumb.run(W, 0.02, SUM.table, batches, np.zeros((5, 4)), K, period if method == "gt-svrg" else None)


def worst(found: Any, expected: Any) -> float:
    return float(np.abs(np.stack(found) - np.stack(expected)).max() / np.abs(np.stack(expected)).max())


# --- the definition -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("oracle", [Squares, Residuals])
@pytest.mark.parametrize("method", REDUCED)
@pytest.mark.parametrize("m", [1, 3])
def test_both_simulators_do_what_the_definition_says(
    method: str, oracle: type[Squares], m: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulate, "keystream_for", lambda key, index: Round(0))
    run = reduced(method, 120)
    run = replace(run, scheme=replace(run.scheme, samples=m))
    oracles, expected = tuple(oracle(i) for i in range(5)), dense(method, 120, m=m)
    assert worst(quick(run, oracles), expected) < 1e-12
    final, records = machines(run, oracles)
    xs = [[records[i, k].on("X").array() for i in range(5)] for k in range(121)]
    assert worst([*map(np.stack, xs), final], expected) < 1e-12


@pytest.mark.parametrize(
    ("method", "period", "errors", "rate"),
    [
        ("gt-saga", 0, (1.334e-4, 7.235e-8, 2.1e-14), -0.01512),
        ("gt-svrg", 20, None, -0.01488),
        ("gt-svrg", 100, None, -0.01630),
    ],
)
def test_the_expected_numbers_of_the_finite_sum(
    method: str, period: int, errors: tuple[float, ...] | None, rate: float
) -> None:
    K = 2000 if errors else 1000
    xs = quick(reduced(method, K, period), [Residuals(i) for i in range(5)])
    found = [float(np.linalg.norm(x - SUM.best())) / np.sqrt(5) for x in xs]
    assert methods.slope(found, 200, 1000) == pytest.approx(rate, abs=5e-6)
    if errors is not None:
        assert found[500] == pytest.approx(errors[0], rel=5e-4)
        assert found[1000] == pytest.approx(errors[1], rel=5e-4)
        assert found[2000] < 1e-13


@pytest.mark.parametrize("method", REDUCED)
def test_on_shards_of_other_sizes_softmax_errors_do_for_gradients(method: str) -> None:
    """Digits, 288 samples at some agents and 287 at others, clipped: tables of whole gradients give the same."""
    data, clip = model.Data("digits"), model.Privacy(clip_l2=0.5)
    run = reduced(method, 6, 3, data=data, privacy=clip)
    run = replace(run, scheme=replace(run.scheme, samples=4, gamma=0.5))
    oracles = simulate.build_oracles(run, None)
    assert {oracle.samples for oracle in oracles} == {287, 288}
    final, records = machines(run, oracles)

    def table(x: F64) -> list[F64]:
        rows = []
        for own, at in zip(oracles, x, strict=True):
            every = np.arange(own.samples or 0)
            samples = zip(own.inputs(every), own.labels(every), strict=True)
            rows.append(np.stack([softmax.clipped(quick_gradient(at, phi, y), 2, 0.5) for phi, y in samples]))
        return rows

    def quick_gradient(x: F64, phi: F64, y: int) -> F64:
        p = np.exp(x[:640].reshape(10, 64) @ phi + x[640:])
        errors = p / p.sum() - np.eye(10)[y]
        return np.concatenate([np.outer(errors, phi).ravel(), errors])

    def batches(k: int) -> list[I64]:
        return [own.draw_batch(4, TestKeystream(KEY, i).stream(k, "batch")) for i, own in enumerate(oracles)]

    W, start = methods.metropolis(methods.DEMO[0]), np.zeros((5, 650))
    xs = dumb.run(W, 0.5, table, batches, start, 6, 3 if method == "gt-svrg" else None)
    assert worst(final, xs[-1]) < 1e-12
    state = FastRun(run, oracles, KEY)
    for _ in range(7):
        state.step()
    assert worst(state.x, xs[-1]) < 1e-12
    if method == "gt-saga":
        assert state._rows.vectors["table"].shape == (5, 2880)
        assert {records[i, 3].checkpoint.vectors["table"].size for i in range(5)} == {2870, 2880}  # type: ignore[union-attr]


@pytest.mark.parametrize("method", REDUCED)
def test_a_toy_without_randomness_is_tracking(method: str) -> None:
    """One sample: v is the gradient, whatever is kept."""
    run = reduced(method, 60, 7)
    assert run.data.dataset == "quadratic"
    final, _ = machines(run, simulate.build_oracles(run, None))
    W, b = methods.metropolis(methods.DEMO[0]), np.arange(1.0, 6.0)[:, None]
    x, y = np.zeros((5, 7)), np.zeros((5, 7)) - b
    for _ in range(61):
        x, before = W @ x - 0.02 * y, x
        y = W @ y + x - before
    assert worst(final, x) < 1e-12


# --- mutants of the definition ----------------------------------------------------------------------------------------


class LateTable(variance_reduced.Saga):
    """The table is what it was."""

    def estimate(self, site, k, x, v):  # type: ignore[no-untyped-def]
        return {**super().estimate(site, k, x, v), "table": v["table"]}


class StaleMean(variance_reduced.Saga):
    """The mean of the table is what it was."""

    def estimate(self, site, k, x, v):  # type: ignore[no-untyped-def]
        return {**super().estimate(site, k, x, v), "mean": v["mean"]}


class EarlyMean(variance_reduced.Saga):
    """v is formed with the table after its change."""

    def estimate(self, site, k, x, v):  # type: ignore[no-untyped-def]
        made = super().estimate(site, k, x, v)
        return {**made, "v": made["v"] - v["mean"] + made["mean"]}


class StaleSnapshot(variance_reduced.Svrg):
    """tau stays x_0."""

    def estimate(self, site, k, x, v):  # type: ignore[no-untyped-def]
        return {**super().estimate(site, k, x, v), "tau": v["tau"]}


class LateSnapshot(variance_reduced.Svrg):
    """The snapshot is taken one round late."""

    def estimate(self, site, k, x, v):  # type: ignore[no-untyped-def]
        return super().estimate(site, k - 1 if (k - 1) % 20 == 0 else k, x, v)


@pytest.mark.parametrize("rule", [LateTable, StaleMean, EarlyMean, StaleSnapshot, LateSnapshot])
def test_another_rule_is_noticed(rule: type, monkeypatch: pytest.MonkeyPatch) -> None:
    method = "gt-saga" if issubclass(rule, variance_reduced.Saga) else "gt-svrg"
    monkeypatch.setitem(METHODS.loaded, method, replace(METHODS[method], rules={"paper": rule}))
    found = quick(reduced(method, 60), [Residuals(i) for i in range(5)])
    assert worst(found, dense(method, 60)) > 1e-6


# --- restarts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", REDUCED)
def test_a_restart_goes_on_from_table_and_snapshot_to_the_bit(method: str) -> None:
    """Every state that follows from a checkpoint by replay is the one that was there, and nothing is drawn."""
    run = reduced(method, 14, 5, data=model.Data("digits"))
    run = replace(run, scheme=replace(run.scheme, samples=3))
    oracles = simulate.build_oracles(run, None)
    _, records = machines(run, oracles)
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)

    class NoEntropy:
        def stream(self, k: int, purpose: str) -> None:
            raise AssertionError(f"{purpose} of round {k} was drawn again")

    work = AgentWork(run, topology, schedule, 1, oracles[1], NoEntropy(), sampler_for(run))  # type: ignore[arg-type]
    incoming = network_of(run, topology).incoming(1)
    state = records[1, 3].checkpoint
    for k in range(3, 14):
        received = {s: {j: records[j, k].on(s).array() for j, _ in edges} for s, edges in incoming.items()}
        state = work.advance(t.Advance(state, received, records[1, k].payloads, records[1, k + 1])).state
        expected = records[1, k + 1].checkpoint
        assert expected is not None and state.batch.tobytes() == expected.batch.tobytes()
        assert list(state.vectors) == list(expected.vectors)
        assert all(v.tobytes() == expected.vectors[name].tobytes() for name, v in state.vectors.items()), k
        assert (state.batch.size == 0) == (method == "gt-svrg" and (k + 1) % 5 == 0)


@pytest.mark.parametrize("method", REDUCED)
def test_the_fast_simulation_is_that_of_the_machines(method: str, tmp_path: Path) -> None:
    run = reduced(method, 12, 5, data=model.Data("digits"))
    difference, _, _ = both(replace(run, scheme=replace(run.scheme, samples=3)), tmp_path)
    assert difference < 1e-9


# --- what is refused --------------------------------------------------------------------------------------------


def test_a_table_beyond_memory_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    run = reduced("gt-saga", 5, data=model.Data("digits"))
    need = 3 * 8 * 10 * (3 * 288 + 2 * 287)
    monkeypatch.setattr(tables, "memory_bytes", lambda: need)
    simulate.build_oracles(run, None)
    monkeypatch.setattr(tables, "memory_bytes", lambda: need - 1)
    build_oracle(run, 0)  # an agent alone has room
    with pytest.raises(
        ConfigError, match=r"keeps a table of D x q = 288 x 10 numbers; 3 of them at 5 agents take 0.0 GB"
    ):
        simulate.build_oracles(run, None)
    simulate.build_oracles(reduced("gt-svrg", 5, data=model.Data("digits")), None)
    monkeypatch.setattr(tables, "memory_bytes", lambda: 3 * 8 * 2880 - 1)
    with pytest.raises(ConfigError, match="at one agent take"):
        build_oracle(run, 0)


@pytest.mark.parametrize("command", ["simulate", "launch"])
def test_tables_that_do_not_fit_together_begin_nothing(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each agent alone would have room, so no daemon would say so."""
    path, out = tmp_path / "run.toml", tmp_path / "out"
    path.write_text(to_toml(reduced("gt-saga", 5, data=model.Data("digits"))))
    monkeypatch.setattr(tables, "memory_bytes", lambda: 3 * 8 * 2880)
    assert cli.run([command, str(path), "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "at 5 agents take" in said and said.count("\n") == 1 and not out.exists()


@pytest.mark.parametrize("method", REDUCED)
@pytest.mark.parametrize("toy", ["pl-sine", "pl-linear"])
def test_an_objective_without_end_is_no_finite_sum(method: str, toy: str) -> None:
    def failures(data: model.Data) -> list[str]:
        run = reduced(method, 5, data=data)
        topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
        return [key for key, _ in hard_failures(run, topology, schedule, [None] * 5)]

    assert failures(model.Data(toy, params={})) == ["data.dataset"]
    assert failures(model.Data("quadratic", params={"dimension": 3})) == []


def test_disk_is_foretold_with_the_table() -> None:
    run = reduced("gt-saga", 5, data=model.Data("digits"))
    size = tables.table_size(run, build_oracle(run, 0))
    assert size == 2880 and tables.table_size(run, build_oracle(run, 0), 100) == 1000
    plain, whole = (agent_need(run, "agent-1", 650, 1, table=numbers).checkpoints for numbers in (0, size))
    assert (plain, whole) == (2 * 8 * 4 * 650, 2 * 8 * (4 * 650 + 2880))
