from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from hypothesis import given

from dpgt_node.config import (
    canonical_json,
    diff_runs,
    parse_document,
    parse_run,
    resolved_dataset,
    run_sha256,
    to_toml,
)
from tests.config.cases import GOOD, parse, relaxed, runs, spoiled


@relaxed
@given(runs())
def test_toml_round_trip(run):
    text = to_toml(run)
    again = parse_run(text, "copy", Path("/elsewhere"))
    assert again == run
    assert canonical_json(again) == canonical_json(run)
    assert to_toml(again) == text


@relaxed
@given(runs(), runs())
def test_the_hash_tells_runs_apart(a, b):
    assert (run_sha256(a) == run_sha256(b)) == (a == b)


@relaxed
@given(runs())
def test_canonical_json_is_what_is_hashed(run):
    text = canonical_json(run)

    def refuse(word):
        raise AssertionError(word)

    document = json.loads(text, parse_constant=refuse)
    assert json.dumps(document, sort_keys=True, separators=(",", ":")) == text
    assert text.isascii()
    assert "somewhere" not in text
    assert run_sha256(run) == hashlib.sha256(text.encode()).hexdigest()


def test_the_hash_ignores_order_comments_and_spelling():
    text = tomli_w.dumps(GOOD)
    run = parse_run(text, "a", Path())
    backwards = {
        key: dict(reversed(value.items())) if isinstance(value, dict) else value
        for key, value in reversed(GOOD.items())
    }
    assert run_sha256(parse_document(backwards, "b", Path())) == run_sha256(run)
    assert run_sha256(parse_run(f"# comment\n{text}\n# another\n", "c", Path("/other"))) == run_sha256(run)
    spelled = {
        "graph.agents": ["agent-1", "agent-2", "agent-3"],
        "graph.R": {"generator": "ring"},
        "noise.scale_zeta": [0.1, 1e-1, 0.10],
        "algorithm.method": "dpgt",
        "evaluate": {"every": 10},
        "runtime": {"round_timeout": 60},
    }
    assert run_sha256(parse(spelled)) == run_sha256(run)


def test_the_hash_is_pinned():
    """It is compared between hosts: a new version of the package must not change it unnoticed."""
    assert run_sha256(parse({})) == "c46940042336dccdef32bfe6102f620d284f7f780cd30673f197514aafced93f"


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm.iterations": 11},
        {"graph.R": [[0, 0, 1.0000001], [1, 0, 0], [0, 1, 0]]},
        {"evaluate.metrics": "study"},
        {"runtime.channel": "plain"},
        {"data.seed": 1},
        {"privacy.delta": 1e-6},
        {"name": "other"},
    ],
)
def test_every_value_is_part_of_the_hash(changes):
    assert run_sha256(parse(changes)) != run_sha256(parse({}))


def test_a_file_of_weights_hashes_like_the_weights(tmp_path):
    np.save(tmp_path / "r.npy", np.array(GOOD["graph"]["R"], dtype=np.int8))
    assert run_sha256(parse({"graph.R": "r.npy"}, tmp_path)) == run_sha256(parse({}))


def test_negative_zero_is_zero():
    assert run_sha256(parse({"graph.R": [[-0.0, 0, 1], [1, 0, 0], [0, 1, 0]]})) == run_sha256(parse({}))


def test_data_paths(tmp_path):
    run = parse({"data.dataset": "npz:sub/x.npz"}, tmp_path)
    assert resolved_dataset(run) == f"npz:{tmp_path}/sub/x.npz"
    elsewhere = parse({"data.dataset": "npz:sub/x.npz"}, Path("/elsewhere"))
    assert run_sha256(run) == run_sha256(elsewhere)
    assert run == elsewhere
    assert parse_run(to_toml(run), "copy", Path("/elsewhere")) == run
    copy = parse_run(to_toml(run, absolute_paths=True), "copy", Path("/elsewhere"))
    assert resolved_dataset(copy) == resolved_dataset(run)
    assert to_toml(run) == to_toml(run, absolute_paths=False)


def test_a_run_file_asked_for_from_another_folder_names_the_same_data(tmp_path):
    (tmp_path / "below").mkdir()
    for dataset, base in (("npz:x.npz", tmp_path / "below" / ".."), ("npz:below/../x.npz", tmp_path)):
        assert resolved_dataset(parse({"data.dataset": dataset}, base)) == f"npz:{tmp_path.resolve()}/x.npz"


def test_datasets_without_a_path_stay():
    assert resolved_dataset(parse({})) == "digits"
    assert resolved_dataset(parse({"data.dataset": "npz:/abs/x.npz"})) == "npz:/abs/x.npz"
    assert resolved_dataset(replace(parse({"data.dataset": "npz:x.npz"}), base=None)) == "npz:x.npz"


def test_toml_is_for_people():
    text = to_toml(parse({}))
    assert "scale_zeta = 0.1\n" in text
    assert "R = [\n  [0, 0, 1],\n  [1, 0, 0],\n  [0, 1, 0],\n]\n" in text


# --- differences --------------------------------------------------------------------------------------------------


def diff(changes):
    return diff_runs(canonical_json(parse({})), canonical_json(parse(changes)))


def test_equal_runs_do_not_differ():
    assert diff({}) == []


def test_differences_are_named():
    assert diff({"algorithm.iterations": 20}) == ["algorithm.iterations: 10 here, 20 there"]
    assert diff({"graph.R": [[0, 0, 2], [1, 0, 0], [0, 1, 0]]}) == ["graph.R[0][2]: 1.0 here, 2.0 there"]
    assert diff({"privacy.clip_l1": 4}) == ["privacy.clip_l1: absent here, 4.0 there"]
    assert diff({"name": "other"}) == ['name: "small" here, "other" there']


def test_integer_and_float_differ_as_their_hashes_do():
    assert diff_runs('{"a":1}', '{"a":1.0}') == ["a: 1 here, 1.0 there"]


def test_differences_are_bounded():
    document = spoiled({"graph": {"agents": 9, "R": {"generator": "ring"}, "C": {"generator": "ring"}}})
    document["noise"]["scale_eta"] = 1
    lines = diff_runs(canonical_json(parse({})), canonical_json(parse_document(document, "x", Path())))
    assert len(lines) == 21
    assert lines[-1].startswith("... and ")
    assert diff_runs("{}", json.dumps({"a": "x" * 10_000}))[0] == 'a: absent here, "' + "x" * 59 + "... there"


@pytest.mark.parametrize("theirs", ["", "nonsense", "[" * 100_000, '{"a":'])
def test_their_text_may_be_anything(theirs):
    assert diff_runs("{}", theirs) == ["the run there is not readable as JSON"]


def test_terminal_escapes_of_a_peer_are_shown_not_obeyed():
    (line,) = diff_runs("{}", json.dumps({"\x1b[2J": "\x1b[2J\n"}))
    assert line == r'\u001b[2J: absent here, "\u001b[2J\n" there'


def test_a_run_without_an_adversary_keeps_its_hash_and_one_with_it_has_another():
    plain, empty = parse({}), parse({"adversary": {"semi_honest": [], "truth": False}})
    assert "adversary" not in canonical_json(plain)
    assert run_sha256(plain) == run_sha256(empty)
    one, two = parse({"adversary.semi_honest": "agent-2"}), parse({"adversary.semi_honest": ["agent-2"]})
    assert run_sha256(one) == run_sha256(two) != run_sha256(plain)
    both = [parse({"adversary.semi_honest": names}) for names in (["agent-3", "agent-1"], ["agent-1", "agent-3"])]
    assert run_sha256(both[0]) == run_sha256(both[1])
    study = {"evaluate.metrics": "study"}
    assert run_sha256(parse(study)) != run_sha256(parse({**study, "adversary.truth": True}))
