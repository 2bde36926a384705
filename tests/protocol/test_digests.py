"""Digests of what was sent and received: what an agent says, what the coordinator makes of it, and what is proven."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import network_of
from dpgt_node.errors import ExitCode
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.agent.ears import Ears
from dpgt_node.protocol.agent.participant import Participant
from dpgt_node.protocol.agent.session_types import Peers, Repeat, RunBegun, RunRead, Say
from dpgt_node.protocol.calls import Heard, Note, Write
from dpgt_node.protocol.coordinator import coordination_types as ct
from dpgt_node.protocol.coordinator.comparison import Compared, Comparison, Forgery
from dpgt_node.protocol.coordinator.witnesses import Witnesses
from dpgt_node.protocol.digests import Digests, Dispute, digest, places
from dpgt_node.protocol.types import Advanced, Payload, PeerNeeds, Persisted, Recovered, Started, VectorReceived
from dpgt_node.record.digests import read_digests, write_digests
from tests.protocol import cases
from tests.protocol.agent.test_session import TERMS
from tests.protocol.coordinator.desk import NAMES, Desk, ended, run_of, said

RUN = run_of(9)
NETWORK = network_of(RUN, Topology.from_config(RUN.graph))
"""X: 2 to 1, 1 to 2, 2 to 3.  Y: 3 to 1, 1 and 2 to 3, nobody else's to 2."""
EDGES = {name: NETWORK.edges(i) for i, name in enumerate(NAMES)}


def vector(sender: int, stream: str, k: int) -> bytes:
    """Of an honest release."""
    return f"{stream}{sender}.{k}".encode().ljust(16)


def words(name: str, k: int, **other: bytes) -> bytes:
    """What agent ``name`` says of round ``k``; ``other``: "X1" -> what it says of X of agent no. 1 (0-based)."""
    return b"".join(other.get(f"{stream}{j}", vector(j, stream, k)) for stream, j in places(EDGES[name]))


def test_an_agent_says_its_own_then_what_it_heard_by_sender() -> None:
    assert places(EDGES["agent-3"]) == (("X", 2), ("Y", 2), ("X", 1), ("Y", 0), ("Y", 1))
    assert places(cases.params(in_R=((0, 0.5), (1, 1.0)), out_R=(0, 1))) == (("X", 0), ("Y", 0), ("X", 1), ("Y", 1))
    digests = Digests(cases.params(), 1)
    x, y = cases.payload("X", 0), cases.payload("Y", 0)
    digests.released((x, y))
    digests.heard(1, replace(x, sha256=b"1" * 32))
    assert digests.words(0) == b"", "Y of agent no. 1 is lacking"
    digests.heard(1, replace(y, sha256=b"2" * 32))
    digests.heard(1, replace(y, sha256=b"3" * 32))
    assert digests.words(0) == x.sha256[:16] + y.sha256[:16] + b"1" * 16 + b"2" * 16, "what came first was mixed"
    for k in range(1, 200):
        digests.heard(1, cases.payload("X", k))
        digests.words(k)
    assert len(digests._rounds) < 10, "old rounds are forgotten"


@pytest.mark.parametrize("order", list(itertools.permutations(NAMES)))
def test_honest_words_agree_in_any_order(order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Comparison, "_differences", None)  # nobody looks for one
    comparison = Comparison(NETWORK, 1)
    for k in range(20):
        for name in order:
            assert comparison.take(name, k, words(name, k)) == ()
    assert (comparison.compared, comparison.incomplete) == (20, 0)
    assert len(comparison._whole) == comparison._window, "older rounds are forgotten"


def test_every_single_lie_is_found_and_nothing_else() -> None:
    """Against the dumb way: write down who says what of each vector."""
    for name in NAMES:
        for stream, j in places(EDGES[name]):
            comparison = Comparison(NETWORK, 1)
            all_words = {n: words(n, 4, **({f"{stream}{j}": b"f" * 16} if n == name else {})) for n in NAMES}
            found = [dispute for n in NAMES for dispute in comparison.take(n, 4, all_words[n]) or ()]
            told: dict[str, bytes] = {}
            for n in NAMES:
                for place, at in zip(places(EDGES[n]), range(0, 999, 16), strict=False):
                    if place == (stream, j):
                        told[n] = all_words[n][at : at + 16]
            if len(told) == 1:  # nobody receives it
                assert found == []
                continue
            (dispute,) = found
            assert (dispute.sender, dispute.stream, dispute.k) == (NAMES[j], stream, 4)
            assert dict(dispute.words) == told and dispute.words[0][0] == NAMES[j]


def test_random_losses_and_repetitions_raise_no_alarm() -> None:
    chance = random.Random(7)
    comparison = Comparison(NETWORK, 3)
    for k in range(300):
        said_now = [name for name in NAMES if chance.random() < 0.9] * chance.choice((1, 2))
        for name in said_now:
            back = max(0, k - chance.randrange(5))
            assert comparison.take(name, back, words(name, back)) == ()
            assert comparison.take(name, k, words(name, k)) == ()
        assert len(comparison._rounds) < 20
    assert comparison.compared > 200 and comparison.incomplete > 10


def test_who_says_nothing_hides_nobody_else() -> None:
    comparison = Comparison(NETWORK, 1)
    assert comparison.take("agent-1", 0, b"") == () == comparison.take("agent-2", 0, words("agent-2", 0, X0=b"f" * 16))
    assert comparison.take("agent-3", 0, words("agent-3", 0)) == (), "agent-1 alone knows what it sent to agent-2"
    comparison.take("agent-2", 1, b"")
    comparison.take("agent-1", 1, words("agent-1", 1, X1=b"f" * 16))
    (dispute,) = comparison.take("agent-3", 1, words("agent-3", 1)) or ()
    assert dispute.words == (("agent-1", b"f" * 16), ("agent-3", vector(1, "X", 1)))
    assert "sent different vectors in one round, or one of them" in dispute.proven(), "two receivers against each other"
    assert (comparison.compared, comparison.incomplete) == (0, 2)
    assert comparison.take("agent-2", 2, b"x" * 16) is None, "not what its edges are"


def test_nobody_hides_the_words_of_others_behind_rounds_that_nobody_is_in() -> None:
    comparison = Comparison(NETWORK, 1)
    comparison.take("agent-2", 0, words("agent-2", 0, X0=b"f" * 16))
    for k in range(10, 500):
        comparison.take("agent-1", k, words("agent-1", k))
    assert len(comparison._rounds) < 30, "a limit on what one agent says"
    assert comparison.take("agent-3", 0, words("agent-3", 0)) == ()
    assert len(comparison.take("agent-1", 0, words("agent-1", 0)) or ()) == 1


def test_rounds_far_apart_are_compared() -> None:
    """A barrier of many rounds lets who needs nobody run ahead of the others."""
    comparison = Comparison(NETWORK, 1000)
    for k in range(900):
        assert comparison.take("agent-1", k, words("agent-1", k)) == ()
    for k in range(900):
        for name in NAMES[1:]:
            comparison.take(name, k, words(name, k))
    assert (comparison.compared, comparison.incomplete) == (900, 0)


@pytest.mark.parametrize("width", [1, 15])
def test_words_that_are_said_again_after_the_newest_ones_are_not_too_late(width: int) -> None:
    """A call broke with reports that waited; who is seated again may report a round before it repeats the others."""
    comparison, lost = Comparison(NETWORK, width), Digests(EDGES["agent-1"], width).resaid
    for k in range(lost + 1):
        for name in NAMES[1:]:
            comparison.take(name, k, words(name, k, X0=b"f" * 16) if k == 0 else words(name, k))
    assert comparison.take("agent-1", lost, words("agent-1", lost)) == ()
    found = [one for k in range(lost) for one in comparison.take("agent-1", k, words("agent-1", k)) or ()]
    assert [(one.sender, one.k) for one in found] == [("agent-1", 0)]
    assert (comparison.compared, comparison.incomplete) == (lost + 1, 0)


@pytest.mark.parametrize("width", [1, 15, 200])
def test_who_is_told_of_the_oldest_dispute_there_is_still_knows_what_it_sent(width: int) -> None:
    """agent-3 never speaks of round 0, which is compared when everybody is far beyond it, and not earlier."""
    comparison, digests, found = Comparison(NETWORK, width), Digests(EDGES["agent-1"], width), list[Dispute]()
    k = 0
    while not found and k < 999:
        digests.heard(0, cases.payload("X", k))
        digests.words(k)
        for name in NAMES if k else NAMES[:2]:
            lie = {"X0": b"f" * 16} if (name, k) == ("agent-2", 0) else {}
            found += comparison.take(name, k, words(name, k, **lie)) or ()
        k += 1
    assert [(one.sender, one.stream, one.k) for one in found] == [("agent-1", "X", 0)]
    assert digests.of("X", 0, 0) == digest(cases.payload("X", 0))


def test_a_round_that_stays_incomplete_is_compared_as_far_as_it_goes() -> None:
    lie = {"X0": b"f" * 16}
    comparison = Comparison(NETWORK, 1)
    comparison.take("agent-1", 0, words("agent-1", 0))
    comparison.take("agent-2", 0, words("agent-2", 0, **lie))
    assert comparison.take("agent-2", 0, b"") == (), "who says no more takes nothing back"
    found = [comparison.take(name, k, words(name, k)) or () for k in range(1, 20) for name in NAMES]
    ((dispute,),) = [one for one in found if one]
    assert (dispute.sender, dispute.stream, dispute.k) == ("agent-1", "X", 0) and comparison.incomplete == 1
    assert comparison.take("agent-3", 0, words("agent-3", 0)) == (), "too late"
    comparison.take("agent-1", 20, words("agent-1", 20))
    comparison.take("agent-2", 20, words("agent-2", 20, **lie))
    assert [dispute.k for dispute in comparison.rest()] == [20] and comparison.rest() == ()


def test_one_word_against_another_convicts_nobody() -> None:
    line = Dispute("agent-1", "X", 3, (("agent-1", b"a" * 16), ("agent-2", b"b" * 16))).line()
    assert line.startswith("X of round 3 of agent-1 is in dispute: agent-1 says that it sent 6161616161616161, ")
    assert "agent-2 received 6262626262626262. agent-2 and agent-1 disagree: agent-1 sent something else" in line
    assert line.endswith("somebody sends with its certificate, or one of them does not say what is so")
    many = tuple((f"agent-{i}", bytes([97 + i % 2]) * 16) for i in range(2, 90))
    assert len(Dispute("agent-1", "X", 3, many).line()) < 500, "a line, however many receivers"
    for alone in ((), (("agent-2", b"b" * 16),), (("agent-1", b"a" * 16),)):
        assert Dispute("agent-1", "X", 3, alone).proven() == (
            "somebody sends with the certificate of agent-1, or one of them does not say what is so"
        )


# --- the agent -------------------------------------------------------------------------------------------------------


def ears(released: int) -> Ears:
    agent = cases.machine()
    agent._released = released
    digests = Digests(agent.edges, 1)
    for k in range(released + 1):
        digests.released(cases.release(k).payloads)
    return Ears(("agent-1", "agent-2"), agent, digests)


def held(stream: str, k: int) -> bytes:
    return cases.payload(stream, k).sha256[:16]


def test_a_sender_knows_what_it_never_sent() -> None:
    one = ears(4)
    honest = PeerNeeds(1, 5, 4, 5, held("X", 4), held("Y", 3))
    assert one.needs(honest) == (honest, ())
    forged = replace(honest, x_last=b"f" * 16)
    _, (note, word) = one.needs(forged)
    assert word.message == m.Disowned("agent-2", "X", 4, b"f" * 16, held("X", 4)) and note.level == "error"
    assert one.needs(forged) == (forged, ()), "said once"
    ahead = PeerNeeds(1, 6, 5, 5, b"g" * 16, held("Y", 4))
    assert one.needs(ahead) == (ahead, ()), "before this process drew anything its own state may be the old one"
    one.drew = True
    believed, (_, word) = one.needs(ahead)
    assert word.message == m.Disowned("agent-2", "X", 5, b"g" * 16, b"") and believed.x_from == 5
    believed, told = one.needs(PeerNeeds(1, 5, 5, 9))
    assert believed.mixed_before == 5 and {w.message.stream for w in told if not isinstance(w, Note)} == {"X", "Y"}


def test_a_coordinator_may_not_put_words_into_an_agents_mouth() -> None:
    one = ears(4)
    words_of = lambda mine: (("agent-1", mine), ("agent-2", b"t" * 16))  # noqa: E731
    assert len(one.dispute(Dispute("agent-1", "X", 4, words_of(held("X", 4))))) == 1
    _, note = one.dispute(Dispute("agent-1", "X", 4, words_of(b"l" * 16)))
    assert "the coordinator misquotes agent-1" in note.text
    assert len(one.dispute(Dispute("agent-1", "X", 999, words_of(b"l" * 16)))) == 1, "it knows nothing of that round"
    other = cases.payload("X", 4, 7.0)
    one.digests.heard(1, other)
    of_other = lambda mine: (("agent-2", b"t" * 16), ("agent-1", mine))  # noqa: E731
    assert len(one.dispute(Dispute("agent-2", "X", 4, of_other(digest(other))))) == 1
    assert len(one.dispute(Dispute("agent-2", "X", 4, of_other(held("X", 4))))) == 2, "of what it received, too"


def participant(width: int, recovered: Recovered | None = None) -> Participant:
    terms, peers = replace(TERMS, last_round=3), Peers(("agent-1", "agent-2"), 0, {"agent-2": frozenset({"X", "Y"})})
    options = {} if recovered is None else {"recovered": recovered}
    agent = cases.machine(run_ahead=width, **options)
    return Participant.of(terms, peers, b"r" * 16, agent, {}, RunRead(b"", recovered), RunBegun(None))


def lives(one: Participant, *events: object) -> list[object]:
    out: list[object] = []
    for event in events:
        passes = isinstance(event, VectorReceived | PeerNeeds)
        one._emit((event,), out, 0) if passes else out.extend(one.step(event, 0))
    return out


def test_who_drew_knows_and_says_its_words_again_as_the_coordinator_takes_them() -> None:
    one = participant(2)
    ahead = PeerNeeds(1, 6, 4, 5, b"g" * 16, b"")
    assert not [effect for effect in lives(one, Started(3), ahead) if isinstance(effect, Say)], "it drew nothing yet"
    for k in range(3):
        for event in (Advanced(cases.state(k)), cases.release(k), Persisted(k, b"h" * 32)):
            lives(one, event)
        lives(one, *(VectorReceived(1, cases.payload(stream, k)) for stream in ("X", "Y")))
    assert Say(m.Disowned("agent-2", "X", 5, b"g" * 16, b"")) in lives(one, ahead)
    again = [effect.message for effect in lives(one, Repeat(metrics=True)) if isinstance(effect, Say)]
    assert [(done.k, done.durable_through <= done.k, len(done.words)) for done in again] == [
        (k, True, 64) for k in range(3)
    ]
    back = participant(1, Recovered(cases.state(0), (cases.record(0), cases.record(1))))
    forged = lives(back, PeerNeeds(1, 2, 0, 0, b"g" * 16, b""))
    assert Say(m.Disowned("agent-2", "X", 1, b"g" * 16, held("X", 1))) in forged, "its directory knows what it sent"


# --- the coordinator -------------------------------------------------------------------------------------------------


def done(name: str, k: int = 0, **other: bytes) -> m.Done:
    return m.Done(k, -1, 0, words=words(name, k, **other))


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_dispute_is_told_to_all_before_the_barrier_opens(goes_on: bool) -> None:
    run = replace(RUN, runtime=replace(RUN.runtime, on_forgery="continue" if goes_on else "stop"))
    desk = Desk(run)
    calls = desk.start()
    desk.say(calls[0], done("agent-1"))
    desk.say(calls[1], done("agent-2", X0=b"f" * 16))
    out = desk.all(Heard(calls[2], done("agent-3")))
    dispute = m.Dispute("agent-1", "X", 0, (("agent-1", vector(0, "X", 0)), ("agent-2", b"f" * 16)))
    assert out[:3] == [Write(call, dispute) for call in calls] and out[3] == Note("error", dispute.line())
    assert isinstance(out[4], ct.KeepCompared) and out[4].found.forgeries[0].first == dispute
    heard = [said(out, call)[1:] for call in calls]
    after = m.GoMessage(1) if goes_on else m.StopMessage(dispute.line(), int(ExitCode.CHECK_FAILED))
    assert heard == [[after]] * 3
    if goes_on:  # named once, and counted
        for k in range(1, 5):
            for call, name in zip(calls, NAMES, strict=True):
                last = desk.all(Heard(call, done(name, k, **({"X0": b"f" * 16} if name == "agent-2" else {}))))
            assert any(isinstance(e, Note) for e in last) == (k in (1, 3)), "when their number doubles"
        kept = desk.machine._witnesses._forgeries.all()[0]
        assert (kept.rounds, kept.last_k, kept.first) == (5, 4, dispute)


def test_a_sender_that_disowns_a_vector_is_heard(tmp_path: Path) -> None:
    desk = Desk(RUN)
    calls = desk.start()
    word = m.Disowned("agent-2", "X", 0, b"f" * 16, b"")
    out = desk.all(Heard(calls[0], word))
    assert said(out, calls[1]) == [m.StopMessage(word.line("agent-1"), 1)]
    assert "agent-1 says that it never sent one: somebody sends with its certificate, or one of both" in out[0].text
    write_digests(tmp_path, out[1].found)
    assert read_digests(tmp_path) == out[1].found
    for bad in (
        replace(word, receiver="agent-9"),
        replace(word, receiver="agent-3"),
        replace(word, ours=word.theirs),
        replace(word, k=10),
    ):
        other = Desk(RUN)
        call = other.start()[0]
        assert ended(other.say(call, bad), call) == "INVALID_ARGUMENT", "there is no such edge"
    assert ended(other.say(other.seat("agent-1")[0], m.Done(0, -1, 0, words=b"x" * 16)), call) is None


def test_an_agent_that_disowns_again_and_again_fills_no_log() -> None:
    desk = Desk(replace(RUN, runtime=replace(RUN.runtime, on_forgery="continue")))
    calls = desk.start()
    loud = [bool(desk.all(Heard(calls[0], m.Disowned("agent-2", "X", 0, bytes([i]) * 16, b"")))) for i in range(9)]
    assert loud == [True] + [False] * 8
    assert desk.all(Heard(calls[0], m.Disowned("agent-2", "X", 0, b"f" * 16, b"o" * 16))), "now both sides are known"
    assert [bool(desk.all(Heard(calls[0], m.Disowned("agent-2", "X", k, b"f" * 16, b"")))) for k in range(1, 5)] == [
        True, False, True, False,
    ]  # fmt: skip


def test_a_coordinator_that_came_back_goes_on_counting_and_stops_what_it_found(tmp_path: Path) -> None:
    network, first = NETWORK, Dispute("agent-1", "X", 2, (("agent-1", b"a" * 16), ("agent-2", b"b" * 16)))
    held = Compared((Forgery(first, 1, 2),), 5, 3)
    witnesses = Witnesses(network, 1, held, last_round=9, stops=True)
    for name in NAMES:
        heard = witnesses.words(name, 2, words(name, 2, **({"X0": b"f" * 16} if name == "agent-2" else {})))
    assert heard is not None and heard.stop == heard.disputes[0].line(), "who died before it stopped the run"
    for name in NAMES:
        lies = {"agent-2": {"X0": b"f" * 16}, "agent-3": {"Y0": b"g" * 16}}
        witnesses.words(name, 3, words(name, 3, **lies.get(name, {})))
    (kept,) = witnesses.ended()
    assert kept == ct.KeepCompared(
        Compared((replace(held.forgeries[0], rounds=2, last_k=3), kept.found.forgeries[1]), 5 + 2, 3)
    )
    write_digests(tmp_path, kept.found)
    assert read_digests(tmp_path) == kept.found


def test_the_last_words_of_a_run_are_compared_when_it_ends() -> None:
    witnesses = Witnesses(NETWORK, 1, Compared(), last_round=9, stops=True)
    witnesses.words("agent-1", 4, words("agent-1", 4))
    witnesses.words("agent-2", 4, words("agent-2", 4, X0=b"f" * 16))
    note, kept = witnesses.ended()
    assert isinstance(note, Note) and note.text.startswith("X of round 4 of agent-1 is in dispute")
    assert isinstance(kept, ct.KeepCompared) and len(kept.found.forgeries) == 1


def test_words_of_another_length_are_nonsense() -> None:
    desk = Desk(RUN)
    call = desk.start()[0]
    assert ended(desk.say(call, m.Done(0, -1, 0, words=b"x" * 16)), call) == "INVALID_ARGUMENT"
    assert desk.machine.barrier.done("agent-1") == -1, "nor does it count as done"


def test_payloads_are_told_apart_by_sixteen_bytes() -> None:
    one, other = cases.payload("X", 0, 1.0), cases.payload("X", 0, 2.0)
    assert isinstance(one, Payload) and one.sha256[:16] != other.sha256[:16]
