"""Each method against its dense definition and the numbers of a calculation that shares nothing with the product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.accounts.account import AgentAccount
from dpgt_node.agent.encoding import Diverged
from dpgt_node.agent.noise import sampler_for
from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.edges import Edges
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import METHODS, network_of
from dpgt_node.algo.methods.dsgd import atc_dsgd as atc_module
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.protocol import types as t
from dpgt_node.sim import simulate
from dpgt_node.sim.fast import TOLERANCE, FastRun
from dpgt_node.sim.rows import Rows
from dpgt_node.sim.world import Observer, World
from dpgt_node.types import F64, Stream
from tests.oracles import methods, perturbed
from tests.sim import cases
from tests.sim.test_fast import both

KEY = "00112233445566778899"
RING = "the demo's ring with chords"
DEFAULTS = {name: next(iter(method.rules)) for name, method in METHODS.items()}
SAMPLED = (1.89071553508, 2.12195121761, 2.84099177818, 3.87427570218, 4.27206575743)
UNROUNDED = {"q-dpsgd": {"step": 0.0}}
# x_{K+1} of agents 1 to 5, every coordinate alike, and the consensus error; alpha .1, beta .05, gamma .1
TOY = {
    "dpgt": ((2.9901989083, 2.98518612039, 2.98836922444, 3.01458394787, 3.013488773), 0.025800),
    "s-ab": ((2.9901989083, 2.98518612039, 2.98836922444, 3.01458394787, 3.013488773), 0.025800),
    "atc-dsgd": ((2.92300418816, 2.74875207796, 2.90727866993, 3.23109248671, 3.18987256772), 0.36563),
    "weighted-sgd": ((2.9999999981,) * 5, 0.0),
    "dp-dsgt": ((2.9999999981,) * 5, 0.0),
    "sampled-dsgd": (SAMPLED, 1.8781),
    "q-dpsgd": (SAMPLED, 1.8781),
    "dyn-d2p": ((2.14128081091, 2.02635270125, 2.56837277923, 3.62537230405, 4.63875279187), 1.9896),
    "no-communication": ((1.0, 2.0, 3.0, 4.0, 5.0), 2.8284),
}
# Softmax on digits, full batch, K = 200, alpha .1, beta .01, gamma .1: worst test accuracy, norm of all x, consensus.
DIGITS = {
    "s-ab": (0.9192, 12.03103878, 0.0696655),
    "atc-dsgd": (0.9192, 11.9335, 0.0089923),
    "weighted-sgd": (0.9192, 11.936524, 0.0),
    "sampled-dsgd": (0.9081, 11.89097203, 0.110063),
    "dp-dsgt": (0.9192, 11.93654284, 8.4315e-5),
    "dyn-d2p": (0.8942, 12.02855, 0.55608),
    "no-communication": (0.8747, 11.98833, 1.12076),
}


def by(method: str, run: model.RunConfig) -> model.RunConfig:
    """``run`` under ``method``, with that one's default mechanism; without noise where it draws none."""
    algorithm = replace(run.algorithm, method=method, mechanism=DEFAULTS[method])
    noise = run.noise if METHODS[method].noisy else replace(run.noise, multiplier=0.0)
    return replace(run, algorithm=algorithm, noise=noise)


def toy(method: str, mechanism: str | None = None, **changes: object) -> model.RunConfig:
    run = cases.run(RING, K=200, noisy=False, data=model.Data("quadratic", params={"dimension": 4}))
    run = by(method, replace(run, scheme=model.SchemeS2(0.1, 0.05, 0.1, 1.0, samples=1), **changes))  # type: ignore
    algorithm = replace(run.algorithm, mechanism=mechanism or DEFAULTS[method])
    return replace(run, algorithm=algorithm, method_options=UNROUNDED.get(method, {}))


class Played:
    """A run of machines: x_k, what was sent, and every record, by agent."""

    def __init__(self, run: model.RunConfig) -> None:
        topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
        oracles = tuple(build_oracle(run, i) for i in range(run.n))
        agents = simulate.build_agents(run, topology, schedule, oracles, KEY)
        self.x0 = np.stack([oracle.initial() for oracle in oracles])
        self.sent: dict[tuple[Stream, int, int], F64] = {}
        self.records: dict[tuple[int, int], t.RoundRecord] = {}
        World(run.graph.agents, agents, run.K, observer=Observer(persisted=self._persisted)).run()
        self.final = np.stack([agent.x_final for agent in agents])  # type: ignore[misc]

    def _persisted(self, i: int, record: t.RoundRecord) -> None:
        self.records[i, record.k] = record
        for payload in record.payloads:
            self.sent[payload.stream, i, record.k] = payload.array()


def error(found: F64, expected: F64) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def finals(run: model.RunConfig) -> F64:
    state = FastRun(run, simulate.build_oracles(run, None), KEY)
    for _ in range(run.K + 1):
        state.step()
    return state.x


@pytest.mark.parametrize("mechanism", METHODS["dpgt"].rules)
def test_the_mechanisms_agree_without_noise(mechanism: str) -> None:
    np.testing.assert_allclose(finals(toy("dpgt", mechanism))[:, 0], TOY["dpgt"][0], rtol=1e-10)


@pytest.mark.parametrize("method", TOY)
def test_the_expected_numbers_of_the_toy(method: str) -> None:
    x, consensus = TOY[method]
    for found in (Played(toy(method)).final, finals(toy(method))):
        np.testing.assert_allclose(
            found, np.repeat(np.array(x)[:, None], 4, axis=1), rtol=4e-9 if method == "no-communication" else 1e-10
        )
        assert methods.consensus_error(found) == pytest.approx(consensus, rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("method", DIGITS)
def test_the_expected_numbers_on_digits(method: str) -> None:
    run = toy(method, data=model.Data("digits"))
    run = replace(run, scheme=model.SchemeS2(0.1, 0.01, 0.1, 1.0, samples="full"))
    x = finals(run)
    accuracies = [build_oracle(run, i).evaluate(x[i]).accuracy_test for i in range(run.n)]
    worst, norm, consensus = DIGITS[method]
    assert min(accuracies) == pytest.approx(worst, abs=5e-5)
    assert np.linalg.norm(x) == pytest.approx(norm, rel=1e-5)
    assert methods.consensus_error(x) == pytest.approx(consensus, rel=1e-4, abs=1e-12)


class Curved:
    """Quadratics of another curvature each, without noise and wire: what ``Rows`` asks for."""

    def __init__(self, h: F64) -> None:
        self.h, self.b = h, np.arange(1.0, len(h) + 1)[:, None]

    def gradient(self, k: int, x: F64) -> F64:
        return self.h * (x - self.b)

    def perturb(self, stream: Stream, k: int, private: F64, public: F64 | None = None) -> F64:
        return private.copy() if public is None else private + public

    def wire(self, stream: Stream, k: int, values: F64) -> F64:
        return values


def trajectory(run: model.RunConfig, work: Curved) -> list[F64]:
    rows = Rows(run, Topology.from_config(run.graph), Schedule.from_config(run), work, np.zeros((5, 4)))
    xs = [rows.x]
    for k in range(run.K + 1):
        rows.step(k, k == run.K)
        xs.append(rows.x)
    return xs


def test_tracking_converges_where_sgd_stops_at_a_distance() -> None:
    work = Curved(np.random.default_rng(3).uniform(0.5, 1.5, (5, 4)))
    best = (work.h * work.b).sum(0) / work.h.sum(0)
    errors = {
        method: [float(np.linalg.norm(x - best)) / np.sqrt(5) for x in trajectory(toy(method), work)] for method in TOY
    }
    for method, slope in (("s-ab", -0.01622), ("weighted-sgd", -0.08846), ("dp-dsgt", -0.08853)):
        assert methods.slope(errors[method], 40, 140) == pytest.approx(slope, abs=5e-6)
    assert errors["dpgt"] == errors["s-ab"]
    for method, distance in (("atc-dsgd", 0.357), ("sampled-dsgd", 1.845), ("q-dpsgd", 1.845), ("dyn-d2p", 1.968)):
        assert errors[method][-1] == pytest.approx(distance, abs=5e-4)
    R, C = methods.DEMO
    for method, xs in (
        ("s-ab", methods.s_ab(R, C, 0.1, 0.05, 0.1, np.zeros((5, 4)), work.gradient, 200)),
        ("atc-dsgd", methods.atc_dsgd(R, 0.1, np.zeros((5, 4)), work.gradient, 200)[0]),
    ):
        assert error(np.stack(trajectory(toy(method), work)), np.stack(xs)) < 1e-12


def test_s_ab_is_dpgt_without_noise_to_the_bit() -> None:
    quiet = cases.run("self-loops everywhere", noisy=False)
    assert Played(by("s-ab", quiet)).final.tobytes() == Played(quiet).final.tobytes()


@pytest.mark.parametrize("pair", ["self-loops everywhere", "non-uniform weights", "two agents", "one agent alone"])
@pytest.mark.parametrize("wire", ["float64", "float32"])
def test_atc_dsgd_is_its_definition_on_what_was_drawn(pair: str, wire: str) -> None:
    """g~ = (x - v)/gamma; the definition on it must give every x again."""
    run = by("atc-dsgd", replace(cases.run(pair), runtime=model.Runtime(wire_dtype=wire)))  # type: ignore[arg-type]
    seen = Played(run)
    assert {stream for stream, _, _ in seen.sent} == {"X"}
    v = np.array([[seen.sent["X", i, k] for i in range(run.n)] for k in range(run.K + 1)])
    W = methods.metropolis(run.graph.R)
    x = np.concatenate([seen.x0[None], W @ v])
    assert error(seen.final, x[-1]) < 1e-12
    noise = (x[:-1] - v) / 0.03 - (x[:-1] - np.arange(1.0, run.n + 1)[:, None])
    spread = np.std(noise, axis=(0, 2)) / (0.02 * np.arange(1, run.n + 1) * np.sqrt(2))
    assert (spread > 0.8).all() and (spread < 1.25).all(), "the noise has the run file's scale eta"
    xs, vs = methods.atc_dsgd(
        run.graph.R, 0.03, seen.x0, lambda k, x: x - np.arange(1.0, run.n + 1)[:, None], run.K, noise
    )
    tolerance = 1e-12 if wire == "float64" else 1e-6
    assert error(np.stack(xs), x) < tolerance and error(np.stack(vs), v) < tolerance
    for i in range(run.n):
        for k in (0, 10, run.K):
            record = seen.records[i, k]
            assert record.checkpoint is not None and list(record.checkpoint.vectors) == ["x"]
            np.testing.assert_allclose(record.checkpoint.vectors["x"], x[k, i], rtol=1e-12, atol=1e-12)
            assert [(row.stream, row.sha256) for row in record.rows] == [("Y", record.payloads[0].sha256)]


def drawn(run: model.RunConfig, **graph: F64) -> F64:
    """x_{K+1} of the machines, under the noise of ``KEY``; ``graph``: other weights."""
    matrices = {name: tuple(map(tuple, weights)) for name, weights in graph.items()}
    return Played(replace(run, graph=replace(run.graph, **matrices))).final


def test_sampled_dsgd_is_noise_once_over_the_closure() -> None:
    """R <- Wo, C <- 0: y is then g~ alone; q-dpsgd without rounding is the same."""
    run = cases.run("self-loops everywhere")
    W = methods.metropolis(run.graph.R)
    once = replace(run, algorithm=replace(run.algorithm, mechanism="noise-once"))
    found, nothing = drawn(by("sampled-dsgd", run)), np.zeros((3, 3))
    assert error(found, drawn(once, R=W - np.diag(np.diag(W)), C=nothing)) < 1e-12
    assert drawn(replace(by("q-dpsgd", run), method_options={"step": 0.0})).tobytes() == found.tobytes()
    assert error(drawn(by("q-dpsgd", run)), found) > 1e-6, "rounding shows"
    assert error(drawn(by("no-communication", run)), drawn(once, R=nothing, C=nothing)) < 1e-12


def setting_of(run: model.RunConfig, **changes: object) -> perturbed.Setting:
    scheme = run.scheme
    assert isinstance(scheme, model.SchemeS2)
    R, C = np.array(run.graph.R), np.array(run.graph.C)
    gammas = [scheme.gamma] * (run.K + 1)
    return perturbed.Setting(R, C, scheme.alpha, scheme.beta, gammas, np.zeros((run.n, 7)), **changes)  # type: ignore


def test_dyn_d2p_on_a_balanced_graph_is_atc_dsgd_over_its_p() -> None:
    """Where P is doubly stochastic w stays 1.  On a ring of two P is symmetric: W of atc-dsgd is P at beta = 1/2."""
    run = cases.run("two agents")
    run = replace(run, scheme=replace(run.scheme, beta=0.5))  # type: ignore[type-var]
    ring = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert error(drawn(by("dyn-d2p", run), R=ring, C=ring), drawn(by("atc-dsgd", run), R=ring, C=ring)) < 1e-12


def test_weighted_sgd_is_atc_dsgd_over_the_complete_graph() -> None:
    """W = 11'/n, and every x is the same; shares count where they are given."""
    run = cases.run("non-uniform weights")
    full = np.ones((4, 4)) - np.eye(4)
    found = drawn(by("weighted-sgd", run))
    assert error(found, drawn(by("atc-dsgd", run), R=full)) < 1e-12
    assert methods.consensus_error(found) == 0.0
    uneven = replace(by("weighted-sgd", run), method_options={"shares": (1.0, 2.0, 3.0, 4.0)})
    quiet = replace(uneven, noise=replace(run.noise, multiplier=0.0))
    xs, _ = perturbed.weighted_sgd(setting_of(quiet, shares=(1, 2, 3, 4)), lambda k, x: x - np.arange(1.0, 5)[:, None])
    assert error(drawn(quiet), xs[-1]) < 1e-12 and error(drawn(uneven), found) > 1e-3


def test_dp_dsgd_without_momentum_is_atc_dsgd() -> None:
    run = by("dp-dsgd", cases.run("self-loops everywhere"))
    plain = replace(run, method_options={"momentum": 0.0})
    assert error(drawn(plain), drawn(by("atc-dsgd", run))) < 1e-12
    assert error(drawn(run), drawn(plain)) > 1e-3


def test_q_dpsgd_sends_two_bytes_a_number_and_says_when_they_do_not_reach() -> None:
    run = by("q-dpsgd", cases.run("two agents", K=3))
    seen = Played(run)
    for record in seen.records.values():
        (payload,) = record.payloads
        assert (payload.dtype, payload.nbytes) == ("int16", 14)
        assert (payload.array() * 16 == np.round(payload.array() * 16)).all()
    far = replace(run, method_options={"step": 1e-7})
    with pytest.raises(Diverged, match="take a larger step"):
        Played(far)


@pytest.mark.parametrize(("method", "bits"), [("q-dpsgd", 16), ("quantised-dsgd", 32)])
def test_codes_reach_equally_far_on_either_side(method: str, bits: int) -> None:
    found = METHODS[method].codes(by(method, cases.run("two agents")))
    assert found is not None and found.dtype == f"int{bits}"
    assert (found.low, found.high, found.offset) == (1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1, 0.0)


@pytest.mark.parametrize("method", ["s-ab", "atc-dsgd"])
@pytest.mark.parametrize("pair", ["self-loops everywhere", "non-uniform weights"])
def test_the_fast_simulation_is_that_of_the_machines(pair: str, method: str, tmp_path: Path) -> None:
    difference, _, _ = both(by(method, cases.run(pair)), tmp_path)
    assert difference < TOLERANCE


def _halved(W: F64) -> F64:
    """Still doubly stochastic, but lazier: only the numbers tell."""
    return 0.5 * (W + np.eye(len(W)))


def _asymmetric(W: F64) -> F64:
    """Rows still sum to 1."""
    W = W.copy()
    W[0, 0] -= 1e-6
    W[0, -1] += 1e-6
    return W


@pytest.mark.parametrize("mutant", [_halved, _asymmetric])
def test_other_weights_are_noticed(mutant: Callable[[F64], F64], monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutants of the tests above."""
    method = METHODS["atc-dsgd"]
    sends = replace(method.sends[0], weights=lambda _, topology: Edges.of(mutant(methods.metropolis(topology.R))))
    monkeypatch.setitem(METHODS.loaded, "atc-dsgd", replace(method, sends=(sends,)))
    assert error(finals(toy("atc-dsgd"))[:, 0], np.array(TOY["atc-dsgd"][0])) > 1e-8


def test_an_adaptation_after_the_combination_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class CombineThenAdapt(atc_module.AtcDsgd):
        def release(self, site, k, v):  # type: ignore[no-untyped-def]
            site.send("X", k, v["x"])
            return v

        def final(self, site, k, v):  # type: ignore[no-untyped-def]
            return super().final(site, k, v) - self.gamma * v["g"]

    mutant = replace(METHODS["atc-dsgd"], rules={"noise-once": CombineThenAdapt})
    monkeypatch.setitem(METHODS.loaded, "atc-dsgd", mutant)
    assert error(finals(toy("atc-dsgd"))[:, 0], np.array(TOY["atc-dsgd"][0])) > 1e-4


class NoEntropy:
    def stream(self, k: int, purpose: str) -> None:
        raise AssertionError(f"{purpose} of round {k} was drawn again")


@pytest.mark.parametrize("wire", ["float64", "float32"])
@pytest.mark.parametrize(
    "method", ["s-ab", "atc-dsgd", "dyn-d2p", "weighted-sgd", "sampled-dsgd", "q-dpsgd", "dp-dsgt", "dp-dsgd"]
)
def test_replay_from_a_checkpoint_gives_the_same_bits_and_draws_nothing(method: str, wire: str) -> None:
    data = model.Data("pl-linear", params={"dimension": 5, "rows": 10, "start": 0.5})
    graphs = RING if method == "dyn-d2p" else "self-loops everywhere"  # one on which push-sum's weights move
    run = by(method, cases.run(graphs, K=12, data=data))
    run = replace(run, runtime=model.Runtime(wire_dtype=wire))  # type: ignore[arg-type]
    seen, topology, schedule = Played(run), Topology.from_config(run.graph), Schedule.from_config(run)
    oracle, sampler = build_oracle(run, 1), sampler_for(run)
    work = AgentWork(run, topology, schedule, 1, oracle, NoEntropy(), sampler)  # type: ignore[arg-type]
    incoming = network_of(run, topology).incoming(1)
    state = seen.records[1, 2].checkpoint
    for k in (*range(2, 12), *range(2, 12)):  # the same work may be asked for earlier rounds again
        state = seen.records[1, 2].checkpoint if k == 2 else state
        received = {s: {j: seen.sent[s, j, k] for j, _ in edges} for s, edges in incoming.items()}
        own, record = seen.records[1, k].payloads, seen.records[1, k + 1]
        state = work.advance(t.Advance(state, received, own, record)).state
        expected = record.checkpoint
        assert expected is not None and list(state.vectors) == list(expected.vectors) and not state.pending
        assert state.batch.tobytes() == expected.batch.tobytes()
        assert all(v.tobytes() == expected.vectors[name].tobytes() for name, v in state.vectors.items()), k


def test_whatever_perturbs_each_gradient_once_costs_the_same() -> None:
    """Kind G: sum of C/(m sigma_k), whatever alpha and beta are; Section IV-D at p = .9996."""
    scale = model.NoiseStream("exponent", (0.9996,) * 5)
    run = cases.run(RING, K=2000)
    run = replace(
        run,
        scheme=model.SchemeS2(0.1, 0.01, 0.1, 1.002, samples=55),
        noise=model.Noise(scale, scale),
        privacy=model.Privacy(clip_l1=0.5),
    )
    topology = Topology.from_config(run.graph)
    costs = []
    once = [name for name, one in METHODS.items() if "noise-once" in one.rules]
    assert len(once) >= 9
    cases_ = [(name, 0.1) for name in once] + [("atc-dsgd", 7.0)]
    for method, alpha in cases_:
        one = by(method, replace(run, scheme=replace(run.scheme, alpha=alpha)))  # type: ignore[type-var]
        one = replace(one, algorithm=replace(one.algorithm, mechanism="noise-once"))
        account = AgentAccount(one, topology, Schedule.from_config(one), 0, 12_000)
        costs.append((account.total("tight"), account.total("amplified")))
    assert set(costs) == {costs[0]}
    assert costs[0] == (pytest.approx(80.982, abs=5e-4), pytest.approx(0.379, abs=5e-4))
