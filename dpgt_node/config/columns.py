"""Kinds of what a run file says of a table's columns: which they are, their bounds, their words.

They are public: all hosts read them in the same run file, and nothing of them is computed from anybody's data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpgt_node.config.declare.kinds import Number, Schema, Text
from dpgt_node.config.declare.reader import Section, show
from dpgt_node.values import dataclass

MAX_COLUMNS = 100_000
_NAME = Text(255)


class ByColumn(tuple[tuple[str, tuple[Any, ...]], ...]):
    """(column, values) for each column, in the order of the file; hashable, unlike a dict."""

    __slots__ = ()

    def table(self) -> dict[str, list[Any]]:
        """As the file gives it."""
        return {name: list(values) for name, values in self}


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Names of columns."""

    @property
    def placeholder(self) -> tuple[str, ...]:
        return ()

    def read(self, section: Section, key: str, value: object) -> tuple[str, ...]:
        return _words(section, key, value, "columns")

    def schema(self) -> Schema:
        return {"type": "array", "items": _NAME.schema(), "minItems": 1, "uniqueItems": True}

    def words(self) -> str:
        return "list of names"


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """``{ column = [low, high] }``."""

    @property
    def placeholder(self) -> ByColumn:
        return ByColumn()

    def read(self, section: Section, key: str, value: object) -> ByColumn:
        def bounds(where: str, given: object) -> tuple[float, ...]:
            if not isinstance(given, list) or len(given) != 2:
                section.problem(where, f"must be [low, high], not {show(given)}")
                return 0.0, 1.0
            low, high = (float(Number().read(section, where, end)) for end in given)
            if section.ok(key) and not low < high:
                section.problem(where, f"must be [low, high] with low < high, not {low:g} and {high:g}")
            return low, high

        return _by_column(section, key, value, bounds, "[low, high]")

    def schema(self) -> Schema:
        pair = {"type": "array", "items": Number().schema(), "minItems": 2, "maxItems": 2}
        return {"type": "object", "additionalProperties": pair, "minProperties": 1}

    def words(self) -> str:
        return "table of [low, high] by column"


@dataclass(frozen=True, slots=True)
class ColumnWords:
    """``{ column = ["one", "other"] }``."""

    @property
    def placeholder(self) -> ByColumn:
        return ByColumn()

    def read(self, section: Section, key: str, value: object) -> ByColumn:
        return _by_column(
            section, key, value, lambda where, given: _words(section, where, given, "words"), '["a", "b"]'
        )

    def schema(self) -> Schema:
        words = {"type": "array", "items": _NAME.schema(), "minItems": 1, "uniqueItems": True}
        return {"type": "object", "additionalProperties": words, "minProperties": 1}

    def words(self) -> str:
        return "table of lists of words by column"


def _by_column(
    section: Section, key: str, value: object, read: Callable[[str, object], tuple[Any, ...]], form: str
) -> ByColumn:
    if not isinstance(value, Mapping) or not 1 <= len(value) <= MAX_COLUMNS:
        section.problem(key, f"must be a table of columns, {{ column = {form} }}, not {show(value)}")
        return ByColumn()
    return ByColumn(
        (_NAME.read(section, key, name), read(f"{key}[{show(name)}]", held)) for name, held in value.items()
    )


def _words(section: Section, key: str, value: object, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_COLUMNS:
        section.problem(key, f"must be a list of {what}, not {show(value)}")
        return ()
    found = tuple(_NAME.read(section, f"{key}[{i}]", word) for i, word in enumerate(value))
    if twice := [word for i, word in enumerate(found) if word in found[:i]]:
        section.problem(key, f"{show(twice[0])} is there twice")
    return found
