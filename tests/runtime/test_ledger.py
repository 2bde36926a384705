"""The ledger is a chain: every change of a row is found, and reading it disturbs nobody."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgt_node.errors import StoreError
from dpgt_node.runtime.ledger import DATABASE, NO_HEAD, Ledger, cost_text, read_ledger
from dpgt_node.runtime.store import Store
from tests.runtime.records import RUN, SHA, opened, record


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with contextlib.closing(opened(tmp_path)) as store:
        for k in range(3):
            store.commit_round(RUN, record(k))
        yield store


def oracle_head(ledger: Ledger) -> bytes:
    """The chain as the documentation of the module says it, written again from there."""
    head = bytes(32)
    for e in ledger.entries:
        r = e.row
        cost = json.dumps(
            {n: "inf" if v == math.inf else v for n, v in sorted(r.cost.items())},
            separators=(",", ":"),
            allow_nan=False,
        )
        words = [
            e.run_id.hex(),
            r.k,
            r.stream,
            r.mechanism,
            r.law,
            repr(r.scale),
            repr(r.sensitivity),
            r.sha256.hex(),
            cost,
        ]
        head = hashlib.sha256(head + "".join(f"{word}\n" for word in words).encode()).digest()
        assert e.head == head
    return head


def test_the_chain(store: Store, tmp_path: Path) -> None:
    ledger = store.ledger()
    assert [e.row for e in ledger.entries] == [row for k in range(3) for row in record(k).rows]
    assert ledger.head == ledger.entries[-1].head == oracle_head(ledger)
    assert read_ledger(tmp_path) == ledger  # while the store is open


def test_the_chain_goes_on_over_restarts_and_runs(store: Store, tmp_path: Path) -> None:
    store.close()
    other = bytes(16)
    with contextlib.closing(Store(tmp_path, "process")) as again:
        again.begin_run(other, SHA, "agent-1")
        again.commit_round(other, record(0))
        again.commit_round(RUN, record(3))
        ledger = again.ledger()
        assert ledger.head == oracle_head(ledger)
        assert len(ledger.entries) == 10
        assert again.ledger(other).head == ledger.head
        assert [e.run_id for e in again.ledger(other).entries] == [other, other]
        again.prune(RUN, 3)
        assert again.ledger() == ledger


def test_an_empty_ledger(tmp_path: Path) -> None:
    opened(tmp_path).close()
    assert read_ledger(tmp_path) == Ledger((), NO_HEAD)


@pytest.mark.parametrize(
    "change",
    [
        "scale = 0.2",
        "sensitivity = 1.0",
        "sensitivity = NULL",
        "cost = '{}'",
        "k = 77",
        "stream = 'Z'",
        "mechanism = 'x'",
        "law = 'gaussian'",
        "sha256 = x'00'",
        "head = zeroblob(32)",
        "run = 2",
        "cost = 'not json'",
        "cost = '[]'",
    ],
)
def test_a_changed_row_is_found(store: Store, tmp_path: Path, change: str) -> None:
    store.begin_run(bytes(16), SHA, "agent-1")
    tamper(tmp_path, f"UPDATE ledger SET {change} WHERE id = 4")
    for read in (store.ledger, lambda: read_ledger(tmp_path)):
        with pytest.raises(StoreError, match="ledger row 4 ") as caught:
            read()
        assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ("DELETE FROM ledger WHERE id = 3", 3),
        ("UPDATE ledger SET id = CASE id WHEN 2 THEN -1 ELSE id END", 1),
        (
            "INSERT INTO ledger SELECT -5, run, 99, stream, mechanism, law, scale, sensitivity, sha256, cost, head"
            " FROM ledger WHERE id = 1",
            1,
        ),
    ],
    ids=["removed", "reordered", "inserted"],
)
def test_removed_reordered_and_inserted_rows_are_found(store: Store, tmp_path: Path, change: str, row: int) -> None:
    tamper(tmp_path, change)
    with pytest.raises(StoreError, match=f"ledger row {row} "):
        store.ledger()


def tamper(state_dir: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(state_dir / DATABASE)) as db:
        db.execute(statement)
        db.commit()


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no ledger here"):
        read_ledger(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / DATABASE).write_bytes(b"hello" * 500)
    with pytest.raises(StoreError, match="cannot read the ledger: file is not a database"):
        read_ledger(tmp_path)


COSTS = st.dictionaries(
    st.sampled_from(["lemma5", "corrected", "zcdp", "gdp"]),
    st.none() | st.floats(min_value=0, allow_nan=False, allow_infinity=True),
)


@given(COSTS)
def test_cost_text_is_canonical_json(cost: dict[str, float | None]) -> None:
    plain = {name: "inf" if value == math.inf else value for name, value in cost.items()}
    assert cost_text(cost) == json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
