"""The swarm: fixed seeds hold, results equal the dense recursion, kills change nothing, failing seeds can be read.

``make swarm`` runs ten thousand seeds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from dpgt_node.algo.methods import METHODS
from dpgt_node.config import model
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.protocol.messages import Prefix
from dpgt_node.protocol.types import Payload
from dpgt_node.wire import codec
from tests.oracles import mechanisms, noise
from tests.sim.cases import CARRIED
from tests.swarm.mutants import MUTANTS
from tests.swarm.plan import Kind, Plan, any_method, by, plan_for
from tests.swarm.trial import attempt, every_kill, random_kills, smaller, story

SEEDS = 300
CHUNK = 25


def assert_holds(plan: Plan) -> None:
    verdict = attempt(plan)
    if verdict.checker is not None:
        pytest.fail(story(smaller(plan), last=200), pytrace=False)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_fixed_seeds_hold(first: int) -> None:
    for seed in range(first, first + CHUNK):
        assert_holds(any_method(seed))


def test_a_seed_means_the_same_trial_every_time() -> None:
    plan = plan_for(7)
    assert plan == plan_for(7) and story(plan) == story(plan)
    one, two = attempt(plan), attempt(plan)
    assert (one.status, one.boundaries, one.virtual_s) == (two.status, two.boundaries, two.virtual_s)


def test_the_plans_cover_what_they_should() -> None:
    plans = [plan_for(seed) for seed in range(SEEDS)]
    kinds = {fault.kind for plan in plans for fault in plan.faults}
    assert kinds == set(get_args(Kind))
    assert {plan.run.algorithm.mechanism for plan in plans} == {
        "paper",
        "published-point",
        "public-state",
        "noise-once",
    }
    assert {any_method(seed).run.algorithm.method for seed in range(SEEDS)} == set(CARRIED)
    apart = [plan.run.scheme for plan in map(any_method, range(SEEDS)) if plan.run.scheme.apart]
    assert len(apart) > 30 and any(scheme.settle for scheme in apart)
    shared = [plan.run.noise for seed in range(SEEDS) if (plan := any_method(seed)).run.noise.cancel is not None]
    hidden = [any_method(seed).run.traffic for seed in range(SEEDS)]
    assert sum(one.alike for one in hidden) >= SEEDS // 8 and sum(one.covered for one in hidden) >= SEEDS // 8
    assert len(shared) >= SEEDS // 8 and {type(noise.mask_graph) for noise in shared} == {str, tuple}
    assert {plan.run.n for plan in plans} == {1, 2, 3, 4, 5}
    assert {plan.run.runtime.on_agent_loss for plan in plans} == {"wait", "stop"}
    assert any(plan.run.graph.R[i][i] for plan in plans for i in range(plan.run.n))


def test_vectors_in_chunks_go_on_where_streams_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    same, begun_anew = codec.is_of, []
    went_on = []

    def spied(prefix: Prefix, payload: Payload) -> bool:
        found = same(prefix, payload)
        if (prefix.stream, prefix.k) == (payload.stream, payload.k):
            (went_on if found else begun_anew).append(payload.k)
        return found

    monkeypatch.setattr(codec, "is_of", spied)
    chunked = [plan for plan in map(any_method, range(90, 130)) if plan.chunk is not None]
    for plan in chunked:
        assert_holds(plan)
    assert len(chunked) > 8 and len(went_on) > 4 * len(begun_anew), "another release only where a backup came back"


# ---------------------------------------------------------------- the result
def calm_enough(seed: int) -> Plan:
    """A trial of full gradients that must end with a result, under the test keystream."""
    plan = plan_for(seed)
    run = replace(plan.run, data=model.Data("quadratic", params={"dimension": 1 + seed % 4}))
    faults = tuple(f for f in plan.faults if f.kind not in ("rollback", "torn"))
    return replace(plan, run=run, fresh=False, budget=(None,) * run.n, faults=faults)


def dense_result(plan: Plan) -> np.ndarray:
    run = plan.run
    n, d = run.n, int(run.data.params["dimension"])
    shape = (run.K + 1, n, d)
    zeta, eta = np.zeros(shape), np.zeros(shape)
    if run.noise.multiplier:
        for k in range(run.K + 1):
            for i in range(n):
                zeta[k, i] = noise.laplace(plan.key, i, k, "X", d, run.noise.zeta.values[i])
                eta[k, i] = noise.laplace(plan.key, i, k, "Y", d, run.noise.eta.values[i])
    scheme = run.scheme
    x, _, _ = mechanisms.run(
        run.algorithm.mechanism,
        run.graph.R,
        run.graph.C,
        scheme.alpha,
        scheme.beta,
        scheme.gamma,
        np.zeros((n, d)),
        lambda i, k, x: x - (i + 1),
        zeta,
        eta,
    )
    return x[-1]


def test_results_equal_the_dense_recursion_whatever_happened() -> None:
    for seed in range(5000, 5012):
        verdict = attempt(calm_enough(seed))
        assert (verdict.checker, verdict.status) == (None, "finished"), (seed, verdict.message)
        expected = dense_result(verdict.plan)
        for x, y in zip(verdict.finals, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------- kills
R_KILLED = ((0.0, 0.0, 1.0), (1.0, 0.5, 0.0), (1.0, 1.0, 0.0))
C_KILLED = ((0.0, 1.0, 1.0), (0.0, 0.5, 1.0), (0.0, 1.0, 0.0))
"""agent-1 sends no y̆, agent-2 mixes its own releases, agent-3 receives from both: every role an agent can have."""


def killed(K: int, *, threads: bool, checkpoint_every: int = 1, barrier_every: int = 1) -> Plan:
    """``threads``: and states are written beside the rounds."""
    plan = plan_for(0)
    run = plan.run
    names = ("agent-1", "agent-2", "agent-3")
    scales = model.NoiseStream("constant", (0.3, 0.4, 0.5))
    run = replace(
        run,
        algorithm=replace(run.algorithm, iterations=K, mechanism="paper"),
        scheme=replace(run.scheme, alpha=0.1, beta=0.1, samples=2),
        noise=model.Noise(scales, scales),
        graph=model.Graph(names, R_KILLED, C_KILLED),
        data=model.Data("pl-linear", params={"dimension": 2}),
        runtime=replace(run.runtime, on_agent_loss="wait", barrier_every=barrier_every),
    )
    return replace(
        plan,
        run=run,
        key="00ff",
        fresh=False,
        threads=threads,
        beside=threads,
        checkpoint_every=checkpoint_every,
        announce_every=1,
        budget=(None,) * 3,
        faults=(),
    )


def assert_same_result(plans: list[Plan]) -> int:
    """Every plan ends with the bits of the first, which has no fault; how many there were."""
    calm = attempt(plans[0])
    assert calm.checker is None and calm.status == "finished"
    expected = [x.tobytes() for x in calm.finals if x is not None]
    assert len(expected) == 3
    for plan in plans[1:]:
        verdict = attempt(plan)
        if verdict.checker is not None or verdict.status != "finished":
            pytest.fail(story(plan, last=200), pytrace=False)
        assert [x.tobytes() for x in verdict.finals if x is not None] == expected, str(plan)
    return len(plans) - 1


def test_a_kill_while_agents_agree_on_keys_changes_no_bit() -> None:
    """At every effect boundary of one round: before, within and after the agreement, of every process."""
    plan = killed(1, threads=False)
    one = model.NoiseStream("constant", (0.3,) * 3)
    noise_ = model.Noise(None, one, law="gaussian", cancel=2, mask_graph=((1, 2), (2, 3)))
    algorithm = replace(plan.run.algorithm, mechanism="noise-once")
    plans = list(every_kill(replace(plan, run=replace(plan.run, algorithm=algorithm, noise=noise_))))
    assert len(plans) > 180
    assert_same_result([plans[0], *plans[1::3]])


@pytest.mark.parametrize("method", CARRIED)
def test_a_kill_in_a_run_of_any_method_changes_no_bit(method: str) -> None:
    """Replays go over a checkpoint, a round that released nothing where there may be one, and each kind of vector."""
    plan, own = replace(killed(3, threads=False, checkpoint_every=2), beside=True), METHODS[method]
    run = by(own, plan.run)
    if MECHANISMS[run.algorithm.mechanism].accounted.once:
        run = replace(run, scheme=replace(run.scheme, releases=(0, 1, 3)))
    plans = list(every_kill(replace(plan, run=run)))
    assert len(plans) > 100
    assert_same_result([plans[0], *plans[1::43]])


@pytest.mark.parametrize("threads", [False, True], ids=["inline", "threads"])
def test_a_kill_between_two_effects_changes_no_bit(threads: bool) -> None:
    """Every fifth boundary of two rounds; the long tier has all of them, and more rounds."""
    plans = list(every_kill(killed(1, threads=threads)))
    assert len(plans) > 150
    assert_same_result([plans[0], *plans[1 + threads :: 5]])


def test_random_kills_change_no_bit() -> None:
    plan = killed(8, threads=True, checkpoint_every=3, barrier_every=2)
    assert_same_result([plan, *(random_kills(plan, seed) for seed in range(8))])


@pytest.mark.long
@pytest.mark.parametrize(("threads", "checkpoint_every", "barrier_every"), [(False, 1, 1), (True, 10, 1), (True, 3, 3)])
def test_a_kill_at_every_effect_boundary_of_21_rounds_changes_no_bit(
    threads: bool, checkpoint_every: int, barrier_every: int
) -> None:
    plan = killed(20, threads=threads, checkpoint_every=checkpoint_every, barrier_every=barrier_every)
    assert assert_same_result(list(every_kill(plan))) > 1000


@pytest.mark.long
def test_500_random_kills_change_no_bit() -> None:
    plan = killed(20, threads=True, checkpoint_every=3, barrier_every=2)
    assert assert_same_result([plan, *(random_kills(plan, 1000 + seed) for seed in range(500))]) == 500


# ---------------------------------------------------------------- a failing seed
def test_a_failing_seed_is_made_small_and_tells_its_story() -> None:
    parts = MUTANTS["redraw on resume"].parts
    seed = next(s for s in range(100) if attempt(plan_for(s), parts).checker is not None)
    plan = smaller(plan_for(seed), parts)
    assert 1 <= len(plan.faults) <= len(plan_for(seed).faults)
    text = story(plan, parts)
    assert text.startswith(f"seed {seed}: ") and "VIOLATION at " in text and "a second time" in text
    assert "FAULT" in text and "Persist(" in text
