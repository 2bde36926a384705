"""The ternary quantiser, drawn like noise: r sign(v) with probability |v|/r, else 0; v clipped to [-r, r].

It is unbiased inside its range.  Its outputs for two inputs differ in total variation by at most the L1 distance of the
inputs over r: clipping and each coordinate's law are 1-Lipschitz in v/r.  A threshold is compared with 53 uniform bits,
so its probability is off by at most 2^-52, and v itself by 2^-53 of r.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dpgt_node.privacy.laws.noise import ByteStream
from dpgt_node.types import F64

NAME: Final = "ternary"
"""What a ledger calls it in place of a law of noise."""
_BITS: Final = 2.0**53


class TernaryQuantiser:
    """A sampler whose scale is r.  ``clipped`` stays 0: what lies beyond r becomes r, as it should."""

    def __init__(self) -> None:
        self.clipped = 0

    def perturb(self, private: F64, scale: float, stream: ByteStream) -> F64:
        """-r, 0 or r for each value of ``private`` (d,), a new array; 8 bytes of ``stream`` each, ``scale`` = r > 0."""
        words = np.frombuffer(stream.take(8 * private.size), dtype="<u8") >> np.uint64(11)
        inside = np.clip(private, -scale, scale)
        hit = words < np.abs(inside) / scale * _BITS
        out: F64 = scale * np.sign(inside) * hit
        return out

    def perturb_rows(self, private: F64, scales: F64, streams: Sequence[ByteStream]) -> F64:
        """Row by row."""
        rows = zip(private, scales.tolist(), streams, strict=True)
        return np.stack([self.perturb(row, scale, stream) for row, scale, stream in rows])

    def lam(self, dimension: int, scale: float, norm: float | None = None) -> float:
        """0.0: it draws no noise, and ``variation`` counts its rounding."""
        return 0.0

    def range(self, scale: float) -> float:
        """No value is refused."""
        return float("inf")
