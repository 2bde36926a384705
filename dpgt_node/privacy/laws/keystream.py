"""AES-128-CTR keystreams: the only source of an agent's randomness (noise and batches alike).

Pure: the key bytes are handed in.  The daemon takes them from the system's entropy once, at process start; they are
never derived from a configuration, a run id or a checkpoint, and they are never stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpgt_node.errors import ConfigError
from dpgt_node.privacy.laws.noise import ByteStream, Purpose

KEY_BYTES = 16
NONCE_BYTES = 16
_ZEROS = bytes(1 << 17)
_ZEROS_VIEW = memoryview(_ZEROS)


class CtrStream:
    """One AES-128-CTR stream, consumed in order; ``nonce`` is the initial 128-bit counter block.

    Not for concurrent use.  The representation shows neither key nor position.
    """

    __slots__ = ("_update", "_update_into")

    def __init__(self, key: bytes, nonce: bytes) -> None:
        if len(key) != KEY_BYTES or len(nonce) != NONCE_BYTES:
            raise ValueError(f"AES-128-CTR needs {KEY_BYTES} key and {NONCE_BYTES} nonce bytes")
        encryptor = Cipher(algorithms.AES(key), modes.CTR(nonce)).encryptor()
        self._update, self._update_into = encryptor.update, encryptor.update_into

    def take(self, nbytes: int) -> bytes:
        """The next ``nbytes`` (>= 0) uniform bytes."""
        return self._update(_ZEROS_VIEW[:nbytes] if nbytes <= len(_ZEROS) else bytes(nbytes))

    def read_into(self, buffer: npt.NDArray[np.uint8], nbytes: int) -> None:
        """The next ``nbytes`` into the beginning of ``buffer``, uint8, which must have 15 bytes more to scribble on.

        The same bytes as ``take``, without a new object for each piece.
        """
        for start in range(0, nbytes, len(_ZEROS)):
            size = min(nbytes - start, len(_ZEROS))
            self._update_into(_ZEROS_VIEW[:size], buffer.data[start:])


class AesCtrKeystream:
    """Production: every ``(k, purpose)`` continues ONE stream, so no byte is ever produced twice.

    ``key``, ``nonce``: 16 bytes each from the system's entropy, fresh for every process.  After a fork parent and child
    would both go on with the same bytes, and the difference of two releases under the same noise is the difference of
    the private values.  With ``process`` (for example ``os.getpid``) the stream notices, at every piece it hands out,
    that it runs in another process, and continues under a key and nonce from ``rekey``; both or neither must be given.
    """

    __slots__ = ("_stream",)

    def __init__(
        self,
        key: bytes,
        nonce: bytes,
        *,
        rekey: Callable[[], tuple[bytes, bytes]] | None = None,
        process: Callable[[], int] | None = None,
    ) -> None:
        if (rekey is None) != (process is None):
            raise ValueError("rekey and process belong together")
        self._stream: CtrStream | _ForkGuard = CtrStream(key, nonce)
        if rekey is not None and process is not None:
            self._stream = _ForkGuard(self._stream, rekey, process)

    def stream(self, k: int, purpose: Purpose) -> ByteStream:
        """The one continuous stream; ``k`` and ``purpose`` are ignored on purpose."""
        return self._stream


class _ForkGuard:
    """A CtrStream that starts afresh in another process, however long ago it was handed out."""

    __slots__ = ("_held", "_inner", "_owner", "_process", "_rekey")

    def __init__(self, inner: CtrStream, rekey: Callable[[], tuple[bytes, bytes]], process: Callable[[], int]) -> None:
        self._inner, self._rekey, self._process = inner, rekey, process
        self._owner = process()
        self._held: dict[int, Any] = {}

    def held(self) -> dict[int, Any]:
        """A place for what was made of this stream's bytes and is used later; empty where another process goes on."""
        self._mine()
        return self._held

    def take(self, nbytes: int) -> bytes:
        return self._mine().take(nbytes)

    def read_into(self, buffer: npt.NDArray[np.uint8], nbytes: int) -> None:
        self._mine().read_into(buffer, nbytes)

    def _mine(self) -> CtrStream:
        process = self._process()
        if process != self._owner:
            self._inner, self._owner, self._held = CtrStream(*self._rekey()), process, {}
        return self._inner


def test_secret(hex_digits: str) -> bytes:
    """What ``--test-keystream`` gives: ConfigError unless it is an even number (>= 2) of hexadecimal digits."""
    try:
        secret = bytes.fromhex(hex_digits)
    except ValueError:
        secret = b""
    if not secret:
        raise ConfigError.one(
            "command line", "--test-keystream", "needs an even number of hexadecimal digits, for example 00ff"
        )
    return secret


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
        self._secret, self._agent = test_secret(hex_digits), agent

    def stream(self, k: int, purpose: Purpose) -> ByteStream:
        """A fresh stream object for ``(k, purpose)``, at its beginning."""
        label = f"|{self._agent}|{k}|{purpose}".encode("ascii")
        return CtrStream(hashlib.sha256(self._secret + label).digest()[:KEY_BYTES], bytes(NONCE_BYTES))
