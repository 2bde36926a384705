"""The coordinator daemon: carries out what its machine (``protocol.coordinator.coordination``) asks for.

It serves operators too, and never sees a released vector.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

from dpgt_node.config import RunConfig
from dpgt_node.errors import ConfigError, ExitCode, PeerError
from dpgt_node.protocol import calls as c
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.coordinator import barrier as co
from dpgt_node.protocol.coordinator import coordination_types as ct
from dpgt_node.protocol.coordinator.comparison import Compared
from dpgt_node.protocol.coordinator.coordination import Coordination
from dpgt_node.protocol.types import Tick
from dpgt_node.record.digests import read_digests, write_digests
from dpgt_node.record.recorder import RunRecorder
from dpgt_node.record.summary import Summary, load_summary
from dpgt_node.runtime.calls import Calls
from dpgt_node.runtime.coordinator import status
from dpgt_node.runtime.coordinator.heads import HEADS_FILE, Heads, held_samples, keep_samples
from dpgt_node.runtime.coordinator.outdir import CLOSING_FILE, OutDir, blamed, cause, is_paused, keep_paused
from dpgt_node.runtime.coordinator.results import Results
from dpgt_node.runtime.coordinator.watch import Events, Recent, Watch, no_accuracy
from dpgt_node.runtime.coordinator.watchers import Watchers
from dpgt_node.runtime.interpreter import Interpreter, Undone
from dpgt_node.runtime.store.limits import announce_every
from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY, OPERATOR_IDENTITY
from dpgt_node.runtime.watching.progress import Progress
from dpgt_node.values import dataclass
from dpgt_node.wire import services

log = logging.getLogger(__name__)

CANNOT_WRITE = "the coordinator cannot write its results; its own log says more"
"""What agents hear of it: where it writes is its own affair."""
TERMINAL_S = 0.5
"""How often ``dpgt status --watch`` asks."""
_FINISHED = co.Conclude("finished", ExitCode.DONE, "every agent finished")


@dataclass(frozen=True, slots=True)
class Outcome:
    conclude: co.Conclude
    summary: Summary | None


class Coordinator:
    """Serves ``run``; ``done`` resolves when the run is over, every output is written and the agents know."""

    def __init__(self, run: RunConfig, out: OutDir, *, keystream: str | None = None) -> None:
        self._run = run
        self._out = out
        with blamed(out.path / HEADS_FILE):
            self._heads = Heads(out.path, run.graph.agents)
        self._progress = Progress()
        self._results = Results(
            run,
            out,
            keystream=keystream,
            failed=lambda error: self.feed(self._no_disk(error)),
            took=lambda name: self.machine.pace.agents[name],
        )
        self.machine = Coordination(
            run,
            out.run_id,
            self._heads.known(),
            samples=held_samples(out.path),
            paused=is_paused(out.path),
            compared=read_digests(out.path) or Compared(),
            announce=announce_every,
            now_ns=time.monotonic_ns(),
        )
        self.events = Events(out.path)
        self.watchers = Watchers()
        self.recent = Recent(self.machine.pace)
        self._watch = Watch(no_accuracy(run), self.recent, self.stands, self._flush)
        self._interpreter = Interpreter(self.machine, self._carry_out, self._broken)
        self._calls = Calls("the coordinator", self.feed, self._broken)
        for line in run.adversary.active.warnings():
            self._carry_out(c.Note("warning", line))
        self._cause = ""
        self._answer = m.ControlReply(False, "the coordinator ends")
        self._outcome = Outcome(_FINISHED, load_summary(out.path) if out.closing else None)
        self.done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.feed(ct.Closed(_FINISHED) if out.closing else Tick())

    def feed(self, event: ct.CoordinationEvent) -> None:
        """Step the machine and carry out what follows."""
        if isinstance(event, c.Taken):
            self.machine.taken(event)
        else:
            self._interpreter.feed(event)

    def close(self) -> None:
        """May be called twice."""
        self._interpreter.stop()
        self._watch.close()
        self._heads.close()
        self.events.close()

    def _flush(self) -> None:
        try:
            self._results.flush()
        except OSError as error:
            self.feed(self._no_disk(error))

    def _broken(self, error: BaseException) -> None:
        self.close()
        if not self.done.done():
            self.done.set_exception(error)

    # --- effects ------------------------------------------------------------------------------------------------

    def _carry_out(self, effect: ct.CoordinationEffect) -> None:
        try:
            self._do(effect)
        except (OSError, ConfigError) as error:
            raise Undone(self._no_disk(error)) from error

    def _no_disk(self, error: OSError | ConfigError) -> co.StopRun:
        """An output cannot be written: nobody goes on for a run that leaves no results."""
        self._cause = cause(error, self._out.path)
        return co.StopRun(CANNOT_WRITE, ExitCode.CONFIG)

    def _do(self, effect: ct.CoordinationEffect) -> None:
        match effect:
            case ct.NoteHead(name, k, head):
                self._heads.note(name, k, head)
            case c.Write() | c.Hold() | c.ReadOn() | c.End():
                self._calls.carry_out(effect)
            case ct.Moved(k):
                self._progress.note(k)
            case ct.KeepMetrics(name, metrics):
                self._results.evaluated(name, metrics)
            case ct.KeepRow(name, k):
                self._results.local_row(name, k)
            case ct.KeepResult():
                self._keep_result(effect)
            case ct.BeginResults(registers, k):
                keep_samples(self._out.path, {register.name: register.samples for register in registers})
                self._results.begin(registers, k)
            case c.Note(level, text):
                log.log(logging.getLevelNamesMapping()[level.upper()], "%s", text)
                self.events.note(level, text)
            case ct.KeepCompared(found):
                write_digests(self._out.path, found)
            case ct.KeepPause(paused):
                self._keep_paused(paused)
            case ct.Answer(reply):
                self._answer = reply
            case co.Conclude():
                self._end(effect)
            case ct.Exit():
                self._watch.end()
                self.close()
                self.done.set_result(self._outcome)

    def _keep_result(self, effect: ct.KeepResult) -> None:
        try:
            self._results.finished(effect.name, effect.report)
        except PeerError as error:
            self.feed(ct.ResultRejected(effect.call, error))
        else:
            self.feed(ct.ResultKept(effect.name))

    def _keep_paused(self, paused: bool) -> None:
        try:
            keep_paused(self._out.path, paused)
        except OSError as error:
            log.warning("the pause is not remembered beyond this process: %s", cause(error, self._out.path))

    def _end(self, conclude: co.Conclude) -> None:
        self._heads.close()
        summary = None
        try:
            if conclude.exit_code is ExitCode.DONE:
                (self._out.path / CLOSING_FILE).touch()
            summary = self._close(conclude)
        except OSError as error:
            if conclude.exit_code is not ExitCode.CONFIG:
                self._cause = cause(error, self._out.path)
                conclude = co.Conclude("failed", ExitCode.CONFIG, CANNOT_WRITE)
        own = replace(conclude, reason=self._cause) if conclude.reason == CANNOT_WRITE else conclude
        self._outcome = Outcome(own, summary)
        self.events.note("info" if own.exit_code is ExitCode.DONE else "error", f"{own.status}: {own.reason}")
        self.feed(ct.Closed(conclude))

    def _close(self, conclude: co.Conclude) -> Summary | None:
        barrier = self.machine.barrier
        return self._results.close(conclude, barrier.k, barrier.go_through)

    # --- agents -------------------------------------------------------------------------------------------------

    async def join(self, stream: services.ServerStream[m.AgentMessage, m.CoordinatorMessage]) -> None:
        await self._calls.accept(stream.agent_name(), stream, stream.address)

    async def upload(self, stream: services.ServerStream[bytes, m.UploadReply]) -> None:
        """Private states of a study run; each frame is a sign of life."""
        name = stream.agent_name()
        await self._results.upload(name, stream, lambda: self.feed(co.AgentHeard(name)))

    # --- operators ----------------------------------------------------------------------------------------------

    async def status(self, request: m.StatusRequest, caller: services.Caller) -> m.StatusReply:
        """Where the run stands; any enrolled identity may ask."""
        if caller.secure:
            agents = {f"dpgt:agent:{name}" for name in self._run.graph.agents}
            if caller.identity not in agents | {COORDINATOR_IDENTITY, OPERATOR_IDENTITY}:
                raise PeerError(f"{caller.identity} is not enrolled in this run", grpc_status="PERMISSION_DENIED")
        reply = self.stands()
        if request.watcher:
            self.watchers.asked(f"terminal {request.watcher}", TERMINAL_S, told=reply.over)
        return reply

    def stands(self) -> m.StatusReply:
        """Where the run stands."""
        rate, slow, now_ns = self._progress.rate(), self.recent.slowest(), time.monotonic_ns()
        if (summary := self._outcome.summary) is not None:  # over: the mean, as everything that is written says it
            rate = summary.rounds_per_second or 0.0
        return status.reply(self._run, self._out.run_id, self.machine, self._results, rate, slow, now_ns)

    @property
    def recorder(self) -> RunRecorder | None:
        """What the outputs are written by, from the first round on."""
        return self._results.recorder

    async def control(self, request: m.ControlRequest, caller: services.Caller) -> m.ControlReply:
        """Pause, resume, stop; with TLS only the coordinator's own or an operator's certificate."""
        if caller.secure and caller.identity not in (COORDINATOR_IDENTITY, OPERATOR_IDENTITY):
            message = f"{caller.identity} may not control a run, an operator may (dpgt pki issue operator)"
            raise PeerError(message, grpc_status="PERMISSION_DENIED")
        who = caller.identity or caller.address
        log.info("%s asked for by %s", request.action, who)
        self.feed(ct.Asked(request))
        if self._answer.ok and request.action != "stop":  # a stop is noted by the machine
            self.events.note("info", f"{request.action} asked for by {who}: {self._answer.message}")
        return self._answer
