"""Agents with active roles in daemons and simulator: the same bits, named where they can be, loud everywhere."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from dpgt_node.cli import check, dpgt
from dpgt_node.cli.wrapping import WIDTH, broken
from dpgt_node.config import RunConfig, to_toml
from dpgt_node.config.mixing.robust import Robust
from dpgt_node.config.roles import Roles
from dpgt_node.errors import ExitCode
from dpgt_node.record.digests import read_digests
from dpgt_node.record.summary import load_summary
from dpgt_node.report import text
from dpgt_node.report.html import build_report
from dpgt_node.report.publishing.export import caveats
from dpgt_node.report.text import warnings_for
from dpgt_node.runtime import calls
from dpgt_node.runtime.agent import node as node_module
from dpgt_node.sim.simulate import simulate
from tests.runtime.cluster import KEY, LIMIT_S, cluster, make_run
from tests.sim.breaking import broken_off


def attacked(K: int, roles: dict[str, str], on_forgery: str = "continue") -> RunConfig:
    run = make_run(K)
    runtime = replace(run.runtime, on_forgery=on_forgery)
    return replace(run, runtime=runtime, adversary=replace(run.adversary, active=Roles(roles.items())))


@pytest.fixture(autouse=True)
def _short_farewells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "FAREWELL_S", 0.2)


async def test_daemons_and_simulator_attack_with_the_same_bits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    roles = {
        "agent-1": "equivocate stream=both value=5 to=agent-2,agent-3 from=4",
        "agent-2": "poison scale=-1 stream=X from=3 until=9 coordinates=0:2",
        "agent-3": "replay lag=2",
    }
    robust = Robust("clipped-gossip", 2.0, None, "norm-clip", 4.0)
    run = replace(attacked(30, roles), robust=robust)
    with caplog.at_level(logging.WARNING):
        async with cluster(tmp_path, run) as c:
            c.start_all()
            await c.end()
    c.assert_simulators_bits()
    named = {
        (one.first.sender, one.first.stream): (one.first.k, one.rounds)
        for folder in (c.out, tmp_path / "simulated")
        for one in read_digests(folder).forgeries  # type: ignore[union-attr]
    }
    assert named == {("agent-1", "X"): (4, 27), ("agent-1", "Y"): (4, 27)}, "what is released alike to all is not named"
    words = [read_digests(folder).outliers for folder in (c.out, tmp_path / "simulated")]  # type: ignore[union-attr]
    assert sorted(words[0], key=str) == sorted(words[1], key=str) and len(words[0]) >= 2
    assert {one.sender for _, one in words[0]} == {"agent-1"}, "who lies far beyond the others is named, and no other"
    summary = load_summary(c.out)
    assert summary is not None and summary.digests is not None
    assert any(line.startswith("Outlier: X of agent-1 lay far") for line in text.outlying(summary))
    first = summary.digests["outliers"][0]
    backwards = [{**first, "receiver": name} for name in reversed(run.graph.agents)]
    (line,) = text.outlying(replace(summary, digests={**summary.digests, "outliers": backwards}))
    assert f"at {', '.join(run.graph.agents)}, in" in line, "receivers stand in the run file's order"
    assert "Outlier: X of agent-1 lay far beyond the others at" in build_report(c.out).read_text(encoding="utf-8")
    alarms = [record for record in caplog.records if "outlier: X of agent-1 lay" in record.getMessage()]
    assert {record.name.split(".")[-2] for record in alarms} >= {"agent", "coordinator"}
    assert "outlier: " in (c.out / "events.jsonl").read_text(encoding="utf-8")
    loud = [record for record in caplog.records if "ACTIVE ADVERSARIES: agent-1 = equivocate" in record.getMessage()]
    assert {record.name.split(".")[-2] for record in loud} >= {"agent", "coordinator"}
    simulate(make_run(30), tmp_path / "honest", bytes(16), test_keystream=KEY)
    finals = (tmp_path / folder / "agents/agent-1/state/x_final.npy" for folder in ("honest", "simulated"))
    honest, other = map(np.load, finals)
    assert np.abs(honest - other).max() > 1.0, "an attack that changes nothing is none"


def test_check_and_the_report_say_so_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = replace(attacked(3, {"agent-2": "poison"}), robust=Robust("clipped-gossip", 2.0))
    path = tmp_path / "run.toml"
    path.write_text(to_toml(run), encoding="utf-8")
    said = CliRunner().invoke(dpgt, ["check", str(path)]).output
    assert said.startswith("ACTIVE ADVERSARIES: agent-2 = poison. These agents attack the run on purpose")
    assert "[robust]: the paper's theorems are of linear mixing" in said
    monkeypatch.setattr(check, "fitted", lambda line, _: broken(line))
    head = CliRunner().invoke(dpgt, ["check", str(path)]).output.splitlines()[:3]
    assert all(len(line) <= WIDTH for line in head) and head[1].startswith("  "), "on a terminal"
    assert any("ACTIVE ADVERSARIES" in line for line in warnings_for(run))
    assert any("ACTIVE ADVERSARIES" in line for line in caveats(run))


def test_an_equivocation_ends_a_simulation_in_its_round(tmp_path: Path) -> None:
    run = attacked(30, {"agent-1": "equivocate from=7"}, "stop")
    conclude, summary = simulate(run, tmp_path / "out", bytes(16), test_keystream=KEY)
    assert conclude.exit_code is ExitCode.CHECK_FAILED and conclude.reason.startswith("Y of round 7 of agent-1")
    assert summary.rounds == 8 and summary.digests is not None
    assert summary.digests["forgeries"][0]["words"].keys() == {"agent-1", "agent-3"}


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_an_adversary_that_schedules_messages_changes_no_bit_and_doubles_none(tmp_path: Path, seed: int | None) -> None:
    """Copies and delays under every order; what never comes ends the run with the name of its sender."""
    roles = {"agent-1": "repeat lag=1; delay ms=9 stream=Y", "agent-2": "delay ms=1 until=9; repeat lag=4 to=agent-1"}
    for barrier in (1, 3):
        honest = attacked(30, {})
        honest = replace(honest, runtime=replace(honest.runtime, barrier_every=barrier))
        run = replace(honest, adversary=attacked(30, roles).adversary)
        out = tmp_path / str(barrier)
        for name, one in (("honest", honest), ("scheduled", run)):
            conclude, summary = simulate(one, out / name, bytes(16), test_keystream=KEY, order_seed=seed)
            assert conclude.exit_code is ExitCode.DONE and {a.releases for a in summary.agents} == {62}
        files = [sorted((out / name).rglob("x_final.npy")) for name in ("honest", "scheduled")]
        assert all(a.read_bytes() == b.read_bytes() for a, b in zip(*files, strict=True)) and len(files[0]) == 6
        assert read_digests(out / "scheduled").forgeries == ()  # type: ignore[union-attr]
    run = attacked(30, {"agent-1": "withhold from=5 stream=Y to=agent-3"})
    conclude, summary = simulate(run, tmp_path / "withheld", bytes(16), test_keystream=KEY, order_seed=seed)
    assert conclude.exit_code is ExitCode.PEER_LOST and summary.rounds == 5
    assert conclude.reason.startswith("agent-3 has lacked Y of round 5 of agent-1")


async def test_daemons_take_delayed_and_repeated_messages_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate refuses a round that comes again, by name; the sender dials anew, and the bits are the honest run's."""
    waited, real = [], asyncio.sleep

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        await real(seconds)

    monkeypatch.setattr(calls, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    run = attacked(12, {"agent-1": "repeat lag=2 stream=X from=4 until=5; delay ms=60 stream=Y from=2 until=4"})
    async with cluster(tmp_path, run) as c:
        c.start_all()
        await c.end()
    assert sorted(waited) == [0.06] * 3
    c.assert_simulators_bits()
    assert any("X of round 2 from agent-1, expected round 5" in record.getMessage() for record in caplog.records)
    simulate(attacked(12, {}), tmp_path / "honest", bytes(16), test_keystream=KEY)
    for name in run.graph.agents:
        finals = (tmp_path / which / f"agents/{name}/state/x_final.npy" for which in ("honest", "simulated"))
        assert next(finals).read_bytes() == next(finals).read_bytes()


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_a_simulation_that_goes_on_takes_up_what_was_compared_before(tmp_path: Path, end: str) -> None:
    run, out = attacked(30, {"agent-1": "equivocate from=4 until=20"}), tmp_path / "parts"
    simulate(run, tmp_path / "whole", bytes(16), test_keystream=KEY)
    with broken_off(end) as stops:
        simulate(run, out, bytes(16), test_keystream=KEY, should_stop=stops)
    simulate(run, out, bytes(16), test_keystream=KEY)
    found, whole = read_digests(out), read_digests(tmp_path / "whole")
    assert whole is not None and whole.rounds == 31 and whole.forgeries[0].rounds == 17
    assert found == whole, "no round is forgotten, and none counts twice"


async def test_withheld_vectors_are_waited_for_and_both_ends_named(tmp_path: Path) -> None:
    run = attacked(300, {"agent-1": "withhold to=agent-2 from=5"})
    run = replace(run, runtime=replace(run.runtime, round_timeout_s=3.0, on_agent_loss="stop"))
    async with cluster(tmp_path, run) as c:
        c.start_all()
        assert c.serving is not None
        async with asyncio.timeout(LIMIT_S):
            outcome = await c.serving
    assert outcome.conclude.exit_code is ExitCode.PEER_LOST
    assert "agent-2 has lacked round 5 of agent-1" in outcome.conclude.reason
