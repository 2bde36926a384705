"""Where noise cancels: the coordinator passes on what agents say to each other about keys, and believes none of it.

Every agent offers a key over each of its calls.  Once all n offers are here, whoever offered gets the ring of them, and
then the proofs that its partners gave for it, those of before as well.  What an agent said last counts.  Agents find
out for themselves whether they were shown the same: see ``agreeing`` and ``runtime.trust.agreement``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dpgt_node.protocol import messages as m

Say = Callable[[str, m.KeyRing | m.KeyProof], None]


class KeyRelay:
    """Offers and proofs of agents ``names``, in row order."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._offers: dict[str, m.KeyOffer] = {}
        self._proofs: dict[str, Mapping[str, bytes]] = {}
        self._waiting: dict[str, None] = {}
        self._served: set[str] = set()

    def take(self, name: str, word: m.KeyOffer | m.KeyProofs, say: Say) -> bool:
        """What agent ``name`` said, an offer over each new call; ``say`` tells an agent.  False: it must not say it,
        or says something else of the same offer than before.
        """
        return self._offered(name, word, say) if isinstance(word, m.KeyOffer) else self._proved(name, word.proofs, say)

    def _offered(self, name: str, offer: m.KeyOffer, say: Say) -> bool:
        if offer.name != name:
            return False
        if self._offers.get(name, offer) != offer:
            self._proofs.pop(name, None)  # of a key that it has no more
        self._offers[name] = offer
        self._served.discard(name)
        self._waiting[name] = None
        if len(self._offers) == len(self._names):
            waiting, self._waiting = self._waiting, {}
            for one in waiting:
                self._serve(one, say)
        return True

    def _serve(self, name: str, say: Say) -> None:
        self._served.add(name)
        say(name, m.KeyRing(tuple(self._offers[one] for one in self._names)))
        for sender in self._names:
            if name in (proofs := self._proofs.get(sender, {})):
                say(name, m.KeyProof(sender, proofs[name]))

    def _proved(self, name: str, proofs: Mapping[str, bytes], say: Say) -> bool:
        if not proofs.keys() <= set(self._names) - {name} or self._proofs.get(name, proofs) != proofs:
            return False
        if name in self._proofs:
            return True  # said again: whoever was served has them, so an agent cannot flood the others
        self._proofs[name] = proofs
        for peer in self._names:
            if peer in proofs and peer in self._served:
                say(peer, m.KeyProof(name, proofs[peer]))
        return True
