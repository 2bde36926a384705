"""A simulation that ends in its midst."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from dpgt_node.sim import saved


class Killed(BaseException):
    """By ``broken_off``."""


@contextlib.contextmanager
def broken_off(end: str) -> Iterator[Callable[[], bool]]:
    """Saved when it is looked at for the 8th time, then "stopped" or "killed"; yields what asks it to stop."""
    seen = 0

    def perhaps(saver: saved.Saver) -> None:
        nonlocal seen
        seen += 1
        if seen == 8:
            saver.now()
        if seen == 17 and end == "killed":
            raise Killed

    with pytest.MonkeyPatch.context() as patched, contextlib.suppress(Killed):
        patched.setattr(saved.Saver, "perhaps", perhaps)
        yield lambda: end == "stopped" and seen == 12
