"""An agent's stream to the coordinator, as ``runtime.uplink``."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from dpgt_node.errors import PeerError, PeerLost
from dpgt_node.protocol import messages as m
from tests.swarm.clock import SECOND
from tests.swarm.network import End
from tests.swarm.process import COORDINATOR, Awake, Backoff, heartbeat_ns

if TYPE_CHECKING:
    from tests.swarm.agent import AgentProcess


class Uplink:
    """Join, kept open."""

    def __init__(self, agent: AgentProcess) -> None:
        self._agent = agent
        self._world = agent.world
        self._end: End | None = None
        self._queue: deque[m.AgentMessage] = deque()
        self._backoff = Backoff()
        self._heard = self._welcomed = self._admitted = False
        self._saved = agent.disk.final is not None
        self._beat_ns = heartbeat_ns(self._world.plan.run.runtime.round_timeout_s)
        self._clock = Awake(self._world.clock, 2 * self._beat_ns)
        self._heard_ns = self._opened_ns = self._clock.now_ns()

    def begin(self) -> None:
        """Dial, and dial again for as long as the process lives."""
        self._dial()
        self._beat()

    def say(self, message: m.AgentMessage, *, first: bool = False) -> None:
        """Queue a message; what is queued when the stream breaks is dropped, because Register says it all again."""
        if self._end is not None and self._admitted:
            self._end.write(message)
        elif first:
            self._queue.appendleft(message)
        else:
            self._queue.append(message)

    def _dial(self) -> None:
        self._heard = self._admitted = False
        self._opened_ns = self._clock.now_ns()
        self._queue.clear()
        register = self._agent.register()

        def opened(end: End) -> None:
            self._end = end
            end.on_message, end.on_end = self._received, self._lost
            end.write(register)

        self._world.network.dial(self._agent, COORDINATOR, "join", opened, self._lost)

    def _received(self, message: Any) -> None:
        if self._end is not None:
            self._end.consumed()
        self._heard, self._heard_ns = True, self._clock.now_ns()
        if isinstance(message, m.Welcome):
            self._welcomed = True
        if not isinstance(message, m.Heartbeat):
            self._agent.hears(message)
        if isinstance(message, m.Welcome) and self._end is not None:
            self._admitted = True
            while self._queue:
                self._end.write(self._queue.popleft())

    def _patience_ns(self) -> int:
        runtime = self._world.plan.run.runtime
        short = self._welcomed or self._saved  # with its result saved it only serves
        return int((runtime.round_timeout_s if short else runtime.register_timeout_s) * SECOND)

    def _lost(self) -> None:
        self._end, self._admitted = None, False
        if self._heard:
            self._backoff.reset()
        if self._clock.now_ns() - self._heard_ns > self._patience_ns():
            kind = PeerLost if self._welcomed else PeerError
            self._agent.abandoned(kind("no coordinator"))
            return
        self._agent.later(self._backoff.next_ns(), self._dial)

    def _beat(self) -> None:
        now = self._clock.now_ns()
        if self._end is not None:
            if self._admitted:
                self._end.write(m.Heartbeat())
            if now - max(self._heard_ns, self._opened_ns) > self._patience_ns() // 2:
                self._end.close()  # a hung coordinator keeps it open
        self._agent.later(self._beat_ns, self._beat)
