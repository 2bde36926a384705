"""Torch models in real daemons over mTLS: pictures of CIFAR-10's exact format, and agents whose modules differ."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node import cli
from dpgt_node.config import model
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data import datasets
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.runtime.store.ledger import read_ledger
from tests.e2e.processes import ROOT
from tests.learning.cases import run
from tests.learning.data.files import cifar_batches, write_cifar_python, write_pictures

pytestmark = pytest.mark.torch

RUN = """
[algorithm]
iterations = {K}
[scheme]
kind = "S2"
alpha = 0.1
beta = 0.1
gamma = 0.01
p_m = 1.0
samples = 2
[noise]
scale_zeta = 1e-3
scale_eta = 1e-3
[graph]
agents = 2
R = {{ generator = "ring" }}
C = {{ generator = "ring" }}
[data]
dataset = "{dataset}"
[runtime]
round_timeout = 600
[model]
name = "{model}"
{more}
"""
NETS = """
import sys

from torch import nn

OTHER = any("agent-2" in argument for argument in sys.argv)


def wider(shape, classes):
    hidden = 9 if OTHER else 8
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def renamed(shape, classes):
    head = nn.Linear(64, classes)
    return nn.Sequential(nn.Flatten(), nn.Sequential(head) if OTHER else head)
"""


@pytest.mark.parametrize(
    ("norm", "privacy"), [("batch", ""), ("group", "[privacy]\nclip_l2 = 1.0")], ids=["batch", "group"]
)
def test_resnet18_learns_on_cifar10_in_daemons_with_the_bits_of_the_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, norm: str, privacy: str
) -> None:
    write_cifar_python(tmp_path, cifar_batches(rows=2))
    monkeypatch.setenv("DPGT_DATA", str(tmp_path))
    more = f'norm = "{norm}"\n{privacy}\n[evaluate]\nevery = 3\nsamples = 2\nmetrics = "study"'
    # BatchNorm over two pictures, unclipped: gradients of hundreds, which noise of a small scale does not reach.
    text = RUN.format(K=2, dataset="cifar10", model="resnet18", more=more).replace(
        "scale_eta = 1e-3", "scale_eta = 10.0"
    )
    (tmp_path / "run.toml").write_text(text.replace("gamma = 0.01", "gamma = 1e-6"))
    for verb in ("simulate", "launch"):
        out = tmp_path / verb
        assert cli.run([verb, str(tmp_path / "run.toml"), "--out", str(out), "--test-keystream", "0011"]) == 0
    final = {
        verb: [np.load(tmp_path / verb / f"agents/agent-{i}/state/x_final.npy") for i in (1, 2)]
        for verb in ("simulate", "launch")
    }
    assert all(x.shape == (11_181_642,) and np.isfinite(x).all() for x in final["launch"])
    assert all(a.tobytes() == b.tobytes() for a, b in zip(*final.values(), strict=True))
    assert not np.array_equal(*final["launch"])
    summary = json.loads((tmp_path / "launch/summary.json").read_text())
    assert (summary["status"], summary["rounds"]) == ("finished", 3)
    assert [agent["releases"] for agent in summary["agents"]] == [6, 6]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wider", "agent-1 has a model of d = 610 parameters, agent-2 of 685|agent-2 .* d = 685 .*, agent-1 of 610"),
        ("renamed", "agent-[12] and agent-[12] have models of d = 650 parameters each"),
    ],
    ids=["wider", "renamed"],
)
def test_agents_whose_modules_differ_are_refused_before_anything_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    (tmp_path / "differing_nets.py").write_text(NETS)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path}")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "run.toml").write_text(RUN.format(K=2, dataset="digits", model=f"differing_nets:{name}", more=""))
    assert cli.run(["launch", str(tmp_path / "run.toml"), "--out", str(tmp_path / "o")]) == 3
    said = capsys.readouterr().err
    (line,) = said.splitlines()
    assert re.search(message, line) and "shapes differ" in line
    for agent in ("agent-1", "agent-2"):
        assert read_ledger(tmp_path / "o/agents" / agent / "state").entries == ()


def test_a_damaged_test_picture_is_found_before_the_run(tmp_path: Path) -> None:
    """Test pictures are decoded when an evaluation asks for them, beside the rounds."""
    write_pictures(tmp_path, side=12)
    path = tmp_path / "test/dog/1.png"
    made = run(f"folder:{tmp_path}", samples=1, softmax=model.Model("lenet"))
    assert build_oracle(made, 0).tested == 4
    path.write_bytes(path.read_bytes()[:50])
    datasets._folder.cache_clear()
    with pytest.raises(ConfigError, match=r"test/dog/1\.png.* is no readable picture"):
        build_oracle(made, 0)
    few = replace(made, evaluate=model.Evaluation(samples=2))
    assert build_oracle(few, 0).tested == 4, "rows 0 and 2 are all that it looks at"
