"""Labels as their owner wrote them, words or any integers, to the numbers 0..classes-1 that a model knows.

The names of the classes stay: by the run file, which all hosts read, or else by the labels of one file for all agents.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dpgt_node import figures
from dpgt_node.types import I64
from dpgt_node.values import dataclass

MAX_CLASSES = 1 << 16
_FEW = 100
"""So many different labels nobody takes for a number to predict."""
_NUMBER = re.compile(r"-?\d+")
Labels = npt.NDArray[np.integer[Any] | np.str_]


@dataclass(frozen=True, slots=True)
class Numbered:
    """``labels``: int64, one array a part.  ``names`` of the classes; empty where they are their numbers."""

    labels: tuple[I64, ...]
    classes: int
    names: tuple[str, ...] = ()


class LabelError(ValueError):
    """Labels that are no classes.  ``part``: which array has them; None: all together.  ``at``: the first, from 0."""

    def __init__(self, message: str, part: int | None = None, at: int | None = None) -> None:
        super().__init__(message)
        self.part = part
        self.at = at


def numbered(parts: Sequence[Labels], stated: int | tuple[str, ...] | None) -> Numbered:
    """The labels of all ``parts``, each integers or words (N,), as numbers of classes.

    ``stated``: how many classes there are, or their names in order; None: those that the labels show, in order of size
    or of the alphabet.  Raises :class:`LabelError`, which names no label.
    """
    if isinstance(stated, tuple):
        return Numbered(tuple(_named(labels, stated, i) for i, labels in enumerate(parts)), len(stated), stated)
    if stated is not None:
        return Numbered(tuple(_counted(labels, stated, i) for i, labels in enumerate(parts)), stated)
    return _seen(parts)


def _seen(parts: Sequence[Labels]) -> Numbered:
    held = [part for part in parts if part.size]
    words = any(part.dtype.kind == "U" for part in held)
    together = np.concatenate([_text(part) if words else part.astype(np.int64) for part in held or parts[:1]])
    seen, at = np.unique(together, return_inverse=True)
    if len(seen) > MAX_CLASSES or (len(seen) > _FEW and 2 * len(seen) > len(together)):
        raise LabelError(
            f"holds {len(seen):,} different labels in {len(together):,} rows: a number to predict is no class; make "
            "classes of it, or state [data] classes"
        )
    ends = np.cumsum([len(part) for part in parts])[:-1]
    labels = tuple(np.split(at.astype(np.int64), ends))
    plain = not words and bool(np.array_equal(seen, np.arange(len(seen))))
    return Numbered(labels, len(seen), () if plain else tuple(map(str, seen.tolist())))


def _counted(labels: Labels, classes: int, part: int) -> I64:
    if labels.dtype.kind == "U":
        message = 'are words: name the classes in the order of their numbers, [data] classes = ["...", "..."]'
        raise LabelError(message, part)
    if labels.size and int(labels.min()) < 0:
        raise LabelError(f"has a negative label: {int(labels.min())}", part)
    if labels.size and int(labels.max()) >= classes:
        message = f"has label {int(labels.max())}; the limit is {classes - 1}, for labels count from 0"
        raise LabelError(message, part)
    return labels.astype(np.int64)


def _named(labels: Labels, names: tuple[str, ...], part: int) -> I64:
    """By name; where no name is a number, by number too."""
    known = {name: i for i, name in enumerate(names)}
    if not any(_NUMBER.fullmatch(name) for name in names):
        known |= {str(i): i for i in range(len(names))}
    seen, at = np.unique(_text(labels), return_inverse=True)
    numbers = np.array([known.get(str(word).strip(), -1) for word in seen], dtype=np.int64)
    found: I64 = numbers[at] if len(seen) else np.zeros(0, np.int64)
    if len(strange := np.flatnonzero(found < 0)):
        message = f"has {figures.counted(len(strange), 'label')} that [data] classes does not name"
        raise LabelError(message, part, int(strange[0]))
    return found


def _text(labels: Labels) -> npt.NDArray[np.str_]:
    return labels.astype(np.str_)
