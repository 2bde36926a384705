"""A labelled data set as arrays, and the checks that arrays from any file pass, by file and array."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from dpgt_node import figures
from dpgt_node.errors import ConfigError, Problem
from dpgt_node.learning.data.labels import MAX_CLASSES, LabelError, Labels, numbered
from dpgt_node.learning.data.pictures.layout import Unlike, stacked
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

Reals = npt.NDArray[np.floating[Any] | np.integer[Any]]

__all__ = ["ARRAYS", "I64", "MAX_CLASSES", "Dataset", "Reals", "checked", "frozen"]

_EXACT = 2.0**53
ARRAYS = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Features real (N, p), labels int64 (N,) in 0..classes-1; the arrays are read-only and may be shared.

    Features keep the type of their file, and pictures their place in it: an agent makes float64 of its own share only,
    by :meth:`real_train`.  ``divisor``: what a stored number is divided by.  ``image``: (channels, height, width) of
    one row, None where a row is no picture.  ``names``: of the classes, where the data name them; else empty.
    ``remarks``: what its reader found odd, one line each.
    """

    x_train: Reals = field(repr=False)
    y_train: I64 = field(repr=False)
    x_test: Reals = field(repr=False)
    y_test: I64 = field(repr=False)
    classes: int
    divisor: float = 1.0
    image: tuple[int, int, int] | None = None
    names: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def real_train(self, rows: slice | I64 = slice(None)) -> Reals:
        """These training samples as they go into the features: (m, p)."""
        return self._real(self.x_train[rows])

    def real_test(self, rows: slice | I64 = slice(None)) -> Reals:
        """These test samples as they go into the features: (m, p)."""
        return self._real(self.x_test[rows])

    def _real(self, stored: Reals) -> Reals:
        return stored if self.divisor == 1.0 else cast("F64", stored / self.divisor)


def frozen(
    x_train: Reals,
    y_train: I64,
    x_test: Reals,
    y_test: I64,
    *,
    classes: int | None = None,
    divisor: float = 1.0,
    image: tuple[int, int, int] | None = None,
    names: tuple[str, ...] = (),
    remarks: tuple[str, ...] = (),
) -> Dataset:
    """The data set, its arrays made read-only; ``classes`` None: the largest label plus one."""
    if classes is None:
        classes = 1 + max(int(y.max()) for y in (y_train, y_test) if y.size)
    for array in (x_train, y_train, x_test, y_test):
        if isinstance(array, np.ndarray):  # pictures in files are read-only by themselves
            array.setflags(write=False)
    return Dataset(x_train, y_train, x_test, y_test, classes, divisor, image, names, remarks)


def kept_back(count: int, fraction: float) -> tuple[I64, I64]:
    """Rows to train on and to test on, of ``count`` without a test set of their own: the last ``fraction`` of one fixed
    permutation, the same on every host; all in their order where the fraction is 0.
    """
    if not fraction:
        return np.arange(count), np.zeros(0, dtype=np.int64)
    order, kept = np.random.default_rng(0).permutation(count), count - int(fraction * count)
    return order[:kept], order[kept:]


def checked(
    source: str,
    arrays: Mapping[str, npt.NDArray[np.generic]],
    classes: int | tuple[str, ...] | None = None,
    remarks: tuple[str, ...] = (),
    *,
    layout: str | None = None,
    way: str = "",
) -> Dataset:
    """The data set of four arrays named as :data:`ARRAYS`: x real (N, p) and finite, y integers or words (N,).

    x may be pictures, as :func:`~dpgt_node.learning.data.pictures.layout.stacked` takes them with ``layout`` and
    ``way``.  The test set may be empty.  ``classes``: as :func:`~dpgt_node.learning.data.labels.numbered` takes them.
    Raises ConfigError with every problem, naming ``source`` and the array.
    """
    problems: list[Problem] = []
    arrays, said = _in_channels(source, arrays, problems, layout, way)
    x_train = _features(source, "x_train", arrays, problems)
    y_train = _labels(source, "y_train", arrays, problems)
    x_test = _features(source, "x_test", arrays, problems)
    y_test = _labels(source, "y_test", arrays, problems)
    for xs, ys, part in ((x_train, y_train, "train"), (x_test, y_test, "test")):
        if xs is not None and ys is not None and len(xs) != len(ys):
            problems.append(Problem(source, f"y_{part}", f"has {len(ys)} labels for {len(xs)} rows of x_{part}"))
    if x_train is not None and not x_train.size:
        problems.append(Problem(source, "x_train", f"is empty, shape {x_train.shape}"))
    elif x_train is not None and x_test is not None and x_test.shape[1] != x_train.shape[1]:
        message = f"has {x_test.shape[1]} features, x_train has {x_train.shape[1]}"
        problems.append(Problem(source, "x_test", message))
    pictures = [arrays[name].shape[1:] for name in ("x_train", "x_test") if arrays[name].ndim == 4]
    if not problems and len(set(pictures)) > 1:
        problems.append(Problem(source, "x_test", f"has samples of shape {pictures[1]}, x_train of {pictures[0]}"))
    held = None
    if y_train is not None and y_test is not None:
        try:
            held = numbered((y_train, y_test), classes)
        except LabelError as error:
            problems.append(Problem(source, "y_test" if error.part else "y_train", str(error)))
    if problems or x_train is None or x_test is None or held is None:
        raise ConfigError(problems)
    image = cast("tuple[int, int, int]", pictures[0]) if pictures else None
    y = held.labels
    remarks = (*remarks, *said)
    return frozen(x_train, y[0], x_test, y[1], classes=held.classes, image=image, names=held.names, remarks=remarks)


def _in_channels(
    source: str,
    arrays: Mapping[str, npt.NDArray[np.generic]],
    problems: list[Problem],
    layout: str | None,
    way: str,
) -> tuple[Mapping[str, npt.NDArray[np.generic]], tuple[str, ...]]:
    """The arrays with their pictures as (N, channels, height, width), and what is to be said of them."""
    found, said = dict(arrays), []
    for name in ("x_train", "x_test"):
        if found[name].ndim not in (3, 4):
            continue
        try:
            found[name], remark = stacked(found[name], layout, way)
        except Unlike as error:
            problems.append(Problem(source, name, str(error)))
            found[name] = found[name].reshape(
                len(found[name]), math.prod(found[name].shape[1:])
            )  # its other problems are found all the same
            continue
        if remark is not None:
            said.append(remark)
    return found, tuple(dict.fromkeys(said))


def _features(
    source: str, name: str, arrays: Mapping[str, npt.NDArray[np.generic]], problems: list[Problem]
) -> Reals | None:
    raw = arrays[name]
    if raw.dtype.kind not in "fiu":
        problems.append(Problem(source, name, f"has dtype {raw.dtype}; features must be real numbers"))
    elif raw.ndim not in (2, 4):
        message = (
            f"has shape {raw.shape}; features must be (samples, features), pictures (samples, channels, height, width)"
        )
        problems.append(Problem(source, name, message))
    else:
        raw = raw.reshape(len(raw), math.prod(raw.shape[1:]))
        with np.errstate(over="ignore"):  # a long double may not fit; the check below names it
            x = cast("Reals", raw) if raw.dtype.itemsize <= 8 else raw.astype(np.float64)
        bad = np.argwhere(~np.isfinite(x))
        if not len(bad):
            return x
        values = figures.counted(len(bad), "non-finite value")
        problems.append(Problem(source, name, f"has {values}, the first in row {bad[0][0]}"))
    return None


def _labels(
    source: str,
    name: str,
    arrays: Mapping[str, npt.NDArray[np.generic]],
    problems: list[Problem],
) -> Labels | None:
    raw = arrays[name]
    if raw.ndim != 1:
        way = "use y.ravel()" if raw.ndim == 2 and raw.shape[1] == 1 else "of one column a class, y.argmax(axis=1)"
        problems.append(Problem(source, name, f"has shape {raw.shape}; labels must be (samples,): {way}"))
        return None
    raw = _whole(raw)
    if raw.dtype.kind not in "iuU" and raw.size:
        problems.append(Problem(source, name, f"has dtype {raw.dtype}; labels must be integers or words"))
    elif raw.dtype.kind == "u" and raw.size and int(raw.max()) >= 1 << 63:
        problems.append(Problem(source, name, "has a label beyond 2^63"))
    else:
        return cast("Labels", raw if raw.size else np.zeros(0, np.int64))
    return None


def _whole(raw: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Labels that are classes in another type, as integers or words: whole floats, truth values, ASCII bytes."""
    if raw.dtype.kind == "b":
        return raw.astype(np.int64)
    if raw.dtype.kind == "f":
        real = cast("npt.NDArray[np.floating[Any]]", raw)
        if np.all((np.abs(real) <= _EXACT) & (real == np.floor(real))):
            return raw.astype(np.int64)
    if raw.dtype.kind == "S":
        with contextlib.suppress(UnicodeDecodeError):
            return raw.astype(np.str_)
    return raw
