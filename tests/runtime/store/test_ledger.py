"""The ledger is a chain: every change of a row is found, and reading it disturbs nobody."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgt_node.errors import StoreError
from dpgt_node.runtime.store.ledger import (
    DATABASE,
    NO_HEAD,
    Charge,
    Ledger,
    LedgerBroken,
    LedgerEntry,
    Terms,
    cost_text,
    last_charges,
    read_ledger,
)
from dpgt_node.runtime.store.store import Store
from tests.runtime.store.records import RUN, SHA, TERMS, opened, record

OTHER = Terms("ward 7", 1e-6, "replace-one, C = 2")


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
        terms = ledger.terms[e.run_id]
        words = [
            e.run_id.hex(),
            terms.data_id,
            repr(terms.delta),
            terms.adjacency,
            terms.samples,
            terms.keystream,
            terms.seal,
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
        again.begin_run(other, SHA, "agent-1", OTHER)
        again.commit_round(other, record(0))
        again.commit_round(RUN, record(3))
        ledger = again.ledger()
        assert ledger.head == oracle_head(ledger)
        assert len(ledger.entries) == 10
        assert again.ledger(other).head == ledger.head
        assert [e.run_id for e in again.ledger(other).entries] == [other, other]
        again.prune(RUN, 3)
        assert again.ledger() == ledger
        assert again.charges() == (
            Charge(RUN, TERMS, "paper", "laplace", 3, record(3).rows[1].cost),
            Charge(other, OTHER, "paper", "laplace", 0, record(0).rows[1].cost),
        )
    assert last_charges((e, ledger.terms[e.run_id]) for e in ledger.entries) == again_charges(tmp_path)


def again_charges(state_dir: Path) -> tuple[Charge, ...]:
    with contextlib.closing(Store(state_dir, "process")) as store:
        return store.charges()


def test_a_run_whose_cost_fell_has_cost_the_most_that_it_ever_did() -> None:
    """Rows of before version 5 may say less than rows before them: a run could go on with more data."""
    other = bytes(16)
    said = [(RUN, 0, 2.0, None), (other, 0, 0.5, 0.5), (RUN, 1, 1.5, 9.0), (RUN, 2, 1.75, 9.0)]
    entries = [
        LedgerEntry(run, replace(record(k).rows[1], cost={"tight": tight, "gdp": gdp}), bytes(32))
        for run, k, tight, gdp in said
    ]
    first, second = last_charges((entry, TERMS) for entry in entries)
    assert (first.run_id, first.k, first.cost) == (RUN, 2, {"tight": 2.0, "gdp": None})
    assert (second.run_id, second.k, second.cost) == (other, 0, {"tight": 0.5, "gdp": 0.5})


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
    store.begin_run(bytes(16), SHA, "agent-1", TERMS)
    tamper(tmp_path, f"UPDATE ledger SET {change} WHERE id = 4")
    for read in (store.ledger, store.charges, lambda: read_ledger(tmp_path)):
        with pytest.raises(LedgerBroken, match="ledger row 4 ") as caught:
            read()
        assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE runs SET data_id = 'another'",
        "UPDATE runs SET delta = 1e-9",
        "UPDATE runs SET adjacency = 'add or remove'",
        "UPDATE runs SET run_id = zeroblob(16)",
        "DELETE FROM runs",
    ],
)
def test_what_a_charge_means_cannot_be_changed_afterwards(store: Store, tmp_path: Path, change: str) -> None:
    tamper(tmp_path, change)
    for read in (store.ledger, store.charges, lambda: read_ledger(tmp_path)):
        with pytest.raises(LedgerBroken, match="ledger row 1 "):
            read()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("DELETE FROM ledger WHERE k = 2", r"a released round has no ledger row \(round 2\)"),
        ("DELETE FROM ledger", r"a released round has no ledger row \(round 0\)"),
        ("UPDATE rounds SET y_sha256 = x_sha256 WHERE id % 65536 = 1", r"not of the stored release \(round 1, Y\)"),
        ("DELETE FROM rounds WHERE id % 65536 = 2", r"not of the stored release \(round 2, X\)"),
    ],
)
def test_a_release_without_its_charge_is_found(store: Store, tmp_path: Path, change: str, words: str) -> None:
    """Cutting the end off leaves an intact chain."""
    tamper(tmp_path, change)
    for read in (store.ledger, store.charges, lambda: read_ledger(tmp_path)):
        with pytest.raises(LedgerBroken, match=words):
            read()


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
