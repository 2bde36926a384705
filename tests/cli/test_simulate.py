"""``dpgt simulate``: devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgt_node import cli
from dpgt_node.config import to_toml
from tests.learning.cases import run

KEY = "00112233445566778899"


def run_file(folder: Path, made=None) -> Path:
    path = folder / "run.toml"
    path.write_text(to_toml(made or run("digits")))
    return path


@pytest.mark.parametrize(
    ("made", "what"), [(run("digits"), "softmax"), (run("quadratic", dimension=3), "quadratic")], ids=["model", "toy"]
)
def test_cuda_is_for_torch_models(tmp_path, capsys, made, what):
    assert cli.run(["simulate", str(run_file(tmp_path, made)), "--out", str(tmp_path / "o"), "--device", "cuda"]) == 2
    message = f"cuda computes torch models; '{what}' has a closed form and runs on the CPU: leave it out"
    assert capsys.readouterr().err.splitlines() == [f"dpgt simulate: command line: --device: {message}"]
