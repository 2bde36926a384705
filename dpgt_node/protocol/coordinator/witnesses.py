"""What the coordinator makes of what agents say of each other's releases: lines, what is kept, and whether it ends.

The first dispute of a sender and stream is said aloud; later ones are counted, and kept when their number doubles, so
that an attacker fills no log.
"""

from __future__ import annotations

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import network_of
from dpgt_node.algo.methods.base import Network
from dpgt_node.config import RunConfig
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.calls import Note
from dpgt_node.protocol.coordinator.comparison import NOTHING_YET, Compared, Comparison, Forgeries
from dpgt_node.protocol.coordinator.coordination_types import KeepCompared
from dpgt_node.protocol.digests import Dispute
from dpgt_node.protocol.outliers import Outlier
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Said:
    """``disputes``: for every agent.  ``effects``: of the coordinator itself.  ``stop``: why the run ends, or empty."""

    disputes: tuple[Dispute, ...] = ()
    effects: tuple[Note | KeepCompared, ...] = ()
    stop: str = ""


NOTHING = Said()


class Witnesses:
    """Of a run over ``network``.  ``stops``: a dispute ends the run; else it is named, and the run goes on.
    ``held``: what an earlier life of the process kept.
    """

    def __init__(self, network: Network, width: int, held: Compared, *, last_round: int, stops: bool) -> None:
        self._network = network
        self._to = {name: network.edges(i).outgoing for i, name in enumerate(network.names)}
        self._comparison = Comparison(network, width)
        self._forgeries = Forgeries(held.forgeries)
        self._held = held
        self._K = last_round
        self._stops = stops
        self._outliers = {(who, one.sender, one.stream): one for who, one in held.outliers}

    @classmethod
    def of(cls, run: RunConfig, held: Compared) -> Witnesses:
        """As ``run`` has it."""
        network, stops = network_of(run, Topology.from_config(run.graph)), run.runtime.on_forgery == "stop"
        return cls(network, run.runtime.barrier_every, held, last_round=run.K, stops=stops)

    def words(self, name: str, k: int, words: bytes) -> Said | None:
        """What agent ``name`` says of round ``k``.  None: it does not fit its edges."""
        disputes = self._comparison.take(name, k, words)
        if not disputes:
            return None if disputes is None else NOTHING
        return self._said(disputes, "; ".join(dispute.line() for dispute in disputes))

    def disowned(self, name: str, word: m.Disowned) -> Said | None:
        """Agent ``name`` says that it never sent what a receiver holds.  None: that cannot be."""
        names = self._network.names
        if word.receiver not in names or names.index(word.receiver) not in self._to[name].get(word.stream, ()):
            return None
        if word.k > self._K or word.ours == word.theirs != b"":
            return None
        own = ((name, word.ours),) if word.ours else ()
        theirs = ((word.receiver, word.theirs),) if word.theirs else ()
        return self._said((Dispute(name, word.stream, word.k, own + theirs),), word.line(name))

    def outlier(self, name: str, word: Outlier) -> Said | None:
        """Agent ``name`` says that an in-neighbour's vectors lie far beyond the others.  None: that cannot be."""
        names = self._network.names
        if word.sender not in names or names.index(name) not in self._to[word.sender].get(word.stream, ()):
            return None
        if word.k > self._K or word.sender == name:
            return None
        key = name, word.sender, word.stream
        held = self._outliers.get(key)
        if held is not None and word.rounds < 2 * held.rounds:
            return NOTHING
        self._outliers[key] = word
        return Said(effects=(Note("warning", word.line(name)), self._kept()))

    def _said(self, disputes: tuple[Dispute, ...], line: str) -> Said:
        loud = [self._forgeries.add(dispute) for dispute in disputes]  # every one of them counts
        if not any(loud):
            return NOTHING
        told = tuple(dispute for dispute in disputes if len(dispute.words) > 1)
        return Said(told, (Note("error", line), self._kept()), line if self._stops else "")

    def kept(self) -> Compared:
        """What there is to tell so far, of earlier lives too."""
        held, now = self._held, self._comparison
        return Compared(
            self._forgeries.all(),
            held.rounds + now.compared,
            held.incomplete + now.incomplete,
            tuple((who, one) for (who, _, _), one in self._outliers.items()),
        )

    def _kept(self) -> KeepCompared:
        return KeepCompared(self.kept())

    def ended(self) -> tuple[Note | KeepCompared, ...]:
        """What is said and kept at the end of a run that compared anything."""
        late = [Note("error", dispute.line()) for dispute in self._comparison.rest() if self._forgeries.add(dispute)]
        kept = self._kept()
        return () if kept.found == NOTHING_YET else (*late, kept)
