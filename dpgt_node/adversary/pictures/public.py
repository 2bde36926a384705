"""What anybody knows of the pictures before a message is seen: their means, how they vary, and some to try attacks on.

All of it is of the test part of the run's data set.  Four fifths teach means and prior, the last fifth is kept for
made-up trials (:mod:`dpgt_node.adversary.pictures.expect`): no trial rests on a picture that the prior has seen.

The prior of a picture of class y is normal around its class's mean, with the covariance that pictures have around the
means of their classes (principal components; beyond them, and at the least, a variance of FLOOR).
"""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

import numpy as np

from dpgt_node.adversary.attack import NotApplicable
from dpgt_node.adversary.inference.knowledge import Samples, public_samples
from dpgt_node.config import RunConfig
from dpgt_node.errors import ConfigError
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

FLOOR = 1e-6
"""Variance: a value is never known better than to 0.1 % beforehand."""
_COUNT, _TAUGHT, _LEAST = 4000, 1600, 40


@dataclass(frozen=True, slots=True)
class Prior:
    """``means`` (classes, p); ``components`` (p, r) with orthonormal columns and their variances ``sizes`` (r,).

    ``size_variance``: of a picture's norm, as a part of the mean norm of its class squared.
    """

    means: F64 = field(repr=False)
    components: F64 = field(repr=False)
    sizes: F64 = field(repr=False)
    size_variance: float = 0.0

    def posterior(self, data: F64, weights: F64, means: F64) -> tuple[F64, float]:
        """Mean (a, p) and mean variance of a value, of rows with prior mean ``means`` (a, p), the prior's covariance,
        and a likelihood exp(-weights |row|^2/2 + data'row), weights (a,).
        """
        w, p = weights[:, None], data.shape[1]

        def at(variance: F64 | float, told: F64, before: F64) -> F64:
            return np.asarray((variance * told + before) / (1.0 + w * variance))

        told, before = data @ self.components, means @ self.components
        out = at(FLOOR, data, means) + (at(self.sizes, told, before) - at(FLOOR, told, before)) @ self.components.T
        rest = FLOOR / (1.0 + weights * FLOOR) * (p - len(self.sizes))
        variance = (self.sizes / (1.0 + w * self.sizes)).sum(axis=1) + rest
        return out, float(variance.mean()) / p


@dataclass(frozen=True, slots=True)
class Public:
    """``taught``: what means and prior rest on; ``held``: what trials are made of.  Samples are flat, (N, p)."""

    taught: Samples
    held: Samples
    mean: F64 = field(repr=False)
    prior: Prior

    @classmethod
    def of(cls, samples: Samples) -> Public:
        """Of at least 40 samples in no particular order."""
        cut = 4 * len(samples.phi) // 5
        taught, held = (
            Samples(samples.phi[part].reshape(-1, samples.phi[0].size), samples.labels[part], samples.classes)
            for part in (slice(cut), slice(cut, None))
        )
        mean = taught.phi.mean(axis=0)
        means = np.tile(mean, (samples.classes, 1))
        for y in np.unique(taught.labels).tolist():
            means[y] = taught.phi[taught.labels == y].mean(axis=0)
        around = (taught.phi - means[taught.labels])[:_TAUGHT]
        _, sizes, axes = np.linalg.svd(around / np.sqrt(len(around)), full_matrices=False)
        norms = np.linalg.norm(taught.phi, axis=1)
        usual = np.ones(samples.classes)
        for y in np.unique(taught.labels).tolist():
            usual[y] = norms[taught.labels == y].mean() or 1.0
        spread = float(np.square(norms / usual[taught.labels] - 1.0).mean())
        return cls(taught, held, mean, Prior(means, axes.T, np.maximum(sizes**2, FLOOR), spread))

    @classmethod
    def here(cls, run: RunConfig, root: Path | None) -> Public | None:
        """None where the run's data set is not on this machine, or has no test part to speak of."""
        try:
            samples = public_samples(run, root, _COUNT)
        except (ConfigError, NotApplicable):
            return None
        return cls.of(samples) if len(samples.phi) >= _LEAST else None

    def like(self, labels: I64, rng: np.random.Generator) -> Samples:
        """One held sample for each of these labels, all different as far as there are as many; of a class that is not
        among them any sample.
        """
        order = rng.permutation(len(self.held.phi))
        chosen: list[int] = []
        for y in labels.tolist():
            fits = [row for row in order.tolist() if row not in chosen and self.held.labels[row] == y]
            chosen.append(fits[0] if fits else int(rng.choice(order)))
        return Samples(self.held.phi[chosen], self.held.labels[chosen], self.held.classes)
