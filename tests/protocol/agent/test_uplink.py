"""The agent's call to the coordinator, step by step: registration, what waits, heartbeats, patience."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpgt_node.errors import PeerError, PeerLost, Untrusted
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.agent.uplink import FINAL, HOLD_BYTES, HOLD_NS, Uplink, UplinkPhase
from dpgt_node.protocol.calls import COORDINATOR, Call, Dial, End, Ended, Heard, Note, Opened, Taken, Write
from dpgt_node.protocol.clock import SECOND
from dpgt_node.protocol.digests import RESAID
from dpgt_node.protocol.done import MAX_DONES
from dpgt_node.protocol.types import Tick

FIRST, THEN, BEAT = 600 * SECOND, 80 * SECOND, 2 * SECOND
ONE, TWO = Call(COORDINATOR, 1, dialled=True), Call(COORDINATOR, 2, dialled=True)
REGISTER = m.Register("agent-1", "0" * 64, "{}", "h:1", None, 3, "0" * 64, -1, -1, -1, False, b"", b"i" * 16, "1")
WELCOME = m.Welcome(b"r" * 16, "0" * 64, "{}", -1, package_version="1")
READY = s.Say(m.Ready(), first=True)
DONE = s.Say(m.Done(0, -1, 0))
AWAY = PeerError("away", grpc_status="UNAVAILABLE")


def uplink(kind: type[Uplink] = Uplink, beat_ns: int = BEAT) -> Uplink:
    times = {"first_patience_ns": FIRST, "patience_ns": THEN, "heartbeat_ns": beat_ns}
    up = kind("h:9", lambda: REGISTER, now_ns=0, **times)
    assert up.step(Tick(), 0) == (Dial(ONE, "h:9"),)
    return up


def welcomed(kind: type[Uplink] = Uplink, beat_ns: int = BEAT) -> Uplink:
    up = uplink(kind, beat_ns)
    assert up.step(Opened(ONE), 1) == (Write(ONE, REGISTER),)
    up.step(Taken(ONE, 0, 0), 1)
    assert up.step(Heard(ONE, WELCOME), 2) == (s.Told(WELCOME),)
    return up


def admitted(kind: type[Uplink] = Uplink, beat_ns: int = BEAT) -> Uplink:
    up = welcomed(kind, beat_ns)
    assert up.step(READY, 3) == (Write(ONE, m.Ready()),)
    up.step(Taken(ONE, 0, 0), 3)
    return up


def passed(up: Uplink, now: int, until: int) -> list[Any]:
    """Every effect of the ticks that are due until then."""
    out: list[Any] = []
    while (due := up.next_deadline_ns()) is not None and due <= until:
        now = max(now, due)
        out += up.step(Tick(), now)
    return out


def nothing_overtakes_ready(kind: type[Uplink]) -> None:
    up = uplink(kind)
    assert up.step(DONE, 0) == () == up.step(READY, 0)
    up.step(Opened(ONE), 1)
    assert up.step(DONE, 1) == () == up.step(READY, 1), "there is no Welcome to answer yet"
    up.step(Heard(ONE, WELCOME), 2)
    assert up.step(DONE, 2) == ()
    assert up.step(READY, 3) == (Write(ONE, m.Ready()), *(Write(ONE, DONE.message),) * 3)
    assert up.step(DONE, 4) == (Write(ONE, DONE.message),)


def what_waited_for_a_call_that_broke_is_dropped(kind: type[Uplink]) -> None:
    up = welcomed(kind)
    up.step(DONE, 2)
    up.step(Ended(ONE), 3)
    assert passed(up, 3, SECOND) == [Dial(TWO, "h:9")]
    assert up.step(Heard(ONE, WELCOME), SECOND) == (), "of a call before"
    assert up.step(Opened(TWO), SECOND) == (Write(TWO, REGISTER),)
    up.step(Heard(TWO, WELCOME), SECOND)
    assert up.step(READY, SECOND) == (Write(TWO, m.Ready()),), "Register said it all again"


def a_heartbeat_goes_where_nothing_waits(kind: type[Uplink]) -> None:
    up = admitted(kind)
    assert up.step(Heard(ONE, m.Heartbeat()), 4) == ()
    beat = (Write(ONE, m.Heartbeat()),)
    assert passed(up, 4, 1 + BEAT) == list(beat)
    assert passed(up, 4, 1 + 2 * BEAT) == [], "the one before still waits"
    up.step(Taken(ONE, 0, 0), 1 + 2 * BEAT)
    assert passed(up, 4, 1 + 3 * BEAT) == list(beat)
    assert passed(welcomed(kind), 4, 1 + 3 * BEAT) == []


def a_silent_coordinator_is_left_and_tried_again(kind: type[Uplink]) -> None:
    up = admitted(kind)
    found = passed(up, 3, THEN // 2 + BEAT + 1)
    assert found[-2] == End(ONE) and isinstance(found[-1], Note) and "no sign of life" in found[-1].text
    assert up.phase is UplinkPhase.AWAY
    early = uplink(kind)
    early.step(Opened(ONE), 1)
    assert End(ONE) in passed(early, 1, THEN // 2 + 2 * BEAT), "it hangs before it welcomes"
    lively = admitted(kind)
    for beat in range(100):
        lively.step(Heard(ONE, m.Heartbeat()), beat * BEAT)
        assert End(ONE) not in passed(lively, beat * BEAT, (beat + 1) * BEAT)


def lose(up: Uplink, until: int) -> list[Any]:
    """Nobody answers any more, for so long."""
    out: list[Any] = []
    now = 3
    out += up.step(Ended(up._call, AWAY), now)
    while now < until and not any(isinstance(effect, s.Abandoned) for effect in out):
        due = up.next_deadline_ns()
        assert due is not None
        now = max(now, due)
        out += up.step(Tick(), now)
        out += up.step(Ended(up._call, AWAY), now)
    return [effect for effect in out if not isinstance(effect, Dial)]


def patience_ends(kind: type[Uplink]) -> None:
    (note, given_up) = lose(uplink(kind), 2 * FIRST)
    assert note == Note("warning", "coordinator at h:9: away (trying again)"), "once"
    assert type(given_up.error) is PeerError and str(given_up.error) == "no coordinator at h:9 for 600 s: away"
    assert len(lose(uplink(kind), FIRST - 2 * SECOND)) == 1
    (_, given_up) = lose(admitted(kind), 2 * THEN)
    assert type(given_up.error) is PeerLost and "for 80 s: away" in str(given_up.error)


def a_call_that_was_answered_ends_the_spell(kind: type[Uplink]) -> None:
    up = uplink(kind)
    lose(up, 20 * SECOND)
    up.step(Tick(), up.next_deadline_ns() or 0)
    up.step(Opened(up._call), 30 * SECOND)
    up.step(Heard(up._call, WELCOME), 30 * SECOND)
    up.step(Ended(up._call, AWAY), 31 * SECOND)
    assert up.next_deadline_ns() == 31 * SECOND + SECOND // 20, "the first wait of a new spell"


def attempts_come_once_a_second(kind: type[Uplink]) -> None:
    """At one that refuses, one that closes what it accepted, and one that welcomes and closes."""
    for words in ((), (Opened,), (Opened, WELCOME)):
        up, now, dials, notes, minute = uplink(kind), 0, 0, 0, 60 * SECOND
        while now < minute:
            for word in words:
                up.step(Opened(up._call) if word is Opened else Heard(up._call, word), now)
            cause = PeerError(("refused", "reset", "closed")[dials % 3], grpc_status="UNAVAILABLE")
            notes += sum(isinstance(effect, Note) for effect in up.step(Ended(up._call, cause), now))
            while (due := up.next_deadline_ns()) is not None and up.phase is UplinkPhase.AWAY:
                now = max(now, due)
                dials += sum(isinstance(effect, Dial) for effect in up.step(Tick(), now))
        assert 60 <= dials <= 66 and notes == 3, (words, dials, notes)


def the_strongest_cause_is_the_last_word(kind: type[Uplink]) -> None:
    up = uplink(kind)
    busy = PeerError("busy", grpc_status="RESOURCE_EXHAUSTED")
    for attempt, cause in enumerate((AWAY, Untrusted("no authority of ours"), busy), 1):
        up.step(Ended(up._call, cause), attempt * SECOND)
        up.step(Tick(), (attempt + 1) * SECOND)
    given_up = lose(up, 2 * FIRST)[-1]
    assert str(given_up.error) == "no coordinator at h:9 for 600 s: no authority of ours"


def a_call_that_just_opened_is_not_silent(kind: type[Uplink]) -> None:
    up = admitted(kind)
    lose(up, 3 * THEN // 4)
    now = up.next_deadline_ns() or 0
    up.step(Tick(), now)
    up.step(Opened(up._call), now)
    assert not any(isinstance(effect, End) for effect in passed(up, now, now + 2 * BEAT))


def sleep_is_not_silence(kind: type[Uplink]) -> None:
    up = admitted(kind)
    assert up.step(Tick(), 3600 * SECOND) == (Write(ONE, m.Heartbeat()),), "this process was stopped for an hour"
    assert not any(isinstance(effect, s.Abandoned) for effect in admitted(kind).step(Ended(ONE, AWAY), 3600 * SECOND))


def some_refusals_are_final(kind: type[Uplink]) -> None:
    for status in sorted(FINAL):
        error = PeerError("not you", grpc_status=status)
        up = uplink(kind)
        assert up.step(Ended(ONE, error), 1) == (s.Abandoned(error),)
        assert up.next_deadline_ns() is None and up.step(Opened(ONE), 2) == () == up.step(DONE, 2)


def of_round(k: int, words: bytes = b"") -> m.Done:
    return m.Done(k, -1, 0, words=words)


def held(up: Uplink, *rounds: int, now: int = 4) -> None:
    """Reports in the midst of a block."""
    for k in rounds:
        assert up.step(s.Say(of_round(k), more=True), now) == ()


def reports_in_the_midst_of_a_block_go_together(kind: type[Uplink]) -> None:
    up, three = admitted(kind), Write(ONE, m.Dones((of_round(0), of_round(1), of_round(2))))
    held(up, 0, 1)
    assert up.step(s.Say(of_round(2)), 5) == (three,), "with the last of the block"
    assert up.step(s.Say(of_round(3)), 5) == (Write(ONE, of_round(3)),)
    held(up, 4, now=6)
    held(up, 5, now=6 + HOLD_NS // 2)
    assert up.next_deadline_ns() == 6 + HOLD_NS
    assert up.step(Tick(), 6 + HOLD_NS - 1) == ()
    assert passed(up, 6, 6 + HOLD_NS) == [Write(ONE, m.Dones((of_round(4), of_round(5))))], "they do not wait long"
    held(up, 6, now=7 + HOLD_NS)
    metrics = m.MetricsReport(7)
    assert up.step(s.Say(metrics), 8 + HOLD_NS) == (Write(ONE, of_round(6)), Write(ONE, metrics)), "nothing overtakes"
    assert up.next_deadline_ns() == 1 + BEAT
    held(up, 7, now=9 + HOLD_NS)
    assert up.step(Heard(ONE, m.GoMessage(20)), 9 + HOLD_NS) == (s.Told(m.GoMessage(20)),)
    stop = m.StopMessage("enough", 5)
    assert up.step(Heard(ONE, stop), 9 + HOLD_NS) == (Write(ONE, of_round(7)), s.Told(stop)), "before it takes leave"


def nothing_is_held_beyond_a_heartbeat(kind: type[Uplink]) -> None:
    up = admitted(kind, HOLD_NS // 4)
    held(up, 0)
    assert passed(up, 4, 4 + HOLD_NS // 4)[-1:] == [Write(ONE, of_round(0))]


def what_is_held_has_a_limit(kind: type[Uplink]) -> None:
    assert MAX_DONES <= RESAID, "reports that go with a broken call are said again"
    up = admitted(kind)
    held(up, *range(MAX_DONES - 1))
    (full,) = up.step(s.Say(of_round(MAX_DONES - 1), more=True), 4)
    assert full == Write(ONE, m.Dones(tuple(map(of_round, range(MAX_DONES)))))
    (large,) = up.step(s.Say(of_round(0, bytes(HOLD_BYTES)), more=True), 4)
    assert large == Write(ONE, of_round(0, bytes(HOLD_BYTES)))
    held(up, 1)
    two = Write(ONE, m.Dones((of_round(1), of_round(2))))
    assert up.step(s.Say(of_round(2)), 4) == (two,), "what was let go counts no more"


def what_was_held_for_a_call_that_broke_is_dropped(kind: type[Uplink]) -> None:
    up = admitted(kind)
    held(up, 0, 1)
    up.step(Ended(ONE, AWAY), 5)
    assert passed(up, 5, SECOND) == [Dial(TWO, "h:9")]
    up.step(Opened(TWO), SECOND)
    up.step(Heard(TWO, WELCOME), SECOND)
    assert up.step(READY, SECOND) == (Write(TWO, m.Ready()),)
    assert up.step(s.Say(of_round(2)), SECOND) == (Write(TWO, of_round(2)),), "Register said the others"


def leaves(kind: type[Uplink]) -> None:
    up = admitted(kind)
    held(up, 0)
    assert up.step(s.Leave(), 4) == (End(ONE),) and up.step(DONE, 5) == () and up.next_deadline_ns() is None


SCENES = [
    nothing_overtakes_ready,
    what_waited_for_a_call_that_broke_is_dropped,
    a_heartbeat_goes_where_nothing_waits,
    a_silent_coordinator_is_left_and_tried_again,
    patience_ends,
    a_call_that_was_answered_ends_the_spell,
    attempts_come_once_a_second,
    the_strongest_cause_is_the_last_word,
    a_call_that_just_opened_is_not_silent,
    sleep_is_not_silence,
    some_refusals_are_final,
    reports_in_the_midst_of_a_block_go_together,
    what_is_held_has_a_limit,
    nothing_is_held_beyond_a_heartbeat,
    what_was_held_for_a_call_that_broke_is_dropped,
    leaves,
]


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_goes_as_the_table_says(scene: Callable[[type[Uplink]], None]) -> None:
    scene(Uplink)


class SpeaksAtOnce(Uplink):
    def _say(self, said: s.Say, out: list[Any], now_ns: int) -> None:
        if self._phase in (UplinkPhase.REGISTERED, UplinkPhase.WELCOME):
            self._write(said.message, out)
        else:
            super()._say(said, out, now_ns)


class HoldsWithoutEnd(Uplink):
    def _hold(self, done: m.Done, now_ns: int) -> None:
        super()._hold(done, now_ns)
        self._hold_until_ns = now_ns + HOLD_NS  # with each one anew


class HoldsBeyondABeat(Uplink):
    def _hold(self, done: m.Done, now_ns: int) -> None:
        since = self._hold_until_ns
        super()._hold(done, now_ns)
        self._hold_until_ns = now_ns + HOLD_NS if since is None else since


class Overtakes(Uplink):
    def _say(self, said: s.Say, out: list[Any], now_ns: int) -> None:
        if isinstance(said.message, m.Done) or self._phase is not UplinkPhase.ADMITTED:
            super()._say(said, out, now_ns)
        else:
            self._write(said.message, out)


class KeepsWhatItHeld(Uplink):
    def _lost(self, error: PeerError, out: list[Any], now_ns: int) -> None:
        kept = self._held
        super()._lost(error, out, now_ns)
        self._held = kept


class LeavesTheLastUnsaid(Uplink):
    def _heard(self, message: object, out: list[Any], now_ns: int) -> None:
        kept, self._held = self._held, []
        super()._heard(message, out, now_ns)
        self._held = kept


class SaysOnlyTheLast(Uplink):
    def _let_go(self, out: list[Any]) -> None:
        del self._held[:-1]
        super()._let_go(out)


class KeepsWhatWaited(Uplink):
    def _tick(self, out: list[Any], now_ns: int) -> None:
        waiting = list(self._waiting)
        super()._tick(out, now_ns)
        self._waiting.extend(message for message in waiting if message not in self._waiting)


class BeatsAlways(Uplink):
    def _tick(self, out: list[Any], now_ns: int) -> None:
        self._untaken = False
        super()._tick(out, now_ns)


class NeverDoubts(Uplink):
    def _tick(self, out: list[Any], now_ns: int) -> None:
        self._heard_ns = self._awake.at(now_ns)
        super()._tick(out, now_ns)


class TakesSleepForSilence(Uplink):
    def _tick(self, out: list[Any], now_ns: int) -> None:
        self._awake._step_ns = 10**18
        super()._tick(out, now_ns)


class WaitsForEver(Uplink):
    def _lost(self, error: PeerError, out: list[Any], now_ns: int) -> None:
        self._heard_ns = self._awake.at(now_ns)
        super()._lost(error, out, now_ns)


class TriesAgainWhatIsFinal(Uplink):
    def _lost(self, error: PeerError, out: list[Any], now_ns: int) -> None:
        super()._lost(PeerError(str(error), grpc_status="UNAVAILABLE"), out, now_ns)


class NeverShortensItsPatience(Uplink):
    def _heard(self, message: object, out: list[Any], now_ns: int) -> None:
        super()._heard(message, out, now_ns)
        self._patience_ns = FIRST


class Races(Uplink):
    """Every answer is a success, also of one that hangs up at once."""

    def _lost(self, error: PeerError, out: list[Any], now_ns: int) -> None:
        if self._answered:
            self._backoff.worked(10 * SECOND)
        super()._lost(error, out, now_ns)


class SaysTheLastCause(Uplink):
    def _lost(self, error: PeerError, out: list[Any], now_ns: int) -> None:
        self._strongest = None
        super()._lost(error, out, now_ns)


MUTANTS = [
    HoldsWithoutEnd,
    HoldsBeyondABeat,
    Overtakes,
    KeepsWhatItHeld,
    LeavesTheLastUnsaid,
    SaysOnlyTheLast,
    Races,
    SaysTheLastCause,
    SpeaksAtOnce,
    KeepsWhatWaited,
    BeatsAlways,
    NeverDoubts,
    TakesSleepForSilence,
    WaitsForEver,
    TriesAgainWhatIsFinal,
    NeverShortensItsPatience,
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_does_not_survive(mutant: type[Uplink]) -> None:
    def survives(scene: Callable[[type[Uplink]], None]) -> bool:
        try:
            scene(mutant)
        except (AssertionError, ValueError, IndexError):
            return False
        return True

    assert not all(survives(scene) for scene in SCENES)
