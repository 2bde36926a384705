"""What is said of edges <-> protobuf, an agent's report and the prefix of a vector: part of ``convert``."""

from __future__ import annotations

from dpgt_node.protocol.liveness import Down, EdgeReport, Lack
from dpgt_node.protocol.messages import Prefix
from dpgt_node.wire.fields import bytes_field, cut, name_field, require, text_field
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2, coordinator_pb2

_MAX_NS = (1 << 63) - 1


def to_protobuf(v: EdgeReport) -> coordinator_pb2.Edges:
    """The message; causes are cut to their limit."""
    return coordinator_pb2.Edges(
        round=v.k,
        waited_ns=v.waited_ns,
        lacks=[coordinator_pb2.Lack(sender=lack.sender, silent_ns=lack.silent_ns) for lack in v.lacks],
        down=[coordinator_pb2.Down(receiver=d.receiver, for_ns=d.for_ns, cause=cut(d.cause)) for d in v.down],
    )


def from_protobuf(p: coordinator_pb2.Edges) -> EdgeReport:
    """The report; PeerError when a field is out of range."""
    lacks = tuple(
        Lack(name_field(lack.sender, "sender"), _span(lack.silent_ns) if lack.HasField("silent_ns") else None)
        for lack in p.lacks
    )
    down = tuple(
        Down(name_field(d.receiver, "receiver"), _span(d.for_ns), text_field(d.cause, "cause", 1)) for d in p.down
    )
    return EdgeReport(p.round, _span(p.waited_ns), lacks, down)


def prefix_to_protobuf(v: Prefix) -> agent_pb2.Prefix:
    """The message."""
    stream = agent_pb2.X if v.stream == "X" else agent_pb2.Y
    return agent_pb2.Prefix(stream=stream, round=v.k, nbytes=v.nbytes, sha256=v.sha256)


def prefix_from_protobuf(p: agent_pb2.Prefix) -> Prefix:
    """The prefix; PeerError when a field is out of range."""
    require(p.stream in (agent_pb2.X, agent_pb2.Y), f"a prefix of stream {p.stream}")
    require(p.nbytes >= 1, "a prefix without a byte")
    return Prefix("X" if p.stream == agent_pb2.X else "Y", p.round, p.nbytes, bytes_field(p.sha256, "sha256", 32))


def _span(value: int) -> int:
    require(value <= _MAX_NS, f"a span of {value} ns is out of range")
    return value
