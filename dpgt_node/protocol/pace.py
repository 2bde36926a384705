"""Where an agent's rounds take their time, and whose take longest.

    phase      from                                       to
    ---------------------------------------------------------------------------------------------
    compute    the neighbours' vectors of round k-1       mixed; the gradient at x_{i,k}
    barrier    that                                       the coordinator lets round k begin
    noise      that                                       the noise of round k is drawn
    store      that                                       round k is durable; also waits for an older state
    exchange   that                                       the in-neighbours' vectors of round k are here
    evaluate   metrics of x_{i,k}, where rounds wait for them

An agent waits in ``barrier`` and ``exchange``: for the others.  The rest is its own work.  Spans are of the agent's
monotonic clock, in microseconds, and say nothing of values: only how long they took.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from operator import add

from dpgt_node.values import dataclass

PHASES = ("compute", "barrier", "noise", "store", "exchange", "evaluate")
OWN = tuple(PHASES.index(name) for name in ("compute", "noise", "store", "evaluate"))
"""What an agent does itself; the other phases wait for somebody."""
MAX_US = (1 << 32) - 1
"""More than an hour in one phase of one round is said as this."""

Spent = tuple[int, ...]
"""Microseconds by phase, in the order of :data:`PHASES`; empty: not measured."""


@dataclass(frozen=True, slots=True)
class Slowest:
    """``phase`` takes ``seconds`` of a round at ``agent``, which works longest: ``share`` (0 to 1) of its round."""

    agent: str
    phase: str
    seconds: float
    share: float

    def line(self) -> str:
        """One line for the operator."""
        return f"slowest: {self.agent}, {self.phase} ({_span(self.seconds)} a round, {self.share:.0%} of it)"


def _span(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.2g} ms"


@dataclass(slots=True)
class Took:
    """What one agent's ``rounds`` took in all, and its last report's."""

    rounds: int = 0
    total_us: list[int] = field(default_factory=lambda: [0] * len(PHASES))
    last_us: Spent = ()
    last_rounds: int = 1

    def add(self, rounds: int, spent: Spent) -> None:
        """``rounds`` more took ``spent``; nothing where that is not known."""
        if not spent or rounds < 1:
            return
        self.rounds += rounds
        self.last_us, self.last_rounds = spent, rounds
        self.total_us[:] = map(add, self.total_us, spent)


class Pace:
    """What agents ``names`` said of their rounds, in this life of the coordinator."""

    def __init__(self, names: Sequence[str]) -> None:
        self.agents = {name: Took() for name in names}

    def done(self, name: str, rounds: int, spent: Spent) -> None:
        """``rounds`` more are done by agent ``name``; they took ``spent``."""
        self.agents[name].add(rounds, spent)


def slowest(rounds: Mapping[str, tuple[int, Sequence[int]]]) -> Slowest | None:
    """The phase that takes most of a round at the agent whose own work takes longest; None while nothing is known.

    ``rounds``: by agent, how many rounds took how many microseconds by phase.
    """
    known = {name: (n, spent) for name, (n, spent) in rounds.items() if n > 0 and sum(spent) > 0}
    if not known:
        return None
    agent = max(known, key=lambda name: sum(known[name][1][i] for i in OWN) / known[name][0])
    n, spent = known[agent]
    phase = max(range(len(PHASES)), key=lambda i: spent[i])
    return Slowest(agent, PHASES[phase], spent[phase] / n / 1e6, spent[phase] / sum(spent))
