"""What ``dpgt status`` is answered."""

from __future__ import annotations

from collections.abc import Sequence

from dpgt_node import figures
from dpgt_node.config import RunConfig
from dpgt_node.privacy.accountants.registry import APPROXIMATE
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.clock import SECOND
from dpgt_node.protocol.coordinator import barrier as co
from dpgt_node.protocol.coordinator.coordination import Coordination
from dpgt_node.protocol.liveness import Trouble
from dpgt_node.protocol.pace import Slowest
from dpgt_node.record.summary import adjacency
from dpgt_node.runtime.coordinator.results import Results

MISSING = ("left", "silent")
"""Kinds of trouble with an agent that is not there, or seems so."""
TROUBLES_SHOWN = 3
_RESUME = "`dpgt resume`"


def reply(
    run: RunConfig,
    run_id: bytes,
    coordination: Coordination,
    results: Results,
    rounds_per_second: float,
    slowest: Slowest | None,
    now_ns: int,
) -> m.StatusReply:
    """Where the run stands at ``now_ns`` of the machine's clock."""
    recorder, machine, conclude = results.recorder, coordination.barrier, coordination.conclusion
    now_ns = coordination.awake_ns(now_ns)
    troubles = machine.troubles(now_ns)
    agents = []
    for name in run.graph.agents:
        done = machine.done(name)
        trouble = next((t for t in troubles if name == t.agent), None)
        since_ns = None
        if trouble is not None and trouble.kind in MISSING:
            since_ns = trouble.since_ns
        elif machine.phase is co.CoordinatorPhase.GATHERING and not machine.connected(name):
            since_ns = machine.heard_ns(name)
        agents.append(
            m.AgentStatus(
                name,
                connected=machine.connected(name),
                k=done,
                last_seen_s=coordination.last_seen_s(name, now_ns),
                accuracy_test=recorder.accuracy[name] if recorder and results.study else None,
                epsilon=recorder.spent(name, done) if recorder else None,
                strength=recorder.worth(name, done) if recorder else "",
                state=trouble.kind if trouble else "here" if machine.connected(name) else "absent",
                missing_s=None if since_ns is None else max(0, now_ns - since_ns) / 1e9,
                waits_for=machine.waits_for(name),
            )
        )
    accountant = recorder.accountant if recorder else None
    return m.StatusReply(
        state=coordination.state,
        k=machine.k - 1,
        K=run.K,
        run_id=run_id,
        name=run.name,
        rounds_per_second=rounds_per_second if conclude or _moves(machine, troubles) else 0.0,
        agents=tuple(agents),
        consensus_error=recorder.consensus if recorder and results.study else None,
        reason=(conclude.reason if conclude else _standstill(run.graph.agents, coordination, troubles, now_ns))[:1000],
        accountant=accountant,
        delta=run.privacy.delta if accountant in APPROXIMATE else None,
        adjacency=adjacency(run),
        delta_warning=(recorder.delta_warning() or "") if recorder else "",
        gives_up_s=_gives_up_s(run, machine, troubles, now_ns),
        slowest=slowest,
    )


def _gives_up_s(
    run: RunConfig, machine: co.CoordinatorMachine, troubles: Sequence[Trouble], now_ns: int
) -> float | None:
    """Seconds until the run ends because somebody is missing; None: it waits for ever, or for nobody."""
    if machine.phase is co.CoordinatorPhase.GATHERING:
        due_ns = machine.next_deadline_ns()
    else:
        ends = [trouble.since_ns for trouble in troubles if trouble.kind != "slow"]
        stops = ends and run.runtime.on_agent_loss == "stop"
        due_ns = min(ends) + int(run.runtime.round_timeout_s * SECOND) if stops else None
    return None if due_ns is None else max(0, due_ns - now_ns) / SECOND


def _moves(machine: co.CoordinatorMachine, troubles: Sequence[Trouble]) -> bool:
    """Whether rounds go on: a rate of before a pause, or of before somebody was lost, is no rate of now."""
    return machine.phase is co.CoordinatorPhase.RUNNING and all(trouble.kind == "slow" for trouble in troubles)


def _standstill(names: Sequence[str], coordination: Coordination, troubles: Sequence[Trouble], now_ns: int) -> str:
    """Why the run does not move; empty while it does."""
    machine = coordination.barrier
    if troubles:
        said = "; ".join(trouble.line(now_ns) for trouble in troubles[:TROUBLES_SHOWN])
        said += f"; and {len(troubles) - TROUBLES_SHOWN} more" if len(troubles) > TROUBLES_SHOWN else ""
        return f"{said}; waiting for {_RESUME}" if machine.phase is co.CoordinatorPhase.PAUSED else said
    match machine.phase:
        case co.CoordinatorPhase.GATHERING:
            # Every agent's D is known from the beginning on, also to a later life of the process.
            why = "the coordinator was started again" if coordination.samples else "it has not begun"
            paused = f", and for {_RESUME}: the run is paused" if machine.paused else ""
            return f"{why}: waiting for {figures.some(machine.waiting_for())}{paused}"
        case co.CoordinatorPhase.PAUSED if machine.k <= machine.go_through:
            return f"agents finish round {machine.go_through} and wait for {_RESUME}"
        case co.CoordinatorPhase.PAUSED:
            return f"waiting for {_RESUME}"
        case co.CoordinatorPhase.STOPPING:
            here = [name for name in names if machine.connected(name)]
            return machine.standstill(now_ns) + (f"; waiting for {figures.some(here)} to end" if here else "")
        case _:
            return machine.standstill(now_ns)
