"""Files written whole or not at all: temporary name, data, (fsync), rename, (fsync of the folder)."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from typing import Literal

Durability = Literal["process", "power"]
_TEMPORARY = ".tmp"


def make_folder(folder: Path, durability: Durability) -> None:
    """Make ``folder`` (mode 0700) and its parents where they are not; under "power" all their names are durable."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if durability == "power":
        for path in (folder, *(path.parent for path in missing)):
            _sync_folder(path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    temporary = path.with_name(path.name + _TEMPORARY)
    try:
        yield temporary
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_whole(path: Path, parts: Iterable[bytes | memoryview], durability: Durability) -> None:
    """Write ``parts`` one after another to ``path`` (mode 0600), replacing it at once.

    After return the file survives the process, under "power" also the machine.  OSError: nothing changed at ``path``.
    """
    with _temporary(path) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb", buffering=0) as file:
            for part in parts:
                rest = memoryview(part).cast("B")
                while rest.nbytes:  # one write() takes at most 2 GiB and may be short
                    rest = rest[file.write(rest) :]
            if durability == "power":
                os.fsync(file.fileno())
        os.rename(temporary, path)
    if durability == "power":
        _sync_folder(path.parent)


class BlobFolder:
    """Payloads and checkpoints too large for the database, one file each, by name."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        self._folder = folder
        self._durability: Durability = durability
        make_folder(folder, durability)

    def path(self, name: str) -> Path:
        """Where the blob ``name`` lies."""
        return self._folder / name

    def write(self, name: str, parts: Iterable[bytes | memoryview]) -> None:
        """Write the blob; durable on return (see ``write_whole``)."""
        write_whole(self.path(name), parts, self._durability)

    def read(self, name: str, nbytes: int) -> memoryview:
        """The blob, memory-mapped, readable even after ``remove``.  OSError when it is missing or of another size."""
        with open(self.path(name), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != nbytes:
                raise OSError(f"{self.path(name)} has {size} bytes, expected {nbytes}")
            return memoryview(mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_READ))

    def remove(self, names: Iterable[str]) -> None:
        """Delete blobs; one that is gone already is fine."""
        for name in names:
            self.path(name).unlink(missing_ok=True)

    def sweep(self, keep: Set[str]) -> None:
        """Delete everything that no row names: torn temporaries, blobs whose row never came or was pruned."""
        for path in self._folder.iterdir():
            if path.name not in keep:
                path.unlink()
