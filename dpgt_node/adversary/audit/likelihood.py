"""ln of the probability of what an agent drew, coordinate by coordinate (docs/explanation/theory-sampler.md).

A sampler returns grid points g (j + 1/2); what goes over the wire is such a point plus a transcript part, rounded.  So
the transcript part is subtracted, the nearest grid point taken, and the probability is that of the sampler's own
integer law.  Where rounding hides which point it was (a float32 wire and large values) or where the values lie on no
such grid (another sampler than the run file's), the continuous density stands in, and the draw says so.

What a method sends as integers tells less, and its law is another one: :class:`Interval` where noise is rounded after
it was added, by uniform numbers that everybody knows; :class:`Counted` where a count of coins is the noise;
:class:`Quantised` where a quantiser is.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from dpgt_node.privacy.counts.code import BinomialCode
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.types import F64, NoiseLaw, WireDtype
from dpgt_node.values import dataclass

Kind = Literal["exact", "rounded", "foreign"]

_UNIT: Final[dict[WireDtype, float]] = {"float32": 2.0**-24}
_NEVER: Final = -700.0
"""Stands for ln 0 and all below it: statistics of trials stay finite."""


class Drawn(Protocol):
    """What a transcript tells of one noised vector.

    ``scale``: of the noise, in the units of ``values`` (d,), which is private part + noise as far as it is known.
    """

    @property
    def kind(self) -> Kind: ...

    @property
    def scale(self) -> float: ...

    @property
    def values(self) -> F64: ...

    def log_probability(self, private: F64) -> F64:
        """ln P(this | private part), float64 (d,); up to a constant of the draw where a density stands in."""
        ...

    def doubt(self, first: F64, second: F64) -> F64:
        """How far ln of the ratio of both worlds' probabilities may be off: float64 (d,)."""
        ...


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

    def log_probability(self, private: F64) -> F64:
        """See :class:`Drawn`; the density stands in unless ``exact``."""
        if self.kind == "exact":
            return LAWS[self.law].log_cells(self.cells, private, self.scale)
        return LAWS[self.law].log_density((self.values - private) / self.scale)

    def doubt(self, first: F64, second: F64) -> F64:
        """What the wire's rounding hides."""
        return LAWS[self.law].doubt(self.error / self.scale, np.abs(first - second) / self.scale)


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Private part + noise lies above ``low`` and not above ``high``, float64 (d,) each: no more is told of it."""

    law: NoiseLaw
    scale: float
    low: F64 = field(repr=False)
    high: F64 = field(repr=False)
    kind: Kind = "rounded"

    @property
    def values(self) -> F64:
        """The middle."""
        return 0.5 * (self.low + self.high)

    def log_probability(self, private: F64) -> F64:
        """Of all grid points in between; counted from the side on which they are rare."""
        return np.asarray(np.maximum(np.log(self._probability(private)), _NEVER))

    def doubt(self, first: F64, second: F64) -> F64:
        """What the difference of two distribution functions loses."""
        with np.errstate(divide="ignore"):
            return np.asarray(2.0**-50 / self._probability(first) + 2.0**-50 / self._probability(second))

    def _probability(self, private: F64) -> F64:
        law, g = LAWS[self.law], LAWS[self.law].cell(self.scale)
        # A cell's point is g (cell + 1/2): the first one above each end.
        start, stop = (np.floor(end / g - 0.5).astype(np.int64) + 1 for end in (self.low, self.high))
        above = self.values > private
        lower = np.where(above, -stop, start), np.where(above, -start, stop)
        mirrored = np.where(above, -private, private)
        found = law.below(lower[1], mirrored, self.scale) - law.below(lower[0], mirrored, self.scale)
        return np.asarray(np.maximum(found, 5e-324))


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Codes of a private part with a count of fair coins in each: ``codes``, whole numbers, float64 (d,)."""

    code: BinomialCode
    codes: F64 = field(repr=False)
    kind: Kind = "exact"

    @property
    def scale(self) -> float:
        """Standard deviation of the coins, or a step of the code where there are none."""
        return self.code.scale or self.code.step

    @property
    def values(self) -> F64:
        """What the codes stand for."""
        return self.code.codes.values(self.codes)

    def log_probability(self, private: F64) -> F64:
        """(1 - f) Bin(code - i) + f Bin(code - i - 1) where the private part is i + f steps up from the least code."""
        at = self.code.levelled(private)
        low = np.floor(at)
        part, heads = at - low, self.codes - low
        with np.errstate(divide="ignore"):
            found = np.logaddexp(np.log1p(-part) + self._log_coins(heads), np.log(part) + self._log_coins(heads - 1.0))
        return np.asarray(np.maximum(found, _NEVER))

    def doubt(self, first: F64, second: F64) -> F64:
        """Logarithms of factorials of so many coins."""
        return np.full(self.codes.shape, 2.0**-44 * (self.code.trials + 16.0))

    def _log_coins(self, heads: F64) -> F64:
        from scipy.special import gammaln

        n = self.code.trials
        inside = (heads >= 0.0) & (heads <= n)
        k = np.where(inside, heads, 0.0)
        log = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0) - n * np.log(2.0)
        return np.where(inside, log, -np.inf)


@dataclass(frozen=True, slots=True, eq=False)
class Quantised:
    """-``scale``, 0 or ``scale`` in place of the private part, float64 (d,): no noise besides."""

    scale: float
    values: F64 = field(repr=False)
    kind: Kind = "exact"

    def log_probability(self, private: F64) -> F64:
        """|x|/r with the sign of x, else 0; x clipped to +-r."""
        part = np.clip(private / self.scale, -1.0, 1.0)
        p = np.where(self.values == 0.0, 1.0 - np.abs(part), np.maximum(np.sign(self.values) * part, 0.0))
        with np.errstate(divide="ignore"):
            return np.asarray(np.maximum(np.log(p), _NEVER))

    def doubt(self, first: F64, second: F64) -> F64:
        """Of one quotient."""
        return np.full(self.values.shape, 2.0**-50)


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
