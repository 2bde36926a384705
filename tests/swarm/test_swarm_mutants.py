"""Every broken daemon is caught, by a checker that is there for it.  ``make swarm`` says how many seeds each takes."""

from __future__ import annotations

import pytest

from tests.swarm.mutants import MUTANTS
from tests.swarm.trial import seeds_until_caught

LIMIT = 100


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught_for_what_it_does(name: str) -> None:
    mutant = MUTANTS[name]
    count, checker = seeds_until_caught(mutant.parts, range(mutant.seed, 10**9), LIMIT, mutant.plan)
    assert checker in mutant.checkers, f"{count} seeds, {checker}"
