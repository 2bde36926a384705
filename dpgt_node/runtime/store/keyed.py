"""A signature under the ledger's head, with a key that its owner keeps apart from the state directory.

The chain alone finds accidents: whoever can write to the directory can change a row and compute every later head anew.
With a key, the database holds an HMAC of the newest head, renewed in the transaction of every round.  Who changes rows
and has no key is found; who puts back a whole older directory, or empties it, is not, because that was signed once.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import sqlite3
from pathlib import Path

from dpgt_node.errors import ConfigError
from dpgt_node.runtime.store.ledger import DATABASE, NO_HEAD, Ledger, LedgerBroken, look_on, select_ledger
from dpgt_node.runtime.trust.files import key_mode_problem

LEAST_BYTES = 32
_ANOTHER = "if the owner changed keys: dpgt ledger STATE_DIR --key FILE --sign, once the head was checked otherwise"


class OwnerKey:
    """What the owner of a state directory signs heads with."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.known_by = self._mac(b"dpgt ledger key\n")[:8]
        """Tells keys apart, and nothing of the key itself."""

    @classmethod
    def read(cls, path: Path, state_dir: Path) -> OwnerKey:
        """The key in the file.  ConfigError: it cannot be read, is too short or open to others, or lies in
        ``state_dir``, where whoever can change the ledger has it too.
        """
        opened = key_mode_problem(path)
        problem = None if opened is None else ": ".join(opened)
        try:
            secret = path.read_bytes().strip()
        except OSError as error:
            raise ConfigError.one(str(path), "", f"the ledger's key cannot be read: {error.strerror}") from error
        if problem is None and len(secret) < LEAST_BYTES:
            make = f"openssl rand -hex 32 > {path}"
            problem = f"the ledger's key has {len(secret)} bytes, {LEAST_BYTES} at least are needed: {make}"
        if path.resolve().is_relative_to(state_dir.resolve()):
            problem = f"the ledger's key lies in {state_dir}: keep it where who can change the ledger cannot read it"
        if problem is not None:
            raise ConfigError.one(str(path), "", problem)
        return cls(secret)

    def sign(self, db: sqlite3.Connection, head: bytes) -> None:
        """Put the signature of ``head`` in place of the one before."""
        db.execute("INSERT OR REPLACE INTO signature VALUES (1, ?, ?)", (self.known_by, self._of(head)))

    def _of(self, head: bytes) -> bytes:
        return self._mac(b"dpgt ledger head\n" + head)

    def _mac(self, text: bytes) -> bytes:
        return hmac.digest(self._secret, text, hashlib.sha256)

    def signed(self, head: bytes, signature: bytes) -> bool:
        """Whether ``signature`` is this key's of ``head``."""
        return hmac.compare_digest(self._of(head), signature)


def check(db: sqlite3.Connection, head: bytes, key: OwnerKey | None, where: Path) -> None:
    """LedgerBroken: ``head`` has no signature of ``key``; an empty ledger needs none.  ConfigError: it has one, and
    there is no key to renew it with.
    """
    found = None
    with contextlib.suppress(sqlite3.OperationalError):  # an older version: nothing is signed
        found = db.execute("SELECT key, hmac FROM signature").fetchone()
    if key is None:
        if found is not None:
            message = 'the ledger is signed with its owner\'s key: name it in NODE.toml, ledger_key = "FILE"'
            raise ConfigError.one(str(where), "", message)
    elif found is None:
        if head != NO_HEAD:
            raise LedgerBroken(
                f"{where}: nobody signed this ledger: it was written without the key, or its signature was taken out; "
                "if it began before there was a key: dpgt ledger STATE_DIR --key FILE --sign"
            )
    elif found[0] != key.known_by:
        raise LedgerBroken(f"{where}: the ledger is signed with another key; {_ANOTHER}")
    elif not key.signed(head, found[1]):
        raise LedgerBroken(f"{where}: the chain is whole, but its head was not signed with this key: rows were forged")


def read_signed(state_dir: Path, key: OwnerKey) -> Ledger:
    """The ledger of a state directory, its head signed with ``key``, also while an agent writes to it.

    StoreError, LedgerBroken: there is none, it is bad, or nobody who has the key wrote it.
    """
    where = state_dir / DATABASE

    def look(db: sqlite3.Connection) -> Ledger:
        found = select_ledger(db, None, where)
        check(db, found.head, key, where)
        return found

    return look_on(state_dir, look)
