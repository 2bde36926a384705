"""What an agent notices of others who speak in its name, from what its neighbours and the coordinator say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dpgt_node.protocol import messages as m
from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.agent.session_types import Say
from dpgt_node.protocol.calls import Note
from dpgt_node.protocol.digests import Digests, Dispute, shown
from dpgt_node.protocol.outliers import Outlier
from dpgt_node.types import Stream


class Ears:
    """Of ``agent``, among ``names``.  ``drew``: this process drew a release itself, so its state is no old copy."""

    def __init__(self, names: Sequence[str], agent: AgentMachine, digests: Digests) -> None:
        self._names = names
        self._agent = agent
        self._index = agent.edges.index
        self._to = agent.edges.outgoing
        self.digests = digests
        self.drew = False
        self.outlying: dict[tuple[str, Stream], int] = {}
        self._named: set[tuple[int, Stream, int]] = set()

    def needs(self, needs: t.PeerNeeds) -> tuple[t.PeerNeeds, tuple[Any, ...]]:
        """What the agent's machine is to hear of it, and what is said: of a vector that this agent never sent, once.

        A process that drew nothing yet cannot know: then its own state directory may be the old one, which its machine
        judges.
        """
        released, said = self._agent.released_through, list[Any]()
        for stream, peers in self._to.items():
            if needs.peer not in peers:
                continue
            last = needs.x_last if stream == "X" else needs.y_last
            k = max(needs.first(stream), needs.mixed_before) - 1
            if self.drew and k > released:
                said += self._disown(needs.peer, stream, k, last if k == needs.first(stream) - 1 else b"", b"")
                continue
            k = needs.first(stream) - 1
            ours = self.digests.of(stream, self._index, k)
            if last and ours and last != ours:
                said += self._disown(needs.peer, stream, k, last, ours)
        if self.drew:
            ask = released + 1
            x, y, mixed = min(needs.x_from, ask), min(needs.y_from, ask), min(needs.mixed_before, ask)
            needs = replace(needs, x_from=x, y_from=y, mixed_before=mixed)
        return needs, tuple(said)

    def _disown(self, peer: int, stream: Stream, k: int, theirs: bytes, ours: bytes) -> list[Any]:
        if (peer, stream, k) in self._named:
            return []
        self._named.add((peer, stream, k))
        word = m.Disowned(self._names[peer], stream, k, theirs, ours)
        return [Note("error", word.line(self._names[self._index])), Say(word)]

    def outliers(self, found: Sequence[Outlier]) -> tuple[Any, ...]:
        """What is said of in-neighbours whose vectors lay far beyond the others."""
        said = list[Any]()
        for one in found:
            self.outlying[one.sender, one.stream] = one.rounds
            said += [Note("warning", one.line(self._names[self._index])), Say(one)]
        return tuple(said)

    def dispute(self, dispute: Dispute) -> tuple[Any, ...]:
        """What the coordinator says of digests that differ.  It may not put words into this agent's mouth."""
        own = self._names[self._index]
        said = dict(dispute.words).get(own)
        if dispute.sender not in self._names:
            return (Note("error", "the coordinator tells of a dispute with nobody of this run"),)
        known = self.digests.of(dispute.stream, self._names.index(dispute.sender), dispute.k)
        notes = [Note("error", dispute.line())]
        if said is not None and known and said != known:
            what = f"{shown(known)}, not {shown(said)}"
            notes.append(Note("error", f"the coordinator misquotes {own}, which said {what}: trust it in nothing"))
        return tuple(notes)
