"""Log lines as JSON: every line is a document, and a launcher reads both formats alike."""

from __future__ import annotations

import json
import logging
import math
import sys

import pytest

from dpgt_node.cli.logs import TextLines
from dpgt_node.cli.running.node import node
from dpgt_node.record.lines import JsonLines, json_line, read_line
from dpgt_node.runtime.watching.rhythm import Rhythm, line_every_s


def test_a_record_is_one_document_with_its_fields_and_its_traceback() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        why = sys.exc_info()
    record = logging.LogRecord("dpgt_node.a", logging.WARNING, "f", 1, "%s is late", ("agent-2",), why)
    record.created = 12.0625
    record.fields = {"epsilon": math.inf, "k": 3, "late": ("agent-2",), "loss": math.nan}
    text = JsonLines().format(record)
    assert "\n" not in text
    document = json.loads(text, parse_constant=lambda word: 1 / 0)
    assert "two\nlines" in document.pop("traceback")
    assert document == {
        "time": "1970-01-01T00:00:12.062Z",
        "level": "warning",
        "logger": "dpgt_node.a",
        "message": "agent-2 is late",
        "epsilon": "inf",
        "k": 3,
        "late": ["agent-2"],
        "loss": None,
    }


def test_both_formats_are_read_back() -> None:
    said = read_line(json_line(0.0, "info", "dpgt launch", "agent-1 came back"))
    assert (said.text, said.info, said.logger) == ("agent-1 came back", True, "dpgt launch")
    said = read_line("2026-01-01 00:00:00,000 INFO dpgt launch: agent-1: came back")
    assert said.info and said.logger == "dpgt launch" and said.text.endswith("agent-1: came back")
    assert not read_line(json_line(0.0, "error", "dpgt", "dpgt node: the disk is full")).info
    for torn in ('{"level": "info"}', "{", "[1]", "Segmentation fault", '{"message": 1, "level": [], "logger": 2}'):
        assert not read_line(torn).info


def test_lines_of_a_host_program_stay_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    asked = ["--config", "node.toml", "--log-format", "json"]
    ours = logging.StreamHandler()
    ours.setFormatter(TextLines())
    logging.getLogger().addHandler(ours)
    try:
        node.make_context("node", asked)
    finally:
        logging.getLogger().removeHandler(ours)
    assert isinstance(ours.formatter, JsonLines) and not isinstance(caplog.handler.formatter, JsonLines)


def test_lines_come_with_every_change_of_state_and_get_rarer_in_a_long_run() -> None:
    assert [line_every_s(age) for age in (0, 60, 1200, 86_400)] == [10, 10, 100, 300]
    rhythm = Rhythm(0.0)
    assert rhythm.due("waiting", -1, 1.0) and not rhythm.due("waiting", -1, 2.0)
    assert rhythm.due("running", 0, 3.0) and not rhythm.due("running", 500, 12.0)
    assert rhythm.due("running", 900, 13.0)
    assert not rhythm.due("running", 900, 14.0, last=True), "it was said"
    assert rhythm.due("running", 901, 14.0, last=True)
