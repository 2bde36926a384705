"""What looks odd about a data set: said before a run, and refused where nobody can mean it."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from typing import Any

import numpy as np

from dpgt_node import figures
from dpgt_node.learning.data.arrays import Dataset
from dpgt_node.learning.data.pictures.folders import Pictures

LARGE = 30.0
"""Features beyond this are usually bytes or amounts that nobody scaled."""
_NAMED, _TINY = 5, 5
_NUMBER = re.compile(r"-?\d+")


def remarks(data: Dataset, *, raw: bool) -> tuple[str, ...]:
    """One line each: too few samples, labels that are other numbers than those of the classes, features that nobody
    scaled, samples that are there more than once, and what the reader of the file saw.

    ``raw``: features are used as they are.
    """
    found = [*data.remarks, *_few(data), *_named(data), *_alike(data), *_unseen(data)]
    if raw and data.divisor == 1.0 and data.x_train.size:  # pictures in files have their divisor
        largest = float(max(abs(float(data.x_train.max())), abs(float(data.x_train.min()))))
        if largest > LARGE:
            bytes_ = largest <= 255 and float(data.x_train.min()) >= 0
            way = "divide by 255, if they are pixels" if bytes_ else "scale them by figures that are public"
            found.append(
                f"features reach {largest:g} and are used as they are: gradients grow with them, and so must "
                f"the noise; {way}, or set [data] normalise"
            )
    copies = _copies(data)
    if copies:
        found.append(
            f"exact copies of other training samples: {copies}. Adjacency counts one row, so who is in the data "
            "twice has less protection than epsilon says; leave the copies out"
        )
    return tuple(found)


def _few(data: Dataset) -> list[str]:
    """Of training sets from which nothing can be learnt."""
    held = len(np.unique(data.y_train))
    if held == 1 and data.classes > 1:
        return [f"all {len(data.y_train)} training samples are of one class: alone they teach nothing"]
    if held == len(data.y_train) > 1:
        return [
            f"each of the {held} training samples has a class of its own: such labels number the rows, or are amounts, "
            "and teach nothing"
        ]
    if held and len(data.y_train) < _TINY * data.classes:
        return [f"{len(data.y_train)} training samples for {data.classes} classes: too few to learn from"]
    return []


def _named(data: Dataset) -> list[str]:
    """Which classes the labels make, where that is not what they say."""
    if not data.names or not all(_NUMBER.fullmatch(name) for name in data.names):
        return []
    if set(data.names) == {str(c) for c in range(data.classes)}:
        return []
    return [f"labels are {figures.some(data.names, _NAMED)}: {data.classes} classes, which keep these names"]


def _alike(data: Dataset) -> list[str]:
    """Names of classes that differ in capitals and spaces alone."""
    by_word: dict[str, list[str]] = defaultdict(list)
    for name in data.names:
        by_word[" ".join(name.casefold().split())].append(name)
    several = [names for names in by_word.values() if len(names) > 1]
    shown = "; ".join(", ".join(map(repr, names)) for names in several[:_NAMED])
    return [f"labels differ in capitals or spaces only, and are classes of their own: {shown}"] if several else []


def _unseen(data: Dataset) -> list[str]:
    """Classes of the test set that no training sample has."""
    strange = np.setdiff1d(data.y_test, data.y_train)
    if not len(strange):
        return []
    shown = ", ".join(data.names[i] if data.names else str(i) for i in strange[:_NAMED])
    return [f"classes in the test set that no training sample here has: {shown}{', ...' * (len(strange) > _NAMED)}"]


def _copies(data: Dataset) -> int:
    """How many rows of the training set, labels aside, are there already."""
    held: Any = data.x_train
    if not isinstance(held, Pictures):
        seen = {hashlib.blake2b(np.ascontiguousarray(row).tobytes(), digest_size=16).digest() for row in held}
        return len(held) - len(seen)
    by_size: dict[int, list[int]] = defaultdict(list)
    for row, size in enumerate(held.sizes()):
        by_size[size].append(row)
    copies = 0
    for rows in by_size.values():  # files of different sizes are no copies, and need no reading
        if len(rows) > 1:
            contents = held.contents(np.asarray(rows))
            copies += len(rows) - len({hashlib.blake2b(content, digest_size=16).digest() for content in contents})
    return copies
