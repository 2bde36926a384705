"""The one interpreter of machines in a daemon: step, carry effects out in order, arm the timer."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from dpgt_node.protocol.types import Tick

T = TypeVar("T")


class Machine(Protocol):
    """What ``protocol`` is made of."""

    def step(self, event: Any, now_ns: int) -> tuple[Any, ...]:
        """Take one event, return the effects in the order in which they must be carried out."""
        ...

    def next_deadline_ns(self) -> int | None:
        """When to step with ``Tick`` at the latest, None when nothing is timed."""
        ...


class Undone(Exception):
    """An effect could not be carried out: those after it in its step are dropped, and ``event`` is the next."""

    def __init__(self, event: Any) -> None:
        super().__init__(event)
        self.event = event


LOOK_NS = 25_000_000
"""How much later than it should a deadline may be seen that came nearer: asking for it costs as much as a step."""


class Interpreter:
    """Feeds ``machine``.  ``carry_out`` does one effect; what happens of it comes back through ``feed``, at once or
    later.  ``broken`` hears what a step or an effect raised; nothing is stepped after that.

    The machine is asked for its deadline once in ``LOOK_NS``, however many events come.
    """

    def __init__(
        self, machine: Machine, carry_out: Callable[[Any], None], broken: Callable[[BaseException], None]
    ) -> None:
        self._machine = machine
        self._carry_out = carry_out
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._events: deque[Any] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        self._due_ns = self._look_ns = 0
        self._stepping = self._over = False

    def feed(self, event: Any) -> None:
        """Step with ``event`` and carry out what follows.  Never raises."""
        self._events.append(event)
        if self._stepping or self._over:
            return
        self._stepping = True
        now_ns, events, step, carry_out = 0, self._events, self._machine.step, self._carry_out
        try:
            while events:
                now_ns = time.monotonic_ns()
                effects = step(events.popleft(), now_ns)
                try:
                    for effect in effects:
                        carry_out(effect)
                except Undone as undone:
                    events.appendleft(undone.event)
        except BaseException as error:
            self.stop()
            self._broken(error)
        finally:
            self._stepping = False
        if self._timer is None or now_ns >= self._look_ns:
            self._arm()
        elif self._look is None:
            self._look = self._loop.call_later(LOOK_NS / 1e9, self._arm)

    def stop(self) -> None:
        """Step no more."""
        self._over = True
        self._events.clear()
        for timer in (self._timer, self._look):
            if timer is not None:
                timer.cancel()

    def _arm(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None
        if self._over:
            return
        due_ns, now_ns = self._machine.next_deadline_ns(), time.monotonic_ns()
        self._look_ns = now_ns + LOOK_NS
        if due_ns is None or (self._timer is not None and self._due_ns <= due_ns):
            return  # a timer that is early finds nothing to do and is armed anew
        if self._timer is not None:
            self._timer.cancel()
        self._due_ns = due_ns
        self._timer = self._loop.call_later(max(0.0, (due_ns - now_ns) / 1e9), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.feed(Tick())


class Asides:
    """Work that a machine waits for and that may take long, such as reading a large state directory: in threads, so
    that heartbeats go on.  ``broken`` hears what it raises.
    """

    def __init__(self, broken: Callable[[BaseException], None]) -> None:
        self._broken = broken
        self._tasks: set[asyncio.Task[None]] = set()

    def do(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """``work`` in a thread, then ``then`` with what it gave, in the event loop."""
        task = asyncio.ensure_future(self._do(work, then))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _do(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        try:
            then(await asyncio.to_thread(work))
        except BaseException as error:
            self._broken(error)

    async def over(self) -> None:
        """Wait until nothing runs any more: a thread cannot be stopped."""
        await asyncio.gather(*self._tasks)


async def carried_through(work: Awaitable[T]) -> T:
    """``work`` to its end, also when this task is cancelled meanwhile; only then is it cancelled.

    For what threads are in the midst of, since they cannot be stopped, and for what puts things in order.
    """
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        task.exception()  # seen: it gives way to the cancellation
        raise asyncio.CancelledError
    return task.result()
