"""AES-128-CTR keystreams: the only source of an agent's randomness (noise and batches alike).

Pure: the key bytes are handed in.  The daemon takes them from the system's entropy once, at process start; they are
never derived from a configuration, a run id or a checkpoint, and they are never stored.
"""

from __future__ import annotations

import hashlib

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpgt_node.errors import ConfigError
from dpgt_node.privacy.noise import ByteStream, Purpose

KEY_BYTES = 16
NONCE_BYTES = 16
_ZEROS = bytes(1 << 17)
_ZEROS_VIEW = memoryview(_ZEROS)


class CtrStream:
    """One AES-128-CTR stream, consumed in order; ``nonce`` is the initial 128-bit counter block.

    Not for concurrent use.  The representation shows neither key nor position.
    """

    __slots__ = ("_update",)

    def __init__(self, key: bytes, nonce: bytes) -> None:
        if len(key) != KEY_BYTES or len(nonce) != NONCE_BYTES:
            raise ValueError(f"AES-128-CTR needs {KEY_BYTES} key and {NONCE_BYTES} nonce bytes")
        self._update = Cipher(algorithms.AES(key), modes.CTR(nonce)).encryptor().update

    def take(self, nbytes: int) -> bytes:
        """The next ``nbytes`` (>= 0) uniform bytes."""
        return self._update(_ZEROS_VIEW[:nbytes] if nbytes <= len(_ZEROS) else bytes(nbytes))


class AesCtrKeystream:
    """Production: every ``(k, purpose)`` continues ONE stream, so no byte is ever produced twice.

    ``key``, ``nonce``: 16 bytes each from the system's entropy, fresh for every process.  A process that forks must
    build a new keystream in the child: the same object in both would give both the same noise.
    """

    __slots__ = ("_stream",)

    def __init__(self, key: bytes, nonce: bytes) -> None:
        self._stream = CtrStream(key, nonce)

    def stream(self, k: int, purpose: Purpose) -> ByteStream:
        """The one continuous stream; ``k`` and ``purpose`` are ignored on purpose."""
        return self._stream


class TestKeystream:
    """``--test-keystream HEX``: no privacy at all, for tests that compare bits.

    The stream of ``(agent, k, purpose)`` is AES-128-CTR from counter block zero with key
    ``SHA-256(bytes.fromhex(HEX) + b"|<agent>|<k>|<purpose>")[:16]``; agent is the 0-based index, agent and k are in
    decimal, purpose is ``batch``, ``X`` or ``Y``.  Asking twice gives the same bytes from the beginning.

    Raises ConfigError when ``hex_digits`` is not an even number (>= 2) of hexadecimal digits.
    """

    __test__ = False  # not a test case, whatever its name makes a collector think
    __slots__ = ("_agent", "_secret")

    def __init__(self, hex_digits: str, agent: int) -> None:
        try:
            self._secret = bytes.fromhex(hex_digits)
        except ValueError:
            self._secret = b""
        if not self._secret:
            raise ConfigError.one(
                "command line", "--test-keystream", "needs an even number of hexadecimal digits, for example 00ff"
            )
        self._agent = agent

    def stream(self, k: int, purpose: Purpose) -> ByteStream:
        """A fresh stream object for ``(k, purpose)``, at its beginning."""
        label = f"|{self._agent}|{k}|{purpose}".encode("ascii")
        return CtrStream(hashlib.sha256(self._secret + label).digest()[:KEY_BYTES], bytes(NONCE_BYTES))
