"""No better than guessing: the rule by hand, at its edge, and where nothing is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpgt_node.config.model import Data
from dpgt_node.record.guessing import SKILL_MIN, guess_rate, outcome
from dpgt_node.record.rivals import Rivals
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


def test_the_largest_class_is_the_guess_that_must_be_beaten() -> None:
    """Nine in ten samples of one class: 91 % right has learnt next to nothing, whatever the number of classes."""
    run = replace(digits_run(n=3), data=Data("npz:a.npz", params={"classes": 2}))
    summary = summary_of(run, rows_of(run))
    agents = tuple(replace(a, accuracy_test=0.904) for a in summary.agents)
    summary = replace(summary, agents=agents)
    assert outcome(run, summary) == "finished"
    assert outcome(run, summary, Rivals({}, 0.9)) == "finished; no better than guessing"
    assert outcome(run, summary, Rivals({}, 0.5)) == outcome(run, summary, Rivals({"agent-1": 0.9})) == "finished"
    assert guess_rate(run, Rivals({}, 0.9)) == 0.9 and guess_rate(run, Rivals({}, 0.3)) == 0.5
    assert guess_rate(replace(run, data=Data("npz:a.npz")), Rivals({}, 0.9)) == 0.9
    assert outcome(run, summary, Rivals({}, 1.0)) == "finished", "a test set of one class judges nobody"


def test_guess_rate() -> None:
    assert guess_rate(digits_run()) == 0.1
    assert guess_rate(replace(digits_run(), data=Data("zeros"))) is None
