"""Data that are not what their owner thinks: refused where nobody can mean it, else said before a run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from PIL import Image

from dpgt_node import cli
from dpgt_node.config import load_run
from dpgt_node.durable import contents
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.datasets import load_dataset
from dpgt_node.learning.oracle import odd_about_data
from tests.cli import documents
from tests.learning.data.files import write_pictures

N = 60
RNG = np.random.default_rng(0)
LABELS = np.arange(N) % 3


def run_of(folder: Path, dataset: str, **more: object) -> Path:
    document = documents.quadratic(3, 2)
    document["data"] = {"dataset": dataset, **more}
    path = folder / "run.toml"
    path.write_text(tomli_w.dumps(document), encoding="utf-8")
    return path


def npz(folder: Path, x: np.ndarray | None = None, y: np.ndarray = LABELS) -> Path:
    x = RNG.normal(size=(N, 4)) if x is None else x
    np.savez(folder / "data.npz", x_train=x, y_train=y, x_test=x[:0], y_test=y[:0])
    return run_of(folder, "npz:data.npz")


def csv(folder: Path, head: str, rows: list[str]) -> Path:
    (folder / "data.csv").write_text("\n".join([head, *rows]), encoding="utf-8")
    return run_of(folder, "csv:data.csv", label="y")


def table(separator: str = ",", point: str = ".", number: bool = False) -> list[str]:
    numbers = [[f"{i * 0.313 % 1:.4f}", f"{i * 0.717 % 1:.4f}", str(i % 3)] for i in range(N)]
    if number:
        numbers = [[str(i), *row] for i, row in enumerate(numbers)]
    return [separator.join(row).replace(".", point) for row in numbers]


def said(path: Path) -> str:
    return "\n".join(odd_about_data(load_run(path)))


def test_ordinary_data_are_not_odd(tmp_path: Path) -> None:
    write_pictures(tmp_path / "p", each=8)
    for part in ("train", "test"):
        for number, name in enumerate(("dog", "cat")):
            (tmp_path / "p" / part / name).rename(tmp_path / "p" / part / str(number))
    assert said(run_of(tmp_path, "folder:p")) == "", "classes that are named 0 and 1"
    assert said(npz(tmp_path)) == "" and said(csv(tmp_path, "a,b,y", table())) == ""
    assert said(csv(tmp_path, "sep=,", ["a,b,y", *table()])) == "", "as a spreadsheet begins a file"


def test_labels_that_are_other_numbers_keep_their_names(tmp_path: Path) -> None:
    labels = np.array([3, 7, 2000])[LABELS]
    assert "labels are 3, 7, 2000: 3 classes, which keep these names" in said(npz(tmp_path, y=labels))
    data = load_dataset(f"npz:{tmp_path / 'data.npz'}")
    assert data.names == ("3", "7", "2000") and np.array_equal(data.y_train, LABELS)
    assert "too few" in said(run_of(tmp_path, "npz:data.npz", classes=2001))


def test_a_training_set_that_teaches_nothing_is_said(tmp_path: Path) -> None:
    npz(tmp_path, y=np.zeros(N, int))
    assert "all 60 training samples are of one class" in said(run_of(tmp_path, "npz:data.npz", classes=2))
    npz(tmp_path, x=RNG.normal(size=(9, 4)), y=LABELS[:9])
    assert "9 training samples for 3 classes: too few" in said(run_of(tmp_path, "npz:data.npz"))
    assert said(npz(tmp_path, y=np.arange(N))).startswith("each of the 60 training samples has a class of its own")


@pytest.mark.parametrize("kind", [np.uint8, np.float64, np.int32])
def test_features_that_nobody_scaled(kind: type, tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (N, 4)).astype(kind)
    assert "divide by 255, if they are pixels" in said(npz(tmp_path, pixels))
    assert said(run_of(tmp_path, "npz:data.npz", normalise="l2")) == ""
    assert said(npz(tmp_path, pixels / 255)) == ""


def test_copies_of_a_sample_are_counted(tmp_path: Path) -> None:
    x = RNG.normal(size=(N, 4))
    x[5] = x[9] = x[3]
    assert "exact copies of other training samples: 2." in said(npz(tmp_path, x))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pictures_with_channels_last_are_refused(channels: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="its channels come last"):
        said(npz(tmp_path, RNG.random((N, 28, 28, channels))))
    assert said(npz(tmp_path, RNG.random((N, channels, 28, 28)))) == ""


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
def test_an_index_that_was_written_too_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="numbers the rows: write the table without its index"):
        said(csv(tmp_path, f"{name},a,b,y", table(number=True)))


def test_a_named_column_that_numbers_the_rows_is_said(tmp_path: Path) -> None:
    assert "column 'id' numbers the rows" in said(csv(tmp_path, "id,a,b,y", table(number=True)))


@pytest.mark.parametrize(
    ("head", "separator", "point", "words"),
    [
        ("a;b;y", ";", ",", "separates its columns by ';'"),
        ("a;b;y", ";", ".", "separates its columns by ';'"),
        ("a\tb\ty", "\t", ".", "separates its columns by a tab"),
        ("a,b,y", ",", ",", "a comma inside a number counts as a separator"),
    ],
)
def test_tables_of_other_places(head: str, separator: str, point: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        said(csv(tmp_path, head, table(separator, point)))


def test_hidden_files_are_no_data(tmp_path: Path) -> None:
    root = tmp_path / "pictures"
    write_pictures(root)
    clean = load_dataset(f"folder:{root}")
    picture = root / "train" / "cat" / "0.png"
    for name in (".ipynb_checkpoints", "__MACOSX", "@eaDir", ".thumbnails", "$RECYCLE.BIN", "__pycache__"):
        for folder in (root / "train" / name, root / "train" / "cat" / name):
            folder.mkdir()
            shutil.copy(picture, folder / "0.png")
    (root / "train" / "dog" / "._3.png").write_bytes(b"\x00\x05\x16\x07")
    (root / "train" / ".DS_Store").write_bytes(b"x")
    found = load_dataset(f"folder:{root}")
    assert found.names == clean.names == ("cat", "dog")
    assert np.array_equal(found.y_train, clean.y_train) and np.array_equal(found.x_train[:], clean.x_train[:])


def test_empty_class_folders_and_copies_of_pictures_are_said(tmp_path: Path) -> None:
    root = tmp_path / "pictures"
    write_pictures(root)
    (root / "train" / "emu").mkdir()
    shutil.copy(root / "train" / "cat" / "0.png", root / "train" / "dog" / "again.png")
    words = said(run_of(tmp_path, f"folder:{root}"))
    assert "class folder 'emu' holds no picture" in words and "exact copies of other training samples: 1." in words


def test_classes_that_nobody_learns_and_folders_that_differ_in_case_are_said(tmp_path: Path) -> None:
    root = tmp_path / "pictures"
    write_pictures(root)
    for part, name in (("test", "bird"), ("train", "Cat")):
        (root / part / name).mkdir(parents=True)
        shutil.copy(root / "train" / "dog" / "0.png", root / part / name / "x.png")
    words = said(run_of(tmp_path, f"folder:{root}"))
    assert "class folder 'bird' has test pictures alone: nobody learns it" in words
    assert "class folders that differ in case are classes of their own: Cat, cat" in words


@pytest.mark.parametrize("what", ["empty", "torn", "size", "pipe"])
def test_check_refuses_a_picture_that_launch_would_refuse(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It used to decode those of the first agent at most; a pipe made launch wait for ever."""
    root = tmp_path / "pictures"
    write_pictures(root)
    bad = root / "train" / "dog" / "z.png"
    if what == "pipe":
        os.mkfifo(bad)
    elif what == "size":
        Image.new("L", (6, 6)).save(bad)
    else:
        bad.write_bytes(b"" if what == "empty" else (root / "train" / "dog" / "0.png").read_bytes()[:40])
    run_of(tmp_path, f"folder:{root}", normalise="l2")  # or check reads every picture for the largest norm
    assert cli.run(["check", str(tmp_path / "run.toml")]) == 1
    assert f"Refused: {bad}: " in " ".join(capsys.readouterr().out.split())
    assert cli.run(["simulate", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out")]) == 2
    assert f"{bad}: " in capsys.readouterr().err


def test_what_a_desktop_leaves_behind_fills_no_folder(tmp_path: Path) -> None:
    for name in (".DS_Store", "Thumbs.db", "._run.toml"):
        (tmp_path / name).touch()
    assert contents(tmp_path) == [] == contents(tmp_path / "absent")
    (tmp_path / "kept").touch()
    assert contents(tmp_path) == ["kept"]


@pytest.mark.parametrize("verb", [("check",), ("data", "show"), ("simulate", "--out", "out")])
def test_it_is_said_where_users_look(
    verb: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = npz(tmp_path, y=np.arange(N) % 10 + 1)
    assert cli.run([*verb, str(path)]) == 0
    shown = capsys.readouterr()
    assert "10 classes, which keep these names" in shown.out + shown.err
