"""A share of the random histories (``make histories`` runs 2,000), and each mutant in the first that finds it out."""

from __future__ import annotations

import pytest

from tests.runtime.store.histories import MUTANTS, caught, lives

FOUND = {
    "D is not compared": 0,
    "the data are not compared": 3,
    "delta is not compared": 4,
    "adjacency is not compared": 8,
    "the keystream is not compared": 3,
    "a cost may fall": 7,
    "a test keystream costs what it says": 32,
    "a policy takes a test keystream": 2,
    "a declared C counts": 1,
    "other runs are forgotten": 0,
    "only the largest run counts": 2,
    "rho of composed runs is halved": 6,
    "mu is got back a millionth too small": 2,
    "a composed run's delta is counted once": 2,
    "every kind has the whole delta": 58,
    "runs are converted at ten times the delta": 1,
    "the head is not compared": 2,
    "the lock is not held": 2,
}


def test_nothing_is_undercharged() -> None:
    counts, undercharged = lives(range(30))
    assert not undercharged, counts
    for what in (
        "refused: OtherTerms",
        "found by the coordinator",
        "found by --head",
        "second daemon refused",
        "totals that are composed",
        "kept a cap that the plain sum exceeds",
    ):
        assert counts[what], "the histories say nothing about it"


@pytest.mark.parametrize("mutant", MUTANTS)
def test_every_rule_is_needed(mutant: str) -> None:
    seed = FOUND[mutant]
    assert caught(mutant, range(seed, seed + 1)) == seed
