"""Torch models as oracles, against torch itself, sample by sample (make torch; needs the extra [torch])."""

from __future__ import annotations

import json
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from dpgt_node import cli
from dpgt_node.config import model
from dpgt_node.errors import ConfigError
from dpgt_node.learning import torch_oracle
from dpgt_node.learning.data import datasets
from dpgt_node.learning.oracle import build_oracle
from tests.learning.cases import run, stream
from tests.learning.data.files import cifar_batches, write_cifar_binary, write_cifar_python, write_idx

pytestmark = pytest.mark.torch

CLIPS = {"none": model.Privacy(), "l1": model.Privacy(clip_l1=0.8), "l2": model.Privacy(clip_l2=0.05)}


@pytest.fixture
def mnist(tmp_path):
    write_idx(tmp_path / "MNIST/raw", train=60)
    datasets._images.cache_clear()
    return tmp_path


def config(name: str, clip: str = "none", **changes):
    made = run("mnist", samples=6, softmax=model.Model(name, **changes), privacy=CLIPS[clip])
    return made


def naive(oracle, batch, clip: model.Privacy, name: str, norm: str, seed: int = 0) -> np.ndarray:
    """Plain autograd on the module, one sample at a time, everything in numpy afterwards."""
    from dpgt_node.learning.nets.torch_models import build_module

    net = oracle._network
    module = build_module(name, (1, 28, 28), 10, norm=norm, seed=seed).to(net._dtype).train()
    total = np.zeros(oracle.dimension)
    for row in batch:
        x = torch.from_numpy(oracle._x[[row]].astype(float) / 255).to(net._dtype).reshape(1, 1, 28, 28)
        loss = nn.functional.cross_entropy(module(x), torch.tensor([oracle._y[row]]))
        grads = torch.autograd.grad(loss, list(module.parameters()))
        g = np.concatenate([part.double().numpy().ravel() for part in grads])
        if clip.clip_l1 is not None:
            g *= min(1.0, clip.clip_l1 * (1 - 2**-22) / np.abs(g).sum())
        if clip.clip_l2 is not None:
            g *= min(1.0, clip.clip_l2 * (1 - 2**-22) / np.linalg.norm(g))
        total += g
    return total / len(batch)


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("name", ["mlp", "lenet", "cnn"])
@pytest.mark.parametrize("memory_mb", [1, 512])
def test_the_gradient_is_the_mean_of_clipped_single_ones(mnist, name, clip, memory_mb):
    oracle = build_oracle(config(name, clip, precision="float64", memory_mb=memory_mb), 1, data_root=mnist)
    batch = oracle.draw_batch(6, stream())
    found, expected = oracle.gradient(oracle.initial(), batch), naive(oracle, batch, CLIPS[clip], name, "batch")
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
    assert found.dtype == np.float64 and np.array_equal(found, oracle.gradient(oracle.initial(), batch))


@pytest.mark.parametrize("clip", ["l1", "l2"])
def test_ghost_norms_one_by_one_and_vectorised_agree(mnist, clip, monkeypatch):
    oracle = build_oracle(config("lenet", clip, precision="float64"), 1, data_root=mnist)
    batch = oracle.draw_batch(6, stream())
    ghost = oracle.gradient(oracle.initial(), batch)
    monkeypatch.setattr(oracle.net, "ghost", None)
    for one_by_one in (False, True):
        monkeypatch.setattr(oracle.net, "one_by_one", one_by_one)
        np.testing.assert_allclose(oracle.gradient(oracle.initial(), batch), ghost, rtol=1e-12, atol=1e-15)


def test_no_sample_exceeds_the_clip_in_float32(mnist):
    oracle = build_oracle(config("lenet", "l2"), 0, data_root=mnist)
    for row in range(6):
        gradient = oracle.gradient(oracle.initial(), np.array([row]))
        assert 0.9 * 0.05 < np.linalg.norm(gradient) <= 0.05


def test_resnet18_has_the_paper_s_size_and_both_norms(mnist):
    batch_norm = build_oracle(config("resnet18"), 0, data_root=mnist)
    assert batch_norm.dimension == 11_175_370 and batch_norm.batch_norm
    group = build_oracle(config("resnet18", "l2", norm="group"), 0, data_root=mnist)
    assert group.dimension == 11_175_370 and not group.batch_norm
    batch = np.arange(2)
    expected = naive(group, batch, CLIPS["l2"], "resnet18", "group")
    found = group.gradient(group.initial(), batch)
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)


def test_batch_norm_with_a_clip_names_group_norm(mnist):
    with pytest.raises(ConfigError, match=r'model.norm.*norm = "group" \(GroupNorm\)'):
        build_oracle(config("resnet18", "l2"), 0, data_root=mnist)
    with pytest.raises(ConfigError, match="BatchNorm needs two samples"):
        build_oracle(
            replace(config("resnet18"), scheme=replace(config("resnet18").scheme, samples=1)), 0, data_root=mnist
        )


def test_what_an_evaluation_leaves_behind_does_not_reach_a_gradient(mnist):
    oracle = build_oracle(config("resnet18"), 0, data_root=mnist)
    batch, x = np.arange(4), oracle.initial()
    before, judged = oracle.gradient(x, batch), oracle.evaluate(x)
    assert np.array_equal(oracle.gradient(x, batch), before) and oracle.evaluate(x) == judged
    other = oracle.evaluate(x * 0.5)
    assert other != judged and judged.grad_norm is None and 0 <= judged.accuracy_test <= 1


def test_evaluation_agrees_with_torch(mnist):
    oracle = build_oracle(config("lenet", precision="float64"), 2, data_root=mnist)
    module = oracle._network.module.eval()
    data = datasets.load_dataset("mnist", mnist)
    x = torch.from_numpy(np.asarray(data.real_test()).reshape(-1, 1, 28, 28))
    with torch.no_grad():
        right = float((module(x).argmax(1).numpy() == data.y_test).mean())
    assert oracle.evaluate(oracle.initial()).accuracy_test == right


def test_a_partial_evaluation_is_that_of_evenly_spaced_samples(mnist):
    oracle = build_oracle(config("lenet", precision="float64"), 2, data_root=mnist)
    x, rows = oracle.initial(), np.arange(5) * oracle.samples // 5
    part = oracle.evaluate(x, 5)
    net = oracle._network
    with torch.no_grad():
        logits = net.module.eval()(oracle._tensors(net, rows)[0])
    right = float((logits.argmax(1).numpy() == oracle._y[rows]).mean())
    assert part.accuracy_train == right and oracle.tested == 10
    assert oracle.evaluate(x, 10**6) == oracle.evaluate(x)


def test_cifar10_through_resnet18(tmp_path):
    batches = cifar_batches()
    gradients = []
    for name, write in (("py", write_cifar_python), ("bin", write_cifar_binary)):
        write(tmp_path / name, batches)
        datasets._images.cache_clear()
        made = run("cifar10", samples=4, softmax=model.Model("resnet18"))
        oracle = build_oracle(made, 1, data_root=tmp_path / name)
        assert oracle.dimension == 11_181_642
        gradients.append(oracle.gradient(oracle.initial(), np.arange(4)))
    assert np.array_equal(*gradients) and np.linalg.norm(gradients[0]) > 0


# --- modules of the operator's own -----------------------------------------------------------------------------------

PLUG_IN = """
import torch
from torch import nn

class Tied(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.first = nn.Linear(784, 784)
        self.second = nn.Linear(784, 784)
        self.second.weight = self.first.weight
        self.last = nn.Linear(784, classes)
        self.temperature = nn.Parameter(torch.tensor(1.0))
        self.unused = nn.Parameter(torch.ones(3))
    def forward(self, x):
        x = torch.relu(self.first(x.flatten(1)))
        return self.last(torch.relu(self.second(x))) / self.temperature

def tied(shape, classes): return Tied(shape, classes)
def frozen(shape, classes):
    made = Tied(shape, classes)
    made.first.weight.requires_grad_(False)
    return made
def all_frozen(shape, classes):
    made = nn.Linear(784, classes)
    return made.requires_grad_(False)
def dropout(shape, classes): return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(784, classes))
def no_dropout(shape, classes): return nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Linear(784, classes))
def half(shape, classes): return nn.Linear(784, classes).half()
def last(shape, classes): return nn.Conv2d(1, 4, 3).to(memory_format=torch.channels_last)
class Last(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.c, self.out = nn.Conv2d(1, 4, 3), nn.Linear(4 * 26 * 26, classes)
    def forward(self, x): return self.out(self.c(x).flatten(1))
def channels_first(shape, classes): return Last(classes)
def channels_last(shape, classes): return Last(classes).to(memory_format=torch.channels_last)
def no_module(shape, classes): return 3
"""


@pytest.fixture
def plug(tmp_path, monkeypatch):
    (tmp_path / "my_nets.py").write_text(PLUG_IN)
    monkeypatch.syspath_prepend(tmp_path)
    torch_oracle.network.cache_clear()


def test_tied_weights_count_once_and_frozen_ones_not_at_all(mnist, plug):
    tied = build_oracle(config("my_nets:tied"), 0, data_root=mnist)
    assert tied.dimension == 784 * 784 + 2 * 784 + 7850 + 1 + 3
    frozen = build_oracle(config("my_nets:frozen"), 0, data_root=mnist)
    assert frozen.dimension == tied.dimension - 784 * 784 and frozen.shape_sha256 != tied.shape_sha256
    for clip in CLIPS:
        oracle = build_oracle(config("my_nets:tied", clip), 0, data_root=mnist)
        gradient = oracle.gradient(oracle.initial(), np.arange(6))
        names = oracle._network._names
        at = np.cumsum([0, *oracle._network._sizes])[names.index("unused")]
        assert np.isfinite(gradient).all() and not gradient[at : at + 3].any()


def test_memory_formats_change_nothing(mnist, plug):
    one, other = (build_oracle(config(f"my_nets:channels_{o}"), 0, data_root=mnist) for o in ("first", "last"))
    np.testing.assert_array_equal(one.initial(), other.initial())
    a, b = (o.gradient(o.initial(), np.arange(6)) for o in (one, other))
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dropout", r"Dropout\(0.5\): its randomness cannot be replayed"),
        ("half", "is torch.float16; parameters are float32"),
        ("all_frozen", "has no parameter to train"),
        ("no_module", "must return a torch.nn.Module, not int"),
        ("absent", "has no function absent"),
    ],
)
def test_modules_that_cannot_take_part(mnist, plug, name, message):
    with pytest.raises(ConfigError, match=message):
        build_oracle(config(f"my_nets:{name}"), 0, data_root=mnist)
    build_oracle(config("my_nets:no_dropout"), 0, data_root=mnist)


def test_pictures_that_a_model_cannot_take(tmp_path):
    y = np.arange(9) % 3
    np.savez(tmp_path / "d.npz", x_train=np.zeros((9, 50)), y_train=y, x_test=np.zeros((0, 50)), y_test=y[:0])
    with pytest.raises(ConfigError, match="'lenet' needs pictures"):
        build_oracle(run(f"npz:{tmp_path / 'd.npz'}", samples=2, softmax=model.Model("lenet")), 0)
    oracle = build_oracle(run(f"npz:{tmp_path / 'd.npz'}", samples=2, softmax=model.Model("mlp")), 0)
    assert oracle.dimension == 51 * 128 + 129 * 3


def test_bfloat16_is_near_and_cuda_is_refused_where_there_is_none(mnist):
    one, other = (build_oracle(config("lenet", precision=p), 0, data_root=mnist) for p in ("float32", "bfloat16"))
    a, b = (o.gradient(o.initial(), np.arange(6)) for o in (one, other))
    assert 0 < np.linalg.norm(a - b) < 0.1 * np.linalg.norm(a)
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="no usable CUDA device"):
            build_oracle(config("lenet"), 0, data_root=mnist, device="cuda")


def test_init_seed_decides_and_the_global_generator_is_left_alone(mnist):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    starts = [build_oracle(config("lenet", init_seed=s), 0, data_root=mnist).initial() for s in (None, 0, 1)]
    assert np.array_equal(starts[0], starts[1]) and not np.array_equal(starts[0], starts[2])
    assert torch.equal(torch.random.get_rng_state(), before) and torch.get_num_threads() == 1


def test_initial_values_are_wide_only_while_they_are_held(mnist):
    one, other = (build_oracle(config("lenet"), agent, data_root=mnist) for agent in (0, 1))
    x = one.initial()
    assert other.initial() is x and x.dtype == np.float64 and not x.flags.writeable
    before, held = x.copy(), weakref.ref(x)
    one.evaluate(x)
    del x
    assert held() is None
    assert np.array_equal(one.initial(), before)
    evaluates = torch_oracle.network(*one._made, "evaluation")
    assert evaluates is not one.net and evaluates.start is one.net.start


LENET = """
name = "lenet"
[algorithm]
iterations = 3
mechanism = "noise-once"
[scheme]
kind = "S2"
alpha = 0.1
beta = 0.1
gamma = 0.1
p_m = 1.0
samples = 4
[noise]
scale_eta = 0.01
law = "gaussian"
[graph]
agents = 3
R = { generator = "ring" }
C = { generator = "ring" }
[data]
dataset = "mnist"
[model]
name = "lenet"
[privacy]
clip_l2 = 1.0
[evaluate]
metrics = "study"
"""


def test_launch_gives_the_bits_of_simulate(mnist, monkeypatch):
    monkeypatch.setenv("DPGT_DATA", str(mnist))
    (mnist / "run.toml").write_text(LENET)
    for verb in ("simulate", "launch"):
        out = mnist / verb
        assert cli.run([verb, str(mnist / "run.toml"), "--out", str(out), "--test-keystream", "0011"]) == 0
    for name in ("agent-1", "agent-2", "agent-3"):
        made = [(mnist / verb / "agents" / name / "x_final.npy").read_bytes() for verb in ("simulate", "launch")]
        assert made[0] == made[1]
    summary = json.loads((mnist / "launch/summary.json").read_text())
    assert all(agent["epsilon"]["gdp"] is not None for agent in summary["agents"])
