"""The sender's end of an edge, step by step: opening, sending, what ends a call, and what ends patience."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpgt_node.errors import PeerError, PeerLost, Untrusted
from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.calls import Call, Dial, End, Ended, Heard, Note, Opened, Taken, Write
from dpgt_node.protocol.clock import SECOND
from dpgt_node.protocol.edge.sender import Sender, SenderPhase
from dpgt_node.protocol.messages import Heartbeat, Received, Resume
from tests.protocol import cases

RUN = b"r" * 16
PATIENCE, SILENCE = 100 * SECOND, 10 * SECOND
FIRST = Call("agent-2", 1, dialled=True)
SECOND_CALL = Call("agent-2", 2, dialled=True)
RESUME = Resume("agent-2", RUN, 3, 4, 2)
NEEDS, GONE = t.PeerNeeds(1, 3, 4, 2), t.PeerGone(1)
ROUND = (cases.payload("X", 5), cases.payload("Y", 5))
SEND = t.Send(1, ROUND)
Make = Callable[[], Sender]


def sender(kind: type[Sender] = Sender) -> Sender:
    return kind(1, "agent-2", RUN, patience_ns=PATIENCE, silence_ns=SILENCE)


def opened(kind: type[Sender] = Sender) -> Sender:
    end = sender(kind)
    assert end.step(s.Address("h:1"), 0) == (Dial(FIRST, "h:1"),)
    assert end.step(Opened(FIRST), 1) == ()
    assert end.step(Heard(FIRST, RESUME), 2) == (NEEDS,)
    return end


def without_notes(effects: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(effect for effect in effects if not isinstance(effect, Note))


# --- the table, as scenes that mutants must not survive ---------------------------------------------------------------


def opens_and_sends(kind: type[Sender]) -> None:
    end = opened(kind)
    assert end.phase is SenderPhase.READY and end.next_deadline_ns() is None and end.down_ns(50) == 0
    assert end.step(SEND, 3) == (Write(FIRST, ROUND),)
    assert end.step(t.Resend(1, 2, ("Y",)), 4) == () and end.waiting == 1, "one item at a time"
    assert end.step(Taken(FIRST, 70, 1), 5) == () and end.phase is SenderPhase.WRITING
    assert end.step(Taken(FIRST, 30, 0), 6) == (s.ReadRound(FIRST, 2, ("Y",)),), "a stored round is read in its turn"
    assert end.step(s.RoundRead(FIRST, ROUND[1:]), 7) == (Write(FIRST, ROUND[1:]),)
    assert end.step(Heard(FIRST, Received(2)), 8) == () and end.bytes_sent == 100


def believes_only_its_peer_in_its_run(kind: type[Sender]) -> None:
    for answer in (Resume("agent-3", RUN, 3, 4), Resume("agent-2", b"z" * 16, 3, 4), Received(1), Heartbeat()):
        end = sender(kind)
        end.step(s.Address("h:1"), 0)
        end.step(Opened(FIRST), 1)
        assert without_notes(end.step(Heard(FIRST, answer), 2)) == (End(FIRST),), answer
        assert end.phase is SenderPhase.AWAY


def drops_what_waits_when_the_call_breaks(kind: type[Sender]) -> None:
    end = opened(kind)
    end.step(SEND, 3)
    end.step(t.Resend(1, 2, ("X",)), 4)
    assert without_notes(end.step(Ended(FIRST), 5)) == (GONE,)
    assert end.step(SEND, 6) == () and end.waiting == 0, "the peer is away: it will say what it lacks"
    due = end.next_deadline_ns()
    assert due is not None and end.step(t.Tick(), due) == (Dial(SECOND_CALL, "h:1"),)
    assert end.step(Heard(FIRST, RESUME), due) == () and end.step(Taken(FIRST, 9, 0), due) == (), "of a call before"
    end.step(Opened(SECOND_CALL), due)
    assert end.step(Heard(SECOND_CALL, RESUME), due) == (NEEDS,), "nothing of before is sent"


def reads_nothing_for_a_call_that_is_gone(kind: type[Sender]) -> None:
    end = opened(kind)
    end.step(t.Resend(1, 2, ("X",)), 3)
    end.step(Ended(FIRST), 4)
    assert end.step(s.RoundRead(FIRST, ROUND), 5) == ()


def gives_up_a_call_that_is_silent(kind: type[Sender]) -> None:
    end = sender(kind)
    end.step(s.Address("h:1"), 0)
    end.step(Opened(FIRST), 1)
    assert end.step(t.Tick(), SILENCE) == ()
    ended, note = end.step(t.Tick(), SILENCE + 1)
    assert ended == End(FIRST) and "no answer for 10 s" in note.text


def gives_up_a_call_that_takes_no_byte_but_not_a_slow_one(kind: type[Sender]) -> None:
    end = opened(kind)
    end.step(SEND, 3)
    late = 3
    for frames in range(1, 6):  # a chunk now and then is enough
        late += SILENCE - 1
        assert end.step(t.Tick(), late) == ()
        end.step(Taken(FIRST, 1 << 20, 1), late)
        late += 3
        assert end.step(t.Tick(), late) == ()
        end.step(Heard(FIRST, Received(frames)), late)
    *effects, note = end.step(t.Tick(), late + SILENCE)
    assert effects == [End(FIRST), GONE] and "agent-2 took no byte for 10 s" in note.text
    stuck = opened(kind)
    stuck.step(SEND, 3)
    assert without_notes(stuck.step(t.Tick(), 3 + SILENCE)) == (End(FIRST), GONE), "not even the first byte"
    assert opened(kind).step(t.Tick(), 10**6 * SECOND) == (), "a call without anything to send may rest"


def gives_up_a_call_that_swallows(kind: type[Sender]) -> None:
    """The transport takes what is written, and at the far end nobody reads it: a vector would be lost for ever."""
    for nbytes, patience, said in ((70, SILENCE // 2, "5 s"), (1 << 20, 2 * SILENCE, "20 s")):
        end = opened(kind)
        end.step(SEND, 3)
        end.step(Taken(FIRST, nbytes, 0), 5)
        assert end.phase is SenderPhase.READY and end.next_deadline_ns() == 5 + patience
        end.step(SEND, 6)
        end.step(Taken(FIRST, 70, 0), 7)
        assert end.step(t.Tick(), 4 + patience) == ()
        *effects, note = end.step(t.Tick(), 5 + patience)
        assert effects == [End(FIRST), GONE] and f"agent-2 has acknowledged nothing for {said}" in note.text
    due = end.next_deadline_ns()
    assert due is not None and end.step(t.Tick(), due) == (Dial(SECOND_CALL, "h:1"),)
    end.step(Opened(SECOND_CALL), due)
    end.step(Heard(SECOND_CALL, RESUME), due)
    assert end.next_deadline_ns() is None, "nothing was sent on this call"
    end.step(SEND, due)
    end.step(Taken(SECOND_CALL, 70, 0), due)
    end.step(Heard(SECOND_CALL, Received(1)), due)
    assert end.next_deadline_ns() is None and end.step(t.Tick(), 10**6 * SECOND) == ()


def waits_for_a_peer_that_is_full(kind: type[Sender]) -> None:
    """It takes nothing more for as long as its round takes, and says so."""
    end = opened(kind)
    end.step(SEND, 3)
    end.step(Taken(FIRST, 1 << 20, 0), 3)
    end.step(SEND, 3)  # flow control holds this one
    now = 3
    for _ in range(9):
        now += SILENCE - 1
        assert end.step(t.Tick(), now) == ()
        assert end.step(Heard(FIRST, Received(0)), now) == ()
    end.step(Taken(FIRST, 70, 0), now)
    assert end.step(Heard(FIRST, Received(2)), now) == () and end.next_deadline_ns() is None


def follows_its_peer(kind: type[Sender]) -> None:
    end = opened(kind)
    assert end.step(s.Address("h:1"), 3) == ()
    assert without_notes(end.step(s.Address("h:2"), 4)) == (End(FIRST), GONE)
    due = end.next_deadline_ns()
    assert due is not None and end.step(t.Tick(), due) == (Dial(SECOND_CALL, "h:2"),)


def loses_patience_with_distrust_only(kind: type[Sender]) -> None:
    def fail(end: Sender, error: PeerError | None, now: int) -> tuple[Any, ...]:
        if end.phase is SenderPhase.AWAY:
            end.step(t.Tick(), now)
        return without_notes(end.step(Ended(end._call, error), now))

    distrust = (Untrusted("not issued by the authority"), PeerError("no", grpc_status="PERMISSION_DENIED"))
    for error in distrust:
        end = sender(kind)
        end.step(s.Address("h:1"), 0)
        assert fail(end, error, SECOND) == ()
        assert fail(end, PeerError("away", grpc_status="UNAVAILABLE"), 50 * SECOND) == ()
        assert fail(end, error, 101 * SECOND) == ()
        (lost,) = fail(end, error, 101 * SECOND + 1)
        assert isinstance(lost.error, PeerLost) and "no trust between here and agent-2 for 100 s" in str(lost.error)
    end = sender(kind)
    end.step(s.Address("h:1"), 0)
    fail(end, distrust[0], SECOND)
    end.step(t.Tick(), 10 * SECOND)
    end.step(Opened(end._call), 10 * SECOND)
    end.step(Heard(end._call, RESUME), 10 * SECOND)
    fail(end, None, 11 * SECOND)
    assert fail(end, distrust[0], 150 * SECOND) == (), "it was believed in between"
    away = sender(kind)
    away.step(s.Address("h:1"), 0)
    for hour in range(1, 50):
        assert fail(away, PeerError("away", grpc_status="UNAVAILABLE"), hour * 3600 * SECOND) == ()


def says_a_cause_once_a_spell_and_waits_longer(kind: type[Sender]) -> None:
    end, now, notes, waits = sender(kind), 0, 0, []
    end.step(s.Address("h:1"), now)
    for _ in range(7):
        notes += len(end.step(Ended(end._call, PeerError("away", grpc_status="UNAVAILABLE")), now))
        due = end.next_deadline_ns()
        assert due is not None
        waits.append((due - now) / SECOND)
        now = due
        end.step(t.Tick(), now)
    assert notes == 1 and waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert end.down_ns(now) == now, "since it was first called, however often it was tried"
    assert end.trouble == "the other end cannot be reached"


def a_call_that_was_answered_ends_the_spell(kind: type[Sender]) -> None:
    end = sender(kind)
    end.step(s.Address("h:1"), 0)
    for now in range(1, 5):
        end.step(Ended(end._call, PeerError("away", grpc_status="UNAVAILABLE")), now * SECOND)
        end.step(t.Tick(), (now + 1) * SECOND)
    end.step(Opened(end._call), 6 * SECOND)
    end.step(Heard(end._call, RESUME), 6 * SECOND)
    end.step(Ended(end._call), 9 * SECOND)
    assert end.next_deadline_ns() == 9 * SECOND + SECOND // 20 and end.down_ns(11 * SECOND) == 2 * SECOND


def leaves(kind: type[Sender]) -> None:
    end = opened(kind)
    assert end.step(s.Leave(), 3) == (End(FIRST),) and end.next_deadline_ns() is None
    assert end.step(SEND, 4) == end.step(s.Address("h:9"), 5) == ()
    assert sender(kind).step(s.Leave(), 0) == ()


SCENES = [
    opens_and_sends,
    believes_only_its_peer_in_its_run,
    drops_what_waits_when_the_call_breaks,
    reads_nothing_for_a_call_that_is_gone,
    gives_up_a_call_that_is_silent,
    gives_up_a_call_that_takes_no_byte_but_not_a_slow_one,
    gives_up_a_call_that_swallows,
    waits_for_a_peer_that_is_full,
    follows_its_peer,
    loses_patience_with_distrust_only,
    says_a_cause_once_a_spell_and_waits_longer,
    a_call_that_was_answered_ends_the_spell,
    leaves,
]


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_goes_as_the_table_says(scene: Callable[[type[Sender]], None]) -> None:
    scene(Sender)


# --- mutants ----------------------------------------------------------------------------------------------------------


class BelievesAnybody(Sender):
    def _is_it(self, resume: Resume) -> bool:
        return True


class BelievesAnotherRun(Sender):
    def _is_it(self, resume: Resume) -> bool:
        return resume.receiver == self._peer


class KeepsTheQueue(Sender):
    def _lost(self, error: PeerError, out: list[Any], now_ns: int) -> None:
        kept = list(self._queue)
        super()._lost(error, out, now_ns)
        self._queue.extend(kept)


class CountsFromTheFirstByte(Sender):
    """Its watchdog takes a large vector's time for silence."""

    def _taken(self, rest: int, out: list[Any], now_ns: int) -> None:
        due = self._deadline_ns
        super()._taken(rest, out, now_ns)
        self._deadline_ns = due if rest else self._deadline_ns


class TakesTakenForArrived(Sender):
    """As it was: what the transport took is forgotten."""

    def next_deadline_ns(self) -> int | None:
        return self._deadline_ns


class LeavesWhoeverIsFull(Sender):
    def _acknowledged(self, received: Received, now_ns: int) -> None:
        due = self._deadline_ns
        super()._acknowledged(received, now_ns)
        self._deadline_ns = due


class CountsAcrossCalls(Sender):
    def _lost(self, error: PeerError, out: list[Any], now_ns: int) -> None:
        since = self._lacking_since_ns
        super()._lost(error, out, now_ns)
        self._lacking_since_ns = since


class NeverDoubts(Sender):
    def _tick(self, out: list[Any], now_ns: int) -> None:
        if self._phase is SenderPhase.AWAY:
            super()._tick(out, now_ns)


class ForgetsDistrust(Sender):
    """Every failure of another kind begins a new spell."""

    def _bear(self, error: PeerError, out: list[Any], now_ns: int) -> None:
        if not isinstance(error, Untrusted) and error.grpc_status == "UNAVAILABLE":
            self._distrust_since_ns = None
        super()._bear(error, out, now_ns)


class NeverForgivesDistrust(Sender):
    def _heard(self, message: object, out: list[Any], now_ns: int) -> None:
        since = self._distrust_since_ns
        super()._heard(message, out, now_ns)
        self._distrust_since_ns = since


class HurriesOn(Sender):
    """It takes an item for taken with its first bytes."""

    def _taken(self, rest: int, out: list[Any], now_ns: int) -> None:
        super()._taken(0, out, now_ns)


class StaysWhereItWas(Sender):
    def _move(self, address: str, out: list[Any], now_ns: int) -> None:
        if self._phase is SenderPhase.UNKNOWN:
            super()._move(address, out, now_ns)


MUTANTS = [
    BelievesAnybody,
    BelievesAnotherRun,
    KeepsTheQueue,
    CountsFromTheFirstByte,
    TakesTakenForArrived,
    LeavesWhoeverIsFull,
    CountsAcrossCalls,
    NeverDoubts,
    ForgetsDistrust,
    NeverForgivesDistrust,
    HurriesOn,
    StaysWhereItWas,
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_does_not_survive(mutant: type[Sender]) -> None:
    def survives(scene: Callable[[type[Sender]], None]) -> bool:
        try:
            scene(mutant)
        except (AssertionError, ValueError):
            return False
        return True

    assert not all(survives(scene) for scene in SCENES)
