"""Every broken daemon is caught, by a checker that is there for it.  ``make swarm`` says how many seeds each takes."""

from __future__ import annotations

import pytest

from dpgt_node.sim.swarm.trial import seeds_until_caught
from tests.sim.mutants import MUTANTS

LIMIT = 100
START = {
    "an old copy is trusted": 110,
    "draws before anybody was asked": 550,
    "a replaying neighbour proves nothing": 10_261,
}
"""Where the hunts of those that take many seeds begin, so that the default suite stays short."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught_for_what_it_does(name: str) -> None:
    count, checker = seeds_until_caught(MUTANTS[name].parts, range(START.get(name, 0), 10**9), LIMIT)
    assert checker in MUTANTS[name].checkers, f"{count} seeds, {checker}"
