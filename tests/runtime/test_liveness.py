"""Agents and coordinators that stop, hang, come back, come twice, or cannot reach one another: over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node.config import RunConfig, parse_address
from dpgt_node.errors import ExitCode, PeerError, PeerLost, RefusedError
from dpgt_node.protocol import messages as m
from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY, OPERATOR_IDENTITY
from dpgt_node.wire import services
from tests.runtime.agent.test_links import StubCoordinator, Up, served, welcome_and_leave
from tests.runtime.cluster import Cluster, cluster, eventually, make_run
from tests.runtime.coordinator.test_coordinator import Hand, register, started

LONG_K = 100_000


def timed(run: RunConfig, round_timeout_s: float, on_loss: str = "wait") -> RunConfig:
    runtime = replace(run.runtime, round_timeout_s=round_timeout_s, on_agent_loss=on_loss)
    return replace(run, runtime=runtime)


async def state(c: Cluster) -> m.StatusReply:
    async with c.security(OPERATOR_IDENTITY).opener(COORDINATOR_IDENTITY)(c.address) as channel:
        return await services.status(channel, timeout_s=30)


async def until(c: Cluster, what: str, ok) -> m.StatusReply:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(60):
        while not ok(reply := await state(c)):
            await asyncio.sleep(0.02)
    return reply


def instance(number: int) -> bytes:
    return bytes([number]) * 16


# --- twins and successors --------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def alive(hand: Hand) -> AsyncIterator[None]:
    """The agent says that it lives; meanwhile nothing else is said by it (a call takes one writer at a time)."""
    enough = asyncio.Event()

    async def talk() -> None:
        while not enough.is_set():
            await hand.say(m.Heartbeat())
            await asyncio.sleep(0.02)

    task = asyncio.ensure_future(talk())
    try:
        yield
    finally:
        enough.set()  # not cancelled: that would cancel the call
        await task


async def test_a_twin_is_refused_by_name_while_the_first_lives_and_the_first_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, timed(make_run(), 8.0)) as c:
        hands = await started(c)
        async with alive(hands[1]):
            twin = Hand(c, "agent-2")
            await twin.say(register(c.run, "agent-2", instance=instance(2)))
            refused = await twin.hear()
            assert refused == m.Refused("identity", "another process runs as agent-2 right now")
            await twin.close()
        for hand in hands:
            await hand.say(m.Done(0, -1, 0))
        assert await hands[1].hear() == m.GoMessage(1), "undisturbed"
        assert "refused agent-2" in caplog.text
        for hand in hands:
            await hand.close()


async def test_a_successor_with_the_same_state_replaces_a_stream_that_nobody_ended(tmp_path: Path) -> None:
    """The host lost power and is back before anybody noticed: the old stream is open, and silent."""
    async with cluster(tmp_path, timed(make_run(), 4.0)) as c:
        hands = await started(c)
        run_id = (await state(c)).run_id
        await hands[1].say(m.Done(0, -1, 0))
        await until(c, "its round counts", lambda reply: reply.agents[1].k == 0)
        successor = Hand(c, "agent-2")
        await successor.welcome(
            instance=instance(2), run_id=run_id, last_released_round=0, last_done_round=-1, last_durable_round=-1
        )
        assert isinstance(await successor.hear(), m.Start)
        error = None
        try:
            while await hands[1].hear() is not None:
                pass
        except PeerError as caught:
            error = caught
        assert error is None or error.grpc_status in ("CANCELLED", "UNAVAILABLE"), "the old stream is ended"
        for hand in (hands[0], hands[2]):
            await hand.say(m.Done(0, -1, 0))
        assert await successor.hear() == m.GoMessage(1), "what is meant for the agent goes to its living process"
        late = Hand(c, "agent-2")  # the first wakes up after all, and registers again
        async with alive(successor):
            await late.say(register(c.run, "agent-2"))
            assert isinstance(await late.hear(), m.Refused)
        for hand in (*hands, successor, late):
            await hand.close()


async def test_a_newcomer_that_holds_less_than_the_first_told_of_is_no_successor(tmp_path: Path) -> None:
    async with cluster(tmp_path, timed(make_run(), 60.0)) as c:
        hands = await started(c)
        await hands[1].say(m.Done(0, -1, 0))
        await until(c, "its round counts", lambda reply: reply.agents[1].k == 0)
        newcomer = Hand(c, "agent-2")
        await newcomer.say(register(c.run, "agent-2", instance=instance(2)))
        refused = await newcomer.hear()  # at once: heartbeats are 2 s apart, and the first is silent
        assert isinstance(refused, m.Refused) and refused.kind == "identity"
        assert (await state(c)).state == "running", "and the run goes on"
        for hand in (*hands, newcomer):
            await hand.close()


async def test_one_that_says_nothing_is_hung_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpgt_node.protocol.coordinator.membership.FIRST_WORD_NS", 100_000_000)
    async with cluster(tmp_path) as c:
        hand = Hand(c, "agent-1")
        error = await hand.thrown_out()
        assert error.grpc_status == "DEADLINE_EXCEEDED" and "agent-1 said nothing" in str(error)
        await hand.close()


# --- a coordinator that hangs ----------------------------------------------------------------------------------------


async def test_an_agent_leaves_a_coordinator_whose_stream_is_open_but_dead() -> None:
    """Its gRPC threads answer pings while its event loop hangs: nothing but the silence tells."""

    async def hang(stream: object) -> None:
        await asyncio.Event().wait()

    async def welcome_and_hang(stream: object) -> None:
        await stream.write(m.Welcome(b"r" * 16, "0" * 64, "{}", -1, package_version="1"))  # type: ignore[attr-defined]
        await hang(stream)

    coordinator = StubCoordinator(welcome_and_hang, hang)
    async with served(services.coordinator_handler(coordinator)) as address:  # type: ignore[arg-type]
        with pytest.raises(PeerLost, match=r"no coordinator at .* for 1 s: no sign of life for"):
            async with asyncio.timeout(60):
                await Up(address, [], then_s=1.0, heartbeat_s=0.05).ended
    assert len(coordinator.got) > 1, "it tried another stream first"


async def test_a_coordinator_that_keeps_saying_something_is_never_left() -> None:
    async def beat(stream: object) -> None:
        await stream.write(m.Welcome(b"r" * 16, "0" * 64, "{}", -1, package_version="1"))  # type: ignore[attr-defined]
        for _ in range(40):
            await stream.write(m.Heartbeat())  # type: ignore[attr-defined]
            await asyncio.sleep(0.05)

    coordinator = StubCoordinator(beat, welcome_and_leave)
    async with served(services.coordinator_handler(coordinator)) as address:  # type: ignore[arg-type]
        up = Up(address, [], then_s=20.0, heartbeat_s=0.05)
        await eventually("the stream that beat ended by itself", lambda: coordinator.script[0] is welcome_and_leave)
        assert sum(isinstance(message, m.Register) for message in coordinator.got) >= 1 and not up.ended.done()
        await up.close()


# --- a cluster -------------------------------------------------------------------------------------------------------


async def test_a_coordinator_that_slept_blames_nobody(tmp_path: Path) -> None:
    """Its event loop stands still for longer than the bound, and with it, here, everybody's."""
    async with cluster(tmp_path, timed(make_run(LONG_K), 2.0, "stop")) as c:
        c.start_all()
        await c.reached(5)
        time.sleep(3.0)  # that is the point
        k = c.round("agent-1")
        await c.reached(k + 20)
        assert c.serving is not None and not c.serving.done()
        c.stop.set()
        assert (await c.serving).conclude.exit_code is ExitCode.STOPPED


async def test_a_lost_agent_is_named_waited_for_and_welcomed_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, timed(make_run(60), 1.0)) as c:
        c.start_all()
        await c.reached(5, "agent-3")
        c.agents["agent-3"].cancel()
        await asyncio.gather(c.agents["agent-3"], return_exceptions=True)
        reply = await until(c, "it is missing", lambda r: (r.agents[2].missing_s or 0) > 1.0)
        assert reply.agents[2].state == "left" and reply.reason.startswith("agent-3 left in round ")
        assert {agent.state for agent in reply.agents[:2]} == {"here"}
        await eventually("it is named as lost", lambda: "waiting for it (on_agent_loss = wait)" in caplog.text)
        c.start("agent-3")
        assert (await c.end()).conclude.exit_code is ExitCode.DONE
    assert caplog.text.count("waiting for it (on_agent_loss = wait)") == 1, "once"
    assert "agent-3 is back after " in caplog.text
    c.assert_simulators_bits()


class Proxy:
    """A TCP forwarder in front of a listener: ``cut`` swallows what the dialler sends, and whatever comes later."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.cut = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*parse_address(self.target))
        for one, other in ((reader, far_writer), (far_reader, writer)):
            self._tasks.add(asyncio.ensure_future(self._pipe(one, other)))

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                if not self.cut:
                    writer.write(data)
                    await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def heal(self) -> None:
        """New connections get through; the old ones lost bytes and are gone."""
        self.cut = False
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        self.server.close()
        self.heal()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def proxied(c: Cluster) -> Proxy:
    """agent-2, whose only in-neighbour, agent-1, dials it through the proxy."""
    node = c.nodes["agent-2"] = c.node("agent-2")
    proxy = Proxy("")
    address = await proxy.start()
    plain = node._advertised

    def advertised(host: str, port: int) -> str:
        proxy.target = plain(host, port)
        return address

    node._advertised = advertised  # type: ignore[method-assign]
    c.agents["agent-2"] = asyncio.ensure_future(node.serve())
    return proxy


@pytest.mark.parametrize("on_loss", ["wait", "stop"])
async def test_an_agent_that_cannot_reach_another_is_found_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, on_loss: str
) -> None:
    """agent-1 hears agent-2 and both reach the coordinator; nothing gets from agent-1 to agent-2."""
    async with cluster(tmp_path, timed(make_run(100), 4.0, on_loss)) as c:
        proxy = await proxied(c)
        c.start("agent-1")
        c.start("agent-3")
        await c.reached(5, "agent-2")
        proxy.cut = True
        words = "of agent-1 for"
        if on_loss == "stop":
            assert c.serving is not None
            async with asyncio.timeout(60):
                conclude = (await c.serving).conclude
                codes = await asyncio.gather(*c.agents.values())
            assert conclude.exit_code is ExitCode.PEER_LOST and set(codes) == {ExitCode.PEER_LOST}
            assert conclude.reason.startswith("agent-2 has lacked round ") and words in conclude.reason
            assert "agent-1 cannot reach agent-2" in conclude.reason
        else:
            reply = await until(c, "it is named", lambda r: "agent-1 cannot reach agent-2" in r.reason)
            assert reply.agents[1].waits_for == ("agent-1",) and reply.agents[0].state == "cut"
            assert all(agent.connected for agent in reply.agents)
            await eventually("and said once", lambda: "agent-1 cannot reach agent-2" in caplog.text)
            assert (await control(c, "pause")).ok  # else the run may end before anybody looks at its edges again
            proxy.heal()
            await eventually("its end is said too", lambda: "agent-1 reaches agent-2 again" in caplog.text)
            assert (await control(c, "resume")).ok
            assert (await c.end()).conclude.exit_code is ExitCode.DONE
            c.assert_simulators_bits()
        await proxy.close()


async def test_a_pause_survives_the_coordinator_and_a_stop_does_not_keep_it(tmp_path: Path) -> None:
    async with cluster(tmp_path, make_run(LONG_K)) as c:
        c.start_all()
        await c.reached(5)
        await control(c, "pause")
        assert c.serving is not None
        c.serving.cancel()
        await asyncio.gather(c.serving, return_exceptions=True)
        await c.coordinate(listen=c.address)
        reply = await until(c, "all are back", lambda r: r.state == "paused")
        k = reply.k
        reply = await until(c, "they are at the barrier", lambda r: all(a.k == r.k for a in r.agents))
        assert (await control(c, "resume")).ok
        await c.reached(k + 20)
        await control(c, "pause")
        await control(c, "stop")
        await c.serving
        assert not (c.out / ".paused").exists(), "whoever starts it again wants it to go on"


async def control(c: Cluster, action: m.Action) -> m.ControlReply:
    async with c.security(OPERATOR_IDENTITY).opener(COORDINATOR_IDENTITY)(c.address) as channel:
        return await services.control(channel, m.ControlRequest(action), timeout_s=30)


async def test_reports_of_edges_that_do_not_exist_end_the_call(tmp_path: Path) -> None:
    from dpgt_node.protocol.liveness import Down, EdgeReport

    async with cluster(tmp_path) as c:
        hands = await started(c)
        for receiver in ("mallory", "agent-2"):
            hand = hands[1]
            await hand.say(EdgeReport(0, 0, down=(Down(receiver, 1, "x"),)))
            assert (await hand.thrown_out()).grpc_status == "INVALID_ARGUMENT"
            hands[1] = Hand(c, "agent-2")
            await hands[1].welcome()
        for hand in hands:
            await hand.close()


async def test_a_second_node_on_the_same_name_is_refused_and_the_run_ends_well(tmp_path: Path) -> None:
    async with cluster(tmp_path, timed(make_run(), 8.0)) as c:
        c.start("agent-1")
        c.start("agent-2")
        await until(c, "agent-2 is here", lambda reply: reply.agents[1].connected)
        twin = c.node("agent-2", state="elsewhere")
        with pytest.raises(RefusedError, match="another process runs as agent-2 right now"):
            async with asyncio.timeout(60):
                await twin.serve()
        c.start("agent-3")
        assert (await c.end()).conclude.exit_code is ExitCode.DONE
        c.assert_simulators_bits()
