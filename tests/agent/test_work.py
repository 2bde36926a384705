from __future__ import annotations

import hashlib
import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.agent.encoding import Diverged, OutOfReach, coded
from dpgt_node.agent.noise import account_for, sampler_for
from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import load_run
from dpgt_node.config.model import Privacy, RunConfig
from dpgt_node.config.roles import Roles
from dpgt_node.errors import ConfigError, ExitCode
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.privacy.laws.keystream import AesCtrKeystream, TestKeystream
from dpgt_node.privacy.laws.sampler import LaplaceSampler, laplace
from dpgt_node.protocol.types import Advance, AdvanceFinal, DrawRelease, Evaluate, Payload, RoundRecord, State
from dpgt_node.record.metrics import MetricsStore
from dpgt_node.sim.fast import simulate_fast
from dpgt_node.sim.simulate import simulate
from dpgt_node.types import Codes
from tests.e2e import processes
from tests.learning.cases import run
from tests.oracles import dense
from tests.states import parts, tracking

SECRET = "c0ffee"
ROOTED_R = ((0.0, 0.0, 0.0), (2.0, 0.5, 0.0), (0.3, 1.5, 0.0))  # agent 1 is a root, agent 2 has a self-loop
ROOTED_C = ((0.2, 1.0, 0.4), (0.0, 0.0, 0.7), (0.0, 0.0, 0.0))


class Recording(TestKeystream):
    def __init__(self, agent: int) -> None:
        super().__init__(SECRET, agent)
        self.asked: list[tuple[int, str]] = []

    def stream(self, k, purpose):
        self.asked.append((k, purpose))
        return super().stream(k, purpose)


def work(config: RunConfig, index: int = 0, keystream=None, sampler=None) -> AgentWork:
    return AgentWork(
        config,
        Topology.from_config(config.graph),
        Schedule.from_config(config),
        index,
        build_oracle(config, index),
        keystream or TestKeystream(SECRET, index),
        sampler or LaplaceSampler(),
    )


def state(d: int = 4, k: int = 3, **parts: float) -> State:
    rng = np.random.default_rng(k)
    vectors = {name: parts.get(name, 1.0) * rng.standard_normal(d) for name in ("px", "tx", "p", "t", "g")}
    return tracking(k, batch=np.empty(0, dtype=np.int64), **vectors)


def payload(stream: str) -> Payload:
    data = np.zeros(4).tobytes()
    return Payload(stream, 0, "float64", 4, data, hashlib.sha256(data).digest())


OWN = (payload("X"), payload("Y"))  # only the mechanisms with a public x look at it


def released(s: State) -> RoundRecord:
    return RoundRecord(s.k, OWN, (), s.batch, None)


def start(w: AgentWork) -> State:
    return w.advance(Advance(None)).state


# --- the whole algorithm -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("dataset", ["digits", "pl-sine", "quadratic"])
@pytest.mark.parametrize("matrices", [{}, {"R": ROOTED_R, "C": ROOTED_C}], ids=["ring", "rooted"])
def test_against_the_dense_matrices(dataset, noise, matrices):
    config = run(dataset, noise=noise, samples=40, dimension=4, K=12, **matrices)
    agents = [work(config, i) for i in range(3)]
    states = [start(w) for w in agents]
    batches, zeta, eta, xs = [[s.batch for s in states]], [], [], [[parts(s).x for s in states]]
    for k in range(13):
        releases = [w.release(DrawRelease(s)) for w, s in zip(agents, states, strict=True)]
        x_in = {i: r.on("X").array() for i, r in enumerate(releases)}
        y_in = {i: r.on("Y").array() for i, r in enumerate(releases)}
        zeta.append([x_in[i] - parts(s).x for i, s in enumerate(states)])
        eta.append([y_in[i] - parts(s).y for i, s in enumerate(states)])
        if k == 12:
            xs.append(
                [w.advance_final(AdvanceFinal(s, {"X": x_in}, OWN)).x for w, s in zip(agents, states, strict=True)]
            )
            break
        states = [w.advance(Advance(s, {"X": x_in, "Y": y_in}, OWN)).state for w, s in zip(agents, states, strict=True)]
        batches.append([s.batch for s in states])
        xs.append([parts(s).x for s in states])
        assert [s.k for s in states] == [k + 1] * 3

    def gradient(i: int, k: int, x: np.ndarray) -> np.ndarray:
        # g_{K+1} moves only y_{K+1}, which nobody looks at.
        return build_oracle(config, i).gradient(x, batches[min(k, 12)][i])

    graph = config.graph
    expected = dense.algorithm1(graph.R, graph.C, 0.1, 0.01, 0.1, xs[0], gradient, zeta, eta)
    assert np.linalg.norm(np.array(xs) - expected.x) < 1e-12 * np.linalg.norm(expected.x)
    assert bool(np.any(zeta)) == bool(np.any(eta)) == bool(noise)


def test_round_zero_is_public_x_and_private_y():
    s = start(work(run("pl-sine", samples=6)))
    assert s.k == 0 and parts(s).tx.tolist() == [2.0] and not parts(s).px.any() and not parts(s).t.any()
    assert parts(s).p is parts(s).g and s.batch.shape == (6,)
    np.testing.assert_array_equal(parts(s).y, parts(s).g)


def test_a_replayed_batch_draws_nothing_and_gives_the_same_bits():
    config = run("digits", samples=30)
    first, again = work(config), work(config, keystream=Recording(0))
    s0 = start(first)
    values = {i: np.full(650, 0.1 * i) for i in range(3)}
    s1 = first.advance(Advance(s0, {"X": values, "Y": values}, OWN)).state
    assert set(s0.batch.tolist()) != set(s1.batch.tolist())
    r0 = again.advance(Advance(None, record=released(s0))).state
    r1 = again.advance(Advance(r0, {"X": values, "Y": values}, OWN, released(s1))).state
    assert again._keystream.asked == []
    assert r1.batch.tobytes() == s1.batch.tobytes()
    for name in ("px", "tx", "p", "t", "g"):
        assert r1.vectors[name].tobytes() == s1.vectors[name].tobytes(), name


def test_every_draw_has_its_own_stream():
    w = work(run("digits", samples=30), keystream=Recording(0))
    s = start(w)
    w.release(DrawRelease(s))
    values = {i: np.zeros(650) for i in range(3)}
    w.advance(Advance(s, {"X": values, "Y": values}, OWN))
    assert w._keystream.asked == [(0, "batch"), (0, "X"), (0, "Y"), (1, "batch")]


# --- releases ------------------------------------------------------------------------------------------------------


def test_the_sampler_is_tested_as_it_is_going_to_draw(monkeypatch):
    agent, asked = work(run("pl-sine", samples=6)), []
    monkeypatch.setattr("dpgt_node.agent.work.self_test", lambda _, compiled: asked.append(compiled))
    monkeypatch.setattr("dpgt_node.privacy.laws.compiled._has_numba", lambda: True)
    for least in (agent.dimension, agent.dimension + 1):
        monkeypatch.setattr("dpgt_node.privacy.laws.compiled.COMPILED_FROM", least)
        agent.prepare()
    assert asked == [True, False]


def test_noise_goes_on_the_private_parts_and_the_transcript_after_it():
    config, s = run("zeros", dimension=4, noise=0.25), state()
    release = work(config).release(DrawRelease(s))
    keys = TestKeystream(SECRET, 0)
    zeta, eta = (laplace(keys.stream(3, stream), 4, 0.25) for stream in ("X", "Y"))
    np.testing.assert_array_equal(release.on("X").array(), (parts(s).px + zeta) + parts(s).tx)
    np.testing.assert_array_equal(release.on("Y").array(), (parts(s).p + eta) + parts(s).t)
    assert (release.k, release.on("X").k, release.on("Y").k) == (3, 3, 3)
    assert (release.on("X").stream, release.on("Y").stream) == ("X", "Y")


def test_the_transcript_part_never_meets_the_sampler():
    seen = []

    class Spy:
        clipped = 0

        def perturb(self, private, scale, stream):
            seen.append((private.copy(), scale))
            return private.copy()

    s = state(tx=1e16, t=1e16)
    work(run("zeros", dimension=4, noise=0.25), sampler=Spy()).release(DrawRelease(s))
    np.testing.assert_array_equal([private for private, _ in seen], [parts(s).px, parts(s).p])
    assert [scale for _, scale in seen] == [0.25, 0.25]


def test_production_draws_differ_each_time_and_between_streams():
    config, s = run("zeros", dimension=4), state(px=0.0, tx=0.0, p=0.0, t=0.0)
    w = work(config, keystream=AesCtrKeystream(bytes(16), bytes(16)))
    drawn = [payload.data for r in (w.release(DrawRelease(s)), w.release(DrawRelease(s))) for payload in r.payloads]
    assert len(set(drawn)) == 4


def test_without_noise_the_state_itself_is_released():
    keystream = Recording(0)
    w = work(run("zeros", dimension=4, noise=0.0, privacy=Privacy(C=1.0)), keystream=keystream)
    s = state()
    release = w.release(DrawRelease(s))
    np.testing.assert_array_equal(release.on("X").array(), parts(s).x)
    np.testing.assert_array_equal(release.on("Y").array(), parts(s).y)
    assert keystream.asked == [] and [row.scale for row in release.rows] == [0.0, 0.0]
    assert release.rows[1].cost["lemma5"] == math.inf


class NoNoise:
    """Releases the private part as it is."""

    clipped = 0

    def perturb(self, private, scale, stream):
        return private.copy()

    def range(self, scale):
        return math.inf


@pytest.mark.parametrize(("dtype", "code"), [("float64", "<f8"), ("float32", "<f4")])
def test_payload_bytes_and_hash(dtype, code):
    s = state()
    payload = work(run("zeros", dimension=4, wire_dtype=dtype), sampler=NoNoise()).release(DrawRelease(s)).on("X")
    assert payload.data == parts(s).x.astype(code).tobytes() and payload.dtype == dtype and payload.dimension == 4
    assert payload.sha256 == hashlib.sha256(payload.data).digest()


@pytest.mark.parametrize(
    ("d", "asked", "given"),
    [
        (99_999, "auto", "float64"),
        (100_000, "auto", "float32"),
        (100_000, "float64", "float64"),
        (2, "float32", "float32"),
    ],
)
def test_wire_dtype(d, asked, given):
    assert work(run("zeros", dimension=d, wire_dtype=asked)).wire_dtype == given


def test_large_payloads_are_read_only_views():
    d = 300_000
    w = work(run("zeros", dimension=d), sampler=NoNoise())
    s = state(d)
    payload = w.release(DrawRelease(s)).on("Y")
    assert isinstance(payload.data, memoryview) and payload.data.readonly and payload.nbytes == 4 * d
    assert payload.data.tobytes() == parts(s).y.astype("<f4").tobytes()
    assert payload.sha256 == hashlib.sha256(payload.data.tobytes()).digest()


def test_ledger_rows():
    config = run("digits", samples=30, privacy=Privacy(clip_l1=2.0), noise=0.5)
    w = work(config, 1)
    account = account_for(config, Topology.from_config(config.graph), Schedule.from_config(config), 1, 479, 650)
    release = w.release(DrawRelease(state(650, k=4)))
    for row, payload in zip(release.rows, release.payloads, strict=True):
        assert (row.k, row.stream, row.sha256) == (4, payload.stream, payload.sha256)
        assert (row.mechanism, row.law, row.scale) == ("paper", "laplace", 0.5)
        assert row.sensitivity == account.sensitivity(row.stream, 4)
        assert row.cost == account.cost_after(4, row.stream)
    assert w.epsilon_after(4) == release.rows[1].cost
    assert w.epsilon_after(-1)["lemma5"] == 0.0


def test_inputs_are_left_alone():
    config = run("quadratic", dimension=4)
    w, s = work(config), state()
    values = {i: np.full(4, float(i)) for i in range(3)}
    arrays = [*s.vectors.values(), *values.values()]
    before = [a.tobytes() for a in arrays]
    w.release(DrawRelease(s))
    w.advance(Advance(s, {"X": values, "Y": values}, OWN))
    w.advance_final(AdvanceFinal(s, {"X": values}, OWN))
    assert [a.tobytes() for a in arrays] == before


# --- divergence ----------------------------------------------------------------------------------------------------


def diverge(call) -> Diverged:
    with warnings.catch_warnings(), pytest.raises(Diverged) as caught:
        warnings.simplefilter("error")
        call()
    assert caught.value.exit_code is ExitCode.CONFIG
    assert "agent-1" in str(caught.value) and "step sizes" in str(caught.value)
    return caught.value


def test_overflow_of_float32_is_caught_before_anything_leaves():
    w = work(run("zeros", dimension=4, wire_dtype="float32"))
    assert "y is no longer finite in round 3" in str(diverge(lambda: w.release(DrawRelease(state(p=1e39)))))
    assert "x is no longer finite in round 3" in str(diverge(lambda: w.release(DrawRelease(state(tx=1e39)))))
    work(run("zeros", dimension=4)).release(DrawRelease(state(p=1e39)))


@pytest.mark.parametrize("part", ["px", "tx", "p", "t"])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_lost_state_is_not_released(part, value):
    w = work(run("zeros", dimension=4))
    diverge(lambda: w.release(DrawRelease(state(**{part: value}))))


def test_large_but_finite_vectors_pass():
    """Their sum overflows; they do not."""
    s = state(px=0.0, tx=0.0, p=0.0)
    s = tracking(3, parts(s).px, np.full(4, 1.7e308), parts(s).p, parts(s).t, parts(s).g, s.batch)
    assert np.isfinite(work(run("zeros", dimension=4)).release(DrawRelease(s)).on("X").array()).all()


def test_x_is_checked_on_the_way():
    w, s = work(run("quadratic", dimension=4, gamma=1e10)), state(p=1e300)
    values = {i: np.zeros(4) for i in range(3)}
    assert "x is no longer finite in round 4" in str(
        diverge(lambda: w.advance(Advance(s, {"X": values, "Y": values}, OWN)))
    )
    assert "x is no longer finite in round 4" in str(
        diverge(lambda: w.advance_final(AdvanceFinal(s, {"X": values}, OWN)))
    )


def test_the_gradient_is_checked_on_the_way():
    w = work(run("digits", samples=3))
    x = np.append(np.full(64, 1e308), np.zeros(586))  # finite weights, infinite logits
    values = {i: x for i in range(3)}
    s = tracking(3, px=0 * x, tx=x, p=0 * x, t=0 * x, g=0 * x, batch=np.arange(3))
    assert "the gradient is no longer finite in round 4" in str(
        diverge(lambda: w.advance(Advance(s, {"X": values, "Y": values}, OWN)))
    )


def test_metrics_hold_no_nan():
    w = work(run("digits", samples=3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics = w.evaluate(Evaluate(0, np.full(650, 1e308)))
    assert metrics.loss_train is None and metrics.grad_norm is None
    assert w.evaluate(Evaluate(0, np.zeros(650))).loss_train == pytest.approx(math.log(10))


def test_digits_with_the_demos_noise_learn():
    """One agent that listens to itself alone: steps, noise and clipping together."""
    one = ((1.0,),)
    config = run("digits", samples=55, noise=0.01, privacy=Privacy(clip_l1=40.0), R=one, C=one, K=150)
    w = work(config)
    s = start(w)
    for _ in range(150):
        r = w.release(DrawRelease(s))
        s = w.advance(Advance(r.state, {p.stream: {0: p.array()} for p in r.payloads}, r.payloads)).state
    assert w.evaluate(Evaluate(0, parts(s).x)).accuracy_test > 0.8


def test_a_private_part_that_overflowed_is_a_diverged_run_not_a_bug():
    """p overflows while g is finite: the sampler must not be the one to notice."""
    config = run("quadratic", dimension=4, noise=0.5)
    w = work(config, sampler=sampler_for(config))
    assert "y is no longer finite in round 3" in str(diverge(lambda: w.release(DrawRelease(state(p=math.inf)))))


@pytest.mark.parametrize("own", [True, False])
def test_a_module_of_the_operators_own_that_fails_is_named_with_its_round(own: bool) -> None:
    """Code of the operator's own is no bug of this program; that of this program stays one."""
    work = AgentWork.__new__(AgentWork)
    work._module = "own:net" if own else None
    with pytest.raises(ConfigError if own else IndexError) as caught, work._own_code(7):
        raise IndexError("out of range\nand more")
    assert not own or str(caught.value) == "run file: model.name: 'own:net' failed in round 7: IndexError: out of range"


@pytest.mark.parametrize("own", [True, False])
def test_so_is_one_that_fails_in_a_gradient(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise IndexError("out of range")

    w = work(run("quadratic", dimension=4))
    w._module = "own:net" if own else None
    monkeypatch.setattr(type(w._sources), "at", fails)
    with pytest.raises(ConfigError if own else IndexError, match="'own:net' failed in round 0" if own else "out of"):
        w._gradient(0, np.zeros(4), None)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("fast", [False, True])
def test_a_value_that_its_noise_does_not_reach_stops_the_run(
    law: str, fast: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sampler would clip it, and the run would end somewhere else: at .00037 where the optimum is 2."""
    closed: list[Path] = []
    monkeypatch.setattr(MetricsStore, "close", lambda self: (closed.append(self.path.parent), self._file.close()))
    text = processes.quadratic(3, 20).replace("scale_zeta = 0.1", "scale_zeta = 1e-9").replace("0.01", "1e-9")
    run_file = tmp_path / "run.toml"
    run_file.write_text(text.replace("[noise]", f'[noise]\nlaw = "{law}"'), encoding="utf-8")
    with pytest.raises(OutOfReach, match=r"agent-\d: in round \d+ a value lies beyond .*take a larger noise\.scale_"):
        (simulate_fast if fast else simulate)(load_run(run_file), tmp_path / "out", bytes(16))
    assert closed == [tmp_path / "out"]


@pytest.mark.parametrize("role", ["poison stream=X value=1e15 from=2", "trap value=1e15 from=2"])
def test_a_value_out_of_reach_under_a_role_is_laid_at_its_agents_door(role: str, tmp_path: Path) -> None:
    """No larger noise and no smaller step would help: the honest run ends well."""
    run_file = tmp_path / "run.toml"
    run_file.write_text(processes.quadratic(3, 20), encoding="utf-8")
    honest = load_run(run_file)
    run = replace(honest, adversary=replace(honest.adversary, active=Roles((("agent-2", role),))))
    with pytest.raises(OutOfReach, match=r"lies beyond .*the active adversary did it \(agent-2\)") as caught:
        simulate(run, tmp_path / "out", bytes(16))
    assert "scale_" not in str(caught.value) and "step sizes" not in str(caught.value)
    assert simulate(honest, tmp_path / "honest", bytes(16))[0].exit_code is ExitCode.DONE


@pytest.mark.parametrize(("low", "high"), [(-3, 3), (-1, 1), (0, 200), (-128, 127)])
def test_what_lies_beyond_the_first_or_the_last_code_is_not_sent(low: int, high: int) -> None:
    codes = Codes(0.5, 1.0, low, high)
    whole = np.array([low, high, low])
    assert coded(codes, codes.values(whole), "a", 4, "X").tolist() == whole.tolist()
    for beyond in (low - 1, high + 1):
        with pytest.raises(OutOfReach, match="in round 4 a value of X lies beyond"):
            coded(codes, codes.values(np.array([low, beyond])), "a", 4, "X")
        roles = Roles((("b", "poison from=4"), ("c", "poison from=5")))
        with pytest.raises(OutOfReach, match=r"reach: the active adversary did it \(b\)"):
            coded(codes, codes.values(np.array([low, beyond])), "a", 4, "X", roles)
