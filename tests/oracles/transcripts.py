"""Exact likelihoods of whole transcripts: every sequence of batches, closed-form Laplace densities.

One agent, data set of D samples.  The gradient of sample j in round k is an arbitrary vector (all mechanisms but
``paper`` evaluate it at released points, so with the transcript given it is a constant; neighbours may have chosen
anything).  x̆_k, y̆_k are what the agent released; ``received`` is what its neighbours sent.
"""

from __future__ import annotations

from itertools import combinations, product

import numpy as np


def centres(mechanism, a, b, alpha, beta, gamma, g, received_x, received_y, released_y):
    """x_k and y_k (or g_k under noise-once), (K+1, d) each, by (alg,1) and (alg,2) read literally.

    ``g`` (K+1, d): the mean gradients; ``received`` (K+1, d): sum_j w_ij of what neighbours sent.
    """
    K1, d = g.shape
    xs, ys = np.zeros((K1, d)), np.zeros((K1, d))
    x, y = np.zeros(d), g[0]
    for k in range(K1):
        xs[k], ys[k] = x, g[k] if mechanism == "noise-once" else y
        if k + 1 < K1:
            step = released_y[k] if mechanism == "public-state" else y
            x = (1 - a) * x + alpha * received_x[k] - gamma * step
            y = (1 - b) * y + beta * received_y[k] + g[k + 1] - g[k]
    return xs, ys


def all_centres(case, data):
    """Means of the noised coordinates for every sequence of batches: (sequences, coordinates)."""
    K1, D, _ = data.shape
    rows = []
    batches = list(combinations(range(D), case["m"]))
    for sequence in product(batches, repeat=K1):
        g = np.array([data[k, list(batch)].mean(axis=0) for k, batch in enumerate(sequence)])
        xs, ys = centres(case["mechanism"], *(case[n] for n in _NAMES), g, case["rx"], case["ry"], case["by"])
        noised = np.concatenate([xs.ravel(), ys.ravel()]) if case["mechanism"] == "published-point" else ys.ravel()
        rows.append(noised)
    return np.array(rows)


_NAMES = ("a", "b", "alpha", "beta", "gamma")


def coordinate_scales(case, d):
    y = np.repeat(case["sy"], d)
    return np.concatenate([np.repeat(case["sx"], d), y]) if case["mechanism"] == "published-point" else y


def log_density(point, means, scales):
    """ln of the average over the rows of ``means`` of the product Laplace density (without its constant factor)."""
    exponents = -(np.abs(point - means) / scales).sum(axis=1)
    top = exponents.max()
    return top + np.log(np.exp(exponents - top).mean())


def largest_ratio(means, means_adjacent, scales, starts, sweeps=2):
    """Coordinate ascent of |ln p - ln p'| over transcripts.

    In one coordinate both densities are c e^z + c' e^-z between neighbouring means, so their ratio is monotone there:
    the extremes are at means or beyond all of them, and only those are tried.
    """
    far = 60.0 * scales.max() + np.abs(means).max() + np.abs(means_adjacent).max()
    choices = [
        np.unique(np.concatenate([means[:, j], means_adjacent[:, j], [-far, far]])) for j in range(means.shape[1])
    ]
    best = 0.0
    for sign in (1.0, -1.0):
        for start in starts:
            point = start.copy()
            for _ in range(sweeps):
                for j, values in enumerate(choices):
                    # All candidates of one coordinate at once.
                    rest = _exponents(point, means, scales, j)
                    rest_adjacent = _exponents(point, means_adjacent, scales, j)
                    ratio = sign * (
                        _log_mean(rest, values, means[:, j], scales[j])
                        - _log_mean(rest_adjacent, values, means_adjacent[:, j], scales[j])
                    )
                    point[j] = values[int(np.argmax(ratio))]
            value = log_density(point, means, scales) - log_density(point, means_adjacent, scales)
            best = max(best, sign * value)
    return best


def _exponents(point, means, scales, without):
    parts = np.abs(point - means) / scales
    parts[:, without] = 0.0
    return -parts.sum(axis=1)


def _log_mean(rest, values, column, scale):
    exponents = rest[:, None] - np.abs(values[None, :] - column[:, None]) / scale
    top = exponents.max(axis=0)
    return top + np.log(np.exp(exponents - top).mean(axis=0))
