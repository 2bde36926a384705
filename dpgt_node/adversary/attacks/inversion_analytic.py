"""Samples out of a gradient in closed form, where the samples enter the model through a linear layer.

The gradient of W phi + s b is G = [G_W, G_b] = mean_j e_j (phi_j, s)', e_j what reaches the layer's outputs.

One sample: G has rank one and its right singular vector is (phi, s) up to scale, whatever e and the rest of the model
are, clipped or not.  Noise of variance v in every coordinate leaves, to first order in it,

    phî - phi = n - phi n_s/s,   n, n_s ~ (0, v/||e||^2):   mean squared error (v/||e||^2) (1 + ||phi||^2/(p s^2))

Several samples of a softmax model: m G = E' [Phi, s], and e_j = softmax(W phi_j + s b) - e_{y_j} where W and b are
known, so a fixed point of Phi = pinv(E') m G_W gives the batch as far as the rows of E are independent: exactly where W
is zero (round 0) and the labels differ and leave a class out; samples of one label in the same round 0 come out as
their mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dpgt_node.adversary.attacks.labels import rounded
from dpgt_node.adversary.inference.knowledge import Softmax
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.types import F64, I64

_SWEEPS = 1000
_SETTLED = 1e-12


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


@np.errstate(over="ignore", invalid="ignore")  # a clipped batch's fixed point can diverge under noise
def softmax_batch(
    gradient: F64, x: F64, model: Softmax, labels: I64, *, clip: Clip | None = None, variance: float = 0.0
) -> Recovered:
    """From a softmax model's gradient (d,) at ``x`` (d,) of a batch with ``labels`` (m,).

    ``mse`` is that at round 0: what a fixed point adds to the noise is left out.
    """
    m, best = len(labels), float("inf")
    weights = m * model.split(gradient)[0]
    phi: F64 = np.full((m, model.features), 0.1)
    found: F64 = phi
    its_own: F64 = np.zeros((m, model.classes))
    for _ in range(_SWEEPS):
        errors = model.errors(x, phi, labels)
        if clip is not None:
            norms = clip.norms(errors, axis=1) * clip.norms(_with_bias(phi, model.bias), axis=1)
            clip.scale(errors.T, norms)
        inverse: F64 = np.asarray(np.linalg.pinv(errors.T, rcond=1e-9), dtype=np.float64)
        new: F64 = inverse @ weights
        left = float(np.linalg.norm(errors.T @ new - weights)) + float(np.linalg.norm(new - phi))
        if left < best:
            best, found, its_own = left, new, inverse
        if np.linalg.norm(new - phi) <= _SETTLED * max(1.0, float(np.linalg.norm(new))):
            break
        # Where outputs depend on the samples, half steps between black and white settle; whole ones may cycle.
        phi = np.clip(0.5 * (phi + new), 0.0, 1.0) if x.any() else new
    mse = m * float(np.square(its_own).sum()) * variance
    return Recovered(found, model.errors(x, found, labels), mse)


def _with_bias(phi: F64, s: float) -> F64:
    return np.column_stack([phi, np.full(len(phi), s)])


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
