"""What anybody knows of the model of a run file: where it starts, where its labels show, pictures like the agents'.

Nothing here reads a training sample: of a data set that the run file names only the test part is used, which anybody
can download.
"""

from __future__ import annotations

import math
from dataclasses import field
from pathlib import Path

import numpy as np

from dpgt_node.adversary.attack import NotApplicable
from dpgt_node.config import RunConfig
from dpgt_node.config.data import CLASSES, resolved_dataset, resolved_test, stated_classes
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data import features
from dpgt_node.learning.data.datasets import load_dataset
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

TOYS = ("quadratic", "zeros", "pl-sine", "pl-linear")
PICTURES = {"digits": (1, 8, 8), "mnist": (1, 28, 28), "fashion-mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
"""(channels, height, width) of the data sets whose name says it."""


def start(run: RunConfig, dimension: int) -> F64 | None:
    """x_0, the same for all agents, float64 (d,); None where this machine cannot know it (a torch model without torch,
    or of pictures whose shape the run file does not say).
    """
    if run.data.dataset in TOYS:
        return np.full(dimension, float(run.data.params.get("start", 0.0)))
    if run.model.name == "softmax":
        return _softmax_start(run, dimension)
    shape = PICTURES.get(run.data.dataset)
    if shape is None or run.data.features != "raw":
        return None
    from dpgt_node.learning.nets.torch_models import build_module

    try:
        seed = 0 if run.model.init_seed is None else run.model.init_seed
        classes = CLASSES[run.data.dataset]
        module = build_module(run.model.name, shape, classes, norm=run.model.norm, seed=seed)
    except ConfigError:
        return None
    parts = [value.detach().double().reshape(-1).numpy() for value in module.parameters() if value.requires_grad]
    x0: F64 = np.concatenate(parts)
    return x0 if len(x0) == dimension else None


def _softmax_start(run: RunConfig, dimension: int) -> F64:
    """Zero; with ``init_seed`` W ~ N(0, 1/features) from that seed and b = 0, as the model says of itself."""
    x = np.zeros(dimension)
    classes, _ = stated_classes(run)
    if run.model.init_seed is None:
        return x
    rng = np.random.default_rng(run.model.init_seed)
    if classes is None:
        return np.full(dimension, np.nan)
    weights = dimension - (classes if run.model.bias else 0)
    x[:weights] = rng.standard_normal(weights) / math.sqrt(weights / classes)
    return x


@dataclass(frozen=True, slots=True)
class Softmax:
    """Layout of a softmax model: logits = W phi + bias b; x = (W row-major, b)."""

    classes: int
    features: int
    bias: float

    @classmethod
    def of(cls, run: RunConfig, dimension: int, classes: int) -> Softmax:
        """NotApplicable when d does not fit ``classes``."""
        width, rest = divmod(dimension, classes)
        size = width - (1 if run.model.bias else 0)
        if run.model.name != "softmax" or rest or size < 1:
            message = f"d = {dimension} is no softmax model of {classes} classes"
            raise NotApplicable.one("run file", "model.name", message)
        return cls(classes, size, run.model.bias)

    def split(self, vector: F64) -> tuple[F64, F64]:
        """(W (..., classes, features), b (..., classes), zeros where there is none) of x or of a gradient (..., d)."""
        w = self.classes * self.features
        head = vector.shape[:-1]
        W = vector[..., :w].reshape(*head, self.classes, self.features)
        return W, vector[..., w:] if self.bias else np.zeros((*head, self.classes))

    def errors(self, x: F64, phi: F64, labels: I64, spread: float = 0.0) -> F64:
        """p - e_y, (m, classes), at parameters ``x`` (d,); ``spread``: see :meth:`probabilities`."""
        p = self.probabilities(x, phi, spread)
        p[np.arange(len(labels)), labels] -= 1.0
        return p

    def probabilities(self, x: F64, phi: F64, spread: float = 0.0) -> F64:
        """(m, classes).  ``spread``: variance of one coordinate of ``x``, where that is only an estimate; the result is
        then about the mean over it (logits over sqrt(1 + pi/8 of their variance), MacKay 1992).
        """
        W, b = self.split(x)
        logits = phi @ W.T + self.bias * b
        if spread:
            variance = spread * (np.square(phi).sum(axis=1, keepdims=True) + self.bias**2)
            logits /= np.sqrt(1.0 + math.pi / 8.0 * variance)
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        return np.asarray(logits)

    def gradients(self, x: F64, phi: F64, labels: I64) -> F64:
        """Per-sample gradients without clipping, (m, d)."""
        errors = self.errors(x, phi, labels)
        parts = [(errors[:, :, None] * phi[:, None, :]).reshape(len(phi), -1)]
        if self.bias:
            parts.append(self.bias * errors)
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True, slots=True)
class Samples:
    """Features (m, p) as the model takes them, and labels (m,)."""

    phi: F64 = field(repr=False)
    labels: I64 = field(repr=False)
    classes: int


def public_samples(run: RunConfig, data_root: Path | None, count: int | None = None) -> Samples:
    """The test part of the run's data set, which is public; ``count``: its first samples.  ConfigError: not here."""
    if run.data.dataset in TOYS:
        raise NotApplicable.one("run file", "data.dataset", f"{run.data.dataset!r} has no samples")
    data = load_dataset(resolved_dataset(run), data_root, params=run.data.params, test=resolved_test(run))
    rows = slice(0, count)
    phi = features.transform(data.real_test(rows), run.data.features, run.data.normalise)
    return Samples(phi, data.y_test[rows], data.classes)


def class_count(run: RunConfig, given: str | None = None) -> int:
    """Number of classes: ``given`` on the command line, or of the data set's name.  NotApplicable: not known."""
    known = given or stated_classes(run)[0]
    if known is None:
        message = f"the number of classes of {run.data.dataset!r} is not in the run file: give --set classes=10"
        raise NotApplicable.one("command line", "--set classes", message)
    return int(known)
