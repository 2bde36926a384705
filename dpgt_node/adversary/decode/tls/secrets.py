"""Secrets of TLS 1.3 sessions: key logs, and the keys of one direction from record to record (RFC 8446, section 7)."""

from __future__ import annotations

import codecs
import logging
import struct
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from dpgt_node.errors import ConfigError

log = logging.getLogger(__name__)

RECORD_HEADER = 5
_NAMED = 5
_MAX_FOLLOWING = 64
"""Records lost behind a lost change of keys, at most."""
SUITES: Mapping[int, tuple[type[AESGCM | ChaCha20Poly1305], int]] = {
    0x1301: (AESGCM, 16),
    0x1302: (AESGCM, 32),
    0x1303: (ChaCha20Poly1305, 32),
}


def _text(data: bytes) -> str:
    """Of a key log in UTF-8, or in UTF-16 with its mark, which is what a shell of Windows redirects to a file."""
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if wide else "utf-8-sig", "replace")


class KeyLog:
    """Secrets by (label, client random), from a file or from captures that hold them (``add``).

    Whoever writes a key log may be cut off in mid-line, and logs are often joined: ``foreign`` are the numbers, from 1,
    of lines that are no secret.  They are skipped, and said in the log.
    """

    def __init__(self) -> None:
        self.secrets: dict[tuple[str, bytes], bytes] = {}
        self.foreign: tuple[int, ...] = ()

    @classmethod
    def read(cls, path: Path) -> KeyLog:
        """ConfigError for a file that is no key log or holds no TLS 1.3 secret."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConfigError.one("command line", "--keys", f"{path} cannot be read: {error.strerror}") from error
        keys = cls()
        keys.add(data, str(path))
        if keys.foreign and not keys.secrets:
            raise ConfigError.one(
                "command line", "--keys", f"{path} is no key log (lines of LABEL CLIENT_RANDOM SECRET)"
            )
        if not keys.sessions:
            raise ConfigError.one("command line", "--keys", f"{path} holds no secret of a TLS 1.3 session")
        return keys

    @property
    def sessions(self) -> int:
        """Of how many TLS 1.3 sessions there are secrets."""
        return sum(label == "CLIENT_TRAFFIC_SECRET_0" for label, _ in self.secrets)

    def add(self, data: bytes, name: str) -> None:
        """The secrets of one log; ``name`` is for messages."""
        foreign = []
        for number, line in enumerate(_text(data).splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                label, random, secret = line.split()
                self.secrets[label, bytes.fromhex(random)] = bytes.fromhex(secret)
            except ValueError:
                foreign.append(number)
        self.foreign = tuple(foreign)
        if foreign and self.secrets:
            some = ", ".join(map(str, foreign[:_NAMED])) + (", ..." if len(foreign) > _NAMED else "")
            log.warning("%s: %d lines are no secret and are skipped: %s", name, len(foreign), some)


class Keys:
    """Of one direction in one phase."""

    def __init__(self, suite: int, secret: bytes) -> None:
        cipher, size = SUITES[suite]
        self._algorithm = hashes.SHA384() if suite == 0x1302 else hashes.SHA256()
        self._suite = suite
        self._secret = secret
        self._cipher = cipher(self._expand(b"key", size))
        self._iv = int.from_bytes(self._expand(b"iv", 12), "big")

    def _expand(self, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label of RFC 8446, 7.1, without a context."""
        name = b"tls13 " + label
        info = struct.pack(">HB", size, len(name)) + name + b"\0"
        return HKDFExpand(self._algorithm, size, info).derive(self._secret)

    def updated(self) -> Keys:
        """After a key update."""
        return Keys(self._suite, self._expand(b"traffic upd", self._algorithm.digest_size))

    def opened(self, record: memoryview, number: int) -> bytes | None:
        """What the ``number``-th record under these keys holds; None when it is not that one."""
        nonce = (self._iv ^ number).to_bytes(12, "big")
        try:
            return self._cipher.decrypt(nonce, record[RECORD_HEADER:], record[:RECORD_HEADER])
        except InvalidTag:
            return None


class Chain:
    """Where one direction is: its keys now, how many records it has sent under them, and the keys that follow."""

    def __init__(self, suite: int, handshake: bytes | None, application: bytes) -> None:
        self._data = Keys(suite, application)
        self._keys = self._data if handshake is None else Keys(suite, handshake)
        self._number = 0

    def _following(self) -> Keys:
        return self._data if self._keys is not self._data else self._data.updated()

    def open(self, record: memoryview, skipped: int) -> tuple[bytes, int] | None:
        """The plaintext of ``record`` before which at most ``skipped`` records were lost, and how many were."""
        for lost in range(skipped + 1):
            plain = self._keys.opened(record, self._number + lost)
            if plain is not None:
                self._number += lost + 1
                return plain, lost
        if not skipped:
            return None
        following = self._following()  # the message that announced them was in what was lost
        for lost in range(min(skipped, _MAX_FOLLOWING)):
            plain = following.opened(record, lost)
            if plain is not None:
                self._data = self._keys = following
                self._number = lost + 1
                return plain, lost + 1
        return None

    def go_on(self) -> None:
        """The other end was told that the next record has the next keys."""
        self._data = self._keys = self._following()
        self._number = 0

    @property
    def in_handshake(self) -> bool:
        """Whether the keys are still those of the handshake."""
        return self._keys is not self._data
