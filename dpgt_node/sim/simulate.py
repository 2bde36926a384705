"""``simulate``: a run file's whole run in this process, with the outputs of a real one."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dpgt_node.agent.noise import sampler_for
from dpgt_node.agent.roles import links_of
from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import method_of, network_of, rule_of
from dpgt_node.algo.methods.dsgd.central import curated
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig
from dpgt_node.config.privacy.cancelling import masks
from dpgt_node.durable import save_npy, write_whole
from dpgt_node.errors import ExitCode
from dpgt_node.learning.common import Metrics, Oracle
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.learning.tables import check_tables
from dpgt_node.privacy.laws.keystream import AesCtrKeystream, TestKeystream
from dpgt_node.privacy.laws.noise import Keystream, Sampler
from dpgt_node.privacy.laws.pairs import PAIR_KEY_BYTES, PairKeys, TestPairKeys
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.coordinator.barrier import Conclude
from dpgt_node.protocol.types import Payload, RoundRecord
from dpgt_node.record.digests import DIGESTS_FILE
from dpgt_node.record.metrics import METRICS_FILE, cut_rows
from dpgt_node.record.recorder import AgentResult, RunRecorder
from dpgt_node.record.recording import Recording
from dpgt_node.record.released import LAST_FILE, SUM_FILE, ReleasedSum, recorded, window_start
from dpgt_node.record.summary import Summary
from dpgt_node.record.tensorboard import EVENTS_FOLDER, TensorBoardWriter
from dpgt_node.sim import saved
from dpgt_node.sim.hearsay import Digesting
from dpgt_node.sim.world import Observer, SimAgent, World
from dpgt_node.types import F64

STALL_NEVER_NS = 1 << 62


def build_oracles(run: RunConfig, data_root: Path | None, device: str = "cpu") -> tuple[Oracle, ...]:
    """One oracle an agent, each with its own shard, as the daemons build them (on the CPU)."""
    oracles = tuple(build_oracle(run, i, data_root=data_root, device=device) for i in range(run.n))
    check_tables(run, oracles)
    return oracles


def keystream_for(test_keystream: str | None, index: int) -> Keystream:
    """Entropy of the system, or the test keystream."""
    if test_keystream is not None:
        return TestKeystream(test_keystream, index)
    return AesCtrKeystream(os.urandom(16), os.urandom(16))


def pair_keys_for(run: RunConfig, test_keystream: str | None) -> tuple[PairKeys, ...]:
    """The keys of every agent's pairs, by agent; () where noise is everybody's own.

    All agents are here, so nothing has to be agreed on: entropy of the system, or the test keystream.
    """
    if masks(run) is None:
        return ()
    secret = os.urandom(PAIR_KEY_BYTES).hex() if test_keystream is None else test_keystream
    return tuple(TestPairKeys(secret, i) for i in range(run.n))


def build_agents(
    run: RunConfig,
    topology: Topology,
    schedule: Schedule,
    oracles: tuple[Oracle, ...],
    test_keystream: str | None,
    sampler: Callable[[RunConfig], Sampler] = sampler_for,
    from_save: tuple[int, saved.Arrays] | None = None,
) -> tuple[SimAgent, ...]:
    """The daemons' machines and per-agent functions, without daemons; ``from_save``: (round, arrays) to go on from."""
    agents, network = [], network_of(run, topology)
    pairs = pair_keys_for(run, test_keystream)
    for i in range(run.n):
        held = None if from_save is None else saved.recovered(i, *from_save, rule_of(run).state, network.streams)
        machine = AgentMachine(
            network.edges(i),
            run.K,
            evaluate_every=run.evaluate.every,
            run_ahead=run.runtime.barrier_every,
            stall_ns=STALL_NEVER_NS,
            recovered=held,
        )
        stream = keystream_for(test_keystream, i)
        work = AgentWork(run, topology, schedule, i, oracles[i], stream, sampler(run), pairs[i] if pairs else None)
        agent = SimAgent(machine, work, links=links_of(run, i, machine.peers))
        if held is not None and from_save is not None:
            agent.records = {record.k: record for record in held.records}
            agent.releases, agent.bytes_sent = saved.counts(i, from_save[1])
        agents.append(agent)
    return tuple(agents)


def build_recordings(
    run: RunConfig,
    out: Path,
    topology: Topology,
    run_id: bytes,
    agents: Sequence[SimAgent],
    from_save: tuple[int, saved.Arrays] | None = None,
) -> dict[int, Recording]:
    """What ``[adversary]`` asks for, by agent, where an agent of a launch writes it."""
    recordings = {}
    for i, name in enumerate(topology.names):
        if recorded(run, name):
            folder = out / "agents" / name / "state"
            recordings[i] = Recording(folder, run, topology, i, run_id, agents[i].work, source=f"{name}, dpgt simulate")
            held = None
            if from_save is not None:
                held = saved.recovered(i, *from_save, rule_of(run).state, method_of(run).streams)
            recordings[i].begin(held, anew=True)
    return recordings


def ready_recorder(
    run: RunConfig,
    out: Path,
    topology: Topology,
    schedule: Schedule,
    oracles: tuple[Oracle, ...],
    test_keystream: str | None,
) -> RunRecorder:
    """A recorder with its accountants computed: here nobody waits for heartbeats meanwhile."""
    recorder = RunRecorder(
        out,
        run,
        topology,
        schedule,
        [oracle.samples for oracle in oracles],
        dimension=oracles[0].dimension,
        keystream="test" if test_keystream is not None else None,
    )
    recorder.prepare()
    recorder.prepared()
    return recorder


class _Simulation:
    """One start of a simulation: what is recorded and saved while its world runs."""

    def __init__(
        self,
        run: RunConfig,
        out: Path,
        run_id: bytes,
        *,
        data_root: Path | None,
        test_keystream: str | None,
        on_round: Callable[[int, RunRecorder, float], None] | None,
        should_stop: Callable[[], bool],
    ) -> None:
        topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
        oracles, held = build_oracles(run, data_root), saved.load(out, "agents")
        self.agents = build_agents(run, topology, schedule, oracles, test_keystream, from_save=held)
        self.first = 0 if held is None else held[0]
        """The round that this start goes on from."""
        self.done = 0
        """Rounds that all agents finished."""
        forget(out, -1 if held is None else held[0] + 1)
        self.recorder = ready_recorder(run, out, topology, schedule, oracles, test_keystream)
        self.saver = saved.Saver(out, "agents", self._state)
        self._names, self._study = run.graph.agents, run.evaluate.metrics == "study"
        self._out, self._on_round, self._should_stop = out, on_round, should_stop
        self._sums = [
            ReleasedSum.empty(run_id, window_start(run.K), self.agents[0].work.dimension) for _ in self.agents
        ]
        if held is not None:
            self._sums = [saved.sum_of(i, run_id, held[1]) for i in range(run.n)]
        self._newest = {i: a.records[max(a.records)].on("X") for i, a in enumerate(self.agents) if a.records}
        self._begin = time.monotonic()
        self._recordings = build_recordings(run, out, topology, run_id, self.agents, held)
        self.heard: Digesting | None = None
        if run.adversary.active or run.robust.on:
            if held is None:
                (out / DIGESTS_FILE).unlink(missing_ok=True)  # of rounds that are made anew
            self.heard = Digesting(run, tuple(agent.machine for agent in self.agents), out)

    def observer(self) -> Observer:
        """Who writes down what happens."""
        received = self._received if self._recordings else None
        return Observer(self._evaluated, self._round_done, self._persisted, received)

    def stopping(self) -> bool:
        """Whether the world is to stop; what there is was saved then."""
        if stops := self._should_stop():
            self.saver.now()
        return stops

    def close(self, *, whole: bool) -> float:
        """The world has ended (``whole``: the run too): recordings and released models; seconds since the start."""
        for recording in self._recordings.values():
            if whole:
                recording.finish()
            recording.close(ended=True)
        for i, x in self._newest.items():
            save_released(self._out, self._names[i], x.array(), self._sums[i])
        return time.monotonic() - self._begin

    def _state(self) -> tuple[int, saved.Arrays] | None:
        for recording in self._recordings.values():
            recording.flush()  # rounds before the save are not made again
        if self.heard is not None:
            self.heard.keep()
        return saved.agents_arrays(self.agents, self._sums)

    def _evaluated(self, i: int, k: int, x: F64, metrics: Callable[[], Metrics]) -> None:
        name = self._names[i]
        found = metrics() if self._study else None  # a local run's are the agents' own, and nobody reads them here
        self.recorder.evaluated(name, k, found, time.monotonic() - self._begin)
        if self._study:
            self.recorder.state(name, k, x)

    def _round_done(self, k: int) -> None:
        if k < self.first:  # the coordinator before it heard where the agents are
            return
        self.done = k
        if self._on_round is not None:
            self._on_round(k, self.recorder, time.monotonic() - self._begin)
        self.saver.perhaps()

    def _received(self, i: int, sender: int, payload: Payload) -> None:
        if i in self._recordings:
            self._recordings[i].received(sender, payload)

    def _persisted(self, i: int, record: RoundRecord) -> None:
        x = self._newest[i] = record.on("X")
        if record.k >= self._sums[i].first:
            self._sums[i].add(record.k, x.array())
        if i in self._recordings:
            assert record.checkpoint is not None, "these machines store the state of every round"
            self._recordings[i].released(record, record.checkpoint)


def simulate(
    run: RunConfig,
    out: Path,
    run_id: bytes,
    *,
    data_root: Path | None = None,
    test_keystream: str | None = None,
    on_round: Callable[[int, RunRecorder, float], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    order_seed: int | None = None,
) -> tuple[Conclude, Summary]:
    """Run ``run`` and write launch's outputs under ``out``.

    ``on_round(k, recorder, seconds)`` after every round that all agents finished.
    """
    run = curated(run)
    this = _Simulation(
        run,
        out,
        run_id,
        data_root=data_root,
        test_keystream=test_keystream,
        on_round=on_round,
        should_stop=should_stop,
    )
    world = World(
        run.graph.agents,
        this.agents,
        run.K,
        barrier_every=run.runtime.barrier_every,
        observer=this.observer(),
        should_stop=this.stopping,
        order_seed=order_seed,
        heard=this.heard,
    )
    with this.recorder:
        conclude = world.run()
    if this.heard is not None:
        this.heard.close()
    whole = conclude.exit_code is ExitCode.DONE
    seconds = this.close(whole=whole)
    summary = write_results(
        run,
        out,
        this.recorder,
        run_id,
        conclude,
        this.done,
        seconds,
        [AgentResult(agent.releases, agent.bytes_sent) for agent in this.agents],
        [agent.x_final for agent in this.agents],
        made=this.done - this.first,
        released_through=max(agent.machine.released_through for agent in this.agents),
    )
    if whole:
        this.saver.done()
    return conclude, summary


def forget(out: Path, through: int) -> None:
    """Drop what an earlier start reported of k > ``through``: those rounds are made anew."""
    if not (out / METRICS_FILE).exists():
        return
    kept = cut_rows(out, through)
    shutil.rmtree(out / EVENTS_FOLDER, ignore_errors=True)
    events = TensorBoardWriter(out)
    events.append(kept)
    events.close()


def save_released(out: Path, name: str, last: F64, total: ReleasedSum) -> None:
    """What agent ``name`` released of x, for a published model: the last x̆ and the sum of the window."""
    state = out / "agents" / name / "state"
    save_npy(state / LAST_FILE, last)
    write_whole(state / SUM_FILE, total.parts(), "process", mode=0o666)


def write_results(
    run: RunConfig,
    out: Path,
    recorder: RunRecorder,
    run_id: bytes,
    conclude: Conclude,
    rounds: int,
    seconds: float,
    results: Sequence[AgentResult],
    finals: Sequence[F64 | None],
    *,
    made: int,
    released_through: int,
) -> Summary:
    """The last outputs of a run in one process: x_final.npy where launch puts them, then summary.json.

    ``rounds``: those that every agent finished, ``made`` of them by this start.  ``released_through``: the last round
    that any agent released.  ``results``, ``finals``: one an agent;
    None: x_{i,K+1} not reached.
    """
    study, known = run.evaluate.metrics == "study", {}
    for name, result, x in zip(run.graph.agents, results, finals, strict=True):
        recorder.finished(name, result)
        if x is not None:
            known[name] = x
            folder = out / "agents" / name
            save_npy(folder / "state" / "x_final.npy", x)
            if study:
                save_npy(folder / "x_final.npy", x)
    complete = conclude.exit_code is ExitCode.DONE
    known_finals = known if study and complete else None
    return recorder.close(
        run_id.hex(), conclude.status, rounds, seconds, known_finals, made=made, released_through=released_through
    )
