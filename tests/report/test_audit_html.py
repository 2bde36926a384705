"""The audit section of report.html: what was refuted comes first, escaped, and damage by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpgt_node.adversary.audit.finding import Finding
from dpgt_node.adversary.audit.report import Audit, to_json
from dpgt_node.adversary.audit.witness import Claim
from dpgt_node.errors import ConfigError
from dpgt_node.report.html import build_report
from tests.report.test_adversary_html import HOSTILE, page


def test_findings_and_claims_are_a_section_and_damage_is_named(tmp_path: Path) -> None:
    assert "Audit" not in page(tmp_path, None).of("h2")
    claim = Claim("noise-once", "tight", float("inf"), None, False, "not tested", note=HOSTILE)
    found = [
        Finding("ledger", "agent-1", "chain", "not refuted", "26 rows"),
        Finding("ledger", HOSTILE, "cost by tight", "refuted", HOSTILE, 1.5e-12, {"faults": 3.0}),
    ]
    path = tmp_path / "adversary" / "audit.json"
    path.parent.mkdir(exist_ok=True)
    document = to_json([Audit("agent-1", "everybody", (claim,), 0.0, 1)], found)
    path.write_text(json.dumps(document))
    text = build_report(tmp_path).read_text(encoding="utf-8")
    part = text[text.index("<h2>Audit") :]
    assert "1 of 3 checks are refuted" in part and HOSTILE not in text
    assert part.index("cost by tight") < part.index("26 rows") < part.index("claimed inf, measured –")
    for damaged in (path.read_text()[:40], json.dumps({**document, "findings": [{}]}), "[]"):
        path.write_text(damaged)
        with pytest.raises(ConfigError, match=r"audit\.json.*no results of an audit"):
            build_report(tmp_path)
