"""What theory says about each estimator's error, from public facts alone: variances of one coordinate.

``a`` and ``b`` are alpha r_i and beta c_i; ``vx``, ``vy`` the variances of zeta_k and eta_k in every round, (rounds,).
Under ``public-state`` and ``noise-once`` ``vx`` is not read.  Every function returns an array as long as its
estimator's.
"""

from __future__ import annotations

import math

import numpy as np

from dpgt_node.privacy.mechanisms import Mechanism
from dpgt_node.types import F64


def difference(mechanism: Mechanism, b: float, vy: F64) -> F64:
    """A: eta_{k+1} - hold eta_k; under noise-once eta_{k+1} - eta_k."""
    hold = 1.0 if mechanism.accounted.once else 1.0 - b
    return np.asarray(vy[1:] + hold**2 * vy[:-1])


def tracker_from_x(mechanism: Mechanism, a: float, gamma: float, vx: F64, vy: F64) -> F64:
    """X, as an estimate of y_k: (rho zeta_k - zeta_{k+1})/gamma; public-state: eta_k; noise-once: nothing."""
    if mechanism.accounted.once:
        return np.zeros(len(vy) - 1)
    if mechanism.x_public:
        return vy[:-1].copy()
    return np.asarray(((1.0 - a) ** 2 * vx[:-1] + vx[1:]) / gamma**2)


def absolute(mechanism: Mechanism, b: float, vy: F64) -> F64:
    """B: eta_k + b sum_{t<k} eta_t; noise-once: eta_k."""
    if mechanism.accounted.once:
        return vy.copy()
    return np.asarray(vy + b**2 * before(vy))


def absolute_from_x(mechanism: Mechanism, a: float, b: float, gamma: float, vx: F64, vy: F64) -> F64:
    """B with X in the place of y̆: nu_k + b sum_{t<k} nu_t with nu_k = (rho zeta_k - zeta_{k+1})/gamma.

    zeta_{k+1} enters with -1, zeta_k with rho - b, those between with b (rho - 1), zeta_0 with b rho; in round 0
    zeta_0 enters with rho.
    """
    if mechanism.x_public:
        return absolute(mechanism, b, vy)[:-1]
    rho = 1.0 - a
    out = vx[1:] + (rho - b) ** 2 * vx[:-1] + (b * rho) ** 2 * vx[0]
    out += (b * a) ** 2 * np.maximum(before(vx)[:-1] - vx[0], 0.0)
    out[0] = vx[1] + rho**2 * vx[0] if len(out) else 0.0
    return np.asarray(out / gamma**2)


def innovation(mechanism: Mechanism, b: float, vy: F64) -> F64:
    """D, as an estimate of M g: eta_k; noise-once: (M eta)_k."""
    if mechanism.accounted.once:
        return vy + b**2 * faded(1.0 - b, vy)
    return vy.copy()


def from_x(mechanism: Mechanism, a: float, b: float, gamma: float, vx: F64, vy: F64) -> F64:
    """E, as an estimate of -gamma N g: zeta_k; public-state: as dead reckoning; noise-once: -gamma (N eta)_k."""
    if mechanism.accounted.once:
        return np.array([float(np.dot(row**2, vy)) for row in kernel_x(a, b, gamma, len(vy))])
    if mechanism.x_public:
        return dead_reckoned(a, gamma, vy)
    return vx.copy()


def dead_reckoned(a: float, gamma: float, vy: F64) -> F64:
    """x̂_k - x_k = -gamma sum_{l<k} rho^{k-1-l} eta_l."""
    return gamma**2 * faded(1.0 - a, vy)


def cosine(s: float) -> float:
    """Between g and g + noise of relative size s: 1/sqrt(1 + s^2)."""
    return 1.0 / math.sqrt(1.0 + s * s)


def before(v: F64) -> F64:
    """sum_{t<k} v_t."""
    return np.concatenate(([0.0], np.cumsum(v)[:-1]))


def faded(keep: float, v: F64) -> F64:
    """sum_{l<k} keep^{2 (k-1-l)} v_l."""
    out = np.zeros(len(v))
    for k in range(len(v) - 1):
        out[k + 1] = keep**2 * out[k] + v[k]
    return out


def kernel_y(b: float, rounds: int) -> F64:
    """M, (rounds, rounds): 1 on the diagonal, -b (1-b)^{k-1-l} below it."""
    M = np.eye(rounds)
    for k in range(1, rounds):
        M[k, :k] = (1.0 - b) * M[k - 1, :k]
        M[k, k - 1] = -b
    return M


def kernel_x(a: float, b: float, gamma: float, rounds: int) -> F64:
    """-gamma N, (rounds, rounds): px_{k+1} = (1-a) px_k - gamma p_k."""
    M, out = kernel_y(b, rounds), np.zeros((rounds, rounds))
    for k in range(rounds - 1):
        out[k + 1] = (1.0 - a) * out[k] - gamma * M[k]
    return out
