"""Broken daemons that the swarm must catch, each with the checkers that may be the first to see it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dpgt_node import __version__
from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.methods import sums
from dpgt_node.errors import DpgtError, ExitCode, PeerError
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.agent.inbox import Inbox
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.agent.phase import Phase
from dpgt_node.protocol.agent.session import Session
from dpgt_node.protocol.agent.session_types import Exit, Repeat, RunRead, SessionPhase, Window
from dpgt_node.protocol.agent.uplink import Uplink
from dpgt_node.protocol.calls import Accepted, Call, End, Heard
from dpgt_node.protocol.coordinator import admission
from dpgt_node.protocol.coordinator import barrier as co
from dpgt_node.protocol.coordinator.coordination import Coordination, Stage
from dpgt_node.protocol.coordinator.coordination_types import CoordinationEffect, CoordinationEvent, NoteHead
from dpgt_node.protocol.coordinator.membership import Door, Membership, Out, Seat
from dpgt_node.protocol.digests import DIGEST_BYTES
from dpgt_node.protocol.edge.receiver import Receiver, ReceiverPhase
from dpgt_node.protocol.edge.sender import Sender, SenderPhase
from dpgt_node.protocol.messages import Resume, Welcome
from dpgt_node.protocol.types import (
    Advance,
    Advanced,
    AgentEffect,
    AgentEvent,
    Go,
    Payload,
    PeerNeeds,
    Persist,
    Persisted,
    ReleaseReady,
    ReportDone,
    Send,
    VectorReceived,
)
from dpgt_node.types import Stream
from tests.swarm.key_mutants import IsReadyAtOnce, OffersOnce, ProvesOnce, agreeing
from tests.swarm.plan import Plan, forgotten, plan_for, sharing
from tests.swarm.state_mutants import BESIDE
from tests.swarm.world import Parts


@dataclass(frozen=True)
class Mutant:
    """``checkers``: any of these proves that it was caught for what it does.

    ``seed``: a seed shortly before one that catches it, for those that take too many from the start.  ``plan``: what a
    seed means.
    """

    parts: Parts
    checkers: frozenset[str]
    seed: int = 0
    plan: Callable[[int], Plan] = plan_for


# ---------------------------------------------------------------- agents
class SendsBeforePersist(AgentMachine):
    def step(self, event: AgentEvent, now_ns: int) -> tuple[AgentEffect, ...]:
        effects = super().step(event, now_ns)
        if isinstance(event, ReleaseReady):
            sends = [Send(peer, self._for_peer(peer)) for peer in self._peers if peer in self._connected]
            return (*sends, *effects)
        if isinstance(event, Persisted):
            return tuple(e for e in effects if not isinstance(e, Send))
        return effects


class RedrawsOnResume(AgentMachine):
    """Forgets its records, but not that it had them: otherwise it would be refused as an old copy."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._told = self._released
        if self._finished is None:
            self._records.clear()
            self._released = self.k - 1

    @property
    def released_through(self) -> int:
        return max(self._told, self._released)

    def _check_not_stale(self, event: PeerNeeds) -> None:
        drawn, self._released = self._released, self.released_through
        super()._check_not_stale(event)
        self._released = drawn


class RedrawsTheBatch(AgentMachine):
    def step(self, event: AgentEvent, now_ns: int) -> tuple[AgentEffect, ...]:
        effects = super().step(event, now_ns)
        return tuple(replace(e, record=None) if isinstance(e, Advance) else e for e in effects)


class TakesArrivedForDurable(AgentMachine):
    def step(self, event: AgentEvent, now_ns: int) -> tuple[AgentEffect, ...]:
        effects = super().step(event, now_ns)
        return tuple(ReportDone(e.k, e.k) if isinstance(e, ReportDone) else e for e in effects)


class ForgetsALedgerRow(AgentMachine):
    """Only for what is released right after a restart."""

    def __init__(self, *args: object, recovered: object = None, **options: object) -> None:
        super().__init__(*args, recovered=recovered, **options)  # type: ignore[arg-type]
        self._first = recovered is not None

    def step(self, event: AgentEvent, now_ns: int) -> tuple[AgentEffect, ...]:
        effects = super().step(event, now_ns)
        if self._first and isinstance(event, ReleaseReady):
            self._first = False
            return tuple(
                Persist(replace(e.record, rows=e.record.rows[:-1])) if isinstance(e, Persist) else e for e in effects
            )
        return effects


class ChecksTheBudgetLate(AgentMachine):
    def step(self, event: AgentEvent, now_ns: int) -> tuple[AgentEffect, ...]:
        cap = self._budget_through
        if cap is not None and self._phase in (Phase.READY, Phase.COMPUTING) and self.k <= cap + 1:
            self._budget_through = cap + 1
            try:
                return super().step(event, now_ns)
            finally:
                self._budget_through = cap
        return super().step(event, now_ns)


class TrustsAnOldCopy(AgentMachine):
    def _check_not_stale(self, event: PeerNeeds) -> None:
        pass


class TellsOnlyWhatItLacks(AgentMachine):
    """Its neighbours do not hear what it mixed before it was killed."""

    mixed_before = 0


class DrawsWithoutAsking(AgentMachine):
    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._heard.update(self._peers)


class ForgetsToSendAgain(AgentMachine):
    def _resend(self, event: PeerNeeds, out: list[AgentEffect]) -> None:
        super()._resend(replace(event, x_from=max(event.x_from, self.k), y_from=max(event.y_from, self.k)), out)


class IgnoresTheBarrier(AgentMachine):
    def _try_release(self, out: list[AgentEffect], now_ns: int) -> None:
        self.go_through = max(self.go_through, self.k)
        super()._try_release(out, now_ns)


# ---------------------------------------------------------------- inboxes
def with_inbox(kind: type[Inbox]) -> type[AgentMachine]:
    class Machine(AgentMachine):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[arg-type]
            self._inbox.__class__ = kind

    return Machine


def payload_of(payload: Payload, values: np.ndarray) -> Payload:
    data = values.astype("<f8").tobytes()
    return replace(payload, data=data, sha256=hashlib.sha256(data).digest())


class CountsTwice(Inbox):
    def put(self, sender: int, payload: Payload) -> bool:
        present = self._held[sender, payload.stream].get(payload.k)
        if present is not None and payload.stream == "Y":
            both = present.array() + payload.array()
            self._held[sender, payload.stream][payload.k] = payload_of(payload, both)
            return False
        return super().put(sender, payload)


class TakesTheRoundBefore(Inbox):
    def put(self, sender: int, payload: Payload) -> bool:
        if payload.k == self.low - 1 and self.low not in self._held[sender, payload.stream]:
            return super().put(sender, replace(payload, k=self.low))
        return super().put(sender, payload)


class KeepsTheOrderOfArrival(Inbox):
    def put(self, sender: int, payload: Payload) -> bool:
        kept = super().put(sender, payload)
        if kept:
            order: dict[tuple[Stream, int], list[int]] = self.__dict__.setdefault("order", {})
            order.setdefault((payload.stream, payload.k), []).append(sender)
        return kept

    def take(self, stream: Stream) -> dict[int, np.ndarray]:
        values = super().take(stream)
        return {j: values[j] for j in self.__dict__.get("order", {}).get((stream, self.low), [])}


class SumsAsItArrives(AgentWork):
    """Mixes in the order of the mapping it is given."""

    def advance(self, effect: Advance) -> Advanced:
        sorted_mix = sums.add_mixed

        def mix(edges: tuple, received: dict, step: float, into: np.ndarray, block: slice) -> None:
            weights = dict(edges)
            sorted_mix(tuple((j, weights[j]) for j in received), received, step, into, block)

        sums.add_mixed = mix
        try:
            return super().advance(effect)
        finally:
            sums.add_mixed = sorted_mix


# ---------------------------------------------------------------- sessions
def with_parts(
    *, sender: type[Sender] = Sender, receiver: type[Receiver] = Receiver, uplink: type[Uplink] = Uplink
) -> type[Session]:
    """A session whose parts are of these kinds."""

    class Made(Session):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]
            for end in self.receivers.values():
                end.__class__ = receiver

        def step(self, event: object, now_ns: int) -> tuple[object, ...]:
            if self._phase is not SessionPhase.STARTING:
                self._uplink.__class__ = uplink
            if self._inside is not None:
                for end in self._inside._to.values():
                    end.__class__ = sender
            return super().step(event, now_ns)

    return Made


class TrustsWhoeverAnswers(Sender):
    """It takes the rounds that another agent lacks, or that are lacked in another run, for those of its peer."""

    def _is_it(self, resume: Resume) -> bool:
        return True


class KeepsTheQueue(Sender):
    """What was queued for a call that broke goes out on the next one, beside what the machine sends again."""

    def _lost(self, error: PeerError, out: list[object], now_ns: int) -> None:
        queue = list(self._queue)
        super()._lost(error, out, now_ns)
        self._queue.extend(queue)


class NeverDoubts(Sender):
    """No watchdog: a peer that takes nothing and says nothing is waited for without end."""

    def next_deadline_ns(self) -> int | None:
        return self._deadline_ns if self._phase is SenderPhase.AWAY else None

    def _tick(self, out: list[object], now_ns: int) -> None:
        if self._phase is SenderPhase.AWAY:
            super()._tick(out, now_ns)


class KeepsTheOlderCall(Receiver):
    """A newer call of the same neighbour is served without ending the older, whose vectors still count."""

    def step(self, event: object, now_ns: int) -> tuple[object, ...]:
        calls = self.__dict__.setdefault("calls", set())
        if isinstance(event, Accepted):
            calls.add(event.call)
            return tuple(e for e in super().step(event, now_ns) if not isinstance(e, End))
        if isinstance(event, Heard) and event.call in calls and event.call != self._call:
            return tuple(VectorReceived(self._sender, payload) for payload in event.message)  # type: ignore[attr-defined]
        return super().step(event, now_ns)


class KeepsTheFirstCall(Receiver):
    """A newer call is turned away while the older one seems to be open."""

    def _replace(self, call: Call, out: list[object]) -> None:
        if self._phase in (ReceiverPhase.OPEN, ReceiverPhase.FULL):
            out.append(End(call))
        else:
            super()._replace(call, out)


class AsksFromTheWindow(Receiver):
    """A call that comes again is asked for everything that is not mixed, also for what is here."""

    def _begin(self, out: list[object]) -> None:
        needs = self._window.needs
        low = self._window.window()[0]
        self._window = _Asks(self._window, low)  # type: ignore[assignment]
        super()._begin(out)
        self._window = self._window.inner  # type: ignore[attr-defined]
        assert self._window.needs == needs


@dataclass
class _Asks:
    inner: Window
    ahead: int

    @property
    def mixed_before(self) -> int:
        return self.inner.mixed_before

    def needs(self, sender: int) -> tuple[int, int]:
        return self.ahead + 1, self.ahead + 1


class DoesNotReadTheHead(Session):
    def _is_the_ledger(self, welcome: Welcome, read: RunRead) -> bool:
        return True


class SpeaksOfTheRoundBefore(Session):
    """What it says that it received is of another round."""

    def _open(self) -> None:
        super()._open()
        assert self._inside is not None
        digests, own = self._inside._ears.digests, DIGEST_BYTES * len(self._inside.agent.edges.streams)
        words = digests.words
        digests.words = lambda k: words(k)[:own] + words(max(k - 1, 0))[own:]  # type: ignore[method-assign]


class BreaksWithoutAWord(Session):
    """Whoever breaks is gone, and the others wait in vain."""

    def _fail(self, error: DpgtError, out: list[object], now_ns: int) -> None:
        self._leave(error, (), out, now_ns)


class LeavesWhenSaved(Session):
    """It does not wait for Goodbye: whoever has its result is done."""

    def step(self, event: object, now_ns: int) -> tuple[object, ...]:
        effects = super().step(event, now_ns)
        if self._phase is SessionPhase.INSIDE and self.reported:
            out: list[object] = [*effects]
            self._farewell(Exit(ExitCode.DONE), out, now_ns)
            return tuple(out)
        return effects


class ReportsOnce(Session):
    """A coordinator that came back does not hear the result again."""

    def _step_inside(self, event: object, out: list[object], now_ns: int) -> None:
        if not isinstance(event, Repeat):
            super()._step_inside(event, out, now_ns)


class WaitsForAHungCoordinator(Uplink):
    """No heartbeats count: a call that is open is good."""

    def _tick(self, out: list[object], now_ns: int) -> None:
        self._heard_ns = self._awake.at(now_ns)
        super()._tick(out, now_ns)


class GivesUpAtOnce(Uplink):
    """A coordinator that is away is lost."""

    def _lost(self, error: PeerError, out: list[object], now_ns: int) -> None:
        self._patience_ns = -1
        super()._lost(error, out, now_ns)


# ---------------------------------------------------------------- coordinators
class AnnouncesTooMuch(co.CoordinatorMachine):
    @property
    def all_durable_through(self) -> int:
        return self.k - 1


class OpensForTheFastest(co.CoordinatorMachine):
    @property
    def k(self) -> int:
        return max(map(self.done, self._agents)) + 1


class ForgetsALostDone(co.CoordinatorMachine):
    def step(self, event: co.CoordinatorEvent, now_ns: int) -> tuple[co.CoordinatorEffect, ...]:
        effects = super().step(event, now_ns)
        if isinstance(event, co.AgentJoined):
            return tuple(e for e in effects if not (isinstance(e, co.Broadcast) and isinstance(e.message, Go)))
        return effects


class DismissesFirst(Coordination):
    def _translate(self, effect: co.CoordinatorEffect, out: Out) -> None:
        if isinstance(effect, co.Conclude) and effect.exit_code is ExitCode.DONE:
            self._members.broadcast(m.Goodbye(), out)
        super()._translate(effect, out)


# ---------------------------------------------------------------- seats
class LetsTwinsIn(Membership):
    def _doubt(self, call: Call, address: str, register: m.Register, out: Out, now_ns: int) -> None:
        self._admit(call, address, register, out, now_ns)


class DoubtsForAMoment(Membership):
    def _doubt(self, call: Call, address: str, register: m.Register, out: Out, now_ns: int) -> None:
        super()._doubt(call, address, register, out, now_ns)
        self._doubted[call] = replace(self._doubted[call], until_ns=now_ns + 1)


class HearsNoSignOfLife(Membership):
    def _keep_out(self, name: str, out: Out, now_ns: int) -> None:
        pass


class BelievesNoSuccessor(Membership):
    def _doubt(self, call: Call, address: str, register: m.Register, out: Out, now_ns: int) -> None:
        self._refuse(call, address, admission.twin(register.name), out, now_ns)


class ForgetsWhatTheFirstToldOf(Membership):
    def _register(self, call: Call, address: str, register: m.Register, out: Out, now_ns: int) -> None:
        first = self._seats.get(register.name)
        if first is not None and first.register.instance != register.instance:
            self._doubt(call, address, register, out, now_ns)
        else:
            super()._register(call, address, register, out, now_ns)


class NamesTheVersionFirst(Membership):
    def _register(self, call: Call, address: str, register: m.Register, out: Out, now_ns: int) -> None:
        if register.package_version != __version__:
            self._admit(call, address, register, out, now_ns)
        else:
            super()._register(call, address, register, out, now_ns)


class WelcomesWithoutAHead(Membership):
    def _say(self, seat: Seat, message: m.CoordinatorMessage, out: Out) -> None:
        if isinstance(message, m.Welcome):
            message = replace(message, ledger_round=-1, ledger_head=b"")
        super()._say(seat, message, out)


class SaysGoodbyeToAnybody(Membership):
    def _farewell(self, end: co.Conclude, register: m.Register) -> m.CoordinatorMessage:
        return m.Goodbye()


class KeepsTheDoorOpen(Membership):
    def over(self, last_word: co.Conclude, out: Out, now_ns: int) -> None:
        super().over(last_word, out, now_ns)
        self._door = Door.OPEN


class ForgetsWhoIsNotReady(Membership):
    def over(self, last_word: co.Conclude, out: Out, now_ns: int) -> None:
        for seat in self._seats.values():
            seat.ready = True
        super().over(last_word, out, now_ns)


# ---------------------------------------------------------------- heads, and the leave-taking
class NotesNoHead(Coordination):
    def step(self, event: CoordinationEvent, now_ns: int) -> tuple[CoordinationEffect, ...]:
        return tuple(e for e in super().step(event, now_ns) if not isinstance(e, NoteHead))


class NotesHeadsLast(Coordination):
    def step(self, event: CoordinationEvent, now_ns: int) -> tuple[CoordinationEffect, ...]:
        return tuple(sorted(super().step(event, now_ns), key=lambda e: isinstance(e, NoteHead)))


class LeavesAtOnce(Coordination):
    def _part(self, out: Out, now_ns: int) -> None:
        self._until_ns = now_ns
        super()._part(out, now_ns)


class WaitsForNobodyLate(Coordination):
    def _part(self, out: Out, now_ns: int) -> None:
        if self._stage is Stage.LATE or self._members.empty:
            self._until_ns = now_ns
            self._stage = Stage.LATE
        super()._part(out, now_ns)


class LeavesWithoutAWord(Coordination):
    def _closed(self, conclude: co.Conclude, out: Out, now_ns: int) -> None:
        self._dismissed = False
        super()._closed(conclude, out, now_ns)


def _session(kind: Callable[..., Session], *checkers: str, seed: int = 0) -> Mutant:
    return Mutant(Parts(session=kind), frozenset(checkers), seed)


def _keys(kind: Callable[..., Session], *, seed: int = 0) -> Mutant:
    return Mutant(Parts(session=kind), frozenset({"keys", "liveness"}), seed, sharing)


def _agent(
    kind: Callable[..., AgentMachine], *checkers: str, seed: int = 0, plan: Callable[[int], Plan] = plan_for
) -> Mutant:
    return Mutant(Parts(agent=kind), frozenset(checkers), seed, plan)


def _barrier(kind: Callable[..., co.CoordinatorMachine], *checkers: str) -> Mutant:
    return Mutant(Parts(barrier=kind), frozenset(checkers))


def _coordinator(kind: Callable[..., Coordination], *checkers: str, seed: int = 0) -> Mutant:
    return Mutant(Parts(coordination=kind), frozenset(checkers), seed)


def _seats(kind: Callable[..., Membership], *checkers: str, seed: int = 0) -> Mutant:
    return Mutant(Parts(membership=kind), frozenset(checkers), seed)


MUTANTS: dict[str, Mutant] = {
    "send before persist": _agent(SendsBeforePersist, "durable"),
    "redraw on resume": _agent(RedrawsOnResume, "draws"),
    "no de-duplication of y": _agent(with_inbox(CountsTwice), "mixing", seed=39),
    "arrival-order sum": Mutant(
        Parts(agent=with_inbox(KeepsTheOrderOfArrival), work=SumsAsItArrives), frozenset({"oracle", "replay"})
    ),
    "arrival taken as durable": _agent(TakesArrivedForDurable, "retention", "end"),
    "round k-1 accepted at k": _agent(with_inbox(TakesTheRoundBefore), "mixing", "gate", "assertion", "order", seed=26),
    "missing ledger row": _agent(ForgetsALedgerRow, "ledger"),
    **{name: _agent(kind, checker) for name, (kind, checker) in BESIDE.items()},
    "the row before the file": Mutant(Parts(state_first=False), frozenset({"states", "retention"})),
    "budget checked after the send": _agent(ChecksTheBudgetLate, "cap"),
    "batch drawn again after a crash": _agent(RedrawsTheBatch, "draws", "replay", "oracle"),
    "an old copy is trusted": _agent(TrustsAnOldCopy, "stale", "liveness", seed=350),
    "a replaying neighbour proves nothing": _agent(TellsOnlyWhatItLacks, "replay", seed=718, plan=forgotten),
    "draws before anybody was asked": _agent(DrawsWithoutAsking, "stale", "replay", "liveness", seed=1_468),
    "no resend": _agent(ForgetsToSendAgain, "gate", "liveness"),
    "agents ignore the barrier": _agent(IgnoresTheBarrier, "barrier"),
    "durable announced when mixed": _barrier(AnnouncesTooMuch, "retention"),
    "barrier follows the fastest": _barrier(OpensForTheFastest, "barrier"),
    "a lost Done stays lost": _barrier(ForgetsALostDone, "liveness"),
    "whoever answers is believed": _session(with_parts(sender=TrustsWhoeverAnswers), "gate", seed=94),
    "no watchdog over a call": _session(with_parts(sender=NeverDoubts), "liveness", seed=59),
    "an older call goes on": _session(with_parts(receiver=KeepsTheOlderCall), "calls"),
    "the ledger's head is not compared": _session(DoesNotReadTheHead, "stale", seed=2_094),
    "a hung coordinator is waited for": _session(with_parts(uplink=WaitsForAHungCoordinator), "liveness", seed=18),
    "a broken call's queue is kept": _session(with_parts(sender=KeepsTheQueue), "gate", seed=78),
    "a newer call is turned away": _session(with_parts(receiver=KeepsTheFirstCall), "calls"),
    "resume asks too late": _session(with_parts(receiver=AsksFromTheWindow), "end"),
    "ready before the keys are there": _keys(agreeing(IsReadyAtOnce)),
    "a key is offered once": _keys(agreeing(OffersOnce), seed=24),
    "a key is proved once": _keys(agreeing(ProvesOnce), seed=24),
    "words of another round": _session(SpeaksOfTheRoundBefore, "alarm"),
    "breaks without a word": _session(BreaksWithoutAWord, "liveness"),
    "leaves when its result is saved": _session(LeavesWhenSaved, "liveness"),
    "a result is reported once": _session(ReportsOnce, "liveness", seed=54),
    "a coordinator that is away is lost": _session(with_parts(uplink=GivesUpAtOnce), "gate"),
    "goodbye before the end is durable": _coordinator(DismissesFirst, "goodbye"),
    "twins are let in": _seats(LetsTwinsIn, "twins"),
    "a twin is doubted for a moment": _seats(DoubtsForAMoment, "twins"),
    "a sign of life is not one": _seats(HearsNoSignOfLife, "twins", seed=400),
    "no successor is believed": _seats(BelievesNoSuccessor, "twins"),
    "what the first told of is forgotten": _seats(ForgetsWhatTheFirstToldOf, "twins", seed=65),
    "a twin's version ends the run": _seats(NamesTheVersionFirst, "twins", "end", seed=25),
    "heads are not kept": _coordinator(NotesNoHead, "heads"),
    "heads are kept after the barrier moved": _coordinator(NotesHeadsLast, "heads"),
    "heads are not told": _seats(WelcomesWithoutAHead, "heads"),
    "goodbye to whoever comes late": _seats(SaysGoodbyeToAnybody, "goodbye"),
    "the door stays open after the end": _seats(KeepsTheDoorOpen, "farewell"),
    "who is not ready is left without a word": _seats(ForgetsWhoIsNotReady, "farewell", seed=1_170),
    "leaves at once": _coordinator(LeavesAtOnce, "farewell"),
    "leaves who was away": _coordinator(WaitsForNobodyLate, "farewell", seed=21),
    "leaves without a word": _coordinator(LeavesWithoutAWord, "farewell"),
}
"""The first nine are those every change of the protocol must be held against."""
