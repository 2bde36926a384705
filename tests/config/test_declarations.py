"""A key is declared once: no field without a declaration, no second default, nothing generated that is stale."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest

from dpgt_node.cli import schema as generate
from dpgt_node.config import NodeConfig, RunConfig, model, node_model, parameters
from dpgt_node.config.declare.keys import UNSET, AtMostOne, Key, Variants, annotation_of, declared, is_section, parts
from dpgt_node.config.declare.kinds import Choice
from dpgt_node.config.declare.reader import Section
from dpgt_node.config.declare.tables import tables_of
from dpgt_node.errors import Problem

CLASSES = [
    value
    for module in (model, node_model, parameters)
    for value in vars(module).values()
    if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__
]
KEYS = [(cls, entry) for cls in CLASSES for entry in declared(cls)]
NO_KEYS = {model.NoiseStream: {"kind", "values"}, RunConfig: {"base"}}
"""What one of two keys gives, and where the file lies."""


def ids(item: Any) -> str:
    return item.__name__ if isinstance(item, type) else str(item.name)


def undeclared(cls: type) -> set[str]:
    return {f.name for f in fields(cls) if not any(isinstance(e, Key | Variants) for e in annotation_of(cls, f)[1])}


def field_of(cls: type, name: str) -> Any:
    return next(field for field in fields(cls) if field.name == name)


@pytest.mark.parametrize("cls", CLASSES, ids=ids)
def test_every_field_has_a_declaration(cls):
    assert undeclared(cls) == NO_KEYS.get(cls, set())


def test_a_field_without_one_is_noticed():
    @dataclass
    class Forgotten:
        told: Annotated[int, Key("a number")]
        untold: int = 3

    assert undeclared(Forgotten) == {"untold"}


def test_every_class_belongs_to_a_file():
    found, todo = set(), [RunConfig, NodeConfig, parameters.Generator, model.NoiseStream]
    todo += parameters.GENERATOR_KEYS.tables.values()
    while todo:
        cls = todo.pop()
        found.add(cls)
        for field in fields(cls):
            annotation, extras = annotation_of(cls, field)
            todo += parts(annotation) if is_section(annotation) else []
            todo += [table for extra in extras if isinstance(extra, Variants) for table in extra.tables.values()]
    assert set(CLASSES) <= found


@pytest.mark.parametrize("cls", CLASSES, ids=ids)
def test_no_name_is_declared_twice(cls):
    names = [entry.name for entry in declared(cls)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("cls", "entry"), KEYS, ids=ids)
def test_there_is_one_default(cls, entry):
    """The field's; a declaration has one only where the field has none, or where the file must give the key."""
    field = field_of(cls, entry.field)
    if field.default is MISSING:
        assert field.default_factory is MISSING and entry.default == entry.key.default
    else:
        assert entry.key.default is UNSET
        assert entry.default == (UNSET if entry.key.required else field.default)


@pytest.mark.parametrize(("cls", "entry"), KEYS, ids=ids)
def test_a_default_is_valid(cls, entry):
    problems: list[Problem] = []
    if isinstance(entry.default, str | int | float):
        section = Section({}, "file", "", problems, Path())
        assert entry.kind.read(section, entry.name, entry.default) == entry.default
    assert problems == []


@pytest.mark.parametrize(("cls", "entry"), KEYS, ids=ids)
def test_a_kind_reads_what_the_field_holds(cls, entry):
    types = parts(annotation_of(cls, field_of(cls, entry.field))[0])
    words = [word for part in types if get_origin(part) is Literal for word in get_args(part)]
    if isinstance(entry.kind, Choice) and words:
        assert list(entry.kind.built) == words
    elif model.NoiseStream not in types:
        assert isinstance(
            entry.kind.placeholder, tuple(get_origin(part) or part for part in types if part not in words)
        )


@pytest.mark.parametrize(("cls", "entry"), KEYS, ids=ids)
def test_a_sentence_is_one(cls, entry):
    sentence = entry.key.sentence
    assert sentence and not sentence.removesuffix("...").endswith(".") and "\n" not in sentence
    assert not sentence[0].isupper() or not sentence[1].islower(), "a symbol such as K may begin it, a capital may not"


def test_keys_that_exclude_each_other_are_there():
    for cls in CLASSES:
        for field in fields(cls):
            for group in (e for e in annotation_of(cls, field)[1] if isinstance(e, AtMostOne)):
                assert set(group.names) <= {entry.name for entry in declared(cls)}


def test_a_condition_is_on_a_key_of_the_same_table():
    for file in (RunConfig, NodeConfig):
        for table in tables_of(file):
            for row in table.rows:
                assert row.only is None or "." in row.only.key or row.only.key in table.names


def test_a_key_without_a_kind_is_refused():
    @dataclass
    class Odd:
        odd: Annotated[dict, Key("a table")]

    with pytest.raises(TypeError, match="needs a kind"):
        declared(Odd)


# --- what is generated --------------------------------------------------------------------------------------------


def test_the_page_and_the_schemas_are_up_to_date():
    assert generate.stale() == [], "run python -m dpgt_node.cli.schema"


def test_a_stale_file_is_noticed(tmp_path):
    for path, text in generate.generated().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert generate.stale(tmp_path) == []
    page, run, node = generate.generated()
    (tmp_path / page).write_text("another text")
    (tmp_path / node).unlink()
    assert generate.stale(tmp_path) == [str(page), str(node)] and run.name == "run.schema.json"


def test_every_key_is_in_the_page():
    text = (generate.ROOT / "docs" / "reference" / "configuration.md").read_text()
    for file in (RunConfig, NodeConfig):
        for table in tables_of(file):
            assert table.rows == () or not table.name or f"### `[{table.name}]`" in text
            assert [name for name in table.names if f"| `{name}` |" not in text] == []
