"""What a run file states of a table's columns: bounds, words, order, empty cells; and of its labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from dpgt_node.config import canonical_json, differing_keys, parse_document, to_toml
from dpgt_node.config.data import without_paths
from dpgt_node.config.declare.reader import parse_toml
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.columns import Columns
from dpgt_node.learning.data.datasets import load_dataset, load_file
from dpgt_node.learning.data.features import sphere
from dpgt_node.learning.data.labels import LabelError, numbered
from dpgt_node.learning.oracle import build_oracle
from tests.cli import documents

HEAD = "age,site,kind,id"
ROWS = [
    [30, "east", "benign", 7],
    [90, "west", "malign", 8],
    [18, "", "benign", 3],
    ["", "north", "malign", 1],
    [54, "east", "benign", 2],
]
STATED = {
    "columns": ["site", "age"],
    "bounds": {"age": [18, 80]},
    "categories": {"site": ["east", "west"]},
    "missing": "middle",
}
TABLE = "\n".join([HEAD, *(",".join(map(str, row)) for row in ROWS)]) + "\n"


def run_of(folder: Path, text: str = TABLE, **stated: object):
    (folder / "t.csv").write_text(text)
    document = documents.quadratic(2, 2)
    document["data"] = {"dataset": "csv:t.csv", "label": "kind", "test_fraction": 0.0, **stated}
    return parse_document(document, "run.toml", folder)


def loaded(run):
    return load_dataset(f"csv:{run.base / 't.csv'}", params=run.data.params)


def in_order(data):
    """Rows in the order of the file."""
    return data.x_train[np.argsort(np.random.default_rng(0).permutation(len(data.x_train)))]


def test_bounds_words_and_empty_cells_become_numbers(tmp_path: Path) -> None:
    data = loaded(run_of(tmp_path, **STATED))
    age = [2 * (30 - 18) / 62 - 1, 1.0, -1.0, 0.0, 2 * (54 - 18) / 62 - 1]
    expected = np.array([[1, 0], [0, 1], [0, 0], [0, 0], [1, 0]])
    np.testing.assert_allclose(in_order(data), np.column_stack([expected, age]), rtol=1e-15)
    assert data.names == ("benign", "malign") and data.y_train.sum() == 2
    assert Columns.of(run_of(tmp_path, **STATED).data.params).width == data.x_train.shape[1] == 3
    outside, strange = sorted(data.remarks)
    assert (
        "'age' has 1 value outside its bounds 18 to 80" in outside
        and "'site' has words" in strange
        and "in 1 of 5 rows" in strange
    )


def test_order_and_further_columns_of_a_file_do_not_matter_where_they_are_stated(tmp_path: Path) -> None:
    expected = loaded(run_of(tmp_path, **STATED)).x_train
    turned = "\n".join(",".join(reversed(line.split(","))) for line in TABLE.splitlines()) + "\n"
    np.testing.assert_array_equal(loaded(run_of(tmp_path, turned, **STATED)).x_train, expected)


def test_what_is_stated_survives_writing_and_is_part_of_the_run(tmp_path: Path) -> None:
    run = run_of(tmp_path, **STATED, classes=["benign", "malign"])
    again = parse_document(parse_toml(to_toml(run), "again"), "again", tmp_path)
    assert again == run and "[data.bounds]\nage = [" in to_toml(run)
    other = run_of(tmp_path, **{**STATED, "bounds": {"age": [18, 81]}}, classes=["benign", "malign"])
    assert canonical_json(other) != canonical_json(run)
    assert differing_keys(canonical_json(other), canonical_json(run)) == ["data.bounds"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"missing": None},
            r"2 missing values: 1 in 'site' \(first: row 3\), 1 in 'age' \(first: row 4\); ",
        ),
        ({"categories": None}, r"column 'site' holds words, from row 1 on"),
        ({"columns": ["site", "agge"]}, r"has no column 'agge'.*did you mean \"age\""),
        ({"columns": ["site", "kind"]}, "column 'kind' holds the labels"),
        ({"bounds": {"agee": [1, 2]}}, "has no column 'agee'"),
    ],
)
def test_a_table_that_is_not_as_stated(changes, words: str, tmp_path: Path) -> None:
    stated = {name: value for name, value in {**STATED, **changes}.items() if value is not None}
    with pytest.raises(ConfigError, match=words):
        loaded(run_of(tmp_path, **stated))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bounds": {"age": [80, 18]}}, "low < high"),
        ({"bounds": {"age": 3}}, "must be .low, high., not 3"),
        ({"bounds": []}, "must be a table of columns"),
        ({"categories": {"site": []}}, "must be a list of words"),
        ({"columns": ["a", "a"]}, '"a" is there twice'),
        ({"missing": "mean"}, "missing"),
    ],
)
def test_statements_that_say_nothing(changes, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        run_of(tmp_path, **{**STATED, **changes})


def test_columns_of_different_size_get_a_hint(tmp_path: Path) -> None:
    text = "a,b,kind\n" + "".join(f"{i % 7 * 0.1},{i % 5 * 1000},{i % 2}\n" for i in range(40))
    (said,) = loaded(run_of(tmp_path, text)).remarks
    assert "'b' reaches 4e+03 and 'a' 0.6" in said and "[data] bounds" in said
    assert loaded(run_of(tmp_path, text, bounds={"b": [0, 5000]})).remarks == ()


def test_a_published_run_file_names_no_file(tmp_path: Path) -> None:
    run = run_of(tmp_path, **STATED)
    params = {name: value for name, value in run.data.params.items() if name != "test_fraction"}
    said = to_toml(without_paths(replace(run, data=replace(run.data, params={**params, "test": "ward-7.csv"}))))
    assert "ward-7" not in said and "t.csv" not in said and said.count("not-published") == 2


def test_a_chosen_column_is_one_column(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has 2 columns 'a', which data\.columns"):
        loaded(run_of(tmp_path, "a,a,kind\n1,2,0\n3,4,1\n5,5,1\n", columns=["a"]))


def test_parquet_has_words_too(tmp_path: Path) -> None:
    run = run_of(tmp_path, **STATED)
    columns = list(zip(*ROWS, strict=True))
    table = pyarrow.table(
        {
            "age": pyarrow.array([None if v == "" else float(v) for v in columns[0]]),
            "site": pyarrow.array([v or None for v in columns[1]]).dictionary_encode(),
            "kind": list(columns[2]),
        }
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    data = load_dataset(f"parquet:{tmp_path / 't.parquet'}", params=run.data.params)
    np.testing.assert_array_equal(data.x_train, loaded(run).x_train)
    np.testing.assert_array_equal(data.y_train, loaded(run).y_train)


def test_a_part_of_every_host_s_own_table_is_its_test_set(tmp_path: Path) -> None:
    stated = {**STATED, "classes": ["benign", "malign"], "own_test_fraction": 0.4}
    oracle = build_oracle(run_of(tmp_path, **stated), 0, data_path=tmp_path / "t.csv")
    assert oracle.samples == 3 and oracle.tested == 2


def test_a_test_table_of_one_s_own_is_tested_on_and_nothing_else_is(tmp_path: Path) -> None:
    run = run_of(tmp_path, **STATED, classes=["benign", "malign"])
    (tmp_path / "later.csv").write_text("".join(TABLE.splitlines(keepends=True)[:3]))
    oracle = build_oracle(run, 0, data_path=tmp_path / "t.csv", data_test=tmp_path / "later.csv")
    assert oracle.samples == 5 and oracle.tested == 2
    with pytest.raises(ConfigError, match="is needed where a node has data of its own"):
        build_oracle(run_of(tmp_path, **STATED), 0, data_path=tmp_path / "t.csv")


def test_samples_keep_their_own_labels_in_both_parts_and_under_another_order_of_columns(tmp_path: Path) -> None:
    """A row's label follows from its number: whatever row of whichever part is looked at."""
    rows = [(i, -i, "odd" if i % 2 else "even") for i in range(40)]
    run = run_of(tmp_path, "a,b,kind\n" + "".join(f"{a},{b},{kind}\n" for a, b, kind in rows), columns=["a", "b"])
    (tmp_path / "other.csv").write_text("kind,b,a\n" + "".join(f"{kind},{b},{a}\n" for a, b, kind in rows[:9]))
    parts = load_dataset(f"csv:{tmp_path / 't.csv'}", params={**run.data.params, "test_fraction": 0.25})
    files = load_dataset(f"csv:{tmp_path / 't.csv'}", params=run.data.params, test=tmp_path / "other.csv")
    assert (len(parts.y_train), len(parts.y_test)) == (30, 10) and (len(files.y_train), len(files.y_test)) == (40, 9)
    assert sorted([*parts.x_train[:, 0], *parts.x_test[:, 0]]) == list(range(40)), "no row is in both"
    for x, y in ((d.x_train, d.y_train) if part else (d.x_test, d.y_test) for d in (parts, files) for part in (0, 1)):
        np.testing.assert_array_equal(x[:, 0], -x[:, 1])
        np.testing.assert_array_equal(y, x[:, 0] % 2)
    assert files.x_test[:, 0].tolist() == list(range(9)) and files.names == ("even", "odd")
    own = load_file(tmp_path / "t.csv", run.data.params, names=("even", "odd"), test=tmp_path / "other.csv")
    (tmp_path / "other.csv").write_text("kind,b,a\nodd,-7,7\n")
    after = load_file(tmp_path / "t.csv", run.data.params, names=("even", "odd"), test=tmp_path / "other.csv")
    assert (len(own.y_test), len(after.y_test)) == (9, 1), "a file that changed is read again"


# ---------------------------------------------------------------- labels
def test_labels_by_name_by_number_and_by_what_is_there() -> None:
    words, numbers = np.array(["b", "a", "b"]), np.array([7, -1, 7])
    assert numbered((words,), None).names == ("a", "b") and numbered((words,), None).labels[0].tolist() == [1, 0, 1]
    found = numbered((numbers, np.array([9])), None)
    assert found.names == ("-1", "7", "9") and found.labels[0].tolist() == [1, 0, 1] and found.labels[1].tolist() == [2]
    assert numbered((np.arange(3),), None).names == ()
    # One host's part of the labels has no say in what a label means.
    assert numbered((np.array([3, 7]),), ("3", "5", "7")).labels[0].tolist() == [0, 2]
    assert numbered((np.array([0, 1]),), ("no", "yes")).labels[0].tolist() == [0, 1]
    assert numbered((np.array(["yes", "0"]),), ("no", "yes")).labels[0].tolist() == [1, 0]
    both = numbered((np.array(["2", "b"]), np.array([1, 2])), None)
    assert both.names == ("1", "2", "b") and [part.tolist() for part in both.labels] == [[1, 2], [0, 1]]


@pytest.mark.parametrize(
    ("labels", "stated", "words"),
    [
        (np.array([0]), ("3", "5"), "1 label that .* does not name"),
        (np.array(["x"]), 2, "are words: name the classes"),
        (np.array([2]), 2, "has label 2; the limit is 1"),
        (np.array([1, -1]), 2, "has a negative label: -1"),
        (np.arange(200) * 3, None, "200 different labels in 200 rows"),
    ],
)
def test_labels_that_are_none(labels, stated, words: str) -> None:
    with pytest.raises(LabelError, match=words):
        numbered((labels,), stated)


def test_a_sphere_keeps_rows_apart_that_differ_in_size_alone() -> None:
    rows = np.array([[0.5, 0.5], [1.0, 1.0], [0.0, 0.0], [1e300, 1e300]])
    found = sphere(rows)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)
    np.testing.assert_allclose(found[0], np.array([0.5, 0.5, 2**0.5 / 4]) / np.sqrt(0.5 + 1 / 8))
    assert found[2].tolist() == [0.0, 0.0, 1.0] and abs(found[0, 2] - found[1, 2]) > 0.1
