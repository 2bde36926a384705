"""The JSON Schema of a file, made of its declarations: editors complete and check with it.

Draft 4, which is what the TOML language servers understand; there an integer is no 3.0 either.  A schema refuses
nothing that the reader takes.  It cannot say everything that the reader checks: shapes against the number of agents,
schedules that leave float64, agents' names, files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

from dpgt_node.config.declare.keys import UNSET, Variants, When
from dpgt_node.config.declare.kinds import Flag
from dpgt_node.config.declare.tables import Row, Table, table_of, tables_of

Schema = dict[str, Any]
DRAFT = "http://json-schema.org/draft-04/schema#"


def of_file(cls: type, title: str) -> Schema:
    """The schema of a whole file that is read as ``cls``."""
    top, *tables = tables_of(cls)
    properties, required, rules = _members(top)
    by_name = {table.name: table for table in tables}
    for table in tables:
        name = table.name
        properties[name] = _object(table) | ({"description": table.sentence} if table.sentence else {})
        if table.required:
            required.append(name)
        if table.only is not None:
            rules.append({"anyOf": [_elsewhere(table.only, by_name), {"properties": {name: {"maxProperties": 0}}}]})
        far = [row for row in table.rows if row.only is not None and "." in row.only.key]
        rules += _rules(far, partial(_elsewhere, tables=by_name), partial(_within, name))
    return {"$schema": DRAFT, "title": title} | _closed(properties, required, rules)


def _within(name: str, schema: Schema) -> Schema:
    return {"properties": {name: schema}}


def of_class(cls: type, *variants: Variants) -> Schema:
    """The schema of one table that is read as ``cls``, with the further keys of ``variants``."""
    return _object(table_of("", "", (cls,), *variants))


def _object(table: Table) -> Schema:
    return _closed(*_members(table))


def _closed(properties: Schema, required: list[str], rules: list[Schema]) -> Schema:
    """An object without other keys; Draft 4 knows no empty lists."""
    lists = {"required": required, "allOf": rules}
    filled = {word: items for word, items in lists.items() if items}
    return {"type": "object", "properties": properties, "additionalProperties": False} | filled


def _members(table: Table) -> tuple[Schema, list[str], list[Schema]]:
    """One table by itself: conditions on keys of other tables are left to the file."""
    local = [row for row in table.rows if row.only is None or "." not in row.only.key]
    pairs = (pair for group in table.exclusive for pair in combinations(group.names, 2))
    rules = _rules(local, lambda only: _test(only, table), lambda schema: schema)
    rules += [{"not": {"required": [name.rpartition(".")[2] for name in pair]}} for pair in pairs]
    required = [row.name for row in table.rows if row.only is None and row.entry.required]
    return {name: _property(table.of(name)) for name in table.names}, required, rules


def _property(rows: tuple[Row, ...]) -> Schema:
    """A key under whatever condition: what editors show and complete."""
    kinds = list({id(row.entry.kind): row.entry.kind.schema() for row in rows}.values())
    schemas = [schema for i, schema in enumerate(kinds) if schema not in kinds[:i]]
    sentences = dict.fromkeys(row.entry.key.sentence for row in rows)
    described: Schema = {"description": "; ".join(sentences)}
    default = rows[0].entry.default
    if len(rows) == 1 and isinstance(default, str | int | float):
        described["default"] = default
    return (dict(schemas[0]) if len(schemas) == 1 else {"anyOf": schemas}) | described


def _rules(rows: Sequence[Row], test: Callable[[When], Schema], at: Callable[[Schema], Schema]) -> list[Schema]:
    """What holds under each condition: the ranges of keys, which are required, which have no meaning.

    ``at`` puts a schema of the table where the rule stands.
    """
    conditions: dict[str, list[When | None]] = {}
    for row in rows:
        conditions.setdefault(row.name, []).append(row.only)
    rules = []
    for only in dict.fromkeys(row.only for row in rows if row.only is not None):
        own = [row for row in rows if row.only == only]
        ranges = {row.name: row.entry.kind.schema() for row in own if len(conditions[row.name]) > 1}
        required = [row.name for row in own if row.entry.required]
        held = ({"properties": ranges} if ranges else {}) | ({"required": required} if required else {})
        if held:
            rules.append({"anyOf": [{"not": test(only)}, at(held)]})
    for name, alternatives in conditions.items():
        if None not in alternatives:
            tests = [test(only) for only in alternatives if only is not None]
            rules.append({"anyOf": [*tests, at({"not": {"required": [name]}})]})
    return rules


def _test(only: When, table: Table) -> Schema:
    """A schema of ``table`` that holds where the condition does; a key that is absent has its default."""
    key = only.key.rpartition(".")[2]
    entry = table.of(key)[0].entry
    words = [word for word in only.words if not word.endswith(":")]
    exact = {"enum": [word == "true" for word in words] if isinstance(entry.kind, Flag) else words}
    patterns = [{"type": "string", "pattern": f"^{word}"} for word in only.words if word.endswith(":")]
    values = [exact, *patterns] if words else patterns
    test: Schema = {"properties": {key: values[0] if len(values) == 1 else {"anyOf": values}}}
    if entry.default is UNSET or not When(key, only.words).met(entry.default):
        test["required"] = [key]
    return test if only.holds else {"not": test}


def _elsewhere(only: When, tables: Mapping[str, Table]) -> Schema:
    """The same as a schema of the whole file, for a key of another table; a table that is absent has defaults."""
    name = only.key.partition(".")[0]
    test = _test(replace(only, holds=True), tables[name])
    there: Schema = {"properties": {name: test}} | ({"required": [name]} if "required" in test else {})
    return there if only.holds else {"not": there}
