"""Digests of released vectors: what a sender says that it sent, and what its receivers say that they received.

A digest is the first 16 bytes of the SHA-256 that every vector carries anyway.  Whoever holds an agent's certificate
can send in its name, and an agent can send different values to different receivers; either shows as two digests of one
(sender, stream, round).  Sixteen bytes, because whoever chooses both vectors needs 2^64 tries for two with one digest.

An agent's *words* of round k are one byte string: the digests of what it released, by stream, then of what it received,
by stream and by sender, ascending (:func:`places`).  Both sides know the graph, so nothing else need be said.  A digest
is a function of what was released, so it adds nothing to any epsilon, which holds against whoever sees every message.
"""

from __future__ import annotations

from collections.abc import Iterable

from dpgt_node import figures
from dpgt_node.algo.methods.base import AgentEdges
from dpgt_node.protocol.types import Payload, Recovered
from dpgt_node.types import Stream
from dpgt_node.values import dataclass

DIGEST_BYTES = 16
SHOWN = 16
"""Hexadecimal digits of a digest in a line for people."""
RESAID = 64
"""An agent says at most so many rounds again to a coordinator that came back."""
Place = tuple[Stream, int]


def digest(payload: Payload) -> bytes:
    """Of one released vector, ``DIGEST_BYTES`` bytes."""
    return payload.sha256[:DIGEST_BYTES]


def shown(word: bytes) -> str:
    """A digest in a line for people."""
    return word.hex()[:SHOWN]


def places(edges: AgentEdges) -> tuple[Place, ...]:
    """Of which (stream, sender) an agent's words tell, in order: itself, then its in-neighbours."""
    own = [(stream, edges.index) for stream in edges.streams]
    heard = [(stream, j) for stream, senders in edges.incoming.items() for j, _ in senders if j != edges.index]
    return (*own, *heard)


class Digests:
    """What one agent released and received, round by round, of the newest rounds.

    ``width``: how many rounds a neighbour may be ahead.  ``recovered``: what its state directory holds; a round that is
    replayed is heard again.
    """

    def __init__(self, edges: AgentEdges, width: int, recovered: Recovered | None = None) -> None:
        self._own = edges.index
        self._places = places(edges)
        self._all = frozenset(self._places)
        self.resaid = min(width + 1, RESAID)
        """Of so many rounds a coordinator may not have heard."""
        self._kept = 2 * self.resaid + 2
        self._rounds: dict[int, dict[Place, bytes]] = {}
        for record in () if recovered is None else recovered.records:
            self.released(record.payloads)

    def released(self, payloads: Iterable[Payload]) -> None:
        """The agent's own vectors of one round."""
        for payload in payloads:
            self.heard(self._own, payload)

    def heard(self, sender: int, payload: Payload) -> None:
        """A vector of a neighbour; a copy that comes later is not mixed, so the first one counts."""
        self._rounds.setdefault(payload.k, {}).setdefault((payload.stream, sender), digest(payload))

    def of(self, stream: Stream, sender: int, k: int) -> bytes:
        """Of one vector; empty where it is not known (any more)."""
        return self._rounds.get(k, {}).get((stream, sender), b"")

    def words(self, k: int) -> bytes:
        """All of round ``k``; empty where one is lacking.  Rounds that nobody asks for any more are dropped."""
        rounds, last = self._rounds, k - self._kept
        while rounds and (oldest := next(iter(rounds))) < last:  # they came about in this order
            del rounds[oldest]
        known = rounds.get(k, {})
        return b"".join([known[place] for place in self._places]) if known.keys() >= self._all else b""


@dataclass(frozen=True, slots=True)
class Dispute:
    """Not everybody says the same of ``stream`` of round ``k`` of agent ``sender``.

    ``words``: agent name -> digest, the sender's own first where it is known, then its receivers'.
    """

    sender: str
    stream: Stream
    k: int
    words: tuple[tuple[str, bytes], ...]

    def line(self) -> str:
        """What is said, and what follows from it, in one line."""
        received: dict[bytes, list[str]] = {}
        for name, word in self.words:
            if name != self.sender:
                received.setdefault(word, []).append(name)
        said = [f"{figures.some(names)} received {shown(word)}" for word, names in received.items()]
        own = [f"{self.sender} says that it sent {shown(word)}" for name, word in self.words if name == self.sender]
        what = f"{self.stream} of round {self.k} of {self.sender} is in dispute"
        return f"{what}: {', '.join(own + said)}. {self.proven()}"

    def proven(self) -> str:
        """No more than what is known: one agent's word against another's convicts neither."""
        receivers = dict(self.words)
        own = receivers.pop(self.sender, None)
        held = set(receivers.values())
        lie = "or one of them does not say what is so"
        if len(self.words) < 2:  # the sender disowns it
            return f"somebody sends with the certificate of {self.sender}, {lie}"
        if len(held) > 1:
            return f"{self.sender}, or somebody with its certificate, sent different vectors in one round, {lie}"
        assert own is not None
        return (
            f"{figures.some(list(receivers))} and {self.sender} disagree: {self.sender} sent something else than it "
            f"says, somebody sends with its certificate, {lie}"
        )
