"""Reads TOML tables and collects every problem instead of stopping at the first.

After a problem ``Section.read`` returns a placeholder of the right type: the caller goes on reading, and raises once at
the end.  ``Section.ok`` tells which keys may take part in a check across keys.
"""

from __future__ import annotations

import codecs
import math
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from dpgt_node.config.declare import longlists
from dpgt_node.config.declare.hints import hint
from dpgt_node.errors import ConfigError, Problem

MAX_FILE_BYTES = 64_000_000
_HEAD = 1000
_MARKED = "begins with the mark of UTF-16 (the bytes FF FE or FE FF), but what follows is not: save it as UTF-8"

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def read_bytes(path: Path, source: str, key: str = "") -> bytes:
    """The whole file, at most 64 MB; ConfigError names ``source`` and ``key`` when it cannot be read."""
    try:
        if path.is_dir():
            raise ConfigError.one(source, key, f"{path} is a folder, not a file" if key else "is a folder, not a file")
        with path.open("rb") as file:
            held = os.fstat(file.fileno())
            regular = stat.S_ISREG(held.st_mode)
            long = regular and held.st_size > MAX_FILE_BYTES
            # A pipe or a device says no size, and a device may never end.
            raw = b"" if long else file.read(-1 if regular else MAX_FILE_BYTES + 1)
        if long or len(raw) > MAX_FILE_BYTES:
            raise ConfigError.one(source, key, f"{path.name} is larger than {MAX_FILE_BYTES // 1_000_000} MB")
        return raw
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        where = f" {path}" if key else ""
        raise ConfigError.one(source, key, f"cannot read{where}: {reason}") from error


def read_text(path: Path) -> str:
    """The text of a file, see :func:`decoded`.  ConfigError names it."""
    try:
        return decoded(read_bytes(path, str(path)))
    except ValueError as error:
        raise ConfigError.one(str(path), "", str(error)) from error


def decoded(raw: bytes) -> str:
    """Text in UTF-8, or in UTF-16 or UTF-32 with its mark, as editors on Windows write it; lines may end as on any
    system.  ValueError says in which line it is not text.
    """
    wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    widest = raw.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE))  # one begins like UTF-16
    try:
        text = raw.decode("utf-32" if widest else "utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        if wide or widest:
            raise ValueError(_MARKED) from error
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"is not UTF-8 text (line {line}, byte {error.start}): save it as UTF-8") from error
    if 3 * (head := text[:_HEAD]).count("\0") > len(head):
        raise ValueError("is UTF-16 text without a mark that says so: save it as UTF-8")
    if wide and not text.isascii() and not any(c in text for c in "=,;\n"):  # as bytes of another encoding look
        raise ValueError(_MARKED)
    return text if "\n" in text else text.replace("\r", "\n")


def parse_toml(text: str, source: str) -> dict[str, object]:
    """The TOML document; ConfigError gives line and column of a syntax error."""
    try:
        return longlists.loads(text)
    except RecursionError as error:
        raise ConfigError.one(source, "", "not valid TOML: nested too deeply") from error
    except ValueError as error:
        raise ConfigError.one(source, "", f"not valid TOML: {error}{hint(text, str(error))}") from error


def show(value: object) -> str:
    """A short, one-line picture of a value for a message."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = '"' + value.encode("unicode_escape").decode("ascii")[:60] + '"'
    elif isinstance(value, int) and abs(value) >= 10**18:
        text = "an integer beyond 10^18"  # str() of a huge integer can itself fail
    elif isinstance(value, Mapping):
        text = "a table"
    elif isinstance(value, (list, tuple)):
        text = f"a list of {len(value)}"
    elif isinstance(value, (int, float)):
        text = repr(value)
    else:
        text = f"a {type(value).__name__}"
    return text


def suggestion(word: str, known: Iterable[str]) -> str:
    """``'; did you mean "x"?'``, or nothing when no known word is close."""
    import difflib

    lowered = {item.lower(): item for item in known}
    close = difflib.get_close_matches(word[:100].lower(), lowered, n=1, cutoff=0.6)
    return f'; did you mean "{lowered[close[0]]}"?' if close else ""


def bad_number(
    value: object,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> str | None:
    """Why ``value`` is not a finite number in the range, or None.  A boolean is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"must be a number, not {show(value)}"
    try:
        number = float(value)
    except OverflowError:
        return "is too large"
    if not math.isfinite(number):
        return f"must be finite, not {number}"
    if above is not None and not number > above:
        return f"must be > {above:g}, not {show(value)}"
    if at_least is not None and not number >= at_least:
        return f"must be >= {at_least:g}, not {show(value)}"
    if below is not None and not number < below:
        return f"must be < {below:g}, not {show(value)}"
    if at_most is not None and not number <= at_most:
        return f"must be <= {at_most:g}, not {show(value)}"
    return None


class Kind(Protocol[T_co]):
    """What the values of a key are: how one is read, how the reference page and the JSON Schema describe them."""

    @property
    def placeholder(self) -> T_co:
        """Stands for a value that is missing or was refused, so that reading can go on."""

    def read(self, section: Section, key: str, value: object) -> T_co:
        """``value`` checked and converted; problems go to ``section`` under ``key``."""

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of a value as the file gives it."""

    def words(self) -> str:
        """The same for people, e.g. "integer 1 to 10^9"."""


class Section:
    """One table of a file.  ``prefix`` is its dotted name; problems go to the list shared by the whole file.

    ``base`` is the folder that relative paths start from.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        source: str,
        prefix: str,
        problems: list[Problem],
        base: Path,
        *,
        silent: bool = False,
    ) -> None:
        self.source = source
        self.prefix = prefix
        self.base = base
        self._values = values
        self._problems = problems
        self._known: dict[str, None] = {}
        self._sections: dict[str, Section] = {}
        self._failed: set[str] = set()
        # A section that is missing or of the wrong type was reported once; its keys are not reported again.
        self._silent = silent

    def _dotted(self, key: str) -> str:
        return f"{self.prefix}.{key}" if self.prefix else key

    def problem(self, key: str, message: str) -> None:
        """Record a problem with ``key`` (``""``: the section itself)."""
        self._failed.add(key.split("[", 1)[0])
        if not self._silent:
            self._problems.append(Problem(self.source, self._dotted(key) if key else self.prefix, message))

    def ok(self, *keys: str) -> bool:
        """Whether none of ``keys`` had a problem so far, so that a check across keys makes sense."""
        return not self._silent and not self._failed.intersection(keys)

    def has(self, key: str) -> bool:
        """Whether the file gives ``key``; also makes it a known key."""
        self._known[key] = None
        return key in self._values

    def names(self) -> tuple[str, ...]:
        """The keys that the file gives, in its order."""
        return tuple(self._values)

    def get(self, key: str) -> object:
        """The raw value, None when absent."""
        self._known[key] = None
        return self._values.get(key)

    def read(self, key: str, kind: Kind[T], default: T | None = None) -> T:
        """The value of ``key`` as ``kind`` reads it; required when ``default`` is None."""
        if self.has(key):
            return kind.read(self, key, self._values[key])
        if default is None:
            self.problem(key, "is missing")
            return kind.placeholder
        return default

    def section(self, key: str, *, required: bool = False) -> Section:
        """The sub-table ``key``, the same one however often it is asked for; an empty one when it is absent."""
        if key not in self._sections:
            self._sections[key] = self._section(key, required)
        return self._sections[key]

    def _section(self, key: str, required: bool) -> Section:
        dotted = self._dotted(key)
        value = self._values.get(key)
        silent = self._silent
        self._known[key] = None
        if key not in self._values:
            if required:
                self.problem(key, f"section [{dotted}] is missing")
                silent = True
            return Section({}, self.source, dotted, self._problems, self.base, silent=silent)
        if not isinstance(value, Mapping):
            self.problem(key, f"must be a section [{dotted}], not {show(value)}")
            return Section({}, self.source, dotted, self._problems, self.base, silent=True)
        return Section(value, self.source, dotted, self._problems, self.base, silent=silent)

    def done(self, explain: Mapping[str, str] | None = None) -> None:
        """Report every key nobody asked for; ``explain`` has better messages for some of them."""
        for key in self._values:
            if key not in self._known:
                fallback = f"unknown key{suggestion(key, self._known)}"
                self.problem(_printable(key), (explain or {}).get(key, fallback))


def _printable(key: str) -> str:
    return key if key and key.isprintable() and len(key) <= 100 else show(key)


def bad_word(value: object, choices: Sequence[str], planned: Sequence[str] = ()) -> str:
    """Why ``value`` is none of ``choices``."""
    available = ", ".join(f'"{word}"' for word in choices)
    if isinstance(value, str) and value in planned:
        return f"{show(value)} is not in this version (available: {available})"
    hint = suggestion(value, choices) if isinstance(value, str) else ""
    return f"must be one of {available}, not {show(value)}{hint}"
