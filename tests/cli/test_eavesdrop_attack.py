"""``dpgt eavesdrop attack`` as a user sees it: what it prints, writes and refuses."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from dpgt_node.adversary.attack import Finding, Options
from dpgt_node.cli import run as dpgt
from dpgt_node.cli.eavesdrop.attack import Case
from dpgt_node.cli.eavesdrop.attacked import _number, _rows, render
from dpgt_node.config import RunConfig, to_toml
from dpgt_node.wire.transcript import Transcript
from tests.adversary.record import Play, play, run_of

RING = [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ALONE = ("gradients", "retries")


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Play]:
    """A folder with run.toml, all.transcript and the study files."""
    folder = tmp_path_factory.mktemp("case")
    p = play(run_of(K=4, R=RING, C=RING, zeta=0.01, eta=0.01))
    p.transcript(folder / "all.transcript")
    p.study(folder)
    (folder / "run.toml").write_text(to_toml(p.run))
    return folder, p


def attack(case: tuple[Path, Play], *arguments: object) -> int:
    folder = case[0]
    return dpgt(["eavesdrop", "attack", str(folder / "all.transcript"), "--run", str(folder), *map(str, arguments)])


def test_text_has_measured_beside_predicted(case: tuple[Path, Play], capsys: pytest.CaptureFixture[str]) -> None:
    assert attack(case, "--truth", case[0], "--attack", "gradients", "--set", "fuse=no") == 1  # it succeeds
    text = capsys.readouterr().out
    assert "seen by eavesdropper on every link (plain)" in text and f"ground truth: {case[0]}" in text
    assert "missing: nothing" in text and "measured  predicted" in text
    assert [line for line in text.splitlines() if line.strip().startswith("B_rms")]


def test_without_truth_it_says_so(case: tuple[Path, Play], capsys: pytest.CaptureFixture[str]) -> None:
    assert attack(case, "--attack", "gradients", "--set", "fuse=no", "--agent", "agent-2") == 0
    text = capsys.readouterr().out
    assert "nothing is measured (--truth OUTDIR)" in text and "agent-2: not measured" in text and "agent-1" not in text


def test_every_attack_by_default_and_files(
    case: tuple[Path, Play], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dpgt_node.adversary.results import load

    assert attack(case, "--truth", case[0], "--out", tmp_path / "out", "--set", "bits=3", "--format", "json") == 1
    document = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    results, skipped = load(tmp_path / "out")
    about = {key: document[key] for key in ("version", "run_id", "seed", "agents", "rounds")}
    run_id = Transcript(case[0] / "all.transcript").header.run_id.hex()
    assert about == {"version": 1, "run_id": run_id, "seed": 0, "agents": [], "rounds": []}
    assert document["settings"]["bits"] == "3" and document["dpgt_node"] and document["run"] == case[1].run.name
    names = [one["attack"] for one in document["attacks"]]
    assert names == [one.attack for one in results] and {"gradients", "labels", "generator", "floats"} <= set(names)
    assert skipped == document["skipped"] and "captures" in skipped["traffic"]
    for one in document["attacks"]:
        assert one["vantage"].startswith("eavesdropper") and one["missing"] == ""
        for finding in one["findings"]:
            assert finding["verdict"] != "not measured" or finding["note"]


def test_shadow_runs_are_simulated_for_those_who_compare_with_them(
    case: tuple[Path, Play], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ("--attack", "lira", "--attack", "rmia", "--attack", "population")
    assert attack(case, *named) == 2
    assert "--shadows 64" in capsys.readouterr().err
    out = ("--shadows", 12, "--keep-shadows", tmp_path / "kept", "--out", tmp_path / "out", "--format", "json")
    assert attack(case, *named, *out) in (0, 1)
    document = json.loads(capsys.readouterr().out)
    assert document["shadows"] == 12 and len(list((tmp_path / "kept").glob("shadow-*.npz"))) == 12
    assert [one["attack"] for one in document["attacks"]] == ["lira", "rmia", "population"]
    for one in document["attacks"][:2]:
        assert "trained 12 shadow runs" in one["vantage"] and one["findings"][-1]["agent"] == ""
        assert one["findings"][0]["predicted"]["auc"] is not None and one["findings"][0]["measured"]["members"] > 100
    other = ("--shadows", 2, "--seed", 5, "--keep-shadows", tmp_path / "kept")
    assert attack(case, *named, *other) == 2
    assert "another run, seed or vantage point" in capsys.readouterr().err


def test_missing_data_is_said(case: tuple[Path, Play], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = case[1].transcript(tmp_path / "part", links=[("agent-1", "agent-2")])
    assert dpgt(["eavesdrop", "attack", str(part), "--run", str(case[0]), "--attack", "retries"]) == 0
    text = capsys.readouterr().out
    assert "eavesdropper on agent-1>agent-2 (plain)" in text and "missing: 20 of 30 vectors were not seen" in text


def test_ones_own_attack_is_one_file(
    case: tuple[Path, Play], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(EXAMPLES / "my_attack.py", tmp_path / "copied_attack.py")
    monkeypatch.chdir(tmp_path)
    name = "copied_attack:attack"
    assert attack(case, "--truth", case[0], "--attack", name, "--set", "skip=1", "--format", "json") == 1
    (result,) = json.loads(capsys.readouterr().out)["attacks"]
    assert result["attack"] == "gradient-length" and result["missing"] == ""
    for finding in result["findings"]:
        measured, predicted = finding["measured"]["squared_error"], finding["predicted"]["squared_error"]
        assert 0.2 * predicted < measured < 3.0 * predicted and finding["measured"]["rounds"] == 4.0


OWN = """
class Mine:
    name, needs = "mine", frozenset()
    def run(self, observation, truth, options):
        {does}
attack = Mine()
"""


@pytest.mark.parametrize(
    ("does", "named"),
    [
        ("raise KeyError('no\\nsuch')", "KeyError: 'no\\nsuch'"),
        ("return 3", "TypeError: it returned int, not a Result"),
    ],
)
def test_a_fault_of_ones_own_attack_is_ones_own(
    case: tuple[Path, Play],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    does: str,
    named: str,
) -> None:
    module = f"faulty_{'raise' in does}"
    (tmp_path / f"{module}.py").write_text(OWN.format(does=does))
    monkeypatch.syspath_prepend(tmp_path)
    assert attack(case, "--attack", f"{module}:attack") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"--attack: {module}:attack raised {named}" in line
    paths = [str(case[0] / "all.transcript"), "--run", str(case[0])]
    assert dpgt(["--log-level", "debug", "eavesdrop", "attack", *paths, "--attack", f"{module}:attack"]) == 2
    assert f'{module}.py", line' in capsys.readouterr().err or "return" in does


def test_a_fault_of_a_built_in_attack_is_a_bug(case: tuple[Path, Play], monkeypatch: pytest.MonkeyPatch) -> None:
    from dpgt_node.adversary.attacks import retries

    monkeypatch.setattr(retries, "_note", lambda *_: 1 / 0)
    assert attack(case, "--attack", "retries") == 70


def test_captures_are_not_left_unread(
    case: tuple[Path, Play], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = tmp_path / "some.pcap"
    capture.write_bytes(bytes.fromhex("d4c3b2a1") + bytes(20))
    folder = str(case[0])
    paths = [str(case[0] / "all.transcript"), str(capture)]
    assert dpgt(["eavesdrop", "attack", *paths, "--run", folder, "--attack", "retries"]) == 2
    assert f"{capture}: captures, of which retries reads nothing" in capsys.readouterr().err


def test_what_many_attacks_lack_is_said_once(case: tuple[Path, Play]) -> None:
    text = "command line: TRANSCRIPT: {} works on transcripts: dpgt eavesdrop decode makes them of captures"
    skipped = {name: text.format(name) for name in ("floats", "retries")} | {"lira": "lira is alone"}
    lines = render([], skipped, Case(case[1].run, None, (), None, "", Options()))
    assert lines[-2:] == [f"  floats, retries: {text.replace('{} ', '')}", "  lira: lira is alone"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--attack", "telepathy"), "no attack telepathy: there are gradients,"),
        (("--attack", "json:nothing"), "'json:nothing' is no attack"),
        (("--attack", "no_such_file:attack"), "'no_such_file:attack' is no attack: ModuleNotFoundError"),
        (("--attack", "json:dumps"), "'json:dumps' is no attack"),
        (("--agent", "agent-9"), "--agent: agent-9: the run has agent-1"),
        (("--round", "5"), "--round: 5: the run ends at round 4"),
        (("--set", "fuse"), "'fuse' is not KEY=VALUE"),
        (("--attack", "retries", "--set", "fuse=no"), "no attack has a setting 'fuse'"),
        (("--attack", "gradients", "--set", "fuse=maybe"), "--set fuse: 'maybe' is neither yes nor no"),
        (("--attack", "traffic"), "traffic works on captures"),
        (("--truth", "/nowhere"), "--truth: /nowhere: there is no such folder"),
        (("--truth", str(EXAMPLES)), "no ground truth"),
        (("--attack", "gradients", "--set", "through=999"), "--set through: 999: the run ends at round 4"),
        (("--attack", "labels", "--set", "through=abc"), "--set through: 'abc' is not a whole number"),
        (("--attack", "properties", "--set", "held=11"), "--set held: 11 is not a number from 1 to 10"),
        (("--attack", "labels", "--set", "classes=x"), "--set classes: 'x' is not a whole number"),
        (("--attack", "generator", "--set", "secret=zz"), "--set secret: 'zz' is not hexadecimal"),
        (("--attack", "inversion", "--set", "method=foo"), "--set method: 'foo' is none of"),
        (("--attack", "inversion", "--set", "steps=abc"), "--set steps: 'abc' is not a whole number"),
        (("--attack", "membership", "--set", "public=359"), "--set public: 359: there are 359 public samples"),
        (("--attack", "generator", "--set", "bits=60"), "--set bits: 60 is not a number from 1 to 24"),
        (("--attack", "generator", "--set", "bits=0"), "--set bits: 0 is not a number from 1 to 24"),
    ],
)
def test_what_is_wrong_is_named(
    case: tuple[Path, Play], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], named: str
) -> None:
    assert attack(case, *arguments) == 2
    captured = capsys.readouterr()
    assert named in captured.err and "Traceback" not in captured.err and captured.out == ""


def test_inputs_that_cannot_be_are_named(
    case: tuple[Path, Play], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, p = case
    whole = folder / "all.transcript"
    other = tmp_path / "other.toml"
    other.write_text(to_toml(_shorter(p.run)))
    cut = tmp_path / "cut"
    cut.write_bytes(whole.read_bytes()[:-100])
    own = p.transcript(tmp_path / "own", observer="agent-1")
    for paths, run, named in (
        ([whole], other, "ends at round 2"),
        ([cut], folder, "cut short"),
        ([tmp_path / "none"], folder, "cannot be read"),
        ([folder / "run.toml"], folder, "run.toml: is neither a transcript of this version"),
        ([whole, own], folder, "mixed vantage points"),
        ([whole], tmp_path / "norun.toml", "norun.toml"),
        ([], folder, "TRANSCRIPT: is missing"),
    ):
        assert dpgt(["eavesdrop", "attack", *map(str, paths), "--run", str(run)]) == 2
        assert named in capsys.readouterr().err
    assert dpgt(["eavesdrop", "attack", str(folder / "run.toml"), "--set", "x"]) == 2
    told = capsys.readouterr().err.splitlines()
    wrong = ["--attack", "telepathy", "--agent", "bar", "--round", "999", "--set", "x"]
    assert dpgt(["eavesdrop", "attack", str(whole), "--run", str(folder), *wrong]) == 2
    places = [line.split(": ")[2] for line in capsys.readouterr().err.splitlines()]
    assert places == ["--attack", "--set", "--agent", "--round"]
    assert len(told) == 3 and "--set: " in told[0] and "is neither a transcript" in told[1] and "--run: " in told[2]


def test_attacks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert dpgt(["eavesdrop", "attack", "--list"]) == 0
    text = capsys.readouterr().out
    assert "gradients" in text and "--set bits=..." in text
    parts = {part.split()[0]: part.splitlines()[1:] for part in re.split(r"\n(?=\S)", text)}
    assert parts["lira"] == parts["lira-model"] == [] and [line.split()[1] for line in parts["rmia"]] == [
        "gamma=...",
        "a=...",
    ]
    for name in ("lira", "lira-model"):
        assert dpgt(["eavesdrop", "attack", "x", "--run", "x", "--attack", name, "--set", "gamma=2"]) == 2
        assert "no attack has a setting 'gamma'; there are none" in capsys.readouterr().err


def _shorter(run: RunConfig) -> RunConfig:
    from dataclasses import replace

    return replace(run, algorithm=replace(run.algorithm, iterations=2))


def test_a_run_folder_takes_its_own_transcripts_only(
    case: tuple[Path, Play], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(case[0] / "run.toml", tmp_path)
    arguments = ["eavesdrop", "attack", str(case[0] / "all.transcript"), "--run", str(tmp_path), "--attack", "retries"]
    assert dpgt(arguments) == 0
    assert "taken on trust" in capsys.readouterr().out
    (tmp_path / "run_id.json").write_text(json.dumps({"run_id": "ab" * 16}))
    assert dpgt(arguments) == 2
    assert "is the run that was named" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "said"),
    [(53310.0, "53,310"), (1.0, "1"), (53310.4, "53,310"), (0.5, "0.5"), (1e6, "1,000,000"), (2e9, "2e+09")],
)
def test_a_count_is_written_in_full(value: float, said: str) -> None:
    assert _number(value) == said


def test_shares_are_percentages_and_keys_that_say_too_little_are_words() -> None:
    found = Finding("agent-1", "fails", {"labels_right": 0.617, "tpr_at_1_percent": 0.05, "copies": 122.0}, {}, "")
    assert [" ".join(line.split()) for line in _rows(found)[2:]] == [
        "labels_right 61.7 % -",
        "tpr_at_1_percent 5 % -",
        "times they were seen 122 -",
    ]
