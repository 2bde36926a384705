"""Pictures that somebody gives to a model: one file, or a folder of them with or without folders of classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.pictures.folders import SUFFIXES, Pictures, measure_files, pictures_below


def picture_files(path: Path) -> list[Path]:
    """``path`` itself, or all pictures below it, sorted.  ConfigError: there are none."""
    if not path.is_dir():
        return [path]
    found = pictures_below(path)
    if not found:
        raise ConfigError.one(str(path), "", f"holds no picture ({', '.join(SUFFIXES)})")
    return found


def given_pictures(paths: Sequence[Path], shape: tuple[int, ...]) -> tuple[Pictures, tuple[str, ...]]:
    """The pictures of these files for a model that takes ``shape``, (1 or 3, height, width), and what is odd about
    them.  They are decoded when they are asked for.  ConfigError names those of another size.
    """
    channels, height, width = shape
    heads = measure_files(paths, (width, height), f"the model takes {width} x {height}")
    coloured = sum(mode not in ("L", "1", "LA") and not mode.startswith("I") for mode in heads)
    odd: tuple[str, ...] = ()
    if channels == 1 and coloured:
        odd = (f"{coloured} of {len(paths)} pictures are no grey ones; the model takes grey, so they are made grey",)
    return Pictures(paths, "L" if channels == 1 else "RGB", (width, height)), odd
