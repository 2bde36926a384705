"""Gaussian noise: (epsilon, delta) for L2 shifts, exactly; drawn as a function of the ideal mechanism."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dpgt_node.privacy.laws.gaussian_grid import CELLS, LIMIT_CELLS
from dpgt_node.privacy.laws.law import Law, Rng
from dpgt_node.types import F64, I64

if TYPE_CHECKING:
    from dpgt_node.privacy.laws.noise import SoundSampler


def _cell(scale: float) -> float:
    return scale / CELLS


def _log_cells(cells: I64, private: F64, scale: float) -> F64:
    from scipy.special import log_ndtr  # slow to import, and only this law needs it

    z = _in_scales(private, scale)
    a, b = cells / CELLS - z, (cells + 1) / CELLS - z
    upper = a + b > 0.0
    a, b = np.where(upper, -b, a), np.where(upper, -a, b)  # the lower tail, where the logarithm is accurate
    top: F64 = log_ndtr(b)
    return np.asarray(top + np.log(-np.expm1(log_ndtr(a) - top)))


def _in_scales(private: F64, scale: float) -> F64:
    reach = scale * (LIMIT_CELLS / CELLS)
    return np.asarray(np.clip(private, -reach, reach) / scale)


def _below(cells: I64, private: F64, scale: float) -> F64:
    from scipy.special import ndtr

    return np.asarray(ndtr(cells / CELLS - _in_scales(private, scale)))


def _plain(rng: Rng, size: Any) -> F64:
    return np.asarray(rng.standard_normal(size=size))


def _sampler(compiled: bool | None) -> SoundSampler:
    from dpgt_node.privacy.laws.gaussian_sampler import GaussianSampler

    return GaussianSampler(compiled)


def _defect() -> str | None:
    from dpgt_node.privacy.laws.gaussian_sampler import largest_quantile_error

    return None if largest_quantile_error(33) < 1.0 else "scipy's normal quantile is too inaccurate on this machine"


GAUSSIAN: Final = Law(
    "gaussian",
    "Gaussian",
    frozenset(("rho", "mu")),
    norm=2,
    ideal_variance=1.0,
    drawn_variance=lambda: 1.0,
    cell=_cell,
    log_cells=_log_cells,
    below=_below,
    plain=_plain,
    sampler=_sampler,
    answer="26cee1fde4ba2efbe53b5abd66b9cc0c3fc95db4e0435f7fdb5ac88426314139",
    defect=_defect,
)
