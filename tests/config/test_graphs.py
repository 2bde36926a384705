from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from dpgt_node.config import emit
from dpgt_node.config.emit import canonical_json, run_sha256, to_toml
from dpgt_node.config.graphs import edges, matrices
from dpgt_node.config.graphs.sparse import COMPACT_FROM, SPARSE_FROM, SparseRows
from dpgt_node.config.run import parse_run
from dpgt_node.wire.fields import MAX_JSON_BYTES
from tests.config.cases import parse, problems

DEMO_R = [[0, 0, 0, 0, 1], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]]
DEMO_C = [[0, 0, 1, 0, 1], [1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]]


def build(n, **generator):
    return np.array(parse({"noise.scale_eta": 1, "graph": {"agents": n, "R": generator, "C": generator}}).graph.R)


@pytest.mark.parametrize(
    ("generator", "expected"),
    [
        ({"generator": "ring"}, [[0, 0, 1], [1, 0, 0], [0, 1, 0]]),
        ({"generator": "ring", "reverse": True}, [[0, 1, 0], [0, 0, 1], [1, 0, 0]]),
        ({"generator": "ring", "weight": 2, "self_loops": True}, [[2, 0, 2], [2, 2, 0], [0, 2, 2]]),
        ({"generator": "path"}, [[0, 0, 0], [1, 0, 0], [0, 1, 0]]),
        ({"generator": "path", "self_loops": 0.5}, [[0.5, 0, 0], [1, 0.5, 0], [0, 1, 0.5]]),
        ({"generator": "path", "undirected": True}, [[0, 1, 0], [1, 0, 1], [0, 1, 0]]),
        ({"generator": "star"}, [[0, 0, 0], [1, 0, 0], [1, 0, 0]]),
        ({"generator": "star", "center": 2, "reverse": True}, [[0, 0, 0], [1, 0, 1], [0, 0, 0]]),
        ({"generator": "complete", "weight": 0.25}, [[0, 0.25, 0.25], [0.25, 0, 0.25], [0.25, 0.25, 0]]),
        ({"generator": "random", "p": 0.0}, [[0, 0, 0], [0, 0, 0], [0, 0, 0]]),
        ({"generator": "random", "p": 1}, [[0, 1, 1], [1, 0, 1], [1, 1, 0]]),
        ({"generator": "ring-chord"}, [[0, 0, 1], [1, 0, 0], [1, 1, 0]]),
        (
            {"generator": "edges", "edges": [[1, 2], [3, 3, 0.5], [2, 1, 4]], "weight": 2.0},
            [[0, 4, 0], [2, 0, 0], [0, 0, 0.5]],
        ),
        ({"generator": "edges", "edges": [[1, 2]], "reverse": True}, [[0, 1, 0], [0, 0, 0], [0, 0, 0]]),
        ({"generator": "edges", "edges": [[1, 2, 0.5]], "undirected": True}, [[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]]),
        ({"generator": "edges", "edges": []}, [[0, 0, 0], [0, 0, 0], [0, 0, 0]]),
        ({"generator": "circulant", "offsets": [1]}, [[0, 0, 1], [1, 0, 0], [0, 1, 0]]),
        ({"generator": "circulant", "offsets": [2, 4, 3]}, [[0, 1, 1], [1, 0, 1], [1, 1, 0]]),
    ],
)
def test_generators(generator, expected):
    assert build(3, **generator).tolist() == expected


def test_the_demo_graphs_are_rings_with_a_chord():
    assert build(5, generator="ring-chord").tolist() == DEMO_R
    assert build(5, generator="ring-chord", chord=[3, 1]).tolist() == DEMO_C


@pytest.mark.parametrize("kind", ["ring", "path", "star", "complete"])
def test_one_agent_has_no_neighbour(kind):
    assert build(1, generator=kind).tolist() == [[0]]


def test_a_circulant_graph_sends_as_far_as_it_says():
    found = build(100, generator="circulant", offsets=[1, 3, 9, 27], weight=0.25)
    assert {(int(i - j) % 100) for i, j in np.argwhere(found)} == {1, 3, 9, 27}
    assert (found.sum(axis=0) == 1).all() and (found.sum(axis=1) == 1).all()


def test_random_follows_its_seed_and_probability():
    first = build(40, generator="random", p=0.3, seed=1)
    assert (first == build(40, generator="random", p=0.3, seed=1)).all()
    assert (first != build(40, generator="random", p=0.3, seed=2)).any()
    assert np.trace(first) == 0
    assert 0.25 < first.sum() / (40 * 39) < 0.35


@pytest.mark.parametrize(
    ("generator", "key", "words"),
    [
        ({}, "graph.R.generator", "is missing"),
        ({"generator": "rign"}, "graph.R.generator", 'did you mean "ring"?'),
        ({"generator": "ring", "p": 0.5}, "graph.R.p", "unknown key"),
        ({"generator": "ring", "weight": 0}, "graph.R.weight", "must be > 0"),
        ({"generator": "ring", "self_loops": -1}, "graph.R.self_loops", "must be >= 0"),
        ({"generator": "ring", "reverse": 1}, "graph.R.reverse", "must be true or false"),
        ({"generator": "star", "center": 4}, "graph.R.center", "must be <= 3"),
        ({"generator": "circulant"}, "graph.R.offsets", "is missing"),
        ({"generator": "edges"}, "graph.R.edges", "is missing"),
        ({"generator": "edges", "edges": [[1, 2], [1, 4]]}, "graph.R.edges[1][1]", "number of an agent, 1 to 3, not 4"),
        ({"generator": "edges", "edges": [[1, 2], [1, 2, 3]]}, "graph.R.edges[1]", "1 -> 2 is there already"),
        ({"generator": "edges", "edges": [[1, 2, 0.0]]}, "graph.R.edges[0][2]", "must be > 0"),
        ({"generator": "edges", "edges": [[True, 2]]}, "graph.R.edges[0][0]", "1 to 3, not true"),
        ({"generator": "edges", "edges": [[1]]}, "graph.R.edges[0]", "must be [sender, receiver]"),
        ({"generator": "circulant", "offsets": 3}, "graph.R.offsets", "must be a list"),
        ({"generator": "circulant", "offsets": []}, "graph.R.offsets", "must be a list"),
        ({"generator": "circulant", "offsets": [0]}, "graph.R.offsets[0]", "must be >= 1"),
        ({"generator": "circulant", "offsets": [2, True]}, "graph.R.offsets[1]", "must be an integer"),
        ({"generator": "circulant", "offsets": [2, 2]}, "graph.R.offsets", "must not name one twice"),
        ({"generator": "ring", "offsets": [1]}, "graph.R.offsets", "unknown key"),
        ({"generator": "random"}, "graph.R.p", "is missing"),
        ({"generator": "random", "p": 1.5}, "graph.R.p", "must be <= 1"),
        ({"generator": "random", "p": 0.5, "seed": -1}, "graph.R.seed", "must be >= 0"),
        ({"generator": "ring-chord", "chord": [1, 1]}, "graph.R.chord", "two different agent numbers from 1 to 3"),
        ({"generator": "ring-chord", "chord": [0, 1]}, "graph.R.chord", "two different"),
        ({"generator": "ring-chord", "chord": [1.0, 2]}, "graph.R.chord", "two different"),
        ({"generator": "ring-chord", "chord": 3}, "graph.R.chord", "two different"),
    ],
)
def test_bad_generators(generator, key, words):
    ((found, message),) = problems({"graph.R": generator})
    assert found == key
    assert words in message


def test_the_first_bad_edges_are_told_of_at_once():
    edges = [["a", 3], [1.5, 2], [1, 2], [0, 3], [1, 2], [1, 301], *([[2, 9]] * 3)]
    told = problems({"graph.R": {"generator": "edges", "edges": edges}})
    places = ["edges[0][0]", "edges[1][0]", "edges[3][0]", "edges[4]", "edges[5][1]", "edges"]
    assert [key for key, _ in told] == [f"graph.R.{place}" for place in places]
    assert 'not "a"' in told[0][1] and "not 301" in told[4][1] and told[5][1] == "has 3 more bad edges"


def test_the_default_chord_needs_three_agents():
    ring = {"generator": "ring-chord"}
    found = problems({"graph": {"agents": 2, "R": ring, "C": ring}, "noise.scale_eta": 1})
    assert [key for key, _ in found] == ["graph.R.chord", "graph.C.chord"]


# --- files --------------------------------------------------------------------------------------------------------

MATRIX = [[0.0, 0.0, 0.5], [1.0, 0.25, 0.0], [0.0, 1e-3, 0.0]]


def write_csv(path):
    rows = "\n".join(", ".join(map(repr, row)) for row in MATRIX)
    path.write_text(f"# R of the test\n\n{rows}\n")


def write_npy(path):
    np.save(path, np.array(MATRIX))


def write_graphml(path):
    graph = nx.DiGraph()
    graph.add_nodes_from(["agent-3", "agent-1", "agent-2"])
    for i, row in enumerate(MATRIX):
        for j, weight in enumerate(row):
            if weight:
                graph.add_edge(f"agent-{j + 1}", f"agent-{i + 1}", weight=weight)
    nx.write_graphml(graph, path)


@pytest.mark.parametrize(
    ("name", "write"), [("r.csv", write_csv), ("r.npy", write_npy), ("sub/r.graphml", write_graphml)]
)
def test_matrix_files_relative_to_the_run_file(tmp_path, name, write):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    write(tmp_path / name)
    graph = parse({"graph.R": name}, tmp_path).graph
    assert np.array(graph.R).tolist() == MATRIX


def test_graphml_without_weights_and_directions(tmp_path):
    nx.write_graphml(nx.path_graph(["agent-1", "agent-2", "agent-3"]), tmp_path / "r.graphml")
    assert parse({"graph.R": "r.graphml"}, tmp_path).graph.R == ((0, 1, 0), (1, 0, 1), (0, 1, 0))


def test_integer_arrays(tmp_path):
    np.save(tmp_path / "r.npy", np.eye(3, dtype=np.int32))
    assert parse({"graph.R": "r.npy"}, tmp_path).graph.R == ((1, 0, 0), (0, 1, 0), (0, 0, 1))


def graph_ml(edges="", extra=""):
    nodes = "".join(f'<node id="agent-{i}"/>' for i in (1, 2, 3))
    key = '<key id="w" for="edge" attr.name="weight" attr.type="double"/>'
    graph = f'{key}<graph edgedefault="directed">{nodes}{edges}</graph>'
    return f'{extra}<graphml xmlns="http://graphml.graphdrawing.org/xmlns">{graph}</graphml>'


def edge(source, target, weight="1"):
    return f'<edge source="{source}" target="{target}"><data key="w">{weight}</data></edge>'


class Evil:
    def __reduce__(self):
        return (exec, ("raise SystemExit('pickle was run')",))


BAD_FILES = [
    ("absent.csv", None, "No such file"),
    ("r.txt", "0", ".csv, .npy or .graphml"),
    ("r.csv", "0,0,1\n1,x,0\n0,1,0", "line 2: could not convert"),
    ("r.csv", "0,1\n1,0", "has 2 rows for 3 agents"),
    ("r.csv", "", "has 0 rows for 3 agents"),
    ("r.csv", b"\xfd\xfe", "is not UTF-8 text (line 1, byte 0)"),
    ("r.npy", "not an array", "r.npy"),
    ("r.npy", b"", "r.npy"),
    ("r.npy", np.zeros(9), "2-dimensional array of real numbers"),
    ("r.npy", np.zeros((3, 3), complex), "2-dimensional array of real numbers"),
    ("r.npy", np.full((3, 3), Evil(), dtype=object), "allow_pickle"),
    ("r.graphml", "<graphml", "not a GraphML file"),
    ("r.graphml", "<html/>", "not a GraphML file"),
    ("r.graphml", graph_ml('<node id="mallory"/>'), 'node "mallory" is not an agent'),
    ("r.graphml", graph_ml(edge("agent-1", "agent-2") * 2), "parallel edges"),
    ("r.graphml", graph_ml(extra='<!DOCTYPE g [<!ENTITY a "b">]>'), "entities"),
]


@pytest.mark.parametrize(("name", "content", "words"), BAD_FILES)
def test_bad_matrix_files(tmp_path, name, content, words):
    if isinstance(content, str):
        content = content.encode()
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif content is not None:
        np.save(tmp_path / name, content, allow_pickle=True)
    ((key, message),) = problems({"graph.R": name}, tmp_path)
    assert key == "graph.R"
    assert words in message
    assert "\n" not in message


def test_bad_weights_in_files_are_named(tmp_path):
    (tmp_path / "r.csv").write_text("0,0,nan\n-1,0,0\n0,inf,0")
    (tmp_path / "c.graphml").write_text(graph_ml(edge("agent-1", "agent-2", "-2")))
    found = problems({"graph.R": "r.csv", "graph.C": "c.graphml"}, tmp_path)
    assert [key for key, _ in found] == ["graph.R[0][2]", "graph.R[1][0]", "graph.R[2][1]", "graph.C[1][0]"]


def test_a_folder_is_no_matrix(tmp_path):
    (tmp_path / "r.csv").mkdir()
    ((_, message),) = problems({"graph.R": "r.csv"}, tmp_path)
    assert "is a folder" in message


@pytest.mark.parametrize(
    "generator",
    [
        {"generator": "ring", "self_loops": 0.5},
        {"generator": "random", "p": 0.01, "seed": 3, "weight": 0.25},
        {"generator": "star", "center": 7, "undirected": True},
        {"generator": "path", "reverse": True},
    ],
)
def test_many_agents_have_the_same_matrix_without_its_zeros(generator, monkeypatch):
    text = {"noise.scale_eta": 1, "graph": {"agents": SPARSE_FROM, "R": generator, "C": generator}}
    sparse = parse(text)
    monkeypatch.setattr(matrices, "SPARSE_FROM", SPARSE_FROM + 1)
    whole = parse(text)
    assert isinstance(sparse.graph.R, SparseRows) and isinstance(whole.graph.R, tuple)
    assert len(sparse.graph.R.weights) == np.count_nonzero(np.array(whole.graph.R)) < 20 * SPARSE_FROM
    assert sparse == whole and whole == sparse and hash(sparse.graph) == hash(whole.graph)
    assert np.array_equal(np.array(sparse.graph.R), np.array(whole.graph.R))
    assert sparse.graph.R[3] == whole.graph.R[3] and sparse.graph.R[-2:] == whole.graph.R[-2:]
    assert run_sha256(sparse) == run_sha256(whole)
    other = replace(sparse, graph=replace(sparse.graph, R=SparseRows([{}] * SPARSE_FROM)))
    assert other != whole and other != sparse


def test_a_graphml_file_of_many_agents(tmp_path):
    names = [f"agent-{i}" for i in range(1, SPARSE_FROM + 1)]
    graph = nx.relabel_nodes(nx.gnp_random_graph(SPARSE_FROM, 0.01, seed=1, directed=True), dict(enumerate(names)))
    nx.set_edge_attributes(graph, 0.5, "weight")
    nx.write_graphml(graph, tmp_path / "r.graphml")
    text = {"noise.scale_eta": 1, "graph": {"agents": SPARSE_FROM, "R": "r.graphml", "C": {"generator": "ring"}}}
    read = parse(text, tmp_path).graph.R
    assert isinstance(read, SparseRows)
    assert np.array_equal(np.array(read), nx.to_numpy_array(graph, nodelist=names).T)
    both_ways = nx.relabel_nodes(nx.path_graph(SPARSE_FROM), dict(enumerate(names)))
    nx.write_graphml(both_ways, tmp_path / "r.graphml")
    assert np.array_equal(np.array(parse(text, tmp_path).graph.R), nx.to_numpy_array(both_ways, nodelist=names))
    graph.edges[next(iter(graph.edges))]["weight"] = -1.0
    nx.write_graphml(graph, tmp_path / "r.graphml")
    ((key, message),) = problems(text, tmp_path)
    assert key == "graph.R" and "must be >= 0, not -1.0" in message


def test_a_run_of_many_agents_fits_a_registration_and_its_file_reads_back():
    random = {"generator": "random", "p": 0.01, "seed": 4, "weight": 0.3}
    for n, compact in ((COMPACT_FROM - 1, False), (COMPACT_FROM, True)):
        made = parse({"noise.scale_eta": 1, "graph": {"agents": n, "R": random, "C": {"generator": "ring"}}})
        text = canonical_json(made)
        assert len(text) < MAX_JSON_BYTES and ("0.0,0.0,0.0" in text) is not compact
        assert (f'"C":[[{n - 1},1.0],[0,1.0],[1,1.0],' in text) is compact, "what two versions must agree on"
        assert run_sha256(made) == hashlib.sha256(text.encode()).hexdigest()
        written = to_toml(made)
        assert ("edges = [" in written) is compact
        again = parse_run(written, "again", Path("/nowhere"))
        assert again.graph == made.graph and run_sha256(again) == run_sha256(made)
    whole = {"agents": COMPACT_FROM, "R": [list(row) for row in made.graph.R], "C": {"generator": "ring"}}
    assert canonical_json(parse({"noise.scale_eta": 1, "graph": whole})) == text, "whatever form the file had"


def test_a_graph_of_more_edges_than_a_list_may_have_is_written_by_rows_and_reads_back(monkeypatch):
    for module in (edges, emit):
        monkeypatch.setattr(module, "MAX_EDGES", 2 * COMPACT_FROM)
    for offsets, listed in (([1, 7], True), ([1, 7, 9], False)):
        generator = {"generator": "circulant", "offsets": offsets, "weight": 0.25}
        graph = {"agents": COMPACT_FROM, "R": {"generator": "ring"}, "C": generator}
        made = parse({"noise.scale_eta": 1, "graph": graph})
        written = to_toml(made)
        assert (written.count("edges = [") == 2) is listed
        again = parse_run(written, "again", Path("/nowhere"))
        assert again.graph == made.graph and run_sha256(again) == run_sha256(made)
    ring = {"generator": "edges", "edges": [[i + 1, (i + 1) % 9 + 1] for i in range(9)]}
    monkeypatch.setattr(edges, "MAX_EDGES", 8)
    ((key, message),) = problems({"noise.scale_eta": 1, "graph": {"agents": 9, "R": ring, "C": {"generator": "ring"}}})
    assert key == "graph.R.edges" and "a list of at most 8 edges" in message
