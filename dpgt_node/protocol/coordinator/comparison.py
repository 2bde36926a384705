"""Whether senders and receivers say the same of what was sent: the coordinator compares digests, round by round.

It never sees a vector.  A round is compared once every agent has said its words of it, so with ``barrier_every = 1``
before anybody may release the next one.  An agent that says nothing is passed over, and counted.  Words that an earlier
life of the coordinator took with it are said again by agents that are still there; a round that stays incomplete is
compared as far as it goes, once everybody is far beyond it or the run is over.  What one agent says of rounds that
nobody is in hides nothing of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from dpgt_node.algo.methods.base import Network
from dpgt_node.protocol.coordinator.slowest import Slowest
from dpgt_node.protocol.digests import DIGEST_BYTES, RESAID, Dispute, Place, places
from dpgt_node.protocol.outliers import Outlier
from dpgt_node.types import Stream
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Forgery:
    """What is told of one sender and stream at the end: the ``first`` dispute, in how many ``rounds`` there was one,
    and the ``last_k`` of them.
    """

    first: Dispute
    rounds: int
    last_k: int


@dataclass(frozen=True, slots=True)
class Compared:
    """``rounds``: those of which everybody said its words; ``incomplete``: those where somebody's were lost, or never
    said.  ``forgeries``: one a sender and stream.  ``outliers``: the newest word of each (receiver, its in-neighbour's
    stream).
    """

    forgeries: tuple[Forgery, ...] = ()
    rounds: int = 0
    incomplete: int = 0
    outliers: tuple[tuple[str, Outlier], ...] = ()


NOTHING_YET = Compared()


class Comparison:
    """The digests of a run over ``network``; ``width``: how many rounds agents may be apart."""

    def __init__(self, network: Network, width: int) -> None:
        self._names = network.names
        edges = {name: network.edges(i) for i, name in enumerate(network.names)}
        self._places = {name: places(one) for name, one in edges.items()}
        self._own = {name: tuple((stream, one.index) for stream in one.streams) for name, one in edges.items()}
        where = {at: (name, i * DIGEST_BYTES) for name, own in self._own.items() for i, at in enumerate(own)}
        self._said_by = {name: tuple(map(where.__getitem__, at)) for name, at in self._places.items()}
        """Of each of an agent's words: whose it repeats, and where in those they begin."""
        self._window = 2 * min(width + 1, RESAID) + 2
        self._most = self._window + 2 * (width + 1)
        """So many rounds honest agents have open at most."""
        self._rounds: dict[int, dict[str, bytes]] = {}
        self._reached = Slowest(self._names)
        self._whole: set[int] = set()
        self._given_up = 0
        """The rounds before it."""
        self.compared = self.incomplete = 0

    def take(self, name: str, k: int, words: bytes) -> tuple[Dispute, ...] | None:
        """What agent ``name`` says of round ``k``; empty: nothing.  None: it is not what its edges are."""
        if words and len(words) != DIGEST_BYTES * len(self._places[name]):
            return None
        if k in self._whole or k <= self._reached.least - self._window:
            return ()
        found: tuple[Dispute, ...] = ()
        before = self._reached.least
        self._reached.reached(name, k)
        if self._reached.least > before:
            found = self._give_up()
        if k not in self._rounds and len(self._rounds) >= self._most:
            # Somebody speaks of rounds that do not exist yet; nobody else does.
            del self._rounds[min(self._rounds, key=lambda one: (len(self._rounds[one]), -one))]
        said = self._rounds.setdefault(k, {})
        said[name] = words or said.get(name, b"")
        if len(said) < len(self._names):
            return found
        del self._rounds[k]
        self._whole.add(k)
        whole = all(said.values())
        self.compared += whole
        self.incomplete += not whole and any(said.values())  # if nobody said anything, there is nothing to tell
        return found + self._compare(k, said)

    def _give_up(self) -> tuple[Dispute, ...]:
        """Compare what there is of rounds that nobody says anything of any more."""
        last = self._reached.least - self._window
        self._whole.difference_update(range(self._given_up, last + 1))
        self._given_up = max(self._given_up, last + 1)
        found: list[Dispute] = []
        for k in [k for k in self._rounds if k <= last]:
            self.incomplete += 1
            found += self._compare(k, self._rounds.pop(k))
        return tuple(found)

    def rest(self) -> tuple[Dispute, ...]:
        """At the end of the run: compare what there is of rounds that were never whole."""
        rounds, self._rounds = self._rounds, {}
        return tuple(dispute for k, said in rounds.items() for dispute in self._compare(k, said))

    def _compare(self, k: int, said: Mapping[str, bytes]) -> tuple[Dispute, ...]:
        differs = False
        for name, words in said.items():
            if words:
                repeats = [said[who][at : at + DIGEST_BYTES] for who, at in self._said_by[name] if who in said]
                differs = differs or b"".join(repeats) != words
        return self._differences(k, said) if differs else ()

    def _differences(self, k: int, said: Mapping[str, bytes]) -> tuple[Dispute, ...]:
        sent: dict[Place, bytes] = {}
        for name, own in self._own.items():
            sent.update(zip(own, _digests(said.get(name, b"")), strict=False))
        found: dict[Place, dict[str, bytes]] = {}
        for name, words in said.items():
            at = self._places[name]
            for place, word in zip(at if words else (), _digests(words), strict=True):
                if sent.get(place) != word:
                    found[place] = {}
        for place, differing in found.items():
            for name, words in said.items():
                if words and place in self._places[name]:
                    differing[name] = _digests(words)[self._places[name].index(place)]
        return tuple(
            Dispute(self._names[j], stream, k, _ordered(self._names[j], words))
            for (stream, j), words in sorted(found.items(), key=lambda item: (item[0][1], item[0][0]))
            if len(set(words.values())) > 1
        )


def _digests(words: bytes) -> list[bytes]:
    return [words[at : at + DIGEST_BYTES] for at in range(0, len(words), DIGEST_BYTES)]


def _ordered(sender: str, words: Mapping[str, bytes]) -> tuple[tuple[str, bytes], ...]:
    own = [(sender, words[sender])] if sender in words else []
    return (*own, *((name, word) for name, word in words.items() if name != sender))


class Forgeries:
    """What a run's disputes come to, by sender and stream; ``held``: of an earlier life of the process."""

    def __init__(self, held: Iterable[Forgery] = ()) -> None:
        self._found = {(one.first.sender, one.first.stream): one for one in held}
        self._named: set[tuple[str, Stream, bool]] = set()

    def add(self, dispute: Dispute) -> bool:
        """Whether this process names it the first time, with the words of both sides or without, or its count is worth
        writing down again.
        """
        key = (dispute.sender, dispute.stream)
        named = (*key, len(dispute.words) > 1)
        is_new, before = named not in self._named, self._found.get(key)
        self._named.add(named)
        if before is None:
            self._found[key] = Forgery(dispute, 1, dispute.k)
        elif dispute.k > before.last_k:
            count = before.rounds + 1
            self._found[key] = replace(before, rounds=count, last_k=dispute.k)
            return is_new or count & (count - 1) == 0
        return is_new

    def all(self) -> tuple[Forgery, ...]:
        """In the order in which they were found."""
        return tuple(self._found.values())
