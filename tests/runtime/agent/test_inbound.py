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
from dpgt_node.errors import PeerError
from dpgt_node.protocol import calls as c
from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.agent.participant import Participant
from dpgt_node.protocol.clock import SECOND
from dpgt_node.protocol.digests import Digests
from dpgt_node.protocol.edge.receiver import ACK_ROUNDS, Receiver
from dpgt_node.protocol.messages import ExchangeReply, Prefix, Received, Resume
from dpgt_node.runtime.agent.streams import Neighbours, ReceivingEdge
from dpgt_node.runtime.calls import Calls, Framing
from dpgt_node.runtime.interpreter import Interpreter
from dpgt_node.runtime.trust.guard import Guard
from dpgt_node.types import Stream
from dpgt_node.wire import codec, services
from dpgt_node.wire.kept import Kept
from tests.runtime.cluster import eventually, make_run
from tests.wire import vectors

RUN_ID = vectors.RUN_ID
K = 200
AGENT_2, AGENT_3 = 1, 2
Call = services.ClientStream[bytes, ExchangeReply]
STREAMS: dict[int, dict[str, frozenset[Stream]]] = {
    AGENT_2: {"agent-1": frozenset({"X"})},
    AGENT_3: {"agent-2": frozenset({"X", "Y"}), "agent-1": frozenset({"Y"})},
}


class Served:
    """An agent that takes vectors in over real calls, and never mixes by itself: ``move`` opens its window."""

    def __init__(self, index: int, channel: grpc.aio.Channel, dimension: int) -> None:
        self.channel = channel
        self.dimension = dimension
        run = make_run(K)
        self.names = run.graph.agents
        edges = network_of(run, Topology.from_config(run.graph)).edges(index)
        self.agent = AgentMachine(edges, K, evaluate_every=K, run_ahead=1)
        self.streams = STREAMS[index]
        receivers = {j: Receiver(self.names[index], self.names.index(j)) for j in self.streams}
        times = {"heartbeat_ns": SECOND, "patience_ns": SECOND, "distrust_ns": SECOND}
        self.machine = Participant(
            self.agent, self.names, receivers, RUN_ID, K, Digests(edges, 1), recorded=True, **times
        )
        self.got: list[tuple[int, Stream, int]] = []
        self.broke: list[BaseException] = []
        self.kept: dict[str, Kept] = {}
        self.calls = Calls(self.names[index], self.feed, self.broke.append, framing=self._framing)
        self.interpreter = Interpreter(self.machine, self._carry_out, self.broke.append)

    def feed(self, event: object) -> None:
        if isinstance(event, c.Accepted) and event.call.peer not in self.streams:
            self.calls.carry_out(c.End(event.call, PeerError("no edge", grpc_status="PERMISSION_DENIED")))
        elif not isinstance(event, c.Taken):
            self.interpreter.feed(event)

    def _carry_out(self, effect: object) -> None:
        if isinstance(effect, s.Witness):
            self.got.append((effect.sender, effect.payload.stream, effect.payload.k))
        else:
            self.calls.carry_out(effect)  # type: ignore[arg-type]

    def _framing(self, call: c.Call) -> Framing:
        streams, kept = self.streams.get(call.peer, frozenset()), self.kept.setdefault(call.peer, Kept())
        return ReceivingEdge(call.peer, streams, "float64", self.dimension, K, kept=kept)

    def begin(self) -> None:
        self.feed(s.Admit(RUN_ID, self.agent))

    def move(self, low: int) -> None:
        self.agent._inbox.advance(low)
        self.feed(s.Moved())

    def call(self, name: str) -> Call:
        return services.exchange(self.channel, name)


@asynccontextmanager
async def serving(index: int, *, begun: bool = True, dimension: int = 3) -> AsyncIterator[Served]:
    server = grpc.aio.server(options=services.SERVER_OPTIONS)
    async with contextlib.AsyncExitStack() as stack:
        served: Served | None = None

        class Late:
            async def exchange(self, stream: services.ServerStream[bytes, ExchangeReply]) -> None:
                assert served is not None
                await Neighbours(served.calls).exchange(stream)

        server.add_generic_rpc_handlers((services.agent_handler(Late(), Guard(None)),))
        port = services.bind(server, "127.0.0.1:0", None, "test")
        await server.start()
        stack.push_async_callback(server.stop, grace=0)
        options = services.CHANNEL_OPTIONS
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options))
        served = Served(index, channel, dimension)
        if begun:
            served.begin()
        yield served
        await served.calls.close(20.0)
        assert not served.broke


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
    async with serving(AGENT_3) as served:
        call = served.call("agent-2")
        assert await call.read() == Resume("agent-3", RUN_ID, 0, 0)
        await send(call, frames("agent-2", 0, "X", "Y"))
        await eventually("both vectors arrive", lambda: len(served.got) == 2)
        assert served.got == [(1, "X", 0), (1, "Y", 0)]
        call.cancel()
        again = served.call("agent-2")
        held = {f"{stream.lower()}_last": vectors.payload(stream, 0, 3).sha256[:16] for stream in ("X", "Y")}
        assert await again.read() == Resume("agent-3", RUN_ID, 1, 1, **held)
        again.cancel()


async def test_neighbours_that_come_before_welcome_wait_for_it() -> None:
    async with serving(AGENT_3, begun=False) as served:
        call = served.call("agent-2")
        first = asyncio.ensure_future(call.read())
        done, _ = await asyncio.wait([first], timeout=0.05)
        assert not done
        served.begin()
        assert isinstance(await first, Resume)
        call.cancel()


@pytest.mark.parametrize("name", ["agent-3", "agent-2", "mallory"])
async def test_an_agent_without_an_edge_is_refused_itself_included(name: str) -> None:
    async with serving(AGENT_2) as served:
        error = await ended(served.call(name))
    assert error.grpc_status == "PERMISSION_DENIED"


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
    async with serving(AGENT_2) as served:
        call = served.call(name)
        assert isinstance(await call.read(), Resume)
        await send(call, make())
        error = await ended(call)
        assert error.grpc_status == status and words in str(error)
        assert "refused agent-1 at ipv4:" in caplog.text
        again = served.call(name)
        resume = await again.read()
        assert isinstance(resume, Resume)
        await send(again, frames(name, resume.x_from, "X"))
        await eventually("the next stream is heard", lambda: served.got[-1:] == [(0, "X", resume.x_from)])
        again.cancel()


async def test_a_sender_that_races_ahead_waits_for_the_window() -> None:
    async with serving(AGENT_2) as served:
        call = served.call("agent-1")
        assert isinstance(await call.read(), Resume)
        for k in range(6):
            await send(call, frames("agent-1", k, "X"))
        await eventually("the window is full", lambda: len(served.got) == 2)
        for low in (1, 2, 3, 4):
            served.move(low)
            await eventually("one more vector is taken", lambda low=low: len(served.got) == low + 2)
            assert served.agent.window() == (low, low + 1)
        call.cancel()


async def test_a_newer_stream_replaces_the_older_even_while_that_waits() -> None:
    async with serving(AGENT_2) as served:
        older = served.call("agent-1")
        assert isinstance(await older.read(), Resume)
        for k in range(3):
            await send(older, frames("agent-1", k, "X"))
        await eventually("the window is full", lambda: len(served.got) == 2)
        newer = served.call("agent-1")
        held = vectors.payload("X", 1, 3).sha256[:16]
        assert await newer.read() == Resume("agent-2", RUN_ID, 2, 0, x_last=held)
        assert await older.read() is None
        served.move(2)
        await send(newer, frames("agent-1", 2, "X"))
        await eventually("the newer stream is heard", lambda: len(served.got) == 3)
        assert served.got[-1] == (0, "X", 2), "what the older one held was dropped, not kept twice"
        newer.cancel()


async def test_acknowledgements_are_cumulative_and_come_in_batches() -> None:
    async with serving(AGENT_2) as served:
        call = served.call("agent-1")
        assert isinstance(await call.read(), Resume)
        for k in range(ACK_ROUNDS):
            served.move(k)
            await send(call, frames("agent-1", k, "X"))
        assert await call.read() == Received(ACK_ROUNDS)
        call.cancel()


async def test_a_vector_cut_off_in_its_midst_is_handed_out_when_the_rest_came(
    caplog: pytest.LogCaptureFixture,
) -> None:
    large = list(codec.encode_vectors(RUN_ID, "agent-1", [vectors.payload("X", 0, vectors.LARGE)]))
    async with serving(AGENT_2, dimension=vectors.LARGE) as served:
        call = served.call("agent-1")
        assert isinstance(await call.read(), Resume)
        await send(call, large[:-1])
        await call.done_writing()
        assert await call.read() is None
        assert served.got == [] and "X of round 0" in caplog.text
        rest = served.call("agent-1")
        resume = await rest.read()
        assert isinstance(resume, Resume)
        sent = vectors.payload("X", 0, vectors.LARGE)
        assert resume.prefix == Prefix("X", 0, 2 * codec.CHUNK_BYTES, sent.sha256)
        left = list(codec.encode_vectors(RUN_ID, "agent-1", [sent], prefix=resume.prefix))
        await send(rest, left)
        assert await rest.read() == Received(2), "a large vector is acknowledged at once"
        assert np.array_equal(served.agent._inbox.take("X")[0], vectors.payload("X", 0, vectors.LARGE).array())
        rest.cancel()


@pytest.mark.parametrize("welcomed", [True, False], ids=["in a run", "before Welcome"])
async def test_an_agent_that_leaves_ends_open_streams_without_a_traceback(
    caplog: pytest.LogCaptureFixture, welcomed: bool
) -> None:
    async with serving(AGENT_2, begun=welcomed) as served:
        call = served.call("agent-1")
        await eventually("the stream is open", lambda: bool(served.calls._lines))
        if welcomed:
            assert isinstance(await call.read(), Resume)
        await served.calls.close(20.0)
        assert not served.calls._lines and not served.calls._tasks
        with contextlib.suppress(PeerError):  # gRPC itself tries a call again that ended without a word
            assert await call.read() is None
        late = served.call("agent-1")
        with pytest.raises(PeerError, match="agent-2 is leaving"):
            await late.read()
    assert "Traceback" not in caplog.text and "Exception not handled" not in caplog.text
