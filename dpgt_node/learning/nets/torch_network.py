"""A torch module with its trained parameters as one float64 vector: what oracles compute with.

Parameters are in the order of ``named_parameters`` (a tied weight once, a frozen one not at all), each flattened row
by row whatever its memory format.  The module computes in ``model.precision``; sums over samples are float64.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dpgt_node.config.model import Model
from dpgt_node.errors import ConfigError
from dpgt_node.learning.common import shape_hash
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.learning.nets.torch_ghost import Ghost, factors, traced
from dpgt_node.learning.nets.torch_models import (
    Guard,
    Module,
    Shape,
    Start,
    build_module,
    has_batch_norm,
    is_batch_norm,
    torch,
)
from dpgt_node.learning.nets.torch_state import Kept
from dpgt_node.types import F64, I64

EVALUATION_ROWS = 256
"""Rows a pass of an evaluation, which bounds its memory."""
_PROBED = 3
"""Random samples that a module of the operator's own is tried on."""
_EXTREMES = (0.0, -1.0, 9.0, 255.0, 1e3, 1e6, 1e-6)
"""What these samples are multiplied by, between two looks at one of them."""
_ONE_BY_ONE_FROM = 1_000_000
"""From this d on, a pass a sample is faster on a CPU than one vectorised pass that holds a gradient a sample.  An
operator's own module never takes it: it could branch on one sample, and remember it for the next."""
_REMEMBERS = "remembers the samples that it saw: no clip bounds what one of them changes"
_AGREES = {"float64": 1e-9, "float32": 1e-3, "bfloat16": 0.1}
"""How far ghost clipping may be from plain autograd, of the largest entry, on a module of the operator's own."""


class Network:
    """A module on a device, with its trained parameters as one vector; one user at a time."""

    def __init__(self, module: Module, model: Model, device: str) -> None:
        self._lib = lib = torch()
        # Of vmap, for layers that it takes sample by sample: for torch's authors, not for an operator's log.
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        self.device = find_device(lib, device)
        self._dtype = lib.float64 if model.precision == "float64" else lib.float32
        self._precision = model.precision
        self.module = module.to(self.device, self._dtype).train()
        named = [(name, value) for name, value in self.module.named_parameters() if value.requires_grad]
        self._names = [name for name, _ in named]
        self._parameters = [value for _, value in named]
        self._sizes = [value.numel() for value in self._parameters]
        ends = np.cumsum([0, *self._sizes]).tolist()
        self._places = [slice(*pair) for pair in pairwise(ends)]
        self.dimension: int = ends[-1]
        self.shape_sha256 = shape_hash(*((name, tuple(value.shape)) for name, value in named))
        self.batch_norm = has_batch_norm(self.module)
        self._memory = model.memory_mb << 20
        self.start = Start(self._parameters)
        self._vector: Callable[..., Any] | None = None
        self.one_by_one = self.device.type == "cpu" and self.dimension >= _ONE_BY_ONE_FROM
        self.ghost: Ghost | None = None
        """How samples are clipped where the module allows it; else each has a gradient of its own for a moment."""
        self._chosen = False
        self._name = ""
        self._kept: Kept | None = None  # of a module of the operator's own
        self._public: tuple[Any, Any] | None = None

    def probe(self, name: str, shape: Shape, classes: int) -> None:
        """Refuse a module of the operator's own that fails, is random or changes with use.  ConfigError names it."""
        self._name, self.one_by_one, self._kept = name, False, Kept(self.module)
        with self._kept.restored():
            self._probe(name, shape, classes)

    def _probe(self, name: str, shape: Shape, classes: int) -> None:
        lib = self._lib
        norms = [key for key, part in self.module.named_modules() if is_batch_norm(part)]
        before = {key: value.clone() for key, value in self.module.named_buffers()}
        inputs = self.inputs(np.random.default_rng(0).random((_PROBED, *shape)), 1.0, shape)
        with self.guarded():
            try:
                with lib.no_grad(), self._cast():
                    first, second = self.module.train()(inputs), self.module(inputs)
            except (lib.OutOfMemoryError, MemoryError):
                raise
            except (Exception, SystemExit) as error:  # an operator's own code may fail in any way
                raise self._unfit(name, f"fails on samples of shape {shape}", error) from error
        if not isinstance(first, lib.Tensor) or tuple(first.shape) != (_PROBED, classes):
            found = tuple(first.shape) if isinstance(first, lib.Tensor) else type(first).__name__
            raise self._unfit(
                name, f"gives {found} for {_PROBED} samples, not ({_PROBED}, {classes}): logits are asked"
            )
        if not bool(lib.isfinite(first).all()):
            raise self._unfit(name, "gives logits that are not finite, at its own initial values")
        if not lib.equal(first, second):
            raise self._unfit(name, "computes something else at a second look: its randomness cannot be replayed")
        for key, value in self.module.named_buffers():
            of_norm = any(key.startswith(f"{norm}." if norm else "") for norm in norms)
            if not of_norm and not lib.equal(before[key], value):
                message = f"changes its buffer {key} when it computes: a gradient is a function of x and batch alone"
                raise self._unfit(name, message)

    def choose_clipping(self, name: str, shape: Shape, clip: Clip) -> None:
        """Decide, once, how samples are clipped.  ConfigError: a module of the operator's own where they cannot be.

        On a CPU by ghost norms (:mod:`~dpgt_node.learning.nets.torch_ghost`), where the module is made of layers
        that have them and, if it is the operator's own, plain autograd agrees on a few random samples.
        """
        if self._chosen:
            return
        self.load(self.start())
        self.module.train()
        inputs = self.inputs(np.random.default_rng(0).random((_PROBED, *shape)), 1.0, shape)
        labels = self.labels(np.zeros(_PROBED, dtype=np.int64))
        with self.guarded(), self._pass():
            if self.device.type == "cpu":
                places = dict(zip(self._names, self._places, strict=True))
                ghost = traced(self.module, places, self._loss, inputs[:1], self._memory)
                if ":" not in name or (ghost is not None and self._agrees(ghost, inputs, labels)):
                    self.ghost = ghost
            if ":" in name and self.ghost is None:
                self._try_clipping(name, inputs, labels, clip)
        if ":" in name and self.device.type == "cpu":  # another device may add up in another order each time
            self._public = inputs[:1], labels[:1]
            self._try_extremes(inputs, labels, clip)
        self._chosen = True

    def _try_extremes(self, inputs: Any, labels: Any, clip: Clip) -> None:
        try:
            before = self.look()
            for factor in _EXTREMES:
                with suppress(RuntimeError, ValueError):  # what it makes of such a sample is its own affair
                    self.add_clipped(factor * inputs, labels, clip, _PROBED, self.zeros())
            self.look_again(before)
        except (RuntimeError, ValueError) as error:  # what it keeps of one pass does not fit another
            raise self._unfit(self._name, _REMEMBERS, error) from error

    def look(self) -> Any:
        """What makes up the gradient of a random sample, nobody's, at the parameters as they are; None: nothing."""
        if self._public is None:
            return None
        self.module.train()
        with self._pass():
            if self.ghost is None:
                return [part.nan_to_num() for part in self._vectorised()(self._held(), *self._public).values()]
            return [part.nan_to_num() for pair in self.ghost.records(self._held(), *self._public) for part in pair]

    def look_again(self, before: Any) -> None:
        """ConfigError: a ``look`` gives other bits than ``before``, so samples between the two reached the second."""
        if before is not None and not all(map(self._lib.equal, before, self.look())):
            raise self._unfit(self._name, _REMEMBERS)

    def _pass(self) -> AbstractContextManager[None]:
        """What a module of the operator's own keeps in itself ends with the block."""
        return nullcontext() if self._kept is None else self._kept.restored()

    def _agrees(self, ghost: Ghost, inputs: Any, labels: Any) -> bool:
        """Whether ``ghost`` clips like plain autograd on single samples."""
        pairs = zip(inputs.split(1), labels.split(1), strict=True)
        rows = self._lib.stack([self._lib.cat([g.reshape(-1).double() for g in self._gradients(*p)]) for p in pairs])
        for order in (1, 2):
            norms = self._lib.linalg.vector_norm(rows, order, dim=1)
            clip = Clip(order, float(norms.median()))
            if not 0.0 < clip.bound < np.inf:
                return False
            expected, found = factors(norms, clip) @ rows, self.zeros()
            try:
                ghost.add(self._held(), inputs, labels, clip, _PROBED, found)
            except (self._lib.OutOfMemoryError, MemoryError):
                raise
            except Exception:  # vmap refuses what it cannot vectorise in many ways
                return False
            if not float((found - expected).abs().max()) <= _AGREES[self._precision] * float(expected.abs().max()):
                return False
        return True

    def _try_clipping(self, name: str, inputs: Any, labels: Any, clip: Clip) -> None:
        try:
            self.add_clipped(inputs, labels, clip, _PROBED, self.zeros())
        except (self._lib.OutOfMemoryError, MemoryError):
            raise
        except (Exception, SystemExit) as error:
            raise self._unfit(name, "has no gradient of one sample, which a clip needs", error) from error

    def _unfit(self, name: str, message: str, error: BaseException | None = None) -> ConfigError:
        why = "" if error is None else f": {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        return ConfigError.one("run file", "model.name", f"{name!r} {message}{why}")

    # --- x and data -----------------------------------------------------------------------------------------------

    def load(self, x: F64) -> None:
        with self._lib.no_grad():
            if self.device.type != "cpu":
                vector = self._lib.from_numpy(np.array(x)).to(self.device, self._dtype)
                for value, part in zip(self._parameters, vector.split(self._sizes), strict=True):
                    value.copy_(part.view(value.shape))
                return
            with np.errstate(over="ignore"):  # a value that float32 lacks is infinite, and so is what comes of it
                for value, place in zip(self._parameters, self._places, strict=True):
                    np.copyto(value.detach().numpy(), x[place].reshape(value.shape), casting="same_kind")

    def zeros(self) -> Any:
        """float64 (d,), what a gradient is summed in."""
        if self.device.type == "cpu":
            return self._lib.from_numpy(np.zeros(self.dimension))  # numpy asks for huge pages, torch does not
        return self._lib.zeros(self.dimension, dtype=self._lib.float64, device=self.device)

    def inputs(self, stored: npt.NDArray[Any], divisor: float, shape: Shape) -> Any:
        """Rows as they are stored, as a batch (m, *shape)."""
        rows = self._lib.from_numpy(np.array(stored, order="C")).to(self.device, self._dtype)
        return (rows if divisor == 1.0 else rows / divisor).reshape(len(stored), *shape)

    def labels(self, stored: I64) -> Any:
        return self._lib.from_numpy(np.array(stored)).to(self.device)

    @property
    def gradients_held(self) -> int:
        """As many gradients as the memory setting holds."""
        return max(1, self._memory // (self.dimension * int(self._parameters[0].element_size())))

    def chunk(self, *, per_sample: bool) -> int:
        """Samples a pass: as many as the memory setting holds what clipping needs of; 256 where they are summed."""
        if not per_sample:
            return 256
        return self.gradients_held if self.ghost is None else self.ghost.samples

    # --- gradients ------------------------------------------------------------------------------------------------

    def add_gradient(self, inputs: Any, labels: Any, total: Any) -> None:
        """Add to ``total``, float64 (d,), the sum over the batch of the gradients."""
        self.module.train()
        with self._pass():
            found = self._gradients(inputs, labels)
        for g, place in zip(found, self._places, strict=True):
            total[place] += g.reshape(-1)

    def add_clipped(self, inputs: Any, labels: Any, clip: Clip, m: int, total: Any) -> None:
        """Add to ``total`` the sum over these of a batch's ``m`` samples of the gradients, each scaled to a norm of at
        most the clip.

        The norm is of the whole vector, in float64.  A sample whose gradient is not finite counts as zero.
        """
        self.module.train()
        with self._pass():
            self._add_clipped(inputs, labels, clip, m, total)

    def _add_clipped(self, inputs: Any, labels: Any, clip: Clip, m: int, total: Any) -> None:
        if self.ghost is not None:
            self.ghost.add(self._held(), inputs, labels, clip, m, total)
        elif self.one_by_one:
            for x, y in zip(inputs.split(1), labels.split(1), strict=True):
                found = [g.reshape(1, -1) for g in self._gradients(x, y)]
                weight = float(self._weights(found, clip))
                for g, place in zip(found, self._places, strict=True):
                    if weight:
                        total[place].add_(g[0], alpha=weight)
        else:
            found = self._vectorised()(self._held(), inputs, labels)
            flat = [found[name].reshape(len(labels), -1) for name in self._names]
            weights = self._weights(flat, clip)
            for g, place in zip(flat, self._places, strict=True):
                total[place] += _weighted(g, weights)

    def _held(self) -> dict[str, Any]:
        return {name: value.detach() for name, value in zip(self._names, self._parameters, strict=True)}

    def stacked_sums(self, x: F64, inputs: Any, labels: Any, clip: Clip | None) -> Any:
        """Of several agents at once: row i of (a, d), float64, is the sum of the (clipped) gradients at ``x[i]`` over
        ``inputs[i]``, of shape (m, *shape).
        """
        self.module.train()
        a = len(x)
        parts = self._lib.from_numpy(np.array(x)).to(self.device, self._dtype).split(self._sizes, dim=1)
        named = zip(self._names, parts, self._parameters, strict=True)
        held = {name: part.reshape(a, *value.shape) for name, part, value in named}
        vmap, each = self._lib.func.vmap, self._vectorised() if clip is not None else self._lib.func.grad(self._loss)
        with self._pass():
            found = vmap(each)(held, inputs, labels)
        if clip is None:
            return self._lib.cat([found[name].reshape(a, -1).double() for name in self._names], dim=1)
        flat = [found[name].reshape(labels.numel(), -1) for name in self._names]
        weights = self._weights(flat, clip)
        sums = (_weighted(g.reshape(*labels.shape, -1), weights.reshape(a, 1, -1)) for g in flat)
        return self._lib.cat([rows.squeeze(1) for rows in sums], dim=1)

    def _weights(self, flat: list[Any], clip: Clip) -> Any:
        """What scales each of m gradients, given as a tensor (m, size) a parameter: float64 (m,)."""
        norm = self._lib.linalg.vector_norm
        parts = [norm(g, clip.order, dim=1, dtype=self._lib.float64) for g in flat]
        return factors(norm(self._lib.stack(parts), clip.order, dim=0), clip)

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

        def loss(held: dict[str, Any], one: Any, label: Any) -> Any:
            return self._loss(held, one.unsqueeze(0), label.unsqueeze(0))

        self._vector = self._lib.func.vmap(self._lib.func.grad(loss), in_dims=(None, 0, 0))
        return self._vector

    def _loss(self, held: dict[str, Any], inputs: Any, labels: Any) -> Any:
        """Summed over the batch, as a function of the parameters."""
        with self._cast():
            logits = self._lib.func.functional_call(self.module, held, (inputs,))
        return self._lib.nn.functional.cross_entropy(logits.to(self._dtype), labels, reduction="sum")

    # --- evaluation -----------------------------------------------------------------------------------------------

    def judged(self, inputs: Any, labels: Any) -> tuple[float, int]:
        """(summed cross-entropy, number of right answers)."""
        self.module.eval()
        with self._lib.no_grad(), self._cast():
            logits = self.module(inputs).to(self._dtype)
            loss = self._lib.nn.functional.cross_entropy(logits.double(), labels, reduction="sum")
        return float(loss), int((logits.argmax(dim=1) == labels).sum())

    def logits(self, inputs: Any) -> F64:
        """Logits (m, classes) of a batch, as an evaluation computes them; float64."""
        self.module.eval()
        with self.guarded(), self._lib.no_grad(), self._cast():
            parts = [self.module(part).double().cpu() for part in inputs.split(EVALUATION_ROWS)]
        return np.asarray(self._lib.cat(parts).numpy())

    def calibrate(self, inputs: Any) -> None:
        """Make BatchNorm's running statistics those of ``inputs``."""
        norms = [m for m in self.module.modules() if isinstance(m, self._lib.nn.modules.batchnorm._BatchNorm)]
        before = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain mean over the passes
        self.module.train()
        with self._lib.no_grad(), self._cast():
            for part in inputs.split(EVALUATION_ROWS):
                self.module(part)
        for norm, momentum in zip(norms, before, strict=True):
            norm.momentum = momentum

    def guarded(self) -> Any:
        """Out of memory is one clear message."""
        return Guard(self._lib)

    def _cast(self) -> Any:
        kind = self.device.type
        return self._lib.autocast(kind, dtype=self._lib.bfloat16, enabled=self._precision == "bfloat16")


@lru_cache(maxsize=2)
def network(model: Model, shape: Shape, classes: int, device: str, purpose: str = "gradient") -> Network:
    """One for each purpose, shared by the oracles of a process: n agents of a simulator hold one module."""
    return fresh(model, shape, classes, device)


def fresh(model: Model, shape: Shape, classes: int, device: str = "cpu") -> Network:
    """One with its initial values.  ConfigError: see ``build_module``; there is no such device."""
    seed = 0 if model.init_seed is None else model.init_seed
    net = Network(build_module(model.name, shape, classes, norm=model.norm, seed=seed), model, device)
    if ":" in model.name:
        net.probe(model.name, shape, classes)
    return net


def find_device(lib: Any, name: str) -> Any:
    """torch's device ``name``: cpu | cuda.  ConfigError: this machine has none."""
    if name == "cuda" and not lib.cuda.is_available():
        raise ConfigError.one("command line", "--device", "cuda: this machine has no usable CUDA device")
    return lib.device(name)


def _weighted(rows: Any, weights: Any) -> Any:
    """sum_j weights_j rows_j in float64; rows of weight 0 may hold NaN."""
    dropped = weights == 0
    clean = rows.masked_fill(dropped.reshape(*rows.shape[:-1], 1), 0.0) if bool(dropped.any()) else rows
    return weights @ clean.double()
