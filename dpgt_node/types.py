"""The few words that every package shares.  Imports nothing of ours."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
"""Vectors of the algorithm, float64."""
I64 = npt.NDArray[np.int64]
"""Indices and labels, int64."""

Stream = Literal["X", "Y"]
"""What an agent sends in a round, by the paper's names: x̆ (X) and y̆ (Y)."""
STREAMS: tuple[Stream, Stream] = ("X", "Y")

WireDtype = Literal["float64", "float32"]
"""The format of a vector's values on the wire and in the store."""

NoiseLaw = Literal["laplace", "gaussian"]
"""The distribution of the noise."""
