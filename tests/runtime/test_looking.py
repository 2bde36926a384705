"""An event loop that asks less often what has come in hears it all the same, and in time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from dpgt_node.runtime import looking
from dpgt_node.runtime.looking import PASSED_OVER, Patient

T = TypeVar("T")


class Counted(Patient):
    """Counts how often the system was asked, and how often it would have been."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = self.wanted = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.wanted += 1
        before = self._passed_over
        found = super().select(timeout)
        self.asked += self._passed_over <= before
        return found


def run(selector: Patient, main: Callable[[], Awaitable[T]]) -> T:
    async def awaited() -> T:
        return await main()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        return runner.run(awaited())


async def batches_until(told: asyncio.Future[None]) -> int:
    """How many batches of callbacks ran until something from outside was heard; there is always one more."""
    batches = 0
    while not told.done():
        batches += 1
        assert batches < 1000, "never heard"
        await asyncio.sleep(0)
    return batches


async def heard_and_timed() -> tuple[int, int]:
    loop, (near, far) = asyncio.get_running_loop(), socket.socketpair()
    with near, far:
        come, due = loop.create_future(), loop.create_future()

        def read() -> None:
            near.recv(1)
            come.set_result(None)

        loop.add_reader(near, read)
        far.send(b"x")
        heard = await batches_until(come)
        loop.remove_reader(near)
        loop.call_soon(lambda: loop.call_later(0.0, due.set_result, None))
        return heard, await batches_until(due)


def test_who_is_never_idle_still_hears(monkeypatch: pytest.MonkeyPatch) -> None:
    heard, timed = run(Patient(), heard_and_timed)
    assert 1 <= heard <= PASSED_OVER + 2
    assert timed <= 3, "timers wait for no question"
    monkeypatch.setattr(looking, "PASSED_OVER", 10**6)
    with pytest.raises(AssertionError, match="never heard"):
        run(Patient(), heard_and_timed)


def test_a_chain_of_callbacks_asks_once_in_a_while() -> None:
    selector, links = Counted(), 400

    async def chain() -> None:
        for _ in range(links):
            await asyncio.sleep(0)

    run(selector, chain)
    assert selector.wanted > links
    assert selector.asked < selector.wanted / PASSED_OVER
