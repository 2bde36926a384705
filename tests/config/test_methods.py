"""The keys of one method, [method]: carried in the run, part of its hash, declared by the method."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
from jsonschema import Draft4Validator

from dpgt_node.config import (
    Key,
    canonical_json,
    method_options,
    methods,
    parse_run,
    register_options,
    run_sha256,
    to_toml,
)
from dpgt_node.config.declare.keys import declared
from dpgt_node.config.declare.kinds import Integer, Number
from dpgt_node.config.published import reference_page, run_schema
from dpgt_node.config.vocabulary import METHODS, METHODS_WITH_KEYS
from dpgt_node.errors import ConfigError
from tests.config.cases import parse, problems, spoiled


@dataclass(frozen=True, slots=True)
class Options:
    """Of no method that there is."""

    batch: Annotated[int, Key("samples a step", Integer(1, 100))]
    momentum: Annotated[float, Key("of the average", Number(at_least=0.0, below=1.0))] = 0.9
    restart: Annotated[Literal["never", "often"], Key("when the average begins anew")] = "never"


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(methods.METHOD_KEYS.tables, "dpgt", Options)


@pytest.fixture
def unregistered(monkeypatch):
    monkeypatch.delitem(methods.METHOD_KEYS.tables, "dpgt")


def test_every_method_has_declared_its_keys():
    assert tuple(importlib.import_module("dpgt_node.algo.methods").METHODS.values())
    assert methods.METHOD_KEYS.tables.keys() == set(METHODS.built)
    with_keys = [word for word, table in methods.METHOD_KEYS.tables.items() if declared(table)]
    assert sorted(with_keys) == sorted(METHODS_WITH_KEYS)


def test_keys_are_read_where_the_method_was_not_imported_yet(monkeypatch):
    registry = importlib.import_module("dpgt_node.algo.methods").METHODS
    assert registry["sampled-dsgd"].options
    monkeypatch.setitem(methods.METHOD_KEYS.tables, "sampled-dsgd", methods.Elsewhere)
    monkeypatch.delitem(registry.loaded, "sampled-dsgd")
    assert "sampled-dsgd" in registry and "sampled-dsgd" not in registry.loaded
    found = problems({"algorithm": {"method": "sampled-dsgd", "iterations": 3}, "method": {"nonsense": 3}})
    assert ("method.nonsense", "unknown key") in found


def test_an_absent_or_empty_table_changes_nothing():
    assert "method" not in json.loads(canonical_json(parse({})))
    assert run_sha256(parse({"method": {}})) == run_sha256(parse({}))


def test_a_method_without_keys_refuses_them():
    assert problems({"method": {"batch": 3}}) == [("method.batch", "unknown key")]
    assert problems({"method": 3}) == [("method", "must be a section [method], not 3")]


@pytest.mark.usefixtures("registered")
def test_what_the_file_gives_is_carried_and_hashed():
    run = parse({"method": {"momentum": 0.5, "batch": 3}})
    assert dict(run.method_options) == {"momentum": 0.5, "batch": 3}
    assert json.loads(canonical_json(run))["method"] == {"batch": 3, "momentum": 0.5}
    assert run_sha256(run) != run_sha256(parse({"method": {"batch": 4, "momentum": 0.5}}))
    assert parse_run(to_toml(run), "copy", Path()) == run
    assert method_options(run, Options) == Options(3, 0.5)


@pytest.mark.usefixtures("registered")
def test_its_problems_come_with_the_others():
    found = problems({"method": {"batch": 0, "momentum": "x", "restrat": "often"}, "evaluate.every": 0})
    assert found == [
        ("evaluate.every", "must be >= 1, not 0"),
        ("method.batch", "must be >= 1, not 0"),
        ("method.momentum", 'must be a number, not "x"'),
        ("method.restrat", 'unknown key; did you mean "restart"?'),
    ]
    assert problems({}) == [("method.batch", "is missing")]


@pytest.mark.usefixtures("unregistered")
def test_a_method_that_is_not_known_here_keeps_its_scalars_until_it_reads_them():
    run = parse({"method": {"batch": 0, "momentum": 1.5}})
    with pytest.raises(ConfigError) as caught:
        method_options(run, Options, "run.toml")
    assert str(caught.value).splitlines() == [
        "run.toml: method.batch: must be >= 1, not 0",
        "run.toml: method.momentum: must be < 1, not 1.5",
    ]
    for value in ([], [[1]], {"a": 1}, float("nan"), 2**60, "a\nb"):
        ((key, _),) = problems({"method": {"batch": value}})
        assert key.startswith("method.batch")
    lists = parse({"method": {"batch": [1, 2.5]}})
    assert dict(lists.method_options) == {"batch": (1, 2.5)} and parse_run(to_toml(lists), "copy", Path()) == lists


@pytest.mark.usefixtures("registered")
def test_the_page_and_the_schema_have_its_keys():
    assert '| "dpgt" | `batch` | integer 1 to 100 | required | samples a step |' in reference_page()
    validator = Draft4Validator(run_schema())
    assert validator.is_valid(spoiled({"method": {"batch": 3, "restart": "often"}}))
    assert not validator.is_valid(spoiled({"method": {"batch": 0}}))
    assert not validator.is_valid(spoiled({"method": {"batch": 3, "bath": 1}}))


def test_a_key_of_another_method_is_told(monkeypatch):
    monkeypatch.setitem(methods.METHOD_KEYS.tables, "s-ab", Options)
    assert problems({"method": {"batch": 3}}) == [("method.batch", 'is no key of method "dpgt" (it is one of "s-ab")')]


def test_only_declarations_can_be_registered(monkeypatch):
    monkeypatch.setitem(methods.METHOD_KEYS.tables, "dpgt", Options)
    with pytest.raises(TypeError):
        register_options("dpgt", dict)
