"""What a round costs in messages, commits and writes: counted, never timed, so that no change makes it more unseen."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpgt_node.errors import ExitCode
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.coordinator import blocks
from dpgt_node.protocol.types import RoundRecord
from dpgt_node.runtime.coordinator import heads
from dpgt_node.runtime.store import store
from dpgt_node.runtime.store.limits import CHECKPOINT_ROUNDS, announce_every
from dpgt_node.runtime.store.store import Store
from dpgt_node.wire import codec, services
from tests.runtime.cluster import cluster, make_run

ROUNDS, AGENTS, EDGES = 64, 3, 5
HOUR_NS = 3600 * 10**9
BLOCKS = {1: ROUNDS, 16: len([1, 2, 4, 8, 1, 16, 16, 16])}
TIMED = (m.Heartbeat, m.Received)
"""What also comes when time has passed."""
NAMES = {bytes: "frame", m.Dones: "Done"}


def expected(barrier_every: int) -> dict[str, int]:
    """By what is counted: how often it may happen in the whole run."""
    each, n = AGENTS * ROUNDS, BLOCKS[barrier_every]
    evaluations = AGENTS * len({*range(0, ROUNDS, 10), ROUNDS})
    checkpoints = AGENTS * len(range(0, ROUNDS, CHECKPOINT_ROUNDS))
    announced = AGENTS * (ROUNDS // announce_every(3))
    reports = min(each, AGENTS * n + evaluations)  # at the end of a block, and before an evaluation is told
    return {
        "message frame": EDGES * ROUNDS + evaluations,  # X and Y together; and each state of the study
        "message Done": reports,
        "message GoMessage": AGENTS * (n - 1),
        "message AllDurableMessage": announced,
        "message MetricsReport": evaluations,
        # a round in one transaction; besides: the run begins and ends, payloads that all have go
        "sql COMMIT": each + 2 * AGENTS + announced,
        "sql INSERT INTO rounds": each,
        "sql INSERT INTO payloads": each,
        "sql INSERT INTO ledger": 2 * each,
        "sql INSERT OR REPLACE": checkpoints,
        "sql DELETE FROM payloads": announced,
        "fsync": AGENTS + 1,  # of results, and one of the coordinator: none of a round, which survives a process alone
        "write of a head": reports,
    }


class Count:
    """Counts what every process of a cluster does, from when it is made."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.of = Counter[str]()
        for kind in (services.ClientStream, services.ServerStream):
            patch.setattr(kind, "write", self._writing(kind.write))
        patch.setattr(store, "connected", self._connecting(store.connected))
        pwrite, fsync, fdatasync = heads.os.pwrite, heads.os.fsync, heads.os.fdatasync
        patch.setattr(heads.os, "pwrite", self._counting("write of a head", pwrite))
        for name, real in (("fsync", fsync), ("fdatasync", fdatasync)):
            patch.setattr(heads.os, name, self._counting("fsync", real))

    def _counting(self, what: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.of[what] += 1
            return real(*arguments)

        return call

    def _writing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        async def write(stream: Any, message: Any) -> None:
            if not isinstance(message, TIMED):
                self.of[f"message {NAMES.get(type(message)) or type(message).__name__}"] += 1
            await real(stream, message)

        return write

    def _connecting(self, real: Callable[..., sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
        def connected(*arguments: Any) -> sqlite3.Connection:
            db = real(*arguments)
            db.set_trace_callback(self._statement)
            return db

        return connected

    def _statement(self, text: str) -> None:
        words = text.replace("(", " ").split()
        self.of[f"sql {' '.join(words[:3] if words[0] in ('INSERT', 'DELETE') else words[:1])}"] += 1


async def counted(folder: Path, patch: pytest.MonkeyPatch, barrier_every: int) -> Counter[str]:
    """What a run of ROUNDS rounds took."""
    patch.setattr(blocks, "BLOCK_NS", HOUR_NS)  # else a busy machine gets shorter blocks
    run = make_run(ROUNDS - 1)
    run = replace(run, runtime=replace(run.runtime, barrier_every=barrier_every))
    async with cluster(folder, run) as c:
        count = Count(patch)
        c.start_all()
        outcome = await c.end()
    assert outcome.conclude.exit_code is ExitCode.DONE
    c.assert_simulators_bits()
    return count.of


def beyond(found: Counter[str], barrier_every: int) -> set[str]:
    """What happened more often than it may.  Reads are no part of a round, and each commit has one beginning."""
    may = expected(barrier_every) | {"sql BEGIN": found["sql COMMIT"]}
    return {what for what, n in found.items() if n > may.get(what, AGENTS * ROUNDS // 2)}


@pytest.mark.parametrize("barrier_every", [1, 16])
async def test_a_round_takes_no_more_than_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, barrier_every: int
) -> None:
    found = await counted(tmp_path, monkeypatch, barrier_every)
    assert not beyond(found, barrier_every), sorted(found.items())
    assert all(found[what] for what in expected(barrier_every)), "and nothing is counted in vain"


async def test_what_makes_a_round_dearer_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one round each, a transaction more for each round, and a vector a frame."""
    commit, encode = Store.commit_round, codec.encode_vectors

    def commits_twice(self: Store, run_id: bytes, record: RoundRecord) -> None:
        commit(self, run_id, record)
        with self._transaction():
            pass

    def one_a_frame(run_id: bytes, sender: str, payloads: Any, **options: Any) -> Iterator[bytes]:
        for payload in payloads:
            yield from encode(run_id, sender, (payload,), **options)

    monkeypatch.setattr(blocks.Blocks, "open", lambda self, first, now_ns: first)
    monkeypatch.setattr(Store, "commit_round", commits_twice)
    monkeypatch.setattr(codec, "encode_vectors", one_a_frame)
    found = await counted(tmp_path, monkeypatch, 16)
    reported = {"message GoMessage", "message Done", "write of a head"}
    assert beyond(found, 16) == reported | {"sql COMMIT", "message frame"}
