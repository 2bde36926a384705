"""The coordinator daemon: registration, the round barrier, the run's outputs.  It never sees a released vector."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dpgt_node import __version__
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig, canonical_json, run_sha256
from dpgt_node.errors import ConfigError, ExitCode, PeerError
from dpgt_node.learning.oracle import Metrics
from dpgt_node.protocol import coordinator as co
from dpgt_node.protocol.types import AllDurable, Go, Payload, Tick
from dpgt_node.report.epsilons import WITH_DELTA
from dpgt_node.report.files import save_npy
from dpgt_node.report.recorder import AgentResult, RunRecorder
from dpgt_node.report.summary import Summary, adjacency
from dpgt_node.runtime import admission
from dpgt_node.runtime.channels import COORDINATOR_IDENTITY, OPERATOR_IDENTITY
from dpgt_node.runtime.driver import CHECKPOINT_BYTES
from dpgt_node.runtime.outdir import OutDir, cause
from dpgt_node.runtime.progress import Progress
from dpgt_node.wire import messages as m
from dpgt_node.wire import services
from dpgt_node.wire.codec import Gate, Reassembler

log = logging.getLogger(__name__)

HEARTBEAT_S = 2.0
ANNOUNCE_ROUNDS = 64
"""Vectors that are checkpointed every round are pruned in batches: a message and a transaction a round would cost
more.
"""

Stream = services.ServerStream[m.AgentMessage, m.CoordinatorMessage]


@dataclass(slots=True)
class _Member:
    """One registered agent, connected or not."""

    register: m.Register
    stream: Stream | None = None
    ready: bool = False
    queue: deque[m.CoordinatorMessage] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    seen_s: float = 0.0
    finished: m.FinishedReport | None = None

    def send(self, message: m.CoordinatorMessage) -> None:
        if self.stream is not None:
            self.queue.append(message)
            self.wake.set()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    conclude: co.Conclude
    summary: Summary | None


class Coordinator:
    """Serves ``run``; ``done`` resolves when the run is over and every output is written."""

    def __init__(self, run: RunConfig, out: OutDir, *, keystream: str | None = None) -> None:
        self._run = run
        self._out = out
        self._keystream = keystream
        self._json = canonical_json(run)
        self._sha256 = run_sha256(run)
        self._topology = Topology.from_config(run.graph)
        self._schedule = Schedule.from_config(run)
        self._names = run.graph.agents
        self._study = run.evaluate.metrics == "study"
        self._members: dict[str, _Member] = {}
        self._recorder: RunRecorder | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._round0_s: float | None = None
        self._first_k = 0
        self._progress = Progress()
        self._conclude: co.Conclude | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_in = co.CoordinatorPhase.ENDED
        self._beat = asyncio.ensure_future(self._heartbeats())
        runtime = run.runtime
        self.machine = co.CoordinatorMachine(
            self._names,
            run.K,
            barrier_every=runtime.barrier_every,
            register_timeout_ns=int(runtime.register_timeout_s * 1e9),
            liveness_ns=int(runtime.round_timeout_s * 1e9),
            on_agent_loss=runtime.on_agent_loss,
            now_ns=time.monotonic_ns(),
        )
        self.done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._arm()

    # --- the machine's interpreter ------------------------------------------------------------------------------

    def feed(self, event: co.CoordinatorEvent) -> None:
        """Step the machine and carry out what follows."""
        for effect in self.machine.step(event, time.monotonic_ns()):
            match effect:
                case co.Broadcast(Go(through)):
                    self._broadcast(m.GoMessage(through))
                    self._progress.note(self.machine.k)
                case co.Broadcast(AllDurable(through)):
                    self._broadcast(m.AllDurableMessage(through))
                case co.BroadcastStart(go_through):
                    try:
                        self._begin()
                    except (OSError, ConfigError) as error:
                        self._disk_failed(error)
                        return
                    peers = {name: member.register.advertise for name, member in self._members.items()}
                    self._broadcast(m.Start(peers, go_through))
                case co.BroadcastStop(reason, code):
                    log.warning("stopping: %s", reason)
                    self._broadcast(m.StopMessage(reason[:1000], int(code)))
                case co.Dismiss():
                    self._broadcast(m.Goodbye())
                case co.Warn(message):
                    log.warning("%s", message)
                case co.Conclude():
                    self._end(effect)
        self._arm()

    def _disk_failed(self, error: OSError | ConfigError) -> None:
        """An output cannot be written: nobody goes on for a run that leaves no results."""
        self.feed(co.StopRun(cause(error, self._out.path), ExitCode.CONFIG))

    def _broadcast(self, message: m.CoordinatorMessage) -> None:
        for member in self._members.values():
            member.send(message)

    def _begin(self) -> None:
        if self._recorder is not None:
            return
        registers = [self._members[name].register for name in self._names]
        self._round0_s = time.monotonic()
        if registers[0].dimension * 8 <= CHECKPOINT_BYTES:
            self.machine.announce_every = ANNOUNCE_ROUNDS
        self._recorder = RunRecorder(
            self._out.path,
            self._run,
            self._topology,
            self._schedule,
            [register.samples for register in registers],
            dimension=registers[0].dimension,
            keystream=self._keystream,
        )
        self._preparing = asyncio.create_task(self._prepare(self._recorder))
        self._first_k = self.machine.k
        for name in self._names:
            self._local_row(name, 0)
        log.info("all %d agents registered; rounds 0..%d begin", len(registers), self._run.K)

    async def _prepare(self, recorder: RunRecorder) -> None:
        await asyncio.to_thread(recorder.prepare)
        try:
            recorder.prepared()
        except OSError as error:
            self._disk_failed(error)

    def _end(self, conclude: co.Conclude) -> None:
        self._beat.cancel()
        summary = None
        try:
            summary = self._close(conclude)
        except OSError as error:
            if conclude.exit_code is not ExitCode.CONFIG:
                conclude = co.Conclude("failed", ExitCode.CONFIG, cause(error, self._out.path))
        except Exception as error:  # a bug, but one that ends the run
            self.done.set_exception(error)
        self._conclude = conclude
        if not self.done.done():
            self.done.set_result(Outcome(conclude, summary))

    def _close(self, conclude: co.Conclude) -> Summary | None:
        if self._recorder is None or self._round0_s is None:
            return None
        finals = None
        if self._study and conclude.exit_code is ExitCode.DONE:
            finals = {n: np.load(self._final_path(n), mmap_mode="r", allow_pickle=False) for n in self._names}
        k = self.machine.k
        return self._recorder.close(
            self._out.run_id.hex(),
            conclude.status,
            k,
            time.monotonic() - self._round0_s,
            finals,
            made=k - self._first_k,
            released_through=self.machine.go_through,  # whoever was allowed to may have released it
        )

    def _arm(self) -> None:
        # Within a phase deadlines only move away: a pending timer is early at worst.  The next phase may have a nearer.
        if self._timer is not None and self.machine.phase is self._armed_in:
            return
        self._armed_in = self.machine.phase
        deadline = self.machine.next_deadline_ns()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            delay_s = max(0.0, (deadline - time.monotonic_ns()) / 1e9)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.feed(Tick())

    async def _heartbeats(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self._broadcast(m.Heartbeat())

    async def drain(self, timeout_s: float) -> None:
        """Wait until every agent has left, at most ``timeout_s``."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while loop.time() < end and any(member.stream is not None for member in self._members.values()):
            await asyncio.sleep(0.01)

    # --- Join ---------------------------------------------------------------------------------------------------

    async def join(self, stream: Stream) -> None:
        """One agent's membership."""
        name = stream.agent_name()
        first = await stream.read()
        if isinstance(first, m.Refusal) and name in self._names:
            self.feed(co.AgentRefused(name, first.reason))
            return
        if not isinstance(first, m.Register):
            raise PeerError("the first message must be Register", grpc_status="INVALID_ARGUMENT")
        register = first
        refused = admission.refuse(
            register,
            caller=name,
            names=self._names,
            run_json=self._json,
            package_version=__version__,
            others=[member.register for member in self._members.values() if member.register.name != name],
            twin=self._twin(register),
        )
        if refused is not None:
            log.warning("refused %s at %s: %s", name, stream.address, refused.reason)
            await stream.write(m.Refused(refused.kind, refused.reason[:1000]))
            if refused.ends_run:
                self.feed(co.AgentRefused(name, refused.reason))
            return
        if max(register.last_done_round, register.last_durable_round) > self._run.K:
            raise PeerError(f"{name} registers with rounds beyond the last, {self._run.K}", grpc_status="OUT_OF_RANGE")
        if self._conclude is not None:
            # Too late: it must hear why, and not wait for a start that never comes.
            await stream.write(m.StopMessage(self._conclude.reason[:1000], int(self._conclude.exit_code)))
            return
        member = self._admit(name, register, stream)
        writer = asyncio.ensure_future(self._write(member.queue, member.wake, stream))
        try:
            await self._read(name, member, stream)
        except asyncio.CancelledError:
            return  # the server stops, or the agent's connection broke: the call is over either way
        finally:
            if member.stream is stream:
                member.stream = None
                member.queue.clear()
                self.feed(co.AgentGone(name))
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    def _twin(self, register: m.Register) -> bool:
        """Whether another process of the same name is connected right now."""
        member = self._members.get(register.name)
        return member is not None and member.stream is not None and member.register.instance != register.instance

    def _admit(self, name: str, register: m.Register, stream: Stream) -> _Member:
        member = self._members.get(name)
        if member is None:
            member = self._members[name] = _Member(register)
        member.register = register
        member.stream = stream
        # Its own queue: the writer of a stream that is half dead must not take what is meant for its successor.
        member.queue, member.wake = deque(), asyncio.Event()
        member.seen_s = time.monotonic()
        member.ready = False
        log.info("%s registered from %s, listens on %s", name, stream.address, register.advertise)
        member.send(
            m.Welcome(self._out.run_id, self._sha256, self._json, self.machine.go_through, package_version=__version__)
        )
        return member

    def _joined(self, name: str, member: _Member) -> None:
        """It knows the run and takes part: an agent whose owner's policy forbids it says so instead of Ready."""
        if member.ready:
            return
        member.ready = True
        register = member.register
        ours = register.run_id == self._out.run_id
        self.feed(
            co.AgentJoined(
                name,
                register.last_done_round if ours else -1,
                register.last_durable_round if ours else -1,
                finished=False,
                released=register.last_released_round if ours else -1,
            )
        )

    async def _write(self, queue: deque[m.CoordinatorMessage], wake: asyncio.Event, stream: Stream) -> None:
        while True:
            while not queue:
                wake.clear()
                await wake.wait()
            await stream.write(queue.popleft())

    async def _read(self, name: str, member: _Member, stream: Stream) -> None:
        while (message := await stream.read()) is not None:
            if member.stream is not stream:
                return  # superseded by a newer stream of the same process
            member.seen_s = time.monotonic()
            try:
                await self._said(name, member, message)
            except OSError as error:
                self._disk_failed(error)

    async def _said(self, name: str, member: _Member, message: m.AgentMessage) -> None:
        match message:
            case m.Done(k, durable_through):
                if k > self.machine.done_limit(name) or durable_through > k:
                    raise PeerError(f"{name} reports round {k} done, beyond the barrier", grpc_status="OUT_OF_RANGE")
                self.feed(co.AgentDone(name, k, durable_through))
                self._local_row(name, k + 1)
            case m.Heartbeat():
                self.feed(co.AgentHeard(name))
            case m.Ready():
                self._joined(name, member)
            case m.MetricsReport():
                self._metrics(name, message)
            case m.FinishedReport():
                await self._finished(name, member, message)
            case m.Failed(exit_code, reason):
                code = next((c for c in ExitCode if c == exit_code), ExitCode.BUG)
                self.feed(co.AgentFailed(name, reason, code))
            case m.Refusal(_, reason):
                self.feed(co.AgentRefused(name, reason))
            case _:
                raise PeerError(f"{name} sent an unexpected message", grpc_status="INVALID_ARGUMENT")

    # --- metrics and results ------------------------------------------------------------------------------------

    def _wall_s(self) -> float:
        return 0.0 if self._round0_s is None else time.monotonic() - self._round0_s

    def _metrics(self, name: str, report: m.MetricsReport) -> None:
        if self._recorder is None or not self._study or report.k > self._run.K + 1:
            return
        metrics = Metrics(report.loss_train, report.accuracy_train, report.accuracy_test, report.grad_norm)
        self._recorder.evaluated(name, report.k, metrics, self._wall_s())

    def _local_row(self, name: str, k: int) -> None:
        """In local runs metrics stay with the agents: the coordinator's rows hold what the schedule alone says."""
        if self._study or self._recorder is None:
            return
        if k % self._run.evaluate.every == 0 or k == self._run.K + 1:
            self._recorder.evaluated(name, k, None, self._wall_s())

    async def _finished(self, name: str, member: _Member, report: m.FinishedReport) -> None:
        if self._recorder is None or report.status != "finished" or self.machine.done(name) < self._run.K:
            raise PeerError(f"{name} reports a result of an unfinished run", grpc_status="INVALID_ARGUMENT")
        if self._study:
            if not self._final_path(name).exists():  # perhaps uploaded to an earlier start of this process
                raise PeerError(f"{name} finished without uploading its x_final", grpc_status="FAILED_PRECONDITION")
            self._metrics(name, report.metrics)
        self._recorder.finished(name, AgentResult(report.releases, report.bytes_sent))
        self.feed(co.AgentFinished(name))

    def _final_path(self, name: str) -> Path:
        return self._out.path / "agents" / name / "x_final.npy"

    async def upload(self, stream: services.ServerStream[bytes, m.UploadReply]) -> m.UploadReply:
        """Private states of a study run, for the consensus error and the copies of x_final."""
        name = stream.agent_name()
        member = self._members.get(name)
        if not self._study or member is None or self._recorder is None:
            raise PeerError("this run takes no private states", grpc_status="FAILED_PRECONDITION")
        last = self._run.K + 1
        gate = Gate(
            run_id=self._out.run_id,
            sender=name,
            streams=frozenset({"X"}),
            dtype="float64",
            dimension=member.register.dimension,
            window=lambda _: (0, last),
            study=True,
        )
        reassembler = Reassembler(gate)
        count = 0
        while (frame := await stream.read()) is not None:
            for payload in reassembler.feed(frame):
                try:
                    self._take_state(name, payload)
                except OSError as error:
                    self._disk_failed(error)
                    raise PeerError("the coordinator cannot write", grpc_status="UNAVAILABLE") from error  # Stop comes
                count += 1
        if (broken := reassembler.finish()) is not None:
            raise PeerError(f"the upload of {name} broke off: {broken}", grpc_status="DATA_LOSS")
        return m.UploadReply(count)

    def _take_state(self, name: str, payload: Payload) -> None:
        assert self._recorder is not None
        x = payload.array()
        if payload.k == self._run.K + 1:
            save_npy(self._final_path(name), x)
        self._recorder.state(name, payload.k, x)

    # --- status and control -------------------------------------------------------------------------------------

    def _state_word(self) -> str:
        if self._conclude is not None:
            return self._conclude.status
        if self.machine.phase is co.CoordinatorPhase.GATHERING:
            return "waiting"
        return self.machine.phase.name.lower()

    async def status(self, caller: services.Caller) -> m.StatusReply:
        """Where the run stands; any enrolled identity may ask."""
        self._require_identity(caller)
        recorder, now = self._recorder, time.monotonic()
        agents = []
        for name in self._names:
            member, done = self._members.get(name), self.machine.done(name)
            agents.append(
                m.AgentStatus(
                    name,
                    connected=self.machine.connected(name),
                    k=done,
                    last_seen_s=now - member.seen_s if member else None,
                    accuracy_test=recorder.accuracy[name] if recorder and self._study else None,
                    epsilon=recorder.spent(name, done) if recorder else None,
                )
            )
        waiting = ", ".join(self.machine.waiting_for()) if self._conclude is None else ""
        accountant = recorder.accountant if recorder else None
        return m.StatusReply(
            state=self._state_word(),
            k=self.machine.k - 1,
            K=self._run.K,
            run_id=self._out.run_id,
            name=self._run.name,
            rounds_per_second=self._progress.rate(),
            agents=tuple(agents),
            consensus_error=recorder.consensus if recorder and self._study else None,
            reason=self._conclude.reason[:1000]
            if self._conclude
            else (f"waiting for {waiting}"[:1000] if waiting else ""),
            accountant=accountant,
            delta=self._run.privacy.delta if accountant in WITH_DELTA else None,
            adjacency=adjacency(self._run),
        )

    async def control(self, request: m.ControlRequest, caller: services.Caller) -> m.ControlReply:
        """Pause, resume, stop; with TLS only the coordinator's own or an operator's certificate."""
        if caller.secure and caller.identity not in (COORDINATOR_IDENTITY, OPERATOR_IDENTITY):
            raise PeerError(f"{caller.identity} may not control a run", grpc_status="PERMISSION_DENIED")
        log.info("%s asked for by %s", request.action, caller.identity or caller.address)
        phase = self.machine.phase
        match request.action:
            case "pause":
                if phase is not co.CoordinatorPhase.RUNNING:
                    return m.ControlReply(phase is co.CoordinatorPhase.PAUSED, f"the run is {self._state_word()}")
                self.feed(co.PauseRequested())
                return m.ControlReply(True, f"paused; agents finish round {self.machine.go_through}")
            case "resume":
                if phase is not co.CoordinatorPhase.PAUSED:
                    return m.ControlReply(phase is co.CoordinatorPhase.RUNNING, f"the run is {self._state_word()}")
                self.feed(co.ResumeRequested())
                return m.ControlReply(True, "running")
            case "stop":
                self.feed(co.StopRun(request.reason or "stopped by the operator"))
                return m.ControlReply(True, "stopping")

    def _require_identity(self, caller: services.Caller) -> None:
        if not caller.secure:
            return
        agents = {f"dpgt:agent:{name}" for name in self._names}
        if caller.identity not in agents | {COORDINATOR_IDENTITY, OPERATOR_IDENTITY}:
            raise PeerError(f"{caller.identity} is not enrolled in this run", grpc_status="PERMISSION_DENIED")
