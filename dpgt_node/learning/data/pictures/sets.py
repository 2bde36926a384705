"""Picture sets as torchvision lays them out: MNIST's IDX, CIFAR-10's batches.

Pixels stay bytes until an agent asks for its own rows; a byte b means b / 255.
"""

from __future__ import annotations

import gzip
import pickle
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.arrays import Dataset, frozen
from dpgt_node.types import I64

U8 = npt.NDArray[np.uint8]

WHITE = 255.0
IDX_FOLDERS = {"mnist": "MNIST/raw", "fashion-mnist": "FashionMNIST/raw"}
IDX_FILES = (
    ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
CIFAR_SHAPE = (3, 32, 32)
CIFAR_FOLDERS = ("cifar-10-batches-py", "cifar-10-batches-bin")
CIFAR_BATCHES = (tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",))
_CIFAR_PIXELS = 3072
_CLASSES = 10
_PICKLE_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),  # bytes, in files that were written again by Python 3
}


def load_idx(name: str, root: Path) -> Dataset:
    """``mnist`` or ``fashion-mnist`` from ``root``, raw or gzip files.  Raises ConfigError."""
    folder = root / IDX_FOLDERS[name]
    if not folder.is_dir():
        raise _missing(name, folder)
    (x_train, y_train), (x_test, y_test) = (_pair(folder, images, labels) for images, labels in IDX_FILES)
    if x_train.shape[1:] != x_test.shape[1:]:
        raise _bad(folder, f"training pictures of {x_train.shape[1:]} pixels, test pictures of {x_test.shape[1:]}")
    shape = (1, int(x_train.shape[1]), int(x_train.shape[2]))
    flat = [x.reshape(len(x), -1) for x in (x_train, x_test)]
    return frozen(flat[0], y_train, flat[1], y_test, classes=_CLASSES, divisor=WHITE, image=shape)


def load_cifar10(root: Path) -> Dataset:
    """The python version (pickles, read with an allow-list of names) or the binary one.  Raises ConfigError."""
    python, binary = (root / folder for folder in CIFAR_FOLDERS)
    if any((python / name).exists() for names in CIFAR_BATCHES for name in names):
        parts = [_stack([_pickled(python / name) for name in names]) for names in CIFAR_BATCHES]
    elif binary.is_dir():
        parts = [_stack([_records(binary / f"{name}.bin") for name in names]) for names in CIFAR_BATCHES]
    else:
        raise _missing("cifar10", python / CIFAR_BATCHES[0][0])
    (x_train, y_train), (x_test, y_test) = parts
    return frozen(x_train, y_train, x_test, y_test, classes=_CLASSES, divisor=WHITE, image=CIFAR_SHAPE)


# --- IDX -------------------------------------------------------------------------------------------------------------


def _pair(folder: Path, images: str, labels: str) -> tuple[U8, I64]:
    x, y = read_idx(folder / images, 3), read_idx(folder / labels, 1)
    if len(x) != len(y):
        raise _bad(folder / images, f"holds {len(x)} pictures, {labels} has {len(y)} labels")
    if len(y) and int(y.max()) >= _CLASSES:
        raise _bad(folder / labels, f"has label {int(y.max())}; they are 0 to {_CLASSES - 1}")
    return x, y.astype(np.int64)


def read_idx(path: Path, dimensions: int) -> U8:
    """An IDX file of unsigned bytes; ``path`` or ``path.gz``.  A raw file is mapped, not read.  Raises ConfigError."""
    head = 4 + 4 * dimensions
    packed = path.with_name(path.name + ".gz")
    try:
        if path.exists():
            with path.open("rb") as file:
                shape = _idx_shape(path, file.read(head), dimensions)
            size, data = path.stat().st_size, None
        else:
            with gzip.open(packed, "rb") as unpacked:
                data = unpacked.read()
            shape, size = _idx_shape(packed, data[:head], dimensions), len(data)
    except FileNotFoundError as error:
        raise _bad(path, "is missing, and so is its .gz: run `dpgt data fetch`") from error
    except (OSError, EOFError, zlib.error) as error:
        raise _bad(path, f"cannot be read: {error}") from error
    expected = head + int(np.prod(shape, dtype=object))
    if size != expected:
        raise _bad(path, f"is torn or foreign: {size} bytes, its header asks for {expected}")
    if data is None:
        return np.memmap(path, np.uint8, "r", head, shape) if all(shape) else np.zeros(shape, np.uint8)
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)


def _idx_shape(path: Path, head: bytes, dimensions: int) -> tuple[int, ...]:
    if len(head) < 4 + 4 * dimensions or head[:4] != bytes((0, 0, 8, dimensions)):
        raise _bad(path, f"is no IDX file of unsigned bytes in {dimensions} dimensions")
    return struct.unpack(f">{dimensions}I", head[4:])


# --- CIFAR-10 --------------------------------------------------------------------------------------------------------


class _AllowList(pickle.Unpickler):
    """CIFAR-10's batches are pickles of a dict of bytes, lists and one array; nothing else is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PICKLE_NAMES:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"asks for {module}.{name}, which no CIFAR-10 file needs")


def _pickled(path: Path) -> tuple[U8, I64]:
    try:
        with path.open("rb") as file:
            batch = _unpickle(file)
    except FileNotFoundError as error:
        raise _bad(path, "is missing: run `dpgt data fetch cifar10`") from error
    except Exception as error:  # a hostile or torn pickle can raise anything
        raise _bad(path, f"is no CIFAR-10 batch: {error}") from error
    data, labels = (batch.get(b"data"), batch.get(b"labels")) if isinstance(batch, dict) else (None, None)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != _CIFAR_PIXELS:
        raise _bad(path, f"is no CIFAR-10 batch: its data are not unsigned bytes of shape (N, {_CIFAR_PIXELS})")
    if not isinstance(labels, list) or any(type(label) is not int for label in labels):
        raise _bad(path, "is no CIFAR-10 batch: its labels are no list of integers")
    return _labelled(path, data, labels)


def _unpickle(file: BinaryIO) -> object:
    return _AllowList(file, encoding="bytes").load()


def _records(path: Path) -> tuple[U8, I64]:
    try:
        raw = np.fromfile(path, np.uint8)
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror or error}") from error
    if raw.size % (1 + _CIFAR_PIXELS):
        raise _bad(path, f"is torn: {raw.size} bytes are no multiple of {1 + _CIFAR_PIXELS}")
    rows = raw.reshape(-1, 1 + _CIFAR_PIXELS)
    return _labelled(path, rows[:, 1:], rows[:, 0].tolist())


def _labelled(path: Path, data: U8, labels: Sequence[int]) -> tuple[U8, I64]:
    if len(data) != len(labels):
        raise _bad(path, f"holds {len(data)} pictures and {len(labels)} labels")
    if labels and (min(labels) < 0 or max(labels) >= _CLASSES):
        raise _bad(path, f"has labels from {min(labels)} to {max(labels)}; they are 0 to {_CLASSES - 1}")
    return data, np.array(labels, dtype=np.int64)


def _stack(batches: list[tuple[U8, I64]]) -> tuple[U8, I64]:
    return np.concatenate([x for x, _ in batches]), np.concatenate([y for _, y in batches])


def _missing(name: str, folder: Path) -> ConfigError:
    message = f"there is no {folder}: run `dpgt data fetch {name}`, or set DPGT_DATA to the folder that has it"
    return ConfigError.one("run file", "data.dataset", message)


def _bad(path: Path, message: str) -> ConfigError:
    return ConfigError.one(str(path), "", message)


IMAGE_SETS: dict[str, Callable[[Path], Dataset]] = {
    "mnist": lambda root: load_idx("mnist", root),
    "fashion-mnist": lambda root: load_idx("fashion-mnist", root),
    "cifar10": load_cifar10,
}
IMAGE_FOLDERS: dict[str, tuple[str, ...]] = {name: (folder,) for name, folder in IDX_FOLDERS.items()} | {
    "cifar10": CIFAR_FOLDERS
}
"""Where each lies below the data folder: one of these is enough."""
