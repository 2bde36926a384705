"""A tiny agent machine and answers to its effects, for scripts that drive one machine by hand."""

from __future__ import annotations

import hashlib

import numpy as np

from dpgt_node.algo.methods.base import AgentEdges
from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.types import STREAMS
from tests.states import edges, tracking

EMPTY = np.zeros(0, dtype=np.int64)


def params(*, in_R=((1, 1.0),), in_C=((1, 1.0),), out_R=(1,), out_C=(1,), index=0) -> AgentEdges:
    return edges(in_R, in_C, out_R, out_C, index=index)


def machine(last_round: int = 3, agent: AgentEdges | None = None, **options: object) -> AgentMachine:
    m = AgentMachine(agent or params(), last_round, **{"evaluate_every": 10**6, **options})  # type: ignore[arg-type]
    for peer in m.peers:  # every out-neighbour has said once what it lacks, and is away again
        m.step(t.PeerNeeds(peer, 0, 0), 0)
        m.step(t.PeerGone(peer), 0)
    return m


def payload(stream: t.Stream, k: int, value: float = 1.0) -> t.Payload:
    data = np.array([value + k]).tobytes()
    return t.Payload(stream, k, "float64", 1, data, hashlib.sha256(data).digest())


def state(k: int) -> t.State:
    one = np.ones(1)
    return tracking(k, one, one, one, one, one, EMPTY)


def release(k: int) -> t.ReleaseReady:
    rows = tuple(
        t.LedgerRow(k, stream, "paper", "laplace", 1.0, None, b"\0" * 32, {"lemma5": None}) for stream in STREAMS
    )
    return t.ReleaseReady(state(k), (payload("X", k), payload("Y", k)), rows)


def record(k: int) -> t.RoundRecord:
    ready = release(k)
    return t.RoundRecord(k, ready.payloads, ready.rows, EMPTY, state(k))


def kinds(effects: tuple[t.AgentEffect, ...]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def to_exchange(m: AgentMachine, k: int = 0) -> None:
    """Drive a fresh machine to the point where round ``k`` = 0 waits for its inputs."""
    m.step(t.Started(k), 0)
    m.step(t.Advanced(state(k)), 0)
    m.step(release(k), 0)
    m.step(t.Persisted(k), 0)
