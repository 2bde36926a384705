"""Who is waited for at the end of a run, how long, and how many of them."""

from __future__ import annotations

import asyncio

import pytest

from dpgt_node.runtime.coordinator import watchers
from dpgt_node.runtime.coordinator.watchers import EVERY_MOST_S, KEPT, LATE_S, Watchers


def test_who_asks_is_known_for_a_while_and_only_so_many_of_them() -> None:
    now_s = [100.0]
    known = Watchers(lambda: now_s[0])
    known.asked("rare", 1e9, told=False)
    assert known._due_s == {"rare": 100.0 + EVERY_MOST_S + LATE_S}, "nobody is waited for longer"
    for i in range(3 * KEPT):
        known.asked(f"a{i}", 1.0, told=False)
    assert len(known._due_s) == KEPT, "names cost nothing to make up"
    now_s[0] += 1.0 + LATE_S + 0.5  # all are late but the first
    known.asked("new", 1.0, told=False)
    assert set(known._due_s) == {"rare", "new"}
    known.asked("new", 1.0, told=True)
    assert set(known._due_s) == {"rare"}


@pytest.mark.parametrize("finished", [True, False])
async def test_the_longest_farewell_is_that_of_how_the_run_ended(
    finished: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchers, "FAREWELL_S", 0.01 if finished else 1e4)
    monkeypatch.setattr(watchers, "STOPPED_S", 1e4 if finished else 0.01)
    monkeypatch.setattr(watchers, "LATE_S", 1e4)
    known = Watchers()
    known.asked("silent", 1.0, told=False)
    async with asyncio.timeout(30):
        await known.farewell(asyncio.Event(), finished=finished)


async def test_a_second_signal_ends_the_farewell_and_the_one_that_stopped_the_run_does_not() -> None:
    known, leave = Watchers(lambda: 0.0), asyncio.Event()
    known.asked("a", 1.0, told=False)
    leave.set()  # by the signal that stopped the run
    waits = asyncio.ensure_future(known.farewell(leave, finished=False))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waits.done()
    known.asked("a", 1.0, told=True)
    again = asyncio.Event()
    known.asked("b", 1.0, told=False)
    other = asyncio.ensure_future(known.farewell(again, finished=False))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not other.done()
    again.set()
    known.asked("b", 1.0, told=True)
    async with asyncio.timeout(30):
        await asyncio.gather(waits, other)
