"""What ``[adversary]`` writes is what was released and what it was made of: against the paper's equations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node import cli
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import Adversary, Data, Model, RunConfig, SchemeS2, load_run, to_toml
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.protocol.types import RoundRecord
from dpgt_node.record.truth import SAMPLES_BYTES, AgentTruth, Truth, find_truth
from dpgt_node.sim.simulate import build_agents, build_oracles, simulate
from dpgt_node.sim.world import Observer, World
from dpgt_node.wire.transcript import Transcript
from tests.sim import cases
from tests.sim.breaking import broken_off

KEY = "5e"
RUN_ID = bytes(range(16))
PAIR = "self-loops everywhere"


def make(
    mechanism: str = "paper", K: int = 12, *, data: str = "digits", noisy: bool = True, **changes: object
) -> RunConfig:
    run = cases.run(PAIR, K=K, noisy=noisy, data=None if data == "quadratic" else Data(data))
    run = replace(run, algorithm=replace(run.algorithm, mechanism=mechanism), model=Model())
    adversary = Adversary(tuple(run.graph.agents), truth=True)
    return replace(run, scheme=SchemeS2(0.11, 0.07, 0.03, 1.0, 5), adversary=adversary, **changes)  # type: ignore[arg-type]


def recorded(folder: Path, run: RunConfig, order_seed: int | None = None) -> tuple[Observation, Truth]:
    simulate(run, folder, RUN_ID, test_keystream=KEY, order_seed=order_seed)
    paths = [folder / "agents" / name / "state" / "transcript" for name in run.graph.agents]
    return Observation.load(paths, run), find_truth(folder, run.graph.agents, RUN_ID)


def stacked(truth: Truth, names: tuple[str, ...], what: str) -> np.ndarray:
    """(rounds, n, d)."""
    return np.stack([[getattr(one, what) for one in truth[name]] for name in names], axis=1)


@pytest.mark.parametrize("mechanism", ["paper", "published-point", "public-state", "noise-once"])
def test_the_truth_obeys_the_papers_equations_with_what_was_released(tmp_path: Path, mechanism: str) -> None:
    run = make(mechanism)
    observation, truth = recorded(tmp_path, run)
    assert observation.missing() == "" and observation.vantage.startswith("coalition of agent-1, agent-2")
    names, s = run.graph.agents, run.scheme
    R, C = np.array(run.graph.R), np.array(run.graph.C)
    x, y, g = (stacked(truth, names, what) for what in ("x", "y", "g"))
    x_out, y_out = (np.stack([observation.series(i, w) for i in range(run.n)], axis=1) for w in ("X", "Y"))
    a, b = s.alpha * R.sum(axis=1), s.beta * C.sum(axis=0)
    for k in range(run.K):
        used = y_out[k] if mechanism == "public-state" else y[k]
        stepped = (1 - a)[:, None] * x[k] + s.alpha * R @ x_out[k] - s.gamma * used
        assert np.allclose(x[k + 1], stepped, rtol=0, atol=1e-12)
        tracked = (1 - b)[:, None] * y[k] + s.beta * C @ y_out[k]
        noise = y[k + 1] - tracked - (g[k + 1] - g[k])
        if mechanism == "noise-once":  # y follows g~: what is left is the difference of two draws of its noise
            assert np.abs(noise).max() > 1e-3
        else:
            assert np.allclose(noise, 0, rtol=0, atol=1e-12)
    if mechanism in ("public-state", "noise-once"):
        assert np.array_equal(x, x_out)
    else:
        assert 0 < np.abs(x_out - x).max() < 10 and 0 < np.abs(y_out - y).max() < 10
    for i, name in enumerate(names):
        oracle = build_oracle(run, i)
        for one in truth[name]:
            at = x_out[one.k, i] if mechanism == "published-point" else one.x
            assert np.array_equal(one.g, oracle.gradient(at, one.batch))
            assert one.samples.shape == (5, 64) and np.array_equal(one.samples, oracle._x[one.batch])
            assert np.array_equal(one.labels, oracle._y[one.batch]) and one.labels.dtype == np.int64


def test_without_noise_what_is_released_is_the_truth(tmp_path: Path) -> None:
    run = make(noisy=False, data="quadratic")
    observation, truth = recorded(tmp_path, run)
    for i, name in enumerate(run.graph.agents):
        for one in truth[name]:
            assert np.array_equal(one.x, observation.series(i, "X")[one.k])
            assert np.array_equal(one.y, observation.series(i, "Y")[one.k])
            assert one.samples.size == one.labels.size == 0


def test_a_transcript_is_what_the_edges_of_both_graphs_carried(tmp_path: Path) -> None:
    """Against the world's own records, whatever the order of delivery."""
    run = make(data="quadratic")
    simulate(run, tmp_path / "out", RUN_ID, test_keystream=KEY, order_seed=7)
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    oracles = build_oracles(run, None)
    records: dict[tuple[int, int], RoundRecord] = {}
    agents = build_agents(run, topology, schedule, oracles, KEY)
    World(
        run.graph.agents, agents, run.K, observer=Observer(persisted=lambda i, r: records.update({(i, r.k): r}))
    ).run()
    names = run.graph.agents
    for i, name in enumerate(names):
        expected = set()
        for k in range(run.K + 1):
            own = records[i, k]
            expected |= {(name, "", "X", k, own.on("X").sha256, True), (name, "", "Y", k, own.on("Y").sha256, True)}
            for j, sender in enumerate(names):
                if j != i and run.graph.R[i][j] > 0:
                    expected.add((sender, name, "X", k, records[j, k].on("X").sha256, False))
                if j != i and run.graph.C[i][j] > 0:
                    expected.add((sender, name, "Y", k, records[j, k].on("Y").sha256, False))
        entries = list(Transcript(tmp_path / "out" / "agents" / name / "state" / "transcript"))
        assert all(e.complete and e.time_ns == 0 for e in entries)
        found = [(e.sender, e.receiver, e.stream, e.k, e.sha256, e.own) for e in entries]
        assert len(found) == len(set(found)) and set(found) == expected


def test_one_semi_honest_agent_sees_its_in_neighbours_and_itself(tmp_path: Path) -> None:
    run = replace(make(data="quadratic"), adversary=Adversary(("agent-2",)))
    simulate(run, tmp_path, RUN_ID, test_keystream=KEY)
    written = sorted(p.parents[1].name for p in tmp_path.rglob("transcript"))
    assert written == ["agent-2"] and list(tmp_path.rglob("truth")) == []
    observation = Observation.load([tmp_path / "agents" / "agent-2" / "state" / "transcript"], run)
    assert observation.vantage == "semi-honest agent-2"
    assert f"{2 * (run.K + 1)} of {6 * (run.K + 1)} vectors were not seen" in observation.missing()


def test_a_stream_that_is_sent_to_nobody_is_not_missing(tmp_path: Path) -> None:
    """north sends no y, south and west no x: three agents hear all that is ever sent."""
    run = load_run(Path(__file__).resolve().parents[2] / "examples" / "spanning-trees.toml")
    run = replace(run, algorithm=replace(run.algorithm, iterations=2), adversary=Adversary(("north", "east", "middle")))
    simulate(run, tmp_path, RUN_ID, test_keystream=KEY)
    heard = {name: tmp_path / "agents" / name / "state" / "transcript" for name in run.adversary.semi_honest}
    assert Observation.load(list(heard.values()), run).missing() == ""
    assert Observation.load([heard["north"]], run).missing() == f"{4 * 3} of {7 * 3} vectors were not seen"


def test_samples_beyond_the_limit_are_not_kept_and_labels_are(tmp_path: Path) -> None:
    D = SAMPLES_BYTES // (8 * 64) + 1
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "own.npz", x_train=rng.random((3 * D, 64)), y_train=np.arange(3 * D) % 4, x_test=np.zeros((0, 64)),
        y_test=np.zeros(0, dtype=int),
    )  # fmt: skip
    run = make(K=1, data=f"npz:{tmp_path / 'own.npz'}")
    for samples, kept in ((D, 0), (D - 1, D - 1)):
        run = replace(run, scheme=replace(run.scheme, samples=samples))
        out = tmp_path / str(samples)
        simulate(run, out, RUN_ID, test_keystream=KEY)
        one = AgentTruth(out / "agents" / "agent-1" / "state" / "truth").round(1)
        assert len(one.samples) == kept and len(one.labels) == len(one.batch) == samples


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_an_interrupted_simulation_goes_on_with_its_recordings(tmp_path: Path, end: str) -> None:
    """Killed, rounds after the last save are drawn anew, and so is what was recorded of them."""
    run, out, key = make(K=23), tmp_path / "out", KEY if end == "stopped" else None
    with broken_off(end) as stops:
        simulate(run, out, RUN_ID, test_keystream=key, should_stop=stops)
    path = out / "agents" / "agent-1" / "state" / "transcript"
    before = [entry for _, entry in Transcript(path).whole() if entry is not None]
    assert 10 < max(entry.k for entry in before) < run.K
    if end == "killed":  # and stopped at once: nothing is left of rounds that were never made
        simulate(run, out, RUN_ID, should_stop=lambda: True)
        left = [max(find_truth(out, run.graph.agents, RUN_ID)[name].rounds()) for name in run.graph.agents]
        newest = [max(e.k for _, e in Transcript(path).whole() if e is not None and e.own)]
        assert max(left) == newest[0] < max(entry.k for entry in before)
    conclude, _ = simulate(run, out, RUN_ID, test_keystream=key)
    assert conclude.exit_code == 0
    last = Observation.load([out / "agents" / name / "state" / "transcript" for name in run.graph.agents], run)
    assert last.missing() == "" and last.counts.conflicting == 0
    entries = [(e.sender, e.stream, e.k) for e in Transcript(path)]
    assert len(entries) == len(set(entries))
    truth = find_truth(out, run.graph.agents, RUN_ID)
    for i, name in enumerate(run.graph.agents):
        for one in truth[name]:  # of the rounds as they were made in the end: noise has scale 0.01 (i + 1)
            assert np.abs(one.x - last.series(i, "X")[one.k]).max() < 0.5
    if end == "stopped":
        simulate(run, tmp_path / "whole", RUN_ID, test_keystream=KEY)
        whole = Transcript(tmp_path / "whole" / "agents" / "agent-1" / "state" / "transcript")
        found = [{(e.sender, e.stream, e.k, e.sha256) for e in t} for t in (whole, Transcript(path))]
        assert found[0] == found[1]


def test_without_the_section_nothing_is_written_or_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("asked without the section")

    monkeypatch.setattr("dpgt_node.agent.work.AgentWork.private", never)
    monkeypatch.setattr("dpgt_node.record.recording.Recording.__init__", never)
    simulate(replace(make(data="quadratic"), adversary=Adversary()), tmp_path, RUN_ID, test_keystream=KEY)
    assert list(tmp_path.rglob("transcript")) == list(tmp_path.rglob("truth")) == []


def test_the_fast_simulator_says_that_it_records_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.toml"
    path.write_text(to_toml(make(data="quadratic")), encoding="utf-8")
    assert cli.run(["simulate", str(path), "--out", str(tmp_path / "out"), "--fast"]) == 2
    assert "has [adversary], and --fast records nothing" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
