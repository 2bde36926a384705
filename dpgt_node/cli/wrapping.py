"""Lines that fit a terminal of 80 columns: prose breaks at words, a command at its options."""

from __future__ import annotations

import sys
import textwrap

import click

WIDTH = 80


def say(text: str, *, err: bool = False) -> None:
    """Print ``text`` for people on standard output, or on standard error; see :func:`fitted`."""
    click.echo(fitted(text, (sys.stderr if err else sys.stdout).isatty()), err=err)


def fitted(text: str, terminal: bool, width: int = WIDTH) -> str:
    """``text`` for a terminal: :func:`broken`.  A file or a pipe gets whole lines, for whoever reads it there."""
    return broken(text, width) if terminal else text


def broken(text: str, width: int = WIDTH) -> str:
    """``text`` without a line of more than ``width`` columns: what goes on stands further in.

    A line that is indented and begins with dpgt is a command to be copied.
    """
    return "\n".join(part for line in text.split("\n") for part in _parts(line, width))


def _parts(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    bare = line.lstrip(" ")
    indent = line[: len(line) - len(bare)]
    if indent and bare.startswith("dpgt "):
        return command(bare, indent)
    return wrapped(line, f"{indent}  ", width=width)


def wrapped(text: str, indent: str = "    ", *, first: str = "", width: int = WIDTH) -> list[str]:
    """``text`` in lines of at most ``width`` columns; ``first`` begins the first one, ``indent`` the others.

    Words stay whole, also paths and formulas: one that is longer than a line has a line of its own.
    """
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def command(text: str, indent: str = "  ") -> list[str]:
    """A command to be copied.  Where it is too long, a backslash ends a line and the next one begins with an option."""
    head, *options = text.split(" --")
    lines, line = [], indent + head
    for option in options:
        if len(line) + len(f" --{option} \\") > WIDTH:
            lines.append(f"{line} \\")
            line = f"{indent}  --{option}"
        else:
            line += f" --{option}"
    return [*lines, line]
