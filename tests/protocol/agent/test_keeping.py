"""Large states beside the rounds: after their round, one at a time; nothing rests on them before they are durable."""

from __future__ import annotations

import pytest

from dpgt_node.errors import Broken
from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent.keeping import AHEAD_ROUNDS, Keeping
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.agent.phase import Phase
from tests.protocol import cases


def round_of(m: AgentMachine, k: int, now_ns: int = 0) -> tuple[t.AgentEffect, ...]:
    """Go through round ``k`` of a machine that is to release it; what follows from its being durable."""
    m.step(cases.release(k), now_ns)
    effects = m.step(t.Persisted(k), now_ns)
    for stream in ("X", "Y"):
        effects += m.step(t.VectorReceived(1, cases.payload(stream, k)), now_ns)
    m.step(t.Advanced(cases.state(k + 1)), now_ns)
    return effects


def going(every: int, **options: object) -> AgentMachine:
    m = cases.machine(last_round=40, checkpoint_every=every, beside=True, run_ahead=40, **options)
    m.step(t.Started(40), 0)
    if m.state is None:
        m.step(t.Advanced(cases.state(0)), 0)
    return m


def test_a_state_goes_out_once_its_round_is_durable_and_sent() -> None:
    m = going(4)
    m.step(t.PeerNeeds(1, 0, 0), 0)
    (persist,) = m.step(cases.release(0), 0)
    assert isinstance(persist, t.Persist) and persist.record.checkpoint is not None, "the first one, with its record"
    assert cases.kinds(m.step(t.Persisted(0), 0)) == ["Send"] and m.durable_through == -1
    for stream in ("X", "Y"):
        m.step(t.VectorReceived(1, cases.payload(stream, 0)), 0)
    m.step(t.Advanced(cases.state(1)), 0)
    for k in range(1, 4):
        assert cases.kinds(round_of(m, k)) == ["Send", "ReportDone", "Advance"]
    (persist,) = m.step(cases.release(4), 0)
    assert isinstance(persist, t.Persist) and persist.record.checkpoint is None
    sent, keep = m.step(t.Persisted(4), 0)
    assert isinstance(sent, t.Send) and isinstance(keep, t.KeepState) and keep.k == 4 and keep.state is m.state
    assert m.durable_through == -1, "a restart would still go on from round 0"
    assert m.step(t.StateKept(4), 0) == () and m.durable_through == 3


@pytest.mark.parametrize(("every", "ahead"), [(1, 0), (2, 1), (3, 2), (10, AHEAD_ROUNDS)])
def test_rounds_wait_for_a_state_that_takes_long(every: int, ahead: int) -> None:
    m = going(every)
    for k in range(every + ahead + 1):
        round_of(m, k)
    due = every + ahead + 1
    assert (m.k, m.phase, m.released_through) == (due, Phase.KEEPING, due - 1)
    for event in (t.Go(due), t.PeerNeeds(1, due, due), t.PeerGone(1)):
        assert m.step(event, 0) == (), "nothing else moves it"
    assert cases.kinds(m.step(t.StateKept(every), 7_000)) == ["DrawRelease"] and m.durable_through == every - 1
    m.step(cases.release(due), 7_000)
    m.step(t.Persisted(due), 7_000)
    m.step(t.VectorReceived(1, cases.payload("X", due)), 7_000)
    (done, *_) = m.step(t.VectorReceived(1, cases.payload("Y", due)), 7_000)
    assert isinstance(done, t.ReportDone) and done.spent == (0, 0, 0, 7, 0, 0), "time of the store's"


def test_a_state_that_a_crash_cut_off_goes_out_again() -> None:
    records = tuple(cases.record(k) for k in range(7))
    m = going(5, recovered=t.Recovered(cases.state(0), records))
    seen = []
    for k in range(6):
        effects: tuple[t.AgentEffect, ...] = ()
        for stream in ("X", "Y"):
            effects += m.step(t.VectorReceived(1, cases.payload(stream, k)), 0)
        effects += m.step(t.Advanced(cases.state(k + 1)), 0)
        seen += [e.k for e in effects if isinstance(e, t.KeepState)]
    assert seen == [5] and m.k == 6 and m.durable_through == -1
    m.step(t.StateKept(5), 0)
    assert m.durable_through == 4


def test_the_result_is_durable_whatever_becomes_of_a_state() -> None:
    m = cases.machine(last_round=2, checkpoint_every=2, beside=True, run_ahead=3)
    m.step(t.Started(2), 0)
    m.step(t.Advanced(cases.state(0)), 0)
    round_of(m, 0)
    round_of(m, 1)
    m.step(cases.release(2), 0)
    (keep,) = m.step(t.Persisted(2), 0)
    assert isinstance(keep, t.KeepState)
    m.step(t.VectorReceived(1, cases.payload("X", 2)), 0)
    (final,) = m.step(t.VectorReceived(1, cases.payload("Y", 2)), 0)
    assert isinstance(final, t.AdvanceFinal), "the end does not wait for it"
    m.step(t.FinalReady(cases.state(2).vectors["px"]), 0)
    (done,) = m.step(t.FinalSaved(), 0)
    assert isinstance(done, t.ReportDone) and done.durable_through == 2
    m.step(t.StateKept(2), 0)
    assert m.durable_through == 2


def test_one_state_is_written_at_a_time() -> None:
    keeping = Keeping(2, beside=True, newest=0)
    assert keeping.due(2) and not keeping.lets(4)
    with pytest.raises(Broken, match="one state is written at a time"):
        keeping.due(4)
