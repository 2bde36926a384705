"""Ghost clipping against plain autograd on single samples: every layer, every way out, and what the proof counts on."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from dpgt_node.config.model import Model
from dpgt_node.learning.nets import torch_ghost
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.learning.nets.torch_layers import Products, Scales, inflated
from dpgt_node.learning.nets.torch_models import build_module
from dpgt_node.learning.nets.torch_network import Network

pytestmark = pytest.mark.torch
F = nn.functional


def made(module: nn.Module, shape: tuple[int, ...], *, name: str = "my:own", **settings: object) -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        for value in module.parameters() if ":" in name else ():
            nn.init.normal_(value, std=0.3)  # no norm at 1 and no bias at 0
    net = Network(module, Model(name, precision="float64", **settings), "cpu")  # type: ignore[arg-type]
    net.choose_clipping(name, shape, Clip(2, 1.0))
    return net


def batch(net: Network, shape: tuple[int, ...], m: int = 4):
    rng = np.random.default_rng(7)
    return net.inputs(rng.standard_normal((m, *shape)), 1.0, shape), net.labels(rng.integers(3, size=m))


def singles(net: Network, inputs, labels) -> np.ndarray:
    """A gradient a row."""
    own = [value for value in net.module.parameters() if value.requires_grad]
    rows = []
    for x, y in zip(inputs, labels, strict=True):
        loss = F.cross_entropy(net.module(x[None]), y[None])
        parts = torch.autograd.grad(loss, own, allow_unused=True)
        filled = [torch.zeros_like(p) if g is None else g for g, p in zip(parts, own, strict=True)]
        rows.append(np.concatenate([part.numpy().ravel() for part in filled]))
    return np.stack(rows)


def error(net: Network, shape: tuple[int, ...], order: int, m: int = 4) -> float:
    """Of the sum clipped at the median of the norms; the largest difference over the largest entry."""
    inputs, labels = batch(net, shape, m)
    rows = singles(net, inputs, labels)
    norms = np.linalg.norm(rows, order, axis=1)
    clip, found = Clip(order, float(np.median(norms))), net.zeros()
    net.add_clipped(inputs, labels, clip, 4, found)
    expected = np.minimum(1.0, clip.threshold / norms) @ rows
    return float(np.abs(found.numpy() - expected).max() / np.abs(expected).max())


def head(*body: nn.Module, inputs: int) -> nn.Sequential:
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(inputs, 3))


def frozen(module: nn.Sequential, *names: str) -> nn.Sequential:
    for name in names:
        module.get_parameter(name).requires_grad_(False)
    return module


class Folded(nn.Module):
    """Layers that see a sample's parts as a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv1d(2, 3, 2), nn.GroupNorm(1, 3), nn.Linear(81, 3)

    def forward(self, x):
        parts = torch.tanh(self.norm(self.conv(x.reshape(-1, 2, 4))))
        return self.out(parts.reshape(len(x), -1))


class Mixed(nn.Module):
    """Samples of a batch that see each other, but for one that is alone."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(x + x.mean(0))


class Residual(nn.Module):
    """Changes in place what layers gave."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Conv2d(2, 2, 3, padding=1), nn.GroupNorm(2, 2), nn.Conv2d(2, 2, 1)
        self.out = nn.Linear(32, 3)

    def forward(self, x):
        y = self.norm(self.one(x)).relu_()
        z = self.two(y)
        z += y
        return self.out(z.relu_().flatten(1))


LAYERS = {
    "linear": ((5,), lambda: nn.Linear(5, 3)),
    "linear without a bias": ((5,), lambda: nn.Sequential(nn.Linear(5, 6, bias=False), nn.Tanh(), nn.Linear(6, 3))),
    "linear at few positions": ((3, 8), lambda: head(nn.Linear(8, 9), nn.Tanh(), inputs=27)),
    "linear at many positions": ((4, 5, 2), lambda: head(nn.Linear(2, 3), nn.Tanh(), inputs=60)),
    "conv1d": ((4, 11), lambda: head(nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2), inputs=36)),
    "conv2d": ((4, 9, 7), lambda: head(nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 2), (1, 2), bias=False), inputs=270)),
    "conv2d of few positions": ((6, 4, 4), lambda: head(nn.Conv2d(6, 8, 3, stride=2), nn.Tanh(), inputs=8)),
    "conv2d of four positions": ((6, 5, 5), lambda: head(nn.Conv2d(6, 8, 3, stride=2), nn.Tanh(), inputs=32)),
    "conv2d 1x1": ((6, 2, 2), lambda: head(nn.Conv2d(6, 8, 1), nn.Tanh(), inputs=32)),
    "conv2d by channel": ((4, 5, 5), lambda: head(nn.Conv2d(4, 8, 3, groups=4), nn.Tanh(), inputs=72)),
    "conv2d same": ((2, 6, 5), lambda: head(nn.Conv2d(2, 3, (4, 3), padding="same", dilation=(1, 2)), inputs=90)),
    "conv2d valid": ((2, 6, 5), lambda: head(nn.Conv2d(2, 3, 3, padding="valid"), inputs=36)),
    "conv3d": ((2, 3, 4, 5), lambda: head(nn.Conv3d(2, 3, 2, padding=(1, 0, 1)), inputs=216)),
    "group norm": ((6, 3, 3), lambda: head(nn.GroupNorm(3, 6), nn.Tanh(), inputs=54)),
    "layer norm": ((2, 3, 4), lambda: head(nn.LayerNorm((3, 4)), nn.Tanh(), inputs=24)),
    "layer norm without a bias": ((7,), lambda: head(nn.LayerNorm(7, bias=False), nn.Tanh(), inputs=7)),
    "instance norm": ((3, 5), lambda: head(nn.InstanceNorm1d(3, affine=True), nn.Tanh(), inputs=15)),
    "instance norm 2d": ((3, 5, 2), lambda: head(nn.InstanceNorm2d(3, affine=True), nn.Tanh(), inputs=30)),
    "frozen weights": (
        (4, 5, 5),
        lambda: frozen(head(nn.Conv2d(4, 4, 3), nn.GroupNorm(2, 4), inputs=36), "0.weight", "1.weight"),
    ),
    "frozen biases": (
        (4, 5, 5),
        lambda: frozen(head(nn.Conv2d(4, 4, 3), nn.GroupNorm(2, 4), inputs=36), "0.bias", "1.bias", "3.bias"),
    ),
    "a frozen layer": ((4, 5), lambda: frozen(head(nn.Conv1d(4, 4, 3), inputs=12), "0.weight", "0.bias")),
    "parts of a sample as a batch": ((3, 2, 12), Folded),
    "samples that see each other": ((4,), Mixed),
    "changes in place": ((2, 4, 4), Residual),
}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kind", LAYERS)
def test_every_layer(kind: str, order: int) -> None:
    shape, build = LAYERS[kind]
    net = made(build(), shape)
    assert net.ghost is not None and error(net, shape, order) < 1e-12


@pytest.mark.parametrize(
    ("name", "shape", "m"),
    [("mlp", (1, 6, 6), 4), ("lenet", (1, 20, 20), 4), ("cnn", (3, 8, 8), 3), ("resnet18", (1, 20, 20), 2)],
)
def test_every_model(name: str, shape: tuple[int, ...], m: int) -> None:
    net = made(build_module(name, shape, 10, norm="group", seed=1), shape, name=name, norm="group")
    assert net.ghost is not None and max(error(net, shape, order, m) for order in (1, 2)) < 1e-12


@pytest.mark.parametrize("order", [1, 2])
def test_pieces_of_a_batch_and_of_a_layer(order: int, monkeypatch) -> None:
    monkeypatch.setattr(torch_ghost, "_SCRATCH", 1)
    shape, build = LAYERS["conv2d"]
    net = made(build(), shape)
    assert net.ghost is not None and net.ghost.samples > 1000 and error(net, shape, order) < 1e-12


# --- ways out


class Own(nn.Module):
    def __init__(self, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.out = nn.Linear(5, 3)


class Tied(Own):
    def __init__(self) -> None:
        super().__init__(a=nn.Linear(5, 5), b=nn.Linear(5, 5))
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.out(torch.tanh(self.b(torch.tanh(self.a(x)))))


class Twice(Own):
    def __init__(self) -> None:
        super().__init__(a=nn.Linear(5, 5))

    def forward(self, x):
        return self.out(torch.tanh(self.a(torch.tanh(self.a(x)))))


class Skipped(Twice):
    def forward(self, x):
        return self.out(x)


class Functional(Twice):
    def forward(self, x):
        return self.out(torch.tanh(F.linear(x, self.a.weight, self.a.bias)))


class Beside(Twice):
    def forward(self, x):
        return self.out(torch.tanh(self.a(x)) + 0.0 * F.linear(x, self.a.weight))


class Scaled(Twice):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(5))

    def forward(self, x):
        return self.out(self.scale * self.a(x))


class InPlace(Twice):
    def __init__(self) -> None:
        super().__init__()
        self.b = nn.Linear(5, 5)
        self.b.weight.requires_grad_(False)

    def forward(self, x):
        h = self.a(x)
        y = self.b(h)
        h *= 2.0
        return self.out(y + h)


class Doubled(nn.Linear):
    def forward(self, x):
        return 2.0 * super().forward(x)


class Unbatched(Own):
    """A convolution of one sample at a time, without an axis for samples."""

    def __init__(self) -> None:
        super().__init__(a=nn.Conv1d(1, 1, 1))

    def forward(self, x):
        return self.out(torch.tanh(torch.cat([self.a(row[None]) for row in x])))


def hooked() -> nn.Module:
    net = head(nn.Linear(5, 5), inputs=5)
    net[0].register_forward_hook(lambda module, args, out: 2.0 * out)
    return net


def patched() -> nn.Module:
    net = head(nn.Linear(5, 5), inputs=5)
    net[0].forward = lambda x: 2.0 * F.linear(x, net[0].weight, net[0].bias)  # type: ignore[method-assign]
    return net


OTHERS = {
    "tied": Tied,
    "twice": Twice,
    "skipped": Skipped,
    "functional": Functional,
    "beside": Beside,
    "own parameters": Scaled,
    "changed in place": InPlace,
    "a subclass": lambda: head(Doubled(5, 5), inputs=5),
    "a hook": hooked,
    "a patch": patched,
    "prelu": lambda: head(nn.PReLU(), inputs=5),
    "weight norm": lambda: head(nn.utils.parametrizations.weight_norm(nn.Linear(5, 5)), inputs=5),
    "reflected": lambda: head(nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 1, 3, padding=1, padding_mode="reflect"), inputs=5),
    "transposed": lambda: head(nn.Unflatten(1, (1, 5)), nn.ConvTranspose1d(1, 1, 1), inputs=5),
    "without a batch": Unbatched,
}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kind", OTHERS)
def test_everything_else_has_gradients_of_its_own(kind: str, order: int) -> None:
    net = made(OTHERS[kind](), (5,))
    assert net.ghost is None and error(net, (5,), order) < 1e-12


# --- what the proof counts on


def test_one_sample_does_not_reach_another_s_bits() -> None:
    shape = (1, 16, 16)
    net = Network(build_module("resnet18", shape, 10, norm="group", seed=1), Model("resnet18", norm="group"), "cpu")
    net.choose_clipping("resnet18", shape, Clip(2, 1.0))
    ghost = net.ghost or pytest.fail("fell back")
    inputs, labels = batch(net, shape, 5)

    def seen():
        with torch.no_grad():
            records = ghost.records(net._held(), inputs, labels)
            norms = [ghost._norms(records, order, 5) for order in (1, 2)]
        return [part for pair in records for part in pair] + norms

    before, others = seen(), torch.tensor([0, 1, 3, 4])
    for value in (-3.0, 1e30, float("nan")):
        inputs[2], labels[2] = value, (labels[2] + 1) % 3
        after = seen()
        assert all(torch.equal(a[others], b[others]) for a, b in zip(before, after, strict=True))
        assert not torch.equal(before[-1], after[-1])


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_vector_that_is_summed_has_the_norm_of_the_clip(precision: str, order: int) -> None:
    shape = (1, 20, 20)
    net = Network(build_module("lenet", shape, 10, norm="group", seed=1), Model("lenet", precision=precision), "cpu")  # type: ignore[arg-type]
    clip, exact = Clip(order, 1e-2), made(build_module("lenet", shape, 10, norm="group", seed=1), shape, name="lenet")
    net.choose_clipping("lenet", shape, clip)
    assert net.ghost is not None and exact.ghost is not None
    for x, y in zip(*(part.split(1) for part in batch(net, shape)), strict=True):
        found, other = net.zeros(), exact.zeros()
        net.add_clipped(x, y, clip, 4, found)
        exact.add_clipped(x.double(), y, clip, 4, other)
        norm = float(torch.linalg.vector_norm(found, order))
        assert abs(norm / clip.threshold - 1.0) < 1e-12
        assert 0.0 < float((found - other).norm() / other.norm()) < (1e-4 if precision == "float32" else 0.2)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e200])
def test_a_sample_that_is_not_finite_counts_as_zero(order: int, bad: float) -> None:
    shape, build = LAYERS["conv2d"]
    net = made(build(), shape)
    inputs, labels = batch(net, shape)
    kept = torch.tensor([0, 2, 3])
    clip, found, expected = Clip(order, 0.5), net.zeros(), net.zeros()
    net.add_clipped(inputs[kept], labels[kept], clip, 4, expected)
    inputs[1] = bad
    net.add_clipped(inputs, labels, clip, 4, found)
    assert torch.isfinite(found).all()
    if bad != 1e200:
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def exact_norm(a: torch.Tensor, b: torch.Tensor, weight: float) -> float:
    """L2 norm of weight times sum_t b_t a_t^T, without rounding but for the last step."""
    rows = [[[Fraction(float(v)) for v in row] for row in part] for part in (b, a)]
    entries = [
        [sum(y[i] * x[j] for y, x in zip(*rows, strict=True)) for j in range(a.shape[1])] for i in range(b.shape[1])
    ]
    return float(Fraction(weight) ** 2 * sum(e * e for row in entries for e in row)) ** 0.5


@pytest.mark.parametrize("sure", [True, False])
def test_terms_that_cancel_do_not_hide_a_gradient_from_the_clip(sure: bool) -> None:
    """A square of norms of 1e9 that comes out as one of 10 has no right digit; without the bound the clip fails."""
    layer, clip, rng = (
        Products(nn.Linear(8, 8, bias=False), (slice(0, 64), None)),
        Clip(2, 1.0),
        np.random.default_rng(3),
    )
    a, b = (torch.from_numpy(1e4 * rng.standard_normal((16, 2, 8))) for _ in range(2))
    a[:, 1], b[:, 1] = a[:, 0], -b[:, 0] * (1 + 3e-8 * torch.from_numpy(rng.random((16, 8))))
    value, rounding = layer.measure(a, b, 2, 16)
    weights = torch_ghost.factors((inflated(value, rounding) if sure else value).sqrt(), clip)
    norms = [exact_norm(x, y, float(w)) for x, y, w in zip(a, b, weights, strict=True)]
    assert (max(norms) <= clip.bound) == sure and max(norms) > 1e-7


def test_rounding_leaves_ordinary_norms_alone() -> None:
    value = torch.tensor([1.0, 1.0, 0.0, float("nan"), float("inf"), 0.0])
    found = inflated(value, torch.tensor([2.0**-24, 2.0**-23, 2.0**-24, 1.0, float("inf"), 0.0]))
    assert found.tolist()[:3] == [1.0, 3.0, 1.0] and found[5] == 0.0
    assert torch.isnan(found[3]) and torch.isinf(found[4])


@pytest.mark.parametrize("order", [1, 2])
def test_nor_does_it_in_large_batches(order: int) -> None:
    shape = (1, 28, 28)
    net = made(build_module("lenet", shape, 10, norm="group", seed=1), shape, name="lenet")
    ghost = net.ghost or pytest.fail("fell back")
    with torch.no_grad():
        records = ghost.records(net._held(), *batch(net, shape))
        assert torch.equal(ghost._norms(records, order, 4), ghost._norms(records, order, 10_000))
        assert not torch.equal(ghost._norms(records, order, 4), ghost._norms(records, order, 10**7))


# --- mutants


def only_own_positions(self, windows, outputs, order):
    return (windows.square().sum(1) * outputs.square().sum(1)).sum(-1).sqrt()


def no_bias(function):
    def mutant(self, a, b, *rest):
        kept, self._bias = self._bias, None
        try:
            return function(self, a, b, *rest)
        finally:
            self._bias = kept

    return mutant


def raw_input(self, a, b):
    return [
        (self._weight, (a * b).reshape(len(a), 1, self._width, -1)),
        (self._bias, b.reshape(len(a), 1, self._width, -1)),
    ]


MUTANTS = {
    "cross terms": ("conv2d of four positions", Products, "_norms", only_own_positions),
    "bias in the norm": ("linear", Products, "measure", no_bias(Products.measure)),
    "bias in the sum": ("linear", Products, "add", no_bias(Products.add)),
    "input as it came": ("group norm", Scales, "_products", raw_input),
    "no padding": ("conv2d same", torch_ghost, "supported", None),
}


@pytest.mark.parametrize("kind", MUTANTS)
def test_a_wrong_formula_is_noticed_and_not_used(kind: str, monkeypatch) -> None:
    layers, owner, name, mutant = MUTANTS[kind]
    shape, build = LAYERS[layers]
    if mutant is None:
        sound = torch_ghost.supported

        def mutant(layer, places):
            found = sound(layer, places)
            if isinstance(layer, nn.Conv2d):
                found._pads = [(after, before) for before, after in found._pads]
            return found

    monkeypatch.setattr(owner, name, mutant)
    assert made(build(), shape).ghost is None
    with monkeypatch.context() as also:
        also.setattr(Network, "_agrees", lambda *_: True)
        assert error(made(build(), shape), shape, 2) > 1e-6
