"""An agent that shares noise says Ready once every partner has proved the same key, and not before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dpgt_node.errors import DpgtError, ExitCode, NoAgreement, PeerError
from dpgt_node.protocol import messages as m
from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent import agreeing
from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.agent.agreeing import Agreeing
from dpgt_node.protocol.agent.session import Session, SessionPhase
from dpgt_node.protocol.calls import Call, Dial, End, Ended, Heard, Note, Opened, Write
from dpgt_node.protocol.clock import SECOND
from tests.protocol.agent.test_session import EMPTY, PEERS, TERMS, UP, WELCOME, make_agent

NAMES = ("agent-1", "agent-2", "agent-3")
SHARING = replace(PEERS, partners=("agent-2", "agent-3"))
OFFERS = tuple(m.KeyOffer(name, bytes([i]) * 32, b"certificate", b"signature") for i, name in enumerate(NAMES))
OURS = {"agent-2": b"a" * 32, "agent-3": b"b" * 32}
THEIRS = {"agent-2": b"c" * 32, "agent-3": b"d" * 32}
CHECKED = s.RingChecked(OURS, THEIRS)
NEW, HALF, AGREED = (
    s.Agreement(OFFERS[0]),
    s.Agreement(OFFERS[0], OURS),
    s.Agreement(OFFERS[0], OURS, agreed=True),
)
AGAIN = Call(UP.peer, 2, dialled=True)


class Desk:
    def __init__(self, held: s.Agreement = NEW) -> None:
        self.session = Session(TERMS, SHARING, s.Held(), make_agent)
        self.up = UP
        for event in (s.Begin("h:1"), Opened(UP), Heard(UP, WELCOME), EMPTY):
            self(event)
        self.first = self(s.RunBegun(None, agreement=held))

    def __call__(self, event: Any, now: float = 0.0) -> list[Any]:
        return [e for e in self.session.step(event, int(now * SECOND)) if not isinstance(e, Note)]

    def hears(self, message: object, now: float = 0.0) -> list[Any]:
        return self(Heard(self.up, message), now)

    def words(self, *messages: object) -> list[Any]:
        return [Write(self.up, message) for message in messages]

    def back(self, now: float) -> list[Any]:
        """The call broke, and the coordinator welcomed the agent again."""
        self(Ended(self.up, PeerError("gone", grpc_status="UNAVAILABLE")), now)
        dialled = self(t.Tick(), now + 60)
        assert dialled == [Dial(AGAIN, "h:9")]
        self.up = AGAIN
        self(Opened(AGAIN), now + 60)
        return self.hears(WELCOME, now + 60)

    def proves(self, *names: str) -> list[Any]:
        return [effect for name in names for effect in self.hears(m.KeyProof(name, THEIRS[name]))]


def proving() -> Desk:
    desk = Desk()
    assert desk.hears(m.KeyRing(OFFERS)) == [s.CheckRing(OFFERS)]
    assert desk(CHECKED) == desk.words(m.KeyProofs(OURS))
    return desk


def test_ready_comes_after_every_proof_and_after_the_keys_are_durable() -> None:
    desk = Desk()
    assert desk.first == desk.words(OFFERS[0])
    assert desk.session.phase is SessionPhase.AGREEING
    assert desk.hears(m.KeyRing(OFFERS)) == [s.CheckRing(OFFERS)]
    assert desk(CHECKED) == desk.words(m.KeyProofs(OURS))
    assert desk.proves("agent-2") == []
    assert desk.proves("agent-3") == [s.KeepKeys()]
    assert desk.session.agent is None, "nothing can be released yet"
    assert desk(s.KeysKept()) == desk.words(m.Ready())
    assert desk.session.phase is SessionPhase.INSIDE
    assert t.Advance(None) in desk.hears(m.Start({"agent-1": "h:1", "agent-2": "h:2"}, 0))


def test_a_proof_may_come_while_the_ring_is_checked() -> None:
    desk = Desk()
    desk.hears(m.KeyRing(OFFERS))
    assert desk.proves("agent-2", "agent-3") == []
    assert desk(CHECKED) == [*desk.words(m.KeyProofs(OURS)), s.KeepKeys()]


@pytest.mark.parametrize("message", [m.Start({}, 1), m.GoMessage(1), m.AllDurableMessage(0)], ids=type)
@pytest.mark.parametrize("held", [NEW, HALF])
def test_a_round_that_begins_too_early_ends_the_agent(message: object, held: s.Agreement) -> None:
    desk = Desk(held)
    effects = desk.hears(message)
    assert desk.session.agent is None
    (exit_,) = [e for e in effects if isinstance(e, s.Exit)]
    assert "the coordinator spoke of rounds" in str(exit_.error)


def refused(desk: Desk, effects: list[Any], peer: str) -> NoAgreement:
    """The pair is named here and to the coordinator, and the agent waits for the stop."""
    reason = f"cannot agree on a key with another agent; its own log says more: {peer}"
    assert effects == desk.words(m.Refusal("identity", reason))
    assert desk.session.phase is SessionPhase.LEAVING and desk.session.agent is None
    (exit_,) = [e for e in desk.hears(m.StopMessage("", 3)) if isinstance(e, s.Exit)]
    assert isinstance(exit_.error, NoAgreement) and exit_.code is ExitCode.REFUSED and exit_.error.peer == peer
    return exit_.error


def test_a_wrong_proof_is_named() -> None:
    desk = proving()
    desk.proves("agent-2")
    assert "agent-3 has no common key" in str(refused(desk, desk.hears(m.KeyProof("agent-3", b"x" * 32)), "agent-3"))


def test_a_proof_that_is_sent_back_is_none() -> None:
    desk = proving()
    refused(desk, desk.hears(m.KeyProof("agent-2", OURS["agent-2"])), "agent-2")


def test_a_proof_that_never_comes_is_named() -> None:
    desk = proving()
    desk.proves("agent-2")
    for beat in range(1, 11):  # the coordinator lives, and says nothing of agent-3
        desk.hears(m.Heartbeat(), 29.0 * beat)
    desk(t.Tick(), 299.0)
    assert desk.session.phase is SessionPhase.AGREEING and desk.session.next_deadline_ns() == 300 * SECOND
    effects = [e for e in desk(t.Tick(), 300.0) if not (isinstance(e, Write) and e.message == m.Heartbeat())]
    assert "no proof of a common key came from agent-3" in str(refused(desk, effects, "agent-3"))


def test_an_offer_that_does_not_hold_is_named() -> None:
    desk = Desk()
    desk.hears(m.KeyRing(OFFERS))
    refused(desk, desk(s.RunRefused(NoAgreement("agent-2", "is not signed"))), "agent-2")


def test_a_second_ring_must_be_the_first() -> None:
    desk = proving()
    assert desk.hears(m.KeyRing(OFFERS)) == []
    other = (*OFFERS[:2], replace(OFFERS[2], key=b"x" * 32))
    assert "second, different key offer of agent-3" in str(refused(desk, desk.hears(m.KeyRing(other)), "agent-3"))


def test_a_proof_of_a_stranger_is_an_error() -> None:
    desk = proving()
    (end, exit_) = desk.hears(m.KeyProof("agent-9", b"x" * 32))
    assert isinstance(end, End) and type(exit_.error) is PeerError


def test_all_is_said_again_after_a_break_and_after_a_restart() -> None:
    assert Desk().back(1.0) == [Write(AGAIN, OFFERS[0])]
    assert proving().back(1.0) == [Write(AGAIN, OFFERS[0]), Write(AGAIN, m.KeyProofs(OURS))]
    # killed before it had all proofs: offers and proofs of before, and the ring comes once more
    half = Desk(HALF)
    assert half.first == half.words(OFFERS[0], m.KeyProofs(OURS))
    assert half.hears(m.KeyRing(OFFERS)) == [s.CheckRing(OFFERS)]
    # killed after it had them: others may still lack what it says
    whole = Desk(AGREED)
    assert whole.first == whole.words(m.Ready(), OFFERS[0], m.KeyProofs(OURS))
    assert whole.session.phase is SessionPhase.INSIDE
    assert whole.hears(m.KeyRing(OFFERS)) == [] == whole.proves("agent-2")
    assert whole.back(1.0) == [Write(AGAIN, word) for word in (m.Ready(), OFFERS[0], m.KeyProofs(OURS))]


def test_keys_that_cannot_be_kept_end_the_agent() -> None:
    desk = proving()
    desk.proves("agent-2", "agent-3")
    effects = desk(s.RunRefused(DpgtError("no space left on device")))
    assert [type(e.message) for e in effects] == [m.Refusal] and desk.session.agent is None


def test_without_shared_noise_a_ring_is_an_error() -> None:
    desk = Desk()
    plain = Session(TERMS, PEERS, s.Held(), make_agent)
    desk.session = plain
    for event in (s.Begin("h:1"), Opened(UP), Heard(UP, WELCOME), EMPTY, s.RunBegun(None)):
        desk(event)
    (exit_,) = [e for e in desk.hears(m.KeyRing(OFFERS)) if isinstance(e, s.Exit)]
    assert "unexpected message" in str(exit_.error)


class ReadyAtOnce(Agreeing):
    agreed = True  # type: ignore[assignment]


class BelievesAnyProof(Agreeing):
    def _compare(self) -> tuple[Any, ...]:
        self._expected = dict(self._got)
        return super()._compare()


class OneProofIsEnough(Agreeing):
    def _proof_came(self, sender: str, proof: bytes) -> tuple[Any, ...]:
        self._partners = (sender,)
        return super()._proof_came(sender, proof)


class WaitsForEver(Agreeing):
    def next_deadline_ns(self) -> None:
        return None


class SaysItOnce(Agreeing):
    def words(self) -> tuple[Any, ...]:
        words, self._said = (() if getattr(self, "_said", False) else super().words()), True
        return words


class TakesASecondRing(Agreeing):
    def _ring_came(self, offers: tuple[m.KeyOffer, ...]) -> tuple[Any, ...]:
        return super()._ring_came(offers) if not self._ring else ()


TESTS: dict[type[Agreeing], Callable[[], None]] = {
    ReadyAtOnce: test_ready_comes_after_every_proof_and_after_the_keys_are_durable,
    BelievesAnyProof: test_a_wrong_proof_is_named,
    OneProofIsEnough: test_ready_comes_after_every_proof_and_after_the_keys_are_durable,
    WaitsForEver: test_a_proof_that_never_comes_is_named,
    SaysItOnce: test_all_is_said_again_after_a_break_and_after_a_restart,
    TakesASecondRing: test_a_second_ring_must_be_the_first,
}


@pytest.mark.parametrize("mutant", TESTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_does_not_survive(mutant: type[Agreeing], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpgt_node.protocol.agent.session.Agreeing", mutant)
    assert agreeing.Agreeing is not mutant
    with pytest.raises((AssertionError, AttributeError, ValueError)):
        TESTS[mutant]()
