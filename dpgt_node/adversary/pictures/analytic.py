"""Samples out of a gradient in closed form, where the samples enter the model through a linear layer.

The gradient of W phi + s b is G = [G_W, G_b] = mean_j e_j (phi_j, s)', e_j what reaches the layer's outputs.

One sample: G has rank one and its right singular vector is (phi, s) up to scale, whatever e and the rest of the model
are, clipped or not.  Noise of variance v in every coordinate leaves, to first order in it,

    phî - phi = n - phi n_s/s,   n, n_s ~ (0, v/||e||^2):   mean squared error (v/||e||^2) (1 + ||phi||^2/(p s^2))

Several samples of a softmax model: m G = E' [Phi, s], and e_j = softmax(W phi_j + s b) - e_{y_j} where W and b are
known, so a fixed point of Phi = pinv(E') m G_W gives the batch as far as the rows of E are independent: exactly where W
is zero (round 0) and the labels differ and leave a class out; samples of one label in the same round 0 come out as
their mean.  Several gradients of one batch at different points are stacked, each weighted by its precision.  A normal
prior of the samples turns least squares into their mean given the gradients, which is hardly worse than the prior's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

import numpy as np

from dpgt_node.adversary.inference.counting import rounded
from dpgt_node.adversary.inference.knowledge import Softmax
from dpgt_node.adversary.pictures.public import Prior
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

_SWEEPS, _SWEEPS_PRIOR = 1000, 100
_SETTLED = 1e-12
_EXACT = 1e-12  # of what sizes vary by: noise that is less is none


@dataclass(frozen=True, slots=True)
class Recovered:
    """``phi`` (m, p), what entered the layer; ``errors`` (m, q), e_j; ``mse``: predicted mean squared error of phi."""

    phi: F64 = field(repr=False)
    errors: F64 = field(repr=False)
    mse: float


def one_sample(weights: F64, bias: F64 | None, s: float = 1.0, variance: float = 0.0) -> Recovered:
    """From the gradient of a linear layer, ``weights`` (q, p) and ``bias`` (q,), of ONE sample.

    Without a bias only the direction shows: the largest value of phi is taken for 1, most of it for positive.
    ``variance``: of the noise in every coordinate.  A gradient of zero gives zeros.
    """
    matrix = weights if bias is None else np.column_stack([weights, bias])
    left, sizes, right = np.linalg.svd(matrix, full_matrices=False)
    size, u, v = float(sizes[0]), left[:, 0], right[0]
    p = weights.shape[1]
    if bias is None:
        v = v if v.sum() >= 0.0 else -v
        scale = 1.0 / max(float(v.max()), np.finfo(float).tiny)
    else:
        scale = s / (v[p] or np.finfo(float).eps)
    phi = scale * v[:p]
    errors = (weights @ v[:p] + (0.0 if bias is None else bias * v[p])) / scale if size else 0.0 * u
    strength = float(errors @ errors)
    spread = 1.0 + (0.0 if bias is None else float(phi @ phi) / (p * s * s))
    mse = spread * variance / strength if strength and variance else 0.0
    return Recovered(phi[None], errors[None], mse)


@dataclass(frozen=True, slots=True)
class Seen:
    """One gradient ``g`` (d,) of the samples, taken at ``x`` (d,) and clipped by ``clip``; ``variance``: of the error
    of one coordinate.
    """

    g: F64 = field(repr=False)
    x: F64 = field(repr=False)
    variance: float = 0.0
    clip: Clip | None = None


def softmax_batch(seen: Sequence[Seen], model: Softmax, labels: I64, prior: Prior | None = None) -> Recovered:
    """From a softmax model's gradients of ONE batch with ``labels`` (m,), each taken at its own point.

    With a ``prior``, and noise, the mean of the samples given the gradients, else least squares.  ``mse`` is that of
    fixed errors: what the fixed point adds to the noise is left out.
    """
    batch = _Batch(seen, model, labels)
    found, mse = batch.least_squares() if prior is None or not batch.noise else batch.posterior(prior)
    return Recovered(found, model.errors(seen[0].x, found, labels), mse)


class _Batch:
    """Gradients of one batch, stacked: ``weights`` (n, p) = errors (n, m) times samples, plus ``noise``, a variance.

    They count by their precision; without noise in any of them all alike.
    """

    def __init__(self, seen: Sequence[Seen], model: Softmax, labels: I64) -> None:
        self._model, self._labels, self._m = model, labels, len(labels)
        least = min(one.variance for one in seen)
        self._seen = [(math.sqrt(least / one.variance) if least else 1.0, one) for one in seen]
        self._weights = np.concatenate([w * self._m * model.split(one.g)[0] for w, one in self._seen])
        self.noise = self._m**2 * least
        self._moving = any(one.x.any() for one in seen)

    def _errors(self, phi: F64) -> F64:
        """Of samples ``phi``, clipped: (n, m)."""
        found = [
            w * clip_errors(one.clip, self._model, self._model.errors(one.x, phi, self._labels), phi).T
            for w, one in self._seen
        ]
        return np.concatenate(found)

    @np.errstate(over="ignore", invalid="ignore")  # a clipped batch's fixed point can diverge under noise
    def least_squares(self) -> tuple[F64, float]:
        """Samples (m, p) and the mean squared error of a value; the best fit on the way to a fixed point."""
        best, phi = float("inf"), np.full((self._m, self._model.features), 0.1)
        found, mse = phi, 0.0
        for _ in range(_SWEEPS):
            errors = self._errors(phi)
            inverse: F64 = np.asarray(np.linalg.pinv(errors, rcond=1e-9), dtype=np.float64)
            new: F64 = inverse @ self._weights
            left = float(np.linalg.norm(errors @ new - self._weights)) + float(np.linalg.norm(new - phi))
            if left < best:
                best, found, mse = left, new, float(np.square(inverse).sum()) * self.noise / self._m
            if _settled(new, phi):
                break
            phi = self._next(phi, new)
        return found, mse

    def posterior(self, prior: Prior) -> tuple[F64, float]:
        """The same with a prior: the mean of the samples given the gradients."""
        means = prior.means[self._labels]
        before = float(prior.sizes.sum()) / self._model.features
        best, phi = float("inf"), means
        found, mse = phi, before
        for _ in range(_SWEEPS_PRIOR):
            scaled = [self._scaled(one, phi, means, before, prior.size_variance) for _, one in self._seen]
            errors = np.concatenate([w * errors.T for (w, _), (errors, _) in zip(self._seen, scaled, strict=True)])
            strengths, axes = np.linalg.eigh(errors.T @ errors)
            # Sizes that are not quite known leave a misfit, which is like noise.
            size = min(doubt for _, doubt in scaled) * float(np.square(means).mean())
            noise = self.noise + size * float(strengths.sum()) / len(errors)
            rotated, variance = prior.posterior(
                axes.T @ (errors.T @ self._weights) / noise, np.maximum(strengths, 0.0) / noise, axes.T @ means
            )
            new = axes @ rotated
            if (left := float(np.linalg.norm(new - phi))) < best:
                best, found, mse = left, new, variance + size
            if not self._moving or _settled(new, phi):  # at zero, errors do not depend on the samples
                break
            phi = self._next(phi, new)
        return found, mse

    def _scaled(self, one: Seen, phi: F64, means: F64, before: float, spread: float) -> tuple[F64, float]:
        """Errors (m, classes) of samples ``phi``, and the relative variance of what they are clipped by.

        A clip divides by a sample's size.  Two things tell that, and count by their precision: what samples of the
        class have (``means``, each value with variance ``before``, sizes with relative variance ``spread``), and the
        gradient of the bias, which holds the clipped errors themselves.
        """
        errors = self._model.errors(one.x, phi, self._labels)
        if one.clip is None:
            return errors, 0.0
        clipped = clip_errors(one.clip, self._model, errors.copy(), means, before)
        usual = np.linalg.norm(clipped, axis=1) / np.maximum(np.linalg.norm(errors, axis=1), 1e-300)
        if not self._model.bias or not spread:
            return errors * usual[:, None], spread
        noise = max(self._m**2 * one.variance / self._model.bias**2, _EXACT * spread * float(np.square(usual).min()))
        seen = self._m * self._model.split(one.g)[1] / self._model.bias
        precision = np.diag(1.0 / (spread * usual**2)) + errors @ errors.T / noise
        lengths = np.linalg.solve(precision, 1.0 / (spread * usual) + errors @ seen / noise)
        lengths = np.clip(lengths, 0.1 * usual, 1.0)
        doubt = np.diag(np.linalg.inv(precision)) / lengths**2
        return errors * lengths[:, None], float(doubt.mean())

    def _next(self, phi: F64, new: F64) -> F64:
        """Where outputs depend on the samples, half steps between black and white settle; whole ones may cycle."""
        return np.clip(0.5 * (phi + new), 0.0, 1.0) if self._moving else new


def _settled(new: F64, old: F64) -> bool:
    return bool(np.linalg.norm(new - old) <= _SETTLED * max(1.0, float(np.linalg.norm(new))))


def clip_errors(clip: Clip | None, model: Softmax, errors: F64, phi: F64, variance: float = 0.0) -> F64:
    """``errors`` (m, classes) of samples ``phi`` (m, p), scaled in place as ``clip`` scales their gradients.

    ``variance``: of values around ``phi``, where that is only a mean.
    """
    if clip is not None:
        sizes = clip.norms(np.column_stack([phi, np.full(len(phi), model.bias)]), axis=1)
        if clip.order == 2:
            sizes = np.sqrt(np.square(sizes) + variance * phi.shape[1])
        clip.scale(errors.T, clip.norms(errors, axis=1) * sizes)
    return errors


def label_of(bias: F64) -> int:
    """The label of one sample (iDLG): p - e_y is negative at y alone, so the gradient of the output layer's bias is
    least there.
    """
    return int(np.argmin(bias))


def labels_of(bias: F64, m: int, p: F64) -> I64:
    """Labels (m,), ascending, of a batch: n_c = m (p_c - g_c) rounded to integers that sum to m.

    ``bias`` (classes,): gradient of the output layer's bias; ``p``: mean outputs over the batch, as far as known.
    """
    if m == 1:
        return np.array([label_of(bias)], dtype=np.int64)
    shares = np.maximum(p - bias, 0.0)
    total = float(shares.sum())
    shares = shares / total if total else np.full(len(bias), 1.0 / len(bias))
    counts = rounded(m * shares[None], m)[0]
    return np.repeat(np.arange(len(bias)), counts)
