"""The coordinator's machine, driven by hand: barrier, rejoin, pause, stop, liveness."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgt_node.errors import ExitCode
from dpgt_node.protocol.clock import SECOND
from dpgt_node.protocol.coordinator import barrier as co
from dpgt_node.protocol.coordinator.blocks import Blocks
from dpgt_node.protocol.coordinator.slowest import Slowest
from dpgt_node.protocol.types import AllDurable, Go, Tick

NAMES = ("a", "b", "c")


def machine(
    last_round: int = 5, *, barrier_every: int = 1, on_loss: str = "wait", paused: bool = False
) -> co.CoordinatorMachine:
    return co.CoordinatorMachine(
        NAMES,
        last_round,
        barrier_every=barrier_every,
        register_timeout_ns=1000,
        liveness_ns=100,
        on_agent_loss=on_loss,  # type: ignore[arg-type]
        now_ns=0,
        grace_ns=50,
        paused=paused,
    )


def running(**options: object) -> co.CoordinatorMachine:
    m = machine(**options)  # type: ignore[arg-type]
    for name in NAMES:
        m.step(co.AgentJoined(name, -1, -1), 0)
    return m


def done(m: co.CoordinatorMachine, k: int, names: tuple[str, ...] = NAMES, durable: int | None = None) -> list[object]:
    out: list[object] = []
    for name in names:
        out += m.step(co.AgentDone(name, k, k - 1 if durable is None else durable), 0)
    return out


def test_the_last_agent_to_register_starts_the_run() -> None:
    m = machine()
    assert m.step(co.AgentJoined("a", -1, -1), 0) == ()
    assert m.step(co.AgentJoined("b", -1, -1), 0) == ()
    assert m.waiting_for() == ("c",)
    assert m.step(co.AgentJoined("c", -1, -1), 0) == (co.BroadcastStart(0),)


def test_the_barrier_opens_for_all_when_the_slowest_is_done() -> None:
    m = running()
    assert done(m, 0, ("a", "b")) == []
    assert m.waiting_for() == ("c",)
    assert done(m, 0, ("c",)) == [co.Broadcast(Go(1))]
    assert done(m, 1) == [co.Broadcast(AllDurable(0)), co.Broadcast(Go(2))]


def test_barrier_every_lets_a_block_of_rounds_run() -> None:
    m = machine(10, barrier_every=4)
    outs = [m.step(co.AgentJoined(name, -1, -1), 0) for name in NAMES]
    assert outs[-1] == (co.BroadcastStart(0),)
    gos = [e for k in range(8) for e in done(m, k) if isinstance(e, co.Broadcast) and isinstance(e.message, Go)]
    assert gos == [co.Broadcast(Go(2)), co.Broadcast(Go(3)), co.Broadcast(Go(7)), co.Broadcast(Go(10))]


def test_blocks_last_about_a_second_and_hold_w_rounds_at_most() -> None:
    blocks, now_ns, first = Blocks(16), 0, 0

    def lengths(count: int, each_ns: int) -> list[int]:
        nonlocal now_ns, first
        found = []
        for _ in range(count):
            through = blocks.open(first, now_ns)
            found.append(through - first + 1)
            first, now_ns = through + 1, now_ns + each_ns * found[-1]
        return found

    assert lengths(6, SECOND // 100) == [1, 2, 4, 8, 1, 16], "twice as many each time, up to a multiple of W"
    assert lengths(4, SECOND * 2 // 5) == [16, 2, 2, 2], "when the pace is known"
    assert lengths(4, 3 * SECOND)[1:] == [1, 1, 1]


@given(st.integers(1, 20), st.lists(st.integers(0, 3 * SECOND), min_size=1, max_size=60))
def test_no_block_goes_beyond_a_multiple_of_its_bound(every: int, took_ns: list[int]) -> None:
    blocks, first, now_ns = Blocks(every), 0, 0
    for span_ns in took_ns:
        through = blocks.open(first, now_ns)
        assert first <= through <= blocks.end(first) and blocks.before(through) < first
        first, now_ns = through + 1, now_ns + span_ns


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-1, 9)), max_size=60))
def test_the_slowest_is_the_least_of_all(moves: list[tuple[str, int]]) -> None:
    slowest, held = Slowest("abcd"), dict.fromkeys("abcd", -1)
    for name, k in moves:
        slowest.reached(name, k)
        held[name] = max(held[name], k)
        assert slowest.least == min(held.values()) and slowest.of(name) == held[name]


class LooksAtEverybody(co.CoordinatorMachine):
    @property
    def k(self) -> int:
        return min(self.done(name) for name in self._agents) + 1


def lines_of_a_report(agents: int, kind: type[co.CoordinatorMachine]) -> int:
    """Lines of Python that the machine runs for each Done of a round but the last."""
    names, lines = [f"agent-{i}" for i in range(agents)], 0
    m = kind(
        names, 9, barrier_every=1, register_timeout_ns=9, liveness_ns=9, on_agent_loss="wait", now_ns=0
    )  # fmt: skip
    for name in names:
        m.step(co.AgentJoined(name, -1, -1), 0)

    def count(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        for name in names[1:]:
            m.step(co.AgentDone(name, 0, -1), 0)
    finally:
        sys.settrace(before)
    return lines // (agents - 1)


def test_a_report_costs_the_coordinator_the_same_among_many_agents() -> None:
    few, many = (lines_of_a_report(n, co.CoordinatorMachine) for n in (5, 400))
    assert few == many
    few, many = (lines_of_a_report(n, LooksAtEverybody) for n in (5, 400))
    assert many > 10 * few


def test_a_done_beyond_the_barrier_is_a_broken_invariant() -> None:
    with pytest.raises(AssertionError, match="past the barrier"):
        running().step(co.AgentDone("a", 1, -1), 0)


def test_the_run_ends_when_every_agent_finished() -> None:
    m = running(last_round=0)
    done(m, 0, durable=0)
    assert m.k == 1
    m.step(co.AgentFinished("a"), 0)
    m.step(co.AgentFinished("b"), 0)
    conclude, dismiss = m.step(co.AgentFinished("c"), 0)
    assert dismiss == co.Dismiss(), "nobody leaves for good before the end is durable"
    assert isinstance(conclude, co.Conclude) and conclude.exit_code is ExitCode.DONE


def test_a_rejoining_agent_gets_start_again_and_cannot_move_the_run_back() -> None:
    m = running()
    done(m, 0)
    done(m, 1)
    warn = m.step(co.AgentGone("b"), 0)
    assert warn == (co.Warn("b left at round 2"),)
    out = m.step(co.AgentJoined("b", 0, 0, released=1), 0)
    assert out == (co.BroadcastStart(2), co.Broadcast(AllDurable(0)))
    assert m.done("b") == 1 and m.go_through == 2


def test_a_restarted_coordinator_learns_the_round_from_the_agents() -> None:
    m = machine()
    m.step(co.AgentJoined("a", 3, 2), 0)
    m.step(co.AgentJoined("b", 2, 1), 0)
    assert m.step(co.AgentJoined("c", 2, 1), 0) == (co.BroadcastStart(3),)


def again(at: dict[str, tuple[int, int]], **options: object) -> tuple[co.CoordinatorMachine, tuple[object, ...]]:
    """A coordinator that came back among agents with these rounds, (done, released); what follows the last of them."""
    m, out = machine(**options), ()  # type: ignore[arg-type]
    for name, (done_through, released) in at.items():
        out = m.step(co.AgentJoined(name, done_through, -1, released=released), 0)
    return m, out


def test_a_restarted_coordinator_takes_what_was_let_through_before_and_no_more() -> None:
    m = machine(10)
    m.step(co.AgentJoined("a", 4, 3, released=5), 0)
    m.step(co.AgentDone("a", 5, 4), 0)  # before the others are back
    for released in (6, 7):
        m, _ = again({"a": (5, released), "b": (3, 3), "c": (3, released)}, last_round=20, barrier_every=4)
        assert [m.done_limit(name) for name in NAMES] == [7, 7, 7], "the block of round 4, not one behind it"
    _, out = again({"a": (5, 5), "b": (3, 4), "c": (3, 5)}, barrier_every=4)
    assert out == (co.BroadcastStart(4),), "who came with its result does not open the barrier"


@pytest.mark.parametrize(("released", "through"), [(-1, -1), (5, 5)])
def test_nothing_new_is_released_where_a_paused_run_comes_back(released: int, through: int) -> None:
    at = {name: (min(released, 3), released) for name in NAMES}
    m, out = again(at, last_round=20, barrier_every=4, paused=True)
    assert out == (co.BroadcastStart(through),) and m.phase is co.CoordinatorPhase.PAUSED


def test_a_report_that_was_lost_with_its_stream_opens_the_barrier_when_its_agent_is_back() -> None:
    m = running()
    done(m, 0, ("a", "b"))
    m.step(co.AgentGone("c"), 0)
    assert co.Broadcast(Go(1)) in m.step(co.AgentJoined("c", 0, -1, released=0), 0)


def test_who_finished_and_comes_back_has_finished() -> None:
    m = running(last_round=0)
    done(m, 0, durable=0)
    m.step(co.AgentFinished("a"), 0)
    m.step(co.AgentGone("a"), 0)
    m.step(co.AgentJoined("a", 0, 0), 0)
    m.step(co.AgentFinished("b"), 0)
    assert m.waiting_for() == ("c",)
    assert [type(effect) for effect in m.step(co.AgentFinished("c"), 0)] == [co.Conclude, co.Dismiss]


def test_an_old_copy_that_lacks_what_it_called_durable_is_refused() -> None:
    m = running()
    done(m, 0)
    done(m, 1, durable=1)
    m.step(co.AgentGone("b"), 0)
    assert stopped_as_stale(m.step(co.AgentJoined("b", 1, 0, released=1), 0), "b")


def test_pause_keeps_the_barrier_shut_until_resume() -> None:
    m = running()
    m.step(co.PauseRequested(), 0)
    assert [e for e in done(m, 0) if isinstance(e, co.Broadcast) and isinstance(e.message, Go)] == []
    assert m.step(co.ResumeRequested(), 0) == (co.Broadcast(Go(1)),)


def test_a_stop_waits_for_the_agents_to_leave() -> None:
    m = running()
    assert m.step(co.StopRun("enough"), 10) == (co.BroadcastStop("enough", ExitCode.STOPPED),)
    m.step(co.AgentGone("a"), 11)
    m.step(co.AgentGone("b"), 12)
    (conclude,) = m.step(co.AgentGone("c"), 13)
    assert conclude == co.Conclude("stopped", ExitCode.STOPPED, "enough")


def test_who_comes_back_while_the_run_stops_hears_so_too() -> None:
    m = running()
    m.step(co.StopRun("enough"), 10)
    m.step(co.AgentGone("a"), 11)
    assert m.step(co.AgentJoined("a", -1, -1), 12) == (co.BroadcastStop("enough", ExitCode.STOPPED),)


def test_a_stop_does_not_wait_longer_than_the_grace_period() -> None:
    m = running()
    m.step(co.StopRun("enough"), 10)
    assert m.next_deadline_ns() == 60
    assert m.step(Tick(), 59) == ()
    assert m.step(Tick(), 60) == (co.Conclude("stopped", ExitCode.STOPPED, "enough"),)


@pytest.mark.parametrize(
    ("event", "code", "words"),
    [
        (co.AgentRefused("b", "policy"), ExitCode.REFUSED, "b refused: policy"),
        (co.AgentFailed("b", "disk full", ExitCode.CONFIG), ExitCode.CONFIG, "b: disk full"),
        (co.AgentFailed("b", "budget", ExitCode.BUDGET), ExitCode.BUDGET, "b: budget"),
    ],
)
def test_an_agent_that_cannot_go_on_stops_the_run_by_name(event, code, words) -> None:
    assert running().step(event, 0) == (co.BroadcastStop(words, code),)


def test_registration_is_bounded_and_names_who_is_missing() -> None:
    m = machine()
    m.step(co.AgentJoined("b", -1, -1), 0)
    assert m.next_deadline_ns() == 1000
    (stop,) = m.step(Tick(), 1000)
    assert stop == co.BroadcastStop("never registered: a, c", ExitCode.REFUSED)


def test_a_silent_agent_is_named_once_and_waited_for() -> None:
    m = running()
    m.step(co.AgentHeard("a"), 90)
    m.step(co.AgentHeard("b"), 90)
    assert m.next_deadline_ns() == 100
    (warn,) = m.step(Tick(), 100)
    assert isinstance(warn, co.Warn) and warn.message.startswith("c gave no sign of life")
    assert m.step(Tick(), 150) == ()
    m.step(co.AgentHeard("c"), 160)
    m.step(co.AgentHeard("a"), 200)
    m.step(co.AgentHeard("b"), 200)
    assert cases_warned(m.step(Tick(), 260)) == ["c"], "it is named again after it came back"


def cases_warned(effects: tuple[object, ...]) -> list[str]:
    return [e.message.split()[0] for e in effects if isinstance(e, co.Warn)]


def test_on_agent_loss_stop_ends_the_run() -> None:
    m = running(on_loss="stop")
    m.step(co.AgentHeard("a"), 90)
    m.step(co.AgentHeard("b"), 90)
    (stop,) = m.step(Tick(), 100)
    assert isinstance(stop, co.BroadcastStop) and stop.exit_code is ExitCode.PEER_LOST and stop.reason.startswith("c ")


def stopped_as_stale(effects: tuple[object, ...], name: str) -> bool:
    return any(
        isinstance(e, co.BroadcastStop) and e.exit_code is ExitCode.CONFIG and e.reason.startswith(f"{name} came back")
        for e in effects
    )


@pytest.mark.parametrize(("released", "stale"), [(-1, True), (0, True), (1, False), (2, False)])
def test_an_old_copy_of_the_state_is_refused_when_it_rejoins(released: int, stale: bool) -> None:
    m = running()
    done(m, 0)
    done(m, 1)
    m.step(co.AgentGone("b"), 0)
    assert stopped_as_stale(m.step(co.AgentJoined("b", 0, 0, released=released), 0), "b") == stale


@pytest.mark.parametrize(
    ("every", "released", "stale"), [(1, 6, False), (1, 5, False), (1, 4, True), (4, 3, False), (4, 2, True)]
)
def test_an_old_copy_is_found_by_a_restarted_coordinator_too(every: int, released: int, stale: bool) -> None:
    """Round 6 was let through when everybody had finished round 5, or, in blocks of 4, round 3."""
    m = machine(10, barrier_every=every)
    m.step(co.AgentJoined("a", 2, 1, released=6), 0)
    m.step(co.AgentJoined("b", 1, 0, released=released), 0)
    out = m.step(co.AgentJoined("c", 3, 2, released=6), 0)
    stops = [e for e in out if isinstance(e, co.BroadcastStop) and e.exit_code is ExitCode.CONFIG]
    assert bool(stops) == stale and not stopped_as_stale(out, "b")
    assert all(f"b says that its last release is of round {released}; a says" in e.reason for e in stops)


def test_a_false_registration_convicts_nobody_else() -> None:
    """One agent says that it released the last round: the others' own words are all that there is against them."""
    m = machine(10)
    m.step(co.AgentJoined("a", 3, 2, released=4), 0)
    m.step(co.AgentJoined("b", 3, 2, released=4), 0)
    (stop,) = m.step(co.AgentJoined("c", 3, 2, released=10), 0)
    assert isinstance(stop, co.BroadcastStop) and "a has an old state directory, or c does not say" in stop.reason
