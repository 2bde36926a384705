"""What looks odd about a data set: said before a run, and refused where nobody can mean it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import Any

import numpy as np

from dpgt_node.learning.data.arrays import Dataset
from dpgt_node.learning.data.images import Pictures

LARGE = 30.0
"""Features beyond this are usually bytes or amounts that nobody scaled."""
_NAMED = 5


def implausible(data: Dataset) -> str | None:
    """Why the labels cannot be meant as numbers of classes, with the way out; None: they can."""
    held = np.unique(np.concatenate([data.y_train, data.y_test]))
    if not len(held) or data.names or 2 * len(held) >= data.classes:
        return None
    return (
        f"holds {len(held)} different labels up to {int(held[-1])}, which would make {data.classes} classes: number "
        f"them from 0 to {len(held) - 1}, or state [data] classes = {data.classes}"
    )


def remarks(data: Dataset, *, raw: bool, counted: bool) -> tuple[str, ...]:
    """One line each: classes without samples, features that nobody scaled, samples that are there more than once, and
    what the reader of the file saw.

    ``raw``: features are used as they are.  ``counted``: the labels alone decide how many classes there are.
    """
    found = [*data.remarks, *(_unused(data) if counted else ())]
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


def _unused(data: Dataset) -> list[str]:
    counts = np.bincount(data.y_train, minlength=data.classes) + np.bincount(data.y_test, minlength=data.classes)
    absent = np.flatnonzero(counts[: data.classes] == 0)
    if not len(absent) or data.names:
        return []
    if absent.tolist() == [0]:
        return [f"labels begin at 1, so class 0 has no sample and there are {data.classes} classes: count from 0"]
    some = ", ".join(map(str, absent[:_NAMED])) + (f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else "")
    return [f"of {data.classes} classes these have no sample: {some}"]


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
