"""Robust mixing: its equations against an oracle of plain lists, its bounds, what it conserves and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.hard import hard_failures
from dpgt_node.algo.methods import robust
from dpgt_node.algo.methods.robust import Guard, distance, mix_of
from dpgt_node.algo.methods.sums import add_mixed
from dpgt_node.algo.schedule import Schedule
from dpgt_node.algo.theory import check_run
from dpgt_node.config import model
from dpgt_node.config.mixing.robust import Robust
from dpgt_node.types import F64
from tests.config.cases import problems
from tests.oracles import robust as oracle
from tests.sim import cases
from tests.sim.test_methods import by

RULES = ("clipped-gossip", "self-clip", "trimmed-mean", "norm-clip")
ALL = [[0.0 if i == j else 1.0 for j in range(5)] for i in range(5)]


class Mixed:
    """What agent ``i`` makes of random vectors, by the product."""

    def __init__(self, rule: str, seed: int, m: int, d: int, b: int, loop: bool) -> None:
        rng = np.random.default_rng(seed)
        self.i = int(rng.integers(0, m + 1))
        senders = [j for j in range(m + 1) if j != self.i or loop]
        self.weights = {j: float(rng.uniform(0.1, 2.0)) for j in senders}
        self.own = rng.normal(size=d)
        self.vectors = {
            j: self.own if j == self.i else rng.normal(scale=rng.choice([0.1, 1, 9]), size=d) for j in senders
        }
        self.guard = Guard(rule, float(rng.uniform(0.5, 3.0)), b)  # type: ignore[arg-type]
        self.edges = tuple(self.weights.items())

    def __call__(self, vectors: dict[int, F64] | None = None, block: int = 1 << 14) -> F64:
        mix = mix_of(self.guard, self.i, self.edges, vectors or self.vectors, lambda: self.own)
        into = np.ones(len(self.own))
        for start in range(0, len(into), block):
            mix(0.25, into[start : start + block], slice(start, start + block))
        return into

    def expected(self) -> F64:
        guard = self.guard
        found = oracle.mixed(guard.rule, guard.radius, guard.outliers, self.i, self.weights, self.vectors, self.own)
        return 1.0 + 0.25 * np.array(found)


mixes = st.builds(
    Mixed,
    st.sampled_from(RULES),
    st.integers(0, 10_000),
    m=st.integers(5, 7),
    d=st.integers(1, 9),
    b=st.integers(1, 2),
    loop=st.booleans(),
)


@given(mixes)
def test_every_rule_is_its_equation_in_blocks_of_any_size(mixed: Mixed) -> None:
    found = mixed()
    np.testing.assert_allclose(found, mixed.expected(), rtol=1e-12, atol=1e-12)
    assert mixed(block=2).tobytes() == found.tobytes()


TRIPPED = {
    "radius": {"clipped-gossip", "norm-clip"},
    "outliers": {"self-clip", "trimmed-mean"},
    "norm": {"clipped-gossip", "self-clip", "norm-clip"},
    "own clipped": {"trimmed-mean", "norm-clip"},  # around itself an agent's own vector is never clipped
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("wrong", TRIPPED)
def test_the_oracle_sees_each_way_to_be_wrong(rule: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    for seed in range(30):
        mixed = Mixed(rule, seed, 6, 5, 1, loop=True)
        right = mixed.expected()
        if wrong == "radius":
            mixed.guard = replace(mixed.guard, radius=1.01 * mixed.guard.radius)
        elif wrong == "outliers":
            mixed.guard = replace(mixed.guard, outliers=2)
        elif wrong == "norm":
            monkeypatch.setattr(robust, "distance", lambda v, c: float(np.abs(v - (0 if c is None else c)).sum()))
        else:
            mixed.own = mixed.vectors[mixed.i] = 20.0 * mixed.own
            right = mixed.expected()
            mixed.i = -1  # a stranger to itself
        seen += not np.allclose(mixed(), right, rtol=1e-9, atol=1e-9)
    assert (seen > 0) is (rule in TRIPPED[wrong])


@given(mixes, st.floats(-1e308, 1e308), st.integers(0, 10_000))
def test_what_one_attacker_sends_moves_the_sum_by_no_more_than_its_bound(mixed: Mixed, value: float, seed: int) -> None:
    attacker = next(j for j in mixed.weights if j != mixed.i)
    rng = np.random.default_rng(seed)
    other = mixed.vectors | {attacker: value * rng.uniform(-1, 1, len(mixed.own))}
    before, after = mixed(), mixed(other)
    assert np.isfinite(after).all()
    if mixed.guard.rule == "trimmed-mean":
        honest = np.stack([v for j, v in mixed.vectors.items() if j not in (mixed.i, attacker)])
        weight = sum(w for j, w in mixed.weights.items() if j != mixed.i)
        itself = mixed.weights.get(mixed.i, 0.0) * mixed.own
        mean = ((after - 1.0) / 0.25 - itself) / weight
        assert (mean >= honest.min(axis=0) - 1e-9).all() and (mean <= honest.max(axis=0) + 1e-9).all()
        return
    radius = mixed.guard.radius
    if mixed.guard.rule == "self-clip":  # of both sums: another vector of one may move the radius for all
        far = max(distance(v, mixed.own) for j, v in mixed.vectors.items() if j not in (mixed.i, attacker))
        plain = sum(w for j, w in mixed.weights.items() if j != mixed.i)
        assert distance(after, 1.0 + 0.25 * sum(mixed.weights.values()) * mixed.own) <= 0.25 * plain * far * (1 + 1e-9)
        return
    assert distance(after, before) <= 0.25 * 2 * mixed.weights[attacker] * radius * (1 + 1e-9)


@given(mixes)
def test_the_alarm_is_told_how_far_from_the_centre_every_other_agent_is(mixed: Mixed) -> None:
    """Of every rule: from its own released vector, from 0 where the rule has no centre."""
    told: list[dict[int, float]] = []
    mix_of(mixed.guard, mixed.i, mixed.edges, mixed.vectors, lambda: mixed.own, lambda far: told.append(dict(far)))
    centre = np.zeros(len(mixed.own)) if mixed.guard.rule == "norm-clip" else mixed.own
    far = {j: math.dist(v, centre) for j, v in mixed.vectors.items() if j != mixed.i}
    assert told == [pytest.approx(far, rel=1e-12)]


@given(mixes)
def test_where_nothing_is_clipped_it_is_the_plain_sum_to_the_bit(mixed: Mixed) -> None:
    if mixed.guard.rule in ("clipped-gossip", "norm-clip"):
        mixed.guard = replace(mixed.guard, radius=1e6)
        plain = np.ones(len(mixed.own))
        add_mixed(mixed.edges, mixed.vectors, 0.25, plain, slice(None))
        assert mixed().tobytes() == plain.tobytes()


def test_a_vector_whose_distance_is_no_number_counts_as_the_centre() -> None:
    own, honest = np.array([1.0, -2.0]), np.array([1.5, -2.0])
    received = {0: own, 1: np.array([1.7e308, -1.7e308]), 2: honest}
    edges = ((0, 0.5), (1, 3.0), (2, 0.25))
    for rule, centre in (("norm-clip", np.zeros(2)), ("clipped-gossip", own)):
        into = np.zeros(2)
        mix_of(Guard(rule, 9.0), 0, edges, received, lambda: own)(1.0, into, slice(None))  # type: ignore[arg-type]
        np.testing.assert_allclose(into, 0.5 * own + 3.0 * centre + 0.25 * honest, rtol=1e-15)


def test_distances_beyond_what_squares_can_hold() -> None:
    assert distance(np.array([3e200, -4e200]), None) == pytest.approx(5e200)
    assert distance(np.array([1e308]), np.array([-1e308])) == np.inf
    assert np.isnan(distance(np.array([np.nan]), None))
    long = np.random.default_rng(0).normal(size=40_000)
    assert distance(long, None) == pytest.approx(float(np.linalg.norm(long)), rel=1e-14)


# ---------------------------------------------------------------- a whole run
def robust_run(pair: str | None = None, method: str = "dpgt", K: int = 25, **keys: object) -> model.RunConfig:
    """Without noise; ``pair`` None: five agents that all hear each other."""
    run = cases.run(pair or "the demo's ring with chords", K=K, noisy=False)
    if pair is None:
        rows = tuple(tuple(row) for row in ALL)
        run = replace(run, graph=replace(run.graph, R=rows, C=rows))
    return replace(by(method, run), robust=Robust(**keys))  # type: ignore[arg-type]


GUARDED: dict[str, dict[str, object]] = {
    "gossip": {"rule": "clipped-gossip", "radius": 0.4, "tracker": "clipped-gossip", "tracker_radius": 0.3},
    "self": {"rule": "self-clip", "outliers": 2, "tracker": "norm-clip", "tracker_radius": 1.5},
    "trim": {"rule": "trimmed-mean", "outliers": 1},
}


def failures(run: model.RunConfig) -> dict[str, str]:
    return dict(hard_failures(run, Topology.from_config(run.graph), Schedule.from_config(run), (None,) * run.n))


REFUSED: list[tuple[str, model.RunConfig, str, str]] = [
    ("push-sum", robust_run(method="dyn-d2p", rule="clipped-gossip", radius=1.0), "robust.rule", "push-sum divides"),
    (
        "running sum",
        robust_run(method="noisy-gt", tracker="norm-clip", tracker_radius=1.0),
        "robust.tracker",
        "no bound",
    ),
    ("no y", robust_run(method="atc-dsgd", tracker="norm-clip", tracker_radius=1.0), "robust.tracker", "sends no y"),
    ("alone", robust_run(method="no-communication", rule="self-clip", outliers=1), "robust.rule", "nobody mixes"),
    (
        "directed C",
        robust_run("the demo's ring with chords", tracker="clipped-gossip", tracker_radius=1.0),
        "robust.tracker",
        "needs a symmetric C, C_ij = C_ji: agent-1, agent-2, agent-3",
    ),
    (
        "few",
        robust_run("the demo's ring with chords", rule="self-clip", outliers=1),
        "robust.outliers",
        "needs at least 2 in-neighbours of x at every agent: agent-1 has 1, agent-2 has 1",
    ),
    ("four of five", robust_run(rule="trimmed-mean", outliers=2), "robust.outliers", "agent-3 has 4"),
    ("and the way out", robust_run(rule="trimmed-mean", outliers=2), "robust.outliers", "set outliers = 1, or take"),
]


@pytest.mark.parametrize(("run", "key", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_unsound_combinations_are_refused_by_name(run: model.RunConfig, key: str, words: str) -> None:
    assert words in failures(run)[key]


def test_symmetry_is_one_of_weights_and_an_agent_is_no_in_neighbour_of_its_own() -> None:
    run = robust_run(tracker="clipped-gossip", tracker_radius=1.0)
    C = [list(row) for row in ALL]
    C[0][1] = 2.0  # everybody still hears whom it sends to
    uneven = replace(run, graph=replace(run.graph, C=tuple(map(tuple, C))))
    assert "agent-1, agent-2 send y by other weights than" in failures(uneven)["robust.tracker"]
    rows = np.eye(5) + np.roll(np.eye(5), 1, axis=0)
    looped = robust_run(rule="self-clip", outliers=1)
    looped = replace(looped, graph=replace(looped.graph, R=tuple(map(tuple, rows.tolist()))))
    assert "agent-1 has 1, agent-2 has 1" in failures(looped)["robust.outliers"]


@pytest.mark.parametrize("keys", GUARDED.values(), ids=list(GUARDED))
def test_what_is_sound_is_carried_out_and_the_theorems_are_not_claimed(keys: dict[str, object]) -> None:
    run = robust_run(**keys)
    assert failures(run) == {}
    report = check_run(run, Topology.from_config(run.graph), Schedule.from_config(run), D=(None,) * run.n)
    assert report.rates.theorem is None and "linear mixing" in report.rates.note
    spoken = [row for row in report.checks if row.name.startswith(("Theorem", "Corollary", "Assumption 5", "Lemma 2"))]
    assert spoken and all(row.passed is None and "linear mixing" in row.note for row in spoken)
    assert (
        check_run(
            replace(run, robust=Robust()), Topology.from_config(run.graph), Schedule.from_config(run), D=(None,) * run.n
        ).rates.theorem
        == 3
    )


def test_the_keys_of_one_rule_are_no_keys_of_another() -> None:
    assert problems({"robust.rule": "clipped-gossip"}) == [("robust.radius", "is missing")]
    assert problems({"robust.rule": "trimmed-mean", "robust.outliers": 0}) == [
        ("robust.outliers", "must be >= 1, not 0")
    ]
    assert problems({"robust.outliers": 1}) and problems({"robust.tracker": "norm-clip"})
    assert problems({"robust.rule": "self-clip", "robust.radius": 1.0, "robust.outliers": 1})
    assert problems({"robust.rule": "clipped-gossip", "robust.radius": 1.0}) == []
