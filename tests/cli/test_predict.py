"""``dpgt predict``: the classes of new rows by their names, from the columns as the run file states them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from dpgt_node import cli
from dpgt_node.cli.results.evaluate import _worth
from dpgt_node.learning.published import Score
from tests.learning.data.files import write_pictures

RUN = """
name = "kinds"
[algorithm]
mechanism = "noise-once"
iterations = 60
[scheme]
kind = "S2"
alpha = 0.3
beta = 0.15
gamma = 2.0
p_m = 1.0
samples = "full"
[noise]
multiplier = 0.0
[graph]
agents = 2
R = { generator = "ring" }
C = { generator = "ring" }
[data]
dataset = "csv:t.csv"
label = "kind"
classes = ["small", "large"]
normalise = "sphere"
columns = ["site", "size"]
missing = "middle"
[data.bounds]
size = [0, 100]
[data.categories]
site = ["east", "west"]
[model]
name = "softmax"
temperature = 4.0
[privacy]
clip_l2 = 1.0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of large and small things, made by a run."""
    made = tmp_path_factory.mktemp("kinds")
    rng = np.random.default_rng(0)
    size = rng.uniform(0, 100, 120).round(2)
    rows = [f"{i},{s},{'large' if s > 50 else 'small'},{rng.choice(['east', 'west'])}" for i, s in enumerate(size)]
    (made / "t.csv").write_text("id,size,kind,site\n" + "\n".join(rows) + "\n")
    (made / "run.toml").write_text(RUN)
    assert cli.run(["simulate", str(made / "run.toml"), "--out", str(made / "out")]) == 0
    assert cli.run(["export", str(made / "out"), "--out", str(made / "m")]) == 0
    return made


def test_rows_get_names_in_the_order_of_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "new.csv").write_text("size,site,note\n95,east,a\n3,west,b\n,east,c\n120,north,d\n")
    capsys.readouterr()
    assert cli.run(["predict", str(folder / "m"), "--data", str(folder / "new.csv")]) == 0
    out, err = capsys.readouterr()
    head, *found = out.splitlines()
    assert "new.csv: column 'site' has words that categories does not list in 1 of 4 rows" in err
    assert "column 'size' has 1 value outside its bounds 0 to 100" in err
    assert head == "class" and (found[0], found[1], found[3]) == ("large", "small", "large")
    asked = ["predict", str(folder / "m"), "--data", str(folder / "new.csv"), "--chances", "--format", "json"]
    assert cli.run(asked) == 0
    out, err = capsys.readouterr()
    said = json.loads(out)
    for one in said:
        assert sum(one["chances"].values()) == pytest.approx(1.0)
        assert max(one["chances"], key=one["chances"].get) == one["class"]
    assert "chances: at the temperature 4 of the run file" in err and "fits stand-in" in err
    assert cli.run([*asked, "--temperature", "2"]) == 0
    out, err = capsys.readouterr()
    assert "the temperature 2 that you gave" in " ".join(err.split())
    for one, softer in zip(said, json.loads(out), strict=True):
        ratio = [each["chances"]["large"] / each["chances"]["small"] for each in (one, softer)]
        assert ratio[1] == pytest.approx(ratio[0] ** 0.5)
    assert cli.run(["predict", str(folder / "m"), "--data", str(folder / "new.csv"), "--temperature", "2"]) == 2
    assert "--temperature: changes no class" in capsys.readouterr().err


def test_the_exported_weights_are_x_over_the_temperature_and_the_statement_says_so(folder: Path) -> None:
    held = load_file(folder / "m/model.safetensors")
    x = np.load(folder / "out/agents/agent-1/state/x_final.npy")
    np.testing.assert_allclose(4.0 * np.concatenate([held["weight"].ravel(), held["bias"]]), x, rtol=1e-15)
    said = (folder / "m/PRIVACY.md").read_text()
    assert "The weights are x divided by 4, the temperature in the run file" in said


def test_evaluate_says_what_the_chances_are_worth(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, model = folder / "t.csv", str(folder / "m")
    assert cli.run(["predict", model, "--data", str(table), "--chances", "--format", "json"]) == 0
    rows = [one["chances"] for one in json.loads(capsys.readouterr().out)]
    labels = [line.split(",")[2] for line in table.read_text().splitlines()[1:]]
    assert cli.run(["evaluate", model, "--data", str(table), "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["mean_highest_chance"] == pytest.approx(np.mean([max(row.values()) for row in rows]))
    assert said["loss"] == pytest.approx(-np.mean([np.log(row[y]) for row, y in zip(rows, labels, strict=True)]))
    T = str(said["temperature"])
    asked = ["predict", model, "--data", str(table), "--chances", "--format", "json", "--temperature", T]
    assert cli.run(asked) == 0
    rows = [one["chances"] for one in json.loads(capsys.readouterr().out)]
    loss = -np.mean([np.log(row[y]) for row, y in zip(rows, labels, strict=True)])
    assert said["loss_at_temperature"] == pytest.approx(loss) and loss < said["loss"]
    assert cli.run(["evaluate", model, "--data", str(table)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert (
        f"At --temperature {float(format(said['temperature'], '.2g')):g} of `dpgt predict` the loss is {loss:.4f}"
        in text
    )
    assert "so the model is too modest. Equal chances have a loss of 0.6931." in text
    best = Score(0.5, 0.9, 50, 0, 2, 0.7, 1.0, 0.49)
    said = "too modest. Equal chances have a loss of 0.6931. No --temperature of `dpgt predict` makes the loss less"
    assert said in _worth(best) and "No --temp" not in _worth(replace(best, highest=0.9))
    sure = replace(best, temperature=384.2, loss_then=0.1)
    assert "At --temperature 380 of" in _worth(sure)
    few = _worth(replace(sure, samples=49))
    assert "fewer than 50 rows do not tell" in few and "--temperature" not in few and "so the model" not in few


def test_the_census_names_the_classes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["data", "show", str(folder / "run.toml"), "--plot", str(folder / "census.svg")]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["agent", "samples", "small", "large"]


def test_predictions_are_those_that_evaluate_counts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    table = folder / "t.csv"
    assert cli.run(["predict", str(folder / "m"), "--data", str(table)]) == 0
    found = capsys.readouterr().out.splitlines()[1:]
    labels = [line.split(",")[2] for line in table.read_text().splitlines()[1:]]
    assert cli.run(["evaluate", str(folder / "m"), "--data", f"csv:{table}", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == np.mean(np.array(found) == np.array(labels)) > 0.9


def test_an_owner_without_test_rows_is_told_what_to_add_and_where(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = folder / "NODE.toml"
    node.write_text(NODE)
    asked = ["evaluate", str(folder / "m"), "--format", "json", "--node", str(node)]
    assert cli.run(asked) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{node}: data.test: agent-1's t.csv has no test samples: add test = " in line
    node.write_text(NODE.replace("[data]\n", '[data]\ntest = "t.csv"\n'))
    assert cli.run(asked) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 120
    node.write_text(NODE.replace('path = "t.csv"', "shard = 1"))
    assert cli.run(asked) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 24, "a node without data of its own has the run's"


NODE = """
name = "agent-1"
run = "run.toml"
listen = "127.0.0.1:7701"
coordinator = "127.0.0.1:7700"
state_dir = "state"
[data]
path = "t.csv"
[tls]
insecure = true
"""


def test_an_array_is_taken_as_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.array([[1.0, 0.0, 0.9], [0.0, 1.0, -0.9]])
    np.save(folder / "x.npy", x)
    capsys.readouterr()
    assert cli.run(["predict", str(folder / "m"), "--data", str(folder / "x.npy")]) == 0
    held = load_file(folder / "m/model.safetensors")
    lifted = np.hstack([x, np.full((2, 1), 3**0.5 / 4)])
    lifted /= np.linalg.norm(lifted, axis=1, keepdims=True)
    best = (lifted @ held["weight"].T + held["bias"]).argmax(axis=1)
    assert capsys.readouterr().out.split() == ["class", *(["small", "large"][i] for i in best)]


def test_pictures_are_told_by_file_in_folders_and_in_arrays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pictures(Path("p"), each=5)
    text = RUN[: RUN.index("[data]")] + PICTURES + RUN[RUN.index("[privacy]") :]
    Path("run.toml").write_text(text)
    for step in ("simulate run.toml --out out", "export out --out m"):
        assert cli.run(step.split()) == 0

    def told(data: str, *options: str) -> str:
        capsys.readouterr()
        assert cli.run(["predict", "m", "--data", data, *options]) == 0
        return capsys.readouterr().out

    assert told("p/test/dog/1.png").splitlines() == ["file,class", "p/test/dog/1.png,dog"]
    by_class = [f"{name}/{i}.png,{name}" for name in ("cat", "dog") for i in range(2)]
    assert told("p/test").splitlines()[1:] == by_class
    assert told("p/test/cat").split() == ["file,class", "0.png,cat", "1.png,cat"]
    (one,) = json.loads(told("p/test/cat/0.png", "--chances", "--format", "json"))
    assert (one["file"], one["class"]) == ("p/test/cat/0.png", "cat")
    assert sum(one["chances"].values()) == pytest.approx(1.0)
    x = np.stack([np.full((7, 6), value, np.uint8) for value in (12, 203, 9)])
    np.save("x.npy", x)
    np.save("last.npy", x[..., None] / 255)
    np.savez("x.npz", x_test=x, y_test=np.zeros(3))
    Image.new("RGB", (6, 7), (200, 200, 200)).save("coloured.png")
    for name in ("x.npy", "last.npy", "x.npz"):
        assert told(name).split() == ["class", "cat", "dog", "cat"]
    assert told("coloured.png").split() == ["file,class", "coloured.png,dog"]
    assert cli.run(["predict", "m", "--data", "coloured.png"]) == 0
    assert "1 of 1 pictures are no grey ones" in capsys.readouterr().err
    np.savez("t.npz", x_train=x[..., None], y_train=["cat", "dog", "cat"])
    assert cli.run(["evaluate", "m", "--data", "t.npz", "--format", "json"]) == 2
    assert "its channels come last" in capsys.readouterr().err
    np.savez("t.npz", x_train=x, y_train=["cat", "dog", "cat"])
    assert cli.run(["evaluate", "m", "--data", "t.npz", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1.0, "bytes are pixels for this model"
    np.save("far.npy", x.astype(float))
    np.save("wide.npy", np.zeros((2, 9, 9, 3)))
    Image.new("L", (9, 7)).save("p/test/cat/odd.png")
    Path("p/test/dog/0.png").write_bytes(b"no picture")
    for data, words in (
        ("p/test/cat", "odd.png: is 9 x 7 pixels, the model takes 6 x 7"),
        ("p/test/dog", "0.png: is no readable picture"),
        ("far.npy", "numbers from 9 to 203, and pixels are 0 to 1"),
        ("wide.npy", "the model takes pictures of 1 x 7 x 6: (N, 1, 7, 6), (N, 7, 6)"),
        ("absent.png", "No such file"),
        ("out", "holds no picture"),
    ):
        capsys.readouterr()
        assert cli.run(["predict", "m", "--data", data]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert words in line


PICTURES = """
[data]
dataset = "folder:p"
"""


def test_a_model_of_columns_takes_no_pictures(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("L", (6, 7)).save(tmp_path / "x.png")
    assert cli.run(["predict", str(folder / "m"), "--data", str(tmp_path / "x.png")]) == 2
    assert "is of pictures, and the model takes samples of 3 numbers: give a table" in capsys.readouterr().err


def test_a_model_without_stated_columns_takes_all_but_the_label(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the file's order, wherever the label stands and whether or not it is there."""
    text = RUN[: RUN.index("columns =")] + RUN[RUN.index("[model]") :]
    (tmp_path / "run.toml").write_text(text)
    rng = np.random.default_rng(2)
    rows = [(f"{a:.2f}", f"{b:.2f}", "large" if a > b else "small") for a, b in rng.uniform(-1, 1, (80, 2))]
    (tmp_path / "t.csv").write_text("a,kind,b\n" + "".join(f"{a},{kind},{b}\n" for a, b, kind in rows))
    assert cli.run(["simulate", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out")]) == 0
    assert cli.run(["export", str(tmp_path / "out"), "--out", str(tmp_path / "m")]) == 0
    (tmp_path / "new.csv").write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b, _ in rows))
    found = []
    for name in ("new.csv", "t.csv"):
        capsys.readouterr()
        assert cli.run(["predict", str(tmp_path / "m"), "--data", str(tmp_path / name)]) == 0
        found.append(capsys.readouterr().out.split())
    assert found[0] == found[1] and found[0][0] == "class"
    assert np.mean([one == kind for one, (_, _, kind) in zip(found[0][1:], rows, strict=True)]) > 0.9
    (tmp_path / "wide.csv").write_text("a,b,c\n1,2,3\n")
    assert cli.run(["predict", str(tmp_path / "m"), "--data", str(tmp_path / "wide.csv")]) == 2
    assert "numbers a sample, the model takes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "size\n1\n", "has no column 'site'"),
        ("a.csv", "size,site\nlarge,east\n", "column 'size' holds words"),
        ("a.txt", "size,site\n1,east\n", "is none of .csv"),
        ("a.npy", "nothing", "cannot be read as an array"),
        ("absent.csv", None, "cannot be read"),
    ],
)
def test_bad_files_are_one_line(
    name: str, text: str | None, words: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    capsys.readouterr()
    assert cli.run(["predict", str(folder / "m"), "--data", str(tmp_path / name)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_arrays_of_another_width_and_changed_models_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 5)))
    assert cli.run(["predict", str(folder / "m"), "--data", str(tmp_path / "x.npy")]) == 2
    assert "has shape (2, 5), and the model takes rows of 3 numbers: (N, 3)" in capsys.readouterr().err
    assert cli.run(["export", str(folder / "out"), "--out", str(tmp_path / "n")]) == 0
    model = tmp_path / "n/model.safetensors"
    save_file({key: -value for key, value in load_file(model).items()}, model)
    assert cli.run(["predict", str(tmp_path / "n"), "--data", str(folder / "t.csv")]) == 2
