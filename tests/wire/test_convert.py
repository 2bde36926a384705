"""Messages survive the wire unchanged; what a peer could send instead is refused, field by field."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import struct
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from dpgt_node.errors import PeerError
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.done import MAX_DONES
from dpgt_node.protocol.liveness import Down, EdgeReport, Lack
from dpgt_node.protocol.pace import MAX_US, Slowest
from dpgt_node.wire import convert
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2, coordinator_pb2

RUN = bytes(range(16))
SHA = "0123456789abcdef" * 4
FULL = dict.fromkeys(ACCOUNTANTS, 1.5) | {"lemma5": math.inf, "gdp": None, "zcdp": 0.0}
NONE = dict.fromkeys(ACCOUNTANTS, None)
METRICS = m.MetricsReport(201, 0.25, 0.0, 1.0, math.inf, FULL)
REGISTER = m.Register(
    name="agent-1",
    run_sha256=SHA,
    run_json="{}",
    advertise="host.example:50051",
    samples=287,
    dimension=650,
    shape_sha256=SHA,
    last_durable_round=-1,
    last_released_round=-1,
    last_done_round=-1,
    finished=False,
    run_id=b"",
    instance=RUN,
    package_version="0.1.0",
)
WELCOME = m.Welcome(RUN, SHA, "{}", -1, "0.1.0")
KNOWN = m.Welcome(RUN, SHA, "{}", 9, "0.1.0", ledger_round=8, ledger_head=b"h" * 32)
DISPUTE = m.Dispute("agent-3", "Y", 7, (("agent-3", b"o" * 16), ("agent-2", b"t" * 16)))
OUTLIER = m.Outlier("agent-2", "Y", 7, 5, 3.5)
AGENT: list[m.AgentMessage] = [
    REGISTER,
    dataclasses.replace(
        REGISTER, samples=None, run_id=RUN, last_durable_round=7, last_done_round=8, finished=True, advertise="[::1]:1"
    ),
    m.Ready(),
    m.Done(0, -1, 0),
    m.Done(2**32 - 1, 199, 2**63),
    m.Done(7, 6, 1, b"h" * 32),
    m.Done(7, 6, 1, words=b"x" * 16 + b"y" * 16),
    m.Dones((m.Done(7, 6, 1, b"h" * 32, words=b"x" * 16), m.Done(8, 6, 2))),
    m.Dones((m.Done(0, -1, 0),) * MAX_DONES),
    m.Disowned("agent-2", "Y", 0, b"t" * 16, b"o" * 16),
    m.Disowned("agent-2", "X", 7, b"", b""),
    OUTLIER,
    METRICS,
    m.MetricsReport(0, None, None, None, None, NONE),
    m.FinishedReport("finished", 402, 10**12, FULL, METRICS),
    m.FinishedReport("stopped", 0, 0, NONE, m.MetricsReport(0, epsilon=NONE)),
    *(m.Refusal(kind, "because") for kind in ("policy", "run-hash", "identity", "version", "data", "other")),
    m.Failed(70, "a bug"),
    m.Heartbeat(),
    m.KeyOffer("agent-1", b"k" * 32, b"c" * 8192, b"s" * 256),
    m.KeyProofs({"agent-2": b"p" * 32, "agent-3": b"q" * 32}),
    EdgeReport(0, 0),
    EdgeReport(17, 12, (Lack("agent-1", None), Lack("agent-2", 2**63 - 1)), (Down("agent-3", 0, "no route"),)),
]
COORDINATOR: list[m.CoordinatorMessage] = [
    WELCOME,
    KNOWN,
    m.Refused("identity", "agent-2 is here already"),
    m.Start({"agent-1": "127.0.0.1:1", "agent-2": "host:65535"}, 0),
    m.Start({}, -1),
    m.GoMessage(0),
    m.GoMessage(2**32 - 1),
    m.AllDurableMessage(-1),
    m.AllDurableMessage(5),
    m.StopMessage("asked to", 5),
    m.Goodbye(),
    m.KeyRing((m.KeyOffer("agent-1", b"k" * 32, b"c", b"s"), m.KeyOffer("agent-2", b"l" * 32, b"d", b"t"))),
    m.KeyProof("agent-2", b"p" * 32),
    DISPUTE,
    m.Heartbeat(),
]
STATUS = m.StatusReply(
    "running",
    -1,
    200,
    RUN,
    "digits",
    812.5,
    (
        m.AgentStatus("agent-1", True, 7, 0.25, 0.9, math.inf),
        m.AgentStatus("agent-2", False, -1, state="silent", missing_s=7.5, waits_for=("agent-1",)),
    ),
    1e-3,
    "why",
    "gdp",
    1e-5,
    "replace-one",
    gives_up_s=12.5,
    slowest=Slowest("agent-1", "compute", 0.25, 1.0),
)
PLAIN: list[tuple[Callable[[Any], bytes], Callable[[bytes], Any], list[Any]]] = [
    (convert.encode_agent_message, convert.decode_agent_message, AGENT),
    (convert.encode_coordinator_message, convert.decode_coordinator_message, COORDINATOR),
    (
        convert.encode_exchange_reply,
        convert.decode_exchange_reply,
        [
            m.Resume("a", RUN, 0, 7, 8),
            m.Resume("a", RUN, 3, 3, 0, m.Prefix("Y", 3, 1 << 20, bytes(range(32)))),
            m.Received(9),
        ],
    ),
    (convert.encode_upload_reply, convert.decode_upload_reply, [m.UploadReply(3)]),
    (convert.encode_status_request, convert.decode_status_request, [m.StatusRequest(), m.StatusRequest(2**64 - 1)]),
    (
        convert.encode_status_reply,
        convert.decode_status_reply,
        [
            STATUS,
            dataclasses.replace(STATUS, accountant="tight", delta=None),
            dataclasses.replace(STATUS, accountant=None, adjacency=""),
        ],
    ),
    (
        convert.encode_control_request,
        convert.decode_control_request,
        [m.ControlRequest("pause"), m.ControlRequest("resume", "x"), m.ControlRequest("stop", "lunch")],
    ),
    (
        convert.encode_control_reply,
        convert.decode_control_reply,
        [m.ControlReply(True, ""), m.ControlReply(False, "no")],
    ),
]


@pytest.mark.parametrize(
    ("encode", "decode", "message"), [(e, d, message) for e, d, messages in PLAIN for message in messages]
)
def test_round_trip(encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], message: object) -> None:
    assert decode(encode(message)) == message


def test_every_kind_of_message_is_tried() -> None:
    assert {type(message) for message in AGENT} == set(m.AgentMessage.__args__)
    assert {type(message) for message in COORDINATOR} == set(m.CoordinatorMessage.__args__)


def test_no_secrets_in_reprs() -> None:
    assert "run_json" not in repr(REGISTER) and "run_json" not in repr(WELCOME)


def test_what_is_not_a_number_is_not_applicable() -> None:
    got = convert.decode_agent_message(convert.encode_agent_message(m.MetricsReport(3, math.nan, epsilon=NONE)))
    assert got == m.MetricsReport(3, None, epsilon=NONE)


def test_long_reasons_are_cut_not_refused() -> None:
    """They may quote another peer, and the run must not end because of the length of an explanation."""
    for message in (m.Failed(1, "x" * 5000), m.Refusal("data", "x" * 5000), m.Failed(1, "")):
        got = convert.decode_agent_message(convert.encode_agent_message(message))
        assert type(got) is type(message)
    got = convert.decode_coordinator_message(convert.encode_coordinator_message(m.StopMessage("y" * 1001, 4)))
    assert got == m.StopMessage("y" * 997 + "...", 4)


@pytest.mark.parametrize("text", ["a\nERROR the run is over", "\x1b[2Ja", "a\u2028b", "\u202ea", "\x00", "\n"])
def test_what_peers_say_is_one_line(text: str) -> None:
    """It is written into logs and onto terminals: no line of its own making, no escape sequence."""
    with pytest.raises(PeerError, match="not a line of printable characters"):
        convert.decode_agent_message(agent_bytes(m.Failed(1, "x"), message=text))
    with pytest.raises(PeerError, match="not a line of printable characters"):
        convert.decode_coordinator_message(coordinator_bytes(m.StopMessage("x", 0), reason=text))
    got = convert.decode_agent_message(convert.encode_agent_message(m.Failed(1, text)))
    assert isinstance(got, m.Failed) and got.message.isprintable() and got.message
    reply = convert.decode_control_reply(convert.encode_control_reply(m.ControlReply(True, text)))
    assert reply.message.isprintable()


def test_lines_of_our_own_are_joined_not_lost() -> None:
    """A ConfigError lists one problem a line."""
    got = convert.decode_agent_message(convert.encode_agent_message(m.Refusal("data", "a: b\nc: d\n")))
    assert got == m.Refusal("data", "a: b; c: d")


def test_unknown_accountants_are_our_own_bug() -> None:
    with pytest.raises(ValueError, match="renyi"):
        convert.encode_agent_message(m.MetricsReport(0, epsilon={"renyi": 1.0}))


def test_accountants_of_another_version_are_read_past() -> None:
    """A newer version's are left out; what an older one said in a field of its own is null."""
    outer = coordinator_pb2.AgentMessage.FromString(convert.encode_agent_message(m.MetricsReport(3, epsilon=FULL)))
    outer.metrics.epsilon.costs["renyi-2"] = 1.0
    assert convert.decode_agent_message(outer.SerializeToString()) == m.MetricsReport(3, epsilon=FULL)
    outer.metrics.epsilon.Clear()
    outer.metrics.epsilon.MergeFromString(b"\x09" + struct.pack("<d", 1.5))  # field 1, a double: lemma5
    assert convert.decode_agent_message(outer.SerializeToString()) == m.MetricsReport(3, epsilon=NONE)


def test_a_report_is_the_same_bytes_in_any_order() -> None:
    there, back = (dict(items) for items in (FULL.items(), reversed(FULL.items())))
    assert convert.encode_agent_message(m.MetricsReport(3, epsilon=there)) == convert.encode_agent_message(
        m.MetricsReport(3, epsilon=back)
    )


# --- hostile ------------------------------------------------------------------------------------------------------


def agent_bytes(value: m.AgentMessage, **fields: Any) -> bytes:
    """The message with fields of its protobuf form changed: what another program could send."""
    outer = coordinator_pb2.AgentMessage.FromString(convert.encode_agent_message(value))
    _change(getattr(outer, str(outer.WhichOneof("kind"))), fields)
    return outer.SerializeToString()


def coordinator_bytes(value: m.CoordinatorMessage, **fields: Any) -> bytes:
    outer = coordinator_pb2.CoordinatorMessage.FromString(convert.encode_coordinator_message(value))
    _change(getattr(outer, str(outer.WhichOneof("kind"))), fields)
    return outer.SerializeToString()


def _change(inner: Message, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        target: Any = inner
        *path, last = name.split("__")
        for part in path:
            target = getattr(target, part)
        if isinstance(value, dict):
            getattr(target, last).update(value)
        else:
            setattr(target, last, value)


OFFER, PROOFS = m.KeyOffer("agent-1", b"k" * 32, b"c", b"s"), m.KeyProofs({"agent-2": b"p" * 32})
DONE, FAILED, FINISHED = m.Done(1, 0, 0), m.Failed(1, "x"), m.FinishedReport("finished", 2, 0, NONE, METRICS)
DISOWNED = m.Disowned("agent-2", "X", 7, b"", b"")
BAD_AGENT: list[tuple[m.AgentMessage, dict[str, Any], str]] = [
    (OUTLIER, {"sender": ""}, "sender '' is not an agent name"),
    (OUTLIER, {"stream": 7}, "stream 7 is neither X nor Y"),
    (OUTLIER, {"rounds": 4}, "an outlier in 4 rounds up to round 7"),
    (OUTLIER, {"rounds": 9}, "an outlier in 9 rounds up to round 7"),
    (OUTLIER, {"ratio": 3.0}, "an outlier by a factor of 3.0"),
    (OUTLIER, {"ratio": float("inf")}, "an outlier by a factor of inf"),
    (OUTLIER, {"ratio": float("nan")}, "an outlier by a factor of nan"),
    (REGISTER, {"name": "../agent"}, "name '../agent' is not an agent name"),
    (REGISTER, {"name": ""}, "name '' is not an agent name"),
    (REGISTER, {"name": "a" * 64}, "is not an agent name"),
    (REGISTER, {"name": "agent-1\n"}, "is not an agent name"),
    (REGISTER, {"run_sha256": SHA.upper()}, "run_sha256 .* is not 64 hex digits"),
    (REGISTER, {"run_sha256": SHA[:-1]}, "run_sha256 .* is not 64 hex digits"),
    (REGISTER, {"shape_sha256": ""}, "shape_sha256 '' is not 64 hex digits"),
    (REGISTER, {"run_json": ""}, "run_json is empty"),
    (REGISTER, {"run_json": "ä" * (2 << 20) + "x"}, "run_json is above 4194304 bytes"),
    (REGISTER, {"advertise": "host"}, "advertise 'host' is not HOST:PORT"),
    (REGISTER, {"advertise": ":80"}, "is not HOST:PORT"),
    (REGISTER, {"advertise": "host:0"}, "is not HOST:PORT"),
    (REGISTER, {"advertise": "host:65536"}, "is not HOST:PORT"),
    (REGISTER, {"advertise": "host:+80"}, "is not HOST:PORT"),
    (REGISTER, {"advertise": "host:" + "9" * 200}, "is not HOST:PORT"),
    (REGISTER, {"advertise": "host:00008099999"}, "is not HOST:PORT"),
    (REGISTER, {"advertise": "h" * 300 + ":80"}, "is not HOST:PORT"),
    (REGISTER, {"advertise": "ho st:80"}, "is not HOST:PORT"),
    (REGISTER, {"advertise": "ho\x1b[2Jst:80"}, "is not HOST:PORT"),
    (REGISTER, {"samples": 0}, "samples 0 is out of range"),
    (REGISTER, {"samples": 2**60}, "samples 1152921504606846976 is out of range"),
    (REGISTER, {"dimension": 0}, "dimension 0 is out of range"),
    (REGISTER, {"dimension": 2**33}, "dimension 8589934592 is out of range"),
    (REGISTER, {"last_durable_round": -2}, "last_durable_round -2 is out of range"),
    (REGISTER, {"last_durable_round": 2**40}, "last_durable_round 1099511627776 is out of range"),
    (REGISTER, {"last_done_round": -2}, "last_done_round -2 is out of range"),
    (REGISTER, {"run_id": b"short"}, "run_id of 5 bytes; expected 0 or 16"),
    (REGISTER, {"instance": b""}, "instance of 0 bytes; expected 16"),
    (REGISTER, {"package_version": ""}, "package_version of 0 characters; allowed are 1 to 64"),
    (REGISTER, {"package_version": "1" * 65}, "package_version of 65 characters"),
    (REGISTER, {"protocol_version": 0}, "Register without a protocol version"),
    (DONE, {"durable_through": -2}, "durable_through -2 is out of range"),
    (DONE, {"digests": b"x" * 15}, "digests of 15 bytes"),
    (DISOWNED, {"receiver": ""}, "receiver '' is not an agent name"),
    (DISOWNED, {"stream": 3}, "stream 3 is neither X nor Y"),
    (DISOWNED, {"theirs": b"x"}, "theirs of 1 bytes; expected 0 or 16"),
    (METRICS, {"accuracy_test": 1.0000001}, "accuracy_test 1.0000001 is out of range"),
    (METRICS, {"accuracy_train": -0.1}, "accuracy_train -0.1 is out of range"),
    (METRICS, {"loss_train": math.nan}, "loss_train nan is out of range"),
    (METRICS, {"grad_norm": -1.0}, "grad_norm -1.0 is out of range"),
    (METRICS, {"epsilon__costs": {"lemma5": -1e-9}}, "lemma5 -1e-09 is out of range"),
    (METRICS, {"epsilon__costs": {"gdp": math.nan}}, "gdp nan is out of range"),
    (METRICS, {"epsilon__costs": {"renyi": -math.inf}}, "renyi -inf is out of range"),
    (METRICS, {"epsilon__costs": {"": 1.0}}, "accountant '' is not a word"),
    (METRICS, {"epsilon__costs": {"a" * 33: 1.0}}, "is not a word"),
    (METRICS, {"epsilon__costs": {"gdp\n": 1.0}}, r"accountant 'gdp\\n' is not a word"),
    (METRICS, {"epsilon__costs": {f"a{i}": 1.0 for i in range(33)}}, "epsilon of (3[3-9]|4[0-9]) accountants"),
    (FINISHED, {"epsilon__costs": {"tight": math.nan}}, "tight nan is out of range"),
    (FINISHED, {"status": "perhaps"}, "status 'perhaps' is neither finished nor stopped"),
    (FINISHED, {"metrics__accuracy_test": 2.0}, "accuracy_test 2.0 is out of range"),
    (m.Refusal("data", "x"), {"kind": 0}, "refusal kind 0 is unknown"),
    (m.Refusal("data", "x"), {"kind": 7}, "refusal kind 7 is unknown"),
    (m.Refusal("data", "x"), {"reason": ""}, "reason of 0 characters; allowed are 1 to 1000"),
    (m.Refusal("data", "x"), {"reason": "x" * 1001}, "reason of 1001 characters"),
    (FAILED, {"exit_code": 0}, "exit code 0 is out of range"),
    (FAILED, {"exit_code": 256}, "exit code 256 is out of range"),
    (FAILED, {"message": ""}, "message of 0 characters"),
    (OFFER, {"name": "a b"}, "name 'a b' is not an agent name"),
    (OFFER, {"key": b"k" * 31}, "key of 31 bytes; expected 32"),
    (OFFER, {"certificate": b""}, "certificate of 0 bytes; allowed are 1 to 8192"),
    (OFFER, {"certificate": b"c" * 8193}, "certificate of 8193 bytes"),
    (OFFER, {"signature": b""}, "signature of 0 bytes; allowed are 1 to 256"),
    (OFFER, {"signature": b"s" * 257}, "signature of 257 bytes"),
    (PROOFS, {"proofs": {"agent-3": b""}}, "proof of 0 bytes; expected 32"),
    (PROOFS, {"proofs": {"../x": b"p" * 32}}, "peer '../x' is not an agent name"),
    (m.KeyProofs({}), {}, "KeyProofs without a proof"),
]
BAD_COORDINATOR: list[tuple[m.CoordinatorMessage, dict[str, Any], str]] = [
    (WELCOME, {"run_id": b""}, "run_id of 0 bytes; expected 16"),
    (WELCOME, {"run_sha256": "x"}, "run_sha256 'x' is not 64 hex digits"),
    (WELCOME, {"run_json": ""}, "run_json is empty"),
    (WELCOME, {"go_through": -2}, "go_through -2 is out of range"),
    (WELCOME, {"package_version": ""}, "package_version of 0 characters"),
    (WELCOME, {"protocol_version": 0}, "Welcome without a protocol version"),
    (KNOWN, {"ledger_head": b"x"}, "ledger_head of 1 bytes; expected 32"),
    (KNOWN, {"ledger_round": -1}, "ledger_round -1 is out of range"),
    (m.Refused("other", "x"), {"kind": 99}, "refusal kind 99 is unknown"),
    (m.Start({}, 0), {"go_through": -2}, "go_through -2 is out of range"),
    (m.Start({"agent 1": "h:1"}, 0), {}, "peer 'agent 1' is not an agent name"),
    (m.Start({"agent-1": "h"}, 0), {}, "address of agent-1 'h' is not HOST:PORT"),
    (m.AllDurableMessage(0), {"through": -2}, "through -2 is out of range"),
    (m.StopMessage("x", 0), {"exit_code": 256}, "exit code 256 is out of range"),
    (m.StopMessage("x", 0), {"reason": ""}, "reason of 0 characters"),
    (m.KeyRing(()), {}, "KeyRing without an offer"),
    (m.KeyRing((m.KeyOffer("agent-1", b"k", b"c", b"s"),)), {}, "key of 1 bytes; expected 32"),
    (m.KeyProof("agent-1", b"p" * 32), {"sender": ""}, "sender '' is not an agent name"),
    (m.KeyProof("agent-1", b"p" * 32), {"proof": b"p"}, "proof of 1 bytes; expected 32"),
    (DISPUTE, {"stream": 0}, "stream 0 is neither X nor Y"),
    (m.Dispute("agent-3", "X", 0, DISPUTE.words[:1]), {}, "a dispute of fewer than two agents"),
    (m.Dispute("agent-3", "X", 0, DISPUTE.words[:1] * 2), {}, "a dispute of fewer than two agents"),
    (m.Dispute("agent-3", "X", 0, (("a", b"w" * 16), ("b", b"w" * 16))), {}, "in which everybody agrees"),
]


@pytest.mark.parametrize(("message", "fields", "error"), BAD_AGENT)
def test_bad_agent_messages(message: m.AgentMessage, fields: dict[str, Any], error: str) -> None:
    with pytest.raises(PeerError, match=error) as caught:
        convert.decode_agent_message(agent_bytes(message, **fields))
    assert caught.value.grpc_status == "INVALID_ARGUMENT"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(("message", "fields", "error"), BAD_COORDINATOR)
def test_bad_coordinator_messages(message: m.CoordinatorMessage, fields: dict[str, Any], error: str) -> None:
    with pytest.raises(PeerError, match=error):
        convert.decode_coordinator_message(coordinator_bytes(message, **fields))


RESUME: dict[str, Any] = {"receiver": "a", "run_id": RUN}
PREFIX: dict[str, Any] = {"stream": agent_pb2.X, "nbytes": 1, "sha256": bytes(32)}


@pytest.mark.parametrize(
    ("decode", "message", "error"),
    [
        (convert.decode_exchange_reply, agent_pb2.ExchangeReply(resume={"run_id": RUN}), "receiver '' is not an agent"),
        (convert.decode_exchange_reply, agent_pb2.ExchangeReply(resume={"receiver": "a"}), "run_id of 0 bytes"),
        *(
            (convert.decode_exchange_reply, agent_pb2.ExchangeReply(resume=RESUME | {"prefix": PREFIX | bad}), error)
            for bad, error in (
                ({"nbytes": 0}, "a prefix without a byte"),
                ({"sha256": b""}, "sha256 of 0 bytes; expected 32"),
                ({"stream": agent_pb2.STUDY}, "a prefix of stream 3"),
            )
        ),
        (
            convert.decode_exchange_reply,
            agent_pb2.ExchangeReply(),
            "of unknown kind; is the other side a newer version",
        ),
        (convert.decode_agent_message, coordinator_pb2.AgentMessage(), "of unknown kind; is the other side a newer"),
        (convert.decode_coordinator_message, coordinator_pb2.CoordinatorMessage(), "of unknown kind"),
        (convert.decode_control_request, coordinator_pb2.ControlRequest(), "action 0 is unknown"),
        (convert.decode_control_request, coordinator_pb2.ControlRequest(reason="x" * 1001, action="STOP"), "reason of"),
        (convert.decode_control_reply, coordinator_pb2.ControlReply(message="x" * 1001), "message of 1001"),
    ],
)
def test_other_bad_messages(decode: Callable[[bytes], Any], message: Message, error: str) -> None:
    with pytest.raises(PeerError, match=error):
        decode(message.SerializeToString())


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"state": ""}, "state '' is not a word"),
        ({"state": "\x1b[31m"}, "is not a word"),
        ({"rounds_per_second": math.nan}, "rounds_per_second nan is out of range"),
        ({"rounds_per_second": -1.0}, "rounds_per_second -1.0 is out of range"),
        ({"round": -2}, "round -2 is out of range"),
        ({"run_id": b"x"}, "run_id of 1 bytes"),
        ({"name": "x" * 257}, "name of 257 characters"),
        ({"reason": "x" * 1001}, "reason of 1001 characters"),
        ({"consensus_error": -1.0}, "consensus_error -1.0 is out of range"),
        ({"accountant": "\x1b[31m"}, "accountant '.*' is unknown"),
        ({"delta": 1.5}, "delta 1.5 is out of range"),
        ({"adjacency": "x" * 257}, "adjacency of 257 characters"),
    ],
)
def test_bad_status_replies(fields: dict[str, Any], error: str) -> None:
    message = coordinator_pb2.StatusReply.FromString(convert.encode_status_reply(STATUS))
    _change(message, fields)
    with pytest.raises(PeerError, match=error):
        convert.decode_status_reply(message.SerializeToString())


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": "?"}, "name"),
        ({"round": -2}, "round -2"),
        ({"last_seen_s": -1.0}, "last_seen_s"),
        ({"accuracy_test": 1.5}, "accuracy_test"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"state": "Big"}, "state 'Big' is not a word"),
        ({"missing_s": -1.0}, "missing_s"),
    ],
)
def test_bad_agents_in_status_replies(fields: dict[str, Any], error: str) -> None:
    message = coordinator_pb2.StatusReply.FromString(convert.encode_status_reply(STATUS))
    _change(message.agents[1], fields)
    with pytest.raises(PeerError, match=error):
        convert.decode_status_reply(message.SerializeToString())


@pytest.mark.parametrize("count", [0, 1, MAX_DONES + 1])
def test_reports_in_one_message_are_several_and_not_too_many(count: int) -> None:
    data = convert.encode_agent_message(m.Dones((m.Done(0, -1, 0),) * count))
    with pytest.raises(PeerError, match=f"{count} reports in one message"):
        convert.decode_agent_message(data)


def test_each_report_of_a_message_is_looked_at() -> None:
    data = convert.encode_agent_message(m.Dones((m.Done(0, -1, 0), m.Done(1, -2, 0))))
    with pytest.raises(PeerError, match="durable_through -2 is out of range"):
        convert.decode_agent_message(data)


def test_what_rounds_took_arrives_whole_or_not_at_all() -> None:
    data = convert.encode_agent_message(m.Done(7, 6, 1, b"h" * 32, (1, 2, 3, 4, 5, MAX_US)))
    done = convert.decode_agent_message(data)
    assert isinstance(done, m.Done) and done.spent == (1, 2, 3, 4, 5, MAX_US)
    message = coordinator_pb2.AgentMessage.FromString(data)
    for many in (7, 5, 1):
        message.done.spent_us[:] = range(many)
        with pytest.raises(PeerError, match=f"spent_us of {many} phases"):
            convert.decode_agent_message(message.SerializeToString())


@pytest.mark.parametrize(
    ("fields", "error"),
    [({"phase": "sleep"}, "phase 'sleep'"), ({"share": 1.5}, "out of range"), ({"agent": "?"}, "agent '\\?'")],
)
def test_a_slowest_phase_is_one(fields: dict[str, Any], error: str) -> None:
    message = coordinator_pb2.StatusReply.FromString(convert.encode_status_reply(STATUS))
    _change(message.slowest, fields)
    with pytest.raises(PeerError, match=error):
        convert.decode_status_reply(message.SerializeToString())


def test_whom_an_agent_waits_for_is_an_agent() -> None:
    message = coordinator_pb2.StatusReply.FromString(convert.encode_status_reply(STATUS))
    message.agents[1].waits_for.append("?")
    with pytest.raises(PeerError, match="waits_for '\\?' is not an agent name"):
        convert.decode_status_reply(message.SerializeToString())


@pytest.mark.parametrize(
    ("edges", "error"),
    [
        (coordinator_pb2.Edges(waited_ns=2**63), "a span of 9223372036854775808 ns"),
        (coordinator_pb2.Edges(lacks=[coordinator_pb2.Lack(sender="?")]), "sender '\\?' is not an agent name"),
        (coordinator_pb2.Edges(lacks=[coordinator_pb2.Lack(sender="a", silent_ns=2**64 - 1)]), "a span of"),
        (coordinator_pb2.Edges(down=[coordinator_pb2.Down(receiver="a", cause="")]), "cause of 0 characters"),
        (coordinator_pb2.Edges(down=[coordinator_pb2.Down(receiver="a", cause="a\nb")]), "printable"),
        (coordinator_pb2.Edges(down=[coordinator_pb2.Down(receiver="", cause="b")]), "receiver"),
    ],
)
def test_bad_reports_of_edges(edges: coordinator_pb2.Edges, error: str) -> None:
    with pytest.raises(PeerError, match=error):
        convert.decode_agent_message(coordinator_pb2.AgentMessage(edges=edges).SerializeToString())


DECODERS = [decode for _, decode, _ in PLAIN]


@pytest.mark.parametrize("decode", DECODERS)
def test_messages_are_bounded(decode: Callable[[bytes], Any]) -> None:
    with pytest.raises(PeerError, match="of 8388609 bytes; the limit is 8388608") as caught:
        decode(bytes((8 << 20) + 1))
    assert caught.value.grpc_status == "RESOURCE_EXHAUSTED"


@given(st.sampled_from(DECODERS), st.binary(max_size=300))
def test_random_bytes_are_refused_or_understood(decode: Callable[[bytes], Any], data: bytes) -> None:
    with contextlib.suppress(PeerError):
        decode(data)


ENCODED = [(decode, encode(message)) for encode, decode, messages in PLAIN for message in messages]


@given(st.sampled_from(ENCODED), st.data())
def test_mutated_messages_are_refused_or_understood(
    sample: tuple[Callable[[bytes], Any], bytes], data: st.DataObject
) -> None:
    decode, original = sample
    mutated = bytearray(original or b"\x00")
    for _ in range(data.draw(st.integers(1, 4))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(PeerError):
        decode(bytes(mutated[: data.draw(st.integers(0, len(mutated)))]))
