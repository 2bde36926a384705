"""Payloads and checkpoints as files beside the database."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections import defaultdict
from collections.abc import Iterable, Set
from pathlib import Path
from weakref import WeakKeyDictionary

from dpgt_node.durable import Durability, make_folder, set_aside, write_over, write_whole


class BlobFolder:
    """Payloads and checkpoints too large for the database, one file each, by name; what follows its last "-" is a kind.

    A file that is not needed any more is a spare, which the next one of its kind is written over: the system takes
    several times as long to find new blocks and pages.  No released vector ever comes into a file that held a state.
    A crash leaves spares for ``sweep``.  Files of different kinds may be written at the same time.
    """

    def __init__(self, folder: Path, durability: Durability) -> None:
        self._folder = folder
        self._durability: Durability = durability
        self._spares: defaultdict[str, list[Path]] = defaultdict(list)
        self._mapped: WeakKeyDictionary[mmap.mmap, str] = WeakKeyDictionary()  # a file may be read twice at a time
        make_folder(folder, durability)

    def path(self, name: str) -> Path:
        """Where the blob ``name`` lies."""
        return self._folder / name

    def write(self, name: str, parts: Iterable[bytes | memoryview]) -> None:
        """Write the blob; durable on return (see ``write_whole``)."""
        spare = self._spare(_kind(name))
        if spare is None:
            write_whole(self.path(name), parts, self._durability)
        else:
            write_over(spare, self.path(name), parts, self._durability)

    def read(self, name: str, nbytes: int) -> memoryview:
        """The blob, memory-mapped, readable even after ``remove``.  OSError when it is missing or of another size."""
        with open(self.path(name), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != nbytes:
                raise OSError(f"{self.path(name)} has {size} bytes, expected {nbytes}")
            mapped = mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_READ)
            self._mapped[mapped] = name
            return memoryview(mapped)

    def remove(self, names: Iterable[str]) -> None:
        """Delete blobs, or make spares of them; one that is gone already is fine."""
        for name in names:
            path, spare = self.path(name), self._folder / f".{name}.spare"
            with contextlib.suppress(FileNotFoundError):
                # Somebody may still read it here, or have it in a copy of this folder that is made of links.
                if name in self._mapped.values() or os.stat(path).st_nlink > 1:
                    path.unlink()
                else:
                    set_aside(path, spare)
                    self._spares[_kind(name)].append(spare)

    def drop_spares(self) -> None:
        """Delete them."""
        for kind in list(self._spares):
            while (spare := self._spare(kind)) is not None:
                spare.unlink(missing_ok=True)

    def _spare(self, kind: str) -> Path | None:
        """It is the caller's; None: there is none."""
        try:
            return self._spares[kind].pop()
        except IndexError:
            return None

    def sweep(self, keep: Set[str]) -> None:
        """Delete everything that no row names: torn temporaries, spares, blobs whose row never came or was pruned."""
        for path in self._folder.iterdir():
            if path.name not in keep:
                path.unlink()


def _kind(name: str) -> str:
    return name.rpartition("-")[2]
