"""The sender's side of an edge and the agent's stream to the coordinator: opening, breaking, coming back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest

from dpgt_node.errors import PeerError, PeerLost
from dpgt_node.protocol import calls as c
from dpgt_node.protocol import messages as m
from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.agent.uplink import Uplink
from dpgt_node.protocol.clock import SECOND
from dpgt_node.protocol.edge.sender import Sender
from dpgt_node.protocol.messages import ExchangeReply, Prefix, Received, Resume
from dpgt_node.runtime.agent.streams import ReceivingEdge, SendingEdge
from dpgt_node.runtime.calls import Calls, Framing
from dpgt_node.runtime.interpreter import Interpreter, Machine
from dpgt_node.runtime.trust.channels import Opened
from dpgt_node.wire import codec, services
from dpgt_node.wire.codec import Reassembler
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2
from dpgt_node.wire.kept import Kept
from tests.runtime.cluster import eventually
from tests.wire import vectors

RUN_ID = vectors.RUN_ID
NAME = vectors.SENDER
InStream = services.ServerStream[bytes, ExchangeReply]


def open_channel(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, options=services.CHANNEL_OPTIONS)


@asynccontextmanager
async def served(handler: grpc.GenericRpcHandler, listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
    server = grpc.aio.server(options=services.SERVER_OPTIONS)
    server.add_generic_rpc_handlers((handler,))
    port = services.bind(server, listen, None, "test")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(grace=0)


class Peer:
    """A receiver: answers with ``resume``, keeps what arrives, ends the call after ``limit`` payloads."""

    def __init__(self, resume: Resume, limit: int = 10**9) -> None:
        self.resume, self.limit = resume, limit
        self.got: list[t.Payload] = []
        self.calls = 0

    async def exchange(self, stream: InStream) -> None:
        self.calls += 1
        assert stream.agent_name() == NAME
        await stream.write(self.resume)
        first = {"X": self.resume.x_from, "Y": self.resume.y_from}
        gate = vectors.gate(3)
        gate = type(gate)(RUN_ID, NAME, gate.streams, "float64", 3, lambda which: (first[which], 100))
        reassembler = Reassembler(gate)
        while len(self.got) < self.limit and (frame := await stream.read()) is not None:
            self.got += reassembler.feed(frame)
            await stream.write(Received(len(self.got)))

    @property
    def rounds(self) -> list[tuple[t.Stream, int]]:
        return [(payload.stream, payload.k) for payload in self.got]


def pair(k: int) -> tuple[t.Payload, t.Payload]:
    return vectors.payload("X", k, 3), vectors.payload("Y", k, 3)


class Hosted:
    """One machine over real calls: ``hears`` takes its effects that are no business of calls.

    ``ended`` resolves with what ends it.
    """

    def __init__(self, open_channel: Callable[[str], Opened]) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open_channel = open_channel
        self._calls = Calls(NAME, self.feed, self.broken, self._dial, self._framing)

    def host(self, machine: Machine) -> None:
        self._interpreter = Interpreter(machine, self._carry_out, self.broken)

    def feed(self, event: Any) -> None:
        self._interpreter.feed(event)

    def broken(self, error: BaseException) -> None:
        self._interpreter.stop()
        if not self.ended.done():
            self.ended.set_exception(error)

    def hears(self, effect: Any) -> None:
        raise NotImplementedError

    def _carry_out(self, effect: Any) -> None:
        if isinstance(effect, c.Dial | c.Write | c.End | c.Hold | c.ReadOn):
            self._calls.carry_out(effect)
        elif isinstance(effect, c.Note):
            logging.getLogger("dpgt_node.test").warning(effect.text)
        else:
            self.hears(effect)

    @asynccontextmanager
    async def _dial(self, call: c.Call, address: str) -> AsyncIterator[Any]:
        async with self._open_channel(address) as channel:
            stream: Any = (services.join if call.peer == c.COORDINATOR else services.exchange)(channel, NAME)
            try:
                yield stream
            finally:
                stream.cancel()

    def _framing(self, call: c.Call) -> Framing:
        return Framing() if call.peer == c.COORDINATOR else SendingEdge(RUN_ID, NAME)

    async def close(self) -> None:
        self._interpreter.stop()
        await self._calls.close(20.0)
        self.ended.cancel()


class Link(Hosted):
    """The sender's end of an edge to agent-9; its agent's machine is a list of events, and ``on_needs`` answers."""

    def __init__(
        self,
        on_needs: Callable[[Link, t.PeerNeeds], None] = lambda link, needs: None,
        *,
        open_channel: Callable[[str], Opened] = open_channel,
        patience_s: float = 1e6,
        silence_s: float = 60.0,
        peer: str = "agent-9",
    ) -> None:
        super().__init__(open_channel)
        self.events: list[t.AgentEvent] = []
        self.on_needs = on_needs
        times = {"patience_ns": int(patience_s * SECOND), "silence_ns": int(silence_s * SECOND)}
        self.sender = Sender(4, peer, RUN_ID, **times)
        self.host(self.sender)

    def hears(self, effect: Any) -> None:
        match effect:
            case s.ReadRound(call, k, streams):
                self.feed(s.RoundRead(call, tuple(p for p in pair(k) if p.stream in streams)))
            case s.EdgeLost(error):
                self.broken(error)
            case _:
                self.events.append(effect)
                if isinstance(effect, t.PeerNeeds):
                    self.on_needs(self, effect)

    def dial(self, address: str) -> None:
        self.feed(s.Address(address))

    def send(self, payloads: tuple[t.Payload, ...]) -> None:
        self.feed(t.Send(4, payloads))

    def resend(self, k: int, streams: tuple[t.Stream, ...]) -> None:
        self.feed(t.Resend(4, k, streams))


async def test_a_link_asks_then_sends_fresh_and_stored_rounds_in_order() -> None:
    def answer(link: Link, needs: t.PeerNeeds) -> None:
        assert needs == t.PeerNeeds(4, 2, 1)
        link.resend(1, ("Y",))
        link.resend(2, ("X", "Y"))
        link.send(pair(3))

    peer = Peer(Resume("agent-9", RUN_ID, 2, 1))
    async with served(services.agent_handler(peer)) as address:
        link = Link(answer)
        link.dial(address)
        await eventually("all arrive", lambda: len(peer.got) == 5)
        assert peer.rounds == [("Y", 1), ("X", 2), ("Y", 2), ("X", 3), ("Y", 3)]
        assert [p.data for p in peer.got[3:]] == [p.data for p in pair(3)]
        await eventually("all is taken", lambda: link.sender.bytes_sent > 5 * 24)
        assert not link.ended.done()
        await link.close()


async def test_a_broken_stream_is_reported_and_reopened_and_what_was_queued_is_dropped() -> None:
    peer = Peer(Resume("agent-9", RUN_ID, 0, 0), limit=2)
    async with served(services.agent_handler(peer)) as address:
        link = Link(lambda link, _: link.send(pair(0)))
        link.dial(address)
        await eventually("it comes back", lambda: peer.calls >= 3)
        kinds = [type(event).__name__ for event in link.events]
        assert kinds[:4] == ["PeerNeeds", "PeerGone", "PeerNeeds", "PeerGone"]
        link.send(pair(50))  # the machine would not: the peer is away.  It must not travel on the next stream.
        await link.close()
    assert ("X", 50) not in peer.rounds


@pytest.mark.parametrize(
    "resume",
    [Resume("agent-8", RUN_ID, 0, 0), Resume("agent-9", b"z" * 16, 0, 0)],
    ids=["another agent", "another run"],
)
async def test_whoever_answers_for_another_gets_nothing(resume: Resume, caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer(resume)
    async with served(services.agent_handler(peer)) as address:
        link = Link(lambda link, _: link.send(pair(0)))
        link.dial(address)
        await eventually("it tries again", lambda: peer.calls >= 2)
        await link.close()
    assert peer.got == [] and not any(isinstance(event, t.PeerNeeds) for event in link.events)
    assert caplog.text.count("answers as") == 1, "one line a spell of trouble"


class Swallows(Peer):
    """Its first call takes everything and serves nothing: its handler is gone, and the end of it never came."""

    async def exchange(self, stream: InStream) -> None:
        if self.calls:
            await super().exchange(stream)
            return
        self.calls += 1
        await stream.write(self.resume)
        await asyncio.Event().wait()


async def test_a_stream_that_swallows_what_is_sent_is_opened_anew(caplog: pytest.LogCaptureFixture) -> None:
    peer = Swallows(Resume("agent-9", RUN_ID, 0, 0))
    async with served(services.agent_handler(peer)) as address:
        link = Link(lambda link, _: link.send(pair(0)), silence_s=0.4)
        link.dial(address)
        await eventually("it is sent again", lambda: peer.rounds == [("X", 0), ("Y", 0)])
        assert peer.calls == 2
        await link.close()
    assert caplog.text.count("agent-9 has acknowledged nothing for 0.2 s (trying again)") == 1


async def test_a_peer_that_is_not_up_yet_is_waited_for_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer(Resume("agent-9", RUN_ID, 0, 0))
    async with served(services.agent_handler(Peer(peer.resume))) as address:
        pass  # a free port that nobody listens on now
    link = Link(lambda link, _: link.send(pair(0)))
    link.dial(address)
    await eventually("it tried in vain", lambda: link.sender._call.number >= 3)
    async with served(services.agent_handler(peer), address):
        await eventually("it got through", lambda: len(peer.got) == 2)
        await link.close()
    assert caplog.text.count("trying again") == 1


async def test_a_peer_that_moved_is_dialled_at_its_new_address() -> None:
    old, new = Peer(Resume("agent-9", RUN_ID, 0, 0)), Peer(Resume("agent-9", RUN_ID, 1, 1))
    async with served(services.agent_handler(old)) as first, served(services.agent_handler(new)) as second:
        link = Link(lambda link, needs: link.send(pair(needs.x_from)))
        link.dial(first)
        await eventually("the old one hears", lambda: len(old.got) == 2)
        link.dial(first)
        link.dial(second)
        await eventually("the new one hears", lambda: len(new.got) == 2)
        assert (old.calls, new.calls) == (1, 1)
        assert new.rounds == [("X", 1), ("Y", 1)]
        await link.close()


# --- to the coordinator ----------------------------------------------------------------------------------------------

Join = services.ServerStream[m.AgentMessage, m.CoordinatorMessage]
REGISTER = m.Register("agent-1", "0" * 64, "{}", "h:1", None, 3, "0" * 64, -1, -1, -1, False, b"", b"i" * 16, "1")
WELCOME = m.Welcome(RUN_ID, "0" * 64, "{}", -1, package_version="1")


class StubCoordinator:
    """Plays ``script`` once a call; keeps every message."""

    def __init__(self, *script: Callable[[Join], Awaitable[None]]) -> None:
        self.script = list(script)
        self.got: list[m.AgentMessage] = []

    async def join(self, stream: Join) -> None:
        first = await stream.read()
        assert first is not None
        self.got.append(first)
        await (self.script.pop(0) if len(self.script) > 1 else self.script[0])(stream)

    async def welcome(self, stream: Join) -> None:
        await stream.write(WELCOME)
        while (message := await stream.read()) is not None:
            self.got.append(message)


async def welcome_and_leave(stream: Join) -> None:
    await stream.write(WELCOME)


class Up(Hosted):
    """The call to the coordinator; ``answer`` is said to each Welcome."""

    def __init__(
        self,
        address: str,
        received: list[m.CoordinatorMessage],
        *,
        first_s: float = 20.0,
        then_s: float = 20.0,
        heartbeat_s: float = 2.0,
        open_channel: Callable[[str], Opened] = open_channel,
    ) -> None:
        super().__init__(open_channel)
        self.received = received
        up = Uplink(
            address,
            lambda: REGISTER,
            first_patience_ns=int(first_s * SECOND),
            patience_ns=int(then_s * SECOND),
            heartbeat_ns=int(heartbeat_s * SECOND),
            now_ns=time.monotonic_ns(),
        )
        self.host(up)
        self.feed(t.Tick())

    def hears(self, effect: Any) -> None:
        match effect:
            case s.Told(message):
                self.received.append(message)
                if isinstance(message, m.Welcome):
                    self.feed(s.Say(m.Ready(), first=True))
            case s.Abandoned(error):
                self.broken(error)

    def say(self, message: m.AgentMessage) -> None:
        self.feed(s.Say(message))


async def test_every_attempt_registers_and_old_messages_do_not_travel_on_a_new_stream() -> None:
    coordinator = StubCoordinator(welcome_and_leave, welcome_and_leave)
    coordinator.script.append(coordinator.welcome)
    async with served(services.coordinator_handler(coordinator)) as address:  # type: ignore[arg-type]
        received: list[m.CoordinatorMessage] = []
        up = Up(address, received)
        await eventually("three attempts", lambda: coordinator.got.count(REGISTER) == 3)
        up.say(m.Done(7, 6, 1))
        await eventually("and then messages", lambda: coordinator.got[-1] == m.Done(7, 6, 1))
        assert coordinator.got == [REGISTER] * 3 + [m.Ready(), m.Done(7, 6, 1)] and received == [WELCOME] * 3
        await up.close()


async def test_nothing_overtakes_the_registration_and_ready_comes_first() -> None:
    """A Done read before Ready would make the coordinator see an agent that forgot that round."""
    asked = asyncio.Event()

    async def slow(stream: Join) -> None:
        await asked.wait()
        await coordinator.welcome(stream)

    coordinator = StubCoordinator(slow)
    async with served(services.coordinator_handler(coordinator)) as address:  # type: ignore[arg-type]
        up = Up(address, [])
        await eventually("it registered", lambda: coordinator.got == [REGISTER])
        up.say(m.Done(0, -1, 1))
        asked.set()
        await eventually("the report came", lambda: len(coordinator.got) == 3)
        assert coordinator.got == [REGISTER, m.Ready(), m.Done(0, -1, 1)]
        await up.close()


async def test_heartbeats_go_both_ways_unheard_above() -> None:
    async def beat(stream: Join) -> None:
        await stream.write(m.Heartbeat())
        await coordinator.welcome(stream)

    coordinator = StubCoordinator(beat)
    async with served(services.coordinator_handler(coordinator)) as address:  # type: ignore[arg-type]
        received: list[m.CoordinatorMessage] = []
        up = Up(address, received, heartbeat_s=0.02)
        await eventually("heartbeats come", lambda: coordinator.got.count(m.Heartbeat()) >= 3)
        assert received == [WELCOME]
        await up.close()


@pytest.mark.parametrize("status", ["PERMISSION_DENIED", "UNAUTHENTICATED", "INVALID_ARGUMENT", "FAILED_PRECONDITION"])
async def test_a_refusal_that_no_second_attempt_can_cure_is_final(status: str) -> None:
    async def refuse(stream: Join) -> None:
        raise PeerError("not you", grpc_status=status)

    coordinator = StubCoordinator(refuse)
    async with served(services.coordinator_handler(coordinator)) as address:  # type: ignore[arg-type]
        with pytest.raises(PeerError, match="not you"):
            async with asyncio.timeout(30):
                await Up(address, []).ended
    assert coordinator.got == [REGISTER]


async def test_patience_ends_as_unreachable_before_and_as_lost_after_the_welcome() -> None:
    coordinator = StubCoordinator(welcome_and_leave)
    async with served(services.coordinator_handler(coordinator)) as address:  # type: ignore[arg-type]
        pass
    with pytest.raises(PeerError, match="no coordinator at") as caught:
        await Up(address, [], first_s=0.1).ended
    assert not isinstance(caught.value, PeerLost)
    received: list[m.CoordinatorMessage] = []
    up = Up(address, received, then_s=0.1)
    async with served(services.coordinator_handler(coordinator), address):  # type: ignore[arg-type]
        await eventually("it was welcome", lambda: len(received) > 0)
    with pytest.raises(PeerLost, match="no coordinator at"):
        async with asyncio.timeout(30):
            await up.ended


@pytest.mark.parametrize(("x_from", "y_from"), [(3, 2), (2, 3)])
def test_a_resumed_call_lets_in_each_stream_from_its_own_round(x_from: int, y_from: int) -> None:
    """After a crash one vector of a round may be there and the other not: nothing is taken twice or left out."""

    def heard(*payloads: t.Payload) -> list[t.Payload]:
        edge = ReceivingEdge(NAME, frozenset(("X", "Y")), "float64", 3, 10)
        edge.encode(Resume("agent-9", RUN_ID, x_from, y_from, 0))
        frames = SendingEdge(RUN_ID, NAME).encode(payloads)
        return [payload for frame in frames for payload in edge.decode(frame)]  # type: ignore[attr-defined]

    x, y = vectors.payload("X", x_from, 3), vectors.payload("Y", y_from, 3)
    assert heard(x) == [x] and heard(y) == [y]
    for again in (vectors.payload("X", x_from - 1, 3), vectors.payload("Y", y_from - 1, 3)):
        with pytest.raises(PeerError):
            heard(again)


def test_a_sender_goes_on_behind_the_prefix_of_the_very_vector_that_it_holds() -> None:
    """The bytes that Resume names are not sent again; those of another release are not taken for them."""
    sent, other = vectors.payload("X", 3, vectors.LARGE), vectors.payload("X", 3, vectors.LARGE, seed=1)
    lengths = ((sent, codec.CHUNK_BYTES, codec.CHUNK_BYTES), (other, codec.CHUNK_BYTES, 0), (sent, sent.nbytes, 0))
    for held, told, begin in lengths:
        edge = SendingEdge(RUN_ID, NAME)
        edge.decode(Resume("agent-9", RUN_ID, 3, 3, 0, Prefix("X", 3, told, sent.sha256)))
        header, *chunks = (agent_pb2.Frame.FromString(frame) for frame in edge.encode((held,)))
        assert header.vectors[0].from_byte == begin
        assert b"".join(frame.chunk for frame in chunks) == held.data[begin:]
        after = [agent_pb2.Frame.FromString(frame) for frame in edge.encode((vectors.payload("X", 4, vectors.LARGE),))]
        assert after[0].vectors[0].from_byte == 0


def test_on_an_edge_that_carries_only_x_its_vectors_go_on_too() -> None:
    """What Resume says of Y means nothing there."""
    sent, kept = vectors.payload("X", 3, vectors.LARGE), Kept()

    def opened() -> tuple[ReceivingEdge, Resume]:
        edge = ReceivingEdge(NAME, frozenset({"X"}), "float64", vectors.LARGE, 9, kept=kept)
        (resume,) = edge.encode(Resume("agent-9", RUN_ID, 3, 0))
        assert isinstance(resume, Resume)
        return edge, resume

    edge, resume = opened()
    frames = list(codec.encode_vectors(RUN_ID, NAME, [sent]))
    assert resume.prefix is None and [edge.decode(frame) for frame in frames[:2]] == [(), ()]
    edge, resume = opened()
    assert resume.prefix == Prefix("X", 3, codec.CHUNK_BYTES, sent.sha256)
    rest = codec.encode_vectors(RUN_ID, NAME, [sent], prefix=resume.prefix)
    assert [edge.decode(frame) for frame in rest][-1] == (sent,)
