"""Agents whose gradients somebody wrote down: what an audit runs through the daemons' own release path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig
from dpgt_node.learning.common import Metrics, shape_hash
from dpgt_node.privacy.accountant import AgentAccount
from dpgt_node.privacy.noise import ByteStream, Keystream, Sampler
from dpgt_node.privacy.sampler import uniform_subset
from dpgt_node.protocol.types import F64, I64, Advance, DrawRelease, Payload, RoundRecord, Stream
from dpgt_node.sim.simulate import build_agents
from dpgt_node.sim.world import Observer, World

Vectors = dict[tuple[int, Stream, int], F64]
"""Released vectors by (agent, stream, k)."""
Script = Callable[[int, F64, I64], F64]
"""``gradient(k, x, batch)``, float64 (d,), divisor m."""


@dataclass(slots=True)
class ScriptedOracle:
    """An oracle of ``samples`` samples whose gradient is ``script``; rounds are counted, so one serves one run."""

    dimension: int
    samples: int | None
    script: Script
    k: int = 0
    tested: int = 0
    sample_size: int = 0

    @property
    def shape_sha256(self) -> str:
        """See ``Oracle``."""
        return shape_hash(("x", (self.dimension,)))

    def initial(self) -> F64:
        """Zero."""
        return np.zeros(self.dimension)

    def draw_batch(self, m: int, stream: ByteStream) -> I64:
        """A uniformly distributed m-subset."""
        return uniform_subset(stream, m if self.samples is None else self.samples, m)

    def gradient(self, x: F64, batch: I64) -> F64:
        """What the script says of this round."""
        self.k += 1
        return self.script(self.k - 1, x, batch)

    def evaluate(self, x: F64, samples: int | None = None) -> Metrics:
        """None."""
        return Metrics()

    def inputs(self, batch: I64) -> F64:
        """None."""
        return np.empty(0)

    def labels(self, batch: I64) -> I64:
        """None."""
        return np.empty(0, dtype=np.int64)


def alone(
    run: RunConfig,
    index: int,
    oracle: ScriptedOracle,
    keystream: Keystream,
    sampler: Sampler,
    *,
    account: AgentAccount | None = None,
) -> Vectors:
    """What agent ``index`` releases in rounds 0..K when all others send zeros (a guarantee holds whatever they send).

    The zeros are among the vectors.  ``account``: the same agent's, computed already.  Raises Diverged.
    """
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    work = AgentWork(run, topology, schedule, index, oracle, keystream, sampler)
    if account is not None:
        work.account.share(account)
    in_R, in_C = (tuple(j for j, _ in edges) for edges in (topology.in_R(index), topology.in_C(index)))
    nothing = np.zeros(oracle.dimension)
    vectors: Vectors = {}
    state = work.advance(Advance(None, {}, {})).state
    for k in range(run.K + 1):
        release = work.release(DrawRelease(state))
        _keep(vectors, index, release.x, release.y)
        vectors.update({(j, "X", k): nothing for j in in_R if j != index})
        vectors.update({(j, "Y", k): nothing for j in in_C if j != index})
        if k < run.K:
            x_in = {j: vectors[j, "X", k] for j in in_R}
            y_in = {j: vectors[j, "Y", k] for j in in_C}
            state = work.advance(Advance(release.state, x_in, y_in, (release.x, release.y))).state
    return vectors


def together(run: RunConfig, oracles: Sequence[ScriptedOracle], test_keystream: str | None) -> Vectors:
    """What all agents release in a whole run, over the in-memory network."""
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    vectors: Vectors = {}

    def persisted(i: int, record: RoundRecord) -> None:
        _keep(vectors, i, record.x, record.y)

    agents = build_agents(run, topology, schedule, tuple(oracles), test_keystream)
    World(run.graph.agents, agents, run.K, observer=Observer(persisted=persisted)).run()
    return vectors


def _keep(vectors: Vectors, agent: int, *payloads: Payload) -> None:
    for payload in payloads:
        vectors[agent, payload.stream, payload.k] = payload.array()
