"""Dummies to those to whom the graph has no edge: whom they go to, in which order, and how far back."""

from __future__ import annotations

import pytest

from dpgt_node.errors import PeerError, Untrusted
from dpgt_node.protocol import messages as m
from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.agent.covers import Covers
from dpgt_node.protocol.agent.participant import Participant
from dpgt_node.protocol.calls import Dial, Ended
from dpgt_node.protocol.clock import SECOND
from dpgt_node.protocol.digests import Digests
from dpgt_node.protocol.dummies import Dummy
from tests.protocol import cases

HOUR = 3600 * SECOND


def test_a_round_leaves_in_the_order_of_the_run_file_whoever_gets_a_vector() -> None:
    """Else the order would say who is a neighbour."""
    covers = Covers(cases.machine(agent=cases.params(out_R=(3,), out_C=(4,), index=1)), 5)
    assert covers.peers == {0, 2}
    real = {peer: t.Send(peer, (cases.payload("X", 7),)) for peer in (4, 3)}
    prune = t.Prune(6)
    out = covers.among(t.Persisted(7, b""), (prune, *real.values()))
    assert [effect.peer for effect in out[:-1]] == [0, 2, 3, 4] and out[-1] == prune
    for send in out[:-1]:
        assert send == real.get(send.peer, t.Send(send.peer, (Dummy.of(7),)))
    assert covers.among(t.AllDurable(6), (prune,)) == (prune,)


@pytest.mark.parametrize(("x_from", "rounds"), [(0, [7, 8, 9]), (8, [8, 9]), (10, []), (2**32 - 1, [])])
def test_a_receiver_that_comes_back_gets_no_more_dummies_than_it_could_lack(x_from: int, rounds: list[int]) -> None:
    """Whatever it says: nobody makes an agent send a whole run of them."""
    recovered = t.Recovered(cases.state(9), (cases.record(9),))
    covers = Covers(cases.machine(20, recovered=recovered, run_ahead=2), 3)
    assert covers.peers == {2}
    assert [send.payloads[0].k for send in covers.again(t.PeerNeeds(2, x_from, 0))] == rounds


@pytest.mark.parametrize(("peer", "ends"), [("b", True), ("c", False)])
def test_nobody_s_run_ends_for_want_of_a_dummy(peer: str, ends: bool) -> None:
    """b is a neighbour, c gets dummies alone: who distrusts this agent for an hour is lost, or is nobody's loss."""
    agent = cases.machine(9)
    inside = Participant(
        agent,
        ("a", "b", "c"),
        {},
        bytes(16),
        9,
        Digests(agent.edges, 1, None),
        recorded=False,
        heartbeat_ns=SECOND,
        patience_ns=10 * SECOND,
        distrust_ns=20 * SECOND,
        covered=True,
    )
    out = list(inside.step(m.Start({"a": "h:1", "b": "h:2", "c": "h:3"}, 0), 0))
    for now_ns in (0, HOUR):
        calls = {effect.call.peer: effect.call for effect in out if isinstance(effect, Dial)}
        error: PeerError = Untrusted("not issued by the authority")
        out = list(inside.step(Ended(calls[peer], error), now_ns))
        out += inside.step(t.Tick(), now_ns + 10 * SECOND)
    assert any(isinstance(effect, s.Broke) for effect in out) == ends
    down = {one.receiver for effect in out if isinstance(effect, s.Say) for one in getattr(effect.message, "down", ())}
    assert down == {"b"}, "the coordinator hears of edges alone"
