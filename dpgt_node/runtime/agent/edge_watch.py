"""An agent's watch over its own edges: what is wrong is told to the coordinator, who sees both ends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from dpgt_node.protocol.agent import AgentMachine
from dpgt_node.protocol.liveness import Down, EdgeReport, Lack
from dpgt_node.protocol.types import ReportStall
from dpgt_node.runtime.agent.inbound import Inbound, stream_index
from dpgt_node.runtime.agent.links import Link

log = logging.getLogger(__name__)


class EdgeWatch:
    """Reports once a heartbeat while an edge of agent ``names[index]`` is in trouble, and once more when none is.

    In trouble is an edge whose vector the agent's round waits for (``stalled`` says since when), and a stream to an
    out-neighbour that has been down for a heartbeat.  ``patience_s``: after so long the agent's own log says it too.
    """

    def __init__(
        self,
        names: Sequence[str],
        machine: AgentMachine,
        links: Mapping[int, Link],
        inbound: Inbound,
        say: Callable[[EdgeReport], None],
        *,
        heartbeat_s: float,
        patience_s: float,
    ) -> None:
        self._names = names
        self._machine = machine
        self._links = links
        self._inbound = inbound
        self._say = say
        self._heartbeat_s = heartbeat_s
        self._patience_s = patience_s
        self._stall: ReportStall | None = None
        self._logged = -1
        self._told = False

    def stalled(self, effect: ReportStall, waited_s: float) -> None:
        """Inputs of a round are late."""
        self._stall = effect
        if waited_s >= self._patience_s and self._logged != effect.k:
            self._logged = effect.k
            names = ", ".join(f"{stream} of {self._names[j]}" for j, stream in effect.missing)
            log.warning("round %d waits for %s since %.1f s", effect.k, names, waited_s)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(self._heartbeat_s)
            report = self.report()
            trouble = bool(report.lacks or report.down)
            if trouble or self._told:
                self._say(report)
            self._told = trouble

    def report(self) -> EdgeReport:
        """The edges as they are now."""
        now = time.monotonic_ns()
        lacks, waited_ns = self._lacks(now)
        down = tuple(
            Down(self._names[index], for_ns, link.trouble)
            for index, link in sorted(self._links.items())
            if link.down_since_ns is not None and (for_ns := now - link.down_since_ns) >= self._heartbeat_s * 1e9
        )
        return EdgeReport(self._machine.k, waited_ns, lacks, down)

    def _lacks(self, now: int) -> tuple[tuple[Lack, ...], int]:
        stall, k = self._stall, self._machine.k
        if stall is None or stall.k != k or self._machine.done_through >= k:
            return (), 0
        senders = sorted({j for j, stream in stall.missing if self._machine.needs(j)[stream_index(stream)] <= k})
        lacks = []
        for j in senders:
            heard = self._inbound.heard_ns(j)
            lacks.append(Lack(self._names[j], None if heard is None else now - heard))
        return tuple(lacks), now - stall.since_ns
