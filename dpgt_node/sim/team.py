"""Threads that share the rows or columns of a matrix.  What they compute does not depend on how many there are."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

Work = Callable[[slice, int], None]
"""Of one part, by one thread: 0, 1, ..."""


class Team:
    """``threads`` of them, at least 1; the first is the caller's own."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._others = ThreadPoolExecutor(threads - 1, "dpgt-rows") if threads > 1 else None

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
