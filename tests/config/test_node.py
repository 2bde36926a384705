from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgt_node.config import (
    NodeConfig,
    NodeTls,
    Policy,
    check_node_in_run,
    format_address,
    is_wildcard,
    load_node,
    node_to_toml,
    parse_address,
    parse_node,
)
from dpgt_node.config.node import parse_node_document
from dpgt_node.config.run import parse_document
from dpgt_node.errors import ConfigError
from tests.config.cases import DELETE, names, parse, relaxed

BASE = Path("/etc/dpgt")
GOOD = {
    "name": "agent-2",
    "run": "run.toml",
    "listen": "10.0.0.2:7000",
    "coordinator": "coordinator.example:7000",
    "state_dir": "state",
    "tls": {"ca": "ca.pem", "cert": "cert.pem", "key": "/keys/key.pem"},
}


def node(changes):
    document = copy.deepcopy(GOOD)
    for dotted, value in changes.items():
        *sections, last = dotted.split(".")
        table = document
        for section in sections:
            table = table.setdefault(section, {})
        if value is DELETE:
            del table[last]
        else:
            table[last] = value
    return parse_node_document(document, "NODE.toml", BASE)


def problems(changes):
    try:
        node(changes)
    except ConfigError as error:
        return [(p.key, p.message) for p in error.problems]
    return []


def test_paths_are_resolved_and_defaults_documented():
    assert node({}) == NodeConfig(
        name="agent-2",
        run=BASE / "run.toml",
        listen="10.0.0.2:7000",
        advertise=None,
        coordinator="coordinator.example:7000",
        state_dir=BASE / "state",
        tls=NodeTls(False, BASE / "ca.pem", BASE / "cert.pem", Path("/keys/key.pem"), "dpgt:coordinator"),
        shard=None,
        data_path=None,
        durability="process",
        policy=Policy(None, None, None, None, None),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"listen": "[::1]:0"},
        {"listen": "0.0.0.0:7000", "advertise": "agent-2.example:7000"},
        {"listen": "[::]:7000", "advertise": "[fd00::2]:7000"},
        {"listen": "localhost:0", "coordinator": "127.0.0.1:1"},
        {"coordinator": "compose_service:65535"},
        {"tls": {"insecure": True}},
        {"tls.insecure": False},
        {"tls.coordinator_id": "dpgt:elsewhere"},
        {"durability": "power"},
        {"disk_check": False},
        {"ledger_key": "/keys/ledger.key"},
        {"data": {"shard": 1}},
        {"data": {"path": "own.npz"}},
        {"policy": {}},
        {"policy": {"epsilon_max": 3, "delta_max": 1e-5, "accountant": "lemma5", "noise_min": 0.1}},
        {"policy": {"mechanisms": ["paper", "noise-once"]}},
        {"policy": {"accountant": "gdp"}},
        {"policy": {"epsilon_max": 3, "epsilon_max_colluding": 1, "colluding": 2}},
        {"data": {"id": "ward 7, 2026", "shard": 2}},
        {"data": {"id": "x" * 128, "path": "own.npz"}},
    ],
)
def test_accepted_and_round_trip(changes):
    parsed = node(changes)
    assert parse_node(node_to_toml(parsed), "copy", Path("/elsewhere")) == parsed


BAD = [
    ({"nmae": "x"}, "nmae", 'did you mean "name"?'),
    ({"name": DELETE}, "name", "is missing"),
    ({"name": "a b"}, "name", "is not an agent name"),
    ({"run": DELETE}, "run", "is missing"),
    ({"run": 3}, "run", "must be a string"),
    ({"run": "a\x00b"}, "run", "printable"),
    ({"state_dir": ""}, "state_dir", "printable"),
    ({"state_dir": DELETE}, "state_dir", "is missing"),
    ({"listen": DELETE}, "listen", "is missing"),
    ({"listen": "7000"}, "listen", "must be HOST:PORT"),
    ({"listen": ":7000"}, "listen", "must be HOST:PORT"),
    ({"listen": "host:65536"}, "listen", "the port must be 0 to 65535"),
    ({"listen": "::1:7000"}, "listen", "in brackets"),
    ({"listen": "0.0.0.0:7000"}, "advertise", "is needed because"),
    ({"listen": "[::]:7000"}, "advertise", "is needed because"),
    ({"advertise": "0.0.0.0:7000"}, "advertise", "is a wildcard"),
    ({"advertise": "[::]:7000"}, "advertise", "is a wildcard"),
    ({"advertise": "host:0"}, "advertise", "port 0 cannot be dialled"),
    ({"coordinator": "host:0"}, "coordinator", "port 0 cannot be dialled"),
    ({"coordinator": "0.0.0.0:1"}, "coordinator", "is a wildcard"),
    ({"coordinator": DELETE}, "coordinator", "is missing"),
    ({"durability": "disk"}, "durability", 'must be one of "process", "power"'),
    ({"data": {"shard": 0}}, "data.shard", "must be >= 1"),
    ({"data": {"shard": 1.0}}, "data.shard", "must be an integer"),
    ({"data": {"shard": 1, "path": "x"}}, "data", "give shard or path, not both"),
    ({"data": {"id": ""}}, "data.id", "must be 1 to 4096 printable"),
    ({"data": {"id": "a\nb"}}, "data.id", "must be 1 to 4096 printable"),
    ({"data": {"id": "x" * 129}}, "data.id", "at most 128 characters, not 129"),
    ({"data": {"sahrd": 1}}, "data.sahrd", 'did you mean "shard"?'),
    ({"tls": DELETE}, "tls", "section [tls] is missing"),
    ({"tls.key": DELETE}, "tls.key", "is missing"),
    ({"tls.insecure": True}, "tls.insecure", "excludes ca, cert, key"),
    ({"tls.insecure": "no"}, "tls.insecure", "must be true or false"),
    ({"tls.coordinator_id": "me"}, "tls.coordinator_id", "must be an identity"),
    ({"tls.coordinator_id": "dpgt:agent:other"}, "tls.coordinator_id", '"dpgt:agent:other" is no coordinator'),
    ({"tls.coordinator_id": "dpgt:operator"}, "tls.coordinator_id", '"dpgt:operator" is no coordinator'),
    ({"policy.epsilon_max": 0}, "policy.epsilon_max", "must be > 0"),
    ({"policy.delta_max": 1.0}, "policy.delta_max", "must be < 1"),
    ({"policy.accountant": "gpd"}, "policy.accountant", 'did you mean "gdp"?'),
    ({"policy.mechanisms": []}, "policy.mechanisms", "a list of mechanisms"),
    ({"policy.mechanisms": "paper"}, "policy.mechanisms", "a list of mechanisms"),
    ({"policy.mechanisms": ["papre"]}, "policy.mechanisms[0]", 'did you mean "paper"?'),
    ({"policy.noise_min": -1}, "policy.noise_min", "must be > 0"),
    ({"policy.colluding": 1}, "policy.colluding", "needs epsilon_max_colluding"),
    ({"policy.epsilon_max_colluding": 1}, "policy.epsilon_max_colluding", "needs colluding"),
    ({"policy": {"colluding": -1, "epsilon_max_colluding": 1}}, "policy.colluding", "must be >= 0"),
    ({"policy": {"colluding": 1, "epsilon_max_colluding": 0}}, "policy.epsilon_max_colluding", "must be > 0"),
    ({"policy.epsilon": 1}, "policy.epsilon", 'did you mean "epsilon_max"?'),
]


@pytest.mark.parametrize(("changes", "key", "words"), BAD, ids=[f"{key}: {words}" for _, key, words in BAD])
def test_one_problem_is_reported_once(changes, key, words):
    ((found, message),) = problems(changes)
    assert found == key
    assert words in message


def test_all_problems_at_once():
    found = problems({"name": "!", "listen": "x", "coordinator": DELETE, "data": {"shard": -1}, "policy.x": 1})
    assert [key for key, _ in found] == ["name", "listen", "coordinator", "data.shard", "policy.x"]


def test_a_file_of_the_other_kind_is_called_so() -> None:
    """One line instead of every key that it lacks and has."""
    with pytest.raises(ConfigError) as caught:
        parse_node_document({"algorithm": {}, "scheme": {}, "graph": {}, "data": {}}, "a.toml", BASE)
    assert str(caught.value).startswith("a.toml: is a run file, and a node file is asked for: ")
    with pytest.raises(ConfigError) as caught:
        parse_document({"run": "b.toml", "listen": "", "coordinator": ""}, "NODE.toml", BASE)
    assert str(caught.value).endswith('as the one it names: "b.toml"')


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot read: No such file"):
        load_node(tmp_path / "NODE.toml")


# --- the node against its run -------------------------------------------------------------------------------------


def test_row_of_the_node():
    assert check_node_in_run(node({}), parse({})) == 1


@pytest.mark.parametrize(
    ("changes", "run", "key", "words"),
    [
        ({"name": "agent-4"}, {}, "graph.agents", 'agent "agent-4" is not in this run'),
        ({"name": "Agent-2"}, {}, "graph.agents", 'did you mean "agent-2"?'),
        ({"data": {"shard": 4}}, {}, "data.shard", "must be 1 to 3, not 4"),
        ({"data": {"path": "x"}}, {"data": {"dataset": "pl-sine"}}, "data.path", 'no meaning for "pl-sine"'),
        ({"data": {"path": "x"}}, {"data": {"dataset": "npz:x.npz"}}, "data.classes", "its labels decide how many"),
        ({"data": {"path": "x"}}, {"data": {"dataset": "lib:load"}}, "data.dataset", "does not say how many classes"),
    ],
)
def test_nodes_that_do_not_fit(changes, run, key, words):
    with pytest.raises(ConfigError) as caught:
        check_node_in_run(node(changes), parse(run))
    (problem,) = caught.value.problems
    assert problem.key == key
    assert words in problem.message


def test_misfits_come_together():
    with pytest.raises(ConfigError) as caught:
        check_node_in_run(replace(node({}), name="x", shard=9), parse({}))
    assert len(caught.value.problems) == 2


# --- addresses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:0", ("localhost", 0)),
        ("10.1.2.3:65535", ("10.1.2.3", 65535)),
        ("[::1]:80", ("::1", 80)),
        ("[fe80::1%eth0]:80", ("fe80::1%eth0", 80)),
        ("a.b-c.example.:7", ("a.b-c.example.", 7)),
        ("my_service:7000", ("my_service", 7000)),
    ],
)
def test_addresses(text, expected):
    assert parse_address(text) == expected
    assert parse_address(format_address(*expected)) == expected


BAD_ADDRESSES = ["", "host", "host:", ":1", "host:-1", "host:+1", "host: 1", "host:99999", "host:1e3", "host:\u0661"]
BAD_ADDRESSES += ["::1:80", "[::1]", "[host]:1", "[]:1", "256.1.1.1:1", "1.2.3:1", "12:1", "a..b:1", "-a:1", "a b:1"]
BAD_ADDRESSES += ["unix:/tmp/x:1", "http://host:1", "user@host:1", "[::1:80", "h" * 64 + ":1", "a.0x7:1x"]


@pytest.mark.parametrize("text", BAD_ADDRESSES)
def test_bad_addresses(text):
    with pytest.raises(ValueError):
        parse_address(text)


@relaxed
@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_value_error(text):
    try:
        host, port = parse_address(text)
    except ValueError:
        return
    assert host
    assert 0 <= port <= 65535


def test_wildcards():
    assert [is_wildcard(h) for h in ("0.0.0.0", "::", "0::0", "127.0.0.1", "::1", "host")] == [True] * 3 + [False] * 3


@relaxed
@given(names, st.none() | st.integers(1, 5), st.sampled_from(["process", "power"]), st.booleans())
def test_round_trip(name, shard, durability, insecure):
    tls = NodeTls(True) if insecure else NodeTls(False, Path("/a\\b"), Path('/c"d'), Path("/e f"), "dpgt:x")
    original = replace(node({}), name=name, shard=shard, durability=durability, tls=tls, policy=Policy(0.5, 1e-9))
    assert parse_node(node_to_toml(original), "copy", Path("/elsewhere")) == original
