"""Carries out an agent's work: the only place where it meets threads and disks.

Work on more than 64 kB or on many samples, every network, and every commit that waits for a disk run in a thread and
come back as an event.  The rest runs inline, so a small round costs no thread switch.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from dpgt_node.agent.work import AgentWork
from dpgt_node.errors import Broken, DpgtError
from dpgt_node.learning.common import Metrics
from dpgt_node.protocol.agent.session_types import Broke, ReadRound, RoundRead, Witness
from dpgt_node.protocol.types import (
    Advance,
    Advanced,
    AdvanceFinal,
    DrawRelease,
    Evaluate,
    Evaluating,
    FinalSaved,
    KeepState,
    Persist,
    Persisted,
    Prune,
    ReleaseReady,
    SaveFinal,
    State,
    StateKept,
)
from dpgt_node.runtime.store.faults import blamed
from dpgt_node.runtime.store.rounds.records import StoredState
from dpgt_node.runtime.store.store import Store
from dpgt_node.types import F64

if TYPE_CHECKING:
    from dpgt_node.record.recording import Recording

log = logging.getLogger(__name__)
NOT_RECORDED = "what [adversary] asks for cannot be recorded"

INLINE_BYTES = 64 * 1024
"""Vectors up to this size are worked on inline; larger ones in a thread, so that heartbeats do not starve."""

NUMBERS = 1 << 20
"""d times rows up to which a closed form is computed inline: a few milliseconds.  Networks always get a thread."""

EVALUATIONS_AHEAD = 2
"""Rounds go on while so many evaluations wait for their turn; then they wait too, or the x of all of them would pile
up in memory."""


class AgentDriver:
    """An agent's oracle, noise and store in a daemon, in run ``run_id``.

    ``feed`` takes what came of an effect, ``Broke`` for what is to be expected to break (a full disk, a diverged run);
    ``broken`` takes bugs.  ``evaluated`` takes metrics of x_{i,k}, in the event loop.
    """

    def __init__(
        self,
        work: AgentWork,
        store: Store,
        run_id: bytes,
        feed: Callable[[Any], None],
        broken: Callable[[BaseException], None],
        evaluated: Callable[[int, F64, Metrics], None],
        *,
        commit_inline: bool,
        recording: Recording | None = None,
    ) -> None:
        self._work = work
        self._store = store
        self._run_id = run_id
        self._feed = feed
        self._broken = broken
        self._evaluated = evaluated
        self._recording = recording
        self._drawn: State | None = None
        cheap = work.closed_form and work.gradient_numbers <= NUMBERS
        self._inline = cheap and work.dimension * 8 <= INLINE_BYTES
        self._commit_inline = commit_inline and work.dimension * 8 <= INLINE_BYTES
        self._evaluate_inline = self._inline and work.evaluation_numbers <= NUMBERS
        self._turns = threading.Semaphore(EVALUATIONS_AHEAD + 1)
        self._loop = asyncio.get_running_loop()
        self.beside = work.dimension * 8 > INLINE_BYTES
        """Whether states are written beside the rounds.  For a small one a transaction of its own would cost more."""
        # One thread each: the store and the oracle are used by one thread at a time, and a slow evaluation or commit
        # never holds up the other.
        names = ("work", "store", "evaluate", "state")
        self._threads = {name: ThreadPoolExecutor(1, f"dpgt-{name}") for name in names}
        self._running: set[asyncio.Future[Any]] = set()
        self._evaluations: list[Future[Any]] = []
        self._late = False

    def carry_out(self, effect: Any) -> None:
        """Do one effect, or have it done by the thread for it."""
        match effect:
            case Advance():
                self._do("work", self._inline, lambda: self._advance(effect))
            case DrawRelease():
                self._do("work", self._inline, lambda: self._release(effect))
            case Persist():
                self._do("store", self._commit_inline, lambda: self._commit(effect))
            case KeepState():
                self._do("state", False, lambda: self._write_state(effect))
            case Witness():
                if self._recording is not None:  # where commits run: before any commit that this vector leads to
                    self._do("store", self._commit_inline, lambda: self._record(effect))
            case Evaluate():
                if not self._inline:  # in the thread that the round's other work waits for
                    self._do("work", False, self._wait_for_a_turn)
                self._do("evaluate", self._evaluate_inline, lambda: self._evaluate(effect))
            case ReadRound():
                self._do("store", self._commit_inline, lambda: self._read(effect))
            case Prune(through):
                self._do("store", self._commit_inline, lambda: self._store.prune(self._run_id, through))
            case AdvanceFinal():
                self._do("work", self._inline, lambda: self._work.advance_final(effect))
            case SaveFinal(x):
                self._do("store", self._commit_inline, lambda: self._save_final(x))
            case _:
                raise AssertionError(f"nobody carries out {type(effect).__name__}")

    async def close(self, *, ended: bool) -> None:
        """Wait for running threads and stop them; nothing new starts, and no evaluation that waits for its turn.

        ``ended``: the run came to its end here, and a transcript says so.
        """
        dropped = sum(evaluation.cancel() for evaluation in self._evaluations)
        self._turns.release(1 + dropped)  # whoever waits for one of them
        if self._running:
            await asyncio.wait(self._running)
        if (recording := self._recording) is not None:
            try:
                await self._loop.run_in_executor(self._threads["store"], lambda: recording.close(ended=ended))
            except OSError as error:
                log.error("%s: the transcript has no end: %s", recording.state_dir, error)
        for pool in self._threads.values():
            pool.shutdown(wait=True)

    # --- jobs ---------------------------------------------------------------------------------------------------

    def _advance(self, effect: Advance) -> Advanced:
        advanced = self._work.advance(effect)
        if self._recording is not None and effect.record is not None:
            with blamed(self._recording.state_dir, NOT_RECORDED):
                self._recording.replayed(advanced.state)
        return advanced

    def _release(self, effect: DrawRelease) -> ReleaseReady:
        release = self._work.release(effect)
        self._drawn = release.state
        return release

    def _record(self, effect: Witness) -> None:
        assert self._recording is not None
        with blamed(self._recording.state_dir, NOT_RECORDED):
            self._recording.received(effect.sender, effect.payload)

    def _commit(self, effect: Persist) -> Persisted:
        recording = self._recording
        if recording is not None and effect.record.checkpoint is not None:
            with blamed(recording.state_dir, NOT_RECORDED):
                recording.flush()
        self._store.commit_round(self._run_id, effect.record)
        if recording is not None:
            if self._drawn is None or self._drawn.k != effect.record.k:
                raise Broken("what is recorded is what was drawn")
            with blamed(recording.state_dir, NOT_RECORDED):
                recording.released(effect.record, self._drawn)
        return Persisted(effect.record.k, self._store.head)

    def _write_state(self, effect: KeepState) -> StateKept:
        """No commit waits for the file; its row goes where commits run."""
        written = self._store.write_state(self._run_id, effect.state)
        return self._threads["store"].submit(self._keep_state, written).result()

    def _keep_state(self, written: StoredState) -> StateKept:
        recording = self._recording
        if recording is not None:  # what it has of the rounds before must be there first
            with blamed(recording.state_dir, NOT_RECORDED):
                recording.flush()
        self._store.keep_state(self._run_id, written)
        if recording is not None:
            recording.kept(written.k)
        return StateKept(written.k)

    def _read(self, effect: ReadRound) -> RoundRead:
        stored = self._store.payloads(self._run_id, effect.k)
        return RoundRead(effect.call, tuple(payload for payload in stored if payload.stream in effect.streams))

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
        began_ns = time.monotonic_ns()
        try:
            metrics = self._work.evaluate(effect)
        finally:
            self._turns.release()
        if self._evaluate_inline:
            self._evaluated(effect.k, effect.x, metrics)
            self._feed(Evaluating(time.monotonic_ns() - began_ns))
        else:
            self._loop.call_soon_threadsafe(self._hand_over, effect, metrics)

    def _hand_over(self, effect: Evaluate, metrics: Metrics) -> None:
        try:
            self._evaluated(effect.k, effect.x, metrics)
        except BaseException as error:
            self._failed(error)

    # --- threads ------------------------------------------------------------------------------------------------

    def _do(self, thread: str, inline: bool, job: Callable[[], Any]) -> None:
        if inline:
            try:
                event = job()
            except DpgtError as error:
                event = Broke(error)
            if event is not None:
                self._feed(event)
            return
        submitted = self._threads[thread].submit(job)
        if thread == "evaluate":
            self._evaluations = [*(e for e in self._evaluations if not e.done()), submitted]
        future = asyncio.wrap_future(submitted, loop=self._loop)
        self._running.add(future)
        future.add_done_callback(self._came_back)

    def _came_back(self, future: asyncio.Future[Any]) -> None:
        self._running.discard(future)
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._failed(error)
        elif (event := future.result()) is not None:
            self._feed(event)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, DpgtError):
            self._feed(Broke(error))
        else:
            self._broken(error)
