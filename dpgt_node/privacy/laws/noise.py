"""The two small interfaces that keep entropy and sampling replaceable.

Pure: bytes come in through a :class:`Keystream`; nothing here reads a clock, a file or the system's entropy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from dpgt_node.types import F64

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
    """Adds privacy noise to the private part of a vector (privacy.md, section 6).

    ``clipped``: how many coordinates so far lay beyond ``range`` and were clipped.  It depends on private values: for
    studies only, never released.
    """

    clipped: int

    def perturb(self, private: F64, scale: float, stream: ByteStream) -> F64:
        """``private + noise``: float64, the same shape (d,), each coordinate's noise independent.

        ``scale`` > 0 is the Laplace scale (pdf exp(-|x|/s)/(2s)), or the standard deviation under the Gaussian law.
        Returns a new array.
        """
        ...

    def lam(self, dimension: int, scale: float, norm: float | None = None) -> float:
        """What the arithmetic of drawing may add to the cost of one release beyond its shift / ``scale``, rounded up.

        ``norm``: a bound on the L1 norm of the private part, in both worlds.  inf: no bound holds.
        """
        ...

    def range(self, scale: float) -> float:
        """The largest absolute value of a private coordinate that is not clipped."""
        ...


Shared = tuple[int, ByteStream]
"""The sign, 1 or -1, with which an end of a pair takes the noise of their stream."""
SharedPair = tuple[int, int, ByteStream]
"""Rows i < j of a matrix, and the stream that they share: row i adds, row j subtracts."""


@runtime_checkable
class CancellingSampler(Sampler, Protocol):
    """A sampler that draws noise which pairs of agents share, and which cancels in their sum to the last bit."""

    def perturb_shared(self, private: F64, scale: float, stream: ByteStream, shared: Sequence[Shared], r: int) -> F64:
        """``perturb`` with the noise of every shared stream besides, of ``r`` times ``scale``."""
        ...

    def perturb_pairs(
        self, private: F64, scale: float, streams: Sequence[ByteStream], pairs: Sequence[SharedPair], r: int
    ) -> F64:
        """Row i is ``perturb_shared`` of row i of ``private`` (n, d), to the bit; every shared stream is read once."""
        ...


class SoundSampler(Sampler, Protocol):
    """A sampler whose bits are those of its law to the last one, and which draws many short vectors in one pass."""

    def perturb_rows(self, private: F64, scales: F64, streams: Sequence[ByteStream]) -> F64:
        """Row i is ``perturb(private[i], scales[i], streams[i])``, to the bit; ``private`` (n, d), ``scales`` (n,).

        d is at most ``laws.sampler.CHUNK``.
        """
        ...
