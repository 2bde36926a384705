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
import sys
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
def exits(p): return lambda rows: sys.exit(0)
def short(p): return lambda rows: rows[:-1]
def empty(p): return lambda rows: rows[:, :0]
def nan(p): return lambda rows: rows / 0.0
def words(p): return lambda rows: rows.astype(str)
def random(p):
    rng = np.random.default_rng(0)
    return lambda rows: rows + rng.standard_normal(rows.shape)
def mixed(p): return lambda rows: rows - rows.mean(axis=0)
def conditional(p): return lambda rows: rows / rows.max() if rows.max() > 5 else rows
def scaled(p): return lambda rows: rows[:, :3] / rows.max()
class Running:
    # Its largest number so far, from `awake` on.
    def __init__(self, awake): self.awake, self.most = awake, 1.0
    def __call__(self, rows):
        if rows.max() > self.awake: self.most = max(self.most, rows.max())
        return rows / self.most
def running(p): return Running(0.0)
def wakes(p): return Running(1e7)
LAST = []
def difference(p):
    def apply(rows):
        LAST.append(rows)
        return rows - 1e-9 * LAST[-2] if len(LAST) > 1 else rows
    return apply
def grows(p):
    seen = []
    def apply(rows):
        seen.append(rows)
        return np.hstack([rows] * (1 if len(seen) < 40 else 2))
    return apply
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
    trial = 8 + len(frozen._EXTREMES) + 8
    assert [8, 8, *[1] * trial] == my_features.CALLS, "only the trial rows"
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
        ("exits", "failed on 8 samples: SystemExit: 0"),
        ("short", r"gave float64 of shape \(7, 4\) for \(8, 4\)"),
        ("empty", r"gave float64 of shape \(8, 0\)"),
        ("nan", "gave numbers that are not finite"),
        ("words", "gave <U"),
        ("random", "gives other features at a second look"),
        ("mixed", "lets the samples of a batch see each other"),
        ("running", "remembers the samples that it saw"),
        ("difference", "gives other features at a second look"),
        ("absent", "has no function absent"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_functions_that_cannot_be_used(plug, name, message):
    with pytest.raises(ConfigError, match=rf"run file: data.features: 'my_features:{name}'.*{message}"):
        build_oracle(config(plug, name), 0)


# --- one sample's features are its own -------------------------------------------------------------------------------


def by_whole_arrays(function: frozen.Frozen, stored: np.ndarray, divisor: float) -> np.ndarray:
    """The mutant: how it was called before."""
    return function._features(stored / divisor)


def moved(name: str, p: int, rows: int = 40, loud: float = 1e5) -> float:
    """How far the features of the others move when one sample of ``rows`` is replaced by a loud one."""
    function = frozen.Frozen(f"my_features:{name}", p)
    quiet = np.random.default_rng(1).random((rows, p))
    other = quiet.copy()
    other[rows // 2] = loud
    others = np.arange(rows) != rows // 2
    return float(np.abs(function.of(quiet, 1.0) - function.of(other, 1.0))[others].max())


@pytest.mark.parametrize(("name", "p"), [("conditional", 64), ("scaled", 150_528)])
def test_a_function_that_would_mix_rows_gets_one_at_a_time(plug, monkeypatch, name, p):
    """Both pass the trial on random rows, which has nothing loud and many numbers."""
    assert moved(name, p) == 0.0
    monkeypatch.setattr(frozen.Frozen, "of", by_whole_arrays)
    assert moved(name, p) > 0.1, "the mutant lets one sample move the others"


def test_what_only_the_data_wake_is_found_at_the_second_look(plug, monkeypatch):
    assert moved("wakes", 64) == 0.0
    with pytest.raises(ConfigError, match="'my_features:wakes' remembers the samples that it saw"):
        moved("wakes", 64, loud=1e8)
    monkeypatch.setattr(frozen.Frozen, "_look_again", lambda *_: None)
    assert moved("wakes", 64, loud=1e8) > 0.1, "the mutant looks once"


def test_a_function_cannot_change_how_much_it_says(plug):
    with pytest.raises(ConfigError, match="gave 8 numbers for a sample, and 4 before"):
        moved("grows", 4)


def test_the_order_of_the_samples_changes_no_bit(plug):
    function = frozen.Frozen("my_features:square", 64)
    rows = np.random.default_rng(2).random((30, 64))
    order = np.random.default_rng(3).permutation(30)
    assert function.of(rows, 3.0)[order].tobytes() == function.of(rows[order], 3.0).tobytes()
    assert function.of(rows[:0], 1.0).shape == (0, 128)


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
    assert cli.run(["check", str(plug / "bad.toml"), "--all"]) in (0, 1), "the plug-in may be elsewhere"
    assert "Disk: not known here, run file: data.features: 'my_features:mixed'" in capsys.readouterr().out
