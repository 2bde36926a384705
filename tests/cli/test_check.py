from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import tomli_w

from dpgt_node import cli
from dpgt_node.algo.checks import Check
from dpgt_node.cli.checking.brief import _condition
from dpgt_node.config import demo_toml
from tests.cli import documents
from tests.e2e.processes import quadratic

EXAMPLES = Path(__file__).parents[2] / "examples"
DEMO_R = "R = [[0,0,0,0,1],[1,0,0,0,0],[1,1,0,0,0],[0,0,1,0,0],[0,0,0,1,0]]"


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(demo_toml())
    return path


def changed(path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def test_the_demo_passes_every_hard_condition(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check", str(demo), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    fits = next(row for row in document["checks"] if row["name"] == "m_K <= D")
    assert fits["passed"] is True and fits["lhs"] == 55 and fits["rhs"] == 287
    assert len(document["epsilon"]["lemma5"]) == 5 and all(value > 0 for value in document["epsilon"]["lemma5"])
    assert set(document["epsilon"]) == {
        "lemma5",
        "corrected",
        "tight",
        "amplified",
        "zcdp",
        "gdp",
        "binomial",
        "same-point",
        "variation",
    }
    assert document["epsilon"]["tight"] == [None] * 5 and all(document["epsilon"]["corrected"])
    assert all("released point" in text for text in document["epsilon_reasons"]["tight"])
    assert document["epsilon_reasons"]["lemma5"] == [None] * 5


def test_text_shows_every_row_its_sides_and_the_label(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["check", str(demo), "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert cli.run(["check", str(demo), "--all"]) == 0
    text = capsys.readouterr().out
    for row in document["checks"]:
        assert row["name"].split(" sqrt")[0].split("/(")[0] in text
    assert "Lemma 5 (paper; conditional)" in text and "agent-5" in text and "oracle complexity" in text
    # Never a bare epsilon: adjacency, delta and mechanism with it, and a reason for every accountant without a value.
    assert "C = 80 (L1), enforced by clipping; delta = 1e-05" in text and "mechanism paper, laplace noise" in text
    assert text.count("  no value: ") == 4
    conditions = text.partition("\nConditions\n")[2].partition("\n\n")[0].splitlines()
    assert len(conditions) >= len(document["checks"]) and max(map(len, conditions)) <= 80
    assert max(len(line) for line in text.splitlines() if "──" in line or " MB " in line) <= 80


def test_a_long_remark_is_said_once_and_who_fails_each_time() -> None:
    said: set[str] = set()
    remark = "a constant scale counts as p = 1 in p^K: it does not fall as K grows"
    rows = [Check(f"row {i}", False, 1.0, 1.0, "<", f"fails: all 60 agents; {remark}") for i in range(2)]
    first, second = (" ".join(" ".join(part.split()) for part in _condition(row, said)) for row in rows)
    assert first == f"FAILS row 0: 1 < 1 (fails: all 60 agents; {remark})"
    assert second == "FAILS row 1: 1 < 1 (fails: all 60 agents)"


def test_what_fails_comes_first_in_80_columns(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every condition that fails and the epsilon that stands for the run; whole words; what holds is in --all."""
    cli.run(["check", str(demo), "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert cli.run(["check", str(demo)]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    joined = " ".join(text.split())
    for row in document["checks"]:
        shown = f"FAILS {row['name']}" in joined or f"Refused: {row['name']}" in joined
        assert shown == (row["passed"] is False), row["name"]
    largest = max(document["epsilon"]["corrected"])
    assert f"Epsilon {largest:,.0f} (none) (corrected, pure, agent-1)" in joined
    assert f"also {max(document['epsilon']['lemma5']):,.0f} (none) (Lemma 5; conditional)" in joined
    assert joined.index("FAILS") < joined.index("Epsilon") and "the same command with --all" in joined
    assert f"Looked at: {document['looked_at']}." in joined


def test_what_was_computed_from_training_samples_is_said(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Choosing by the largest norm is choosing by looking; where rows are unit vectors nobody looks."""
    said = []
    for _ in range(2):
        cli.run(["check", str(demo), "--format", "json"])
        looked = json.loads(capsys.readouterr().out)["looked_at"]
        cli.run(["check", str(demo), "--all"])
        text = capsys.readouterr().out
        assert (looked is not None) == ("Looked at: The training samples of all agents" in text)
        assert looked is None or (f"Looked at: {looked}." in text and "no epsilon covers that choice" in looked)
        said.append(looked)
        if looked is not None:
            changed(demo, 'normalise = "none"', 'normalise = "l2"')
    assert said[0] is not None and said[1] is None


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (DEMO_R, DEMO_R.replace("[0,0,0,0,1],[1,", "[0,0,0,0,0],[0,"), "agent-2"),
        ("alpha = 0.1", "alpha = 0.5", "agent-3"),
        ("samples = 55", "samples = 288", "agent-4"),
    ],
    ids=["assumption-1", "a_i", "m_K"],
)
def test_hard_conditions_exit_1_and_name_the_agent(
    demo: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, named: str
) -> None:
    assert cli.run(["check", str(changed(demo, old, new))]) == 1
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert lines[1].startswith("Refused: ") and named in said and "FAILS" not in said, (
        "refusals first, and nothing else"
    )
    assert "Epsilon" not in said and len(lines) < 15 and max(map(len, lines)) <= 80


@pytest.mark.parametrize("toy", ["zeros", "pl-sine-s2"])
def test_a_toy_has_no_samples_that_could_be_too_few(toy: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(EXAMPLES / f"{toy}.toml")
    assert cli.run(["check", path, "--format", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["checks"]}
    fits = rows["m_K <= D"]
    assert fits["passed"] is fits["lhs"] is fits["rhs"] is None and not fits["applies"]
    assert fits["note"].endswith("is a formula without samples") and rows["m_K >= 1"]["applies"]
    assert cli.run(["check", path, "--all"]) == 0
    text = capsys.readouterr().out
    assert next(line.split() for line in text.splitlines() if "m_K <= D" in line)[0] == "n/a"
    assert f"{sum(row['applies'] for row in rows.values())} of {len(rows)} conditions apply" in text
    assert cli.run(["check", path]) == 0
    assert "Not known on this machine" not in capsys.readouterr().out


def test_a_file_that_cannot_be_validated_is_2(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check", str(changed(demo, "alpha = 0.1", "alfa = 0.1"))]) == 2
    assert cli.run(["check", str(demo.with_name("absent.toml"))]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "alfa" in captured.err


def test_data_that_is_not_on_this_machine_leaves_D_open(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With classes stated, each agent may have a file of its own."""
    changed(demo, 'dataset = "digits"', 'dataset = "npz:/nowhere/shard.npz"\nclasses = 10')
    assert cli.run(["check", str(demo), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    fits = next(row for row in document["checks"] if row["name"] == "m_K <= D")
    assert fits["passed"] is None and "agent-1" in fits["note"]
    reason = "cannot read /nowhere/shard.npz: No such file or directory: it is not on this machine"
    assert [line.startswith(f"data.dataset: {reason}") for line in document["data"]] == [True]


@pytest.mark.parametrize("more", [(), ("--all",)])
def test_a_picture_set_that_was_not_fetched_is_named_and_epsilon_is_not_denied(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DPGT_DATA", str(tmp_path / "nothing"))
    assert cli.run(["check", str(EXAMPLES / "mnist-private.toml"), *more]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"mnist is not on this machine (not in {tmp_path / 'nothing'}): run `dpgt data fetch mnist`" in said
    assert "none of the paper's fails. Epsilon is not known here." in said and "no epsilon is proved" not in said
    assert "Epsilon: none" not in said and 'samples = "full", and D is not known here' in said
    # Whatever the data, no accountant speaks of this one.
    text = (EXAMPLES / "mnist-private.toml").read_text()
    (tmp_path / "run.toml").write_text(text.replace('mechanism = "noise-once"', 'mechanism = "paper"'))
    cli.run(["check", str(tmp_path / "run.toml"), *more])
    assert "Epsilon is not known here" not in " ".join(capsys.readouterr().out.split())


def test_data_that_are_nowhere_are_bad_input_like_any_other(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """check, launch and simulate name the key of every file that is missing, and what else is wrong, in one go."""
    changed(demo, 'dataset = "digits"', 'dataset = "csv:none.csv"\nlabel = "y"\ntest = "neither.csv"')
    changed(demo, "alpha = 0.1", "alpha = 0.5")
    reason, folder = "No such file or directory", demo.parent
    out = ["--out", str(folder / "out")]
    for verb, *options in (["check"], ["check", "--format", "json"], ["launch", *out], ["simulate", *out]):
        assert cli.run([verb, str(demo), *options]) == 2
        said = capsys.readouterr()
        first, second, third, *rest = said.err.splitlines()
        assert first == f"dpgt {verb}: {demo}: data.dataset: cannot read {folder / 'none.csv'}: {reason}"
        assert second.endswith(f"{demo}: data.test: cannot read {folder / 'neither.csv'}: {reason}")
        assert f"{demo}: scheme.alpha: " in third and not rest and not said.out
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data__features": "hog"}, "needs samples of 28 x 28"),
        ({"model__name": "no_such_module:made"}, "run.toml: model.name: "),
    ],
)
def test_a_model_that_does_not_fit_is_refused(
    changes: dict[str, object], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = documents.edited({**documents.quadratic(3, 2), "data": {"dataset": "digits"}}, changes)
    (tmp_path / "run.toml").write_text(tomli_w.dumps(document), encoding="utf-8")
    code = cli.run(["check", str(tmp_path / "run.toml")])
    shown = capsys.readouterr()
    assert code in (1, 2) and words in " ".join((shown.out + shown.err).split())
    assert "run file" not in shown.out
    assert cli.run(["simulate", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out")]) == 2
    assert f"{tmp_path / 'run.toml'}: " in capsys.readouterr().err


def test_a_slow_factor_is_not_rounded_to_one(capsys: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).parents[2] / "examples" / "pl-sine-s2.toml"
    assert cli.run(["check", str(example), "--all"]) == 0
    assert "q = 1 - 2.07e-07 = max(rho(A_K) = 1 - 2.07e-07," in capsys.readouterr().out


def test_a_mechanism_that_sends_x_as_it_is_has_no_row_that_contradicts_its_epsilon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.toml"
    path.write_text(demo_toml(private=True))
    assert cli.run(["check", str(path), "--all"]) == 0
    text = capsys.readouterr().out
    assert "infinite" not in text and "about mechanism paper; see the accountants" in text
    last = text.splitlines()[-1]
    applying, of, total = last.split()[:3]
    assert of == "of" and int(applying) < int(total) and "apply to mechanism noise-once" in last


def test_coins_have_their_epsilon_or_the_reason_why_not(
    demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of the run itself, whose agents know d."""
    changed(demo, 'method = "dpgt"\nmechanism = "paper"', 'method = "quantised-binomial-sgd"')
    changed(demo, "iterations = 200", "iterations = 3")
    demo.write_text(f"{demo.read_text()}\n[method]\nbound = 1.0\ntrials = 1000000\n")
    assert cli.run(["check", str(demo), "--format", "json"]) == 0
    predicted = json.loads(capsys.readouterr().out)["epsilon"]["binomial"]
    assert cli.run(["simulate", str(demo), "--out", str(tmp_path / "out")]) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert predicted == [agent["epsilon"]["binomial"] for agent in summary["agents"]] and all(predicted)
    assert cli.run(["check", str(changed(demo, "trials = 1000000", "trials = 10")), "--all"]) == 0
    text = capsys.readouterr().out
    assert "no value: binomial (epsilon, delta): 10 coins are too few to hide anything" in text
    assert "none of the paper's fails. WARNING: no epsilon is proved for this run." in text and "no warning" not in text


def test_a_probability_is_not_called_an_epsilon(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ternary-dsgd has (0, delta) and nothing else."""
    changed(demo, 'method = "dpgt"\nmechanism = "paper"', 'method = "ternary-dsgd"')
    demo.write_text(f"{demo.read_text()}\n[method]\nr = 5.0\n")
    assert cli.run(["check", str(demo)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(r"Delta [01][.\d]* \(none\) \(at epsilon 0; conditional, agent-\d\)", text)
    assert "Epsilon" not in text
    assert "WARNING: no epsilon is proved for this run." in text


def toy(path: Path, d: int, K: int) -> Path:
    path.write_text(quadratic(3, K=K).replace("dimension = 3", f"dimension = {d}"), encoding="utf-8")
    return path


def test_the_disk_a_run_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text and JSON say the same of every process; more rounds and larger vectors need more."""
    found = []
    for d, K in ((100, 50), (100, 5000), (2_000_000, 50)):
        path = toy(tmp_path / "run.toml", d, K)
        assert cli.run(["check", str(path), "--format", "json"]) == 0
        disk = json.loads(capsys.readouterr().out)["disk"]
        assert [agent["name"] for agent in disk["agents"]] == ["agent-1", "agent-2", "agent-3"]
        for agent in disk["agents"]:
            assert agent["bytes"] == sum(agent["parts"].values())
        found.append(disk["agents"][0]["bytes"])
        assert cli.run(["check", str(path)]) == 0
        text = capsys.readouterr().out
        assert f"{found[-1] / 1e6:.1f} MB" in text and "coordinator" in text
        assert "Not known on this machine" not in text, "a toy has no samples on any"
    assert found[0] < found[1] < found[2] and found[2] > 12 * 2 * 4 * 2_000_000


def test_a_launch_without_room_for_all_its_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = toy(tmp_path / "run.toml", 3, 50), tmp_path / "out"
    monkeypatch.setattr("dpgt_node.runtime.disk.free_bytes", lambda _: 5_000_000)
    assert cli.run(["launch", str(path), "--out", str(out)]) == 2
    assert "MB for this run, and 5.0 MB are free: free some, or choose another folder" in capsys.readouterr().err
    assert not out.exists()


def test_noise_that_its_sampler_cannot_give_is_refused_by_check_as_by_launch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = documents.edited(
        documents.quadratic(2, 2),
        {"data": {"dataset": "digits"}, "privacy": {"clip_l1": 1.0}, "noise__scale_eta": 1e-30},
    )
    path = tmp_path / "run.toml"
    path.write_text(tomli_w.dumps(document), encoding="utf-8")
    assert cli.run(["check", str(path)]) == 1
    assert "noise.scale_eta: scale 1e-30 reaches" in capsys.readouterr().out
    assert cli.run(["simulate", str(path), "--out", str(tmp_path / "out")]) == 2
    assert "run.toml: noise.scale_eta: scale 1e-30 reaches" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["s-ab", "gt-saga"])
def test_a_method_without_noise_is_called_by_its_own_name(
    method: str, demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no mechanism that one could read something into, and no row about one."""
    changed(demo, 'method = "dpgt"\nmechanism = "paper"', f'method = "{method}"')
    changed(demo, "multiplier = 1.0", "multiplier = 0.0")
    assert cli.run(["check", str(demo)]) == 0
    text = capsys.readouterr().out
    assert f"Privacy: none. Method {method} draws no noise, so every epsilon is infinite." in text
    assert f"conditions apply to method {method}; " in text and "mechanism" not in text
    assert not any(words in text for words in ("Lemma 5", "Theorem 5", "Corollary 1"))


def test_a_run_whose_noise_is_off_names_no_accountant(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(demo, "multiplier = 1.0", "multiplier = 0.0")
    for options in ([], ["--all"]):
        assert cli.run(["check", str(demo), *options]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "Privacy: none. The noise is off, so every epsilon is infinite." in text
        assert "Epsilon" not in text and "delta" not in text and "no epsilon is proved" not in text


def test_tables_of_gradients_are_counted_before_anything_runs(
    demo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """gt-saga, 288 digits and 10 classes: 3 x 8 x 2,880 bytes an agent; who lacks the data is told what to check."""
    assert cli.run(["check", str(demo), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"] is None
    changed(demo, 'method = "dpgt"\nmechanism = "paper"', 'method = "gt-saga"')
    changed(demo, "multiplier = 1.0", "multiplier = 0.0")
    assert cli.run(["check", str(demo), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)["tables"]
    assert told["agents"] == [24 * 288 * 10] * 3 + [24 * 287 * 10] * 2
    for options in ([], ["--all"]):
        assert cli.run(["check", str(demo), *options]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "Memory: gt-saga's tables of D x 10 numbers take 69.1 kB of memory an agent" in text
        assert "345.1 kB where all agents share a machine" in text
    monkeypatch.setattr("dpgt_node.learning.tables.memory_bytes", lambda: 100_000)
    assert cli.run(["check", str(demo)]) == 0
    assert "launch and simulate are refused here" in " ".join(capsys.readouterr().out.split())
    monkeypatch.setattr("dpgt_node.learning.tables.memory_bytes", lambda: 60_000)
    assert cli.run(["check", str(demo)]) == 1
    assert "Refused" in capsys.readouterr().out
    changed(demo, 'dataset = "digits"', 'dataset = "npz:elsewhere.npz"\nclasses = 10')
    assert cli.run(["check", str(demo)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "each agent's host needs 24 D q bytes of memory for it. The data are not here, so check that" in text
