"""Samples whose gradient is the one that was seen: gradient inversion of torch models by optimisation.

Two searches, the second where the first does not fit: L-BFGS within [0, 1] (Zhu et al. 2019, DLG), which finds the
samples to rounding where the model is smooth; and signed Adam on cosine + total variation (Geiping et al. 2020), which
also gets through the kinks of ReLU and max-pooling.  Either minimises

    1 - cos(gradient(x), ĝ) + w TV(x)

with labels known beforehand.  The cosine does not see the length, so a clipped sample is no harder.  With noise of
relative size s no x can be expected below 1 - 1/sqrt(1 + s^2), the floor; w grows with s^2, the balance that a
Gaussian likelihood has with a fixed prior.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, Literal

import numpy as np

from dpgt_node.adversary.pictures.analytic import labels_of
from dpgt_node.learning.nets.torch_models import Module, Shape, torch
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

Method = Literal["auto", "lbfgs", "adam"]
WORKS_UP_TO = 0.15
"""s above which no search recovered a picture; below it some do and some do not."""
_FLOAT64_TO = 200_000
"""Parameters up to which everything is float64: a fit to rounding needs it, a large model cannot afford it."""
_RATE = 0.1
_DROPS = ((3 / 8, 1.0), (5 / 8, 0.1), (7 / 8, 0.01), (1.0, 0.001))  # (share of the steps, factor of the rate)
_ADAM_TV, _ADAM_TV_MAX = 1e-2, 1e-1
_FINE_TV, _FINE_RATE = 1e-4, 0.02
_FITS = 1e-5
_HOPELESS = 1e-3
_SMOOTHING = 1e-6
_DARKNESS, _RELABEL = 6, 3


@dataclass(frozen=True, slots=True)
class Settings:
    """``steps`` of Adam, and of L-BFGS two thirds of them; ``restarts`` from other random samples."""

    method: Method = "auto"
    steps: int = 600
    restarts: int = 1
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """``samples`` (m, *shape) in [0, 1]; ``misfit``: 1 - cosine of their gradient with what was seen."""

    samples: F64 = field(repr=False)
    misfit: float
    method: str


def load(module: Module, x: F64) -> Module:
    """``module`` with its trained parameters set to ``x`` (d,), in the precision that a search computes in."""
    lib = torch()
    module = module.to(lib.float64 if len(x) <= _FLOAT64_TO else lib.float32).train()
    with lib.no_grad():
        start = 0
        for value in _trained(module):
            part = lib.from_numpy(np.array(x[start : start + value.numel()]))
            value.copy_(part.view(value.shape))
            start += value.numel()
    if start != len(x):
        raise ValueError(f"the module has {start} parameters, the vector {len(x)}")
    return module


def takes(module: Module, shape: Shape) -> bool:
    """Whether samples of this shape go through."""
    lib = torch()
    try:
        with lib.no_grad():
            module(lib.zeros(2, *shape, dtype=_trained(module)[0].dtype))
    except (RuntimeError, ValueError):
        return False
    return True


def gradient(module: Module, samples: F64, labels: I64) -> F64:
    """Mean gradient of the cross-entropy of ``samples`` (m, *shape), float64 (d,)."""
    lib = torch()
    kind = _trained(module)[0].dtype
    found = _gradient(lib, module, lib.from_numpy(np.array(samples)).to(kind), lib.from_numpy(np.array(labels)), False)
    out: F64 = found.detach().double().numpy()
    return out


def mean_answer(module: Module, samples: F64) -> F64:
    """Mean outputs (classes,) on samples (m, *shape)."""
    lib = torch()
    with lib.no_grad():
        logits = module(lib.from_numpy(np.array(samples)).to(_trained(module)[0].dtype))
        answers: F64 = logits.double().softmax(dim=1).mean(dim=0).numpy()
    return answers


def labels_and_samples(
    module: Module,
    target: F64,
    bias: F64,
    m: int,
    shape: Shape,
    *,
    s: float = 0.0,
    settings: Settings | None = None,
    more: Sequence[tuple[Module, F64]] = (),
) -> tuple[I64, Found]:
    """Labels (m,) from ``bias`` (classes,), the output layer's part of ``target``, and then the samples.

    The labels of several samples need the model's mean answer to them: that to mostly dark noise at first, then that to
    what a short search finds with the labels so far, until they stay.  ``more``: the same model at other points, with
    the gradients that the same batch gave there.
    """
    settings = settings or Settings()
    noise = np.random.default_rng(settings.seed).random((64, *shape)) ** _DARKNESS
    labels = labels_of(bias, m, mean_answer(module, noise))
    rough = replace(settings, method="lbfgs", steps=settings.steps // 4, restarts=1)
    for _ in range(_RELABEL if m > 1 else 0):
        found = search(module, target, labels, shape, s=s, settings=rough, more=more)
        better = labels_of(bias, m, mean_answer(module, found.samples))
        if np.array_equal(better, labels):
            break
        labels = better
    return labels, search(module, target, labels, shape, s=s, settings=settings, more=more)


def search(
    module: Module,
    target: F64,
    labels: I64,
    shape: Shape,
    *,
    s: float = 0.0,
    settings: Settings | None = None,
    more: Sequence[tuple[Module, F64]] = (),
) -> Found:
    """Samples with these ``labels`` (m,) whose mean gradient points to ``target`` (d,), whose noise is ``s`` |g|.

    With ``more`` the misfit is the mean over all gradients of the batch.
    """
    settings = settings or Settings()
    fit = _Fit(torch(), [(module, target), *more], labels, shape)
    rng = np.random.default_rng(settings.seed)
    floor = 1.0 - 1.0 / math.sqrt(1.0 + s * s)
    best: Found | None = None
    for _ in range(settings.restarts):
        found = _once(fit, rng.random((len(labels), *shape)), s, floor, settings)
        if best is None or found.misfit < best.misfit:
            best = found
        if best.misfit <= _enough(floor):
            break
    assert best is not None
    return best


def _once(fit: _Fit, start: F64, s: float, floor: float, settings: Settings) -> Found:
    steps = max(1, 2 * settings.steps // 3)
    smooth = None
    if settings.method == "lbfgs" or (settings.method == "auto" and s <= WORKS_UP_TO):
        # A quarter tells whether the model is smooth enough for it.
        smooth = _lbfgs(fit, start, s * s, max(1, steps // 4))
        if settings.method == "lbfgs" or smooth.misfit <= 100.0 * floor + _HOPELESS:
            smooth = _lbfgs(fit, smooth.samples, s * s, steps)
        if settings.method == "lbfgs" or smooth.misfit <= _enough(floor):
            return smooth
    found = _adam(fit, start, min(max(_ADAM_TV, s * s), _ADAM_TV_MAX), settings.steps)
    if floor < _FITS:
        # With a weak prior a fit that is not exact gives worse pictures; an exact one proves itself.
        finer = _adam(fit, found.samples, _FINE_TV, settings.steps // 2, rate=_FINE_RATE)
        found = finer if finer.misfit <= _enough(floor) else found
    return smooth if smooth is not None and smooth.misfit < 0.1 * found.misfit else found


def _enough(floor: float) -> float:
    return 1.2 * floor + _FITS


class _Fit:
    """The objective, and its gradient in the samples."""

    def __init__(self, lib: Any, seen: Sequence[tuple[Module, F64]], labels: I64, shape: Shape) -> None:
        self.lib = lib
        self.kind = _trained(seen[0][0])[0].dtype
        targets = [(module, lib.from_numpy(np.array(g)).to(self.kind)) for module, g in seen]
        self._seen = [(module, g, g.norm()) for module, g in targets]
        self._labels = lib.from_numpy(np.array(labels))
        self._picture = len(shape) == 3

    def __call__(self, x: Any, weight: float) -> tuple[float, float, Any]:
        """(misfit, misfit + weight TV, derivative of the latter) at the tensor ``x`` (m, *shape)."""
        x = x.detach().requires_grad_()
        misfit: Any = 1.0
        for module, target, length in self._seen:
            mine = _gradient(self.lib, module, x, self._labels, True)
            misfit = misfit - (mine @ target) / (mine.norm() * length) / len(self._seen)
        total = misfit + weight * self._variation(x) if weight and self._picture else misfit
        (slope,) = self.lib.autograd.grad(total, x)
        return misfit.item(), total.item(), slope.detach()

    def _variation(self, x: Any) -> Any:
        across, down = x[..., 1:] - x[..., :-1], x[..., 1:, :] - x[..., :-1, :]
        return (across.square() + _SMOOTHING).sqrt().mean() + (down.square() + _SMOOTHING).sqrt().mean()


def _lbfgs(fit: _Fit, start: F64, weight: float, steps: int) -> Found:
    from scipy.optimize import minimize

    def value(flat: F64) -> tuple[float, F64]:
        _, total, slope = fit(fit.lib.from_numpy(flat.reshape(start.shape)).to(fit.kind), weight)
        return total, np.asarray(slope.double().numpy()).ravel()

    options = {"maxiter": steps, "maxfun": 2 * steps, "maxcor": 30, "ftol": 1e-30, "gtol": 1e-14}
    done = minimize(
        value, start.ravel(), jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * start.size, options=options
    )
    samples = np.asarray(done.x, dtype=np.float64).reshape(start.shape)
    return Found(samples, fit(fit.lib.from_numpy(samples).to(fit.kind), 0.0)[0], "lbfgs")


def _adam(fit: _Fit, start: F64, weight: float, steps: int, rate: float = _RATE) -> Found:
    lib = fit.lib
    x = lib.from_numpy(np.array(start)).to(fit.kind)
    adam = lib.optim.Adam([x], lr=rate)
    best, least, misfit = x.clone(), math.inf, math.inf
    for i in range(steps):
        now, total, slope = fit(x, weight)
        if total < least:
            best, least, misfit = x.clone(), total, now
        adam.param_groups[0]["lr"] = rate * next(f for share, f in _DROPS if i < share * steps)
        x.grad = slope.sign()
        adam.step()
        x.clamp_(0.0, 1.0)
    return Found(best.double().numpy(), misfit, "adam")


def _trained(module: Module) -> list[Any]:
    return [value for value in module.parameters() if value.requires_grad]


def _gradient(lib: Any, module: Module, x: Any, labels: Any, graph: bool) -> Any:
    loss = lib.nn.functional.cross_entropy(module(x), labels)
    trained = _trained(module)
    found = lib.autograd.grad(loss, trained, create_graph=graph, allow_unused=True)
    return lib.cat([(p * 0 if g is None else g).reshape(-1) for g, p in zip(found, trained, strict=True)])
