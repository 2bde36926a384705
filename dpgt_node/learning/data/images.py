"""Picture files as torchvision lays them out: MNIST's IDX, CIFAR-10's batches, folders of classes.

Pixels stay bytes until an agent asks for its own rows; a byte b means b / 255.
"""

from __future__ import annotations

import gzip
import pickle
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.arrays import Dataset, frozen
from dpgt_node.types import I64

U8 = npt.NDArray[np.uint8]

WHITE = 255.0
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm", ".gif", ".tif", ".tiff", ".webp")
IDX_FOLDERS = {"mnist": "MNIST/raw", "fashion-mnist": "FashionMNIST/raw"}
IDX_FILES = (
    ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
CIFAR_SHAPE = (3, 32, 32)
CIFAR_FOLDERS = ("cifar-10-batches-py", "cifar-10-batches-bin")
CIFAR_BATCHES = (tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",))
_FOREIGN = ("__MACOSX", "@eaDir", "lost+found", "$RECYCLE.BIN", "System Volume Information", "__pycache__")
_CIFAR_PIXELS = 3072
_CLASSES = 10
_MAX_PIXELS = 1 << 24  # of one picture
_DEEP = "I;16"  # 16 bits a pixel, in either order of bytes
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


# --- folders of classes ----------------------------------------------------------------------------------------------


class Pictures:
    """Picture files as an array (pictures, channels * height * width) of bytes, decoded row by row when indexed."""

    def __init__(self, paths: Sequence[Path], mode: str, size: tuple[int, int]) -> None:
        self._paths, self._mode, self._size = tuple(paths), mode, size
        channels = 1 if mode == "L" else 3
        self.image = (channels, size[1], size[0])
        self.shape = (len(self._paths), channels * size[0] * size[1])
        self.size = self.shape[0] * self.shape[1]
        self._good: set[int] = set()

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, rows: slice | I64) -> U8:
        """The pictures of these rows, uint8 (m, channels * height * width)."""
        chosen = np.arange(len(self))[rows]
        out = np.empty((len(chosen), self.shape[1]), np.uint8)
        for to, row in enumerate(chosen):
            out[to] = self._decode(self._paths[int(row)])
        return out

    def sizes(self) -> list[int]:
        """Bytes of every file.  Raises ConfigError."""
        return [_size(path) for path in self._paths]

    def contents(self, rows: I64) -> Iterator[bytes]:
        """The files of these rows as they are.  Raises ConfigError."""
        for row in map(int, rows):
            try:
                yield self._paths[row].read_bytes()
            except OSError as error:
                raise _bad(self._paths[row], f"cannot be read: {error.strerror or error}") from error

    def verify(self, rows: I64) -> None:
        """Decode these once, and keep nothing: a damaged picture is better found before a run than in it."""
        for row in map(int, rows):
            if row not in self._good:
                self._decode(self._paths[row])
                self._good.add(row)

    def _decode(self, path: Path) -> U8:
        from PIL import Image

        image = _open(path)
        if image.size != self._size:
            message = (
                f"is {image.size[0]} x {image.size[1]} pixels, the first picture {self._size[0]} x {self._size[1]}"
            )
            raise _bad(path, f"{message}: bring all to one size")
        if image.mode in ("I", "F"):
            raise _bad(path, "has 32 bits a pixel, whose black and white nobody says: save it with 8 or 16")
        if image.mode.startswith(_DEEP):  # Pillow would make white of all above 255
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        pixels = np.asarray(image.convert(self._mode))
        return pixels.reshape(-1) if self._mode == "L" else np.moveaxis(pixels, 2, 0).reshape(-1)


def load_folder(path: Path, classes: int | None = None, names: tuple[str, ...] = ()) -> Dataset:
    """PATH/train/CLASS/FILE and PATH/test/CLASS/FILE (or val); without train/ all of PATH/CLASS/FILE are for training.

    Classes are numbered in the order of ``names``, which may name more than there are; without it in the order of their
    own sorted names, over both parts.  ``classes``: how many there are at most.  Grey where every first picture of
    a class is, else RGB.  Pictures are of one size.  Names that begin with a dot, and what an archive or a file server
    puts beside pictures, are no data.  Raises ConfigError.
    """
    if not path.is_dir():
        raise _bad(path, "is no folder")
    train, test = path / "train", next((path / t for t in ("test", "val", "valid") if (path / t).is_dir()), None)
    if test is not None and not train.is_dir() and _folders(test):
        raise _bad(path, f"has a folder {test.name} and none named train: PATH/train/CLASS/picture.png")
    parts = [train, test] if train.is_dir() else [path]
    folders = sorted({name for part in parts if part for name in _folders(part)})
    if not folders:
        raise _bad(path, "has no folder of a class: PATH/train/CLASS/picture.png, or PATH/CLASS/picture.png")
    strange = [name for name in folders if name not in names] if names else folders[classes:] if classes else []
    if strange:
        known = f"data.classes names {', '.join(names[:10])}" if names else f"data.classes is {classes}"
        raise _bad(path, f"has a folder {strange[0]!r}, and {known}")
    names = names or tuple(folders)
    found = [_listed(part, names) if part else ([], np.zeros(0, np.int64)) for part in [*parts, None][:2]]
    if not found[0][0]:
        raise _bad(parts[0] or path, f"holds no picture ({', '.join(SUFFIXES)})")
    first = [_open(found[0][0][int(np.argmax(found[0][1] == label))]) for label in np.unique(found[0][1])]
    mode = "L" if all(image.mode in ("L", "1") or image.mode.startswith(_DEEP) for image in first) else "RGB"
    rows = [Pictures(paths, mode, first[0].size) for paths, _ in found]
    return frozen(
        cast("U8", rows[0]),
        found[0][1],
        cast("U8", rows[1]),
        found[1][1],
        classes=classes or len(names),
        divisor=WHITE,
        image=rows[0].image,
        names=names,
        remarks=_odd_folders(folders, [labels for _, labels in found], names),
    )


def hidden(name: str) -> bool:
    """Whether a file or folder of this name is somebody else's: an editor's copy, a Mac's, a file server's."""
    return name.startswith(".") or name in _FOREIGN


def _folders(part: Path) -> list[str]:
    return [child.name for child in part.iterdir() if child.is_dir() and not hidden(child.name)]


def _odd_folders(folders: Sequence[str], labels: Sequence[I64], names: Sequence[str]) -> tuple[str, ...]:
    """Remarks on class folders.  ``labels``: of the training and of the test part."""
    there = [name for name in names if name in folders]
    held = [{names[label] for label in np.unique(part)} for part in labels]
    found = [f"class folder {name!r} holds no picture" for name in there if name not in held[0] | held[1]]
    found += [f"class folder {name!r} has test pictures alone: nobody learns it" for name in sorted(held[1] - held[0])]
    twins = Counter(name.casefold() for name in there)
    alike = [name for name in there if twins[name.casefold()] > 1]
    return (
        *found,
        *([f"class folders that differ in case are classes of their own: {', '.join(alike)}"] * bool(alike)),
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror or error}") from error


def _listed(part: Path, names: Sequence[str]) -> tuple[list[Path], I64]:
    paths, labels = [], []
    for label, name in enumerate(names):
        folder = part / name
        own = _pictures(folder) if folder.is_dir() else []
        paths += own
        labels += [label] * len(own)
    return paths, np.array(labels, dtype=np.int64)


def _pictures(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and not path.is_dir()
        and not any(map(hidden, path.relative_to(folder).parts))
    )


def _open(path: Path) -> Any:
    from PIL import Image, UnidentifiedImageError

    if path.exists() and not path.is_file():  # a pipe: opening it would wait for ever
        raise _bad(path, "is neither a file nor a link to one")
    try:
        image = Image.open(path)
        if image.size[0] * image.size[1] > _MAX_PIXELS:
            raise _bad(path, f"has more than {_MAX_PIXELS} pixels")
        image.load()
    except (OSError, UnidentifiedImageError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _bad(path, f"is no readable picture: {error}") from error
    return image


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
