"""What is printed for people fits 80 columns, and what is copied or read by programs stays whole."""

from __future__ import annotations

import logging
import shlex
import sys
from pathlib import Path

import click
import pytest

from dpgt_node.cli.logs import TextLines, tell
from dpgt_node.cli.wrapping import WIDTH, broken, command, say, wrapped

LONG = (
    "dpgt coordinator --config hosts/coordinator/run.toml --listen 127.0.0.1:7700 --tls hosts/coordinator --out results"
)


def test_words_stay_whole() -> None:
    path = "/a/path/" + "x" * 100
    lines = wrapped(f"{'word ' * 30}{path} end", "  ", first="-> ")
    assert lines[0].startswith("-> ") and path in "".join(lines) and lines[-1] == "  end"
    assert all(len(line) <= WIDTH or path in line for line in lines)
    assert " ".join(line.strip() for line in lines) == f"-> {'word ' * 30}{path} end"


def test_what_goes_on_stands_further_in() -> None:
    text = f"short\n  agent-1: {'word ' * 20}\n  {LONG}\n"
    lines = broken(text).split("\n")
    assert lines[0] == "short" and lines[-1] == "" and max(map(len, lines)) <= WIDTH
    assert lines[1].startswith("  agent-1: word") and lines[2].startswith("    word")
    assert lines[3].startswith("  dpgt ") and lines[3].endswith(" \\") and lines[4].startswith("    --")


@pytest.mark.parametrize("text", [LONG, "dpgt node --config NODE.toml &", "dpgt export runs/first --out model"])
def test_a_long_command_goes_on_after_a_backslash_and_is_the_same(text: str) -> None:
    lines = command(text)
    assert all(len(line) <= WIDTH for line in lines) and (len(lines) > 1) is (text == LONG)
    assert all(line.endswith(" \\") for line in lines[:-1])
    joined = "\n".join(lines).replace("\\\n", "")  # as a shell reads it
    assert shlex.split(joined) == shlex.split(text)


def test_a_line_that_no_terminal_could_break_is_noticed(tmp_path: Path) -> None:
    """The check that every test of a verb makes (conftest.py), where it must fail and where it must not."""
    for line in ("word " * 17, f"{'word ' * 12}{'x' * 30} end", f"ok\n{'│ cell ' * 20}"):
        with pytest.raises(AssertionError, match="over 80 columns"):
            click.echo(line)
    for line in ("word " * 15, f"kept in {tmp_path / ('x' * 80)}", f"  {LONG}", '{"json": "' + "word " * 20 + '"}'):
        click.echo(line)
    say("word " * 20)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_log_breaks_at_words_on_a_terminal_alone(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # an earlier test's, which may write JSON
    record = logging.LogRecord("dpgt_node.node", logging.WARNING, "", 0, "word " * 40, (), None)
    lines = TextLines().format(record).splitlines()
    assert (len(lines) > 1) is terminal and (not terminal or max(map(len, lines)) <= WIDTH)
    tell("word " * 40)
    assert (len(capsys.readouterr().err.splitlines()) > 1) is terminal
