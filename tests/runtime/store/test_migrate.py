"""A state directory of an older version goes on; a newer one is refused; a migration happens whole or not at all."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import parse_run
from dpgt_node.errors import StoreError
from dpgt_node.protocol.types import RoundRecord
from dpgt_node.runtime.store.ledger import DATABASE, LedgerBroken, read_ledger
from dpgt_node.runtime.store.limits import FILE_BYTES
from dpgt_node.runtime.store.migrate import UNRECORDED
from dpgt_node.runtime.store.schema import VERSION
from dpgt_node.runtime.store.store import Store
from dpgt_node.sim.simulate import build_agents, build_oracles
from dpgt_node.sim.world import Observer, World
from tests.runtime.store.old_databases import read_text, take_back, write_old
from tests.runtime.store.records import RUN, SHA, TERMS, record, same_record, same_state, state

OLD = Path(__file__).parent / "old"
ROOT = Path(__file__).resolve().parents[3]
SMALL, LARGE = 10, FILE_BYTES // 8 + 1


def tables(path: Path) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return list(db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"))


def version(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def begun_by(state_dir: Path, old: int) -> bytes:
    """A state directory of version ``old`` with round 0 of RUN; its head."""
    with contextlib.closing(Store(state_dir, "process")) as store:
        store.begin_run(RUN, SHA, "agent-1", TERMS)
        store.commit_round(RUN, record(0))
        head = store.head
    take_back(state_dir, old)
    return head


@pytest.mark.parametrize("old", [1, 2, 3])
@pytest.mark.parametrize("d", [SMALL, LARGE])
def test_an_old_state_directory_goes_on(tmp_path: Path, old: int, d: int) -> None:
    """Payloads, checkpoint and charges come back as they were, and the next round is committed after them."""
    head = write_old(tmp_path / "old", old, d=d, rounds=6, checkpoint=4, pruned=3)
    for start in range(2):  # the second start finds nothing to do
        with contextlib.closing(Store(tmp_path / "old", "process")) as store:
            terms = UNRECORDED if old == 1 else TERMS
            store.begin_run(RUN, SHA, "agent-1", terms)
            recovered = store.recover(RUN)
            assert recovered is not None and same_state(recovered.checkpoint, state(4, d))
            assert [r.k for r in recovered.records] == [4, 5]
            assert all(same_record(r, record(r.k, d)) for r in recovered.records)
            assert store.payloads(RUN, 3) == record(3, d).payloads
            with pytest.raises(StoreError, match=r"round 2 of run .* was pruned"):
                store.payloads(RUN, 2)
            ledger = store.ledger()
            assert [(e.row.k, e.row.stream) for e in ledger.entries] == [(k, s) for k in range(6) for s in "XY"]
            assert {t for t in ledger.terms.values()} == {terms}
            assert (ledger.head == head) is (old > 1), "what version 1 did not say is now part of every row's text"
            if start == 1:
                with pytest.raises(RuntimeError, match="durable already"):
                    store.commit_round(RUN, record(5, d, draw=1))
                store.commit_round(RUN, record(6, d))
    Store(tmp_path / "new", "process").close()
    assert tables(tmp_path / "old" / DATABASE) == tables(tmp_path / "new" / DATABASE)
    kept = tmp_path / "old" / f"{DATABASE}.v{old}"
    assert version(kept) == old and stat.S_IMODE(kept.stat().st_mode) == 0o600


@pytest.mark.parametrize("old", [2, 3])
def test_a_ledger_of_version_2_or_3_can_be_read_as_it_is(tmp_path: Path, old: int) -> None:
    head = write_old(tmp_path, old, d=SMALL, rounds=3, checkpoint=0, pruned=0)
    assert read_ledger(tmp_path).head == head and version(tmp_path / DATABASE) == old


@pytest.mark.parametrize("mechanism", ["paper", "noise-once"])
def test_a_run_that_version_3_left_unfinished_goes_on_to_the_same_bits(tmp_path: Path, mechanism: str) -> None:
    """The database was written by the program of that version, in round 7 of 12 with a checkpoint of round 5."""
    text = (OLD / "version-3.toml").read_text(encoding="utf-8").replace('"paper"', f'"{mechanism}"')
    run = parse_run(text, "version-3.toml", Path("/"))
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    records: dict[tuple[int, int], RoundRecord] = {}
    observer = Observer(persisted=lambda i, record: records.update({(i, record.k): record}))
    agents = build_agents(run, topology, schedule, build_oracles(run, None), "ab")
    World(run.graph.agents, agents, run.K, observer=observer).run()
    read_text(OLD / f"version-3-{mechanism}.sql", tmp_path)
    with contextlib.closing(Store(tmp_path, "process")) as store:
        store.begin_run(RUN, SHA, "agent-1", TERMS)
        recovered = store.recover(RUN)
        assert recovered is not None and recovered.checkpoint.k == 5
        expected = records[0, 5].checkpoint
        # The gradients are a matrix product, whose last bit is the processor's; what is sent lies on the grid.
        assert expected is not None and same_state(recovered.checkpoint, expected, within=1e-14)
        assert [record.k for record in recovered.records] == [5, 6, 7]
        for found in recovered.records:
            now = records[0, found.k]
            assert found.payloads == now.payloads
            assert [replace(row, cost={}) for row in found.rows] == [replace(row, cost={}) for row in now.rows]
            for was, row in zip(found.rows, now.rows, strict=True):  # accountants may round otherwise than they did
                newer = row.cost.keys() - was.cost.keys()  # accountants that came later say nothing of these runs
                assert row.cost.keys() >= was.cost.keys() and not any(row.cost[name] for name in newer)
                assert all(
                    row.cost[name] == value or row.cost[name] == pytest.approx(value, rel=1e-12)
                    for name, value in was.cost.items()
                )
            if mechanism == "paper":
                assert found.noisy_gradient is None and now.noisy_gradient is None
            else:
                assert found.noisy_gradient is not None and now.noisy_gradient is not None
                assert np.array_equal(found.noisy_gradient, now.noisy_gradient)
        store.commit_round(RUN, records[0, 8])
        assert len(store.ledger().entries) == 9 * len(records[0, 8].rows)


def test_a_state_directory_of_version_5_goes_on(tmp_path: Path) -> None:
    """It lacks the place of the owner's signature, and can be read as it is."""
    head = begun_by(tmp_path / "old", 5)
    assert read_ledger(tmp_path / "old").head == head and version(tmp_path / "old" / DATABASE) == 5
    with contextlib.closing(Store(tmp_path / "old", "process")) as store:
        store.begin_run(RUN, SHA, "agent-1", TERMS)
        assert store.head == head
        store.commit_round(RUN, record(1))
    Store(tmp_path / "new", "process").close()
    assert tables(tmp_path / "old" / DATABASE) == tables(tmp_path / "new" / DATABASE)
    assert version(tmp_path / "old" / f"{DATABASE}.v5") == 5


def test_a_state_directory_of_version_7_goes_on(tmp_path: Path) -> None:
    """It has no place for keys that agents share."""
    head = begun_by(tmp_path / "old", 7)
    with contextlib.closing(Store(tmp_path / "old", "process")) as store:
        assert store.head == head and store.pairs.open(RUN) is None
    Store(tmp_path / "new", "process").close()
    assert tables(tmp_path / "old" / DATABASE) == tables(tmp_path / "new" / DATABASE)


def test_a_state_directory_of_version_8_goes_on(tmp_path: Path) -> None:
    """Its runs do not say how their agent shares noise: they count with all they cost."""
    head = begun_by(tmp_path / "old", 8)
    assert read_ledger(tmp_path / "old").head == head and version(tmp_path / "old" / DATABASE) == 8
    with contextlib.closing(Store(tmp_path / "old", "process")) as store:
        store.begin_run(RUN, SHA, "agent-1", replace(TERMS, shares="2 4 4"))
        assert store.head == head and store.ledger().terms[RUN].shares == ""
        store.commit_round(RUN, record(1))
    Store(tmp_path / "new", "process").close()
    assert tables(tmp_path / "old" / DATABASE) == tables(tmp_path / "new" / DATABASE)


def test_how_noise_is_shared_is_part_of_the_chain(tmp_path: Path) -> None:
    with contextlib.closing(Store(tmp_path, "process")) as store:
        store.begin_run(RUN, SHA, "agent-1", replace(TERMS, shares="2 4 4"))
        store.commit_round(RUN, record(0))
    assert read_ledger(tmp_path).terms[RUN].shares == "2 4 4"
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as db, db:
        db.execute("UPDATE runs SET shares = '9 4 4'")
    with pytest.raises(StoreError, match="ledger row 1"):
        read_ledger(tmp_path)


def test_a_torn_checkpoint_is_not_migrated(tmp_path: Path) -> None:
    """A new seal would make it look whole."""
    write_old(tmp_path, 3, d=SMALL, rounds=3, checkpoint=2, pruned=0)
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as db, db:
        db.execute("UPDATE checkpoints SET k = 1")
    with pytest.raises(StoreError, match="checkpoint of round 1 is torn; nothing was migrated"):
        Store(tmp_path, "process")
    assert version(tmp_path / DATABASE) == 3


def test_a_ledger_of_version_1_wants_its_agent_first(tmp_path: Path) -> None:
    write_old(tmp_path, 1, d=SMALL, rounds=3, checkpoint=0, pruned=0)
    with pytest.raises(StoreError, match=rf"version 1; this version of dpgt knows {VERSION}: start its agent once"):
        read_ledger(tmp_path)


@pytest.mark.parametrize("old", [1, 2, 3])
def test_a_changed_ledger_is_not_migrated(tmp_path: Path, old: int) -> None:
    write_old(tmp_path, old, d=SMALL, rounds=3, checkpoint=0, pruned=0)
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as db, db:
        db.execute("UPDATE ledger SET scale = 0.2 WHERE id = 3")
    for _ in range(2):
        with pytest.raises(LedgerBroken, match="ledger row 3 "):
            Store(tmp_path, "process")
        assert version(tmp_path / DATABASE) == old


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    Store(tmp_path, "process").close()
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    before = (tmp_path / DATABASE).read_bytes()
    words = rf"version {VERSION + 1}; this version of dpgt knows {VERSION}: use a dpgt that is as new"
    with pytest.raises(StoreError, match=words):
        Store(tmp_path, "process")
    with pytest.raises(StoreError, match=f"version {VERSION + 1}; this version of dpgt knows {VERSION}: use a newer"):
        read_ledger(tmp_path)
    assert (tmp_path / DATABASE).read_bytes() == before


KILLED = """
import itertools, os, pathlib, signal, sqlite3, sys
from dpgt_node.runtime.store.store import Store
limit, count = 0, itertools.count()

class Traced(sqlite3.Connection):
    def execute(self, *arguments):
        if next(count) == limit:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(*arguments)

connect = sqlite3.connect
sqlite3.connect = lambda *a, **k: connect(*a, **{**k, "factory": Traced})
for limit in map(int, sys.argv[2:]):
    child = os.fork()
    if not child:
        Store(pathlib.Path(sys.argv[1]) / str(limit), "process").close()
        print(next(count))
        sys.stdout.flush()
        os._exit(0)
    print(-os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.parametrize("old", [1, 2, 3])
def test_a_killed_migration_leaves_the_old_database(tmp_path: Path, old: int) -> None:
    """Killed before any statement of it: the next start finds the old database or the new one, whole."""

    def run(limits: list[int]) -> list[int]:
        for limit in limits:
            write_old(tmp_path / str(limit), old, d=SMALL, rounds=4, checkpoint=2, pruned=1)
        command = [sys.executable, "-c", KILLED, str(tmp_path), *map(str, limits)]
        return [int(line) for line in subprocess.check_output(command, cwd=ROOT, text=True).split()]

    statements, code = run([10**9])
    assert statements > 20 and code == 0
    limits = list(range(4, statements, 3))
    assert run(limits) == [signal.SIGKILL] * len(limits)
    seen = set()
    for folder in (tmp_path / str(limit) for limit in limits):
        seen.add(version(folder / DATABASE))
        with contextlib.closing(Store(folder, "process")) as store:
            recovered = store.recover(RUN)
            assert recovered is not None and [r.k for r in recovered.records] == [2, 3]
            assert len(store.ledger().entries) == 8
        assert not [name for name in os.listdir(folder) if name.endswith(".tmp")]
    assert seen == {old, VERSION}
