"""The interpreter of machines: order, events that come in mid-step, effects that cannot be done, the timer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from dpgt_node.protocol.agent.uplink import HOLD_NS
from dpgt_node.protocol.types import Tick
from dpgt_node.runtime import interpreter
from dpgt_node.runtime.interpreter import Interpreter, Undone
from tests.runtime.cluster import eventually

HOUR_NS = 3600 * 10**9


class Script:
    """Answers events with the effects of ``answers`` and keeps what it heard."""

    def __init__(self, answers: Mapping[str, tuple[Any, ...]]) -> None:
        self.answers = answers
        self.heard: list[Any] = []
        self.due_ns: int | None = None

    def step(self, event: Any, now_ns: int) -> tuple[Any, ...]:
        self.heard.append(event)
        return () if isinstance(event, Tick) else self.answers.get(event, ())

    def next_deadline_ns(self) -> int | None:
        return self.due_ns


class Stage:
    """An effect is a name to be noted, or a deed."""

    def __init__(self, **answers: tuple[Any, ...]) -> None:
        self.script = Script(answers)
        self.done: list[str] = []
        self.errors: list[BaseException] = []
        self.interpreter = Interpreter(self.script, self._carry_out, self.errors.append)

    def feed(self, event: str) -> Callable[[], None]:
        return lambda: self.interpreter.feed(event)

    def _carry_out(self, effect: Any) -> None:
        if isinstance(effect, str):
            self.done.append(effect)
        else:
            effect()


def undone(event: str) -> Callable[[], None]:
    def deed() -> None:
        raise Undone(event)

    return deed


async def test_effects_are_done_in_order_and_an_event_in_mid_step_has_its_turn_afterwards() -> None:
    stage = Stage(b=("b1",))
    stage.script.answers = {"a": ("a1", stage.feed("b"), "a2"), "b": ("b1",)}
    stage.interpreter.feed("a")
    assert stage.script.heard == ["a", "b"] and stage.done == ["a1", "a2", "b1"]


async def test_after_an_effect_that_cannot_be_done_the_rest_is_dropped_and_its_event_comes_first() -> None:
    stage = Stage()
    stage.script.answers = {"a": ("a1", stage.feed("b"), undone("full"), "a2")}
    stage.interpreter.feed("a")
    assert stage.script.heard == ["a", "full", "b"] and stage.done == ["a1"] and not stage.errors


async def test_a_bug_ends_it_and_is_told_once() -> None:
    def bug() -> None:
        raise ZeroDivisionError

    stage = Stage()
    stage.script.answers = {"a": (stage.feed("b"), bug, "a2")}
    stage.interpreter.feed("a")
    stage.interpreter.feed("c")
    assert stage.script.heard == ["a"] and stage.done == []
    assert [type(error) for error in stage.errors] == [ZeroDivisionError]


async def test_what_waits_when_it_is_stopped_is_dropped() -> None:
    stage = Stage()
    stage.script.answers = {"a": (stage.feed("b"), stage.interpreter.stop)}
    stage.interpreter.feed("a")
    stage.interpreter.feed("c")
    assert stage.script.heard == ["a"] and not stage.errors


async def test_a_deadline_that_comes_nearer_is_kept_and_so_is_the_one_after_it() -> None:
    stage = Stage()
    stage.script.due_ns = time.monotonic_ns() + HOUR_NS
    stage.interpreter.feed("a")
    stage.script.due_ns = time.monotonic_ns()
    stage.interpreter.feed("b")
    async with asyncio.timeout(60):
        await eventually("several ticks", lambda: stage.script.heard.count(Tick()) >= 3)
    stage.interpreter.stop()
    ticks = stage.script.heard.count(Tick())
    for _ in range(3):
        await asyncio.sleep(0)
    assert stage.script.heard.count(Tick()) == ticks, "a timer that was armed is off"


async def test_a_deadline_is_asked_for_once_in_a_while_however_many_events_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert interpreter.LOOK_NS <= HOLD_NS // 10, "what waits for other reports waits as long as it says"
    stage, asked = Stage(), 0

    def next_deadline_ns() -> int:
        nonlocal asked
        asked += 1
        return time.monotonic_ns() + HOUR_NS

    monkeypatch.setattr(interpreter, "LOOK_NS", HOUR_NS)
    monkeypatch.setattr(stage.script, "next_deadline_ns", next_deadline_ns)
    for _ in range(100):
        stage.interpreter.feed("a")
    assert len(stage.script.heard) == 100 and asked == 1
    stage.interpreter.stop()
    await asyncio.sleep(0)
    assert asked == 1, "a look that was due is off"
