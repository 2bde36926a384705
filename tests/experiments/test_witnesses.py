"""One transcript against what accountants claim: the counterexample, and captured runs of real data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node import cli
from dpgt_node.adversary.audit import counterexample
from dpgt_node.adversary.audit.report import to_text
from dpgt_node.adversary.audit.witness import Ratio, witness
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.config import RunConfig, parse_run
from dpgt_node.errors import ConfigError
from dpgt_node.experiments.witnesses import UNTIED, counterexample_audits, transcript_audits
from dpgt_node.record.truth import find_truth
from dpgt_node.sim.simulate import simulate
from dpgt_node.wire.transcript import Transcript, TranscriptError
from dpgt_node.wire.transcript_writer import TranscriptWriter
from tests.oracles import accountants
from tests.oracles import counterexample as oracle


# ---------------------------------------------------------------- the counterexample
def test_the_counterexample_refutes_lemma_5_of_paper_and_nothing_else() -> None:
    audits = counterexample_audits("01")
    claims = [claim for audit in audits for claim in audit.claims]
    assert [(c.mechanism, c.accountant) for c in claims if c.refuted] == [("paper", "lemma5")]
    assert {(c.mechanism, c.accountant) for c in claims} == {
        ("paper", "lemma5"), ("paper", "corrected"), ("published-point", "lemma5"), ("published-point", "tight"),
        ("public-state", "tight"), ("noise-once", "tight"),
    }  # fmt: skip
    refuted = next(c for c in claims if c.refuted)
    assert refuted.claimed == pytest.approx(0.00357, abs=5e-6)
    assert refuted.realised is not None
    assert 100 < refuted.realised < 300
    assert audits[0].llr < 0.0  # it was drawn in D
    text = to_text(audits)
    assert text.count("REFUTED") == 1
    for words in ("an observer of every link", "lemma5", "0.00357", "Not refuted is not proved"):
        assert words in text
    assert all(c.realised is not None and c.realised > 1e-4 * c.claimed for c in claims if c.accountant == "tight")


def test_the_preset_is_the_documented_counterexample() -> None:
    run = counterexample.run_of("paper")
    assert (np.array(run.graph.R) == oracle.R).all()
    assert (np.array(run.graph.C) == oracle.C).all()
    assert run.K == oracle.K
    scales = tuple((k + 1) ** 0.1 for k in range(oracle.K + 1))
    claim = counterexample.corrected(a=oracle.A1, b=oracle.B1, gamma=oracle.GAMMA, scales=scales)
    book = accountants.corrected(
        oracle.A1, oracle.B1, oracle.GAMMA, oracle.M, oracle.CONSTANT, oracle.K, 1.6, np.array(scales), np.array(scales)
    )
    assert claim == pytest.approx(book, rel=1e-12) == pytest.approx(2463, rel=1e-3)


def test_what_one_transcript_may_refute() -> None:
    ratio = Ratio(np.array([3.0, -1.0]), 0.5, np.array([4.0, 2.0]), 0, 8)
    assert ratio.total == 2.0

    def verdicts(claimed: dict[str, float | None], ratio: Ratio = ratio, fixed: bool = False) -> dict[str, str]:
        return {c.accountant: c.verdict for c in witness("paper", claimed, ratio, fixed=fixed)}

    assert verdicts({"lemma5": 1.4, "corrected": 1.6, "tight": None, "zcdp": 0.1}) == {
        "lemma5": "refuted", "corrected": "not refuted", "zcdp": "not tested",
    }  # fmt: skip
    assert verdicts({"tight": 60.1, "amplified": 59.9}) == {"tight": "no power", "amplified": "not refuted"}
    assert verdicts({"tight": 1.0, "amplified": 1.0}, fixed=True) == {"tight": "refuted", "amplified": "not tested"}
    assert verdicts({"tight": 1.0}, Ratio(ratio.T, 0.0, ratio.reach, 1, 8)) == {"tight": "not tested"}
    assert verdicts({"tight": 1.0}, Ratio(ratio.T, np.inf, ratio.reach, 0, 8)) == {"tight": "not tested"}


# ---------------------------------------------------------------- captured transcripts
RUN = """
name = "captured"
[algorithm]
mechanism = "{mechanism}"
iterations = 6
[scheme]
kind = "S2"
alpha = 0.2
beta = 0.1
gamma = 0.1
p_m = 1.0
samples = {samples}
[noise]
scale_zeta = 0.5
scale_eta = 0.5
law = "{law}"
[graph]
agents = 2
R = [[{loop}, 1], [1, 0]]
C = [[{loop}, 1], [1, 0]]
[data]
dataset = "npz:{data}"
[model]
bias = 0
[privacy]
clip_l1 = 1.0
[evaluate]
every = 100
metrics = "study"
[adversary]
semi_honest = "agent-2"
truth = true
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, rng = tmp_path_factory.mktemp("data") / "small.npz", np.random.default_rng(0)
    x, y = rng.normal(size=(24, 4)), np.arange(24) % 3
    np.savez(path, x_train=x, y_train=y, x_test=x[:3], y_test=y[:3])
    return path


def captured(
    folder: Path, data: Path, mechanism: str, *, samples: str = '"full"', law: str = "laplace", loop: float = 0.0
) -> tuple[RunConfig, Path]:
    run = parse_run(RUN.format(mechanism=mechanism, samples=samples, law=law, loop=loop, data=data), "run.toml", folder)
    simulate(run, folder / "out", bytes(16), test_keystream="c0")
    return run, folder / "out"


def seen_by_2(out: Path) -> Path:
    return out / "agents" / "agent-2" / "state" / "transcript"


def audited(run: RunConfig, out: Path, **options):
    observation = Observation.load([seen_by_2(out)], run)
    return transcript_audits(observation, find_truth(out, run.graph.agents), **options)


@pytest.mark.parametrize("mechanism", ["paper", "published-point", "public-state", "noise-once"])
def test_a_captured_run_refutes_nothing(tmp_path: Path, data: Path, mechanism: str) -> None:
    """And the study files agree with the gradients of D at every replayed point, or this would raise."""
    run, out = captured(tmp_path, data, mechanism)
    (audit,) = audited(run, out)
    assert audit.agent == "agent-1"  # not the one that looks
    assert audit.vantage == "semi-honest agent-2"
    assert not audit.refuted
    tested = {c.accountant: c for c in audit.claims if c.verdict != "not tested"}
    assert set(tested) == ({"lemma5", "corrected"} if mechanism == "paper" else {"tight", "amplified"}) | (
        {"lemma5"} if mechanism == "published-point" else set()
    )
    for claim in tested.values():
        assert claim.realised is not None
        assert claim.reach is not None
        assert 0.0 < claim.realised <= claim.reach
    text = to_text([audit])
    assert "semi-honest agent-2" in text
    assert "private" not in text.lower()


def test_natural_gradients_have_no_power_against_a_large_claim(tmp_path: Path, data: Path) -> None:
    """`corrected` charges C in every round; a replaced sample moves the mean gradient by far less."""
    run, out = captured(tmp_path, data, "paper")
    (audit,) = audited(run, out)
    verdicts = {c.accountant: c.verdict for c in audit.claims}
    assert verdicts["corrected"] == "no power"


def test_sampled_batches_are_those_of_the_study_files_and_test_tight_alone(tmp_path: Path, data: Path) -> None:
    run, out = captured(tmp_path, data, "published-point", samples="5")
    (audit,) = audited(run, out)
    assert {c.accountant for c in audit.claims if c.verdict != "not tested"} == {"tight"}
    with pytest.raises(ConfigError, match="study files are needed"):
        transcript_audits(Observation.load([seen_by_2(out)], run), None)


def test_gaussian_noise_leaves_the_witness_nothing_to_test(tmp_path: Path, data: Path) -> None:
    run, out = captured(tmp_path, data, "noise-once", law="gaussian")
    (audit,) = audited(run, out)
    assert {c.verdict for c in audit.claims} == {"not tested"}
    assert audit.llr != 0.0


def test_other_data_than_the_run_s_are_noticed(tmp_path: Path, data: Path) -> None:
    run, out = captured(tmp_path, data, "published-point")
    with np.load(data) as held:
        arrays = dict(held)
    arrays["x_train"] = arrays["x_train"] + 0.1
    np.savez(tmp_path / "other.npz", **arrays)
    other = replace(run, data=replace(run.data, dataset=f"npz:{tmp_path / 'other.npz'}"))
    with pytest.raises(ConfigError, match="not this run's data"):
        audited(other, out)


def test_a_transcript_that_nothing_ties_to_the_data_says_so(tmp_path: Path, data: Path) -> None:
    run, out = captured(tmp_path, data, "published-point")
    observation = Observation.load([seen_by_2(out)], run)
    (alone,) = transcript_audits(observation, None)
    assert alone.notes.count(UNTIED) == 1
    (tied,) = transcript_audits(observation, None, tied=True)
    assert UNTIED not in tied.notes
    assert UNTIED not in audited(run, out)[0].notes  # the study files are its own


@pytest.mark.parametrize("of", ["the run's folder", "the run file", "another run's folder"])
def test_the_folder_of_the_very_run_ties_a_transcript(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], of: str
) -> None:
    (tmp_path / "run.toml").write_text(
        RUN.format(mechanism="noise-once", samples='"full"', law="laplace", loop=0.0, data=data)
    )
    for out in ("a", "b"):
        assert cli.run(["simulate", str(tmp_path / "run.toml"), "--out", str(tmp_path / out)]) == 0
    given = {"the run's folder": "a", "the run file": "run.toml", "another run's folder": "b"}[of]
    capsys.readouterr()
    code = cli.run(["eavesdrop", "audit", str(seen_by_2(tmp_path / "a")), "--run", str(tmp_path / given)])
    said = capsys.readouterr()
    if of == "another run's folder":
        assert code == 2 and "is the run that was named" in said.err
    else:
        assert code == 0
        assert (UNTIED in said.out.splitlines()) == (of == "the run file")


def rewritten(out: Path, path: Path, keep) -> Path:
    source = Transcript(seen_by_2(out))
    with TranscriptWriter(path, source.header) as writer:
        for entry in source:
            changed = keep(entry)
            if changed is not None:
                writer.write(changed)
    return path


def test_what_was_not_seen_is_named(tmp_path: Path, data: Path) -> None:
    run, out = captured(tmp_path, data, "public-state")

    def audit(keep, **options):
        return transcript_audits(Observation.load([rewritten(out, tmp_path / "t", keep)], run), None, **options)

    with pytest.raises(TranscriptError, match="agent-1: 1 of 7 vectors of Y were not seen"):
        audit(lambda e: None if (e.sender, e.stream, e.k) == ("agent-1", "Y", 3) else e)
    with pytest.raises(TranscriptError, match="agent-1: coordinates of Y of round 2 are missing"):
        hole = {"missing": ((8, 16),), "sha256_seen": b""}
        audit(lambda e: replace(e, **hole) if (e.sender, e.stream, e.k) == ("agent-1", "Y", 2) else e)
    with pytest.raises(TranscriptError, match="agent-1: X of round 1 of agent-2 was not seen"):
        audit(lambda e: None if (e.sender, e.stream, e.k) == ("agent-2", "X", 1) else e)
    with pytest.raises(TranscriptError, match="agent-1: nothing of it was seen"):
        audit(lambda e: None if e.sender == "agent-1" else e)
    with pytest.raises(ConfigError, match="agent-9 is not in the run file"):
        audit(lambda e: e, agents=["agent-9"])


def test_a_stream_that_nobody_saw_is_left_out_of_the_ratio(tmp_path: Path, data: Path) -> None:
    """Under ``paper`` without self-loops nothing reads x̆_1 but its receivers: the ratio is that of y̆ alone."""
    run, out = captured(tmp_path, data, "paper")
    whole = audited(run, out)[0]
    path = rewritten(out, tmp_path / "y-only", lambda e: None if (e.sender, e.stream) == ("agent-1", "X") else e)
    (part,) = transcript_audits(Observation.load([path], run), None)
    assert part.llr != whole.llr
    assert "Nobody saw X" in " ".join(part.notes)
    looped, out = captured(tmp_path / "loop", data, "paper", loop=0.5)
    path = rewritten(out, tmp_path / "loop-y", lambda e: None if (e.sender, e.stream) == ("agent-1", "X") else e)
    with pytest.raises(TranscriptError, match="X of round 0 of agent-1 was not seen"):
        transcript_audits(Observation.load([path], looped), None)
