"""Unbiased rounding to a grid, with randomness that everybody may know.

The uniform numbers of an agent's round follow from what the run file says of the recursion, so they are the same after
a crash and in every simulator.  They hide nothing: only what was perturbed before is rounded.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from dpgt_node.algo.methods.base import Pick
from dpgt_node.config.emit import document, pieces
from dpgt_node.config.model import RunConfig
from dpgt_node.types import F64
from dpgt_node.values import dataclass

_TABLES = ("algorithm", "scheme", "noise", "graph", "method")
"""Of a run file: not where its data lie or how it is carried, which differ between a launch and its simulation."""


def seed(run: RunConfig) -> bytes:
    """SHA-256 of these tables as canonical JSON."""
    tables = {name: table for name, table in document(run).items() if name in _TABLES}
    return hashlib.sha256("".join(pieces(tables)).encode("ascii")).digest()


class Rounding:
    """Q(v) = step (floor(v/step) + [u < v/step - floor(v/step)]), u uniform: E Q(v) = v, variance at most step^2/4.

    At the agents (of ``n``) that ``pick`` picks; ``step`` 0.0 leaves v as it is.
    """

    def __init__(self, run: RunConfig, n: int, pick: Pick[Any], step: float) -> None:
        self._seed, self.step = seed(run), step
        self._agents = [int(i) for i in np.ravel(pick(np.arange(n, dtype=np.float64)))]

    def uniforms(self, k: int, d: int) -> F64:
        """Of round ``k``, float64 (agents, d) in [0, 1): the upper 53 bits of each 8 bytes, little-endian, of
        AES-128-CTR from block zero under the key ``SHA-256(seed + b"|<agent>|<k>|rounding")[:16]``.
        """
        # Here, so that an adversary that knows every method loads nothing that draws.
        from dpgt_node.privacy.laws.keystream import KEY_BYTES, NONCE_BYTES, CtrStream

        drawn = np.empty((len(self._agents), d))
        for row, agent in zip(drawn, self._agents, strict=True):
            key = hashlib.sha256(self._seed + f"|{agent}|{k}|rounding".encode("ascii")).digest()[:KEY_BYTES]
            words = np.frombuffer(CtrStream(key, bytes(NONCE_BYTES)).take(8 * d), dtype="<u8")
            row[:] = (words >> np.uint64(11)) * 2.0**-53
        return drawn

    def __call__(self, k: int, values: F64) -> F64:
        """Q of ``values``, (d,) or (n, d), in round ``k``."""
        if self.step == 0.0:
            return values
        scaled = values / self.step
        low = np.floor(scaled)
        up = self.uniforms(k, values.shape[-1]).reshape(values.shape) < scaled - low
        return self.step * (low + up)

    def of(self, k: int) -> Once | None:
        """Q of round ``k``; None where it changes nothing."""
        return Once(self, k) if self.step else None


@dataclass(frozen=True, slots=True)
class Once:
    """Q of round ``k``."""

    rounding: Rounding
    k: int

    def __call__(self, values: F64) -> F64:
        return self.rounding(self.k, values)

    def between(self, sent: F64) -> tuple[F64, F64]:
        """Q(v) = c step where v/step is above c - 1 + u and not above c + u: both times step."""
        step, u = self.rounding.step, self.rounding.uniforms(self.k, sent.shape[-1]).reshape(sent.shape)
        codes = np.rint(sent / step)
        return step * (codes - 1.0 + u), step * (codes + u)
