"""No better than guessing: the rule by hand, at its edge, and where nothing is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpgt_node.config.model import Data
from dpgt_node.record.guessing import SKILL_MIN, guess_rate, outcome
from tests.report.synthetic import digits_run, rows_of, summary_of


@pytest.mark.parametrize(
    ("data", "accuracies", "expected"),
    [
        (Data("digits"), (0.106, 0.11, 0.12), "finished; no better than guessing"),
        (Data("digits"), (0.1, 0.1 + 0.9 * SKILL_MIN - 1e-9, 0.9), "finished; no better than guessing"),
        (Data("digits"), (0.1, 0.1 + 0.9 * SKILL_MIN + 1e-9, 0.9), "finished"),
        (Data("digits"), (0.1, 0.8, 0.9), "finished"),  # one agent alone does not make the outcome of all
        (Data("npz:a.npz", params={"classes": ("cat", "dog")}), (0.5, 0.51, 0.52), "finished; no better than guessing"),
        (Data("npz:a.npz", params={"classes": 2}), (0.6, 0.6, 0.6), "finished"),
        (Data("npz:a.npz"), (0.0, 0.0, 0.0), "finished"),  # nobody knows how many classes there are
        (Data("digits"), (None, None, None), "finished"),  # a local run
        (Data("quadratic"), (None, None, None), "finished"),
    ],
)
def test_outcome(data: Data, accuracies: tuple[float | None, ...], expected: str) -> None:
    run = replace(digits_run(n=3), data=data)
    summary = summary_of(run, rows_of(run))
    agents = tuple(replace(a, accuracy_test=v) for a, v in zip(summary.agents, accuracies, strict=True))
    assert outcome(run, replace(summary, agents=agents)) == expected
    assert outcome(run, replace(summary, agents=agents, status="stopped")) == "stopped"


def test_guess_rate() -> None:
    assert guess_rate(digits_run()) == 0.1
    assert guess_rate(replace(digits_run(), data=Data("zeros"))) is None
