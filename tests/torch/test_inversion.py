"""Pictures out of gradients of torch models: searches, and whole runs (make torch; needs the extra [torch])."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpgt_node.adversary.attack import NotApplicable, Options
from dpgt_node.adversary.attacks.inversion import inversion
from dpgt_node.adversary.pictures import analytic, measure, search
from dpgt_node.adversary.pictures.model import first_layer, output_bias
from dpgt_node.learning import torch_oracle
from dpgt_node.learning.data.datasets import load_dataset
from dpgt_node.learning.nets.torch_models import build_module
from tests.adversary import record

pytestmark = pytest.mark.torch

SHAPE = (1, 8, 8)
DIGITS = load_dataset("digits")
NETS = """
from torch import nn

def smooth(shape, classes):
    return nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.Sigmoid(), nn.Flatten(), nn.Linear(384, classes))

def kinked(shape, classes):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(128, classes),
    )

def normed(shape, classes): return nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Sigmoid(),
    nn.Flatten(), nn.Linear(384, classes))

def no_bias(shape, classes): return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.Sigmoid(),
    nn.Linear(20, classes, bias=False))

def odd(shape, classes): return smooth(shape, classes).append(nn.PReLU())
"""


@pytest.fixture(autouse=True)
def nets(tmp_path, monkeypatch):
    (tmp_path / "inversion_nets.py").write_text(NETS)
    monkeypatch.syspath_prepend(tmp_path)
    torch_oracle.network.cache_clear()


def module(name: str):
    made = build_module(f"inversion_nets:{name}", SHAPE, 10, norm="batch", seed=1)
    x = np.concatenate([p.detach().double().numpy().ravel() for p in made.parameters()])
    return search.load(made, x)


def batch(*rows: int) -> tuple[np.ndarray, np.ndarray]:
    return DIGITS.x_train[list(rows)].reshape(-1, *SHAPE), DIGITS.y_train[list(rows)]


def found(name: str, rows: tuple[int, ...], b: float = 0.0, sign: float = 1.0, **settings: object):
    net, (x, y) = module(name), batch(*rows)
    g = sign * search.gradient(net, x, y)
    s = math.sqrt(2 * g.size) * b / float(np.linalg.norm(g))
    seen = g + (np.random.default_rng(0).laplace(0, b, g.size) if b else 0.0)
    labels, out = search.labels_and_samples(
        net,
        seen,
        output_bias(net, seen, 10),
        len(rows),
        SHAPE,
        s=s,
        settings=search.Settings(**settings),  # type: ignore[arg-type]
    )
    order = measure.matched(x, out.samples)
    return out, labels[order], measure.psnr(x, out.samples[order])


def test_a_smooth_model_gives_its_picture_to_rounding() -> None:
    out, labels, psnr = found("smooth", (0,))
    assert out.method == "lbfgs" and psnr > 80 and labels.tolist() == batch(0)[1].tolist()
    again = found("smooth", (0,))[0]
    assert np.array_equal(again.samples, out.samples)


def test_a_gradient_of_the_wrong_sign_gives_nothing() -> None:
    _, _, psnr = found("smooth", (0,), sign=-1.0, steps=60)
    assert psnr < 15


def test_a_batch_comes_out_and_is_matched() -> None:
    rows = tuple(np.unique(DIGITS.y_train, return_index=True)[1][[5, 0, 8]].tolist())
    _, labels, psnr = found("smooth", rows, steps=1500, method="lbfgs")
    assert psnr > 40 and labels.tolist() == batch(*rows)[1].tolist()


def test_batch_norm_needs_no_statistics_that_nobody_sends() -> None:
    """A gradient uses those of its own batch, which the search has."""
    rows = tuple(np.unique(DIGITS.y_train, return_index=True)[1][[5, 0]].tolist())
    _, labels, psnr = found("normed", rows, steps=900, method="lbfgs")
    assert psnr > 30 and labels.tolist() == batch(*rows)[1].tolist()


def test_several_gradients_of_one_batch_count_alike() -> None:
    """The misfit is the mean of those of single gradients, and so is its slope."""
    (x, y), rng, seen = batch(0), np.random.default_rng(0), []
    for _ in range(3):
        net = module("smooth")
        start = np.concatenate([p.detach().double().numpy().ravel() for p in net.parameters()])
        net = search.load(net, start + 0.1 * rng.standard_normal(start.size))
        seen.append((net, search.gradient(net, x, y)))
    lib = search.torch()
    at = lib.from_numpy(rng.random(x.shape))
    together = search._Fit(lib, seen, y, SHAPE)(at, 0.0)
    alone = [search._Fit(lib, [one], y, SHAPE)(at, 0.0) for one in seen]
    assert together[0] == pytest.approx(np.mean([one[0] for one in alone]), rel=1e-9)
    slope = sum(one[2] for one in alone) / 3
    np.testing.assert_allclose(together[2].numpy(), slope.numpy(), atol=1e-12)
    assert search._Fit(lib, seen, y, SHAPE)(lib.from_numpy(x.copy()), 0.0)[0] < 1e-9


def test_kinks_need_the_other_search() -> None:
    results = [found("kinked", (row,), steps=300) for row in (0, 3)]
    assert max(psnr for _, _, psnr in results) > 25 and min(psnr for _, _, psnr in results) > 12
    assert all(out.samples.min() >= 0.0 and out.samples.max() <= 1.0 for out, _, _ in results)


def test_restarts_keep_the_best_fit() -> None:
    one, more = (found("kinked", (1,), steps=60, method="adam", restarts=n)[0] for n in (1, 3))
    assert more.misfit <= one.misfit


def test_noise_beyond_the_rule_hides_the_picture_and_not_the_label() -> None:
    net, (x, y) = module("smooth"), batch(0)
    g = search.gradient(net, x, y)
    clear, hidden = (s * float(np.linalg.norm(g)) / math.sqrt(2 * g.size) for s in (0.01, 1.0))
    assert found("smooth", (0,), clear)[2] > 25
    _, labels, psnr = found("smooth", (0,), hidden, steps=150)
    assert psnr < 15 and labels.tolist() == y.tolist()


def test_the_gradient_is_the_oracle_s(tmp_path) -> None:
    run = record.run_of(K=1, m=4, multiplier=0.0, model='name = "inversion_nets:kinked"\nprecision = "float64"')
    made = record.play(run)
    truth = next(t for i, t in made.truth if i == 0 and t.k == 0)
    net = search.load(build_module("inversion_nets:kinked", SHAPE, 10, norm="batch", seed=0), truth.x)
    mine = search.gradient(net, truth.samples.reshape(-1, *SHAPE), truth.labels)
    np.testing.assert_allclose(mine, truth.g, rtol=1e-9, atol=1e-12)


def test_labels_without_an_output_bias_and_layers_that_are_not_first() -> None:
    net, (x, y) = module("no_bias"), batch(5)
    g = search.gradient(net, x, y)
    assert analytic.label_of(output_bias(net, g, 10)) == y[0]
    weights, bias = first_layer(net, 64, g) or pytest.fail("its first layer is linear")
    assert measure.psnr(x.ravel(), analytic.one_sample(weights, bias).phi[0]) > 150
    assert first_layer(module("smooth"), 64, np.zeros(10**4)) is None
    with pytest.raises(NotApplicable, match="no output layer"):
        output_bias(module("odd"), np.zeros(10**4), 10)
    with pytest.raises(ValueError, match="parameters"):
        search.load(net, np.zeros(10**5))


# --- whole runs: what a tap on every link makes of them


def attacked(run, tmp_path, **extra: str):
    made = record.play(run)
    return inversion.run(made.observe(tmp_path / "t"), made.study(tmp_path / "study"), Options(extra=extra))


def shown(result):
    return [f for f in result.findings if f.verdict != "no power"]


def test_an_mlp_without_noise_shows_its_picture_exactly(tmp_path) -> None:
    run = record.run_of(K=1, m=1, multiplier=0.0, model='name = "mlp"\nprecision = "float64"')
    for one in shown(attacked(run, tmp_path)):
        assert one.measured["psnr_db"] > 100 and one.measured["label_accuracy"] == 1.0 and "closed form" in one.note


def test_a_convolution_without_noise_shows_its_picture_and_with_the_paper_s_does_not(tmp_path) -> None:
    model = 'name = "inversion_nets:smooth"\nprecision = "float64"'
    clear = shown(attacked(record.run_of(K=1, m=1, multiplier=0.0, model=model), tmp_path))
    assert clear and {f.verdict for f in clear} == {"succeeds"}
    assert all(f.measured["psnr_db"] > 60 and f.measured["label_accuracy"] == 1.0 for f in clear)
    noisy = record.run_of(K=1, m=1, zeta=0.97**40, eta=0.98**40, model=model)
    hidden = shown(attacked(noisy, tmp_path, steps="100"))
    assert {f.verdict for f in hidden} == {"fails"} and all("not expected" in f.note for f in hidden)
    assert all(f.predicted["noise_ratio"] > 1 for f in hidden)


def test_a_model_that_does_not_fit_is_named(tmp_path) -> None:
    run = record.run_of(K=1, m=1, multiplier=0.0, model='name = "mlp"')
    with pytest.raises(NotApplicable, match=r"has d = \d+ for pictures"):
        attacked(run, tmp_path, shape="1,12,10")
    run = record.run_of(K=1, m=1, multiplier=0.0, model='name = "inversion_nets:smooth"')
    with pytest.raises(NotApplicable, match="does not take pictures"):
        attacked(run, tmp_path, shape="1,12,10")
