"""The oracle of a torch module: sampled gradients, clipped sample by sample where the run asks for it.

x is the float64 vector of the trained parameters in the order of ``named_parameters`` (a tied weight once, a frozen
one not at all), each flattened row by row whatever its memory format.  The module computes in ``model.precision``; sums
over samples are float64.  A gradient is a pure function of (x, batch): nothing that a forward pass leaves behind in a
module reaches the next one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpgt_node.config.model import Model
from dpgt_node.errors import ConfigError
from dpgt_node.learning.arrays import I64, Dataset
from dpgt_node.learning.clipping import Clip
from dpgt_node.learning.common import Metrics, shape_hash, spaced
from dpgt_node.learning.torch_models import Module, Shape, build_module, guessed_shape, has_batch_norm, torch
from dpgt_node.privacy.noise import F64, ByteStream
from dpgt_node.privacy.sampler import uniform_subset

_EVALUATION_ROWS = 256
_ONE_BY_ONE_FROM = 1_000_000
"""From this d on, a pass a sample is faster on a CPU than one vectorised pass, which holds a gradient a sample."""
_STATISTICS_ROWS = 1024
"""Own samples whose statistics stand in for BatchNorm's running ones in an evaluation."""


class TorchOracle:
    """One agent's samples under a module shared by the process.

    BatchNorm: a gradient uses the statistics of its own batch, an evaluation those of (at most 1,024 of) the agent's
    own samples at x; they are computed when they are needed, stay here and are never released.
    """

    def __init__(self, data: Dataset, own: I64 | None, model: Model, *, clip: Clip | None, device: str = "cpu") -> None:
        """``own``: the agent's rows of the training set, None: all.  Raises ConfigError."""
        self._lib = torch()
        rows: slice | I64 = slice(None) if own is None else own
        # Bytes of pictures stay bytes until their batch is drawn.
        self._x, self._y = np.asarray(data.x_train[rows]), np.asarray(data.y_train[rows])
        self._data, self._divisor = data, data.divisor
        self._shape: Shape = data.image or guessed_shape(model.name, int(data.x_train.shape[1]))
        self._made = (model, self._shape, data.classes, device)
        self._network = network(*self._made)
        self._clip = clip
        if clip is not None and self._network.batch_norm:
            message = (
                f"{model.name!r} has BatchNorm, which mixes the samples of a batch, so that none has a gradient "
                'to clip: use norm = "group" (GroupNorm)'
            )
            raise ConfigError.one("run file", "model.norm", message)

    @property
    def batch_norm(self) -> bool:
        """Whether a gradient needs at least two samples, whose statistics it uses."""
        return self._network.batch_norm

    @property
    def dimension(self) -> int:
        """d, the trained parameters."""
        return self._network.dimension

    @property
    def samples(self) -> int:
        """D."""
        return len(self._y)

    @property
    def tested(self) -> int:
        """See :class:`~dpgt_node.learning.oracle.Oracle`."""
        return len(self._data.y_test)

    @property
    def shape_sha256(self) -> str:
        """See :class:`~dpgt_node.learning.oracle.Oracle`."""
        return self._network.shape_sha256

    @property
    def sample_size(self) -> int:
        """See :class:`~dpgt_node.learning.oracle.Oracle`."""
        return math.prod(self._shape)

    def inputs(self, batch: I64) -> F64:
        """(m, *shape): (m, channels, height, width) of pictures."""
        rows: F64 = np.asarray(self._x[batch], dtype=np.float64) / self._divisor
        return rows.reshape(len(batch), *self._shape)

    def labels(self, batch: I64) -> I64:
        """See :class:`~dpgt_node.learning.oracle.Oracle`."""
        return self._y[batch].astype(np.int64)

    def initial(self) -> F64:
        """The module's own initial values under ``init_seed`` (0 unless given), read-only; equal for all agents."""
        return self._network.start

    def draw_batch(self, m: int, stream: ByteStream) -> I64:
        """A uniformly distributed m-subset of the agent's samples."""
        return uniform_subset(stream, len(self._y), m)

    def gradient(self, x: F64, batch: I64) -> F64:
        """See :class:`~dpgt_node.learning.oracle.Oracle`."""
        net = self._network
        with net.guarded():
            net.load(x)
            total = self._lib.zeros(net.dimension, dtype=self._lib.float64, device=net.device)
            # Where samples see each other the batch is one; else its size is a matter of memory alone.
            step = len(batch) if net.batch_norm else net.chunk(per_sample=self._clip is not None)
            for start in range(0, len(batch), step):
                inputs, labels = self._tensors(net, batch[start : start + step])
                if self._clip is None:
                    total += net.summed_gradient(inputs, labels)
                else:
                    total += net.clipped_sum(inputs, labels, self._clip)
            gradient: F64 = total.cpu().numpy()
        gradient /= len(batch)
        return gradient

    def evaluate(self, x: F64, samples: int | None = None) -> Metrics:
        """Loss and accuracies; no gradient norm, which would cost a full pass of gradients."""
        # A module of its own: in a daemon an evaluation runs beside the next rounds' gradients.
        net = network(*self._made, "evaluation")
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

    def _tensors(self, net: Network, rows: I64) -> tuple[Any, Any]:
        return net.inputs(self._x[rows], self._divisor, self._shape), net.labels(self._y[rows])


class Network:
    """A module on a device, with its trained parameters as one vector; one user at a time."""

    def __init__(self, module: Module, model: Model, device: str) -> None:
        self._lib = lib = torch()
        self.device = _device(lib, device)
        self._dtype = lib.float64 if model.precision == "float64" else lib.float32
        self._half = model.precision == "bfloat16"
        self.module = module.to(self.device, self._dtype).train()
        named = [(name, value) for name, value in self.module.named_parameters() if value.requires_grad]
        self._names = [name for name, _ in named]
        self._parameters = [value for _, value in named]
        self._sizes = [value.numel() for value in self._parameters]
        self.dimension: int = sum(self._sizes)
        self.shape_sha256 = shape_hash(*((name, tuple(value.shape)) for name, value in named))
        self.batch_norm = has_batch_norm(self.module)
        self._memory = model.memory_mb << 20
        with lib.no_grad():
            start = lib.cat([value.detach().reshape(-1).double() for value in self._parameters])
        self.start: F64 = start.cpu().numpy()
        self.start.setflags(write=False)
        self._vector: Callable[..., Any] | None = None
        self.one_by_one = self.device.type == "cpu" and self.dimension >= _ONE_BY_ONE_FROM

    # --- x and data -----------------------------------------------------------------------------------------------

    def load(self, x: F64) -> None:
        """Set the trained parameters."""
        with self._lib.no_grad():
            vector = self._lib.from_numpy(np.array(x)).to(self.device, self._dtype)
            for value, part in zip(self._parameters, vector.split(self._sizes), strict=True):
                value.copy_(part.view(value.shape))

    def inputs(self, stored: npt.NDArray[Any], divisor: float, shape: Shape) -> Any:
        """Rows as they are stored, as a batch (m, *shape)."""
        rows = self._lib.from_numpy(np.array(stored, order="C")).to(self.device, self._dtype)
        return (rows if divisor == 1.0 else rows / divisor).reshape(len(stored), *shape)

    def labels(self, stored: I64) -> Any:
        """Labels as a tensor."""
        return self._lib.from_numpy(np.array(stored)).to(self.device)

    def chunk(self, *, per_sample: bool) -> int:
        """Samples a pass: as many per-sample gradients as the memory setting holds; 256 where they are summed."""
        if not per_sample:
            return 256
        one = self.dimension * int(self._parameters[0].element_size())
        return max(1, self._memory // one)

    # --- gradients ------------------------------------------------------------------------------------------------

    def summed_gradient(self, inputs: Any, labels: Any) -> Any:
        """Sum over the batch of the gradients, float64 (d,)."""
        self.module.train()
        return self._lib.cat([g.reshape(-1).double() for g in self._gradients(inputs, labels)])

    def clipped_sum(self, inputs: Any, labels: Any, clip: Clip) -> Any:
        """Sum over the batch of the gradients, each scaled to a norm of at most the clip, float64 (d,).

        The norm is of the whole vector, in float64.  A sample whose gradient is not finite counts as zero.
        """
        self.module.train()
        if self.one_by_one:
            singles = zip(inputs.split(1), labels.split(1), strict=True)
            return sum(self._scaled([g[None] for g in self._gradients(x, y)], clip) for x, y in singles)
        held = {name: value.detach() for name, value in zip(self._names, self._parameters, strict=True)}
        found = self._vectorised()(held, inputs, labels)
        return self._scaled([found[name] for name in self._names], clip)

    def _scaled(self, found: list[Any], clip: Clip) -> Any:
        """``found``: a tensor (m, *shape) a parameter."""
        flat = [g.reshape(len(g), -1) for g in found]
        if clip.order == 1:
            norms = sum(g.abs().sum(dim=1, dtype=self._lib.float64) for g in flat)
        else:
            norms = sum(g.double().square().sum(dim=1) for g in flat).sqrt()
        factors = np.ones((1, len(norms)))
        clip.scale(factors, norms.cpu().numpy())
        weights = self._lib.from_numpy(factors[0]).to(self.device)
        whole = weights > 0
        return self._lib.cat([_weighted(g, weights, whole) for g in flat])

    def _gradients(self, inputs: Any, labels: Any) -> list[Any]:
        """Of the summed loss, a tensor a parameter; a parameter that the loss does not reach has gradient zero."""
        with self._cast():
            loss = self._lib.nn.functional.cross_entropy(self.module(inputs).to(self._dtype), labels, reduction="sum")
        found = self._lib.autograd.grad(loss, self._parameters, allow_unused=True)
        return [p.detach() * 0 if g is None else g for g, p in zip(found, self._parameters, strict=True)]

    def _vectorised(self) -> Callable[..., Any]:
        """(parameters, inputs, labels) -> a dict of per-sample gradients."""
        if self._vector is not None:
            return self._vector
        func, functional = self._lib.func, self._lib.nn.functional

        def loss(held: dict[str, Any], one: Any, label: Any) -> Any:
            with self._cast():
                logits = func.functional_call(self.module, held, (one.unsqueeze(0),))
            return functional.cross_entropy(logits.to(self._dtype), label.unsqueeze(0))

        self._vector = func.vmap(func.grad(loss), in_dims=(None, 0, 0))
        return self._vector

    # --- evaluation -----------------------------------------------------------------------------------------------

    def judged(self, inputs: Any, labels: Any) -> tuple[float, int]:
        """(summed cross-entropy, number of right answers)."""
        self.module.eval()
        with self._lib.no_grad(), self._cast():
            logits = self.module(inputs).to(self._dtype)
            loss = self._lib.nn.functional.cross_entropy(logits.double(), labels, reduction="sum")
        return float(loss), int((logits.argmax(dim=1) == labels).sum())

    def calibrate(self, inputs: Any) -> None:
        """Make BatchNorm's running statistics those of ``inputs``."""
        norms = [m for m in self.module.modules() if isinstance(m, self._lib.nn.modules.batchnorm._BatchNorm)]
        before = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain mean over the passes
        self.module.train()
        with self._lib.no_grad(), self._cast():
            for part in inputs.split(_EVALUATION_ROWS):
                self.module(part)
        for norm, momentum in zip(norms, before, strict=True):
            norm.momentum = momentum

    def guarded(self) -> Any:
        """Out of memory is one clear message."""
        return _Guard(self._lib)

    def _cast(self) -> Any:
        kind = self.device.type
        return self._lib.autocast(kind, dtype=self._lib.bfloat16, enabled=self._half)


class _Guard:
    def __init__(self, lib: Any) -> None:
        self._errors = (lib.OutOfMemoryError, MemoryError)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        allocation = isinstance(error, RuntimeError) and "not enough memory" in str(error)
        if error is not None and (isinstance(error, self._errors) or allocation):
            message = "the gradient does not fit into memory: lower model.memory_mb, or m_K"
            raise ConfigError.one("run file", "model.memory_mb", message) from error


@lru_cache(maxsize=2)
def network(model: Model, shape: Shape, classes: int, device: str, purpose: str = "gradient") -> Network:
    """One for each purpose, shared by the oracles of a process: n agents of a simulator hold one module."""
    seed = 0 if model.init_seed is None else model.init_seed
    return Network(build_module(model.name, shape, classes, norm=model.norm, seed=seed), model, device)


def _parts(rows: I64) -> list[I64]:
    return [rows[start : start + _EVALUATION_ROWS] for start in range(0, len(rows), _EVALUATION_ROWS)]


def _device(lib: Any, name: str) -> Any:
    if name == "cuda" and not lib.cuda.is_available():
        raise ConfigError.one("command line", "--device", "cuda: this machine has no usable CUDA device")
    return lib.device(name)


def _weighted(rows: Any, weights: Any, whole: Any) -> Any:
    """sum_j weights_j rows_j in float64; rows of weight 0 may hold NaN."""
    clean = rows if bool(whole.all()) else rows.masked_fill(~whole[:, None], 0.0)
    return weights @ clean.double()
