"""An agent's watch over its own edges: what is wrong is told to the coordinator, who sees both ends.

From Start on there is a report once a heartbeat while an edge is in trouble, and one more when none is.  In trouble is
an edge whose vector the agent's round waits for, and a call to an out-neighbour that has been down for a heartbeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.agent.session_types import Say
from dpgt_node.protocol.calls import Note
from dpgt_node.protocol.clock import SECOND
from dpgt_node.protocol.edge.receiver import Receiver
from dpgt_node.protocol.edge.sender import Sender
from dpgt_node.protocol.liveness import Down, EdgeReport, Lack
from dpgt_node.protocol.types import ReportStall, Started, Tick
from dpgt_node.types import Stream

NO_STALL = ReportStall(-1, (), 0)


class EdgeWatch:
    """``senders`` and ``receivers``: the ends of agent ``names[i]``'s edges, by peer.  It only looks at them.

    ``patience_ns``: after so long a wait is said in the agent's own log too.
    """

    def __init__(
        self,
        names: Sequence[str],
        agent: AgentMachine,
        senders: Mapping[str, Sender],
        receivers: Mapping[str, Receiver],
        *,
        heartbeat_ns: int,
        patience_ns: int,
    ) -> None:
        self._names = names
        self._agent = agent
        self._senders = senders
        self._receivers = receivers
        self._heartbeat_ns = heartbeat_ns
        self._patience_ns = patience_ns
        self._stall = NO_STALL
        self._logged = -1
        self._told = False
        self._deadline_ns: int | None = None

    def next_deadline_ns(self) -> int | None:
        """When to step with ``Tick`` at the latest; None before Start."""
        return self._deadline_ns

    def step(self, event: Any, now_ns: int) -> tuple[Any, ...]:
        """Take ``Started``, ``Tick`` or what the agent's machine says of late inputs."""
        match event:
            case Started():
                if self._deadline_ns is None:
                    self._deadline_ns = now_ns + self._heartbeat_ns
            case ReportStall():
                return self._stalled(event, now_ns)
            case Tick():
                if self._deadline_ns is not None and now_ns >= self._deadline_ns:
                    self._deadline_ns = now_ns + self._heartbeat_ns
                    return self._beat(now_ns)
        return ()

    def _stalled(self, stall: ReportStall, now_ns: int) -> tuple[Any, ...]:
        self._stall = stall
        waited_ns = now_ns - stall.since_ns
        if waited_ns < self._patience_ns or self._logged == stall.k:
            return ()
        self._logged = stall.k
        missing = ", ".join(f"{stream} of {self._names[j]}" for j, stream in stall.missing)
        return (Note("warning", f"round {stall.k} waits for {missing} since {waited_ns / SECOND:.1f} s"),)

    def _beat(self, now_ns: int) -> tuple[Any, ...]:
        lacks, waited_ns = self._lacks(now_ns)
        down = tuple(
            Down(name, for_ns, sender.trouble)
            for name, sender in self._senders.items()
            if (for_ns := sender.down_ns(now_ns)) >= self._heartbeat_ns
        )
        told, self._told = self._told, bool(lacks or down)
        return (Say(EdgeReport(self._agent.k, waited_ns, lacks, down)),) if told or self._told else ()

    def _lacks(self, now_ns: int) -> tuple[tuple[Lack, ...], int]:
        stall, agent = self._stall, self._agent
        if stall.k != agent.k or agent.done_through >= agent.k:
            return (), 0
        late = sorted({j for j, stream in stall.missing if agent.needs(j)[_place(stream)] <= agent.k})
        lacks = []
        for j in late:
            heard_ns = self._receivers[self._names[j]].heard_ns
            lacks.append(Lack(self._names[j], None if heard_ns is None else now_ns - heard_ns))
        return tuple(lacks), now_ns - stall.since_ns


def _place(stream: Stream) -> int:
    return 0 if stream == "X" else 1
