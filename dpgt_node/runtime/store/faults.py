"""What a disk or SQLite refused, in one line: where, what, the cause, and what to do about it."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from dpgt_node.errors import DpgtError, StoreError

_FULL = "the disk is full: free some space, then start the same command again"
_READ_ONLY = "the file system is read-only: mount it writable, then start the same command again"
_DENIED = "this user may not write there: change its owner or mode, then start the same command again"
_FILES = "too many open files: raise the limit (ulimit -n, LimitNOFILE=), then start the same command again"
_FAILING = "the disk fails: look at the system's log, and move the state directory as it is to a sound disk"
DAMAGED = (
    "the state directory is damaged: put back the newest copy (an older one is found out and refused), or start a new "
    "run with an empty state_dir and keep this one, whose ledger says what was spent"
)
_ERRNO = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EIO: _FAILING,
    errno.EFBIG: "the limit on the size of files is too low (ulimit -f)",
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.ENOENT: DAMAGED,
    errno.ENOTDIR: "a part of this path is a file: give state_dir another path",
    errno.ELOOP: "this path is a loop of links: give state_dir another path",
}
_IOERR = (
    "the disk is full or fails, or the limit on the size of files is too low (ulimit -f): make sure of room and "
    "health, then start the same command again"
)
_SQLITE = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _DENIED,
    sqlite3.SQLITE_CANTOPEN: f"{_DENIED}; or the limit on open files is too low (ulimit -n)",
    sqlite3.SQLITE_IOERR: _IOERR,
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: DAMAGED,
    sqlite3.SQLITE_ERROR: DAMAGED,
    sqlite3.SQLITE_MISMATCH: DAMAGED,
    sqlite3.SQLITE_BUSY: "another program holds the database: end it, then start the same command again",
    sqlite3.SQLITE_LOCKED: "another program holds the database: end it, then start the same command again",
}


def remedy(error: OSError | sqlite3.Error) -> str:
    """What the operator can do about ``error``."""
    if isinstance(error, OSError):
        return _ERRNO.get(error.errno or 0, _FAILING)
    code = getattr(error, "sqlite_errorcode", None)
    return DAMAGED if code is None else _SQLITE.get(code & 0xFF, _FAILING)


@contextlib.contextmanager
def blamed(where: Path, what: str) -> Iterator[None]:
    """Whatever the file system or SQLite refuses, or does not understand, is the operator's to mend.

    Errors of a broken invariant pass; what only bytes changed under us can cause (a row that is no text, a number out
    of range) is a StoreError.
    """
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        words = " ".join(str(error).split())  # SQLite quotes the schema, line breaks and all
        raise StoreError(f"{where}: {what}: {words}; {remedy(error)}") from error
    except DpgtError:
        raise
    except (UnicodeError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise StoreError(f"{where}: {what}: {type(error).__name__} in what is stored; {DAMAGED}") from error
