"""The two small interfaces that keep entropy and sampling replaceable.

Pure: bytes come in through a :class:`Keystream`; nothing here reads a clock, a file or the system's entropy.
"""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
Purpose = Literal["batch", "X", "Y"]


class ByteStream(Protocol):
    """Uniform pseudo-random bytes, consumed in order."""

    def take(self, nbytes: int) -> bytes:
        """The next ``nbytes`` bytes of the stream."""
        ...


class Keystream(Protocol):
    """Hands out the randomness of one agent.

    In production every call continues one AES-CTR stream keyed from the system's entropy, so the same
    ``(k, purpose)`` never gives the same bytes twice.  Under ``--test-keystream`` each ``(k, purpose)`` has its
    own stream, so draws do not depend on order, process or restart.
    """

    def stream(self, k: int, purpose: Purpose) -> ByteStream:
        """The bytes for round ``k`` (0..K+1) and ``purpose``."""
        ...


class Sampler(Protocol):
    """Adds privacy noise to the private part of a vector (privacy.md, section 6)."""

    def perturb(self, private: F64, scale: float, stream: ByteStream) -> F64:
        """``private + noise``: float64, the same shape (d,), each coordinate's noise independent.

        ``scale`` > 0 is the Laplace scale (pdf exp(-|x|/s)/(2s)).  Returns a new array.
        """
        ...
