"""Agents whose gradients somebody wrote down: what an audit runs through the daemons' own release path."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import network_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig
from dpgt_node.learning.common import Metrics, shape_hash
from dpgt_node.privacy.laws.noise import ByteStream, Keystream, Purpose, Sampler
from dpgt_node.privacy.laws.sampler import uniform_subset
from dpgt_node.protocol.types import Advance, DrawRelease, Payload, RoundRecord
from dpgt_node.sim.simulate import build_agents
from dpgt_node.sim.world import Observer, World
from dpgt_node.types import F64, I64, Stream, WireDtype
from dpgt_node.values import dataclass

Vectors = dict[tuple[int, Stream, int], F64]
"""Released vectors by (agent, stream, k)."""
Script = Callable[[int, F64, I64], F64]
"""``gradient(r, x, batch)`` of release r, float64 (d,), divisor m."""


@dataclass(slots=True)
class ScriptedOracle:
    """An oracle of ``samples`` samples whose gradient is ``script``; it counts releases, ``r`` is the next one."""

    dimension: int
    samples: int | None
    script: Script
    r: int = 0
    tested: int = 0
    sample_size: int = 0

    @property
    def shape_sha256(self) -> str:
        return shape_hash(("x", (self.dimension,)))

    def initial(self) -> F64:
        return np.zeros(self.dimension)

    def draw_batch(self, m: int, stream: ByteStream) -> I64:
        return uniform_subset(stream, m if self.samples is None else self.samples, m)

    def gradient(self, x: F64, batch: I64) -> F64:
        """What the script says of this release."""
        self.r += 1
        return self.script(self.r - 1, x, batch)

    def class_sums(self, batch: I64) -> F64:
        """The script says what the first release is of, too."""
        return self.gradient(self.initial(), batch)

    def under(self, share: float) -> ScriptedOracle:
        """The script knows every release's clip."""
        return self

    def evaluate(self, x: F64, samples: int | None = None) -> Metrics:
        return Metrics()

    def inputs(self, batch: I64) -> F64:
        return np.empty(0)

    def labels(self, batch: I64) -> I64:
        return np.empty(0, dtype=np.int64)


class _Switch:
    """The keystream of whatever run is being played."""

    def __init__(self) -> None:
        self.now: Keystream | None = None

    def stream(self, k: int, purpose: Purpose) -> ByteStream:
        assert self.now is not None
        return self.now.stream(k, purpose)


class Alone:
    """Agent ``index`` of ``run`` while all others send zeros (a guarantee holds whatever they send); any number of
    runs, one after the other, each with the noise of its own keystream.
    """

    def __init__(self, run: RunConfig, index: int, oracle: ScriptedOracle, sampler: Sampler) -> None:
        topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
        self._K, self._index, self._oracle, self._keystream = run.K, index, oracle, _Switch()
        self._work = AgentWork(run, topology, schedule, index, oracle, self._keystream, sampler)
        incoming = network_of(run, topology).incoming(index)
        self._incoming = {stream: tuple(j for j, _ in edges) for stream, edges in incoming.items()}
        self._nothing = np.zeros(oracle.dimension)

    @property
    def wire_dtype(self) -> WireDtype:
        return self._work.wire_dtype

    def play(self, keystream: Keystream) -> Vectors:
        """What all released in rounds 0..K, the zeros included.  Raises Diverged."""
        self._keystream.now, self._oracle.r = keystream, 0
        others = {(j, stream): self._nothing for stream, js in self._incoming.items() for j in js}
        vectors: Vectors = {}
        state = self._work.advance(Advance(None)).state
        for k in range(self._K + 1):
            release = self._work.release(DrawRelease(state))
            vectors.update({(j, stream, k): zeros for (j, stream), zeros in others.items()})
            _keep(vectors, self._index, release.payloads)
            if k < self._K:
                received = {stream: {j: vectors[j, stream, k] for j in js} for stream, js in self._incoming.items()}
                state = self._work.advance(Advance(release.state, received, release.payloads)).state
        return vectors


def together(run: RunConfig, oracles: Sequence[ScriptedOracle], test_keystream: str | None) -> Vectors:
    """What all agents release in a whole run, over the in-memory network."""
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    vectors: Vectors = {}

    def persisted(i: int, record: RoundRecord) -> None:
        _keep(vectors, i, record.payloads)

    agents = build_agents(run, topology, schedule, tuple(oracles), test_keystream)
    World(run.graph.agents, agents, run.K, observer=Observer(persisted=persisted)).run()
    return vectors


def _keep(vectors: Vectors, agent: int, payloads: Sequence[Payload]) -> None:
    for payload in payloads:
        vectors[agent, payload.stream, payload.k] = payload.array()
