"""summary.json: exactly the keys of the contract, no NaN or Infinity, atomic, read back."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node.config.model import Privacy
from dpgt_node.errors import ConfigError
from dpgt_node.record.costs import Epsilon
from dpgt_node.record.summary import (
    PrivacySummary,
    Summary,
    adjacency,
    load_summary,
    to_json,
    versions,
    write_summary,
)
from tests.report.synthetic import digits_run, summary_of

KEYS = ["name", "run_id", "status", "method", "mechanism", "rounds", "seconds", "rounds_per_second",
        "consensus_error", "privacy", "agents", "versions", "headline", "reasons", "restarts", "outcome",
        "no_accuracy", "alone", "no_alone", "rounds_timed"]  # fmt: skip
PRIVACY_KEYS = ["adjacency", "C", "clip_l1", "clip_l2", "enforced", "delta", "law", "samples"]
AGENT_KEYS = ["name", "accuracy_test", "loss_train", "epsilon", "releases", "bytes_sent", "paper_lemma5", "strength"]
EPSILON_KEYS = ["lemma5", "corrected", "tight", "amplified", "zcdp", "gdp", "binomial", "same-point", "variation"]


def summary(lemma5: float | None = 12.5) -> Summary:
    return summary_of(digits_run(), (), lemma5=lemma5)


def no_constant(name: str) -> float:
    raise AssertionError(f"{name} in JSON")


def test_schema(tmp_path: Path) -> None:
    path = write_summary(tmp_path, summary(math.inf))
    assert path == tmp_path / "summary.json"
    data = json.loads(path.read_text(), parse_constant=no_constant)
    assert list(data) == KEYS
    assert list(data["privacy"]) == PRIVACY_KEYS
    assert data["privacy"]["C"] == 80.0 and data["privacy"]["enforced"] is True
    assert [list(agent) for agent in data["agents"]] == [AGENT_KEYS] * 5
    assert [list(agent["epsilon"]) for agent in data["agents"]] == [EPSILON_KEYS] * 5
    assert data["agents"][0]["epsilon"] == dict.fromkeys(EPSILON_KEYS) | {"lemma5": "inf"}
    assert [agent["name"] for agent in data["agents"]] == [f"agent-{i}" for i in range(1, 6)]
    assert data["rounds"] == 201


def test_test_keystream_is_written(tmp_path: Path) -> None:
    data = json.loads(write_summary(tmp_path, replace(summary(), keystream="test")).read_text())
    assert sorted(data) == sorted([*KEYS, "keystream"]) and data["keystream"] == "test"


@pytest.mark.parametrize("keystream", [None, "test"])
@pytest.mark.parametrize("lemma5", [None, 0.0, 1 / 3, math.inf])
def test_round_trip(tmp_path: Path, lemma5: float | None, keystream: str | None) -> None:
    value = replace(summary(lemma5), keystream=keystream, seconds=None, versions=versions())
    value = replace(value, headline="gdp", reasons={"tight": "because", "gdp": None})
    value = replace(value, epsilon_towards={"t": [0, 1], "epsilon": [[0.5], [1.0]]} if keystream is None else None)
    value = replace(value, agents=tuple(replace(agent, paper_lemma5=lemma5) for agent in value.agents))
    write_summary(tmp_path, value)
    assert load_summary(tmp_path) == value


def test_summaries_of_earlier_versions_are_read(tmp_path: Path) -> None:
    path = write_summary(tmp_path, replace(summary(), headline="gdp", reasons={"tight": "because"}))
    data = json.loads(path.read_text())
    del data["headline"], data["reasons"]
    for agent in data["agents"]:
        del agent["paper_lemma5"]
    path.write_text(json.dumps(data))
    assert load_summary(tmp_path) == summary()


def test_nan_is_null_and_infinite_is_a_string() -> None:
    assert to_json([math.nan, math.inf, -math.inf, 1.5, True, None]) == [None, "inf", "-inf", 1.5, True, None]


def test_overwrites_and_leaves_nothing_else(tmp_path: Path) -> None:
    write_summary(tmp_path, summary())
    write_summary(tmp_path, replace(summary(), status="stopped"))
    loaded = load_summary(tmp_path)
    assert loaded is not None and loaded.status == "stopped"
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    write_summary(tmp_path, summary())
    with pytest.raises(UnicodeEncodeError):
        write_summary(tmp_path, replace(summary(), name="\ud800"))
    assert load_summary(tmp_path) == summary()
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_absent_and_broken_files(tmp_path: Path) -> None:
    assert load_summary(tmp_path) is None
    path = tmp_path / "summary.json"
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"summary\.json: cannot be read"):
        load_summary(tmp_path)
    path.write_text("[1]")
    with pytest.raises(ConfigError, match="is not the summary that a run leaves"):
        load_summary(tmp_path)
    path.write_text("{}")
    with pytest.raises(ConfigError, match=r"summary\.json: name: is missing"):
        load_summary(tmp_path)


def test_adjacency_in_words() -> None:
    run = digits_run()
    assert adjacency(run) == "replace-one, per-sample gradients differ by at most C = 80 in L1 (Definition 3)"
    l2 = replace(run, privacy=Privacy(clip_l2=1.5))
    assert "at most 3 in L2" in adjacency(l2)
    assert PrivacySummary.of(l2).C is None and PrivacySummary.of(l2).enforced
    declared = PrivacySummary.of(replace(run, privacy=Privacy(C=2.0)))
    assert declared.C == 2.0 and not declared.enforced
    assert "no bound C" in adjacency(replace(run, privacy=Privacy()))


def test_epsilon_of_ledger_costs() -> None:
    assert Epsilon.of({"lemma5": 1.0, "tight": None}) == Epsilon(lemma5=1.0)
