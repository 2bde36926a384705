"""Releases apart from rounds: which rounds release a gradient, and what each release has of its own.

A round that releases nothing sends what follows from earlier releases, so it costs nothing; that holds only where each
gradient is perturbed once.  Elsewhere every round's y carries private state and needs noise of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from dpgt_node.config.declare.kinds import Integer, Number, Schema, quantity
from dpgt_node.config.declare.reader import Section
from dpgt_node.config.vocabulary import MAX_ITERATIONS, MAX_RELEASES
from dpgt_node.privacy.mechanisms import MECHANISMS

if TYPE_CHECKING:
    from dpgt_node.config.model import Algorithm, Scheme


@dataclass(frozen=True, slots=True)
class PerRelease:
    """A number > 0 for each release in order; the last one holds for all further ones."""

    @property
    def placeholder(self) -> tuple[float, ...]:
        return (1.0,)

    def read(self, section: Section, key: str, value: object) -> tuple[float, ...]:
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_RELEASES:
            section.problem(key, f"must be a list of 1 to {quantity(MAX_RELEASES)} numbers, one a release")
            return self.placeholder
        return tuple(Number(above=0.0).read(section, f"{key}[{i}]", entry) for i, entry in enumerate(value))

    def schema(self) -> Schema:
        number = Number(above=0.0).schema()
        return {"type": "array", "items": number, "minItems": 1, "maxItems": MAX_RELEASES}

    def words(self) -> str:
        return "list of numbers > 0"


@dataclass(frozen=True, slots=True)
class Rounds:
    """Rounds in ascending order, the first one 0.  Whether there are so many is not known here."""

    @property
    def placeholder(self) -> tuple[int, ...]:
        return (0,)

    def read(self, section: Section, key: str, value: object) -> tuple[int, ...]:
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_RELEASES:
            section.problem(key, f"must be a list of 1 to {quantity(MAX_RELEASES)} rounds")
            return self.placeholder
        rounds = tuple(Integer(0, MAX_ITERATIONS).read(section, f"{key}[{i}]", k) for i, k in enumerate(value))
        if not section.ok(key):
            return self.placeholder
        if rounds[0] != 0:
            section.problem(key, f"must begin with round 0, not {rounds[0]}: before a release nothing moves x")
        for before, k in pairwise(rounds):
            if k <= before:
                section.problem(key, f"must ascend: {k} comes after {before}")
                break
        return rounds

    def schema(self) -> Schema:
        rounds = Integer(0, MAX_ITERATIONS).schema()
        return {"type": "array", "items": rounds, "minItems": 1, "maxItems": MAX_RELEASES, "uniqueItems": True}

    def words(self) -> str:
        return "list of rounds, ascending from 0"


def check_releases(section: Section, scheme: Scheme, algorithm: Algorithm) -> None:
    """Report what of [scheme] does not fit the mechanism or the number of rounds."""
    apart = {
        "release_every": (scheme.release_every or 1) > 1,
        "releases": scheme.releases is not None,
        "settle": scheme.settle,
    }
    if not MECHANISMS[algorithm.mechanism].accounted.once:
        for key in (key for key, given in apart.items() if given):
            section.problem(
                key,
                f'mechanism "{algorithm.mechanism}" sends private state in every round, so every round needs noise and '
                "is charged; noise-once has rounds that release nothing",
            )
        return
    K = algorithm.iterations
    if scheme.settle > K:
        section.problem("settle", f"leaves no round that moves x: there are {K + 1} rounds, so at most {K} may settle")
        return
    last = K - scheme.settle
    for k in (k for k in scheme.releases or () if k > last):
        where = f"rounds {last + 1}..{K} settle" if k <= K else f"the last round is {K}"
        section.problem("releases", f"holds round {k}, but {where}")
        break
