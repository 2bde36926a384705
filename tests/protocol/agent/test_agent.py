"""The agent's machine, driven by hand: order of effects, one draw a round, replay, resend."""

from __future__ import annotations

import numpy as np
import pytest

from dpgt_node.errors import StoreError
from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent.inbox import Inbox
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.agent.phase import Phase
from tests.protocol import cases


def test_a_round_persists_before_it_sends_and_sends_before_it_mixes() -> None:
    m = cases.machine()
    assert cases.kinds(m.step(t.Started(0), 0)) == ["Advance"]
    assert cases.kinds(m.step(t.PeerNeeds(1, 0, 0), 0)) == []
    (evaluate, draw) = m.step(t.Advanced(cases.state(0)), 0)
    assert isinstance(evaluate, t.Evaluate) and isinstance(draw, t.DrawRelease)
    (persist,) = m.step(cases.release(0), 0)
    assert isinstance(persist, t.Persist) and persist.record.k == 0 and persist.record.checkpoint is not None
    assert m.released_through == -1, "nothing counts as released before it is durable"
    (send,) = m.step(t.Persisted(0), 0)
    assert isinstance(send, t.Send) and [p.stream for p in send.payloads] == ["X", "Y"]
    assert m.step(t.VectorReceived(1, cases.payload("X", 0)), 0) == ()
    done, advance = m.step(t.VectorReceived(1, cases.payload("Y", 0)), 0)
    assert done == t.ReportDone(0, -1)
    assert isinstance(advance, t.Advance) and set(advance.received["X"]) == {1} and set(advance.received["Y"]) == {1}


def test_nothing_is_drawn_before_the_barrier_opens() -> None:
    m = cases.machine()
    cases.to_exchange(m)
    m.step(t.VectorReceived(1, cases.payload("X", 0)), 0)
    m.step(t.VectorReceived(1, cases.payload("Y", 0)), 0)
    assert m.step(t.Advanced(cases.state(1)), 0) == ()
    assert m.phase is Phase.READY
    assert cases.kinds(m.step(t.Go(1), 0)) == ["DrawRelease"]
    assert m.step(t.Go(1), 0) == (), "a repeated Go draws nothing"


def test_inputs_that_came_early_are_mixed_as_soon_as_the_round_is_durable() -> None:
    m = cases.machine()
    m.step(t.Started(0), 0)
    m.step(t.VectorReceived(1, cases.payload("X", 0)), 0)
    m.step(t.VectorReceived(1, cases.payload("Y", 0)), 0)
    m.step(t.Advanced(cases.state(0)), 0)
    m.step(cases.release(0), 0)
    assert cases.kinds(m.step(t.Persisted(0), 0)) == ["ReportDone", "Advance"]


def test_a_second_copy_changes_nothing() -> None:
    m = cases.machine()
    cases.to_exchange(m)
    m.step(t.VectorReceived(1, cases.payload("X", 0)), 0)
    assert m.step(t.VectorReceived(1, cases.payload("X", 0)), 0) == ()
    m.step(t.VectorReceived(1, cases.payload("Y", 0)), 0)
    assert m.step(t.VectorReceived(1, cases.payload("Y", 0)), 0) == ()
    assert m.done_through == 0


def test_two_different_vectors_for_one_round_are_a_broken_invariant() -> None:
    m = cases.machine()
    cases.to_exchange(m)
    m.step(t.VectorReceived(1, cases.payload("X", 0)), 0)
    with pytest.raises(AssertionError, match="two different vectors"):
        m.step(t.VectorReceived(1, cases.payload("X", 0, value=2.0)), 0)


def test_a_vector_beyond_the_window_is_a_broken_invariant() -> None:
    m = cases.machine(run_ahead=1)
    assert m.window() == (0, 1)
    m.step(t.VectorReceived(1, cases.payload("X", 1)), 0)
    with pytest.raises(AssertionError, match="window"):
        m.step(t.VectorReceived(1, cases.payload("X", 2)), 0)


def test_a_self_loop_mixes_the_released_value() -> None:
    m = cases.machine(agent=cases.params(in_R=((0, 1.0),), in_C=((0, 1.0),), out_R=(0,), out_C=(0,)))
    m.step(t.Started(0), 0)
    m.step(t.Advanced(cases.state(0)), 0)
    ready = cases.release(0)
    m.step(ready, 0)
    _, advance = m.step(t.Persisted(0), 0)
    assert isinstance(advance, t.Advance)
    assert advance.received["X"][0] == ready.on("X").array() and advance.received["Y"][0] == ready.on("Y").array()
    assert m.peers == ()


def test_an_edge_carries_only_its_streams() -> None:
    m = cases.machine(agent=cases.params(out_R=(1,), out_C=(2,)))
    m.step(t.Started(0), 0)
    m.step(t.PeerNeeds(1, 0, 0), 0)
    m.step(t.PeerNeeds(2, 0, 0), 0)
    m.step(t.Advanced(cases.state(0)), 0)
    m.step(cases.release(0), 0)
    sends = m.step(t.Persisted(0), 0)
    assert [(s.peer, [p.stream for p in s.payloads]) for s in sends if isinstance(s, t.Send)] == [
        (1, ["X"]),
        (2, ["Y"]),
    ]


def test_a_peer_that_comes_back_gets_the_stored_rounds_it_lacks_and_no_other() -> None:
    m = cases.machine()
    cases.to_exchange(m)
    assert m.step(t.PeerNeeds(1, 0, 1), 0) == (t.Resend(1, 0, ("X",)),)
    m.step(t.PeerGone(1), 0)
    m.step(t.VectorReceived(1, cases.payload("X", 0)), 0)
    m.step(t.VectorReceived(1, cases.payload("Y", 0)), 0)
    m.step(t.Go(1), 0)
    m.step(t.Advanced(cases.state(1)), 0)
    m.step(cases.release(1), 0)
    assert not any(isinstance(e, t.Send) for e in m.step(t.Persisted(1), 0)), "nothing is sent to a peer that is away"
    assert m.step(t.PeerNeeds(1, 0, 0), 0) == (t.Resend(1, 0, ("X", "Y")), t.Resend(1, 1, ("X", "Y")))


def test_the_last_round_saves_then_reports_then_waits_to_be_dismissed() -> None:
    m = cases.machine(last_round=0)
    cases.to_exchange(m)
    m.step(t.VectorReceived(1, cases.payload("X", 0)), 0)
    (final,) = m.step(t.VectorReceived(1, cases.payload("Y", 0)), 0)
    assert isinstance(final, t.AdvanceFinal)
    save, evaluate = m.step(t.FinalReady(np.ones(1)), 0)
    assert isinstance(save, t.SaveFinal) and isinstance(evaluate, t.Evaluate) and evaluate.k == 1
    assert m.step(t.FinalSaved(), 0) == (t.ReportDone(0, 0),)
    assert m.step(t.PeerNeeds(1, 0, 0), 0) == (t.Resend(1, 0, ("X", "Y")),), "it still serves its payloads"
    assert m.step(t.Dismissed(), 0) == (t.Finish("finished", "every agent finished"),)
    assert m.step(t.PeerNeeds(1, 0, 0), 0) == ()


def test_replay_draws_nothing_for_recorded_rounds_and_uses_their_batches() -> None:
    batch = np.array([4, 2], dtype=np.int64)
    second = t.RoundRecord(1, (cases.payload("X", 1), cases.payload("Y", 1)), (), batch, None)
    recovered = t.Recovered(cases.state(0), (cases.record(0), second))
    m = cases.machine(recovered=recovered)
    assert m.needs(1) == (0, 0) and m.released_through == 1
    assert cases.kinds(m.step(t.Started(1), 0)) == ["Evaluate"], (
        "round 0 is durable: nothing is drawn or persisted again"
    )
    assert m.step(t.PeerNeeds(1, 0, 0), 0) == (t.Resend(1, 0, ("X", "Y")), t.Resend(1, 1, ("X", "Y")))
    m.step(t.VectorReceived(1, cases.payload("X", 0)), 0)
    _, advance = m.step(t.VectorReceived(1, cases.payload("Y", 0)), 0)
    assert isinstance(advance, t.Advance) and advance.record is second
    assert m.step(t.Advanced(cases.state(1)), 0) == ()
    assert m.phase is Phase.EXCHANGING
    m.step(t.VectorReceived(1, cases.payload("X", 1)), 0)
    _, advance = m.step(t.VectorReceived(1, cases.payload("Y", 1)), 0)
    assert isinstance(advance, t.Advance) and advance.record is None, "round 2 was never released: a fresh batch"
    assert cases.kinds(m.step(t.Go(2), 0)) == []
    assert cases.kinds(m.step(t.Advanced(cases.state(2)), 0)) == ["DrawRelease"]


def test_a_finished_agent_comes_back_only_to_serve() -> None:
    m = cases.machine(finished=np.ones(1))
    evaluate, done = m.step(t.Started(3), 0)
    assert isinstance(evaluate, t.Evaluate) and evaluate.k == 4
    assert done == t.ReportDone(3, 3)
    assert m.done_through == 3 and m.phase is Phase.SERVING


def test_checkpoints_come_every_w_rounds_and_durability_follows_them() -> None:
    m = cases.machine(last_round=9, checkpoint_every=2)
    m.step(t.Started(9), 0)
    durable = []
    for k in range(5):
        m.step(t.Advanced(cases.state(k)), 0)
        (persist,) = m.step(cases.release(k), 0)
        assert isinstance(persist, t.Persist) and (persist.record.checkpoint is not None) == (k % 2 == 0)
        m.step(t.Persisted(k), 0)
        m.step(t.VectorReceived(1, cases.payload("X", k)), 0)
        (done, _) = m.step(t.VectorReceived(1, cases.payload("Y", k)), 0)
        assert isinstance(done, t.ReportDone)
        durable.append(done.durable_through)
    assert durable == [-1, -1, 1, 1, 3]


def test_prune_follows_the_announcement_once() -> None:
    m = cases.machine()
    assert m.step(t.AllDurable(2), 0) == (t.Prune(2),)
    assert m.step(t.AllDurable(2), 0) == ()
    assert m.step(t.AllDurable(1), 0) == ()


def test_a_stall_names_who_is_missing_and_repeats() -> None:
    m = cases.machine(stall_ns=100)
    cases.to_exchange(m)
    m.step(t.VectorReceived(1, cases.payload("X", 0)), 10)
    assert m.next_deadline_ns() == 100
    assert m.step(t.Tick(), 99) == ()
    assert m.step(t.Tick(), 100) == (t.ReportStall(0, ((1, "Y"),), 0),)
    assert m.next_deadline_ns() == 200
    m.step(t.VectorReceived(1, cases.payload("Y", 0)), 150)
    assert m.next_deadline_ns() is None


def test_a_stop_ends_the_machine_in_any_phase() -> None:
    m = cases.machine()
    assert m.step(t.StopRequested("enough"), 0) == (t.Finish("stopped", "enough"),)
    assert m.step(t.Started(0), 0) == ()


def test_nothing_is_drawn_before_every_out_neighbour_said_what_it_lacks() -> None:
    m = AgentMachine(cases.params(out_R=(1,), out_C=(2,)), 3, evaluate_every=10**6)
    m.step(t.Started(0), 0)
    m.step(t.Advanced(cases.state(0)), 0)
    assert m.step(t.PeerNeeds(1, 0, 0), 0) == () and m.phase is Phase.READY
    assert cases.kinds(m.step(t.PeerNeeds(2, 0, 0), 0)) == ["DrawRelease"]


@pytest.mark.parametrize(("x_from", "y_from", "stale"), [(2, 2, False), (3, 0, True), (0, 3, True), (1, 2, False)])
def test_a_neighbour_that_holds_more_than_is_stored_here_proves_an_old_copy(
    x_from: int, y_from: int, stale: bool
) -> None:
    """Round 1 is the last release stored here: whoever lacks only rounds from 3 on has seen round 2."""
    second = t.RoundRecord(1, (cases.payload("X", 1), cases.payload("Y", 1)), (), cases.EMPTY, None)
    recovered = t.Recovered(cases.state(0), (cases.record(0), second))
    m = AgentMachine(cases.params(), 5, evaluate_every=10**6, recovered=recovered)
    m.step(t.Started(5), 0)
    if stale:
        with pytest.raises(StoreError, match=r"older than the run.*holds round 2"):
            m.step(t.PeerNeeds(1, x_from, y_from), 0)
    else:
        m.step(t.PeerNeeds(1, x_from, y_from), 0)


def test_a_stream_the_edge_does_not_carry_proves_nothing() -> None:
    m = AgentMachine(cases.params(out_R=(1,), out_C=()), 5, evaluate_every=10**6)
    m.step(t.PeerNeeds(1, 0, 3), 0)


def test_the_inbox_keeps_no_round_below_its_window() -> None:
    inbox = Inbox({"X": (0, 1), "Y": (1,)}, own=0, low=3, width=2)
    for low in (3, 4, 6, 7):
        inbox.advance(low)
        for k in range(low, low + 3):
            for sender, stream in ((0, "X"), (1, "X"), (1, "Y")):
                inbox.put(sender, cases.payload(stream, k))
        assert len(inbox) == 9 and inbox.complete(low) and not inbox.put(1, cases.payload("X", low - 1))
    inbox.advance(9)
    assert len(inbox) == 3 and inbox.complete(9)
    inbox.advance(10)
    assert len(inbox) == 0 and not inbox.complete(10) and len(inbox.missing(10)) == 3
