"""Agents and their coordinator in one event loop, over real sockets: good runs, intruders, refusals, restarts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpgt_node import __version__
from dpgt_node.config import NodeConfig
from dpgt_node.config.mixing.robust import Robust
from dpgt_node.errors import ConfigError, ExitCode, PeerError, RefusedError, StoreError
from dpgt_node.privacy.laws.keystream import CtrStream
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.calls import Call, Heard
from dpgt_node.protocol.coordinator import coordination
from dpgt_node.runtime.agent import driver as driver_module
from dpgt_node.runtime.agent import node as node_module
from dpgt_node.runtime.agent.node import Node
from dpgt_node.runtime.agent.refusal import say_refusal
from dpgt_node.runtime.agent.streams import ReceivingEdge
from dpgt_node.runtime.coordinator.daemon import Coordinator
from dpgt_node.runtime.store.keyed import OwnerKey, read_signed
from dpgt_node.runtime.store.ledger import LedgerBroken
from dpgt_node.runtime.trust.channels import OPERATOR_IDENTITY, Security, agent_identity
from dpgt_node.runtime.trust.tls import CertificateAuthority
from dpgt_node.runtime.watching.sites import HEALTH, Sites
from dpgt_node.wire import services
from dpgt_node.wire.kept import Kept
from dpgt_node.wire.options import Options
from tests.runtime.cluster import Cluster, cluster, eventually, make_run
from tests.runtime.store.test_keyed import cheaper, key_at


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "mtls"])
async def test_a_run_ends_well_with_the_simulators_bits(
    tmp_path: Path, secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: dict[str, list[int]] = {"channel_options": [], "server_options": []}

    def noting(which: str) -> Callable[[float, int], Options]:
        made: Callable[[float, int], Options] = getattr(services, which)

        def noted(patience_s: float, vector_bytes: int) -> Options:
            lengths[which].append(vector_bytes)
            return made(patience_s, vector_bytes)

        return noted

    for which in lengths:
        monkeypatch.setattr(services, which, noting(which))

    def hands_on(peer: str, number: int) -> Kept:
        edge = c.nodes["agent-1"]._edges.framing(Call(peer, number, dialled=False))
        assert isinstance(edge, ReceivingEdge)
        return edge._kept

    async with cluster(tmp_path, secure=secure) as c:
        c.start_all()
        outcome = await c.end()
        assert hands_on("agent-2", 7) is hands_on("agent-2", 8), "what a call left incomplete is there for the next one"
        assert hands_on("agent-2", 9) is not hands_on("agent-3", 9), "and only for the same neighbour's"
    assert outcome.conclude.exit_code is ExitCode.DONE and outcome.summary is not None
    assert outcome.summary.rounds == 31 and [a.releases for a in outcome.summary.agents] == [62] * 3
    c.assert_simulators_bits()
    for found in lengths.values():
        assert set(found) == {0, 8 * 3}, "none to the coordinator; three coordinates to agents, as they are longest"


@pytest.fixture(autouse=True)
def _short_farewells(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that is cancelled waits for neighbours to close their streams; here they never do."""
    monkeypatch.setattr(node_module, "FAREWELL_S", 0.2)


async def test_a_process_in_a_hurry_still_closes_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cancelled again while it takes leave, and while it stops its server: that would go on answering."""
    leaving, leave = asyncio.Event(), node_module.Node._leave
    stopping, stopped, make = asyncio.Event(), asyncio.Event(), services.server

    async def slow(node: node_module.Node, trust: asyncio.Future[None]) -> None:
        leaving.set()
        await asyncio.sleep(0.05)
        await leave(node, trust)

    def made(*given: Any, **more: Any) -> Any:
        server = make(*given, **more)
        stop = server.stop

        async def slowly(grace: float | None) -> None:
            stopping.set()
            await asyncio.sleep(0.05)
            await stop(grace)
            stopped.set()

        server.stop = slowly
        return server

    monkeypatch.setattr(node_module.Node, "_leave", slow)
    async with cluster(tmp_path) as c:
        monkeypatch.setattr(services, "server", made)  # the coordinator has its own
        task = c.start("agent-1")
        await eventually(
            "it serves", lambda: c.nodes["agent-1"].session is not None and bool(c.nodes["agent-1"]._advertise)
        )
        host, port = c.nodes["agent-1"]._advertise.rsplit(":", 1)
        await eventually("it listens", lambda: _answers(host, int(port)))
        task.cancel()
        for moment in (leaving, stopping):
            await moment.wait()
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() and stopped.is_set() and not _answers(host, int(port))


def _answers(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=10):
        return True
    return False


# --- strangers and intruders: turned away, and the run goes on -------------------------------------------------------


async def told(call: services.ClientStream[bytes, m.ExchangeReply]) -> PeerError:
    """The error that ends a call."""
    with pytest.raises(PeerError) as caught:
        while await call.read() is not None:
            pass
    return caught.value


async def test_nobody_without_an_edge_gets_a_word_in(tmp_path: Path) -> None:
    """Another agent, a stranger of the same CA, the operator; no certificate, one of another CA."""
    async with cluster(tmp_path, make_run(300), secure=True) as c:
        c.start_all()
        await c.reached(5)
        victim = c.nodes["agent-2"]._advertise
        for identity, word in (
            (agent_identity("agent-3"), "no edge from agent-3 to agent-2"),
            (agent_identity("mallory"), "no edge from mallory"),
            (OPERATOR_IDENTITY, "not an agent's"),
        ):
            async with c.security(identity).opener(agent_identity("agent-2"))(victim) as channel:
                error = await told(services.exchange(channel, "agent-1"))  # the stated name counts for nothing
            assert error.grpc_status == "PERMISSION_DENIED" and word in str(error)
        async with Security().opener(agent_identity("agent-2"))(victim) as channel:
            assert (await told(services.exchange(channel, "agent-1"))).grpc_status == "UNAVAILABLE"
        foreign = tmp_path / "foreign"
        CertificateAuthority.create().write_folder(foreign, agent_identity("agent-1"))
        async with Security.from_folder(foreign).opener(agent_identity("agent-2"))(victim) as channel:
            assert (await told(services.exchange(channel, "agent-1"))).grpc_status == "UNAVAILABLE"
        outcome = await c.end()
    assert outcome.conclude.exit_code is ExitCode.DONE
    c.assert_simulators_bits()


async def test_a_neighbour_that_sends_garbage_is_cut_off_and_its_next_stream_goes_on(tmp_path: Path) -> None:
    """agent-1's own certificate opens a second stream: it replaces the first, is refused, and agent-1 comes back."""
    async with cluster(tmp_path, make_run(400), secure=True) as c:
        c.start_all()
        for k, frame in ((5, b"\xff" * 100), (30, b""), (60, b"\x12\x03abc"), (90, os.urandom(3000))):
            await c.reached(k, "agent-2")
            address = c.nodes["agent-2"]._advertise
            opener = c.security(agent_identity("agent-1")).opener(agent_identity("agent-2"))
            async with opener(address) as channel:
                call = services.exchange(channel, "agent-1")
                assert isinstance(await call.read(), m.Resume)
                with contextlib.suppress(PeerError):
                    await call.write(frame)
                assert (await told(call)).grpc_status in ("INVALID_ARGUMENT", "CANCELLED")
        outcome = await c.end()
    assert outcome.conclude.exit_code is ExitCode.DONE
    c.assert_simulators_bits()


async def test_bytes_that_are_no_grpc_disturb_nobody(tmp_path: Path) -> None:
    async with cluster(tmp_path, make_run(200)) as c:
        c.start_all()
        await c.reached(5)
        for address in (c.address, *(node._advertise for node in c.nodes.values())):
            host, _, port = address.rpartition(":")
            for rubbish in (
                os.urandom(4000),
                b"GET / HTTP/1.1\r\n\r\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 999,
            ):
                with socket.create_connection((host, int(port)), timeout=5) as raw, contextlib.suppress(OSError):
                    raw.sendall(rubbish)
        outcome = await c.end()
    assert outcome.conclude.exit_code is ExitCode.DONE
    c.assert_simulators_bits()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "mtls"])
async def test_a_twin_is_turned_away(tmp_path: Path, secure: bool) -> None:
    async with cluster(tmp_path, make_run(200), secure=secure) as c:
        c.start_all()
        await c.reached(5)
        with pytest.raises(RefusedError, match="another process runs as agent-1 right now") as caught:
            await c.node("agent-1", state="twin").serve()
        assert caught.value.exit_code is ExitCode.REFUSED
        outcome = await c.end()
    assert outcome.conclude.exit_code is ExitCode.DONE
    c.assert_simulators_bits()


async def test_a_second_process_on_one_state_directory_is_the_operators_mistake(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        c.node("agent-1")
        with pytest.raises(StoreError, match="in use by another process"):
            c.node("agent-1")


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "mtls"])
async def test_an_agent_that_is_not_in_the_run_is_turned_away(tmp_path: Path, secure: bool) -> None:
    async with cluster(tmp_path, secure=secure) as c:
        theirs = replace(c.run, graph=replace(c.run.graph, agents=("agent-1", "agent-2", "mallory")))
        with pytest.raises(RefusedError, match="mallory is not in the run, whose agents are agent-1, agent-2, agent-3"):
            await c.node("mallory", run=theirs).serve()
        c.start_all()
        assert (await c.end()).conclude.exit_code is ExitCode.DONE


# --- refusals that end the run before it begins ----------------------------------------------------------------------


async def refused(c: Cluster, culprit: asyncio.Task[ExitCode]) -> tuple[BaseException | None, str]:
    """(what ends the culprit, why the coordinator says the run cannot begin)"""
    await asyncio.wait([culprit])
    assert c.serving is not None
    conclude = (await c.serving).conclude
    assert conclude.exit_code is ExitCode.REFUSED and conclude.status == "refused"
    others = [task for task in c.agents.values() if task is not culprit]
    # an agent that was welcome ends with the refusal's code, one that was not with its words
    for result in await asyncio.gather(*others, return_exceptions=True):
        assert result is ExitCode.REFUSED or (isinstance(result, RefusedError) and "does not begin" in str(result))
    return culprit.exception(), conclude.reason


async def test_another_run_file_is_named_key_by_key_and_its_values_at_its_own_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordination, "LATE_NS", 0)  # for agent-3, which never comes
    async with cluster(tmp_path) as c:
        c.start("agent-1")
        await eventually("agent-1 is welcome", lambda: c.round("agent-1") >= 0)
        theirs = replace(
            c.run, scheme=replace(c.run.scheme, alpha=0.25), algorithm=replace(c.run.algorithm, iterations=99)
        )
        error, reason = await refused(c, c.start("agent-2", run=theirs))
    assert isinstance(error, RefusedError) and error.exit_code is ExitCode.CONFIG
    for text in (str(error), reason):
        assert "the run file of agent-2 differs in algorithm.iterations, scheme.alpha" in text
    assert "scheme.alpha: 0.2 here, 0.25 there; " not in reason and "99" not in reason
    assert "algorithm.iterations: 30 here, 99 there; scheme.alpha: 0.2 here, 0.25 there" in str(error)


async def test_another_package_version_is_refused_and_both_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as c:
        monkeypatch.setattr(coordination, "LATE_NS", 0)  # for those that never come
        monkeypatch.setattr(node_module, "__version__", "99.0")
        error, reason = await refused(c, c.start("agent-3"))
    assert isinstance(error, RefusedError) and error.exit_code is ExitCode.REFUSED
    assert "dpgt-node 99.0 at agent-3" in reason and f"{__version__} at the coordinator" in str(error)


async def test_data_that_cannot_be_used_is_told_to_the_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordination, "LATE_NS", 0)  # for those that never come
    async with cluster(tmp_path) as c:
        assert c.serving is not None
        await say_refusal(c.config("agent-2"), Security(), ConfigError.one("x", "", "m_K > D"))
        conclude = (await c.serving).conclude
    assert (
        conclude.exit_code is ExitCode.REFUSED
        and conclude.reason == f"agent-2 refused: {ConfigError.told}; its own log says more"
    )


async def test_a_stranger_cannot_refuse_for_the_others(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        await say_refusal(replace(c.config("agent-2"), name="mallory"), Security(), ConfigError([]))
        c.start_all()
        assert (await c.end()).conclude.exit_code is ExitCode.DONE


async def test_agents_that_never_come_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordination, "LATE_NS", 0)  # for those that never come
    run = make_run()
    async with cluster(tmp_path, replace(run, runtime=replace(run.runtime, register_timeout_s=0.3))) as c:
        _, reason = await refused(c, c.start("agent-2"))
        assert await c.agents["agent-2"] is ExitCode.REFUSED
    assert reason == "never registered: agent-1, agent-3"
    assert not list((tmp_path / "out").glob("summary.json")), "nothing happened, so there is nothing to sum up"


# --- a node that cannot start ----------------------------------------------------------------------------------------


async def test_a_coordinator_out_of_reach_is_given_up_within_register_timeout(tmp_path: Path) -> None:
    run = make_run()
    run = replace(run, runtime=replace(run.runtime, register_timeout_s=0.2))
    c = Cluster(run, tmp_path, None, address="127.0.0.1:1")
    with pytest.raises(PeerError, match=r"no coordinator at 127\.0\.0\.1:1 for 0\.2 s") as caught:
        async with asyncio.timeout(30):
            await c.node("agent-1").serve()
    assert caught.value.exit_code is ExitCode.REFUSED


async def test_a_port_in_use_is_one_message_and_the_state_stays_usable(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        node = c.node("agent-1", state="other")
        node._setup = replace(node._setup, config=replace(node._setup.config, listen=c.address))
        with pytest.raises(ConfigError, match="in use") as caught:
            await node.serve()
        assert len(caught.value.problems) == 1
        c.start_all()
        assert (await c.end()).conclude.exit_code is ExitCode.DONE


async def test_a_start_that_fails_leaves_no_task_and_no_page(tmp_path: Path) -> None:
    """Where it fails last: nobody could dial the address."""
    async with cluster(tmp_path, secure=True) as c:
        node = c.node("agent-1", state="other")
        with socket.create_server(("127.0.0.1", 0)) as free:
            page = free.getsockname()
        config = replace(node._setup.config, listen="0.0.0.0:0")
        node._setup = replace(node._setup, config=config, sites=Sites({HEALTH: f"127.0.0.1:{page[1]}"}))
        before = asyncio.all_tasks()
        with pytest.raises(ConfigError, match="wildcard"):
            await node.serve()
        assert asyncio.all_tasks() <= before
        socket.create_server(page).close()


def test_a_node_s_noise_is_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the process that began to draw goes on under a key of its own."""
    keys, process = iter([(bytes([i] * 16), bytes(16)) for i in range(2)]), [1]
    monkeypatch.setattr(node_module, "_fresh_key", lambda: next(keys))
    monkeypatch.setattr(os, "getpid", lambda: process[0])
    node: Any = SimpleNamespace(_setup=SimpleNamespace(test_keystream=None))
    stream = Node._keystream(node).stream(0, "X")
    assert stream.take(32) == CtrStream(bytes(16), bytes(16)).take(32)
    process[0] = 2
    assert stream.take(32) == CtrStream(bytes([1] * 16), bytes(16)).take(32)


# --- restarts: no second draw, the same bits -------------------------------------------------------------------------


async def kill(c: Cluster, name: str) -> None:
    """End an agent without a goodbye; its state stays."""
    c.agents[name].cancel()
    await asyncio.gather(c.agents[name], return_exceptions=True)


@pytest.fixture(params=["inline", "threads"])
def placed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where work and commits run."""
    if request.param == "threads":
        monkeypatch.setattr(driver_module, "INLINE_BYTES", 0)


@pytest.mark.usefixtures("placed")
async def test_an_agent_that_comes_back_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    """In threads with robust mixing, which asks for the agent's own releases of before, too."""
    robust = Robust() if driver_module.INLINE_BYTES else Robust("clipped-gossip", 0.3, None, "norm-clip", 0.5)
    async with cluster(tmp_path, replace(make_run(300), robust=robust), secure=True) as c:
        c.start_all()
        for k, name in ((20, "agent-2"), (60, "agent-1"), (100, "agent-3")):
            await c.reached(k, name)
            await kill(c, name)
            c.start(name)
        outcome = await c.end()
    assert outcome.conclude.exit_code is ExitCode.DONE and outcome.summary is not None
    assert [agent.releases for agent in outcome.summary.agents] == [602] * 3, "nothing was drawn twice"
    c.assert_simulators_bits()


async def test_a_coordinator_that_comes_back_goes_on_with_the_same_run(tmp_path: Path) -> None:
    async with cluster(tmp_path, make_run(300)) as c:
        c.start_all()
        await c.reached(20)
        assert c.serving is not None
        c.serving.cancel()
        await asyncio.gather(c.serving, return_exceptions=True)
        await c.coordinate(listen=c.address)
        outcome = await c.end()
    assert outcome.conclude.exit_code is ExitCode.DONE
    c.assert_simulators_bits()


async def test_results_that_a_dying_coordinator_never_took_are_given_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every agent has reported its result, and the coordinator dies before it counted one of them."""

    def deaf(*_: object) -> None:
        return None

    async with cluster(tmp_path, make_run(10)) as c:
        with monkeypatch.context() as patched:
            patched.setattr(Coordinator, "_keep_result", deaf)
            c.start_all()
            await eventually("every result was reported", c.all_reported)
            assert c.serving is not None
            c.serving.cancel()
            await asyncio.gather(c.serving, return_exceptions=True)
        await c.coordinate(listen=c.address)
        outcome = await c.end()
    assert outcome.conclude.exit_code is ExitCode.DONE
    c.assert_simulators_bits()


@pytest.mark.usefixtures("placed")
@pytest.mark.parametrize("barrier_every", [1, 7])
async def test_everything_comes_back_even_what_had_finished(tmp_path: Path, barrier_every: int) -> None:
    """All stop in mid-run and go on; then all stop when one agent has its result and the others do not."""
    run = make_run(60)
    run = replace(run, runtime=replace(run.runtime, barrier_every=barrier_every))
    async with cluster(tmp_path, run) as c:
        for k in (15, 38):
            c.start_all()
            await c.reached(k)
            c.stop.set()
            assert c.serving is not None
            assert (await c.serving).conclude.exit_code is ExitCode.STOPPED
            assert set(await asyncio.gather(*c.agents.values())) == {ExitCode.STOPPED}
            await c.coordinate()
        c.start_all()
        outcome = await c.end()
    assert outcome.summary is not None and [a.releases for a in outcome.summary.agents] == [122] * 3
    c.assert_simulators_bits()


async def test_an_agent_with_its_result_serves_the_others_when_all_come_back(tmp_path: Path) -> None:
    async with cluster(tmp_path, make_run(40)) as c:
        c.start_all()
        await eventually("agent-1 has its result", lambda: (tmp_path / "state/agent-1/x_final.npy").exists())
        for name in c.run.graph.agents:
            c.agents[name].cancel()
        assert c.serving is not None
        c.serving.cancel()
        await asyncio.gather(*c.agents.values(), c.serving, return_exceptions=True)
        await c.coordinate()
        c.start_all()
        outcome = await c.end()
    assert outcome.conclude.exit_code is ExitCode.DONE
    c.assert_simulators_bits()


async def test_an_interrupted_agent_ends_5_and_keeps_its_state(tmp_path: Path) -> None:
    async with cluster(tmp_path, make_run(200)) as c:
        c.start_all()
        await c.reached(10)
        c.nodes["agent-2"].interrupt()
        assert await c.agents["agent-2"] is ExitCode.STOPPED
        c.start("agent-2")
        assert (await c.end()).conclude.exit_code is ExitCode.DONE
    c.assert_simulators_bits()


# --- a coordinator that is not to be believed ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (m.Goodbye(), PeerError),
        (m.StopMessage("x", 0), ExitCode.STOPPED),
        (m.StopMessage("x", 70), ExitCode.STOPPED),
        (m.StopMessage("x", 99), ExitCode.STOPPED),
        (m.StopMessage("x", 6), ExitCode.PEER_LOST),
    ],
    ids=["Goodbye", "Stop 0", "Stop 70", "Stop 99", "Stop 6"],
)
async def test_no_coordinator_makes_an_unfinished_agent_done_or_a_bug(
    tmp_path: Path, message: m.CoordinatorMessage, expected: ExitCode | type[PeerError]
) -> None:
    async with cluster(tmp_path, make_run(10_000)) as c:
        c.start_all()
        await c.reached(3)
        node = c.nodes["agent-1"]
        assert node.session is not None
        node._feed(Heard(node.session._uplink._call, message))
        (ended,) = await asyncio.gather(c.agents["agent-1"], return_exceptions=True)
    if isinstance(expected, ExitCode):
        assert ended is expected
    else:
        assert isinstance(ended, PeerError) and ended.exit_code is ExitCode.REFUSED
        assert "goodbye before the result was saved" in str(ended)


# --- the owner's key -------------------------------------------------------------------------------------------------


async def test_an_agent_with_its_owners_key_signs_what_it_releases_and_stops_at_a_forgery(tmp_path: Path) -> None:
    path, name = key_at(tmp_path / "ledger.key"), "agent-2"
    state = tmp_path / "state" / name
    async with cluster(tmp_path) as c:
        config = c.config

        def signing(name: str, **options: Any) -> NodeConfig:
            return replace(config(name, **options), ledger_key=path if name == "agent-2" else None)

        c.config = signing  # type: ignore[method-assign, assignment]
        c.start_all()
        await c.end()
        assert len(read_signed(state, OwnerKey.read(path, state)).entries) == 62
        cheaper(state)
        with pytest.raises(LedgerBroken, match="rows were forged"):
            c.node(name)
        path.unlink()
        with pytest.raises(ConfigError, match=r"ledger\.key: the ledger's key cannot be read"):
            c.node(name)
