"""``simulate --fast``: the same run with all agents as rows of matrices, without messages, state machines or ledgers.

Same schedule, same outputs, and the same randomness for the same purpose: under a test keystream every batch and every
word of noise is the one that :mod:`dpgt_node.sim.simulate` draws.  Only sums run in another order, so values are not
the same bits: they agree to :data:`TOLERANCE` relative to the largest entry on runs that converge (a run that blows up
blows rounding errors up with it).  Two places turn a rounding error into more, seldom:

- Samplers round the private part to a grid, so a difference e there moves a released value by one cell g with
  probability e/g (g is 0.011 scales under Laplace, 1/256 under Gauss).  On digits and the demo e/g is below 2e-12 and
  adds up to about 1e-8 over a run of a million draws: one run in a hundred million shows a cell, and fails TOLERANCE.
- A float32 wire can round the other way, with a probability of about 1e-9 a value.  That costs 6e-8, hence
  :data:`TOLERANCE_FLOAT32`, and each time up to 3e-5 (expected number) released values a whole cell off.

Torch models compute in float32 unless their precision is float64: a gradient taken in one pass for all agents (CUDA),
or at an x whose last bits differ, is off by some 1e-7, hence :data:`TOLERANCE_TORCH` without noise; with noise single
values may be a cell off besides.  CUDA's own sums need not be repeatable, so a simulation there has no bits to compare.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dpgt_node.agent.encoding import Diverged, OutOfReach, coded, wire_dtype_of
from dpgt_node.agent.noise import check_range, sampler_for
from dpgt_node.agent.work import without_nan
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import codes_of, method_of, network_of
from dpgt_node.algo.methods.base import Exchanged
from dpgt_node.algo.methods.dsgd.central import curated
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig
from dpgt_node.config.privacy.cancelling import masks
from dpgt_node.errors import Broken, ConfigError, ExitCode
from dpgt_node.learning.common import Metrics, Oracle
from dpgt_node.learning.nets.batched import Gradients, batched
from dpgt_node.learning.nets.models import SoftmaxOracle, evaluated_together
from dpgt_node.learning.releases import KEPT, Sources
from dpgt_node.learning.tables import Table
from dpgt_node.privacy.cancelling.masks import MaskGraph
from dpgt_node.privacy.counts.code import BinomialCode
from dpgt_node.privacy.laws.compiled import worth_compiling
from dpgt_node.privacy.laws.keystream import AesCtrKeystream, TestKeystream
from dpgt_node.privacy.laws.noise import ByteStream, CancellingSampler, Purpose
from dpgt_node.privacy.laws.pairs import pair_stream
from dpgt_node.protocol.coordinator.barrier import Conclude
from dpgt_node.record.recorder import AgentResult, RunRecorder
from dpgt_node.record.released import ReleasedSum, window_start
from dpgt_node.record.summary import Summary
from dpgt_node.sim import saved
from dpgt_node.sim.perturbing import perturb
from dpgt_node.sim.rows import Rows
from dpgt_node.sim.simulate import build_oracles, forget, pair_keys_for, ready_recorder, save_released, write_results
from dpgt_node.sim.team import Team
from dpgt_node.types import F64, I64, Stream

TOLERANCE = 1e-9
TOLERANCE_TORCH = 1e-4
TOLERANCE_FLOAT32 = 1e-5

_SHARED = 1 << 18
"""Numbers of a matrix from which on threads save more than they cost."""
_FINISHED = Conclude("finished", ExitCode.DONE, "every agent finished")
_STOPPED = Conclude("stopped", ExitCode.STOPPED, "interrupted")


class FastRun:
    """The recursion of one run, round by round.

    ``x``: float64 (n, d), x_k of all agents.  ``k``: the round it belongs to.  Raises Diverged from every method that
    computes, ConfigError as ``AgentWork`` does.  ``threads``: that share the work; what they compute is the same.
    """

    def __init__(self, run: RunConfig, oracles: Sequence[Oracle], test_keystream: str | None, threads: int = 1) -> None:
        topology, self._schedule = Topology.from_config(run.graph), Schedule.from_config(run)
        n = len(oracles)
        for i in range(n):
            check_range(run, topology, self._schedule, i)
        d = oracles[0].dimension
        threads = threads if n * d >= _SHARED else 1
        self._names, self._K = topology.names, run.K
        self._oracles, self._sources = oracles, [Sources(oracle, self._schedule) for oracle in oracles]
        self._gradients: dict[tuple[bool, float], Gradients] = {}
        self._tables, self._batches = [Table(oracle) for oracle in oracles], list[I64]()
        self._float32 = wire_dtype_of(run, oracles[0].dimension) == "float32"
        self._codes = codes_of(run)
        self._team = Team(threads)
        # One stream serves all agents where nothing has to be repeatable: agents need independent bytes, not own keys.
        # But no two threads.
        self._keystreams: list[AesCtrKeystream] | list[TestKeystream]
        if test_keystream is None:
            keys = [AesCtrKeystream(os.urandom(16), os.urandom(16)) for _ in range(1 if threads == 1 else n)]
            self._keystreams = keys if len(keys) == n else keys * n
        else:
            self._keystreams = [TestKeystream(test_keystream, i) for i in range(n)]
        compiled = worth_compiling(n * d * len(self._schedule.releases))
        self._samplers = [sampler_for(run, compiled) for _ in range(threads)]
        self._masks, self._r = masks(run), run.noise.cancel or 0
        self._pair_keys = pair_keys_for(run, test_keystream)
        self._scales: dict[Stream, tuple[int, F64]] = {}
        self._finite: F64 | None = None  # where the newest gradient was taken; methods leave it as it is
        self.k = 0
        self.sums = [ReleasedSum.empty(bytes(16), window_start(run.K), d) for _ in oracles]
        """Of released x, by agent."""
        self.sent: F64 = np.empty((0, d))
        """x̆ of the last round, by agent."""
        with np.errstate(all="ignore"):
            x0 = np.stack([oracle.initial() for oracle in oracles])
            self._rows = Rows(run, topology, self._schedule, self, x0, self._team)

    @property
    def x(self) -> F64:
        """x_k of all agents."""
        return self._rows.x

    def arrays(self) -> tuple[int, saved.Arrays]:
        """Round k and everything that later rounds are a function of, but for what they draw."""
        held = {f"rows/{name}": value for name, value in self._rows.vectors.items()}
        sums = {f"sum/{i}": total.total for i, total in enumerate(self.sums)}
        window = np.array([self.sums[0].first, self.sums[0].through])
        return self.k, {**held, **sums, "window": window, "sent": self.sent}

    def go_on(self, k: int, arrays: saved.Arrays) -> None:
        """Be where :meth:`arrays` was taken.  ConfigError: by another version, which had other names."""
        # Before a release the state holds more than in a round that releases nothing.
        vectors = {name.removeprefix("rows/"): array for name, array in arrays.items() if name.startswith("rows/")}
        if not vectors.keys() >= set(self._rows.state):
            message = "was written by another version: remove it to begin again from round 0"
            raise ConfigError.one(saved.SAVED_FILE, "", message)
        self.k, self.sent = k, arrays["sent"]
        self._rows.go_on(vectors)
        for i, total in enumerate(self.sums):
            total.first, total.through = (int(value) for value in arrays["window"])
            total.total = arrays[f"sum/{i}"]

    def step(self) -> None:
        """Round k: release, mix, and (but for the last round) what the next one begins with."""
        last = self.k == self._K
        with np.errstate(all="ignore"):
            self._rows.step(self.k, last)
            self.k += 1
            if last:  # every other x meets a check on its way to a gradient or to the wire
                self._checked(self.x, self.k, "x")
                self._team.forget()

    def evaluated(self, samples: int | None) -> list[Metrics]:
        """Every agent's metrics at its x_k, over at most ``samples`` of each kind."""
        found, x = dict[int, Metrics](), self.x

        softmax = [oracle for oracle in self._oracles if isinstance(oracle, SoftmaxOracle)]
        if len(softmax) < len(x):  # torch has threads of its own, and agents share modules
            return [without_nan(oracle.evaluate(row, samples)) for oracle, row in zip(self._oracles, x, strict=True)]

        def some(rows: slice, _: int) -> None:
            metrics = evaluated_together(softmax[rows], x[rows], samples)
            found.update(zip(range(rows.start, rows.stop), map(without_nan, metrics), strict=True))

        self._team.over(len(x), some)
        return [found[i] for i in range(len(x))]

    def gradient(self, k: int, x: F64) -> F64:
        self._finite = self._checked(x, k, "x")
        return self._on(k, x, self._drawn(k))

    def again(self, k: int, x: F64) -> F64:
        return self._on(k, x, self._batches)

    def whole(self, k: int, x: F64) -> F64:
        self._checked(x, k, "x")
        return self._on(k, x, [table.everything for table in self._tables])

    def table(self, x: F64) -> F64:
        return _padded([table.at(row) for table, row in zip(self._tables, x, strict=True)])

    def exchanged(self, k: int, x: F64, table: F64) -> Exchanged:
        self._checked(x, k, "x")
        rows = zip(self._tables, x, self._drawn(k), table, strict=True)
        found = [one.exchanged(at, batch, held[: math.prod(one.shape)]) for one, at, batch, held in rows]
        changes, drifts = (np.stack(one) for one in ([f.change for f in found], [f.drift for f in found]))
        return Exchanged(self._checked(changes, k, "the gradient"), _padded([f.table for f in found]), drifts)

    def coined(self, k: int, private: F64, code: BinomialCode) -> F64:
        rows = zip(self._checked(private, k, "the gradient"), self._streams(k, "Y"), strict=True)
        return code.codes.values(np.stack([code.drawn(row, stream) for row, stream in rows]))

    def _drawn(self, k: int) -> list[I64]:
        draws = zip(self._sources, self._streams(k, "batch"), strict=True)
        self._batches = [sources.batch(k, stream) for sources, stream in draws]
        return self._batches

    def _on(self, k: int, x: F64, batches: list[I64]) -> F64:
        key = self._sources[0].key(k)
        if key not in self._gradients:
            if len(self._gradients) >= KEPT:
                self._gradients.clear()
            self._gradients[key] = batched(
                [sources.at(k) for sources in self._sources], self._team.over, self._team.empty
            )
        return self._checked(self._gradients[key](x, batches), k, "the gradient")

    def perturb(self, stream: Stream, k: int, private: F64, public: F64 | None = None) -> F64:
        scales = self._scale(stream, k)
        if not scales.any():
            return private.copy() if public is None else self._rows.alone.plus(private, public)
        clipped = self._clipped
        try:
            if self._masks is not None:
                noisy = self._perturb_pairs(self._masks, k, private, scales, self._streams(k, stream))
                if public is not None:
                    noisy += public
            else:
                noisy = perturb(self._samplers, private, scales, self._streams(k, stream), self._team, public)
        except ValueError:
            self._checked(private, k, stream.lower())
            raise
        if self._clipped != clipped:
            reaches = [self._samplers[0].range(scale) for scale in scales.tolist()]
            beyond = int(np.argmax(np.abs(private).max(axis=1) > reaches))
            raise OutOfReach.beyond(self._names[beyond], k, stream, reaches[beyond])
        return noisy

    def _perturb_pairs(self, masks: MaskGraph, k: int, private: F64, scales: F64, streams: Sequence[ByteStream]) -> F64:
        pairs = [(i, j, pair_stream(self._pair_keys[i].key(j, k))) for i, j in masks.edges]
        sampler, (scale,) = self._samplers[0], set(scales.tolist())
        if not isinstance(sampler, CancellingSampler):
            raise Broken("this sampler draws no noise that cancels")
        return sampler.perturb_pairs(private, scale, streams, pairs, self._r)

    def wire(self, stream: Stream, k: int, values: F64) -> F64:
        """See ``rows.Work``: rounded as the wire rounds."""
        if self._codes is not None:
            rows = zip(self._checked(values, k, stream.lower()), self._names, strict=True)
            values = np.stack([self._codes.values(coded(self._codes, row, name, k, stream)) for row, name in rows])
        elif self._float32:
            values = _through_float32(values)
        if stream == "X":
            self.sent = values
            if k >= self.sums[0].first:
                for total, row in zip(self.sums, values, strict=True):
                    total.add(k, row)
        return values if values is self._finite else self._checked(values, k, stream.lower())

    @property
    def _clipped(self) -> int:
        return sum(sampler.clipped for sampler in self._samplers)

    def _scale(self, stream: Stream, k: int) -> F64:
        """sigma_k (n,)."""
        noise = self._schedule.zeta if stream == "X" else self._schedule.eta
        moving = self._schedule.kind == "S1" and noise is not None and noise.kind == "exponent"
        at = k if moving or not self._schedule.alike else 0
        held = self._scales.get(stream)
        if held is None or held[0] != at:
            held = at, np.array([self._schedule.sigma(stream, i, k) for i in range(len(self._names))])
            self._scales[stream] = held
        return held[1]

    def _streams(self, k: int, purpose: Purpose) -> list[ByteStream]:
        return [keystream.stream(k, purpose) for keystream in self._keystreams]

    def _checked(self, values: F64, k: int, what: str) -> F64:
        totals = np.zeros(self._team.threads)

        def add(rows: slice, index: int) -> None:
            totals[index] = np.add.reduce(values[rows], axis=None)

        self._team.over(len(values), add)
        if not np.isfinite(totals.sum()):
            for name, row in zip(self._names, values, strict=True):
                if not np.isfinite(row).all():
                    raise Diverged.at(name, k, what)
        return values


def _through_float32(values: F64) -> F64:
    """``values`` (n, d) as float32 has them, a new matrix; row by row, for the memory."""
    out = np.empty(values.shape)
    for into, row in zip(out, values, strict=True):
        into[:] = row.astype(np.float32)
    return out


def _padded(rows: Sequence[F64]) -> F64:
    """Rows of different lengths as a matrix, zeros behind the shorter ones."""
    out = np.zeros((len(rows), max(map(len, rows))))
    for into, row in zip(out, rows, strict=True):
        into[: len(row)] = row
    return out


def simulate_fast(
    run: RunConfig,
    out: Path,
    run_id: bytes,
    *,
    data_root: Path | None = None,
    test_keystream: str | None = None,
    on_round: Callable[[int, RunRecorder, float], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    device: str = "cpu",
    threads: int = 1,
) -> tuple[Conclude, Summary]:
    """Run ``run`` and write launch's outputs under ``out``; arguments and results as in ``simulate``.

    ``device``: where torch models compute, cpu | cuda; noise and sums are the CPU's in any case.  ``threads``: of this
    process, which share the rows; the numbers are the same with one.
    """
    run = curated(run)
    oracles = build_oracles(run, data_root, device)
    names, study = run.graph.agents, run.evaluate.metrics == "study"
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    held = saved.load(out, "matrices")
    forget(out, -1 if held is None else held[0])
    recorder = ready_recorder(run, out, topology, schedule, oracles, test_keystream)
    state = FastRun(run, oracles, test_keystream, threads)
    if held is not None:
        state.go_on(*held)
    saver = saved.Saver(out, "matrices", state.arrays)
    begin, first = time.monotonic(), state.k

    def evaluate() -> None:
        if not study:  # the metrics are the agents' own, and nobody reads them here
            for name in names:
                recorder.evaluated(name, state.k, None, time.monotonic() - begin)
            return
        for name, m, x in zip(names, state.evaluated(run.evaluate.samples), state.x, strict=True):
            recorder.evaluated(name, state.k, m, time.monotonic() - begin)
            recorder.state(name, state.k, x)

    conclude = _FINISHED
    with recorder:
        while True:
            if on_round is not None:
                on_round(state.k, recorder, time.monotonic() - begin)
            if state.k > run.K:
                break
            if should_stop():
                saver.now()
                conclude = _STOPPED
                break
            saver.perhaps()
            if state.k % run.evaluate.every == 0:
                evaluate()
            state.step()
            if state.k > run.K:
                evaluate()
    for name, total, last in zip(names, state.sums, state.sent, strict=False):
        total.run_id = run_id
        save_released(out, name, last, total)
    sent, streams = _bytes_a_round(run, topology, oracles[0].dimension), len(method_of(run).streams)
    summary = write_results(
        run,
        out,
        recorder,
        run_id,
        conclude,
        state.k,
        time.monotonic() - begin,
        [AgentResult(streams * state.k, state.k * nbytes) for nbytes in sent],
        [x if conclude is _FINISHED else None for x in state.x],
        made=state.k - first,
        released_through=state.k - 1,
    )
    if conclude is _FINISHED:
        saver.done()
    return conclude, summary


def _bytes_a_round(run: RunConfig, topology: Topology, dimension: int) -> list[int]:
    """What each agent would send in one round: its vectors, once for each edge to another agent."""
    vector = dimension * np.dtype(wire_dtype_of(run, dimension)).itemsize
    network = network_of(run, topology)
    return [vector * sum(len(streams) for streams in network.peers(i).values()) for i in range(topology.n)]
