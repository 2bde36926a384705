"""Kinds of values that any key may have; each says once what is valid, for reading, reference page and JSON Schema.

:class:`~dpgt_node.config.declare.reader.Kind` says what the methods do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

from dpgt_node.config.declare.reader import Section, bad_number, bad_word, show
from dpgt_node.values import dataclass

Word = TypeVar("Word", bound=str)
PLUG_IN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""``module:function``: a plug-in of the operator's own, for data sets, models and features."""
Schema = dict[str, Any]
MAX_INTEGER = 2**53
MAX_TEXT = 4096
PRINTABLE = r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$"


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer in [at_least, at_most].  3.0 and true are none."""

    at_least: int = 0
    at_most: int = MAX_INTEGER

    @property
    def placeholder(self) -> int:
        return self.at_least

    def read(self, section: Section, key: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            section.problem(key, f"must be an integer, not {show(value)}")
        elif value < self.at_least:
            section.problem(key, f"must be >= {self.at_least}, not {show(value)}")
        elif value > self.at_most:
            section.problem(key, f"must be <= {self.at_most}, not {show(value)}")
        else:
            return value
        return self.at_least

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.at_least, "maximum": self.at_most}

    def words(self) -> str:
        if self.at_most == MAX_INTEGER and self.at_least:
            return f"integer >= {self.at_least}"
        return f"integer {self.at_least} to {quantity(self.at_most)}"


@dataclass(frozen=True, slots=True)
class Integers:
    """A list of 1 to ``count`` different integers in [at_least, at_most]."""

    at_least: int = 0
    at_most: int = MAX_INTEGER
    count: int = 64

    @property
    def placeholder(self) -> tuple[int, ...]:
        return (self.at_least,)

    def read(self, section: Section, key: str, value: object) -> tuple[int, ...]:
        if not isinstance(value, list) or not 1 <= len(value) <= self.count:
            section.problem(key, f"must be a list of 1 to {self.count} integers, not {show(value)}")
            return self.placeholder
        one = Integer(self.at_least, self.at_most)
        found = tuple(one.read(section, f"{key}[{i}]", entry) for i, entry in enumerate(value))
        if section.ok(key) and len(set(found)) < len(found):
            section.problem(key, "must not name one twice")
        return found

    def schema(self) -> Schema:
        one = Integer(self.at_least, self.at_most).schema()
        return {"type": "array", "items": one, "minItems": 1, "maxItems": self.count, "uniqueItems": True}

    def words(self) -> str:
        return f"list of integers {self.at_least} to {quantity(self.at_most)}"


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number in the range; an integer is taken as a float.

    ``above`` and ``at_least``: the right sign, and ``because`` of what a number of that sign may be too small.
    """

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None
    because: str = ""

    @property
    def placeholder(self) -> float:
        return 1.0

    def why(self, value: object) -> str | None:
        """Why ``value`` is no such number, or None."""
        why = bad_number(value, above=self.above, at_least=self.at_least, below=self.below, at_most=self.at_most)
        small = why is not None and why.startswith("must be >=")
        return f"{why}: {self.because}" if small and self.because else why

    def read(self, section: Section, key: str, value: object) -> float:
        why = self.why(value)
        if why is None and isinstance(value, (int, float)):
            return float(value)
        section.problem(key, why or "must be a number")
        return 1.0

    def schema(self) -> Schema:
        schema: Schema = {"type": "number"}
        if (low := self.above if self.at_least is None else self.at_least) is not None:
            schema |= {"minimum": low} | ({"exclusiveMinimum": True} if self.at_least is None else {})
        if (high := self.at_most if self.below is None else self.below) is not None:
            schema |= {"maximum": high} | ({"exclusiveMaximum": True} if self.below is not None else {})
        return schema

    def words(self) -> str:
        low = self.above if self.at_least is None else self.at_least
        high = self.at_most if self.below is None else self.below
        if low is not None and high is not None:
            return f"{'(' if self.at_least is None else '['}{low:g}, {quantity(high)}{')' if self.below else ']'}"
        if low is not None:
            return f"{'>' if self.at_least is None else '>='} {low:g}"
        return "any number"


@dataclass(frozen=True, slots=True)
class Text:
    """A string of printable characters, not only spaces."""

    at_most: int = MAX_TEXT

    @property
    def placeholder(self) -> str:
        return ""

    def read(self, section: Section, key: str, value: object) -> str:
        if not isinstance(value, str):
            section.problem(key, f"must be a string, not {show(value)}")
        elif not value.strip() or not value.isprintable() or len(value) > MAX_TEXT:
            section.problem(key, f"must be 1 to {MAX_TEXT} printable characters")
        elif len(value) > self.at_most:
            section.problem(key, f"must have at most {self.at_most} characters, not {len(value)}")
        else:
            return value
        return ""

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1, "maxLength": self.at_most, "pattern": PRINTABLE}

    def words(self) -> str:
        return "text" if self.at_most == MAX_TEXT else f"1 to {self.at_most} printable characters"


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false; 0 and 1 are neither."""

    @property
    def placeholder(self) -> bool:
        return False

    def read(self, section: Section, key: str, value: object) -> bool:
        if not isinstance(value, bool):
            section.problem(key, f"must be true or false, not {show(value)}")
        return value is True

    def schema(self) -> Schema:
        return {"type": "boolean"}

    def words(self) -> str:
        return "true, false"


@runtime_checkable
class Worded(Protocol):
    """A kind whose words the reference page explains, under ``title``."""

    @property
    def title(self) -> str: ...

    def meanings(self) -> tuple[tuple[str, str], ...]:
        """Each word and what it means."""


@dataclass(frozen=True, slots=True)
class Choice(Generic[Word]):
    """One of ``built``.  A word of ``planned`` is known but refused: it is not in this version.

    ``plug_in``: what ``module:function`` is, where that will do as well.  ``texts``: what each word means, for the
    reference page, under ``title``.
    """

    built: tuple[Word, ...]
    planned: tuple[str, ...] = ()
    plug_in: str = ""
    title: str = ""
    texts: tuple[str, ...] = ()

    @property
    def placeholder(self) -> Word:
        return self.built[0]

    def read(self, section: Section, key: str, value: object) -> Word:
        for word in self.built:
            if value == word:
                return word
        if self.plug_in and isinstance(value, str) and PLUG_IN.fullmatch(value):
            return cast(Word, value)
        section.problem(key, bad_word(value, self.built, self.planned))
        return self.built[0]

    def schema(self) -> Schema:
        words: Schema = {"enum": list(self.built)}
        return {"anyOf": [words, {"type": "string", "pattern": f"^{PLUG_IN.pattern}$"}]} if self.plug_in else words

    def words(self) -> str:
        return ", ".join([*(f'"{word}"' for word in self.built), *(["module:function"] if self.plug_in else [])])

    def meanings(self) -> tuple[tuple[str, str], ...]:
        told = tuple(zip(self.built, self.texts, strict=True)) if self.texts else ()
        return (*told, *((("module:function", self.plug_in),) if told and self.plug_in else ()))


def described(title: str, words: Mapping[str, str], plug_in: str = "") -> Choice[str]:
    """A choice among the keys of ``words``, whose values say what they mean."""
    return Choice(tuple(words), plug_in=plug_in, title=title, texts=tuple(words.values()))


def quantity(value: float) -> str:
    """A large round number as people write it: 10^9, 2^53, 10,000."""
    if value < 10**6 or value != int(value):
        return f"{value:,g}" if value != int(value) else f"{int(value):,}"
    text = f"{int(value)}"
    power_of_ten = re.fullmatch(r"1e\+(\d+)", f"{value:g}")
    if power_of_ten and float(power_of_ten[0]) == value:  # 1e100 is a double near 10^100
        return f"10^{int(power_of_ten[1])}"
    power = int(value).bit_length() - 1
    return f"2^{power}" if 2**power == value else text
