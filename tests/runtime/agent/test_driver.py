"""The driver: effects in their order, small work inline, large work in threads, every failure in ``outcome``."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpgt_node.errors import StoreError
from dpgt_node.learning.common import Metrics
from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.agent.phase import Phase
from dpgt_node.protocol.calls import Call
from dpgt_node.runtime.agent.driver import EVALUATIONS_AHEAD, INLINE_BYTES, NUMBERS, AgentDriver
from dpgt_node.runtime.interpreter import Interpreter
from tests.protocol import cases
from tests.runtime.cluster import eventually

SMALL, LARGE = 1, INLINE_BYTES // 8 + 1
MAIN = threading.current_thread().name


class World:
    """Work and store in one, and what hears of effects for others: notes what was done, where and in which order."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.evaluation_numbers = self.gradient_numbers = 0
        self.closed_form = True
        self.did: list[str] = []
        self.where: dict[str, str] = {}
        self.fails: dict[str, Exception] = {}
        self.gates: dict[str, threading.Event] = {}

    def note(self, what: str, k: object = "") -> None:
        self.where[what] = threading.current_thread().name
        if what in self.gates:
            self.gates[what].wait(30)
        if what in self.fails:
            raise self.fails[what]
        self.did.append(f"{what} {k}".strip())

    # work
    def advance(self, effect: t.Advance) -> t.Advanced:
        k = 0 if effect.state is None else effect.state.k + 1
        self.note("advance", k)
        return t.Advanced(cases.state(k))

    def release(self, effect: t.DrawRelease) -> t.ReleaseReady:
        self.note("draw", effect.state.k)
        return cases.release(effect.state.k)

    def evaluate(self, effect: t.Evaluate) -> Metrics:
        self.note("evaluate", effect.k)
        return Metrics(loss_train=1.0)

    def advance_final(self, effect: t.AdvanceFinal) -> t.FinalReady:
        self.note("final")
        return t.FinalReady(np.ones(1))

    # store
    def commit_round(self, run_id: bytes, record: t.RoundRecord) -> None:
        self.note("commit", record.k)

    def write_state(self, run_id: bytes, state: t.State) -> t.State:
        self.note("file", state.k)
        return state

    def keep_state(self, run_id: bytes, written: t.State) -> None:
        self.note("row", written.k)

    def prune(self, run_id: bytes, through: int) -> None:
        self.note("prune", through)

    def finish_run(self, run_id: bytes, x: t.F64) -> None:
        self.note("save")

    def payloads(self, run_id: bytes, k: int) -> tuple[t.Payload, t.Payload]:
        self.note("read", k)
        return cases.payload("X", k), cases.payload("Y", k)

    head = b"h" * 32

    # others
    def evaluated(self, k: int, x: t.F64, metrics: Metrics) -> None:
        self.note("evaluated", k)

    def hears(self, effect: t.AgentEffect) -> None:
        match effect:
            case t.Send(_, payloads):
                self.note("send", payloads[0].k)
            case t.ReportDone(k, durable_through):
                self.note("done", f"{k} {durable_through}")
            case t.ReportStall(k):
                self.note("stalled", k)


class Driven:
    """An agent's machine, the driver of its work, and the interpreter between them."""

    def __init__(self, world: World, machine: AgentMachine, *, commit_inline: bool) -> None:
        self.world = world
        self.machine = machine
        self.outcome: asyncio.Future[t.Finish] = asyncio.get_running_loop().create_future()
        self.read: list[s.RoundRead] = []
        made: Any = world
        self.driver = AgentDriver(
            made, made, b"r" * 16, self.feed, self._broken, world.evaluated, commit_inline=commit_inline
        )
        self._interpreter = Interpreter(machine, self._carry_out, self._broken)

    def feed(self, event: Any) -> None:
        match event:
            case s.Broke(error):
                self._broken(error)
            case s.RoundRead():
                self.read.append(event)
            case _:
                self._interpreter.feed(event)

    def _carry_out(self, effect: Any) -> None:
        match effect:
            case t.Finish():
                self.outcome.set_result(effect)
            case t.Send() | t.Resend() | t.ReportDone() | t.ReportStall():
                self.world.hears(effect)
            case _:
                self.driver.carry_out(effect)

    def _broken(self, error: BaseException) -> None:
        self._interpreter.stop()
        if not self.outcome.done():
            self.outcome.set_exception(error)

    async def close(self) -> None:
        self._interpreter.stop()
        await self.driver.close(ended=True)


def driver(world: World, *, last_round: int = 1, commit_inline: bool = True, **options: Any) -> Driven:
    return Driven(world, cases.machine(last_round, **options), commit_inline=commit_inline)


def vectors(d: Driven, k: int) -> None:
    d.feed(t.VectorReceived(1, cases.payload("X", k)))
    d.feed(t.VectorReceived(1, cases.payload("Y", k)))


WHOLE = [
    "advance 0", "evaluate 0", "evaluated 0", "draw 0", "commit 0", "send 0", "done 0 -1", "advance 1",
    "draw 1", "commit 1", "send 1", "final", "save", "done 1 1",
]  # fmt: skip


async def test_small_work_is_done_at_once_inline_and_in_order() -> None:
    world = World(SMALL)
    d = driver(world)
    d.feed(t.PeerNeeds(1, 0, 0))
    d.feed(t.Started(1))
    vectors(d, 0)
    vectors(d, 1)
    assert [w for w in world.did if w not in ("evaluate 2", "evaluated 2")] == WHOLE
    assert set(world.where.values()) == {MAIN} and not d.driver.beside
    d.feed(t.Dismissed())
    assert (await d.outcome).status == "finished"
    await d.close()


async def test_large_work_runs_in_threads_in_the_same_order() -> None:
    world = World(LARGE)
    d = driver(world)
    d.feed(t.PeerNeeds(1, 0, 0))
    d.feed(t.Started(1))
    vectors(d, 0)
    await eventually("round 0 is mixed", lambda: "advance 1" in world.did)
    vectors(d, 1)
    await eventually("the result is saved", lambda: "done 1 1" in world.did and "evaluated 2" in world.did)
    order = [w for w in world.did if not w.startswith("evaluate")]
    assert order == [w for w in WHOLE if not w.startswith("evaluate")]
    for what, thread in (
        ("advance", "work"),
        ("draw", "work"),
        ("final", "work"),
        ("commit", "store"),
        ("save", "store"),
    ):
        assert world.where[what].startswith(f"dpgt-{thread}"), what
    assert world.where["evaluate"].startswith("dpgt-evaluate")
    assert {world.where[what] for what in ("send", "done", "evaluated")} == {MAIN}
    await d.close()


async def test_a_slow_evaluation_or_commit_does_not_hold_the_loop() -> None:
    world = World(LARGE)
    for what in ("evaluate", "commit"):
        world.gates[what] = threading.Event()
    d = driver(world)
    d.feed(t.Started(0))
    await eventually("the commit waits for its disk", lambda: "commit" in world.where)
    assert "send 0" not in world.did, "nothing leaves before it is durable"
    d.feed(t.PeerNeeds(1, 0, 0))
    world.gates["commit"].set()
    await eventually("it leaves", lambda: "send 0" in world.did)
    assert "evaluated 0" not in world.did
    world.gates["evaluate"].set()
    await eventually("and the metrics come", lambda: "evaluated 0" in world.did)
    await d.close()


async def test_a_state_is_written_beside_the_rounds_and_its_row_where_commits_run() -> None:
    world = World(LARGE)
    world.gates["file"] = threading.Event()
    d = driver(world, last_round=9, checkpoint_every=2, beside=True, run_ahead=9)
    assert d.driver.beside
    d.feed(t.PeerNeeds(1, 0, 0))
    d.feed(t.Started(9))
    for k in range(4):
        vectors(d, k)
    await eventually("round 3 is sent while the state of round 2 is written", lambda: "send 3" in world.did)
    await eventually("then it waits for it", lambda: d.machine.phase is Phase.KEEPING)
    assert world.where["file"].startswith("dpgt-state") and "done 3 -1" in world.did
    world.gates["file"].set()
    await eventually("and goes on", lambda: "commit 4" in world.did)
    assert world.where["row"].startswith("dpgt-store") and d.machine.durable_through >= 1
    order = [what for what in world.did if what in ("commit 2", "send 2", "commit 3", "file 2", "row 2", "commit 4")]
    assert order == ["commit 2", "send 2", "commit 3", "file 2", "row 2", "commit 4"]
    await d.close()


async def test_what_is_recorded_reaches_the_disk_before_a_state_counts() -> None:
    world = World(LARGE)
    recording: Any = SimpleNamespace(
        state_dir="DIR", flush=lambda: world.note("flush"), kept=lambda k: world.note("kept", k),
        close=lambda ended: world.note("close"),
    )  # fmt: skip
    d = driver(world)
    events: list[Any] = []
    d.driver._recording, d.driver._feed = recording, events.append
    d.driver.carry_out(t.KeepState(cases.state(4)))
    await eventually("it is kept", lambda: bool(events))
    assert events == [t.StateKept(4)] and world.did == ["file 4", "flush", "row 4", "kept 4"]
    assert world.where["flush"].startswith("dpgt-store")
    await d.close()


@pytest.mark.parametrize("what", ["file", "row"])
async def test_a_state_that_cannot_be_written_ends_in_the_outcome(what: str) -> None:
    world = World(LARGE)
    world.fails[what] = StoreError("no space left")
    d = driver(world, last_round=9, checkpoint_every=2, beside=True, run_ahead=9)
    d.feed(t.Started(9))
    for k in range(4):
        vectors(d, k)
    with pytest.raises(StoreError, match="no space left"):
        async with asyncio.timeout(30):
            await d.outcome
    assert d.machine.durable_through == -1
    await d.close()


async def test_small_vectors_over_many_samples_are_evaluated_beside_the_rounds() -> None:
    world = World(SMALL)
    world.evaluation_numbers = NUMBERS + 1
    world.gates["evaluate"] = threading.Event()
    d = driver(world)
    d.feed(t.PeerNeeds(1, 0, 0))
    d.feed(t.Started(1))
    vectors(d, 0)
    vectors(d, 1)
    assert [w for w in world.did if not w.startswith("evaluate")] == [w for w in WHOLE if not w.startswith("evaluate")]
    assert world.where["evaluate"].startswith("dpgt-evaluate") and world.where["advance"] == MAIN
    world.gates["evaluate"].set()
    await eventually("both evaluations come", lambda: "evaluated 0" in world.did and "evaluated 2" in world.did)
    await d.close()


@pytest.mark.parametrize("costly", ["many samples", "a network"])
async def test_a_small_model_that_takes_long_does_not_hold_up_heartbeats(costly: str) -> None:
    """What d says of the time that a gradient takes holds for closed forms over few samples alone."""
    world = World(SMALL)
    if costly == "a network":
        world.closed_form = False
    else:
        world.gradient_numbers = NUMBERS + 1
    world.gates["advance"] = threading.Event()
    d = driver(world)
    d.feed(t.PeerNeeds(1, 0, 0))
    d.feed(t.Started(0))
    await eventually("the gradient is being computed", lambda: "advance" in world.where)
    assert world.where["advance"].startswith("dpgt-work"), "and the event loop is free"
    world.gates["advance"].set()
    await eventually("the round goes on", lambda: "send 0" in world.did)
    await d.close()


async def test_rounds_run_ahead_of_slow_evaluations_but_not_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    world = World(LARGE)
    world.gates["evaluate"] = threading.Event()
    d = driver(world, last_round=9, evaluate_every=1)
    d.feed(t.PeerNeeds(1, 0, 0))
    d.feed(t.Started(9))
    for k in range(EVALUATIONS_AHEAD + 1):
        vectors(d, k)
        await eventually("the round is mixed", lambda k=k: f"advance {k + 1}" in world.did)
    await eventually("the next one waits", lambda: "take longer than the rounds" in caplog.text)
    vectors(d, EVALUATIONS_AHEAD + 1)
    assert f"draw {EVALUATIONS_AHEAD + 1}" not in world.did, "its turn comes with the first evaluation"
    world.gates["evaluate"].set()
    await eventually("then it goes on", lambda: f"done {EVALUATIONS_AHEAD + 1} {EVALUATIONS_AHEAD}" in world.did)
    await d.close()


async def test_an_end_does_not_wait_for_evaluations_that_did_not_begin() -> None:
    world = World(LARGE)
    world.gates["evaluate"] = threading.Event()
    d = driver(world, last_round=9, evaluate_every=1)
    d.feed(t.PeerNeeds(1, 0, 0))
    d.feed(t.Started(9))
    for k in range(EVALUATIONS_AHEAD + 1):
        vectors(d, k)
        await eventually("the round is mixed", lambda k=k: f"advance {k + 1}" in world.did)
    d.feed(t.StopRequested("enough"))
    closing = asyncio.ensure_future(d.close())
    await eventually(
        "those that wait are dropped", lambda: all(e.cancelled() or e.running() for e in d.driver._evaluations)
    )
    world.gates["evaluate"].set()
    async with asyncio.timeout(30):
        await closing
    assert [w for w in world.did if w.startswith("evaluate ")] == ["evaluate 0"]


async def test_commits_that_wait_for_a_disk_run_in_a_thread_even_when_small() -> None:
    world = World(SMALL)
    d = driver(world, commit_inline=False)
    d.feed(t.Started(0))
    await eventually("round 0 is durable", lambda: "commit 0" in world.did)
    assert world.where["commit"].startswith("dpgt-store") and world.where["draw"] == MAIN
    await d.close()


@pytest.mark.parametrize("dimension", [SMALL, LARGE], ids=["inline", "in a thread"])
@pytest.mark.parametrize("what", ["advance", "draw", "commit", "evaluate", "evaluated", "done", "final", "save"])
async def test_whatever_breaks_ends_in_the_outcome_and_nothing_follows(what: str, dimension: int) -> None:
    world = World(dimension)
    world.fails[what] = StoreError("no space left")
    d = driver(world, last_round=0)
    d.feed(t.Started(0))
    vectors(d, 0)
    with pytest.raises(StoreError, match="no space left"):
        async with asyncio.timeout(30):
            await d.outcome
    await d.close()
    if what == "commit":
        assert not any(w.startswith(("send", "done")) for w in world.did), "what is not durable never leaves"
    before = list(world.did)
    d.feed(t.PeerNeeds(1, 0, 0))
    assert world.did == before, "a broken agent says nothing more"


async def test_a_stop_resolves_the_outcome_even_while_a_thread_works() -> None:
    world = World(LARGE)
    world.gates["advance"] = threading.Event()
    d = driver(world)
    d.feed(t.Started(0))
    d.feed(t.StopRequested("enough"))
    finish = await d.outcome
    assert (finish.status, finish.reason) == ("stopped", "enough")
    closing = asyncio.ensure_future(d.close())
    done, _ = await asyncio.wait([closing], timeout=0.05)
    assert not done, "the store must not be closed under a running thread"
    world.gates["advance"].set()
    await closing
    assert world.did == ["advance 0"]


async def test_late_inputs_are_reported_by_the_clock() -> None:
    world = World(SMALL)
    d = driver(world, stall_ns=20_000_000)
    d.feed(t.Started(0))
    await eventually("two reports came", lambda: world.did.count("stalled 0") >= 2)
    d.feed(t.StopRequested("enough"))
    await d.close()


async def test_a_stored_round_is_read_where_commits_run_and_a_prune_reaches_the_store() -> None:
    call = Call("agent-9", 1, dialled=True)
    for commit_inline in (True, False):
        world = World(SMALL)
        d = driver(world, commit_inline=commit_inline)
        d.driver.carry_out(s.ReadRound(call, 3, ("Y",)))
        d.feed(t.AllDurable(0))
        await eventually("both are done", lambda d=d, world=world: bool(d.read) and "prune 0" in world.did)
        assert [p.stream for p in d.read[0].payloads] == ["Y"] and d.read[0].call == call
        assert world.did == ["read 3", "prune 0"]
        assert (world.where["read"] == MAIN) is commit_inline and world.where["read"] == world.where["prune"]
        await d.close()


async def test_what_is_durable_comes_with_the_head_of_the_ledger() -> None:
    world = World(SMALL)
    d = driver(world)
    events: list[Any] = []
    d.driver._feed = events.append
    d.driver.carry_out(t.Persist(cases.record(4)))
    assert events == [t.Persisted(4, world.head)]
    await d.close()
