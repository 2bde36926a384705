"""Messages that a script says, as ``proto/`` has them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from tests.golden.adapter import VERSION, RunConfig, agent_pb2, canonical, coordinator_pb2
from tests.golden.wires import RUN_ID, Message

pb = coordinator_pb2


def down(**kind: Any) -> Message:
    """A message of the coordinator: down(go=pb.Go(through=1))."""
    return pb.CoordinatorMessage(**kind)


def up(**kind: Any) -> Message:
    """A message of an agent."""
    return pb.AgentMessage(**kind)


def welcome(run: RunConfig, **changes: Any) -> Message:
    text, sha256 = canonical(run)
    fields = {
        "run_id": RUN_ID,
        "run_sha256": sha256,
        "run_json": text,
        "protocol_version": 1,
        "package_version": VERSION,
        "go_through": -1,
        **changes,
    }
    return down(welcome=pb.Welcome(**fields))


def register(run: RunConfig, name: str, **changes: Any) -> Message:
    text, sha256 = canonical(run)
    fields = {
        "protocol_version": 1,
        "package_version": VERSION,
        "name": name,
        "run_sha256": sha256,
        "run_json": text,
        "advertise": "127.0.0.1:9",
        "dimension": 3,
        "shape_sha256": "5a" * 32,
        "last_durable_round": -1,
        "last_done_round": -1,
        "last_released_round": -1,
        "finished": False,
        "run_id": b"",
        "instance": hashlib.sha256(name.encode()).digest()[:16],
        **changes,
    }
    return up(register=pb.Register(**fields))


def go(through: int) -> Message:
    return down(go=pb.Go(through=through))


def stop(reason: str, exit_code: int) -> Message:
    return down(stop=pb.Stop(reason=reason, exit_code=exit_code))


def goodbye() -> Message:
    return down(goodbye=pb.Goodbye())


def resume(receiver: str, x_from: int = 0, y_from: int = 0, mixed_before: int = 0, run_id: bytes = RUN_ID) -> Message:
    fields = {"receiver": receiver, "run_id": run_id, "x_from": x_from, "y_from": y_from, "mixed_before": mixed_before}
    return agent_pb2.ExchangeReply(resume=agent_pb2.Resume(**fields))


def vector(sender: str, stream: str, k: int, **changes: Any) -> Message:
    """A frame with one vector of three numbers."""
    return frame(sender, [(stream, k)], **changes)


def frame(sender: str, what: Iterable[tuple[str, int]], study: bool = False, **changes: Any) -> Message:
    """A frame with vectors of three numbers, which are functions of sender, stream and round."""
    made = agent_pb2.Frame()
    for stream, k in what:
        values = np.array([0.5, -0.25, 2.0]) * (k + 1) + len(stream) + (0.125 if stream == "Y" else 0.0)
        values = values + sum(sender.encode()) / 1024.0
        data = values.astype("<f8").tobytes()
        fields = {
            "run_id": RUN_ID,
            "sender": sender,
            "round": k,
            "stream": agent_pb2.STUDY if study else agent_pb2.Stream.Value(stream),
            "dtype": agent_pb2.FLOAT64,
            "dimension": 3,
            "nbytes": len(data),
            "sha256": hashlib.sha256(data).digest(),
            "data": data,
            **changes,
        }
        made.vectors.add(**fields)
    return made
