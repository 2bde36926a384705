"""Who takes part in a run and over which stream: registration, each agent's queue, streams that replace one another."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from dpgt_node import __version__
from dpgt_node.config import RunConfig, canonical_json, run_sha256
from dpgt_node.errors import ExitCode, PeerError
from dpgt_node.protocol import coordinator as co
from dpgt_node.protocol import messages as m
from dpgt_node.runtime.clock import AwakeClock, heartbeat_s
from dpgt_node.runtime.coordinator import admission
from dpgt_node.wire import services

log = logging.getLogger(__name__)

FIRST_WORD_S = 10.0
"""A caller that has not registered by then is hung up on."""
QUEUE_MAX = 1000
"""Messages that may wait for one agent; the barrier needs a handful."""
BEATS_OF_LIFE = 3
"""Heartbeats in which a living process speaks for certain."""

Stream = services.ServerStream[m.AgentMessage, m.CoordinatorMessage]


@dataclass(slots=True)
class Member:
    """One registered agent, connected or not."""

    register: m.Register
    stream: Stream | None = None
    ready: bool = False
    queue: deque[m.CoordinatorMessage] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    seen_s: float = 0.0
    task: asyncio.Task[object] | None = None

    def send(self, message: m.CoordinatorMessage) -> None:
        """Queue a message; nothing while the agent is away: its next registration says it all again."""
        if self.stream is None:
            return
        self.queue.append(message)
        self.wake.set()
        if len(self.queue) > QUEUE_MAX and self.task is not None:
            self.task.cancel()  # it reads nothing: when it does again, it registers anew

    def beat(self) -> None:
        """A sign of life, unless others are waiting to be read."""
        if not self.queue:
            self.send(m.Heartbeat())


class Members:
    """Serves Join for the agents of ``run``.

    ``feed`` steps the coordinator's machine, ``said`` handles what a member says after it is ready, ``conclusion`` is
    how the run ended, None before.  ``remembered``: an agent's last round and its ledger's head after it.
    """

    def __init__(
        self,
        run: RunConfig,
        run_id: bytes,
        machine: co.CoordinatorMachine,
        feed: Callable[[co.CoordinatorEvent], None],
        said: Callable[[str, m.AgentMessage], Awaitable[None]],
        conclusion: Callable[[], co.Conclude | None],
        remembered: Callable[[str], tuple[int, bytes] | None],
    ) -> None:
        self._run = run
        self._run_id = run_id
        self._json = canonical_json(run)
        self._sha256 = run_sha256(run)
        self._names = run.graph.agents
        self._heartbeat_s = heartbeat_s(run.runtime.round_timeout_s)
        self._clock = AwakeClock(2 * self._heartbeat_s)
        self._machine = machine
        self._feed = feed
        self._said = said
        self._conclusion = conclusion
        self._remembered = remembered
        self._members: dict[str, Member] = {}
        self._told: set[str] = set()

    def last_seen_s(self, name: str) -> float | None:
        """Seconds since the agent's last message; None: it never came."""
        member = self._members.get(name)
        return None if member is None else self._clock.now_s() - member.seen_s

    def registers(self) -> list[m.Register]:
        """Everybody's registration, in row order; everybody has come."""
        return [self._members[name].register for name in self._names]

    def addresses(self) -> dict[str, str]:
        """Where each agent that ever registered listens."""
        return {name: member.register.advertise for name, member in self._members.items()}

    def beat(self) -> None:
        """Give every connected agent a sign of life."""
        self._clock.now_ns()
        for member in self._members.values():
            member.beat()

    def broadcast(self, message: m.CoordinatorMessage) -> None:
        """Send to every connected agent."""
        for member in self._members.values():
            member.send(message)

    async def drain(self, timeout_s: float) -> None:
        """Wait until every agent has left, at most ``timeout_s``."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while loop.time() < end and any(member.stream is not None for member in self._members.values()):
            await asyncio.sleep(0.01)

    def part(self) -> None:
        """The run is over, and every connected agent was sent the last word."""
        self._told |= {name for name, member in self._members.items() if member.stream is not None}

    async def all_told(self, timeout_s: float) -> None:
        """Wait until every agent of the run, also those that were away, heard how it ended, at most ``timeout_s``."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while loop.time() < end and not self._told.issuperset(self._names):
            await asyncio.sleep(0.01)

    async def join(self, stream: Stream) -> None:
        """One agent's membership."""
        name = stream.agent_name()
        try:
            async with asyncio.timeout(FIRST_WORD_S):
                first = await stream.read()
        except TimeoutError:
            raise PeerError(f"{name} said nothing for {FIRST_WORD_S:g} s", grpc_status="DEADLINE_EXCEEDED") from None
        if isinstance(first, m.Refusal) and name in self._names:
            self._told.add(name)
            self._feed(co.AgentRefused(name, first.reason))
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
            twin=await self._is_twin(register, stream),
        )
        if refused is not None:
            log.warning("refused %s at %s: %s", name, stream.address, refused.reason)
            await stream.write(m.Refused(refused.kind, refused.reason[:1000]))
            if refused.ends_run:
                self._feed(co.AgentRefused(name, refused.reason))
            return
        if max(register.last_done_round, register.last_durable_round) > self._run.K:
            raise PeerError(f"{name} registers with rounds beyond the last, {self._run.K}", grpc_status="OUT_OF_RANGE")
        if (conclude := self._conclusion()) is not None:
            # Too late: it must hear why, and not wait for a start that never comes.
            await stream.write(self._last_word(conclude, register))
            self._told.add(name)
            return
        member = self._admit(name, register, stream)
        member.task = asyncio.current_task()
        writer = asyncio.ensure_future(self._write(member.queue, member.wake, stream))
        try:
            await self._read(name, member, stream)
        except asyncio.CancelledError:
            return  # the server stops, or the agent's connection broke: the call is over either way
        finally:
            if member.stream is stream:
                member.stream = None
                member.queue.clear()
                self._feed(co.AgentGone(name))
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    def _last_word(self, conclude: co.Conclude, register: m.Register) -> m.CoordinatorMessage:
        saved = register.run_id == self._run_id and register.last_durable_round == self._run.K
        if conclude.exit_code is ExitCode.DONE and saved:
            return m.Goodbye()
        return m.StopMessage(conclude.reason[:1000], int(conclude.exit_code))

    async def _is_twin(self, register: m.Register, stream: Stream) -> bool:
        """Whether another process of the same name lives.

        Its stream may be open only because nobody noticed its end (a host that lost power says nothing), so it gets
        a few heartbeats' time for a sign of life.  A process that holds less than the first had told of is no
        successor: it does not get the chance.
        """
        name, member = register.name, self._members.get(register.name)
        first = None if member is None else member.stream
        if member is None or first is None or member.register.instance == register.instance:
            return False
        released = register.last_released_round if register.run_id == self._run_id else -1
        if name not in self._names or released < self._machine.done(name):
            return True
        log.info("another process at %s says that it is %s, which is here: does it live?", stream.address, name)
        heard_s = member.seen_s
        end_s = self._clock.now_s() + BEATS_OF_LIFE * self._heartbeat_s
        while self._clock.now_s() < end_s:
            if member.stream is not first:
                return member.stream is not None
            if member.seen_s != heard_s:
                return True
            await asyncio.sleep(self._heartbeat_s / 20)
        log.warning("%s was started again; its first process gives no sign of life and is replaced", name)
        return False

    def _admit(self, name: str, register: m.Register, stream: Stream) -> Member:
        member = self._members.get(name)
        if member is None:
            member = self._members[name] = Member(register)
        member.register = register
        if member.stream is not None and member.task is not None:
            member.task.cancel()  # half dead: the same process, or its successor, is here now
        member.stream = stream
        # Its own queue: the writer of a stream that is half dead must not take what is meant for its successor.
        member.queue, member.wake = deque(), asyncio.Event()
        member.seen_s = self._clock.now_s()
        member.ready = False
        log.info("%s registered from %s, listens on %s", name, stream.address, register.advertise)
        go_through = self._machine.go_through
        k, head = self._remembered(name) or (-1, b"")
        welcome = m.Welcome(
            self._run_id,
            self._sha256,
            self._json,
            go_through,
            package_version=__version__,
            ledger_round=k,
            ledger_head=head,
        )
        member.send(welcome)
        return member

    def _ready(self, name: str, member: Member) -> None:
        """It knows the run and takes part: an agent whose owner's policy forbids it says so instead of Ready."""
        if member.ready:
            return
        member.ready = True
        register = member.register
        ours = register.run_id == self._run_id
        self._feed(
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

    async def _read(self, name: str, member: Member, stream: Stream) -> None:
        while (message := await stream.read()) is not None:
            if member.stream is not stream:
                return  # superseded by a newer stream of the same process
            member.seen_s = self._clock.now_s()
            if isinstance(message, m.Ready):
                self._ready(name, member)
            else:
                await self._said(name, message)
