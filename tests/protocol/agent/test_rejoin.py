"""Agents and coordinators that come back: nobody waits for a message that was lost, nobody overtakes the barrier."""

from __future__ import annotations

import numpy as np
import pytest

from dpgt_node.errors import StoreError
from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent.phase import Phase
from dpgt_node.protocol.coordinator import barrier as co
from tests.protocol import cases
from tests.protocol.coordinator.test_coordinator import NAMES, done, machine, running


def test_a_done_lost_with_its_stream_is_made_good_by_the_next_registration() -> None:
    m = running()
    done(m, 0, ("a", "b"))
    m.step(co.AgentGone("c"), 0)  # its Done(0) was on the way
    effects = m.step(co.AgentJoined("c", 0, -1), 0)
    assert effects[-1] == co.Broadcast(t.Go(1)), "everybody would wait for ever"


def test_a_pause_outlasts_a_registration() -> None:
    m = running()
    m.step(co.PauseRequested(), 0)
    done(m, 0, ("a", "b"))
    m.step(co.AgentGone("c"), 0)
    assert co.Broadcast(t.Go(1)) not in m.step(co.AgentJoined("c", 0, -1), 0)


def test_an_agent_that_came_with_its_result_does_not_open_the_barrier_for_the_others() -> None:
    m = machine(5)
    m.step(co.AgentJoined("a", 5, 5), 0)
    m.step(co.AgentJoined("b", 1, 1, released=5), 0)
    assert m.step(co.AgentJoined("c", 1, 1, released=5), 0) == (co.BroadcastStart(2),)
    m.step(co.AgentDone("a", 5, 5), 0)  # a repetition of what it registered with
    assert co.Broadcast(t.Go(3)) in done(m, 2, ("b", "c"))
    assert m.go_through == 3
    assert [m.done_limit(name) for name in NAMES] == [5, 5, 5], "what they released, an earlier coordinator let through"


def test_a_restarted_coordinator_takes_a_report_of_a_round_that_its_predecessor_let_through() -> None:
    m = machine(9, barrier_every=2)
    m.step(co.AgentJoined("a", 4, 4, released=5), 0)  # in the middle of round 5
    m.step(co.AgentDone("a", 5, 4), 0)
    m.step(co.AgentJoined("b", -1, -1, released=4), 0)  # replays from its checkpoint
    assert m.step(co.AgentJoined("c", 4, 3, released=4), 0) == (co.BroadcastStart(5),)
    assert [m.done_limit(name) for name in NAMES] == [5, 5, 5]
    m.step(co.AgentDone("c", 5, 4), 0)


def test_a_report_is_taken_while_a_restarted_coordinator_stops_before_it_began() -> None:
    m = machine(9)
    m.step(co.AgentJoined("a", 0, 0, released=1), 0)
    m.step(co.StopRun("stopped by the operator"), 0)
    assert m.done_limit("a") == 9
    m.step(co.AgentDone("a", 1, 0), 0)


def test_an_agent_whose_checkpoint_is_older_than_what_it_announced_is_not_let_in() -> None:
    m = running()
    done(m, 0, durable=0)
    m.step(co.AgentGone("b"), 0)
    (stop,) = m.step(co.AgentJoined("b", -1, -1, released=1), 0)
    assert isinstance(stop, co.BroadcastStop) and "b came back with an old state directory" in stop.reason


def test_replay_waits_at_the_barrier_of_a_restarted_coordinator() -> None:
    recovered = t.Recovered(cases.state(0), tuple(cases.record(k) for k in range(3)))
    m = cases.machine(last_round=9, recovered=recovered, checkpoint_every=10)
    m.step(t.VectorReceived(1, cases.payload("X", 0)), 0)
    m.step(t.VectorReceived(1, cases.payload("Y", 0)), 0)
    reports = [e for e in m.step(t.Started(0), 0) if isinstance(e, t.ReportDone)]
    assert [report.k for report in reports] == [0]
    m.step(t.Advanced(cases.state(1)), 0)
    assert m.phase is Phase.READY, "round 1 has a record, but the barrier is shut"
    assert m.step(t.Go(1), 0) == () and m.phase is Phase.EXCHANGING, "nothing is drawn again"


def test_a_repeated_start_opens_what_a_lost_go_would_have_opened() -> None:
    m = cases.machine()
    cases.to_exchange(m)
    m.step(t.VectorReceived(1, cases.payload("X", 0)), 0)
    m.step(t.VectorReceived(1, cases.payload("Y", 0)), 0)
    m.step(t.Advanced(cases.state(1)), 0)
    assert cases.kinds(m.step(t.Started(1), 0)) == ["DrawRelease"]
    assert m.step(t.Started(1), 0) == ()


def test_an_agent_that_came_back_with_its_result_may_leave_before_the_start() -> None:
    m = cases.machine(finished=np.ones(1))
    (finish,) = m.step(t.Dismissed(), 0)
    assert isinstance(finish, t.Finish) and finish.status == "finished"


def test_a_replaying_neighbour_proves_what_an_old_copy_of_the_state_forgot() -> None:
    """It lacks round 0 again, because it replays, but it released round 1, so it had mixed round 0."""
    neighbour = cases.machine(recovered=t.Recovered(cases.state(0), (cases.record(0), cases.record(1))))
    assert neighbour.needs(1) == (0, 0) and neighbour.mixed_before == 1
    old = cases.machine()
    with pytest.raises(StoreError, match="older than the run"):
        old.step(t.PeerNeeds(1, 0, 0, neighbour.mixed_before), 0)


def test_what_a_neighbour_mixed_is_no_news_to_who_released_it() -> None:
    m = cases.machine()
    cases.to_exchange(m)
    assert m.mixed_before == 0
    assert cases.kinds(m.step(t.PeerNeeds(1, 0, 0, 1), 0)) == ["Resend"]
