"""Every broken daemon is caught, by a checker that is there for it.  ``make swarm`` says how many seeds each takes."""

from __future__ import annotations

import pytest

from tests.swarm.mutants import MUTANTS
from tests.swarm.trial import seeds_until_caught

LIMIT = 100


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught_for_what_it_does(name: str) -> None:
    count, checker = seeds_until_caught(MUTANTS[name].parts, range(MUTANTS[name].seed, 10**9), LIMIT)
    assert checker in MUTANTS[name].checkers, f"{count} seeds, {checker}"
