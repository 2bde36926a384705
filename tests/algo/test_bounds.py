"""Bounds that stand in for eigenvalues of large graphs, on graphs small enough to have the eigenvalues."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_array

from dpgt_node.algo import bounds
from dpgt_node.algo import spectrum as module
from dpgt_node.algo.checks import BOUNDED
from dpgt_node.algo.edges import Edges
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.algo.spectrum import contraction_rate, laplacian_eigenvalues, spectral_step_bound, spectrum, stationary
from dpgt_node.algo.theory import check_run, step_warnings
from dpgt_node.config.graphs.sparse import SparseRows
from tests.algo.cases import S2, run


def ring_chord(n: int) -> np.ndarray:
    M = np.roll(np.eye(n), 1, axis=0)
    M[n // 3, 2 * n // 3] = 0.7
    return M


def nearly_balanced(n: int) -> np.ndarray:
    """A ring in which one agent hears a little more than it sends."""
    M = np.roll(np.eye(n), 1, axis=0)
    M[3, 2] = 1.0005
    return M


def digraph(n: int, degree: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    M = np.roll(np.eye(n), 1, axis=0)
    for i in range(n):
        M[i, rng.choice(n, degree, replace=False)] = rng.uniform(0.1, 3.0, degree)
    return M


def entered_by_a_ring(n: int, enters: float = 0.4) -> np.ndarray:
    """A ring that feeds a random graph, which feeds a chain."""
    M = np.zeros((2 * n + 5, 2 * n + 5))
    M[:n, :n] = ring_chord(n)
    M[n : 2 * n, n : 2 * n] = digraph(n, 3, 5)
    M[n + 2, 1] = enters
    for i in range(2 * n, 2 * n + 5):
        M[i, i - 1] = 1.3
    return M


CASES = {
    "ring with a chord": ring_chord(40),
    "random": digraph(60, 4, 0),
    "random, longer than Lanczos": digraph(400, 5, 1),
    "stiff": digraph(30, 2, 2) ** 9,
    "nearly balanced": nearly_balanced(40),
    "three parts": entered_by_a_ring(30),
    "three parts, much enters": entered_by_a_ring(30, 40.0),
    "a grid": nx.to_numpy_array(nx.grid_2d_graph(6, 7)),
}


@pytest.mark.parametrize("M", CASES.values(), ids=CASES)
def test_bounds_are_on_the_safe_side_and_not_far_off(M: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = laplacian_eigenvalues(M)
    monkeypatch.setattr(module, "DENSE_MOST", 20)
    found = spectrum(M)
    least = min(w.real for w in exact[1:])
    assert found.bounded and found.zeros == sum(w == 0 for w in exact)
    assert 0 < found.least <= least * (1 + 1e-9)
    assert found.least > 0.05 * least  # "a grid", the loosest of these: 0.2
    assert max(map(abs, exact)) * (1 - 1e-12) <= found.radius <= 2.0001 * max(map(abs, exact)) * 2
    assert 0 < found.step_bound <= spectral_step_bound(exact) * (1 + 1e-9)
    for step in (1e-4, 0.3 * spectral_step_bound(exact), 0.9 / M.sum(axis=1).max(), 2.0):
        assert found.contraction(step) <= contraction_rate(exact, step) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(("least", "weight"), [(0.01, 1.0), (0.5, 0.9), (1.3, 0.7), (2e-4, 30.0)])
def test_what_is_said_of_a_part_is_the_worst_that_two_numbers_leave(least: float, weight: float) -> None:
    """Over all w with Re w >= lambda and |w - d| <= d: none is worse than equations (2) to (4), and one is as bad."""
    part = bounds.Part(least, weight, 9)
    real = np.concatenate([np.geomspace(least, 2 * weight, 4001), [2 * weight]])
    top = np.sqrt(np.maximum(2 * weight * real - real**2, 0.0))
    w = (real + 1j * np.linspace(0.0, 1.0, 11)[:, None] * top).ravel()
    assert part.step_bound == pytest.approx((w.real / (1 + abs(w) ** 2)).min(), rel=1e-9)
    assert part.radius == pytest.approx(abs(w).max(), rel=1e-9)
    for step in (1e-6, 0.1 / weight, 0.5 / weight, 0.999 / weight, 1.0 / weight, 1.7 / weight, 3.0 / weight):
        assert part.contraction(step) == pytest.approx(((1 - abs(1 - step * w)) / step).min(), rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("M", CASES.values(), ids=CASES)
def test_stationary_vectors_of_large_parts_are_those_of_elimination(M: np.ndarray, monkeypatch) -> None:
    exact = stationary(M)
    monkeypatch.setattr(module, "DENSE_MOST", 20)
    found = stationary(M)
    assert exact is not None and found is not None and found.sum() == pytest.approx(len(M))
    np.testing.assert_allclose(found, exact, rtol=1e-9, atol=0)


def test_powers_and_elimination_find_the_same_stationary_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = Edges.of(digraph(60, 4, 0))
    by_powers = bounds.stationary_of(edges)
    monkeypatch.setattr(bounds, "_POWERS", 0)
    np.testing.assert_allclose(bounds.stationary_of(edges), by_powers, rtol=1e-11)


def test_each_bound_on_a_closed_part_holds_by_itself() -> None:
    """Lanczos without grounding and grounding without Lanczos: neither may lean on the other."""
    slow = np.roll(np.eye(700), 1, axis=0)
    slow[:350] *= 1e-4  # the spectrum is as wide as its largest S_ii/v_i, far wider than its largest S_ii
    for M in (ring_chord(40), digraph(60, 4, 0), digraph(400, 5, 1), slow, ring_chord(700)):
        edges = Edges.of(M)
        v, L = bounds.stationary_of(edges), edges.laplacian()
        S = ((np.diag(v) @ L.toarray()) + (np.diag(v) @ L.toarray()).T) / 2
        root = np.sqrt(v)
        second = np.linalg.eigvalsh(S / np.outer(root, root))[1]
        lower, upper = bounds._lanczos(csr_array(S), v)
        assert lower <= second * (1 + 1e-9) and upper >= second * (1 - 1e-9)
        assert 0 < bounds._grounded(csr_array(S), v) <= second * (1 + 1e-9)
    # The last one is too slow for Lanczos: what it saw is above the truth, so that its margin is needed.
    assert lower < second < 0.99 * upper


@pytest.mark.parametrize(("offsets", "n"), [((1,), 30), ((1, 2, 7), 31), (tuple(range(1, 30)), 30)])
def test_a_circulant_has_its_eigenvalues_whatever_its_size(offsets, n, monkeypatch: pytest.MonkeyPatch) -> None:
    M = 0.4 * np.eye(n)
    for at, offset in enumerate(offsets):
        M += (0.5 + at) * np.roll(np.eye(n), offset, axis=0)
    exact = laplacian_eigenvalues(M)
    monkeypatch.setattr(module, "DENSE_MOST", 20)
    found = spectrum(M)
    assert not found.bounded and found.values[0] == 0
    key = lambda w: (round(w.real, 9), round(w.imag, 9))  # noqa: E731
    np.testing.assert_allclose(sorted(found.values, key=key), sorted(exact, key=key), atol=1e-8)
    twisted = M.copy()
    twisted[3, 5] += 0.1
    assert spectrum(twisted).bounded


def test_what_a_bound_does_not_decide_is_not_known_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    config = run(replace(S2, alpha=0.05, beta=0.05), R=ring_chord(40), C=ring_chord(40))
    topology, schedule = Topology.from_config(config.graph), Schedule.from_config(config)

    def rows():
        return {row.name: row for row in check_run(config, topology, schedule, D=(100,) * 40, L1=1.0).checks}

    exact = rows()
    assert step_warnings(topology, schedule)
    monkeypatch.setattr(module, "DENSE_MOST", 20)
    judged = rows()
    for name, row in judged.items():
        assert row.passed in (exact[name].passed, None), name
        sides = [(row.lhs, exact[name].lhs), (row.rhs, exact[name].rhs)]
        moved = any(a != b and a != pytest.approx(b, rel=1e-9) for a, b in sides)
        if moved and not name.startswith("Corollary"):
            assert BOUNDED in row.note and row.passed is not False, name
    least = judged["Lemma 1: least real part of the others of L1"]
    assert least.passed and least.lhs is not None and BOUNDED in least.note
    assert judged["Lemma 1: alpha < min Re(w)/(1+|w|^2)"].passed is None
    assert step_warnings(topology, schedule) == ()
    document = check_run(config, topology, schedule, D=(100,) * 40).to_json()["graph"]
    assert isinstance(document, dict) and document["eigenvalues_L1"] == [[0.0, 0.0]]
    assert document["bounds_L1"]["least_real_part"] == least.lhs


@pytest.mark.filterwarnings("error")
def test_what_no_float_holds_is_not_known_and_ends_nothing() -> None:
    """On a ring whose agents all hear from agent 1, too, v falls by half from one to the next: 2^-1199 is no float."""
    n, feeding = 1200, 600
    hub = [{(i - 1) % n: 1.0, 0: 1.0} for i in range(n)]
    ring = [{(i - 1) % feeding: 1.0} for i in range(feeding)]
    entered = [{feeding + j: w for j, w in row.items()} for row in hub]
    entered[7][3] = 1.0
    for edges in (Edges.of(SparseRows(hub)), Edges.of(SparseRows(hub)).reverse, Edges.of(SparseRows(ring + entered))):
        found, v = spectrum(edges), stationary(edges)
        assert found.bounded and found.zeros == 1 and found.least >= 0.0
        assert v is not None and (v >= 0.0).all() and v.sum() == pytest.approx(len(edges))
    config = run(replace(S2, alpha=0.05, beta=0.05), R=np.array(SparseRows(hub)), C=np.array(SparseRows(hub)))
    rows = check_run(config, Topology.from_config(config.graph), Schedule.from_config(config), D=(100,) * n).checks
    assert next(row for row in rows if row.name == "Lemma 1: least real part of the others of L1").passed is None


def test_ten_thousand_agents_are_judged_without_a_dense_matrix() -> None:
    n = 10_000
    rng = np.random.default_rng(3)
    senders = np.concatenate([(np.arange(n) - 1) % n, rng.integers(0, n, 4 * n)])
    rows = np.concatenate([np.arange(n), rng.integers(0, n, 4 * n)])
    pairs = np.unique(np.stack([rows, senders]), axis=1)
    starts = np.concatenate([[0], np.cumsum(np.bincount(pairs[0], minlength=n))])
    edges = Edges(starts, pairs[1], np.ones(len(pairs[1])))
    found, v = spectrum(edges), stationary(edges)
    assert found.bounded and found.zeros == 1 and 0.05 < found.least < found.radius
    assert v is not None and np.abs(edges.laplacian().T @ v).max() < 1e-10
    assert len(edges.roots()) == n and "dense" not in edges.__dict__ and "dense" not in edges.reverse.__dict__
