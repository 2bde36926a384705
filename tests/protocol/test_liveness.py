"""Who is missing, cut off or slow: the coordinator's machine, driven by hand with its own clock."""

from __future__ import annotations

import pytest

from dpgt_node.errors import ExitCode
from dpgt_node.protocol.coordinator import barrier as co
from dpgt_node.protocol.liveness import Down, EdgeReport, Lack, Trouble
from dpgt_node.protocol.types import Go, Tick
from tests.protocol.coordinator.test_coordinator import NAMES

S = 1_000_000_000
T = 60 * S
SETTLE = 6 * S


def running(on_loss: str = "wait", *, done_through: int = -1) -> co.CoordinatorMachine:
    m = co.CoordinatorMachine(
        NAMES,
        99,
        barrier_every=1,
        register_timeout_ns=300 * S,
        liveness_ns=T,
        settle_ns=SETTLE,
        on_agent_loss=on_loss,  # type: ignore[arg-type]
        now_ns=0,
    )
    for name in NAMES:
        m.step(co.AgentJoined(name, -1, -1), 0)
    for k in range(done_through + 1):
        for name in NAMES:
            m.step(co.AgentDone(name, k, k), 0)
    return m


def hear(m: co.CoordinatorMachine, now_s: float, *names: str) -> list[str]:
    return warned([e for name in names for e in m.step(co.AgentHeard(name), int(now_s * S))])


def tick(m: co.CoordinatorMachine, now_s: float) -> list[str]:
    return warned(m.step(Tick(), int(now_s * S)))


def edges(m: co.CoordinatorMachine, now_s: float, name: str, report: EdgeReport) -> list[str]:
    return warned(m.step(co.AgentEdges(name, report), int(now_s * S)))


def warned(effects: object) -> list[str]:
    assert all(isinstance(e, co.Warn) for e in effects), effects  # type: ignore[attr-defined]
    return [e.message for e in effects]  # type: ignore[attr-defined]


def lacks(k: int, *senders: str, waited_s: float, silent_s: float | None = None) -> EdgeReport:
    silent_ns = None if silent_s is None else int(silent_s * S)
    return EdgeReport(k, int(waited_s * S), lacks=tuple(Lack(sender, silent_ns) for sender in senders))


def down(k: int, receiver: str, for_s: float) -> EdgeReport:
    return EdgeReport(k, 0, down=(Down(receiver, int(for_s * S), "no route"),))


def kinds(m: co.CoordinatorMachine, now_s: float) -> list[tuple[str, str, str | None]]:
    return [trouble.key for trouble in m.troubles(int(now_s * S))]


# --- an agent that is gone or silent ---------------------------------------------------------------------------------


def test_one_that_left_is_named_at_once_and_again_at_the_bound_and_when_it_is_back() -> None:
    m = running()
    hear(m, 5, *NAMES)
    assert warned(m.step(co.AgentGone("b"), 8 * S)) == ["b left at round 0"]
    assert kinds(m, 9) == [("left", "b", None)]
    assert m.next_deadline_ns() == T, "nobody has made a step since 0"
    hear(m, 60, "a", "c")
    assert tick(m, 64) == []
    assert tick(m, 65) == ["b left in round 0 and has been away for 60.0 s; waiting for it (on_agent_loss = wait)"], (
        "since its last sign of life"
    )
    hear(m, 100, "a", "c")
    assert tick(m, 100) == []
    out = m.step(co.AgentJoined("b", -1, -1), 130 * S)
    assert out[0] == co.Warn("b is back after 125.0 s") and out[1] == co.BroadcastStart(0)
    assert kinds(m, 131) == []


def test_one_that_comes_back_inside_the_bound_is_not_lost() -> None:
    m = running("stop")
    m.step(co.AgentGone("b"), 1 * S)
    hear(m, 50, "a", "c")
    assert m.step(co.AgentJoined("b", -1, -1), 59 * S) == (co.BroadcastStart(0),)
    assert tick(m, 100) == []


def test_a_registration_alone_does_not_bring_it_back() -> None:
    """A process that starts, registers and crashes again and again never becomes a living agent."""
    m = running("stop")
    m.step(co.AgentGone("b"), 1 * S)
    for now_s in (20, 40, 59):
        hear(m, now_s, *NAMES)
    (stop,) = m.step(Tick(), 60 * S)
    assert isinstance(stop, co.BroadcastStop) and stop.exit_code is ExitCode.PEER_LOST
    assert stop.reason == "b left in round 0 and has been away for 60.0 s"


def test_a_finished_agent_is_still_watched_because_others_may_need_its_last_vector() -> None:
    m = running(done_through=99)
    m.step(co.AgentFinished("a"), 1 * S)
    assert warned(m.step(co.AgentGone("a"), 2 * S)) == ["a left at round 100"]
    hear(m, 50, "b", "c")
    assert [line.split()[0] for line in tick(m, 60)] == ["a"]


def test_silence_is_named_at_the_bound_and_its_end_too() -> None:
    m = running()
    hear(m, 10, "a", "b")
    assert m.next_deadline_ns() == T
    assert tick(m, 59.9) == []
    assert tick(m, 60) == ["c gave no sign of life for 60.0 s, in round 0; waiting for it (on_agent_loss = wait)"]
    assert m.next_deadline_ns() == 70 * S, "the deadline that was judged is not asked for again"
    assert hear(m, 75, "c") == ["c is back after 75.0 s"]
    assert hear(m, 75, "c") == []


@pytest.mark.parametrize("paused", [False, True])
def test_a_silent_agent_stops_the_run_by_name_paused_or_not(paused: bool) -> None:
    m = running("stop")
    if paused:
        m.step(co.PauseRequested(), 0)
    hear(m, 10, "a", "b")
    (stop,) = m.step(Tick(), 60 * S)
    assert stop == co.BroadcastStop("c gave no sign of life for 60.0 s, in round 0", ExitCode.PEER_LOST)


# --- an edge that is cut ---------------------------------------------------------------------------------------------


def test_a_stream_that_is_down_is_named_with_both_ends_and_its_cause() -> None:
    m = running(done_through=16)
    assert edges(m, 20, "a", down(17, "b", 2)) == [], "it may be a moment's trouble"
    assert edges(m, 24, "a", down(17, "b", 6)) == ["a cannot reach b for 6.0 s: its stream is down (no route)"]
    assert edges(m, 26, "a", down(17, "b", 8)) == []
    m2 = running(done_through=16)
    edges(m2, 26, "b", lacks(17, "a", waited_s=8, silent_s=12))
    assert edges(m2, 30, "a", down(17, "b", 12)) == [
        "b has lacked round 17 of a for 12.0 s: a cannot reach b; its stream is down (no route)"
    ]
    assert m2.waits_for("b") == ("a",)
    m3 = running(done_through=16)
    edges(m3, 26, "b", lacks(17, "a", waited_s=8, silent_s=12))
    m3.step(co.AgentGone("b"), 27 * S)
    assert m3.waits_for("b") == (), "what it reported in a life that is over is void"
    assert edges(m2, 40, "a", EdgeReport(17, 0)) == ["a reaches b again"]
    m2.step(co.AgentDone("b", 17, 17), 41 * S)
    assert m2.waits_for("b") == ()


def test_a_stream_that_looks_open_but_carries_nothing_is_named_at_the_bound() -> None:
    """a is done with the round that b lacks: it released it, and heard of b as b heard nothing of a."""
    m = running(done_through=16)
    m.step(co.AgentDone("a", 17, 17), 1 * S)
    for now_s in range(10, 60, 10):
        assert edges(m, now_s, "b", lacks(17, "a", waited_s=now_s, silent_s=now_s)) == []
    hear(m, 59, *NAMES)
    assert edges(m, 60, "b", lacks(17, "a", waited_s=60, silent_s=60)) == [
        "b has lacked round 17 of a for 60.0 s: a cannot reach b; its stream is open, but no byte arrives; "
        "waiting for it (on_agent_loss = wait)"
    ]


def test_bytes_that_arrive_slowly_are_life() -> None:
    m = running("stop", done_through=16)
    m.step(co.AgentDone("a", 17, 17), 0)
    m.step(co.AgentDone("c", 17, 17), 0)
    for now_s in range(10, 600, 10):
        hear(m, now_s, *NAMES)
        assert all(
            "still receiving from a" in line
            for line in edges(m, now_s, "b", lacks(17, "a", waited_s=now_s, silent_s=1))
        )
    assert m.phase is co.CoordinatorPhase.RUNNING


def test_two_that_lack_each_others_round_have_both_released_it() -> None:
    m = running("stop", done_through=16)
    m.step(co.AgentDone("c", 17, 17), 1 * S)
    hear(m, 59, *NAMES)
    edges(m, 60, "a", lacks(17, "b", waited_s=59, silent_s=59))
    assert edges(m, 60, "b", lacks(17, "a", waited_s=59, silent_s=59)) == []
    assert kinds(m, 61) == [("cut", "a", "b"), ("cut", "b", "a")]
    (stop,) = m.step(Tick(), 61 * S)
    assert isinstance(stop, co.BroadcastStop) and stop.reason.startswith("b has lacked round 17 of a for 60.0 s")


def test_an_edge_is_not_blamed_for_an_end_that_is_away_or_has_just_come_back() -> None:
    m = running(done_through=16)
    m.step(co.AgentGone("b"), 1 * S)
    assert edges(m, 30, "a", down(17, "b", 29)) == []
    m.step(co.AgentJoined("b", 16, 16), 31 * S)
    assert edges(m, 32, "a", down(17, "b", 31)) == [], "it has not had the time to dial"
    assert len(edges(m, 37, "a", down(17, "b", 36))) == 1, "6 s after b came back"
    assert warned(m.step(co.AgentGone("b"), 38 * S)) == ["b left at round 17"]
    assert tick(m, 39) == [], "that b left does not mean that a reaches it again"


def test_a_cut_stops_the_run_at_the_bound_and_an_edge_nobody_needs_does_not() -> None:
    m = running("stop", done_through=16)
    hear(m, 70, *NAMES)
    assert len(edges(m, 69, "a", down(17, "b", 59))) == 1
    (stop,) = m.step(co.AgentEdges("a", down(17, "b", 60)), 70 * S)
    assert stop == co.BroadcastStop("a cannot reach b for 60.0 s: its stream is down (no route)", ExitCode.PEER_LOST)
    last = running("stop", done_through=99)
    hear(last, 70, *NAMES)
    edges(last, 70, "a", down(100, "b", 60))
    assert kinds(last, 70) == [("slow", "a", None)]


# --- one that is slow ------------------------------------------------------------------------------------------------


def test_a_slow_agent_is_named_and_never_lost() -> None:
    m = running("stop", done_through=16)
    m.step(co.AgentDone("a", 17, 17), 2 * S)
    edges(m, 10, "b", lacks(17, "c", waited_s=8, silent_s=8))
    for now_s in (20, 40, 61):
        assert hear(m, now_s, *NAMES) == []
    assert m.next_deadline_ns() == 62 * S
    assert tick(m, 62) == ["round 17 has waited 60.0 s for c: alive, but not done (last heard 1.0 s ago)"]
    assert kinds(m, 62) == [("slow", "c", None)]
    for now_s in (100, 1000):
        hear(m, now_s, *NAMES)
        assert tick(m, now_s) == [], "once"
    m.step(co.AgentDone("c", 17, 17), 1001 * S)
    m.step(co.AgentDone("b", 17, 17), 1001 * S)
    hear(m, 1060, *NAMES)
    assert len(tick(m, 1061)) == 1, "and again in another round"


def test_nobody_is_slow_while_somebody_is_away_or_the_run_is_paused() -> None:
    m = running(done_through=16)
    m.step(co.AgentGone("b"), 50 * S)
    hear(m, 70, "a", "c")
    assert [key[0] for key in kinds(m, 70)] == ["left"]
    paused = running(done_through=16)
    paused.step(co.PauseRequested(), 0)
    hear(paused, 70, *NAMES)
    assert tick(paused, 70) == []
    assert paused.step(co.ResumeRequested(), 80 * S) == ()
    hear(paused, 100, *NAMES)
    assert tick(paused, 100) == []


def test_a_deadline_is_never_in_the_past() -> None:
    """A driver that sleeps until the deadline and finds nothing to do must not be woken at once again."""
    m = running(done_through=3)
    m.step(co.AgentGone("b"), 50 * S)
    now_ns = 0
    for _ in range(50):
        deadline_ns = m.next_deadline_ns()
        if deadline_ns is None:
            break
        assert deadline_ns > now_ns
        now_ns = deadline_ns
        m.step(Tick(), now_ns)
    assert m.next_deadline_ns() is None


# --- a coordinator that comes back -----------------------------------------------------------------------------------


def restarted(*, paused: bool, released: tuple[int, int, int]) -> tuple[co.CoordinatorMachine, tuple[object, ...]]:
    m = co.CoordinatorMachine(
        NAMES,
        99,
        barrier_every=1,
        register_timeout_ns=300 * S,
        liveness_ns=T,
        on_agent_loss="wait",
        now_ns=0,
        paused=paused,
    )
    out: tuple[object, ...] = ()
    for name, last in zip(NAMES, released, strict=True):
        out = m.step(co.AgentJoined(name, 6, 6, released=last), 0)
    return m, out


def test_a_pause_outlives_the_coordinator() -> None:
    m, out = restarted(paused=True, released=(6, 6, 6))
    assert out == (co.BroadcastStart(6),) and m.phase is co.CoordinatorPhase.PAUSED, "nothing new is let through"
    assert m.step(co.ResumeRequested(), 0)[-1] == co.Broadcast(Go(7))
    m, out = restarted(paused=True, released=(7, 6, 6))
    assert out == (co.BroadcastStart(7),), "what one had released before, the others finish"
    m, out = restarted(paused=False, released=(6, 6, 6))
    assert out == (co.BroadcastStart(7),) and m.phase is co.CoordinatorPhase.RUNNING


def test_a_pause_can_be_ended_while_the_agents_gather() -> None:
    m = co.CoordinatorMachine(
        NAMES, 99, barrier_every=1, register_timeout_ns=T, liveness_ns=T, on_agent_loss="wait", now_ns=0, paused=True
    )
    m.step(co.ResumeRequested(), 0)
    out = [m.step(co.AgentJoined(name, -1, -1), 0) for name in NAMES]
    assert out[-1] == (co.BroadcastStart(0),) and m.phase is co.CoordinatorPhase.RUNNING


def test_a_trouble_says_its_span_in_mid_sentence() -> None:
    trouble = Trouble("silent", "a", None, 2 * S, 3 * S, "a was quiet for", ", all of it")
    assert trouble.line(5 * S) == "a was quiet for 3.0 s, all of it"
