from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgt_node.algo.graph import Topology, components
from tests.algo.cases import DEMO_C, DEMO_R, graph, names
from tests.oracles import graphs
from tests.states import network

CHAIN = [[0, 0, 0], [1, 0, 0], [0, 1, 0]]  # 1 -> 2 -> 3 on R
FUNNEL = [[0, 1, 0], [0, 0, 1], [0, 0, 0]]  # 3 -> 2 -> 1 on C


def topology(R, C) -> Topology:
    return Topology.from_config(graph(R, C))


def random_topology(seed: int, n: int, density: float) -> Topology:
    rng = np.random.default_rng(seed)
    return Topology.from_matrices(
        names(n), graphs.random_weights(rng, n, density), graphs.random_weights(rng, n, density)
    )


anything = st.builds(random_topology, st.integers(0, 10**6), st.integers(1, 8), st.floats(0.0, 0.7))


@given(anything)
def test_roots_agree_with_walking_every_edge(t: Topology) -> None:
    assert set(t.roots_R) == graphs.roots(t.R)
    assert set(t.roots_C) == graphs.roots(t.C.T)
    assert set(t.common_roots) == graphs.roots(t.R) & graphs.roots(t.C.T)


@given(anything)
def test_components_agree_with_walking(t: Topology) -> None:
    walked = [graphs.reached_from(t.R, j) for j in range(t.n)]
    seen: list[int] = []
    for members, closed in components(t.R):
        seen += members
        assert all(walked[a] >= set(members) for a in members)
        hears_from = {j for j in range(t.n) if walked[j] & set(members)}
        assert closed == (hears_from == set(members))
    assert sorted(seen) == list(range(t.n))


@given(anything)
def test_in_and_out_sets_are_rows_and_columns_kept_apart(t: Topology) -> None:
    net = network(t)
    for i in range(t.n):
        for stream, M in (("X", t.R), ("Y", t.C)):
            assert net.incoming(i)[stream] == tuple((j, M[i][j]) for j in range(t.n) if M[i][j] > 0)
            assert net.outgoing(i)[stream] == tuple(j for j in range(t.n) if M[j][i] > 0)
        for j, streams in net.peers(i).items():
            assert net.senders(j)[i] == streams and j != i
            assert ("X" in streams) == (t.R[j][i] > 0) and ("Y" in streams) == (t.C[j][i] > 0)


@given(anything)
def test_weights_and_laplacians(t: Topology) -> None:
    ones = np.ones(t.n)
    assert np.allclose(t.r, t.R @ ones, rtol=1e-14) and np.allclose(t.c, ones @ t.C, rtol=1e-14)
    assert np.allclose(t.L1, np.diag(t.R @ ones) - t.R, atol=1e-14)
    assert np.allclose(t.L2, np.diag(ones @ t.C) - t.C, atol=1e-14)
    assert np.allclose(t.L1 @ ones, 0, atol=1e-14) and np.allclose(ones @ t.L2, 0, atol=1e-14)


@given(anything)
def test_breakers_are_named_exactly_when_assumption_1_fails(t: Topology) -> None:
    assert bool(t.breakers()) == (not t.common_roots)
    assert all(named for named in t.breakers().values())


def test_in_set_and_out_set_of_C_differ() -> None:
    # Erratum 2: the in-set is row i's support, the out-set column i's; a directed ring tells them apart.
    ring = network(topology([[0, 0, 1], [1, 0, 0], [0, 1, 0]], [[0, 0, 1], [1, 0, 0], [0, 1, 0]]))
    assert ring.incoming(0)["Y"] == ((2, 1.0),)
    assert ring.outgoing(0)["Y"] == (1,)


def test_demo_graph() -> None:
    t = topology(DEMO_R, DEMO_C)
    assert t.common_roots == (0, 1, 2, 3, 4)
    assert t.r.tolist() == [1, 1, 2, 1, 1] and t.c.tolist() == [1, 1, 2, 1, 1]
    net = network(t)
    assert net.peers(0) == {1: ("X", "Y"), 2: ("X",)}
    assert net.peers(2) == {0: ("Y",), 3: ("X", "Y")}


def test_spanning_trees_with_a_common_root_need_no_strong_connection() -> None:
    t = topology(CHAIN, FUNNEL)
    assert t.roots_R == t.roots_C == t.common_roots == (0,)
    assert t.r.tolist() == [0, 1, 1] and t.c.tolist() == [0, 1, 1]  # the root has a_1 = b_1 = 0
    assert t.breakers() == {}


def test_disjoint_roots_are_named() -> None:
    t = topology(CHAIN, np.transpose(FUNNEL))
    assert (t.roots_R, t.roots_C, t.common_roots) == ((0,), (2,), ())
    assert t.breakers() == {"common root": ("agent-1", "agent-3")}


@pytest.mark.parametrize("which", ["R", "C"])
def test_an_isolated_agent_is_named(which: str) -> None:
    ring = np.array([[0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 2.0]])
    whole = np.roll(np.eye(4), 1, axis=0)
    t = topology(ring, whole) if which == "R" else topology(whole, ring)
    assert t.breakers() == {which: ("agent-4",)}


def test_one_agent_alone_satisfies_assumption_1() -> None:
    assert topology([[0]], [[0]]).common_roots == (0,)
