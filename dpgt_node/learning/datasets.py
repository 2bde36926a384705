"""Labelled data sets as arrays, with everything a file can get wrong reported by file and array.

Only ``digits`` (shipped inside scikit-learn, read without importing it) and ``npz:PATH`` so far.
"""

from __future__ import annotations

import gzip
import importlib.util
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from dpgt_node.errors import ConfigError, Problem
from dpgt_node.learning.features import Reals

I64 = npt.NDArray[np.int64]

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
MAX_CLASSES = 1 << 16
DIGITS_TEST = 359
_TORN = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError, MemoryError)


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Features real (N, p), labels int64 (N,) in 0..classes-1; the arrays are read-only and may be shared.

    Features keep the type of their file: an agent makes float64 of its own share only, not of everybody's.
    """

    x_train: Reals = field(repr=False)
    y_train: I64 = field(repr=False)
    x_test: Reals = field(repr=False)
    y_test: I64 = field(repr=False)
    classes: int


def load_dataset(name: str) -> Dataset:
    """``digits`` or ``npz:PATH``, whole.  Raises ConfigError."""
    if name == "digits":
        return _digits()
    prefix, _, path = name.partition(":")
    assert prefix == "npz", "configuration lets no other data set through"
    return load_npz(Path(path).expanduser())


def load_npz(path: Path) -> Dataset:
    """``x_train`` (N, p) real, ``y_train`` (N,) integers >= 0, ``x_test``, ``y_test`` likewise; classes = max + 1.

    Features are used as they are.  The test set may be empty.  Raises ConfigError with every
    problem of the file.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise ConfigError.one(str(path), "", f"cannot be read: {error.strerror or error}") from error
    return _load_npz(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1)
def _digits() -> Dataset:
    """1,797 digits (pixels / 16) in the order of ``default_rng(0).permutation(1797)``; the last 359 are for tests."""
    spec = importlib.util.find_spec("sklearn")  # importing it would cost a second and 100 MB
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not folders:
        raise ConfigError.one("run file", "data.dataset", "'digits' needs scikit-learn: pip install scikit-learn")
    path = Path(folders[0]) / "datasets" / "data" / "digits.csv.gz"
    try:
        with gzip.open(path, "rt", encoding="ascii") as file:
            table = np.loadtxt(file, delimiter=",")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ConfigError.one(str(path), "", f"cannot be read, reinstall scikit-learn: {error}") from error
    table = table[np.random.default_rng(0).permutation(len(table))]
    x, y = table[:, :-1] / 16.0, table[:, -1].astype(np.int64)
    return _frozen(x[:-DIGITS_TEST], y[:-DIGITS_TEST], x[-DIGITS_TEST:], y[-DIGITS_TEST:])


@lru_cache(maxsize=1)
def _load_npz(path: Path, mtime_ns: int, size: int) -> Dataset:
    """Cached for the simulator, which builds n oracles from one file; the key changes with the file."""
    arrays = _read_arrays(path)
    problems: list[Problem] = []
    x_train = _features(path, "x_train", arrays, problems)
    y_train = _labels(path, "y_train", arrays, problems)
    x_test = _features(path, "x_test", arrays, problems)
    y_test = _labels(path, "y_test", arrays, problems)
    for xs, ys, part in ((x_train, y_train, "train"), (x_test, y_test, "test")):
        if xs is not None and ys is not None and len(xs) != len(ys):
            problems.append(Problem(str(path), f"y_{part}", f"has {len(ys)} labels for {len(xs)} rows of x_{part}"))
    if x_train is not None and not x_train.size:
        problems.append(Problem(str(path), "x_train", f"is empty, shape {x_train.shape}"))
    elif x_train is not None and x_test is not None and x_test.shape[1] != x_train.shape[1]:
        message = f"has {x_test.shape[1]} features, x_train has {x_train.shape[1]}"
        problems.append(Problem(str(path), "x_test", message))
    if problems or x_train is None or y_train is None or x_test is None or y_test is None:
        raise ConfigError(problems)
    return _frozen(x_train, y_train, x_test, y_test)


def _read_arrays(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    problems: list[Problem] = []
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            for name in ARRAYS:
                if name not in archive:
                    held = ", ".join(sorted(archive)) or "nothing"
                    problems.append(Problem(str(path), name, f"this array is missing; the file holds {held}"))
                    continue
                try:
                    arrays[name] = archive[name]
                except _TORN as error:
                    problems.append(Problem(str(path), name, f"cannot be read (torn file, or Python objects): {error}"))
    except (*_TORN, TypeError, AttributeError) as error:  # an .npy is no context manager
        raise ConfigError.one(str(path), "", f"is not a complete NPZ archive (numpy.savez): {error}") from error
    if problems:
        raise ConfigError(problems)
    return arrays


def _features(
    path: Path, name: str, arrays: Mapping[str, npt.NDArray[np.generic]], problems: list[Problem]
) -> Reals | None:
    raw = arrays[name]
    if raw.dtype.kind not in "fiu":
        problems.append(Problem(str(path), name, f"has dtype {raw.dtype}; features must be real numbers"))
    elif raw.ndim != 2:
        problems.append(Problem(str(path), name, f"has shape {raw.shape}; features must be (samples, features)"))
    else:
        with np.errstate(over="ignore"):  # a long double may not fit; the check below names it
            x = cast("Reals", raw) if raw.dtype.itemsize <= 8 else raw.astype(np.float64)
        bad = np.argwhere(~np.isfinite(x))
        if not len(bad):
            return x
        problems.append(Problem(str(path), name, f"has {len(bad)} non-finite values, the first in row {bad[0][0]}"))
    return None


def _labels(
    path: Path, name: str, arrays: Mapping[str, npt.NDArray[np.generic]], problems: list[Problem]
) -> I64 | None:
    raw = arrays[name]
    if raw.dtype.kind not in "iu":
        problems.append(Problem(str(path), name, f"has dtype {raw.dtype}; labels must be integers"))
    elif raw.ndim != 1:
        problems.append(Problem(str(path), name, f"has shape {raw.shape}; labels must be (samples,)"))
    elif raw.size and int(raw.min()) < 0:
        problems.append(Problem(str(path), name, f"has a negative label: {int(raw.min())}"))
    elif raw.size and int(raw.max()) >= MAX_CLASSES:
        problems.append(Problem(str(path), name, f"has label {int(raw.max())}; the limit is {MAX_CLASSES - 1}"))
    else:
        return raw.astype(np.int64)
    return None


def _frozen(x_train: Reals, y_train: I64, x_test: Reals, y_test: I64) -> Dataset:
    classes = 1 + max(int(y.max()) for y in (y_train, y_test) if y.size)
    for array in (x_train, y_train, x_test, y_test):
        array.setflags(write=False)
    return Dataset(x_train, y_train, x_test, y_test, classes)
