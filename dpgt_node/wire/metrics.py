"""Metrics and costs that an agent reports <-> protobuf; decoding is part of the gate and raises PeerError."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.protocol.messages import MetricsReport
from dpgt_node.wire.fields import no_nan, real_field, require, shown
from dpgt_node.wire.gen.dpgt.v1 import coordinator_pb2

MAX_ACCOUNTANTS = 32
_ACCOUNTANT = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)


def costs_to_protobuf(costs: Mapping[str, float | None]) -> coordinator_pb2.Epsilon:
    """Costs by accountant, nulls left out.  ValueError for a name that no accountant has."""
    unknown = set(costs).difference(ACCOUNTANTS)
    if unknown:
        raise ValueError(f"no accountant is called {', '.join(sorted(unknown))}")
    return coordinator_pb2.Epsilon(costs={name: kept for name, v in costs.items() if (kept := no_nan(v)) is not None})


def costs_from_protobuf(message: coordinator_pb2.Epsilon) -> dict[str, float | None]:
    """Costs of the accountants that this version knows, None where absent; the others are read past."""
    require(len(message.costs) <= MAX_ACCOUNTANTS, f"epsilon of {len(message.costs)} accountants")
    for name, value in message.costs.items():
        require(_ACCOUNTANT.fullmatch(name) is not None, f"accountant {shown(name)} is not a word")
        require(value >= 0.0, f"{name} {value} is out of range")  # false for NaN too
    return {name: message.costs.get(name) for name in ACCOUNTANTS}


def to_protobuf(v: MetricsReport) -> coordinator_pb2.Metrics:
    return coordinator_pb2.Metrics(
        round=v.k,
        loss_train=no_nan(v.loss_train),
        accuracy_train=no_nan(v.accuracy_train),
        accuracy_test=no_nan(v.accuracy_test),
        grad_norm=no_nan(v.grad_norm),
        epsilon=costs_to_protobuf(v.epsilon),
    )


def from_protobuf(p: coordinator_pb2.Metrics) -> MetricsReport:
    """The report as it was received; PeerError for a value out of range."""
    return MetricsReport(
        k=p.round,
        loss_train=real_field(p, "loss_train"),
        accuracy_train=real_field(p, "accuracy_train", 0.0, 1.0),
        accuracy_test=real_field(p, "accuracy_test", 0.0, 1.0),
        grad_norm=real_field(p, "grad_norm", 0.0),
        epsilon=costs_from_protobuf(p.epsilon),
    )
