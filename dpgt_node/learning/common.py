"""What every oracle returns or hashes."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Metrics:
    """Values at one agent's x; None where they do not apply.  PRIVATE: outside the guarantee (privacy.md, section 7).

    ``loss_train``: f_i(x), mean over the agent's own samples.  ``accuracy_*``: fractions in [0, 1], of the agent's own
    training samples and of the common test set.  ``grad_norm``: ||grad f_i(x)||_2, of the same samples, unclipped;
    None for torch models, where it would cost a full pass of gradients.
    """

    loss_train: float | None = None
    accuracy_train: float | None = None
    accuracy_test: float | None = None
    grad_norm: float | None = None


def spaced(count: int, samples: int | None) -> npt.NDArray[np.int64]:
    """The rows that an evaluation looks at: all of ``count``, or ``samples`` of them, always the same ones.

    Evenly, because a file may be in the order of its labels.
    """
    if samples is None or samples >= count:
        return np.arange(count)
    return np.arange(samples) * count // samples


def shape_hash(*shapes: tuple[str, tuple[int, ...]], features_id: str = "") -> str:
    """SHA-256 (hex) of parameter names and shapes, one ``name:10x64`` line each, in order.

    ``features_id``: of frozen features, whose weights give the same parameters another meaning; a last line.
    """
    text = "".join(f"{name}:{'x'.join(map(str, shape))}\n" for name, shape in shapes) + features_id
    return hashlib.sha256(text.encode()).hexdigest()
