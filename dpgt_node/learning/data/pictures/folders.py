"""Folders of pictures, a folder for each class.

Pixels stay in their files until an agent asks for its own rows; a byte b means b / 255.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from dpgt_node.errors import ConfigError, Problem
from dpgt_node.learning.data.arrays import Dataset, frozen, kept_back
from dpgt_node.types import I64

U8 = npt.NDArray[np.uint8]

WHITE = 255.0
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm", ".gif", ".tif", ".tiff", ".webp")
_FOREIGN = ("__MACOSX", "@eaDir", "lost+found", "$RECYCLE.BIN", "System Volume Information", "__pycache__")
_MAX_PIXELS = 1 << 24  # of one picture
_DEEP = "I;16"  # 16 bits a pixel, in either order of bytes
_NAMED = 5
"""Problems of pictures that are named one by one."""


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
        """Decode these once, and keep nothing: a damaged picture is better found before a run than in it.

        Raises ConfigError with those that cannot be used.
        """
        problems: list[Problem] = []
        for row in map(int, rows):
            if row not in self._good:
                try:
                    self._decode(self._paths[row])
                    self._good.add(row)
                except ConfigError as error:
                    problems += error.problems
        _raise_some(problems)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Of every row."""
        return self._paths

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


def measure(data: Dataset) -> None:
    """Look at the heads of all pictures in files, for their sizes: far sooner done than decoding them.

    ConfigError: they are not of one size; it names the odd ones.
    """
    held: tuple[object, ...] = (data.x_train, data.x_test)
    paths = [path for part in held if isinstance(part, Pictures) for path in part.paths]
    if paths:
        measure_files(paths)


def measure_files(paths: Sequence[Path], size: tuple[int, int] | None = None, most: str = "") -> list[str]:
    """The modes of these pictures, as Pillow names them.  ConfigError: some are not of ``size``, (width, height).

    ``size``: None: what most of them have.  ``most``: the words for it.
    """
    heads = [_open(path, load=False) for path in paths]
    if size is None:
        (size, count), *_ = Counter(image.size for image in heads).most_common(1)
        most = f"{count} of {len(paths)} pictures are {size[0]} x {size[1]}"
    _raise_some(
        [
            Problem(str(path), "", f"is {image.size[0]} x {image.size[1]} pixels, {most}: bring all to one size")
            for path, image in zip(paths, heads, strict=True)
            if image.size != size
        ]
    )
    return [image.mode for image in heads]


def load_folder(
    path: Path, classes: int | None = None, names: tuple[str, ...] = (), test_fraction: float = 0.0
) -> Dataset:
    """PATH/train/CLASS/FILE and PATH/test/CLASS/FILE (or val); without train/ all of PATH/CLASS/FILE are for training.

    Without a test part the last ``test_fraction`` of ``default_rng(0).permutation(pictures)`` is the test set.

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
    odd = _odd_folders(folders, [labels for _, labels in found], names)
    if test is None:
        train_rows, test_rows = kept_back(len(found[0][0]), test_fraction)
        found = [([found[0][0][i] for i in rows], found[0][1][rows]) for rows in (train_rows, test_rows)]
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
        remarks=odd,
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
        own = pictures_below(folder) if folder.is_dir() else []
        paths += own
        labels += [label] * len(own)
    return paths, np.array(labels, dtype=np.int64)


def pictures_below(folder: Path) -> list[Path]:
    """All pictures in ``folder`` and the folders in it, sorted, but for what is :func:`hidden`."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and not path.is_dir()
        and not any(map(hidden, path.relative_to(folder).parts))
    )


def _open(path: Path, *, load: bool = True) -> Any:
    from PIL import Image, UnidentifiedImageError

    if path.exists() and not path.is_file():  # a pipe: opening it would wait for ever
        raise _bad(path, "is neither a file nor a link to one")
    try:
        image = Image.open(path)
        if image.size[0] * image.size[1] > _MAX_PIXELS:
            raise _bad(path, f"has more than {_MAX_PIXELS} pixels")
        if load:
            image.load()
        else:
            image.close()
    except (OSError, UnidentifiedImageError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise _bad(path, f"is no readable picture: {why}") from error
    return image


def _raise_some(problems: Sequence[Problem]) -> None:
    """ConfigError with the first few, where there are any."""
    if not problems:
        return
    rest = len(problems) - _NAMED
    last = problems[_NAMED - 1 : _NAMED]
    if rest > 0:
        last = [replace(one, message=f"{one.message} (and {rest} more pictures like these)") for one in last]
    raise ConfigError([*problems[: _NAMED - 1], *last])


def _bad(path: Path, message: str) -> ConfigError:
    return ConfigError.one(str(path), "", message)
