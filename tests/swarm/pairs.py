"""Keys of agents that share noise, as ``runtime.agent.agreeing`` and the store have them: the product's mathematics,
and a disk that keeps what the real one keeps.  Certificates are left out: nobody lies here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpgt_node.errors import NoAgreement
from dpgt_node.privacy.laws.pairs import PairKeys, TestPairKeys, ratchet
from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.messages import KeyOffer
from dpgt_node.runtime.trust import agreement
from tests.swarm.checkers import Violation

if TYPE_CHECKING:
    from tests.swarm.world import World


@dataclass(slots=True)
class PairDisk:
    """The part of a state directory that is about keys.  ``keys``: K_ij,``k`` by partner."""

    private: bytes | None = None
    offer: KeyOffer | None = None
    proofs: Mapping[str, bytes] = field(default_factory=dict)
    pinned: Mapping[str, bytes] = field(default_factory=dict)
    keys: Mapping[int, bytes] = field(default_factory=dict)
    k: int = 0

    def copy(self) -> PairDisk:
        """A backup: nothing in it is ever changed in place."""
        return copy(self)

    def advance(self, k: int) -> None:
        """Round ``k`` is durable."""
        self.keys, self.k = {j: _ahead(key, k + 1 - self.k) for j, key in self.keys.items()}, k + 1


def _ahead(key: bytes, steps: int) -> bytes:
    for _ in range(steps):
        key = ratchet(key)
    return key


class Shell:
    """What agent ``index`` does about keys."""

    def __init__(self, world: World, index: int) -> None:
        self._world, self._index, self._name = world, index, world.names[index]
        graph = world.graph
        assert graph is not None
        self._subject = agreement.Subject(world.run_id, "00" * 32, world.names, graph.edges)
        self._agreed: Mapping[str, agreement.Pair] = {}

    @property
    def _disk(self) -> PairDisk:
        return self._world.disks[self._index].pairs

    def begin(self, life: int) -> s.Agreement:
        """What there is, or a new key."""
        disk = self._disk
        if disk.offer is None:
            disk.private = hashlib.sha256(f"{self._world.plan.key} {self._index} {life}".encode()).digest()
            disk.offer = KeyOffer(self._name, agreement.public_of(disk.private), b"certificate", b"signature")
        return s.Agreement(disk.offer, disk.proofs, agreed=disk.private is None)

    def check(self, effect: s.CheckRing) -> s.RingChecked | s.RunRefused:
        """Pin the offers, and derive what follows."""
        disk, ring = self._disk, effect.offers
        assert disk.private is not None
        if tuple(offer.name for offer in ring) != self._world.names or ring[self._index] != disk.offer:
            raise Violation("keys", f"{self._name} is shown other offers than were made")
        for offer in ring:
            if disk.pinned.get(offer.name, offer.key) != offer.key:
                return s.RunRefused(NoAgreement(offer.name, "another key than before"))
        disk.pinned = {offer.name: offer.key for offer in ring}
        self._agreed = agreement.agree(self._subject, self._name, disk.private, ring)
        disk.proofs = {peer: pair.ours for peer, pair in self._agreed.items()}
        return s.RingChecked(disk.proofs, {peer: pair.theirs for peer, pair in self._agreed.items()})

    def keep(self) -> s.KeysKept:
        """The keys, and no private key any more."""
        disk, names = self._disk, self._world.names
        disk.keys, disk.k = {names.index(peer): pair.key for peer, pair in self._agreed.items()}, 0
        disk.private = None
        self._world.checkers.agreed.add(self._index)
        return s.KeysKept()


class Watched:
    """The keys that agent ``index`` draws with: those on its disk, or, where results are to be equal, test keys."""

    def __init__(self, world: World, index: int) -> None:
        self._world, self._index = world, index
        self._test: PairKeys | None = None if world.plan.fresh else TestPairKeys(world.plan.key, index)

    def key(self, partner: int, k: int) -> bytes:
        disk = self._world.disks[self._index].pairs
        held = disk.keys.get(partner)
        if held is None or disk.k > k:
            raise Violation("keys", f"{self._world.names[self._index]} draws round {k} and has no key for it")
        key = _ahead(held, k - disk.k)
        self._world.checkers.draws_with(self._index, partner, k, key)
        return key if self._test is None else self._test.key(partner, k)
