"""The report on who sent what: every dispute with all that was said, and no more than what that proves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node.config import to_toml
from dpgt_node.protocol.coordinator.comparison import Compared, Forgery
from dpgt_node.protocol.digests import Dispute
from dpgt_node.record.digests import as_json, write_digests
from dpgt_node.record.summary import load_summary, write_summary
from dpgt_node.report.html import build_report, render
from tests.report.page import Page
from tests.report.synthetic import digits_run, rows_of, summary_of

ONE, TWO, OWN = bytes([0xA1]) * 16, bytes([0xB2]) * 16, bytes([0xC3]) * 16
TOLD_APART = Dispute("agent-3", "Y", 20, (("agent-3", OWN), ("agent-1", ONE), ("agent-4", TWO), ("agent-5", TWO)))
ONE_WORD = Dispute("agent-2", "X", 7, (("agent-2", OWN), ("agent-3", ONE)))
FOUND = Compared((Forgery(TOLD_APART, 41, 60), Forgery(ONE_WORD, 1, 7)), rounds=1200, incomplete=1)


def page(compared: Compared | None) -> Page:
    run = digits_run()
    rows = rows_of(run)
    digests = None if compared is None else as_json(compared)
    return Page(render(run, to_toml(run), rows, replace(summary_of(run, rows), digests=digests)))


def test_every_dispute_has_what_was_said_and_what_it_proves() -> None:
    shown = page(FOUND)
    words = " ".join(shown.words().split())
    assert shown.of("h2") == ["Curves", "Graphs", "Privacy", "Who sent what", "Agents", "Run file"]
    assert "Of 1,200 rounds every agent said what it sent and what it received; of 1 round not every agent" in words
    assert shown.of("div").count(f"agent-3 says that it sent {OWN.hex()[:16]}") == 1
    assert f"agent-1 received {ONE.hex()[:16]}" in shown.of("div")
    assert f"agent-4, agent-5 received {TWO.hex()[:16]}" in shown.of("div"), "who says the same stands together"
    cells = shown.of("td")
    assert [cell for cell in cells if cell.endswith(("60", "7"))] == ["41 rounds, 20 to 60", "round 7"]
    assert TOLD_APART.proven() in cells and ONE_WORD.proven() in cells and "x̆" in cells and "y̆" in cells
    first = [piece for piece in shown.of("p") if piece.startswith("IN DISPUTE")]
    said = "IN DISPUTE: y̆ of agent-3, 41 rounds, 20 to 60: agent-3, or somebody"
    assert len(first) == 2 and first[0].startswith(said)


def test_agreement_is_said_and_where_nothing_was_compared_nothing_is() -> None:
    agreed = page(Compared((), rounds=201))
    assert "Of 201 rounds every agent said what it sent and what it received. All who spoke agreed." in agreed.words()
    assert "IN DISPUTE" not in agreed.words() and "says that it sent" not in agreed.words()
    assert "Who sent what" not in page(None).words()


@pytest.mark.parametrize("finished", [True, False])
def test_it_is_read_from_what_the_run_wrote(finished: bool, tmp_path: Path) -> None:
    run = digits_run()
    (tmp_path / "run.toml").write_text(to_toml(run))
    if finished:
        write_summary(tmp_path, replace(summary_of(run, rows_of(run)), digests=as_json(FOUND)))
        held = load_summary(tmp_path)
        assert held is not None and held.digests == as_json(FOUND)
    else:
        write_digests(tmp_path, FOUND)
    text = build_report(tmp_path).read_text(encoding="utf-8")
    assert "Who sent what" in text and OWN.hex()[:16] in text
