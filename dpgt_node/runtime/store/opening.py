"""Opening a state directory: one process at a time, and a database of this version whose structure is whole."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from pathlib import Path

from dpgt_node.durable import Durability, make_folder
from dpgt_node.errors import StoreError
from dpgt_node.runtime.store.faults import DAMAGED
from dpgt_node.runtime.store.limits import LOG_BYTES
from dpgt_node.runtime.store.migrate import bring_up_to_date


def locked(state_dir: Path, durability: Durability) -> int:
    """Make the folder if need be and lock it: the lock's descriptor.  StoreError: it cannot be one, or is in use."""
    if state_dir.is_symlink() and not state_dir.exists():
        raise StoreError(f"{state_dir}: is a link to nothing (is its disk mounted?): mend it, or give another")
    if state_dir.exists() and not state_dir.is_dir():
        raise StoreError(f"{state_dir}: is a file: give state_dir the path of a folder")
    make_folder(state_dir, durability)
    lock = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise StoreError(
            f"{state_dir}: in use by another process: end it, or give this agent a state_dir of its own"
        ) from None
    except BaseException:
        os.close(lock)
        raise
    return lock


def connected(path: Path, durability: Durability) -> sqlite3.Connection:
    """The database at ``path``, mode 0600, made or brought up to date.  StoreError: damaged, or not ours."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)  # SQLite would make it world-readable
    os.fchmod(file, 0o600)  # a copy that was put back may be
    os.close(file)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'power' else 'OFF'}")
        db.execute("PRAGMA secure_delete = FAST")  # keys of pairs are erased, not only forgotten
        db.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        wrong = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if wrong != "ok":
            raise StoreError(f"{path}: {' '.join(str(wrong).split())}; {DAMAGED}")
        bring_up_to_date(db, path)
        if durability == "power":
            make_folder(path.parent, "power")  # the database's own name
    except BaseException:
        db.close()
        raise
    return db


class Transaction:
    """All that happens in it, or nothing."""

    __slots__ = ("_db",)

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> sqlite3.Connection:
        self._db.execute("BEGIN IMMEDIATE")
        return self._db

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if kind is None:
                self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:  # also when COMMIT failed
                self._db.execute("ROLLBACK")
