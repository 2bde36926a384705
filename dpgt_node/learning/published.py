"""A model of released parameters as files that others load, and what it says on whoever's data.

``model.safetensors`` for every model; ``state_dict.pt`` besides for torch models, which torch reads with
``weights_only=True``.  A softmax model has the names of a ``torch.nn.Linear`` (classes x features): ``weight`` (W) and
``bias`` (the run file's bias already multiplied in; zeros where there is none), float64.  Both are divided by the run
file's temperature, a constant: the model stays a function of what was released, and costs nothing.  Of a run without
samples the file holds ``x`` (d,) alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from dpgt_node.config.data import CLASSES, resolved_dataset, stated_classes
from dpgt_node.config.model import RunConfig
from dpgt_node.config.vocabulary import PLUG_IN, TOYS
from dpgt_node.documents import parse_json
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data import features
from dpgt_node.learning.data.arrays import Dataset, Reals
from dpgt_node.learning.data.shards import data_is_here, own_file, run_dataset
from dpgt_node.learning.nets.torch_models import guessed_shape, torch
from dpgt_node.learning.nets.torch_network import Network, fresh
from dpgt_node.learning.temperature import best_temperature, chances, losses
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

MODEL_FILE, STATE_DICT_FILE = "model.safetensors", "state_dict.pt"
IMAGES = {"digits": (1, 8, 8), "mnist": (1, 28, 28), "fashion-mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
"""Of the data sets whose pictures have one shape for everybody."""
_ROWS = 1024
_FITTED = 8 * _ROWS
_TEMPERATURE = (
    "The weights are x divided by {:g}, the temperature in the run file, so that chances are not too sure. `dpgt plan` "
    "takes it from stand-in data, and then it costs nothing. No epsilon covers one that was chosen on private rows."
)


@dataclass(frozen=True, slots=True)
class Frame:
    """What a model needs to know of data.  ``shape``: (channels, height, width) of a picture, or (numbers,).

    ``names``: of the classes, where the data name them; else empty.
    """

    shape: tuple[int, ...]
    classes: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Score:
    """``loss``: mean cross-entropy in nats; ``accuracy`` in [0, 1]; ``samples`` that were looked at.

    ``calibrated``: samples of the same data whose statistics BatchNorm was given, 0 for a model without.
    ``classes`` of the model.  ``highest``: mean of every sample's highest chance, in [0, 1].  ``temperature``: logits
    divided by it have the least loss on these samples (the first 8,192), ``loss_then``.
    """

    loss: float
    accuracy: float
    samples: int
    calibrated: int
    classes: int
    highest: float
    temperature: float
    loss_then: float


def frame_of(run: RunConfig, data_root: Path | None, data_path: Path | None = None, size: int | None = None) -> Frame:
    """The frame of ``run``'s data; of the named picture sets they need not be here.  ConfigError: they do, and are not.
    Where the objective has no samples, the frame is empty.

    ``data_path``: an agent's own file.  ``size``: d; it gives the frame of a softmax model whose classes the run
    file states, wherever the data are.
    """
    if run.data.dataset in TOYS:
        return Frame((), 0)
    if run.data.dataset in CLASSES:
        return Frame(IMAGES[run.data.dataset], CLASSES[run.data.dataset])
    if data_path is None and size is not None and not data_is_here(run, data_root):
        found = _stated_frame(run, size)
        if found is not None:
            return found
        message = "the run's data are not here: give an agent's own file, for their shape"
        raise ConfigError.one("command line", "--data", message)
    data = run_dataset(run, data_root) if data_path is None else own_file(run, data_path)
    return frame_of_data(data)


def _stated_frame(run: RunConfig, size: int) -> Frame | None:
    """As the run file and the ``size`` of its softmax model give it; None where they do not."""
    (classes, names), kind = stated_classes(run), run.data.features
    if run.model.name != "softmax" or classes is None or size % classes:
        return None
    numbers = size // classes - bool(run.model.bias) - features.width(run.data.normalise, 0)
    if kind != "raw":
        if ":" in kind or features.size(kind, features.SIDE**2, "") != numbers:
            return None
        numbers = features.SIDE**2
    return Frame((numbers,), classes, names) if numbers > 0 else None


def frame_of_data(data: Dataset) -> Frame:
    return Frame(data.image or (int(data.x_train.shape[1]),), data.classes, data.names)


def write_model(folder: Path, run: RunConfig, frame: Frame, x: F64, metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Write the files of parameters ``x`` (d,) into ``folder``; their names.  ``metadata`` and the frame go into the
    safetensors.

    ConfigError: ``x`` is not of this model.
    """
    about = {**metadata, "shape": "x".join(map(str, frame.shape)), "classes": str(frame.classes)}
    if frame.names:
        about["names"] = json.dumps(frame.names)
    if run.data.dataset in TOYS or run.model.name == "softmax":
        from safetensors.numpy import save_file

        if run.data.dataset in TOYS:
            save_file({"x": np.ascontiguousarray(x)}, folder / MODEL_FILE, metadata=dict(metadata))
            return (MODEL_FILE,)
        save_file(_softmax_tensors(run, frame, x), folder / MODEL_FILE, metadata=about)
        return (MODEL_FILE,)
    from safetensors.torch import save_model

    net = _network(run, frame)
    _check_size(x, net.dimension, run)
    net.load(x)
    module = net.module.eval()
    save_model(module, str(folder / MODEL_FILE), metadata=about)
    torch().save(module.state_dict(), folder / STATE_DICT_FILE)
    return MODEL_FILE, STATE_DICT_FILE


def notes(run: RunConfig, frame: Frame) -> tuple[str, ...]:
    """What a reader of the files must know of the model."""
    if run.data.dataset in TOYS:
        return (f"The run minimised a formula ({run.data.dataset}), so there is no model: the file holds x alone.",)
    if run.model.name == "softmax":
        T = run.model.temperature
        return () if T is None else (_TEMPERATURE.format(T),)
    net = _network(run, frame)
    found = []
    if net.batch_norm:
        found.append(
            "The model has BatchNorm, whose statistics depend on private data: they are not in the files, which hold "
            "their initial values. Give it statistics of data of your own before it judges anything (`dpgt evaluate` "
            "takes them from the data that it judges)."
        )
    if frozen := [name for name, value in net.module.named_parameters() if not value.requires_grad]:
        found.append(f"Frozen parameters are as the model's own code made them, not trained here: {', '.join(frozen)}.")
    return tuple(found)


def judge(folder: Path, run: RunConfig, data: Dataset, part: str) -> Score:
    """The model in ``folder`` on ``part`` (test | train) of ``data``.  ConfigError: it does not fit, or no samples."""
    y = data.y_test if part == "test" else data.y_train
    if not len(y):
        message = f"has no {part} samples: give data that have some, or --part {'train' if part == 'test' else 'test'}"
        raise ConfigError.one("command line", "--data", message)
    real = data.real_test if part == "test" else data.real_train

    def inputs(rows: slice | I64) -> F64:
        return features.transform(real(rows), run.data.features, run.data.normalise)

    given = frame_of_data(data)
    logits, held, calibrated = _model(folder, run, given, inputs, len(y))
    loss, hits, highest, kept, y = 0.0, 0, 0.0, [], _labels(given, held)[y] if data.names else y
    for start in range(0, len(y), _ROWS):
        rows = slice(start, start + _ROWS)
        found = logits(inputs(rows))
        if found.shape[1] <= int(y[rows].max()):
            message = f"has label {int(y.max())}, the model {found.shape[1]} classes"
            raise ConfigError.one("command line", "--data", message)
        hits += int(np.count_nonzero(found.argmax(axis=1) == y[rows]))
        loss += float(losses(found, y[rows]).sum())
        highest += float(chances(found).max(axis=1).sum())
        if start < _FITTED:
            kept.append(found)
    first = np.concatenate(kept)
    T = best_temperature([first], y[: len(first)])
    loss_then = float(losses(first / T, y[: len(first)]).mean())
    return Score(loss / len(y), hits / len(y), len(y), calibrated, first.shape[1], highest / len(y), T, loss_then)


class Rows(Protocol):
    """Samples, or what makes them when they are asked for: (N, p)."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: slice) -> Reals: ...


def predicted(
    folder: Path, run: RunConfig, samples: Rows, temperature: float = 1.0, divisor: float = 1.0
) -> tuple[I64, F64, tuple[str, ...]]:
    """(labels int64 (N,), probabilities float64 (N, classes), names of the classes) of the model in ``folder``.

    ``samples`` (N, p), divided by ``divisor``: real numbers as ``run``'s data set holds them, before its features.  The
    names are the numbers where the model has no others.  ``temperature``: logits are divided by it once more.
    ConfigError: they do not fit the model.
    """

    def inputs(rows: slice | I64) -> F64:
        assert isinstance(rows, slice)
        return features.transform(samples[rows], run.data.features, run.data.normalise, divisor)

    count, size = int(samples.shape[0]), int(samples.shape[1])
    features.size(run.data.features, size, "--data")
    logits, held, _ = _model(folder, run, Frame((size,), 0), inputs, count)
    parts = []
    for start in range(0, count, _ROWS):
        parts.append(logits(inputs(slice(start, start + _ROWS))))
    found: F64 = np.concatenate(parts)
    names = held.names or tuple(map(str, range(found.shape[1])))
    return found.argmax(axis=1).astype(np.int64), chances(found / temperature), names


Logits = Callable[[F64], F64]


def _model(
    folder: Path, run: RunConfig, given: Frame, inputs: Callable[[slice | I64], F64], count: int
) -> tuple[Logits, Frame, int]:
    """The model in ``folder``, its frame, and how many of ``count`` samples gave BatchNorm its statistics.

    ``given``: the frame of the data that it is to look at.  ConfigError: they do not fit, or it cannot be read.
    """
    from safetensors import SafetensorError

    try:
        held = _held_frame(folder) or given
        if run.model.name == "softmax":
            return _softmax_logits(folder, run), held, 0
        _check_shape(given, held)
        logits, calibrated = _torch_logits(folder, run, held, inputs, count)
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        message = f"cannot be read as the model of its run.toml: {str(error).splitlines()[0]}"
        raise ConfigError.one(str(folder / MODEL_FILE), "", message) from error
    return logits, held, calibrated


def _softmax_tensors(run: RunConfig, frame: Frame, x: F64) -> dict[str, F64]:
    numbers, classes = _feature_size(run, frame), frame.classes
    bias = classes if run.model.bias else 0
    _check_size(x, classes * numbers + bias, run)
    weights = np.ascontiguousarray(x[: classes * numbers].reshape(classes, numbers), dtype=np.float64)
    b = np.asarray(run.model.bias * x[classes * numbers :], dtype=np.float64) if bias else np.zeros(classes)
    T = 1.0 if run.model.temperature is None else run.model.temperature
    return {"weight": weights / T, "bias": b / T}


def _softmax_logits(folder: Path, run: RunConfig) -> Logits:
    from safetensors.numpy import load_file

    held = load_file(folder / MODEL_FILE)
    weight, bias = held["weight"], held["bias"]

    def logits(phi: F64) -> F64:
        if phi.shape[1] != weight.shape[1]:
            message = f"has {phi.shape[1]} numbers a sample, the model takes {weight.shape[1]}"
            raise ConfigError.one("command line", "--data", message)
        return np.asarray(phi @ weight.T + bias)

    return logits


def _torch_logits(
    folder: Path, run: RunConfig, frame: Frame, inputs: Callable[[slice | I64], F64], count: int
) -> tuple[Logits, int]:
    net = _network(run, frame)
    from safetensors.torch import load_model

    load_model(net.module, str(folder / MODEL_FILE))
    shape, calibrated = _model_shape(run, frame), 0
    if net.batch_norm:
        calibrated = min(count, _ROWS)
        net.calibrate(net.inputs(inputs(slice(0, calibrated)), 1.0, shape))
    return (lambda phi: net.logits(net.inputs(phi, 1.0, shape))), calibrated


def _held_frame(folder: Path) -> Frame | None:
    """The frame that the model was made for; None where its file does not say."""
    from safetensors import safe_open

    with safe_open(str(folder / MODEL_FILE), "numpy") as file:
        about = file.metadata() or {}
    if "shape" not in about or "classes" not in about:
        return None
    shape, names = tuple(int(side) for side in about["shape"].split("x")), parse_json(about.get("names", "[]"))
    return Frame(shape, int(about["classes"]), tuple(map(str, names)))


def held_frame(folder: Path) -> Frame | None:
    """The frame that the model in ``folder`` was made for; None where its file does not say, or cannot be read."""
    from safetensors import SafetensorError

    try:
        return _held_frame(folder)
    except (OSError, ValueError, SafetensorError):
        return None


def takes_pixels(run: RunConfig) -> bool | None:
    """Whether a model of ``run`` takes pixels from 0 to 1.  None: its data were arrays, which nothing says that of."""
    if run.data.dataset in IMAGES or run.data.dataset.startswith("folder:"):
        return True
    return None if run.data.dataset.startswith("npz:") or PLUG_IN.fullmatch(run.data.dataset) else False


def _check_shape(given: Frame, held: Frame) -> None:
    pictures = len(held.shape) == len(given.shape) == 3
    if held.shape != given.shape and (pictures or math.prod(held.shape) != math.prod(given.shape)):
        message = f"has {_said(given)}, the model takes {_said(held)}"
        raise ConfigError.one("command line", "--data", message)


def _labels(given: Frame, held: Frame) -> I64:
    """The model's label of each class of data: that of the same name, its number where the model's have no names."""
    known = held.names or tuple(map(str, range(held.classes)))
    if set(given.names) <= set(known):
        return np.array([known.index(name) for name in given.names], dtype=np.int64)
    if not held.names and len(given.names) == held.classes:
        return np.arange(held.classes)
    strange = next(name for name in given.names if name not in known)
    message = f"has a class {strange!r}, the model's {held.classes} classes are {', '.join(known[:10])}"
    raise ConfigError.one("command line", "--data", message + (", ..." if len(known) > 10 else ""))


def _said(frame: Frame) -> str:
    return (
        "a picture of " + " x ".join(map(str, frame.shape))
        if len(frame.shape) == 3
        else f"{frame.shape[0]} numbers a sample"
    )


def _network(run: RunConfig, frame: Frame) -> Network:
    """A module of its own: what is loaded into it reaches no run."""
    return fresh(run.model, _model_shape(run, frame), frame.classes)


def _model_shape(run: RunConfig, frame: Frame) -> tuple[int, ...]:
    if run.data.features == "raw" and run.data.normalise == "none" and len(frame.shape) == 3:
        return frame.shape
    return guessed_shape(run.model.name, _feature_size(run, frame))


def _feature_size(run: RunConfig, frame: Frame) -> int:
    p = features.size(run.data.features, int(np.prod(frame.shape)), f"'{resolved_dataset(run)}'")
    return features.width(run.data.normalise, p)


def _check_size(x: F64, dimension: int, run: RunConfig) -> None:
    if x.size != dimension:
        message = f"{run.model.name!r} has {dimension} parameters with these data, the released vector {x.size}"
        raise ConfigError.one("run file", "model.name", message)
