"""A launch whose agents hold different mixtures, beside what each reaches alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgt_node.record.rivals import load_rivals
from dpgt_node.record.summary import load_summary
from tests.e2e.processes import asked, dpgt, same_bits
from tests.e2e.test_launch import DIGITS

pytestmark = pytest.mark.e2e


def test_a_launch_and_its_simulation_stand_beside_the_same_rivals(tmp_path: Path) -> None:
    run_file = tmp_path / "run.toml"
    own = 'dataset = "digits"\npartition = "inner-dirichlet"\nalpha = 0.1'
    run_file.write_text(DIGITS.replace('dataset = "digits"', own), encoding="utf-8")
    found = []
    for verb, begin in (("launch", dpgt), ("simulate", asked)):
        done = begin(verb, run_file, "--out", tmp_path / verb, "--alone", "--test-keystream", "00ff")
        assert done.returncode == 0, done.stderr
        assert "Alone, without exchange and noise, at epsilon 0: worst agent" in done.stdout
        assert "<th>alone</th>" in (tmp_path / verb / "report.html").read_text(encoding="utf-8")
        found.append(load_rivals(tmp_path / verb))
        summary = load_summary(tmp_path / verb)
        assert found[-1] is not None and summary is not None and summary.no_alone is None
        assert summary.alone == tuple(found[-1].alone.values())
    same_bits(tmp_path / "launch", tmp_path / "simulate")
    assert found[0] is not None and found[0] == found[1]
    assert found[0].worst < 0.7, "mixtures of Dirichlet(0.1) leave most classes out"
