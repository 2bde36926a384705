"""Where an agent really is: its private x_k, which the transcript gives away better than its own release x̆_k.

    x̂_0 = x_0,   x̂_{k+1} = rho x̂_k + u_k - gamma y̆_k,      x̂_k - x_k = -gamma sum_{l<k} rho^{k-1-l} eta_l

The error settles at variance gamma^2 vy/(1 - rho^2), against vx of x̆: with constant equal scales a factor of
sqrt(1 - rho^2)/gamma in distance.  It says where the gradients were taken, under ``paper``; under the other mechanisms
that point was sent.
"""

from __future__ import annotations

import math

import numpy as np

from dpgt_node.adversary.inference.estimators import View, completed
from dpgt_node.types import F64


def dead_reckoned(v: View) -> F64:
    """x̂, (rounds, d); where a hole ends the reckoning it starts anew from the next x̆ that was seen.  NaN: no x̆."""
    return reckoned(v)[0]


def reckoned(v: View) -> tuple[F64, F64]:
    """x̂ and the variance of its error: both (rounds, d), or the variance (rounds, 1) where nothing is missing."""
    v = completed(v)
    if v.mechanism.x_public:
        return v.x.copy(), np.zeros((v.rounds, 1))
    out = np.empty_like(v.x)
    out[0] = np.where(np.isnan(v.x0), v.x[0], v.x0)
    whole = not (np.isnan(v.u[:-1]).any() or np.isnan(v.y[:-1]).any() or np.isnan(v.x0).any())
    variance = np.zeros((v.rounds, 1 if whole else v.x.shape[1]))
    variance[0] = np.where(np.isnan(v.x0), v.var_x[0], 0.0) if not whole else 0.0
    for k in range(v.rounds - 1):
        ahead = v.rho * out[k] + v.u[k] - v.params.gamma * v.y[k]
        lost = np.isnan(ahead)
        out[k + 1] = np.where(lost, v.x[k + 1], ahead)
        spread = v.rho**2 * variance[k] + v.params.gamma**2 * v.var_y[k]
        variance[k + 1] = spread if whole else np.where(lost, v.var_x[k + 1], spread)
    return out, variance


def gradient_points(v: View) -> F64:
    """The best guess of where g_k was taken, (rounds, d): x̆_k where the mechanism takes it there, else x̂_k."""
    return v.x.copy() if v.mechanism.at_release else dead_reckoned(v)


def point_variance(v: View) -> F64:
    """Variance of one coordinate of :func:`gradient_points`, (rounds,), the mean over coordinates."""
    if v.mechanism.at_release:
        return np.zeros(v.rounds)
    return np.asarray(reckoned(v)[1].mean(axis=1))


def gain(a: float, gamma: float, scale_x: float, scale_y: float) -> float:
    """How many times closer x̂ is than x̆ in the limit of a long run with constant scales; inf where x̂ is exact."""
    rho = 1.0 - a
    error = gamma * scale_y / math.sqrt(1.0 - rho * rho) if rho < 1.0 else math.inf
    return scale_x / error if error else math.inf
