"""The oracle of a torch module: sampled gradients, clipped sample by sample where the run asks for it.

x is the float64 vector of the trained parameters in the order of ``named_parameters`` (a tied weight once, a frozen
one not at all).  A gradient is a pure function of (x, batch): nothing that a forward pass leaves behind in a module
reaches the next one.  Of an operator's own module, whose code may keep things elsewhere, a sample that is nobody's is
looked at before and after the batch: where the bits differ there is no gradient.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from dpgt_node.config.model import Model
from dpgt_node.errors import ConfigError
from dpgt_node.learning.common import Metrics, shape_hash, spaced
from dpgt_node.learning.data.arrays import Dataset
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.learning.nets.torch_models import Shape, guessed_shape, torch
from dpgt_node.learning.nets.torch_network import EVALUATION_ROWS, Network, network
from dpgt_node.privacy.laws.noise import ByteStream
from dpgt_node.privacy.laws.sampler import uniform_subset
from dpgt_node.types import F64, I64

_STATISTICS_ROWS = 1024
"""Own samples whose statistics stand in for BatchNorm's running ones in an evaluation."""


class TorchOracle:
    """One agent's samples under a module shared by the process.

    BatchNorm: a gradient uses the statistics of its own batch, an evaluation those of (at most 1,024 of) the agent's
    own samples at x; they are computed when they are needed, stay here and are never released.
    """

    def __init__(
        self,
        data: Dataset,
        own: I64 | None,
        model: Model,
        *,
        clip: Clip | None,
        device: str = "cpu",
        features_id: str = "",
    ) -> None:
        """``own``: the agent's rows of the training set, None: all.  ``features_id``: of frozen features, compared by
        agents.  Raises ConfigError.
        """
        self._lib, self._features_id = torch(), features_id
        rows: slice | I64 = slice(None) if own is None else own
        # Bytes of pictures stay bytes until their batch is drawn.
        self._x, self._y = np.asarray(data.x_train[rows]), np.asarray(data.y_train[rows])
        self._data, self._divisor = data, data.divisor
        self._shape: Shape = data.image or guessed_shape(model.name, int(data.x_train.shape[1]))
        self._made = (model, self._shape, data.classes, device)
        self._network = network(*self._made)
        self._clip = clip
        if clip is not None and self._network.batch_norm:
            plugged = ":" in model.name
            advice = "build it with GroupNorm" if plugged else 'use norm = "group" (GroupNorm)'
            message = (
                f"{model.name!r} has BatchNorm, which mixes the samples of a batch, so that none has a gradient "
                f"to clip: {advice}"
            )
            raise ConfigError.one("run file", "model.name" if plugged else "model.norm", message)
        if clip is not None:
            self._network.choose_clipping(model.name, self._shape, clip)

    @property
    def net(self) -> Network:
        """The module that gradients use, on its device; shared by the oracles of a process."""
        return self._network

    @property
    def clip(self) -> Clip | None:
        """What each sample's gradient is clipped to."""
        return self._clip

    @property
    def batch_norm(self) -> bool:
        """Whether a gradient needs at least two samples, whose statistics it uses."""
        return self._network.batch_norm

    @property
    def dimension(self) -> int:
        return self._network.dimension

    @property
    def samples(self) -> int:
        return len(self._y)

    @property
    def tested(self) -> int:
        return len(self._data.y_test)

    @property
    def shape_sha256(self) -> str:
        known = self._network.shape_sha256
        return shape_hash((known, ()), features_id=self._features_id) if self._features_id else known

    @property
    def sample_size(self) -> int:
        return math.prod(self._shape)

    def inputs(self, batch: I64) -> F64:
        """(m, *shape): (m, channels, height, width) of pictures."""
        rows: F64 = np.asarray(self._x[batch], dtype=np.float64) / self._divisor
        return rows.reshape(len(batch), *self._shape)

    def labels(self, batch: I64) -> I64:
        return self._y[batch].astype(np.int64)

    def initial(self) -> F64:
        """The module's own initial values under ``init_seed`` (0 unless given), read-only; equal for all agents."""
        return self._network.start()

    def draw_batch(self, m: int, stream: ByteStream) -> I64:
        return uniform_subset(stream, len(self._y), m)

    def under(self, share: float) -> TorchOracle:
        """The same, its module included, with ``share`` times the clip."""
        other = copy.copy(self)
        other._clip = None if self._clip is None else self._clip.times(share)
        return other

    def gradient(self, x: F64, batch: I64) -> F64:
        net = self._network
        with net.guarded():
            net.load(x)
            before = None if self._clip is None else net.look()
            total = net.zeros()
            # Where samples see each other the batch is one; else its size is a matter of memory alone.
            step = len(batch) if net.batch_norm else net.chunk(per_sample=self._clip is not None)
            for start in range(0, len(batch), step):
                inputs, labels = self._tensors(net, batch[start : start + step])
                if self._clip is None:
                    net.add_gradient(inputs, labels, total)
                else:
                    net.add_clipped(inputs, labels, self._clip, len(batch), total)
            if self._clip is not None:
                net.look_again(before)
            gradient: F64 = total.cpu().numpy()
        gradient /= len(batch)
        return gradient

    def evaluate(self, x: F64, samples: int | None = None) -> Metrics:
        """Loss and accuracies; no gradient norm, which would cost a full pass of gradients."""
        # A module of its own: in a daemon an evaluation runs beside the next rounds' gradients.
        net = network(*self._made, "evaluation")
        net.start = self._network.start
        with net.guarded():
            net.load(x)
            if net.batch_norm:
                chosen = np.arange(len(self._y))[:_STATISTICS_ROWS]
                net.calibrate(self._tensors(net, chosen)[0])
            own, test = spaced(len(self._y), samples), spaced(self.tested, samples)
            loss, hits, right = 0.0, 0, 0
            for rows in _parts(own):
                more_loss, more_hits = net.judged(*self._tensors(net, rows))
                loss, hits = loss + more_loss, hits + more_hits
            for rows in _parts(test):
                inputs = net.inputs(self._data.x_test[rows], self._divisor, self._shape)
                right += net.judged(inputs, net.labels(self._data.y_test[rows]))[1]
        return Metrics(
            loss_train=loss / len(own),
            accuracy_train=hits / len(own),
            accuracy_test=right / len(test) if len(test) else None,
        )

    def tensors(self, rows: I64) -> tuple[Any, Any]:
        """These of the agent's samples and their labels, (m, *shape) and (m,), on the device."""
        return self._tensors(self._network, rows)

    def _tensors(self, net: Network, rows: I64) -> tuple[Any, Any]:
        return net.inputs(self._x[rows], self._divisor, self._shape), net.labels(self._y[rows])


def _parts(rows: I64) -> list[I64]:
    return [rows[start : start + EVALUATION_ROWS] for start in range(0, len(rows), EVALUATION_ROWS)]
