"""The coordinator daemon: interprets its machine's effects and serves agents and operators.

It never sees a released vector.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from dpgt_node.config import RunConfig
from dpgt_node.errors import ConfigError, ExitCode, PeerError
from dpgt_node.protocol import coordinator as co
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.liveness import EdgeReport
from dpgt_node.protocol.types import AllDurable, Go, Tick
from dpgt_node.record.summary import Summary, load_summary
from dpgt_node.runtime.agent.driver import ANNOUNCE_ROUNDS, CHECKPOINT_BYTES
from dpgt_node.runtime.clock import AwakeClock, heartbeat_s
from dpgt_node.runtime.coordinator import status
from dpgt_node.runtime.coordinator.heads import HEADS_FILE, Heads
from dpgt_node.runtime.coordinator.members import Members, Stream
from dpgt_node.runtime.coordinator.outdir import CLOSING_FILE, OutDir, blamed, cause, is_paused, keep_paused
from dpgt_node.runtime.coordinator.progress import Progress
from dpgt_node.runtime.coordinator.results import Results
from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY, OPERATOR_IDENTITY
from dpgt_node.wire import services

log = logging.getLogger(__name__)

SETTLE_BEATS = 3
"""Heartbeats after which a stream that is still down is not just being opened."""


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
        with blamed(out.path / HEADS_FILE):
            self._heads = Heads(out.path, run.graph.agents)
        self._progress = Progress()
        self._conclude: co.Conclude | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_in = co.CoordinatorPhase.ENDED
        self._beat = asyncio.ensure_future(self._heartbeats())
        runtime = run.runtime
        self._heartbeat_s = heartbeat_s(runtime.round_timeout_s)
        self._clock = AwakeClock(2 * self._heartbeat_s)
        self.machine = co.CoordinatorMachine(
            run.graph.agents,
            run.K,
            barrier_every=runtime.barrier_every,
            register_timeout_ns=int(runtime.register_timeout_s * 1e9),
            liveness_ns=int(runtime.round_timeout_s * 1e9),
            on_agent_loss=runtime.on_agent_loss,
            now_ns=self._clock.now_ns(),
            settle_ns=int(SETTLE_BEATS * self._heartbeat_s * 1e9),
            paused=is_paused(out.path),
        )
        self._results = Results(run, out, keystream=keystream, failed=self._disk_failed)
        self._members = Members(
            run, out.run_id, self.machine, self.feed, self._said, lambda: self._conclude, self._heads.get
        )
        self.done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if out.closing:
            self.machine.phase = co.CoordinatorPhase.ENDED
            self._conclude = co.Conclude("finished", ExitCode.DONE, "every agent finished")
            self.done.set_result(Outcome(self._conclude, load_summary(out.path)))
        self._arm()

    # --- the machine's interpreter ------------------------------------------------------------------------------

    def feed(self, event: co.CoordinatorEvent) -> None:
        """Step the machine and carry out what follows."""
        for effect in self.machine.step(event, self._clock.now_ns()):
            match effect:
                case co.Broadcast(Go(through)):
                    self._members.broadcast(m.GoMessage(through))
                    self._progress.note(self.machine.k)
                case co.Broadcast(AllDurable(through)):
                    self._members.broadcast(m.AllDurableMessage(through))
                case co.BroadcastStart(go_through):
                    try:
                        self._begin()
                    except (OSError, ConfigError) as error:
                        self._disk_failed(error)
                        return
                    self._members.broadcast(m.Start(self._members.addresses(), go_through))
                case co.BroadcastStop(reason, code):
                    log.warning("stopping: %s", reason)
                    self._members.broadcast(m.StopMessage(reason[:1000], int(code)))
                case co.Dismiss():
                    self._members.broadcast(m.Goodbye())
                case co.Warn(message):
                    log.warning("%s", message)
                case co.Conclude():
                    self._end(effect)
        self._arm()

    def _disk_failed(self, error: OSError | ConfigError) -> None:
        """An output cannot be written: nobody goes on for a run that leaves no results."""
        self.feed(co.StopRun(cause(error, self._out.path), ExitCode.CONFIG))

    def _begin(self) -> None:
        if self._results.recorder is not None:
            return
        registers = self._members.registers()
        if registers[0].dimension * 8 <= CHECKPOINT_BYTES:
            self.machine.announce_every = ANNOUNCE_ROUNDS
        self._results.begin(registers, self.machine.k)
        log.info("all %d agents registered; rounds 0..%d begin", len(registers), self._run.K)

    def _end(self, conclude: co.Conclude) -> None:
        self._beat.cancel()
        self._heads.close()
        self._members.part()
        summary = None
        try:
            if conclude.exit_code is ExitCode.DONE:
                (self._out.path / CLOSING_FILE).touch()
            summary = self._close(conclude)
        except OSError as error:
            if conclude.exit_code is not ExitCode.CONFIG:
                conclude = co.Conclude("failed", ExitCode.CONFIG, cause(error, self._out.path))
        except Exception as error:  # a bug, but one that ends the run
            self.done.set_exception(error)
        self._conclude = conclude
        self._keep_paused(False)  # whoever starts it again wants it to go on
        if not self.done.done():
            self.done.set_result(Outcome(conclude, summary))

    def _close(self, conclude: co.Conclude) -> Summary | None:
        return self._results.close(conclude, self.machine.k, self.machine.go_through)

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
            delay_s = max(0.0, (deadline - self._clock.now_ns()) / 1e9)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.feed(Tick())

    async def _heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_s)
            self._members.beat()
            self.feed(Tick())

    async def drain(self, timeout_s: float, late_s: float = 0.0) -> None:
        """Wait until every agent has left, at most ``timeout_s``, and after a finished or refused run until each came
        to hear so, at most ``late_s``: it would wait long for a coordinator that is gone.
        """
        await self._members.drain(timeout_s)
        if self._conclude is not None and self._conclude.status in ("finished", "refused"):
            await self._members.all_told(late_s)

    # --- agents -------------------------------------------------------------------------------------------------

    async def join(self, stream: Stream) -> None:
        """One agent's membership."""
        await self._members.join(stream)

    async def upload(self, stream: services.ServerStream[bytes, m.UploadReply]) -> m.UploadReply:
        """Private states of a study run; each frame is a sign of life."""
        name = stream.agent_name()
        return await self._results.upload(name, stream, lambda: self.feed(co.AgentHeard(name)))

    async def _said(self, name: str, message: m.AgentMessage) -> None:
        try:
            self._hear(name, message)
        except OSError as error:
            self._disk_failed(error)

    def _hear(self, name: str, message: m.AgentMessage) -> None:
        if not isinstance(message, m.Done | EdgeReport):  # which say it themselves
            self.feed(co.AgentHeard(name))
        match message:
            case m.Done(k, durable_through, _, head):
                if k > self.machine.done_limit(name) or durable_through > k:
                    raise PeerError(f"{name} reports round {k} done, beyond the barrier", grpc_status="OUT_OF_RANGE")
                self._heads.note(name, k, head)  # before the barrier moves on it
                self.feed(co.AgentDone(name, k, durable_through))
                self._results.local_row(name, k + 1)
            case m.Heartbeat():
                pass
            case EdgeReport():
                ends = {lack.sender for lack in message.lacks} | {down.receiver for down in message.down}
                if not ends <= set(self._run.graph.agents) - {name}:
                    raise PeerError(f"{name} reports edges that do not exist", grpc_status="INVALID_ARGUMENT")
                self.feed(co.AgentEdges(name, message))
            case m.MetricsReport():
                self._results.evaluated(name, message)
            case m.FinishedReport():
                self._finished(name, message)
            case m.Failed(exit_code, reason):
                code = next((c for c in ExitCode if c == exit_code), ExitCode.BUG)
                self.feed(co.AgentFailed(name, reason, code))
            case m.Refusal(_, reason):
                self.feed(co.AgentRefused(name, reason))
            case _:
                raise PeerError(f"{name} sent an unexpected message", grpc_status="INVALID_ARGUMENT")

    def _keep_paused(self, paused: bool) -> None:
        try:
            keep_paused(self._out.path, paused)
        except OSError as error:
            log.warning("the pause is not remembered beyond this process: %s", cause(error, self._out.path))

    def _finished(self, name: str, report: m.FinishedReport) -> None:
        if self._results.recorder is None and self.machine.done(name) == self._run.K:
            return  # its result is of an earlier start of this process; it comes once more after Start
        self._results.finished(name, report, self.machine.done(name))
        self.feed(co.AgentFinished(name))

    # --- operators ----------------------------------------------------------------------------------------------

    async def status(self, caller: services.Caller) -> m.StatusReply:
        """Where the run stands; any enrolled identity may ask."""
        if caller.secure:
            agents = {f"dpgt:agent:{name}" for name in self._run.graph.agents}
            if caller.identity not in agents | {COORDINATOR_IDENTITY, OPERATOR_IDENTITY}:
                raise PeerError(f"{caller.identity} is not enrolled in this run", grpc_status="PERMISSION_DENIED")
        return status.reply(
            self._run,
            self._out.run_id,
            self.machine,
            self._members,
            self._results,
            self._conclude,
            self._progress.rate(),
            self._clock.now_ns(),
        )

    async def control(self, request: m.ControlRequest, caller: services.Caller) -> m.ControlReply:
        """Pause, resume, stop; with TLS only the coordinator's own or an operator's certificate."""
        if caller.secure and caller.identity not in (COORDINATOR_IDENTITY, OPERATOR_IDENTITY):
            raise PeerError(f"{caller.identity} may not control a run", grpc_status="PERMISSION_DENIED")
        log.info("%s asked for by %s", request.action, caller.identity or caller.address)
        phase = self.machine.phase
        word = status.state_word(phase, self._conclude)
        match request.action:
            case "pause":
                if phase is not co.CoordinatorPhase.RUNNING:
                    return m.ControlReply(phase is co.CoordinatorPhase.PAUSED, f"the run is {word}")
                self._keep_paused(True)
                self.feed(co.PauseRequested())
                return m.ControlReply(True, f"paused; agents finish round {self.machine.go_through}")
            case "resume":
                if not self.machine.paused:
                    return m.ControlReply(phase is co.CoordinatorPhase.RUNNING, f"the run is {word}")
                self._keep_paused(False)
                self.feed(co.ResumeRequested())
                return m.ControlReply(True, "running")
            case "stop":
                self.feed(co.StopRun(request.reason or "stopped by the operator"))
                return m.ControlReply(True, "stopping")
