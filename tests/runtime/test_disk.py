"""A disk that is too small, full, or not writable: named, nothing released, and the same command goes on afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.agent.noise import sampler_for
from dpgt_node.agent.work import AgentWork, Private
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import Adversary
from dpgt_node.errors import ConfigError, ExitCode, StoreError
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.privacy.laws.keystream import TestKeystream
from dpgt_node.protocol.agent.keeping import AHEAD_ROUNDS
from dpgt_node.protocol.types import Payload, RoundRecord
from dpgt_node.record.recording import Recording
from dpgt_node.runtime import disk
from dpgt_node.runtime.agent.driver import INLINE_BYTES
from dpgt_node.runtime.agent.node import Node
from dpgt_node.runtime.agent.streams import SendingEdge
from dpgt_node.runtime.store.ledger import DATABASE, read_ledger
from dpgt_node.runtime.store.limits import CHECKPOINT_ROUNDS, FILE_BYTES, announce_every
from dpgt_node.runtime.store.rounds.blobs import BlobFolder
from dpgt_node.runtime.store.store import Store
from tests.runtime.cluster import cluster, make_run
from tests.runtime.store.records import RUN, opened, record, vector

FAULTY = "agent-3"  # sends Y only, to agent-1


# --- the prediction -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "rounds"), [(10, 300), (2_000, 120), (100_000, 40), (FILE_BYTES // 8 + 1, 40)])
def test_a_prediction_covers_the_store_and_not_much_more(tmp_path: Path, d: int, rounds: int) -> None:
    """The store as a driver fills it: the state of every tenth round, a large one as late as may be, and pruned two
    rounds after that.
    """
    run = replace(make_run(rounds - 1), data=replace(make_run().data, params={"dimension": d}))
    run = replace(run, runtime=replace(run.runtime, wire_dtype="float64"))
    need = disk.agent_need(run, "agent-1", d, 5)
    announced, beside = announce_every(d), 8 * d > INLINE_BYTES
    peak = payloads = 0
    with contextlib.closing(opened(tmp_path)) as store:
        known = record(0, d)
        for k in range(rounds):
            at = at_round(known, k)
            store.commit_round(RUN, replace(at, checkpoint=None) if beside and k else at)
            if beside and k > CHECKPOINT_ROUNDS and k % CHECKPOINT_ROUNDS == AHEAD_ROUNDS:
                due = at_round(known, k - AHEAD_ROUNDS).checkpoint
                assert due is not None
                store.keep_state(RUN, store.write_state(RUN, due))
            if k % CHECKPOINT_ROUNDS == AHEAD_ROUNDS + 2 if beside else k % announced == 0:
                store.prune(RUN, k - 1)
            peak = max(peak, disk.used_bytes(tmp_path) + disk.used_bytes(tmp_path / "blobs"))
            vectors = (path.stat().st_size for path in (tmp_path / "blobs").glob("[!.]*-[XY]"))
            payloads = max(payloads, sum(vectors))
        assert payloads <= need.payloads
        store.finish_run(RUN, vector(d, 1))
        assert peak <= need.total <= 2 * peak + (16 << 20), (peak, need)


@pytest.mark.parametrize(("d", "samples"), [(10, 0), (2_000, 30)])
def test_a_prediction_covers_what_is_recorded(tmp_path: Path, d: int, samples: int) -> None:
    """Transcript and truth as a recording writes them, on top of what the store needs."""
    run = replace(make_run(99), data=replace(make_run().data, params={"dimension": d}))
    plain = disk.agent_need(run, "agent-1", d, samples, 64)
    assert plain.recorded == 0
    run = replace(run, adversary=Adversary(("agent-1",), truth=True))
    need = disk.agent_need(run, "agent-1", d, samples, 64)
    assert need.total - need.recorded == plain.total and need.growing == plain.rounds + need.recorded
    assert disk.agent_need(run, "agent-2", d, samples, 64).recorded < need.recorded
    topology = Topology.from_config(run.graph)
    oracle = build_oracle(run, 0)
    work = AgentWork(run, topology, Schedule.from_config(run), 0, oracle, TestKeystream("00", 0), sampler_for(run))
    kept = Private(np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(samples, dtype=np.int64), np.zeros((samples, 64)))
    recording = Recording(tmp_path, run, topology, 0, RUN, work, source="test")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(AgentWork, "private", lambda *_: kept)
        recording.begin(None)
        known = record(0, d)
        state = known.checkpoint
        assert state is not None
        for k in range(run.K + 1):
            whole = at_round(known, k)
            recording.released(whole, replace(state, k=k, batch=np.zeros(samples, dtype=np.int64)))
            recording.received(1, whole.on("X"))
            recording.received(2, whole.on("Y"))
        recording.finish()
    used = disk.used_bytes(tmp_path) + disk.used_bytes(tmp_path / "truth")
    assert used <= need.recorded <= 2 * used, (used, need)


@pytest.mark.parametrize(("d", "rounds"), [(FILE_BYTES // 8 + 1, 61), (10, 1500)], ids=["files", "database"])
def test_old_payloads_leave_no_growth(tmp_path: Path, d: int, rounds: int) -> None:
    """Large files are as many as before; the database grows by the rows that stay, the log not beyond its limit."""
    files, sizes = [], []
    with contextlib.closing(opened(tmp_path)) as store:
        known = record(0, d)
        for k in range(rounds):
            store.commit_round(RUN, at_round(known, k))
            store.prune(RUN, k - 1)
            if k % 10 == 0:
                files.append(disk.used_bytes(tmp_path / "blobs"))
                sizes.append([(tmp_path / name).stat().st_size for name in (DATABASE, f"{DATABASE}-wal")])
    assert len(set(files[1:])) == 1, files
    assert max(log for _, log in sizes) <= 5 << 20
    assert sizes[-1][0] < 40_000 + rounds * 700, sizes


def at_round(known: RoundRecord, k: int) -> RoundRecord:
    """The same vectors as of round ``k``; a checkpoint every tenth round."""
    assert known.checkpoint is not None
    payloads = tuple(replace(p, k=k) for p in known.payloads)
    rows = tuple(replace(row, k=k) for row in known.rows)
    state = None if k % CHECKPOINT_ROUNDS else replace(known.checkpoint, k=k)
    return replace(known, k=k, payloads=payloads, rows=rows, checkpoint=state)


def test_the_log_shrinks_after_a_reader_held_it(tmp_path: Path) -> None:
    log = tmp_path / "dpgt.sqlite3-wal"
    with contextlib.closing(opened(tmp_path)) as store:
        store.commit_round(RUN, record(0, 10_000))
        with contextlib.closing(sqlite3.connect(tmp_path / "dpgt.sqlite3", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM rounds").fetchone()
            for k in range(1, 80):
                store.commit_round(RUN, record(k, 10_000))
            assert log.stat().st_size > 12 << 20, "a snapshot that is read keeps the log"
        for k in range(80, 90):
            store.commit_round(RUN, record(k, 10_000))
        assert log.stat().st_size <= 9 << 20


def test_what_is_still_needed() -> None:
    need = disk.DiskNeed("a", rounds=1000, payloads=50, checkpoints=20, log=10, results=5)
    assert disk.still_needed(need, 99, -1, 0) == need.total == 1085
    assert disk.still_needed(need, 99, 49, 0) == 585
    assert disk.still_needed(need, 99, 99, 60) == 25
    assert disk.still_needed(need, 99, 99, 9000) == 0


def test_free_space_of_what_is_not_there_yet(tmp_path: Path) -> None:
    found = disk.free_bytes(tmp_path / "a" / "b")
    here = os.statvfs(tmp_path)
    assert found is not None and abs(found - here.f_bavail * here.f_frsize) < 1 << 30


async def test_a_node_without_room_refuses_before_anything_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as c:
        node = c.node("agent-1")
        node._store.close()
        monkeypatch.setattr(disk, "free_bytes", lambda _: 1_000_000)
        words = r"agent-1: state_dir: .* needs \d+\.\d MB for this run, and 1\.0 MB are free: .*disk_check = false"
        with pytest.raises(ConfigError, match=words) as caught:
            c.node("agent-1")
        assert caught.value.exit_code is ExitCode.CONFIG
        assert read_ledger(c.folder / "state" / "agent-1").entries == ()
        unchecked = replace(node._setup, config=replace(node._setup.config, disk_check=False))
        Node(unchecked)._store.close()  # the owner may try all the same; the directory is free again


# --- a disk that fills up in mid-run ------------------------------------------------------------------------------


def spy_on_sends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rounds of every payload that FAULTY writes to a neighbour, fresh or again."""
    rounds: list[int] = []
    encode = SendingEdge.encode

    def spied(edge: SendingEdge, message: tuple[Payload, ...]) -> Iterable[bytes]:
        if edge._sender == FAULTY:
            rounds.extend(payload.k for payload in message)
        return encode(edge, message)

    monkeypatch.setattr(SendingEdge, "encode", spied)
    return rounds


def fill_up(store: Store) -> None:
    """From here on SQLite itself finds no room: its database may have no page more."""
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages}")


def make_read_only(store: Store) -> None:
    store._db.execute("PRAGMA query_only = ON")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (fill_up, "database or disk is full; the disk is full: free some space, then start the same command again"),
        (make_read_only, "attempt to write a readonly database; the file system is read-only: mount it writable"),
    ],
)
async def test_a_disk_that_fails_in_mid_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Store], None], words: str
) -> None:
    """The agent ends with 2, its last line says why; what it could not store never left; the run then goes on."""
    sent, run = spy_on_sends(monkeypatch), make_run(60)
    async with cluster(tmp_path, run) as c:
        c.start_all()
        await c.reached(8, FAULTY)
        fault(c.nodes[FAULTY]._store)
        with pytest.raises(StoreError, match=words) as caught:
            await c.agents[FAULTY]
        assert caught.value.exit_code is ExitCode.CONFIG and "\n" not in str(caught.value)
        assert c.serving is not None
        outcome = await c.serving
        assert FAULTY in outcome.conclude.reason and outcome.conclude.exit_code is ExitCode.CONFIG
        await asyncio.gather(*c.agents.values(), return_exceptions=True)
        stored = max(entry.row.k for entry in read_ledger(c.folder / "state" / FAULTY).entries)
        session = c.nodes["agent-1"].session
        assert session is not None and session.agent is not None
        assert session.agent.needs(2)[1] <= stored + 1, "the neighbour holds what was not stored"
        assert max(sent) <= stored < run.K
    async with cluster(tmp_path, run) as c:
        c.start_all()
        await c.end()
        c.assert_simulators_bits()


async def test_a_disk_that_is_full_when_a_state_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the rounds: the run ends as for any full disk, and goes on from the state before, recordings and all."""
    run = make_run(24)
    run = replace(run, data=replace(run.data, params={"dimension": 30_000}), adversary=Adversary((FAULTY,), truth=True))
    write, torn = BlobFolder.write, []

    def full(blobs: BlobFolder, name: str, parts: Iterable[bytes | memoryview]) -> None:
        if name.endswith("0000000010-state") and FAULTY in str(blobs.path(name)):
            torn.append(name)
            raise OSError(errno.ENOSPC, "No space left on device")
        write(blobs, name, parts)

    monkeypatch.setattr(BlobFolder, "write", full)
    async with cluster(tmp_path, run) as c:
        c.start_all()
        with pytest.raises(
            StoreError, match=r"the state of round 10 cannot be made durable.*the disk is full"
        ) as caught:
            await c.agents[FAULTY]
        assert caught.value.exit_code is ExitCode.CONFIG and c.serving is not None
        outcome = await c.serving
        assert FAULTY in outcome.conclude.reason and outcome.conclude.exit_code is ExitCode.CONFIG
        await asyncio.gather(*c.agents.values(), return_exceptions=True)
    monkeypatch.setattr(BlobFolder, "write", write)
    async with cluster(tmp_path, run) as c:
        c.start_all()
        await c.end()
        c.assert_simulators_bits()
    states = [path.name for path in (tmp_path / "state" / FAULTY / "blobs").iterdir()]
    assert torn and [name[-16:] for name in states] == ["0000000020-state"]


# --- state directories that cannot be used ------------------------------------------------------------------------


def test_a_path_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(StoreError, match=r"state: is a file: give state_dir the path of a folder"):
        Store(tmp_path / "state", "process")


def test_a_link_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "state").symlink_to(tmp_path / "unmounted")
    with pytest.raises(StoreError, match=r"state: is a link to nothing \(is its disk mounted\?\)"):
        Store(tmp_path / "state", "process")
    assert not (tmp_path / "unmounted").exists()


def test_a_link_to_a_folder_is_that_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "real")
    words = "in use by another process: end it, or give this agent a state_dir"
    with contextlib.closing(Store(tmp_path / "state", "process")), pytest.raises(StoreError, match=words):
        Store(tmp_path / "real", "process")


def test_a_database_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    """As ``cp`` leaves it when a copy is put back."""
    opened(tmp_path).close()
    (tmp_path / DATABASE).chmod(0o644)
    opened(tmp_path).close()
    assert (tmp_path / DATABASE).stat().st_mode & 0o077 == 0


async def test_the_state_directory_of_another_agent(tmp_path: Path) -> None:
    run = make_run(60)
    async with cluster(tmp_path, run) as c:
        c.start_all()
        await c.reached(5, "agent-2")
        for node in c.nodes.values():
            node.interrupt()
        await asyncio.gather(*c.agents.values(), return_exceptions=True)
        words = r"the state directory of agent-2 in run [0-9a-f]+, not of agent-1: give each agent a state_dir"
        with pytest.raises(StoreError, match=words):
            c.node("agent-1", state="agent-2")
        c.node("agent-2")._store.close()  # and it is free again
