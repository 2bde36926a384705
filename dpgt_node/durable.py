"""Files that are replaced whole or not at all, and what survives of them.

A file is written under a temporary name beside its own and then renamed.  A reader sees the old one or the new one.
What else holds is a :data:`Promise` of the caller's choice.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import numpy.typing as npt

Durability = Literal["process", "power"]
"""What an agent's state survives once a write has returned: the end of this process, or also a power cut."""
Promise = Durability | Literal["whole"]
"""``whole`` lies between: after a power cut the file is the old one or the new one, never a torn one."""


_LITTER = frozenset({".DS_Store", "Thumbs.db", "desktop.ini", ".directory", ".localized"})


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` survive a power cut.  Raises OSError."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def make_folder(folder: Path, durability: Durability) -> None:
    """Make ``folder`` (mode 0700) and its parents where they are not; under "power" all their names are durable."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if durability == "power":
        for path in (folder, *(path.parent for path in missing)):
            sync_folder(path)


def contents(folder: Path) -> list[str]:
    """Sorted names in ``folder``, which need not exist, but for those that desktops leave behind.  Raises OSError."""
    if not folder.exists():
        return []
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("._") and path.name not in _LITTER)


@contextlib.contextmanager
def replaced(path: Path, promise: Promise, *, mode: int = 0o666) -> Iterator[Path]:
    """An empty file beside ``path`` that whoever knows only paths may fill; it takes the place of ``path`` at the end.

    The block must have closed the file.  When it raises, nothing changes at ``path``.  ``mode``: less the umask.
    """
    with _temporary(path, mode) as (temporary, descriptor):
        os.close(descriptor)
        yield temporary
        if promise != "process":
            _sync(temporary, os.O_RDONLY)
        _rename(temporary, path, promise)


@contextlib.contextmanager
def replacing(path: Path, promise: Promise, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of ``path`` at the end.  When the block raises, nothing changes there."""
    with _temporary(path, mode) as (temporary, descriptor):
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            if promise != "process":
                os.fsync(file.fileno())
        _rename(temporary, path, promise)


def write_whole(path: Path, parts: Iterable[bytes | memoryview], promise: Promise, *, mode: int = 0o600) -> None:
    """Write ``parts``, one after another.  OSError: nothing changed at ``path``."""
    with replacing(path, promise, mode=mode) as file:
        for part in parts:
            file.write(part)


def set_aside(path: Path, spare: Path) -> None:
    """Take the name of ``path`` away and keep its blocks under ``spare``, for :func:`write_over`.  Raises OSError."""
    os.rename(path, spare)


def write_over(spare: Path, path: Path, parts: Iterable[bytes | memoryview], promise: Promise) -> None:
    """``write_whole`` in the blocks of ``spare``, a file that nobody needs any more: it becomes ``path``.

    New blocks cost more than the bytes that go into them.  OSError: nothing changed at ``path``, ``spare`` is gone.
    """
    try:
        with open(os.open(spare, os.O_WRONLY | os.O_CLOEXEC), "wb") as file:
            for part in parts:
                file.write(part)
            file.truncate()
            file.flush()
            if promise != "process":
                os.fsync(file.fileno())
        _rename(spare, path, promise)
    except BaseException:
        spare.unlink(missing_ok=True)
        raise


def write_new(path: Path, data: bytes) -> None:
    """Write ``data`` to a file that was not there, mode 0600, "power".  FileExistsError: one is, and stays as it is."""
    with _temporary(path, 0o600) as (temporary, descriptor):
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
        temporary.unlink()
    sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` in UTF-8, "whole", and make the folders above ``path`` where they are not.  Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (text.encode(),), "whole", mode=0o666)


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make ``folder`` with ``files`` in it, "whole": it is there with all of them, or not at all.

    Raises FileExistsError where it is there, OSError for all else.
    """
    import shutil

    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        for name, data in files.items():
            write_whole(temporary / name, (data,), "whole", mode=0o666)
        sync_folder(temporary)
        if folder.exists():  # a rename would take the place of an empty one
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
        _rename(temporary, folder, "whole")
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def save_npy(path: Path, array: npt.NDArray[np.float64]) -> None:
    """Write ``array`` in NPY format, "process", and make the folders above ``path``.  Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, "process") as file:
        np.save(file, array, allow_pickle=False)


@contextlib.contextmanager
def _temporary(path: Path, mode: int) -> Iterator[tuple[Path, int]]:
    """Its name has this process in it: two that write the same file do not mix their bytes."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary, os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _rename(temporary: Path, path: Path, promise: Promise) -> None:
    os.rename(temporary, path)
    if promise == "power":
        sync_folder(path.parent)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_REMEDIES = {
    errno.ENOSPC: ": free some space, or choose another place",
    errno.EDQUOT: ": free some space, or choose another place",
    errno.EFBIG: ": raise the limit on the size of files (ulimit -f)",
    errno.EROFS: ": choose a place that can be written",
    errno.EACCES: ": this user may not; change the mode, or choose another place",
    errno.EPERM: ": this user may not; change the mode, or choose another place",
    errno.EMFILE: ": raise the limit on open files (ulimit -n)",
}


def remedy(error: OSError) -> str:
    """What an operator may do about what the system refuses, as the end of a sentence; empty: nothing is known."""
    return _REMEDIES.get(error.errno or 0, "")
