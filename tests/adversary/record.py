"""Runs of the simulator with everything that an adversary and a study see of them, in the formats of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.agent.noise import sampler_for
from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import network_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig, parse_run
from dpgt_node.learning.common import Oracle
from dpgt_node.privacy.laws.noise import Keystream, Sampler
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.types import DrawRelease, Payload, ReleaseReady, RoundRecord
from dpgt_node.record.truth import Truth, TruthRound, find_truth, write_round
from dpgt_node.sim.simulate import STALL_NEVER_NS, build_oracles, keystream_for
from dpgt_node.sim.world import Observer, SimAgent, World
from dpgt_node.wire.transcript import Header, Link, seen
from dpgt_node.wire.transcript_writer import TranscriptWriter
from tests.states import Parts, parts

RUN_ID = bytes(range(16))

RUN = """
name = "seen"
[algorithm]
mechanism = "{mechanism}"
iterations = {K}
[scheme]
kind = "S2"
alpha = {alpha}
beta = {beta}
gamma = {gamma}
p_m = 1.0
samples = {m}
[noise]
law = "{law}"
scale_zeta = {zeta}
scale_eta = {eta}
multiplier = {multiplier}
[graph]
agents = {n}
R = {R}
C = {C}
[data]
{data}
[model]
{model}
[evaluate]
metrics = "study"
[runtime]
wire_dtype = "{dtype}"
"""

# Unequal weights, self-loops on both graphs, an R-only and a C-only edge, and an agent (3) that sends no y̆ at all.
R = [[0.5, 0, 1, 0], [1, 0, 0.3, 0], [0, 1.5, 0, 0.2], [1, 0, 0, 0.7]]
C = [[0.4, 1, 0, 0], [0.7, 0, 0.6, 0], [0, 0.9, 0.2, 0], [0, 0, 1.1, 0]]


def run_of(**settings: object) -> RunConfig:
    """A run file; everything has a default."""
    values: dict[str, object] = {
        "mechanism": "paper",
        "K": 12,
        "alpha": 0.2,
        "beta": 0.15,
        "gamma": 0.1,
        "m": 20,
        "law": "laplace",
        "zeta": 0.1,
        "eta": 0.05,
        "multiplier": 1.0,
        "R": R,
        "C": C,
        "data": 'dataset = "digits"',
        "model": "",
        "dtype": "auto",
        "base": Path(),
    }
    assert not settings.keys() - values.keys() - {"n"}
    values |= settings
    values.setdefault("n", len(values["R"]))  # type: ignore[arg-type]
    return parse_run(RUN.format(**values), "test", values.pop("base"))  # type: ignore[arg-type]


@dataclass(slots=True)
class Play:
    """A finished run: released payloads in order, and its private side."""

    run: RunConfig
    payloads: list[tuple[int, Payload]]
    truth: list[tuple[int, TruthRound]]
    records: list[tuple[int, RoundRecord]] = field(default_factory=list)

    def entries(self) -> Iterable[tuple[str, str, Payload]]:
        """(sender, receiver, payload) of every message."""
        network, names = network_of(self.run, Topology.from_config(self.run.graph)), self.run.graph.agents
        for i, payload in self.payloads:
            for j, streams in network.peers(i).items():
                if payload.stream in streams:
                    yield names[i], names[j], payload

    def transcript(
        self,
        path: Path,
        *,
        links: Iterable[tuple[str, str]] | None = None,
        missing: Callable[[str, str, Payload], tuple[tuple[int, int], ...] | None] = lambda *_: (),
        observer: str | None = None,
    ) -> Path:
        """What a tap on ``links`` (None: all), or the agent ``observer``, has; ``missing`` gives the holes of one
        message, None for all of it.
        """
        tapped = None if links is None else {Link(*link) for link in links}
        if observer is None:
            header = Header("eavesdropper", links=tuple(sorted(tapped or (), key=str)), run_id=RUN_ID, source="test")
        else:
            header = Header("semi-honest", (observer,), channel="agent", run_id=RUN_ID, source="test")
        with TranscriptWriter(path, header) as writer:
            for sender, receiver, payload in self.entries():
                if tapped is not None and Link(sender, receiver) not in tapped:
                    continue
                if observer is not None and observer not in (sender, receiver):
                    continue
                holes = missing(sender, receiver, payload)
                if holes is None:
                    continue
                data = bytearray(payload.data)
                for start, end in holes:
                    data[start:end] = bytes(end - start)
                entry = seen(
                    sender, receiver, payload.k, payload.stream, payload.dtype, bytes(data), sha256=payload.sha256
                )
                if holes:
                    entry = replace(entry, missing=holes, sha256_seen=b"")
                writer.write(replace(entry, own=sender == observer))
        return path

    def study(self, out: Path) -> Truth:
        """Its ground truth, as files."""
        names = self.run.graph.agents
        for i, truth in self.truth:
            write_round(out / "agents" / names[i] / "state" / "truth", truth)
        return find_truth(out, names)

    def memory(self) -> Truth:
        """The same without files, for runs whose truth is large."""
        names = self.run.graph.agents
        kept: dict[str, dict[int, TruthRound]] = {name: {} for name in names}
        for i, truth in self.truth:
            kept[names[i]][truth.k] = truth
        return {name: _Kept(rounds) for name, rounds in kept.items()}  # type: ignore[misc]

    def observe(self, path: Path, **what: object) -> Observation:
        """What was seen, read back from a file."""
        return Observation.load([self.transcript(path, **what)], self.run)  # type: ignore[arg-type]

    def true(self, i: int, name: str) -> np.ndarray:
        """x, y or g of one agent, (rounds, d)."""
        return np.array([getattr(t, name) for j, t in self.truth if j == i])


class _Kept:
    """What AgentTruth is, in memory."""

    folder = Path("memory")

    def __init__(self, kept: dict[int, TruthRound]) -> None:
        self._kept = kept

    def rounds(self) -> tuple[int, ...]:
        return tuple(sorted(self._kept))

    def round(self, k: int) -> TruthRound:
        return self._kept[k]

    def __iter__(self) -> Iterator[TruthRound]:
        return iter(self._kept.values())


class _Work(AgentWork):
    """Shows what a study keeps of each release."""

    __slots__ = ("keep",)

    def release(self, effect: DrawRelease) -> ReleaseReady:
        ready = super().release(effect)
        if set(ready.state.vectors) != set(Parts._fields):  # another method than Algorithm 1
            found = self.private(ready.state, 0)
            self.keep(ready, found.x, found.y, found.g)
            return ready
        own = parts(ready.state)
        # Under noise-once the complete state holds g~; the raw gradient waits in the pending one.
        self.keep(ready, own.x, own.y, parts(effect.state).p if effect.state.pending else own.g)
        return ready


def play(
    run: RunConfig,
    *,
    hex_digits: str | None = "5eed",
    keystream: Callable[[int], Keystream] | None = None,
    sampler: Callable[[RunConfig], Sampler] = sampler_for,
    samples: bool = True,
    data_root: Path | None = None,
) -> Play:
    """Run ``run`` in memory.  ``keystream(i)`` and ``sampler`` are where bugs are planted."""
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    oracles, network = build_oracles(run, data_root), network_of(run, topology)
    out = Play(run, [], [])
    agents = []
    for i in range(run.n):
        machine = AgentMachine(
            network.edges(i),
            run.K,
            evaluate_every=10**9,
            run_ahead=1,
            stall_ns=STALL_NEVER_NS,
        )
        stream = keystream(i) if keystream is not None else keystream_for(hex_digits, i)
        work = _Work(run, topology, schedule, i, oracles[i], stream, sampler(run))
        work.keep = _keeper(out, i, oracles[i], samples)
        agents.append(SimAgent(machine, work))
    kept = Observer(persisted=lambda i, record: out.records.append((i, record)))
    World(run.graph.agents, agents, run.K, observer=kept).run()
    return out


def _keeper(out: Play, i: int, oracle: Oracle, samples: bool) -> Callable[..., None]:
    def keep(ready: ReleaseReady, x: np.ndarray, y: np.ndarray, g: np.ndarray) -> None:
        state = ready.state
        if out.run.algorithm.mechanism == "published-point":
            g = parts(state).g
        out.payloads += [(i, payload) for payload in ready.payloads]
        labels, inputs = np.zeros(0, dtype=np.int64), np.zeros(0)
        if samples and hasattr(oracle, "_y"):  # a data set
            full = len(state.batch) == len(oracle._y)  # then in order: no copies of the whole data set every round
            labels, inputs = (a if full else a[state.batch] for a in (oracle._y, oracle._x))
        out.truth.append((i, TruthRound(state.k, x.copy(), y.copy(), g.copy(), state.batch, labels, inputs)))

    return keep
