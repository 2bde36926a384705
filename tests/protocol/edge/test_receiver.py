"""The receiver's end of an edge, step by step: waiting for Welcome, the window, replacement, acknowledgements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.calls import Accepted, Call, End, Ended, Heard, Hold, ReadOn, Write
from dpgt_node.protocol.edge.receiver import ACK_ROUNDS, SMALL_BYTES, Receiver, ReceiverPhase
from dpgt_node.protocol.messages import Received, Resume
from dpgt_node.protocol.types import Payload, Tick, VectorReceived
from tests.protocol import cases

RUN = b"r" * 16
OLDER, NEWER = Call("agent-2", 1, dialled=False), Call("agent-2", 2, dialled=False)


class Window:
    """An agent that needs rounds from ``low`` on and takes them up to ``high``."""

    def __init__(self, low: int = 0, high: int = 1, mixed_before: int = 0) -> None:
        self.low, self.high, self.mixed_before = low, high, mixed_before

    def needs(self, sender: int) -> tuple[int, int]:
        assert sender == 1
        return self.low, self.low

    def window(self) -> tuple[int, int]:
        return self.low, self.high


def receiver(kind: type[Receiver] = Receiver) -> Receiver:
    return kind("agent-1", 1)


def pair(k: int) -> tuple[Payload, Payload]:
    return cases.payload("X", k), cases.payload("Y", k)


def taken(*ks: int) -> tuple[VectorReceived, ...]:
    return tuple(VectorReceived(1, payload) for k in ks for payload in pair(k))


def admitted(kind: type[Receiver] = Receiver, window: Window | None = None) -> Receiver:
    end = receiver(kind)
    assert end.step(s.Admit(RUN, window or Window()), 0) == () and end.phase is ReceiverPhase.CLOSED
    return end


def resume(call: Call, low: int, mixed_before: int = 0, last: bytes = b"") -> Write:
    return Write(call, Resume("agent-1", RUN, low, low, mixed_before, x_last=last, y_last=last))


def holds_a_call_until_welcome(kind: type[Receiver]) -> None:
    end = receiver(kind)
    assert end.step(Accepted(OLDER), 1) == (Hold(OLDER),) and end.phase is ReceiverPhase.WAITING
    assert end.step(Accepted(NEWER), 2) == (End(OLDER), Hold(NEWER))
    assert end.step(s.Admit(RUN, Window(4, 5, 3)), 3) == (resume(NEWER, 4, 3), ReadOn(NEWER))
    gone = receiver(kind)
    gone.step(Accepted(OLDER), 1)
    assert gone.step(Ended(OLDER), 2) == () == gone.step(s.Admit(RUN, Window()), 3)


def hands_on_what_the_window_lets_in(kind: type[Receiver]) -> None:
    window = Window()
    end = admitted(kind, window)
    assert end.step(Accepted(OLDER), 1) == (resume(OLDER, 0),)
    assert end.heard_ns is None
    assert end.step(Heard(OLDER, ()), 2) == () and end.heard_ns == 2, "the middle of a large vector is a sign of life"
    assert end.step(Heard(OLDER, pair(0)), 3) == taken(0)
    assert end.step(Heard(OLDER, pair(1)), 4) == taken(1)
    assert end.step(Heard(OLDER, pair(2)), 5) == (Hold(OLDER),) and end.phase is ReceiverPhase.FULL
    assert end.step(s.Moved(), 6) == ()
    window.low, window.high = 1, 2
    assert end.step(s.Moved(), 7) == (*taken(2), ReadOn(OLDER)) and end.phase is ReceiverPhase.OPEN
    assert end.step(s.Moved(), 8) == ()


def a_newer_call_replaces_the_older(kind: type[Receiver]) -> None:
    window = Window()
    end = admitted(kind, window)
    end.step(Accepted(OLDER), 1)
    end.step(Heard(OLDER, pair(0)), 2)
    end.step(Heard(OLDER, pair(2)), 3)
    window.low = 1
    assert end.step(Accepted(NEWER), 4) == (End(OLDER), resume(NEWER, 1, last=pair(0)[0].sha256[:16]))
    window.high = 2
    assert end.step(s.Moved(), 5) == (), "what the older one held is asked for again, not kept twice"
    assert end.step(Ended(OLDER), 6) == () and end.phase is ReceiverPhase.OPEN
    assert end.step(Heard(OLDER, pair(1)), 7) == ()
    assert end.step(Heard(NEWER, pair(1)), 8) == taken(1)


def acknowledges_now_and_then(kind: type[Receiver]) -> None:
    end = admitted(kind, Window(0, 10**6))
    end.step(Accepted(OLDER), 1)
    for k in range(ACK_ROUNDS - 1):
        assert end.step(Heard(OLDER, pair(k)), 2) == taken(k)
    last = ACK_ROUNDS - 1
    assert end.step(Heard(OLDER, pair(last)), 3) == (*taken(last), Write(OLDER, Received(ACK_ROUNDS)))
    assert end.step(Heard(OLDER, ()), 4) == (), "the header of a large one"
    large = Payload("X", last + 1, "float64", SMALL_BYTES, bytes(8 * SMALL_BYTES), b"\0" * 32)
    assert end.step(Heard(OLDER, (large,)), 5)[1:] == (Write(OLDER, Received(ACK_ROUNDS + 2)),)


def acknowledges_the_rest_once_a_heartbeat(kind: type[Receiver]) -> None:
    """Its sender takes frames that nobody acknowledges for lost, and the call for dead."""
    window = Window()
    end = admitted(kind, window)
    assert end.step(Tick(), 1) == ()
    end.step(Accepted(OLDER), 1)
    assert end.step(Tick(), 2) == (), "there is nothing yet"
    end.step(Heard(OLDER, pair(0)), 3)
    assert end.step(Tick(), 4) == (Write(OLDER, Received(1)),)
    assert end.step(Tick(), 5) == (), "it is said"
    end.step(Heard(OLDER, pair(1)), 6)
    end.step(Heard(OLDER, pair(2)), 7)
    for now in range(8, 11):  # what is held in the transport counts too: it is not lost
        assert end.step(Tick(), now) == (Write(OLDER, Received(3)),) and end.phase is ReceiverPhase.FULL
    assert end.step(Accepted(NEWER), 11) == (End(OLDER), resume(NEWER, 0))
    end.step(Heard(NEWER, pair(0)), 12)
    assert end.step(Tick(), 13) == (Write(NEWER, Received(1)),), "frames of that call alone"
    end.step(Ended(NEWER), 14)
    assert end.step(Tick(), 15) == ()


def closes(kind: type[Receiver]) -> None:
    end = admitted(kind)
    end.step(Accepted(OLDER), 1)
    assert end.step(Ended(OLDER), 2) == () and end.phase is ReceiverPhase.CLOSED
    assert end.step(Accepted(NEWER), 3) == (resume(NEWER, 0),)
    assert end.step(s.Leave(), 4) == (End(NEWER),) and end.step(s.Leave(), 5) == ()
    assert end.next_deadline_ns() is None


SCENES = [
    holds_a_call_until_welcome,
    hands_on_what_the_window_lets_in,
    a_newer_call_replaces_the_older,
    acknowledges_now_and_then,
    acknowledges_the_rest_once_a_heartbeat,
    closes,
]


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_goes_as_the_table_says(scene: Callable[[type[Receiver]], None]) -> None:
    scene(Receiver)


class KeepsTheFirst(Receiver):
    def _replace(self, call: Call, out: list[Any]) -> None:
        if self._phase is ReceiverPhase.OPEN or self._phase is ReceiverPhase.FULL:
            out.append(End(call))
        else:
            super()._replace(call, out)


class KeepsBoth(Receiver):
    def _replace(self, call: Call, out: list[Any]) -> None:
        super()._replace(call, out)
        out[:] = [effect for effect in out if not isinstance(effect, End)]


class KeepsWhatWasHeld(Receiver):
    def _replace(self, call: Call, out: list[Any]) -> None:
        held = list(self._held)
        super()._replace(call, out)
        self._held.extend(held)
        if held:
            self._phase = ReceiverPhase.FULL


class ForgetsToReadOn(Receiver):
    def _deliver(self, out: list[Any]) -> None:
        super()._deliver(out)
        out[:] = [effect for effect in out if not isinstance(effect, ReadOn)]


class ReadsOnWhenFull(Receiver):
    def _deliver(self, out: list[Any]) -> None:
        super()._deliver(out)
        out[:] = [effect for effect in out if not isinstance(effect, Hold)]


class LetsEverythingIn(Receiver):
    def _deliver(self, out: list[Any]) -> None:
        while self._held:
            out.append(VectorReceived(self._sender, self._held.popleft()))


class CountsAcrossCalls(Receiver):
    def _begin(self, out: list[Any]) -> None:
        frames = self._frames
        super()._begin(out)
        self._frames = frames


class SaysNothingWhenFull(Receiver):
    def _acknowledge(self, out: list[Any]) -> None:
        if self._phase is not ReceiverPhase.FULL:
            super()._acknowledge(out)


class NeverFinishesASpell(Receiver):
    """What came after the last round of 64 stays unacknowledged."""

    def step(self, event: Any, now_ns: int) -> tuple[Any, ...]:
        return () if isinstance(event, Tick) else super().step(event, now_ns)


class AnswersBeforeWelcome(Receiver):
    def _replace(self, call: Call, out: list[Any]) -> None:
        if self._phase is ReceiverPhase.SHUT:
            self._run_id, self._window = RUN, Window()
            self._phase = ReceiverPhase.CLOSED
        super()._replace(call, out)


MUTANTS = [
    KeepsTheFirst,
    KeepsBoth,
    KeepsWhatWasHeld,
    ForgetsToReadOn,
    ReadsOnWhenFull,
    LetsEverythingIn,
    CountsAcrossCalls,
    SaysNothingWhenFull,
    NeverFinishesASpell,
    AnswersBeforeWelcome,
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_does_not_survive(mutant: type[Receiver]) -> None:
    def survives(scene: Callable[[type[Receiver]], None]) -> bool:
        try:
            scene(mutant)
        except (AssertionError, ValueError):
            return False
        return True

    assert not all(survives(scene) for scene in SCENES)
