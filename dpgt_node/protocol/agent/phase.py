"""Where an agent's machine stands, and what ``pace`` calls the time that it stands there."""

from __future__ import annotations

from enum import auto

from dpgt_node.protocol.pace import MAX_US, Spent
from dpgt_node.protocol.phases import Phases


class Phase(Phases):
    """Where an agent stands; see the table of ``machine``."""

    WAITING = auto()
    COMPUTING = auto()
    READY = auto()
    KEEPING = auto()
    DRAWING = auto()
    PERSISTING = auto()
    EXCHANGING = auto()
    FINAL = auto()
    SERVING = auto()
    ENDED = auto()


NOTHING_SPENT = dict.fromkeys(Phase, 0)
_PACE = (Phase.COMPUTING, Phase.READY, Phase.DRAWING, Phase.PERSISTING, Phase.EXCHANGING)
"""What ``pace`` calls compute, barrier, noise, store and exchange."""


def spent(spent_ns: dict[Phase, int], evaluated_ns: int) -> Spent:
    """Nanoseconds by phase, and in evaluations that a round waited for, as ``pace`` has them.  Takes over the dict."""
    spent_ns[Phase.COMPUTING] += spent_ns[Phase.FINAL]
    spent_ns[Phase.PERSISTING] += spent_ns[Phase.KEEPING]
    spans_ns = [*map(spent_ns.__getitem__, _PACE), evaluated_ns]
    return tuple([min(max(span_ns, 0) // 1000, MAX_US) for span_ns in spans_ns])
