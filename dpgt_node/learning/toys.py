"""Objectives with known minimisers: no data set needed (algorithm.md, "Objectives").

A stochastic toy's batch IS its m values of xi (float64 bits as int64): a replayed batch gives the same gradient.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from typing import Self

import numpy as np

from dpgt_node.config.model import RunConfig
from dpgt_node.learning.common import Metrics, shape_hash
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.privacy.laws.noise import ByteStream
from dpgt_node.privacy.laws.sampler import laplace, unit_uniform, words
from dpgt_node.types import F64, I64

TOYS = ("quadratic", "zeros", "pl-sine", "pl-linear")
_NO_BATCH = np.empty(0, dtype=np.int64)


class _Toy:
    """Shared parts: one parameter vector ``x``, no finite data set, a constant start."""

    def __init__(self, dimension: int, start: float, clip: Clip | None) -> None:
        self.dimension = dimension
        self.samples: int | None = None
        self.tested = 0
        self.sample_size = 0
        self.shape_sha256 = shape_hash(("x", (dimension,)))
        self._clip = clip
        # calloc'd for a start of 0: untouched pages cost no memory at d = 11 million.
        self._start = np.full(dimension, start) if start else np.zeros(dimension)
        self._start.setflags(write=False)

    @property
    def clipped(self) -> bool:
        """Whether per-sample gradients are clipped; if not, a mean gradient needs only the mean of xi."""
        return self._clip is not None

    def initial(self) -> F64:
        """The same read-only array at every call."""
        return self._start

    def under(self, share: float) -> Self:
        """The same with ``share`` times the clip."""
        other = copy.copy(self)
        other._clip = None if self._clip is None else self._clip.times(share)
        return other

    def draw_batch(self, m: int, stream: ByteStream) -> I64:
        """Empty: deterministic objectives have nothing to sample."""
        return _NO_BATCH

    def inputs(self, batch: I64) -> F64:
        return np.empty(0)

    def labels(self, batch: I64) -> I64:
        return _NO_BATCH

    def evaluate(self, x: F64, samples: int | None = None) -> Metrics:
        """f_i(x) and ||grad f_i(x)||_2, exact whatever ``samples`` says; no accuracies."""
        loss, gradient = self._mean_objective(x)
        return Metrics(loss_train=loss, grad_norm=float(np.linalg.norm(gradient)))

    @abstractmethod
    def _mean_objective(self, x: F64) -> tuple[float, F64]:
        """f_i(x) and its exact, unclipped gradient."""


class Quadratic(_Toy):
    """f_i(x) = ||x - b_i||^2 / 2 with b_i = i (1-based) in each coordinate; F has its minimum at (n+1)/2."""

    def __init__(self, dimension: int, index: int, clip: Clip | None = None) -> None:
        super().__init__(dimension, 0.0, clip)
        self.b = float(index + 1)

    def gradient(self, x: F64, batch: I64) -> F64:
        """x - b_i, clipped."""
        g = x - self.b
        if self._clip is not None:
            self._clip.scale(g[:, None], self._clip.norms(g[None, :], axis=1))
        return g

    def _mean_objective(self, x: F64) -> tuple[float, F64]:
        g = x - self.b
        return 0.5 * float(g @ g), g


class Zeros(_Toy):
    """f_i(x) = 0: exercises everything but the learning."""

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension, 0.0, None)

    def gradient(self, x: F64, batch: I64) -> F64:
        """The read-only zero vector, the same at every call."""
        return self._start

    def _mean_objective(self, x: F64) -> tuple[float, F64]:
        return 0.0, self._start


class PlSine(_Toy):
    """l(x, xi) = x^2 + (3 + xi) sin^2 x + 2 xi cos x, xi ~ Lap(1/2), scalar: nonconvex, PL, minimum f(0) = 0."""

    def __init__(self, start: float = 2.0, clip: Clip | None = None) -> None:
        super().__init__(1, start, clip)

    def draw_batch(self, m: int, stream: ByteStream) -> I64:
        """m values of xi."""
        return laplace(stream, m, 0.5).view(np.int64)

    def mean_xi(self, m: int, count: int, rng: np.random.Generator) -> F64:
        """``count`` values (count, 1) with the law of the mean of m xi: a difference of two Gamma(m) values."""
        shape = (count, 1)
        return np.asarray((rng.standard_gamma(m, shape) - rng.standard_gamma(m, shape)) * (0.5 / m))

    def gradient(self, x: F64, batch: I64) -> F64:
        """Mean over xi of 2x + (3 + xi) sin 2x - 2 xi sin x."""
        xi = batch.view(np.float64)
        samples: F64 = (2.0 * x + (3.0 + xi) * np.sin(2.0 * x) - 2.0 * xi * np.sin(x))[None, :]
        if self._clip is not None:
            self._clip.scale(samples, self._clip.norms(samples, axis=0))
        return np.asarray(samples.mean(axis=1))

    def rows(self, x: F64, xi: F64) -> F64:
        """Unclipped mean gradients at the rows of ``x`` (N, 1), each with the mean of its own batch, ``xi`` (N, 1)."""
        sine = np.sin(2.0 * x)
        return np.asarray(2.0 * x + 3.0 * sine + xi * (sine - 2.0 * np.sin(x)))

    def _mean_objective(self, x: F64) -> tuple[float, F64]:
        return float(x[0] ** 2 + 3.0 * np.sin(x[0]) ** 2), 2.0 * x + 3.0 * np.sin(2.0 * x)


class PlLinear(_Toy):
    """l(x, xi) = ||A x - d||^2 / (2n) + ||x|| xi / (1 + ||x||), xi ~ N(0, 4) (variance 4), n agents.

    A (rows x dimension) and d (rows) are standard normal from ``default_rng(seed)``: public, the same for every agent.
    The minimiser is the least-squares solution.
    """

    def __init__(
        self, dimension: int, rows: int, agents: int, seed: int, start: float = 0.0, clip: Clip | None = None
    ) -> None:
        super().__init__(dimension, start, clip)
        rng = np.random.default_rng(seed)
        self.A: F64 = rng.standard_normal((rows, dimension))
        self.d: F64 = rng.standard_normal(rows)
        self._agents = agents

    def draw_batch(self, m: int, stream: ByteStream) -> I64:
        """m values of xi, Box-Muller: two 64-bit words each."""
        u = unit_uniform(words(stream, 2 * m))
        return (2.0 * np.sqrt(-2.0 * np.log(u[:m])) * np.cos(2.0 * math.pi * u[m:])).view(np.int64)

    def mean_xi(self, m: int, count: int, rng: np.random.Generator) -> F64:
        """``count`` values (count, 1) with the law of the mean of m xi, N(0, 4/m)."""
        return rng.standard_normal((count, 1)) * (2.0 / math.sqrt(m))

    def gradient(self, x: F64, batch: I64) -> F64:
        """Mean over xi of A'(Ax - d)/n + xi x / (||x|| (1 + ||x||)^2); the second term is taken as 0 at x = 0."""
        xi = batch.view(np.float64)
        _, exact = self._mean_objective(x)
        norm = float(np.linalg.norm(x))
        direction = x / (norm * (1.0 + norm) ** 2) if norm else x
        if self._clip is None:
            return exact + float(xi.mean()) * direction
        samples = exact[:, None] + direction[:, None] * xi
        self._clip.scale(samples, self._clip.norms(samples, axis=0))
        return np.asarray(samples.mean(axis=1))

    def rows(self, x: F64, xi: F64) -> F64:
        """Unclipped mean gradients at the rows of ``x`` (N, d), each with the mean of its own batch, ``xi`` (N, 1)."""
        gradients = (x @ self.A.T - self.d) @ self.A
        gradients /= self._agents
        norms = np.sqrt(np.square(x).sum(axis=1, keepdims=True))
        norms[norms == 0.0] = 1.0  # the direction is x times a number, so 0 at x = 0 whatever the number
        gradients += x * (xi / (norms * (1.0 + norms) ** 2))
        return np.asarray(gradients)

    def _mean_objective(self, x: F64) -> tuple[float, F64]:
        residual = self.A @ x - self.d
        return float(residual @ residual) / (2.0 * self._agents), (self.A.T @ residual) / self._agents


def build_toy(run: RunConfig, index: int) -> Quadratic | Zeros | PlSine | PlLinear:
    """The toy of 0-based agent ``index``; its parameters were validated with the configuration."""
    clip, name, params = Clip.from_config(run.privacy), run.data.dataset, run.data.params
    if name == "quadratic":
        return Quadratic(int(params["dimension"]), index, clip)
    if name == "zeros":
        return Zeros(int(params["dimension"]))
    if name == "pl-sine":
        return PlSine(float(params.get("start", 2.0)), clip)
    return _pl_linear(run, clip)


def toy_constants(run: RunConfig) -> tuple[float, float] | None:
    """(L1, mu) for F = (1/n) sum_i f_i: L1 of the mean gradient, and 2 mu (F - F*) <= ||grad F||^2.

    ``pl-sine``: f'' = 2 + 6 cos 2x gives 8, and mu = 1/32 (the paper's n/32 belongs to the SUM of the f_i).
    ``pl-linear``: the extreme eigenvalues of A'A over n (the paper prints rho(A)^2/(2n) and 2 theta^2).  The sampled
    gradients of both have no common Lipschitz constant, since xi is unbounded; these are the constants of their means.
    ``zeros``: None.
    """
    name = run.data.dataset
    if name == "quadratic":
        return 1.0, 1.0
    if name == "pl-sine":
        return 8.0, 1.0 / 32.0
    if name == "pl-linear":
        eigenvalues = np.square(np.linalg.svd(_pl_linear(run, None).A, compute_uv=False)) / run.n
        return float(eigenvalues.max()), float(eigenvalues.min())
    return None


def _pl_linear(run: RunConfig, clip: Clip | None) -> PlLinear:
    params = run.data.params
    dimension = int(params.get("dimension", 5))
    rows = int(params.get("rows", 2 * dimension))
    return PlLinear(dimension, rows, run.n, run.data.seed, float(params.get("start", 0.0)), clip)
