"""A function of the operator's own as features: tried before it is used, computed once, kept for its owner alone."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node import cli
from dpgt_node.config import to_toml
from dpgt_node.config.model import Data, Model
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data import frozen, shards
from dpgt_node.learning.oracle import build_oracle
from tests.learning.cases import blobs, run, save

PLUG_IN = """
import numpy as np
CALLS = []
def square(p):
    def apply(rows):
        CALLS.append(len(rows))
        return np.hstack([rows, rows ** 2])
    return apply
def weights(p):
    w = np.load(__file__ + ".npy")
    return lambda rows: rows @ w
def number(p): return 3
def raises(p): raise RuntimeError("no such weights")
def fails(p):
    def apply(rows): return rows @ np.zeros((p + 1, 2))
    return apply
def short(p): return lambda rows: rows[:-1]
def empty(p): return lambda rows: rows[:, :0]
def nan(p): return lambda rows: rows / 0.0
def words(p): return lambda rows: rows.astype(str)
def random(p):
    rng = np.random.default_rng(0)
    return lambda rows: rows + rng.standard_normal(rows.shape)
def mixed(p): return lambda rows: rows - rows.mean(axis=0)
"""


@pytest.fixture
def plug(tmp_path, monkeypatch):
    import sys

    (tmp_path / "my_features.py").write_text(PLUG_IN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_features", raising=False)
    frozen.frozen.cache_clear()
    shards.shards.cache_clear()
    yield tmp_path
    frozen.frozen.cache_clear()


def config(folder: Path, name: str = "square", normalise: str = "none"):
    path = folder / "d.npz"
    if not path.exists():
        save(path, blobs(samples=60))
    made = run(f"npz:{path}")
    return replace(made, data=Data(f"npz:{path}", features=f"my_features:{name}", normalise=normalise))


def again():
    """As a new process."""
    frozen.frozen.cache_clear()
    shards.shards.cache_clear()


def test_features_are_the_function_s(plug):
    made = config(plug)
    for i in range(3):
        oracle = build_oracle(made, i)
        raw = build_oracle(replace(made, data=replace(made.data, features="raw")), i)
        np.testing.assert_array_equal(oracle._x, np.hstack([raw._x, raw._x**2]))
        np.testing.assert_array_equal(oracle._x_test, np.hstack([raw._x_test, raw._x_test**2]))
        assert oracle.dimension == 3 * (8 + 1)
    unit = build_oracle(config(plug, normalise="l2"), 0)
    np.testing.assert_allclose(np.linalg.norm(unit._x, axis=1), 1.0)


def test_they_are_computed_once_and_kept_for_the_owner_alone(plug):
    import my_features

    made, root = config(plug), plug / "root"
    first = build_oracle(made, 0, data_root=root)
    files = sorted((root / "features").glob("*.npy"))
    assert len(files) == 2, "the agent's shard and the test set"
    assert {f.stat().st_mode & 0o777 for f in files} == {0o600} and (root / "features").stat().st_mode & 0o777 == 0o700
    again()
    my_features.CALLS.clear()
    second = build_oracle(made, 0, data_root=root)
    assert set(my_features.CALLS) == {8, 1}, "only the trial rows"
    np.testing.assert_array_equal(first._x, second._x)
    build_oracle(made, 1, data_root=root)
    assert len(list((root / "features").glob("*.npy"))) == 3


@pytest.mark.parametrize("spoil", ["torn", "shape", "nan"])
def test_a_spoilt_file_is_computed_again(plug, spoil):
    made, root = config(plug), plug / "root"
    expected = build_oracle(made, 0, data_root=root)._x
    for path in (root / "features").glob("*.npy"):
        if spoil == "torn":
            path.write_bytes(path.read_bytes()[:-9])
        else:
            np.save(path, np.zeros((3, 3)) if spoil == "shape" else np.full(np.load(path).shape, np.nan))
    again()
    np.testing.assert_array_equal(build_oracle(made, 0, data_root=root)._x, expected)


def test_other_code_weights_or_data_are_other_features(plug):
    root, weights = plug / "root", plug / "my_features.py.npy"
    np.save(weights, np.eye(4))
    made = config(plug, "weights")
    first = build_oracle(made, 0, data_root=root)
    np.save(weights, 2 * np.eye(4))
    again()
    second = build_oracle(made, 0, data_root=root)
    np.testing.assert_array_equal(second._x, 2 * first._x)
    save(plug / "d.npz", blobs(samples=60, seed=5))
    again()
    assert not np.array_equal(build_oracle(made, 0, data_root=root)._x, second._x)
    squares = build_oracle(config(plug), 0)
    assert squares.shape_sha256 == build_oracle(config(plug), 1).shape_sha256
    assert squares.shape_sha256 != build_oracle(replace(config(plug), model=Model(bias=0.0)), 0).shape_sha256


def test_the_least_recently_used_goes(plug, monkeypatch):
    made, root = config(plug), plug / "root"
    build_oracle(made, 0, data_root=root)
    size = max(f.stat().st_size for f in (root / "features").glob("*.npy"))
    monkeypatch.setattr(frozen, "CACHE_BYTES", 2 * size)
    for f in (root / "features").glob("*.npy"):
        os.utime(f, (1, 1))
    again()
    build_oracle(made, 1, data_root=root)
    assert sum(f.stat().st_size for f in (root / "features").glob("*.npy")) <= 2 * size


def test_a_folder_that_cannot_be_written_costs_time_only(plug, caplog):
    (plug / "root").mkdir()
    (plug / "root/features").write_text("a file")
    assert build_oracle(config(plug), 0, data_root=plug / "root").dimension == 27
    assert "features are not kept for the next start" in caplog.text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("number", "must return a torch.nn.Module or a function of arrays, not int"),
        ("raises", "failed: RuntimeError: no such weights"),
        ("fails", "failed on 8 samples: ValueError"),
        ("short", r"gave float64 of shape \(7, 4\) for \(8, 4\)"),
        ("empty", r"gave float64 of shape \(8, 0\)"),
        ("nan", "gave numbers that are not finite"),
        ("words", "gave <U"),
        ("random", "gives other features at a second look"),
        ("mixed", "lets the samples of a batch see each other"),
        ("absent", "has no function absent"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_functions_that_cannot_be_used(plug, name, message):
    with pytest.raises(ConfigError, match=rf"run file: data.features: 'my_features:{name}'.*{message}"):
        build_oracle(config(plug, name), 0)


def test_the_verbs_take_it(plug, capsys, monkeypatch):
    monkeypatch.setenv("DPGT_DATA", str(plug / "root"))
    (plug / "run.toml").write_text(to_toml(config(plug, normalise="l2")))
    assert cli.run(["simulate", str(plug / "run.toml"), "--out", str(plug / "out")]) == 0
    assert cli.run(["check", str(plug / "run.toml")]) in (0, 1)
    (plug / "bad.toml").write_text(to_toml(config(plug, "mixed")))
    capsys.readouterr()
    for verb in ("simulate", "launch"):
        assert cli.run([verb, str(plug / "bad.toml"), "--out", str(plug / verb)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "lets the samples of a batch see each other" in line
    assert cli.run(["check", str(plug / "bad.toml")]) in (0, 1), "the plug-in may be elsewhere"
    assert "Disk: not known here, run file: data.features: 'my_features:mixed'" in capsys.readouterr().out
