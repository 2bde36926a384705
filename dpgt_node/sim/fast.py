"""``simulate --fast``: the same run with all agents as rows of matrices, without messages, state machines or ledgers.

Same schedule, same outputs, and the same randomness for the same purpose: under a test keystream every noise value and
every batch is the one that :mod:`dpgt_node.sim.simulate` draws.  Only sums run in another order, so values are not the
same bits: they agree to :data:`TOLERANCE` relative to the largest entry on runs that converge (a run that blows up
blows rounding errors up with it).  On a float32 wire a rounding error of 1e-16 can tip a released value to the next
float32 number, so there the tolerance is :data:`TOLERANCE_FLOAT32`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dpgt_node.agent.work import Diverged, wire_dtype_of, without_nan
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule, Stream
from dpgt_node.config import RunConfig
from dpgt_node.errors import ExitCode
from dpgt_node.learning.batched import batched
from dpgt_node.learning.oracle import Oracle
from dpgt_node.privacy.keystream import AesCtrKeystream, TestKeystream
from dpgt_node.privacy.noise import F64, ByteStream, Purpose
from dpgt_node.privacy.sampler import CHUNK, I64, LaplaceSampler, laplace
from dpgt_node.protocol.coordinator import Conclude
from dpgt_node.report.recorder import AgentResult, RunRecorder
from dpgt_node.report.summary import Summary
from dpgt_node.sim.matrix import MatrixForm
from dpgt_node.sim.simulate import build_oracles, write_results

TOLERANCE = 1e-9
TOLERANCE_FLOAT32 = 1e-5

_FINISHED = Conclude("finished", ExitCode.DONE, "every agent finished")
_STOPPED = Conclude("stopped", ExitCode.STOPPED, "interrupted")


class FastRun:
    """The recursion of one run, round by round.

    ``x``, ``y``, ``g``: float64 (n, d), x_k, y_k and g_k of all agents (y and g have no value of round K+1).  ``k``:
    the round they belong to.  Raises Diverged from every method that computes.
    """

    def __init__(self, run: RunConfig, oracles: Sequence[Oracle], test_keystream: str | None) -> None:
        # Configuration lets nothing else through; another law would be drawn wrongly here.
        assert (run.algorithm.mechanism, run.noise.law) == ("paper", "laplace")
        topology, self._schedule = Topology.from_config(run.graph), Schedule.from_config(run)
        self._names, self._K = topology.names, run.K
        self._form = MatrixForm.build(topology, self._schedule)
        self._oracles, self._gradients = oracles, batched(oracles)
        self._m = [self._schedule.m_for(oracle.samples) for oracle in oracles]
        self._float32 = wire_dtype_of(run, oracles[0].dimension) == "float32"
        n = len(oracles)
        # One stream serves all agents where nothing has to be repeatable: agents need independent bytes, not own keys.
        self._keystreams: list[AesCtrKeystream] | list[TestKeystream]
        if test_keystream is None:
            self._keystreams = [AesCtrKeystream(os.urandom(16), os.urandom(16))] * n
        else:
            self._keystreams = [TestKeystream(test_keystream, i) for i in range(n)]
        self._scales: dict[tuple[Stream, int], F64] = {}
        self.k = 0
        self.x: F64 = np.stack([oracle.initial() for oracle in oracles])
        self.g = self._gradient(0, self.x)
        self.y = self.g.copy()

    def step(self) -> None:
        """Round k: release, mix, and (but for the last round) the next gradients and trackers."""
        k = self.k
        with np.errstate(all="ignore"):
            x_released = self._release("X", self.x)
            y_released = self._release("Y", self.y)
            x = self._checked(self._form.next_x(self.x, self.y, x_released), k + 1, "x")
            if k < self._K:
                g = self._gradient(k + 1, x)
                self.y, self.g = self._form.next_y(self.y, y_released, self.g, g), g
        self.x, self.k = x, k + 1

    def _gradient(self, k: int, x: F64) -> F64:
        draws = zip(self._oracles, self._m, self._streams(k, "batch"), strict=True)
        batches: list[I64] = [oracle.draw_batch(m, stream) for oracle, m, stream in draws]
        return self._checked(self._gradients(x, batches), k, "the gradient")

    def _release(self, stream: Stream, values: F64) -> F64:
        """What every receiver mixes: values + noise, rounded as the wire rounds."""
        scales = self._scale(stream)
        released = perturb(values, scales, self._streams(self.k, stream)) if scales.any() else values
        if self._float32:
            released = released.astype(np.float32).astype(np.float64)
        return self._checked(released, self.k, stream.lower())

    def _scale(self, stream: Stream) -> F64:
        """sigma_k (n,)."""
        noise = self._schedule.zeta if stream == "X" else self._schedule.eta
        moving = self._schedule.kind == "S1" and noise is not None and noise.kind == "exponent"
        key = (stream, self.k if moving else 0)
        if key not in self._scales:
            if moving:
                self._scales.pop((stream, self.k - 1), None)
            n = len(self._names)
            self._scales[key] = np.array([self._schedule.sigma(stream, i, self.k) for i in range(n)])
        return self._scales[key]

    def _streams(self, k: int, purpose: Purpose) -> list[ByteStream]:
        return [keystream.stream(k, purpose) for keystream in self._keystreams]

    def _checked(self, values: F64, k: int, what: str) -> F64:
        if not np.isfinite(np.add.reduce(values, axis=None)):
            for name, row in zip(self._names, values, strict=True):
                if not np.isfinite(row).all():
                    raise Diverged.at(name, k, what)
        return values


def perturb(values: F64, scales: F64, streams: Sequence[ByteStream]) -> F64:
    """``values`` (n, d) + Lap(scales[i]) in row i: a new matrix, the values of ``LaplaceSampler.perturb`` row by row.

    ``scales`` (n,) >= 0; 0 is no noise.  Takes 8 d bytes of each agent's stream, in the order of the agents.
    """
    n, d = values.shape
    out = np.empty_like(values)
    if 2 * d > CHUNK:  # long rows: the sampler already works in pieces that stay in the cache
        sampler = LaplaceSampler()
        for i in range(n):
            out[i] = sampler.perturb(values[i], float(scales[i]), streams[i]) if scales[i] > 0.0 else values[i]
        return out
    rows = CHUNK // d
    for start in range(0, n, rows):
        part = slice(start, start + rows)
        noise = laplace(_Joined(streams[part]), values[part].size, 1.0).reshape(values[part].shape)
        noise *= scales[part, None]
        np.add(values[part], noise, out=out[part])
    return out


class _Joined:
    """Equal shares of several streams, one after the other, as one."""

    __slots__ = ("_streams",)

    def __init__(self, streams: Sequence[ByteStream]) -> None:
        self._streams = streams

    def take(self, nbytes: int) -> bytes:
        share = nbytes // len(self._streams)
        return b"".join([stream.take(share) for stream in self._streams])


def simulate_fast(
    run: RunConfig,
    out: Path,
    run_id: bytes,
    *,
    data_root: Path | None = None,
    test_keystream: str | None = None,
    on_round: Callable[[int, RunRecorder, float], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[Conclude, Summary]:
    """Run ``run`` and write launch's outputs under ``out``; arguments and results as in ``simulate``."""
    oracles = build_oracles(run, data_root)
    names, study = run.graph.agents, run.evaluate.metrics == "study"
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    recorder = RunRecorder(
        out,
        run,
        topology,
        schedule,
        [oracle.samples for oracle in oracles],
        dimension=oracles[0].dimension,
        keystream="test" if test_keystream is not None else None,
    )
    begin = time.monotonic()
    state = FastRun(run, oracles, test_keystream)

    def evaluate() -> None:
        with np.errstate(all="ignore"):
            metrics = [without_nan(oracle.evaluate(x)) for oracle, x in zip(oracles, state.x, strict=True)]
        for name, m, x in zip(names, metrics, state.x, strict=True):
            recorder.evaluated(name, state.k, m if study else None, time.monotonic() - begin)
            if study:
                recorder.state(name, state.k, x)

    conclude = _FINISHED
    while True:
        if on_round is not None:
            on_round(state.k, recorder, time.monotonic() - begin)
        if state.k > run.K:
            break
        if should_stop():
            conclude = _STOPPED
            break
        if state.k % run.evaluate.every == 0:
            evaluate()
        state.step()
        if state.k > run.K:
            evaluate()
    sent = _bytes_a_round(run, topology, oracles[0].dimension)
    summary = write_results(
        run,
        out,
        recorder,
        run_id,
        conclude,
        state.k,
        time.monotonic() - begin,
        [AgentResult(2 * state.k, state.k * nbytes) for nbytes in sent],
        [x if conclude is _FINISHED else None for x in state.x],
    )
    return conclude, summary


def _bytes_a_round(run: RunConfig, topology: Topology, dimension: int) -> list[int]:
    """What each agent would send in one round: its vectors, once for each edge to another agent."""
    vector = dimension * (8 if wire_dtype_of(run, dimension) == "float64" else 4)
    return [vector * sum(len(streams) for streams in topology.peers(i).values()) for i in range(topology.n)]
