"""The coordinator passes on key offers and proofs: the ring first, then proofs, and all again to who comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgt_node.config import parse_run
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.calls import End, Write
from dpgt_node.protocol.coordinator.relay import KeyRelay
from tests.protocol.coordinator import desk as coordinators

NAMES = ("a", "b", "c")
OFFERS = {name: m.KeyOffer(name, name.encode() * 32, b"certificate", b"signature") for name in NAMES}
RING = m.KeyRing(tuple(OFFERS.values()))


class Desk:
    def __init__(self) -> None:
        self.relay = KeyRelay(NAMES)
        self.said: list[tuple[str, object]] = []

    def __call__(self, name: str, word: m.KeyOffer | m.KeyProofs) -> list[tuple[str, object]]:
        """What is said after ``name`` said ``word``, which it may say."""
        self.said = []
        assert self.relay.take(name, word, lambda to, message: self.said.append((to, message)))
        return self.said


def proofs(name: str, **of: str) -> m.KeyProofs:
    return m.KeyProofs({to: (name + to + text).encode().ljust(32) for to, text in of.items()})


def test_the_ring_goes_out_once_all_offers_are_here_and_proofs_follow() -> None:
    desk = Desk()
    assert desk("b", OFFERS["b"]) == desk("a", OFFERS["a"]) == []
    assert desk("c", OFFERS["c"]) == [("b", RING), ("a", RING), ("c", RING)]
    of_a = proofs("a", b="", c="")
    assert desk("a", of_a) == [("b", m.KeyProof("a", of_a.proofs["b"])), ("c", m.KeyProof("a", of_a.proofs["c"]))]


def test_who_comes_back_gets_everything_again_and_nobody_else_does() -> None:
    desk = Desk()
    for name in NAMES:
        desk(name, OFFERS[name])
    of_a, of_c = proofs("a", b="", c=""), proofs("c", a="", b="")
    desk("a", of_a)
    desk("c", of_c)
    again = [("b", RING), ("b", m.KeyProof("a", of_a.proofs["b"])), ("b", m.KeyProof("c", of_c.proofs["b"]))]
    assert desk("b", OFFERS["b"]) == again


def test_a_proof_waits_for_the_ring_of_the_call() -> None:
    desk = Desk()
    desk("a", OFFERS["a"])
    of_a = proofs("a", b="")
    assert desk("a", of_a) == []  # this coordinator is new; a knew the ring before
    desk("b", OFFERS["b"])
    assert desk("c", OFFERS["c"])[:3] == [("a", RING), ("b", RING), ("b", m.KeyProof("a", of_a.proofs["b"]))]


def test_another_offer_of_a_name_takes_its_proofs_along() -> None:
    desk = Desk()
    for name in NAMES:
        desk(name, OFFERS[name])
    desk("a", proofs("a", b="", c=""))
    other = m.KeyOffer("a", b"x" * 32, b"certificate", b"signature")
    assert desk("a", other) == [("a", m.KeyRing((other, OFFERS["b"], OFFERS["c"])))]
    assert desk("b", OFFERS["b"]) == [("b", m.KeyRing((other, OFFERS["b"], OFFERS["c"])))]


def test_what_is_said_again_is_not_passed_on_again() -> None:
    """Whoever was served has it; an agent must not be able to fill the others' queues."""
    desk = Desk()
    for name in NAMES:
        desk(name, OFFERS[name])
    of_a = proofs("a", b="", c="")
    assert len(desk("a", of_a)) == 2 and desk("a", of_a) == []
    assert not desk.relay.take("a", proofs("a", b="other", c=""), lambda *_: None)
    assert desk("c", OFFERS["c"]) == [("c", RING), ("c", m.KeyProof("a", of_a.proofs["c"]))]


def test_what_is_not_an_agents_own_to_say_is_refused() -> None:
    relay = KeyRelay(NAMES)

    def nothing(to: str, message: object) -> None:
        raise AssertionError("nothing is passed on")

    assert not relay.take("a", OFFERS["b"], nothing)
    assert not relay.take("a", proofs("a", d=""), nothing)
    assert not relay.take("a", proofs("a", a=""), nothing)


# --- within the coordinator -------------------------------------------------------------------------------------------

SHARED = coordinators.RUN.replace("[algorithm]\n", '[algorithm]\nmechanism = "noise-once"\n').replace(
    "scale_zeta = 0.1\n", 'law = "gaussian"\ncancel = 2\n'
)


def offer(name: str) -> m.KeyOffer:
    return m.KeyOffer(name, name.encode().ljust(32), b"certificate", b"signature")


def test_the_barrier_opens_when_all_are_ready_and_an_offer_alone_is_not_ready() -> None:
    desk = coordinators.Desk(parse_run(SHARED.format(K=2), "run.toml", Path("/")))
    calls = {name: desk.register(name)[0] for name in coordinators.NAMES}
    said = [effect for name, call in calls.items() for effect in desk.say(call, offer(name))]
    ring = m.KeyRing(tuple(offer(name) for name in coordinators.NAMES))
    assert said == [Write(call, ring) for call in calls.values()]
    one, two, three = calls.values()
    assert desk.say(one, m.KeyProofs({"agent-2": b"p" * 32})) == [Write(two, m.KeyProof("agent-1", b"p" * 32))]
    assert not any(isinstance(e, Write) for e in [*desk.say(one, m.Ready()), *desk.say(two, m.Ready())])
    opened = desk.say(three, m.Ready())
    assert {type(e.message) for e in opened if isinstance(e, Write)} == {m.Start}


@pytest.mark.parametrize("word", [offer("agent-2"), m.KeyProofs({"agent-1": b"p" * 32}), m.KeyProofs({"x": b"p" * 32})])
def test_whoever_says_of_keys_what_is_not_its_own_is_hung_up_on(word: m.KeyOffer | m.KeyProofs) -> None:
    desk = coordinators.Desk(parse_run(SHARED.format(K=2), "run.toml", Path("/")))
    call, _ = desk.register("agent-1")
    (end,) = [effect for effect in desk.say(call, word) if isinstance(effect, End)]
    assert end.error is not None and "says of keys what is not its own to say" in str(end.error)


def test_a_run_without_shared_noise_hears_nothing_of_keys() -> None:
    desk = coordinators.Desk()
    call, _ = desk.register("agent-1")
    (end,) = [effect for effect in desk.say(call, offer("agent-1")) if isinstance(effect, End)]
    assert end.error is not None and "sent an unexpected message" in str(end.error)
