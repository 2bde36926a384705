"""What a coordinator exports at ``/metrics``: rounds, agents, costs and times, and nothing computed from data.

Loss and accuracy are not among them, in study runs either: every metric is as safe as docs/reference/metrics.md says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from dpgt_node import __version__
from dpgt_node.config import RunConfig
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.pace import PHASES, Pace
from dpgt_node.runtime.watching.exposition import Family, Sample

if TYPE_CHECKING:
    from dpgt_node.runtime.coordinator.daemon import Coordinator

STATES: Final = ("waiting", "running", "paused", "stopping", "ended", "finished", "stopped", "failed")
FAMILIES: Final = (
    Family("dpgt_run_info", "gauge", "1, with what the run is", ("run_id", "name", "method", "mechanism", "version")),
    Family("dpgt_run_state", "gauge", "1 for the state that the run is in, 0 for the others", ("state",)),
    Family("dpgt_run_round", "gauge", "The last round that every agent finished, -1 before the first"),
    Family("dpgt_run_last_round", "gauge", "K, the last round of the run"),
    Family("dpgt_run_rounds_per_second", "gauge", "Over the last five seconds"),
    Family("dpgt_run_agents", "gauge", "Agents of the run"),
    Family("dpgt_run_agents_connected", "gauge", "Agents whose stream to the coordinator is open"),
    Family("dpgt_run_gives_up_seconds", "gauge", "Seconds until it ends for want of somebody, if it does"),
    Family("dpgt_agent_connected", "gauge", "Whether the agent's stream to the coordinator is open", ("agent",)),
    Family("dpgt_agent_round", "gauge", "The last round that the agent finished", ("agent",)),
    Family("dpgt_agent_missing_seconds", "gauge", "For how long the agent has been missing, 0 while here", ("agent",)),
    Family("dpgt_agent_waits_for", "gauge", "1 where the agent lacks a neighbour's vectors", ("agent", "neighbour")),
    Family("dpgt_agent_epsilon", "gauge", "What the agent has spent so far", ("agent", "accountant")),
    Family("dpgt_agent_rounds_total", "counter", "Rounds of which the agent said how long they took", ("agent",)),
    Family("dpgt_agent_phase_seconds_total", "counter", "What these rounds took, by phase", ("agent", "phase")),
    Family("dpgt_events_total", "counter", "What was noted since the process started", ("level",)),
)


def samples(run: RunConfig, reply: m.StatusReply, pace: Pace, noted: Counter[str]) -> Iterator[Sample]:
    """One scrape.  ``noted``: how many events of each level."""
    algorithm = run.algorithm
    labels = (reply.run_id.hex(), run.name, algorithm.method, algorithm.mechanism, __version__)
    yield Sample("dpgt_run_info", 1, labels)
    for state in dict.fromkeys((*STATES, reply.state)):
        yield Sample("dpgt_run_state", state == reply.state, (state,))
    yield Sample("dpgt_run_round", reply.k)
    yield Sample("dpgt_run_last_round", reply.K)
    yield Sample("dpgt_run_rounds_per_second", reply.rounds_per_second)
    yield Sample("dpgt_run_agents", len(reply.agents))
    yield Sample("dpgt_run_agents_connected", sum(agent.connected for agent in reply.agents))
    if reply.gives_up_s is not None:
        yield Sample("dpgt_run_gives_up_seconds", reply.gives_up_s)
    for agent in reply.agents:
        name = agent.name
        yield Sample("dpgt_agent_connected", agent.connected, (name,))
        yield Sample("dpgt_agent_round", agent.k, (name,))
        yield Sample("dpgt_agent_missing_seconds", agent.missing_s or 0.0, (name,))
        for neighbour in agent.waits_for:
            yield Sample("dpgt_agent_waits_for", 1, (name, neighbour))
        if agent.epsilon is not None and reply.accountant is not None:
            yield Sample("dpgt_agent_epsilon", agent.epsilon, (name, reply.accountant))
    for name, took in pace.agents.items():
        yield Sample("dpgt_agent_rounds_total", took.rounds, (name,))
        for phase, span_us in zip(PHASES, took.total_us, strict=True):
            yield Sample("dpgt_agent_phase_seconds_total", span_us / 1e6, (name, phase))
    for level in ("info", "warning", "error"):
        yield Sample("dpgt_events_total", noted[level], (level,))


def of(run: RunConfig, coordinator: Coordinator) -> Iterator[Sample]:
    """One scrape of ``coordinator``."""
    return samples(run, coordinator.stands(), coordinator.machine.pace, coordinator.events.noted)
