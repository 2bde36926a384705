"""The files that a process proves itself with: where they lie, when they change, and who may read the key."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from dpgt_node.values import dataclass

CA_FILE, CERT_FILE, KEY_FILE, CRL_FILE = "ca.pem", "cert.pem", "key.pem", "crl.pem"
Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class Files:
    """Where the PEM files lie.  A revocation list is optional: ``crl.pem`` beside the CA's file."""

    ca: Path
    cert: Path
    key: Path

    @classmethod
    def of(cls, folder: Path) -> Files:
        return cls(folder / CA_FILE, folder / CERT_FILE, folder / KEY_FILE)

    @property
    def crl(self) -> Path:
        return self.ca.with_name(CRL_FILE)

    def stamp(self) -> Stamp:
        """Changes whenever a file is replaced or written."""
        found: list[tuple[int, int, int] | None] = []
        for path in (self.ca, self.cert, self.key, self.crl):
            try:
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, status.st_ino))
            except OSError:
                found.append(None)
        return tuple(found)


def key_mode_problem(key: Path) -> tuple[str, str] | None:
    """Why the permissions of a private key are too open, as ssh judges it, and what to do; None when they are not.

    A key of another user's (a mounted secret) may be readable by a group, never by everybody.
    """
    try:
        status = key.stat()
    except OSError:
        return None  # named as unreadable elsewhere
    mode = stat.S_IMODE(status.st_mode)
    forbidden = 0o077 if status.st_uid == os.geteuid() else 0o007
    if not mode & forbidden:
        return None
    how = f"chmod 600 {key}"
    with contextlib.suppress(OSError):
        if os.statvfs(key).f_flag & os.ST_RDONLY:  # a mounted secret
            how = (
                "it lies on a read-only mount, where chmod cannot help: mount it with defaultMode: 0400, and runAsUser "
                "the owner of the files; where an fsGroup opens them to a group, runAsUser somebody else"
            )
    return f"can be read or written by others (mode {mode:04o})", f"{how}; renew it if others were there"
