"""Where noise cancels: how an agent comes to share a key with each of its partners before it says Ready.

Theory of operation:

    phase      waits for                              then
    ---------------------------------------------------------------------------------------------------------------
    OFFERED    KeyRing: everybody's offer             CheckRing: CHECKING
    CHECKING   RingChecked                            KeyProofs is said: PROVING
    PROVING    KeyProof of every partner              KeepKeys: KEEPING; a wrong proof, or half of ``patience_ns``
                                                      without one: NoAgreement
    KEEPING    KeysKept                               AGREED
    AGREED     nothing

After every Welcome the own offer is said again, and the own proofs once there are some: the coordinator that relays
them may have forgotten them, and a partner that was killed may need them.  Offers and proofs are public.  What is
private (the X25519 key, the agreed keys) stays with the shell, which makes it durable before RingChecked and KeysKept.

Ready is said when AGREED is reached and not before, so no round begins before all pairs have confirmed: whatever the
coordinator says earlier of rounds is an error, because the agent's machine does not exist yet.
"""

from __future__ import annotations

import hmac
from enum import auto
from typing import Any

from dpgt_node.errors import NoAgreement, PeerError
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.phases import Phases
from dpgt_node.protocol.types import Tick


class AgreeingPhase(Phases):
    """Where the agreement stands; see the table."""

    OFFERED = auto()
    CHECKING = auto()
    PROVING = auto()
    KEEPING = auto()
    AGREED = auto()


class Agreeing:
    """The agreement of one agent with its ``partners``, from what its state directory ``held``.

    ``patience_ns``: for so long the coordinator waits until everybody is ready.
    """

    def __init__(self, partners: tuple[str, ...], held: s.Agreement, patience_ns: int) -> None:
        self._partners = partners
        self._offer, self._proofs = held.offer, held.proofs
        self._patience_ns = patience_ns
        self._phase = AgreeingPhase.AGREED if held.agreed else AgreeingPhase.OFFERED
        self._ring: tuple[m.KeyOffer, ...] = ()
        self._expected: dict[str, bytes] = {}
        self._got: dict[str, bytes] = {}
        self._deadline_ns: int | None = None

    @property
    def agreed(self) -> bool:
        """Whether every pair of this agent has confirmed."""
        return self._phase is AgreeingPhase.AGREED

    def next_deadline_ns(self) -> int | None:
        """When to step with ``Tick`` at the latest."""
        return self._deadline_ns

    def words(self) -> tuple[m.KeyOffer | m.KeyProofs, ...]:
        """What is said after a Welcome."""
        return (self._offer, m.KeyProofs(self._proofs)) if self._proofs else (self._offer,)

    def step(self, event: Any, now_ns: int) -> tuple[Any, ...]:
        """Take a message of the coordinator, or what came of an effect.  Raises NoAgreement, PeerError."""
        match event:
            case m.KeyRing(offers):
                return self._ring_came(offers)
            case s.RingChecked() if self._phase is AgreeingPhase.CHECKING:
                # Half: who knows which pair it is speaks before somebody who does not.
                self._phase, self._deadline_ns = AgreeingPhase.PROVING, now_ns + self._patience_ns // 2
                self._proofs, self._expected = dict(event.ours), dict(event.theirs)
                return (s.Say(m.KeyProofs(self._proofs)), *self._compare())
            case m.KeyProof(sender, proof):
                return self._proof_came(sender, proof)
            case s.KeysKept() if self._phase is AgreeingPhase.KEEPING:
                self._phase = AgreeingPhase.AGREED
            case Tick() if self._deadline_ns is not None and now_ns >= self._deadline_ns:
                lacking = [name for name in self._partners if name not in self._got]
                raise NoAgreement(lacking[0], f"no proof of a common key came from {', '.join(lacking)}")
        return ()

    def _ring_came(self, offers: tuple[m.KeyOffer, ...]) -> tuple[Any, ...]:
        if self._phase is AgreeingPhase.OFFERED:
            self._phase, self._ring = AgreeingPhase.CHECKING, offers
            return (s.CheckRing(offers),)
        if self._ring and offers != self._ring:
            changed = next((new.name for new, old in zip(offers, self._ring, strict=False) if new != old), "nobody")
            raise NoAgreement(changed, f"the coordinator relayed a second, different key offer of {changed}")
        return ()

    def _proof_came(self, sender: str, proof: bytes) -> tuple[Any, ...]:
        if sender not in self._partners:
            raise PeerError("the coordinator relayed a proof of an agent that shares no noise with this one")
        if self._phase in (AgreeingPhase.KEEPING, AgreeingPhase.AGREED):
            return ()
        self._got[sender] = proof
        return self._compare() if self._phase is AgreeingPhase.PROVING else ()

    def _compare(self) -> tuple[Any, ...]:
        for name, proof in self._got.items():
            if not hmac.compare_digest(proof, self._expected[name]):
                raise NoAgreement(
                    name,
                    f"{name} has no common key with this agent: it was shown other key offers, has another run in "
                    "mind, or lost its key",
                )
        if self._got.keys() != set(self._partners):
            return ()
        self._phase, self._deadline_ns = AgreeingPhase.KEEPING, None
        return (s.KeepKeys(),)
