"""Methods that put noise on states: against dense definitions, identities, expected numbers, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.accounts.account import AgentAccount
from dpgt_node.agent.noise import sampler_for
from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.hard import hard_failures
from dpgt_node.algo.methods import METHODS, network_of
from dpgt_node.algo.methods.states import forms, noisy_gt
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.errors import ConfigError
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, called
from dpgt_node.protocol import types as t
from dpgt_node.record.costs import Epsilon
from dpgt_node.report import text
from dpgt_node.sim.fast import TOLERANCE
from dpgt_node.sim.simulate import simulate
from dpgt_node.types import F64
from tests.oracles import methods, states
from tests.sim import cases
from tests.sim.test_fast import both
from tests.sim.test_methods import RING, SAMPLED, TOY, Curved, NoEntropy, Played, error, finals, trajectory

Options = Mapping[str, model.Scalar]
ONLINE = (2.43815155946, 2.39662188112, 2.51400163136, 2.70550263992, 2.72964753584)
FORMS: list[tuple[str, str, Options, tuple[float, ...]]] = [
    ("sampled-dsgd", "noise-once", {}, SAMPLED),
    ("sampled-dsgd", "state-noise", {}, SAMPLED),
    ("sampled-dsgd", "released-state", {}, SAMPLED),
    ("quantised-dsgd", "state-noise", {"step": 0.0}, SAMPLED),
    ("quantised-dsgd", "released-state", {"step": 0.0}, SAMPLED),
    ("online-dsgd", "state-noise", {"power_gamma": 0.6}, ONLINE),
    ("online-dsgd", "released-state", {"power_gamma": 0.6}, ONLINE),
    ("noisy-gt", "sum-noise", {}, TOY["dpgt"][0]),
    ("noisy-gt", "released-sum", {}, TOY["dpgt"][0]),
]
DECAY = {"power_alpha": 0.3, "power_gamma": 0.5}
NOISY: list[tuple[str, str, Options]] = [
    ("sampled-dsgd", "state-noise", {}),
    ("sampled-dsgd", "released-state", DECAY),
    ("quantised-dsgd", "state-noise", {"step": 0.01, **DECAY}),
    ("quantised-dsgd", "released-state", {"step": 0.01}),
    ("online-dsgd", "state-noise", DECAY),
    ("noisy-gt", "sum-noise", {}),
    ("noisy-gt", "released-sum", {"power_beta": 0.2, **DECAY}),
    ("ternary-dsgd", "quantised-state", {"r": 8.0, **DECAY}),
]


def by(run: model.RunConfig, method: str, mechanism: str, options: Options) -> model.RunConfig:
    algorithm = replace(run.algorithm, method=method, mechanism=mechanism)
    return replace(run, algorithm=algorithm, method_options=options)


def toy(method: str, mechanism: str, options: Options) -> model.RunConfig:
    run = cases.run(RING, K=200, noisy=False, data=model.Data("quadratic", params={"dimension": 4}))
    return by(replace(run, scheme=model.SchemeS2(0.1, 0.05, 0.1, 1.0, samples=1)), method, mechanism, options)


def pull(k: int, x: F64) -> F64:
    """The gradients of the toy."""
    return x - np.arange(1.0, len(x) + 1)[:, None]


def steps(run: model.RunConfig) -> states.Steps:
    scheme, options = run.scheme, run.method_options
    assert isinstance(scheme, model.SchemeS2)
    rounds = np.arange(1.0, run.K + 2)
    found = (
        getattr(scheme, name) * rounds ** -float(options.get(f"power_{name}", 0.0))  # type: ignore[arg-type]
        for name in ("alpha", "beta", "gamma")
    )
    return states.Steps(*found)  # type: ignore[arg-type]


@pytest.mark.parametrize(("method", "mechanism", "options", "expected"), FORMS)
def test_the_expected_numbers_of_the_toy(
    method: str, mechanism: str, options: Options, expected: tuple[float, ...]
) -> None:
    run = toy(method, mechanism, options)
    for found in (Played(run).final, finals(run)):
        np.testing.assert_allclose(found, np.repeat(np.array(expected)[:, None], 4, axis=1), rtol=1e-10)


@pytest.mark.parametrize(
    ("method", "mechanism", "worst", "norm", "consensus"),
    [
        ("noisy-gt", "sum-noise", 0.9192, 12.03103878, 0.0696655),
        ("noisy-gt", "released-sum", 0.9192, 12.03103878, 0.0696655),
        ("sampled-dsgd", "released-state", 0.9081, 11.89097203, 0.110063),
    ],
)
def test_the_expected_numbers_on_digits(
    method: str, mechanism: str, worst: float, norm: float, consensus: float
) -> None:
    run = replace(toy(method, mechanism, {}), data=model.Data("digits"))
    run = replace(run, scheme=model.SchemeS2(0.1, 0.01, 0.1, 1.0, samples="full"))
    x = finals(run)
    accuracies = [build_oracle(run, i).evaluate(x[i]).accuracy_test for i in range(run.n)]
    assert min(accuracies) == pytest.approx(worst, abs=5e-5)  # type: ignore[type-var]
    assert np.linalg.norm(x) == pytest.approx(norm, rel=1e-8)
    assert methods.consensus_error(x) == pytest.approx(consensus, rel=1e-5)


def test_the_sum_tracks_and_a_state_alone_stops_at_a_distance() -> None:
    """Curvatures that differ: a slope of -.01622 a round, against an error that stays."""
    work = Curved(np.random.default_rng(3).uniform(0.5, 1.5, (5, 4)))
    best = (work.h * work.b).sum(0) / work.h.sum(0)
    errors = {}
    for method, mechanism, options, _ in FORMS[2::2]:
        xs = trajectory(toy(method, mechanism, options), work)
        errors[method] = [float(np.linalg.norm(x - best)) / np.sqrt(5) for x in xs]
    assert methods.slope(errors["noisy-gt"], 40, 140) == pytest.approx(-0.01622, abs=5e-6)
    assert errors["sampled-dsgd"][-1] == errors["quantised-dsgd"][-1] == pytest.approx(1.845, abs=5e-4)
    assert errors["online-dsgd"][-1] == pytest.approx(1.1317, abs=5e-5)


def replayed(run: model.RunConfig, seen: Played) -> tuple[list[F64], list[F64]]:
    """States and, beside them, what was sent, by the dense definition on what was sent."""
    released, K = run.algorithm.mechanism.startswith("released"), run.K
    X = [np.stack([seen.sent["X", i, k] for i in range(run.n)]) for k in range(K + 1)]
    if run.algorithm.method == "noisy-gt":
        S = [np.stack([seen.sent["Y", i, k] for i in range(run.n)]) for k in range(K + 1)]
        pairs = list(zip(X, S, strict=True))
        x, s = states.sum_form(run.graph.R, run.graph.C, steps(run), seen.x0, pull, pairs, released)
        return [x, s], [np.stack(X), np.stack(S)]
    return [states.state_form(run.graph.R, steps(run), seen.x0, pull, X, released)], [np.stack(X)]


@pytest.mark.parametrize(("method", "mechanism", "options"), NOISY)
@pytest.mark.parametrize("pair", ["self-loops everywhere", "non-uniform weights", "one agent alone"])
def test_a_run_is_its_definition_on_what_was_sent(pair: str, method: str, mechanism: str, options: Options) -> None:
    run = by(cases.run(pair, K=120), method, mechanism, options)
    seen = Played(run)
    own, sent = replayed(run, seen)
    assert error(seen.final, own[0][-1]) < 1e-12
    for k in (0, 10, run.K):
        for i in range(run.n):
            v = seen.records[i, k].checkpoint.vectors  # type: ignore[union-attr]
            np.testing.assert_allclose(v["px"] + v["tx"], own[0][k, i], rtol=1e-11, atol=1e-12)
            if len(own) > 1:
                np.testing.assert_allclose(v["ps"] + v["ts"], own[1][k, i], rtol=1e-11, atol=1e-12)
    step = float(options.get("step", options.get("r", 0.0)))
    if step:
        codes = np.concatenate(sent) / step
        np.testing.assert_allclose(codes, np.rint(codes), atol=1e-9)
        assert seen.records[0, 0].payloads[0].dtype == ("int8" if "r" in options else "int32")
    if "r" in options:
        return
    for one, other, scale in zip(own, sent, (0.01, 0.02), strict=False):
        variance = np.var(other - one[:-1], axis=(0, 2)) / (2 * np.square(scale * np.arange(1, run.n + 1)))
        assert (variance > 0.7).all(), "the noise has the run file's scale"
        assert (variance < 1.4 + step**2 / (8 * scale**2)).all()


@pytest.mark.parametrize(("method", "mechanism", "options"), NOISY)
def test_the_fast_simulation_is_that_of_the_machines(
    method: str, mechanism: str, options: Options, tmp_path: Path
) -> None:
    difference, _, _ = both(by(cases.run("non-uniform weights"), method, mechanism, options), tmp_path)
    assert difference < TOLERANCE


@pytest.mark.parametrize("mechanism", ["state-noise", "released-state"])
def test_noise_on_the_same_bits_gives_the_same_run_whatever_it_is_called(mechanism: str) -> None:
    """Quantised DSGD with step 0.0 is sampled DSGD; so is online DSGD where nobody has samples."""
    run = cases.run("self-loops everywhere")
    finals = [
        Played(by(run, method, mechanism, options)).final.tobytes()
        for method, options in (("sampled-dsgd", {}), ("quantised-dsgd", {"step": 0.0}), ("online-dsgd", {}))
    ]
    assert len(set(finals)) == 1


@pytest.mark.parametrize(("form", "twin"), [("state-noise", "paper"), ("released-state", "published-point")])
def test_sampled_dsgd_is_algorithm_1_on_the_closure_without_tracking(form: str, twin: str) -> None:
    run = cases.run("non-uniform weights")
    mine = Played(by(run, "sampled-dsgd", form, {})).final
    W = methods.metropolis(run.graph.R)
    np.fill_diagonal(W, 0.0)
    graph = replace(run.graph, R=tuple(map(tuple, W.tolist())), C=((0.0,) * 4,) * 4)
    # With C = 0 y_k is g_k, and the noise on it reaches nobody.
    theirs = Played(by(replace(run, graph=graph), "dpgt", twin, {})).final
    assert error(mine, theirs) < 1e-12


@pytest.mark.parametrize(("method", "mechanism", "options"), NOISY)
def test_replay_from_a_checkpoint_gives_the_same_bits_and_draws_nothing(
    method: str, mechanism: str, options: Options
) -> None:
    data = model.Data("pl-linear", params={"dimension": 5, "rows": 10, "start": 0.5})
    run = by(cases.run("self-loops everywhere", K=12, data=data), method, mechanism, options)
    seen, topology, schedule = Played(run), Topology.from_config(run.graph), Schedule.from_config(run)
    work = AgentWork(run, topology, schedule, 1, build_oracle(run, 1), NoEntropy(), sampler_for(run))  # type: ignore
    incoming = network_of(run, topology).incoming(1)
    state = seen.records[1, 2].checkpoint
    for k in range(2, 12):
        received = {s: {j: seen.sent[s, j, k] for j, _ in edges} for s, edges in incoming.items()}
        state = work.advance(t.Advance(state, received, seen.records[1, k].payloads, seen.records[1, k + 1])).state
        expected = seen.records[1, k + 1].checkpoint
        assert expected is not None and list(state.vectors) == list(expected.vectors) and not state.pending
        assert state.batch.tobytes() == expected.batch.tobytes()
        assert all(v.tobytes() == expected.vectors[name].tobytes() for name, v in state.vectors.items()), k


def batches(run: model.RunConfig) -> list[list[int]]:
    seen = Played(run)
    return [seen.records[0, k].checkpoint.batch.tolist() for k in range(run.K + 1)]  # type: ignore[union-attr]


@pytest.mark.parametrize("mechanism", ["noise-once", "state-noise"])
def test_batches_grow_where_the_method_says_so(mechanism: str) -> None:
    options = {"samples_power": 0.5, "samples_factor": 2.0}
    found = batches(by(cases.run("two agents", K=9, data=model.Data("digits")), "sampled-dsgd", mechanism, options))
    assert [len(batch) for batch in found] == [int(2 * k**0.5) + 1 for k in range(10)]
    assert all(len(set(batch)) == len(batch) for batch in found)


def test_samples_arrive_one_a_round_and_stay() -> None:
    run = by(cases.run("two agents", K=5, data=model.Data("digits")), "online-dsgd", "state-noise", {})
    assert batches(run) == [list(range(k + 1)) for k in range(6)]


def refused(run: model.RunConfig, D: int | None) -> list[tuple[str, str]]:
    return list(hard_failures(run, Topology.from_config(run.graph), Schedule.from_config(run), (D,) * run.n))


def test_what_a_method_cannot_use_is_refused_by_name() -> None:
    run = cases.run(RING, K=40, data=model.Data("digits"))
    online = by(run, "online-dsgd", "state-noise", {})
    assert refused(online, 41) == []
    ((key, said),) = refused(online, 40)
    assert key == "algorithm.iterations" and said.startswith("online-dsgd: K < D")
    assert "agent-1 (D = 40, K = 40), agent-2" in said
    apart = replace(run.graph, R=((0.0,) * 5,) * 5)
    for method in ("sampled-dsgd", "quantised-dsgd", "online-dsgd"):
        ((key, said),) = refused(by(replace(run, graph=apart), method, "state-noise", {}), 287)
        assert key == "graph.R" and said.startswith(f"{method}: the undirected closure of R is connected")
    ((key, said),) = refused(by(replace(run, graph=apart), "noisy-gt", "sum-noise", {}), 287)
    assert key == "graph" and "common root" in said
    steep = replace(run, scheme=model.SchemeS2(1.5, 0.05, 0.1, 1.0, samples=1))
    for method, mechanism in (("sampled-dsgd", "state-noise"), ("noisy-gt", "sum-noise")):
        ((key, said),) = refused(by(steep, method, mechanism, {}), 287)
        assert key == "scheme" and "< 1" in said
    large = by(run, "sampled-dsgd", "state-noise", {"samples_power": 2.0})
    assert [key for key, _ in refused(large, 287)] == ["scheme"], "m_40 = 1601 samples are more than an agent has"


@pytest.mark.parametrize(
    ("method", "mechanism", "options", "why"),
    [
        ("sampled-dsgd", "state-noise", {}, text.WHY_NOT_THE_SAME_POINT),
        ("noisy-gt", "sum-noise", {}, text.WHY_NOT_THE_SAME_POINT),
        ("ternary-dsgd", "quantised-state", {"r": 8.0}, text.WHY_ONLY_A_DELTA),
        ("sampled-dsgd", "released-state", {}, None),
    ],
)
def test_what_is_conditional_is_said_to_be(
    method: str, mechanism: str, options: Options, why: str | None, tmp_path: Path
) -> None:
    run = by(cases.run("two agents", K=3, data=model.Data("digits")), method, mechanism, options)
    run = replace(run, privacy=model.Privacy(clip_l1=0.1))
    _, summary = simulate(run, tmp_path / "out", bytes(16), test_keystream="ab")
    # A test keystream hides nothing, so the epsilons of the run are those of its account.
    values = {name: accounts[0] for name in ACCOUNTANTS if (accounts := totals(run, name, 359))}
    agents = [replace(agent, epsilon=Epsilon.of(values)) for agent in summary.agents]
    said = text.why_conditional(replace(summary, agents=agents))
    assert said == (() if why is None else (why,))
    assert any("(conditional)" in called(name) for name, v in values.items() if v is not None) == (why is not None)


# --------------------------------------------------------------------------------------------------- what it costs
SCALES = tuple((0.99959 + 1e-5 * i) ** 2000 for i in range(1, 6))


def section_iv(method: str, mechanism: str, C: float = 1.0, scales: tuple[float, ...] = SCALES) -> model.RunConfig:
    stream = model.NoiseStream("constant", scales)
    run = replace(
        cases.run(RING, K=2000),
        scheme=model.SchemeS2(0.1, 0.01, 0.1, 1.0, samples=55),
        noise=model.Noise(stream, stream),
        privacy=model.Privacy(clip_l1=C / 2),
    )
    return by(run, method, mechanism, {})


def totals(run: model.RunConfig, accountant: str, D: int | None = 12_000) -> list[float | None]:
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    return [AgentAccount(run, topology, schedule, i, D).total(accountant) for i in range(run.n)]


def worst(run: model.RunConfig, accountant: str) -> float:
    return max(value for value in totals(run, accountant) if value is not None)


@pytest.mark.parametrize("method", ["sampled-dsgd", "quantised-dsgd"])
def test_what_noise_on_x_costs_in_section_iv(method: str) -> None:
    released = section_iv(method, "released-state")
    assert worst(released, "tight") == pytest.approx(157.169, abs=5e-4)
    assert worst(released, "amplified") == pytest.approx(0.749, abs=5e-4)
    assert worst(section_iv(method, "released-state", 55.0), "tight") == pytest.approx(8_644.3, abs=0.05)
    private = section_iv(method, "state-noise")
    assert totals(private, "tight") == totals(private, "amplified") == totals(released, "same-point") == [None] * 5
    assert totals(private, "same-point") == totals(released, "tight"), "to the last digit, and conditional"
    oracle = [
        states.same_point(0.1 * s, 0.1, 55, 1.0, [scale] * 2001)
        for s, scale in zip((0.75, 0.5, 0.75, 7 / 12, 7 / 12), SCALES, strict=True)
    ]
    np.testing.assert_allclose(totals(private, "same-point"), oracle, rtol=2e-6)  # type: ignore[arg-type]
    corrected = totals(private, "corrected")
    assert all(one is not None and one > 50 * other for one, other in zip(corrected, oracle, strict=True))


@pytest.mark.parametrize(("p", "expected"), [(0.9994, 234.5), (0.9998, 105.3)])
def test_the_other_families_of_section_iv(p: float, expected: float) -> None:
    scales = tuple((p - 1e-5 + 1e-5 * i) ** 2000 for i in range(1, 6))
    found = worst(section_iv("sampled-dsgd", "released-state", scales=scales), "tight")
    assert found == pytest.approx(expected, abs=0.05)


def test_a_half_as_a_coupling() -> None:
    """a = .05 alone, sigma .9996^2000: agent 2 of the demo has s = .5."""
    run = section_iv("sampled-dsgd", "released-state", scales=(0.9996**2000,) * 5)
    assert totals(run, "tight")[1] == pytest.approx(160.3455, abs=5e-4)
    assert totals(run, "amplified")[1] == pytest.approx(0.76518, abs=5e-6)


def test_what_noisy_gradient_tracking_costs_in_section_iv() -> None:
    released = section_iv("noisy-gt", "released-sum")
    private = section_iv("noisy-gt", "sum-noise")
    assert worst(section_iv("noisy-gt", "released-sum", 55.0), "tight") == pytest.approx(49_056, abs=1.0)
    assert worst(released, "tight") == pytest.approx(891.9, abs=0.05)
    assert totals(private, "same-point") == totals(released, "tight")
    assert totals(private, "tight") == [None] * 5


def test_steps_that_decay_go_by_the_weights_of_r_on_x_and_of_c_on_s() -> None:
    """On graphs where r_i and c_i differ, as they do not on the demo's."""
    powers = {"power_alpha": 0.3, "power_beta": 0.2, "power_gamma": 0.5}
    run = replace(cases.run("non-uniform weights", K=30), privacy=model.Privacy(clip_l1=0.5))
    run = by(replace(run, scheme=model.SchemeS2(0.1, 0.05, 0.1, 1.0, samples=55)), "noisy-gt", "released-sum", powers)
    s, (R, C) = steps(run), (np.array(run.graph.R), np.array(run.graph.C))
    for i, (r, c) in enumerate(zip(R.sum(1), C.sum(0), strict=True)):
        pushes = ((s.alpha, r), (s.beta, c), (s.gamma, 1.0))
        found = states.impulses(*((weight * np.array(step)).tolist() for step, weight in pushes))
        moved = np.abs(found["px"]).sum() / (0.01 * (i + 1)) + np.abs(found["ps"]).sum() / (0.02 * (i + 1))
        assert totals(run, "tight")[i] == pytest.approx(moved / 55, rel=3e-6)


def test_a_sample_that_stays_pays_for_every_round_and_no_sampling_hides_it() -> None:
    run = section_iv("online-dsgd", "released-state")
    for i, (s, scale) in enumerate(zip((0.75, 0.5, 0.75, 7 / 12, 7 / 12), SCALES, strict=True)):
        moved = expected = 0.0
        for k in range(2001):
            expected += moved / scale
            moved = (1 - 0.1 * s) * moved + 0.1 * 1.0 / (k + 1)
        assert totals(run, "tight")[i] == pytest.approx(expected, rel=3e-6)
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    account = AgentAccount(run, topology, schedule, 0, 12_000)
    assert account.total("amplified") is None and "every batch since it arrived" in (account.why_not("amplified") or "")


def test_growing_batches_count_by_their_own_size() -> None:
    options = {"samples_power": 0.5, "power_alpha": 0.2, "power_gamma": 0.4}
    run = replace(section_iv("sampled-dsgd", "released-state"), method_options=options)
    run = replace(run, algorithm=replace(run.algorithm, iterations=50))
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    rounds = np.arange(51)
    sizes = np.floor(np.sqrt(rounds)) + 1
    alpha, gamma = 0.1 * (rounds + 1) ** -0.2, 0.1 * (rounds + 1) ** -0.4
    A = states.impulses((alpha * 0.5).tolist(), [0.0] * 51, (gamma / sizes).tolist())["x"]
    account = AgentAccount(run, topology, schedule, 1, 400)
    assert account.total("tight") == pytest.approx(np.abs(A).sum() / SCALES[1], rel=2e-6)
    w = np.abs(A).sum(0) / SCALES[1]
    assert account.total("amplified") == pytest.approx(np.log1p(sizes / 400 * np.expm1(w)).sum(), rel=1e-5)
    once = by(run, "sampled-dsgd", "noise-once", options)
    account = AgentAccount(once, topology, Schedule.from_config(once), 1, 400)
    assert account.total("tight") == pytest.approx((1 / sizes).sum() / SCALES[1], rel=2e-6)


@pytest.mark.parametrize(("r", "C", "product"), [(10.0, 1.0, 0.94166007), (100.0, 1.0, 0.24699793)])
def test_what_a_ternary_quantiser_costs(r: float, C: float, product: float) -> None:
    """a = .05, gamma = .1, m = 55, 800 rounds."""
    run = replace(section_iv("ternary-dsgd", "quantised-state", C), method_options={"r": r})
    run = replace(run, algorithm=replace(run.algorithm, iterations=799))
    found = totals(run, "variation")[1]
    assert found == pytest.approx(product, rel=1e-5)
    assert found == pytest.approx(states.ternary_delta(0.05, 0.1, 55, C, r, 800), rel=1e-5)
    for sound in ("corrected", "tight", "amplified", "zcdp", "gdp", "lemma5", "same-point"):
        assert totals(run, sound) == [None] * 5


@pytest.mark.parametrize(("r", "C"), [(6.18, 1.0), (340.0, 55.0)])
def test_the_range_at_which_delta_is_99_percent_after_800_rounds(r: float, C: float) -> None:
    run = replace(section_iv("ternary-dsgd", "quantised-state", C), method_options={"r": r})
    run = replace(run, algorithm=replace(run.algorithm, iterations=799))
    assert totals(run, "variation")[1] == pytest.approx(0.99, abs=2e-3)
    # By the sum rule delta is 1 there up to r = 28.36, or 1,560 without 1/m.
    for at, whole in ((28.36, 1.0), (1_560.0, 55.0)):
        assert states.ternary_delta(0.05, 0.1, 55, whole, at, 800, product=False) == pytest.approx(1.0, abs=2e-4)


def test_a_quantiser_has_no_scale_and_needs_its_range() -> None:
    run = by(cases.run(RING), "ternary-dsgd", "quantised-state", {"r": 4.0})
    assert refused(run, None) == []
    ((key, said),) = refused(replace(run, noise=replace(run.noise, multiplier=0.0)), None)
    assert key == "noise.multiplier" and "no scale" in said
    ((key, said),) = refused(replace(run, noise=replace(run.noise, law="gaussian")), None)
    assert key == "noise.law" and "has no law" in said
    with pytest.raises(ConfigError, match=r"method\.r"):
        refused(replace(run, method_options={}), None)


# ------------------------------------------------------------------------------------------------ planted mistakes
def test_a_gradient_at_the_wrong_point_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(forms.ReleasedForm):
        def complete(self, site, k, v):  # type: ignore[no-untyped-def]
            return {**v, "g": site.gradient(k, v["px"] + v["tx"])}

    planted(monkeypatch, "sampled-dsgd", "released-state", Wrong)


def test_noise_in_the_own_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(forms.StateForm):
        def _public(self, site, k, v):  # type: ignore[no-untyped-def]
            return super()._public(site, k, v) + 1e-3 * (site.own("X", k) - v["px"] - v["tx"])

    planted(monkeypatch, "sampled-dsgd", "state-noise", Wrong)


def test_a_sum_that_forgets_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(noisy_gt.SumForm):
        def _moved(self, site, k, v):  # type: ignore[no-untyped-def]
            moved = super()._moved(site, k, v)
            return {**moved, "tx": moved["tx"] + 1e-6 * (moved["ts"] - v["ts"])}

    planted(monkeypatch, "noisy-gt", "sum-noise", Wrong)


def planted(monkeypatch: pytest.MonkeyPatch, method: str, mechanism: str, rule: type) -> None:
    rules = {**METHODS[method].rules, mechanism: rule}
    monkeypatch.setitem(METHODS.loaded, method, replace(METHODS[method], rules=rules))
    run = by(cases.run("non-uniform weights"), method, mechanism, {})
    seen = Played(run)
    assert error(seen.final, replayed(run, seen)[0][0][-1]) > 1e-9
