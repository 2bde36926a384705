"""What a check of a run's evidence found: one line a question, with its verdict; never "private"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from dpgt_node.adversary.audit.witness import Verdict
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """``check``: ledger, noise, clip or releases.  ``question``: what was asked.  ``text``: the answer, in words.

    ``p``: the chance that a run without a fault shows as much, corrected for all questions of the check; None where the
    answer is certain.  ``numbers``: what was measured.
    """

    check: str
    agent: str
    question: str
    verdict: Verdict
    text: str
    p: float | None = None
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def refuted(self) -> bool:
        return self.verdict == "refuted"


def to_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """A list of { check, agent, question, verdict, text, p, numbers }; infinite is "inf", undefined null."""
    return [
        {
            "check": one.check,
            "agent": one.agent,
            "question": one.question,
            "verdict": one.verdict,
            "text": one.text,
            "p": one.p,
            "numbers": {name: _plain(value) for name, value in one.numbers.items()},
        }
        for one in findings
    ]


def to_text(findings: Sequence[Finding]) -> str:
    """A block a check and agent; what is refuted in capitals."""
    lines, last = [], ("", "")
    width = max((len(one.question) for one in findings), default=0)
    for one in findings:
        if (one.check, one.agent) != last:
            lines.append(f"{one.check} of {one.agent}")
        last = (one.check, one.agent)
        verdict = one.verdict.upper() if one.refuted else one.verdict
        p = "" if one.p is None else f"  (p = {one.p:.2g})"
        lines.append(f"  {one.question:<{width}}  {verdict:<11}  {one.text}{p}")
    return "\n".join(lines)


def _plain(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")
