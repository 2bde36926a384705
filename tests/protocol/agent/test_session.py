"""An agent's session, step by step: from the first call to the exit code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpgt_node.errors import (
    BudgetReached,
    ConfigError,
    DpgtError,
    ExitCode,
    PeerError,
    PeerLost,
    RefusedError,
    StaleState,
    StoreError,
)
from dpgt_node.protocol import messages as m
from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.agent.session import Session, SessionPhase
from dpgt_node.protocol.calls import COORDINATOR, Accepted, Call, Dial, End, Ended, Heard, Note, Opened, Taken, Write
from dpgt_node.protocol.clock import SECOND
from dpgt_node.protocol.liveness import Down, EdgeReport, Lack
from dpgt_node.protocol.told import told
from tests.protocol import cases

RUN, K = b"r" * 16, 1
UP = Call(COORDINATOR, 1, dialled=True)
TO, FROM = Call("agent-2", 1, dialled=True), Call("agent-2", 1, dialled=False)
PEERS = s.Peers(("agent-1", "agent-2", "agent-3"), 0, {"agent-2": frozenset({"X", "Y"})})
TERMS = s.Terms(
    coordinator="h:9",
    run_json="{}",
    run_sha256="0" * 64,
    run_source="RUN.toml",
    state_source="state",
    package_version="1",
    instance=b"i" * 16,
    last_round=K,
    samples=None,
    dimension=1,
    shape_sha256="1" * 64,
    heartbeat_ns=2 * SECOND,
    first_patience_ns=600 * SECOND,
    patience_ns=60 * SECOND,
    distrust_ns=600 * SECOND,
    farewell_ns=2 * SECOND,
)
WELCOME = m.Welcome(RUN, "0" * 64, "{}", -1, package_version="1")
HELD = s.Held()
FINISHED = s.Held(RUN, K, K, K, finished=True)
EMPTY = s.RunRead(b"", None)
PAYLOADS = (cases.payload("X", 0), cases.payload("Y", 0))


def words(k: int) -> bytes:
    """What is said of round ``k``: X and Y, sent and received, are all the same vector here."""
    return cases.payload("X", k).sha256[:16] * 4


def make_agent(read: s.RunRead, begun: s.RunBegun) -> AgentMachine:
    budget = begun.budget_through
    options = {"recovered": read.recovered, "finished": read.final, "budget_through": budget, "stall_ns": 4 * SECOND}
    return AgentMachine(cases.params(), K, evaluate_every=10**6, **options)  # type: ignore[arg-type]


class Desk:
    """Steps a session and keeps what it wants; ``now`` is in seconds."""

    def __init__(self, kind: type[Session] = Session, held: s.Held = HELD) -> None:
        self.session = kind(TERMS, PEERS, held, make_agent)
        self.all: list[Any] = []

    def __call__(self, event: Any, now: float = 0.0) -> list[Any]:
        effects = list(self.session.step(event, int(now * SECOND)))
        self.all += effects
        return [effect for effect in effects if not isinstance(effect, Note)]

    def hears(self, message: object, now: float = 0.0) -> list[Any]:
        return self(Heard(UP, message), now)

    def takes(self, call: Call = UP) -> None:
        self(Taken(call, 0, 0))

    def said(self) -> list[Any]:
        """What was written to the coordinator."""
        return [effect.message for effect in self.all if isinstance(effect, Write) and effect.call.peer == COORDINATOR]

    @property
    def exit(self) -> s.Exit:
        (found,) = [effect for effect in self.all if isinstance(effect, s.Exit)]
        assert self.session.phase is SessionPhase.ENDED
        return found


def outside(kind: type[Session] = Session, held: s.Held = HELD) -> Desk:
    desk = Desk(kind, held)
    assert desk(s.Begin("h:1")) == [Dial(UP, "h:9")]
    (register,) = desk(Opened(UP))
    assert register.message.advertise == "h:1" and register.message.last_released_round == held.released
    desk.takes()
    return desk


def inside(kind: type[Session] = Session, read: s.RunRead = EMPTY, begun: s.RunBegun | None = None) -> Desk:
    held = FINISHED if read.final is not None else HELD
    desk = outside(kind, held)
    assert desk.hears(WELCOME) == [s.ReadRun(RUN, -1)]
    assert desk(read) == [s.BeginRun(RUN, read.recovered, finished=read.final is not None)]
    assert desk(begun or s.RunBegun(None)) == [Write(UP, m.Ready())]
    desk.takes()
    return desk


def started(kind: type[Session] = Session, begun: s.RunBegun | None = None) -> Desk:
    """The out-neighbour has said what it lacks, and waits; nothing is computed yet."""
    desk = inside(kind, begun=begun)
    assert desk.hears(m.Start({"agent-1": "h:1", "agent-2": "h:2"}, 0)) == [Dial(TO, "h:2"), t.Advance(None)]
    desk(Opened(TO))
    desk(Heard(TO, m.Resume("agent-2", RUN, 0, 0)))
    return desk


def released(kind: type[Session] = Session) -> Desk:
    """Round 0 is durable and on its way."""
    desk = started(kind)
    evaluate, draw = desk(t.Advanced(cases.state(0)))
    assert isinstance(evaluate, t.Evaluate) and isinstance(draw, t.DrawRelease)
    (persist,) = desk(cases.release(0))
    assert isinstance(persist, t.Persist)
    assert desk(t.Persisted(0, b"h" * 32)) == [Write(TO, PAYLOADS)]
    return desk


# --- a good run -------------------------------------------------------------------------------------------------------


def a_run_goes_well(kind: type[Session]) -> None:
    desk = released(kind)
    desk(Taken(TO, 100, 0))
    assert desk(Accepted(FROM)) == [Write(FROM, m.Resume("agent-1", RUN, 0, 0))]
    done, advance = desk(Heard(FROM, PAYLOADS))
    assert done == Write(UP, m.Done(0, -1, 100, b"h" * 32, words=words(0))) and isinstance(advance, t.Advance)
    desk(t.Advanced(cases.state(1)))
    assert isinstance(desk.hears(m.GoMessage(1))[0], t.DrawRelease)
    desk(cases.release(1))
    desk(t.Persisted(1, b"k" * 32))
    (final,) = desk(Heard(FROM, (cases.payload("X", 1), cases.payload("Y", 1))))
    assert isinstance(final, t.AdvanceFinal)
    x = np.ones(1)
    save, evaluate = desk(t.FinalReady(x))
    assert isinstance(save, t.SaveFinal) and isinstance(evaluate, t.Evaluate)
    assert desk(t.FinalSaved()) == [Write(UP, m.Done(1, 1, 100, b"k" * 32, words=words(1)))] and desk.session.saved
    assert desk(s.Evaluated(2, None, x)) == [s.Upload(2, x)]
    assert not desk.session.reported
    assert desk(s.UploadsTaken()) == [s.MakeReport(100)]
    report = m.FinishedReport("finished", 4, 100, {}, m.MetricsReport(2))
    assert desk(s.ReportMade(report)) == [Write(UP, report)] and desk.session.reported
    assert desk.hears(m.Goodbye()) == [End(UP), End(TO)], "and waits for its in-neighbour to close"
    assert desk(Accepted(Call("agent-2", 2, dialled=False)))[0].error.grpc_status == "UNAVAILABLE"
    assert desk(Ended(FROM))[-1] == s.Exit(ExitCode.DONE) == desk.exit


def an_in_neighbour_that_does_not_close_is_not_waited_for_long(kind: type[Session]) -> None:
    desk = started(kind)
    desk(Accepted(FROM))
    desk.hears(m.StopMessage("enough", 5), 10.0)
    assert desk.session.phase is SessionPhase.FAREWELL and desk.session.next_deadline_ns() == 12 * SECOND
    assert desk(t.Tick(), 11.9) == []
    assert desk(t.Tick(), 12.0) == [End(FROM), s.Exit(ExitCode.STOPPED)]


def the_state_of_an_edge_is_told(kind: type[Session]) -> None:
    desk = released(kind)
    assert EdgeReport not in [type(message) for message in desk.said()]
    desk(t.Tick(), 4.0)
    desk(t.Tick(), 6.0)
    assert desk.said()[-1] == EdgeReport(0, 6 * SECOND, (Lack("agent-2", None),))
    desk(Accepted(FROM), 6.5)
    desk(Heard(FROM, PAYLOADS), 7.0)
    desk(Ended(TO, PeerError("away", grpc_status="UNAVAILABLE")), 7.0)
    desk(Ended(Call("agent-2", 2, dialled=True), PeerError("away", grpc_status="UNAVAILABLE")), 7.0)
    desk(t.Tick(), 8.0)
    assert desk.said()[-1] == EdgeReport(0, 0), "its round lacks nothing any more, and the call is down for a second"
    desk(t.Tick(), 10.0)
    assert desk.said()[-1].down == (Down("agent-2", 3 * SECOND, "the other end cannot be reached"),)


def a_coordinator_that_came_back_hears_the_results_again(kind: type[Session]) -> None:
    desk = inside(kind, s.RunRead(b"", None, np.ones(1)))
    desk.hears(m.Start({"agent-2": "h:2"}, 0))
    report = m.FinishedReport("finished", 4, 0, {}, m.MetricsReport(2))
    desk(s.Evaluated(0, m.MetricsReport(0)))
    desk(s.Evaluated(1, m.MetricsReport(1)))
    desk(s.Evaluated(2))
    assert desk(s.ReportMade(report)) == [Write(UP, report)]
    again = Call(COORDINATOR, 2, dialled=True)
    desk(Ended(UP), 0.1)
    assert Dial(again, "h:9") in desk(t.Tick(), 0.2)
    desk(Opened(again), 0.2)
    assert desk(Heard(again, WELCOME), 0.2) == [Write(again, m.Ready())]
    start = m.Start({"agent-2": "h:2"}, 0)
    lost = [m.MetricsReport(0), m.MetricsReport(1), report]
    assert desk(Heard(again, start), 0.2) == [Write(again, message) for message in lost], "it may not have kept them"
    assert desk(Heard(again, start), 0.2) == [Write(again, report)], "somebody else came back"


# --- before the run ---------------------------------------------------------------------------------------------------


def ended(kind: type[Session], *events: Any, held: s.Held = HELD) -> Desk:
    desk = outside(kind, held)
    for event in events:
        desk.hears(event)
    return desk


def what_the_coordinator_says_first_decides(kind: type[Session]) -> None:
    cases_: list[tuple[m.CoordinatorMessage, type[DpgtError], ExitCode, str]] = [
        (replace(WELCOME, package_version="2"), RefusedError, ExitCode.REFUSED, "runs dpgt-node 2, this is 1"),
        (replace(WELCOME, protocol_version=9), RefusedError, ExitCode.REFUSED, "runs dpgt-node"),
        (replace(WELCOME, run_json='{"a":1}'), ConfigError, ExitCode.CONFIG, "RUN.toml: the coordinator's run differs"),
        (m.Refused("identity", "twin"), RefusedError, ExitCode.REFUSED, "refused agent-1: twin"),
        (m.Refused("run-hash", "keys"), RefusedError, ExitCode.CONFIG, "keys"),
        (m.StopMessage("late", 5), RefusedError, ExitCode.REFUSED, "does not begin: late"),
        (m.GoMessage(1), PeerError, ExitCode.REFUSED, "before Welcome"),
        (m.Start({}, 1), PeerError, ExitCode.REFUSED, "before Welcome"),
        (m.Goodbye(), PeerError, ExitCode.REFUSED, "goodbye before the result was saved"),
    ]
    for message, error, code, words in cases_:
        desk = ended(kind, message)
        assert type(desk.exit.error) is error and desk.exit.code is code and words in str(desk.exit.error), message
        assert desk.all[-2:] == [End(UP), desk.exit]
    assert ended(kind, m.Goodbye(), held=FINISHED).exit == s.Exit(ExitCode.DONE), "it came back for nothing"


def an_old_copy_of_the_state_refuses(kind: type[Session]) -> None:
    remembered = replace(WELCOME, ledger_round=3, ledger_head=b"h" * 32)
    for head in (b"", b"x" * 32):
        desk = outside(kind)
        assert desk.hears(remembered) == [s.ReadRun(RUN, 3)]
        (refusal,) = desk(s.RunRead(head, None))
        assert refusal.message.kind == "data" and refusal.message.reason == told(StaleState())
        desk.hears(m.StopMessage("agent-1 refused", 3))
        assert "state: an old state directory" in str(desk.exit.error) and desk.exit.code is ExitCode.CONFIG
    desk = outside(kind)
    desk.hears(remembered)
    assert desk(s.RunRead(b"h" * 32, None)) == [s.BeginRun(RUN, None, finished=False)]


def an_owner_may_refuse(kind: type[Session]) -> None:
    desk = outside(kind)
    desk.hears(WELCOME)
    desk(EMPTY)
    error = RefusedError("epsilon_max is too low")
    assert desk(s.RunRefused(error)) == [Write(UP, m.Refusal("policy", told(error)))]
    assert desk.session.phase is SessionPhase.LEAVING
    assert desk(t.Tick(), 1.9)[:1] == []
    desk(t.Tick(), 2.0)
    assert desk.exit == s.Exit(ExitCode.REFUSED, error), "nobody listened; it leaves all the same"


def who_calls_before_welcome_waits_and_strangers_are_turned_away(kind: type[Session]) -> None:
    desk = outside(kind)
    assert len(desk(Accepted(FROM))) == 1
    (turned,) = desk(Accepted(Call("agent-3", 1, dialled=False)))
    assert turned.error.grpc_status == "PERMISSION_DENIED" and "no edge from agent-3 to agent-1" in str(turned.error)
    desk.hears(WELCOME)
    desk(EMPTY)
    admitted = desk(s.RunBegun(None))
    assert admitted[0] == Write(UP, m.Ready()) and admitted[1] == Write(FROM, m.Resume("agent-1", RUN, 0, 0))


# --- how it exits -----------------------------------------------------------------------------------------------------


def no_coordinator_makes_it_done_or_a_bug(kind: type[Session]) -> None:
    for said, code in ((0, 5), (70, 5), (99, 5), (6, 6), (2, 2), (5, 5)):
        desk = started(kind)
        desk.hears(m.StopMessage("x", said))
        assert desk.exit == s.Exit(ExitCode(code)), said
    desk = inside(kind, s.RunRead(b"", None, np.ones(1)))
    desk.hears(m.StopMessage("x", 0))
    assert desk.exit.code is ExitCode.DONE


def whoever_fails_says_so_and_waits_for_the_stop(kind: type[Session]) -> None:
    for error in (StoreError("disk full"), PeerLost("no trust")):
        desk = started(kind)
        assert desk(s.Broke(error)) == [Write(UP, m.Failed(int(error.exit_code), told(error)))]
        assert desk(t.Advanced(cases.state(0))) == [], "nothing more is stepped"
        desk.hears(m.StopMessage("agent-1 failed", 2))
        assert desk.exit == s.Exit(error.exit_code, error)
    desk = started(kind, s.RunBegun(-1, "it costs 5"))
    _, failed = desk(t.Advanced(cases.state(0)))
    assert failed.message.exit_code == ExitCode.BUDGET and failed.message.message == told(BudgetReached())
    desk.hears(m.StopMessage("budget", 4))
    assert isinstance(desk.exit.error, BudgetReached) and str(desk.exit.error).endswith(": it costs 5")


def a_neighbour_that_proves_an_old_copy_ends_it(kind: type[Session]) -> None:
    desk = inside(kind)
    desk.hears(m.Start({"agent-2": "h:2"}, 0))
    desk(Opened(TO))
    (failed,) = desk(Heard(TO, m.Resume("agent-2", RUN, 7, 7)))
    assert failed.message.exit_code == ExitCode.CONFIG and "older than the run" in failed.message.message


def away(desk: Desk) -> None:
    error, now = PeerError("away", grpc_status="UNAVAILABLE"), 1.0
    while desk.session.phase is not SessionPhase.ENDED and now < 2000:
        desk(Ended(desk.session._uplink._call, error), now)
        now += 1.0
        desk(t.Tick(), now)


def a_coordinator_that_stays_away(kind: type[Session]) -> None:
    desk = started(kind)
    away(desk)
    assert isinstance(desk.exit.error, PeerLost) and desk.exit.code is ExitCode.PEER_LOST
    never = Desk(kind)
    never(s.Begin("h:1"))
    away(never)
    assert type(never.exit.error) is PeerError and "for 600 s" in str(never.exit.error)
    saved = inside(kind, s.RunRead(b"", None, np.ones(1)))
    away(saved)
    assert saved.exit == s.Exit(ExitCode.DONE)
    assert any(isinstance(e, Note) and "the result is saved" in e.text for e in saved.all)


def finished(kind: type[Session]) -> Desk:
    """Its result was saved in this life, and its in-neighbour has closed."""
    desk = released(kind)
    desk(Accepted(FROM))
    desk(Heard(FROM, PAYLOADS))
    desk(t.Advanced(cases.state(1)))
    desk.hears(m.GoMessage(1))
    desk(cases.release(1))
    desk(t.Persisted(1, b"k" * 32))
    desk(Heard(FROM, (cases.payload("X", 1), cases.payload("Y", 1))))
    desk(t.FinalReady(np.ones(1)))
    desk(t.FinalSaved())
    desk(Ended(FROM))
    return desk


def a_coordinator_that_is_gone_for_good(kind: type[Session]) -> None:
    for_good = Ended(UP, PeerError("not you", grpc_status="PERMISSION_DENIED"))
    desk = finished(kind)
    desk(for_good)
    assert desk.exit == s.Exit(ExitCode.DONE), "its result is saved: there is nothing left to ask for"
    error = StoreError("disk full")
    desk = started(kind)
    desk(s.Broke(error))
    desk(for_good)
    assert desk.exit == s.Exit(error.exit_code, error), "nobody can hear its last word any more"
    desk = Desk(kind, FINISHED)
    desk(s.Begin("h:1"))
    away(desk)
    assert desk.exit.code is ExitCode.DONE
    assert any(isinstance(e, Note) and "for 60 s" in e.text for e in desk.all), "not as long as one that needs the run"


def whoever_calls_after_the_end_is_turned_away(kind: type[Session]) -> None:
    desk = started(kind)
    desk(s.Interrupted())
    (turned,) = desk(Accepted(FROM))
    assert turned.call == FROM and turned.error.grpc_status == "UNAVAILABLE"


def an_interrupt_ends_it_at_once(kind: type[Session]) -> None:
    for desk in (Desk(kind), outside(kind), started(kind)):
        desk(s.Interrupted())
        assert desk.exit == s.Exit(ExitCode.STOPPED)
        assert desk(s.Interrupted()) == [] == desk(t.Tick(), 100.0)


def another_run_is_not_joined(kind: type[Session]) -> None:
    desk = started(kind)
    desk.hears(replace(WELCOME, run_id=b"z" * 16))
    assert "came back with another run" in str(desk.exit.error)


def an_address_is_needed_of_everybody(kind: type[Session]) -> None:
    desk = inside(kind)
    desk.hears(m.Start({"agent-3": "h:3"}, 0))
    assert "no address of agent-2" in str(desk.exit.error)


SCENES = [
    a_run_goes_well,
    an_in_neighbour_that_does_not_close_is_not_waited_for_long,
    the_state_of_an_edge_is_told,
    a_coordinator_that_came_back_hears_the_results_again,
    what_the_coordinator_says_first_decides,
    an_old_copy_of_the_state_refuses,
    an_owner_may_refuse,
    who_calls_before_welcome_waits_and_strangers_are_turned_away,
    no_coordinator_makes_it_done_or_a_bug,
    whoever_fails_says_so_and_waits_for_the_stop,
    a_neighbour_that_proves_an_old_copy_ends_it,
    a_coordinator_that_stays_away,
    a_coordinator_that_is_gone_for_good,
    whoever_calls_after_the_end_is_turned_away,
    an_interrupt_ends_it_at_once,
    another_run_is_not_joined,
    an_address_is_needed_of_everybody,
]


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_goes_as_the_table_says(scene: Callable[[type[Session]], None]) -> None:
    scene(Session)


class DoesNotReadTheHead(Session):
    def _is_the_ledger(self, welcome: m.Welcome, read: s.RunRead) -> bool:
        return True


class BreaksWithoutAWord(Session):
    def _fail(self, error: DpgtError, out: list[Any], now_ns: int) -> None:
        self._leave(error, (), out, now_ns)


class DoesNotWaitForTheStop(Session):
    def _fail(self, error: DpgtError, out: list[Any], now_ns: int) -> None:
        super()._fail(error, out, now_ns)
        self._farewell(self._exit, out, now_ns)


class DoesNotWaitForNeighbours(Session):
    def _check_out(self, out: list[Any]) -> None:
        if self._phase is SessionPhase.FAREWELL:
            self._end(out)


class GoesOnAfterItsLastWord(Session):
    def _step_inside(self, event: Any, out: list[Any], now_ns: int) -> None:
        if self._inside is not None:
            self._emit(self._inside.step(event, now_ns), out, now_ns)


class LetsStrangersIn(Session):
    def _accept(self, event: Accepted, out: list[Any], now_ns: int) -> None:
        if event.call.peer in self.receivers:
            super()._accept(event, out, now_ns)


class BelievesAnyGoodbye(Session):
    @property
    def saved(self) -> bool:
        return True


class NeverSaved(Session):
    @property
    def saved(self) -> bool:
        return False


class ReportsOnce(Session):
    def _step_inside(self, event: Any, out: list[Any], now_ns: int) -> None:
        if not isinstance(event, s.Repeat):
            super()._step_inside(event, out, now_ns)


MUTANTS = [
    DoesNotReadTheHead,
    BreaksWithoutAWord,
    DoesNotWaitForTheStop,
    DoesNotWaitForNeighbours,
    GoesOnAfterItsLastWord,
    LetsStrangersIn,
    BelievesAnyGoodbye,
    NeverSaved,
    ReportsOnce,
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_does_not_survive(mutant: type[Session]) -> None:
    def survives(scene: Callable[[type[Session]], None]) -> bool:
        try:
            scene(mutant)
        except (AssertionError, ValueError, IndexError, AttributeError):
            return False
        return True

    assert not all(survives(scene) for scene in SCENES)
