"""Rounds that drew nothing: stored and sent like any other, without a row in the ledger."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node.protocol.types import RoundRecord
from dpgt_node.runtime.store import store as store_module
from dpgt_node.runtime.store.ledger import DATABASE, LedgerBroken, read_ledger
from dpgt_node.runtime.store.store import Store
from tests.runtime.store.old_databases import take_back
from tests.runtime.store.records import RUN, SHA, TERMS, opened, record, same_record, same_state, state
from tests.runtime.store.test_ledger import tamper
from tests.runtime.store.test_migrate import tables, version

OTHER = bytes(16)
RELEASES = (0, 3)


def made(k: int, *, checkpoint: bool = True) -> RoundRecord:
    """Round ``k`` of a run that releases in rounds 0 and 3."""
    return record(k, checkpoint=checkpoint) if k in RELEASES else replace(record(k, checkpoint=checkpoint), rows=())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with contextlib.closing(opened(tmp_path)) as store:
        for k in range(5):
            store.commit_round(RUN, made(k, checkpoint=k in (0, 2)))
        yield store


def check_rows(store: Store) -> None:
    """One row a stream and release, no other."""
    assert [(e.row.k, e.row.stream) for e in store.ledger().entries] == [(k, s) for k in RELEASES for s in "XY"]


def test_only_releases_have_rows(store: Store, tmp_path: Path) -> None:
    check_rows(store)
    assert read_ledger(tmp_path) == store.ledger()
    (charge,) = store.charges()
    assert charge.k == 3 and charge.cost == record(3).rows[-1].cost
    assert store.releases(RUN) == 10


def test_a_round_without_rows_is_stored_once_and_comes_back(store: Store, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"round 4 of run .* is durable already"):
        store.commit_round(RUN, made(4))
    store.close()
    with contextlib.closing(opened(tmp_path)) as again:
        recovered = again.recover(RUN)
        assert recovered is not None and same_state(recovered.checkpoint, state(2, 10))
        assert [r.k for r in recovered.records] == [2, 3, 4]
        assert all(same_record(r, made(r.k)) for r in recovered.records)
        assert again.payloads(RUN, 1) == record(1).payloads
        again.commit_round(RUN, made(5))
        check_rows(again)


def test_the_head_after_a_free_round_is_that_of_everything_before_it(tmp_path: Path) -> None:
    with contextlib.closing(opened(tmp_path)) as store:
        heads = {}
        store.begin_run(OTHER, SHA[::-1], "agent-1", TERMS)
        for run, k in ((RUN, 0), (RUN, 1), (OTHER, 0), (RUN, 2), (RUN, 3), (OTHER, 1), (RUN, 4)):
            store.commit_round(run, made(k))
            heads[run, k] = store.head
        assert len(set(heads.values())) == 3
        assert all(store.head_after(run, k) == head for (run, k), head in heads.items())
        assert store.head_after(RUN, 5) == b""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("DELETE FROM ledger WHERE k = 3", r"a released round has no ledger row \(round 3\)"),
        ("DELETE FROM ledger", r"a released round has no ledger row \(round 0\)"),
        ("UPDATE rounds SET uncharged = 2 WHERE id % 65536 = 3", "ledger row 4 is missing: round 4 came after it"),
        ("UPDATE rounds SET uncharged = 0 WHERE id % 65536 = 0", "ledger row 2 is missing: round 1 came after it"),
        ("UPDATE rounds SET uncharged = NULL WHERE id % 65536 = 1", r"a released round has no ledger row \(round 1\)"),
        ("UPDATE rounds SET uncharged = NULL WHERE id % 65536 = 4", r"a released round has no ledger row \(round 4\)"),
    ],
)
def test_a_release_does_not_become_a_free_round(store: Store, tmp_path: Path, change: str, words: str) -> None:
    tamper(tmp_path, change)
    for read in (store.ledger, store.charges, lambda: read_ledger(tmp_path)):
        with pytest.raises(LedgerBroken, match=words):
            read()


def test_a_release_cut_off_with_its_mark_is_missed_by_the_free_round_after_it(store: Store, tmp_path: Path) -> None:
    tamper(tmp_path, "DELETE FROM ledger WHERE k = 3")
    tamper(tmp_path, "UPDATE rounds SET uncharged = 2 WHERE id % 65536 = 3")
    with pytest.raises(LedgerBroken, match="ledger row 4 is missing: round 4 came after it"):
        store.ledger()


def test_a_release_of_one_row_cut_off_with_its_mark_is_missed_too(tmp_path: Path) -> None:
    """Where only the noise of y is charged, one row is all that a release leaves."""
    with contextlib.closing(opened(tmp_path)) as store:
        for k in range(5):
            store.commit_round(RUN, replace(made(k), rows=made(k).rows[1:]))
        assert [(e.row.k, e.row.stream) for e in store.ledger().entries] == [(k, "Y") for k in RELEASES]
        tamper(tmp_path, "DELETE FROM ledger WHERE k = 3")
        tamper(tmp_path, "UPDATE rounds SET uncharged = 1 WHERE id % 65536 = 3")
        with pytest.raises(LedgerBroken, match="ledger row 2 is missing: round 4 came after it"):
            store.ledger()


def test_a_release_without_a_row_is_missed_in_whichever_run(store: Store, tmp_path: Path) -> None:
    store.begin_run(OTHER, SHA[::-1], "agent-1", TERMS)
    for k in range(2):
        store.commit_round(OTHER, made(k))
    tamper(tmp_path, "UPDATE rounds SET uncharged = 4 WHERE uncharged = 6")
    tamper(tmp_path, "DELETE FROM ledger WHERE run = (SELECT max(run) FROM ledger)")
    with pytest.raises(LedgerBroken, match=r"a released round has no ledger row \(round 0\)"):
        store.ledger()


def test_a_store_that_drops_a_charge_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant takes every round for a free one."""
    monkeypatch.setattr(store_module, "as_charged", lambda rows, spent, hides: ())
    with contextlib.closing(opened(tmp_path)) as store:
        for k in range(5):
            store.commit_round(RUN, made(k))
        with pytest.raises((AssertionError, LedgerBroken)):
            check_rows(store)


def test_version_6_knew_no_free_rounds_and_goes_on(tmp_path: Path) -> None:
    with contextlib.closing(opened(tmp_path / "old")) as store:
        for k in range(3):
            store.commit_round(RUN, record(k))
        ledger = store.ledger()
    path = tmp_path / "old" / DATABASE
    take_back(tmp_path / "old", 6)
    assert read_ledger(tmp_path / "old") == ledger and version(path) == 6
    with contextlib.closing(opened(tmp_path / "old")) as store:
        assert store.ledger() == ledger
        store.commit_round(RUN, record(3))
        store.commit_round(RUN, made(4))
        assert len(store.ledger().entries) == 8
    Store(tmp_path / "new", "process").close()
    assert tables(path) == tables(tmp_path / "new" / DATABASE)
