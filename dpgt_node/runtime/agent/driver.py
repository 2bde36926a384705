"""Carries out an agent's effects: the only place where an agent's machine meets threads, disks and sockets.

``feed`` steps the machine and interprets its effects in order.  Work on more than 64 kB, and every commit that
waits for a disk, runs in a thread and comes back as an event; the rest runs inline, so a small round costs no
thread switch.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

from dpgt_node.agent.work import AgentWork
from dpgt_node.learning.oracle import Metrics
from dpgt_node.protocol.agent import AgentMachine
from dpgt_node.protocol.types import (
    Advance,
    Advanced,
    AdvanceFinal,
    AgentEffect,
    AgentEvent,
    DrawRelease,
    Evaluate,
    FinalSaved,
    Finish,
    Payload,
    Persist,
    Persisted,
    Prune,
    ReportDone,
    ReportStall,
    Resend,
    SaveFinal,
    Send,
    Tick,
    VectorReceived,
)
from dpgt_node.record.recording import Recording
from dpgt_node.runtime.store.faults import blamed
from dpgt_node.runtime.store.store import Store
from dpgt_node.types import F64, Stream

log = logging.getLogger(__name__)
NOT_RECORDED = "what [adversary] asks for cannot be recorded"
T = TypeVar("T")

INLINE_BYTES = 64 * 1024
"""Vectors up to this size are worked on inline; larger ones in a thread, so that heartbeats do not starve."""

EVALUATION_NUMBERS = 1 << 20
"""d times rows up to which an evaluation is made inline: a few milliseconds."""

EVALUATIONS_AHEAD = 2
"""Rounds go on while so many evaluations wait for their turn; then they wait too, or the x of all of them would pile
up in memory."""

CHECKPOINT_ROUNDS = 10
"""The state is stored with every so-many-th round; the rounds in between are replayed."""

CHECKPOINT_BYTES = 1 << 20
"""Up to this size of a float64 vector many rounds are pruned at once; larger ones as soon as everybody has them."""

ANNOUNCE_ROUNDS = 64
"""Small payloads are pruned in batches: a message and a transaction a round would cost more."""


class OutLink(Protocol):
    """The stream to one out-neighbour."""

    def send(self, payloads: tuple[Payload, ...]) -> None:
        """Queue fresh payloads of one round."""
        ...

    def resend(self, k: int, streams: tuple[Stream, ...]) -> None:
        """Queue stored payloads of round ``k``; their bytes are read when their turn comes."""
        ...


class Upward(Protocol):
    """What the driver tells the coordinator's side."""

    def done(self, k: int, durable_through: int, head: bytes) -> None:
        """Round ``k`` is done; ``head`` of the ledger after it, empty while rounds of before are replayed."""
        ...

    def evaluated(self, k: int, x: F64, metrics: Metrics) -> None:
        """Metrics of x_{i,k}; where they go is the run's ``evaluate.metrics``."""
        ...

    def stalled(self, effect: ReportStall, waited_s: float) -> None:
        """Inputs of a round are late."""
        ...


class AgentDriver:
    """One agent's machine in a daemon.

    ``outcome`` resolves with the machine's ``Finish``, or raises what broke a step (a full disk, a diverged run, a
    bug).
    """

    def __init__(
        self,
        machine: AgentMachine,
        work: AgentWork,
        store: Store,
        run_id: bytes,
        links: Mapping[int, OutLink],
        upward: Upward,
        *,
        commit_inline: bool,
        recording: Recording | None = None,
    ) -> None:
        self.machine = machine
        self._work = work
        self._store = store
        self._run_id = run_id
        self._links = links
        self._upward = upward
        self._recording = recording
        self._inline = work.dimension * 8 <= INLINE_BYTES
        self._commit_inline = commit_inline and self._inline
        self._evaluate_inline = self._inline and work.evaluation_numbers <= EVALUATION_NUMBERS
        self._turns = threading.Semaphore(EVALUATIONS_AHEAD + 1)
        self._queue: deque[AgentEvent] = deque()
        self._stepping = False
        self._loop = asyncio.get_running_loop()
        # One thread each: the store and the oracle are used by one thread at a time, and a slow evaluation or commit
        # never holds up the other.
        self._threads = {name: ThreadPoolExecutor(1, f"dpgt-{name}") for name in ("work", "store", "evaluate")}
        self._running: set[asyncio.Future[AgentEvent | None]] = set()
        self._evaluations: list[Future[AgentEvent | None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self.outcome: asyncio.Future[Finish] = self._loop.create_future()
        self.moved = asyncio.Event()
        """Set, and replaced, whenever the inbox window moved."""
        self.releases = 0
        self._head = (-1, b"")
        self._late = False

    def feed(self, event: AgentEvent) -> None:
        """Step the machine and carry out what follows.  Never raises: failures end in ``outcome``."""
        self._queue.append(event)
        if self._stepping or self.outcome.done():
            return
        self._stepping = True
        low = self.machine.window()[0]
        try:
            while self._queue:
                event = self._queue.popleft()
                if self._recording is not None and isinstance(event, VectorReceived):
                    self._record(event)
                for effect in self.machine.step(event, time.monotonic_ns()):
                    self._interpret(effect)
        except BaseException as error:
            self._fail(error)
        finally:
            self._stepping = False
        if self.machine.window()[0] != low:
            moved, self.moved = self.moved, asyncio.Event()
            moved.set()
        self._arm()

    async def in_store_thread(self, job: Callable[[], T]) -> T:
        """Run ``job`` where the store may be used: inline, or in its thread when commits run there."""
        if self._commit_inline:
            return job()
        return await self._loop.run_in_executor(self._threads["store"], job)

    async def close(self) -> None:
        """Wait for running threads and stop them; nothing new starts, and no evaluation that waits for its turn."""
        if self._timer:
            self._timer.cancel()
        dropped = sum(evaluation.cancel() for evaluation in self._evaluations)
        self._turns.release(1 + dropped)  # whoever waits for one of them
        if self._running:
            await asyncio.wait(self._running)
        if (recording := self._recording) is not None:
            ended = self.outcome.done() and not self.outcome.cancelled() and self.outcome.exception() is None
            try:
                await self.in_store_thread(lambda: recording.close(ended=ended))
            except OSError as error:
                log.error("%s: the transcript has no end: %s", recording.state_dir, error)
        for pool in self._threads.values():
            pool.shutdown(wait=True)

    def _interpret(self, effect: AgentEffect) -> None:
        match effect:
            case Send(peer, payloads):
                self._links[peer].send(payloads)
            case ReportDone(k, durable_through):
                committed, head = self._head
                self._upward.done(k, durable_through, head if k == committed else b"")
            case Advance():
                self._do("work", self._inline, lambda: self._advance(effect))
            case DrawRelease():
                self._do("work", self._inline, lambda: self._work.release(effect))
            case Persist():
                self._do("store", self._commit_inline, lambda: self._commit(effect))
            case Evaluate():
                if not self._inline:  # in the thread that the round's other work waits for
                    self._do("work", False, self._wait_for_a_turn)
                self._do("evaluate", self._evaluate_inline, lambda: self._evaluate(effect))
            case Resend(peer, k, streams):
                self._links[peer].resend(k, streams)
            case Prune(through):
                self._do("store", self._commit_inline, lambda: self._store.prune(self._run_id, through))
            case AdvanceFinal():
                self._do("work", self._inline, lambda: self._work.advance_final(effect))
            case SaveFinal(x):
                self._do("store", self._commit_inline, lambda: self._save_final(x))
            case ReportStall():
                self._upward.stalled(effect, (time.monotonic_ns() - effect.since_ns) / 1e9)
            case Finish():
                if not self.outcome.done():
                    self.outcome.set_result(effect)

    def _advance(self, effect: Advance) -> Advanced:
        advanced = self._work.advance(effect)
        if self._recording is not None and effect.record is not None:
            with blamed(self._recording.state_dir, NOT_RECORDED):
                self._recording.replayed(advanced.state)
        return advanced

    def _record(self, event: VectorReceived) -> None:
        recording = self._recording
        assert recording is not None

        def write() -> None:
            with blamed(recording.state_dir, NOT_RECORDED):
                recording.received(event.sender, event.payload)

        # Where commits run, so that it is done before any commit that this vector leads to.
        self._do("store", self._commit_inline, write)

    def _commit(self, effect: Persist) -> Persisted:
        recording = self._recording
        if recording is not None and effect.record.checkpoint is not None:
            with blamed(recording.state_dir, NOT_RECORDED):
                recording.flush()
        self._store.commit_round(self._run_id, effect.record)
        if recording is not None:
            state = self.machine.state  # stands still until this commit is reported
            assert state is not None
            with blamed(recording.state_dir, NOT_RECORDED):
                recording.released(effect.record, state)
        self._head = (effect.record.k, self._store.head)
        self.releases += len(effect.record.payloads)
        return Persisted(effect.record.k)

    def _save_final(self, x: F64) -> FinalSaved:
        if self._recording is not None:
            with blamed(self._recording.state_dir, NOT_RECORDED):
                self._recording.finish()
        self._store.finish_run(self._run_id, x)
        return FinalSaved()

    def _wait_for_a_turn(self) -> None:
        if not self._turns.acquire(blocking=False):
            if not self._late:
                log.warning("evaluations take longer than the rounds between them: [evaluate] samples, or every")
            self._late = True
            self._turns.acquire()

    def _evaluate(self, effect: Evaluate) -> None:
        try:
            metrics = self._work.evaluate(effect)
        finally:
            self._turns.release()
        if self._evaluate_inline:
            self._upward.evaluated(effect.k, effect.x, metrics)
        else:
            self._loop.call_soon_threadsafe(self._evaluated, effect, metrics)

    def _evaluated(self, effect: Evaluate, metrics: Metrics) -> None:
        try:
            self._upward.evaluated(effect.k, effect.x, metrics)
        except BaseException as error:
            self._fail(error)

    def _do(self, thread: str, inline: bool, job: Callable[[], AgentEvent | None]) -> None:
        if inline:
            event = job()
            if event is not None:
                self._queue.append(event)
            return
        submitted = self._threads[thread].submit(job)
        if thread == "evaluate":
            self._evaluations = [*(e for e in self._evaluations if not e.done()), submitted]
        future = asyncio.wrap_future(submitted, loop=self._loop)
        self._running.add(future)
        future.add_done_callback(self._came_back)

    def _came_back(self, future: asyncio.Future[AgentEvent | None]) -> None:
        self._running.discard(future)
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._fail(error)
        elif (event := future.result()) is not None:
            self.feed(event)

    def _fail(self, error: BaseException) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
        elif not isinstance(error, asyncio.CancelledError):
            log.error("after the run ended: %s", error)

    def _arm(self) -> None:
        deadline = self.machine.next_deadline_ns()
        if deadline is None:
            return
        if self._timer is None or self._timer.cancelled() or self._timer.when() < self._loop.time():
            delay_s = max(0.0, (deadline - time.monotonic_ns()) / 1e9)
            self._timer = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.feed(Tick())
