"""Threads that share the rows or columns of a matrix.  What they compute does not depend on how many there are.

They keep matrices that nobody holds any more and hand them out again: the kernel clears the pages of a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from sys import getrefcount

import numpy as np

from dpgt_node.types import F64

Work = Callable[[slice, int], None]
"""Of one part, by one thread: 0, 1, ..."""
_KEPT_BYTES = 1 << 25
"""Of a matrix that is worth keeping: what is smaller the C library keeps itself."""
_PART_NUMBERS = 1 << 15
"""Of rows that are worked on at once: two such parts stay in a second-level cache."""


class Team:
    """``threads`` of them, at least 1; the first is the caller's own."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._others = ThreadPoolExecutor(threads - 1, "dpgt-rows") if threads > 1 else None
        self._matrices: list[F64] = []

    def empty(self, shape: tuple[int, ...]) -> F64:
        """``np.empty(shape)``, float64; large ones are kept for the next who asks.  For the caller's thread alone."""
        for one, held in zip(self._matrices, _references(self._matrices), strict=True):
            if one.shape == shape and held == _UNHELD:
                return one
        made = np.empty(shape)
        if made.nbytes >= _KEPT_BYTES:
            self._matrices.append(made)
        return made

    def forget(self) -> None:
        """Keep no matrices any more."""
        self._matrices.clear()

    def by_parts(self, matrix: F64, work: Callable[[slice], None]) -> None:
        """``work`` on every part of the rows of ``matrix`` (n, d), a few at a time; see :meth:`over`."""
        n, d = matrix.shape
        few = max(1, _PART_NUMBERS // max(d, 1))

        def some(rows: slice, _: int) -> None:
            for start in range(rows.start, rows.stop, few):
                work(slice(start, min(start + few, rows.stop)))

        self.over(n, some)

    def over(self, count: int, work: Work) -> None:
        """``work`` on every part of range(count), consecutive parts of about the same length, and wait for all.

        Warnings about numbers are off.  Raises what a part raised, the first part first.
        """
        parts = min(self.threads, count)
        ends = [count * part // max(parts, 1) for part in range(parts + 1)]
        slices = [slice(*ends[part : part + 2]) for part in range(parts)]
        others = (
            []
            if self._others is None
            else [self._others.submit(_quietly, work, at, index) for index, at in enumerate(slices) if index]
        )
        try:
            for at in slices[:1]:
                _quietly(work, at, 0)
        finally:
            failed = [one.exception() for one in others]
        for error in failed:
            if error is not None:
                raise error


def _quietly(work: Work, at: slice, index: int) -> None:
    with np.errstate(all="ignore"):  # which another thread does not inherit
        work(at, index)


def _references(matrices: list[F64]) -> list[int]:
    """Of every matrix, how many there are to it; its views count as well."""
    return [getrefcount(one) for one in matrices]


_UNHELD = _references([np.empty(0)])[0]
"""Where only the list holds it.  How the interpreter counts its own references depends on its version."""
