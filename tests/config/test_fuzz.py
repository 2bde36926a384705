"""Whatever a file holds: a configuration or a ConfigError, nothing else."""

from __future__ import annotations

import copy
import datetime
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dpgt_node.config import canonical_json, load_node, load_run, parse_document, parse_run, to_toml
from dpgt_node.config.node import parse_node_document
from dpgt_node.errors import ConfigError
from tests.config import test_node
from tests.config.cases import GOOD, S1, relaxed

scalars = (
    st.none().map(lambda _: datetime.date(2000, 1, 1))
    | st.booleans()
    | st.integers()
    | st.integers(0, 5)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["S1", "S2", "full", "digits", "pl-linear", "zeros", "npz:x", "ring", "random", "x.csv", "a:b"])
)
keys = st.sampled_from(sorted({k for v in GOOD.values() if isinstance(v, dict) for k in v} | set(S1))) | st.text(
    max_size=5
)
values = st.recursive(scalars, lambda v: st.lists(v, max_size=4) | st.dictionaries(keys, v, max_size=4), max_leaves=12)
sections = st.sampled_from([*GOOD, "model", "privacy", "evaluate", "runtime", "tls", "policy"])


def survives(document: dict[str, Any]) -> None:
    for parse in (parse_document, parse_node_document):
        try:
            run = parse(document, "fuzz", Path("/nowhere"))
        except ConfigError as error:
            assert error.problems
            assert all("\n" not in str(problem) for problem in error.problems)
        else:
            if parse is parse_document:
                assert parse_run(to_toml(run), "copy", Path("/nowhere")) == run
                canonical_json(run)


@relaxed
@given(st.dictionaries(sections | st.text(max_size=5), values | st.dictionaries(keys, values, max_size=5), max_size=8))
def test_random_documents(document):
    survives(document)


@relaxed
@given(st.lists(st.tuples(sections, keys, values), max_size=3), st.booleans())
def test_a_good_run_with_random_values(changes, s1):
    document = copy.deepcopy(GOOD)
    if s1:
        document["scheme"] = dict(S1)
    for section, key, value in changes:
        table = document.setdefault(section, {})
        if isinstance(table, dict):
            table[key] = value
        else:
            document[section] = value
    survives(document)


@relaxed
@given(st.sampled_from(sorted(test_node.GOOD)), values)
def test_a_good_node_with_a_random_value(key, value):
    survives({**test_node.GOOD, key: value})


def test_random_bytes(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "file"

    @relaxed
    @given(st.binary(max_size=200) | st.text(st.characters(exclude_categories=["Cs"]), max_size=200).map(str.encode))
    def load(raw):
        path.write_bytes(raw)
        for loader in (load_run, load_node):
            try:
                loader(path)
            except ConfigError:
                continue

    load()
