"""What every oracle is, returns or hashes."""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpgt_node.privacy.laws.noise import ByteStream
from dpgt_node.types import F64, I64
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


class Oracle(Protocol):
    """What the agent asks of its data and model."""

    @property
    def dimension(self) -> int:
        """d, the number of parameters."""
        ...

    @property
    def samples(self) -> int | None:
        """D, the agent's own training samples; None when the objective has no finite data set."""
        ...

    @property
    def tested(self) -> int:
        """Samples of the test set; 0 where there is none."""
        ...

    @property
    def shape_sha256(self) -> str:
        """Hex hash of the parameters' names and shapes: agents that differ in it cannot mix their vectors."""
        ...

    @property
    def sample_size(self) -> int:
        """Numbers of one sample as the model takes it; 0 without a data set."""
        ...

    def initial(self) -> F64:
        """x_{i,0}, float64 (d,), independent of the data; may be read-only and shared."""
        ...

    def draw_batch(self, m: int, stream: ByteStream) -> I64:
        """A fresh batch of ``m`` samples, int64: ALL the randomness of one gradient, so that it can be replayed.

        Data sets: a uniformly distributed m-subset of range(D), 1 <= m <= D.  Stochastic toys: the m values of xi,
        their float64 bits read as int64.  Deterministic toys: empty.
        """
        ...

    def under(self, share: float) -> Oracle:
        """The same with ``share`` times the clip."""
        ...

    def gradient(self, x: F64, batch: I64) -> F64:
        """Mean over ``batch`` of the (clipped) per-sample gradients at ``x``: float64 (d,), divisor m.

        The result is never ``x`` itself; it may be read-only and shared between calls.
        """
        ...

    def evaluate(self, x: F64, samples: int | None = None) -> Metrics:
        """Metrics at ``x`` over the agent's samples and the test set, at most ``samples`` of each; None: all."""
        ...

    def inputs(self, batch: I64) -> F64:
        """The samples of ``batch`` as the model takes them, float64 (m, ...); (0,) without a data set.  PRIVATE."""
        ...

    def labels(self, batch: I64) -> I64:
        """Their labels, int64 (m,); (0,) without a data set.  PRIVATE."""
        ...


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
