"""Data and machines that cannot be used: one clear message each, exit 2, before anything is released."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from dpgt_node import cli
from dpgt_node.config import model, to_toml
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data import datasets
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.sim import simulate
from tests.learning.cases import blobs, run, save
from tests.learning.data.files import cifar_batches, write_cifar_python, write_idx, write_pictures

DATA = blobs(samples=12)
X, Y = DATA.x_train, DATA.y_train
FILES = {
    "fewer samples than agents": ({"x_train": X[:2], "y_train": Y[:2]}, {}, "3 agents cannot share 2 training samples"),
    "no sample": ({"x_train": X[:0], "y_train": Y[:0]}, {}, "x_train: is empty, shape (0, 4)"),
    "one class": ({"y_train": 0 * Y, "y_test": 0 * DATA.y_test}, {}, "has one class only"),
    "a negative label": ({"y_train": Y - 1}, {"classes": 3}, "y_train: has a negative label: -1"),
    "a label too large": ({"y_test": DATA.y_test * 0}, {"classes": 2}, "y_train: has label 2; the limit is 1"),
    "m_K > D": ({}, {"samples": 5}, "m_K <= D: 5 <= 4 does not hold (fails: agent-1, agent-2, agent-3)"),
    "NaN": ({"x_train": np.where(np.arange(12)[:, None] == 7, np.nan, X)}, {}, "x_train: has 4 non-finite values, the"),
    "infinity": ({"x_test": DATA.x_test * np.inf}, {}, "x_test: has 40 non-finite values"),
    "words": ({"x_train": X.astype(str)}, {}, "x_train: has dtype <U32; features must be real numbers"),
    "another width": ({"x_test": DATA.x_test[:, :3]}, {}, "x_test: has 3 features, x_train has 4"),
    "fewer labels": ({"y_train": Y[:-1]}, {}, "y_train: has 11 labels for 12 rows of x_train"),
}


def one_line(verb: list[str], capsys) -> str:
    capsys.readouterr()
    assert cli.run(verb) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("case", FILES)
def test_every_verb_that_would_begin_a_run_names_it(case, tmp_path, capsys):
    arrays, options, message = FILES[case]
    made = run(f"npz:{save(tmp_path / 'd.npz', DATA, **arrays)}", **{"samples": 2, **options})
    (tmp_path / "run.toml").write_text(to_toml(made))
    for verb in ("simulate", "launch"):
        out = tmp_path / verb
        assert message in one_line([verb, str(tmp_path / "run.toml"), "--out", str(out)], capsys)
        assert not list(out.rglob("*")), "nothing began"


@pytest.mark.parametrize("broken", ["cut", "text", "folder"])
def test_a_file_that_is_torn(broken, tmp_path, capsys):
    path = save(tmp_path / "d.npz", DATA)
    whole = path.read_bytes()
    path.unlink()
    if broken == "folder":
        path.mkdir()
    else:
        path.write_bytes(whole[:-40] if broken == "cut" else b"hello")
    (tmp_path / "run.toml").write_text(to_toml(run(f"npz:{path}", samples=2)))
    line = one_line(["simulate", str(tmp_path / "run.toml"), "--out", str(tmp_path / "o")], capsys)
    assert line.startswith(f"dpgt simulate: {path}: ")


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"])
def test_a_picture_set_that_is_cut_off_or_spoilt(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DPGT_DATA", str(tmp_path))
    (tmp_path / "run.toml").write_text(to_toml(run("mnist", samples=2)))
    for spoil in (lambda raw: raw[:-1], lambda raw: b"\1" + raw[1:], lambda raw: raw[:5]):
        write_idx(tmp_path / "MNIST/raw")
        datasets._images.cache_clear()
        path = tmp_path / "MNIST/raw" / name
        path.write_bytes(spoil(path.read_bytes()))
        assert name in one_line(["simulate", str(tmp_path / "run.toml"), "--out", str(tmp_path / "o")], capsys)
    datasets._images.cache_clear()


def test_a_cifar_batch_that_is_cut_off(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DPGT_DATA", str(tmp_path))
    write_cifar_python(tmp_path, cifar_batches())
    path = tmp_path / "cifar-10-batches-py/data_batch_3"
    path.write_bytes(path.read_bytes()[:-100])
    datasets._images.cache_clear()
    (tmp_path / "run.toml").write_text(to_toml(run("cifar10", samples=2)))
    assert "data_batch_3" in one_line(["simulate", str(tmp_path / "run.toml"), "--out", str(tmp_path / "o")], capsys)
    datasets._images.cache_clear()


def test_a_picture_that_is_none(tmp_path, capsys):
    write_pictures(tmp_path / "p")
    assert build_oracle(run(f"folder:{tmp_path / 'p'}", samples=1), 0).dimension == 2 * 43
    (tmp_path / "p/train/cat/1.png").write_bytes(b"no picture")
    (tmp_path / "run.toml").write_text(to_toml(run(f"folder:{tmp_path / 'p'}", samples=1)))
    assert cli.run(["simulate", str(tmp_path / "run.toml"), "--out", str(tmp_path / "o")]) == 2
    few, refused = capsys.readouterr().err.splitlines()
    assert "too few to learn from" in few and "1.png" in refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_train": X[:1], "y_train": Y[:1]}, "m_K = 2 samples per gradient, but agent-2 holds D = 1"),
        ({"y_train": Y + 1}, "y_train: has label 3; the limit is 2"),
        ({"x_train": X[:0], "y_train": Y[:0]}, "x_train: is empty"),
        ({"x_train": X * np.inf}, "non-finite"),
    ],
)
def test_an_agent_s_own_file(changes, message, tmp_path):
    made = run(f"npz:{tmp_path / 'absent.npz'}", samples=2, classes=3)
    with pytest.raises(ConfigError, match=message) as caught:
        build_oracle(made, 1, data_path=save(tmp_path / "own.npz", DATA, **changes))
    assert len(str(caught.value).splitlines()) == 1


def test_an_agent_may_hold_one_class_where_the_run_says_how_many_there_are(tmp_path):
    own = save(tmp_path / "own.npz", DATA, y_train=0 * Y, x_test=DATA.x_test[:0], y_test=DATA.y_test[:0])
    made = run(f"npz:{tmp_path / 'absent.npz'}", samples=2, classes=3)
    assert build_oracle(made, 1, data_path=own).dimension == 3 * 5


@pytest.mark.parametrize("label", range(6))
def test_no_label_of_one_agent_decides_d_which_everybody_is_told(label, tmp_path):
    own = save(tmp_path / "own.npz", DATA, y_train=np.append(Y[:-1], label))
    made = run(f"npz:{tmp_path / 'absent.npz'}", samples=2, classes=3)
    if label < 3:
        assert build_oracle(made, 1, data_path=own).dimension == 3 * 5
    else:
        with pytest.raises(ConfigError, match=f"has label {label}; the limit is 2"):
            build_oracle(made, 1, data_path=own)
    with pytest.raises(ConfigError, match=r"data.classes: is needed where a node has data of its own"):
        build_oracle(run(f"npz:{tmp_path / 'absent.npz'}", samples=2), 1, data_path=own)


def test_agents_whose_files_differ_in_width_have_other_models(tmp_path):
    """What the coordinator compares at registration (tests/runtime/test_admission.py)."""
    made = run(f"npz:{tmp_path / 'absent.npz'}", samples=2, classes=3)
    wide = replace(DATA, x_train=np.hstack([X, X]), x_test=np.hstack([DATA.x_test] * 2))
    one, other = (build_oracle(made, i, data_path=save(tmp_path / f"{i}.npz", d)) for i, d in enumerate((DATA, wide)))
    assert one.dimension != other.dimension and one.shape_sha256 != other.shape_sha256


def test_memory_that_runs_out(tmp_path, capsys, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(simulate, "build_agents", full)
    (tmp_path / "run.toml").write_text(to_toml(run("digits")))
    line = one_line(["simulate", str(tmp_path / "run.toml"), "--out", str(tmp_path / "o")], capsys)
    assert line == "dpgt simulate: out of memory: free some, or take fewer agents or a smaller model"


def test_a_torch_model_without_torch(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "run.toml").write_text(to_toml(run("digits", softmax=model.Model("mlp"))))
    line = one_line(["simulate", str(tmp_path / "run.toml"), "--out", str(tmp_path / "o")], capsys)
    assert "model.name: needs torch: pip install 'dpgt-node[torch]'" in line


def test_a_file_that_stands_in_for_a_package_is_no_traceback(monkeypatch, capfd):
    """``numpy.py`` in the current folder, say, where ``python -m`` looks first."""
    from dpgt_node import __main__ as entry

    monkeypatch.setitem(sys.modules, "dpgt_node.cli", None)
    monkeypatch.delattr("dpgt_node.cli", raising=False)
    monkeypatch.setattr(entry.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as end:
        entry.main()
    assert end.value.code == 2 and "is a file of that name in" in capfd.readouterr().err
