"""A test accuracy is null only with its reason, and a summary keeps the reason."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path

import pytest

from dpgt_node.config.model import Data, Evaluation
from dpgt_node.record.rivals import Rivals, write_rivals
from dpgt_node.record.summary import load_summary, why_no_accuracy, why_not_alone, write_summary
from dpgt_node.report.headline import answers
from tests.report.synthetic import digits_run, rows_of, summary_of

NAMES = ("agent-1", "agent-2")
NONE = dict.fromkeys(NAMES)


@pytest.mark.parametrize(
    ("data", "metrics", "accuracies", "evaluated", "why"),
    [
        ("digits", "study", {"agent-1": 0.9, "agent-2": 0.0}, NAMES, None),
        ("digits", "local", NONE, (), "every agent keeps its accuracy to itself"),
        ("quadratic", "study", NONE, NAMES, '"quadratic" is a formula'),
        ("digits", "study", NONE, (), "the run ended before it was evaluated"),
        ("digits", "study", {"agent-1": 0.9, "agent-2": None}, ("agent-1",), "evaluated (agent-2)"),
        ("digits", "study", NONE, ("agent-1",), "the run ended before it was evaluated"),
        ("digits", "study", {"agent-1": 0.9, "agent-2": None}, NAMES, "there are no test samples (agent-2)"),
    ],
)
def test_every_null_has_its_reason(
    data: str,
    metrics: str,
    accuracies: dict[str, float | None],
    evaluated: tuple[str, ...],
    why: str | None,
    tmp_path: Path,
) -> None:
    run = replace(digits_run(n=2), data=Data(data), evaluate=Evaluation(metrics=metrics))  # type: ignore[arg-type]
    found = why_no_accuracy(run, accuracies, evaluated)
    assert found is None if why is None else found is not None and why in found
    summary = summary_of(run, rows_of(run))
    agents = tuple(replace(a, accuracy_test=accuracies[a.name], loss_train=None) for a in summary.agents)
    summary = replace(summary, agents=agents, no_accuracy=found)
    write_summary(tmp_path, summary)
    assert load_summary(tmp_path) == summary
    said = " ".join(astuple(answers(run, summary, None)[0]))
    assert found is None or any(value is not None for value in accuracies.values()) or found in said


@pytest.mark.parametrize(
    ("data", "metrics", "why"),
    [("digits", "study", "nobody asked"), ("digits", "local", "dpgt data alone"), ("quadratic", "study", "a formula")],
)
def test_alone_is_null_with_its_reason_until_somebody_trains_them(
    data: str, metrics: str, why: str, tmp_path: Path
) -> None:
    run = replace(digits_run(n=2), data=Data(data), evaluate=Evaluation(metrics=metrics))  # type: ignore[arg-type]
    summary = replace(summary_of(run, rows_of(run)), no_alone=why_not_alone(run))
    assert summary.alone is None and summary.no_alone is not None and why in summary.no_alone
    write_summary(tmp_path, summary)
    write_rivals(tmp_path, Rivals({}, 0.1))
    assert load_summary(tmp_path) == summary  # nobody was trained
    write_rivals(tmp_path, Rivals({"agent-2": 0.25, "agent-1": 0.5}))
    assert load_summary(tmp_path) == replace(summary, alone=(0.5, 0.25), no_alone=None)
    write_rivals(tmp_path, Rivals({"agent-2": 0.25}))
    said = "there are no test samples (agent-1)"
    assert load_summary(tmp_path) == replace(summary, alone=(None, 0.25), no_alone=said)
