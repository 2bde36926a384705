"""Which states of an agent are durable, and how far it goes on while one is being written."""

from __future__ import annotations

from dpgt_node.errors import invariant

AHEAD_ROUNDS = 2
"""So many rounds are released at most while the state of an older one is being written: then the agent waits for it.

It bounds what is in memory (one state), what neighbours keep for a restart, and how far that goes back.
"""


class Keeping:
    """Of an agent that keeps the state of round k when ``every`` divides k.  ``newest``: kept already; -1: none.

    A state commits with the record of its round.  ``beside``: it is large, so it is written beside the rounds that
    follow, once that record is durable and sent; the first one never is, for there is no older one to go on from.
    """

    __slots__ = ("_ahead", "_beside", "_every", "_newest", "_writing")

    def __init__(self, every: int, *, beside: bool, newest: int) -> None:
        self._every, self._beside, self._newest = every, beside, newest
        self._ahead = min(AHEAD_ROUNDS, every - 1)  # the next state is not due before
        self._writing: int | None = None

    @property
    def newest(self) -> int:
        """A restart goes on from the state of this round; -1: there is none."""
        return self._newest

    def with_record(self, k: int) -> bool:
        """Whether the state of round ``k`` commits with its record."""
        return k % self._every == 0 and (not self._beside or self._newest < 0)

    def due(self, k: int) -> bool:
        """Round ``k`` is durable: whether its state is to be written now, which it is from here on.

        Also of a round that is gone through again, where the end of the process came before the state was durable.
        """
        if not self._beside or k % self._every or k <= self._newest:
            return False
        invariant(self._writing is None, "one state is written at a time")
        self._writing = k
        return True

    def kept(self, k: int) -> None:
        """The state of round ``k`` is durable."""
        self._newest, self._writing = k, None

    def lets(self, k: int) -> bool:
        """Whether round ``k`` may be released now."""
        return self._writing is None or k <= self._writing + self._ahead
