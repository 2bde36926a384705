"""Files that no round needs any more are written over, and nothing else is."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import NoReturn

import pytest

from dpgt_node.errors import StoreError
from dpgt_node.runtime.store.limits import FILE_BYTES
from tests.runtime.store.records import RUN, SHA, TERMS, opened, payload, record, same_state, state

LARGE = FILE_BYTES // 8 + 1


def blob_names(state_dir: Path) -> list[str]:
    return sorted(path.name for path in (state_dir / "blobs").iterdir())


def test_a_file_that_is_not_needed_is_written_over_by_the_next_of_its_kind(tmp_path: Path) -> None:
    """New blocks and pages cost several times what the bytes cost.  A state's blocks never come to hold a payload."""
    with contextlib.closing(opened(tmp_path)) as store:
        written: dict[str, set[int]] = {"X": set(), "Y": set(), "state": set()}
        for k in range(12):
            store.commit_round(RUN, record(k, LARGE, checkpoint=k % 2 == 0))
            store.prune(RUN, k - 1)
            for path in (tmp_path / "blobs").iterdir():
                written[path.name.removesuffix(".spare").rpartition("-")[2]].add(path.stat().st_ino)
            assert store.payloads(RUN, k) == record(k, LARGE).payloads
        assert {kind: len(found) for kind, found in written.items()} == {"X": 3, "Y": 3, "state": 2}
        assert len(set.union(*written.values())) == 8, "no file is of two kinds"
        recovered = store.recover(RUN)
        assert recovered is not None and same_state(recovered.checkpoint, state(10, LARGE))
    assert not [name for name in blob_names(tmp_path) if name.endswith(".spare")], "a clean end leaves none"


def test_what_is_still_read_is_not_written_over(tmp_path: Path) -> None:
    """By a slow resend here, or through the links of a copy of the folder."""
    store = opened(tmp_path)
    for k in range(2):
        store.commit_round(RUN, record(k, LARGE))
    held, link = store.payloads(RUN, 0)[0], tmp_path / "copy"
    os.link(tmp_path / "blobs" / f"{RUN.hex()}-0000000000-Y", link)
    store.prune(RUN, 0)
    assert [name for name in blob_names(tmp_path) if name.endswith(".spare")] == [
        f".{RUN.hex()}-0000000000-state.spare"
    ]
    store.commit_round(RUN, record(2, LARGE))
    assert held == payload("X", 0, LARGE) and link.read_bytes() == payload("Y", 0, LARGE).data
    del held
    store.prune(RUN, 1)
    assert f".{RUN.hex()}-0000000001-X.spare" in blob_names(tmp_path)
    store.close()


def test_a_file_that_is_read_twice_is_kept_for_the_slower_one(tmp_path: Path) -> None:
    """By resends to two receivers; or by one, and by the average of x̆, which counts what is about to go."""
    with contextlib.closing(opened(tmp_path)) as store:
        for k in range(3):
            store.commit_round(RUN, record(k, LARGE))
        slow, quick = store.payloads(RUN, 0), store.payloads(RUN, 0)
        del quick
        store.prune(RUN, 0)
        store.begin_run(RUN, SHA, "agent-1", TERMS, average_from=1)
        counted = store.payloads(RUN, 1)
        store.prune(RUN, 1)
        store.commit_round(RUN, record(3, LARGE))
        store.commit_round(RUN, record(4, LARGE))
        assert (slow, counted) == (record(0, LARGE).payloads, record(1, LARGE).payloads)


def test_files_go_after_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash in between leaves files that no row names, and never a row whose file is gone or of another round."""
    with contextlib.closing(opened(tmp_path)) as store:
        store.commit_round(RUN, record(0, LARGE))
        store.commit_round(RUN, record(1, LARGE))

        def full() -> NoReturn:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(store._pruning, "_transaction", full)
        with pytest.raises(StoreError, match="disk is full"):
            store.prune(RUN, 0)
        assert store.payloads(RUN, 0) == record(0, LARGE).payloads
