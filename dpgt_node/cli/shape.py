"""The shape of the agents' data: read from the data here, or as ``--shape P,CLASSES,D`` states it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgt_node.cli.common import data_root
from dpgt_node.config import RunConfig, resolved_dataset
from dpgt_node.config.vocabulary import TOYS
from dpgt_node.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpgt_node.sim.plans.rehearsal import Shape

_P_MAX, _CLASSES_MAX, _D_MAX = 1_000_000, 10_000, 1_000_000_000
"""More than any data that a plan is for: what exceeds them is a slip of the keyboard."""


def find_shape(run: RunConfig, source: str, text: str | None) -> Shape:
    """What is known of the agents' data.  ConfigError: it is not known, or ``text`` is none that fits them."""
    from dpgt_node.learning.data.pictures.folders import measure
    from dpgt_node.learning.data.shards import data_is_here, run_dataset
    from dpgt_node.learning.oracle import sample_counts
    from dpgt_node.sim.plans.choosing import is_tabular
    from dpgt_node.sim.plans.rehearsal import Shape

    if run.data.dataset in TOYS:
        raise ConfigError.one(
            source, "data.dataset", f"'{run.data.dataset}' has no samples, so there is nothing to protect and to plan"
        )
    if text is not None:
        p, classes, D = _numbers(text)
        if problems := [Problem("command line", "--shape", said) for said in _misfits(run, source, p, classes)]:
            raise ConfigError(problems)
        return Shape(p, classes, (D,) * run.n, is_tabular(run.data.dataset, p))
    root = data_root()
    if not data_is_here(run, root):
        message = f"{resolved_dataset(run)} is not on this machine; give the shape of the data: --shape P,CLASSES,D"
        raise ConfigError.one(source, "data.dataset", message)
    data = run_dataset(run, root)
    measure(data)
    p = data.x_train.shape[1]
    tabular = is_tabular(run.data.dataset, p, picture=data.image is not None)
    return Shape(p, data.classes, tuple(D for D in sample_counts(run, root) if D is not None), tabular)


def _numbers(text: str) -> tuple[int, int, int]:
    """P, CLASSES and D.  ConfigError: ``text`` is something else, or they are out of range."""
    parts = [part.strip() for part in text.split(",")]
    form = "P,CLASSES,D: numbers a sample, classes, samples an agent, as in 784,10,12000"
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        raise ConfigError.one("command line", "--shape", f"must be {form}, not {text!r}")
    limits = (("P", 1, _P_MAX), ("CLASSES", 2, _CLASSES_MAX), ("D", 1, _D_MAX))
    found = [int(part) if len(part) < 12 else _D_MAX + 1 for part in parts]
    problems = [
        Problem("command line", "--shape", f"{name} must be {low} to {high:,}, not {part} (it is {form})")
        for (name, low, high), part, value in zip(limits, parts, found, strict=True)
        if not low <= value <= high
    ]
    if problems:
        raise ConfigError(problems)
    return found[0], found[1], found[2]


def _misfits(run: RunConfig, source: str, p: int, classes: int) -> Iterator[str]:
    """What the run file, or the data on this machine, say otherwise."""
    from dpgt_node.config.data import stated_classes
    from dpgt_node.learning.data import features
    from dpgt_node.learning.data.columns import Columns
    from dpgt_node.learning.data.shards import data_is_here, run_dataset
    from dpgt_node.learning.published import IMAGES

    columns, known = Columns.of(run.data.params), data_is_here(run, data_root())
    numbers, labels, whose = columns.width, stated_classes(run)[0], f"{source} says"
    if known:
        data = run_dataset(run, data_root())
        numbers, labels = int(data.x_train.shape[1]), data.classes
        whose = f"{resolved_dataset(run)}, which is here, has"
    elif numbers is None and run.data.dataset in IMAGES:
        channels, height, width = IMAGES[run.data.dataset]
        numbers, whose = channels * height * width, f"{run.data.dataset} has"
    if numbers not in (None, p):
        yield f"P = {p}, but {whose} {numbers} numbers a sample"
    if labels not in (None, classes):
        yield f"CLASSES = {classes}, but {whose} {labels} classes"
    if numbers in (None, p):
        try:
            features.size(run.data.features, p, "--shape")
        except ConfigError as error:
            yield from (f"P = {p}: {problem.message}" for problem in error.problems)
