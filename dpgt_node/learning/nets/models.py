"""Softmax regression with closed-form per-sample gradients and norms."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from dpgt_node.errors import invariant
from dpgt_node.learning.common import Metrics, shape_hash, spaced
from dpgt_node.learning.data.datasets import Dataset
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.privacy.laws.noise import ByteStream
from dpgt_node.privacy.laws.sampler import uniform_subset
from dpgt_node.types import F64, I64

Over = Callable[[int, Callable[[slice, int], None]], None]
"""Who shares the rows of a matrix among threads: (rows, what is done with a part of them)."""
Empty = Callable[[tuple[int, int]], F64]
"""Who has a place for a matrix of that shape."""

_EVALUATION_ROWS = 8192  # bounds the scratch memory of a full pass
_STACK_BYTES = 1 << 25  # and of a stack of batches
_CACHED_BYTES = 1 << 20  # of a stack that stays in the cache
_LOOK_TOGETHER, _LOOK_ROWS = 16, 512  # agents that look at so many samples at once


class SoftmaxOracle:
    """logits = W phi + s b, mean cross-entropy; x = (W row-major (classes x features), then b), float64.

    The per-sample gradient is (p - e_y) times (phi, s), an outer product: its norm is the product of two small norms,
    so clipping needs no per-sample gradient in memory (privacy.md, section 5).
    """

    def __init__(
        self,
        data: Dataset,
        shard: I64 | None,
        *,
        bias: float = 1.0,
        clip: Clip | None = None,
        init_seed: int | None = None,
        features_id: str = "",
    ) -> None:
        """``shard``: the agent's rows of the training set, None: all.  ``bias`` s = 0: there is no b.  ``features_id``:
        see :func:`~dpgt_node.learning.common.shape_hash`.
        """
        own = slice(None) if shard is None else shard
        self._x = np.ascontiguousarray(data.x_train[own], dtype=np.float64)
        self._y = np.ascontiguousarray(data.y_train[own])
        self._x_test, self._y_test = np.ascontiguousarray(data.x_test, dtype=np.float64), data.y_test
        self._classes, self._features = data.classes, int(data.x_train.shape[1])
        self._weights = self._classes * self._features
        self._bias = bias
        self._clip = clip
        self._init_seed = init_seed
        with np.errstate(over="ignore"):  # an infinite norm drops its sample, as privacy.md asks
            if clip is not None and clip.order == 1:
                self._norms = np.abs(self._x).sum(axis=1) + abs(bias)
            else:
                self._norms = np.sqrt(np.square(self._x).sum(axis=1) + bias * bias)
        self._columns = np.arange(len(self._x))
        b = (("b", (self._classes,)),) if bias else ()
        self._shape_sha256 = shape_hash(("W", (self._classes, self._features)), *b, features_id=features_id)

    @property
    def dimension(self) -> int:
        """classes * features, plus classes with a bias."""
        return self._weights + (self._classes if self._bias else 0)

    @property
    def features(self) -> int:
        """Number of features of one sample, the bias not included."""
        return self._features

    @property
    def samples(self) -> int:
        return len(self._x)

    @property
    def tested(self) -> int:
        return len(self._y_test)

    @property
    def shape_sha256(self) -> str:
        return self._shape_sha256

    @property
    def sample_size(self) -> int:
        return self._features

    def inputs(self, batch: I64) -> F64:
        """Rows of features, (m, p)."""
        return self._x[batch]

    def labels(self, batch: I64) -> I64:
        return self._y[batch].astype(np.int64)

    def initial(self) -> F64:
        """Zero; with ``init_seed`` W ~ N(0, 1/features) from ``default_rng(init_seed)``; b = 0.  Equal for all."""
        x = np.zeros(self.dimension)
        if self._init_seed is not None:
            rng = np.random.default_rng(self._init_seed)
            x[: self._weights] = rng.standard_normal(self._weights) / math.sqrt(self._features)
        return x

    def draw_batch(self, m: int, stream: ByteStream) -> I64:
        return uniform_subset(stream, len(self._x), m)

    def gradient(self, x: F64, batch: I64) -> F64:
        if batch.size == len(self._x):  # distinct indices: all of them
            return self._mean_gradient(x, self._x, self._y, self._norms, self._clip)
        phi = self._x.take(batch, axis=0)
        return self._mean_gradient(x, phi, self._y.take(batch), self._norms.take(batch), self._clip)

    @property
    def part_size(self) -> int:
        """Numbers that tell a sample's gradient, its features known: one a class."""
        return self._classes

    def parts(self, x: F64, batch: I64) -> F64:
        """p - e_y of every sample of ``batch`` at ``x``, clipped, (m, classes): its gradient is that times (phi, s)."""
        phi = self._x.take(batch, axis=0)
        return self._errors(x, phi, self._y.take(batch), self._norms.take(batch), self._clip).T.copy()

    def of_parts(self, parts: F64, batch: I64) -> F64:
        """The mean gradient (d,) of which ``parts`` (m, classes) are those of ``batch``; linear in them."""
        gradient = self._outer(np.ascontiguousarray(parts.T), self._x.take(batch, axis=0))
        gradient /= len(batch)
        return gradient

    def class_sums(self, batch: I64) -> F64:
        """-(1/m) sum_j e_{y_j} times clip(phi_j), in the layout of x with nothing for b: the gradient of a linear loss.

        Features are clipped to the run's clip and norm, so replacing a sample moves this by at most twice that over m.
        """
        phi, y, clip = self._x.take(batch, axis=0), self._y.take(batch), self._clip
        invariant(clip is not None, "class sums are clipped")
        weights = np.zeros((self._classes, len(y)))
        weights[y, self._columns[: len(y)]] = -1.0
        if clip is not None:
            norms = clip.norms(phi, axis=1)
            phi[~np.isfinite(norms)] = 0.0  # 0 times infinity is no number
            clip.scale(weights, norms)
        sums = np.zeros(self.dimension)
        np.matmul(weights, phi, out=sums[: self._weights].reshape(self._classes, self._features))
        sums /= len(y)
        return sums

    def under(self, share: float) -> SoftmaxOracle:
        """The same with ``share`` times the clip."""
        other = copy.copy(self)
        other._clip = None if self._clip is None else self._clip.times(share)
        return other

    def evaluate(self, x: F64, samples: int | None = None) -> Metrics:
        return self._evaluated(x, samples, self._accuracy(x, *_TESTED.part(self._x_test, self._y_test, samples)))

    def _evaluated(self, x: F64, samples: int | None, accuracy_test: float | None) -> Metrics:
        loss, hits, gradient, total = self._judged(x, *_part(self._x, self._y, samples))
        return Metrics(
            loss_train=loss / total,
            accuracy_train=hits / total,
            accuracy_test=accuracy_test,
            grad_norm=float(np.linalg.norm(gradient)) / total,
        )

    def right(self, x: F64) -> int:
        """How many of the test samples get their class from ``x`` (d,)."""
        found = self._accuracy(x, self._x_test, self._y_test)
        return 0 if found is None else round(found * self.tested)

    def loss_and_gradient(self, x: F64) -> tuple[float, F64]:
        """Mean cross-entropy over the agent's samples, and its gradient (d,), unclipped whatever the run's clip."""
        loss, _, gradient, total = self._judged(x, self._x, self._y)
        gradient /= total
        return loss / total, gradient

    @property
    def mean_square(self) -> float:
        """Mean of ||(phi, s)||_2^2 over the agent's samples."""
        return float(np.square(self._x).sum(axis=1).mean()) + self._bias**2

    def _judged(self, x: F64, xs: F64, ys: I64) -> tuple[float, int, F64, int]:
        """Summed cross-entropy, hits, summed gradient, number of these samples."""
        total = len(ys)
        loss, hits, gradient = 0.0, 0, np.zeros(self.dimension)
        for start in range(0, total, _EVALUATION_ROWS):
            rows = slice(start, start + _EVALUATION_ROWS)
            phi, y = xs[rows], ys[rows]
            logits = self._logits(x, phi)
            hits += int(np.count_nonzero(logits.argmax(axis=0) == y))
            loss += self._loss_then_errors(logits, y)
            gradient += self._outer(logits, phi)
        return loss, hits, gradient, total

    def _mean_gradient(self, x: F64, phi: F64, y: I64, norms: F64, clip: Clip | None) -> F64:
        gradient = self._outer(self._errors(x, phi, y, norms, clip), phi)
        gradient /= len(y)
        return gradient

    def _errors(self, x: F64, phi: F64, y: I64, norms: F64, clip: Clip | None) -> F64:
        """p - e_y, clipped, (classes, m).

        Classes x samples: reductions run over rows that lie next to each other in memory.
        """
        errors = self._logits(x, phi)
        errors -= np.maximum.reduce(errors, axis=0)
        np.exp(errors, out=errors)
        errors /= np.add.reduce(errors, axis=0)
        errors[y, self._columns[: len(y)]] -= 1.0  # now p - e_y
        if clip is not None:
            # The gradient is the outer product of p - e_y and (phi, s): its norm is the product of their norms.
            clip.scale(errors, clip.norms(errors, axis=0) * norms)
        return errors

    def _logits(self, x: F64, phi: F64) -> F64:
        """(classes, m) for features (m, p)."""
        logits: F64 = x[: self._weights].reshape(self._classes, self._features) @ phi.T
        if self._bias:
            b = x[self._weights :, None]
            logits += b if self._bias == 1.0 else self._bias * b
        return logits

    def _outer(self, errors: F64, phi: F64) -> F64:
        """sum_j errors_j times (phi_j, s), in the layout of x."""
        gradient = np.empty(self.dimension)
        np.matmul(errors, phi, out=gradient[: self._weights].reshape(self._classes, self._features))
        if self._bias:
            b = gradient[self._weights :]
            np.add.reduce(errors, axis=1, out=b)
            if self._bias != 1.0:
                b *= self._bias
        return gradient

    def _loss_then_errors(self, logits: F64, y: I64) -> float:
        """Summed cross-entropy; turns ``logits`` into p - e_y in place."""
        columns = self._columns[: len(y)]
        logits -= logits.max(axis=0)
        true = logits[y, columns]
        np.exp(logits, out=logits)
        sums = logits.sum(axis=0)
        logits /= sums
        logits[y, columns] -= 1.0
        return float((np.log(sums) - true).sum())

    def _accuracy(self, x: F64, phi: F64, y: I64) -> float | None:
        if not len(y):
            return None
        hits = 0
        for start in range(0, len(y), _EVALUATION_ROWS):
            rows = slice(start, start + _EVALUATION_ROWS)
            hits += int(np.count_nonzero(self._logits(x, phi[rows]).argmax(axis=0) == y[rows]))
        return hits / len(y)

    def _hits(self, x: F64, phi: F64, y: I64) -> I64:
        """How many of ``phi`` (m, p) get their class ``y`` from each row of ``x`` (a, d): (a,)."""
        a, w, s = len(x), self._weights, self._bias
        rows = x[:, :w].reshape(a * self._classes, self._features)
        b = s * x[:, w:].reshape(-1, 1) if s else 0.0
        hits = np.zeros(a, dtype=np.int64)
        for start in range(0, len(y), _LOOK_ROWS):
            at = slice(start, start + _LOOK_ROWS)
            logits = rows @ phi[at].T
            logits += b
            hits += np.count_nonzero(logits.reshape(a, self._classes, -1).argmax(axis=1) == y[at], axis=1)
        return hits


def _part(x: F64, y: I64, samples: int | None) -> tuple[F64, I64]:
    """What an evaluation looks at; no copy of all."""
    if samples is None or samples >= len(y):
        return x, y
    rows = spaced(len(y), samples)
    return x[rows], y[rows]


class _Shared:
    """The part of a test set that the agents of a process look at one after the other: copied once."""

    def __init__(self) -> None:
        self._held: tuple[weakref.ref[F64], int, tuple[F64, I64]] | None = None  # one value: threads may be at it

    def part(self, x: F64, y: I64, samples: int | None) -> tuple[F64, I64]:
        """See :func:`_part`; ``x`` stays as it is."""
        if samples is None or samples >= len(y):
            return x, y
        held = self._held
        if held is None or held[0]() is not x or held[1] != samples:
            held = self._held = weakref.ref(x), samples, _part(x, y, samples)
        return held[2]


_TESTED = _Shared()


def evaluated_together(oracles: Sequence[SoftmaxOracle], x: F64, samples: int | None) -> list[Metrics]:
    """``oracles[i].evaluate(x[i], samples)``, to rounding.

    Agents of one test set look at a part of it together: read for one alone, it costs more than the products.
    """
    first = oracles[0]
    if any(one._x_test is not first._x_test for one in oracles):
        return [oracle.evaluate(row, samples) for oracle, row in zip(oracles, x, strict=True)]
    phi, y = _TESTED.part(first._x_test, first._y_test, samples)
    found = list[Metrics]()
    for begin in range(0, len(oracles), _LOOK_TOGETHER):
        at = slice(begin, begin + _LOOK_TOGETHER)
        hits = first._hits(x[at], phi, y).tolist()
        some = zip(oracles[at], x[at], hits, strict=True)
        found += [one._evaluated(row, samples, right / len(y) if len(y) else None) for one, row, right in some]
    return found


def stacked_gradients(
    oracles: Sequence[SoftmaxOracle],
    x: F64,
    batches: Sequence[I64],
    over: Over,
    empty: Empty = np.empty,
) -> F64 | None:
    """Row i of (n, d): ``oracles[i].gradient(x[i], batches[i])`` to rounding, by stacked products.

    None where stacking does not pay: batches of different size, or so large that two of them fill the scratch memory.
    All oracles: the same model, clip and data set.  ``over``: calls its second argument on parts of range(first).
    """
    first, m = oracles[0], len(batches[0])
    each = 8 * m * first._features
    together = max(_CACHED_BYTES // each, 2)
    if 2 * each > _STACK_BYTES or any(len(batch) != m for batch in batches):
        return None
    gradient = empty((len(oracles), first.dimension))

    def some(part: slice, _: int) -> None:
        for start in range(part.start, part.stop, together):
            rows = slice(start, min(start + together, part.stop))
            _stack(oracles[rows], x[rows], np.stack(batches[rows]), gradient[rows])

    over(len(oracles), some)
    return gradient


def _stack(oracles: Sequence[SoftmaxOracle], x: F64, batch: I64, out: F64) -> None:
    """Mean, clipped gradients of a few agents into ``out`` (a, d); ``batch`` (a, m)."""
    first, (a, m) = oracles[0], batch.shape
    w, shape, s = first._weights, (a, first._classes, first._features), first._bias
    phi = np.empty((a, m, first._features))
    y, norms = np.empty((a, m), dtype=np.int64), np.empty((a, m))
    for i, oracle in enumerate(oracles):
        # mode="clip" lets take write in place; the indices are in range anyway.
        oracle._x.take(batch[i], axis=0, out=phi[i], mode="clip")
        oracle._y.take(batch[i], out=y[i], mode="clip")
        oracle._norms.take(batch[i], out=norms[i], mode="clip")
    errors: F64 = x[:, :w].reshape(shape) @ phi.transpose(0, 2, 1)
    if s:
        errors += s * x[:, w:, None]
    errors -= errors.max(axis=1, keepdims=True)
    np.exp(errors, out=errors)
    errors /= errors.sum(axis=1, keepdims=True)
    errors[np.arange(a)[:, None], y, np.arange(m)] -= 1.0
    if first._clip is not None:
        first._clip.scale(errors.transpose(1, 0, 2), first._clip.norms(errors, axis=1) * norms)
    errors /= m
    np.matmul(errors, phi, out=out[:, :w].reshape(shape))
    if s:
        out[:, w:] = s * errors.sum(axis=2)
