"""A key of a file is declared once, as the annotation of the field that holds it.

    every: Annotated[int, Key("metrics at k = 0, every, 2 every, ..., K+1", Integer(1, MAX_ITERATIONS))] = 10

The field gives the name, the type and the default; :class:`Key` adds the range, one sentence and conditions.  Reading,
canonical JSON, emitted TOML, the reference page and the JSON Schema all come from :func:`declared`.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dpgt_node.config.declare.kinds import Choice, Flag, Integer, Number, Text
from dpgt_node.config.declare.reader import Kind, Section, show
from dpgt_node.values import dataclass

D = TypeVar("D")


class _Unset:
    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset()
"""No default: the key is required where it applies."""


@dataclass(frozen=True, slots=True)
class When:
    """A condition: ``key``, of the same table, has (or has not) one of ``words``.

    A word that ends in a colon is any value that begins with it.  ``text`` says it to people.
    """

    key: str
    words: tuple[str, ...]
    holds: bool = True
    text: str = ""

    def met(self, word: object) -> bool:
        """Whether a key under this condition has a meaning when ``key`` is ``word``."""
        text = str(word).lower() if isinstance(word, bool) else str(word)
        prefix, colon, _ = text.partition(":")
        return (text in self.words or (prefix + colon if colon else text) in self.words) is self.holds


@dataclass(frozen=True, slots=True)
class Key:
    """What a field's name, type and default do not say.

    ``kind`` is found from the type where it has no range of its own: int, float, str, bool and Literal.  ``name`` is
    the key in the file where it is not the field's name; ``data.id`` stands in the table [data].  ``absent`` says
    what holds without a key whose default is None.  ``default`` is the file's where the field has none.  ``required``
    is a key that must be given where ``only`` holds, though the field has a default.

    ``about`` is the sentence of a table that only keys with dotted names make; its first key has it.

    ``later``: left out of canonical JSON and of emitted files while it has its default.  Every key of a run file that
    came after version 1 of the format needs it (or the default None): a run without the key keeps its hash.
    """

    sentence: str
    kind: Kind[Any] | None = None
    name: str = ""
    only: When | None = None
    absent: str = ""
    default: object = UNSET
    required: bool = False
    later: bool = False
    unit: str = ""
    about: str = ""


@dataclass(frozen=True, slots=True)
class Variants:
    """Further keys of a table, which depend on the word that ``key`` has: declared by a class for each word.

    ``what`` the word is, for people.  A word that ends in a colon is any value that begins with it; a word that is
    not listed has no keys of its own.
    """

    key: str
    what: str
    tables: Mapping[str, type]

    def of(self, word: str) -> type | None:
        """The declaration of ``word``'s own keys, None where it has none."""
        prefix, colon, _ = word.partition(":")
        return self.tables.get(prefix + colon if colon else word)

    def owner(self, name: str) -> str | None:
        """The first word that has a key ``name``, None where none has."""
        return next((word for word, table in self.tables.items() if any(d.name == name for d in declared(table))), None)


@dataclass(frozen=True, slots=True)
class AtMostOne:
    """Keys of one table that exclude each other, beside the :class:`Key` of the first; ``blamed`` is named in messages.

    Without ``blamed`` it is the table.
    """

    names: tuple[str, ...]
    blamed: str = ""

    def check(self, section: Section) -> tuple[str, ...]:
        """Report it when the file gives two; the keys whose defaults do not count, as another one is given."""
        table = self.names[0].rpartition(".")[0]
        section = section.section(table) if table else section
        names = [name.rpartition(".")[2] for name in self.names]
        given = [name for name in names if section.has(name)]
        if len(given) > 1 and len(names) == 2:
            section.problem(self.blamed, f"give {names[0]} or {names[1]}, not both")
        elif len(given) > 1:
            section.problem(self.blamed, f"give at most one of {', '.join(names)}, not {' and '.join(given)}")
        return tuple(full for full, name in zip(self.names, names, strict=True) if given and name not in given)


@dataclass(frozen=True, slots=True)
class Declared:
    """A key together with the field that holds it.  ``default`` None: the key may be absent.

    ``tag``: the one word that this key has, which says that a table is read as this class and no other.
    """

    field: str
    name: str
    key: Key
    kind: Kind[Any]
    default: object = UNSET
    tag: str = ""

    @property
    def required(self) -> bool:
        """Whether the file must give it (where its condition holds)."""
        return self.default is UNSET

    def read(self, section: Section) -> Any:
        """Its value in ``section``: the file's, or the default."""
        table, _, name = self.name.rpartition(".")
        if table:
            section = section.section(table)
        if self.default is None and not section.has(name):
            return None
        return section.read(name, self.kind, None if self.default is UNSET else self.default)


def annotation_of(cls: type, item: Field[Any]) -> tuple[Any, tuple[Any, ...]]:
    """The field's type, and what Annotated adds to it."""
    hint = _hints(cls)[item.name]
    return (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


@cache
def declared(cls: type) -> tuple[Declared, ...]:
    """The keys that the dataclass ``cls`` declares, in the order of the file: a key that chooses others comes first.

    Fields without a :class:`Key` (sections, variants) are left out; a field with several is one that several keys give.
    TypeError when a key has neither a kind nor a type that has one.
    """
    found: list[Declared] = []
    for item in fields(cls):
        annotation, extras = annotation_of(cls, item)
        for key in extras:
            if not isinstance(key, Key) or is_section(annotation):
                continue
            default = item.default if item.default is not MISSING else UNSET
            if key.required or default is UNSET:
                default = key.default
            kind = key.kind or _inferred(annotation)
            words = get_args(annotation) if get_origin(annotation) is Literal else ()
            tag = words[0] if len(words) == 1 else ""
            found.insert(0 if tag else len(found), Declared(item.name, key.name or item.name, key, kind, default, tag))
    return tuple(found)


def is_section(annotation: Any) -> bool:
    """Whether a field of this type is a table of the file: a dataclass, or one of several."""
    return all(is_dataclass(part) and _has_keys(part) for part in parts(annotation))


def _has_keys(cls: Any) -> bool:
    return any(isinstance(extra, Key) for item in fields(cls) for extra in annotation_of(cls, item)[1])


@cache
def variants_of(cls: type) -> tuple[Variants, ...]:
    """The further keys of a table that is read as ``cls``."""
    return tuple(extra for item in fields(cls) for extra in annotation_of(cls, item)[1] if isinstance(extra, Variants))


@cache
def exclusives(cls: type) -> tuple[AtMostOne, ...]:
    """The keys of ``cls`` that exclude each other; several keys for one field do."""
    groups = [extra for item in fields(cls) for extra in annotation_of(cls, item)[1] if isinstance(extra, AtMostOne)]
    by_field: dict[str, list[str]] = {}
    for entry in declared(cls):
        by_field.setdefault(entry.field, []).append(entry.name)
    return (*groups, *(AtMostOne(tuple(names), names[-1]) for names in by_field.values() if len(names) > 1))


def parts(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _inferred(annotation: Any) -> Kind[Any]:
    plain = [part for part in parts(annotation) if part is not types.NoneType]
    if len(plain) == 1:
        if get_origin(plain[0]) is Literal:
            return Choice(get_args(plain[0]))
        kinds: dict[Any, Kind[Any]] = {int: Integer(), float: Number(), str: Text(), bool: Flag()}
        if plain[0] in kinds:
            return kinds[plain[0]]
    raise TypeError(f"a key of type {annotation} needs a kind")


def read_fields(section: Section, cls: type, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The fields of ``cls`` from ``section``; those in ``given`` were read already.

    A key whose condition does not hold is not asked for, so that :meth:`Section.done` reports it.
    """
    values: dict[str, Any] = dict(given or {})
    excluded = [name for group in exclusives(cls) for name in group.check(section)]
    for entry in declared(cls):
        if entry.field in values:
            continue
        if entry.name in excluded:
            values[entry.field] = None
            continue
        condition = entry.key.only
        if condition is None or condition.key not in values or condition.met(values[condition.key]):
            values[entry.field] = entry.read(section)
        elif not section.ok(condition.key):
            section.has(entry.name)  # nobody knows whether it belongs: the word that decides was refused already
    return values


def read_table(section: Section, cls: type[D]) -> D:
    """A whole table whose keys depend on no other table; every unknown key is reported."""
    values = read_fields(section, cls)
    section.done(foreign(cls, values))
    return cls(**values)


def foreign(cls: type, values: Mapping[str, Any]) -> dict[str, str]:
    """Why keys of ``cls`` whose condition does not hold are refused, for :meth:`Section.done`."""
    return {
        entry.name: f"is no parameter of {show(values[entry.key.only.key])}"
        for entry in declared(cls)
        if entry.key.only is not None
        and entry.key.only.key in values
        and not entry.key.only.met(values[entry.key.only.key])
    }


def sections(value: Any) -> list[tuple[str, Any, Key]]:
    """The tables of a whole file, in its order: name, value and declaration."""
    cls: type = type(value)
    return [(item.name, getattr(value, item.name), key) for item, key in section_fields(cls)]


@cache
def section_fields(cls: type) -> tuple[tuple[Field[Any], Key], ...]:
    """The fields of ``cls`` that are tables, with their declarations."""
    found = []
    for item in fields(cls):
        annotation, extras = annotation_of(cls, item)
        found += [(item, extra) for extra in extras if isinstance(extra, Key) and is_section(annotation)]
    return tuple(found)


def table(value: Any) -> dict[str, Any]:
    """A frozen value back to the keys of its table, in the order of the file; what is absent is left out.

    Keys with a form of their own, several for one field, are left to the caller.
    """
    found: dict[str, Any] = {}
    cls: type = type(value)
    entries = declared(cls)
    for entry in entries:
        held, condition = getattr(value, entry.field), entry.key.only
        if held is None or (entry.key.later and held == entry.default):
            continue
        if sum(other.field == entry.field for other in entries) > 1:
            continue
        if condition is None or condition.met(getattr(value, condition.key)):
            where, _, name = entry.name.rpartition(".")
            (found.setdefault(where, {}) if where else found)[name] = _plain(held)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, (float, str)):  # most of all, the numbers of matrices
        return value
    if callable(whole := getattr(value, "table", None)):
        return whole()
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, Path) else value
