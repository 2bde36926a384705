"""Epsilon towards whom: what any t of the other agents together learn, where pairs of agents share noise.

A cost is that of the whole transcript towards everybody else.  Towards fewer, the squared shift is a part of it
(privacy.cancelling.exposure), so an epsilon follows from what a ledger, a summary or an account says.  No such number
is shown without its t and without what it rests on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dpgt_node.config.model import RunConfig
from dpgt_node.config.privacy.cancelling import masks
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, APPROXIMATE
from dpgt_node.privacy.accountants.rounding import up
from dpgt_node.privacy.cancelling.exposure import share
from dpgt_node.privacy.cancelling.lattice import LEAST_CHARGE
from dpgt_node.privacy.strength import strength
from dpgt_node.values import dataclass

ASSUMPTIONS: Final = (
    "two honest agents at least: the agent itself, and one that it shares noise with",
    "X25519, HKDF and AES hold, today and later: a quantum computer would undo the first",
    "whoever admits agents may be many of them: of the others, count as honest those that you trust",
)
"""What an epsilon towards fewer than all others rests on."""
ALL: Final = "towards all others together it rests on none of this"
_EVERY: Final = 12
"""Up to so many agents every t is shown."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """How an agent shares noise: ``r`` times its own scale with each of ``partners`` among ``others`` other agents."""

    r: int
    partners: int
    others: int

    @property
    def text(self) -> str:
        """As a ledger holds it: the three numbers."""
        return f"{self.r} {self.partners} {self.others}"

    @classmethod
    def of(cls, text: str) -> Sharing | None:
        """What ``text`` says; None where it is empty.  ValueError."""
        return cls(*map(int, text.split())) if text else None

    def some(self, costs: Mapping[str, float | None], delta: float, colluding: int) -> dict[str, float | None]:
        """``towards`` of every accountant that has a value."""
        return {
            name: None if cost is None else self.towards(name, cost, delta, colluding) for name, cost in costs.items()
        }

    def towards(self, accountant: str, cost: float, delta: float, colluding: int) -> float:
        """What of an epsilon ``cost`` is left towards any ``colluding`` others; never more, and all of it if pure.

        Upper bound; with what drawing on a grid costs, which is at most 2^-1000 wherever a run is not refused.
        """
        one, part = ACCOUNTANTS[accountant], share(self.partners, self.r, colluding)
        if one.pure or part == 1.0 or cost in (0.0, math.inf):
            return cost
        amount = up(one.amounts(cost, delta)[one.guarantee] * part, 2)
        return min(cost, one.epsilon_of(one.measured(amount), delta) + LEAST_CHARGE)


@dataclass(frozen=True, slots=True)
class Towards:
    """``epsilon[i][j]``: of agent i towards any ``colluding[j]`` of the others, by ``accountant`` at ``delta``.

    The last of ``colluding`` is n-1, everybody else: what the ledger charges.  ``words``: for each epsilon.
    """

    accountant: str
    delta: float
    colluding: tuple[int, ...]
    epsilon: tuple[tuple[float, ...], ...]
    words: tuple[tuple[str, ...], ...]

    @property
    def rows(self) -> tuple[tuple[tuple[float, str], ...], ...]:
        """Of each agent: every epsilon with its word."""
        return tuple(tuple(zip(*pair, strict=True)) for pair in zip(self.epsilon, self.words, strict=True))

    @property
    def title(self) -> str:
        """What the numbers are."""
        delta = f"{self.accountant}, delta {self.delta:g}"
        return f"Epsilon towards any t of the other agents and the coordinator together ({delta})"

    @property
    def heads(self) -> tuple[str, ...]:
        """Of its columns."""
        return (*(f"t = {t}" for t in self.colluding[:-1]), f"all {self.colluding[-1]}")

    @property
    def rests_on(self) -> str:
        """What leads a list of ASSUMPTIONS."""
        return f"For t below {self.colluding[-1]} it rests on this; {ALL}:"

    def to_json(self) -> dict[str, Any]:
        """{ accountant, delta, colluding: [t], epsilon: [[agent's, a number a t]], strength: as epsilon, a word a t,
        assumptions: [text] }.
        """
        return {
            "accountant": self.accountant,
            "delta": self.delta,
            "colluding": list(self.colluding),
            "epsilon": [list(row) for row in self.epsilon],
            "strength": [list(row) for row in self.words],
            "assumptions": [*ASSUMPTIONS, ALL],
        }

    def by_t(self) -> dict[str, Any]:
        """``epsilon_towards`` of the commands' JSON: { t: [..], epsilon: [[a number an agent] a t] }."""
        return {"t": list(self.colluding), "epsilon": [list(column) for column in zip(*self.epsilon, strict=True)]}


def shown(others: int) -> tuple[int, ...]:
    """The t of a table for so many ``others``, ascending: all of them where they are few, always the last."""
    n = others + 1
    if n <= _EVERY:
        return tuple(range(n))
    return tuple(sorted({0, 1, n // 4, n // 2, 3 * n // 4, n - 2, n - 1}))


def sharing(run: RunConfig) -> tuple[Sharing, ...] | None:
    """How every agent shares noise, in the order of the run file; None where nobody does."""
    graph = masks(run)
    if graph is None or run.noise.cancel is None:
        return None
    return tuple(Sharing(run.noise.cancel, len(graph.partners(i)), run.n - 1) for i in range(run.n))


def towards_whom(
    run: RunConfig, costs: Mapping[str, Mapping[str, float | None]], samples: Mapping[str, int | None]
) -> Towards | None:
    """``costs``: epsilon by accountant of agents of ``run``, by name; the last accountant with a finite value for each
    of them speaks.  ``samples``: D of each, as far as it is known.  None where no accountant speaks, or where nobody
    shares noise.
    """
    shared = sharing(run)
    if shared is None or not costs:
        return None
    by_name = dict(zip(run.graph.agents, shared, strict=True))
    for name in reversed(APPROXIMATE):
        known = [(by_name[agent], value) for agent, cost in costs.items() if (value := cost.get(name)) is not None]
        if len(known) == len(costs) and all(value < math.inf for _, value in known):
            D = [samples[agent] for agent in costs]
            return table(name, run.privacy.delta, known, D, enforced=run.privacy.enforced)
    return None


def table(
    accountant: str,
    delta: float,
    known: Sequence[tuple[Sharing, float]],
    samples: Sequence[int | None],
    *,
    enforced: bool,
) -> Towards:
    """Of agents of one run: how each shares noise, its cost and its D; ``enforced``: whether clips enforce C."""
    colluding = shown(known[0][0].others)
    rows = tuple(tuple(one.towards(accountant, cost, delta, t) for t in colluding) for one, cost in known)
    words = (
        tuple(strength(accountant, value, delta, samples=D, enforced=enforced) for value in row)
        for row, D in zip(rows, samples, strict=True)
    )
    return Towards(accountant, delta, colluding, rows, tuple(words))
