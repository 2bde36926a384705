"""What an agent reaches by itself: the run's model on its own samples, without exchange, without noise, at epsilon 0.

An agent that exchanges nothing releases nothing, so nothing is clipped and no round is counted.  One fifth of its own
samples, always the same ones, is kept back to choose how long or how hard to fit; then all of them are fitted.  Test
samples judge the result and choose nothing.

* softmax: the minimiser of mean cross-entropy + (penalty/2) ||x||_2^2.  Penalties fall from 10^-2 to 10^-7.5 of the
  mean squared norm of a sample; the one with the least cross-entropy on the samples kept back is taken.
* torch models: Adam from the run's own start, on the run's own batches, for at most the K+1 gradients of the run; the
  number of gradients with the best accuracy on the samples kept back is taken.

The result is as private as the samples: what it says of a test set is a metric of a study.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import Model, RunConfig
from dpgt_node.config.vocabulary import TOYS
from dpgt_node.learning.common import Metrics
from dpgt_node.learning.data.arrays import Dataset
from dpgt_node.learning.labelled import own_dataset
from dpgt_node.learning.nets.models import SoftmaxOracle
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.learning.torch_oracle import TorchOracle

_KEPT_BACK = 5
"""One in so many samples is kept back."""
_PENALTIES = 10.0 ** -np.arange(2.0, 8.0, 0.5)
_PATIENCE = 2
"""So many penalties in a row that are worse than the best one end the search."""
_STEPS_MAX, _FLAT = 1000, 1e-5
_LOOKS, _RATE, _MOMENTS, _TINY = 20, 1e-3, (0.9, 0.999), 1e-8
"""Of Adam: looks at the samples kept back, step, decay of both moments, what no square root falls below."""


@dataclass(frozen=True, slots=True)
class Alone:
    """``metrics``: of the model that all of the agent's samples made.  ``samples``: how many those are, ``tested``: of
    the test set.

    ``kept_back``: accuracy on the fifth that was kept back, before it was trained on; None with fewer than five.
    """

    metrics: Metrics
    samples: int
    tested: int
    kept_back: float | None


class _Model(Protocol):
    """Of an oracle, what fitting asks for."""

    @property
    def samples(self) -> int: ...

    def initial(self) -> F64: ...

    def gradient(self, x: F64, batch: I64) -> F64: ...

    def evaluate(self, x: F64, samples: int | None = None) -> Metrics: ...


def alone(
    run: RunConfig,
    shard: int,
    *,
    data_root: Path | None = None,
    data_path: Path | None = None,
    data_test: Path | None = None,
) -> Alone | None:
    """What 0-based agent ``shard`` reaches alone; None for toys, which have no samples.

    ``data_root``, ``data_path``, ``data_test``: as :func:`~dpgt_node.learning.oracle.build_oracle` takes them.
    Raises ConfigError.
    """
    if run.data.dataset in TOYS:
        return None
    data = own_dataset(run, shard, data_root=data_root, data_path=data_path, data_test=data_test)
    oracle, choice = _softmax(data, run.model) if run.model.name == "softmax" else _torch(data, run)
    metrics = oracle.evaluate(choice.x, run.evaluate.samples)
    return Alone(metrics, oracle.samples, oracle.tested, choice.kept_back)


def fitted(data: Dataset, model: Model) -> F64:
    """x of softmax regression on the training part of ``data``, by the rule of this module: float64 (d,)."""
    return _softmax(data, model)[1].x


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """``x`` of all samples; ``kept_back``: accuracy of the choice on those kept back."""

    x: F64
    kept_back: float | None


def _softmax(data: Dataset, model: Model) -> tuple[SoftmaxOracle, _Choice]:
    whole = SoftmaxOracle(data, None, bias=model.bias)
    start, size = np.zeros(whole.dimension), whole.mean_square
    best, worse, hits = (np.inf, float(_PENALTIES[0])), 0, None
    if whole.samples < _KEPT_BACK:  # too few to keep one back: the most cautious penalty
        return whole, _Choice(_minimiser(whole, size * best[1], start), None)
    part, kept = (SoftmaxOracle(each, None, bias=model.bias) for each in _parts(data))
    x = start
    for penalty in _PENALTIES.tolist():
        x = _minimiser(part, size * penalty, x)
        found = kept.evaluate(x)
        assert found.loss_train is not None
        worse = 0 if found.loss_train < best[0] else worse + 1
        if worse == 0:
            best, hits = (found.loss_train, penalty), found.accuracy_train
        if worse == _PATIENCE:
            break
    return whole, _Choice(_minimiser(whole, size * best[1], start), hits)


def _torch(data: Dataset, run: RunConfig) -> tuple[TorchOracle, _Choice]:
    from dpgt_node.learning.torch_oracle import TorchOracle

    whole, m = TorchOracle(data, None, run.model, clip=None), Schedule.from_config(run).m_for(len(data.y_train))
    if whole.samples < _KEPT_BACK:
        return whole, _Choice(next(_adam(whole, [run.K + 1], m)), None)
    part, kept = (TorchOracle(each, None, run.model, clip=None) for each in _parts(data))
    return whole, _trained(whole, part, kept, run.K + 1, m)


def _parts(data: Dataset) -> Iterator[Dataset]:
    """The samples to choose with, then those kept back as training samples; the latter are the test part of both."""
    order = np.random.default_rng(0).permutation(len(data.y_train))
    kept, rest = np.split(order, [max(1, len(order) // _KEPT_BACK)])
    x, y = np.asarray(data.x_train[kept]), data.y_train[kept]
    held = replace(data, x_train=x, y_train=y, x_test=x, y_test=y)
    yield replace(held, x_train=np.asarray(data.x_train[rest]), y_train=data.y_train[rest])
    yield held


def _minimiser(oracle: SoftmaxOracle, penalty: float, start: F64) -> F64:
    """Of mean cross-entropy + (penalty/2) ||x||_2^2, from ``start``."""
    from scipy.optimize import minimize

    def objective(x: F64) -> tuple[float, F64]:
        loss, gradient = oracle.loss_and_gradient(x)
        return loss + 0.5 * penalty * float(x @ x), gradient + penalty * x

    options = {"maxiter": _STEPS_MAX, "maxcor": 20, "gtol": _FLAT * np.sqrt(oracle.mean_square), "ftol": 1e-10}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x, dtype=np.float64)


def _trained(whole: _Model, part: _Model, kept: _Model, gradients: int, m: int) -> _Choice:
    """Adam: as many gradients as are best on ``kept`` after ``part``, then so many on ``whole``."""
    looks = sorted({-(-gradients * (i + 1) // _LOOKS) for i in range(_LOOKS)})
    path = zip(looks, _adam(part, looks, m), strict=True)
    scores = [((kept.evaluate(x).accuracy_train or 0.0), -count) for count, x in path]
    hits, count = max(scores)
    return _Choice(next(_adam(whole, [-count], m)), hits)


def _adam(model: _Model, looks: list[int], m: int) -> Iterator[F64]:
    """x after each of ``looks`` gradients (ascending)."""
    rng, x = np.random.default_rng(0), np.array(model.initial())
    first, second = np.zeros_like(x), np.zeros_like(x)
    m = min(m, model.samples)
    for count in range(1, looks[-1] + 1):
        batch = np.sort(rng.choice(model.samples, m, replace=False))
        gradient = model.gradient(x, batch)
        first += (1.0 - _MOMENTS[0]) * (gradient - first)
        second += (1.0 - _MOMENTS[1]) * (np.square(gradient) - second)
        mean, square = first / (1.0 - _MOMENTS[0] ** count), second / (1.0 - _MOMENTS[1] ** count)
        x -= _RATE * mean / (np.sqrt(square) + _TINY)
        if count in looks:
            yield x.copy()
