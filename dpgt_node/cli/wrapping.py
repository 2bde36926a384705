"""Lines that fit a terminal of 80 columns: prose breaks at words, a command at its options."""

from __future__ import annotations

import textwrap

WIDTH = 80


def wrapped(text: str, indent: str = "    ", *, first: str = "") -> list[str]:
    """``text`` in lines of at most WIDTH columns; ``first`` begins the first one, ``indent`` the others.

    Words stay whole, also paths and formulas: one that is longer than a line has a line of its own.
    """
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
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
