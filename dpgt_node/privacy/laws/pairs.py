"""Keys that two agents share, and the streams that they draw the same noise from.

K_ij,k is the key of the pair i, j for round k; K_ij,0 is agreed on before the run.  Each gives, by HKDF-Expand with
SHA-256 and separate labels, the key of the next round and the AES-128-CTR stream of its own.  So whoever gets hold of a
key learns nothing of the rounds before it, provided that the keys before it were erased.

Pure: keys are handed in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final, Protocol

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from dpgt_node.errors import Broken
from dpgt_node.privacy.laws.keystream import KEY_BYTES, NONCE_BYTES, CtrStream, test_secret

PAIR_KEY_BYTES: Final = 32


class PairKeys(Protocol):
    """The keys of one agent."""

    def key(self, partner: int, k: int) -> bytes:
        """K_ij,k, 32 bytes, for 0-based agent j = ``partner``.  Raises Broken once it was erased."""
        ...


def ratchet(key: bytes) -> bytes:
    """K_ij,k+1 of K_ij,k."""
    return _expand(key, b"dpgt pair next", PAIR_KEY_BYTES)


def pair_stream(key: bytes) -> CtrStream:
    """The stream of K_ij,k, at its beginning: the same bytes at both ends."""
    drawn = _expand(key, b"dpgt pair stream", KEY_BYTES + NONCE_BYTES)
    return CtrStream(drawn[:KEY_BYTES], drawn[KEY_BYTES:])


class Ratchet:
    """Keys that only go forward: what is before ``k`` cannot be had again.  Not for concurrent use.

    ``keys``: K_ij,k by 0-based partner.
    """

    __slots__ = ("_k", "_keys")

    def __init__(self, keys: Mapping[int, bytes], k: int = 0) -> None:
        if any(len(key) != PAIR_KEY_BYTES for key in keys.values()):
            raise ValueError(f"the key of a pair has {PAIR_KEY_BYTES} bytes")
        self._keys, self._k = dict(keys), k

    def key(self, partner: int, k: int) -> bytes:
        """See :class:`PairKeys`.  Nothing is erased by asking: a round that was not stored is drawn again."""
        if k < self._k:
            raise Broken(f"the keys of round {k} were erased")
        key = self._keys[partner]
        for _ in range(k - self._k):
            key = ratchet(key)
        return key

    def keys_of(self, k: int) -> dict[int, bytes]:
        """What to store for a start at round ``k``, by partner."""
        return {partner: self.key(partner, k) for partner in self._keys}

    def erase_before(self, k: int) -> None:
        """Go on to the keys of round ``k``; those before it are gone from this object."""
        self._keys, self._k = self.keys_of(k), k


class TestPairKeys:
    """``--test-keystream HEX``: the same keys in every process, for tests that compare bits; no privacy at all.

    K_ij,k is SHA-256(bytes.fromhex(HEX) + b"|pair|<i>|<j>|<k>") with i < j, 0-based, in decimal.  Raises ConfigError as
    ``TestKeystream`` does.
    """

    __test__ = False
    __slots__ = ("_agent", "_secret")

    def __init__(self, hex_digits: str, agent: int) -> None:
        self._secret, self._agent = test_secret(hex_digits), agent

    def key(self, partner: int, k: int) -> bytes:
        """See :class:`PairKeys`; nothing is ever erased."""
        i, j = sorted((self._agent, partner))
        return hashlib.sha256(self._secret + f"|pair|{i}|{j}|{k}".encode("ascii")).digest()


def _expand(key: bytes, label: bytes, length: int) -> bytes:
    return HKDFExpand(algorithm=SHA256(), length=length, info=label).derive(key)
