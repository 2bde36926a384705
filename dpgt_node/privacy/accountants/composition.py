"""What several runs on one data set cost together: every sound way to add them up, and the smallest.

Three kinds of amounts add over runs: epsilon (deltas add with it), rho of zCDP, and mu^2 of Gaussian DP.  Runs that add
up in rho or in mu^2 are COMPOSED: one sum, turned into (epsilon, delta) once, instead of a sum of converted epsilons.

    mu = sqrt(sum of mu_i^2)        rho = sum of rho_i        epsilon = that of mu, or of rho, at the total delta

Rows of a ledger hold epsilons, so the amounts are got back as upper bounds (``Accountant.amounts``).  Whatever its
kind, a run can join others where its own amount bounds theirs: mu-GDP is mu^2/2-zCDP, and pure epsilon is both.

The total delta is the sum of the runs' deltas as they were written, so the composed epsilon and the plain sum are at
one delta.  Where the owner states a largest delta, that is the total, whatever deltas the run files have.

What may depend on what was released.  Amounts that are fixed by a cap before the runs begin are a filter: the next run,
its size and its end may be chosen by looking at everything released so far, as long as the sum stays below the cap on
every path (Smith and Thakurta 2022 for mu^2; Feldman and Zrnic 2021 for rho; epsilons with their deltas by basic
composition).  That holds for ONE way to add up, the same on every path: where an owner names an accountant, it is.  The
smallest of several ways, and any total that is read off afterwards, is an odometer: it holds where the kinds, the
costs and the number of runs do not depend on what was released.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

from dpgt_node import figures
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, APPROXIMATE, CONDITIONAL, SOUND, called
from dpgt_node.privacy.laws.law import Guarantee
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run on the data set has cost: ``epsilon`` by accountant; ``delta`` of those that need one.

    ``run``: its name in messages.  ``declared``: its C was declared, not enforced.  ``some``: epsilon towards as many
    of the other agents as the owner's policy says, where noise was shared; None: ``epsilon``.
    """

    run: str
    epsilon: Mapping[str, float | None]
    delta: float
    declared: bool = False
    some: Mapping[str, float | None] | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """How one run is counted: ``amount`` of ``kind`` by the accountant ``by``.  ``kind`` None: its epsilon as it is.

    ``delta``: what it brings to the total delta.
    """

    kind: Guarantee | None
    amount: float
    delta: Fraction
    by: str


@dataclass(frozen=True, slots=True)
class Total:
    """What runs cost together; ``recipe`` says how that was added up.

    ``unbounded``: the first run that has no finite epsilon; epsilon is infinite then.  ``conditional``: no proof stands
    behind it, because an accountant that is conditional counted a run.
    """

    epsilon: float
    delta: Fraction
    recipe: str
    unbounded: str | None = None
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class Way:
    """One way to add up.  ``into``: (kind, guarantees of the accountants that may join it) in the order they are tried.

    ``others``: accountants of whom the smallest counts a run that joins none of them.
    """

    into: tuple[tuple[Guarantee, frozenset[Guarantee]], ...]
    others: tuple[str, ...]

    def part(self, epsilon: Mapping[str, float | None], delta: float, named: str | None = None) -> Part | None:
        """How a run is counted, None where no value allows it.  ``named``: the accountant that counts it if it can,
        in its own kind.
        """
        by = (named,) if named is not None and epsilon.get(named) is not None else SOUND
        known = {name: value for name in by if (value := epsilon.get(name)) is not None and value < math.inf}
        deltas = as_written(delta) if known.keys() & set(APPROXIMATE) else Fraction(0)
        for kind, joining in self.into:
            found = [
                (amounts[kind], name)
                for name, value in known.items()
                if ACCOUNTANTS[name].guarantee in (joining if by == SOUND else {kind})
                and (amounts := _amounts(name, value, delta)).get(kind, math.inf) < math.inf
            ]
            if found:
                amount, name = min(found, key=lambda pair: pair[0])
                return Part(kind, amount, deltas, name)
        left = [(value, name) for name, value in known.items() if name in self.others or by != SOUND]
        if not left:
            return None
        value, name = min(left, key=lambda pair: pair[0])
        return Part(None, value, deltas if name in APPROXIMATE else Fraction(0), name)


_COMPOSERS: Final = {
    one.guarantee: one for one in ACCOUNTANTS.values() if one.sound and not one.pure and one.guarantee != "approximate"
}


@lru_cache(maxsize=64)
def ways(others: tuple[str, ...]) -> tuple[Way, ...]:
    """The plain sum first, then every order of the kinds that compose.

    What joins a kind: its own runs, those of every kind that composes, or all.
    """
    found = [Way((), others)]
    every = frozenset(one.guarantee for one in ACCOUNTANTS.values())
    for count in range(1, len(_COMPOSERS) + 1):
        for kinds in itertools.permutations(_COMPOSERS, count):
            joining = [(frozenset((kind,)), frozenset(_COMPOSERS), every) for kind in kinds]
            for chosen in itertools.product(*joining):
                found.append(Way(tuple(zip(kinds, chosen, strict=True)), others))
    return tuple(found)


@lru_cache(maxsize=4096)
def _amounts(name: str, epsilon: float, delta: float) -> Mapping[Guarantee, float]:
    return ACCOUNTANTS[name].amounts(epsilon, delta)


def total(parts: Sequence[Part], delta_max: Fraction | None = None) -> Total | None:
    """The parts together, epsilon rounded up; None where no delta is left for those that are composed.

    ``delta_max``: the total delta, if any run is composed.
    """
    plain = [part for part in parts if part.kind is None]
    composed = [(kind, [part for part in parts if part.kind == kind]) for kind in _COMPOSERS]
    composed = [(kind, members) for kind, members in composed if members]
    delta = sum((part.delta for part in plain), Fraction(0))
    epsilons, words = [part.amount for part in plain], []
    left = None if delta_max is None else (delta_max - delta) / max(len(composed), 1)
    for kind, members in composed:
        share = sum((part.delta for part in members), Fraction(0)) if left is None else left
        if not 0 < share < 1:
            return None
        delta += share
        one = _COMPOSERS[kind]
        measured = one.measured(add_up(part.amount for part in members))
        epsilons.append(one.epsilon_of(measured, _below(share)) if measured < math.inf else math.inf)
        words.append(f"{_names(members)} composed: {kind} {figures.number(measured, 4)}")
    if plain:
        words.append(_names(plain) if len(plain) == 1 else f"sum of {_names(plain)}")
    conditional = any(part.by in CONDITIONAL for part in parts)
    return Total(add_up(epsilons), delta, "; plus ".join(words), conditional=conditional)


def tally(
    spent: Sequence[Spent], kinds: tuple[str, ...], named: str | None = None, delta_max: Fraction | None = None
) -> Total:
    """The smallest total of ``spent``: a run counts by ``named`` where that has a value for it, else by any sound one.

    ``kinds``: whose epsilons are summed; without a delta among them nothing is composed.  ``delta_max``: as in
    :func:`total`; what exceeds it is taken only where everything does.
    """
    compose = any(name in APPROXIMATE for name in (*kinds, named))
    found, unbounded = [], None
    for way in ways(kinds) if compose else ways(kinds)[:1]:
        parts = [way.part(run.epsilon, run.delta, named) for run in spent]
        missing = next((run.run for run, part in zip(spent, parts, strict=True) if part is None), None)
        unbounded = unbounded or missing
        made = None if missing is not None else total([part for part in parts if part is not None], delta_max)
        found += [] if made is None else [made]
    if not found:
        return Total(math.inf, Fraction(0), "", unbounded)
    return min(found, key=lambda made: (delta_max is not None and made.delta > delta_max, made.epsilon, made.delta))


def add_up(costs: Iterable[float]) -> float:
    """The sum, rounded up: never below the sum of the numbers as they are."""
    values = list(costs)
    try:
        found = math.fsum(values)
    except OverflowError:
        return math.inf
    # fsum is within half a unit; a sum that is exact, as one of a single run is, stays what it is.
    exact = math.isfinite(found) and sum(map(Fraction, values)) <= Fraction(found)
    return found if exact else math.nextafter(found, math.inf)


def as_written(delta: float) -> Fraction:
    """The number as it was written: three runs of 1e-5 are 3e-5."""
    return Fraction(repr(delta))


def _below(delta: Fraction) -> float:
    """The float at or below ``delta``: a smaller delta has the larger epsilon."""
    found = float(delta)
    return found if Fraction(found) <= delta else math.nextafter(found, 0.0)


def _names(parts: Sequence[Part]) -> str:
    counts = {name: sum(part.by == name for part in parts) for name in ACCOUNTANTS}
    return ", ".join(called(name) + (f" x{n}" if n > 1 else "") for name, n in counts.items() if n)
