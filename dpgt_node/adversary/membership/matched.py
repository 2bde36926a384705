"""A matched filter of a sample's gradient on everything that an agent released, for softmax models.

If z is one of the agent's D samples, every g_k holds h_k(z)/D on the average, h_k(z) the gradient of z at the point of
round k, clipped as the agents clip it.  With h̄_k and S_k, mean and covariance of gradients of public samples at that
point, the residual r_k = ĝ_k - h̄_k has covariance about V_k = S_k/m + v_k I in one round.  The statistic is

    T = sum_k a_k' r_k,    a_k = V_k^-1 (h_k - h̄_k)      (``plain``: a_k = (h_k - h̄_k)/v_k, v_k = 1 without noise)

A member shifts T by N/D on the average, N = sum_k a_k' (h_k - h̄_k).  Without it T has mean 0 and variance

    sum_t v_t (|a_t| + b sum_{k>t} |a_k|)^2  +  (1/m - 1/D) sum_k a_k' S_k a_k  +  (1/D) Var_u( sum_k a_k' h_k(u) )

of the noise, of the batches, and of who else is in the data set.  Noise stays in later estimates (B of attacks.md:
eta_k + b sum_{t<k} eta_t, noise-once without b), where the a_k are taken as parallel.  The same others return in every
round, so that no number of rounds averages them out.  A public sample u that taught V_k is left out of it where its own
term is taken (Sherman and Morrison), else its own direction would seem to vary little.  So the log-likelihood ratio of
"z is in" is

    L(z) = (N/D) (T - N/(2 D)) / Var T,    d = (N/D)/sqrt(Var T),

N(+-d^2/2, d^2) of members and others, if all is normal: that is the advantage that clip and noise leave, and the AUC of
a pool is the mean of Phi(sqrt(d_z^2 + d_u^2)/2) over its members z and others u.

Gradients are outer products, so everything is done with inner products of samples; V_k^-1 by Woodbury.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr

from dpgt_node.adversary.inference import estimators as es
from dpgt_node.adversary.inference.dead_reckoning import gradient_points
from dpgt_node.adversary.inference.fusion import least_squares
from dpgt_node.adversary.inference.knowledge import Samples, Softmax
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.types import F64
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Clipping:
    """What the agents do to each sample's gradient: ``clip`` (None: nothing), and its ``share`` in round k, 0.0 where
    the round releases no such gradient.
    """

    clip: Clip | None
    share: Callable[[int], float]

    @classmethod
    def of(cls, observation: Observation) -> Clipping:
        """As the run file says it."""
        schedule = observation.facts.schedule
        return cls(
            Clip.from_config(observation.facts.run.privacy), lambda k: 0.0 if schedule.sums(k) else schedule.share(k)
        )

    def clipped(self, k: int, model: Softmax, errors: F64, phi: F64) -> F64:
        """``errors`` (m, classes) of samples ``phi`` (m, p), scaled in place so that their gradients, the outer
        products of both, are those that the agents release in round ``k``.
        """
        return self.scaled(k, errors, self.sizes(model, phi))

    def sizes(self, model: Softmax, phi: F64) -> F64:
        """Norms (m,) of what the errors are multiplied by, in the clip's order; empty without a clip."""
        if self.clip is None:
            return np.empty(0)
        return self.clip.norms(np.column_stack([phi, np.full(len(phi), model.bias)]), axis=1)

    def scaled(self, k: int, errors: F64, sizes: F64) -> F64:
        """:meth:`clipped`, of inputs whose sizes are known."""
        if self.clip is not None:
            self.clip.times(self.share(k)).scale(errors.T, self.clip.norms(errors, axis=1) * sizes)
        return errors


AS_IT_IS = Clipping(None, lambda _: 1.0)
"""No clip."""


@dataclass(frozen=True, slots=True)
class Scores:
    """T and N of every candidate, (c,); ``d``, (c,): its separation in standard deviations, NaN where D is unknown;
    ``score``: log-likelihood ratios, or T/sqrt(N) where D is unknown.  ``rounds`` that told something.
    """

    T: F64 = field(repr=False)
    N: F64 = field(repr=False)
    d: F64 = field(repr=False)
    score: F64 = field(repr=False)
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class _Round:
    """Inner products in one round, all relative to the public mean: of candidates c, public samples p, the residual r.

    ``c_r``, ``c_c`` (c,), ``p_r`` (P,), ``c_p`` (c, P), ``p_p`` (P, P); ``noise``: v_k, of one coordinate of ĝ_k.
    """

    c_r: F64
    p_r: F64
    c_p: F64
    p_p: F64
    c_c: F64
    noise: float


class Filter:
    """What public samples and candidates have in common in all rounds of all runs."""

    def __init__(
        self, model: Softmax, candidates: Samples, public: Samples, *, m: int, whitened: bool, clipping: Clipping
    ) -> None:
        self._model, self._candidates, self._public = model, candidates, public
        self._m, self._whitened, self._clipping = m, whitened, clipping
        self._sizes = [clipping.sizes(model, one.phi) for one in (candidates, public)]
        self._pp = public.phi @ public.phi.T + model.bias**2

    def statistics(self, v: es.View) -> F64:
        """T of every candidate, (c,); NaN where no gradient was seen.

        Candidates meet the public samples in one vector a round: T = sum_k (h_k - h̄_k)' V_k^-1 r_k, the latter first.
        """
        T, used, model = np.zeros(len(self._candidates.labels)), 0, self._model
        for k, point, g, noise in self._rounds(v):
            ec, ep = self._errors(k, point)
            pp = (ep @ ep.T) * self._pp
            W, b = self._model.split(g)
            center = pp.mean(axis=0)
            pg = self._along(self._public, ep, W, b)
            # Weights of public gradients in V^-1 r, times the floor: r = g - h̄ less what the covariance explains.
            weights, scale = np.full(len(pp), -1.0 / len(pp)), 1.0 / noise if noise else 1.0
            if self._whitened:
                p_p = pp - center - center[:, None] + center.mean()
                p_r = pg - center - pg.mean() + center.mean()
                floor, _, factor = self._whitening(p_p, noise, v)
                solved = cho_solve(factor, p_r, check_finite=False)
                weights, scale = weights - solved + solved.mean(), 1.0 / floor
            W = W + (ep * weights[:, None]).T @ self._public.phi
            b = b + model.bias * (weights @ ep)
            mean = float(self._along(self._public, ep, W, b).mean())
            T += scale * (self._along(self._candidates, ec, W, b) - mean)
            used += 1
        return T if used else np.full(len(T), np.nan)

    def scores(self, v: es.View, D: int | None) -> Scores:
        """T, and what it is worth."""
        count = len(self._candidates.labels)
        T, N, batches, used = np.zeros(count), np.zeros(count), np.zeros(count), 0
        noises, sizes = list[float](), list[F64]()
        square = self._model.bias**2
        kernels = (
            np.square(self._candidates.phi).sum(axis=1) + square,
            self._candidates.phi @ self._public.phi.T + square,
        )
        others = np.zeros((count, len(self._pp)))
        for k, point, g, spread in self._rounds(v):
            one = self._round(k, point, g, spread, kernels)
            if self._whitened:
                floor, load, factor = self._whitening(one.p_p, one.noise, v)
                solved = cho_solve(factor, one.c_p.T, check_finite=False)  # (P, c)
                T += (one.c_r - solved.T @ one.p_r) / floor
                seen = np.einsum("cp,pc->c", one.c_p, solved)
                N += (one.c_c - seen) / floor
                size = (one.c_c - seen - load * np.square(solved).sum(axis=0)) / floor**2
                left = np.diagonal(cho_solve(factor, np.eye(len(one.p_p)), check_finite=False))
                along = solved.T / (floor * left)
            else:
                weight = _weight(one)
                T += weight * one.c_r
                N += weight * one.c_c
                size, along = weight**2 * one.c_c, weight * one.c_p
            noises.append(one.noise)
            sizes.append(np.sqrt(np.maximum(size, 0.0)))
            batches += np.square(along).mean(axis=1)
            others += along
            used += 1
        noise = _lasting(noises, sizes, 0.0 if v.mechanism.accounted.once else v.params.b)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.nan_to_num(T / np.sqrt(N), nan=0.0)
            if D is None:
                return Scores(T, N, np.full(count, np.nan), ratio, used)
            variance = noise + (1.0 / self._m - 1.0 / D) * batches + others.var(axis=1, ddof=1) / D
            d = np.nan_to_num(N / D / np.sqrt(variance), nan=0.0, posinf=0.0)
            score = np.nan_to_num((T - 0.5 * N / D) * (N / D) / variance, nan=0.0, posinf=0.0, neginf=0.0)
        return Scores(T, N, d, score, used)

    def _rounds(self, v: es.View) -> Iterator[tuple[int, F64, F64, float]]:
        """(k, point, estimate of the gradient, variance of one coordinate of it) of rounds that say something."""
        fused, points, noisy = least_squares(v), gradient_points(v), bool(v.var_y.any())
        for k in range(v.rounds):
            if np.isnan(fused.g[k]).any() or np.isnan(points[k]).any() or not self._clipping.share(k):
                continue
            yield k, points[k], fused.g[k], float(np.nanmean(fused.variance[k])) if noisy else 0.0

    def _errors(self, k: int, point: F64) -> tuple[F64, F64]:
        """p - e_y of candidates and public samples, clipped."""
        both = zip((self._candidates, self._public), self._sizes, strict=True)
        ec, ep = (
            self._clipping.scaled(k, self._model.errors(point, one.phi, one.labels), sizes) for one, sizes in both
        )
        return ec, ep

    def _along(self, samples: Samples, errors: F64, W: F64, b: F64) -> F64:
        """Inner products of their gradients with (W, b), (m,)."""
        return np.asarray(((samples.phi @ W.T + self._model.bias * b) * errors).sum(axis=1))

    def _round(self, k: int, point: F64, g: F64, noise: float, kernels: tuple[F64, F64]) -> _Round:
        ec, ep = self._errors(k, point)
        W, b = self._model.split(g)
        # Inner products of per-sample gradients are products of two small ones.
        cp, pp, cc = (ec @ ep.T) * kernels[1], (ep @ ep.T) * self._pp, np.square(ec).sum(axis=1) * kernels[0]
        cg, pg = self._along(self._candidates, ec, W, b), self._along(self._public, ep, W, b)
        center = pp.mean(axis=0)
        # All relative to the public mean: h - h̄ and r = ĝ - h̄.
        c_r = cg - cp.mean(axis=1) - pg.mean() + center.mean()
        p_r = pg - center - pg.mean() + center.mean()
        c_p = cp - cp.mean(axis=1, keepdims=True) - center + center.mean()
        p_p = pp - center - center[:, None] + center.mean()
        c_c = cc - 2.0 * cp.mean(axis=1) + center.mean()
        return _Round(c_r, p_r, c_p, p_p, c_c, noise)

    def _whitening(self, p_p: F64, noise: float, v: es.View) -> tuple[float, float, Any]:
        """(floor, load, factor): V = floor I + P P'/(m P), by the Cholesky factor of P'P + load I."""
        count = len(p_p)
        floor = max(noise, 1e-3 * float(np.trace(p_p)) / count / (self._m * v.y.shape[1]))
        load = floor * self._m * count
        return floor, load, cho_factor(p_p + np.eye(count) * load, check_finite=False)


def _lasting(noises: list[float], sizes: list[F64], b: float) -> F64 | float:
    """sum_t v_t (|a_t| + b sum_{k>t} |a_k|)^2 of every candidate; ``noises``: variances of the estimates, which hold
    b^2 t times that of one draw already.
    """
    out: F64 | float = 0.0
    later: F64 | float = 0.0
    for t in range(len(sizes) - 1, -1, -1):
        out = out + noises[t] / (1.0 + b * b * t) * np.square(sizes[t] + b * later)
        later = later + sizes[t]
    return out


def _weight(one: _Round) -> float:
    return 1.0 / one.noise if one.noise else 1.0


def predicted_auc(members: F64, others: F64) -> float:
    """Of log-likelihood ratios N(+-d^2/2, d^2), from their separations ``d``: (c,) and (u,)."""
    squares = np.square(members)[:, None] + np.square(others)
    return float(ndtr(0.5 * np.sqrt(squares)).mean())
