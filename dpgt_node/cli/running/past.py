"""What the folder of a run tells when its coordinator does not answer: how the run ended, and whether it may go on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpgt_node.protocol.messages import StatusReply

ENDED = "ended"
"""The state of an agent of a run that is over."""
AGAIN = "start the same command again to go on"
_ADVICE = {"stopped": AGAIN, "lost": AGAIN, "refused": f"once that is mended, {AGAIN}"}
"""By how a run ended.  None for a spent budget or a failed check: the same command would end likewise."""


def over(run_dir: Path) -> StatusReply | None:
    """The end of the run in ``run_dir``; None while there is none, or while a coordinator is there to say more."""
    from dpgt_node.runtime.coordinator.outdir import in_use

    found = result(run_dir)
    return None if found is None or (found.state != "finished" and in_use(run_dir)) else found


def result(run_dir: Path) -> StatusReply | None:
    """The end of the run in ``run_dir`` as its last start left it, None while there is none."""
    from dpgt_node.config import load_run
    from dpgt_node.privacy.accountants.registry import APPROXIMATE
    from dpgt_node.protocol.messages import AgentStatus, StatusReply
    from dpgt_node.record import epsilons
    from dpgt_node.record.summary import load_summary
    from dpgt_node.runtime.coordinator.outdir import RUN_FILE

    summary = load_summary(run_dir)
    if summary is None:
        return _unbegun(run_dir)
    accountant = epsilons.shown(summary)
    last = load_run(run_dir / RUN_FILE).K
    agents = tuple(
        AgentStatus(
            agent.name,
            connected=False,
            k=summary.rounds - 1,
            accuracy_test=agent.accuracy_test,
            epsilon=None if accountant is None else agent.epsilon[accountant],
            strength="" if accountant is None else epsilons.word(summary, accountant, agent.epsilon[accountant]),
            state=ENDED,
        )
        for agent in summary.agents
    )
    return StatusReply(
        state=summary.status,
        k=summary.rounds - 1,
        K=last,
        run_id=bytes.fromhex(summary.run_id),
        name=summary.name,
        rounds_per_second=summary.rounds_per_second or 0.0,
        agents=agents,
        consensus_error=summary.consensus_error,
        reason=_reason(summary.status, _cause(run_dir, summary.status)),
        accountant=accountant,
        delta=summary.privacy.delta if accountant in APPROXIMATE else None,
        adjacency=summary.privacy.adjacency,
        delta_warning=epsilons.warned_delta(summary) or "",
    )


def _unbegun(run_dir: Path) -> StatusReply | None:
    """The end of a run that ended before its first round, and has no summary; None: it has not ended so."""
    from dpgt_node.config import load_run
    from dpgt_node.protocol.messages import AgentStatus, StatusReply
    from dpgt_node.runtime.coordinator.heads import held_samples
    from dpgt_node.runtime.coordinator.outdir import RUN_FILE, held_run_id
    from dpgt_node.runtime.coordinator.watch import noted_end

    end, run_id = noted_end(run_dir), held_run_id(run_dir)
    if end is None or run_id is None or held_samples(run_dir):
        return None
    run = load_run(run_dir / RUN_FILE)
    agents = tuple(AgentStatus(name, connected=False, k=-1, state=ENDED) for name in run.graph.agents)
    status, cause = end
    return StatusReply(status, -1, run.K, run_id, run.name, 0.0, agents, reason=_reason(status, cause))


def _cause(run_dir: Path, status: str) -> str:
    """Why the run ended, as its coordinator noted it; empty where it did not, as after a simulation."""
    from dpgt_node.runtime.coordinator.watch import noted_end

    end = noted_end(run_dir)
    return end[1] if end is not None and end[0] == status else ""


def _reason(status: str, cause: str) -> str:
    return "" if status == "finished" else "; ".join(filter(None, (cause, _ADVICE.get(status, ""))))


def resumed(run_dir: Path) -> str:
    """``19,333 rounds (the last 1,223 of them, since it was resumed, in 11 s, 111 rounds/s)``; empty where every round
    is of one start.
    """
    from dpgt_node.record.summary import load_summary
    from dpgt_node.report.text import pace, was_resumed

    summary = load_summary(run_dir)
    return f"{summary.rounds:,} rounds {pace(summary)}" if summary is not None and was_resumed(summary) else ""


def alive(pid: int) -> bool:
    """Whether this machine has a process of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def results(run_dir: Path) -> str:
    """Where to look, of a run that is over."""
    from dpgt_node.record.summary import SUMMARY_FILE
    from dpgt_node.runtime.coordinator.watch import EVENTS_FILE

    if not (run_dir / SUMMARY_FILE).exists():
        return f"What happened: {run_dir / EVENTS_FILE}"
    report = run_dir / "report.html"
    return f"Report: {report}" if report.exists() else f"Results in {run_dir}; `dpgt report {run_dir}` makes the report"
