"""How many rounds the barrier lets through at once.

A block has so many rounds as take ``BLOCK_NS`` at the pace of the one before, at most twice as many as that could have
had.  The first has one.  None goes beyond a multiple of W = ``barrier_every``: so whoever released round r was let
through when all others were done with the rounds below the last multiple of W up to r, whatever the pace was.
"""

from __future__ import annotations

from dpgt_node.protocol.clock import SECOND

BLOCK_NS = SECOND
"""About so long a pause may have to wait for the end of a block."""


class Blocks:
    """Blocks of at most ``every`` rounds, W above."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._longest = self._rounds = 0
        self._opened_ns = 0

    def end(self, k: int) -> int:
        """The last round that the block of round ``k`` can have."""
        return (k // self._every + 1) * self._every - 1

    def before(self, k: int) -> int:
        """The round that everybody has finished when somebody may release round ``k``; -1: none."""
        return k // self._every * self._every - 1

    def open(self, first: int, now_ns: int) -> int:
        """The last round of the block that begins with round ``first``, now: all rounds before it are done."""
        longest, took_ns = min(2 * self._longest, self._every), now_ns - self._opened_ns
        if took_ns > 0:
            longest = min(longest, BLOCK_NS * self._rounds // took_ns)
        self._longest, self._opened_ns = max(longest, 1), now_ns
        through = min(self.end(first), first + self._longest - 1)
        self._rounds = through - first + 1
        return through
