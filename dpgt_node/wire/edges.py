"""What is said of edges <-> protobuf, an agent's report and the prefix of a vector: part of ``convert``."""

from __future__ import annotations

import math

from dpgt_node.protocol.digests import DIGEST_BYTES, Dispute
from dpgt_node.protocol.liveness import Down, EdgeReport, Lack
from dpgt_node.protocol.messages import Disowned, Prefix
from dpgt_node.protocol.outliers import FACTOR, ROUNDS, Outlier
from dpgt_node.types import Stream
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


def disowned_to_protobuf(v: Disowned) -> coordinator_pb2.Disowned:
    """The message."""
    stream = agent_pb2.X if v.stream == "X" else agent_pb2.Y
    return coordinator_pb2.Disowned(receiver=v.receiver, stream=stream, round=v.k, theirs=v.theirs, ours=v.ours)


def disowned_from_protobuf(p: coordinator_pb2.Disowned) -> Disowned:
    """The word; PeerError when a field is out of range."""
    theirs, ours = digest_field(p.theirs, "theirs"), digest_field(p.ours, "ours")
    return Disowned(name_field(p.receiver, "receiver"), _stream(p.stream), p.round, theirs, ours)


def outlier_to_protobuf(v: Outlier) -> coordinator_pb2.Outlier:
    """The message."""
    stream = agent_pb2.X if v.stream == "X" else agent_pb2.Y
    return coordinator_pb2.Outlier(sender=v.sender, stream=stream, round=v.k, rounds=v.rounds, ratio=v.ratio)


def outlier_from_protobuf(p: coordinator_pb2.Outlier) -> Outlier:
    """The word; PeerError when a field is out of range."""
    require(ROUNDS <= p.rounds <= p.round + 1, f"an outlier in {p.rounds} rounds up to round {p.round}")
    require(FACTOR < p.ratio < math.inf, f"an outlier by a factor of {p.ratio}")
    return Outlier(name_field(p.sender, "sender"), _stream(p.stream), p.round, p.rounds, p.ratio)


def dispute_to_protobuf(v: Dispute) -> coordinator_pb2.Dispute:
    """The message."""
    words = [coordinator_pb2.Word(agent=name, digest=word) for name, word in v.words]
    stream = agent_pb2.X if v.stream == "X" else agent_pb2.Y
    return coordinator_pb2.Dispute(sender=v.sender, stream=stream, round=v.k, words=words)


def dispute_from_protobuf(p: coordinator_pb2.Dispute) -> Dispute:
    """The dispute; PeerError when a field is out of range."""
    words = tuple((name_field(w.agent, "agent"), bytes_field(w.digest, "digest", DIGEST_BYTES)) for w in p.words)
    require(len(words) >= 2 and len({name for name, _ in words}) == len(words), "a dispute of fewer than two agents")
    require(len({word for _, word in words}) >= 2, "a dispute in which everybody agrees")
    return Dispute(name_field(p.sender, "sender"), _stream(p.stream), p.round, words)


def digest_field(value: bytes, what: str) -> bytes:
    """A digest, or nothing."""
    return bytes_field(value, what, 0, DIGEST_BYTES)


def _stream(value: int) -> Stream:
    require(value in (agent_pb2.X, agent_pb2.Y), f"stream {value} is neither X nor Y")
    return "X" if value == agent_pb2.X else "Y"


def _span(value: int) -> int:
    require(value <= _MAX_NS, f"a span of {value} ns is out of range")
    return value
