"""Recording nodes over real gRPC: a stop closes the transcript, and the run goes on with it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node.config import Adversary, RunConfig
from dpgt_node.errors import ExitCode, StoreError
from dpgt_node.record.truth import AgentTruth
from dpgt_node.sim.simulate import simulate
from dpgt_node.wire.transcript import Transcript
from tests.runtime.cluster import KEY, Cluster, cluster, make_run

RUN_ID = bytes(16)


def recording_run(K: int) -> RunConfig:
    return replace(make_run(K), adversary=Adversary(("agent-1",), truth=True))


def entries(path: Path) -> list[tuple[str, str, int, bytes]]:
    return [(e.sender, e.stream, e.k, bytes(e.data or b"")) for e in Transcript(path)]


async def stopped(c: Cluster, k: int) -> None:
    c.start_all()
    await c.reached(k)
    c.stop.set()
    assert c.serving is not None
    await c.serving
    for task in c.agents.values():
        assert await task is ExitCode.STOPPED


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "in threads"])
async def test_a_stopped_run_closes_its_transcript_and_goes_on_with_it(
    tmp_path: Path, inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not inline:
        monkeypatch.setattr("dpgt_node.runtime.agent.driver.INLINE_BYTES", 1)
    run = recording_run(90)
    path = tmp_path / "state" / "agent-1" / "transcript"
    async with cluster(tmp_path, run) as c:
        await stopped(c, 25)
    before = entries(path)
    assert len(before) == len(set(before)) > 4 * 20
    async with cluster(tmp_path, run) as c:
        c.start_all()
        await c.end()
    found = entries(path)
    assert found[: len(before)] == before
    simulate(run, tmp_path / "simulated", RUN_ID, test_keystream=KEY)
    assert sorted(found) == sorted(entries(tmp_path / "simulated" / "agents" / "agent-1" / "state" / "transcript"))
    assert all(e.time_ns > 10**18 for e in Transcript(path))
    for name in run.graph.agents:
        assert AgentTruth(tmp_path / "state" / name / "truth").rounds() == tuple(range(run.K + 1))


async def test_a_transcript_that_was_taken_away_is_missed_before_anything_is_drawn(tmp_path: Path) -> None:
    run = recording_run(90)
    async with cluster(tmp_path, run) as c:
        await stopped(c, 25)
    (tmp_path / "state" / "agent-1" / "transcript").unlink()
    async with cluster(tmp_path, run) as c:
        c.start_all()
        ends = await asyncio.gather(*c.agents.values(), return_exceptions=True)
    assert isinstance(ends[0], StoreError), ends
    assert "transcript: round 0 is missing, and nobody can send it again" in str(ends[0])
    assert ExitCode.DONE not in ends, "the others hear why they do not go on"
