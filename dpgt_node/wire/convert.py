"""Messages <-> protobuf bytes.  Every decoder validates sizes, ranges and enums and raises only PeerError.

Encoders raise ValueError for a message that the other side would refuse: that is a bug here, not there.
Free text is cut to its limit instead, because it may quote somebody else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dpgt_node.protocol import messages as m
from dpgt_node.protocol.digests import DIGEST_BYTES
from dpgt_node.protocol.done import MAX_DONES
from dpgt_node.protocol.liveness import EdgeReport
from dpgt_node.protocol.pace import PHASES
from dpgt_node.wire import edges, keys, metrics, status
from dpgt_node.wire.fields import (
    MAX_DIMENSION,
    MAX_SAMPLES,
    RUN_ID_BYTES,
    address_field,
    bytes_field,
    cut,
    hex_field,
    json_field,
    malformed,
    name_field,
    one_line,
    parse,
    require,
    round_field,
    shown,
    text_field,
)
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2, coordinator_pb2

HEAD_BYTES = 32

_REFUSALS: tuple[m.RefusalKind, ...] = ("policy", "run-hash", "identity", "version", "data", "other")
_ACTIONS: tuple[m.Action, ...] = ("pause", "resume", "stop")


def _enum_name(value: str) -> str:
    return value.upper().replace("-", "_")


def _kind(value: int) -> m.RefusalKind:
    require(1 <= value <= len(_REFUSALS), f"refusal kind {value} is unknown")
    return _REFUSALS[value - 1]


# --- agent to coordinator -----------------------------------------------------------------------------------------


def encode_agent_message(v: m.AgentMessage) -> bytes:
    pb = coordinator_pb2
    match v:
        case m.Done():
            return pb.AgentMessage(done=_done_to_protobuf(v)).SerializeToString()
        case m.Dones():
            return pb.AgentMessage(dones=pb.Dones(done=map(_done_to_protobuf, v.dones))).SerializeToString()
        case m.Heartbeat():
            message = pb.AgentMessage(heartbeat=pb.Heartbeat())
        case EdgeReport():
            message = pb.AgentMessage(edges=edges.to_protobuf(v))
        case m.MetricsReport():
            message = pb.AgentMessage(metrics=metrics.to_protobuf(v))
        case m.Register():
            register = pb.Register(
                protocol_version=v.protocol_version, package_version=v.package_version, name=v.name,
                run_sha256=v.run_sha256, run_json=v.run_json, advertise=v.advertise, samples=v.samples,
                dimension=v.dimension, shape_sha256=v.shape_sha256, last_durable_round=v.last_durable_round,
                last_done_round=v.last_done_round,
                last_released_round=v.last_released_round, finished=v.finished, run_id=v.run_id, instance=v.instance,
            )  # fmt: skip
            message = pb.AgentMessage(register=register)
        case m.Ready():
            message = pb.AgentMessage(ready=pb.Ready())
        case m.FinishedReport():
            finished = pb.Finished(
                status=v.status, releases=v.releases, bytes_sent=v.bytes_sent,
                epsilon=metrics.costs_to_protobuf(v.epsilon), metrics=metrics.to_protobuf(v.metrics),
            )  # fmt: skip
            message = pb.AgentMessage(finished=finished)
        case m.Refusal():
            message = pb.AgentMessage(refusal=pb.Refusal(kind=_enum_name(v.kind), reason=cut(v.reason)))
        case m.Failed():
            message = pb.AgentMessage(failed=pb.Failed(exit_code=v.exit_code, message=cut(v.message)))
        case m.KeyOffer():
            message = pb.AgentMessage(key_offer=keys.offer_to_protobuf(v))
        case m.Disowned():
            message = pb.AgentMessage(disowned=edges.disowned_to_protobuf(v))
        case m.Outlier():
            message = pb.AgentMessage(outlier=edges.outlier_to_protobuf(v))
        case m.KeyProofs():
            message = pb.AgentMessage(key_proofs=keys.proofs_to_protobuf(v))
    return message.SerializeToString(deterministic=True)  # costs are a map


def _done_to_protobuf(v: m.Done) -> coordinator_pb2.Done:
    return coordinator_pb2.Done(
        round=v.k, durable_through=v.durable_through, bytes_sent=v.bytes_sent, ledger_head=v.ledger_head,
        spent_us=v.spent, digests=v.words,
    )  # fmt: skip


def _dones(p: coordinator_pb2.Dones) -> m.Dones:
    require(2 <= len(p.done) <= MAX_DONES, f"{len(p.done)} reports in one message")
    return m.Dones(tuple(map(_done, p.done)))


def _done(p: coordinator_pb2.Done) -> m.Done:
    spent, digests = tuple(p.spent_us), p.digests
    if spent and len(spent) != len(PHASES):
        raise malformed(f"spent_us of {len(spent)} phases")
    durable = round_field(p.durable_through, "durable_through", -1)
    if len(digests) % DIGEST_BYTES:
        raise malformed(f"digests of {len(digests)} bytes")
    return m.Done(p.round, durable, p.bytes_sent, _head(p.ledger_head), spent, digests)


def _head(value: bytes) -> bytes:
    return bytes_field(value, "ledger_head", HEAD_BYTES) if value else b""


def _register(p: coordinator_pb2.Register) -> m.Register:
    samples = p.samples if p.HasField("samples") else None
    require(p.protocol_version >= 1, "Register without a protocol version")
    require(samples is None or 1 <= samples <= MAX_SAMPLES, f"samples {samples} is out of range")
    require(1 <= p.dimension <= MAX_DIMENSION, f"dimension {p.dimension} is out of range")
    return m.Register(
        name=name_field(p.name, "name"),
        run_sha256=hex_field(p.run_sha256, "run_sha256"),
        run_json=json_field(p.run_json, "run_json"),
        advertise=address_field(p.advertise, "advertise"),
        samples=samples,
        dimension=p.dimension,
        shape_sha256=hex_field(p.shape_sha256, "shape_sha256"),
        last_released_round=round_field(p.last_released_round, "last_released_round", -1),
        last_done_round=round_field(p.last_done_round, "last_done_round", -1),
        last_durable_round=round_field(p.last_durable_round, "last_durable_round", -1),
        finished=p.finished,
        run_id=bytes_field(p.run_id, "run_id", 0, RUN_ID_BYTES),
        instance=bytes_field(p.instance, "instance", 16),
        package_version=text_field(p.package_version, "package_version", 1, 64),
        protocol_version=p.protocol_version,
    )


def _finished(p: coordinator_pb2.Finished) -> m.FinishedReport:
    require(p.status in ("finished", "stopped"), f"status {shown(p.status)} is neither finished nor stopped")
    return m.FinishedReport(
        status="finished" if p.status == "finished" else "stopped",
        releases=p.releases,
        bytes_sent=p.bytes_sent,
        epsilon=metrics.costs_from_protobuf(p.epsilon),
        metrics=metrics.from_protobuf(p.metrics),
    )


def _failed(p: coordinator_pb2.Failed) -> m.Failed:
    require(1 <= p.exit_code <= 255, f"exit code {p.exit_code} is out of range")
    return m.Failed(p.exit_code, text_field(p.message, "message", 1))


_AGENT: dict[str, Callable[[Any], m.AgentMessage]] = {
    "done": _done,
    "dones": _dones,
    "metrics": metrics.from_protobuf,
    "heartbeat": lambda _: m.Heartbeat(),
    "edges": edges.from_protobuf,
    "register": _register,
    "ready": lambda _: m.Ready(),
    "finished": _finished,
    "refusal": lambda p: m.Refusal(_kind(p.kind), text_field(p.reason, "reason", 1)),
    "failed": _failed,
    "key_offer": keys.offer_from_protobuf,
    "key_proofs": keys.proofs_from_protobuf,
    "disowned": edges.disowned_from_protobuf,
    "outlier": edges.outlier_from_protobuf,
}


def decode_agent_message(data: bytes) -> m.AgentMessage:
    """One message of an agent on Join; PeerError if it is malformed, out of range or of an unknown kind."""
    message = parse(coordinator_pb2.AgentMessage, data, "message of an agent")
    kind = message.WhichOneof("kind")
    if kind is None:
        raise malformed("message of an agent of unknown kind; is the other side a newer version?")
    return _AGENT[kind](getattr(message, kind))


# --- coordinator to agent -----------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _go(through: int) -> bytes:
    """Every agent gets the same bytes, every round."""
    return coordinator_pb2.CoordinatorMessage(go=coordinator_pb2.Go(through=through)).SerializeToString()


def encode_coordinator_message(v: m.CoordinatorMessage) -> bytes:
    pb = coordinator_pb2
    match v:
        case m.GoMessage():
            return _go(v.through)
        case m.AllDurableMessage():
            message = pb.CoordinatorMessage(all_durable=pb.AllDurable(through=v.through))
        case m.Heartbeat():
            message = pb.CoordinatorMessage(heartbeat=pb.Heartbeat())
        case m.Welcome():
            welcome = pb.Welcome(
                run_id=v.run_id, run_sha256=v.run_sha256, run_json=v.run_json, go_through=v.go_through,
                protocol_version=v.protocol_version, package_version=v.package_version,
                ledger_round=v.ledger_round, ledger_head=v.ledger_head,
            )  # fmt: skip
            message = pb.CoordinatorMessage(welcome=welcome)
        case m.Refused():
            message = pb.CoordinatorMessage(refused=pb.Refused(kind=_enum_name(v.kind), reason=cut(v.reason)))
        case m.Start():
            message = pb.CoordinatorMessage(start=pb.Start(peers=dict(v.peers), go_through=v.go_through))
        case m.StopMessage():
            message = pb.CoordinatorMessage(stop=pb.Stop(reason=cut(v.reason), exit_code=v.exit_code))
        case m.Goodbye():
            message = pb.CoordinatorMessage(goodbye=pb.Goodbye())
        case m.KeyRing():
            message = pb.CoordinatorMessage(key_ring=keys.ring_to_protobuf(v))
        case m.Dispute():
            message = pb.CoordinatorMessage(dispute=edges.dispute_to_protobuf(v))
        case m.KeyProof():
            message = pb.CoordinatorMessage(key_proof=keys.proof_to_protobuf(v))
    return message.SerializeToString()


def _welcome(p: coordinator_pb2.Welcome) -> m.Welcome:
    require(p.protocol_version >= 1, "Welcome without a protocol version")
    return m.Welcome(
        run_id=bytes_field(p.run_id, "run_id", RUN_ID_BYTES),
        run_sha256=hex_field(p.run_sha256, "run_sha256"),
        run_json=json_field(p.run_json, "run_json"),
        go_through=round_field(p.go_through, "go_through", -1),
        package_version=text_field(p.package_version, "package_version", 1, 64),
        protocol_version=p.protocol_version,
        ledger_round=round_field(p.ledger_round, "ledger_round", 0) if p.ledger_head else -1,
        ledger_head=_head(p.ledger_head),
    )


def _start(p: coordinator_pb2.Start) -> m.Start:
    peers = {
        name_field(name, "peer"): address_field(address, f"address of {name}") for name, address in p.peers.items()
    }
    return m.Start(peers, round_field(p.go_through, "go_through", -1))


def _stop(p: coordinator_pb2.Stop) -> m.StopMessage:
    require(p.exit_code <= 255, f"exit code {p.exit_code} is out of range")
    return m.StopMessage(text_field(p.reason, "reason", 1), p.exit_code)


_COORDINATOR: dict[str, Callable[[Any], m.CoordinatorMessage]] = {
    "go": lambda p: m.GoMessage(p.through),
    "all_durable": lambda p: m.AllDurableMessage(round_field(p.through, "through", -1)),
    "heartbeat": lambda _: m.Heartbeat(),
    "welcome": _welcome,
    "refused": lambda p: m.Refused(_kind(p.kind), text_field(p.reason, "reason", 1)),
    "start": _start,
    "stop": _stop,
    "goodbye": lambda _: m.Goodbye(),
    "key_ring": keys.ring_from_protobuf,
    "key_proof": keys.proof_from_protobuf,
    "dispute": edges.dispute_from_protobuf,
}


def decode_coordinator_message(data: bytes) -> m.CoordinatorMessage:
    """One message of the coordinator on Join; PeerError if it is malformed, out of range or of an unknown kind."""
    message = parse(coordinator_pb2.CoordinatorMessage, data, "message of the coordinator")
    kind = message.WhichOneof("kind")
    if kind is None:
        raise malformed("message of the coordinator of unknown kind; is the other side a newer version?")
    return _COORDINATOR[kind](getattr(message, kind))


# --- agent to agent -----------------------------------------------------------------------------------------------


def encode_exchange_reply(v: m.ExchangeReply) -> bytes:
    pb = agent_pb2
    match v:
        case m.Received():
            message = pb.ExchangeReply(received=pb.Received(frames=v.frames))
        case m.Resume():
            resume = pb.Resume(
                receiver=v.receiver,
                run_id=v.run_id,
                x_from=v.x_from,
                y_from=v.y_from,
                mixed_before=v.mixed_before,
                prefix=None if v.prefix is None else edges.prefix_to_protobuf(v.prefix),
                x_last=v.x_last,
                y_last=v.y_last,
            )
            message = pb.ExchangeReply(resume=resume)
    return message.SerializeToString()


def decode_exchange_reply(data: bytes) -> m.ExchangeReply:
    """One reply on Exchange; PeerError if it is malformed or of an unknown kind."""
    message = parse(agent_pb2.ExchangeReply, data, "reply of an agent")
    kind = message.WhichOneof("kind")
    if kind == "received":
        return m.Received(message.received.frames)
    if kind == "resume":
        p = message.resume
        return m.Resume(
            name_field(p.receiver, "receiver"),
            bytes_field(p.run_id, "run_id", RUN_ID_BYTES),
            p.x_from,
            p.y_from,
            p.mixed_before,
            edges.prefix_from_protobuf(p.prefix) if p.HasField("prefix") else None,
            edges.digest_field(p.x_last, "x_last"),
            edges.digest_field(p.y_last, "y_last"),
        )
    raise malformed("reply of an agent of unknown kind; is the other side a newer version?")


# --- operators ----------------------------------------------------------------------------------------------------


def encode_upload_reply(v: m.UploadReply) -> bytes:
    return coordinator_pb2.UploadReply(vectors=v.vectors).SerializeToString()


def decode_upload_reply(data: bytes) -> m.UploadReply:
    """The answer to Upload; PeerError if it is malformed."""
    return m.UploadReply(parse(coordinator_pb2.UploadReply, data, "upload reply").vectors)


def encode_status_request(v: m.StatusRequest) -> bytes:
    return coordinator_pb2.StatusRequest(watcher=v.watcher).SerializeToString()


def decode_status_request(data: bytes) -> m.StatusRequest:
    """A status request; PeerError if it is malformed."""
    return m.StatusRequest(parse(coordinator_pb2.StatusRequest, data, "status request").watcher)


def encode_status_reply(v: m.StatusReply) -> bytes:
    return status.to_protobuf(v).SerializeToString()


def decode_status_reply(data: bytes) -> m.StatusReply:
    """A status reply; PeerError if it is malformed or out of range."""
    return status.from_protobuf(parse(coordinator_pb2.StatusReply, data, "status reply"))


def encode_control_request(v: m.ControlRequest) -> bytes:
    return coordinator_pb2.ControlRequest(action=_enum_name(v.action), reason=one_line(v.reason)).SerializeToString()


def decode_control_request(data: bytes) -> m.ControlRequest:
    """A control request; PeerError if it is malformed or the action is unknown."""
    p = parse(coordinator_pb2.ControlRequest, data, "control request")
    action = int(p.action)
    require(1 <= action <= len(_ACTIONS), f"action {action} is unknown")
    return m.ControlRequest(_ACTIONS[action - 1], text_field(p.reason, "reason"))


def encode_control_reply(v: m.ControlReply) -> bytes:
    return coordinator_pb2.ControlReply(ok=v.ok, message=one_line(v.message)).SerializeToString()


def decode_control_reply(data: bytes) -> m.ControlReply:
    """A control reply; PeerError if it is malformed."""
    p = parse(coordinator_pb2.ControlReply, data, "control reply")
    return m.ControlReply(p.ok, text_field(p.message, "message"))
