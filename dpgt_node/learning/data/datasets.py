"""The labelled data sets of a run, by the name that the run file gives them.

``digits`` is a file beside this one (source and licences: digits.NOTICE.txt); pictures, tables and plug-ins have
modules of their own.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpgt_node.config.data import expanded
from dpgt_node.config.model import Parameter
from dpgt_node.config.vocabulary import PLUG_IN
from dpgt_node.errors import ConfigError, Problem
from dpgt_node.learning.data.arrays import ARRAYS, MAX_CLASSES, Dataset, checked, frozen, kept_back
from dpgt_node.learning.data.columns import Columns
from dpgt_node.learning.data.pictures.folders import load_folder
from dpgt_node.learning.data.pictures.layout import LAST, looks
from dpgt_node.learning.data.pictures.sets import IMAGE_SETS
from dpgt_node.learning.data.tables import KINDS, load_table
from dpgt_node.learning.plugins import called
from dpgt_node.types import I64

__all__ = ["ARRAYS", "I64", "MAX_CLASSES", "Dataset", "load_dataset", "load_file", "load_npz"]

DIGITS_FILE = Path(__file__).with_name("digits.csv.gz")
DIGITS_TEST = 359
_STATED = f', or state layout = "{LAST}" under [data]'


def load_dataset(
    name: str, root: Path | None = None, *, params: Mapping[str, Parameter] | None = None, test: Path | None = None
) -> Dataset:
    """The whole data set; pictures of MNIST, CIFAR-10 and folders stay on the disk until their rows are asked for.

    ``root``: the folder of the named picture sets (DPGT_DATA).  ``params``: further keys of ``[data]``; ``test``: the
    test file of a table, absolute.  Raises ConfigError.
    """
    params = params or {}
    if name == "digits":
        return _digits()
    if name in IMAGE_SETS:
        if root is None:
            message = f"no data folder: run `dpgt data fetch {name}`, or set DPGT_DATA to the folder that has it"
            raise ConfigError.one("run file", "data.dataset", message)
        return _images(name, root)
    prefix, _, path = name.partition(":")
    classes = params.get("classes")
    names = classes if isinstance(classes, tuple) else ()
    if PLUG_IN.fullmatch(name) and prefix not in ("npz", "folder", "csv", "parquet"):
        return _plugin(name)
    file, fraction = expanded(path), float(params.get("test_fraction", 0.0))
    if prefix in ("csv", "parquet"):
        columns = Columns.of(params)
        return _table(prefix, file, str(params["label"]), test, fraction, classes, columns, _stamp(file), _stamp(test))
    if prefix == "npz":
        return load_npz(file, classes, fraction, _layout(params))
    return _folder(file, len(names) or classes, names, fraction, _stamp(file))


def load_file(
    path: Path,
    params: Mapping[str, Parameter] | None = None,
    classes: int | None = None,
    names: tuple[str, ...] = (),
    test: Path | None = None,
) -> Dataset:
    """An agent's own data: an NPZ, CSV or Parquet file by its ending, or a folder of pictures.  All rows are training
    samples unless the format or the run file says otherwise, or ``test`` is a table of test samples.  Raises
    ConfigError.
    """
    params = params or {}
    if test is not None and KINDS.get(path.suffix.lower()) is None:
        message = f"is for tables; {path.name} holds its own test samples (x_test and y_test, or a folder test)"
        raise ConfigError.one("node file", "data.test", message)
    fraction = float(params.get("own_test_fraction", 0.0))
    if path.is_dir():
        return _folder(path, classes, names, fraction, _stamp(path))
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        return load_npz(path, names or classes, fraction, _layout(params))
    if "label" not in params:
        message = f"{path.name} is a table, and the run file's [data] names no label column: its data set is no table"
        raise ConfigError.one("node file", "data.path", message)
    label, columns = str(params["label"]), Columns.of(params)
    return _table(kind, path, label, test, fraction, names or classes, columns, _stamp(path), _stamp(test))


def _layout(params: Mapping[str, Parameter]) -> str | None:
    stated = params.get("layout")
    return None if stated is None else str(stated)


def likely_layout(path: Path) -> str | None:
    """What the pictures of an NPZ file look like, as ``layout`` of [data] says it; None: it need not be said.

    Raises ConfigError.
    """
    shape = _read_arrays(path)["x_train"].shape
    return LAST if len(shape) == 4 and looks(shape[1:]) == LAST else None


def load_npz(
    path: Path,
    classes: int | tuple[str, ...] | None = None,
    test_fraction: float = 0.0,
    layout: str | None = None,
) -> Dataset:
    """``x_train`` (N, p) real, ``y_train`` (N,) integers or words, ``x_test``, ``y_test`` likewise.

    Features are used as they are.  The test set may be empty or left out; then the last ``test_fraction`` of
    ``default_rng(0).permutation(N)`` is the test set.  ``layout``: "channels-last" or "channels-first"; None: the
    latter, and refused where it looks like the other.  Raises ConfigError with every problem of the file.
    """
    return _load_npz(path, classes, test_fraction, layout, _stamp(path))


def _stamp(path: Path | None) -> tuple[int, int] | None:
    """What changes when a file does: it is part of a cache's key.  Raises ConfigError."""
    if path is None:
        return None
    try:
        stat = path.stat()
    except OSError as error:
        raise ConfigError.one(str(path), "", f"cannot be read: {error.strerror or error}") from error
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=1)
def _digits() -> Dataset:
    """1,797 digits (pixels / 16) in the order of ``default_rng(0).permutation(1797)``; the last 359 are for tests."""
    try:
        with gzip.open(DIGITS_FILE, "rt", encoding="ascii") as file:
            table = np.loadtxt(file, delimiter=",", ndmin=2)
        if table.shape != (1797, 65):
            raise ValueError(f"shape {table.shape} instead of (1797, 65)")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ConfigError.one(str(DIGITS_FILE), "", f"cannot be read, reinstall dpgt-node: {error}") from error
    table = table[np.random.default_rng(0).permutation(len(table))]
    x, y = table[:, :-1] / 16.0, table[:, -1].astype(np.int64)
    return frozen(x[:-DIGITS_TEST], y[:-DIGITS_TEST], x[-DIGITS_TEST:], y[-DIGITS_TEST:], image=(1, 8, 8))


# Caches serve the simulator, which builds n oracles from one file; a stamp in the key changes with the file.
@lru_cache(maxsize=1)
def _load_npz(
    path: Path, classes: int | tuple[str, ...] | None, test_fraction: float, layout: str | None, stamp: object
) -> Dataset:
    data = checked(str(path), _read_arrays(path), classes, layout=layout, way=_STATED)
    if len(data.y_test) or not test_fraction:
        return data
    train, test = kept_back(len(data.y_train), test_fraction)
    x, y = data.x_train, data.y_train
    for array in (parts := (x[train], y[train], x[test], y[test])):
        array.setflags(write=False)
    return replace(data, x_train=parts[0], y_train=parts[1], x_test=parts[2], y_test=parts[3])


@lru_cache(maxsize=1)
def _images(name: str, root: Path) -> Dataset:
    return IMAGE_SETS[name](root)


@lru_cache(maxsize=1)
def _folder(path: Path, classes: int | None, names: tuple[str, ...], test_fraction: float, stamp: object) -> Dataset:
    return load_folder(path, classes, names, test_fraction)


@lru_cache(maxsize=1)
def _table(
    kind: str,
    path: Path,
    label: str,
    test: Path | None,
    fraction: float,
    classes: int | tuple[str, ...] | None,
    columns: Columns,
    *stamps: object,
) -> Dataset:
    return load_table(kind, path, label, test=test, test_fraction=fraction, classes=classes, columns=columns)


@lru_cache(maxsize=1)
def _plugin(name: str) -> Dataset:
    """A plug-in returns the four arrays of :data:`ARRAYS`, as an NPZ file holds them."""
    returned: Any = called(name, "data.dataset")
    absent = [key for key in ARRAYS if key not in returned] if isinstance(returned, Mapping) else []
    if not isinstance(returned, Mapping) or absent:
        found = f"one without {', '.join(absent)}" if absent else type(returned).__name__
        message = f"{name!r} must return a mapping with {', '.join(ARRAYS)}, not {found}"
        raise ConfigError.one("run file", "data.dataset", message)
    try:
        arrays = {key: np.asarray(returned[key]) for key in ARRAYS}
    except Exception as error:  # ragged lists, tensors on another device, ...
        message = f"{name!r} returns what is no array: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        raise ConfigError.one("run file", "data.dataset", message) from error
    return checked(name, arrays)


def _read_arrays(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    from zipfile import BadZipFile

    torn = (OSError, EOFError, KeyError, ValueError, BadZipFile, zlib.error, NotImplementedError, MemoryError)
    problems: list[Problem] = []
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            without = not {"x_test", "y_test"}.intersection(archive)
            for name in ARRAYS:
                if without and name.endswith("test") and f"{name[0]}_train" in arrays:
                    arrays[name] = arrays[f"{name[0]}_train"][:0]
                    continue
                if name not in archive:
                    held = ", ".join(sorted(archive)) or "nothing"
                    problems.append(Problem(str(path), name, f"this array is missing; the file holds {held}"))
                    continue
                try:
                    arrays[name] = archive[name]
                except torn as error:
                    problems.append(Problem(str(path), name, f"cannot be read (torn file, or Python objects): {error}"))
    except (*torn, TypeError, AttributeError) as error:  # an .npy is no context manager
        if isinstance(error, OSError) and error.errno is not None:
            raise ConfigError.one(str(path), "", f"cannot be read: {error.strerror}") from error
        # numpy would advise to load a pickle
        why = "it is a pickle, or no file of numpy's" if "pickle" in str(error) else error
        raise ConfigError.one(str(path), "", f"is not a complete NPZ archive (numpy.savez): {why}") from error
    if problems:
        raise ConfigError(problems)
    return arrays
