"""TOML, with long lists of plain numbers read by the C library's reader of JSON: ten times as fast as tomllib.

A list of numbers and such lists, in JSON's notation, is the same list in TOML's.  Each that is long is taken out of the
text and replaced by a word that stands nowhere else.  Whatever does not come out even is left to tomllib, with its
errors; so is a text with a backslash, in which another text might read like that word.
"""

from __future__ import annotations

import re
import tomllib
from json import JSONDecoder
from typing import Any, Final

_LONG: Final = 1 << 12
"""Characters of a list that is worth it."""
_BEGIN: Final = re.compile(r"=[ \t]*(?=\[)")
_PLAIN: Final = re.compile(r"[][0-9eE+\-., \t\n]*+")
_WORDS: Final = re.compile("a long list!*+")


def loads(text: str) -> dict[str, object]:
    """``tomllib.loads(text)``, and what it raises."""
    if len(text) < _LONG or "\\" in text:
        return tomllib.loads(text)
    word = max(_WORDS.findall(text), key=len, default="a long list") + "!"
    short, lists = _taken_out(text, word)
    if lists:
        try:
            document = tomllib.loads(short)
        except (ValueError, RecursionError):
            return tomllib.loads(text)  # for the words of the error, and its place
        left = {f"{word} {i}": one for i, one in enumerate(lists)}
        _put_back(document, word, left)
        if not left:  # none was in a comment or part of a text
            return document
    return tomllib.loads(text)


def _taken_out(text: str, word: str) -> tuple[str, list[Any]]:
    """The text without its long lists, and these."""
    parts, lists, done = list[str](), list[Any](), 0
    for begin in _BEGIN.finditer(text):
        at = begin.end()
        plain = _PLAIN.match(text, at)
        if at < done or plain is None or plain.end() - at < _LONG:
            continue
        try:
            found, end = JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError):
            continue
        if at + _LONG <= end <= plain.end():
            parts += text[done:at], f'"{word} {len(lists)}"'
            lists.append(found)
            done = end
    return "".join([*parts, text[done:]]), lists


def _put_back(table: dict[str, Any], word: str, left: dict[str, Any]) -> None:
    """Every list at its place in ``table``; those that were found leave ``left``."""
    for key, value in table.items():
        if isinstance(value, str) and value.startswith(word):
            table[key] = left.pop(value)
        elif isinstance(value, dict):
            _put_back(value, word, left)
        elif isinstance(value, list):
            for one in value:
                if isinstance(one, dict):
                    _put_back(one, word, left)
