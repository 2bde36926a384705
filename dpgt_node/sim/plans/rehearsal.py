"""A run rehearsed on data that are nobody's: synthetic ones of the run's shape, seeded noise, all agents as rows.

``dpgt plan`` compares candidates here.  The noise is exactly the candidate's; only the data are others, and fewer: a
gradient of fewer samples has the same mean, and what the noise does to it depends on scales alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig
from dpgt_node.config.privacy.cancelling import masks
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.datasets import Dataset
from dpgt_node.learning.data.features import transform
from dpgt_node.learning.data.synthetic import APART, synthetic, table_like
from dpgt_node.learning.nets.batched import Gradients, batched
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.learning.nets.models import SoftmaxOracle
from dpgt_node.learning.temperature import best_temperature
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.sim.plans.alike import Alike
from dpgt_node.sim.rows import Rows
from dpgt_node.types import F64, I64, Stream
from dpgt_node.values import dataclass

_STREAMS: tuple[Stream, Stream] = ("X", "Y")
_TRAIN, TEST = 2_000, 2_000
_MIN_PER_AGENT = 50
_NUMBERS = 1 << 24  # features in memory: fewer samples where each has many
_WORK = 1 << 24
_FLOW_STEPS, _FLOW_STEP, _FLOW_POINTS = 200, 0.5, 14
_NOISE_POINTS = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """All that is known of the agents' data: numbers a sample, classes, samples of every agent.

    ``tabular``: whether samples are rows of a table, and not pictures.
    """

    p: int
    classes: int
    samples: tuple[int, ...]
    tabular: bool = False

    @property
    def stand_in(self) -> str:
        """What stands in for the data, in words."""
        return "a made-up table of the same shape" if self.tabular else "synthetic data of the same shape"

    def drawn(self, train: int, labels: I64 | None = None, *, apart: float = APART) -> Dataset:
        """So many training samples of that, and TEST others.  ``labels``: of the training samples, None: drawn too.

        ``apart``: how far the classes of a table are from each other.
        """
        if self.tabular:
            return table_like(self.p, self.classes, train, TEST, labels=labels, apart=apart)
        return synthetic(self.p, self.classes, train, TEST, labels=labels)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Test accuracy of x_{i,K+1} on synthetic data: mean over agents and the worst agent, each over the draws."""

    mean: float
    worst: float

    @classmethod
    def of(cls, accuracies: Sequence[F64]) -> Outcome:
        """``accuracies``: (n,) of each draw."""
        found = np.stack(accuracies)
        return cls(float(found.mean()), float(found.min(axis=1).mean()))

    @property
    def score(self) -> float:
        """What candidates are compared by: the worst agent counts, the mean is the less noisy figure."""
        return 0.5 * (self.mean + self.worst)


class Rehearsal:
    """Stand-in data of one run's shape, and what runs on them give.

    ``run``: for model, features, clip and number of agents.  ``public``: raw data to stand in instead of synthetic
    ones; NEVER the agents' own.
    """

    def __init__(
        self,
        run: RunConfig,
        shape: Shape,
        public: Dataset | None = None,
        *,
        alike: Alike | None = None,
        together: int = _TRAIN,
        apart: float = APART,
    ) -> None:
        """``alike``: who holds which of them, None: as the run file's partition says.  ``together``: about how many.
        ``apart``: see :meth:`Shape.drawn`.
        """
        n = run.n
        alike = Alike.of(run) if alike is None else alike
        together = max(_MIN_PER_AGENT * n, min(together, _NUMBERS // shape.p))
        each = [min(D, -(-together // n)) for D in shape.samples]
        if public is not None and public.x_train.shape[1] != shape.p:
            message = f"has {public.x_train.shape[1]} numbers a sample, the agents' data have {shape.p}"
            raise ConfigError.one("command line", "--public", message)
        if public is not None and public.classes != shape.classes:
            message = f"has {public.classes} classes, the agents' data have {shape.classes}"
            raise ConfigError.one("command line", "--public", message)
        raw = shape.drawn(sum(each), apart=apart) if public is None else _cut(public, sum(each))
        features = (run.data.features, run.data.normalise)
        data = Dataset(
            transform(raw.x_train, *features), raw.y_train, transform(raw.x_test, *features), raw.y_test, raw.classes
        )
        self._data, self._model, self._bias, self._classes = data, run.model, run.model.bias, raw.classes
        ends = np.cumsum([0, *each]) * len(raw.x_train) // sum(each)
        self._shards: list[I64] = [np.arange(start, end) for start, end in itertools.pairwise(ends.tolist())]
        if not alike.all_alike:
            self._shards = alike.shards(raw.y_train, n)
        self._batches: list[I64] = [np.arange(len(shard)) for shard in self._shards]
        self._by_clip: dict[Clip | None, Gradients] = {}
        self._clip = Clip.from_config(run.privacy)
        self._pooled = self._oracle(None, self._clip)
        self._holders: dict[Clip, SoftmaxOracle] = {}
        self._all = np.arange(self._pooled.samples)

    @property
    def dimension(self) -> int:
        return self._pooled.dimension

    @property
    def chance(self) -> float:
        """Accuracy of a model that always says the most frequent class of the test part."""
        return float(np.bincount(self._data.y_test).max() / len(self._data.y_test))

    @cached_property
    def one_step(self) -> float:
        """1 over the largest curvature at the start, clipping included: the step that solves the steepest direction."""
        x, rng = self._pooled.initial(), np.random.default_rng(0)
        direction = rng.standard_normal(self.dimension)
        g, every = self._full(x), 1e-3
        size = 0.0
        for _ in range(12):
            direction *= every / np.linalg.norm(direction)
            direction = (self._full(x + direction) - g) / every
            size = float(np.linalg.norm(direction))
        return 1.0 / max(size, 1e-12)

    @property
    def draws(self) -> int:
        """How many draws of the noise a judgement takes: 2 where a gradient takes long, up to 8 where it does not."""
        return min(max(_WORK // (self._pooled.samples * self.dimension), 2), 8)

    def start(self) -> F64:
        """x_0: a new float64 (d,)."""
        return np.array(self._pooled.initial())

    def pooled(self, x: F64, clip: Clip) -> F64:
        """The clipped gradient at ``x`` (d,) of all stand-in samples."""
        return self._holder(clip).gradient(x, self._all)

    def pooled_sums(self, clip: Clip) -> F64:
        """Their features summed by class: float64 (d,)."""
        return self._holder(clip).class_sums(self._all)

    def accuracy(self, x: F64) -> float:
        """Of ``x`` (d,) on the test part."""
        return self._hits(self._logits(x))

    def feature_norm(self, order: int, part: float) -> float:
        """The norm that features of this ``part`` of the stand-in samples do not exceed, the bias not counted."""
        return float(np.quantile(np.linalg.norm(self._data.x_train, ord=order, axis=1), part))

    def gradient_norm(self, order: int) -> float:
        """The median norm of a sample's gradient at x = 0, before it is clipped."""
        inputs = np.linalg.norm(self._data.x_train, ord=order, axis=1) ** order + self._bias**order
        off = 1.0 - 1.0 / self._classes
        errors = off**order + (self._classes - 1) * (1.0 - off) ** order
        return float(np.median(inputs * errors) ** (1.0 / order))

    def _holder(self, clip: Clip) -> SoftmaxOracle:
        if clip not in self._holders:
            self._holders[clip] = self._oracle(None, clip)
        return self._holders[clip]

    def gradients(self, x: F64, clip: Clip | None) -> F64:
        """Every agent's clipped gradient at its row of ``x`` (n, d), over all its stand-in samples."""
        if clip not in self._by_clip:
            self._by_clip[clip] = batched([self._oracle(shard, clip) for shard in self._shards])
        return self._by_clip[clip](x, self._batches)

    def class_sums(self, clip: Clip | None) -> F64:
        """Every agent's stand-in features summed by class (n, d): what the first release may be of."""
        oracles = (self._oracle(shard, clip) for shard in self._shards)
        return np.stack([oracle.class_sums(batch) for oracle, batch in zip(oracles, self._batches, strict=True)])

    def accuracies(self, run: RunConfig, seed: int) -> F64:
        """Test accuracy of every agent's x_{i,K+1} in one repetition: float64 (n,)."""
        return self.judged(self.final(run, seed))

    def judged(self, x: F64) -> F64:
        """Test accuracy of every row of ``x`` (n, d): float64 (n,)."""
        return np.array(self._accuracies(x))

    def temperature(self, ends: Sequence[F64]) -> float:
        """What the logits of the models ``ends``, each (d,), must be divided by for the least loss on the test part."""
        return best_temperature([self._logits(x) for x in ends], self._data.y_test)

    def final(self, run: RunConfig, seed: int) -> F64:
        """x_{i,K+1} of one repetition: float64 (n, d)."""
        schedule = Schedule.from_config(run)
        x0: F64 = np.tile(self._pooled.initial(), (run.n, 1))
        rows = Rows(run, Topology.from_config(run.graph), schedule, _Work(self, run, schedule, seed), x0)
        for k in range(run.K + 1):
            rows.step(k, k == run.K)
        return rows.x

    # ---------------------------------------------------------------- what (T, nu) means
    def table(self, time_max: float, rates: tuple[float, float]) -> Table:
        """Accuracy along the pooled gradient flow up to ``time_max`` under steady noise.

        ``rates`` (least, largest): noise as nu/sqrt(T), what one unit of time adds to the standard deviation of a
        coordinate where nothing pulls it back.
        """
        step = min(max(_FLOW_STEP * self.one_step, time_max / _FLOW_STEPS), 1.4 * self.one_step)
        count = max(2, min(math.ceil(time_max / step), _FLOW_STEPS))
        wanted = sorted({round(v) for v in np.geomspace(1, count, _FLOW_POINTS)})
        levels = np.geomspace(rates[0] * 0.99, rates[1] * 1.01, _NOISE_POINTS)
        # The same noise at every level, so that what differs is the level.
        size = levels[:, None] * math.sqrt(step)
        rng, rows = np.random.default_rng(1), []
        x = np.tile(self._pooled.initial(), (_NOISE_POINTS, 1))
        for index in range(1, count + 1):
            x = x - step * np.stack([self._full(row) for row in x]) + size * rng.standard_normal(self.dimension)
            if index in wanted:
                rows.append(self._accuracies(x))
        return Table(step * np.array(wanted, dtype=float), levels, np.array(rows))

    def _oracle(self, shard: I64 | None, clip: Clip | None) -> SoftmaxOracle:
        return SoftmaxOracle(self._data, shard, bias=self._bias, clip=clip, init_seed=self._model.init_seed)

    def _full(self, x: F64) -> F64:
        return self._pooled.gradient(x, np.arange(self._pooled.samples))

    def _logits(self, x: F64) -> F64:
        weights = self._classes * self._data.x_test.shape[1]
        logits: F64 = self._data.x_test @ x[:weights].reshape(self._classes, -1).T
        return logits + self._bias * x[weights:] if self._bias else logits

    def _hits(self, logits: F64) -> float:
        return float(np.mean(logits.argmax(axis=1) == self._data.y_test))

    def _accuracies(self, x: F64) -> list[float]:
        return [self._hits(self._logits(row)) for row in x]


class _Work:
    """Full batches, noise from a seeded generator, no wire."""

    def __init__(self, rehearsal: Rehearsal, run: RunConfig, schedule: Schedule, seed: int) -> None:
        self._rehearsal, self._rng = rehearsal, np.random.default_rng(seed)
        self._clip = Clip.from_config(run.privacy)
        self._law = LAWS[run.noise.law]
        self._schedule, self._n = schedule, run.n
        self._shared = _root(run)

    def gradient(self, k: int, x: F64) -> F64:
        share = self._schedule.share(k)
        clip = self._clip if self._clip is None or share == 1.0 else self._clip.times(share)
        return self._rehearsal.class_sums(clip) if self._schedule.sums(k) else self._rehearsal.gradients(x, clip)

    def perturb(self, stream: Stream, k: int, private: F64, public: F64 | None = None) -> F64:
        noise = self._law.plain(self._rng, private.shape)
        if self._shared is not None:
            noise += self._shared @ self._rng.standard_normal(private.shape)
        noise *= np.array([[self._schedule.sigma(stream, i, k)] for i in range(self._n)])
        noise += private
        if public is not None:
            noise += public
        return noise

    def wire(self, stream: Stream, k: int, values: F64) -> F64:
        return values


def _root(run: RunConfig) -> F64 | None:
    """What turns independent normal rows into the noise that pairs share, in an agent's own scale: a root of r^2 L.

    The rows then have the joint law of the agents' sums of +-r M_ij.  None where nobody shares noise.
    """
    graph = masks(run)
    if graph is None or run.noise.cancel is None:
        return None
    pairs = np.zeros((len(graph.edges), run.n))
    for row, (i, j) in zip(pairs, graph.edges, strict=True):
        row[i], row[j] = 1.0, -1.0
    values, vectors = np.linalg.eigh(pairs.T @ pairs)
    root: F64 = run.noise.cancel * vectors * np.sqrt(np.maximum(values, 0.0))
    return root


def _cut(data: Dataset, train: int) -> Dataset:
    """The first ``train`` and TEST samples of a random order."""
    rng = np.random.default_rng(0)
    first, second = rng.permutation(len(data.x_train))[:train], rng.permutation(len(data.x_test))[:TEST]
    x_train, x_test = data.real_train(first), data.real_test()[second]
    return Dataset(x_train, data.y_train[first], x_test, data.y_test[second], data.classes)


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """``accuracy`` (times, rates): float64, of the noisy flow at ``times`` under noise of ``rates``; both ascending."""

    times: F64
    rates: F64
    accuracy: F64

    def __call__(self, time: F64, noise: F64) -> F64:
        """Accuracy at times T and noise nu (same shape), bilinear in the logarithms; the edges' values beyond them.

        Before the first time the gradient has not changed yet: point and noise grow together, and their ratio decides.
        """
        early = np.maximum(self.times[0] / time, 1.0)
        time, noise = time * early, noise * early
        t, u = _place(time, self.times)
        r, v = _place(noise / np.sqrt(time), self.rates)
        a = self.accuracy
        low: F64 = (1.0 - v) * a[t, r] + v * a[t, r + 1]
        high: F64 = (1.0 - v) * a[t + 1, r] + v * a[t + 1, r + 1]
        return (1.0 - u) * low + u * high


def _place(values: F64, knots: F64) -> tuple[I64, F64]:
    """Index of the knot below and the fraction of the way to the next, in logarithms."""
    at = np.interp(np.log(values), np.log(knots), np.arange(len(knots)))
    index = np.minimum(at.astype(np.int64), len(knots) - 2)
    return index, at - index
