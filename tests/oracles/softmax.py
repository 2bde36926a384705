"""Softmax regression one sample and one entry at a time: nothing shared with the product."""

from __future__ import annotations

import math

import numpy as np


def probabilities(x, phi, classes: int, bias: float) -> list[float]:
    p = len(phi)
    logits = []
    for c in range(classes):
        logit = sum(x[c * p + j] * phi[j] for j in range(p))
        logits.append(logit + (bias * x[classes * p + c] if bias else 0.0))
    top = max(logits)
    weights = [math.exp(v - top) for v in logits]
    return [w / sum(weights) for w in weights]


def loss(x, phi, label: int, classes: int, bias: float) -> float:
    return -math.log(probabilities(x, phi, classes, bias)[label])


def sample_gradient(x, phi, label: int, classes: int, bias: float) -> np.ndarray:
    prob = probabilities(x, phi, classes, bias)
    errors = [prob[c] - (1.0 if c == label else 0.0) for c in range(classes)]
    entries = [errors[c] * phi[j] for c in range(classes) for j in range(len(phi))]
    return np.array(entries + ([errors[c] * bias for c in range(classes)] if bias else []))


def clipped(gradient: np.ndarray, order: int | None, bound: float) -> np.ndarray:
    """privacy.md, section 5, read literally."""
    if order is None:
        return gradient
    norm = float(np.linalg.norm(gradient, order))
    if not math.isfinite(norm):
        return np.zeros_like(gradient)
    threshold = bound * (1.0 - 2.0**-22)
    return gradient * (threshold / norm) if norm > threshold else gradient


def gradient(x, phis, labels, classes: int, bias: float, order: int | None = None, bound: float = 0.0) -> np.ndarray:
    total = sum(
        clipped(sample_gradient(x, phi, label, classes, bias), order, bound)
        for phi, label in zip(phis, labels, strict=True)
    )
    return total / len(labels)
