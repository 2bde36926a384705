"""What the launcher quotes of a child's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgt_node.runtime.supervisor import last_line

INFO = "2026-01-01 00:00:00,000 INFO dpgt_node.cli.node: peak resident memory 74 MiB"
WARNING = "2026-01-01 00:00:00,000 WARNING dpgt_node.runtime.node: stopped: enough"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (INFO, INFO),
        (f"{WARNING}\n{INFO}\n\n", WARNING),
        (f"dpgt node: the disk is full\n{WARNING}\n{INFO}\n", "the disk is full"),
        (f"dpgt node: old\n{INFO}\ndpgt node: a: b: c\n", "a: b: c"),
        ("\n" + "x" * 20_000 + "\ndpgt node: after a long line", "after a long line"),
        ("dpgt coordinator: \ufffd not UTF-8", "\ufffd not UTF-8"),
    ],
)
def test_the_cause_is_what_the_child_said_last(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "log").write_text(text, encoding="utf-8")
    assert last_line(tmp_path / "log") == expected


def test_no_log_is_no_cause(tmp_path: Path) -> None:
    assert last_line(tmp_path / "log") == ""
