"""States of a study reach the coordinator over one call, each until it was taken; what waits is bounded, and x_final
never goes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest

from dpgt_node.errors import PeerError
from dpgt_node.protocol import messages as m
from dpgt_node.runtime.agent import study
from dpgt_node.runtime.launch.launcher import held_port
from dpgt_node.runtime.trust.channels import Opened, Security
from dpgt_node.wire import services
from dpgt_node.wire.codec import Reassembler
from tests.wire.test_services import Coordinator
from tests.wire.vectors import LARGE, RUN_ID, SENDER, gate

Stream = services.ServerStream[bytes, m.UploadReply]
Call = Callable[["Desk", Stream], Awaitable[None]]


async def test_the_oldest_states_give_way_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def nobody():  # type: ignore[no-untyped-def]
        raise AssertionError("never reached: the loop is not given a turn")
        yield

    def opened() -> Opened:
        return nobody()  # type: ignore[return-value]

    monkeypatch.setattr(study, "QUEUE_BYTES", 3 * 80)
    uploader = study.StudyUploader(opened, bytes(16), "agent-1", taken=lambda: None, failed=lambda _: None)
    with caplog.at_level(logging.WARNING):
        for k in (0, 10, 20, 31, 15):
            uploader.put(k, np.full(10, float(k)))
    assert sorted(uploader._waiting) == sorted(uploader._unsent) == [15, 20, 31]
    uploader.put(31, np.ones(1000))  # alone above the bound: x_final still goes
    assert sorted(uploader._waiting) == [31]
    assert [r.message for r in caplog.records if "oldest are dropped" in r.message] == [
        "the coordinator takes study states more slowly than rounds are made: the oldest are dropped, from round 0 on, "
        "and metrics.csv has no consensus error for them"
    ]
    await uploader.close()


class Desk(Coordinator):
    """A coordinator that takes states of ``d`` coordinates; what each call brought is in ``calls``, in order.

    ``plays``: what the first calls do instead, one each.
    """

    def __init__(self, d: int = 3, *plays: Call) -> None:
        super().__init__()
        self.d, self.plays = d, list(plays)
        self.calls: list[list[int | str]] = []
        self.came = asyncio.Condition()

    async def note(self, what: int | str) -> None:
        async with self.came:
            self.calls[-1].append(what)
            self.came.notify_all()

    async def until(self, *calls: list[int | str]) -> None:
        """These are the calls so far, once they are as many."""
        async with asyncio.timeout(20), self.came:
            await self.came.wait_for(lambda: sum(map(len, self.calls)) >= sum(map(len, calls)))
        assert self.calls == list(calls)

    async def states(self, stream: Stream) -> AsyncIterator[int]:
        """The rounds of a call as they are complete."""
        reassembler = Reassembler(gate(self.d, streams="X", window=(0, 99), study=True))
        while (frame := await stream.read()) is not None:
            for payload in reassembler.feed(frame):
                assert (payload.array() == payload.k).all()
                await self.note(payload.k)
                yield payload.k
        await self.note(reassembler.finish() or "end")

    async def upload(self, stream: Stream) -> None:
        self.calls.append([])
        if self.plays:
            await self.plays.pop(0)(self, stream)
            return
        count = 0
        async for _ in self.states(stream):
            count += 1
            await stream.write(m.UploadReply(count))


class Agent:
    """An uploader, and what it says of itself."""

    def __init__(self, port: int, d: int = 3) -> None:
        self.d, self.taken, self.failed = d, asyncio.Event(), asyncio.get_running_loop().create_future()
        opened = Security().dialler("dpgt:coordinator")
        self.uploader = study.StudyUploader(
            lambda: opened(f"127.0.0.1:{port}"), RUN_ID, SENDER, self.taken.set, self.failed.set_result
        )

    def put(self, *rounds: int) -> None:
        self.taken.clear()
        for k in rounds:
            self.uploader.put(k, np.full(self.d, float(k)))

    async def all_taken(self) -> None:
        async with asyncio.timeout(20):
            await self.taken.wait()
        assert not self.uploader._waiting and self.uploader._bytes == 0


@asynccontextmanager
async def serving(desk: Desk, port: int = 0) -> AsyncIterator[int]:
    server = services.server(1)
    bound = services.bind(server, f"127.0.0.1:{port}", None, "test")
    server.add_generic_rpc_handlers((services.coordinator_handler(desk),))
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(0)


async def test_one_call_carries_all_states_and_ends_in_order() -> None:
    desk = Desk()
    async with serving(desk) as port:
        agent = Agent(port)
        for rounds in ((0,), (10, 20), (31,)):
            agent.put(*rounds)
            await agent.all_taken()
        await agent.uploader.close()
        await desk.until([0, 10, 20, 31, "end"])
    assert not agent.failed.done()


async def test_how_a_call_ends_that_has_nothing_left_to_do_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(desk: Desk, stream: Stream) -> None:
        async for _ in desk.states(stream):
            await stream.write(m.UploadReply(1))
            raise PeerError("a bug of the coordinator's", grpc_status="INTERNAL")

    monkeypatch.setattr(study, "FAREWELL_S", 20.0)
    for plays in ((), (breaks,)):
        desk = Desk(3, *plays)
        async with serving(desk) as port:
            agent = Agent(port)
            agent.put(0)
            await agent.all_taken()
            await agent.uploader.close()
        assert not agent.failed.done()
        assert agent.uploader._task is not None and not agent.uploader._task.cancelled(), "it ended by itself"


async def test_a_state_that_is_to_come_again_comes_over_a_call_of_its_own() -> None:
    """A coordinator that came back may lack it; within a call rounds rise."""
    desk = Desk()
    async with serving(desk) as port:
        agent = Agent(port)
        agent.put(0, 10)
        await agent.all_taken()
        agent.put(0, 10)
        await agent.all_taken()
        agent.put(20)
        await agent.all_taken()
        await agent.uploader.close()
        await desk.until([0, 10, "end"], [0, 10, 20, "end"])


async def test_after_a_break_comes_exactly_what_was_not_taken() -> None:
    """A call that breaks between two acknowledgements, one that breaks in the midst of a large state, one that is not
    served yet, and a coordinator that was killed while nothing was under way.
    """

    async def takes_one(desk: Desk, stream: Stream) -> None:
        count = 0
        async for _ in desk.states(stream):
            count += 1
            if count == 1:
                await stream.write(m.UploadReply(1))
            if count == 3:
                raise PeerError("killed", grpc_status="UNAVAILABLE")

    async def in_midst(desk: Desk, stream: Stream) -> None:
        reassembler = Reassembler(gate(LARGE, streams="X", window=(0, 99), study=True))
        for _ in range(2):  # the header and a chunk of three
            assert (frame := await stream.read()) is not None and not reassembler.feed(frame)
        await desk.note("broken")
        raise PeerError("killed", grpc_status="UNAVAILABLE")

    async def gathering(desk: Desk, stream: Stream) -> None:
        await desk.note("not yet")
        raise PeerError("the coordinator still gathers its agents", grpc_status="FAILED_PRECONDITION")

    desk = Desk(LARGE, takes_one, in_midst, gathering)
    with held_port() as port:
        async with serving(desk, port):
            agent = Agent(port, LARGE)
            agent.put(1, 2, 3)
            await agent.all_taken()
            await desk.until([1, 2, 3], ["broken"], ["not yet"], [2, 3])
        again = Desk(LARGE)
        async with serving(again, port):
            agent.put(4)
            await agent.all_taken()
            await agent.uploader.close()
            await again.until([4, "end"])
    assert not agent.failed.done()


async def test_a_coordinator_that_still_gathers_is_asked_again_and_each_spell_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Small states are written before the answer is there, so its status is what is heard."""
    gathers = PeerError("the coordinator still gathers its agents", grpc_status="FAILED_PRECONDITION")

    async def gathering(desk: Desk, stream: Stream) -> None:
        async for _ in desk.states(stream):
            raise gathers

    async def takes_one(desk: Desk, stream: Stream) -> None:
        async for k in desk.states(stream):
            if k == 1:
                raise gathers
            await stream.write(m.UploadReply(1))

    desk = Desk(3, gathering, gathering, takes_one)
    async with serving(desk) as port:
        agent = Agent(port)
        for k in range(2):
            agent.put(k)
            await agent.all_taken()
        assert desk.calls == [[0], [0], [0, 1], [1]] and not agent.failed.done()
        await agent.uploader.close()
    assert [r.message for r in caplog.records if "trying again" in r.message] == [
        "upload of study vectors: the coordinator still gathers its agents (trying again)"
    ] * 2


async def test_states_wait_for_a_slow_disk_and_later_ones_go_over_the_same_call() -> None:
    disk = asyncio.Event()

    async def slow(desk: Desk, stream: Stream) -> None:
        count = 0
        async for _ in desk.states(stream):
            if (count := count + 1) == 2:
                await disk.wait()
                await stream.write(m.UploadReply(2))  # of both
            if count == 3:
                await stream.write(m.UploadReply(3))

    desk = Desk(3, slow)
    async with serving(desk) as port:
        agent = Agent(port)
        agent.put(0, 1)
        await desk.until([0, 1])
        agent.put(2)
        agent.put(1)  # what is under way is not what was queued last
        assert not agent.taken.is_set() and sorted(agent.uploader._waiting) == [0, 1, 2]
        disk.set()
        await agent.all_taken()
        await agent.uploader.close()
    assert [k for call in desk.calls for k in call if isinstance(k, int)].count(1) == 2
    assert not agent.failed.done()


@pytest.mark.parametrize("said", [[0], [3], [1, 1], [1, "end"], ["refused"]])
async def test_what_no_other_attempt_cures_ends_the_run(said: list[int | str]) -> None:
    """Refused, or acknowledged as nobody may: nothing, more than was sent, the same again, not all."""

    async def plays(desk: Desk, stream: Stream) -> None:
        came = desk.states(stream)
        assert [await anext(came), await anext(came)] == [0, 1]
        for word in said:
            if word == "refused":
                raise PeerError("this run takes no private states", grpc_status="PERMISSION_DENIED")
            if isinstance(word, int):
                await stream.write(m.UploadReply(word))
        if "end" not in said:
            await stream.read()

    desk = Desk(3, plays)
    async with serving(desk) as port:
        agent = Agent(port)
        agent.put(0, 1)
        async with asyncio.timeout(20):
            error = await agent.failed
        assert isinstance(error, PeerError)
        assert error.grpc_status == ("PERMISSION_DENIED" if said == ["refused"] else "DATA_LOSS")
        assert not agent.taken.is_set()
        await agent.uploader.close()


async def test_a_call_that_ends_in_order_in_midst_of_a_state_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written next finds the call over; that it was no failure to the coordinator is no reason to go on."""

    async def leaves(desk: Desk, stream: Stream) -> None:
        await stream.read()

    write = services.ClientStream.write

    async def then_over(stream: services.ClientStream[bytes, object], frame: bytes) -> None:
        await write(stream, frame)
        await stream._call.code()

    monkeypatch.setattr(services.ClientStream, "write", then_over)
    async with serving(Desk(LARGE, leaves)) as port:
        agent = Agent(port, LARGE)
        agent.put(0)
        async with asyncio.timeout(20):
            error = await agent.failed
        assert isinstance(error, PeerError) and error.grpc_status == "DATA_LOSS"
        assert str(error) == "the coordinator took 0 of 1 study vectors"
        await agent.uploader.close()


async def test_what_was_not_taken_is_dropped_when_the_process_leaves() -> None:
    async def never(desk: Desk, stream: Stream) -> None:
        async for _ in desk.states(stream):
            pass

    desk = Desk(3, never)
    async with serving(desk) as port:
        agent = Agent(port)
        agent.put(0)
        await desk.until([0])
        await agent.uploader.close()
        assert not agent.taken.is_set() and not agent.failed.done()
