"""``simulate --fast`` and ``--device`` for torch models: several agents in one pass, and the stated tolerance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from dpgt_node import cli
from dpgt_node.config import model
from dpgt_node.learning.data import datasets
from dpgt_node.learning.nets import torch_stacked
from dpgt_node.learning.nets.batched import batched
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.sim import fast
from dpgt_node.sim.fast import TOLERANCE, TOLERANCE_TORCH, simulate_fast
from dpgt_node.sim.simulate import build_oracles, simulate
from tests.learning.cases import run, stream
from tests.learning.data.files import write_idx

pytestmark = pytest.mark.torch

CLIPS = {"none": model.Privacy(), "l1": model.Privacy(clip_l1=0.8), "l2": model.Privacy(clip_l2=0.05)}
KEY = "00112233445566778899"


@pytest.fixture
def mnist(tmp_path):
    write_idx(tmp_path / "MNIST/raw", train=60)
    datasets._images.cache_clear()
    return tmp_path


def config(name: str, clip: str = "none", noise: float = 0.01, **changes):
    made = run("mnist", samples=6, softmax=model.Model(name, **changes), privacy=CLIPS[clip], noise=noise)
    return replace(made, evaluate=model.Evaluation(5, "study"))


def points(oracles, size: float = 0.01) -> np.ndarray:
    rng = np.random.default_rng(3)
    return np.stack([o.initial() for o in oracles]) + size * rng.standard_normal((len(oracles), oracles[0].dimension))


@pytest.mark.parametrize(("precision", "rtol"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("memory_mb", [8, 512])
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("name", ["mlp", "lenet"])
def test_one_pass_for_all_agrees_with_one_by_one(mnist, name, clip, memory_mb, precision, rtol):
    oracles = build_oracles(config(name, clip, precision=precision, memory_mb=memory_mb), mnist)
    x = points(oracles)
    batches = [oracle.draw_batch(6, stream(i)) for i, oracle in enumerate(oracles)]
    found, alone = torch_stacked.stacked_gradients(oracles, x, batches), batched(oracles)(x, batches)
    if found is None:
        assert memory_mb == 8 and 2 * 6 * oracles[0].dimension * (8 if precision == "float64" else 4) > 8 << 20
    else:
        assert found.dtype == np.float64 and np.abs(found - alone).max() <= rtol * np.abs(alone).max()
    assert torch_stacked.stacked_gradients(oracles, x, [batches[0][:5], *batches[1:]]) is None


def test_a_sample_that_overflows_counts_as_zero_in_one_pass_too(mnist):
    oracles = build_oracles(config("mlp", "l2"), mnist)
    x = points(oracles)
    x[1] *= 1e30
    batches = [oracle.draw_batch(6, stream(i)) for i, oracle in enumerate(oracles)]
    found, alone = torch_stacked.stacked_gradients(oracles, x, batches), batched(oracles)(x, batches)
    assert np.isfinite(found).all() and not alone[1].any() and not found[1].any() and alone[0].any()


def finals(out, made) -> np.ndarray:
    return np.stack([np.load(out / "agents" / name / "x_final.npy") for name in made.graph.agents])


def both(made, folder, **options) -> tuple[float, np.ndarray]:
    for name, function in (("slow", simulate), ("fast", simulate_fast)):
        (folder / name).mkdir()
        assert function(made, folder / name, bytes(16), data_root=folder, test_keystream=KEY)[0].exit_code == 0
    a, b = finals(folder / "slow", made), finals(folder / "fast", made)
    return float(np.abs(a - b).max() / np.abs(a).max()), a


@pytest.mark.parametrize("stacked", [False, True], ids=["one by one", "in one pass"])
@pytest.mark.parametrize(
    ("precision", "noise", "tolerance"),
    [("float64", 0.0, TOLERANCE), ("float64", 0.01, TOLERANCE), ("float32", 0.0, TOLERANCE_TORCH)],
)
def test_fast_agrees_with_the_daemons_functions(mnist, monkeypatch, stacked, precision, noise, tolerance):
    monkeypatch.setattr(torch_stacked, "pays", lambda oracle, agents: stacked)
    error, _ = both(config("lenet", "l2", noise=noise, precision=precision), mnist)
    assert error < tolerance


def test_under_noise_float32_moves_few_values_by_a_cell(mnist):
    """What float32 rounds differently in a gradient moves a released value to the next cell of its grid, seldom."""
    made = config("lenet", "l2", noise=0.01)
    both(made, mnist)
    a, b = finals(mnist / "slow", made), finals(mnist / "fast", made)
    moved = np.abs(a - b) > TOLERANCE_TORCH * np.abs(a).max()
    assert moved.mean() < 1e-3 and np.abs(a - b).max() < 5 * 0.011 * 0.01


def test_another_model_is_noticed(mnist, monkeypatch):
    build = fast.batched
    monkeypatch.setattr(fast, "batched", lambda *given: lambda x, b: 1.1 * build(*given)(x, b))
    assert both(config("lenet", "l2", noise=0.0), mnist)[0] > 10 * TOLERANCE_TORCH


def test_cuda_where_there_is_none_is_one_line(mnist, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("DPGT_DATA", str(mnist))
    from dpgt_node.config import to_toml

    (mnist / "run.toml").write_text(to_toml(config("lenet")))
    assert cli.run(["simulate", str(mnist / "run.toml"), "--out", str(mnist / "out"), "--device", "cuda"]) == 2
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        "dpgt simulate: command line: --device: cuda: this machine has no usable CUDA device"
    ]
    assert not said.out and not (mnist / "out").exists()
    assert build_oracle(config("lenet"), 0, data_root=mnist).dimension > 0
