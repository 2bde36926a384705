"""Whatever bytes of a state directory change: it is named, or nothing that comes back is wrong."""

from __future__ import annotations

import contextlib
import functools
import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from dpgt_node.errors import ExitCode, StoreError
from dpgt_node.protocol.types import RoundRecord
from dpgt_node.runtime.store.ledger import DATABASE, LedgerBroken
from dpgt_node.runtime.store.limits import FILE_BYTES
from dpgt_node.runtime.store.store import Store
from tests.runtime.store.records import RUN, SHA, TERMS, opened, record, same_record, same_state, state

SEED = 20260101
SMALL, LARGE = 520, FILE_BYTES // 8 + 1
ROUNDS, CHECKPOINT, PRUNED = 24, 20, 16


@functools.cache
def made(k: int, checkpoint: bool) -> RoundRecord:
    return record(k, SMALL, checkpoint=checkpoint)


def make(folder: Path, *, killed: bool = False) -> None:
    """Rounds 0..23 of vectors that fill more than a page, checkpoint before round 20, rounds below 16 pruned.

    ``killed``: as a process that was killed leaves it, its last commits in the log only.
    """
    with contextlib.closing(opened(folder)) as store:
        for k in range(ROUNDS):
            store.commit_round(RUN, made(k, k in (0, CHECKPOINT)))
        store.prune(RUN, PRUNED - 1)
        if killed:
            shutil.copytree(folder, folder.with_name("left"))
    if killed:
        shutil.rmtree(folder)
        folder.with_name("left").rename(folder)


def what_comes_back(folder: Path) -> str:
    """ "named", "whole" or "shorter" (an older state, every round of it whole).  AssertionError: something wrong."""
    try:
        with contextlib.closing(Store(folder, "process")) as store:
            store.begin_run(RUN, SHA, "agent-1", TERMS)
            charges, recovered = store.charges(), store.recover(RUN)
            if recovered is None:
                assert charges == () and store.releases(RUN) == 0
                return "shorter"
            last = recovered.records[-1].k
            for k in range(PRUNED, last + 1):
                want = made(k, False)
                assert store.payloads(RUN, k) == want.payloads
    except StoreError as error:
        assert "\n" not in str(error) and str(folder) in str(error), "one line that says where"
        assert error.exit_code in (ExitCode.CONFIG, ExitCode.CHECK_FAILED)
        return "named"
    assert [(c.run_id, c.terms, c.k) for c in charges] == [(RUN, TERMS, last)], "what is here was charged"
    assert same_state(recovered.checkpoint, state(recovered.checkpoint.k, SMALL))
    assert [r.k for r in recovered.records] == list(range(recovered.checkpoint.k, last + 1))
    assert all(same_record(got, made(got.k, False)) for got in recovered.records)
    return "whole" if last == ROUNDS - 1 else "shorter"


def flipped(source: Path, target: Path, name: str, offset: int, bit: int) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    with open(target / name, "r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))
    return target


def test_a_flipped_bit_anywhere_in_the_database(tmp_path: Path) -> None:
    """Header, schema, inner pages, leaves, overflow and free pages: several places of every page, its head foremost."""
    make(tmp_path / "good")
    assert what_comes_back(tmp_path / "good") == "whole"
    chance = random.Random(SEED)
    size = (tmp_path / "good" / DATABASE).stat().st_size
    outcomes = []
    for page in range(0, size, 4096):
        for offset in [chance.randrange(12), *(chance.randrange(4096) for _ in range(3))]:
            place = (page + offset, chance.randrange(8))
            outcome = what_comes_back(flipped(tmp_path / "good", tmp_path / "bad", DATABASE, *place))
            assert outcome != "shorter", place
            outcomes.append(outcome)
    assert outcomes.count("named") > len(outcomes) // 4
    assert outcomes.count("whole") > 0, "free space is not data"


def test_a_flipped_bit_anywhere_in_the_log(tmp_path: Path) -> None:
    """SQLite drops a torn end of its log: an older state, which others find out (see ``head_after``)."""
    make(tmp_path / "good", killed=True)
    log = f"{DATABASE}-wal"
    chance = random.Random(SEED)
    size = (tmp_path / "good" / log).stat().st_size
    assert size > 100_000
    for _ in range(60):
        place = (chance.randrange(size), chance.randrange(8))
        assert what_comes_back(flipped(tmp_path / "good", tmp_path / "bad", log, *place)), place


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE checkpoints SET k = 21", "checkpoint of round 21 is torn"),
        ("UPDATE checkpoints SET batch = zeroblob(40)", "checkpoint of round 20 is torn"),
        ("UPDATE checkpoints SET data = zeroblob(20800)", "checkpoint of round 20 is torn"),
        ("UPDATE payloads SET batch = zeroblob(40)", "the row of round 20 is torn"),
        ("UPDATE payloads SET dtype = 'float32'", "the row of round 20 is torn"),
        ("UPDATE payloads SET x_data = y_data", "X of round 20 is torn"),
        ("UPDATE payloads SET id = id + 100 WHERE id % 65536 = 23", "rounds are missing"),
        ("DELETE FROM payloads WHERE id % 65536 = 23", "rounds are missing"),
    ],
)
def test_rows_that_say_something_else(tmp_path: Path, change: str, words: str) -> None:
    """Mutants of single fields: without its seal or hash each of them would be taken for what was stored."""
    make(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as db, db:
        db.execute(change)
    with contextlib.closing(Store(tmp_path, "process")) as store, pytest.raises(StoreError, match=words) as caught:
        store.recover(RUN)
    assert "the state directory is damaged" in str(caught.value) or "is torn" in str(caught.value)


@pytest.mark.parametrize("cut", [1, 4096, 20_000])
def test_a_truncated_database(tmp_path: Path, cut: int) -> None:
    make(tmp_path)
    path = tmp_path / DATABASE
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - cut)
    assert what_comes_back(tmp_path) in ("named", "whole"), "the end of the last page may be free space"


def test_a_missing_database_is_a_fresh_one(tmp_path: Path) -> None:
    """Nothing here can know better; the coordinator and the neighbours do."""
    make(tmp_path)
    (tmp_path / DATABASE).unlink()
    assert what_comes_back(tmp_path) == "shorter"


@pytest.mark.parametrize("offset", [0, 1, 500_000, FILE_BYTES])
@pytest.mark.parametrize("what", ["X", "Y", "state"])
def test_a_flipped_bit_in_a_large_file(tmp_path: Path, what: str, offset: int) -> None:
    with contextlib.closing(opened(tmp_path)) as store:
        store.commit_round(RUN, record(0, LARGE))
    path = tmp_path / "blobs" / f"{RUN.hex()}-{0:010d}-{what}"
    data = bytearray(path.read_bytes())
    data[offset] ^= 16
    path.write_bytes(data)
    with contextlib.closing(opened(tmp_path)) as store:
        with pytest.raises(StoreError, match="round 0 is torn"):
            store.recover(RUN)
        if what != "state":
            with pytest.raises(StoreError, match=f"{what} of round 0 is torn"):
                store.payloads(RUN, 0)  # not a byte of it is sent again


def test_the_last_rounds_rolled_back_together(tmp_path: Path) -> None:
    """An old copy is whole; only a head that somebody else remembers tells it from the newest one."""
    make(tmp_path / "new")
    with contextlib.closing(opened(tmp_path / "new")) as store:
        head = store.head
    with contextlib.closing(opened(tmp_path / "old")) as store:
        for k in range(ROUNDS - 1):
            store.commit_round(RUN, made(k, k in (0, CHECKPOINT)))
        assert store.head_after(RUN, ROUNDS - 1) != head
        store.commit_round(RUN, record(ROUNDS - 1, SMALL, checkpoint=False, draw=1))
        assert store.head_after(RUN, ROUNDS - 1) != head, "the same round, drawn again"
    with contextlib.closing(opened(tmp_path / "new")) as store:
        assert store.head_after(RUN, ROUNDS - 1) == head
        store.commit_round(RUN, record(ROUNDS, SMALL))
        assert store.head_after(RUN, ROUNDS - 1) == head and store.head_after(RUN, ROUNDS - 2) != head


def test_a_charge_repeated_at_the_end_is_found(tmp_path: Path) -> None:
    """A chain that is whole but charges a stream twice (the tables have no index that would refuse it)."""
    make(tmp_path)
    with contextlib.closing(opened(tmp_path)) as store:
        entries = store.ledger().entries
    from dpgt_node.runtime.store.ledger import cost_text, next_head

    row = entries[-1].row
    head = next_head(entries[-1].head, TERMS.text(RUN), row, cost_text(row.cost))
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as db, db:
        columns = "run, k, stream, mechanism, law, scale, sensitivity, sha256, cost"
        last = len(entries)
        db.execute(f"INSERT INTO ledger SELECT NULL, {columns}, ? FROM ledger WHERE id = ?", (head, last))
    with pytest.raises(LedgerBroken, match=f"ledger row {len(entries) + 1} "):
        Store(tmp_path, "process")
