"""The preset that refutes the row-space formula, and nothing that this product claims."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dpgt_node import cli
from dpgt_node.adversary.audit import partial
from dpgt_node.adversary.inference.observation import Facts
from tests.oracles.partial import RING_C, RING_R, Tracking, seen_by


def test_the_preset_is_the_documented_counterexample() -> None:
    run = partial.run_of()
    facts = Facts.of(run)
    assert [list(map(int, row)) for row in run.graph.R] == RING_R and [list(map(int, r)) for r in run.graph.C] == RING_C
    assert partial.View(facts, (0.0,) * 5).formula() == pytest.approx(1.03893, abs=2e-5)
    seen = partial.View(facts, partial.SLOPES)
    assert float(np.linalg.norm(seen.shifted())) == pytest.approx(1.34664, abs=2e-5)
    part = seen.whitened @ seen.of_owner
    exact = seen_by(Tracking(RING_R, RING_C, 5, slopes=partial.SLOPES), 1, 4)
    np.testing.assert_allclose(part.T @ part, exact, atol=1e-9)


def test_real_transcripts_refute_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["eavesdrop", "audit", "--preset", "partial-observer", "--format", "json"]) == 1
    formula, whole = json.loads(capsys.readouterr().out)["claims"]
    assert formula["accountant"] == "row-space formula" and formula["refuted"]
    assert formula["realised"] > 1.1 * formula["claimed"]
    assert whole["accountant"] == "gdp" and not whole["refuted"] and whole["realised"] < whole["claimed"]
