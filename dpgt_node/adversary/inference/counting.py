"""How many samples of each class a batch has, by the gradient of the output layer's bias, clipped and noisy or not.

A sample of class y gives the bias of a softmax model the gradient s lambda (p - e_y), lambda = min(1, C/|g|) its clip.
With r_y the mean of lambda (p - e_y) over public samples of class y and pi the shares of the classes in the batch,

    g/s = sum_y pi_y r_y + (spread of the samples around r_y)/m + noise/s,    pi >= 0, sum pi = 1

solved by least squares.  Each r_y sums to 0, so that sum pi = 1 brings back the equation that is lost.  Before pi is
made nonnegative its error is linear in both disturbances, so its covariance is known beforehand.

Where the model answers 1/classes to everything, r_y = lambda_y (1/classes - e_y).  Without public samples lambda is not
known, only that it is at most 1; then the batch is taken to lack a class, which is so where m < classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field

import numpy as np
from scipy.optimize import nnls

from dpgt_node.adversary.inference.knowledge import Samples, Softmax
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

Clipped = Callable[[F64, F64], F64]
"""(errors (m, classes), samples (m, p)) -> the errors, scaled as the clip scales the samples' gradients."""
_SUMS = 1e3  # weight of sum pi = 1 beside the equations


@dataclass(frozen=True, slots=True)
class Responses:
    """``mean`` (classes, classes): row y is r_y.  ``around`` (N, classes): of N public samples, what they have beyond
    the mean of their ``labels`` (N,); empty where nothing is known of the spread.
    """

    mean: F64 = field(repr=False)
    around: F64 = field(repr=False)
    labels: I64 = field(repr=False)

    def spread(self, shares: F64) -> F64:
        """Covariance (classes, classes) of one sample's response around its class, of a batch with these ``shares``."""
        if not len(self.around):
            return np.zeros_like(self.mean)
        have = np.bincount(self.labels, minlength=len(shares))
        weights = (shares / np.maximum(have, 1))[self.labels]
        return np.asarray((self.around * weights[:, None]).T @ self.around)


def untrained(classes: int) -> Responses:
    """Of a model that answers 1/classes to everything, without a clip."""
    return Responses(1.0 / classes - np.eye(classes), np.zeros((0, classes)), np.zeros(0, dtype=np.int64))


def responses(model: Softmax, x: F64, public: Samples, clipped: Clipped) -> Responses:
    """Of public samples at parameters ``x`` (d,); a class without any answers as one that says 1/classes."""
    errors = clipped(model.errors(x, public.phi, public.labels), public.phi)
    mean = untrained(model.classes).mean
    for y in range(model.classes):
        rows = public.labels == y
        if rows.any():
            mean[y] = errors[rows].mean(axis=0)
    return Responses(mean, errors - mean[public.labels], public.labels)


def shares(gap: F64, mean: F64, noise: float = 0.0) -> F64:
    """pi (classes,) on the simplex, nearest to ``gap`` (n,) = sum_y pi_y mean[y], ``mean`` (classes, n).

    n: classes, or several times as many where several gradients of one batch stand side by side.  ``noise``: variance
    of one entry of ``gap``; the more there is, the nearer to equal shares.
    """
    weight = _SUMS * max(float(np.abs(mean).max()), np.finfo(float).tiny)
    pull = math.sqrt(noise * len(mean))  # shares are taken to vary by 1/sqrt(classes): an agent may hold one class
    rows = np.vstack([mean.T, np.full(len(mean), weight), pull * np.eye(len(mean))])
    found: F64 = nnls(rows, np.concatenate([gap, [weight], np.full(len(mean), pull / len(mean))]))[0]
    total = float(found.sum())
    return found / total if total else np.full(len(mean), 1.0 / len(mean))


def shares_up_to_scale(gap: F64) -> F64:
    """The same at a model that answers 1/classes, where all samples are scaled by one lambda <= 1 that is not known:
    exact where a class is missing from the batch; else what all classes have in common is lost.
    """
    lacking = float(gap.max()) - gap
    total = float(lacking.sum())
    return lacking / total if total > 0.0 else np.full(len(gap), 1.0 / len(gap))


def covariance(known: Responses, pi: F64, m: int, noise: float) -> F64:
    """Of the shares' error before they are made nonnegative, (classes, classes); ``noise``: variance of g/s."""
    classes = len(pi)
    tangent = np.linalg.svd(np.ones((1, classes)))[2][1:].T
    back = tangent @ np.linalg.pinv(known.mean.T @ tangent)
    return np.asarray(back @ disturbance(known, pi, m, noise) @ back.T)


def disturbance(known: Responses, pi: F64, m: int, noise: float) -> F64:
    """Covariance (classes, classes) of g/s around sum_y pi_y r_y."""
    return known.spread(pi) / m + noise * np.eye(len(pi))


def expected_right(known: Responses, pi: F64, m: int, noise: float, rng: np.random.Generator, draws: int = 48) -> float:
    """The share of labels that come out right of batches with ``pi``, by ``draws`` made-up ones."""
    values, vectors = np.linalg.eigh(disturbance(known, pi, m, noise))
    half = vectors * np.sqrt(np.maximum(values, 0.0))
    common = 0
    for z in rng.standard_normal((draws, len(pi))):
        true = rng.multinomial(m, pi)
        seen = true @ known.mean / m + half @ z
        common += int(np.minimum(counted(seen, known, m, noise), true).sum())
    return common / (draws * m)


def counted(gap: F64, known: Responses, m: int, noise: float) -> I64:
    """Labels of each class, (classes,), of a batch of ``m`` that gave ``gap`` (classes,); ``noise``: its variance."""
    pi = np.eye(len(gap))[gap.argmin()] if m == 1 else shares(gap, known.mean, noise)
    out: I64 = rounded(m * pi[None], m)[0]
    return out


def rounded(counts: F64, m: int) -> I64:
    """Integers that sum to m, by largest remainder; (rounds, classes)."""
    out = np.floor(counts).astype(np.int64)
    for row, exact in zip(out, counts, strict=True):
        missing = m - int(row.sum())
        row[np.argsort(row - exact, kind="stable")[:missing]] += 1
    return out
