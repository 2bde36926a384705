"""What every simulated process can suffer: it dies between two effects, it freezes, it ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from dpgt_node.errors import ExitCode
from tests.swarm.clock import SECOND, Clock
from tests.swarm.network import End

if TYPE_CHECKING:
    from tests.swarm.world import World

COORDINATOR = -1
BACKOFF_NS = (SECOND // 20, SECOND)


class Backoff:
    """Waiting between attempts: doubles from 50 ms to 1 s."""

    def __init__(self) -> None:
        self._ns = BACKOFF_NS[0]

    def reset(self) -> None:
        """The connection works."""
        self._ns = BACKOFF_NS[0]

    def next_ns(self) -> int:
        """How long to wait now."""
        delay, self._ns = self._ns, min(BACKOFF_NS[1], 2 * self._ns)
        return delay


def heartbeat_ns(round_timeout_s: float) -> int:
    """How often both ends of an agent's stream to the coordinator give a sign of life."""
    return int(min(2.0, round_timeout_s / 8) * SECOND)


class Awake:
    """Time without what the process slept through (``runtime.clock``): of a longer span only ``step_ns`` counts."""

    def __init__(self, clock: Clock, step_ns: int) -> None:
        self._clock = clock
        self._step_ns = step_ns
        self._last_ns = clock.now_ns
        self._slept_ns = 0

    def now_ns(self) -> int:
        """Nanoseconds, never going back."""
        now = self._clock.now_ns
        self._slept_ns += max(0, now - self._last_ns - self._step_ns)
        self._last_ns = now
        return now - self._slept_ns


class Crashed(BaseException):
    """``kill -9`` arrived here."""


class Process:
    """One life of one process.  A restarted process is a new object; what was meant for the old one is dropped."""

    def __init__(self, world: World, index: int, name: str) -> None:
        self.world = world
        self.index = index
        self.name = name
        self.alive = True
        self.exit_code: ExitCode | None = None
        self.ended_ns = 0
        self._frozen = False
        self._backlog: deque[Callable[[], None]] = deque()

    @property
    def frozen(self) -> bool:
        """Whether the process is stopped."""
        return self._frozen

    def run(self, job: Callable[[], None]) -> None:
        """Let the process do ``job``, unless it is dead; later if it is frozen."""
        if not self.alive:
            return
        if self._frozen:
            self._backlog.append(job)
            return
        try:
            job()
        except Crashed:
            self.world.crashed(self)

    def later(self, delay_ns: int, job: Callable[[], None]) -> None:
        """Have the process do ``job`` in ``delay_ns``."""
        self.world.clock.after(delay_ns, lambda: self.run(job))

    def boundary(self) -> None:
        """Between two effects, or two parts of one: a fault of the plan may strike here."""
        if self.world.at_boundary(self):
            raise Crashed

    def freeze(self, length_ns: int) -> None:
        """SIGSTOP, then SIGCONT."""
        self._frozen = True
        self.world.clock.after(length_ns, self._thaw)

    def _thaw(self) -> None:
        self._frozen = False
        while self._backlog and self.alive and not self._frozen:
            self.run(self._backlog.popleft())

    def exit(self, code: ExitCode) -> None:
        """End in order."""
        self.alive = False
        self.ended_ns = self.world.clock.now_ns
        self.exit_code = code
        self.world.exited(self)

    def listening(self) -> bool:
        """Whether the process serves."""
        return self.alive

    def accept(self, end: End, kind: str) -> None:
        """A peer opened a stream of ``kind`` ("exchange", "join")."""
        raise NotImplementedError
