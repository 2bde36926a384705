"""Who gets a seat, keeps it and loses it: calls at the coordinator's machine, driven by hand."""

from __future__ import annotations

from typing import Any

import pytest

from dpgt_node.errors import ExitCode
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.calls import Call, End, Ended, Heard, Hold, Note, ReadOn, Taken, Write
from dpgt_node.protocol.coordinator import barrier as co
from dpgt_node.protocol.coordinator import coordination_types as ct
from dpgt_node.protocol.coordinator import membership
from dpgt_node.protocol.types import Tick
from tests.protocol.coordinator.desk import NAMES, RUN_ID, Desk, ended, run_of, said

TWIN = m.Refused("identity", "another process runs as agent-2 right now")
BEAT_S = 2.0


# --- the first word --------------------------------------------------------------------------------------------------


def test_one_that_says_nothing_is_hung_up_on() -> None:
    desk = Desk()
    early = desk.call("agent-1")
    desk.tick(4)
    late = desk.call("agent-2")
    assert ended(desk.tick(5.9), early) is None
    out = desk.tick(0.2)
    assert ended(out, early) == "DEADLINE_EXCEEDED" and "agent-1 said nothing for 10 s" in str(out[0].error)
    assert ended(out, late) is None and ended(desk.tick(4), late) == "DEADLINE_EXCEEDED"


def test_a_caller_that_leaves_without_a_word_is_forgotten() -> None:
    desk = Desk()
    assert desk.leave(desk.call("agent-1")) == [] == desk.tick(30)


def test_a_coordinator_that_slept_does_not_take_it_for_the_callers_silence() -> None:
    desk = Desk()
    call = desk.call("agent-1")
    desk.now_s += 3600
    assert desk.feed(Tick()) == [], "of an hour two heartbeats count"
    assert ended(desk.tick(6), call) == "DEADLINE_EXCEEDED"


@pytest.mark.parametrize("word", [m.Done(0, -1, 0), m.Heartbeat(), m.Ready()])
def test_the_first_word_is_register(word: object) -> None:
    desk = Desk()
    call = desk.call("agent-1")
    assert ended(desk.say(call, word), call) == "INVALID_ARGUMENT"
    assert desk.say(call, desk.registration("agent-1")) == [], "whoever is turned away is not listened to any more"


@pytest.mark.parametrize(("peer", "ends_run"), [("agent-2", True), ("mallory", False)])
def test_a_refusal_at_the_door_counts_from_an_agent_of_the_run(peer: str, ends_run: bool) -> None:
    desk = Desk()
    call = desk.call(peer)
    out = desk.say(call, m.Refusal("policy", "no budget"))
    assert ended(out, call) == ("OK" if ends_run else "INVALID_ARGUMENT")
    assert (desk.machine.stage.name == "CLOSING") == ends_run


def test_another_D_is_refused_once_the_run_began_unless_the_agent_is_done() -> None:
    """Before the first round a table may still be mended; who has the result releases nothing more."""
    desk = Desk()
    early, _ = desk.seat("agent-1", samples=900)
    desk.leave(early)
    calls = [desk.seat(name, samples=1000)[0] for name in NAMES]
    desk.leave(calls[0])
    call, out = desk.register("agent-1", samples=1200)
    (refused,) = said(out, call)
    assert isinstance(refused, m.Refused) and refused.kind == "data" and "had D = 1000 samples" in refused.reason
    assert all(said(out, other) == [] for other in calls[1:]), "the others wait"
    call, out = desk.register("agent-1", samples=1000)
    assert [type(message) for message in said(out, call)] == [m.Welcome]
    desk.leave(call)
    done = dict.fromkeys(("last_released_round", "last_done_round", "last_durable_round"), desk.run.K)
    call, out = desk.register("agent-1", samples=1200, run_id=RUN_ID, **done)
    assert [type(message) for message in said(out, call)] == [m.Welcome]


def test_the_D_of_a_run_that_an_earlier_life_saw_begin_is_asked_for() -> None:
    desk = Desk(samples=dict.fromkeys(NAMES, 1000))
    call, out = desk.register("agent-1", samples=None)
    (refused,) = said(out, call)
    assert (
        isinstance(refused, m.Refused) and "had D = 1000 samples when the run began and has D = none" in refused.reason
    )
    call, out = desk.register("agent-1", samples=1000)
    assert [type(message) for message in said(out, call)] == [m.Welcome]


# --- admission -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "changes", "kind", "ends_run"),
    [
        ("agent-1", {}, "identity", False),
        ("mallory", {"name": "mallory"}, "identity", False),
        ("agent-2", {"protocol_version": 99}, "version", True),
        ("agent-2", {"package_version": "0.0.1"}, "version", True),
        ("agent-2", {"run_json": "{}"}, "run-hash", True),
        ("agent-2", {"dimension": 4}, "data", True),
        ("agent-2", {"shape_sha256": "1" * 64}, "data", True),
    ],
)
def test_a_refusal_says_why_and_ends_the_run_only_for_what_an_agent_of_it_disagrees_in(
    peer: str, changes: dict[str, Any], kind: str, ends_run: bool
) -> None:
    desk = Desk()
    here, _ = desk.seat("agent-3")
    call, out = desk.register(**{"name": "agent-2", "peer": peer, **changes})
    (refused,) = said(out, call)
    assert isinstance(refused, m.Refused) and refused.kind == kind and ended(out, call) == "OK"
    stops = [message for message in said(out, here) if isinstance(message, m.StopMessage)]
    assert bool(stops) == ends_run
    if ends_run:
        own = refused.reason.partition(" (here = ")[0]  # what follows is of the agent's own file, for it alone
        assert stops == [m.StopMessage(f"agent-2 refused: {own}", ExitCode.REFUSED)]
        assert (own != refused.reason) == (kind == "run-hash")


def test_an_impostor_does_not_wait_for_a_sign_of_life_of_the_agent_it_claims_to_be() -> None:
    desk = Desk()
    desk.seat("agent-2")
    call, out = desk.register("agent-2", peer="agent-1", instance=b"other")
    assert said(out, call)[0].reason == "the certificate is agent-1's, the registration says agent-2"


@pytest.mark.parametrize("changes", [{"last_released_round": 3}, {"last_done_round": 3}, {"last_durable_round": 3}])
def test_rounds_that_do_not_exist_are_refused(changes: dict[str, int]) -> None:
    desk = Desk()
    call, out = desk.register("agent-1", **changes)
    assert ended(out, call) == "OUT_OF_RANGE" and said(out, call) == []


def test_welcome_has_the_head_that_an_earlier_life_noted() -> None:
    desk = Desk(heads={"agent-1": (1, b"h" * 32)})
    for name, expected in (("agent-1", (1, b"h" * 32)), ("agent-2", (-1, b""))):
        call, out = desk.register(name)
        (welcome,) = said(out, call)
        assert (welcome.ledger_round, welcome.ledger_head) == expected
        assert (welcome.run_id, welcome.run_json, welcome.go_through) == (RUN_ID, desk.json, -1)


def test_ready_counts_once_and_what_was_done_in_another_run_not_at_all() -> None:
    desk = Desk(run_of(9))
    for name, run_id in zip(NAMES, (RUN_ID, RUN_ID, b"s" * 16), strict=True):
        call, _ = desk.register(name, last_released_round=0, last_done_round=0, last_durable_round=0, run_id=run_id)
        out = desk.say(call, m.Ready(), m.Ready())
    assert said(out, call) == [m.Start({name: f"{name}:1" for name in NAMES}, 0)]
    assert [desk.machine.barrier.done(name) for name in NAMES] == [0, 0, -1]


# --- twins and successors --------------------------------------------------------------------------------------------


def doubted(desk: Desk, instance: bytes = b"second", **changes: Any) -> Call:
    call, out = desk.register("agent-2", instance=instance, **changes)
    assert out == [Hold(call)]
    return call


def test_a_twin_is_refused_with_the_firsts_next_word() -> None:
    desk = Desk()
    another, first, *_ = desk.start()
    desk.now_s = 1
    twin = doubted(desk)
    assert desk.say(another, m.Heartbeat()) == [], "another agent's word says nothing of the first"
    out = desk.say(first, m.Heartbeat())
    assert out == [Write(twin, TWIN), End(twin)], "and the first goes on"
    assert desk.say(first, m.Done(0, -1, 0)) == []


def test_a_successor_gets_the_seat_of_one_that_is_silent_for_three_heartbeats() -> None:
    desk = Desk()
    calls = desk.start()
    successor = doubted(desk)
    assert said(desk.tick(3 * BEAT_S - 0.1), successor) == []
    out = desk.tick(0.1)
    assert ended(out, calls[1]) == "OK" and ReadOn(successor) in out
    assert isinstance(said(out, successor)[0], m.Welcome)
    assert desk.say(calls[1], m.Done(0, -1, 0)) == [], "whatever the first still says is void"
    assert said(desk.say(successor, m.Ready()), successor) == [m.Start({name: f"{name}:1" for name in NAMES}, 0)]


def test_a_successor_gets_the_seat_at_once_when_the_first_leaves() -> None:
    desk = Desk()
    first = desk.start()[1]
    successor = doubted(desk)
    out = desk.leave(first)
    assert ReadOn(successor) in out and isinstance(said(out, successor)[0], m.Welcome)


def test_the_first_that_comes_back_over_another_call_is_a_sign_of_life_too() -> None:
    desk = Desk()
    first = desk.start()[1]
    twin = doubted(desk)
    again, out = desk.register("agent-2")
    assert ended(out, first) == "OK" and said(out, twin) == [TWIN] and isinstance(said(out, again)[0], m.Welcome)


def test_one_that_holds_less_than_the_first_told_of_is_no_successor() -> None:
    desk = Desk()
    first = desk.start()[1]
    desk.say(first, m.Done(0, -1, 0))
    for held, run_id in ((-1, RUN_ID), (0, b"s" * 16)):
        call, out = desk.register("agent-2", instance=b"second", last_released_round=held, run_id=run_id)
        assert said(out, call) == [TWIN]
    doubted(desk, last_released_round=0, run_id=RUN_ID)


@pytest.mark.parametrize("leaves", [True, False], ids=["the first leaves", "the first is silent"])
def test_of_two_that_want_a_seat_one_gets_it_and_keeps_it_when_it_speaks(leaves: bool) -> None:
    desk = Desk()
    first = desk.start()[1]
    one, other = doubted(desk), doubted(desk, b"third")
    out = desk.leave(first) if leaves else desk.tick(3 * BEAT_S)
    assert isinstance(said(out, one)[0], m.Welcome) and said(out, other) == []
    assert said(desk.say(one, m.Ready()), other) == [TWIN]


def test_a_newcomer_that_died_while_it_waited_does_not_shut_the_next_one_out() -> None:
    """Two power failures in a row, neither noticed: the seat goes from one dead call to another, then to the third."""
    desk = Desk()
    desk.start()
    dead = doubted(desk)
    desk.tick(1)
    alive = doubted(desk, b"third")
    desk.tick(3 * BEAT_S - 1)
    assert said(desk.tick(3 * BEAT_S - 0.1), alive) == []
    out = desk.tick(0.1)
    assert isinstance(said(out, alive)[0], m.Welcome) and ended(out, dead) == "OK"


def test_a_newcomer_that_dials_again_is_no_twin_of_itself() -> None:
    desk = Desk()
    first = desk.start()[1]
    older = doubted(desk)
    newer, out = desk.register("agent-2", instance=b"second")
    assert out == [End(older), Hold(newer)]
    assert isinstance(said(desk.leave(first), newer)[0], m.Welcome)


def test_a_newcomer_that_leaves_meanwhile_is_forgotten() -> None:
    desk = Desk()
    desk.start()
    desk.leave(doubted(desk))
    assert not [e for e in desk.tick(3 * BEAT_S) if isinstance(e, End)], "the first keeps its silent call"


def test_a_twin_with_another_version_does_not_end_the_run() -> None:
    desk = Desk()
    first = desk.start()[1]
    twin = doubted(desk, package_version="0.0.1")
    assert said(desk.say(first, m.Heartbeat()), twin) == [TWIN]
    assert desk.machine.state == "running"


# --- calls that end --------------------------------------------------------------------------------------------------


def test_an_agent_that_reads_nothing_is_hung_up_on() -> None:
    desk = Desk(run_of(membership.QUEUE_MAX + 9))
    deaf, *others = desk.start()
    calls = [deaf, *others]
    ends: list[Any] = []
    for k in range(membership.QUEUE_MAX + 9):
        out = desk.feed(*(Heard(call, m.Done(k, -1, 0)) for call in calls))
        for call in others:
            desk.feed(Taken(call, 0, 0))
        ends += [effect for effect in out if isinstance(effect, End)]
        if ends:
            break
    assert ends == [End(deaf)] and k > membership.QUEUE_MAX - 9
    assert not desk.machine.barrier.connected("agent-1")
    assert isinstance(said(desk.register("agent-1")[1], Call("agent-1", 4, False))[0], m.Welcome)


def test_a_heartbeat_on_top_of_others_says_nothing() -> None:
    desk = Desk()
    reads, deaf, _ = desk.start()
    desk.feed(Taken(reads, 0, 0))
    out = desk.tick(BEAT_S)
    assert said(out, reads) == [m.Heartbeat()] and said(out, deaf) == [], "it has Start to read"
    desk.feed(Taken(deaf, 0, 1))
    assert said(desk.tick(BEAT_S), deaf) == []
    desk.feed(Taken(deaf, 0, 0))
    assert said(desk.tick(BEAT_S), deaf) == [m.Heartbeat()]


def test_the_end_of_a_call_that_was_replaced_takes_nobody_away() -> None:
    desk = Desk()
    older, _ = desk.seat("agent-1")
    newer, _ = desk.seat("agent-1")
    assert desk.leave(older) == [] and desk.machine.barrier.connected("agent-1")
    desk.leave(newer)
    assert not desk.machine.barrier.connected("agent-1")


def test_when_an_agent_was_last_seen() -> None:
    desk = Desk()
    assert desk.machine.last_seen_s("agent-1", 0) is None
    call, _ = desk.seat("agent-1")
    desk.now_s = 1.5
    assert desk.machine.last_seen_s("agent-1", desk.machine.awake_ns(1_500_000_000)) == 1.5
    desk.say(call, m.Heartbeat())
    assert desk.machine.last_seen_s("agent-1", 1_500_000_000) == 0.0
    desk.leave(call)
    assert desk.machine.last_seen_s("agent-1", 2_500_000_000) == 1.0, "also when it left"


# --- the door after the end ------------------------------------------------------------------------------------------


def test_who_comes_after_the_end_hears_how_it_was() -> None:
    desk = Desk()
    desk.seat("agent-1")
    desk.feed(ct.Asked(m.ControlRequest("stop", "enough")))
    (conclude,) = desk.leave(Call("agent-1", 1, False))
    desk.feed(ct.Closed(co.Conclude("refused", ExitCode.REFUSED, "enough")))
    call, out = desk.register("agent-2")
    assert said(out, call) == [m.StopMessage("enough", ExitCode.REFUSED)] and ended(out, call) == "OK"
    assert isinstance(conclude, co.Conclude)


@pytest.mark.parametrize(
    ("durable", "run_id", "goodbye"), [(2, RUN_ID, True), (1, RUN_ID, False), (2, b"s" * 16, False)]
)
def test_goodbye_after_a_finished_run_is_for_who_has_its_result(durable: int, run_id: bytes, goodbye: bool) -> None:
    desk = Desk()
    desk.feed(ct.Closed(co.Conclude("finished", ExitCode.DONE, "every agent finished")))
    call, out = desk.register("agent-1", last_durable_round=durable, run_id=run_id)
    assert [isinstance(message, m.Goodbye) for message in said(out, call)] == [goodbye]


def test_a_newcomer_that_waits_while_the_end_is_written_is_not_let_in_before() -> None:
    """The last agent's call ends the run, and at once makes room for another process of its name."""
    desk = Desk()
    calls = desk.start()
    desk.leave(calls[0], calls[2])
    successor = doubted(desk)
    desk.feed(co.StopRun("enough"))
    out = desk.leave(calls[1])
    assert [type(effect) for effect in out] == [co.Conclude], "no Welcome to a run that is over"
    out = desk.feed(ct.Closed(out[0]))
    assert said(out, successor) == [m.StopMessage("enough", ExitCode.STOPPED)] and ended(out, successor) == "OK"


def test_who_was_welcome_and_not_ready_when_the_run_ended_hears_so() -> None:
    """It came while the others were leaving: the Stop that they heard was before its time."""
    desk = Desk()
    here, _ = desk.seat("agent-1")
    desk.feed(co.StopRun("enough"))
    late, out = desk.register("agent-2")
    assert isinstance(said(out, late)[0], m.Welcome)
    (conclude,) = desk.leave(here)
    out = desk.feed(ct.Closed(conclude))
    assert said(out, late) == [m.StopMessage("enough", ExitCode.STOPPED)] and ended(out, late) == "OK"
    assert out[-1] == ct.Exit(), "nobody is left"


def test_lines_for_the_log_name_who_came_and_who_was_turned_away() -> None:
    desk = Desk()
    call = desk.call("agent-1")
    lines = [e for e in desk.all(Heard(call, desk.registration("agent-1"))) if isinstance(e, Note)]
    assert lines == [Note("info", "agent-1 registered from 1.2.3.4:5, listens on agent-1:1")]
    stranger = desk.call("mallory")
    (line,) = [e for e in desk.all(Heard(stranger, desk.registration("mallory"))) if isinstance(e, Note)]
    assert line.level == "warning" and line.text.startswith("refused mallory at 1.2.3.4:5: mallory is not in the run")
    (line,) = [e for e in desk.all(Ended(call)) if isinstance(e, Note)]
    assert line == Note("warning", "agent-1 left at round 0")
