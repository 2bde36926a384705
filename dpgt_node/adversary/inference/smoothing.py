"""Kalman filter and RTS smoother over rounds: fusion that also uses how gradients move.

Least squares assumes nothing of the gradients.  Here g_k = mu_k + s_k, where mu is a random walk (steps of variance
``walk``, mu_0 of variance ``initial``) and s_k is independent (variance ``sampling``: the batch).  Per coordinate the
state is (px, h, mu, s) with h = p - g:

    px' = rho px - gamma (h + mu + s),   h' = hold h - b (mu + s),   mu' = mu + N(0, walk),   s' = N(0, sampling)

seen through D = h + mu + s + eta and E = px + zeta.  Under the exact mechanisms E says nothing more, and under
noise-once h is 0: g~ = mu + s + eta.  The three variances are fitted by maximum likelihood to the transcript itself,
over all coordinates together: no ground truth is used.
"""

from __future__ import annotations

import math
from dataclasses import field, replace

import numpy as np

from dpgt_node.adversary.inference.estimators import View, absolute, columns, completed, difference, transcript_parts
from dpgt_node.adversary.inference.fusion import floored, least_squares, patterns
from dpgt_node.types import F64
from dpgt_node.values import dataclass

_FIT_COORDINATES = 1024
_FIT_EVALUATIONS = 60
_FIT_ROUNDS = 128
_FREE = 1e6
"""Variance, in units of everything else, of what a hole in u or w may have added."""


@dataclass(frozen=True, slots=True)
class Prior:
    """How gradients move: variances of one coordinate."""

    initial: float
    walk: float
    sampling: float


@dataclass(frozen=True, slots=True)
class Smoothed:
    """Estimate of g, (rounds, d), NaN where nothing can be said; its variance as the model has it, (rounds, 1)."""

    g: F64 = field(repr=False)
    variance: F64 = field(repr=False)
    prior: Prior


@dataclass(frozen=True, slots=True)
class _Model:
    """Matrices of one group of coordinates; ``seen`` (rounds, 2): which of D and E were."""

    step: F64
    noise: F64
    look: F64
    var: F64
    start: F64
    data: F64
    seen: F64
    jumps: F64


def smooth(v: View, prior: Prior | None = None) -> Smoothed:
    """RTS smoother; ``prior`` None: fitted."""
    v = completed(v)
    if not v.var_y.any() and not v.var_x.any():
        return Smoothed(least_squares(v).g, np.zeros((v.rounds, 1)), Prior(0.0, 0.0, 0.0))
    chosen = fit_prior(v) if prior is None else prior
    out, variance = np.full_like(v.y, np.nan), np.full((v.rounds, 1), np.nan)
    known = ~np.isnan(least_squares(v).g)
    for number, group in enumerate(patterns(v)):
        estimate, spread = _smooth_group(columns(v, group), chosen)
        out[:, group] = estimate
        if number == 0:
            variance = spread[:, None]
    # After a hole in w, or before anything was seen, only the prior speaks: not an estimate from the transcript.
    out[~known] = np.nan
    return Smoothed(out, variance, chosen)


def fit_prior(v: View) -> Prior:
    """Maximum likelihood over the largest group of coordinates, from moments of A as a first guess."""
    from scipy.optimize import minimize

    group = next(iter(patterns(v)))
    part = columns(v, group[:: -(-len(group) // _FIT_COORDINATES)])
    first = _guess(part)
    cut = _head(part, min(part.rounds, _FIT_ROUNDS))

    def cost(logs: F64) -> float:
        return -_filter(_model(cut, Prior(*np.exp(np.clip(logs, -80.0, 80.0)).tolist())))[0]

    start = np.log([first.initial, first.walk, first.sampling])
    simplex = np.vstack([start, start + np.diag([1.0, 1.5, 1.5])])
    found = minimize(
        cost, start, method="Nelder-Mead", options={"maxfev": _FIT_EVALUATIONS, "initial_simplex": simplex}
    )
    return Prior(*np.exp(np.clip(found.x, -80.0, 80.0)).tolist())


def _head(v: View, rounds: int) -> View:
    cut = {name: getattr(v, name)[:rounds] for name in ("x", "y", "u", "w", "scale_x", "scale_y", "var_x", "var_y")}
    return replace(v, **cut)


def _guess(v: View) -> Prior:
    """From B and A: what is left of their second moments when the noise is taken off."""
    B, A = absolute(v), difference(v)
    noise = float(np.mean(v.var_y))
    tiny = 1e-12 * noise + 1e-300
    with np.errstate(invalid="ignore"):
        level = float(np.nanmean(B[0] ** 2)) if np.isfinite(B[0]).any() else noise
        moved = float(np.nanmean(A**2)) if np.isfinite(A).any() else noise
    moved -= 2.0 * noise
    initial = max(level - v.var_y[0], 0.01 * noise, tiny)
    each = max(0.25 * moved, 1e-3 * noise, tiny)
    return Prior(float(initial), float(each), float(each))


def _model(v: View, prior: Prior) -> _Model:
    rho, hold, gamma, b = v.rho, v.hold, v.params.gamma, v.params.b
    t, tx = transcript_parts(v, bridge=True)
    step = np.array([[rho, -gamma, -gamma, -gamma], [0, hold, -b, -b], [0, 0, 1, 0], [0, 0, 0, 0.0]])
    if v.mechanism.accounted.once:
        step[:2] = 0.0
        data = np.stack([absolute(v), np.full_like(v.x, np.nan)], axis=1)
    elif v.mechanism.x_public:
        step[0] = 0.0
        data = np.stack([v.y - t, np.full_like(v.x, np.nan)], axis=1)
    else:
        data = np.stack([v.y - t, v.x - tx], axis=1)
        data[0, 1] = np.nan  # px_0 is 0: x̆_0 shows zeta_0 and nothing else
    seen = ~np.isnan(data[:, :, 0])
    lost = np.isnan(np.stack([v.u[:, 0], v.w[:, 0]], axis=1))
    size = prior.initial + float(np.max(v.var_y)) + float(np.max(v.var_x))
    return _Model(
        step,
        np.diag([0.0, 0.0, prior.walk, prior.sampling]),
        np.array([[0, 1, 1, 1], [1, 0, 0, 0.0]]),
        np.stack(floored(v), axis=1),
        np.diag([0.0, 0.0, prior.initial, prior.sampling]),
        np.nan_to_num(data, nan=0.0),
        seen.astype(np.float64),
        lost * _FREE * size,
    )


_Track = list[tuple[F64, F64, F64, F64]]


def _filter(m: _Model, track: _Track | None = None) -> tuple[float, F64, F64]:
    """(log-likelihood, last mean, last covariance); ``track`` gets (predicted mean, covariance, filtered ...)."""
    rounds, _, d = m.data.shape
    mean, cov, total = np.zeros((4, d)), m.start.copy(), 0.0
    for k in range(rounds):
        ahead, ahead_cov = mean, cov
        rows = np.flatnonzero(m.seen[k])
        if rows.size:
            H = m.look[rows]
            S = H @ cov @ H.T + np.diag(m.var[k, rows])
            inverse = np.linalg.inv(S)
            gain = cov @ H.T @ inverse
            residual = m.data[k, rows] - H @ mean
            mean = mean + gain @ residual
            keep = np.eye(4) - gain @ H
            cov = keep @ cov @ keep.T + gain @ np.diag(m.var[k, rows]) @ gain.T
            sign, log_det = np.linalg.slogdet(S)
            total -= 0.5 * (d * log_det + float(np.einsum("id,ij,jd->", residual, inverse, residual)))
            if sign <= 0.0 or not math.isfinite(total):
                return -math.inf, mean, cov
        if track is not None:
            track.append((ahead, ahead_cov, mean, cov))
        if k + 1 < rounds:
            jump = np.diag([m.jumps[k, 0], m.jumps[k, 1], 0.0, 0.0])
            mean, cov = m.step @ mean, m.step @ cov @ m.step.T + m.noise + jump
    return total, mean, cov


def _smooth_group(v: View, prior: Prior) -> tuple[F64, F64]:
    m, track = _model(v, prior), _Track()
    _, mean, cov = _filter(m, track)
    if len(track) < v.rounds:
        return np.full_like(v.y, np.nan), np.full(v.rounds, np.nan)
    g, variance = np.empty_like(v.y), np.empty(v.rounds)
    look = np.array([0.0, 0.0, 1.0, 1.0])
    for k in range(v.rounds - 1, -1, -1):
        if k < v.rounds - 1:
            ahead, ahead_cov, _, _ = track[k + 1]
            _, _, now, now_cov = track[k]
            back = now_cov @ m.step.T @ np.linalg.pinv(ahead_cov, rcond=1e-12, hermitian=True)
            mean = now + back @ (mean - ahead)
            cov = now_cov + back @ (cov - ahead_cov) @ back.T
        g[k], variance[k] = look @ mean, float(look @ cov @ look)
    return g, np.maximum(variance, 0.0)
