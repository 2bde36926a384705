"""The end of a run, cut off anywhere: whoever has its result exits 0, whoever comes late hears why."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node.config import RunConfig
from dpgt_node.errors import ConfigError, ExitCode, PeerLost, RefusedError
from dpgt_node.protocol.coordinator import coordination
from dpgt_node.protocol.coordinator.coordination_types import KeepResult
from dpgt_node.record.metrics import MetricsStore
from dpgt_node.record.recorder import RunRecorder
from dpgt_node.runtime.agent import node as node_module
from dpgt_node.runtime.coordinator import outdir
from dpgt_node.runtime.coordinator.daemon import Coordinator
from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY
from dpgt_node.wire import services
from tests.runtime.cluster import Cluster, cluster, eventually, make_run


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short for what never comes here, long for what does, on a loaded machine."""
    monkeypatch.setattr(node_module, "FAREWELL_S", 0.2)
    monkeypatch.setattr(coordination, "LATE_NS", 30_000_000_000)


def impatient(K: int, round_timeout_s: float = 1.0) -> RunConfig:
    run = make_run(K)
    return replace(run, runtime=replace(run.runtime, round_timeout_s=round_timeout_s))


def deaf_to_results(coordinator: Coordinator, effect: KeepResult) -> None:
    """It counts no result."""


async def cut_off(c: Cluster) -> None:
    """The coordinator is gone, without a word."""
    assert c.serving is not None
    c.serving.cancel()
    await asyncio.gather(c.serving, return_exceptions=True)


async def test_a_goodbye_that_never_comes_leaves_agents_with_results_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, impatient(10)) as c:
        with monkeypatch.context() as patched:
            patched.setattr(Coordinator, "_keep_result", deaf_to_results)
            c.start_all()
            await eventually("every result was reported", c.all_reported)
            await cut_off(c)
        async with asyncio.timeout(60):
            assert set(await asyncio.gather(*c.agents.values())) == {ExitCode.DONE}
    c.assert_simulators_bits()


async def test_an_agent_without_a_result_is_lost_with_its_coordinator(tmp_path: Path) -> None:
    async with cluster(tmp_path, impatient(10_000)) as c:
        c.start_all()
        await c.reached(3)
        await cut_off(c)
        async with asyncio.timeout(60):
            ended = await asyncio.gather(*c.agents.values(), return_exceptions=True)
    assert all(isinstance(error, PeerLost) for error in ended), ended


async def test_an_agent_that_comes_back_to_a_run_that_is_over_is_done(tmp_path: Path) -> None:
    """The end was cut off after the results were written: the next coordinator says goodbye to whoever comes."""
    async with cluster(tmp_path, make_run(10)) as c:
        c.start_all()
        await c.end()
        summary = (c.out / "summary.json").read_bytes()
        assert (c.out / outdir.CLOSING_FILE).exists(), "the verb removes it when the report is written"
        await c.coordinate()
        c.start_all()
        outcome = await c.end()
        assert outcome.conclude.exit_code is ExitCode.DONE and outcome.summary is not None
        assert (c.out / "summary.json").read_bytes() == summary
    c.assert_simulators_bits()


async def test_an_agent_with_its_result_does_not_wait_long_for_a_coordinator_that_left(tmp_path: Path) -> None:
    async with cluster(tmp_path, impatient(10)) as c:
        c.start_all()
        await c.end()
        async with asyncio.timeout(60):
            assert await c.node("agent-1").serve() is ExitCode.DONE, "register_timeout is 30 s, round_timeout 1 s"


async def test_who_comes_after_a_refusal_hears_it(tmp_path: Path) -> None:
    run = make_run()
    async with cluster(tmp_path, replace(run, runtime=replace(run.runtime, register_timeout_s=0.3))) as c:
        async with c.security(COORDINATOR_IDENTITY).opener(COORDINATOR_IDENTITY)(c.address) as channel:
            async with asyncio.timeout(60):
                while (await services.status(channel, timeout_s=30.0)).state != "refused":
                    await asyncio.sleep(0.01)
        for name in c.run.graph.agents:  # none of them was there in time
            with pytest.raises(RefusedError, match="does not begin: never registered: agent-1, agent-2, agent-3"):
                await c.node(name).serve()
        assert c.serving is not None
        async with asyncio.timeout(20):  # everybody heard: nothing more to wait for
            assert (await c.serving).conclude.exit_code is ExitCode.REFUSED
    mended = outdir.prepare(c.out, run, source="command line", keystream="test")
    assert not mended.resumed, "a run that was refused leaves the folder to another"


def prepare(path: Path, *, close: bool = False) -> outdir.OutDir:
    return outdir.prepare(path, make_run(), source="command line", keystream=None, close=close)


async def test_only_an_end_that_was_cut_off_is_gone_on_with(tmp_path: Path) -> None:
    async with cluster(tmp_path, make_run(5)) as c:
        c.start_all()
        await c.end()
        out, run = c.out, c.run

    def claim(close: bool) -> outdir.OutDir:
        return outdir.prepare(out, run, source="command line", keystream="test", close=close)

    with pytest.raises(ConfigError, match="holds this run, finished"):
        claim(False)
    assert claim(True).closing
    (out / outdir.CLOSING_FILE).unlink()
    with pytest.raises(ConfigError, match="holds this run, finished"):
        claim(True)


def test_a_first_start_that_was_killed_before_it_had_an_id_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".run_id.json.4711.tmp").write_text('{"run_id": "00')
    assert not prepare(tmp_path).resumed
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".notes.tmp").touch()
    with pytest.raises(ConfigError, match="is not empty"):
        prepare(tmp_path / "other")


def test_processes_of_a_killed_launch_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = prepare(tmp_path)
    state = tmp_path / "agents" / "agent-2" / "state"
    state.mkdir(parents=True)
    (state / "lock").touch()
    outdir.settle(tmp_path, source="command line")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            held.close()  # it is gone now

    held = outdir.hold(claimed, source="command line")
    monkeypatch.setattr(outdir.time, "sleep", pause)
    outdir.settle(tmp_path, source="command line")
    assert len(pauses) == 3
    monkeypatch.setattr(outdir, "SETTLE_S", 0.0)
    held = outdir.hold(claimed, source="command line")
    with held, pytest.raises(ConfigError, match="in use by another coordinator"):
        outdir.settle(tmp_path, source="command line")


async def test_evaluations_that_a_dying_coordinator_had_not_written_are_reported_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every 10 rounds an evaluation; the coordinator that dies has taken those of rounds 0 and 10, and written none."""
    async with cluster(tmp_path, make_run(400)) as c:
        with monkeypatch.context() as patched:
            patched.setattr(RunRecorder, "prepared", lambda self: None)  # rows wait for it
            c.start_all()
            await c.reached(12)
            await cut_off(c)
        seen = c.round("agent-1")
        await c.coordinate(listen=c.address)
        await c.end()
    rows = MetricsStore.read(c.out)
    keys = [(row.agent, row.k) for row in rows]
    lines = (c.out / "metrics.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + len(keys), "no row twice"
    kept = [k for k in (*range(0, 401, 10), 401) if k > seen - 20]
    assert set(keys) >= {(name, k) for name in c.run.graph.agents for k in kept}
    assert all(row.consensus_error is not None for row in rows if row.k in kept)
