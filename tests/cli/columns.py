"""What is printed for people fits a terminal of 80 columns."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import click
import pytest
from rich.cells import cell_len

from dpgt_node.cli import wrapping

LONG_PATH = 40


def too_long(text: str, breaks: Collection[str] = ()) -> list[str]:
    """Lines of ``text`` of more than 80 columns, but for those in ``breaks``.

    What cannot break is allowed: a line of one word, one that is too long by the path at its end, a command to copy.
    """
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    lines = [line for line in re.split(r"[\r\n]+", plain) if cell_len(line) > wrapping.WIDTH and line not in breaks]
    return [line for line in lines if not re.fullmatch(rf" *(\S+|(dpgt|--).*)|.{{,80}} \S{{{LONG_PATH},}}", line)]


def watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever commands print from now on, into a pipe too, fits a terminal, which may break it; JSON is no text."""
    breaks: set[str] = set()
    fitted, echo = wrapping.fitted, click.echo

    def fits(text: str, terminal: bool, width: int = wrapping.WIDTH) -> str:
        assert not (found := too_long(wrapping.broken(text))), f"over 80 columns on a terminal: {found}"
        breaks.update(text.split("\n"))
        return fitted(text, terminal, width)

    def echoed(message: Any = None, *arguments: Any, **options: Any) -> None:
        text = str(message)
        if options.get("nl", True) and text[:1] not in ("{", "["):
            assert not (found := too_long(text, breaks)), f"over 80 columns: {found}"
        echo(message, *arguments, **options)

    monkeypatch.setattr(wrapping, "fitted", fits)
    monkeypatch.setattr(click, "echo", echoed)
