"""What is printed for people fits 80 columns, and what is copied or read by programs stays whole."""

from __future__ import annotations

import logging
import shlex
import sys

import pytest

from dpgt_node.cli.logs import TextLines, tell
from dpgt_node.cli.wrapping import WIDTH, command, wrapped

LONG = (
    "dpgt coordinator --config hosts/coordinator/run.toml --listen 127.0.0.1:7700 --tls hosts/coordinator --out results"
)


def test_words_stay_whole() -> None:
    path = "/a/path/" + "x" * 100
    lines = wrapped(f"{'word ' * 30}{path} end", "  ", first="-> ")
    assert lines[0].startswith("-> ") and path in "".join(lines) and lines[-1] == "  end"
    assert all(len(line) <= WIDTH or path in line for line in lines)
    assert " ".join(line.strip() for line in lines) == f"-> {'word ' * 30}{path} end"


@pytest.mark.parametrize("text", [LONG, "dpgt node --config NODE.toml &", "dpgt export runs/first --out model"])
def test_a_long_command_goes_on_after_a_backslash_and_is_the_same(text: str) -> None:
    lines = command(text)
    assert all(len(line) <= WIDTH for line in lines) and (len(lines) > 1) is (text == LONG)
    assert all(line.endswith(" \\") for line in lines[:-1])
    joined = "\n".join(lines).replace("\\\n", "")  # as a shell reads it
    assert shlex.split(joined) == shlex.split(text)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_log_breaks_at_words_on_a_terminal_alone(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    record = logging.LogRecord("dpgt_node.node", logging.WARNING, "", 0, "word " * 40, (), None)
    lines = TextLines().format(record).splitlines()
    assert (len(lines) > 1) is terminal and (not terminal or max(map(len, lines)) <= WIDTH)
    tell("word " * 40)
    assert (len(capsys.readouterr().err.splitlines()) > 1) is terminal
