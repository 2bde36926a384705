"""Phases of machines."""

from __future__ import annotations

from enum import Enum


class Phases(Enum):
    """Where a machine stands.  Members are hashed as the objects that they are: every event asks for them in sets, and
    ``Enum`` would hash their names, in Python.
    """

    __hash__ = object.__hash__
