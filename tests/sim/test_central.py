"""One holder of everything: its run, what it costs, and that no daemon carries it out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node import cli
from dpgt_node.accounts.account import AgentAccount
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.dsgd import central as module
from dpgt_node.algo.methods.dsgd.central import CURATOR, curated
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model, parse_run, to_toml
from dpgt_node.errors import Broken, ConfigError
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.privacy.laws.keystream import TestKeystream
from dpgt_node.sim import simulate
from dpgt_node.sim.fast import FastRun
from dpgt_node.sim.rivals import central_run
from dpgt_node.sim.world import Observer, World
from tests.sim import cases
from tests.sim.test_fast import both

KEY, RING = "00112233445566778899", "the demo's ring with chords"


def section_iv(K: int, method: str = "central", **noise: object) -> model.RunConfig:
    """The paper's Section IV-D on digits, p = .9996."""
    run = cases.run(RING, K=K, data=model.Data("digits", partition="shards", params={"num_shards_per_partition": 2}))
    scales = model.NoiseStream("exponent", tuple(0.99959 + 1e-5 * (i + 1) for i in range(5)))
    run = replace(run, scheme=model.SchemeS2(0.1, 0.01, 0.1, 1.0, samples=55), privacy=model.Privacy(clip_l1=0.5))
    run = replace(run, noise=model.Noise(scales, scales, **noise))  # type: ignore[arg-type]
    return replace(run, algorithm=replace(run.algorithm, method=method, mechanism="noise-once"))


def cost(run: model.RunConfig, D: int, accountant: str) -> float | None:
    return AgentAccount(run, Topology.from_config(run.graph), Schedule.from_config(run), 0, D).total(accountant)


def test_it_is_one_agent_with_all_samples_and_a_fifth_of_the_least_noise() -> None:
    run = section_iv(2000)
    single = curated(run)
    assert single.graph == model.Graph((CURATOR,), ((0.0,),), ((0.0,),)) and curated(single) is single
    assert build_oracle(single, 0).samples == 1438
    schedule, theirs = Schedule.from_config(single), Schedule.from_config(run)
    assert schedule.m == 5 * 55 and schedule.gamma == theirs.gamma
    assert schedule.sigma("Y", 0, 7) == pytest.approx(theirs.sigma("Y", 0, 7) / 5, rel=1e-12)
    assert theirs.sigma("Y", 0, 7) == min(theirs.sigma("Y", i, 7) for i in range(5))
    assert parse_run(to_toml(single), "copy", Path()) == replace(single, base=Path())
    assert curated(replace(run, scheme=replace(run.scheme, samples="full"))).scheme.samples == "full"
    other = section_iv(3, "atc-dsgd")
    assert curated(other) is other


def test_its_definition_on_what_was_drawn() -> None:
    """x+ = x - gamma (mean over n m samples + noise), the noise read off what it sends to itself."""
    single = curated(section_iv(12))
    topology, schedule, oracle = (
        Topology.from_config(single.graph),
        Schedule.from_config(single),
        build_oracle(single, 0),
    )
    sent: dict[int, np.ndarray] = {}
    agents = simulate.build_agents(single, topology, schedule, (oracle,), KEY)
    seen = Observer(persisted=lambda i, record: sent.update({record.k: record.on("X").array()}))
    World(single.graph.agents, agents, 12, observer=seen).run()
    x, noise = np.zeros(650), []
    for k in range(13):
        batch = oracle.draw_batch(275, TestKeystream(KEY, 0).stream(k, "batch"))
        g = np.zeros(650)
        for phi, y in zip(oracle.inputs(batch), oracle.labels(batch), strict=True):
            p = np.exp(x[:640].reshape(10, 64) @ phi + x[640:])
            errors = p / p.sum() - np.eye(10)[y]
            one = np.concatenate([np.outer(errors, phi).ravel(), errors])
            g += one * min(1.0, 0.5 * (1 - 2.0**-22) / np.abs(one).sum()) / 275
        noise.append((x - sent[k]) / 0.1 - g)
        x = x - 0.1 * (g + noise[-1])
        assert np.abs(x - sent[k]).max() < 1e-12
    spread = float(np.mean(np.abs(noise)))
    assert spread == pytest.approx(0.9996**12 / 5, rel=0.05), "the noise has a fifth of the scale"
    assert agents[0].x_final is not None and np.abs(agents[0].x_final - x).max() < 1e-12


def test_it_costs_what_the_dearest_agent_costs_and_a_fifth_of_that_under_the_same_noise() -> None:
    each, single = section_iv(2000, "weighted-sgd"), curated(section_iv(2000))
    assert cost(single, 60_000, "tight") == pytest.approx(cost(each, 12_000, "tight"), rel=1e-9)
    assert cost(single, 60_000, "tight") == pytest.approx(80.982, abs=5e-4)
    assert cost(single, 60_000, "amplified") == pytest.approx(0.379, abs=5e-4)
    same = replace(single, noise=replace(single.noise, multiplier=1.0))
    assert cost(same, 60_000, "tight") == pytest.approx(16.196, abs=5e-4)


def test_a_run_of_another_method_is_told_to_take_this_one() -> None:
    """How far a gradient moves it in a round does not follow from Algorithm 1's response."""
    run = section_iv(30, "weighted-sgd", law="gaussian")
    with pytest.raises(ConfigError, match='beside "weighted-sgd" simulate "central"'):
        central_run(replace(run, privacy=model.Privacy(clip_l2=0.5)), (288, 288, 288, 287, 287), 650)


def test_both_simulators(tmp_path: Path) -> None:
    difference, slow, _ = both(curated(section_iv(12)), tmp_path)
    assert {path.name for path in (slow / "agents").iterdir()} == {CURATOR}
    assert difference < 1e-9


def test_a_run_of_many_does_not_pass_for_one() -> None:
    run = section_iv(3)
    with pytest.raises(Broken, match="one agent"):
        FastRun(run, simulate.build_oracles(run, None), KEY)


@pytest.mark.parametrize("mutant", ["batch", "scale"])
def test_another_curator_is_noticed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pooled = module.pooled
    if mutant == "batch":
        monkeypatch.setattr(
            module, "pooled", lambda run: replace(pooled(run), scheme=replace(run.scheme, samples=run.scheme.samples))
        )
    else:
        monkeypatch.setattr(module, "min", max, raising=False)
    single = curated(section_iv(2000))
    assert cost(single, 60_000, "tight") != pytest.approx(80.982, rel=1e-3)


# --- what is refused ------------------------------------------------------------------------------------------------


def test_a_curator_has_no_neighbours() -> None:
    run = replace(section_iv(3, law="gaussian", cancel=2), adversary=model.Adversary(semi_honest=("agent-1",)))
    with pytest.raises(ConfigError) as caught:
        curated(run)
    assert [problem.key for problem in caught.value.problems] == ["adversary", "noise.cancel"]


def test_no_daemon_carries_it_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, toy = tmp_path / "run.toml", tmp_path / "toy.toml"
    path.write_text(to_toml(section_iv(3)))
    plain = replace(section_iv(3), data=model.Data("quadratic", params={"dimension": 3}), model=model.Model())
    toy.write_text(to_toml(plain))
    why = '"central" is for dpgt simulate alone: everybody\'s samples would have to leave their hosts'
    out = str(tmp_path / "out")
    coordinator = ["coordinator", "--config", str(path), "--out", out, "--listen", "127.0.0.1:0", "--insecure"]
    for arguments in (["launch", str(path), "--out", out], coordinator):
        assert cli.run(arguments) == 2
        assert why in capsys.readouterr().err
    assert not Path(out).exists()
    assert cli.run(["simulate", str(toy), "--out", out]) == 2
    assert "central: there are samples to be held in one place" in capsys.readouterr().err
    assert cli.run(["check", str(path), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [len(values) for values in found["epsilon"].values()] == [1] * len(found["epsilon"])
    assert cli.run(["simulate", str(path), "--out", out, "--fast"]) == 0
    summary = json.loads((Path(out) / "summary.json").read_text())
    assert [agent["name"] for agent in summary["agents"]] == [CURATOR] and summary["method"] == "central"
