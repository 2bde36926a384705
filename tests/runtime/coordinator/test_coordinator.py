"""The coordinator against agents made by hand: what they may say, when, and what it does about the rest."""

from __future__ import annotations

import asyncio
import csv
import errno
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpgt_node import __version__
from dpgt_node.agent.noise import account_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import Privacy, RunConfig, canonical_json, run_sha256
from dpgt_node.errors import ConfigError, ExitCode, PeerError
from dpgt_node.protocol import calls
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.coordinator import barrier as co
from dpgt_node.protocol.coordinator import coordination
from dpgt_node.record.recorder import RunRecorder
from dpgt_node.runtime.agent import node as node_module
from dpgt_node.runtime.coordinator import watchers
from dpgt_node.runtime.coordinator.daemon import Coordinator
from dpgt_node.runtime.coordinator.outdir import OutDir
from dpgt_node.runtime.coordinator.serve import serve
from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY, OPERATOR_IDENTITY, Security, agent_identity
from dpgt_node.wire import codec, services
from tests.runtime.cluster import LIMIT_S, Cluster, cluster, eventually, make_run
from tests.wire.vectors import uploaded

NAMES = ("agent-1", "agent-2", "agent-3")


def register(run: RunConfig, name: str, **changes: Any) -> m.Register:
    text = canonical_json(run)
    made = m.Register(
        name=name,
        run_sha256=run_sha256(run),
        run_json=text,
        advertise="127.0.0.1:9",
        samples=None,
        dimension=3,
        shape_sha256="0" * 64,
        last_released_round=-1,
        last_done_round=-1,
        last_durable_round=-1,
        finished=False,
        run_id=b"",
        instance=name.encode().ljust(16, b"\0"),
        package_version=__version__,
    )
    return replace(made, **changes)


class Hand:
    """One agent made by hand."""

    def __init__(self, c: Cluster, name: str) -> None:
        self.c, self.name = c, name
        self.channel = c.security(agent_identity(name)).opener(COORDINATOR_IDENTITY)(c.address)
        self.call = services.join(self.channel, name)

    async def say(self, *messages: m.AgentMessage) -> None:
        for message in messages:
            await self.call.write(message)

    async def hear(self) -> m.CoordinatorMessage | None:
        async with asyncio.timeout(30):
            while isinstance(message := await self.call.read(), m.Heartbeat):
                pass
        return message

    async def welcome(self, **changes: Any) -> m.Welcome:
        await self.say(register(self.c.run, self.name, **changes))
        message = await self.hear()
        assert isinstance(message, m.Welcome), message
        await self.say(m.Ready())
        return message

    async def thrown_out(self) -> PeerError:
        with pytest.raises(PeerError) as caught:
            while await self.hear() is not None:
                pass
        return caught.value

    async def close(self) -> None:
        self.call.cancel()
        await self.channel.close()


@pytest.fixture(autouse=True)
def _nobody_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents that never came, and neighbours that are not there to close their streams."""
    monkeypatch.setattr(coordination, "LATE_NS", 0)
    monkeypatch.setattr(node_module, "FAREWELL_S", 0.2)


async def started(c: Cluster) -> list[Hand]:
    """Three registered agents that have heard Start."""
    hands = [Hand(c, name) for name in NAMES]
    for hand in hands:
        await hand.welcome()
    for hand in hands:
        assert await hand.hear() == m.Start({name: "127.0.0.1:9" for name in NAMES}, 0)
    return hands


async def concluded(c: Cluster) -> co.Conclude:
    assert c.serving is not None
    async with asyncio.timeout(30):
        return (await c.serving).conclude


# --- registration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"protocol_version": 2}, "version", ("2", "1")),
        ({"package_version": "0.0.1"}, "version", ("0.0.1 at agent-2", f"{__version__} at the coordinator")),
        ({"dimension": 4}, "data", ("agent-2 has a model of d = 4", "agent-1 of 3")),
        ({"shape_sha256": "1" * 64}, "data", ("agent-2", "agent-1", "shapes differ")),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_an_agent_that_disagrees_ends_the_run_before_it_begins(
    tmp_path: Path, changes: dict[str, Any], kind: str, words: tuple[str, ...]
) -> None:
    async with cluster(tmp_path) as c:
        first, second = Hand(c, "agent-1"), Hand(c, "agent-2")
        await first.welcome()
        await second.say(register(c.run, "agent-2", **changes))
        refused = await second.hear()
        assert isinstance(refused, m.Refused) and refused.kind == kind
        stop = await first.hear()
        assert isinstance(stop, m.StopMessage) and stop.exit_code == ExitCode.REFUSED
        for word in words:
            assert word in refused.reason and word in stop.reason
        for hand in (first, second):
            await hand.close()
        conclude = await concluded(c)
    assert conclude.exit_code is ExitCode.REFUSED and conclude.reason.startswith("agent-2 refused: ")


@pytest.mark.parametrize(
    ("first", "status", "words"),
    [
        (m.Done(0, -1, 0), "INVALID_ARGUMENT", "first message must be Register"),
        (m.Heartbeat(), "INVALID_ARGUMENT", "first message must be Register"),
        ({"last_done_round": 31}, "OUT_OF_RANGE", "beyond the last, 30"),
    ],
    ids=["Done", "Heartbeat", "rounds that do not exist"],
)
async def test_nonsense_at_the_door_is_refused_and_the_run_goes_on(
    tmp_path: Path, first: Any, status: str, words: str
) -> None:
    async with cluster(tmp_path) as c:
        hand = Hand(c, "agent-1")
        await hand.say(register(c.run, "agent-1", **first) if isinstance(first, dict) else first)
        error = await hand.thrown_out()
        assert error.grpc_status == status and words in str(error)
        await hand.close()
        c.start_all()
        assert (await c.end()).conclude.exit_code is ExitCode.DONE


async def test_bytes_that_are_no_message_are_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        hand = Hand(c, "agent-1")
        for method, rubbish in (
            ("Join", b"\xff\xff"),
            ("Upload", b"\xff\xff"),
            ("Status", b"\xff"),
            ("Control", b"\xff"),
        ):
            call = hand.channel.stream_stream(f"/dpgt.v1.Coordinator/{method}")(
                metadata=((services.NAME_METADATA, "agent-1"),)
            )
            await call.write(rubbish)
            await call.done_writing()
            assert (await call.code()).name in ("INVALID_ARGUMENT", "FAILED_PRECONDITION"), method
        await hand.close()
        c.start_all()
        assert (await c.end()).conclude.exit_code is ExitCode.DONE


async def test_a_certificate_counts_and_not_the_name_in_the_registration(tmp_path: Path) -> None:
    async with cluster(tmp_path, secure=True) as c:
        hand = Hand(c, "agent-1")
        await hand.say(register(c.run, "agent-2"))
        refused = await hand.hear()
        assert isinstance(refused, m.Refused) and refused.kind == "identity"
        assert refused.reason == "the certificate is agent-1's, the registration says agent-2"
        await hand.close()
        c.start_all()
        assert (await c.end()).conclude.exit_code is ExitCode.DONE


async def test_the_same_process_may_register_again_and_takes_its_own_place(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        older, newer = Hand(c, "agent-1"), Hand(c, "agent-1")
        await older.welcome()
        await newer.welcome()
        await older.close()
        others = [Hand(c, "agent-2"), Hand(c, "agent-3")]
        for hand in others:
            await hand.welcome()
        assert isinstance(await newer.hear(), m.Start), "its old stream's end did not take it away"
        for hand in (newer, *others):
            await hand.close()


async def test_nobody_starts_before_everybody_is_ready_and_late_comers_hear_why(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        hands = [Hand(c, name) for name in NAMES]
        await hands[0].welcome()
        for hand in hands[1:]:
            await hand.say(register(c.run, hand.name))
            assert isinstance(await hand.hear(), m.Welcome)
        await hands[1].say(m.Ready(), m.Ready())
        await hands[2].say(m.Refusal("policy", "no budget"))
        for hand in hands:  # the first word after Welcome, for those who were ready too: no Start
            assert await hand.hear() == m.StopMessage("agent-3 refused: no budget", ExitCode.REFUSED)
        await hands[0].close()
        late = Hand(c, "agent-1")
        await late.say(register(c.run, "agent-1"))
        assert isinstance(await late.hear(), m.Welcome), "the others are still leaving"
        await late.say(m.Ready())
        assert await late.hear() == m.StopMessage("agent-3 refused: no budget", ExitCode.REFUSED)
        for hand in (*hands[1:], late):
            await hand.close()
        assert (await concluded(c)).status == "refused"


# --- in mid-run ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (m.Done(1, 0, 0), "OUT_OF_RANGE"),
        (m.Done(0, 1, 0), "OUT_OF_RANGE"),
        (m.FinishedReport("finished", 2, 9, {}, m.MetricsReport(31)), "INVALID_ARGUMENT"),
        (m.FinishedReport("stopped", 2, 9, {}, m.MetricsReport(31)), "INVALID_ARGUMENT"),
        ("register", "INVALID_ARGUMENT"),
    ],
    ids=["beyond the barrier", "durable before done", "a result too early", "a result of a stop", "a second Register"],
)
async def test_a_message_that_cannot_be_ends_the_call_and_not_the_run(
    tmp_path: Path, message: Any, status: str
) -> None:
    async with cluster(tmp_path) as c:
        hands = await started(c)
        await hands[1].say(register(c.run, "agent-2") if message == "register" else message)
        error = await hands[1].thrown_out()
        assert error.grpc_status == status
        back = Hand(c, "agent-2")
        await back.welcome()
        assert isinstance(await back.hear(), m.Start)
        await back.say(m.Done(0, -1, 0))
        await hands[0].say(m.Done(0, -1, 0))
        await hands[2].say(m.Done(0, -1, 0))
        while (heard := await hands[0].hear()) != m.GoMessage(1):
            assert isinstance(heard, m.Start)
        for hand in (*hands, back):
            await hand.close()


async def test_a_result_before_the_run_began_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        hand = Hand(c, "agent-1")
        await hand.welcome()
        await hand.say(m.FinishedReport("finished", 2, 9, {}, m.MetricsReport(31)))
        assert (await hand.thrown_out()).grpc_status == "INVALID_ARGUMENT"
        await hand.close()


async def test_a_result_that_comes_while_the_others_are_still_away_is_asked_for_again(tmp_path: Path) -> None:
    run = make_run()
    run = replace(run, evaluate=replace(run.evaluate, metrics="local"))
    report = m.FinishedReport("finished", 2, 9, {}, m.MetricsReport(run.K + 1))
    async with cluster(tmp_path, run) as c:
        run_id = bytes.fromhex(json.loads((c.out / "run_id.json").read_text())["run_id"])
        through = {"last_released_round": run.K, "last_done_round": run.K, "last_durable_round": run.K}
        hands = [Hand(c, name) for name in NAMES]
        for hand in hands:
            await hand.say(register(c.run, hand.name, **through, run_id=run_id))
            assert isinstance(await hand.hear(), m.Welcome)
            await hand.say(m.Ready(), report)
        for hand in hands:
            assert isinstance(await hand.hear(), m.Start)
            await hand.say(report)
        for hand in hands:
            while (heard := await hand.hear()) != m.Goodbye():
                assert isinstance(heard, m.AllDurableMessage)
            await hand.close()
        assert (await concluded(c)).exit_code is ExitCode.DONE


@pytest.mark.parametrize(("code", "expected"), [(2, 2), (4, 4), (6, 6), (70, 70), (99, 70)])
async def test_an_agents_failure_ends_the_run_for_all_with_its_code_and_words(
    tmp_path: Path, code: int, expected: int
) -> None:
    async with cluster(tmp_path) as c:
        hands = await started(c)
        await hands[2].say(m.Failed(code, "the disk is full"))
        for hand in hands:
            assert await hand.hear() == m.StopMessage("agent-3: the disk is full", expected)
            await hand.close()
        conclude = await concluded(c)
    assert (conclude.exit_code, conclude.reason) == (expected, "agent-3: the disk is full")


async def test_a_lost_agent_stops_the_run_when_the_run_file_says_so(tmp_path: Path) -> None:
    run = make_run()
    runtime = replace(run.runtime, on_agent_loss="stop", round_timeout_s=0.3)
    async with cluster(tmp_path, replace(run, runtime=runtime)) as c:
        hands = await started(c)
        for hand in hands:
            await hand.close()
        conclude = await concluded(c)
    assert conclude.exit_code is ExitCode.PEER_LOST and "has been away for" in conclude.reason


# --- study uploads ---------------------------------------------------------------------------------------------------


def study(c: Cluster, name: str, k: int, x: np.ndarray[Any, Any]) -> Iterator[bytes]:
    run_id = bytes.fromhex((c.out / "run_id.json").read_text().split('"run_id": "')[1][:32])
    return codec.encode_vectors(run_id, name, [codec.study_payload(k, x)], study=True)


async def test_states_that_are_not_the_callers_or_not_numbers_are_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        hands = await started(c)
        cases = [
            ("agent-2", 0, np.ones(3), "PERMISSION_DENIED"),
            ("agent-1", 32, np.ones(3), "OUT_OF_RANGE"),
            ("agent-1", 0, np.ones(4), "INVALID_ARGUMENT"),
            ("agent-1", 0, np.array([1.0, np.nan, 1.0]), "INVALID_ARGUMENT"),
        ]
        for name, k, x, status in cases:
            with pytest.raises(PeerError) as caught:
                await uploaded(hands[0].channel, "agent-1", study(c, name, k, x))
            assert caught.value.grpc_status == status
        states = [*study(c, "agent-1", 0, np.zeros(3)), *study(c, "agent-1", 31, np.ones(3))]
        assert await uploaded(hands[0].channel, "agent-1", states) == [1, 2]
        assert np.array_equal(np.load(c.out / "agents" / "agent-1" / "x_final.npy"), np.ones(3))
        for hand in hands:
            await hand.close()


async def test_a_local_run_takes_no_state_and_its_rows_hold_none(tmp_path: Path) -> None:
    run = make_run(20)
    async with cluster(tmp_path, replace(run, evaluate=replace(run.evaluate, metrics="local"))) as c:
        hands = await started(c)
        with pytest.raises(PeerError, match="takes no private states"):
            await uploaded(hands[0].channel, "agent-1", study(c, "agent-1", 0, np.ones(3)))
        await hands[0].say(m.MetricsReport(0, 1.0, 1.0, 1.0, 1.0))
        await hands[0].say(m.Done(0, -1, 0))
        for hand in hands:
            await hand.close()
        c.stop.set()
        await concluded(c)
    with (c.out / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["agent"] for row in rows] == list(NAMES) and all(row["loss_train"] == "" for row in rows)


# --- control ---------------------------------------------------------------------------------------------------------


async def test_control_by_state_and_by_identity(tmp_path: Path) -> None:
    async with cluster(tmp_path, secure=True) as c:
        by = {
            identity: c.security(identity).opener(COORDINATOR_IDENTITY)(c.address)
            for identity in (OPERATOR_IDENTITY, agent_identity("agent-1"), agent_identity("mallory"))
        }
        operator, agent, stranger = by.values()
        assert (await services.status(agent, timeout_s=30)).state == "waiting"
        with pytest.raises(PeerError, match="not enrolled"):
            await services.status(stranger, timeout_s=30)
        for channel in (agent, stranger):
            for action in ("pause", "resume", "stop"):
                with pytest.raises(PeerError, match="may not control") as caught:
                    await services.control(channel, m.ControlRequest(action), timeout_s=30)  # type: ignore[arg-type]
                assert caught.value.grpc_status == "PERMISSION_DENIED"
        for action in ("pause", "resume"):
            reply = await services.control(operator, m.ControlRequest(action), timeout_s=30)  # type: ignore[arg-type]
            assert not reply.ok and "has not begun" in reply.message
        hands = await started(c)
        assert (await services.control(operator, m.ControlRequest("pause"), timeout_s=30)).ok
        for hand in hands:
            await hand.say(m.Done(0, -1, 0))
        await eventually_k(operator, 0)
        status = await services.status(operator, timeout_s=30)
        assert (status.state, status.k, status.K) == ("paused", 0, 30)
        assert [(a.name, a.connected, a.k) for a in status.agents] == [(name, True, 0) for name in NAMES]
        assert status.accountant is None and {a.epsilon for a in status.agents} == {None}
        assert status.delta is None and "no bound C" in status.adjacency
        assert (await services.control(operator, m.ControlRequest("resume"), timeout_s=30)).ok
        assert await hands[0].hear() == m.GoMessage(1)
        assert (await services.control(operator, m.ControlRequest("stop", "enough"), timeout_s=30)).ok
        assert await hands[0].hear() == m.StopMessage("enough", 5)
        assert (await services.control(operator, m.ControlRequest("stop"), timeout_s=30)).ok, "twice is no error"
        events = [json.loads(line)[2] for line in (c.out / "events.jsonl").read_text().splitlines()]
        asked = [text for text in events if "asked for" in text]
        assert asked == [
            "pause asked for by dpgt:operator: paused; agents finish round 0",
            "resume asked for by dpgt:operator: running",
        ]
        for hand in hands:
            await hand.close()
        for channel in by.values():
            await channel.close()
        conclude = await concluded(c)
    assert (conclude.exit_code, conclude.reason) == (ExitCode.STOPPED, "enough")


@pytest.mark.parametrize(
    ("mechanism", "accountant", "delta"),
    [("paper", "lemma5", None), ("noise-once", "zcdp", 1e-5), ("public-state", "gdp", 1e-5)],
)
async def test_status_has_the_accountant_delta_and_adjacency_of_its_epsilon(
    tmp_path: Path, mechanism: str, accountant: str, delta: float | None
) -> None:
    run = make_run()
    run = replace(run, algorithm=replace(run.algorithm, mechanism=mechanism), privacy=Privacy(C=1e-3))
    run = replace(run, noise=replace(run.noise, law="gaussian" if accountant == "gdp" else "laplace"))
    async with cluster(tmp_path, run, test=False) as c:
        channel = c.security(OPERATOR_IDENTITY).opener(COORDINATOR_IDENTITY)(c.address)
        hands = await started(c)
        for hand in hands:
            await hand.say(m.Done(0, -1, 0))
        await eventually_k(channel, 0)
        async with asyncio.timeout(30):
            while (status := await services.status(channel, timeout_s=30)).accountant is None:
                pass
        for hand in hands:
            await hand.close()
        await channel.close()
    assert (status.accountant, status.delta) == (accountant, delta)
    assert status.adjacency.startswith(
        f"replace-one, per-sample gradients differ by at most C = {run.privacy.C:g} in L1"
    )
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    accounts = {name: account_for(run, topology, schedule, i, None, 3) for i, name in enumerate(NAMES)}
    assert {a.name: a.epsilon for a in status.agents} == {
        name: account.cost(accountant, 0) for name, account in accounts.items()
    }
    assert {a.strength for a in status.agents} == {"none"}, "C is declared"


async def eventually_k(channel: Any, k: int) -> None:
    async with asyncio.timeout(30):
        while (await services.status(channel, timeout_s=30)).k < k:
            pass


async def test_a_stop_before_anybody_came_leaves_a_folder_that_can_go_on(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        c.stop.set()
        assert (await concluded(c)).exit_code is ExitCode.STOPPED
        await c.coordinate()
        c.start_all()
        assert (await c.end()).conclude.exit_code is ExitCode.DONE


async def test_two_coordinators_cannot_share_an_output_folder(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        with pytest.raises(ConfigError, match="in use by another coordinator"):
            await serve(c.run, c.out, "127.0.0.1:0", None, keystream="test", stop=asyncio.Event())
        assert c.serving is not None and not c.serving.done()


async def test_a_port_in_use_leaves_no_output_folder(tmp_path: Path) -> None:
    async with cluster(tmp_path / "first") as c:
        out = tmp_path / "second"
        with pytest.raises(ConfigError, match="in use"):
            await serve(c.run, out, c.address, None, keystream=None, stop=asyncio.Event())
        assert not out.exists()


async def test_the_outcome_is_written_before_agents_hear_goodbye(tmp_path: Path) -> None:
    async with cluster(tmp_path, make_run(0)) as c:
        hands = await started(c)
        for hand in hands:
            await uploaded(hand.channel, hand.name, study(c, hand.name, 1, np.ones(3)))
            await hand.say(m.Done(0, 0, 7), m.FinishedReport("finished", 2, 7, {}, m.MetricsReport(1, 0.5)))
        while not isinstance(heard := await hands[0].hear(), m.Goodbye):
            assert isinstance(heard, m.AllDurableMessage)
        assert (c.out / "summary.json").exists()
        for hand in hands:
            await hand.close()
        assert (await concluded(c)).exit_code is ExitCode.DONE
        await eventually("the address file stays", lambda: (c.out / "coordinator.json").exists())


# --- a full disk -----------------------------------------------------------------------------------------------------

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("where", ["__init__", "evaluated", "prepared", "state", "finished", "close"])
async def test_a_full_disk_ends_the_run_for_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise FULL

    monkeypatch.setattr(RunRecorder, where, full)
    async with cluster(tmp_path) as c:
        c.start_all()
        conclude = await concluded(c)
        async with asyncio.timeout(30):
            ended = await asyncio.gather(*c.agents.values(), return_exceptions=True)
    assert conclude.exit_code is ExitCode.CONFIG and conclude.reason == f"{c.out}: No space left on device"
    expected = ExitCode.DONE if where == "close" else ExitCode.CONFIG
    assert all(end is expected for end in ended), ended
    assert "Traceback" not in caplog.text and "Exception not handled" not in caplog.text


async def test_what_the_transport_took_waits_no_longer(tmp_path: Path) -> None:
    run = make_run()
    coordinator = Coordinator(run, OutDir(tmp_path, bytes(16), resumed=False))
    call = calls.Call("agent-1", 1, dialled=False)
    coordinator.feed(calls.Accepted(call, "x"))
    coordinator.feed(calls.Heard(call, register(run, "agent-1")))
    (seat,) = coordinator.machine._members._seats.values()
    assert seat.waiting == 1, "Welcome"
    coordinator.feed(calls.Taken(call, 90, 0))
    assert seat.waiting == 0
    coordinator.close()


async def test_a_bug_at_the_end_does_not_leave_the_coordinator_hanging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Coordinator, "_close", broken)
    coordinator = Coordinator(make_run(), OutDir(tmp_path, bytes(16), resumed=False))
    coordinator.feed(co.StopRun("enough"))
    assert isinstance(coordinator.done.exception(), ZeroDivisionError)


async def test_a_coordinator_stays_until_who_watches_knows_the_end_and_leaves_at_a_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchers, "LATE_S", LIMIT_S)
    monkeypatch.setattr(watchers, "FAREWELL_S", 10 * LIMIT_S)
    async with cluster(tmp_path, make_run(3)) as c, Security().dialler(COORDINATOR_IDENTITY)(c.address) as channel:
        for number in (1, 2, 0):  # who asks once is not waited for
            assert not (await services.status(channel, timeout_s=30, watcher=number)).over
        c.start_all()
        while not (status := await services.status(channel, timeout_s=30)).over:
            await asyncio.sleep(0.01)
        told = await services.status(channel, timeout_s=30, watcher=1)
        assert (status.state, told.state, told.k) == ("finished", "finished", 3)
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(*c.agents.values())
            assert c.serving is not None
            done, _ = await asyncio.wait((c.serving,), timeout=1.0)
            assert not done, "the second was not told yet"
            c.stop.set()
            await c.serving
