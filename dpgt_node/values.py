"""``value``: what the many small values that are made in every round are declared with.

The constructor of a frozen dataclass sets each field by a call of ``object.__setattr__``, which takes four times as
long as setting it.  A ``@value(frozen=True, slots=True)`` is such a dataclass to the type checker, which sees to it
that nobody changes one; at run time nothing is in the way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

__all__ = ["value"]
T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:

    def value(*, frozen: bool, slots: bool) -> Callable[[type[T]], type[T]]:
        return dataclasses.dataclass(slots=slots, unsafe_hash=frozen)
