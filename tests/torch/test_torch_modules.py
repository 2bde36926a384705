"""Modules of the operator's own: what is handled, and what is refused before anything is released."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from dpgt_node.config import model
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data import datasets
from dpgt_node.learning.nets import torch_network
from dpgt_node.learning.oracle import build_oracle
from tests.learning.cases import run
from tests.learning.data.files import write_idx

pytestmark = pytest.mark.torch

PLUG_IN = """
import torch
from torch import nn

class Base(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.out = nn.Linear(784, classes)
        self.register_buffer("scale", torch.tensor(0.5))
        self.register_buffer("count", torch.tensor(0))
    def forward(self, x): return self.out(x.flatten(1)) * self.scale

def buffers(shape, classes): return Base(classes)

class Counts(Base):
    def forward(self, x):
        self.count += 1
        return super().forward(x)
def counts(shape, classes): return Counts(classes)

class Random(Base):
    def forward(self, x): return super().forward(x + torch.rand_like(x))
def random(shape, classes): return Random(classes)
class Dropped(Base):
    def forward(self, x): return nn.functional.dropout(super().forward(x), 0.5, self.training)
def functional_dropout(shape, classes): return Dropped(classes)

class Broken(Base):
    def forward(self, x): return super().forward(x) / 0
def broken(shape, classes): return Broken(classes)
def few(shape, classes): return nn.Sequential(nn.Flatten(), nn.Linear(784, classes - 1))
def pair(shape, classes):
    class Pair(Base):
        def forward(self, x): return super().forward(x), x
    return Pair(classes)
def fails(shape, classes): return nn.Linear(7, classes)
def lazy(shape, classes): return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))
def spectral(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.utils.parametrizations.spectral_norm(nn.Linear(784, classes)))
class Branch(Base):
    def forward(self, x):
        y = super().forward(x)
        return y if float(y.detach().sum()) > 0 else -y
def branch(shape, classes): return Branch(classes)
def batch_norm(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.BatchNorm1d(8), nn.Linear(8, classes))
def complex_numbers(shape, classes):
    class Complex(Base):
        def __init__(self, classes):
            super().__init__(classes)
            self.phase = nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    return Complex(classes)
def halves_the_input(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, classes)).to(torch.bfloat16)
"""
CLIPS = {"none": model.Privacy(), "l2": model.Privacy(clip_l2=0.05)}


@pytest.fixture
def plug(tmp_path, monkeypatch):
    write_idx(tmp_path / "MNIST/raw", train=60)
    datasets._images.cache_clear()
    (tmp_path / "my_modules.py").write_text(PLUG_IN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_modules", raising=False)
    torch_network.network.cache_clear()
    yield tmp_path
    torch_network.network.cache_clear()


def oracle(plug, name: str, clip: str = "none", **changes):
    made = run("mnist", samples=6, softmax=model.Model(f"my_modules:{name}", **changes), privacy=CLIPS[clip])
    return build_oracle(made, 0, data_root=plug)


@pytest.mark.parametrize("clip", CLIPS)
def test_buffers_of_no_dimension_are_no_parameters_and_stay(plug, clip):
    made = oracle(plug, "buffers", clip)
    assert made.dimension == 7850
    g = made.gradient(made.initial(), np.arange(6))
    made.evaluate(made.initial())
    assert np.array_equal(made.gradient(made.initial(), np.arange(6)), g)


def test_batch_norm_of_one_s_own_is_known(plug):
    assert oracle(plug, "batch_norm").batch_norm
    with pytest.raises(ConfigError, match=r"model.name.*build it with GroupNorm"):
        oracle(plug, "batch_norm", "l2")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("counts", "changes its buffer count when it computes"),
        ("random", "computes something else at a second look"),
        ("functional_dropout", "computes something else at a second look"),
        ("broken", "gives logits that are not finite, at its own initial values"),
        ("few", r"gives \(3, 9\) for 3 samples, not \(3, 10\)"),
        ("pair", r"gives tuple for 3 samples, not \(3, 10\)"),
        ("fails", r"fails on samples of shape \(1, 28, 28\): RuntimeError: mat1 and mat2"),
        ("lazy", "parameter 1.weight has no shape yet"),
        ("spectral", "second look|changes its buffer"),
        ("complex_numbers", "parameter phase is torch.complex64; parameters are float32"),
        ("halves_the_input", "is torch.bfloat16; parameters are float32"),
    ],
)
def test_modules_that_are_refused(plug, name, message):
    with pytest.raises(ConfigError, match=rf"run file: model.name: 'my_modules:{name}'.*({message})"):
        oracle(plug, name)


def test_a_module_that_branches_on_its_values_has_no_gradient_of_one_sample_to_clip(plug):
    oracle(plug, "branch")
    with pytest.raises(ConfigError, match="'my_modules:branch' has no gradient of one sample, which a clip needs"):
        oracle(plug, "branch", "l2")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes. Error code 12"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
    ],
    ids=["python", "cuda", "linux", "windows"],
)
def test_out_of_memory_is_one_message(plug, monkeypatch, error):
    made = oracle(plug, "buffers", "l2")

    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr(made.net, "add_clipped", full)
    with pytest.raises(ConfigError) as caught:
        made.gradient(made.initial(), np.arange(6))
    (line,) = str(caught.value).splitlines()
    assert line == "run file: model.memory_mb: the gradient does not fit into memory: lower model.memory_mb, or m_K"


def test_other_errors_of_torch_are_not_called_so(plug, monkeypatch):
    made = oracle(plug, "buffers", "l2")
    monkeypatch.setattr(made.net, "add_clipped", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        made.gradient(made.initial(), np.arange(6))
