"""The architecture that everybody knows of a run, and what of a gradient shows a label or a first layer's input."""

from __future__ import annotations

import math
from typing import Any

from dpgt_node.adversary.attack import NotApplicable, Options
from dpgt_node.adversary.attacks.common import classes_of, positive, setting
from dpgt_node.adversary.inference.knowledge import PICTURES, TOYS, Softmax
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.adversary.pictures import search
from dpgt_node.adversary.pictures.public import Public
from dpgt_node.types import F64
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Model:
    """The architecture as the run file says it.  ``shape``: of what goes in; ``module``: of torch, None for softmax.

    ``picture``: (channels, height, width) where samples are pictures with values in [0, 1].  ``public``: pictures like
    the agents', None where there are none.
    """

    softmax: Softmax | None
    module: Any
    shape: tuple[int, ...]
    classes: int
    picture: tuple[int, int, int] | None
    public: Public | None = None


def model_of(observation: Observation, options: Options, public: Public | None = None) -> Model:
    """The model that everybody knows.  NotApplicable: there are no samples, or the run file does not say enough."""
    run, dimension = observation.facts.run, observation.dimension
    if run.data.dataset in TOYS:
        raise NotApplicable.one("run file", "data.dataset", f"{run.data.dataset!r} has no samples to recover")
    classes = classes_of(observation, options)
    given = setting(options, "shape", None, _shape)
    picture = given or PICTURES.get(run.data.dataset)
    raw = run.data.normalise == "none" and run.data.features == "raw"
    if run.data.features == "pool14":
        picture = (1, 14, 14)
    if run.model.name == "softmax":
        softmax = Softmax.of(run, dimension, classes)
        p, side = softmax.features, math.isqrt(softmax.features)
        if picture is None and side * side == p:
            picture = (1, side, side)
        shows = (raw or run.data.features == "pool14") and picture is not None and math.prod(picture) == p
        return Model(softmax, None, (p,), classes, picture if shows else None, _fits(public, p))
    if picture is None or not raw:
        message = f"the shape of a sample of {run.data.dataset!r} is not in the run file: give --set shape=1,28,28"
        if not raw:
            message = "torch models are attacked with features = raw and normalise = none only"
        raise NotApplicable.one("command line", "--set shape", message)
    from dpgt_node.learning.nets.torch_models import build_module

    seed = 0 if run.model.init_seed is None else run.model.init_seed
    module = build_module(run.model.name, picture, classes, norm=run.model.norm, seed=seed)
    have = sum(value.numel() for value in module.parameters() if value.requires_grad)
    if have != dimension:
        message = f"{run.model.name!r} has d = {have} for pictures of {picture}, the transcript {dimension}"
        raise NotApplicable.one("command line", "--set shape", message)
    if not search.takes(module, picture):
        message = f"{run.model.name!r} does not take pictures of {picture}"
        raise NotApplicable.one("command line", "--set shape", message)
    return Model(None, module, picture, classes, picture, _fits(public, math.prod(picture)))


def _fits(public: Public | None, p: int) -> Public | None:
    return public if public is not None and public.mean.size == p else None


def output_bias(module: Any, g: F64, classes: int) -> F64:
    """The part of ``g`` that tells labels: of the last bias, or the row sums of the last weights, (classes,)."""
    last = [value for value in module.parameters() if value.requires_grad][-1]
    part = g[g.size - last.numel() :]
    if last.ndim == 1 and last.numel() == classes:
        return part
    if last.ndim == 2 and last.shape[0] == classes:
        sums: F64 = part.reshape(classes, -1).sum(axis=1)
        return sums
    raise NotApplicable.one("run file", "model.name", "its last parameter is no output layer: labels do not show in it")


def first_layer(module: Any, inputs: int, g: F64) -> tuple[F64, F64] | None:
    """Gradients of weights (q, p) and bias (q,) of a linear layer that takes the samples as they are; None: none."""
    trained = [value for value in module.parameters() if value.requires_grad]
    layers = [part for part in module.modules() if not list(part.children())]
    reached = next((part for part in layers if type(part).__name__ not in ("Flatten", "Identity")), None)
    if type(reached).__name__ != "Linear" or len(trained) < 2 or trained[0].ndim != 2 or trained[1].ndim != 1:
        return None
    q, p = (int(side) for side in trained[0].shape)
    if p != inputs or trained[1].numel() != q or trained[0] is not getattr(reached, "weight", None):
        return None
    return g[: q * p].reshape(q, p), g[q * p : q * p + q]


def _shape(text: str) -> tuple[int, int, int]:
    parts = tuple(positive(part) for part in text.split(","))
    if len(parts) != 3 or parts[0] not in (1, 3):
        raise ValueError(f"{text!r} is not channels,height,width with 1 or 3 channels")
    return parts[0], parts[1], parts[2]
