"""A file's declarations as flat tables of keys, for the reference page and the JSON Schema."""

from __future__ import annotations

from dataclasses import MISSING, replace

from dpgt_node.config.declare.keys import (
    AtMostOne,
    Declared,
    Variants,
    When,
    annotation_of,
    declared,
    exclusives,
    parts,
    section_fields,
    variants_of,
)
from dpgt_node.config.declare.kinds import Choice
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One key of one table under one condition; a key with different ranges has several rows."""

    entry: Declared
    only: When | None

    @property
    def name(self) -> str:
        """The key, without its table."""
        return self.entry.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Table:
    """``name`` is empty for the keys before the first table.  ``only``: where the table has a meaning at all."""

    name: str
    sentence: str
    rows: tuple[Row, ...]
    exclusive: tuple[AtMostOne, ...] = ()
    required: bool = False
    only: When | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Its keys, in the order of the file."""
        return tuple(dict.fromkeys(row.name for row in self.rows))

    def of(self, name: str) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.name == name)


def tables_of(cls: type) -> tuple[Table, ...]:
    """All tables of a file that is read as ``cls``: the keys before the first table, then the tables in their order."""
    own = table_of("", "", (cls,))
    found = []
    for prefix in dict.fromkeys(_prefix(row.entry.name) for row in own.rows):
        rows = tuple(row for row in own.rows if _prefix(row.entry.name) == prefix)
        groups = tuple(group for group in own.exclusive if _prefix(group.names[0]) == prefix)
        about = next((row.entry.key.about for row in rows if row.entry.key.about), "")
        found.append(Table(prefix, about, rows, groups))
    for item, key in section_fields(cls):
        table = table_of(item.name, key.sentence, parts(annotation_of(cls, item)[0]))
        required = item.default is MISSING and item.default_factory is MISSING
        found.append(replace(table, required=required, only=key.only))
    for variants in variants_of(cls):
        found.append(Table(variants.what, f"keys of one {variants.what} alone", _variant_rows(variants)))
    return tuple(found)


def table_of(name: str, sentence: str, classes: tuple[type, ...], *more: Variants) -> Table:
    """One table that is read as one of ``classes``, with the further keys of ``more`` and of their own variants."""
    entries = [(cls, entry) for cls in classes for entry in declared(cls)]
    tags = tuple(entry.tag for _, entry in entries if entry.tag)
    rows: dict[Row, None] = {}
    for cls, entry in entries:
        shared = all(any((e.name, e.kind) == (entry.name, entry.kind) for e in declared(c)) for c in classes)
        if entry.tag:
            rows[Row(replace(entry, kind=Choice(tags), tag=""), None)] = None
        elif shared:
            rows[Row(entry, entry.key.only)] = None
        else:
            (tag,) = (e for e in declared(cls) if e.tag)
            rows[Row(entry, When(tag.name, (tag.tag,)))] = None
    groups = [group for cls in classes for group in exclusives(cls)]
    for variants in (*(v for cls in classes for v in variants_of(cls) if "." not in v.key), *more):
        rows |= dict.fromkeys(_variant_rows(variants))
        groups += [group for table in variants.tables.values() for group in exclusives(table)]
    return Table(name, sentence, tuple(rows), tuple(dict.fromkeys(groups)))


def _variant_rows(variants: Variants) -> tuple[Row, ...]:
    words: dict[type, list[str]] = {}
    for word, table in variants.tables.items():
        words.setdefault(table, []).append(word)
    return tuple(
        Row(entry, When(variants.key, tuple(owners))) for table, owners in words.items() for entry in declared(table)
    )


def _prefix(name: str) -> str:
    return name.rpartition(".")[0]
