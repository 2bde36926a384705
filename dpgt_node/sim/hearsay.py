"""Digests and outliers in a simulation: the daemons' own judgement, where an agent has an active role or mixing is
robust.

Else every agent sends what it released, because one process does all of it, so nothing is compared.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from dpgt_node.config import RunConfig
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.calls import Note
from dpgt_node.protocol.coordinator.barrier_types import AgentDone
from dpgt_node.protocol.coordinator.comparison import NOTHING_YET
from dpgt_node.protocol.coordinator.witnesses import Witnesses
from dpgt_node.protocol.digests import Digests
from dpgt_node.protocol.outliers import Outlier
from dpgt_node.protocol.types import Payload, RoundRecord
from dpgt_node.record.digests import read_digests, write_digests

log = logging.getLogger(__name__)


class Digesting:
    """Of ``run`` and its ``machines``, by row."""

    def __init__(self, run: RunConfig, machines: tuple[AgentMachine, ...], out: Path) -> None:
        self._names = run.graph.agents
        self._out = out
        self._digests = [Digests(machine.edges, machine.run_ahead) for machine in machines]
        self._witnesses = Witnesses.of(run, read_digests(out) or NOTHING_YET)
        self._words: dict[tuple[str, int], bytes] = {}

    def released(self, i: int, record: RoundRecord) -> None:
        """Agent ``i`` made its round durable."""
        self._digests[i].released(record.payloads)

    def received(self, i: int, sender: int, payload: Payload) -> None:
        """Agent ``i`` got a vector."""
        self._digests[i].heard(sender, payload)

    def outliers(self, i: int, found: Sequence[Outlier]) -> None:
        """Agent ``i`` names in-neighbours."""
        name = self._names[i]
        for one in found:
            said = self._witnesses.outlier(name, one)
            assert said is not None, "an agent of this process knows its own edges"
            if said.effects:
                log.warning("%s", one.line(name))

    def done(self, i: int, k: int) -> None:
        """Agent ``i`` has mixed round ``k``."""
        self._words[self._names[i], k] = self._digests[i].words(k)

    def dispute(self, done: AgentDone) -> str:
        """Why the run ends; empty: it goes on."""
        said = self._witnesses.words(done.name, done.k, self._words.pop((done.name, done.k), b""))
        assert said is not None, "an agent of this process knows its own edges"
        for dispute in said.disputes:
            log.error("%s", dispute.line())
        return said.stop

    def keep(self) -> None:
        """Write what there is to tell so far, beside a save of the agents: whoever goes on from it takes it up."""
        write_digests(self._out, self._witnesses.kept())

    def close(self) -> None:
        """Write what there is to tell."""
        for effect in self._witnesses.ended():
            if isinstance(effect, Note):
                log.error("%s", effect.text)
            else:
                write_digests(self._out, effect.found)
