"""What an audit says, as JSON and as text: vantage, claim, what was realised, bound, confidence; never "private"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from dpgt_node import figures
from dpgt_node.adversary.audit import finding
from dpgt_node.adversary.audit.bounds import Bound
from dpgt_node.adversary.audit.finding import Finding
from dpgt_node.adversary.audit.witness import Claim
from dpgt_node.values import dataclass

VERSION = 1
"""Of the format."""
AUDIT_FILE = "audit.json"
LIMITS = "Not refuted is not proved: an audit bounds epsilon from below, for the pair of data sets that it looked at."


@dataclass(frozen=True, slots=True)
class Audit:
    """One agent's audit.  ``llr``: T of the transcript, or the largest |T| of all runs.

    ``bounds``: by accountant, of canary trials.  ``trials``: in each world, 1 for a witness; ``runs`` of the release
    path carried all of them.  ``notes``: what a reader must know to read the claims.
    """

    agent: str
    vantage: str
    claims: tuple[Claim, ...]
    llr: float
    trials: int
    confidence: float | None = None
    bounds: dict[str, Bound] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    runs: int = 1

    @property
    def refuted(self) -> bool:
        return any(claim.refuted for claim in self.claims)


def to_json(audits: Sequence[Audit], findings: Sequence[Finding] = ()) -> dict[str, Any]:
    """{ version, realised_llr, refuted, findings, claims: [ { mechanism, accountant, claimed, ... } ], notes }.

    ``realised_llr``: the largest |T|, null where none was taken.
    """
    return {
        "version": VERSION,
        "realised_llr": _number(max((abs(audit.llr) for audit in audits), default=None)),
        "refuted": any(audit.refuted for audit in audits) or any(one.refuted for one in findings),
        "findings": finding.to_json(findings),
        "claims": [
            {
                "mechanism": claim.mechanism,
                "accountant": claim.accountant,
                "claimed": _number(claim.claimed),
                "realised": _number(claim.realised),
                "refuted": claim.refuted,
                "verdict": claim.verdict,
                "agent": audit.agent,
                "vantage": audit.vantage,
                "reach": _number(claim.reach),
                "trials": audit.trials,
                "runs": audit.runs,
                "confidence": audit.confidence,
                "bound": _bound(audit.bounds.get(claim.accountant)),
                "note": claim.note,
            }
            for audit in audits
            for claim in audit.claims
        ],
        "notes": list(dict.fromkeys(note for audit in audits for note in audit.notes)),
    }


def to_text(audits: Sequence[Audit], findings: Sequence[Finding] = ()) -> str:
    lines = [finding.to_text(findings)] if findings else []
    for audit in audits:
        sure = "certain" if audit.confidence is None else f"each claim with {100 * audit.confidence:g} % confidence"
        lines += [f"{audit.agent}, seen by {audit.vantage}: {_evidence_base(audit)}, {sure}"]
        rows = [("mechanism", "accountant", "claimed", "realised", "verdict", "")]
        for claim in audit.claims:
            realised = "-" if claim.realised is None else figures.epsilon(claim.realised)
            note = claim.note or _evidence(audit.bounds.get(claim.accountant))
            verdict = claim.verdict.upper() if claim.refuted else claim.verdict
            rows.append((claim.mechanism, claim.accountant, figures.epsilon(claim.claimed), realised, verdict, note))
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        lines += ["  " + "  ".join([*map(str.ljust, row[:5], widths), row[5]]).rstrip() for row in rows]
        of = "the transcript" if audit.confidence is None else "the clearest trial"
        lines.append(f"  log-likelihood ratio of {of}: {audit.llr:.4g}")
    notes = dict.fromkeys(note for audit in audits for note in audit.notes)
    return "\n".join([*lines, *notes, LIMITS])


def _evidence_base(audit: Audit) -> str:
    if audit.confidence is None:
        return "one transcript"
    carried = f"{audit.runs} run{'s' * (audit.runs != 1)} of the release path"
    return f"{audit.trials} canary trials a world (each in a world of its own), carried by {carried}"


def _evidence(bound: Bound | None) -> str:
    if bound is None:
        return ""
    if bound.order:
        return f"{bound.event}; {bound.in_present} and {bound.in_absent} trials"
    if bound.in_absent == 0:
        return f"{bound.hits} of {bound.in_present} guesses right"
    counts = f"{bound.hits} of {bound.in_present} hits, {bound.alarms} of {bound.in_absent} false alarms"
    return f"{counts} ({bound.event})" if bound.event else counts


def _bound(bound: Bound | None) -> dict[str, Any] | None:
    if bound is None:
        return None
    return {
        "measure": bound.measure,
        "value": _number(bound.value),
        "direction": bound.direction,
        "threshold": _number(bound.threshold),
        "hits": None if bound.order else bound.hits,
        "in_present": bound.in_present,
        "alarms": None if bound.order else bound.alarms,
        "in_absent": bound.in_absent,
        "rate_low": bound.rate_low,
        "rate_high": bound.rate_high,
        "event": bound.event or None,
        "order": bound.order or None,
    }


def _number(value: float | None) -> float | str | None:
    if value is None or math.isnan(value):
        return None
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")
