"""Methods that perturb each gradient once, with dense matrices, from their equations; nothing shared with the product.

All agents are the rows of float64 (n, d) matrices.  A round that releases nothing has no g~: methods that track keep
the last one, all others make no step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.oracles.methods import metropolis

Matrix = np.ndarray[Any, Any]
Gradient = Callable[[int, Matrix], "Matrix | None"]
"""g~_k of every agent at its row; None in a round that releases nothing."""


@dataclass
class Setting:
    """``gammas``: gamma of rounds 0..K.  ``shares``, ``momentum``, ``quantise(k, x)``: of methods that have them."""

    R: Matrix
    C: Matrix
    alpha: float
    beta: float
    gammas: Sequence[float]
    x0: Matrix
    shares: Sequence[float] | None = None
    momentum: float = 0.9
    quantise: Callable[[int, Matrix], Matrix] = field(default=lambda k, x: x)

    @property
    def n(self) -> int:
        return len(self.R)


Sent = dict[str, Matrix]
Trajectory = tuple[list[Matrix], list[Sent]]
"""x_0..x_{K+1}, and what every round sent by stream."""


def noise_once(s: Setting, gradient: Gradient) -> Trajectory:
    A = s.alpha * (np.diag(s.R.sum(1)) - s.R)
    B = s.beta * (np.diag(s.C.sum(0)) - s.C)
    x, y, held = s.x0, 0.0 * s.x0, 0.0 * s.x0
    xs, sent = [x], []
    for k, gamma in enumerate(s.gammas):
        new = gradient(k, x)
        new = held if new is None else new
        y = y + new - held
        sent.append({"X": x, "Y": y})
        x, y, held = x - A @ x - gamma * y, y - B @ y, new
        xs.append(x)
    return xs, sent


def dp_dsgt(s: Setting, gradient: Gradient) -> Trajectory:
    W, x, y, held = metropolis(s.R), s.x0, 0.0 * s.x0, 0.0 * s.x0
    xs, sent = [x], []
    for k, gamma in enumerate(s.gammas):
        new = gradient(k, x)
        new = held if new is None else new
        y = y + new - held
        sent.append({"X": x - gamma * y, "Y": y})
        x, y, held = W @ (x - gamma * y), W @ y, new
        xs.append(x)
    return xs, sent


def _adapt_then_combine(W: Matrix, momentum: float, s: Setting, gradient: Gradient) -> Trajectory:
    x, h = s.x0, 0.0 * s.x0
    xs, sent = [x], []
    for k, gamma in enumerate(s.gammas):
        new, v = gradient(k, x), x
        if new is not None:
            h = momentum * h + new
            v = x - gamma * h
        sent.append({"X": v})
        x = W @ v
        xs.append(x)
    return xs, sent


def atc_dsgd(s: Setting, gradient: Gradient) -> Trajectory:
    return _adapt_then_combine(metropolis(s.R), 0.0, s, gradient)


def dp_dsgd(s: Setting, gradient: Gradient) -> Trajectory:
    return _adapt_then_combine(metropolis(s.R), s.momentum, s, gradient)


def no_communication(s: Setting, gradient: Gradient) -> Trajectory:
    return _adapt_then_combine(np.eye(s.n), 0.0, s, gradient)


def weighted_sgd(s: Setting, gradient: Gradient) -> Trajectory:
    p = np.ones(s.n) / s.n if s.shares is None else np.array(s.shares) / np.sum(s.shares)
    x, xs, sent = s.x0, [s.x0], []
    for k, gamma in enumerate(s.gammas):
        new = gradient(k, x)
        new = 0.0 * x if new is None else new
        sent.append({"X": new})
        x = x - gamma * (p @ new)[None, :]
        xs.append(x)
    return xs, sent


def sampled_dsgd(s: Setting, gradient: Gradient) -> Trajectory:
    W = metropolis(s.R)
    others = W - np.diag(np.diag(W))
    x, xs, sent = s.x0, [s.x0], []
    for k, gamma in enumerate(s.gammas):
        new, told = gradient(k, x), s.quantise(k, x)
        sent.append({"X": told})
        x = x - s.alpha * others.sum(1)[:, None] * x + s.alpha * others @ told
        x = x if new is None else x - gamma * new
        xs.append(x)
    return xs, sent


def dyn_d2p(s: Setting, gradient: Gradient) -> Trajectory:
    P = np.eye(s.n) - s.beta * (np.diag(s.C.sum(0)) - s.C)
    u, w = s.x0, np.ones(s.n)
    xs, sent = [u], []
    for k, gamma in enumerate(s.gammas):
        new = gradient(k, u / w[:, None])
        v = u if new is None else u - gamma * new
        sent.append({"X": v})
        u, w = P @ v, P @ w
        xs.append(u / w[:, None])
    return xs, sent


METHODS: dict[str, Callable[[Setting, Gradient], Trajectory]] = {
    "dpgt": noise_once,
    "atc-dsgd": atc_dsgd,
    "weighted-sgd": weighted_sgd,
    "sampled-dsgd": sampled_dsgd,
    "q-dpsgd": sampled_dsgd,
    "dyn-d2p": dyn_d2p,
    "dp-dsgt": dp_dsgt,
    "dp-dsgd": dp_dsgd,
    "no-communication": no_communication,
}
