"""What a sample leaves in what was released: in the whole transcript, and in the model that is published of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpgt_node.adversary.inference import estimators as es
from dpgt_node.adversary.inference.knowledge import Samples, Softmax
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.adversary.membership.matched import Clipping, Filter
from dpgt_node.adversary.membership.shadows import Pool, Signals
from dpgt_node.config.model import RunConfig
from dpgt_node.errors import ConfigError
from dpgt_node.record.released import window_start
from dpgt_node.types import F64, I64

LogProbabilities = Callable[[F64, F64, I64], F64]
"""(parameters (d,), samples (N, ...), labels (N,)) -> ln of the probability of each right label, (N,)."""
_FLOOR = -700.0


class Lens:
    """Looks at runs of one run file, all from where ``observation`` was seen."""

    def __init__(self, observation: Observation, pool: Pool, m: int) -> None:
        """``m``: samples of a batch.  ConfigError: the model is none that can be looked at."""
        run = observation.facts.run
        self._pool = pool
        self._log_p = log_probabilities(run, observation.dimension, pool)
        self._filter: Filter | None = None
        if run.model.name == "softmax":
            model = Softmax.of(run, observation.dimension, pool.classes)
            scored = Samples(pool.phi, pool.labels, pool.classes)
            public = Samples(pool.public_phi, pool.public_labels, pool.classes)
            clipping = Clipping.of(observation)
            self._filter = Filter(model, scored, public, m=m, whitened=True, clipping=clipping)

    def look(self, observation: Observation) -> Signals:
        """The signals of every agent."""
        pool, n = self._pool, len(observation.facts.names)
        matched = np.full((n, len(pool.labels)), np.nan)
        confidence, public = matched.copy(), np.full((n, len(pool.public_labels)), np.nan)
        for i in range(n):
            if self._filter is not None:
                matched[i] = self._filter.statistics(es.view(observation, i))
            x = published(observation, i)
            if not np.isnan(x).any():
                confidence[i] = self._log_p(x, pool.phi, pool.labels)
                public[i] = self._log_p(x, pool.public_phi, pool.public_labels)
        return Signals(matched, confidence, public)


def published(observation: Observation, i: int) -> F64:
    """The model that ``dpgt export`` makes of what agent ``i`` released, (d,): the mean x̆ of the run's second half, of
    the rounds that were seen whole; NaN: none was.
    """
    rows = observation.series(i, "X")[window_start(observation.facts.run.K) :]
    whole = rows[~np.isnan(rows).any(axis=1)]
    return np.asarray(whole.mean(axis=0)) if len(whole) else np.full(observation.dimension, np.nan)


def log_probabilities(run: RunConfig, dimension: int, pool: Pool) -> LogProbabilities:
    """The model of the run file as a function.  ConfigError: d does not fit it."""
    if run.model.name == "softmax":
        model = Softmax.of(run, dimension, pool.classes)

        def softmax(x: F64, phi: F64, labels: I64) -> F64:
            W, b = model.split(x)
            return _right(np.asarray(phi @ W.T + model.bias * b), labels)

        return softmax
    from dpgt_node.learning.nets.torch_network import fresh

    net = fresh(run.model, pool.shape, pool.classes)
    if net.dimension != dimension:
        raise ConfigError.one("run file", "model.name", f"has d = {net.dimension}, the transcript {dimension}")

    def torch(x: F64, phi: F64, labels: I64) -> F64:
        net.load(x)
        inputs = net.inputs(phi, 1.0, pool.shape)
        if net.batch_norm:
            net.calibrate(net.inputs(pool.public_phi, 1.0, pool.shape))
        return _right(net.logits(inputs), labels)

    return torch


def _right(logits: F64, labels: I64) -> F64:
    logits = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(np.maximum(logits[np.arange(len(labels)), labels] - np.log(np.exp(logits).sum(axis=1)), _FLOOR))


def logit(log_p: F64) -> F64:
    """ln p/(1 - p), from ln p <= 0: the scale on which LiRA takes confidences as normal."""
    with np.errstate(divide="ignore"):
        return np.asarray(log_p - np.log(np.maximum(-np.expm1(log_p), 1e-16)))
