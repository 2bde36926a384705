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
from dpgt_node.learning.data import datasets
from dpgt_node.learning.nets.torch_models import build_module
from dpgt_node.learning.oracle import build_oracle
from tests.learning.cases import run
from tests.learning.data.files import write_idx

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


def test_data_of_others_need_not_hold_every_class_and_must_fit(mnist, capsys):
    simulated(mnist, "lenet")
    capsys.readouterr()
    rng = np.random.default_rng(1)
    rows = np.column_stack([np.array([3, 1, 2, 0]), rng.random((4, 784))])
    np.savetxt(mnist / "own.csv", rows, delimiter=",", header=",".join(["y", *map(str, range(784))]), comments="")
    arguments = ["evaluate", str(mnist / "e"), "--label", "y", "--data"]
    assert cli.run([*arguments, f"csv:{mnist / 'own.csv'}", "--format", "json"]) == 0
    module = build_module("lenet", (1, 28, 28), 10, norm="batch", seed=5)
    module.load_state_dict(torch.load(mnist / "e/state_dict.pt", weights_only=True))
    with torch.no_grad():
        logits = module(torch.from_numpy(rows[:, 1:]).float().reshape(4, 1, 28, 28)).double()
    said = json.loads(capsys.readouterr().out)
    labels = torch.from_numpy(rows[:, 0]).long()
    assert said["loss"] == pytest.approx(float(torch.nn.functional.cross_entropy(logits, labels)), rel=1e-6)
    assert said["samples"] == 4 and said["accuracy"] == float((logits.argmax(1) == labels).double().mean())
    for bad, message in (
        (rows[:, :-1], "has 783 numbers a sample, the model takes a picture of 1 x 28 x 28"),
        (
            np.column_stack([[10.0], rows[:1, 1:]]),
            "has a class '10', the model's 10 classes are 0, 1, 2, 3, 4, 5, 6, 7, 8, 9",
        ),
    ):
        names = ",".join(["y", *map(str, range(bad.shape[1] - 1))])
        np.savetxt(mnist / "bad.csv", bad, delimiter=",", header=names, comments="")
        assert cli.run([*arguments, f"csv:{mnist / 'bad.csv'}"]) == 2
        assert capsys.readouterr().err == f"dpgt evaluate: command line: --data: {message}\n"
