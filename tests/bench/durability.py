"""What durability costs, and where the time of a round goes: ``python -m tests.bench.durability [--repeat 3]``.

A coordinator and its agents in one process and one event loop, over mTLS on loopback, on a ring with "quadratic"; the
store is off (kept in memory: what is lost with the process), "process" or "power", in turn, so that a machine that
drifts favours none.  The parts are seconds of work for one agent and one round.  Up to 64 kB a vector everything runs
in the event loop, so the parts and "gRPC, TLS, loop" add up to the wall time of a round divided by the number of
agents; above, parts run in threads beside each other.  The last two lines are of all agents and the coordinator.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import logging
import shutil
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpgt_node.agent.work import AgentWork
from dpgt_node.config import parse_run
from dpgt_node.protocol.coordinator.coordination import Coordination
from dpgt_node.protocol.types import Payload, Recovered, RoundRecord
from dpgt_node.runtime.agent import node
from dpgt_node.runtime.process import tune_malloc
from dpgt_node.runtime.store.ledger import NO_HEAD, Charge, Terms
from dpgt_node.runtime.store.store import RunInfo, Store
from dpgt_node.types import F64
from dpgt_node.wire import codec
from dpgt_node.wire.codec import Reassembler
from tests.bench.rounds import RUN
from tests.runtime.cluster import Cluster, cluster

MODES = ("off", "process", "power")
PARTS = ("gradient, mixing", "noise", "encode, hash", "commit", "send", "receive", "barrier")


class MemoryStore:
    """The store's face without a disk: a bench's lower bound, of no use to anybody else."""

    head = NO_HEAD

    def __init__(self, state_dir: Path, durability: str) -> None:
        (state_dir / "blobs").mkdir(parents=True, exist_ok=True)
        self._records: dict[int, RoundRecord] = {}
        self._final: F64 | None = None

    def charges(self) -> tuple[Charge, ...]:
        return ()

    def runs(self) -> tuple[RunInfo, ...]:
        return ()

    def find_run(self, run_sha256: str, name: str) -> bytes | None:
        return None

    def begin_run(self, run_id: bytes, run_sha256: str, name: str, terms: Terms, **_: object) -> None:
        pass

    def is_finished(self, run_id: bytes) -> bool:
        return False

    def recover(self, run_id: bytes) -> Recovered | None:
        return None

    def commit_round(self, run_id: bytes, record: RoundRecord) -> None:
        self._records[record.k] = replace(record, checkpoint=None)
        self._records.pop(record.k - 3, None)  # neighbours are at most two rounds behind; a disk's room is not memory's

    def payloads(self, run_id: bytes, k: int) -> tuple[Payload, Payload]:
        return self._records[k].payloads

    def prune(self, run_id: bytes, through: int) -> None:
        pass

    def releases(self, run_id: bytes) -> int:
        return 0

    def finish_run(self, run_id: bytes, x_final: F64) -> None:
        self._final = x_final

    def close(self) -> None:
        pass


class Clock:
    """Seconds by part; a part inside another counts for itself only.  Threads have their own stacks."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside: dict[int, list[float]] = defaultdict(list)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        stack = self._inside[threading.get_ident()]
        start = time.perf_counter()
        stack.append(0.0)
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] += spent - stack.pop()
            if stack:
                stack[-1] += spent

    def watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            with self.part(name):
                return function(*arguments, **options)

        return call

    def watched_items(self, name: str, function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
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


@contextlib.contextmanager
def patched(clock: Clock, store: type) -> Iterator[None]:
    """Clocks on every part of a round."""
    places: list[tuple[Any, str, str]] = [
        (AgentWork, "advance", "gradient, mixing"),
        (AgentWork, "release", "noise"),
        (AgentWork, "_encode", "encode, hash"),
        (store, "commit_round", "commit"),
        (store, "prune", "commit"),
        (Reassembler, "feed", "receive"),
        (Coordination, "step", "barrier"),
    ]
    with contextlib.ExitStack() as undo:
        for owner, name, part in places:
            old = getattr(owner, name)
            undo.callback(setattr, owner, name, old)
            setattr(owner, name, clock.watched(part, old))
        old = codec.encode_vectors
        undo.callback(setattr, codec, "encode_vectors", old)
        codec.encode_vectors = clock.watched_items("send", old)
        undo.callback(setattr, node, "Store", node.Store)
        node.Store = store
        yield


async def one(mode: str, n: int, d: int, rounds: int, folder: Path) -> tuple[float, dict[str, float]]:
    """(rounds per second, seconds by part for one agent and one round) of one run, without its first tenth."""
    run = parse_run(RUN.format(K=rounds - 1, n=n, d=d), "run.toml", folder)
    clock = Clock()
    first = max(1, rounds // 10)
    with patched(clock, MemoryStore if mode == "off" else Store):
        async with cluster(folder, run, secure=True) as c:
            for name in run.graph.agents:
                c.start(name, durability="power" if mode == "power" else "process")
            await driven(c, "agent-1", first)
            clock.seconds.clear()
            start, cpu, k = time.perf_counter(), time.process_time(), c.round("agent-1")
            await asyncio.gather(*(driven(c, name, run.K) for name in run.graph.agents))
            wall, cpu, made = time.perf_counter() - start, time.process_time() - cpu, rounds - k
            parts = {part: clock.seconds[part] / (made * n) for part in PARTS}
            await asyncio.gather(*c.agents.values())
    parts["gRPC, TLS, loop"] = wall / made / n - sum(parts.values()) if d * 8 <= 65536 else float("nan")
    parts["a round"] = wall / made
    parts["CPU of a round"] = cpu / made
    return made / wall, parts


async def driven(c: Cluster, name: str, k: int) -> None:
    """Wait until an agent has mixed round ``k``."""
    while (session := c.nodes[name].session) is None or session.agent is None or session.agent.done_through < k:
        if c.agents[name].done():
            c.agents[name].result()
        await asyncio.sleep(0.001)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", metavar="N,D,ROUNDS", help="default: 5,100,1000 and 2,11175370,16")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the states go (default: the system's temporary folder)")
    o = parser.parse_args()
    tune_malloc()
    logging.disable(logging.WARNING)
    for case in o.case or ["5,100,1000", "2,11175370,16"]:
        n, d, rounds = map(int, case.split(","))
        found: dict[str, list[tuple[float, dict[str, float]]]] = {mode: [] for mode in MODES}
        for _ in range(o.repeat):
            for mode in MODES:
                folder = Path(tempfile.mkdtemp(dir=o.folder))
                try:
                    found[mode].append(asyncio.run(one(mode, n, d, rounds, folder)))
                finally:
                    shutil.rmtree(folder)
        show(n, d, rounds, found)


def show(n: int, d: int, rounds: int, found: dict[str, list[tuple[float, dict[str, float]]]]) -> None:
    """One table; medians over the repetitions, ratios pair by pair."""
    print(f"\nn = {n}, d = {d:,}, {rounds} rounds, median of {len(found['off'])} (ms for one agent and one round)")
    print(f"{'':<22}" + "".join(f"{mode:>12}" for mode in found))
    print(f"{'rounds/s':<22}" + "".join(f"{statistics.median(r for r, _ in each):12.2f}" for each in found.values()))
    ratios = [
        statistics.median(r / off for (r, _), (off, _) in zip(each, found["off"], strict=True))
        for each in found.values()
    ]
    print(f"{'of the rate with off':<22}" + "".join(f"{ratio:12.3f}" for ratio in ratios))
    for part in (*PARTS, "gRPC, TLS, loop", "a round", "CPU of a round"):
        cells = [statistics.median(parts[part] for _, parts in each) * 1e3 for each in found.values()]
        print(
            f"  {part:<20}" + "".join("           -" if cell != cell else f"{cell:12.3f}" for cell in cells), flush=True
        )


if __name__ == "__main__":
    main()
