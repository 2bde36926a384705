"""What ``dpgt status`` is answered."""

from __future__ import annotations

import time

from dpgt_node.config import RunConfig
from dpgt_node.protocol import coordinator as co
from dpgt_node.report.epsilons import WITH_DELTA
from dpgt_node.report.summary import adjacency
from dpgt_node.runtime.members import Members
from dpgt_node.runtime.results import Results
from dpgt_node.wire import messages as m


def state_word(phase: co.CoordinatorPhase, conclude: co.Conclude | None) -> str:
    """The state of a run in one lower-case word."""
    if conclude is not None:
        return conclude.status
    return "waiting" if phase is co.CoordinatorPhase.GATHERING else phase.name.lower()


def reply(
    run: RunConfig,
    run_id: bytes,
    machine: co.CoordinatorMachine,
    members: Members,
    results: Results,
    conclude: co.Conclude | None,
    rounds_per_second: float,
) -> m.StatusReply:
    """Where the run stands now."""
    recorder, now = results.recorder, time.monotonic()
    agents = []
    for name in run.graph.agents:
        member, done = members.get(name), machine.done(name)
        agents.append(
            m.AgentStatus(
                name,
                connected=machine.connected(name),
                k=done,
                last_seen_s=now - member.seen_s if member else None,
                accuracy_test=recorder.accuracy[name] if recorder and results.study else None,
                epsilon=recorder.spent(name, done) if recorder else None,
            )
        )
    waiting = ", ".join(machine.waiting_for()) if conclude is None else ""
    accountant = recorder.accountant if recorder else None
    return m.StatusReply(
        state=state_word(machine.phase, conclude),
        k=machine.k - 1,
        K=run.K,
        run_id=run_id,
        name=run.name,
        rounds_per_second=rounds_per_second,
        agents=tuple(agents),
        consensus_error=recorder.consensus if recorder and results.study else None,
        reason=conclude.reason[:1000] if conclude else (f"waiting for {waiting}"[:1000] if waiting else ""),
        accountant=accountant,
        delta=run.privacy.delta if accountant in WITH_DELTA else None,
        adjacency=adjacency(run),
    )
