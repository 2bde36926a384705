"""One agent's session, from its first call to the coordinator to the exit code of the process.

It is made of machines, steps them and passes their effects on: the call to the coordinator (``uplink``), both ends of
every edge (``sender``, ``receiver``), and, once the run is open, the agent's own (``agent``).

Theory of operation:

    phase      waits for                            then
    ---------------------------------------------------------------------------------------------------------------
    STARTING   Begin                                the coordinator is called: OUTSIDE
    OUTSIDE    Welcome, of this version and run     ReadRun: READING
               Refused, Stop                        Exit, in words
               Goodbye, with the result saved       FAREWELL, DONE: it came back for nothing
    READING    RunRead, and the ledger is the one   BeginRun: BEGINNING; if not, a last word: LEAVING
               that the coordinator remembers
    BEGINNING  RunBegun                             Ready; in-neighbours are let in: INSIDE
               RunBegun, where noise cancels        a key offer: AGREEING (``agreeing``)
               RunRefused                           a last word: LEAVING
    AGREEING   every partner's proof of a common    Ready; in-neighbours are let in: INSIDE
               key; if one is wrong or never comes  a last word: LEAVING
    INSIDE     Start, Go, AllDurable, vectors, ...  the agent's machine goes its way, and its effects are passed on
               Welcome, of the same run             Ready: the coordinator came back
               Stop, Goodbye, a budget's end,       a last word where others wait in vain: LEAVING; else FAREWELL
               something broken or lost
    LEAVING    Stop: the last word was acted on     FAREWELL, after ``farewell_ns`` at the latest
    FAREWELL   every in-neighbour closing its call  Exit, after ``farewell_ns`` at the latest
    ENDED      nothing

Nothing is said of rounds before Ready, and nothing is released before Start.  From LEAVING on the agent's machine is
stepped no more: what is durable is durable, and the next process goes on from there.

How it exits: with the result saved there is nothing left to ask for, so a coordinator that stays away is no failure
then; without it no coordinator can make the process look done, nor buggy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dpgt_node.errors import BudgetReached, DpgtError, ExitCode, NoAgreement, PeerError, RefusedError
from dpgt_node.protocol import messages as m
from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent import joining
from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.agent.agreeing import Agreeing
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.agent.participant import Participant, earliest
from dpgt_node.protocol.agent.session_types import SessionPhase
from dpgt_node.protocol.agent.uplink import Uplink
from dpgt_node.protocol.calls import COORDINATOR, Accepted, End, Ended, Heard, Note, Opened, Taken
from dpgt_node.protocol.edge.receiver import Receiver, ReceiverPhase
from dpgt_node.protocol.told import told

GOING = frozenset({SessionPhase.LEAVING, SessionPhase.FAREWELL, SessionPhase.ENDED})
_OPEN = frozenset({ReceiverPhase.OPEN, ReceiverPhase.FULL})
_WITHIN = frozenset({s.Say, s.Told, t.Finish, s.Broke, s.Abandoned})
_ROUND, _STREAM = frozenset({t.Advanced, t.ReleaseReady, t.Persisted}), frozenset({Heard, Taken})
MakeAgent = Callable[[s.RunRead, s.RunBegun], AgentMachine]


class Session:
    """Agent ``peers.name`` in one life of its process.

    ``held``: what its state directory held at the start.  ``make_agent``: builds the machine when the run is open.
    """

    def __init__(self, terms: s.Terms, peers: s.Peers, held: s.Held, make_agent: MakeAgent) -> None:
        self._terms = terms
        self._peers = peers
        self._held = held
        self._make_agent = make_agent
        self._phase = SessionPhase.STARTING
        self._run_id = held.run_id
        self._advertise = ""
        self._welcomed: m.Welcome
        self._read: s.RunRead
        self._begun: s.RunBegun
        self._agreeing: Agreeing | None = None
        self._inside: Participant | None = None
        self._uplink: Uplink
        self._shortfall = ""
        self._back_again = False
        self._stop_code, self._exit = ExitCode.STOPPED, s.Exit(ExitCode.STOPPED)
        self._until_ns = 0
        self.receivers = {name: Receiver(peers.name, peers.names.index(name)) for name in peers.streams_in}

    # --- what the shell may ask ---------------------------------------------------------------------------------

    @property
    def phase(self) -> SessionPhase:
        return self._phase

    @property
    def agent(self) -> AgentMachine | None:
        """The agent's machine, from INSIDE on."""
        return None if self._inside is None else self._inside.agent

    @property
    def reported(self) -> bool:
        """Whether the last report was said."""
        return self._inside is not None and self._inside.reported

    @property
    def saved(self) -> bool:
        """Whether this agent's x_final is durable."""
        agent = self.agent
        return self._held.finished if agent is None else agent.durable_through == self._terms.last_round

    @property
    def inside(self) -> Participant | None:
        """The agent among its neighbours, from INSIDE on."""
        return self._inside

    def next_deadline_ns(self) -> int | None:
        """When to step with ``Tick`` at the latest."""
        match self._phase:
            case SessionPhase.STARTING | SessionPhase.ENDED:
                return None
            case SessionPhase.FAREWELL:
                return self._until_ns
            case SessionPhase.LEAVING:
                return earliest(self._until_ns, self._uplink.next_deadline_ns())
        return earliest(*[p.next_deadline_ns() for p in (self._inside, self._agreeing, self._uplink) if p is not None])

    # --- the step -----------------------------------------------------------------------------------------------

    def step(self, event: Any, now_ns: int) -> tuple[Any, ...]:
        """Take one event, return the effects in the order in which they must be carried out."""
        out: list[Any] = []
        if self._phase is SessionPhase.ENDED and not isinstance(event, Accepted):
            return ()
        try:
            often = (kind := type(event)) in _ROUND or (kind in _STREAM and event.call.peer != COORDINATOR)
            inside = self._inside if often and self._phase is SessionPhase.INSIDE else None
            if inside is None:
                self._take(event, out, now_ns)
            elif _WITHIN.isdisjoint(map(type, effects := inside.step(event, now_ns))):
                return effects
            else:
                self._emit(effects, out, now_ns)
        except NoAgreement as error:
            self._refuse(error, out, now_ns)
        except DpgtError as error:  # what was refused by, or cannot be believed of, the coordinator: it had its say
            self._leave(error, (), out, now_ns)
        return tuple(out)

    def _take(self, event: Any, out: list[Any], now_ns: int) -> None:
        match event:
            case Heard() | Taken() | Opened() | Ended():
                self._of_call(event, out, now_ns)
            case t.Tick():
                self._tick(event, out, now_ns)
            case Accepted():
                self._accept(event, out, now_ns)
            case s.Begin(advertise):
                self._phase, self._advertise = SessionPhase.OUTSIDE, advertise
                self._uplink = Uplink.of(self._terms, self._register, saved=self.saved, now_ns=now_ns)
                self._emit(self._uplink.step(t.Tick(), now_ns), out, now_ns)
            case s.RunRead():
                self._run_read(event, out, now_ns)
            case s.RunBegun():
                self._run_begun(event, out, now_ns)
            case s.RingChecked() | s.KeysKept():
                self._agree(event, out, now_ns)
            case s.RunRefused(error):
                self._refuse(error, out, now_ns)
            case s.Broke(error):
                self._fail(error, out, now_ns)
            case s.Interrupted():
                if self._phase not in GOING:
                    out.append(Note("warning", f"interrupted in round {'-' if self.agent is None else self.agent.k}"))
                    self._farewell(s.Exit(ExitCode.STOPPED), out, now_ns)
            case _:
                self._step_inside(event, out, now_ns)

    def _emit(self, effects: Iterable[Any], out: list[Any], now_ns: int) -> None:
        """Do what parts of the session ask of one another, at once and in order; the shell gets the rest."""
        for effect in effects:
            match effect:
                case _ if type(effect) not in _WITHIN:
                    out.append(effect)
                case s.Say():
                    self._emit(self._uplink.step(effect, now_ns), out, now_ns)
                case s.Told(message):
                    self._told(message, out, now_ns)
                case t.Finish():
                    self._finish(effect, out, now_ns)
                case s.Broke(error):
                    self._fail(error, out, now_ns)
                case s.Abandoned(error):
                    self._abandoned(error, out, now_ns)

    def _step_inside(self, event: Any, out: list[Any], now_ns: int) -> None:
        if self._inside is None:
            raise PeerError("the coordinator spoke of rounds before Welcome")
        if self._phase is SessionPhase.INSIDE:
            self._emit(self._inside.step(event, now_ns), out, now_ns)

    # --- calls --------------------------------------------------------------------------------------------------

    def _of_call(self, event: Heard | Taken | Opened | Ended, out: list[Any], now_ns: int) -> None:
        call = event.call
        if call.peer == COORDINATOR:
            self._emit(self._uplink.step(event, now_ns), out, now_ns)
        elif self._phase is SessionPhase.INSIDE:
            self._step_inside(event, out, now_ns)
        elif not call.dialled and isinstance(event, Ended):  # it waited for Welcome, or for this agent to leave
            self.receivers[call.peer].step(event, now_ns)
            self._check_out(out)

    def _accept(self, event: Accepted, out: list[Any], now_ns: int) -> None:
        peer = event.call.peer
        if self._phase in GOING:
            out.append(End(event.call, PeerError(f"{self._peers.name} is leaving", grpc_status="UNAVAILABLE")))
        elif peer in self.receivers:
            self._emit(self.receivers[peer].step(event, now_ns), out, now_ns)
        else:
            message = f"there is no edge from {peer} to {self._peers.name}"
            out.append(End(event.call, PeerError(message, grpc_status="PERMISSION_DENIED")))

    def _tick(self, tick: t.Tick, out: list[Any], now_ns: int) -> None:
        if self._phase is SessionPhase.FAREWELL:
            if now_ns >= self._until_ns:
                self._end(out)
            return
        self._emit(self._uplink.step(tick, now_ns), out, now_ns)
        self._agree(tick, out, now_ns)
        if self._phase is SessionPhase.INSIDE:
            self._step_inside(tick, out, now_ns)
        elif self._phase is SessionPhase.LEAVING and now_ns >= self._until_ns:
            self._farewell(self._exit, out, now_ns)

    def _finish(self, finish: t.Finish, out: list[Any], now_ns: int) -> None:
        match finish.status:
            case "finished":
                self._farewell(s.Exit(ExitCode.DONE), out, now_ns)
            case "stopped":
                out.append(Note("warning", f"stopped: {finish.reason}"))
                self._farewell(s.Exit(self._stop_code), out, now_ns)
            case "budget":
                self._fail(BudgetReached(f"{finish.reason}: {self._shortfall}"), out, now_ns)

    # --- the coordinator's messages -----------------------------------------------------------------------------

    def _register(self) -> m.Register:
        return joining.register(self._terms, self._peers.name, self._held, self.agent, self._run_id, self._advertise)

    def _told(self, message: m.CoordinatorMessage, out: list[Any], now_ns: int) -> None:
        if self._phase in GOING:
            if isinstance(message, m.StopMessage) and self._phase is SessionPhase.LEAVING:
                self._farewell(self._exit, out, now_ns)
            return
        match message:
            case m.GoMessage(through):
                self._step_inside(t.Go(through), out, now_ns)
            case m.AllDurableMessage(through):
                self._step_inside(t.AllDurable(through), out, now_ns)
            case m.Welcome():
                self._welcome(message, out, now_ns)
            case m.Refused():
                raise joining.refused(self._peers.name, message)
            case m.Start():
                self._step_inside(message, out, now_ns)
                # A coordinator that came back takes results once everybody is here again, which is what Start says.
                self._step_inside(s.Repeat(metrics=self._back_again), out, now_ns)
                self._back_again = False
            case m.StopMessage(reason, exit_code):
                if self._inside is None:
                    raise RefusedError(f"the run does not begin: {reason}")
                self._stop_code = joining.code_of(exit_code, saved=self.saved)
                self._step_inside(t.StopRequested(reason), out, now_ns)
            case m.Goodbye():
                self._goodbye(out, now_ns)
            case m.Dispute():
                self._step_inside(message, out, now_ns)
            case m.KeyRing() | m.KeyProof() if self._peers.partners:
                self._agree(message, out, now_ns)
            case _:
                raise PeerError("the coordinator sent an unexpected message")

    def _welcome(self, welcome: m.Welcome, out: list[Any], now_ns: int) -> None:
        joining.believe(self._terms, welcome)
        if self._phase is SessionPhase.OUTSIDE:
            self._phase, self._run_id, self._welcomed = SessionPhase.READING, welcome.run_id, welcome
            out.append(s.ReadRun(welcome.run_id, welcome.ledger_round))
            return
        if welcome.run_id != self._run_id:
            raise PeerError("the coordinator came back with another run")
        self._back_again = self._inside is not None
        self._answer(out, now_ns)

    def _run_read(self, read: s.RunRead, out: list[Any], now_ns: int) -> None:
        if self._phase is not SessionPhase.READING:
            return
        if not self._is_the_ledger(self._welcomed, read):
            self._refuse(joining.old_copy(self._terms, self._peers.name, self._welcomed), out, now_ns)
            return
        self._phase, self._read = SessionPhase.BEGINNING, read
        out.append(s.BeginRun(self._run_id, read.recovered, finished=read.final is not None))

    def _is_the_ledger(self, welcome: m.Welcome, read: s.RunRead) -> bool:
        """Whether the ledger here ever was what the coordinator remembers of it."""
        return not welcome.ledger_head or welcome.ledger_head == read.ledger_head

    def _run_begun(self, begun: s.RunBegun, out: list[Any], now_ns: int) -> None:
        if self._phase is not SessionPhase.BEGINNING:
            return
        self._phase, self._begun = SessionPhase.AGREEING, begun
        if (recovered := self._read.recovered) is not None:
            out.append(Note("info", f"going on from round {recovered.checkpoint.k} of run {self._run_id.hex()}"))
        if begun.agreement is not None:
            self._agreeing = Agreeing(self._peers.partners, begun.agreement, self._terms.first_patience_ns)
        if self._agreeing is None or self._agreeing.agreed:
            self._open()
        self._answer(out, now_ns)
        self._admit(out, now_ns)

    def _answer(self, out: list[Any], now_ns: int) -> None:
        """To Welcome, once the run was begun here."""
        words = (*([m.Ready()] if self._inside else []), *([] if self._agreeing is None else self._agreeing.words()))
        if self._phase in (SessionPhase.AGREEING, SessionPhase.INSIDE):
            self._emit((s.Say(word, first=word is words[0]) for word in words), out, now_ns)

    def _agree(self, event: Any, out: list[Any], now_ns: int) -> None:
        if self._agreeing is None or self._phase not in (SessionPhase.AGREEING, SessionPhase.INSIDE):
            return
        self._emit(self._agreeing.step(event, now_ns), out, now_ns)
        if self._phase is SessionPhase.AGREEING and self._agreeing.agreed:
            self._open()
            self._emit((s.Say(m.Ready()),), out, now_ns)
            self._admit(out, now_ns)

    def _open(self) -> None:
        this, made = (self._terms, self._peers, self._run_id), (self._read, self._begun)
        self._inside = Participant.of(*this, self._make_agent(*made), self.receivers, *made)
        self._phase, self._shortfall = SessionPhase.INSIDE, self._begun.shortfall

    def _admit(self, out: list[Any], now_ns: int) -> None:
        if (agent := self.agent) is not None:
            self._step_inside(s.Admit(self._run_id, agent), out, now_ns)

    def _goodbye(self, out: list[Any], now_ns: int) -> None:
        if not self.saved:
            raise PeerError("the coordinator said goodbye before the result was saved")
        if self._inside is None:  # it came back for nothing: the run was over
            self._farewell(s.Exit(ExitCode.DONE), out, now_ns)
        else:
            self._step_inside(t.Dismissed(), out, now_ns)

    # --- the end ------------------------------------------------------------------------------------------------

    def _abandoned(self, error: DpgtError, out: list[Any], now_ns: int) -> None:
        if self._phase is SessionPhase.LEAVING:
            self._farewell(self._exit, out, now_ns)
        elif self.saved:
            # Nobody asks for more than a saved result; whoever still waits for this agent's payloads names it.
            what = "the result is saved (start this node again if the others have to go on)"
            out.append(Note("warning", f"{error}; {what}"))
            self._farewell(s.Exit(ExitCode.DONE), out, now_ns)
        else:
            self._leave(error, (), out, now_ns)

    def _refuse(self, error: DpgtError, out: list[Any], now_ns: int) -> None:
        first = self._agreeing is None  # else an offer was the answer to Welcome
        self._leave(error, (s.Say(joining.refusal(error), first=first),), out, now_ns)

    def _fail(self, error: DpgtError, out: list[Any], now_ns: int) -> None:
        """The others must know why they wait in vain."""
        self._leave(error, (s.Say(m.Failed(int(error.exit_code), told(error))),), out, now_ns)

    def _leave(self, error: DpgtError, last_word: Sequence[s.Say], out: list[Any], now_ns: int) -> None:
        if self._phase in GOING:
            out.append(Note("error", f"after the run ended: {error}"))
            return
        exit_ = s.Exit(error.exit_code, error)
        if not last_word:
            self._farewell(exit_, out, now_ns)
            return
        self._phase, self._exit, self._until_ns = SessionPhase.LEAVING, exit_, now_ns + self._terms.farewell_ns
        self._emit(last_word, out, now_ns)

    def _farewell(self, exit_: s.Exit, out: list[Any], now_ns: int) -> None:
        begun, self._phase, self._exit = self._phase is not SessionPhase.STARTING, SessionPhase.FAREWELL, exit_
        self._until_ns = now_ns + self._terms.farewell_ns
        if begun:
            out += self._uplink.step(s.Leave(), now_ns)
        if self._inside is not None:
            out += self._inside.step(s.Leave(), now_ns)
        self._check_out(out)

    def _check_out(self, out: list[Any]) -> None:
        if self._phase is SessionPhase.FAREWELL and not any(r.phase in _OPEN for r in self.receivers.values()):
            self._end(out)

    def _end(self, out: list[Any]) -> None:
        self._phase = SessionPhase.ENDED
        for receiver in self.receivers.values():
            out += receiver.step(s.Leave(), self._until_ns)
        out.append(self._exit)
