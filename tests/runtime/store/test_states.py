"""States written beside the rounds: a restart goes on from the old one or from the new one, never from half of one."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dpgt_node.errors import Broken, StoreError
from dpgt_node.runtime.store.limits import FILE_BYTES
from dpgt_node.runtime.store.opening import Transaction
from dpgt_node.runtime.store.rounds.blobs import BlobFolder
from dpgt_node.runtime.store.store import Store
from tests.runtime.store.records import RUN, opened, record, same_state, state

SMALL, LARGE = 10, FILE_BYTES // 8 + 1


def going(state_dir: Path, d: int, rounds: int) -> Store:
    """A store with rounds 0 to ``rounds - 1``, and the state of round 0."""
    store = opened(state_dir)
    for k in range(rounds):
        store.commit_round(RUN, record(k, d, checkpoint=k == 0))
    return store


def restart(state_dir: Path) -> int:
    """The round that a restart on a copy of ``state_dir`` goes on from; everything it finds is whole and needed."""
    copy = state_dir.with_name("copy")
    shutil.copytree(state_dir, copy)
    try:
        with contextlib.closing(opened(copy)) as store:
            recovered = store.recover(RUN)
            assert recovered is not None
            d = recovered.checkpoint.vectors["px"].size
            assert same_state(recovered.checkpoint, state(recovered.checkpoint.k, d))
            assert [r.payloads for r in recovered.records] == [record(r.k, d).payloads for r in recovered.records]
            found = {path.name for path in (copy / "blobs").iterdir()}
            assert len([name for name in found if name.endswith("state")]) == (d > SMALL), "what no row names is gone"
            return recovered.checkpoint.k
    finally:
        shutil.rmtree(copy)


@pytest.mark.parametrize("d", [SMALL, LARGE], ids=["row", "file"])
def test_a_state_counts_from_its_row_on(tmp_path: Path, d: int) -> None:
    place = tmp_path / "state"
    with contextlib.closing(going(place, d, 4)) as store:
        written = store.write_state(RUN, state(2, d))
        assert restart(place) == 0
        store.prune(RUN, 3)
        assert restart(place) == 0 and store.payloads(RUN, 0), "nothing that a restart needs was pruned"
        store.commit_round(RUN, record(4, d, checkpoint=False))
        store.keep_state(RUN, written)
        assert restart(place) == 2
        store.prune(RUN, 3)
        with pytest.raises(StoreError, match=r"round 1 of run .* was pruned"):
            store.payloads(RUN, 1)
        assert restart(place) == 2 and store.payloads(RUN, 2)


def test_a_state_is_kept_in_order_and_once_its_round_is_durable(tmp_path: Path) -> None:
    with contextlib.closing(going(tmp_path, SMALL, 4)) as store:
        with pytest.raises(Broken, match="once its round is durable"):
            store.keep_state(RUN, store.write_state(RUN, state(4, SMALL)))
        store.keep_state(RUN, store.write_state(RUN, state(3, SMALL)))
        for k in (2, 3):
            with pytest.raises(Broken, match="follows an older one"):
                store.keep_state(RUN, store.write_state(RUN, state(k, SMALL)))


def test_a_checkpoint_whose_round_is_not_there_is_damage(tmp_path: Path) -> None:
    with contextlib.closing(going(tmp_path, SMALL, 4)) as store:
        store.keep_state(RUN, store.write_state(RUN, state(3, SMALL)))
        store._db.execute("DELETE FROM payloads WHERE id = (SELECT max(id) FROM rounds)")
        store._db.execute("DELETE FROM rounds WHERE id = (SELECT max(id) FROM rounds)")
        with pytest.raises(StoreError, match="rounds are missing after the checkpoint of round 3"):
            store.recover(RUN)


def test_a_disk_that_is_full_leaves_the_state_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "state"
    with contextlib.closing(going(place, LARGE, 3)) as store:
        store.keep_state(RUN, store.write_state(RUN, state(1, LARGE)))
        assert list((place / "blobs").glob(".*.spare")), "the file of the state before"
        with monkeypatch.context() as patched:
            patched.setattr(BlobFolder, "write", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space")))
            with pytest.raises(StoreError, match=r"the state of round 2 cannot be made durable.*the disk is full"):
                store.write_state(RUN, state(2, LARGE))
        assert not list((place / "blobs").glob(".*.spare")), "there is room for something else"
        assert restart(place) == 1
        store.keep_state(RUN, store.write_state(RUN, state(2, LARGE)))
        assert restart(place) == 2


@pytest.mark.parametrize("beside", [False, True])
def test_a_state_whose_row_does_not_commit_leaves_the_state_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    def broken(transaction: Transaction, *_: object) -> None:
        transaction._db.execute("ROLLBACK")
        raise sqlite3.OperationalError("disk I/O error")

    place = tmp_path / "state"
    with contextlib.closing(going(place, LARGE, 3)) as store:
        written = store.write_state(RUN, state(2, LARGE))
        monkeypatch.setattr(Transaction, "__exit__", broken)
        with pytest.raises(StoreError, match="cannot be made durable"):
            if beside:
                store.keep_state(RUN, written)
            else:
                store.commit_round(RUN, record(3, LARGE))
        monkeypatch.undo()
        assert restart(place) == 0


def test_rounds_commit_and_are_pruned_while_a_state_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into recycled files, which somebody else deletes for a disk that is full: but for the one that is written to."""
    place, inodes, write = tmp_path / "state", list[int](), BlobFolder.write
    half, go_on = threading.Event(), threading.Event()

    def slowly(blobs: BlobFolder, name: str, parts: Sequence[bytes | memoryview]) -> None:
        def halfway() -> Iterator[bytes | memoryview]:
            yield parts[0]
            half.set()
            assert go_on.wait(30)
            yield from parts[1:]

        write(blobs, name, halfway() if name.endswith("-state") and parts[1:] else parts)

    with contextlib.closing(going(place, LARGE, 1)) as store, ThreadPoolExecutor(1) as beside:
        monkeypatch.setattr(BlobFolder, "write", slowly)
        for due in (2, 4, 6):
            half.clear()
            go_on.clear()
            store.commit_round(RUN, record(due - 1, LARGE, checkpoint=False))
            store.commit_round(RUN, record(due, LARGE, checkpoint=False))
            future = beside.submit(store.write_state, RUN, state(due, LARGE))
            assert half.wait(30)
            if due == 6:
                store.commit_round(RUN, record(due + 1, LARGE, checkpoint=False))
            store.prune(RUN, due - 1)
            assert restart(place) == due - 2
            if due == 6:
                store._blobs.drop_spares()
            go_on.set()
            store.keep_state(RUN, future.result())
            assert restart(place) == due
            inodes.append(os.stat(store._blobs.path(f"{RUN.hex()}-{due:010d}-state")).st_ino)
    assert inodes[0] == inodes[2] != inodes[1], "two files take turns"
