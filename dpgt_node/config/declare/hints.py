"""What a parser cannot say of a broken line: characters that nobody sees, and habits of other languages."""

from __future__ import annotations

import re
import unicodedata

_PLACE = re.compile(r"at line (\d+)")
_LOOK_ALIKE = frozenset("\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb\u2212\u2013\u2014\uff1d\uff0c")
"""Quotation marks, dashes and signs that word processors put in the place of those of TOML."""
_HABITS = (
    (re.compile(r"^(<{7}|={7}|>{7})"), "a merge was not finished there"),
    (re.compile(r"^\s*```"), "that line belongs to a page, not to the file"),
    (re.compile(r"=\s*(True|False|None)\b"), "true and false are written small, and there is no None"),
    (re.compile(r"=\s*[+-]?\d+,\d+\s*(#.*)?$"), "a decimal point is a point"),
    (re.compile(r'"[^"]*\\[^"]*"'), "write a path with / or in single quotes"),
    (re.compile(r"^\s*[\w-]+\s*:\s"), "a key and its value have = between them"),
)


def hint(text: str, said: str) -> str:
    """What to add to the error ``said`` of a parser on ``text``; empty: nothing is known better."""
    found = _PLACE.search(said)
    lines = text.split("\n")
    if found is None or not 0 < int(found[1]) <= len(lines):
        return ""
    line = lines[int(found[1]) - 1]
    for at, character in enumerate(line, 1):
        hidden = unicodedata.category(character) in ("Cc", "Cf", "Zs", "Zl", "Zp") and character not in " \t\r"
        if hidden or character in _LOOK_ALIKE:
            name = unicodedata.name(character, "a control character")
            return f"; column {at} of that line holds U+{ord(character):04X} ({name}): type it anew"
    return next((f"; {words}" for habit, words in _HABITS if habit.search(line)), "")
