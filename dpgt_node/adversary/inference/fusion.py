"""All that was released of one agent, fused: the best unbiased estimate of its gradients, and the exact likelihood.

The unknowns are the private parts p_k and px_k of :mod:`dpgt_node.adversary.inference.estimators`: D_k = p_k + eta_k,
E_k = px_k + zeta_k, px_0 = 0 and px_{k+1} = rho px_k - gamma p_k.  With nothing assumed of the gradients, p and the
gradients are in one-to-one correspondence (M), so weighted least squares is a fit of px_1, px_2, ... to

    E_k                            with variance vx_k
    (rho px_k - px_{k+1})/gamma  = D_k  with variance vy_k

which is tridiagonal: linear in the number of rounds.  It is the best linear unbiased estimate, so its variance is at
most that of B, of B from x, and of every other unbiased part.  A hole in u cuts the chain of px, a hole in w only
shifts t: p and px are fitted across it all the same, the gradients after it are not known.

Under the exact mechanisms x holds nothing that y does not, and the estimate is B.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

import numpy as np
import numpy.typing as npt
from scipy.linalg import solveh_banded

from dpgt_node.adversary.inference import predictions
from dpgt_node.adversary.inference.estimators import (
    View,
    columns,
    completed,
    gradients_of,
    private_parts,
    transcript_parts,
)
from dpgt_node.types import F64
from dpgt_node.values import dataclass

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Fused:
    """Estimates (rounds, d) of g_k, of the private x_k, and of p_k; NaN where nothing can be said.

    ``variance``: predicted variance of ``g``, (rounds, 1) where all coordinates were seen alike, else (rounds, d).
    """

    g: F64 = field(repr=False)
    x: F64 = field(repr=False)
    p: F64 = field(repr=False)
    variance: F64 = field(repr=False)


def least_squares(v: View) -> Fused:
    """Weighted least squares on [D; E]."""
    v = completed(v)
    if v.mechanism.x_public:
        t, _ = transcript_parts(v, bridge=True)
        p = v.y - t
        variance = predictions.absolute(v.mechanism, v.params.b, v.var_y)
        return Fused(gradients_of(v, p), v.x.copy(), p, variance[:, None])
    out = [np.full_like(v.y, np.nan) for _ in range(4)]
    groups = list(patterns(v))
    for chosen in groups:
        part = v if len(groups) == 1 else columns(v, chosen)
        for whole, piece in zip(out, _fit(part), strict=True):
            whole[:, chosen] = piece
    g, x, p, variance = out
    return Fused(g, x, p, variance[:, :1] if len(groups) == 1 else variance)


def patterns(v: View) -> Iterator[npt.NDArray[np.int64]]:
    """Coordinates grouped by what was seen of them, the largest group first."""
    holes = np.concatenate([np.isnan(v.x), np.isnan(v.y), np.isnan(v.u), np.isnan(v.w), np.isnan(v.x0)[None]])
    if not holes.any():
        yield np.arange(v.y.shape[1])
        return
    packed = np.ascontiguousarray(np.packbits(holes, axis=0).T)
    _, group = np.unique(packed, axis=0, return_inverse=True)
    group = group.ravel()
    for number in np.argsort(-np.bincount(group), kind="stable"):
        yield np.flatnonzero(group == number)


def _fit(v: View) -> tuple[F64, F64, F64, F64]:
    """g, x, p and the variance of g (rounds, 1) for coordinates that were all seen alike."""
    t, tx = transcript_parts(v, bridge=True)
    D, E = v.y - t, v.x - tx
    rounds, gamma = v.rounds, v.params.gamma
    # Only what was not seen is NaN here: bridged parts are finite.  Unknown x_0: E says nothing at all.
    no_y, no_x, no_u = (np.isnan(a[:, 0]) for a in (v.y, E, v.u))
    vy, vx = floored(v)
    n = rounds - 1
    link = ~no_y[:n] & ~no_u[:n] & (gamma != 0.0)
    bands, right = np.zeros((2, n)), np.zeros((n, D.shape[1]))
    start_known = not np.isnan(v.x0[0])
    anchored = np.zeros(rounds, dtype=np.bool_)
    anchored[0] = start_known
    heads = []  # first unknown of every stretch of px that no E ties down
    stretch = 0
    for k in range(rounds):
        if k and not no_x[k]:
            weight = 1.0 / vx[k]
            bands[1, k - 1] += weight
            right[k - 1] += weight * E[k]
            anchored[stretch : k + 1] = True
        if k == n:
            break
        if link[k]:
            weight = 1.0 / (gamma * gamma * vy[k])
            bands[1, k] += weight
            right[k] -= weight * gamma * D[k]
            if k:
                bands[1, k - 1] += weight * v.rho**2
                bands[0, k] -= weight * v.rho
                right[k - 1] += weight * v.rho * gamma * D[k]
            anchored[k + 1] = anchored[k]
        else:
            stretch = k + 1
    for k in range(1, rounds):
        if not anchored[k] and not link[k - 1]:
            heads.append(k - 1)
    bands[1, heads] += 1.0 / (gamma * gamma * float(np.max(vy)) or 1.0)
    px, covariance = np.zeros_like(D), np.zeros((rounds, rounds))
    if n:
        bands = bands[-min(n, 2) :]  # one unknown has no neighbour, and SciPy no matrix of that shape
        px[1:] = solveh_banded(bands, right, check_finite=False)
        covariance[1:, 1:] = solveh_banded(bands, np.eye(n), check_finite=False)
    joint = link | (~no_u[:n] & anchored[:-1] & anchored[1:] & (gamma != 0.0))
    p = np.where(no_y[:, None], np.nan, D)
    p[:n][joint] = ((v.rho * px[:-1] - px[1:]) / gamma)[joint] if gamma else p[:n][joint]
    x = np.where(anchored[:, None], px + tx, np.nan)
    variance = _variance_of_g(v, covariance, joint, vy)
    g = gradients_of(v, p)
    return g, x, p, np.where(np.isnan(g[:, :1]), np.nan, variance[:, None])


def _variance_of_g(v: View, covariance: F64, joint: Mask, vy: F64) -> F64:
    """Diagonal of M^-1 Cov(p) M^-T: rows and then columns are summed as B sums rounds."""
    n = v.rounds - 1
    cov_p = np.zeros((v.rounds, v.rounds))
    if n and v.params.gamma:
        rows = (v.rho * covariance[:-1] - covariance[1:]) / v.params.gamma
        cov_p[:n, :n] = (v.rho * rows[:, :-1] - rows[:, 1:]) / v.params.gamma
    alone = np.append(~joint, True)
    cov_p[alone], cov_p[:, alone] = 0.0, 0.0
    cov_p[alone, alone] = vy[alone]
    for _ in range(2):
        cov_p[1:] += v.params.b * np.cumsum(cov_p[:-1], axis=0)
        cov_p = np.ascontiguousarray(cov_p.T)
    return np.diag(cov_p).copy()


def floored(v: View) -> tuple[F64, F64]:
    """Variances of y̆ and x̆ with rounding on the wire: without noise the fit still needs weights."""
    with np.errstate(invalid="ignore"):
        size_y, size_x = (float(np.nanmax(np.abs(a), initial=0.0)) for a in (v.y, v.x))
    tiny = 1e-300
    return v.var_y + (v.rounding * size_y) ** 2 + tiny, v.var_x + (v.rounding * size_x) ** 2 + tiny


def log_likelihood(v: View, g: F64) -> F64:
    """ln p(transcript | gradients ``g`` (rounds, d)) of each coordinate, without constants: (d,).

    Laplace: -sum_k |D_k - (M g)_k|/b_eta - sum_k |E_k - px_k|/b_zeta; Gaussian: with squares over 2 s^2.  noise-once:
    of g~ - g.  What was not seen adds nothing; a stream without noise gives -inf unless it fits exactly.
    """
    v = completed(v)
    p, px = private_parts(v, g)
    t, tx = transcript_parts(v)
    if v.mechanism.accounted.once:
        pieces = [(gradients_of(v, v.y - t) - g, v.scale_y)]
    elif v.mechanism.x_public:
        pieces = [(v.y - t - p, v.scale_y)]
    else:
        pieces = [(v.y - t - p, v.scale_y), (v.x - tx - px, v.scale_x)]
    total = np.zeros(g.shape[1])
    for residual, scale in pieces:
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.abs(residual) / scale[:, None]
            z[residual == 0.0] = 0.0
        total -= np.nansum(-v.law.log_density(z), axis=0)
    return total
