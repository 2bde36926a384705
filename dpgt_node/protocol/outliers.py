"""In-neighbours whose vectors lie far beyond the others', round after round: an agent's alarm, and what is said of it.

Everything here is a function of released values: what the agent received, and what it released itself.  So whoever sees
all messages can compute it, and no epsilon is touched.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dpgt_node import figures
from dpgt_node.types import Stream
from dpgt_node.values import dataclass

FACTOR = 3.0
"""How many times as far as the others, as the radius, and as noise alone reaches."""
ROUNDS = 5
"""In so many rounds in a row."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """``stream`` of agent ``sender`` was an outlier in ``rounds`` rounds so far, ``k`` the last of them.

    ``ratio``: of its distance in that round to the largest that counts as usual, above FACTOR.
    """

    sender: str
    stream: Stream
    k: int
    rounds: int
    ratio: float

    def line(self, receiver: str) -> str:
        """What agent ``receiver`` says with it."""
        return (
            f"outlier: {self.stream} of {self.sender} lay {figures.number(self.ratio)} times as far as is usual at "
            f"{receiver} in round {self.k}, and far beyond the others in {self.rounds} rounds so far: it attacks, or "
            "its data or its settings are of another kind"
        )


class OutlierWatch:
    """One agent's, of all its streams.  ``names``: of all agents."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._row: dict[tuple[Stream, int], int] = {}
        self._rounds: dict[tuple[Stream, int], int] = {}
        self._said: dict[tuple[Stream, int], int] = {}

    def note(
        self, stream: Stream, k: int, far: Mapping[int, float], radius: float, noise: Mapping[int, float]
    ) -> tuple[Outlier, ...]:
        """Who is to be named after round ``k``: first after ROUNDS in a row, then when the number of rounds doubles.

        ``far``: distance of every in-neighbour, L2, by index.  ``radius``: beyond which it is clipped, inf without one.
        ``noise``: the root mean square distance that noise alone makes, by in-neighbour.  With one in-neighbour and no
        radius nobody can be told from others.
        """
        found, radii = [], [radius] if math.isfinite(radius) else []
        for j, length in far.items():
            others = [other for i, other in far.items() if i != j]
            known = [*radii, _median(others)] if others else radii
            if not known:
                continue
            usual = max(noise[j], *known)
            ratio = length / usual if usual > 0.0 else math.inf if length > 0.0 else 0.0
            key = (stream, j)
            row = self._row[key] = self._row.get(key, 0) + 1 if ratio > FACTOR else 0
            if row < ROUNDS:
                continue
            rounds = self._rounds[key] = self._rounds.get(key, 0) + (ROUNDS if row == ROUNDS else 1)
            if rounds >= 2 * self._said.get(key, 0):
                self._said[key] = rounds
                found.append(Outlier(self._names[j], stream, k, rounds, min(ratio, 1e300)))
        return tuple(found)


def _median(values: Sequence[float]) -> float:
    """Of one or more.  ``statistics`` would bring random numbers into every daemon."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2
