"""Broken agents that write states beside the rounds."""

from __future__ import annotations

from dpgt_node.protocol.agent.keeping import Keeping
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.types import AgentEffect, AgentEvent, KeepState, Persisted, Prune, ReleaseReady


class TakesTheRoundForTheState(AgentMachine):
    """What only a state makes durable for good is given up with the record of its round."""

    def step(self, event: AgentEvent, now_ns: int) -> tuple[AgentEffect, ...]:
        if isinstance(event, Persisted) and event.k % self._keeping._every == 0:
            self._durable_through = event.k - 1
        return super().step(event, now_ns)


class PrunesWhatItHandsOut(AgentMachine):
    """Rounds before a state go when it begins to be written."""

    def step(self, event: AgentEvent, now_ns: int) -> tuple[AgentEffect, ...]:
        made: list[AgentEffect] = []
        for effect in super().step(event, now_ns):
            made += [effect, Prune(effect.k - 1)] if isinstance(effect, KeepState) else [effect]
        return tuple(made)


class KeepsWhatIsNotDurable(AgentMachine):
    """A state goes out with the record of its round, not after it."""

    def step(self, event: AgentEvent, now_ns: int) -> tuple[AgentEffect, ...]:
        effects = super().step(event, now_ns)
        if isinstance(event, ReleaseReady) and not self._keeping.with_record(event.k) and self._keeping.due(event.k):
            return (KeepState(event.state), *effects)
        return effects


def with_keeping(kind: type[Keeping]) -> type[AgentMachine]:
    class Machine(AgentMachine):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[arg-type]
            self._keeping.__class__ = kind

    return Machine


class NeverWaits(Keeping):
    """Rounds go on however long a state takes."""

    __slots__ = ()

    def lets(self, k: int) -> bool:
        return True

    def due(self, k: int) -> bool:
        self._writing = None
        return super().due(k)


class KeepsOnlyWhatItPersists(AgentMachine):
    """A state that a crash kept from being durable is not written when its round is gone through again."""

    def step(self, event: AgentEvent, now_ns: int) -> tuple[AgentEffect, ...]:
        self._new = isinstance(event, Persisted)
        return super().step(event, now_ns)

    def _keep(self, out: list[AgentEffect]) -> None:
        if self._new:
            super()._keep(out)


BESIDE: dict[str, tuple[type[AgentMachine], str]] = {
    "durable when the round is": (TakesTheRoundForTheState, "retention"),
    "pruned before the state is durable": (PrunesWhatItHandsOut, "retention"),
    "a state before its round": (KeepsWhatIsNotDurable, "states"),
    "a state is not waited for": (with_keeping(NeverWaits), "states"),
    "a state is written once": (KeepsOnlyWhatItPersists, "states"),
}
"""With the checker that sees each."""
