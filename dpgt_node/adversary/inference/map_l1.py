"""The most probable gradients under Laplace noise, exactly: L1 on [D; E], with or without a prior of how they move.

    minimise over g   sum_k |D_k - (M g)_k|/b_eta + sum_k |E_k - px_k|/b_zeta + g' S^-1 g / 2

by the alternating direction method of multipliers, all coordinates at once: one matrix, factorised once.  S is the
covariance that the smoother's prior gives; without a prior the last term is absent and the minimiser is the exact
maximum-likelihood estimate, which follows B wherever x says little.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dpgt_node.adversary.inference import predictions
from dpgt_node.adversary.inference.estimators import View, absolute, completed, from_x, innovation
from dpgt_node.adversary.inference.smoothing import Prior
from dpgt_node.types import F64

MAX_ROUNDS = 512
"""Dense matrices of that size; longer runs are cut into windows by whoever calls."""


def most_probable(v: View, prior: Prior | None, *, iterations: int = 200) -> F64:
    """g, (rounds, d); NaN for coordinates of which not every D was seen, and everywhere under a law of another norm.

    Raises ValueError above MAX_ROUNDS rounds.
    """
    if v.rounds > MAX_ROUNDS:
        raise ValueError(f"{v.rounds} rounds; at most {MAX_ROUNDS} at a time")
    v = completed(v)
    out = np.full_like(v.y, np.nan)
    if v.law.norm != 1 or not (v.scale_y > 0.0).all():
        return out
    A, c = _system(v)
    whole = np.flatnonzero(~np.isnan(c).any(axis=0))
    if not whole.size:
        return out
    out[:, whole] = _admm(A, c[:, whole], None if prior is None else _precision(v, prior), iterations)
    return out


def _system(v: View) -> tuple[F64, F64]:
    """A and c with A g - c = the noise in units of its scale: rows of D (g~ under noise-once), then of E."""
    M = np.eye(v.rounds) if v.mechanism.accounted.once else predictions.kernel_y(v.params.b, v.rounds)
    D = absolute(v) if v.mechanism.accounted.once else innovation(v)
    A, c = M / v.scale_y[:, None], D / v.scale_y[:, None]
    if v.mechanism.x_public or not (v.scale_x > 0.0).all() or v.rounds < 2:
        return A, c
    E = from_x(v)[1:]
    if np.isnan(E).all(axis=1).any():  # x was not seen: y speaks alone
        return A, c
    N = predictions.kernel_x(v.params.a, v.params.b, v.params.gamma, v.rounds)[1:]
    return np.vstack([A, N / v.scale_x[1:, None]]), np.vstack([c, E / v.scale_x[1:, None]])


def _precision(v: View, prior: Prior) -> F64:
    at = np.arange(v.rounds, dtype=np.float64)
    covariance = prior.initial + prior.walk * np.minimum.outer(at, at) + np.diag(np.full(v.rounds, prior.sampling))
    covariance += np.eye(v.rounds) * 1e-9 * float(np.trace(covariance)) / v.rounds
    return np.asarray(np.linalg.inv(covariance))


def _admm(A: F64, c: F64, precision: F64 | None, iterations: int) -> F64:
    weight = 1.0
    normal = weight * A.T @ A
    if precision is not None:
        normal = normal + precision
    factor = cho_factor(normal + np.eye(len(normal)) * 1e-12 * float(np.trace(normal)) / len(normal))
    g = cho_solve(factor, weight * A.T @ c)
    residual, dual = A @ g - c, np.zeros_like(c)
    for _ in range(iterations):
        shifted = A @ g - c + dual
        residual = np.sign(shifted) * np.maximum(np.abs(shifted) - 1.0 / weight, 0.0)
        dual = shifted - residual
        g = cho_solve(factor, weight * A.T @ (c + residual - dual))
    return np.asarray(g)
