"""The JSON Schemas that ship: they take what the reader takes, and refuse what is wrong in one place."""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft4Validator

from dpgt_node import cli
from dpgt_node.algo.methods import METHODS
from dpgt_node.config import node_to_toml, parse_document, to_toml
from dpgt_node.config.declare import schema
from dpgt_node.config.parameters import GENERATOR_KEYS, Generator
from dpgt_node.config.published import node_schema, run_schema
from dpgt_node.errors import ConfigError
from tests.config import test_node, test_run_errors
from tests.config.cases import DELETE, GOOD, S1, relaxed, runs, spoiled
from tests.config.test_fuzz import keys, sections, values

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))
assert all(METHODS.values())  # methods declare their keys when they load
RUN, NODE = Draft4Validator(run_schema()), Draft4Validator(node_schema())

# What a schema cannot tell, by words of the reader's message.
ACROSS = (
    'mechanism "paper" sends',
    "noise-once has rounds",
    "needs noise and is charged",
    "may settle",
    "holds round",
    "but rounds",
    "holds several gradients",
    "multiplies a clip",
    "noise-once has",
    "need clip_l1",
    "has no classes",
    "has other parameters",
    "not bounded",
    "fixed norm",
    "must begin with round 0",
    'method "',
    "must be finite",  # JSON has no such numbers
    "is too large",
    "is no agent of this run",
    'unless evaluate.metrics = "study"',
    "m_K larger than 2^53",
    "range of float64",
    "noise leave float32",
    "is no coordinator",
    "leave 1e-290",
    "(multiplier 1.0) makes",
    "multiplier 1e-100",
    "noise scale",
    "must be > 0 under scheme S2",
    "it has no samples",
    "give scale_zeta or p_zeta",
    "give scale_eta or p_eta",
    "for 3 agents",
    "an agent name twice",
    "must be 3 x 3",
    "must be >= dimension = 5",
    "rows * dimension",
    "the port must be 0 to 65535",
    "in brackets",
    "is needed because",
    "is a wildcard",
    "needs epsilon_max_colluding",
    "needs colluding",
    "port 0 cannot be dialled",
)


def edited(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    document = copy.deepcopy(document)
    for dotted, value in changes.items():
        *sections, last = dotted.split(".")
        table = document
        for section in sections:
            table = table.setdefault(section, {})
        if value is DELETE:
            del table[last]
        else:
            table[last] = value
    return document


def test_they_are_schemas():
    Draft4Validator.check_schema(run_schema())
    Draft4Validator.check_schema(node_schema())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_valid(path):
    assert [error.message for error in RUN.iter_errors(tomllib.loads(path.read_text()))] == []


@relaxed
@given(runs())
def test_a_run_is_valid(run):
    assert RUN.is_valid(tomllib.loads(to_toml(run)))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tls": {"insecure": True}},
        {"durability": "power", "disk_check": False, "data": {"shard": 3, "id": "ward 7"}},
        {"data": {"path": "own.npz"}, "policy": {"epsilon_max": 1, "mechanisms": ["noise-once"], "accountant": "gdp"}},
    ],
)
def test_a_node_is_valid(changes):
    document = edited(test_node.GOOD, changes)
    assert NODE.is_valid(document)
    assert NODE.is_valid(tomllib.loads(node_to_toml(test_node.node(changes))))


BAD_RUNS = [
    case
    for case in test_run_errors.BAD
    if not any(words in case[2] for words in ACROSS)
    and case[0] != {"noise.scale_zeta": 0.0}  # right where nothing is drawn
    and case[0] != {"graph.agents": ["a", "b", "c\n"]}  # Python's $ also matches before a last newline
]
BAD_NODES = [case for case in test_node.BAD if not any(words in case[2] for words in ACROSS)]


@pytest.mark.parametrize(("changes", "key", "words"), BAD_RUNS, ids=[f"{key}: {words}" for _, key, words in BAD_RUNS])
def test_a_bad_run_is_refused(changes, key, words):
    assert not RUN.is_valid(spoiled(changes))


@pytest.mark.parametrize(("changes", "key", "words"), BAD_NODES, ids=[f"{key}: {words}" for _, key, words in BAD_NODES])
def test_a_bad_node_is_refused(changes, key, words):
    assert not NODE.is_valid(edited(test_node.GOOD, changes))


@relaxed
@given(st.lists(st.tuples(sections, keys, values), min_size=1, max_size=3), st.booleans())
def test_what_the_reader_takes_the_schema_takes(changes, s1):
    document = copy.deepcopy(GOOD) | ({"scheme": dict(S1)} if s1 else {})
    for section, key, value in changes:
        table = document.setdefault(section, {})
        if isinstance(table, dict):
            table[key] = value
    try:
        parse_document(document, "fuzz", Path("/nowhere"))
    except ConfigError:
        return
    assert RUN.is_valid(document)


def test_most_mistakes_are_of_that_kind():
    assert len(BAD_RUNS) > 0.75 * len(test_run_errors.BAD) and len(BAD_NODES) > 0.7 * len(test_node.BAD)


def test_an_error_names_the_place():
    (error,) = RUN.iter_errors(spoiled({"evaluate.every": 0}))
    assert list(error.path) == ["evaluate", "every"]
    (error,) = RUN.iter_errors(spoiled({"evaluate.evry": 1}))
    assert list(error.path) == ["evaluate"] and "'evry' was unexpected" in error.message


def test_keys_of_a_variant_are_those_of_its_word_alone():
    linear = {"data": {"dataset": "pl-linear", "dimension": 10_001}}
    assert not RUN.is_valid(spoiled(linear))
    linear["data"] |= {"dataset": "zeros"}
    assert RUN.is_valid(spoiled(linear))
    assert RUN.is_valid(spoiled({"scheme": {**S1, "p_m": 0}})) and not RUN.is_valid(spoiled({"scheme.p_m": 0}))
    star = Draft4Validator(schema.of_class(Generator, GENERATOR_KEYS))
    assert star.is_valid({"generator": "star", "center": 2}) and not star.is_valid({"generator": "ring", "center": 2})


def test_every_key_is_described_for_editors():
    for whole in (run_schema(), node_schema()):
        tables = [whole, *(table for table in whole["properties"].values() if "properties" in table)]
        for table in tables:
            assert [key for key, value in table["properties"].items() if not value.get("description")] == []
            assert table["additionalProperties"] is False


def test_an_empty_file_is_refused():
    assert not RUN.is_valid({}) and not NODE.is_valid({}) and RUN.is_valid(GOOD)


@pytest.mark.parametrize(("file", "whole"), [("run", run_schema), ("node", node_schema)])
def test_dpgt_schema_prints_what_ships(file, whole, capsys):
    assert cli.run(["schema", file]) == 0
    assert json.loads(capsys.readouterr().out) == whole()


def test_dpgt_schema_of_nothing(capsys):
    assert cli.run(["schema", "graph"]) == 2
