from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.accounts.figures import figures, runs

RUNS = runs()
PINNED = json.loads(Path(__file__).with_name("figures.json").read_text())


@pytest.mark.parametrize("name", RUNS)
def test_costs_are_the_same_to_the_last_bit(name: str) -> None:
    assert figures(*RUNS[name]) == PINNED[name]


def test_every_pinned_run_is_computed() -> None:
    assert set(RUNS) == set(PINNED)
    spoken = {accountant for row in PINNED.values() for accountant in row["epsilon"]}
    assert spoken == {"lemma5", "corrected", "tight", "amplified", "zcdp", "gdp"}
