from __future__ import annotations

import sys

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from dpgt_node.errors import ConfigError
from dpgt_node.learning.data import datasets
from dpgt_node.learning.data.datasets import load_dataset, load_file
from dpgt_node.learning.oracle import build_oracle
from tests.learning.cases import run

ROWS = [[0.5, 0, 1.5], [1.0, 1, -2.0], [2.0, 2, 3.25], [4.0, 0, 1e-3], [8.0, 1, 0.0]]


def csv_text(rows=ROWS, head="a,label,b") -> str:
    return "\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n"


def write(tmp_path, text: str, name: str = "t.csv"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / name


def load(path, **params):
    return load_dataset(f"{path.suffix[1:]}:{path}", params={"label": "label", "test_fraction": 0.0} | params)


def test_csv_takes_the_label_column_out(tmp_path):
    data = load(write(tmp_path, csv_text()))
    np.testing.assert_array_equal(np.sort(data.x_train[:, 0]), [0.5, 1, 2, 4, 8])
    assert data.x_train.shape == (5, 2) and data.classes == 3 and len(data.y_test) == 0
    at = int(np.flatnonzero(data.x_train[:, 0] == 2.0)[0])
    assert data.y_train[at] == 2 and data.x_train[at, 1] == 3.25


def test_the_test_fraction_is_the_end_of_one_fixed_permutation(tmp_path):
    rows = [[i, i % 2, -i] for i in range(50)]
    data = load(write(tmp_path, csv_text(rows)), test_fraction=0.3)
    order = np.random.default_rng(0).permutation(50)
    np.testing.assert_array_equal(data.x_train[:, 0], order[:35])
    np.testing.assert_array_equal(data.x_test[:, 0], order[35:])


def test_a_test_file_has_the_same_columns(tmp_path):
    train, test = write(tmp_path, csv_text()), write(tmp_path, csv_text(ROWS[:2]), "u.csv")
    data = load_dataset(f"csv:{train}", params={"label": "label"}, test=test)
    assert data.x_test.shape == (2, 2) and data.x_train.shape == (5, 2)
    other = write(tmp_path, csv_text(ROWS[:2], "a,label,c"), "v.csv")
    with pytest.raises(ConfigError, match=r"has other columns than t\.csv: 'c' for 'b'"):
        load_dataset(f"csv:{train}", params={"label": "label"}, test=other)


BAD = {
    "no such column": (csv_text(head="a,lable,b"), "has no column 'label'"),
    "twice": (csv_text(head="label,label,b"), "2 columns named 'label'"),
    "only labels": ("label\n1\n0\n", "no column besides"),
    "text": (csv_text([*ROWS, ["x", 1, 2.0]]), "holds something that is no number: row 6 of column 'a'$"),
    "missing": ("a,label,b\n1,,3\n", "column 'label' has 1 missing label: leave these rows out$"),
    "missing word": ("a,label,b\n1,cat,3\n2,?,4\n", "column 'label' has 1 missing label"),
    "word column": (csv_text([["x", 1, 2], ["y", 0, 1]]), r"column 'a' holds words, from row 1 on: list them under"),
    "commas at ends": ("a,label,\n1,0,\n", r"without values: does a comma end each line\?$"),
    "ragged": ("a,label,b\n1,0,3\n1,0\n", "has 3 values a row, but row 2 has 2$"),
    "beyond the names": ("a,label\n1,0,x\n", "has 3 values a row under 2 column names"),
    "head too short": ("a,label\n1,0,3\n", "3 values a row under 2 column names"),
    "half a label": (csv_text([[1, 0.5, 2]]), "holds 1 value that cannot be a label; labels are integers"),
    "huge label": (csv_text([[1, 1e300, 2]]), "labels are integers"),
    "many labels": (csv_text([[1, 7 * i, 2] for i in range(150)]), "holds 150 different labels in 150 rows: a number"),
    "nan": (csv_text([*ROWS, ["nan", 1, 2]]), r"has 1 missing value: 1 in 'a' \(first: row 6\); leave these rows"),
    "nan label": (csv_text([[1, "nan", 2]]), "column 'label' has 1 missing label"),
    "too large": (
        csv_text([[1, 1, "1e400"]]),
        "1 non-finite value, the first in row 1 of column 'b': it is infinite, or too large for a number",
    ),
    "no rows": ("a,label,b\n", "has no rows"),
    "empty": ("", "is empty"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_csv(tmp_path, case):
    text, message = BAD[case]
    with pytest.raises(ConfigError, match=message):
        load(write(tmp_path, text))


def test_labels_beyond_the_declared_classes(tmp_path):
    path = write(tmp_path, csv_text())
    assert load(path, classes=7).classes == 7
    with pytest.raises(ConfigError, match="column 'label' has label 2; the limit is 1"):
        load(path, classes=2)
    test = write(tmp_path, csv_text([[1, 9, 2], [1, 0, 2], [1, 8, 2]]), "test.csv")
    told = r"^\S*test\.csv: column 'label' has 2 labels that \[data\] classes does not name, the first in row 1$"
    with pytest.raises(ConfigError, match=told):
        load_dataset(f"csv:{path}", params={"label": "label", "classes": ("0", "1", "2")}, test=test)


def test_an_empty_cell_and_an_infinite_one_are_told_of_at_once(tmp_path):
    with pytest.raises(ConfigError, match=r"1 non-finite value, .*\n.* has 1 missing value: 1 in 'a' \(first: row 2"):
        load(write(tmp_path, csv_text([["inf", 1, 2], ["", 0, 1]])))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_text_of_other_editors(encoding, tmp_path):
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    path = write(tmp_path, csv_text())
    expected = load(path)
    path.write_bytes((mark + csv_text().replace("\n", "\r\n")).encode(encoding))
    assert np.array_equal(load(path).x_train, expected.x_train)


@pytest.mark.parametrize(
    ("head", "words"), [(b"\x1f\x8b", "packed by gzip"), (b"PK\x03\x04", "save it as CSV"), (b"PAR1", "parquet:PATH")]
)
def test_what_is_no_text_is_named(head, words, tmp_path):
    (tmp_path / "t.csv").write_bytes(head + bytes(40))
    with pytest.raises(ConfigError, match=words):
        load(tmp_path / "t.csv")


def test_columns_that_repeat_each_other_or_the_labels_are_said(tmp_path):
    rows = [[1, 0, 0, 2], [3, 1, 1, 4], [5, 2, 2, 6], [6, 0, 0, 9]]
    first, second = load(write(tmp_path, csv_text(rows, "a,label,copy,a"))).remarks
    assert "2 columns are named 'a'" in first and "'copy' is the same as the labels" in second


def test_not_text(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,label\n\xff\xfe,1\n")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load(tmp_path / "t.csv")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "absent.csv")


def test_parquet_holds_the_same_as_csv(tmp_path):
    columns = np.array(ROWS)
    table = pyarrow.table({"a": columns[:, 0], "label": columns[:, 1].astype(int), "b": columns[:, 2]})
    parquet.write_table(table, tmp_path / "t.parquet")
    one, other = load(write(tmp_path, csv_text())), load(tmp_path / "t.parquet")
    np.testing.assert_array_equal(one.x_train, other.x_train)
    np.testing.assert_array_equal(one.y_train, other.y_train)
    words = pyarrow.table({"a": ["one", "two"], "label": [0, 1]})
    parquet.write_table(words, tmp_path / "w.parquet")
    with pytest.raises(ConfigError, match=r"column 'a' holds words, from row 1 on"):
        load(tmp_path / "w.parquet")
    (tmp_path / "u.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(ConfigError, match="cannot be read as numbers"):
        load(tmp_path / "u.parquet")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "t.parquet").write_bytes(b"")
    datasets._table.cache_clear()
    with pytest.raises(ConfigError, match="pip install pyarrow"):
        load(tmp_path / "t.parquet")


def test_an_agents_own_table(tmp_path):
    path = write(tmp_path, csv_text())
    config = run("csv:elsewhere.csv", samples=2, label="label", classes=4)
    oracle = build_oracle(config, 1, data_path=path)
    assert oracle.samples == 5 and oracle.dimension == 4 * 3
    named = run("csv:elsewhere.csv", samples=2, label="label", classes=("a", "b", "c", "d"))
    assert build_oracle(named, 1, data_path=path).shape_sha256 == oracle.shape_sha256
    with pytest.raises(ConfigError, match="names no label column"):
        build_oracle(run("npz:elsewhere.npz", samples=2, classes=4), 1, data_path=path)


def test_own_files_are_read_by_their_ending(tmp_path):
    with pytest.raises(ConfigError, match="is not a complete NPZ"):
        load_file(write(tmp_path, "x", "t.dat"))


# --- plug-ins --------------------------------------------------------------------------------------------------------

PLUG_IN = """
import numpy as np
def good():
    return dict(x_train=np.eye(6), y_train=np.arange(6) % 2, x_test=np.eye(6)[:2], y_test=[0, 1])
def short():
    d = good()
    del d["y_test"]
    return d
def nothing(): return None
def ragged(): return dict(good(), x_train=[[1.0], [1.0, 2.0]])
def leaves(): raise SystemExit(3)
def talks(): raise ValueError("one line\\nand another")
def nan(): return dict(good(), x_train=np.full((6, 6), np.nan))
def fails(): raise OSError("the disk is gone")
number = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_plug_in.py").write_text(PLUG_IN)
    monkeypatch.syspath_prepend(tmp_path)
    datasets._plugin.cache_clear()
    yield "my_plug_in"
    sys.modules.pop("my_plug_in", None)


def test_a_plug_in_gives_the_arrays(module):
    oracle = build_oracle(run(f"{module}:good", samples=2), 0)
    assert oracle.samples == 2 and oracle.dimension == 14


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{}:short", "must return a mapping with x_train, y_train, x_test, y_test, not one without y_test$"),
        ("{}:nothing", "must return a mapping with x_train, y_train, x_test, y_test, not NoneType"),
        ("{}:ragged", "returns what is no array: ValueError"),
        ("{}:leaves", "failed: SystemExit: 3$"),
        ("{}:talks", "failed: ValueError: one line$"),
        ("{}:nan", "non-finite"),
        ("{}:fails", "failed: OSError: the disk is gone"),
        ("{}:number", "has no function number"),
        ("{}:absent", "has no function absent"),
        ("no_such_module_here:make", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_bad_plug_ins(module, name, message):
    with pytest.raises(ConfigError, match=message):
        load_dataset(name.format(module))


def test_a_host_s_own_test_table(tmp_path):
    """Its rows are the test set, whatever fraction the run file keeps back; arrays have their own."""
    own, test = write(tmp_path, csv_text()), write(tmp_path, csv_text(ROWS[:2]), "test.csv")
    data = load_file(own, {"label": "label", "own_test_fraction": 0.4}, 3, (), test)
    assert len(data.y_train) == 5 and data.y_test.tolist() == [0, 1] and data.x_test[0].tolist() == [0.5, 1.5]
    np.savez(tmp_path / "a.npz", x_train=np.zeros((1, 2)), y_train=[0], x_test=np.zeros((1, 2)), y_test=[0])
    with pytest.raises(ConfigError, match=r"data\.test: is for tables; a\.npz holds its own test samples"):
        load_file(tmp_path / "a.npz", {}, 3, (), test)
