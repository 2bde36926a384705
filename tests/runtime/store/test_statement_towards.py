"""A ledger says what fewer than all others learned, where its agent shared noise."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dpgt_node.protocol.types import LedgerRow
from dpgt_node.runtime.store import statement
from dpgt_node.runtime.store.ledger import TEST, Ledger, LedgerEntry, Terms

RUN = bytes([7]) * 16
TERMS = Terms("ward 7", 1e-5, "replace-one, C = 2 in L1", 1000, shares="2 4 4")


def ledger(terms: Terms, gdp: float | None = 1.0) -> Ledger:
    cost = {"lemma5": None, "corrected": None, "tight": None, "amplified": None, "zcdp": None, "gdp": gdp}
    row = LedgerRow(0, "Y", "noise-once", "gaussian", 0.1, 0.01, bytes(32), cost)
    return Ledger((LedgerEntry(RUN, row, bytes(32)),), bytes(32), {RUN: terms})


def test_text_and_json() -> None:
    text = statement.render(ledger(TERMS))
    assert (
        "Epsilon towards any t of the other agents and the coordinator together (gdp, delta 1e-05): t = 0: 0." in text
    )
    assert "all 4: 1" in text and "For t below 4 it rests on this" in text and "two honest agents at least" in text
    (run,) = statement.document(ledger(TERMS))["data_sets"][0]["runs"]
    assert run["towards"]["colluding"] == [0, 1, 2, 3, 4]
    (values,) = run["towards"]["epsilon"]
    assert run["epsilon_towards"] == {"t": [0, 1, 2, 3, 4], "epsilon": [[value] for value in values]}
    assert values == sorted(values) and values[0] < 0.6 and values[-1] == 1.0


def test_a_run_without_noise_names_no_accountant() -> None:
    """Beside one that has some, both are shown as they are; a quantiser hides without noise."""
    (entry,) = ledger(TERMS, math.inf).entries
    off = replace(entry, row=replace(entry.row, scale=0.0))
    text = statement.render(Ledger((off,), bytes(32), {RUN: replace(TERMS, delta=0.5)}))
    assert f"  run {RUN.hex()}: no noise, 1 releases in rounds 0..0" in text and "every epsilon is infinite" in text
    assert not any(word in text for word in ("noise-once", "gaussian", "delta 0.5", "WARNING", "Lemma 5", "totals"))
    other = replace(entry, run_id=bytes(16))
    both = statement.render(Ledger((off, other), bytes(32), {RUN: TERMS, bytes(16): TERMS}))
    assert ": no noise, " in both and ": noise-once, gaussian noise, " in both and "all its runs together" in both
    coins = replace(off, row=replace(off.row, mechanism="quantised-state"))
    assert "no noise" not in statement.render(Ledger((coins,), bytes(32), {RUN: TERMS}))


@pytest.mark.parametrize(
    "made",
    [ledger(replace(TERMS, shares="")), ledger(TERMS, None), ledger(replace(TERMS, keystream=TEST), math.inf)],
    ids=["not shared", "no value", "a test keystream"],
)
def test_nothing_is_said_where_nothing_is_known(made: Ledger) -> None:
    assert "towards any t" not in statement.render(made)
    (run,) = statement.document(made)["data_sets"][0]["runs"]
    assert run["towards"] is None
