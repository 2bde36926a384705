"""Exported torch models: files that torch reads, the agent's own parameters, what is said of BatchNorm."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, load_model

from dpgt_node import cli
from dpgt_node.config import model, to_toml
from dpgt_node.learning import datasets
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.learning.torch_models import build_module
from tests.learning.cases import run
from tests.learning.files import write_idx

pytestmark = pytest.mark.torch


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    write_idx(tmp_path / "MNIST/raw", train=60, test=20)
    datasets._images.cache_clear()
    monkeypatch.setenv("DPGT_DATA", str(tmp_path))
    return tmp_path


def simulated(folder, name: str, **changes):
    made = run("mnist", samples=6, K=2, softmax=model.Model(name, **changes))
    made = replace(made, algorithm=replace(made.algorithm, mechanism="noise-once"))
    (folder / "run.toml").write_text(to_toml(made))
    assert cli.run(["simulate", str(folder / "run.toml"), "--out", str(folder / "out")]) == 0
    assert cli.run(["export", str(folder / "out"), "--out", str(folder / "e")]) == 0
    return made, np.load(folder / "out/agents/agent-1/state/x_final.npy")


def test_lenet_in_both_formats(mnist, capsys):
    made, x = simulated(mnist, "lenet")
    held = torch.load(mnist / "e/state_dict.pt", weights_only=True)
    module = build_module("lenet", (1, 28, 28), 10, norm="batch", seed=5)
    module.load_state_dict(held)
    flat = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    assert torch.equal(flat, torch.from_numpy(x).float())
    assert all(torch.equal(held[name], value) for name, value in load_file(mnist / "e/model.safetensors").items())
    capsys.readouterr()
    assert cli.run(["evaluate", str(mnist / "e"), "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    expected = build_oracle(made, 0, data_root=mnist).evaluate(x)
    assert (said["accuracy"], said["samples"], said["calibrated"]) == (expected.accuracy_test, 20, 0)


def test_batch_norm_s_statistics_are_not_in_it(mnist, capsys):
    made, _ = simulated(mnist, "resnet18")
    data = json.loads((mnist / "e/privacy.json").read_text())
    assert any("BatchNorm" in note for note in data["notes"])
    held = torch.load(mnist / "e/state_dict.pt", weights_only=True)
    assert not held["bn1.running_mean"].any() and bool((held["bn1.running_var"] == 1).all())
    load_model(build_module("resnet18", (1, 28, 28), 10, norm="batch", seed=1), mnist / "e/model.safetensors")
    capsys.readouterr()
    assert cli.run(["evaluate", str(mnist / "e")]) == 0
    assert "BatchNorm took its statistics from the first 20 of them" in capsys.readouterr().out
    assert made.model.norm == "batch"
