"""How sure a softmax model should be: one number that its logits are divided by.  No class changes by it.

Clipped steps under noise are tuned for the right class.  They move x much farther than its chances deserve: the
highest chance of nearly every sample is close to 1, also where the class is wrong.  A temperature costs no epsilon
where it is a function of data that are nobody's, as a plan's is, or of what was released.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dpgt_node.types import F64, I64

_RANGE: Final = (1e-3, 1e3)
"""Where a temperature is looked for."""
_HALVINGS: Final = 60


def losses(logits: F64, labels: I64) -> F64:
    """-log of the chance of each sample's label, in nats: float64 (N,).  ``logits`` (N, classes), ``labels`` (N,)."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    found: F64 = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]
    return found


def chances(logits: F64) -> F64:
    """The softmax of ``logits`` (N, classes): float64 (N, classes), rows add up to 1."""
    found: F64 = np.exp(logits - logits.max(axis=1, keepdims=True))
    found /= found.sum(axis=1, keepdims=True)
    return found


def best_temperature(draws: Sequence[F64], labels: I64) -> float:
    """The T in [1e-3, 1e3] at which the mean loss of ``logits`` / T over all ``draws`` (N, classes) is least.

    The loss is convex in 1/T, so its slope has one change of sign; that is halved for in the logarithm.
    """
    low, high = (-np.log(end) for end in reversed(_RANGE))
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _slope(draws, labels, float(np.exp(middle))) < 0.0:
            low = middle
        else:
            high = middle
    return float(np.exp(-0.5 * (low + high)))


def _slope(draws: Sequence[F64], labels: I64, inverse: float) -> float:
    """Of the mean loss, by 1/T: the mean logit under the chances, less the logit of the label."""
    own = np.arange(len(labels))
    return sum(float(((chances(inverse * each) * each).sum(axis=1) - each[own, labels]).mean()) for each in draws)
