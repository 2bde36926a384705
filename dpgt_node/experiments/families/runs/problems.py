"""Objectives with known minimisers, many repetitions of a run of any method side by side, and fitted rates.

Rules are elementwise on the last axis, so repetitions lie there: an agent's row holds them one after another.  Noise
is drawn from a seeded generator: expectations are wanted, nobody's data are here.
"""

from __future__ import annotations

import csv
import io
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.base import Exchanged
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.sim.rows import Rows
from dpgt_node.types import F64, Stream
from dpgt_node.values import dataclass

RATE_FILE = "rate.csv"
_LARGE = 1e150
"""Errors above this are of a run that blew up."""


class Problem:
    """n agents, dimension ``d``; x float64 (n, repetitions, d) throughout."""

    d: int
    start: float = 0.0

    @abstractmethod
    def gradient(self, x: F64, m: int, rng: np.random.Generator) -> F64:
        """A mean of ``m`` sampled gradients at each x."""

    @abstractmethod
    def error(self, x: F64) -> F64:
        """Of each agent and repetition: float64 (n, repetitions)."""


class PlSine(Problem):
    """x^2 + (3 + xi) sin^2 x + 2 xi cos x, xi ~ Lap(1/2): nonconvex, PL; error ||grad F||^2."""

    d, start = 1, 2.0

    def __init__(self, n: int) -> None:
        del n  # every agent has the same objective

    def gradient(self, x: F64, m: int, rng: np.random.Generator) -> F64:
        """xi enters through its mean, a difference of two Gamma(m) values."""
        xi = (rng.standard_gamma(m, x.shape) - rng.standard_gamma(m, x.shape)) * (0.5 / m)
        sine = np.sin(2.0 * x)
        return np.asarray(2.0 * x + 3.0 * sine + xi * (sine - 2.0 * np.sin(x)))

    def error(self, x: F64) -> F64:
        return np.asarray(np.square(2.0 * x + 3.0 * np.sin(2.0 * x))[..., 0])


class Quadratics(Problem):
    """f_i(x) = sum_c h_ic (x_c - i)^2 / 2, h uniform in [.5, 1.5], i from 1; gradients with N(0, 1) noise a sample;
    error ||x_i - x*||^2.
    """

    d = 4

    def __init__(self, n: int) -> None:
        self._h = np.random.default_rng(3).uniform(0.5, 1.5, (n, self.d))[:, None, :]
        self._b = np.arange(1.0, n + 1.0)[:, None, None]
        self._best = (self._h * self._b).sum(axis=0) / self._h.sum(axis=0)

    def gradient(self, x: F64, m: int, rng: np.random.Generator) -> F64:
        return np.asarray(self._h * (x - self._b) + rng.standard_normal(x.shape) / math.sqrt(m))

    def error(self, x: F64) -> F64:
        return np.asarray(np.square(x - self._best).sum(axis=2))


class FiniteSums(Problem):
    """f_i = (1/D) sum_j (a_ij'x - b_ij)^2 / 2, D = 20, a and b standard normal; error ||x_i - x*||^2."""

    d, D = 4, 20

    def __init__(self, n: int) -> None:
        rng = np.random.default_rng(0)
        self._A, self._b = rng.standard_normal((n, self.D, self.d)), rng.standard_normal((n, self.D))
        self._best = np.linalg.lstsq(self._A.reshape(-1, self.d), self._b.reshape(-1), rcond=None)[0]
        self.picked = np.zeros((n, 1, 1), dtype=np.int64)

    def table(self, x: F64) -> F64:
        """Every sample's gradient: (n, repetitions, D, d)."""
        residual = np.einsum("nDd,nrd->nrD", self._A, x) - self._b[:, None, :]
        return np.asarray(self._A[:, None] * residual[..., None])

    def gradient(self, x: F64, m: int, rng: np.random.Generator) -> F64:
        """m distinct samples each; they stay ``picked``."""
        self.picked = np.argsort(rng.random((*x.shape[:2], self.D)), axis=2)[:, :, : min(m, self.D)]
        return self.again(x)

    def again(self, x: F64) -> F64:
        """On the samples that were picked last."""
        return np.asarray(np.take_along_axis(self.table(x), self.picked[..., None], axis=2).mean(axis=2))

    def error(self, x: F64) -> F64:
        return np.asarray(np.square(x - self._best).sum(axis=2))


PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "pl-sine": PlSine,
    "quadratics": Quadratics,
    "finite-sums": FiniteSums,
}


class Ensemble:
    """``repetitions`` runs side by side; what rows call (``sim.rows.Work``, ``Keeping``)."""

    def __init__(self, run: RunConfig, problem: Problem, repetitions: int, seed: int) -> None:
        topology, self._schedule = Topology.from_config(run.graph), Schedule.from_config(run)
        self._problem, self._rng = problem, np.random.default_rng(seed)
        self._charged = MECHANISMS[run.algorithm.mechanism].charged
        self._laplace = LAWS[run.noise.law].ideal_variance > 1.0
        self._shape, self.K = (run.n, repetitions, problem.d), run.K
        start = np.full((run.n, repetitions * problem.d), problem.start)
        self._rows = Rows(run, topology, self._schedule, self, start)

    def error(self) -> F64:
        """Of x_k: (n, repetitions)."""
        return self._problem.error(self._rows.x.reshape(self._shape))

    def step(self, k: int) -> None:
        """Round ``k``."""
        self._rows.step(k, k == self.K)

    def gradient(self, k: int, x: F64) -> F64:
        m = self._schedule.m_for(None if not isinstance(self._problem, FiniteSums) else FiniteSums.D)
        return self._problem.gradient(x.reshape(self._shape), m, self._rng).reshape(x.shape)

    def perturb(self, stream: Stream, k: int, private: F64, public: F64 | None = None) -> F64:
        scales = np.array([[self._schedule.sigma(stream, i, k)] for i in range(self._shape[0])])
        noisy = private.copy()
        if scales.any():
            drawn: F64 = (self._rng.laplace if self._laplace else self._rng.standard_normal)(size=private.shape)
            noisy += scales * drawn
        if public is not None:
            noisy += public
        return noisy

    def wire(self, stream: Stream, k: int, values: F64) -> F64:
        return values

    def again(self, k: int, x: F64) -> F64:
        return self._sums.again(x.reshape(self._shape)).reshape(x.shape)

    def whole(self, k: int, x: F64) -> F64:
        return np.asarray(self._sums.table(x.reshape(self._shape)).mean(axis=2)).reshape(x.shape)

    def table(self, x: F64) -> F64:
        return self._sums.table(x.reshape(self._shape)).reshape(len(x), -1)

    def exchanged(self, k: int, x: F64, table: F64) -> Exchanged:
        self.gradient(k, x)
        held = table.reshape(*self._shape[:2], FiniteSums.D, self._shape[2])
        at = self._sums.picked[..., None]
        new = np.take_along_axis(self._sums.table(x.reshape(self._shape)), at, axis=2)
        change = new - np.take_along_axis(held, at, axis=2)
        after = held.copy()
        np.put_along_axis(after, np.broadcast_to(at, new.shape), new, axis=2)
        drift = change.sum(axis=2) / FiniteSums.D
        return Exchanged(change.mean(axis=2).reshape(x.shape), after.reshape(table.shape), drift.reshape(x.shape))

    @property
    def _sums(self) -> FiniteSums:
        if not isinstance(self._problem, FiniteSums):
            raise TypeError("only finite sums have a table")
        return self._problem


def measure(run: RunConfig, name: str, Ks: Sequence[int], repetitions: int, seed: int, *, along: bool) -> str:
    """CSV: K, the mean over repetitions of the worst agent's error, its standard error.

    ``along``: of one run, at x_K for every K of ``Ks``; else of a run for each K, at x_{K+1}.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["K", "error", "deviation"])
    with np.errstate(all="ignore"):
        if along:
            run = replace(run, algorithm=replace(run.algorithm, iterations=max(Ks)))
            one, wanted = Ensemble(run, PROBLEMS[name](run.n), repetitions, seed), set(Ks)
            for k in range(run.K + 1):
                if k in wanted:
                    writer.writerow(_row(k, one.error()))
                one.step(k)
            return out.getvalue()
        for K in Ks:
            longer = replace(run, algorithm=replace(run.algorithm, iterations=K))
            one = Ensemble(longer, PROBLEMS[name](run.n), repetitions, seed + K)
            for k in range(K + 1):
                one.step(k)
            writer.writerow(_row(K, one.error()))
    return out.getvalue()


def _row(K: int, errors: F64) -> list[object]:
    means = errors.mean(axis=1)
    worst = int(np.argmax(np.where(np.isfinite(means), means, np.inf)))
    mean, deviation = float(means[worst]), float(errors[worst].std(ddof=1) / math.sqrt(errors.shape[1]))
    if not mean < _LARGE:
        mean, deviation = math.inf, math.inf
    return [K, repr(mean), repr(deviation)]


@dataclass(frozen=True, slots=True)
class Rate:
    """Least-squares slopes of log error: all of it, its first and its second half."""

    whole: float
    early: float
    late: float


def fitted(Ks: Sequence[int], errors: Sequence[float], *, against_log: bool) -> Rate | None:
    """None: an error that is no positive finite number."""
    if not all(0.0 < error < math.inf for error in errors) or len(Ks) < 4:
        return None
    x = np.log(np.array(Ks) + 1.0) if against_log else np.array(Ks, dtype=float)
    y, half = np.log(errors), len(Ks) // 2

    def slope(part: slice) -> float:
        return float(np.polyfit(x[part], y[part], 1)[0])

    return Rate(slope(slice(None)), slope(slice(0, half + 1)), slope(slice(half, None)))
