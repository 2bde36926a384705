"""The interpreter and its calls over real sockets: order, flow control, ends from either side."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest

from dpgt_node.errors import PeerError
from dpgt_node.protocol import calls as c
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.types import Tick
from dpgt_node.runtime import calls
from dpgt_node.runtime.calls import Calls, Framing
from dpgt_node.runtime.interpreter import Interpreter
from dpgt_node.wire import services
from tests.runtime.cluster import eventually
from tests.wire.vectors import RUN_ID

Answer = Callable[[Any], tuple[Any, ...]]


class Scripted:
    """A machine that keeps its events and answers each as ``answer`` says."""

    def __init__(self, answer: Answer = lambda _: ()) -> None:
        self.answer = answer
        self.events: list[Any] = []
        self.due_ns: int | None = None

    def step(self, event: Any, now_ns: int) -> tuple[Any, ...]:
        if isinstance(event, Tick) and (self.due_ns is None or now_ns < self.due_ns):
            return ()
        self.due_ns = None if isinstance(event, Tick) else self.due_ns
        self.events.append(event)
        return self.answer(event)

    def next_deadline_ns(self) -> int | None:
        return self.due_ns

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    def heard(self) -> list[Any]:
        return [event.message for event in self.events if isinstance(event, c.Heard)]


class Side:
    """One process: a scripted machine, its interpreter and its calls."""

    def __init__(self, answer: Answer = lambda _: ()) -> None:
        self.machine = Scripted(answer)
        self.broke: list[BaseException] = []
        self.interpreter = Interpreter(self.machine, lambda effect: self.calls.carry_out(effect), self.broke.append)
        self.calls = Calls("here", self.feed, self.broke.append, self._dial)

    def feed(self, event: Any) -> None:
        self.interpreter.feed(event)

    @asynccontextmanager
    async def _dial(self, call: c.Call, address: str) -> AsyncIterator[Any]:
        async with grpc.aio.insecure_channel(address, options=services.CHANNEL_OPTIONS) as channel:
            stream = services.join(channel, "agent-1")
            try:
                yield stream
            finally:
                stream.cancel()

    async def join(self, stream: services.ServerStream[m.AgentMessage, m.CoordinatorMessage]) -> None:
        await self.calls.accept(stream.agent_name(), stream, stream.address)


NEAR = c.Call("coordinator", 1, dialled=True)
FAR = c.Call("agent-1", 1, dialled=False)


@asynccontextmanager
async def pair(near: Side, far: Side) -> AsyncIterator[None]:
    """``near`` has dialled ``far``."""
    server = grpc.aio.server(options=services.SERVER_OPTIONS)
    server.add_generic_rpc_handlers((services.coordinator_handler(far),))  # type: ignore[arg-type]
    port = services.bind(server, "127.0.0.1:0", None, "test")
    await server.start()
    try:
        near.calls.carry_out(c.Dial(NEAR, f"127.0.0.1:{port}"))
        yield
    finally:
        await near.calls.close(20.0)
        await far.calls.close(20.0)
        await server.stop(grace=0)
        assert not near.broke and not far.broke


def writes(*messages: Any) -> Answer:
    return lambda event: tuple(c.Write(NEAR, message) for message in messages) if isinstance(event, c.Opened) else ()


async def test_messages_come_in_order_and_each_is_said_to_be_taken() -> None:
    near, far = Side(writes(m.Ready(), m.Done(0, -1, 0), m.Heartbeat())), Side()
    async with pair(near, far):
        await eventually("all arrive", lambda: far.machine.heard() == [m.Ready(), m.Done(0, -1, 0), m.Heartbeat()])
        await eventually("all are taken", lambda: near.machine.kinds().count("Taken") == 3)
        assert near.machine.events[0] == c.Opened(NEAR) and far.machine.kinds()[0] == "Accepted"
        assert [event.rest for event in near.machine.events[1:]] == [2, 1, 0]
        near.calls.carry_out(c.End(NEAR))
        await eventually("the other side hears the end", lambda: far.machine.events[-1:] == [c.Ended(FAR)])
        assert near.machine.kinds().count("Ended") == 0, "whoever ends a call is not told"


async def test_a_message_of_several_frames_waits_until_the_last_is_taken() -> None:
    class Split(Framing):
        def encode(self, message: Any) -> Iterable[Any]:
            return message if isinstance(message, tuple) else (message,)

    near, far = Side(writes((m.Ready(), m.Heartbeat()), m.Heartbeat())), Side()
    near.calls = Calls("here", near.feed, near.broke.append, near._dial, lambda _: Split())
    async with pair(near, far):
        await eventually("all are taken", lambda: near.machine.kinds().count("Taken") == 3)
        assert [event.rest for event in near.machine.events[1:]] == [2, 1, 0]


class Other(Framing):
    """Of the same frames, on the way of those that have several."""


@pytest.mark.parametrize("framing", [Framing, Other])
@pytest.mark.parametrize("ended", [False, True])
async def test_a_message_is_taken_once_it_is_written_and_of_a_call_that_goes_on(
    framing: type[Framing], ended: bool
) -> None:
    class Slow:
        def __init__(self) -> None:
            self.begun, self.go_on = asyncio.Event(), asyncio.Event()

        async def write(self, _: Any) -> None:
            self.begun.set()
            await self.go_on.wait()

        async def read(self) -> Any:
            await asyncio.Event().wait()

    side, stream = Side(lambda event: (c.Write(FAR, m.Ready()),) if isinstance(event, c.Accepted) else ()), Slow()
    side.calls = Calls("here", side.feed, side.broke.append, side._dial, lambda _: framing())
    served = asyncio.ensure_future(side.calls.accept(FAR.peer, stream, ""))  # type: ignore[arg-type]
    await stream.begun.wait()
    assert side.machine.kinds() == ["Accepted"]
    if ended:
        side.calls.carry_out(c.End(FAR))
    stream.go_on.set()
    if not ended:
        await eventually("it is taken", lambda: side.machine.kinds() == ["Accepted", "Taken"])
        side.calls.carry_out(c.End(FAR))
    await served
    assert side.machine.kinds() == ["Accepted"] + ["Taken"] * (not ended)


async def test_a_call_that_is_held_is_not_read_on() -> None:
    def hold(event: Any) -> tuple[Any, ...]:
        return (c.Hold(FAR),) if isinstance(event, c.Accepted | c.Heard) else ()

    near, far = Side(writes(m.Ready(), m.Heartbeat())), Side(hold)
    async with pair(near, far):
        await eventually("both are taken", lambda: near.machine.kinds().count("Taken") == 2)
        assert far.machine.kinds() == ["Accepted"]
        far.calls.carry_out(c.ReadOn(FAR))
        await eventually("one comes", lambda: far.machine.heard() == [m.Ready()])
        far.calls.carry_out(c.ReadOn(FAR))
        await eventually("and the next", lambda: far.machine.heard() == [m.Ready(), m.Heartbeat()])


async def test_a_call_is_held_and_read_on_in_whatever_order_that_is_said() -> None:
    class Frames:
        def __init__(self) -> None:
            self.reads, self.frames = 0, asyncio.Queue[Any]()

        async def read(self) -> Any:
            self.reads += 1
            return await self.frames.get()

    async def told(*effects: Any) -> list[Any]:
        for effect in effects:
            side.calls.carry_out(effect)
        for _ in range(10):
            await asyncio.sleep(0)
        return side.machine.heard()

    side, stream = Side(lambda event: (c.Hold(FAR),) if isinstance(event, c.Heard) else ()), Frames()
    served = asyncio.ensure_future(side.calls.accept(FAR.peer, stream, ""))  # type: ignore[arg-type]
    await told()
    stream.frames.put_nowait(m.Ready())
    assert await told(c.Hold(FAR)) == [], "held while it was read"
    assert await told(c.Hold(FAR), c.ReadOn(FAR), c.Hold(FAR)) == [], "held again before the reader saw it"
    assert await told(c.ReadOn(FAR)) == [m.Ready()] and stream.reads == 1
    stream.frames.put_nowait(m.Heartbeat())
    assert await told(c.ReadOn(FAR), c.ReadOn(FAR)) == [m.Ready(), m.Heartbeat()] and stream.reads == 2
    side.calls.carry_out(c.End(FAR))
    await served


async def test_who_accepted_ends_with_last_words_or_with_a_status() -> None:
    def refuse(event: Any) -> tuple[Any, ...]:
        word = m.Refused("identity", "no")
        return (c.Write(FAR, word), c.End(FAR)) if isinstance(event, c.Heard) else ()

    near, far = Side(writes(m.Ready())), Side(refuse)
    async with pair(near, far):
        await eventually("the end comes", lambda: near.machine.events[-1:] == [c.Ended(NEAR)])
        assert near.machine.heard() == [m.Refused("identity", "no")]
    error = PeerError("not you", grpc_status="PERMISSION_DENIED")
    near, far = Side(), Side(lambda event: (c.End(FAR, error),))
    async with pair(near, far):
        await eventually("the end comes", lambda: len(near.machine.events) > 1)
        told = near.machine.events[-1].error
        assert (str(told), told.grpc_status) == ("not you", "PERMISSION_DENIED")


async def test_nobody_there_is_an_end_with_its_cause() -> None:
    near = Side()
    near.calls.carry_out(c.Dial(NEAR, "127.0.0.1:1"))
    await eventually("it fails", lambda: near.machine.kinds() == ["Opened", "Ended"])
    assert near.machine.events[-1].error.grpc_status == "UNAVAILABLE"
    near.calls.carry_out(c.Write(NEAR, m.Ready()))  # lost, and no harm
    await near.calls.close(20.0)


class Explains:
    """A channel that finds out why a call broke, as those of nodes do."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel

    async def __aenter__(self) -> grpc.aio.Channel:
        return self.channel

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        await self.channel.close()
        if isinstance(error, PeerError):
            raise PeerError("because", grpc_status="UNAVAILABLE") from error


@pytest.mark.parametrize("explained", [False, True])
async def test_what_a_broken_call_was_made_of_goes_with_it(explained: bool) -> None:
    """Its channel would go on connecting, and with every attempt there would be one more that does."""
    streams: list[weakref.ref[Any]] = []

    class Dialling(Side):
        @asynccontextmanager
        async def _dial(self, call: c.Call, address: str) -> AsyncIterator[Any]:
            channel = grpc.aio.insecure_channel(address, options=services.CHANNEL_OPTIONS)
            async with Explains(channel) if explained else channel:
                stream = services.join(channel, "agent-1")
                streams.append(weakref.ref(stream))
                yield stream

    near = Dialling(writes(m.Ready()))
    with socket.socket() as bound:  # nobody listens
        bound.bind(("127.0.0.1", 0))
        gc.disable()
        try:
            near.calls.carry_out(c.Dial(NEAR, f"127.0.0.1:{bound.getsockname()[1]}"))
            await eventually("it broke", lambda: near.machine.kinds()[-1:] == ["Ended"])
            await eventually("its task is over", lambda: not near.calls._tasks)
            assert near.machine.events[-1].error is not None
            await eventually("it is gone", lambda: streams[0]() is None)
        finally:
            gc.enable()


async def test_a_call_ended_by_its_machine_says_nothing_more() -> None:
    near, far = Side(lambda event: (c.End(NEAR),) if isinstance(event, c.Heard) else ()), Side()
    async with pair(near, far):
        await eventually("it is open", lambda: bool(far.machine.events))
        for _ in range(3):
            far.calls.carry_out(c.Write(FAR, m.Welcome(RUN_ID, "0" * 64, "{}", -1, package_version="1")))
        await eventually("the far side hears the end", lambda: "Ended" in far.machine.kinds())
        assert near.machine.kinds() == ["Opened", "Heard"]


async def test_what_came_before_a_call_was_ended_and_was_not_read_yet_is_the_next_ones() -> None:
    class Late:
        frames = iter((m.Ready(), None))

        async def read(self) -> Any:
            side.calls.carry_out(c.End(FAR))
            return next(self.frames)

    side = Side()
    await side.calls.accept(FAR.peer, Late(), "")  # type: ignore[arg-type]
    assert side.machine.kinds() == ["Accepted"]


async def test_a_process_that_leaves_ends_its_calls_and_takes_no_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "FLUSH_S", 60.0)  # a writer that has nothing to write is not waited for
    near, far = Side(writes(m.Ready())), Side()
    async with pair(near, far):
        await eventually("it is open", lambda: bool(far.machine.heard()))
        async with asyncio.timeout(20):
            await far.calls.close(60.0)
        await eventually("the end comes", lambda: near.machine.events[-1:] == [c.Ended(NEAR)])
        with pytest.raises(PeerError, match="here is leaving"):
            await far.calls.accept("agent-1", None, "")  # type: ignore[arg-type]


async def test_what_a_step_raises_is_told_once_and_nothing_is_stepped_after_it() -> None:
    def fail(event: Any) -> tuple[Any, ...]:
        raise ValueError(event)

    side = Side(fail)
    side.feed("one")
    side.feed("two")
    assert [str(error) for error in side.broke] == ["one"] and side.machine.events == ["one"]


async def test_a_deadline_that_comes_nearer_is_kept() -> None:
    side = Side()
    side.machine.due_ns = 10**18
    side.feed("far")
    side.machine.due_ns = 0
    side.feed("near")
    await eventually("the timer fires", lambda: side.machine.events[-1] == Tick())
    assert side.machine.events == ["far", "near", Tick()]
    side.interpreter.stop()
