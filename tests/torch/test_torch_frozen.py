"""A frozen torch module as features."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from dpgt_node import cli
from dpgt_node.config import load_run
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data import frozen, shards
from dpgt_node.learning.data.datasets import load_dataset
from dpgt_node.learning.oracle import build_oracle

pytestmark = pytest.mark.torch
EXAMPLES = Path(__file__).parents[2] / "examples"

PLUG_IN = """
import torch
from torch import nn
def scaled(p):
    made = nn.Sequential(nn.Linear(p, 5), nn.BatchNorm1d(5))
    nn.init.constant_(made[0].weight, 0.5)
    made[0].bias.data.zero_()
    return made
def double(p): return nn.Linear(p, 3).double()
def noisy(p):
    class Noisy(nn.Module):
        def forward(self, x): return x + torch.rand_like(x)
    return Noisy()
def centred(p):
    class Centred(nn.Module):
        def forward(self, x): return x - x.mean(dim=0)
    return Centred()
def conditional(p):
    class Conditional(nn.Module):
        def forward(self, x): return x / x.max() if x.max() > 5 else x
    return Conditional()
def keeps(p):
    class Keeps(nn.Module):
        most = 1.0
        def forward(self, x):
            self.most = max(self.most, float(x.max()))
            return x / self.most
    return Keeps()
"""


@pytest.fixture
def plug(tmp_path, monkeypatch):
    (tmp_path / "my_torch_features.py").write_text(PLUG_IN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    for name in ("my_torch_features", "frozen_features"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    frozen.frozen.cache_clear()
    shards.shards.cache_clear()
    return tmp_path


def test_a_module_computes_in_eval_mode_without_a_gradient(plug):
    function = frozen.frozen("my_torch_features:scaled", 7)
    rows = np.random.default_rng(1).random((300, 7))
    expected = rows.astype(np.float32).sum(axis=1, keepdims=True) * 0.5 / np.sqrt(1 + 1e-5)
    np.testing.assert_allclose(function(rows), np.repeat(expected, 5, axis=1), rtol=1e-5)
    assert frozen.frozen("my_torch_features:double", 7)(rows).dtype == np.float64


def test_weights_are_part_of_what_agents_compare(plug):
    first = frozen.Frozen("my_torch_features:scaled", 7)
    assert frozen.Frozen("my_torch_features:scaled", 7).identity == first.identity
    torch.manual_seed(1)
    other = frozen.Frozen("my_torch_features:double", 7)
    torch.manual_seed(2)
    assert frozen.Frozen("my_torch_features:double", 7).identity != other.identity


@pytest.mark.parametrize(
    ("name", "message"),
    [("noisy", "at a second look"), ("centred", "see each other"), ("keeps", "remembers the samples")],
)
def test_modules_that_cannot_be_used(plug, name, message):
    with pytest.raises(ConfigError, match=message):
        frozen.frozen(f"my_torch_features:{name}", 7)


def test_a_module_that_would_mix_samples_gets_one_at_a_time(plug):
    function = frozen.frozen("my_torch_features:conditional", 7)
    rows = np.random.default_rng(1).random((20, 7))
    loud = rows.copy()
    loud[3] = 1e3
    assert np.delete(function.of(rows, 1.0), 3, 0).tobytes() == np.delete(function.of(loud, 1.0), 3, 0).tobytes()
    assert not np.allclose(function._features(rows)[:3], function._features(loud)[:3]), "it would"


def test_the_example_runs(plug, monkeypatch):
    monkeypatch.setenv("DPGT_DATA", str(plug / "root"))
    run = load_run(EXAMPLES / "frozen.toml")
    oracle = build_oracle(run, 0, data_root=plug / "root")
    assert oracle.dimension == 10 * 64 * 16
    np.testing.assert_allclose(np.linalg.norm(oracle._x, axis=1), 1.0)
    assert len(oracle._x_test) == len(load_dataset("digits").y_test)
    assert cli.run(["simulate", str(EXAMPLES / "frozen.toml"), "--out", str(plug / "out")]) == 0
    summary = json.loads((plug / "out/summary.json").read_text())
    assert min(agent["accuracy_test"] for agent in summary["agents"]) > 0.3
    assert len(list((plug / "root/features").glob("*.npy"))) == 6
    assert cli.run(["export", str(plug / "out"), "--out", str(plug / "model")]) == 0
    assert cli.run(["evaluate", str(plug / "model")]) == 0
