"""The few words that every package shares.  Imports nothing of ours but ``values``."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dpgt_node.values import dataclass

F64 = npt.NDArray[np.float64]
"""Vectors of the algorithm, float64."""
Floats = npt.NDArray[np.float64] | npt.NDArray[np.float32]
"""Values as they crossed the wire, each of which a float64 holds to the last bit."""
I64 = npt.NDArray[np.int64]
"""Indices and labels, int64."""

Stream = Literal["X", "Y"]
"""What an agent sends in a round, by the paper's names: x̆ (X) and y̆ (Y)."""
STREAMS: tuple[Stream, Stream] = ("X", "Y")

WireDtype = Literal["float64", "float32", "int8", "int16", "int32"]
"""The format of a vector's values on the wire and in the store."""

NoiseLaw = Literal["laplace", "gaussian"]
"""The distribution of the noise."""

_INTEGERS: tuple[WireDtype, ...] = ("int8", "int16", "int32")


@dataclass(frozen=True, slots=True)
class Codes:
    """Integers ``low``..``high`` that cross the wire and stand for the numbers ``offset + step * code``.

    ValueError: an empty range, one beyond 32 bits, or a step that is not positive and finite.
    """

    step: float
    offset: float
    low: int
    high: int

    def __post_init__(self) -> None:
        if not -(1 << 31) <= self.low <= self.high < 1 << 31:
            raise ValueError(f"codes from {self.low} to {self.high} do not fit into 32 bits")
        if not (0.0 < self.step < float("inf") and abs(self.offset) < float("inf")):
            raise ValueError(f"no codes with step {self.step} and offset {self.offset}")

    @property
    def dtype(self) -> WireDtype:
        """The narrowest integers that hold the range."""
        for name in _INTEGERS:
            if np.iinfo(name).min <= self.low and self.high <= np.iinfo(name).max:
                return name
        raise AssertionError("the range was checked")

    def values(self, codes: npt.NDArray[Any]) -> F64:
        """What ``codes`` stand for, float64; NaN stays NaN."""
        values: F64 = np.multiply(codes, self.step, dtype=np.float64)
        values += self.offset
        return values

    def nearest(self, values: F64) -> F64:
        """The codes nearest to ``values``, as float64 whole numbers, which may lie outside the range."""
        found: F64 = np.rint((values - self.offset) / self.step)
        return found
