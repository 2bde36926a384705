"""Torch modules by the name that a run file gives them, and what a module must be to take part.

torch is imported when a module is built, so that nobody else pays for it.
"""

from __future__ import annotations

import importlib
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpgt_node.errors import ConfigError
from dpgt_node.learning.extras import needs
from dpgt_node.learning.plugins import called
from dpgt_node.types import F64

Module = Any
Shape = tuple[int, ...]
"""(channels, height, width) of a picture, or (features,)."""

_GROUPS = 32
_MLP_HIDDEN = 128


def torch() -> Any:
    """The module, with one thread: several daemons share a machine's cores, and the simulator must have their bits.

    ConfigError: it is not installed.
    """
    try:
        module = importlib.import_module("torch")
    except ImportError as error:
        raise ConfigError.one("run file", "model.name", needs("torch")) from error
    if module.get_num_threads() != 1:
        module.set_num_threads(1)
    return module


def build_module(name: str, shape: Shape, classes: int, *, norm: str, seed: int) -> Module:
    """The module with its initial values on the CPU, drawn from ``seed`` alone, in float32.

    ``mlp``: one hidden layer of 128 ReLUs.  ``lenet``: LeNet-5 with ReLUs and max-pooling (pictures of 28 or 32
    pixels).  ``cnn``: two convolutions of 32 and 64 5x5 kernels and 512 hidden units (McMahan et al. 2017).
    ``resnet18``: torchvision's, its first convolution made for the picture's channels; ``norm`` group: GroupNorm(32).
    ``module:function``: called with (shape, classes), returns a ``torch.nn.Module`` that maps (m, *shape) to (m,
    classes).  Raises ConfigError: it does not fit the data.
    """
    lib = torch()
    with lib.random.fork_rng(devices=[]):
        lib.manual_seed(seed)
        if ":" in name:
            module = called(name, "model.name", shape, classes)
            if not isinstance(module, lib.nn.Module):
                message = f"{name!r} must return a torch.nn.Module, not {type(module).__name__}"
                raise ConfigError.one("run file", "model.name", message)
        else:
            module = _BUILDERS[name](lib, shape, classes, norm)
    check_module(name, module)
    return module


def guessed_shape(name: str, p: int) -> Shape:
    """Of samples whose file says nothing: a square picture in grey or RGB for the models that need one, else flat."""
    for channels in (1, 3):
        side = math.isqrt(p // channels)
        if name in ("lenet", "cnn", "resnet18") and channels * side * side == p:
            return channels, side, side
    return (p,)


def check_module(name: str, module: Module) -> None:
    """Refuse what this oracle cannot run or could not replay.  Raises ConfigError with every problem."""
    lib = torch()
    for kind, part in ((type(m).__name__, m) for m in module.modules()):
        if isinstance(part, lib.nn.modules.dropout._DropoutNd) and part.p > 0:
            message = f"{name!r} has {kind}({part.p:g}): its randomness cannot be replayed; set p = 0 or take it out"
            raise ConfigError.one("run file", "model.name", message)
    if lazy := [key for key, value in module.named_parameters() if lib.nn.parameter.is_lazy(value)]:
        message = f"{name!r}: parameter {lazy[0]} has no shape yet (a Lazy layer): give the layer its input size"
        raise ConfigError.one("run file", "model.name", message)
    trained = [(key, value) for key, value in module.named_parameters() if value.requires_grad]
    if not trained:
        raise ConfigError.one("run file", "model.name", f"{name!r} has no parameter to train")
    for key, value in trained:
        if not value.is_floating_point() or value.dtype in (lib.float16, lib.bfloat16):
            message = f"{name!r}: parameter {key} is {value.dtype}; parameters are float32 (model.precision casts)"
            raise ConfigError.one("run file", "model.name", message)


def has_batch_norm(module: Module) -> bool:
    """Whether samples of one batch see each other, so that a sample has no gradient of its own."""
    return any(map(is_batch_norm, module.modules()))


def is_batch_norm(part: Module) -> bool:
    """Whether ``part`` itself is a BatchNorm layer, whose running statistics this oracle handles."""
    return isinstance(part, torch().nn.modules.batchnorm._BatchNorm)


class Guard:
    """Out of memory, as torch says it in many ways, is a ConfigError in one."""

    def __init__(self, lib: Any) -> None:
        self._errors = (lib.OutOfMemoryError, MemoryError)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        words = ("not enough memory", "can't allocate memory")  # of torch's allocator, by system
        allocation = isinstance(error, RuntimeError) and any(said in str(error) for said in words)
        if error is not None and (isinstance(error, self._errors) or allocation):
            message = "the gradient does not fit into memory: lower model.memory_mb, or m_K"
            raise ConfigError.one("run file", "model.memory_mb", message) from error


def _mlp(lib: Any, shape: Shape, classes: int, norm: str) -> Module:
    inputs = 1
    for side in shape:
        inputs *= side
    nn = lib.nn
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, _MLP_HIDDEN), nn.ReLU(), nn.Linear(_MLP_HIDDEN, classes))


def _lenet(lib: Any, shape: Shape, classes: int, norm: str) -> Module:
    channels, height, width = _picture("lenet", shape, at_least=12)
    nn = lib.nn
    h, w = ((side // 2 - 4) // 2 for side in (height, width))
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * h * w, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def _cnn(lib: Any, shape: Shape, classes: int, norm: str) -> Module:
    channels, height, width = _picture("cnn", shape, at_least=4)
    nn = lib.nn
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 512),
        nn.ReLU(),
        nn.Linear(512, classes),
    )


def _resnet18(lib: Any, shape: Shape, classes: int, norm: str) -> Module:
    channels, _, _ = _picture("resnet18", shape, at_least=8)
    try:
        models = importlib.import_module("torchvision.models")
    except ImportError as error:
        raise ConfigError.one("run file", "model.name", f"'resnet18' {needs('torchvision')}") from error
    nn = lib.nn
    layer = None if norm == "batch" else (lambda width: nn.GroupNorm(min(_GROUPS, width), width))
    module = models.resnet18(num_classes=classes, norm_layer=layer)
    if channels != 3:
        module.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        nn.init.kaiming_normal_(module.conv1.weight, mode="fan_out", nonlinearity="relu")
    return module


def _picture(name: str, shape: Shape, *, at_least: int) -> tuple[int, int, int]:
    if len(shape) != 3:
        message = f"{name!r} needs pictures (features = raw, normalise = none); a sample here is {shape[0]} numbers"
        raise ConfigError.one("run file", "model.name", message)
    channels, height, width = shape
    if channels not in (1, 3):
        raise ConfigError.one("run file", "model.name", f"{name!r} takes 1 or 3 channels, the data have {channels}")
    if min(height, width) < at_least:
        message = f"{name!r} needs pictures of at least {at_least} x {at_least} pixels, not {height} x {width}"
        raise ConfigError.one("run file", "model.name", message)
    return channels, height, width


_BUILDERS: dict[str, Callable[[Any, Shape, int, str], Module]] = {
    "mlp": _mlp,
    "lenet": _lenet,
    "cnn": _cnn,
    "resnet18": _resnet18,
}


class Start:
    """Initial values of ``parameters`` as one vector.  What stays of them is no wider than they are."""

    def __init__(self, parameters: Sequence[Any]) -> None:
        self._values = np.concatenate([value.detach().reshape(-1).cpu().numpy() for value in parameters])
        self._held: Callable[[], F64 | None] = lambda: None

    def __call__(self) -> F64:
        """Float64 (d,), read-only: one array for all who hold it."""
        start = self._held()
        if start is None:
            start = self._values.astype(np.float64)
            start.setflags(write=False)
            self._held = weakref.ref(start)
        return start
