from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from dpgt_node.errors import ConfigError, ExitCode
from dpgt_node.learning.data import datasets
from dpgt_node.learning.data.datasets import load_dataset, load_npz
from tests.learning.cases import blobs, save


def test_digits_as_the_interface_says():
    data = load_dataset("digits")
    with gzip.open(datasets.DIGITS_FILE, "rt") as file:
        rows = [[int(float(cell)) for cell in line.split(",")] for line in file]
    rows = [rows[i] for i in np.random.default_rng(0).permutation(1797)]
    np.testing.assert_array_equal(np.vstack([data.x_train, data.x_test]) * 16, [row[:64] for row in rows])
    np.testing.assert_array_equal(np.concatenate([data.y_train, data.y_test]), [row[64] for row in rows])
    assert data.x_train.shape == (1438, 64) and data.x_test.shape == (359, 64) and data.classes == 10
    assert data.x_train.dtype == np.float64 and data.y_train.dtype == np.int64


def test_digits_are_the_published_ones_to_the_byte():
    """The file as scikit-learn 1.9.1 has it (``sklearn/datasets/data/digits.csv.gz``), and what a run reads from it."""
    file = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
    assert hashlib.sha256(datasets.DIGITS_FILE.read_bytes()).hexdigest() == file
    data = load_dataset("digits")
    read = b"".join(a.tobytes() for a in (data.x_train, data.y_train, data.x_test, data.y_test))
    assert hashlib.sha256(read).hexdigest() == "2eafabe312701538e182a50440d05653a64ba1cb046bff7272bd99270a9c2ab2"


def test_digits_need_no_library():
    code = (
        "import sys; from dpgt_node.learning.data.datasets import load_dataset; load_dataset('digits');"
        "sys.exit(any(name in sys.modules for name in ('sklearn', 'scipy', 'torch')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "content",
    [None, gzip.compress(b"1,2\n"), b"no archive", datasets.DIGITS_FILE.read_bytes()[:5000]],
    ids=["missing", "another table", "no archive", "cut short"],
)
def test_digits_that_cannot_be_read_say_what_to_do(monkeypatch, tmp_path, content):
    path = tmp_path / "digits.csv.gz"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(datasets, "DIGITS_FILE", path)
    datasets._digits.cache_clear()
    with pytest.raises(ConfigError, match="reinstall dpgt-node"):
        load_dataset("digits")


def test_shared_arrays_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        load_dataset("digits").x_train[0, 0] = 1.0


def test_npz_round_trip(tmp_path):
    data = blobs()
    loaded = load_dataset(f"npz:{save(tmp_path / 'd.npz', data)}")
    for name in datasets.ARRAYS:
        np.testing.assert_array_equal(getattr(loaded, name), getattr(data, name))
    assert loaded.classes == 3


def test_npz_features_are_used_as_they_are_and_labels_are_classes_by_order(tmp_path):
    data = blobs()
    x8 = (np.abs(data.x_train) * 50).astype(np.uint8)
    y = np.where(data.y_train == 2, 7, 0).astype(np.uint8)
    loaded = load_npz(save(tmp_path / "d.npz", data, x_train=x8, y_train=y, y_test=np.full(10, 9)))
    np.testing.assert_array_equal(loaded.x_train, x8.astype(float))
    assert loaded.classes == 3 and loaded.names == ("0", "7", "9")  # 9 is in the test set alone
    np.testing.assert_array_equal(loaded.y_train, y // 7)
    assert load_npz(tmp_path / "d.npz", 10).classes == 10
    words = np.array(["no", "yes", "perhaps"])
    named = load_npz(save(tmp_path / "e.npz", data, y_train=words[data.y_train], y_test=words[data.y_test]))
    assert named.names == ("no", "perhaps", "yes")
    np.testing.assert_array_equal(np.array(named.names)[named.y_train], words[data.y_train])


def test_npz_pictures_have_the_shape_of_their_array(tmp_path):
    data = blobs(features=24)
    pictures = [x.reshape(len(x), 3, 2, 4) for x in (data.x_train, data.x_test)]
    loaded = load_npz(save(tmp_path / "d.npz", data, x_train=pictures[0], x_test=pictures[1]))
    assert loaded.image == (3, 2, 4)
    np.testing.assert_array_equal(loaded.x_train, data.x_train)
    np.testing.assert_array_equal(loaded.real_test(), data.x_test)
    none = load_npz(save(tmp_path / "e.npz", data, x_train=pictures[0], x_test=data.x_test[:0], y_test=data.y_test[:0]))
    assert none.image == (3, 2, 4) and none.x_test.shape == (0, 24)
    assert load_npz(save(tmp_path / "f.npz", data)).image is None


def test_npz_may_come_without_tests(tmp_path):
    data = blobs()
    loaded = load_npz(save(tmp_path / "d.npz", data, x_test=data.x_test[:0], y_test=data.y_test[:0]))
    assert loaded.x_test.shape == (0, 4) and loaded.classes == 3
    without = save(tmp_path / "e.npz", data, x_test=None, y_test=None)
    assert load_npz(without).x_test.shape == (0, 4)
    order = np.random.default_rng(0).permutation(30)
    kept = load_dataset(f"npz:{without}", params={"test_fraction": 0.2})
    np.testing.assert_array_equal(kept.x_train, data.x_train[order[:24]])
    np.testing.assert_array_equal(kept.x_test, data.x_train[order[24:]])
    np.testing.assert_array_equal(np.append(kept.y_train, kept.y_test), data.y_train[order])


def test_a_changed_file_is_read_again(tmp_path):
    path = save(tmp_path / "d.npz", blobs(30))
    assert len(load_npz(path).x_train) == 30
    save(path, blobs(31))
    assert len(load_npz(path).x_train) == 31


X, Y = blobs().x_train, blobs().y_train
NAN_ROW = np.where(np.arange(30)[:, None] == 11, np.nan, X)


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({"x_train": None}, "x_train", "missing; the file holds x_test, y_test, y_train"),
        ({"x_train": X[:, 0]}, "x_train", r"shape \(30,\)"),
        ({"x_train": X[:, :, None, None, None]}, "x_train", r"shape \(30, 4, 1, 1, 1\)"),
        ({"x_train": X + 0j}, "x_train", "complex128"),
        ({"x_train": X.astype(str)}, "x_train", "real numbers"),
        ({"x_train": X > 0}, "x_train", "bool"),
        ({"x_train": X.astype(object)}, "x_train", "Python objects"),
        ({"x_train": NAN_ROW}, "x_train", "4 non-finite values, the first in row 11"),
        ({"x_train": np.full((30, 4), np.longdouble("1e400"))}, "x_train", "non-finite"),
        ({"x_train": X[:0], "y_train": Y[:0]}, "x_train", "empty"),
        ({"x_train": X[:, :0]}, "x_train", "empty"),
        ({"x_test": np.zeros((10, 5))}, "x_test", "5 features, x_train has 4"),
        (
            {"x_train": X.reshape(30, 1, 2, 2), "x_test": np.zeros((10, 1, 4, 1))},
            "x_test",
            r"shape \(1, 4, 1\), x_train",
        ),
        ({"x_test": np.full((10, 4), np.inf)}, "x_test", "non-finite"),
        ({"y_train": Y[:-1]}, "y_train", "29 labels for 30 rows of x_train"),
        ({"y_test": Y}, "y_test", "30 labels for 10 rows of x_test"),
        ({"y_train": Y + 0.5}, "y_train", "float64; labels must be integers or words"),
        ({"y_train": Y[:, None]}, "y_train", r"shape \(30, 1\)"),
        ({"y_train": np.full(30, 2**64 - 1, dtype=np.uint64)}, "y_train", "a label beyond 2"),
    ],
)
def test_a_bad_npz_is_named_by_file_and_array(tmp_path, changes, key, message):
    path = save(tmp_path / "bad.npz", blobs(), **changes)
    with pytest.raises(ConfigError, match=message) as caught:
        load_npz(path)
    assert caught.value.exit_code is ExitCode.CONFIG
    assert [(p.source, p.key) for p in caught.value.problems] == [(str(path), key)]


def test_all_problems_of_a_file_at_once(tmp_path):
    path = save(tmp_path / "bad.npz", blobs(), x_train=NAN_ROW, y_train=Y[:, None], y_test=Y)
    with pytest.raises(ConfigError) as caught:
        load_npz(path)
    assert [p.key for p in caught.value.problems] == ["x_train", "y_train", "y_test"]


def test_files_that_are_not_archives(tmp_path):
    whole = save(tmp_path / "whole.npz", blobs()).read_bytes()
    single = io.BytesIO()
    np.save(single, X)
    pickled = io.BytesIO()
    np.save(pickled, np.array([print], dtype=object), allow_pickle=True)
    cases = {
        "empty": b"",
        "text": b"x_train,y_train\n1,2\n",
        "single": single.getvalue(),
        "pickle": b"\x80\x04K\x01.",
        "npy-objects": pickled.getvalue(),
        **{f"cut-{share}": whole[: int(len(whole) * share)] for share in (0.02, 0.3, 0.7, 0.999)},
    }
    for name, content in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            load_npz(path)
        assert {p.source for p in caught.value.problems} == {str(path)}, name
        assert "unsafely" not in str(caught.value) and "pickle.load" not in str(caught.value), name
    for name, missing in (("absent", tmp_path / "absent.npz"), ("folder", tmp_path)):
        with pytest.raises(ConfigError) as caught:
            load_npz(missing)
        assert caught.value.problems[0].source == str(missing), name


def test_a_member_that_is_torn(tmp_path):
    path = save(tmp_path / "torn.npz", blobs())
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("y_test.npy").header_offset
    content[start + 200] ^= 0xFF  # the CRC of this member no longer fits
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_npz(path)
    assert [p.key for p in caught.value.problems] == ["y_test"]
