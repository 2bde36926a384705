"""What a node exports at ``/metrics``: rounds, the schedule's cost, neighbours and times.

Never a loss, an accuracy, or anything else that is computed from its data: docs/reference/metrics.md says of each
metric why it is safe.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dpgt_node import __version__
from dpgt_node.protocol.agent.session import Session
from dpgt_node.protocol.pace import PHASES
from dpgt_node.runtime.agent.standing import Watch
from dpgt_node.runtime.watching.exposition import Family, Sample

STATES: Final = ("waiting", "running", "ending", "leaving")
FAMILIES: Final = (
    Family("dpgt_node_info", "gauge", "1, with who this is", ("agent", "run", "version")),
    Family("dpgt_node_state", "gauge", "1 for the state that the node is in, 0 for the others", ("state",)),
    Family("dpgt_node_round", "gauge", "The round that the node is in, -1 before the first"),
    Family("dpgt_node_last_round", "gauge", "K, the last round of the run"),
    Family("dpgt_node_rounds_per_second", "gauge", "Over the last five seconds"),
    Family("dpgt_node_released_rounds", "gauge", "Rounds of this run whose releases are durable"),
    Family("dpgt_node_epsilon", "gauge", "What this run has cost so far", ("accountant",)),
    Family("dpgt_node_epsilon_of_run", "gauge", "What the whole run costs", ("accountant",)),
    Family("dpgt_node_neighbour_late", "gauge", "1 where vectors have been missing for a second", ("neighbour",)),
    Family(
        "dpgt_node_outlier_rounds_total",
        "counter",
        "Rounds in which a neighbour's vectors lay far beyond the others', as far as it was named",
        ("neighbour", "stream"),
    ),
    Family("dpgt_node_inbox_vectors", "gauge", "Vectors that wait to be mixed"),
    Family("dpgt_node_sent_bytes_total", "counter", "To neighbours, since the process started"),
    Family("dpgt_node_rounds_total", "counter", "Rounds since the process started"),
    Family("dpgt_node_phase_seconds_total", "counter", "What these rounds took, by phase", ("phase",)),
)


def samples(name: str, run: str, watch: Watch, session: Session) -> Iterator[Sample]:
    """One scrape of agent ``name`` in the run that is called ``run``."""
    standing, inside = watch.standing(), session.inside
    yield Sample("dpgt_node_info", 1, (name, run, __version__))
    for state in STATES:
        yield Sample("dpgt_node_state", state == standing.state, (state,))
    yield Sample("dpgt_node_round", standing.k)
    yield Sample("dpgt_node_last_round", standing.K)
    yield Sample("dpgt_node_rounds_per_second", standing.rounds_per_second)
    if (cost := standing.cost) is not None:
        yield Sample("dpgt_node_epsilon", cost.spent, (cost.accountant,))
        yield Sample("dpgt_node_epsilon_of_run", cost.total, (cost.accountant,))
    for neighbour in watch.neighbours:
        yield Sample("dpgt_node_neighbour_late", neighbour in standing.late, (neighbour,))
    if inside is None:
        return
    yield Sample("dpgt_node_released_rounds", inside.agent.released_through + 1)
    for (neighbour, stream), rounds in inside.outliers.items():
        yield Sample("dpgt_node_outlier_rounds_total", rounds, (neighbour, stream.lower()))
    yield Sample("dpgt_node_inbox_vectors", inside.agent.inbox_size)
    yield Sample("dpgt_node_sent_bytes_total", inside.bytes_sent())
    yield Sample("dpgt_node_rounds_total", inside.took.rounds)
    for phase, span_us in zip(PHASES, inside.took.total_us, strict=True):
        yield Sample("dpgt_node_phase_seconds_total", span_us / 1e6, (phase,))
