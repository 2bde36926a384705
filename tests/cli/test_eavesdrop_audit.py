"""dpgt eavesdrop audit: command lines, documents, exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node import cli
from dpgt_node.config import parse_run
from dpgt_node.experiments import launches, trials
from dpgt_node.experiments.launches import affordable
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.wire.transcript import Header
from dpgt_node.wire.transcript_writer import TranscriptWriter

RUN = """
name = "audit"
[algorithm]
mechanism = "noise-once"
iterations = 0
[scheme]
kind = "S2"
alpha = 0.1
beta = 0.1
gamma = 0.1
p_m = 1.0
samples = 100
[noise]
scale_eta = 0.02
multiplier = {multiplier}
[graph]
agents = 2
R = [[0, 1], [1, 0]]
C = [[0, 1], [1, 0]]
[data]
dataset = "zeros"
dimension = 100
[privacy]
clip_l1 = 1.0
[evaluate]
metrics = "study"
"""
CLAIM = {"mechanism", "accountant", "claimed", "realised", "refuted"}


def run_file(folder: Path, multiplier: float = 1.0) -> Path:
    path = folder / "run.toml"
    path.write_text(RUN.format(multiplier=multiplier), encoding="utf-8")
    return path


def audit(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run(["eavesdrop", "audit", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_counterexample_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    """With the system's entropy: |T| was 167 to 255 in 1,200 transcripts."""
    code, out, _ = audit(capsys, "--preset", "counterexample", "--format", "json")
    document = json.loads(out)
    assert code == 1
    assert document["realised_llr"] > 100
    assert all(set(claim) >= CLAIM for claim in document["claims"])
    refuted = [claim for claim in document["claims"] if claim["refuted"]]
    assert [(claim["mechanism"], claim["accountant"]) for claim in refuted] == [("paper", "lemma5")]
    assert refuted[0]["realised"] == document["realised_llr"]


def test_canaries_of_a_run_file_go_on_where_they_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, kept = run_file(tmp_path), tmp_path / "kept"
    common = ("--resume", kept, "--test-keystream", "aa", "--format", "json")
    code, out, _ = audit(capsys, path, "--runs", 500, *common)
    assert code == 0
    lines = (kept / "agent-1" / "trials.jsonl").read_text()
    code, out, _ = audit(capsys, path, "--runs", 1500, *common)
    assert (kept / "agent-1" / "trials.jsonl").read_text().startswith(lines)
    tight = next(c for c in json.loads(out)["claims"] if c["accountant"] == "tight")
    assert tight["claimed"] == pytest.approx(1.0, rel=1e-5)
    assert 0.6 < tight["realised"] <= 1.0
    assert (tight["trials"], tight["runs"], tight["confidence"]) == (1500, 30, 0.95)
    assert not tight["refuted"]
    assert tight["bound"]["in_present"] == 750
    again = audit(capsys, path, "--runs", 1500, *common)
    assert again == (0, out, "")
    code, _, err = audit(capsys, path, "--runs", 1500, "--resume", kept, "--test-keystream", "bb")
    assert code == 2
    assert "of another run, agent or canary" in err
    code, _, err = audit(capsys, path, "--test", "event", *common)
    assert code == 2 and "trials of --test threshold and guess: name one of them" in err


def test_canaries_in_text_name_vantage_claim_bound_and_confidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = audit(
        capsys, run_file(tmp_path), "--runs", 400, "--test", "guess", "--agent", "agent-2", "--confidence", 0.9,
        "--test-keystream", "aa",
    )  # fmt: skip
    assert code == 0
    carried = "400 canary trials a world (each in a world of its own), carried by 8 runs of the release path"
    for words in ("agent-2, seen by", carried, "90 % confidence", "tight", "guesses right"):
        assert words in out
    code, out, _ = audit(capsys, run_file(tmp_path), "--runs", 50, "--test-keystream", "aa")
    assert "50 canary trials a world (each in a world of its own), carried by 1 run of the release path" in out
    assert "runs in each world" not in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name transcripts, or a run file, or --preset"),
        (("--preset", "counterexample", "run.toml"), "takes no files"),
        (("a.transcript",), "--run: transcripts need the run file"),
        (("a.transcript", "b.transcript"), "transcripts need the run file"),
        (("run.toml", "--truth", "out"), "transcripts need the run file"),
        (("run.toml", "--agent", "agent-7"), "agent-7: not in the run file"),
        (("run.toml", "--canaries", "101"), "must be in 1..100"),
        (("run.toml", "--launches", "2", "--test-keystream", "aa"), "launches are audited with their own entropy"),
        (("absent.toml",), "absent.toml"),
        (("run.toml", "--run", "run.toml"), "not a transcript"),
    ],
)
def test_wrong_command_lines(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    run_file(tmp_path)
    with TranscriptWriter(tmp_path / "a.transcript", Header("eavesdropper", run_id=bytes(range(0xF0, 0x100)))):
        pass
    monkeypatch.chdir(tmp_path)
    code, _, err = audit(capsys, *arguments)
    assert code == 2
    assert said in err


@pytest.mark.parametrize("factor", [1.0, 1e3])
def test_the_command_that_names_nothing_audits_the_clip_as_well(
    factor: float, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels of simulated runs beside the canaries: agents that do not clip are found there alone."""
    honest = Clip.from_config
    monkeypatch.setattr(Clip, "from_config", lambda privacy: (honest(privacy) or Clip(1, 1.0)).times(factor))
    code, out, _ = audit(capsys, run_file(tmp_path), "--test-keystream", "1ab5", "--format", "json")
    claims = json.loads(out)["claims"]
    assert code == (1 if factor > 1.0 else 0)
    by = {vantage: [c for c in claims if c["vantage"].endswith(vantage)] for vantage in ("one sample", "one label")}
    assert {c["trials"] for c in by["one sample"]} == {10_000} and not any(c["refuted"] for c in by["one sample"])
    assert {c["trials"] for c in by["one label"]} == {2000} and by["one label"][0]["refuted"] == (factor > 1.0)
    assert "40 simulated runs of all agents: their clip, oracle and sampler" in out
    assert f"not audited here, but by dpgt eavesdrop audit {tmp_path / 'run.toml'} --launches 40" in out


def test_as_many_canary_trials_are_made_as_are_affordable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampled batches carry one canary a run, so that 10,000 trials a world would take minutes in silence."""
    monkeypatch.setattr(trials, "AFFORDABLE", 100)
    path = run_file(tmp_path)
    common = ("--canaries", "1", "--labels", "0", "--test-keystream", "1ab5")
    code, out, _ = audit(capsys, path, *common)
    said = "50 trials a world, not 10000: these have 20000 rounds, and more than 100 take long. --runs 10000 makes them"
    assert code == 0 and said in " ".join(out.split()) and "carried by 100 runs" in " ".join(out.split())
    assert "take long" not in audit(capsys, path, "--runs", "60", *common)[1]


def test_what_no_simulated_run_audits_is_said_with_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run_file(tmp_path)
    said = f"Not audited: the agents' own clip and oracle. They are by dpgt eavesdrop audit {path} --labels 40, or in"
    assert said in audit(capsys, path, "--runs", "4", "--test-keystream", "1ab5")[1]
    kept = [path, "--runs", "4", "--labels", "2", "--test-keystream", "1ab5", "--resume", tmp_path / "kept"]
    for _ in "twice":
        code, out, _ = audit(capsys, *kept)
        assert code == 0 and "2 simulated runs of all agents" in out
    assert len((tmp_path / "kept" / "labels" / "agent-1" / "trials.jsonl").read_text().splitlines()) == 3
    run = parse_run(path.read_text(), "run.toml", tmp_path)
    assert affordable(run, None) == (40, "")
    longer = replace(run, algorithm=replace(run.algorithm, iterations=1000))
    assert affordable(longer, None) == (0, "40 runs have 80080 rounds of agents, and more than 20000 take long")
    assert affordable(replace(run, privacy=replace(run.privacy, clip_l1=None, C=2.0)), None)[0] == 0
    monkeypatch.setattr(launches, "MOST_NUMBERS", 19_999)
    assert affordable(run, None) == (0, "a run's data are 20000 numbers, and more than 19999 take long")


def test_a_run_without_noise_has_no_claim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = audit(capsys, run_file(tmp_path, multiplier=0.0))
    assert code == 2
    assert "the noise is off" in err
