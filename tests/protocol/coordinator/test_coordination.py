"""The coordinator's whole machine, driven by hand: reports, what is kept and when, operators, the leave-taking."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpgt_node.errors import ExitCode, PeerError
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.calls import Accepted, Call, End, Heard, Note, Taken, Write
from dpgt_node.protocol.coordinator import barrier as co
from dpgt_node.protocol.coordinator import coordination_types as ct
from dpgt_node.protocol.coordinator.coordination import Stage
from dpgt_node.protocol.liveness import Down, EdgeReport, Lack
from tests.protocol.coordinator.desk import NAMES, RUN_ID, Desk, ended, run_of, said

HEAD = b"h" * 32
RESULT = m.FinishedReport("finished", 6, 9, {}, m.MetricsReport(3))


# --- the start -------------------------------------------------------------------------------------------------------


def test_outputs_begin_before_anybody_hears_start() -> None:
    desk = Desk()
    desk.seat("agent-1")
    desk.seat("agent-3")
    _, out = desk.seat("agent-2")
    begin, *starts = out
    assert begin == ct.BeginResults(tuple(desk.registration(name) for name in NAMES), 0), "in row order"
    assert [effect.message for effect in starts] == [m.Start({n: f"{n}:1" for n in NAMES}, 0)] * 3
    _, out = desk.seat("agent-2")
    assert all(isinstance(effect, Write | End) for effect in out), "once"


@pytest.mark.parametrize(("done", "begun"), [(-1, "rounds 0..2 begin"), (0, "rounds 1..2 begin"), (2, "0..2 are done")])
def test_the_start_names_the_first_round_that_is_left(done: int, begun: str) -> None:
    desk = Desk()
    held = dict.fromkeys(("last_released_round", "last_done_round", "last_durable_round"), done)
    held |= {} if done < 0 else {"run_id": RUN_ID}
    for name in NAMES[:-1]:
        desk.seat(name, **held)
    call, _ = desk.register(NAMES[-1], **held)
    notes = [e.text for e in desk.all(Taken(call, 0, 0), Heard(call, m.Ready())) if isinstance(e, Note)]
    assert [text for text in notes if text.startswith("all 3 agents registered; ") and text.endswith(begun)], notes


def test_how_often_durable_rounds_are_announced_depends_on_the_model() -> None:
    desk = Desk(run_of(9))
    desk.machine._announce = lambda dimension: 1 + dimension
    calls = desk.start()
    heard = []
    for k in range(6):
        heard += said(desk.feed(*(Heard(call, m.Done(k, k, 0)) for call in calls)), calls[0])
    assert [message for message in heard if isinstance(message, m.AllDurableMessage)] == [m.AllDurableMessage(3)]


# --- reports ---------------------------------------------------------------------------------------------------------


def test_a_head_is_kept_before_the_barrier_moves_on_the_report() -> None:
    desk = Desk()
    calls = desk.start()
    for call in calls[:2]:
        assert desk.say(call, m.Done(0, -1, 0, HEAD)) == [ct.NoteHead(call.peer, 0, HEAD)]
    note, *goes, moved = desk.say(calls[2], m.Done(0, -1, 0, HEAD))
    assert note == ct.NoteHead("agent-3", 0, HEAD) and moved == ct.Moved(1)
    assert goes == [Write(call, m.GoMessage(1)) for call in calls]


def test_reports_in_one_message_count_one_by_one() -> None:
    run = run_of(9)
    run = replace(run, runtime=replace(run.runtime, barrier_every=4))
    together, apart = Desk(run), Desk(run)
    calls = together.start()
    assert apart.start() == calls
    for desk in (together, apart):
        desk.feed(*(Heard(call, m.Done(0, -1, 0)) for call in calls))
        assert desk.machine.barrier.go_through == 2, "two rounds at once"
    dones = (m.Done(1, 0, 0, HEAD), m.Done(2, 1, 0, b"i" * 32))
    for call in calls:
        one_by_one = apart.feed(*(Heard(call, done) for done in dones))
        older, *newer = [effect for effect in one_by_one if isinstance(effect, ct.NoteHead)]
        rest = [effect for effect in one_by_one if effect not in (older, *newer)]
        assert together.say(call, m.Dones(dones)) == [*newer, *rest] and newer, "the newest head, before the rest"
    limit = together.machine.barrier.done_limit("agent-1")
    beyond = m.Dones((m.Done(limit, -1, 0), m.Done(limit + 1, -1, 0), m.Done(limit, limit, 0, b"j" * 32)))
    assert ended(out := together.say(calls[0], beyond), calls[0]) == "OUT_OF_RANGE"
    assert together.machine.barrier.done("agent-1") == limit, "the first of them counted"
    assert not [e for e in out if isinstance(e, ct.NoteHead)], "nothing after the nonsense did"


@pytest.mark.parametrize(("k", "head"), [(1, b""), (0, b"g" * 32), (1, b"g" * 32)], ids=["replay", "late", "known"])
def test_a_head_of_a_replay_or_of_a_round_that_is_known_changes_nothing(k: int, head: bytes) -> None:
    desk = Desk(heads={"agent-1": (1, HEAD)})
    calls = [desk.seat(name, last_released_round=1, last_done_round=0, run_id=RUN_ID)[0] for name in NAMES]
    assert not [e for e in desk.say(calls[0], m.Done(k, -1, 0, head)) if isinstance(e, ct.NoteHead)]
    desk.leave(calls[0])
    call, out = desk.register("agent-1", last_released_round=1, run_id=RUN_ID)
    (welcome,) = said(out, call)
    assert (welcome.ledger_round, welcome.ledger_head) == (1, HEAD)


def test_the_newest_head_is_told_to_who_comes_back() -> None:
    desk = Desk()
    call = desk.start()[0]
    desk.say(call, m.Done(0, -1, 0, HEAD))
    desk.leave(call)
    again, out = desk.register("agent-1", last_released_round=0, run_id=RUN_ID)
    (welcome,) = said(out, again)
    assert (welcome.ledger_round, welcome.ledger_head) == (0, HEAD)


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (m.Done(1, 0, 0), "OUT_OF_RANGE"),
        (m.Done(0, 1, 0), "OUT_OF_RANGE"),
        (RESULT, "INVALID_ARGUMENT"),
        (EdgeReport(0, 0, down=(Down("mallory", 1, "x"),)), "INVALID_ARGUMENT"),
        (EdgeReport(0, 0, lacks=(Lack("agent-1", 1),)), "INVALID_ARGUMENT"),
        (Desk().registration("agent-1"), "INVALID_ARGUMENT"),
    ],
    ids=["beyond the barrier", "durable before done", "a result too early", "no edge", "itself", "a second Register"],
)
def test_a_report_that_cannot_be_ends_the_call_and_not_the_run(message: Any, status: str) -> None:
    desk = Desk()
    call = desk.start()[0]
    out = desk.say(call, message)
    assert ended(out, call) == status and out == [out[0]], "nothing else follows from it"
    assert not desk.machine.barrier.connected("agent-1") and desk.machine.state == "running"
    assert desk.machine.barrier.done("agent-1") == -1
    assert desk.say(call, m.Done(0, -1, 0)) == []


def test_edges_in_trouble_and_metrics_are_passed_on() -> None:
    desk = Desk()
    call = desk.start()[0]
    assert desk.say(call, EdgeReport(0, 0, lacks=(Lack("agent-2", 1),))) == []
    assert desk.machine.barrier.waits_for("agent-1") == ("agent-2",)
    report = m.MetricsReport(0, 1.0)
    desk.now_s = 1.0
    assert desk.say(call, report) == [ct.KeepMetrics("agent-1", report)]
    assert desk.machine.barrier.heard_ns("agent-1") == 10**9, "a sign of life, as every message is"


def test_a_local_run_has_a_row_for_every_evaluation_that_an_agent_is_through_with() -> None:
    run = run_of()
    desk = Desk(replace(run, evaluate=replace(run.evaluate, metrics="local", every=2)))
    calls = desk.start()
    kept = [effect for k in range(3) for call in calls for effect in desk.say(call, m.Done(k, -1, 0))]
    rows = [effect for effect in kept if isinstance(effect, ct.KeepRow)]
    assert rows == [ct.KeepRow(f"agent-{i}", k) for k in (2, 3) for i in (1, 2, 3)], "x_2, and x_3 after the last round"


@pytest.mark.parametrize(("code", "expected"), [(2, 2), (4, 4), (6, 6), (70, 70), (99, 70)])
def test_an_agents_failure_ends_the_run_for_all_with_its_code_and_words(code: int, expected: int) -> None:
    desk = Desk()
    calls = desk.start()
    out = desk.say(calls[2], m.Failed(code, "the disk is full"))
    assert out == [Write(call, m.StopMessage("agent-3: the disk is full", expected)) for call in calls]


# --- results ---------------------------------------------------------------------------------------------------------


def through(desk: Desk) -> list[Call]:
    calls = desk.start()
    for k in range(desk.run.K + 1):
        desk.feed(*(Heard(call, m.Done(k, k, 0)) for call in calls))
    return calls


def finished(desk: Desk) -> tuple[list[Call], list[Any]]:
    """Every agent's result is kept; what follows."""
    calls = through(desk)
    out: list[Any] = []
    for call in calls:
        assert desk.say(call, RESULT) == [ct.KeepResult(call, call.peer, RESULT)]
        out = desk.feed(ct.ResultKept(call.peer))
    return calls, out


def test_a_result_counts_once_it_is_kept_and_goodbye_comes_once_the_end_is() -> None:
    desk = Desk()
    calls, out = finished(desk)
    (conclude,) = out
    assert conclude == co.Conclude("finished", ExitCode.DONE, "every agent finished")
    assert desk.machine.conclusion is None and desk.machine.next_deadline_ns() is None
    out = desk.feed(ct.Closed(conclude))
    assert out == [*(Write(call, m.Goodbye()) for call in calls), ct.KeepPause(False)]
    assert desk.machine.state == "finished"


def test_the_agents_are_done_even_where_the_summary_cannot_be_written() -> None:
    desk = Desk()
    calls, _ = finished(desk)
    out = desk.feed(ct.Closed(co.Conclude("failed", ExitCode.CONFIG, "no space")))
    assert said(out, calls[0]) == [m.Goodbye()] and desk.machine.state == "failed"


def test_a_result_that_cannot_be_ends_the_call() -> None:
    desk = Desk()
    call = through(desk)[0]
    desk.say(call, RESULT)
    error = PeerError("no x_final", grpc_status="FAILED_PRECONDITION")
    assert ended(desk.feed(ct.ResultRejected(call, error)), call) == "FAILED_PRECONDITION"
    assert ended(desk.feed(ct.ResultRejected(call, error)), call) is None, "it is gone already"
    stopped = replace(RESULT, status="stopped")
    again, _ = desk.seat("agent-1", last_released_round=2, last_done_round=2, last_durable_round=2, run_id=RUN_ID)
    assert ended(desk.say(again, stopped), again) == "INVALID_ARGUMENT"


def test_a_result_before_the_start_is_asked_for_again_from_who_has_one() -> None:
    desk = Desk()
    held = {"last_released_round": 2, "last_done_round": 2, "last_durable_round": 2, "run_id": RUN_ID}
    early, _ = desk.seat("agent-1", **held)
    assert desk.say(early, RESULT) == [], "its result is of an earlier start"
    nonsense, _ = desk.seat("agent-2")
    assert ended(desk.say(nonsense, RESULT), nonsense) == "INVALID_ARGUMENT"
    desk.seat("agent-2", **held)
    desk.seat("agent-3", **held)
    assert desk.say(early, RESULT) == [ct.KeepResult(early, "agent-1", RESULT)]


# --- the end ---------------------------------------------------------------------------------------------------------


def stopped(desk: Desk, status: str) -> list[Any]:
    """The end of a run that agent-1 and agent-2 had a seat in; both leave after it."""
    calls = [desk.seat(name)[0] for name in NAMES[:2]]
    desk.feed(co.StopRun("enough"))
    desk.leave(calls[0])
    (conclude,) = desk.leave(calls[1])
    return desk.feed(ct.Closed(replace(conclude, status=status)))


def test_what_happens_while_the_end_is_written_waits_for_it() -> None:
    desk = Desk()
    calls, (conclude,) = finished(desk)
    late = Call("agent-2", 99, False)
    events = (Accepted(late), Heard(late, desk.registration("agent-2", instance=b"second")), Heard(calls[0], RESULT))
    assert desk.feed(*events, Heard(calls[0], m.Done(2, 2, 0, b"h" * 32))) == []
    assert desk.feed(ct.Asked(m.ControlRequest("pause"))) == []
    out = desk.feed(ct.Closed(conclude))
    assert [e.reply for e in out if isinstance(e, ct.Answer)] == [m.ControlReply(False, "the run is finished")]
    assert not any(isinstance(e, ct.NoteHead) for e in out), "no report counts any more"
    assert desk.machine.stage is Stage.PARTING


def test_a_coordinator_leaves_when_everybody_has_left() -> None:
    desk = Desk()
    calls, (conclude,) = finished(desk)
    desk.feed(ct.Closed(conclude))
    assert desk.leave(calls[0], calls[1]) == []
    assert desk.leave(calls[2]) == [ct.Exit()]
    assert desk.machine.stage is Stage.OVER and desk.machine.next_deadline_ns() is None
    late = Call("agent-1", 9, False)
    assert desk.feed(Accepted(late)) == [End(late)] and desk.feed(Heard(late, m.Ready())) == []


def test_a_coordinator_does_not_wait_longer_than_a_second_for_who_stays() -> None:
    desk = Desk()
    _, (conclude,) = finished(desk)
    desk.feed(ct.Closed(conclude))
    assert desk.tick(0.9) == [] and desk.tick(0.2) == [ct.Exit()], "they all were told"


@pytest.mark.parametrize("status", ["refused", "finished"])
def test_who_was_away_has_three_seconds_to_come_and_hear_it(status: str) -> None:
    desk = Desk()
    assert ct.Exit() not in stopped(desk, status) and desk.machine.stage is Stage.LATE
    assert desk.tick(2.9) == [] and desk.tick(0.2) == [ct.Exit()]


def test_who_was_away_is_not_waited_for_once_everybody_heard() -> None:
    desk = Desk()
    stopped(desk, "refused")
    for name in NAMES[:2]:
        desk.register(name)
    assert desk.machine.stage is Stage.LATE, "they left before the end was written, and came back"
    call, out = desk.register("agent-3")
    assert out[-1] == ct.Exit() and isinstance(said(out, call)[0], m.StopMessage)


@pytest.mark.parametrize("status", ["stopped", "lost", "budget", "failed"])
def test_nobody_is_waited_for_after_another_end(status: str) -> None:
    assert stopped(Desk(), status)[-1] == ct.Exit()


@pytest.mark.parametrize("read", [True, False])
def test_who_left_because_of_stop_needs_no_second_word(read: bool) -> None:
    """One that is gone before Stop has left the queue may come back and ask."""
    desk = Desk()
    calls = [desk.seat(name)[0] for name in NAMES]
    desk.feed(co.StopRun("enough"), *(Taken(call, 0, int(not read and call.peer == "agent-2")) for call in calls))
    assert desk.leave(*calls[:2]) == []
    (conclude,) = desk.leave(calls[2])
    assert (desk.feed(ct.Closed(replace(conclude, status="refused")))[-1] == ct.Exit()) is read


def test_who_reads_signs_of_life_after_stop_was_told_all_the_same() -> None:
    desk = Desk()
    calls = [desk.seat(name)[0] for name in NAMES]
    desk.feed(co.StopRun("enough"), *(Taken(call, 0, 0) for call in calls))
    beats = desk.tick(2.5)
    assert [said(beats, call) for call in calls] == [[m.Heartbeat()]] * 3
    desk.feed(*(Taken(call, 0, 0) for call in calls))
    (conclude,) = desk.leave(*calls)
    assert desk.feed(ct.Closed(replace(conclude, status="refused")))[-1] == ct.Exit()


def test_who_left_before_stop_was_said_may_still_come_and_hear_it() -> None:
    desk = Desk()
    calls = [desk.seat(name)[0] for name in NAMES]
    desk.feed(*(Taken(call, 0, 0) for call in calls))
    desk.leave(calls[0])
    desk.feed(co.StopRun("enough"), *(Taken(call, 0, 0) for call in calls[1:]))
    (conclude,) = desk.leave(*calls[1:])
    assert ct.Exit() not in desk.feed(ct.Closed(replace(conclude, status="refused")))
    assert desk.register(NAMES[0])[1][-1] == ct.Exit()


def test_who_is_refused_by_the_coordinator_may_be_a_twin_so_that_the_agent_may_still_come() -> None:
    desk = Desk()
    calls = [desk.seat(name)[0] for name in NAMES[:2]]
    desk.register("agent-3", package_version="0.0.0")
    desk.feed(*(Taken(call, 0, 0) for call in calls))
    assert desk.leave(calls[0]) == []
    (conclude,) = desk.leave(calls[1])
    assert conclude.status == "refused" and ct.Exit() not in desk.feed(ct.Closed(conclude))
    assert desk.register("agent-3")[1][-1] == ct.Exit()


def test_a_refusal_is_as_good_as_hearing_the_end() -> None:
    desk = Desk()
    stopped(desk, "refused")
    for name in NAMES:
        out = desk.say(desk.call(name), m.Refusal("policy", "no"))
    assert out[-1] == ct.Exit()


def test_a_coordinator_that_was_killed_while_it_took_leave_goes_on_with_that() -> None:
    desk = Desk()
    desk.feed(ct.Closed(co.Conclude("finished", ExitCode.DONE, "every agent finished")))
    assert desk.machine.stage is Stage.LATE and desk.machine.state == "finished"
    for name in NAMES:
        call, out = desk.register(name, last_durable_round=2, run_id=RUN_ID)
        assert said(out, call) == [m.Goodbye()]
    assert out[-1] == ct.Exit()


def test_a_disk_that_takes_nothing_ends_the_run_for_everybody() -> None:
    desk = Desk()
    calls = desk.start()
    out = desk.feed(co.StopRun("/out: No space left on device", ExitCode.CONFIG))
    assert said(out, calls[0]) == [m.StopMessage("/out: No space left on device", ExitCode.CONFIG)]


# --- operators -------------------------------------------------------------------------------------------------------


def ask(desk: Desk, action: m.Action) -> tuple[list[Any], m.ControlReply]:
    *out, answer = desk.feed(ct.Asked(m.ControlRequest(action)))
    assert isinstance(answer, ct.Answer)
    return out, answer.reply


def test_control_by_state() -> None:
    desk = Desk()
    for action in ("pause", "resume"):
        assert ask(desk, action) == ([], m.ControlReply(False, "the run has not begun"))  # type: ignore[arg-type]
    calls = desk.start()
    assert ask(desk, "resume") == ([], m.ControlReply(True, "the run is running"))
    assert ask(desk, "pause") == ([ct.KeepPause(True)], m.ControlReply(True, "paused; agents finish round 0"))
    assert ask(desk, "pause") == ([], m.ControlReply(True, "the run is paused"))
    assert desk.feed(*(Heard(call, m.Done(0, -1, 0)) for call in calls)) == []
    out, reply = ask(desk, "resume")
    assert reply == m.ControlReply(True, "running")
    assert out == [ct.KeepPause(False), *(Write(call, m.GoMessage(1)) for call in calls), ct.Moved(1)]
    out, reply = ask(desk, "stop")
    assert reply.ok and out == [Write(call, m.StopMessage("stopped by the operator", 5)) for call in calls]
    assert ask(desk, "stop") == ([], m.ControlReply(True, "stopping")), "twice is no error"


def test_a_pause_of_an_earlier_life_is_ended_once() -> None:
    desk = Desk(paused=True)
    assert ask(desk, "resume") == ([ct.KeepPause(False)], m.ControlReply(True, "running"))
    assert ask(desk, "resume") == ([], m.ControlReply(False, "the run has not begun"))


def test_nothing_is_resumed_after_the_end() -> None:
    desk = Desk(paused=True)
    stopped(desk, "refused")
    assert ask(desk, "resume") == ([], m.ControlReply(False, "the run is refused"))
