"""An event loop that gRPC wakes less often hears all the same."""

from __future__ import annotations

import asyncio
import functools
import selectors
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc.aio
import pytest

from dpgt_node.cli import common
from dpgt_node.cli.running.loops import daemons_loop
from dpgt_node.runtime.looking import Busy, Gathering


class Events:
    """As gRPC's queue: an event, then a byte, from a thread; in the loop one byte, then all events."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.queue: deque[int] = deque()
        self.taken: list[int] = []
        self.wakes = 0
        self.on_taken: Callable[[], object] = lambda: None

    def put(self, event: int) -> None:
        self.queue.append(event)
        self.far.send(b"x")

    def _handle_events(self, _: object) -> None:
        assert len(self.near.recv(1)) == 1
        self.wakes += 1
        while self.queue:
            self.taken.append(self.queue.popleft())
        self.on_taken()

    def callback(self) -> Callable[[object], None]:
        return functools.partial(self._handle_events)


class GatheringLoop(Gathering, asyncio.SelectorEventLoop):
    """Python's, as daemons have it."""


async def hear(events: Events, many: int) -> None:
    """Until ``many`` events were taken."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    events.on_taken = lambda: over.done() or len(events.taken) < many or over.set_result(None)
    loop.add_reader(events.near, events.callback(), None)
    try:
        await asyncio.wait_for(over, 60)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    finally:
        loop.remove_reader(events.near)


@pytest.mark.parametrize(("loop", "once"), [(GatheringLoop, True), (asyncio.SelectorEventLoop, False)])
def test_events_that_are_there_together_wake_once(loop: Callable[[], Any], once: bool) -> None:
    events = Events()
    for event in range(5):
        events.put(event)
    with events.near, events.far, asyncio.Runner(loop_factory=loop) as runner:
        runner.run(hear(events, 5))
    assert events.taken == [0, 1, 2, 3, 4]
    assert (events.wakes == 1) is once


def test_nobody_elses_bytes_are_taken() -> None:
    """Of a callback that reads what it was woken for."""

    async def main() -> bytes:
        loop, (near, far) = asyncio.get_running_loop(), socket.socketpair()
        with near, far:
            told = loop.create_future()
            far.send(b"whole")
            loop.add_reader(near, functools.partial(lambda size: told.set_result(near.recv(size)), 9))
            try:
                return bytes(await asyncio.wait_for(told, 60))
            finally:
                loop.remove_reader(near)

    with asyncio.Runner(loop_factory=GatheringLoop) as runner:
        assert runner.run(main()) == b"whole"


def test_no_event_is_missed_whenever_it_comes() -> None:
    events, many = Events(), 20_000
    thread = threading.Thread(target=lambda: [events.put(event) for event in range(many)])
    with events.near, events.far, asyncio.Runner(loop_factory=GatheringLoop) as runner:
        thread.start()
        runner.run(hear(events, many))
        thread.join()
    assert events.taken == list(range(many))


def test_a_busy_loop_looks_every_other_time_and_hears_all_the_same() -> None:
    steps, asked = 1000, [0, 0]

    async def main(way: int, near: socket.socket, far: socket.socket) -> bytes:
        loop = asyncio.get_running_loop()
        poll = selectors.DefaultSelector.select

        def counted(selector: Any, timeout: float | None = None) -> Any:
            asked[way] += 1
            return poll(selector, timeout)

        heard: list[bytes] = []
        loop.add_reader(near, lambda: heard.append(near.recv(1)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(selectors.DefaultSelector, "select", counted)
            for step in range(steps):  # it never waits
                if step == steps // 2:
                    far.send(b"x")
                await asyncio.sleep(0)
        loop.remove_reader(near)
        return b"".join(heard)

    for way, make in enumerate((Busy, selectors.DefaultSelector)):
        near, far = socket.socketpair()
        made = functools.partial(asyncio.SelectorEventLoop, make())
        with near, far, asyncio.Runner(loop_factory=made) as runner:
            assert runner.run(main(way, near, far)) == b"x"
    assert abs(asked[0] - steps // 2) <= 2 <= abs(asked[1] - steps // 2) and asked[1] >= steps


def test_a_loop_that_may_wait_looks_at_once_and_waits_as_long_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[float | None] = []
    monkeypatch.setattr(selectors.DefaultSelector, "select", lambda _, timeout=None: looked.append(timeout) or [])
    with Busy() as selector:
        for timeout in (0, 0, 0, 1.5, 2.5, 0, None, None, 0, 0):
            selector.select(timeout)
    assert looked == [0, 1.5, 2.5, None, None, 0]


def test_daemons_on_pythons_own_loop_look_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, select = list[float | None](), Busy.select

    def counted(selector: Busy, timeout: float | None = None) -> Any:
        looked.append(timeout)
        return select(selector, timeout)

    monkeypatch.setitem(sys.modules, "uvloop", None)  # which looks in C
    monkeypatch.setattr(Busy, "select", counted)
    common.run_async(asyncio.sleep(0), daemons_loop)
    assert looked


def test_it_is_grpc_that_is_gathered() -> None:
    """The name of its callback is one of its inside: where another version has another, this says so."""

    async def main() -> int:
        server = grpc.aio.server()
        server.add_insecure_port("127.0.0.1:0")
        await server.start()
        await server.stop(0)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Gathering)
        return loop.gathers

    assert common.run_async(main(), daemons_loop) == 1
