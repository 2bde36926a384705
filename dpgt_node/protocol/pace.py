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
    """``agent`` works longest, and longest in ``phase``: ``seconds`` a round, ``share`` (0 to 1) of its whole round."""

    agent: str
    phase: str
    seconds: float
    share: float

    def line(self) -> str:
        """One line for the operator."""
        return f"slowest: {self.agent}, {self.phase} ({span(self.seconds)} a round, {self.share:.0%} of it)"


def span(seconds: float) -> str:
    """``1.7 s`` · ``450 ms`` · ``4.2 ms``; 0 below a microsecond, which nobody measured."""
    if seconds >= 0.9995:
        return f"{seconds:.1f} s"
    ms = round(1e3 * seconds, 3)
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.2g} ms"


def speed(rounds_per_second: float) -> str:
    """``85.3`` · ``1,234``: three digits, or all of a large one."""
    return f"{rounds_per_second:,.0f}" if rounds_per_second >= 999.5 else f"{rounds_per_second:.3g}"


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
    """The agent whose own work takes longest, and the longest phase of that work; None while nobody told of any.

    Waiting for others is no work: whoever is held up by one that is gone is not slow.

    ``rounds``: by agent, how many rounds took how many microseconds by phase.
    """
    work = {name: sum(spent[i] for i in OWN) / n for name, (n, spent) in rounds.items() if n > 0}
    agent = max(work, key=lambda name: work[name], default="")
    if not work.get(agent):
        return None
    n, spent = rounds[agent]
    phase = max(OWN, key=lambda i: spent[i])
    return Slowest(agent, PHASES[phase], spent[phase] / n / 1e6, spent[phase] / sum(spent))
