"""Every agent's own samples as features: what the oracles of one run share in a process."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from dpgt_node.config.data import resolved_dataset, resolved_test, stated_classes, unstated_classes
from dpgt_node.config.model import Parameter, RunConfig
from dpgt_node.config.vocabulary import DATASET_PREFIXES
from dpgt_node.errors import ConfigError, Problem
from dpgt_node.learning.data import features
from dpgt_node.learning.data.arrays import Reals
from dpgt_node.learning.data.datasets import Dataset, load_dataset, load_file
from dpgt_node.learning.data.frozen import cached, frozen
from dpgt_node.learning.data.partition import partition
from dpgt_node.learning.data.pictures.sets import IMAGE_FOLDERS, IMAGE_SETS
from dpgt_node.learning.data.remarks import remarks
from dpgt_node.types import F64, I64

Division = tuple[str, int, int, tuple[tuple[str, Parameter], ...]]
"""(partition, number of agents, seed, its parameters)."""


class Shards:
    """One data set, divided, under one choice of features; only what is asked for is computed, once."""

    def __init__(self, data: Dataset, kind: str, normalise: str, division: Division | None, cache: Path | None) -> None:
        self._data, self._kind, self._normalise, self._cache = data, kind, normalise, cache
        self._rows = None if division is None else blocks(data, division)
        self._x_test = self._features(data.x_test[:])  # pictures are decoded when they are sliced
        self._own: dict[int, Dataset] = {}

    def own(self, agent: int) -> Dataset:
        """Features of the training samples of 0-based ``agent`` and of all test samples.  Shared, read-only."""
        if agent not in self._own:
            data, rows = self._data, slice(None) if self._rows is None else self._rows[agent]
            x_train = self._features(data.x_train[rows])
            self._own[agent] = Dataset(x_train, data.y_train[rows], self._x_test, data.y_test, data.classes)
        return self._own[agent]

    def _features(self, stored: Reals) -> F64:
        kind, divisor = self._kind, self._data.divisor
        if ":" in kind:
            found = cached(frozen(kind, int(stored.shape[1])), np.asarray(stored), divisor, self._cache)
            phi = features.transform(found, "raw", self._normalise)
        else:
            phi = features.transform(stored, kind, self._normalise, divisor)
        phi.setflags(write=False)
        return phi


@lru_cache(maxsize=2)
def shards(data: Dataset, kind: str, normalise: str, division: Division | None, cache: Path | None = None) -> Shards:
    """Kept for the next oracle of the same run: n agents in one process compute the test features once.

    Two, since runs of an experiment change between n agents and one that holds all.

    ``division`` None: all training samples belong to every agent that asks.  ``cache``: where a frozen module's output
    is kept.
    """
    return Shards(data, kind, normalise, division, cache)


def run_dataset(
    run: RunConfig, data_root: Path | None = None, *, to_learn: bool = True, option: str | None = None
) -> Dataset:
    """The data set of the run file as it is read.  ConfigError: it cannot be, or the features do not fit it.

    ``to_learn``: it must have more than one class, and labels that number them; else the model says what fits.
    ``option``: of the command line, which named the data set in place of the run file.
    """
    if absent := absent_files(run):
        raise ConfigError(absent if option is None else [Problem("command line", option, absent[0].message)])
    data = load_dataset(resolved_dataset(run), data_root, params=run.data.params, test=resolved_test(run))
    _check(run, data, f"'{run.data.dataset}'", to_learn=to_learn)
    return data


def division(run: RunConfig) -> Division:
    """How ``run`` divides its training set."""
    return run.data.partition, run.n, run.data.seed, tuple(sorted(run.data.params.items()))


def blocks(data: Dataset, division: Division) -> list[I64]:
    """Every agent's rows of the training set."""
    kind, agents, seed, params = division
    return partition(kind, data.y_train, agents, seed, dict(params))


def own_file(run: RunConfig, path: Path, test: Path | None = None) -> Dataset:
    """An agent's own file or folder, all of it; ``test``: its test table.  ConfigError: see :func:`load_file`, or
    it does not fit the run.

    The run file says how many classes there are, and names those of folders: what everybody is told of the shape of x
    must not depend on the labels of one.
    """
    if (unstated := unstated_classes(run, "run file")) is not None:
        raise ConfigError((unstated,))
    classes, names = stated_classes(run)
    if path.is_dir() and not names:
        message = 'must be a list of names where a node has a folder of its own: classes = ["cat", "dog"], for all'
        raise ConfigError.one("run file", "data.classes", message)
    data = load_file(path, run.data.params, classes, names, test)
    _check(run, data, f"'{path}'")
    return data


def data_is_here(run: RunConfig, data_root: Path | None = None) -> bool:
    """Whether this machine has the run's data; they may live on the agents' hosts only, and D is unknown here then."""
    name = resolved_dataset(run)
    if name in IMAGE_SETS:
        return data_root is not None and any((data_root / folder).is_dir() for folder in IMAGE_FOLDERS[name])
    return not any(problem.key == "data.dataset" for problem in absent_files(run))


def absent_files(run: RunConfig) -> tuple[Problem, ...]:
    """The files that [data] names and that are not on this machine, by their keys."""
    prefix, colon, path = resolved_dataset(run).partition(":")
    if not colon or prefix not in DATASET_PREFIXES.built:
        return ()
    files = (("data.dataset", Path(path)), ("data.test", resolved_test(run)))
    found = ((key, None if file is None else why_absent(file)) for key, file in files)
    return tuple(Problem("run file", key, why) for key, why in found if why is not None)


def why_absent(path: Path) -> str | None:
    """Why there is no file or folder at ``path``, for messages; None: there is one."""
    try:
        path.stat()
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        return f"cannot read {path}: {error.strerror if isinstance(error, OSError) else error}"
    return None


def _check(run: RunConfig, data: Dataset, what: str, *, to_learn: bool = True) -> None:
    if data.classes < 2 and to_learn:
        message = f"{what} has one class only, so there is nothing to learn; if others hold more: [data] classes = N"
        raise ConfigError.one("run file", "data", message)
    if ":" not in run.data.features:  # a module of the operator's own is tried when it is used
        features.size(run.data.features, int(data.x_train.shape[1]), what)


def oddities(
    run: RunConfig, data_root: Path | None = None, path: Path | None = None, test: Path | None = None
) -> tuple[str, ...]:
    """What looks odd about the data of ``run``, or about an agent's own at ``path``; one line each.  PRIVATE: it stays
    on this host.  Raises ConfigError.
    """
    data = run_dataset(run, data_root) if path is None else own_file(run, path, test)
    raw = run.data.features == "raw" and run.data.normalise == "none"
    return remarks(data, raw=raw)


def unit_norms(run: RunConfig) -> bool:
    """Whether every sample's features are a unit vector, whatever the data."""
    kind, normalise = run.data.features, run.data.normalise
    return normalise in ("l2", "sphere") or (kind in ("hog", "hog-shapes") and normalise == "none")


def largest_square_norm(run: RunConfig, data: Dataset) -> float:
    """max ||phi||_2^2 over the training set; 1 without a look at it where the features are unit vectors."""
    kind, normalise = run.data.features, run.data.normalise
    if unit_norms(run):
        return 1.0
    step, largest = 4096, 0.0
    for start in range(0, len(data.x_train), step):
        phi = features.transform(data.real_train(slice(start, start + step)), kind, normalise)
        largest = max(largest, float(np.square(phi).sum(axis=1).max()))
    return largest
