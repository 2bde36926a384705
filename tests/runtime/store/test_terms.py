"""A run goes on under the terms that it was begun under, on the same data, and what it cost never falls."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpgt_node import cli
from dpgt_node.protocol.types import RoundRecord
from dpgt_node.runtime.store import ledger as ledger_module
from dpgt_node.runtime.store import store as store_module
from dpgt_node.runtime.store.ledger import DATABASE, TEST, LedgerBroken, Terms, cost_text, last_charges, read_ledger
from dpgt_node.runtime.store.store import Store
from dpgt_node.runtime.store.terms import OtherTerms
from tests.runtime.store.old_databases import read_text
from tests.runtime.store.records import RUN, SHA, TERMS, record

OLD = Path(__file__).parent / "old"
OWN = Terms("ward 7", 1e-5, "replace-one, C = 2", 1000)
DATA, OTHER_DATA = b"d" * 32, b"e" * 32


def begin(store: Store, terms: Terms = OWN, data: bytes = DATA) -> None:
    store.begin_run(RUN, SHA, "agent-1", terms, shard_sha256=data)


def priced(k: int, **cost: float | None) -> RoundRecord:
    made = record(k, 3)
    return replace(made, rows=tuple(replace(row, cost=dict(cost)) for row in made.rows))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A run of two rounds, which cost 1 and 2."""
    with contextlib.closing(Store(tmp_path, "process")) as store:
        begin(store)
        for k in range(2):
            store.commit_round(RUN, priced(k, tight=k + 1.0))
        yield store


def costs(store: Store) -> dict[str, float | None]:
    (charge,) = store.charges()
    return dict(charge.cost)


# --- resume ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "data", "words"),
    [
        (replace(OWN, samples=1200), OTHER_DATA, "the data had 1000 samples and have 1200 samples"),
        (OWN, OTHER_DATA, "the data have 1000 samples as before, but not the same ones in the same order"),
        (OWN, b"", "not the same ones"),
        (replace(OWN, delta=1e-3), DATA, "delta was 1e-05 and is 0.001"),
        (replace(OWN, delta=1e-7), DATA, "delta was 1e-05 and is 1e-07"),
        (replace(OWN, adjacency="replace-one, C = 1"), DATA, 'adjacency was "replace-one, C = 2" and is "replace-one'),
        (replace(OWN, keystream=TEST), DATA, "the noise was of the system keystream and is of the test one"),
    ],
)
def test_a_difference_is_refused_by_name(store: Store, terms: Terms, data: bytes, words: str) -> None:
    begin(store)
    with pytest.raises(OtherTerms, match="stays spent") as caught:
        begin(store, terms, data)
    assert words in str(caught.value) and 'of data set "ward 7"' in str(caught.value)
    for digest in (DATA, OTHER_DATA):
        assert digest.hex() not in str(caught.value)
    store.commit_round(RUN, priced(2, tight=3.0))
    assert costs(store) == {"tight": 3.0}


def test_all_differences_come_together(store: Store) -> None:
    with pytest.raises(OtherTerms, match=r"delta was .*; adjacency was .*; the data had .*; the noise was"):
        begin(store, Terms("ward 7", 0.5, "none", 7, TEST), OTHER_DATA)


def test_a_run_that_released_nothing_is_begun_anew(tmp_path: Path) -> None:
    """A table that was mended before the run took place."""
    with contextlib.closing(Store(tmp_path, "process")) as store:
        begin(store)
        begin(store, replace(OWN, samples=900, delta=1e-6), OTHER_DATA)
        store.commit_round(RUN, priced(0, tight=1.0))
        with pytest.raises(OtherTerms):
            begin(store)
        begin(store, replace(OWN, samples=900, delta=1e-6), OTHER_DATA)
        assert store.ledger().terms[RUN].samples == 900


def test_a_finished_run_may_still_serve_its_neighbours(store: Store) -> None:
    store.finish_run(RUN, record(0, 3).checkpoint.vectors["px"])  # type: ignore[union-attr]
    begin(store, replace(OWN, samples=1200), OTHER_DATA)


def test_what_was_sealed_survives_a_restart(store: Store, tmp_path: Path) -> None:
    store.close()
    with contextlib.closing(Store(tmp_path, "process")) as again:
        begin(again)
        with pytest.raises(OtherTerms):
            begin(again, OWN, OTHER_DATA)


def test_the_chain_tells_nobody_the_data(tmp_path: Path) -> None:
    """Heads travel: whoever guesses the data, and knows all the rest of a row, must not see that the guess is right."""
    heads = set()
    for folder in ("a", "b"):
        with contextlib.closing(Store(tmp_path / folder, "process")) as store:
            begin(store)
            store.commit_round(RUN, priced(0, tight=1.0))
            heads.add(store.head)
            assert DATA.hex() not in repr(store.ledger()) and store.ledger().terms[RUN].seal not in repr(store.ledger())
    assert len(heads) == 2


@pytest.mark.parametrize(
    "change", ["samples = 7", "samples = NULL", "keystream = 'test'", "data_seal = 'ab'", "since = 3", "since = NULL"]
)
def test_the_terms_are_in_the_chain(store: Store, tmp_path: Path, change: str) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as db, db:
        db.execute(f"UPDATE runs SET {change}")
    with pytest.raises(LedgerBroken, match="ledger row 1 "):
        read_ledger(tmp_path)


# --- what it cost ----------------------------------------------------------------------------------------------------


def test_a_cumulative_cost_never_falls(store: Store) -> None:
    store.commit_round(RUN, priced(2, tight=0.5))
    assert costs(store) == {"tight": 2.0}
    store.commit_round(RUN, priced(3, tight=None))
    store.commit_round(RUN, priced(4, tight=9.0))
    assert costs(store) == {"tight": None}, "what was released without a value is not undone"


def test_no_cost_falls_within_a_round_either() -> None:
    rows = (priced(2, tight=3.0, gdp=4.0).rows[0], priced(2, tight=2.0, gdp=5.0).rows[1])
    charged = ledger_module.as_charged(rows, {"tight": 1.0, "gdp": 4.5}, hides=True)
    assert [row.cost for row in charged] == [{"tight": 3.0, "gdp": 4.5}, {"tight": 3.0, "gdp": 5.0}]


def test_an_accountant_that_a_row_lacks_has_no_value_from_then_on(store: Store) -> None:
    """It said nothing of that release: neither what it said before nor what it says later is what the run cost."""
    one, two = priced(3, tight=3.0, gdp=6.0).rows
    charged = ledger_module.as_charged((replace(one, cost={"tight": 3.0}), two), {}, hides=True)
    assert [row.cost for row in charged] == [{"tight": 3.0}, {"tight": 3.0, "gdp": None}]
    store.commit_round(RUN, priced(2, tight=3.0, gdp=5.0))
    assert costs(store) == {"tight": 3.0, "gdp": None}, "it said nothing of the rounds before"
    store.commit_round(RUN, priced(3, gdp=6.0))
    assert costs(store) == {"tight": None, "gdp": None}
    store.commit_round(RUN, priced(4, tight=9.0, gdp=7.0))
    assert costs(store) == {"tight": None, "gdp": None}


def test_accountants_that_joined_or_left_under_earlier_programs_are_read(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wrote what each row said: a run that went on under a program with more accountants is no fraud."""
    monkeypatch.setattr(store_module, "as_charged", lambda rows, *_, **__: tuple(rows))
    store.commit_round(RUN, priced(2, tight=3.0, gdp=5.0))
    assert costs(store) == {"tight": 3.0, "gdp": 5.0}
    store.commit_round(RUN, priced(3, tight=4.0))
    monkeypatch.undo()
    assert costs(store) == {"tight": 4.0, "gdp": None}
    assert len(read_ledger(tmp_path).entries) == 8
    store.commit_round(RUN, priced(4, tight=5.0, gdp=9.0))
    assert costs(store) == {"tight": 5.0, "gdp": None}


def test_a_ledger_in_which_a_cost_falls_is_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written by a program without the rule, its chain whole."""
    monkeypatch.setattr(store_module, "as_charged", lambda rows, *_, **__: tuple(rows))
    store.commit_round(RUN, priced(2, tight=0.5))
    monkeypatch.undo()
    for read in (store.ledger, store.charges, lambda: read_ledger(tmp_path)):
        with pytest.raises(LedgerBroken, match=r"ledger row 5 \(round 2, X\): its cost is below the one before"):
            read()


def test_a_test_keystream_gives_no_value_to_what_had_none() -> None:
    """Infinity would be a value.  What was released without one before stays without one."""
    rows = priced(2, tight=3.0, gdp=2.0, lemma5=None).rows
    for row in ledger_module.as_charged(rows, {"tight": None, "gdp": 1.0, "lemma5": 0.5}, hides=False):
        assert row.cost == {"tight": None, "gdp": math.inf, "lemma5": math.inf}


def test_a_test_keystream_hides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.closing(Store(tmp_path, "process")) as store:
        begin(store, replace(OWN, keystream=TEST))
        store.commit_round(RUN, priced(0, tight=2.75, lemma5=None))
        assert costs(store) == {"tight": math.inf, "lemma5": math.inf}
    assert cli.run(["ledger", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "NO GUARANTEE: its noise came from a test keystream" in said and "2.75" not in said
    assert cli.run(["ledger", str(tmp_path), "--format", "json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["data_sets"][0]["runs"]
    assert run["keystream"] == "test" and run["cost"]["tight"] == "inf" and "seal" not in run


# --- directories of version 4 ----------------------------------------------------------------------------------------


def test_a_run_of_version_4_gets_its_terms_when_it_goes_on(tmp_path: Path) -> None:
    """Its old rows verify as they were written, its new ones say the data, and from then on those are held."""
    read_text(OLD / "version-4.sql", tmp_path, 4)
    head = read_ledger(tmp_path).head
    with contextlib.closing(Store(tmp_path, "process")) as store:
        assert store.head == head == read_ledger(tmp_path).head and len(store.ledger().entries) == 12
        now = replace(TERMS, samples=1000)
        with pytest.raises(OtherTerms, match=r"delta was 1e-05 and is 0\.5"):
            begin(store, replace(now, delta=0.5))
        begin(store, now)
        store.commit_round(RUN, record(6, 3))
        entries, terms = store.ledger().entries, store.ledger().terms[RUN]
        assert terms.since == 12 and terms.samples == 1000
        for text, number in ((terms.text_before_5(RUN), 12), (terms.text(RUN), 13)):
            row, before = entries[number - 1].row, entries[number - 2].head
            assert ledger_module.next_head(before, text, row, cost_text(dict(row.cost))) == entries[number - 1].head
    with contextlib.closing(Store(tmp_path, "process")) as store:
        begin(store, now)
        with pytest.raises(OtherTerms, match="not the same ones"):
            begin(store, now, OTHER_DATA)
        store.commit_round(RUN, record(7, 3))
        assert len(store.ledger().entries) == 16


def test_where_version_4_let_a_cost_fall_the_most_counts(tmp_path: Path) -> None:
    """It went on with other data: 2, 4, then 0.5 and 1."""
    read_text(OLD / "version-4-other-data.sql", tmp_path, 4)
    ledger: Any = read_ledger(tmp_path)
    assert ledger.entries[-1].row.cost["tight"] == 1.0
    (charge,) = last_charges((entry, ledger.terms[entry.run_id]) for entry in ledger.entries)
    assert charge.cost == {"tight": 4.0, "amplified": 4.0, "zcdp": None}
    with contextlib.closing(Store(tmp_path, "process")) as store:
        assert costs(store) == charge.cost
        begin(store, replace(TERMS, samples=1000))
        store.commit_round(RUN, priced(4, tight=1.5, amplified=4.5, zcdp=None))
        assert costs(store) == {"tight": 4.0, "amplified": 4.5, "zcdp": None}
