"""Clocks on the parts of a round of the agents in this process, and a store that keeps a run in memory.

They are put on what an agent's method calls (gradient, noise, encoding), on the moves of ``AgentWork``, on the store's
commits (states are written beside the other parts), on the codec, and on the one interpreter of machines.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from dpgt_node.agent import work
from dpgt_node.agent.site import Tools
from dpgt_node.agent.work import AgentWork
from dpgt_node.protocol.types import Payload, RoundRecord, State
from dpgt_node.runtime.interpreter import Interpreter
from dpgt_node.runtime.store.rounds.records import StoredState
from dpgt_node.runtime.store.store import Store
from dpgt_node.wire import codec
from dpgt_node.wire.codec import Reassembler

PARTS = (
    "gradient", "mixing", "noise", "encode, hash", "release", "commit", "send", "receive", "evaluate", "machines",
)  # fmt: skip
"""``release``: ledger rows and costs.  ``machines``: their steps and all that carrying out effects takes besides."""
KEPT_ROUNDS = 3
"""Neighbours are at most two rounds behind."""


class Instant(NamedTuple):
    """Monotonic and processor seconds of this process, and seconds by part so far."""

    now_s: float
    cpu_s: float
    parts: dict[str, float]


class Clock:
    """Seconds by part; a part inside another counts for itself only.  Threads have stacks of their own.

    ``commits``: after each round's last commit so far, by k.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.commits: dict[int, Instant] = {}
        self._inside: dict[int, list[float]] = defaultdict(list)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What happens inside counts for ``name``."""
        stack = self._inside[threading.get_ident()]
        begin = time.perf_counter()
        stack.append(0.0)
        try:
            yield
        finally:
            spent = time.perf_counter() - begin
            self.seconds[name] += spent - stack.pop()
            if stack:
                stack[-1] += spent

    def watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, with its time counted."""

        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            with self.part(name):
                return function(*arguments, **options)

        return call

    def watched_items(self, name: str, function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        """The same of a function that yields: the time of making the items."""

        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Iterator[Any]:
            items = function(*arguments, **options)
            while True:
                with self.part(name):
                    item = next(items, None)
                if item is None:
                    return
                yield item

        return call

    def tools(self, gradient: Any, perturb: Any, encode: Any, *others: Any) -> Tools:
        """In the place of ``Tools``."""
        return Tools(
            self.watched("gradient", gradient),
            self.watched_items("noise", perturb),
            self.watched("encode, hash", encode),
            *others,
        )

    def commit(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """In the place of ``Store.commit_round``."""

        def call(store: Store, run_id: bytes, record: RoundRecord) -> None:
            with self.part("commit"):
                function(store, run_id, record)
            self.commits[record.k] = Instant(time.monotonic(), time.process_time(), dict(self.seconds))

        return call

    def a_round(self, first: int, last: int) -> Instant:
        """Per round, from the end of round ``first`` to that of ``last``."""
        a, b, rounds = self.commits[first], self.commits[last], last - first
        parts = {part: (b.parts.get(part, 0.0) - a.parts.get(part, 0.0)) / rounds for part in PARTS}
        return Instant((b.now_s - a.now_s) / rounds, (b.cpu_s - a.cpu_s) / rounds, parts)


@contextlib.contextmanager
def watching(clock: Clock, *, in_memory: bool = False) -> Iterator[None]:
    """Clocks on every agent of this process; ``in_memory``: what their stores commit is lost with the process."""
    with contextlib.ExitStack() as undo:

        def put(owner: Any, name: str, new: Any) -> None:
            undo.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, new)

        if in_memory:
            for name, method in _memory().items():
                put(Store, name, method)
        put(work, "Tools", clock.tools)
        put(Store, "commit_round", clock.commit(Store.commit_round))
        put(codec, "encode_vectors", clock.watched_items("send", codec.encode_vectors))
        for owner, name, part in (
            (AgentWork, "advance", "mixing"),
            (AgentWork, "advance_final", "mixing"),
            (AgentWork, "release", "release"),
            (AgentWork, "evaluate", "evaluate"),
            (Store, "prune", "commit"),
            (Store, "write_state", "commit"),
            (Store, "keep_state", "commit"),
            (Reassembler, "feed", "receive"),
            (Interpreter, "feed", "machines"),
        ):
            put(owner, name, clock.watched(part, getattr(owner, name)))
        yield


def _memory() -> dict[str, Callable[..., Any]]:
    """Methods of a store that writes no round: the least that any store can take."""
    kept: dict[tuple[int, int], RoundRecord] = {}

    def commit_round(store: Store, run_id: bytes, record: RoundRecord) -> None:
        kept[id(store), record.k] = replace(record, checkpoint=None)
        kept.pop((id(store), record.k - KEPT_ROUNDS), None)

    def payloads(store: Store, run_id: bytes, k: int) -> tuple[Payload, ...]:
        return kept[id(store), k].payloads

    def prune(store: Store, run_id: bytes, through: int) -> None:
        pass

    def write_state(store: Store, run_id: bytes, state: State) -> StoredState:
        return StoredState(state.k, (), ())

    def keep_state(store: Store, run_id: bytes, new: StoredState) -> None:
        pass

    made = (commit_round, payloads, prune, write_state, keep_state)
    return {method.__name__: method for method in made}
