"""What an agent serves to its in-neighbours, over a real server: the gate, flow control, replacement."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc.aio
import numpy as np
import pytest

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import network_of
from dpgt_node.algo.methods.base import Network
from dpgt_node.errors import PeerError
from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent import AgentMachine
from dpgt_node.protocol.messages import ExchangeReply, Received, Resume
from dpgt_node.runtime.agent import inbound as inbound_module
from dpgt_node.runtime.agent.inbound import Inbound, Session
from dpgt_node.runtime.trust.guard import Guard
from dpgt_node.wire import codec, services
from tests.runtime.cluster import eventually, make_run
from tests.wire import vectors

RUN_ID = vectors.RUN_ID
K = 200
AGENT_2, AGENT_3 = 1, 2
Call = services.ClientStream[bytes, ExchangeReply]


def network() -> Network:
    run = make_run(K)
    return network_of(run, Topology.from_config(run.graph))


class StubDriver:
    """A real machine that takes vectors in and never mixes by itself: ``move`` opens its window."""

    def __init__(self, index: int) -> None:
        self.machine = AgentMachine(network().edges(index), K, evaluate_every=K, run_ahead=1)
        self.moved = asyncio.Event()
        self.got: list[tuple[int, t.Stream, int]] = []

    def feed(self, event: t.AgentEvent) -> None:
        assert isinstance(event, t.VectorReceived)
        self.got.append((event.sender, event.payload.stream, event.payload.k))
        self.machine.step(event, 0)

    def move(self, low: int) -> None:
        self.machine._inbox.advance(low)
        moved, self.moved = self.moved, asyncio.Event()
        moved.set()


class Served:
    def __init__(self, inbound: Inbound, driver: StubDriver, channel: grpc.aio.Channel) -> None:
        self.inbound, self.driver, self.channel = inbound, driver, channel

    def begin(self) -> None:
        self.inbound.begin(Session(RUN_ID, self.driver, "float64", 3, K))  # type: ignore[arg-type]

    def call(self, name: str) -> Call:
        return services.exchange(self.channel, name)


@asynccontextmanager
async def serving(index: int, *, begun: bool = True) -> AsyncIterator[Served]:
    inbound = Inbound(network(), index)
    server = grpc.aio.server(options=services.SERVER_OPTIONS)
    server.add_generic_rpc_handlers((services.agent_handler(inbound, Guard(None)),))
    port = services.bind(server, "127.0.0.1:0", None, "test")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=services.CHANNEL_OPTIONS) as channel:
            served = Served(inbound, StubDriver(index), channel)
            if begun:
                served.begin()
            yield served
    finally:
        await server.stop(grace=0)


def frames(sender: str, k: int, *streams: t.Stream, run_id: bytes = RUN_ID) -> list[bytes]:
    return list(codec.encode_vectors(run_id, sender, [vectors.payload(stream, k, 3) for stream in streams]))


async def send(call: Call, some: list[bytes]) -> None:
    for frame in some:
        await call.write(frame)


async def ended(call: Call) -> PeerError:
    with pytest.raises(PeerError) as caught:
        async with asyncio.timeout(30):
            while await call.read() is not None:
                pass
    return caught.value


async def test_the_stream_opens_with_what_is_lacking_and_vectors_reach_the_machine() -> None:
    async with serving(AGENT_3) as s:
        call = s.call("agent-2")
        assert await call.read() == Resume("agent-3", RUN_ID, 0, 0)
        await send(call, frames("agent-2", 0, "X", "Y"))
        await eventually("both vectors arrive", lambda: len(s.driver.got) == 2)
        assert s.driver.got == [(1, "X", 0), (1, "Y", 0)]
        call.cancel()
        again = s.call("agent-2")
        assert await again.read() == Resume("agent-3", RUN_ID, 1, 1)
        again.cancel()


async def test_neighbours_that_come_before_welcome_wait_for_it() -> None:
    async with serving(AGENT_3, begun=False) as s:
        call = s.call("agent-2")
        first = asyncio.ensure_future(call.read())
        done, _ = await asyncio.wait([first], timeout=0.05)
        assert not done
        s.begin()
        assert isinstance(await first, Resume)
        call.cancel()


@pytest.mark.parametrize("name", ["agent-3", "agent-2", "mallory"])
async def test_an_agent_without_an_edge_is_refused_itself_included(name: str) -> None:
    async with serving(AGENT_2) as s:
        error = await ended(s.call(name))
    assert error.grpc_status == "PERMISSION_DENIED" and f"no edge from {name} to agent-2" in str(error)


BAD: dict[str, tuple[Callable[[], list[bytes]], str, str]] = {
    "Y on an edge of R alone": (lambda: frames("agent-1", 0, "Y"), "PERMISSION_DENIED", "stream Y is not on"),
    "X and Y there": (lambda: frames("agent-1", 0, "X", "Y"), "PERMISSION_DENIED", "stream Y is not on"),
    "another sender": (lambda: frames("agent-3", 0, "X"), "PERMISSION_DENIED", "sender 'agent-3'"),
    "another run": (lambda: frames("agent-1", 0, "X", run_id=b"1" * 16), "FAILED_PRECONDITION", "vector of run"),
    "a gap": (lambda: frames("agent-1", 1, "X"), "OUT_OF_RANGE", "expected round 0"),
    "a repetition": (lambda: 2 * frames("agent-1", 0, "X"), "OUT_OF_RANGE", "expected round 1"),
    "garbage": (lambda: [b"\xff" * 40], "INVALID_ARGUMENT", "not valid protobuf"),
    "an empty frame": (lambda: [b""], "INVALID_ARGUMENT", "empty frame"),
    "a chunk of nothing": (lambda: [b"\x12\x01x"], "INVALID_ARGUMENT", "without a header"),
    "noise": (lambda: [b"\x0b" + os.urandom(5000)], "INVALID_ARGUMENT", ""),
}


@pytest.mark.parametrize("what", BAD)
async def test_what_breaks_the_protocol_ends_the_call_and_not_the_agent(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = "agent-1"
    make, status, words = BAD[what]
    async with serving(AGENT_2) as s:
        call = s.call(name)
        assert isinstance(await call.read(), Resume)
        await send(call, make())
        error = await ended(call)
        assert error.grpc_status == status and words in str(error)
        assert "refused agent-1 at ipv4:" in caplog.text
        again = s.call(name)
        resume = await again.read()
        assert isinstance(resume, Resume)
        await send(again, frames(name, resume.x_from, "X"))
        await eventually("the next stream is heard", lambda: s.driver.got[-1:] == [(0, "X", resume.x_from)])
        again.cancel()


async def test_a_sender_that_races_ahead_waits_for_the_window() -> None:
    async with serving(AGENT_2) as s:
        call = s.call("agent-1")
        assert isinstance(await call.read(), Resume)
        for k in range(6):
            await send(call, frames("agent-1", k, "X"))
        await eventually("the window is full", lambda: len(s.driver.got) == 2)
        for low in (1, 2, 3, 4):
            s.driver.move(low)
            await eventually("one more vector is taken", lambda low=low: len(s.driver.got) == low + 2)
            assert s.driver.machine.window() == (low, low + 1)
        call.cancel()


async def test_a_newer_stream_replaces_the_older_even_while_that_waits() -> None:
    async with serving(AGENT_2) as s:
        older = s.call("agent-1")
        assert isinstance(await older.read(), Resume)
        for k in range(3):
            await send(older, frames("agent-1", k, "X"))
        await eventually("the window is full", lambda: len(s.driver.got) == 2)
        newer = s.call("agent-1")
        assert await newer.read() == Resume("agent-2", RUN_ID, 2, 0)
        assert await older.read() is None
        s.driver.move(2)
        await send(newer, frames("agent-1", 2, "X"))
        await eventually("the newer stream is heard", lambda: len(s.driver.got) == 3)
        assert s.driver.got[-1] == (0, "X", 2), "what the older one held was dropped, not kept twice"
        newer.cancel()


async def test_acknowledgements_are_cumulative_and_come_in_batches() -> None:
    async with serving(AGENT_2) as s:
        call = s.call("agent-1")
        assert isinstance(await call.read(), Resume)
        for k in range(inbound_module.ACK_ROUNDS):
            s.driver.move(k)
            await send(call, frames("agent-1", k, "X"))
        assert await call.read() == Received(inbound_module.ACK_ROUNDS - 1)
        call.cancel()


async def test_drained_waits_for_the_neighbours_to_close() -> None:
    async with serving(AGENT_2) as s:
        await s.inbound.drained(30)
        call = s.call("agent-1")
        assert isinstance(await call.read(), Resume)
        waiting = asyncio.ensure_future(s.inbound.drained(30))
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
        call.cancel()
        async with asyncio.timeout(20):
            await waiting


async def test_a_vector_cut_off_in_the_middle_is_never_handed_out(caplog: pytest.LogCaptureFixture) -> None:
    inbound = Inbound(network(), AGENT_2)
    driver = StubDriver(AGENT_2)
    server = grpc.aio.server(options=services.SERVER_OPTIONS)
    server.add_generic_rpc_handlers((services.agent_handler(inbound, Guard(None)),))
    port = services.bind(server, "127.0.0.1:0", None, "test")
    await server.start()
    inbound.begin(Session(RUN_ID, driver, "float64", vectors.LARGE, K))  # type: ignore[arg-type]
    large = list(codec.encode_vectors(RUN_ID, "agent-1", [vectors.payload("X", 0, vectors.LARGE)]))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=services.CHANNEL_OPTIONS) as channel:
        call = services.exchange(channel, "agent-1")
        assert isinstance(await call.read(), Resume)
        await send(call, large[:-1])
        await call.done_writing()
        assert await call.read() is None
        assert driver.got == [] and "X of round 0" in caplog.text
        whole = services.exchange(channel, "agent-1")
        assert isinstance(await whole.read(), Resume)
        await send(whole, large)
        assert await whole.read() == Received(0), "a large vector is acknowledged at once"
        assert np.array_equal(driver.machine._inbox.take("X")[0], vectors.payload("X", 0, vectors.LARGE).array())
        whole.cancel()
    await server.stop(grace=0)


@pytest.mark.parametrize("welcomed", [True, False], ids=["in a run", "before Welcome"])
async def test_an_agent_that_leaves_ends_open_streams_without_a_traceback(
    caplog: pytest.LogCaptureFixture, welcomed: bool
) -> None:
    inbound = Inbound(network(), AGENT_2)
    server = grpc.aio.server(options=services.SERVER_OPTIONS)
    server.add_generic_rpc_handlers((services.agent_handler(inbound, Guard(None)),))
    port = services.bind(server, "127.0.0.1:0", None, "test")
    await server.start()
    if welcomed:
        inbound.begin(Session(RUN_ID, StubDriver(AGENT_2), "float64", 3, K))  # type: ignore[arg-type]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=services.CHANNEL_OPTIONS) as channel:
        call = services.exchange(channel, "agent-1")
        await eventually("the stream is open", lambda: inbound._open)
        if welcomed:
            assert isinstance(await call.read(), Resume)
        await inbound.close(20.0)
        assert not inbound._open
        with contextlib.suppress(PeerError):  # gRPC itself tries a call again that ended without a word
            assert await call.read() is None
        late = services.exchange(channel, "agent-1")
        with pytest.raises(PeerError, match="agent-2 is leaving"):
            await late.read()
    await server.stop(grace=0)
    assert "Traceback" not in caplog.text and "Exception not handled" not in caplog.text
