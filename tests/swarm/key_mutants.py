"""Sessions that agree on keys wrongly, for ``mutants``."""

from __future__ import annotations

from dpgt_node.protocol import messages as m
from dpgt_node.protocol.agent.agreeing import Agreeing, AgreeingPhase
from dpgt_node.protocol.agent.session import Session


def agreeing(kind: type[Agreeing]) -> type[Session]:
    """A session that agrees on keys in this way."""

    class Made(Session):
        def step(self, event: object, now_ns: int) -> tuple[object, ...]:
            if self._agreeing is not None:
                self._agreeing.__class__ = kind
            return super().step(event, now_ns)

    return Made


class IsReadyAtOnce(Agreeing):
    @property
    def agreed(self) -> bool:
        return self._phase is not AgreeingPhase.OFFERED


class OffersOnce(Agreeing):
    def words(self) -> tuple[m.KeyOffer | m.KeyProofs, ...]:
        return super().words()[1:]


class ProvesOnce(Agreeing):
    def words(self) -> tuple[m.KeyOffer | m.KeyProofs, ...]:
        return super().words()[:1]
