"""Whom an agent sends dummies to, and when: to everybody to whom the graph has no edge, as if it had one.

A dummy leaves with the vectors of its round, in the order of the run file, and goes again when its receiver comes back,
as a vector would.  Nobody's round waits for one, and what its receiver says it holds says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.dummies import Dummy

FOR_EVER_NS = 1 << 62


class Covers:
    """Of ``agent``, one of ``agents``.  ``peers``: those without an edge from it."""

    def __init__(self, agent: AgentMachine, agents: int) -> None:
        self._agent = agent
        self.peers = frozenset(range(agents)) - {agent.edges.index, *agent.peers}

    def among(self, event: Any, effects: Sequence[Any]) -> Sequence[Any]:
        """``effects`` of ``event``, with the round's dummies where its vectors are sent."""
        if not isinstance(event, t.Persisted):
            return effects
        sends = {effect.peer: effect for effect in effects if isinstance(effect, t.Send)}
        sends |= {peer: self._send(peer, event.k) for peer in self.peers}
        others = [effect for effect in effects if not isinstance(effect, t.Send)]
        return (*(sends[peer] for peer in sorted(sends)), *others)

    def again(self, event: t.PeerNeeds) -> Sequence[t.Send]:
        """To a receiver that is there, or there again: dummies of the rounds that a vector would go again of."""
        last = self._agent.released_through
        first = max(event.x_from, last - self._agent.run_ahead)
        return tuple(self._send(event.peer, k) for k in range(first, last + 1))

    @staticmethod
    def _send(peer: int, k: int) -> t.Send:
        return t.Send(peer, (Dummy.of(k),))
