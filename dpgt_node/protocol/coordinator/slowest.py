"""How far the slowest of many is, without looking at the others each time that one of them moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class Slowest:
    """The rounds that ``names`` have reached, -1 at first.  Nobody goes back."""

    def __init__(self, names: Iterable[str]) -> None:
        self._at = dict.fromkeys(names, -1)
        self._here = Counter(self._at.values())
        self.least = -1
        """The round that everybody has reached."""

    def of(self, name: str) -> int:
        return self._at[name]

    def reached(self, name: str, k: int) -> None:
        """``name`` is in round ``k``; an earlier one than the last changes nothing.

        Takes the same time for any number of names, but for the last to leave a round: it finds the next one among
        those where somebody is, and the barrier keeps them few.
        """
        before = self._at[name]
        if k <= before:
            return
        self._at[name] = k
        self._here[k] += 1
        self._here[before] -= 1
        if not self._here[before]:
            del self._here[before]
            if before == self.least:
                self.least = min(self._here)
