"""What guessing gets right, and whether a run got any further: one rule for the terminal, the report and scripts."""

from __future__ import annotations

from statistics import median

from dpgt_node.config.data import stated_classes
from dpgt_node.config.model import RunConfig
from dpgt_node.record.rivals import Rivals
from dpgt_node.record.summary import Summary

SKILL_MIN = 0.05
"""Of the way from guessing to perfect.  Whoever stays below it has learnt nothing that is worth its name."""
GUESSES = "no better than guessing"


def guess_rate(run: RunConfig, rivals: Rivals | None = None) -> float | None:
    """The share of test samples that naming one class for all gets right: that of the largest class.

    1/classes, which it never falls below, where ``rivals`` does not have it; None where no file states the classes
    either.
    """
    classes, _ = stated_classes(run)
    equal = None if classes is None or classes < 2 else 1.0 / classes
    largest = None if rivals is None else rivals.largest_class
    return max((share for share in (equal, largest) if share is not None), default=None)


def skill(run: RunConfig, accuracy: float | None, rivals: Rivals | None = None) -> float | None:
    """How far ``accuracy`` is from guessing (0) to perfect (1); negative below guessing.  None: not known."""
    guess = guess_rate(run, rivals)
    return None if guess is None or guess >= 1.0 or accuracy is None else (accuracy - guess) / (1.0 - guess)


def learnt_nothing(run: RunConfig, summary: Summary, rivals: Rivals | None = None) -> bool:
    """Whether the middle agent of a finished run is no better than guessing; never where that is not known."""
    known = [agent.accuracy_test for agent in summary.agents if agent.accuracy_test is not None]
    reached = skill(run, median(known), rivals) if known else None
    return summary.status == "finished" and reached is not None and reached < SKILL_MIN


def outcome(run: RunConfig, summary: Summary, rivals: Rivals | None = None) -> str:
    """``finished``, or ``finished; no better than guessing``; other statuses as they are."""
    return f"{summary.status}; {GUESSES}" if learnt_nothing(run, summary, rivals) else summary.status
