"""LiRA and RMIA: is a run's signal of a sample that of runs with it, or that of runs without it?

Shadow runs are runs of the same kind whose members the adversary chose.  s_z: the signal of sample z in the run under
attack.  In_z and Out_z: its signals in the shadow runs that hold z, and in those that do not.

* **LiRA** (Carlini et al. 2022), online:   ln N(s_z; mean In_z, var In_z) - ln N(s_z; mean Out_z, var Out_z)
  offline:                                  Phi((s_z - mean Out_z)/sd Out_z), as its logarithm
  With fewer than 32 shadow runs of either kind both have one variance, as the paper's code does with few of them
  ("fix variance"): the sample's own, or that of all samples where fewer than six deviations tell it.
* **RMIA** (Zarifzadeh, Liu and Shokri 2024): the share of public samples u with  [p_z/p(z)] / [p_u/p(u)] >= gamma,
  p_z the model's probability of z's label, p(z) its mean over reference models: half In, half Out (online), or
  ((1 + a) Out + (1 - a))/2 (offline).

Scores are higher for members.  NaN: too few shadow runs hold the sample, or lack it.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np
import numpy.typing as npt

from dpgt_node.types import F64
from dpgt_node.values import dataclass

Mask = npt.NDArray[np.bool_]

LEAST = 2
"""Shadow runs with a sample, and without it, below which nothing is said of it."""
ENOUGH = 32
"""As many of either kind have variances of their own."""
_OWN = 6.0
"""Degrees of freedom from which on a sample has a variance of its own."""
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Moments:
    """Per sample (N,): number, mean and sum of squared deviations of its signals with it and without."""

    n_in: F64 = field(repr=False)
    in_: F64 = field(repr=False)
    square_in: F64 = field(repr=False)
    n_out: F64 = field(repr=False)
    out: F64 = field(repr=False)
    square_out: F64 = field(repr=False)

    @classmethod
    def of(cls, signals: F64, inside: Mask, outside: Mask) -> Moments:
        """``signals`` (S, N) of shadow runs; ``inside``, ``outside`` (S, N): which of them hold and lack each sample
        (one that another agent holds counts for neither).
        """
        return cls(*_moments(signals, inside), *_moments(signals, outside))

    @property
    def known(self) -> Mask:
        """Samples of which enough shadow runs tell something."""
        return (self.n_in >= LEAST) & (self.n_out >= LEAST)


def _moments(signals: F64, chosen: Mask) -> tuple[F64, F64, F64]:
    count = chosen.sum(axis=0).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(chosen, signals, 0.0).sum(axis=0) / count
        square = np.where(chosen, np.square(signals - mean), 0.0).sum(axis=0)
    return count, mean, square


def variances(m: Moments) -> tuple[F64, F64]:
    """(of In, of Out), each (N,)."""
    free = m.n_in + m.n_out - 2.0
    with np.errstate(invalid="ignore", divide="ignore"):
        own = (m.square_in + m.square_out) / free
        alone_in, alone_out = m.square_in / (m.n_in - 1.0), m.square_out / (m.n_out - 1.0)
    told = np.isfinite(own) & (free > 0.0)
    shared = float((own[told] * free[told]).sum() / free[told].sum()) if told.any() else 1.0
    both = np.maximum(np.where(told & (free >= _OWN), own, shared), _TINY)
    enough = (m.n_in >= ENOUGH) & (m.n_out >= ENOUGH) & (alone_in > 0.0) & (alone_out > 0.0)
    return np.where(enough, alone_in, both), np.where(enough, alone_out, both)


def lira_online(signals: F64, m: Moments) -> F64:
    """ln of the ratio of the two normal densities at ``signals`` (N,)."""
    var_in, var_out = variances(m)
    score = -0.5 * (np.square(signals - m.in_) / var_in + np.log(var_in))
    score += 0.5 * (np.square(signals - m.out) / var_out + np.log(var_out))
    return np.where(m.known, score, np.nan)


def lira_offline(signals: F64, m: Moments) -> F64:
    """ln of the probability that a run without the sample has a lower signal; no shadow run with it is used."""
    from scipy.special import log_ndtr

    alone = Moments(np.ones_like(m.n_out), m.out, np.zeros_like(m.out), m.n_out, m.out, m.square_out)
    spread = np.sqrt(variances(alone)[1])
    return np.where(m.n_out >= LEAST, np.asarray(log_ndtr((signals - m.out) / spread)), np.nan)


def rmia(p: F64, p_reference: F64, public: F64, public_reference: F64, gamma: float) -> F64:
    """Shares (N,) of public samples that each sample dominates.

    ``p`` (N,), ``public`` (P,): probabilities of the right labels under the model attacked; ``..._reference``: their
    means over reference models.
    """
    ratio = np.log(np.maximum(p, _TINY)) - np.log(np.maximum(p_reference, _TINY))
    beside = np.log(np.maximum(public, _TINY)) - np.log(np.maximum(public_reference, _TINY))
    # As many of the sorted ratios are at most ratio/gamma.
    at = np.searchsorted(np.sort(beside), ratio - np.log(gamma), side="right") / len(beside)
    return np.where(np.isnan(ratio), np.nan, at)


def reference_online(m: Moments) -> F64:
    """p(z): the mean of the mean with z and the mean without, of probabilities."""
    return np.where(m.known, 0.5 * (m.in_ + m.out), np.nan)


def reference_offline(m: Moments, a: float) -> F64:
    """p(z) of reference models without z alone: what they say, drawn towards 1 as training on z would."""
    return np.where(m.n_out >= LEAST, 0.5 * ((1.0 + a) * m.out + (1.0 - a)), np.nan)
