"""ln of the exact probability of what an agent drew, coordinate by coordinate (docs/explanation/theory-sampler.md).

A sampler returns grid points g (j + 1/2); what goes over the wire is such a point plus a transcript part, rounded.  So
the transcript part is subtracted, the nearest grid point taken, and the probability is that of the sampler's own
integer law.  Where rounding hides which point it was (a float32 wire and large values) or where the values lie on no
such grid (another sampler than the run file's), the continuous density stands in, and the draw says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.types import F64, NoiseLaw, WireDtype

Kind = Literal["exact", "rounded", "foreign"]

_UNIT: Final[dict[WireDtype, float]] = {"float32": 2.0**-24}


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """One vector as the sampler returned it: private part + noise of ``scale``.

    ``kind``: ``exact``, the very grid points; ``rounded``, known to ``error`` (d,); ``foreign``, not on the grid of
    this law and scale.  ``values`` float64 (d,); ``cells`` their j, int64 (d,), meaningless unless ``exact``.
    """

    law: NoiseLaw
    scale: float
    kind: Kind
    values: F64 = field(repr=False)
    cells: npt.NDArray[np.int64] = field(repr=False)
    error: F64 = field(repr=False)


def recover(sent: F64, transcript: F64, scale: float, law: NoiseLaw, dtype: WireDtype, factor: float = 1.0) -> Draw:
    """The draw in ``sent`` = wire rounding of (``factor`` * draw + ``transcript``); ``scale`` > 0."""
    values = sent - transcript
    bound = (
        _UNIT.get(dtype, 2.0**-53) * np.abs(sent)
        + 2.0**-52 * (np.abs(sent) + np.abs(transcript) + np.abs(values))
        + 5e-324
    )
    if factor != 1.0:  # one more rounding each, of the product there and of the quotient here
        values, bound = values / factor, (bound + 2.0**-52 * np.abs(values)) / abs(factor)
    g = LAWS[law].cell(scale)
    at = np.rint(values / g - 0.5)
    points = (at + 0.5) * g
    if (bound >= 0.5 * g).any():
        return Draw(law, scale, "rounded", values, np.zeros(values.size, dtype=np.int64), bound)
    if (np.abs(values - points) > bound + 2.0**-50 * np.abs(points)).any():
        return Draw(law, scale, "foreign", values, np.zeros(values.size, dtype=np.int64), bound)
    return Draw(law, scale, "exact", points, at.astype(np.int64), np.zeros(values.size))


def log_probability(draw: Draw, private: F64) -> F64:
    """ln P(draw | private part), float64 (d,); up to a constant of the draw where the density stands in."""
    if draw.kind == "exact":
        return LAWS[draw.law].log_cells(draw.cells, private, draw.scale)
    return LAWS[draw.law].log_density((draw.values - private) / draw.scale)


def doubt(draw: Draw, first: F64, second: F64) -> F64:
    """How far the ln of the ratio of both worlds' probabilities may be off for what rounding hides: float64 (d,)."""
    return LAWS[draw.law].doubt(draw.error / draw.scale, np.abs(first - second) / draw.scale)
