"""The registry of methods, the graphs that they use and those that they refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgt_node.algo.edges import Edges
from dpgt_node.algo.graph import Topology, metropolis, metropolis_edges, separated
from dpgt_node.algo.hard import hard_failures
from dpgt_node.algo.methods import METHODS, network_of
from dpgt_node.algo.methods.derived import CLOSURE, NEIGHBOURS
from dpgt_node.algo.schedule import Schedule
from dpgt_node.algo.theory import check_run
from dpgt_node.config.vocabulary import METHOD_MECHANISMS
from dpgt_node.config.vocabulary import METHODS as WORDS
from dpgt_node.errors import ConfigError
from dpgt_node.privacy.mechanisms import MECHANISMS
from tests.oracles import graphs, methods
from tests.sim import cases
from tests.sim.test_methods import by

RING = "the demo's ring with chords"
ROOTED = "one root without in-edges on R and without out-edges on C"


def failures(run) -> list[tuple[str, str]]:  # type: ignore[no-untyped-def]
    topology = Topology.from_config(run.graph)
    return list(hard_failures(run, topology, Schedule.from_config(run), (None,) * run.n))


def test_the_run_files_words_are_the_registered_methods() -> None:
    assert tuple(METHODS) == WORDS.built
    assert {name: tuple(method.rules) for name, method in METHODS.items()} == dict(METHOD_MECHANISMS)
    assert all(name == method.name and method.title and method.source for name, method in METHODS.items())


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_says_of_itself_fits_together(name: str) -> None:
    """Charges of a mechanism need a stream that carries them; what is kept beside them is g~ alone."""
    method = METHODS[name]
    assert len(set(method.streams)) == len(method.streams) > 0
    for mechanism, rule in method.rules.items():
        once = MECHANISMS[mechanism].accounted.once
        assert not rule.keeps_drawn or once
        assert once or set(MECHANISMS[mechanism].charged) <= set(method.streams)
        assert len(set(rule.state)) == len(rule.state) and rule.raw_gradient in (None, *rule.state)


@given(st.integers(0, 10_000), st.integers(1, 9))
def test_metropolis_weights(seed: int, n: int) -> None:
    R, C = graphs.random_pair(np.random.default_rng(seed), n)
    W = metropolis(Topology.from_matrices([str(i) for i in range(n)], R, C))
    np.testing.assert_allclose(W, methods.metropolis(R), atol=1e-15)
    assert (W == W.T).all() and (np.diag(W) > 0).all() and (W >= 0).all()
    np.testing.assert_allclose(W.sum(0), 1.0, atol=1e-15)


def test_metropolis_weights_of_ten_thousand_agents_are_edges() -> None:
    n = 10_000
    ring = Topology._of([str(i) for i in range(n)], *[Edges(np.arange(n + 1), (np.arange(n) - 1) % n, np.ones(n))] * 2)
    W = metropolis_edges(ring)
    assert len(W.weights) == 3 * n and "dense" not in W.__dict__ and set(W.weights) == {1 / 3, 1.0 - 2 / 3}
    np.testing.assert_allclose(W.sums(), 1.0, atol=1e-15)


def test_the_demos_closure() -> None:
    run = by("atc-dsgd", cases.run(RING))
    topology = Topology.from_config(run.graph)
    s = 1.0 - np.diag(metropolis(topology))
    np.testing.assert_allclose(s, (0.75, 0.5, 0.75, 7 / 12, 7 / 12), atol=1e-15)
    net = network_of(run, topology)
    assert sum(len(net.peers(i)) for i in range(5)) == 12 and net.streams == ("X",)
    assert all(net.peers(i) == net.senders(i) for i in range(5))
    assert all(i in net.outgoing(i)["X"] for i in range(5)), "an agent mixes its own v among the others"


def test_separated_names_who_is_outside_the_largest_part() -> None:
    ring = np.array([[0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0]], float)
    assert separated(("a", "b", "c", "d"), ring) == ("d",)
    assert separated(("a", "b", "c"), ring[:3, :3]) == ()


def test_s_ab_refuses_by_name_what_is_not_strongly_connected() -> None:
    assert failures(by("s-ab", cases.run(RING))) == []
    (in_R, first), (in_C, second) = failures(by("s-ab", cases.run(ROOTED)))
    assert (in_R, in_C) == ("graph.R", "graph.C")
    assert first.startswith("s-ab: R is strongly connected; agents outside: 2, must be 0 (agent-2, agent-3")
    assert "C is strongly connected" in second
    assert failures(cases.run(ROOTED)) == [], "Algorithm 1 asks for less"


def test_s_ab_refuses_noise() -> None:
    run = by("s-ab", cases.run(RING))
    noisy = replace(run, noise=replace(run.noise, multiplier=0.5))
    said = "s-ab: draws no noise; multiplier: 0.5, must be 0 (write noise.multiplier = 0.0)"
    assert failures(noisy) == [("noise.multiplier", said)]


def test_atc_dsgd_needs_a_connected_closure_and_nothing_else_of_the_graphs() -> None:
    apart = [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    run = by("atc-dsgd", cases.run("non-uniform weights"))
    run = replace(run, graph=replace(run.graph, R=tuple(map(tuple, apart))))
    ((key, said),) = failures(run)
    assert key == "graph.R" and "agent-3, agent-4" in said
    rooted = by("atc-dsgd", cases.run(ROOTED))
    steep = replace(rooted, scheme=replace(rooted.scheme, alpha=5.0, beta=5.0))  # type: ignore[type-var]
    assert failures(steep) == [], "alpha and beta play no part"


def test_dyn_d2p_refuses_graphs_on_which_weights_vanish() -> None:
    """Without strong connection some w_i go to 0; with a step as large as the weights P is no longer positive."""
    ((key, said),) = failures(by("dyn-d2p", cases.run(ROOTED)))
    assert key == "graph.C" and said.startswith("dyn-d2p: C is strongly connected; agents outside: 2, must be 0")
    run = by("dyn-d2p", cases.run(RING))
    assert failures(run) == []
    ((key, said),) = failures(replace(run, scheme=replace(run.scheme, beta=0.5)))  # type: ignore[type-var]
    assert key == "scheme" and "beta times an agent's weight" in said and "agent-3" in said


def test_weighted_sgd_wants_a_share_of_everybody() -> None:
    run = by("weighted-sgd", cases.run(RING))
    assert failures(run) == []
    ((key, said),) = failures(replace(run, method_options={"shares": (1.0, 2.0)}))
    assert key == "method.shares" and "agent-3, agent-4, agent-5" in said
    with pytest.raises(ConfigError, match=r"method.shares\[1\]: must be > 0"):
        failures(replace(run, method_options={"shares": (1.0, 0.0, 1.0, 1.0, 1.0)}))


@pytest.mark.parametrize("name", [name for name, one in METHODS.items() if one.sends[0] in (CLOSURE, NEIGHBOURS)])
def test_methods_over_the_closure_refuse_one_that_is_apart(name: str) -> None:
    apart = [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    run = by(name, cases.run("non-uniform weights", K=2))
    run = replace(run, graph=replace(run.graph, R=tuple(map(tuple, apart))), method_options=cases.NEEDED.get(name, {}))
    said = dict(failures(run))
    assert "the undirected closure of R is connected" in said["graph.R"] and name in said["graph.R"]


@pytest.mark.parametrize("name", ["sampled-dsgd", "q-dpsgd"])
def test_a_step_that_leaves_nothing_of_ones_own_is_refused(name: str) -> None:
    run = by(name, cases.run(RING))
    ((key, said),) = failures(replace(run, scheme=replace(run.scheme, alpha=1.5)))  # type: ignore[type-var]
    assert key == "scheme" and "a_i = alpha s_i < 1; agents outside: 2, must be 0 (agent-1, agent-3" in said


def test_a_report_holds_the_papers_conditions_where_they_speak_of_the_method() -> None:
    # Theorem 5 is about noise, and s-ab has none.
    for method, theorem, private in (("dpgt", 3, True), ("s-ab", 3, False), ("atc-dsgd", None, False)):
        run = by(method, cases.run(RING))
        report = check_run(run, Topology.from_config(run.graph), Schedule.from_config(run), D=(None,) * 5)
        assert report.rates.theorem == theorem
        assert any("Theorem 5" in row.name for row in report.checks) == private
