"""The coordinator of a run as one state machine: the barrier's (``barrier``) and the seats' (``membership``) made
one, with what agents say, what is kept, what operators ask, and how everybody takes leave.

Theory of operation:

    stage     meaning                                          leaves by
    ---------------------------------------------------------------------------------------------------------------
    OPEN      the barrier's machine is at work                 its Conclude
    CLOSING   summary and report are written; events wait      Closed: Goodbye where the run finished
    PARTING   every seated agent was sent the last word        every seat empty, or ``FAREWELL_NS``
    LATE      after a finished or refused run: agents that     every agent told, or ``LATE_NS``
              were away come to hear so
    OVER      Exit was emitted                                 -

A coordinator that is started again after the end was written gets Closed as its first event, and has only PARTING and
LATE before it.

A ledger head goes out (NoteHead) before the barrier moves on the report that brought it, and Start after
BeginResults: what cannot be kept is not acted on.  All times are awake time: a coordinator that slept must not take
its own absence for the others' silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dpgt_node.config import RunConfig
from dpgt_node.config.privacy.cancelling import masks
from dpgt_node.errors import ExitCode, PeerError
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.calls import Accepted, End, Ended, Heard, Note, Taken
from dpgt_node.protocol.clock import SECOND, Awake, heartbeat_ns
from dpgt_node.protocol.coordinator import barrier as co
from dpgt_node.protocol.coordinator.comparison import NOTHING_YET, Compared
from dpgt_node.protocol.coordinator.coordination_types import (
    Answer,
    Asked,
    BeginResults,
    Closed,
    CoordinationEffect,
    CoordinationEvent,
    Exit,
    KeepMetrics,
    KeepPause,
    KeepResult,
    KeepRow,
    Moved,
    NoteHead,
    ResultKept,
    ResultRejected,
    Stage,
)
from dpgt_node.protocol.coordinator.membership import Membership, Out, Seat
from dpgt_node.protocol.coordinator.relay import KeyRelay
from dpgt_node.protocol.coordinator.witnesses import Said, Witnesses
from dpgt_node.protocol.liveness import EdgeReport
from dpgt_node.protocol.pace import Pace
from dpgt_node.protocol.types import AllDurable, Go, Tick

SETTLE_BEATS = 3
"""Heartbeats after which a stream that is still down is not just being opened."""
FAREWELL_NS = SECOND
"""After the end agents have this long to read Goodbye or Stop."""
LATE_NS = 3 * SECOND
"""After a finished or refused run, agents that nobody could tell have this long to come and hear so."""


class Coordination:
    """The coordinator of ``run``.

    ``heads``: an agent's last reported round and its ledger's head after it, as an earlier life of the process noted.
    ``samples``: every agent's D, if it saw the run begin.  ``compared``: digests, until then.
    ``paused``: the run was paused then.  ``announce``: after how many durable rounds AllDurable is worth a message, by
    the model's dimension.  ``barrier``: the machine inside.  ``taken`` does what ``step`` does with Taken: nothing ever
    follows from it.
    """

    def __init__(
        self,
        run: RunConfig,
        run_id: bytes,
        heads: Mapping[str, tuple[int, bytes]],
        *,
        samples: Mapping[str, int | None],
        paused: bool,
        compared: Compared = NOTHING_YET,
        announce: Callable[[int], int],
        now_ns: int,
        barrier: Callable[..., co.CoordinatorMachine] = co.CoordinatorMachine,
        membership: Callable[..., Membership] = Membership,
    ) -> None:
        runtime = run.runtime
        self._K = run.K
        self._names = frozenset(run.graph.agents)
        self._row_every = run.evaluate.every if run.evaluate.metrics == "local" else 0
        self._announce = announce
        self._beat_ns = heartbeat_ns(runtime.round_timeout_s)
        self._awake = Awake(2 * self._beat_ns, now_ns)
        self._heads, self.samples = dict(heads), dict(samples)
        self.barrier = barrier(
            run.graph.agents,
            run.K,
            barrier_every=runtime.barrier_every,
            register_timeout_ns=int(runtime.register_timeout_s * SECOND),
            liveness_ns=int(runtime.round_timeout_s * SECOND),
            on_agent_loss=runtime.on_agent_loss,
            now_ns=now_ns,
            settle_ns=SETTLE_BEATS * self._beat_ns,
            paused=paused,
        )
        known = self._heads, self.samples
        self._members = membership(run, run_id, self._beat_ns, self.barrier, *known, self._move, self._said)
        self.taken = self._members.taken
        self.pace = Pace(run.graph.agents)
        self._relay = None if masks(run) is None else KeyRelay(run.graph.agents)
        self._witnesses = Witnesses.of(run, compared)
        self._stage = Stage.OPEN
        self._conclusion: co.Conclude | None = None
        self._begun = self._dismissed = False
        self._meanwhile: list[CoordinationEvent] = []
        self._next_beat_ns = self._barrier_ns = now_ns + self._beat_ns
        self._armed_in = self.barrier.phase
        self._until_ns = 0

    # --- what drivers may ask ---------------------------------------------------------------------------------

    @property
    def stage(self) -> Stage:
        return self._stage

    @property
    def conclusion(self) -> co.Conclude | None:
        """How the run ended; None before that is durable."""
        return self._conclusion

    @property
    def state(self) -> str:
        """The state of the run in one lower-case word."""
        if self._conclusion is not None:
            return self._conclusion.status
        phase = self.barrier.phase
        return "waiting" if phase is co.CoordinatorPhase.GATHERING else phase.name.lower()

    def awake_ns(self, now_ns: int) -> int:
        """``now_ns`` in the clock of the barrier and of ``last_seen_s``."""
        return self._awake.at(now_ns)

    def last_seen_s(self, name: str, awake_ns: int) -> float | None:
        """Seconds since the agent's last message; None: it never came."""
        return self._members.last_seen_s(name, awake_ns)

    def next_deadline_ns(self) -> int | None:
        """When to step with ``Tick`` at the latest: with every heartbeat, but while the end is written."""
        match self._stage:
            case Stage.OPEN:
                due_ns = min(self._next_beat_ns, self._barrier_ns)
            case Stage.PARTING | Stage.LATE:
                due_ns = min(self._next_beat_ns, self._until_ns)
            case Stage.CLOSING | Stage.OVER:
                return None
        return self._awake.reached_ns(self._members.due_ns(due_ns))

    # --- the step ---------------------------------------------------------------------------------------------

    def step(self, event: CoordinationEvent, now_ns: int) -> tuple[CoordinationEffect, ...]:
        """Take one event, return the effects in the order in which they must be carried out."""
        if self._stage is Stage.OVER:
            return (End(event.call),) if isinstance(event, Accepted) else ()
        if self._stage is Stage.CLOSING and not isinstance(event, Closed):
            self._meanwhile.append(event)
            return ()
        out: Out = []
        self._take(event, out, self._awake.at(now_ns))
        return tuple(out)

    def _take(self, event: CoordinationEvent, out: Out, now_ns: int) -> None:
        match event:
            case Heard() | Accepted() | Ended():
                self._members.take(event, out, now_ns)
            case Taken():
                self.taken(event)
            case Tick():
                self._tick(out, now_ns)
            case co.AgentHeard() | co.StopRun():
                self._move(event, out, now_ns)
            case Asked(request):
                self._asked(request, out, now_ns)
            case ResultKept(name):
                self._move(co.AgentFinished(name), out, now_ns)
            case ResultRejected(call, error):
                self._members.hang_up(call, error, out, now_ns)
            case Closed(conclude):
                self._closed(conclude, out, now_ns)
        self._members.unstick(out, now_ns)
        if self._stage in (Stage.PARTING, Stage.LATE):
            self._part(out, now_ns)

    def _tick(self, out: Out, now_ns: int) -> None:
        self._members.tick(out, now_ns)
        if now_ns >= self._next_beat_ns:
            self._next_beat_ns = now_ns + self._beat_ns
            if self._stage is Stage.OPEN:
                self._members.beat(out)
        self._move(Tick(), out, now_ns)

    # --- the barrier ------------------------------------------------------------------------------------------

    def _move(self, event: co.CoordinatorEvent, out: Out, now_ns: int) -> None:
        """Step the barrier's machine, and say what follows to the agents."""
        if self._stage is not Stage.OPEN:
            return
        for effect in self.barrier.step(event, now_ns):
            self._translate(effect, out)
        if isinstance(event, Tick) or self.barrier.phase is not self._armed_in:
            # Within a phase its deadlines only move away: what is held is early at worst.
            self._armed_in = self.barrier.phase
            due_ns = self.barrier.next_deadline_ns()
            self._barrier_ns = self._next_beat_ns if due_ns is None else due_ns

    def _translate(self, effect: co.CoordinatorEffect, out: Out) -> None:
        members = self._members
        match effect:
            case co.Broadcast(Go(through)):
                members.broadcast(m.GoMessage(through), out)
                out.append(Moved(self.barrier.k))
            case co.Broadcast(AllDurable(through)):
                members.broadcast(m.AllDurableMessage(through), out)
            case co.BroadcastStart(go_through):
                self._begin(out)
                members.broadcast(m.Start(members.addresses(), go_through), out)
            case co.BroadcastStop(reason, code):
                out.append(Note("warning", f"stopping: {reason}"))
                members.broadcast(m.StopMessage(reason[:1000], int(code)), out)
            case co.Warn(message):
                out.append(Note("warning", message))
            case co.Conclude():
                out += self._witnesses.ended()
                self._stage = Stage.CLOSING
                members.shut()
                out.append(effect)
            case co.Dismiss():
                self._dismissed = True  # nobody leaves for good before the end is durable

    def _begin(self, out: Out) -> None:
        if self._begun:
            return
        self._begun = True
        registers = self._members.registers()
        self.barrier.announce_every = self._announce(registers[0].dimension)
        self.samples.update({register.name: register.samples for register in registers})
        out.append(BeginResults(registers, self.barrier.k))
        first, last = self.barrier.k, self._K
        rest = f"rounds {first}..{last} begin" if first <= last else f"rounds 0..{last} are done"
        out.append(Note("info", f"all {len(registers)} agents registered; {rest}"))

    # --- what agents say --------------------------------------------------------------------------------------

    def _said(self, seat: Seat, message: object, out: Out, now_ns: int) -> None:
        if self._stage is not Stage.OPEN:
            return
        if isinstance(message, m.Done):
            self._done(seat, message, out, now_ns)
            return
        name = seat.register.name
        if not isinstance(message, m.Ready | EdgeReport):  # which are signs of life to the barrier anyway
            self._move(co.AgentHeard(name), out, now_ns)
        match message:
            case m.Heartbeat():
                pass
            case m.MetricsReport():
                out.append(KeepMetrics(name, message))
            case EdgeReport():
                ends = {lack.sender for lack in message.lacks} | {down.receiver for down in message.down}
                if ends <= self._names - {name}:
                    self._move(co.AgentEdges(name, message), out, now_ns)
                else:
                    self._nonsense(seat, "reports edges that do not exist", out, now_ns)
            case m.Ready():
                self._ready(seat, out, now_ns)
            case m.FinishedReport():
                self._finished(seat, message, out, now_ns)
            case m.Disowned():
                self._dispute(seat, self._witnesses.disowned(name, message), out, now_ns)
            case m.Outlier():
                self._dispute(seat, self._witnesses.outlier(name, message), out, now_ns)
            case m.Failed(exit_code, reason):
                code = next((c for c in ExitCode if c == exit_code), ExitCode.BUG)
                self._move(co.AgentFailed(name, reason, code), out, now_ns)
            case m.Refusal(_, reason):
                self._move(co.AgentRefused(name, reason), out, now_ns)
            case m.KeyOffer() | m.KeyProofs() if self._relay is not None:
                if not self._relay.take(name, message, lambda to, word: self._members.say(to, word, out)):
                    self._nonsense(seat, "says of keys what is not its own to say", out, now_ns)
            case _:
                self._nonsense(seat, "sent an unexpected message", out, now_ns)

    def _ready(self, seat: Seat, out: Out, now_ns: int) -> None:
        """It knows the run and takes part: an agent whose owner's policy forbids it says so instead of Ready."""
        if seat.ready:
            return
        seat.ready = True
        register, ours = seat.register, self._members.ours
        joined = co.AgentJoined(
            register.name,
            ours(register, register.last_done_round),
            ours(register, register.last_durable_round),
            finished=False,
            released=ours(register, register.last_released_round),
        )
        self._move(joined, out, now_ns)

    def _done(self, seat: Seat, message: m.Done, out: Out, now_ns: int) -> None:
        name, k, head = seat.register.name, message.k, message.ledger_head
        beyond = k > self.barrier.go_through and k > self.barrier.done_limit(name)
        if beyond or message.durable_through > k:
            self._nonsense(seat, f"reports round {k} done, beyond the barrier", out, now_ns, "OUT_OF_RANGE")
            return
        if head and k > self._heads.get(name, (-1, b""))[0]:
            self._heads[name] = (k, head)
            again = bool(out) and isinstance(out[0], NoteHead) and out[0].name == name
            out[:again] = [NoteHead(name, k, head)]  # of several rounds in one message the newest, before the rest
        if not self._dispute(seat, self._witnesses.words(name, k, message.words), out, now_ns):
            return
        self.pace.done(name, k - self.barrier.done(name), message.spent)
        self._move(co.AgentDone(name, k, message.durable_through), out, now_ns)
        if self._row_every and ((k + 1) % self._row_every == 0 or k == self._K):
            out.append(KeepRow(name, k + 1))

    def _dispute(self, seat: Seat, said: Said | None, out: Out, now_ns: int) -> bool:
        """Tell everybody what agents disagree on; False: what the agent said of its edges was nonsense."""
        if said is None:
            self._nonsense(seat, "says of what was sent what does not fit its edges", out, now_ns)
            return False
        for dispute in said.disputes:
            self._members.broadcast(dispute, out)
        out += said.effects
        if said.stop:
            self._move(co.StopRun(said.stop, ExitCode.CHECK_FAILED), out, now_ns)
        return True

    def _finished(self, seat: Seat, report: m.FinishedReport, out: Out, now_ns: int) -> None:
        name, through = seat.register.name, self.barrier.done(seat.register.name) == self._K
        if not self._begun and through:
            return  # its result is of an earlier start of this process; it comes once more after Start
        if not self._begun or not through or report.status != "finished":
            self._nonsense(seat, "reports a result of an unfinished run", out, now_ns)
        else:
            out.append(KeepResult(seat.call, name, report))

    def _nonsense(self, seat: Seat, what: str, out: Out, now_ns: int, status: str = "INVALID_ARGUMENT") -> None:
        error = PeerError(f"{seat.register.name} {what}", grpc_status=status)
        self._members.hang_up(seat.call, error, out, now_ns)

    # --- the end ----------------------------------------------------------------------------------------------

    def _closed(self, conclude: co.Conclude, out: Out, now_ns: int) -> None:
        self._conclusion = conclude
        self._stage, self._until_ns = Stage.PARTING, now_ns + FAREWELL_NS
        self._members.over(conclude, out, now_ns)
        if self._dismissed:
            self._members.broadcast(m.Goodbye(), out)
        out.append(KeepPause(False))  # whoever starts it again wants it to go on
        meanwhile, self._meanwhile = self._meanwhile, []
        for event in meanwhile:
            self._take(event, out, now_ns)

    def _part(self, out: Out, now_ns: int) -> None:
        assert self._conclusion is not None
        if self._stage is Stage.PARTING and (self._members.empty or now_ns >= self._until_ns):
            # An agent that is away would wait long for a coordinator that is gone.
            late_ns = LATE_NS if self._conclusion.status in ("finished", "refused") else 0
            self._stage, self._until_ns = Stage.LATE, now_ns + late_ns
        if self._stage is Stage.LATE and (self._members.all_told or now_ns >= self._until_ns):
            self._stage = Stage.OVER
            out.append(Exit())

    # --- the operator -----------------------------------------------------------------------------------------

    def _asked(self, request: m.ControlRequest, out: Out, now_ns: int) -> None:
        barrier = self.barrier
        running, paused = (barrier.phase is p for p in (co.CoordinatorPhase.RUNNING, co.CoordinatorPhase.PAUSED))
        stands = "has not begun" if self.state == "waiting" and not self.samples else f"is {self.state}"
        match request.action:
            case "pause" if running:
                out.append(KeepPause(True))
                self._move(co.PauseRequested(), out, now_ns)
                reply = m.ControlReply(True, f"paused; agents finish round {barrier.go_through}")
            case "pause":
                reply = m.ControlReply(paused, f"the run {stands}")
            case "resume" if barrier.paused and self._stage is Stage.OPEN:
                out.append(KeepPause(False))
                self._move(co.ResumeRequested(), out, now_ns)
                reply = m.ControlReply(True, "running")
            case "resume":
                reply = m.ControlReply(running, f"the run {stands}")
            case "stop":
                self._move(co.StopRun(request.reason or "stopped by the operator"), out, now_ns)
                reply = m.ControlReply(True, "stopping")
        out.append(Answer(reply))
