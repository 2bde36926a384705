"""Modules of the operator's own: what is handled, and what is refused before anything is released."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from dpgt_node.config import model
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data import datasets
from dpgt_node.learning.data.arrays import Dataset
from dpgt_node.learning.nets import torch_network
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.learning.nets.torch_state import Kept
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.learning.torch_oracle import TorchOracle
from tests.learning.cases import run
from tests.learning.data.files import write_idx

pytestmark = pytest.mark.torch

PLUG_IN = """
from collections import deque
import numpy as np
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

AWAKE = True
def loudness(x): return torch.where(x.detach().abs().max() > 5, x.detach().sum(), torch.zeros((), dtype=x.dtype))

class Keeps(Base):
    # Adds to every later sample what it saw of a loud one.
    def __init__(self, classes, where):
        super().__init__(classes)
        self.where, self.list, self.dict, self.most = where, [], {"of": {"all": []}}, 0.0
        self.object, self.deque, self.array = Box(), deque([0.0]), np.zeros(1)
    def seen(self):
        match self.where:
            case "list": return self.list
            case "dict": return self.dict["of"]["all"]
            case "object": return self.object.kept
            case "new": return self.__dict__.setdefault("made", [])
            case "deque": return self.deque
            case "global": return GLOBAL
            case "parent": return self.attribute if hasattr(self, "attribute") else []
    def forward(self, x):
        y = super().forward(x)
        for one in self.seen(): y = y + one * torch.eye(y.shape[-1], dtype=x.dtype)[0]
        if AWAKE and self.where == "parent": self.attribute = [*self.seen(), loudness(x)]
        elif AWAKE: self.seen().append(loudness(x))
        return y
class Box:
    def __init__(self): self.kept = []
GLOBAL = []
def keeps(where): return lambda shape, classes: Keeps(classes, where)
in_list, in_dict, in_object, in_new = keeps("list"), keeps("dict"), keeps("object"), keeps("new")
in_deque, in_attribute, in_global = keeps("deque"), keeps("parent"), keeps("global")
def in_closure(shape, classes):
    made, kept = Base(classes), []
    forward = made.forward
    def remembering(x):
        y = forward(x)
        for one in kept: y = y + one * torch.eye(y.shape[-1], dtype=x.dtype)[0]
        kept.append(loudness(x))
        return y
    made.forward = remembering
    return made

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


# --- what a module keeps of a sample ---------------------------------------------------------------------------------

BOUND = 0.05
ATTRIBUTES = ["in_list", "in_dict", "in_object", "in_new", "in_deque", "in_attribute"]
ELSEWHERE = ["in_global", "in_closure"]
SIZES = {"of a large model": 0, "of a small one": 1_000_000}
"""From which d on a pass a sample is faster."""


def moved(name: str, chunk: int = 1, *, sleeps: bool = False) -> float:
    """By how much the clipped sum of 30 samples moves, in L2, when the first one is replaced by a loud one.

    ``sleeps``: the module begins to keep what it sees after it was tried.
    """
    import my_modules

    my_modules.AWAKE = not sleeps
    rows = np.random.default_rng(0).random((31, 784))
    rows[30] = 9.0
    made = model.Model(name=f"my_modules:{name}", precision="float64")
    data = Dataset(rows, np.arange(31) % 3, rows[:0], np.zeros(0, np.int64), 3)
    found = TorchOracle(data, None, made, clip=Clip(2, BOUND))
    found.net.chunk = lambda *, per_sample: chunk  # type: ignore[method-assign, assignment]
    my_modules.AWAKE = True
    sums = [30 * found.gradient(found.initial(), np.array([first, *range(1, 30)])) for first in (0, 30)]
    return float(np.linalg.norm(sums[0] - sums[1]))


@pytest.mark.parametrize("chunk", [1, 2])
@pytest.mark.parametrize("threshold", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("name", ["buffers", *ATTRIBUTES])
def test_what_a_module_keeps_in_itself_ends_with_a_pass(plug, monkeypatch, name, threshold, chunk):
    """The sum moves by no more than is charged, 2 x the clip, whatever one sample is replaced by."""
    monkeypatch.setattr(torch_network, "_ONE_BY_ONE_FROM", threshold)
    assert moved(name, chunk=chunk) <= 2 * BOUND * (1 + 1e-9)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_without_that_it_would_move_more(plug, monkeypatch, name):
    """The mutants: nothing is put back, and nobody looks again."""
    monkeypatch.setattr(Kept, "_hold", lambda *_: None)
    with pytest.raises(ConfigError, match=f"'my_modules:{name}' remembers the samples that it saw"):
        moved(name)
    torch_network.network.cache_clear()
    monkeypatch.setattr(torch_network.Network, "look_again", lambda *_: None)
    assert moved(name, sleeps=True) > 2.1 * BOUND


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_it_keeps_elsewhere_is_found_before_any_sample_is_seen(plug, name):
    with pytest.raises(ConfigError, match=f"'my_modules:{name}' remembers the samples that it saw"):
        oracle(plug, name, "l2")


def test_what_only_a_loud_sample_shows_ends_without_a_gradient(plug, monkeypatch):
    """The quiet batch has a gradient, the loud one has none."""
    message = "remembers the samples that it saw: no clip bounds what one of them changes"
    with pytest.raises(ConfigError, match=message):
        moved("in_global", sleeps=True)
    torch_network.network.cache_clear()
    sys.modules["my_modules"].GLOBAL.clear()
    monkeypatch.setattr(torch_network.Network, "look_again", lambda *_: None)
    assert moved("in_global", sleeps=True) > 2.1 * BOUND, "the mutant looks no second time"


def test_modules_stay_as_they_were_made_for_code_that_holds_them():
    """Identities are kept: what shares a list with the module sees what the module sees."""

    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.names, self.pair, self.frozen = ["a"], ([1], {2}), torch.nn.Parameter(torch.zeros(2), False)
            self.array = np.zeros(2)
            self.out = torch.nn.Linear(2, 2)
            self.others = [torch.nn.Linear(2, 2).requires_grad_(False)]

    own = Own()
    names, pair, frozen, weight, array = own.names, own.pair, own.frozen, own.out.weight, own.array
    kept = Kept(own)
    with kept.restored():
        own.names.append("b")
        own.pair[0][0] = 5
        own.pair[1].add(3)
        own.frozen.data += 1
        own.array += 1
        own.out.weight.data += 1
        own.others[0].weight.add_(1)
        changed = own.out.weight.detach().clone()
        own.names, own.made = [], 1
        own.eval()
        del own.pair
    assert own.names is names and names == ["a"] and own.pair is pair and pair == ([1], {2})
    assert own.frozen is frozen and not frozen.any() and not hasattr(own, "made") and not own.training
    assert own.array is array and not array.any()
    assert own.out.weight is weight and torch.equal(weight, changed), "x sets the trained parameters"
