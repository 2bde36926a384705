"""A disk that keeps what was fsynced and nothing else; as a program it commits rounds and cuts the power now and then.

    python -m tests.runtime.store.power_cut WORK IMAGES DURABILITY DIMENSION ROUNDS SEED

Model: a file's bytes are those of its last fsync, a folder's names those of its last fsync, everything else is lost.
SQLite's own syncs are seen through a VFS that passes everything on to the usual one; where its library cannot be
reached (linked in, symbols hidden), its documented promise is taken instead: a COMMIT under synchronous = FULL has
synced the log.  Each image is named by the last round whose commit had returned.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import os
import random
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpgt_node.runtime.store.ledger import DATABASE
from dpgt_node.runtime.store.store import Store
from tests.runtime.store.records import BESIDE, RUN, SHA, TERMS, record, state

POINTER = ctypes.c_void_p


class _Vfs(ctypes.Structure):
    _fields_ = [
        ("iVersion", ctypes.c_int), ("szOsFile", ctypes.c_int), ("mxPathname", ctypes.c_int), ("pNext", POINTER),
        ("zName", ctypes.c_char_p), ("pAppData", POINTER), ("xOpen", POINTER), ("rest", POINTER * 15),
    ]  # fmt: skip


class _Methods(ctypes.Structure):
    _fields_ = [
        ("iVersion", ctypes.c_int), ("xClose", POINTER), ("xRead", POINTER), ("xWrite", POINTER),
        ("xTruncate", POINTER), ("xSync", POINTER), ("rest", POINTER * 13),
    ]  # fmt: skip


class _File(ctypes.Structure):
    _fields_ = [("pMethods", ctypes.POINTER(_Methods))]


# The name goes through as the pointer it is: SQLite reads on behind its end, and keeps it as long as the file is open.
OPEN = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER, ctypes.POINTER(_File), ctypes.c_int, POINTER)
SYNC = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_File), ctypes.c_int)


def watch_sqlite(synced: Callable[[str], None]) -> list[object] | None:
    """``synced(path)`` after every xSync of SQLite in this process; the objects to keep alive.  None: out of reach."""
    try:
        library = ctypes.CDLL(_sqlite3.__file__)
        library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        usual = library.sqlite3_vfs_find(None).contents
    except (AttributeError, OSError, ValueError):
        return None
    ours = _Vfs()
    ctypes.memmove(ctypes.byref(ours), ctypes.byref(usual), ctypes.sizeof(_Vfs))
    ours.zName = b"watched"
    usual_open = ctypes.cast(usual.xOpen, OPEN)
    tables: dict[int, _Methods] = {}
    paths: dict[int, str] = {}
    keep: list[object] = [ours, tables]

    def table(old: Any) -> _Methods:
        key = ctypes.addressof(old.contents)
        if key not in tables:
            new = tables[key] = _Methods()
            ctypes.memmove(ctypes.byref(new), ctypes.byref(old.contents), ctypes.sizeof(_Methods))
            usual_sync = ctypes.cast(old.contents.xSync, SYNC)

            @SYNC
            def sync(file: Any, flags: int) -> int:
                done = int(usual_sync(file, flags))
                synced(paths[ctypes.addressof(file.contents)])
                return done

            new.xSync = ctypes.cast(sync, POINTER)
            keep.append(sync)
        return tables[key]

    @OPEN
    def open_(vfs: int, name: int | None, file: Any, flags: int, out: int | None) -> int:
        done = int(usual_open(vfs, name, file, flags, out))
        if done == 0 and name and file.contents.pMethods:
            paths[ctypes.addressof(file.contents)] = ctypes.string_at(name).decode()
            file.contents.pMethods = ctypes.pointer(table(file.contents.pMethods))
        return done

    ours.xOpen = ctypes.cast(open_, POINTER)
    keep.append(open_)
    assert library.sqlite3_vfs_register(ctypes.byref(ours), 1) == 0
    return keep


class Disk:
    """What a power cut would leave of ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bytes: dict[int, bytes] = {}
        self.names: dict[str, dict[str, tuple[int, bool]]] = {}
        self.events = 0
        self.after_event: Callable[[], None] = lambda: None
        self._fsync = os.fsync
        os.fsync = self.fsync  # type: ignore[assignment]

    def fsync(self, descriptor: int) -> None:
        """In place of ``os.fsync``."""
        self._fsync(descriptor)
        self.synced(os.readlink(f"/proc/self/fd/{descriptor}"))

    def synced(self, path: str) -> None:
        """A file or folder is on disk as it is now."""
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            entries = {e.name: (e.inode(), e.is_dir()) for e in os.scandir(path)}
            self.names[path] = entries
        else:
            self.bytes[found.st_ino] = Path(path).read_bytes()
        self.events += 1
        self.after_event()

    def image(self, target: Path, folder: str | None = None) -> None:
        """Write what is left to ``target``."""
        target.mkdir(parents=True)
        place = str(self.root) if folder is None else folder
        for name, (inode, is_folder) in self.names.get(place, {}).items():
            if is_folder:
                self.image(target / name, f"{place}/{name}")
            elif not name.endswith("-shm"):  # SQLite makes it anew
                (target / name).write_bytes(self.bytes.get(inode, b""))


def main() -> None:
    root, images, durability, d, rounds, seed = (
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        sys.argv[3],
        *map(int, sys.argv[4:]),
    )
    chance = random.Random(seed)
    disk = Disk(root)
    seen = watch_sqlite(disk.synced)
    reported = -1

    def cut() -> None:
        if chance.random() < 0.12:
            disk.image(images / f"{disk.events:05d}:{reported}")

    disk.after_event = cut
    place = root / "deep" / "state"
    store = Store(place, durability)  # type: ignore[arg-type]
    store.begin_run(RUN, SHA, "agent-1", TERMS)
    for k in range(rounds):
        beside = d > BESIDE and k > 0
        store.commit_round(RUN, record(k, d, checkpoint=k % 4 == 0 and not beside))
        if k % 4 == 0 and beside:  # as a driver does with large ones, but for the threads
            store.keep_state(RUN, store.write_state(RUN, state(k, d)))
        if seen is None and durability == "power":
            disk.synced(str(place / f"{DATABASE}-wal"))
        reported = k
        store.prune(RUN, k - 6)
        if k == rounds // 2:  # a clean restart in between
            store.close()
            store = Store(place, durability)  # type: ignore[arg-type]
            store.begin_run(RUN, SHA, "agent-1", TERMS)
    if not (images / f"{disk.events:05d}:{reported}").exists():
        disk.image(images / f"{disk.events:05d}:{reported}")
    disk.after_event = lambda: None
    store.close()  # a connection that syncs while the interpreter ends would call what is no longer there
    print(f"{disk.events} syncs, {'watched' if seen else 'promised'}")


if __name__ == "__main__":
    main()
