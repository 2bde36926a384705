"""``simulate --fast`` against the simulated world of machines: same noise, same batches, same outputs, to rounding."""

from __future__ import annotations

import csv
import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpgt_node.agent import encoding
from dpgt_node.algo.edges import Edges
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import METHODS
from dpgt_node.algo.methods.dpgt import DPGT, Steps, next_x, own_y
from dpgt_node.algo.schedule import Schedule
from dpgt_node.bench.speed.ring import ring
from dpgt_node.config import model, parse_run
from dpgt_node.config.graphs.sparse import SparseRows
from dpgt_node.config.mixing.robust import Robust
from dpgt_node.errors import ConfigError
from dpgt_node.learning.nets.batched import batched
from dpgt_node.learning.nets.models import SoftmaxOracle
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.learning.releases import Sources
from dpgt_node.privacy.laws.gaussian_sampler import CHUNK
from dpgt_node.privacy.laws.keystream import TestKeystream
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.privacy.mechanisms import TRACKING
from dpgt_node.sim import fast, matrix, rows, simulate
from dpgt_node.sim.fast import TOLERANCE, TOLERANCE_FLOAT32, FastRun, simulate_fast
from dpgt_node.sim.matrix import Parts, Weights
from dpgt_node.sim.perturbing import perturb
from dpgt_node.sim.rows import Rows
from dpgt_node.sim.team import Team
from dpgt_node.types import NoiseLaw, Stream
from tests.algo import cases as algo_cases
from tests.sim import cases

WORDS = [one.name for one in TRACKING]

KEY = "00112233445566778899"
RUN_ID = bytes(range(16))


def finals(out: Path, run: model.RunConfig) -> np.ndarray:
    return np.stack([np.load(out / "agents" / name / "x_final.npy") for name in run.graph.agents])


def both(run: model.RunConfig, tmp_path: Path) -> tuple[float, Path, Path]:
    """Run both; the relative difference of the final states, and the two output folders."""
    slow, quick = tmp_path / "slow", tmp_path / "fast"
    for out, function in ((slow, simulate.simulate), (quick, simulate_fast)):
        out.mkdir()
        conclude, _ = function(run, out, RUN_ID, test_keystream=KEY)
        assert conclude.exit_code == 0
    a, b = finals(slow, run), finals(quick, run)
    return float(np.abs(a - b).max() / np.abs(a).max()), slow, quick


def digits(**changes: object) -> model.RunConfig:
    run = replace(
        cases.run("the demo's ring with chords", K=60),
        data=model.Data("digits"),
        scheme=model.SchemeS2(alpha=0.1, beta=0.01, gamma=0.1, p_m=1.002, samples=55),
        privacy=model.Privacy(clip_l1=40.0),
    )
    return replace(run, **changes)


@pytest.mark.parametrize("noisy", [False, True], ids=["noise off", "noise on"])
@pytest.mark.parametrize("pair", cases.PAIRS)
def test_every_graph_pair(pair: str, noisy: bool, tmp_path: Path) -> None:
    error, _, _ = both(cases.run(pair, noisy=noisy), tmp_path)
    assert error < TOLERANCE


def changed(run: model.RunConfig, mechanism: str, law: NoiseLaw) -> model.RunConfig:
    return replace(run, algorithm=replace(run.algorithm, mechanism=mechanism), noise=replace(run.noise, law=law))


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("mechanism", WORDS)
@pytest.mark.parametrize(
    "pair", ["self-loops everywhere", "non-uniform weights", "different graphs, R a star, C a path to its centre"]
)
def test_every_mechanism_and_law(pair: str, mechanism: str, law: NoiseLaw, tmp_path: Path) -> None:
    error, _, _ = both(changed(cases.run(pair), mechanism, law), tmp_path)
    assert error < TOLERANCE


@pytest.mark.parametrize("mechanism", WORDS)
def test_every_mechanism_without_noise(mechanism: str, tmp_path: Path) -> None:
    error, _, _ = both(changed(cases.run("self-loops everywhere", noisy=False), mechanism, "laplace"), tmp_path)
    assert error < TOLERANCE


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("mechanism", WORDS)
def test_every_mechanism_learns_the_same_digits(mechanism: str, law: NoiseLaw, tmp_path: Path) -> None:
    error, _, _ = both(changed(cases.run("two agents", K=15, data=model.Data("digits")), mechanism, law), tmp_path)
    assert error < TOLERANCE


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"privacy": model.Privacy(clip_l1=3.0)},
        {"privacy": model.Privacy(clip_l2=0.7)},
        {"privacy": model.Privacy(), "model": model.Model(bias=0.0, init_seed=3)},
        {"scheme": model.SchemeS2(alpha=0.1, beta=0.01, gamma=0.1, p_m=1.0, samples="full")},
        {
            "scheme": model.SchemeS1(a1=0.3, a2=0.2, a3=0.5, a4=1.0, p_alpha=0.8, p_beta=0.6, p_gamma=0.9, p_m=0.5),
            "noise": model.Noise(
                model.NoiseStream("exponent", (-0.5, -0.6, -0.7, -0.8, -0.9)),
                model.NoiseStream("exponent", (-0.9, -0.8, -0.7, -0.6, -0.5)),
            ),
        },
    ],
    ids=["the demo", "tight L1 clip", "tight L2 clip", "no bias", "unequal full batches", "S1 noise"],
)
def test_digits(changes: dict[str, object], tmp_path: Path) -> None:
    error, _, _ = both(digits(**changes), tmp_path)
    assert error < TOLERANCE


@pytest.mark.parametrize(
    "data",
    [
        model.Data("pl-sine", params={"start": 0.9}),
        model.Data("pl-linear", params={"dimension": 3, "rows": 6}),
        model.Data("zeros", params={"dimension": 4}),
    ],
    ids=lambda data: data.dataset,
)
@pytest.mark.parametrize("clip", [None, 0.5], ids=["unclipped", "clipped"])
def test_toys(data: model.Data, clip: float | None, tmp_path: Path) -> None:
    run = cases.run("non-uniform weights", data=data)
    run = replace(run, scheme=replace(run.scheme, samples=5), privacy=model.Privacy(clip_l1=clip))
    error, _, _ = both(run, tmp_path)
    assert error < TOLERANCE


@pytest.mark.parametrize("mechanism", WORDS)
def test_float32_wire_is_rounded_too(mechanism: str, tmp_path: Path) -> None:
    run = changed(digits(runtime=model.Runtime(wire_dtype="float32")), mechanism, "laplace")
    error, slow, quick = both(run, tmp_path)
    assert error < TOLERANCE_FLOAT32
    unrounded = tmp_path / "float64"
    simulate_fast(changed(digits(), mechanism, "laplace"), unrounded, RUN_ID, test_keystream=KEY)
    kept = finals(slow, run)
    # Rounding moves the result by far more than the two simulators differ.
    assert np.abs(finals(unrounded, run) - kept).max() > 20 * np.abs(finals(quick, run) - kept).max()


def test_large_sparse_graph(tmp_path: Path) -> None:
    n = 60
    ring = np.roll(np.eye(n), 1, axis=0)
    ring[7, 30] = 0.5
    run = replace(
        algo_cases.run(model.SchemeS2(0.11, 0.07, 0.03, 1.01, samples=1), R=ring, C=ring, K=30, kind="constant"),
        data=model.Data("quadratic", params={"dimension": 5}),
        evaluate=model.Evaluation(every=10, metrics="study"),
    )
    assert not isinstance(
        FastRun(run, simulate.build_oracles(run, None), KEY)._rows._weights["X"].times(0.1), np.ndarray
    )
    error, _, _ = both(run, tmp_path)
    assert error < TOLERANCE


@pytest.mark.parametrize("n", [3, 40])
def test_weights_are_times_the_step_that_is_asked_for(n: int) -> None:
    circle = Edges(np.arange(n + 1), (np.arange(n) - 1) % n, np.linspace(0.1, 0.9, n))
    weights = Weights(circle)
    for step in (0.5, 0.5, 0.25):
        np.testing.assert_array_equal(weights.times(step) @ np.eye(n), step * circle.dense)


def test_nothing_of_a_large_sparse_run_has_a_place_for_every_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five methods' weights of 5,000 agents take less than a tenth of one matrix; a whole run asks for none."""

    def whole(*_: object) -> None:
        raise AssertionError("a matrix (n, n)")

    monkeypatch.setattr(Edges, "dense", property(whole))
    n = 5_000
    circle = Edges(np.arange(n + 1), (np.arange(n) - 1) % n, np.full(n, 0.5))
    chords = Edges(np.arange(n + 1), np.arange(n) * 7 % n, np.full(n, 0.5))
    topology = Topology._of([str(i) for i in range(n)], circle, chords)
    tracemalloc.start()
    for name in ("dpgt", "atc-dsgd", "dp-dsgt", "no-communication", "online-dsgd"):
        for mixing in METHODS[name].sends:
            weights = mixing.weights(cases.run("two agents"), topology)
            assert Weights(weights).times(0.1).nnz == len(weights.weights)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * n * n / 10, peak

    monkeypatch.setattr(SparseRows, "_row", whole)  # a row with its zeros
    text = ring(600, 2, 3, "plain")
    run = parse_run(text, "run.toml", tmp_path)
    _, summary = simulate_fast(run, tmp_path, bytes(16), test_keystream=KEY)
    assert summary.status == "finished"


@pytest.mark.parametrize(
    ("mechanism", "guard"), [*((one, Robust()) for one in WORDS), (WORDS[0], Robust("clipped-gossip", radius=20.0))]
)
def test_long_rows_are_worked_on_in_blocks(mechanism: str, guard: Robust, monkeypatch: pytest.MonkeyPatch) -> None:
    data = model.Data("quadratic", params={"dimension": 9001})
    run, found = changed(cases.run("the demo's ring with chords", data=data), mechanism, "laplace"), []
    run = replace(run, runtime=model.Runtime(wire_dtype="float32"), robust=guard)
    monkeypatch.setattr(rows, "_BLOCK_NUMBERS", 1)
    for large in (rows._LARGE, 1):
        monkeypatch.setattr(rows, "_LARGE", large)
        state = FastRun(run, simulate.build_oracles(run, None), KEY)
        for _ in range(3):
            state.step()
        found.append((state.x, state._rows.block))
    (whole, _), (blocks, block) = found
    assert block < 9001 / 2
    assert np.abs(whole - blocks).max() < TOLERANCE * np.abs(whole).max()


def metrics(out: Path) -> list[dict[str, str]]:
    with (out / "metrics.csv").open() as file:
        return sorted(csv.DictReader(file), key=lambda row: (int(row["k"]), row["agent"]))


@pytest.mark.parametrize(
    ("mechanism", "law"),
    [("paper", "laplace"), ("published-point", "gaussian"), ("public-state", "laplace"), ("noise-once", "gaussian")],
)
def test_same_outputs(mechanism: str, law: NoiseLaw, tmp_path: Path) -> None:
    run = changed(digits(), mechanism, law)
    _, slow, quick = both(run, tmp_path)
    assert {p.relative_to(slow) for p in slow.rglob("*.npy")} == {p.relative_to(quick) for p in quick.rglob("*.npy")}
    a, b = metrics(slow), metrics(quick)
    assert [(r["agent"], r["k"]) for r in a] == [(r["agent"], r["k"]) for r in b]
    for ours, theirs in zip(a, b, strict=True):
        for key in ours.keys() - {"agent", "k", "wall_seconds"}:
            assert ours[key] == theirs[key] or float(ours[key]) == pytest.approx(float(theirs[key]), rel=1e-9), key
    a_json, b_json = (json.loads((out / "summary.json").read_text()) for out in (slow, quick))
    for summary in (a_json, b_json):
        for key in ("seconds", "rounds_per_second"):
            del summary[key]
        assert summary.pop("consensus_error") > 0
        for agent in summary["agents"]:
            agent["loss_train"] = round(agent["loss_train"], 9)
            assert agent["releases"] == 2 * (run.K + 1)
    assert a_json == b_json


@pytest.mark.parametrize("function", [simulate.simulate, simulate_fast])
def test_local_runs_keep_states_to_themselves_and_compute_no_metrics_that_nobody_reads(
    function: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SoftmaxOracle, "_evaluated", None)
    function(digits(evaluate=model.Evaluation(every=20, metrics="local")), tmp_path, RUN_ID)
    assert not list(tmp_path.glob("agents/*/x_final.npy"))
    assert len(list(tmp_path.glob("agents/*/state/x_final.npy"))) == 5
    rows = metrics(tmp_path)
    assert {row["loss_train"] for row in rows} == {""}
    assert {row["k"] for row in rows} == {"0", "20", "40", "60", "61"}


def test_a_stop_ends_between_rounds(tmp_path: Path) -> None:
    seen: list[int] = []
    conclude, summary = simulate_fast(
        digits(), tmp_path, RUN_ID, on_round=lambda k, *_: seen.append(k), should_stop=lambda: len(seen) == 8
    )
    assert (conclude.status, conclude.exit_code) == ("stopped", 5)
    assert (summary.rounds, summary.agents[0].releases) == (7, 14)
    assert seen == list(range(8))
    assert not list(tmp_path.rglob("x_final.npy"))


def test_divergence_names_the_agent_and_the_round(tmp_path: Path) -> None:
    run = cases.run("non-uniform weights", K=3000)
    run = replace(run, scheme=model.SchemeS2(0.3, 0.3, 50.0, 1.0, samples=1))
    messages = []
    for function in (simulate.simulate, simulate_fast):
        out = tmp_path / function.__name__
        out.mkdir()
        with pytest.raises(fast.Diverged) as caught:
            function(run, out, RUN_ID, test_keystream=KEY)
        messages.append(str(caught.value))
    # Which of the agents that overflow in that round says so first is a matter of order.
    assert messages[0].partition(": ")[2] == messages[1].partition(": ")[2]


def test_production_noise_differs_between_agents_rounds_and_runs() -> None:
    run = cases.run("self-loops everywhere", data=model.Data("zeros", params={"dimension": 40}))
    oracles = simulate.build_oracles(run, None)
    states = [FastRun(run, oracles, None) for _ in range(2)]
    released = []
    for state in states:
        for _ in range(2):
            released.extend(state.perturb("X", state.k, np.zeros((3, 40))) / state._scale("X", state.k)[:, None])
            state.k += 1
    assert len(released) == 12
    for i, one in enumerate(released):
        for other in released[:i]:
            assert np.count_nonzero(one == other) < 20, "cells coincide now and then, vectors never"


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("d", [1, 100, CHUNK // 2, CHUNK // 2 + 1, 4 * CHUNK + 1])
def test_perturb_is_the_samplers_noise(d: int, law: NoiseLaw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "PIECE", 2 * CHUNK)  # more than one in the longest
    scales = np.array([0.5, 2.0, 1e-3, 7.0])
    streams = [TestKeystream(KEY, i) for i in range(4)]
    values = np.random.default_rng(0).standard_normal((4, d))
    samplers, team = [LAWS[law].sampler(None) for _ in range(3)], Team(3)
    for public in (None, values[::-1].copy()):
        got = perturb(samplers, values, scales, [stream.stream(3, "X") for stream in streams], team, public)
        for i in range(4):
            alone = LAWS[law].sampler(None).perturb(values[i], float(scales[i]), streams[i].stream(3, "X"))
            assert got[i].tobytes() == (alone if public is None else alone + public[i]).tobytes()


STREAMS: tuple[Stream, ...] = ("X", "Y")
STILL, MOVING = model.NoiseStream("constant", (0.5, 2.0)), model.NoiseStream("exponent", (-0.5, 0.25))


@pytest.mark.parametrize("noise", [model.Noise(STILL, MOVING), model.Noise(MOVING, STILL), model.Noise(STILL, STILL)])
@pytest.mark.parametrize("decay", [1.0, 2.0])
def test_scales_are_the_schedule_s_in_every_round(noise: model.Noise, decay: float) -> None:
    """Of one stream whatever the other's do, and however they are asked for."""
    scheme = model.SchemeS1(a1=0.3, a2=0.2, a3=0.5, a4=1.0, p_alpha=0.8, p_beta=0.6, p_gamma=0.9, p_m=0.5)
    run = replace(cases.run("two agents", K=5), scheme=scheme, noise=replace(noise, decay=decay))
    state, schedule = FastRun(run, simulate.build_oracles(run, None), KEY), Schedule.from_config(run)
    for k in (0, 0, 1, 2, 5):
        for stream in STREAMS:
            assert state._scale(stream, k).tolist() == [schedule.sigma(stream, i, k) for i in range(2)]


def test_a_gradient_elsewhere_is_of_the_batches_that_were_drawn() -> None:
    """Under production's keystream, which gives no byte twice."""
    run = digits()
    state = FastRun(run, simulate.build_oracles(run, None), None)
    drawn = state.gradient(0, state.x)
    assert np.array_equal(state.again(0, state.x), drawn)
    assert not np.array_equal(state.gradient(0, state.x), drawn), "another batch is another gradient"


def test_a_gradient_is_clipped_as_its_round_is() -> None:
    """Whatever clip the rounds before had."""
    run = digits(privacy=model.Privacy(clip_l1=1e-3, decay=4.0))
    oracles, schedule = simulate.build_oracles(run, None), Schedule.from_config(run)
    state, sources = FastRun(run, oracles, KEY), [Sources(oracle, schedule) for oracle in oracles]
    for k in (0, 1, run.K, 0):
        found = state.gradient(k, state.x)
        rows = zip(sources, state.x, state._batches, strict=True)
        expected = np.array([one.at(k).gradient(x, batch) for one, x, batch in rows])
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        assert np.abs(found).sum(axis=1).max() <= 1e-3 * 4.0 ** (-k / run.K) * (1 + 1e-9)


def test_one_scale_of_zero_is_refused_and_takes_no_noise_from_the_others() -> None:
    run = replace(cases.run("two agents"), noise=model.Noise(STILL, replace(STILL, values=(0.0, 1.0))))
    state = FastRun(run, simulate.build_oracles(run, None), KEY)
    with pytest.raises(ValueError, match="noise scale"):
        state.perturb("Y", 0, np.zeros(state.x.shape))


@pytest.mark.parametrize("density", [0.05, 1.0])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_sums_of_neighbours_against_the_equation(
    density: float, compiled: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpgt_node.privacy.laws.compiled.machine_code", lambda loop: loop)
    monkeypatch.setattr(matrix, "_BLOCK_NUMBERS", 1)
    monkeypatch.setattr(matrix, "_LEAST", 4)
    rng, n, d = np.random.default_rng(3), 40, 11
    W = rng.uniform(size=(n, n)) * (rng.uniform(size=(n, n)) < density)
    W[5] = 0.0
    vector, sent, other = rng.normal(size=(3, n, d))
    keep, out = rng.uniform(size=(n, 1)), np.full((n, d), np.nan)
    weights = Weights(Edges.of(W), compiled, Team(threads))
    for own, less, last in ((keep, 0.7, other), (0.25, 0.7, None), (keep, 0.0, other)):
        matrix.Mixing(weights, sent).combine(own, vector, 0.3, less, last, out)
        for i in range(n):
            for c in range(d):
                kept = (own[i, 0] if isinstance(own, np.ndarray) else own) * vector[i, c]
                right = kept + 0.3 * sum(W[i, j] * sent[j, c] for j in range(n))
                right -= 0.0 if last is None else less * last[i, c]
                assert out[i, c] == pytest.approx(right, rel=1e-12, abs=1e-12)


def test_private_parts_have_the_bits_of_an_agent_s_own() -> None:
    n, d = 3, 1 << 14  # parts of two rows
    x, y, g, g_next = np.random.default_rng(4).normal(size=(4, n, d))

    def found(a: Any, at: Any, alone: Any) -> list[np.ndarray]:
        steps = Steps(0.3, 0.2, 0.1, a, a / 2)
        own = [own_y(steps, y[at], g[at], then, d, alone) for then in (g_next[at], None)]
        return [next_x(steps, x[at], y[at], alone, d), *own]

    a = np.array([[0.3], [0.7], [0.1]])
    for i in range(n):
        for one, row in zip(found(float(a[i, 0]), i, None), found(a, slice(None), Parts(Team(2))), strict=True):
            assert one.tobytes() == row[i].tobytes()


def test_a_private_value_that_is_not_finite_is_a_divergence() -> None:
    run = cases.run("two agents")
    state = FastRun(run, simulate.build_oracles(run, None), KEY)
    with pytest.raises(fast.Diverged, match=r"agent-2: y .* round 4"):
        state.perturb("Y", 4, np.array([[0.0] * 7, [0.0] * 6 + [np.inf]]))


def test_noise_too_small_for_the_clip_is_refused_as_agents_refuse_it() -> None:
    run = replace(cases.run("two agents"), privacy=model.Privacy(clip_l1=1e6))
    with pytest.raises(ConfigError, match="larger scale"):
        FastRun(run, simulate.build_oracles(run, None), KEY)


def test_batched_gradients_survive_an_overflow_as_single_ones_do() -> None:
    run = digits(privacy=model.Privacy(clip_l1=1.0))
    oracles = [build_oracle(run, i) for i in range(5)]
    x = np.random.default_rng(1).standard_normal((5, oracles[0].dimension))
    x[2] = 1e308 * np.sign(x[2])
    batches = [oracle.draw_batch(20, TestKeystream(KEY, i).stream(0, "batch")) for i, oracle in enumerate(oracles)]
    with np.errstate(all="ignore"):
        alone = np.stack([o.gradient(row, batch) for o, row, batch in zip(oracles, x, batches, strict=True)])
        np.testing.assert_allclose(batched(oracles)(x, batches), alone, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("broken", ["a", "mix", "gamma"])
def test_a_wrong_matrix_is_noticed(broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mutant(Rows):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            if broken == "mix":
                self._weights["Y"]._weights = self._weights["Y"]._weights * (1 + 1e-6)
            else:
                steps = self._rule.steps  # type: ignore[attr-defined]
                self._rule.steps = replace(steps, **{broken: getattr(steps, broken) * (1 + 1e-6)})  # type: ignore

    monkeypatch.setattr(fast, "Rows", Mutant)
    error, _, _ = both(cases.run("non-uniform weights"), tmp_path)
    assert error > 10 * TOLERANCE


def test_noise_on_more_than_the_private_part_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The released values are as likely, but they are not those of an agent: cells lie elsewhere."""

    class Whole(Rows):
        def step(self, k: int, last: bool) -> None:
            p, t = self.vectors["p"], self.vectors["t"]
            self.vectors = {**self.vectors, "p": p + t, "t": np.zeros_like(t)}
            super().step(k, last)

    monkeypatch.setattr(fast, "Rows", Whole)
    error, _, _ = both(cases.run("non-uniform weights"), tmp_path)
    assert error > 10 * TOLERANCE


@pytest.mark.parametrize("mechanism", WORDS)
def test_another_mechanism_is_noticed(mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = changed(cases.run("non-uniform weights", K=10), mechanism, "laplace")
    simulate.simulate(run, tmp_path, RUN_ID, test_keystream=KEY)
    expected = finals(tmp_path, run)
    for other in set(WORDS) - {mechanism}:
        monkeypatch.setattr(rows, "rule_of", lambda run, other=other: DPGT.rules[other])
        state = FastRun(run, simulate.build_oracles(run, None), KEY)
        for _ in range(run.K + 1):
            state.step()
        assert np.abs(state.x - expected).max() > 1e4 * TOLERANCE * np.abs(expected).max()
