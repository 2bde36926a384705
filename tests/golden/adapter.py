"""Everything the golden scripts take from the product, in one place: what moves or is renamed is mended here.

The texts are the scripts' own vocabulary.  They must not change when a class or a field gets another name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from dpgt_node import __version__, cli
from dpgt_node.agent.noise import sampler_for
from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import network_of
from dpgt_node.algo.methods.base import AgentEdges
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import Policy, RunConfig, canonical_json, parse_run, run_sha256
from dpgt_node.errors import DpgtError, ExitCode
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.privacy.laws.keystream import TestKeystream
from dpgt_node.protocol import liveness
from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.agent.session import Session
from dpgt_node.protocol.coordinator import barrier as co
from dpgt_node.protocol.coordinator.membership import Membership
from dpgt_node.runtime.agent import node as node_module
from dpgt_node.runtime.coordinator.daemon import Outcome
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2, coordinator_pb2
from tests.runtime.cluster import Cluster, eventually

KEY = "a5"
VERSION = __version__
__all__ = [
    "KEY",
    "VERSION",
    "AgentMachine",
    "Cluster",
    "DpgtError",
    "ExitCode",
    "Policy",
    "RunConfig",
    "agent_pb2",
    "co",
    "coordinator_pb2",
    "eventually",
    "fixed_noise",
    "liveness",
    "t",
]


def command(*arguments: object) -> int:
    """One ``dpgt`` command line in this process."""
    return int(cli.run([str(argument) for argument in arguments]))


def run_of(text: str) -> RunConfig:
    """The run of a run file's text."""
    return parse_run(text, "run.toml", Path("/"))


def params_of(run: RunConfig, index: int) -> AgentEdges:
    """What agent ``index`` receives and sends."""
    return network_of(run, Topology.from_config(run.graph)).edges(index)


class Worker:
    """Answers the effects of one agent's machine that need numbers, under the test keystream."""

    def __init__(self, run: RunConfig, index: int) -> None:
        oracle = build_oracle(run, index, data_root=None)
        topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
        self._work = AgentWork(run, topology, schedule, index, oracle, TestKeystream(KEY, index), sampler_for(run))

    def answer(self, effect: t.AgentEffect) -> t.AgentEvent | None:
        """The event that follows; None where the effect is no work."""
        match effect:
            case t.Advance():
                return self._work.advance(effect)
            case t.DrawRelease():
                return self._work.release(effect)
            case t.AdvanceFinal():
                return self._work.advance_final(effect)
            case _:
                return None


# --- texts ----------------------------------------------------------------------------------------------------------


def digest(*parts: bytes | memoryview | np.ndarray[Any, Any]) -> str:
    """The first 12 hex digits of the SHA-256 of all bytes."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(np.ascontiguousarray(part).tobytes() if isinstance(part, np.ndarray) else part)
    return whole.hexdigest()[:12]


def _state(s: t.State | None) -> str:
    if s is None:
        return "none"
    pending = " pending" if s.pending else ""
    px, tx, p, t, g = (s.vectors[name] for name in ("px", "tx", "p", "t", "g"))
    return f"(k={s.k} x={digest(px + tx)} y={digest(p + t)} parts={digest(px, tx, p, t)} g={digest(g)}{pending})"


def _payloads(payloads: tuple[t.Payload, ...]) -> str:
    return " ".join(f"{p.stream}{p.k}:{p.dtype}x{p.dimension}:{digest(p.data)}" for p in payloads)


def _inputs(values: Any) -> str:
    return "{" + " ".join(f"{j + 1}:{digest(values[j].astype(np.float64))}" for j in sorted(values)) + "}"


def _rows(rows: tuple[t.LedgerRow, ...]) -> str:
    texts = []
    for row in rows:
        cost = " ".join(f"{name}={_number(row.cost[name])}" for name in sorted(row.cost))
        charged = f"scale={row.scale:.9g} sensitivity={_number(row.sensitivity)}"
        texts.append(f"[{row.stream}{row.k} {row.mechanism} {row.law} {charged} {digest(row.sha256)} {cost}]")
    return " ".join(texts) or "none"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.9g}"


def _record(r: t.RoundRecord) -> str:
    noisy = "" if r.noisy_gradient is None else f" noisy={digest(r.noisy_gradient)}"
    batch = digest(r.batch) if len(r.batch) else "none"
    return f"{_payloads(r.payloads)} batch={batch} checkpoint={_state(r.checkpoint)}{noisy} rows={_rows(r.rows)}"


def agent_text(thing: t.AgentEvent | t.AgentEffect) -> str:
    """One line for an event or an effect of an agent's machine."""
    match thing:
        case t.Started(go):
            return f"Started go={go}"
        case t.Go(through) | t.AllDurable(through) | t.Prune(through):
            return f"{type(thing).__name__} through={through}"
        case t.StopRequested(reason):
            return f"StopRequested {reason!r}"
        case t.VectorReceived(sender, payload):
            return f"VectorReceived from={sender + 1} {_payloads((payload,))}"
        case t.Advanced(state):
            return f"Advanced {_state(state)}"
        case t.FinalReady() | t.SaveFinal():
            return f"{type(thing).__name__} x={digest(thing.x)}"
        case t.ReleaseReady():
            noisy = "" if thing.noisy_gradient is None else f" noisy={digest(thing.noisy_gradient)}"
            return f"ReleaseReady {_payloads(thing.payloads)} {_state(thing.state)}{noisy}"
        case t.Persisted(k) | t.StateKept(k):
            return f"{type(thing).__name__} k={k}"
        case t.PeerNeeds():
            return (
                f"PeerNeeds peer={thing.peer + 1} X>={thing.x_from} Y>={thing.y_from} mixed_before={thing.mixed_before}"
            )
        case t.PeerGone(peer):
            return f"PeerGone peer={peer + 1}"
        case t.Advance():
            own = _payloads(thing.own) or "none"
            record = "fresh" if thing.record is None else f"record {thing.record.k}"
            inputs = f"x_in={_inputs(thing.received.get('X', {}))} y_in={_inputs(thing.received.get('Y', {}))}"
            return f"Advance from={_state(thing.state)} {inputs} own={own} batch={record}"
        case t.AdvanceFinal():
            x_in, own = _inputs(thing.received["X"]), _payloads(thing.own)
            return f"AdvanceFinal from={_state(thing.state)} x_in={x_in} own={own}"
        case t.DrawRelease(state):
            return f"DrawRelease {_state(state)}"
        case t.Persist(record):
            return f"Persist k={record.k} {_record(record)}"
        case t.KeepState(state):
            return f"KeepState {_state(state)}"
        case t.Send(peer, payloads):
            return f"Send peer={peer + 1} {_payloads(payloads)}"
        case t.Resend(peer, k, streams):
            return f"Resend peer={peer + 1} k={k} streams={''.join(streams)}"
        case t.Evaluate(k, x):
            return f"Evaluate k={k} x={digest(x)}"
        case t.ReportDone(k, durable):
            return f"ReportDone k={k} durable={durable}"
        case t.ReportStall():
            missing = " ".join(f"{stream} of {j + 1}" for j, stream in thing.missing)
            return f"ReportStall k={thing.k} missing=({missing}) since={thing.since_ns}"
        case t.Finish(status, reason):
            return f"Finish {status} {reason!r}"
        case t.FinalSaved() | t.Dismissed() | t.Tick():
            return type(thing).__name__
    raise TypeError(f"no text for {thing!r}")


def coordinator_text(thing: co.CoordinatorEvent | co.CoordinatorEffect) -> str:
    """One line for an event or an effect of the coordinator's machine."""
    match thing:
        case co.AgentJoined():
            held = "" if thing.released is None else f" released={thing.released}"
            return (
                f"AgentJoined {thing.name} done={thing.done} durable={thing.durable_through}{held} "
                f"finished={thing.finished}"
            )
        case co.AgentDone(name, k, durable):
            return f"AgentDone {name} k={k} durable={durable}"
        case co.AgentEdges(name, report):
            lacks = " ".join(f"{lack.sender}:{lack.silent_ns}" for lack in report.lacks)
            down = " ".join(f"{d.receiver}:{d.for_ns}:{d.cause!r}" for d in report.down)
            return f"AgentEdges {name} k={report.k} waited={report.waited_ns} lacks=({lacks}) down=({down})"
        case co.AgentHeard(name) | co.AgentFinished(name) | co.AgentGone(name):
            return f"{type(thing).__name__} {name}"
        case co.AgentRefused() | co.AgentFailed():
            return f"{type(thing).__name__} {thing.name} {thing.reason!r} exit={int(thing.exit_code)}"
        case co.StopRun(reason, code) | co.BroadcastStop(reason, code):
            return f"{type(thing).__name__} {reason!r} exit={int(code)}"
        case co.BroadcastStart(go):
            return f"BroadcastStart go={go}"
        case co.Broadcast(message):
            return f"Broadcast {agent_text(message)}"
        case co.Warn(message):
            return f"Warn {message!r}"
        case co.Conclude():
            return f"Conclude {thing.status} exit={int(thing.exit_code)} {thing.reason!r}"
        case co.PauseRequested() | co.ResumeRequested() | co.Dismiss() | t.Tick():
            return type(thing).__name__
    raise TypeError(f"no text for {thing!r}")


# --- the wire -------------------------------------------------------------------------------------------------------


def canonical(run: RunConfig) -> tuple[str, str]:
    """The run as agents compare it: (JSON text, its SHA-256 in hex)."""
    return canonical_json(run), run_sha256(run)


def outcome_text(outcome: Outcome) -> str:
    """How a coordinator ended."""
    conclude, summary = outcome.conclude, outcome.summary
    rounds = "no summary" if summary is None else f"{summary.status} after {summary.rounds} rounds"
    return f"{conclude.status}, exit {int(conclude.exit_code)}: {conclude.reason} ({rounds})"


def claim(out: Path, run: RunConfig, run_id: bytes) -> None:
    """Make ``out`` the folder of a run that has this id: ids come from entropy otherwise."""
    out.mkdir(parents=True)
    document = {"run_id": run_id.hex(), "run_sha256": canonical(run)[1], "keystream": "test", "by": "agents"}
    (out / "run_id.json").write_text(json.dumps(document), encoding="utf-8")


def costs(**by_accountant: float) -> coordinator_pb2.Epsilon:
    """What a report says was spent."""
    return coordinator_pb2.Epsilon(costs=by_accountant)


def costs_of(epsilon: coordinator_pb2.Epsilon) -> dict[str, float]:
    """The same, read."""
    return dict(epsilon.costs)


MUTANTS: dict[str, tuple[type, str, Any]] = {
    "no head is checked": (Session, "_is_the_ledger", lambda *_: True),
    "no twin is seen": (Membership, "_doubt", Membership._admit),
}
"""Daemons that leave a check out: (class, attribute, what stands there instead)."""


def fixed_noise() -> contextlib.AbstractContextManager[object]:
    """The system's noise with a key that does not change: a policy refuses a test keystream."""
    return mock.patch.object(node_module, "_fresh_key", lambda: (bytes(16), bytes(16)))
