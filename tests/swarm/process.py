"""What every simulated process can suffer: it dies between two effects, it freezes, it ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from dpgt_node.errors import ExitCode
from tests.swarm.network import End

if TYPE_CHECKING:
    from tests.swarm.world import World

COORDINATOR = -1


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
