"""Runs with robust mixing: against an oracle of plain lists, in matrices, after a crash, in an auditor's hands."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.adversary.audit.replay import Replay
from dpgt_node.adversary.inference import estimators as es
from dpgt_node.adversary.inference.observation import Facts
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import network_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.config.mixing.robust import Robust
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.privacy.mechanisms import TRACKING
from dpgt_node.protocol.types import Advance
from dpgt_node.sim import simulate
from dpgt_node.sim.fast import TOLERANCE
from dpgt_node.types import F64
from tests.adversary.audit.test_replay import bent, played
from tests.adversary.record import play, run_of
from tests.algo.test_robust import ALL, GUARDED, robust_run
from tests.oracles import robust as oracle
from tests.sim.test_fast import both
from tests.sim.test_methods import KEY, Played

KEYED = pytest.mark.parametrize("keys", GUARDED.values(), ids=list(GUARDED))
RULES = {"norm-clip": "norm-clip", "clipped-gossip": "clipped-gossip", "none": "clipped-gossip"}


def states(seen: Played, run: model.RunConfig, name: str) -> F64:
    """x or y of all records, (K+1, n, d)."""
    parts = ("px", "tx") if name == "x" else ("p", "t")
    vectors = {(i, k): record.checkpoint.vectors for (i, k), record in seen.records.items() if record.checkpoint}
    return np.array([[sum(vectors[i, k][p] for p in parts) for i in range(run.n)] for k in range(run.K + 1)])


@KEYED
def test_a_run_is_its_equations(keys: dict[str, object]) -> None:
    run = robust_run(**keys)
    rb = run.robust
    far = np.inf if rb.tracker_radius is None else rb.tracker_radius
    x, y = oracle.algorithm1(
        ALL, ALL, 0.11, 0.07, 0.03, [[0.0] * 7] * 5, lambda i, x: [v - (i + 1) for v in x], run.K,
        partial(oracle.mixed, rb.rule, rb.radius, rb.outliers), partial(oracle.mixed, RULES[rb.tracker], far, 0),
    )  # fmt: skip
    seen = Played(run)
    np.testing.assert_allclose(states(seen, run, "x"), x, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(states(seen, run, "y"), y, rtol=1e-10, atol=1e-12)
    plain = Played(replace(run, robust=Robust())).final
    assert np.abs(plain - seen.final).max() > 1e-7, "something was clipped or trimmed"


def test_clipped_gossip_keeps_the_sum_of_the_trackers_and_norm_clip_does_not() -> None:
    def lost(**keys: object) -> float:
        run = robust_run(**keys)
        seen = Played(run)
        y = states(seen, run, "y").sum(axis=1)
        g = np.array([[seen.records[i, k].checkpoint.vectors["g"] for i in range(5)] for k in range(run.K + 1)])
        return float(np.abs(y - g.sum(axis=1)).max())

    assert lost(tracker="clipped-gossip", tracker_radius=0.3) < 1e-12
    assert lost(tracker="norm-clip", tracker_radius=1.5) > 0.1


@pytest.mark.parametrize("method", ["dpgt", "atc-dsgd", "dp-dsgt", "weighted-sgd"])
@KEYED
def test_matrices_agree(keys: dict[str, object], method: str, tmp_path: Path) -> None:
    keys = keys if method in ("dpgt", "dp-dsgt") else {k: v for k, v in keys.items() if "tracker" not in k}
    run = robust_run(method=method, **keys)
    error, slow, _ = both(replace(run, noise=replace(run.noise, multiplier=1.0)), tmp_path)
    assert error < TOLERANCE and (slow / "summary.json").exists()


@pytest.mark.parametrize("mechanism", [one.name for one in TRACKING])
@KEYED
def test_after_a_crash_every_round_comes_out_again(keys: dict[str, object], mechanism: str) -> None:
    run = robust_run(**keys)
    run = replace(
        run,
        algorithm=replace(run.algorithm, mechanism=mechanism, iterations=6),
        noise=replace(run.noise, multiplier=1.0),
    )
    seen, topology, schedule = Played(run), Topology.from_config(run.graph), Schedule.from_config(run)
    oracles = tuple(build_oracle(run, i) for i in range(run.n))
    incoming = network_of(run, topology).incoming(2)
    work = simulate.build_agents(run, topology, schedule, oracles, KEY)[2].work
    state = work.advance(Advance(None, record=seen.records[2, 0])).state
    for k in range(run.K):
        came = {s: {j: seen.sent[s, j, k] for j, _ in edges} for s, edges in incoming.items()}
        state = work.advance(Advance(state, came, seen.records[2, k].payloads, seen.records[2, k + 1])).state
        held = seen.records[2, k + 1].checkpoint
        assert held is not None
        assert all(state.vectors[name].tobytes() == held.vectors[name].tobytes() for name in ("px", "tx", "t"))


def test_the_alarm_names_the_round_whose_vectors_lay_far_off() -> None:
    run = robust_run(**GUARDED["gossip"])
    run = replace(run, algorithm=replace(run.algorithm, iterations=5), noise=replace(run.noise, multiplier=1.0))
    seen, topology, schedule = Played(run), Topology.from_config(run.graph), Schedule.from_config(run)
    incoming = network_of(run, topology).incoming(2)
    work, said = simulate.build_agents(run, topology, schedule, simulate.build_oracles(run, None), KEY)[2].work, []
    for k in range(run.K):
        came = {s: {j: seen.sent[s, j, k] for j, _ in edges} for s, edges in incoming.items()}
        came["X"][4] = came["X"][4] + 1e6
        record = seen.records[2, k]
        said += work.advance(Advance(record.checkpoint, came, record.payloads, seen.records[2, k + 1])).outliers
    assert [(one.sender, one.stream, one.k, one.rounds) for one in said] == [("agent-5", "X", 4, 5)]


@KEYED
def test_a_replay_finds_every_draw_to_the_bit(keys: dict[str, object]) -> None:
    """So the audits' worlds differ by gradients alone, as without: what is mixed is a function of the transcript."""
    run = robust_run(**keys)
    run = replace(run, noise=replace(run.noise, multiplier=1.0), algorithm=replace(run.algorithm, iterations=8))
    vectors, spies = played(run)
    rebuilt = list(Replay(Facts.of(run), 1, np.zeros(7), vectors, "float64").run([lambda k, x: bent(1, k, x)]))
    assert len(rebuilt) == len(spies[1].seen) == 18
    for one, (private, out) in zip(rebuilt, spies[1].seen, strict=True):
        assert one.draw.kind == "exact" and (one.draw.values == out).all() and (one.private[0] == private).all()
    other = replace(run, robust=Robust())
    linear = list(Replay(Facts.of(other), 1, np.zeros(7), vectors, "float64").run([lambda k, x: bent(1, k, x)]))
    assert any(one.draw.kind != "exact" for one in linear), "who takes the sum for plain finds something else"


def test_private_parts_do_not_depend_on_what_others_send() -> None:
    """The recursion that every accountant reads: other vectors of others, other mixing, the same px and p."""
    keys = GUARDED["self"]
    base = replace(robust_run(**keys), algorithm=model.Algorithm(iterations=6))
    base = replace(base, data=model.Data("zeros", params={"dimension": 7}), noise=replace(base.noise, multiplier=1.0))
    found = []
    for run in (base, replace(base, robust=Robust()), replace(base, noise=replace(base.noise, multiplier=50.0))):
        seen = Played(run)
        found.append([seen.records[1, k].checkpoint.vectors[name] for k in range(7) for name in ("px", "p")])
    assert all((a == b).all() for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_the_estimators_mix_as_the_agents_do(tmp_path: Path) -> None:
    rows = "[[0,1,1,1],[1,0,1,1],[1,1,0,1],[1,1,1,0]]"
    for robust in (Robust("trimmed-mean", outliers=1), Robust("clipped-gossip", 0.02, None, "clipped-gossip", 0.02)):
        run = replace(run_of(R=rows, C=rows, n=4, K=6, multiplier=0.0, alpha=0.1, beta=0.1), robust=robust)
        p = play(run)
        view = es.view(p.observe(tmp_path / robust.rule), 1)
        np.testing.assert_allclose(es.absolute(view), p.true(1, "g"), atol=1e-12)
        np.testing.assert_allclose(es.tracker_from_x(view), p.true(1, "y")[:-1], atol=1e-11)
        linear = replace(p.observe(tmp_path / f"{robust.rule}-again"), facts=Facts.of(replace(run, robust=Robust())))
        assert np.abs(es.tracker_from_x(es.view(linear, 1)) - p.true(1, "y")[:-1]).max() > 1e-4
    hidden = p.observe(tmp_path / "holes", missing=lambda s, r, q: ((0, 8),) if (s, q.k) == ("agent-1", 2) else ())
    x = es.tracker_from_x(es.view(hidden, 1))
    assert np.isnan(x[2]).all() and not np.isnan(x[[0, 1, 3]]).any(), "a norm needs every coordinate"
