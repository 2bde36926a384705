"""The answer to ``dpgt status`` <-> protobuf: part of ``convert``."""

from __future__ import annotations

import math

from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.privacy.strength import WORDS
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.pace import PHASES, Slowest
from dpgt_node.wire.fields import (
    RUN_ID_BYTES,
    bytes_field,
    name_field,
    no_nan,
    one_line,
    real_field,
    require,
    round_field,
    shown,
    state_field,
    text_field,
)
from dpgt_node.wire.gen.dpgt.v1 import coordinator_pb2


def to_protobuf(v: m.StatusReply) -> coordinator_pb2.StatusReply:
    """The message; free text is cut to its limit."""
    agents = [
        coordinator_pb2.AgentStatus(
            name=a.name, connected=a.connected, round=a.k, last_seen_s=no_nan(a.last_seen_s),
            accuracy_test=no_nan(a.accuracy_test), epsilon=no_nan(a.epsilon),
            state=a.state, missing_s=no_nan(a.missing_s), waits_for=a.waits_for, strength=a.strength,
        )
        for a in v.agents
    ]  # fmt: skip
    slowest = None
    if v.slowest is not None:
        s = v.slowest
        slowest = coordinator_pb2.Slowest(agent=s.agent, phase=s.phase, seconds=s.seconds, share=s.share)
    return coordinator_pb2.StatusReply(
        state=v.state, round=v.k, iterations=v.K, run_id=v.run_id, name=v.name, rounds_per_second=v.rounds_per_second,
        agents=agents, consensus_error=no_nan(v.consensus_error), reason=one_line(v.reason),
        accountant=v.accountant or "", delta=v.delta, adjacency=v.adjacency,
        delta_warning=one_line(v.delta_warning), gives_up_s=v.gives_up_s, slowest=slowest,
    )  # fmt: skip


def from_protobuf(p: coordinator_pb2.StatusReply) -> m.StatusReply:
    """The answer; PeerError when a field is out of range."""
    require(0.0 <= p.rounds_per_second < math.inf, f"rounds_per_second {p.rounds_per_second} is out of range")
    require(p.accountant in ("", *ACCOUNTANTS), f"accountant {shown(p.accountant)} is unknown")
    return m.StatusReply(
        state=state_field(p.state),
        k=round_field(p.round, "round", -1),
        K=p.iterations,
        run_id=bytes_field(p.run_id, "run_id", RUN_ID_BYTES),
        name=text_field(p.name, "name", 0, 256),
        rounds_per_second=p.rounds_per_second,
        agents=tuple(map(_agent, p.agents)),
        consensus_error=real_field(p, "consensus_error", 0.0),
        reason=text_field(p.reason, "reason"),
        accountant=p.accountant or None,
        delta=real_field(p, "delta", 0.0, 1.0),
        adjacency=text_field(p.adjacency, "adjacency", 0, 256),
        delta_warning=text_field(p.delta_warning, "delta_warning"),
        gives_up_s=real_field(p, "gives_up_s", 0.0),
        slowest=_slowest(p.slowest) if p.HasField("slowest") else None,
    )


def _agent(a: coordinator_pb2.AgentStatus) -> m.AgentStatus:
    require(a.strength in ("", *WORDS), f"strength {shown(a.strength)} is no word for an epsilon")
    return m.AgentStatus(
        name=name_field(a.name, "name"),
        connected=a.connected,
        k=round_field(a.round, "round", -1),
        last_seen_s=real_field(a, "last_seen_s", 0.0),
        accuracy_test=real_field(a, "accuracy_test", 0.0, 1.0),
        epsilon=real_field(a, "epsilon", 0.0),
        state=state_field(a.state),
        missing_s=real_field(a, "missing_s", 0.0),
        waits_for=tuple(name_field(name, "waits_for") for name in a.waits_for),
        strength=a.strength,
    )


def _slowest(p: coordinator_pb2.Slowest) -> Slowest:
    require(p.phase in PHASES, f"phase {shown(p.phase)} is unknown")
    require(0.0 <= p.seconds < math.inf and 0.0 <= p.share <= 1.0, "the slowest phase is out of range")
    return Slowest(name_field(p.agent, "agent"), p.phase, p.seconds, p.share)
