"""Payloads and checkpoints as files beside the database."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Set
from pathlib import Path

from dpgt_node.durable import Durability, make_folder, write_whole


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
