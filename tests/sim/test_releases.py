"""Releases apart from rounds: what free and settling rounds send, draw and charge, and what a wrong rule would do."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpgt_node.agent.work import AgentWork
from dpgt_node.algo import methods as registry
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import METHODS, rule_of
from dpgt_node.algo.methods.base import Rule, Seen, Site, Vectors, at
from dpgt_node.algo.methods.dp_dsgt import DpDsgt
from dpgt_node.algo.methods.dpgt import NoiseOnce
from dpgt_node.algo.methods.dsgd.atc_dsgd import AtcDsgd
from dpgt_node.algo.methods.dsgd.dp_dsgd import DpDsgd
from dpgt_node.algo.methods.dsgd.dyn_d2p import DynD2p
from dpgt_node.algo.methods.dsgd.q_dpsgd import QDpsgd
from dpgt_node.algo.methods.dsgd.sampled_dsgd import GradientForm
from dpgt_node.algo.methods.dsgd.weighted_sgd import WeightedSgd
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import canonical_json, model
from dpgt_node.errors import Broken
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.privacy.laws.keystream import TestKeystream
from dpgt_node.privacy.laws.noise import ByteStream, Purpose
from dpgt_node.privacy.laws.sampler import LaplaceSampler
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.protocol import types as t
from dpgt_node.sim import simulate
from dpgt_node.sim.fast import TOLERANCE
from dpgt_node.sim.world import Observer, World
from dpgt_node.types import F64, NoiseLaw, Stream
from tests.oracles import noise, perturbed
from tests.sim import cases
from tests.sim.test_fast import both

KEY = "00112233445566778899"
K, SETTLE = 14, 3
RELEASES = (0, 4, 5, 9)
FREE = tuple(k for k in range(K + 1) if k not in RELEASES)
ONCE = [name for name in cases.CARRIED if "noise-once" in METHODS[name].rules]


def run(method: str = "dpgt", pair: str = "the demo's ring with chords", **changes: Any) -> model.RunConfig:
    config = cases.run(pair, K=K)
    scheme = replace(config.scheme, releases=RELEASES, settle=SETTLE, **changes)
    by_release = replace(config.noise, by_release=(2.0, 0.5, 1.5))
    algorithm = replace(config.algorithm, method=method, mechanism="noise-once")
    return replace(config, scheme=scheme, noise=by_release, algorithm=algorithm)


class Counting:
    """A keystream that says what was drawn from it."""

    def __init__(self, index: int, drawn: Counter[tuple[int, int, Purpose]]) -> None:
        self._inner, self._index, self._drawn = TestKeystream(KEY, index), index, drawn

    def stream(self, k: int, purpose: Purpose) -> ByteStream:
        self._drawn[self._index, k, purpose] += 1
        return self._inner.stream(k, purpose)


@dataclass
class Watched:
    """A run of machines with the plain sampler: all that was stored, drawn and computed."""

    run: model.RunConfig
    records: dict[tuple[int, int], t.RoundRecord] = field(default_factory=dict)
    drawn: Counter[tuple[int, int, Purpose]] = field(default_factory=Counter)
    gradients: Counter[tuple[int, int]] = field(default_factory=Counter)

    def play(self, monkeypatch: pytest.MonkeyPatch) -> Watched:
        topology, schedule = Topology.from_config(self.run.graph), Schedule.from_config(self.run)
        oracles = tuple(build_oracle(self.run, i) for i in range(self.run.n))
        monkeypatch.setattr(simulate, "keystream_for", lambda key, i: Counting(i, self.drawn))
        agents = simulate.build_agents(self.run, topology, schedule, oracles, KEY, lambda _: LaplaceSampler())
        for i, agent in enumerate(agents):
            tools = agent.work._tools
            inner = tools.gradient

            def gradient(k: int, x: F64, batch: Any, i: int = i, inner: Any = inner) -> Any:
                self.gradients[i, k] += 1
                return inner(k, x, batch)

            agent.work._tools = replace(tools, gradient=gradient)
        self.x0 = np.stack([oracle.initial() for oracle in oracles])
        World(self.run.graph.agents, agents, self.run.K, observer=Observer(persisted=self._persisted)).run()
        self.final = np.stack([agent.x_final for agent in agents])  # type: ignore[misc]
        return self

    def _persisted(self, i: int, record: t.RoundRecord) -> None:
        self.records[i, record.k] = record

    def sent(self, stream: Stream, k: int) -> F64:
        """(n, d)."""
        return np.stack([self.records[i, k].on(stream).array() for i in range(self.run.n)])


def check_nothing_happens(seen: Watched) -> None:
    """No draw, no gradient, no batch and no charge in a free round; one of each at a release."""
    for i in range(seen.run.n):
        for k in range(K + 1):
            record, released = seen.records[i, k], k in RELEASES
            assert len(record.rows) == released, "rows of the ledger"
            assert seen.gradients[i, k] == released, "gradients"
            assert seen.drawn[i, k, "Y"] == released and seen.drawn[i, k, "batch"] == released, "draws"
            assert (record.noisy_gradient is not None) == (released and rule_of(seen.run).keeps_drawn)
            assert record.payloads, "a free round sends like any other"


def eta(seen: Watched, k: int) -> F64:
    """Noise of round ``k`` as an independent reading of the keystream gives it."""
    factor = dict(zip(RELEASES, (2.0, 0.5, 1.5, 1.5), strict=True))[k]
    scales = seen.run.noise.eta.values  # type: ignore[union-attr]
    return np.stack([noise.laplace(KEY, i, k, "Y", seen.x0.shape[1], factor * s) for i, s in enumerate(scales)])


def dense(seen: Watched) -> perturbed.Trajectory:
    """x and what is sent of every round, from the definition."""
    config, n, d = seen.run, *seen.x0.shape
    scheme = config.scheme
    assert isinstance(scheme, model.SchemeS2)
    own, step = np.arange(1.0, n + 1)[:, None], 0.0625
    tables = json.loads(canonical_json(config))
    known = json.dumps(
        {name: tables[name] for name in ("algorithm", "graph", "noise", "scheme")}, separators=(",", ":")
    )
    seed = hashlib.sha256(known.encode()).hexdigest()

    def quantise(k: int, x: F64) -> F64:
        words = [noise.key_bytes(seed, i, k, "rounding", 8 * d) for i in range(n)]
        up = np.array([[int.from_bytes(row[8 * j : 8 * j + 8], "little") >> 11 for j in range(d)] for row in words])
        return step * (np.floor(x / step) + (up / 2**53 < x / step - np.floor(x / step)))

    setting = perturbed.Setting(
        np.array(config.graph.R),
        np.array(config.graph.C),
        scheme.alpha,
        scheme.beta,
        [0.0 if k > K - SETTLE else scheme.gamma for k in range(K + 1)],
        seen.x0,
    )
    if config.algorithm.method == "q-dpsgd":
        setting.quantise = quantise
    definition = perturbed.METHODS[config.algorithm.method]
    return definition(setting, lambda k, x: x - own + eta(seen, k) if k in RELEASES else None)


def check_definition(seen: Watched) -> None:
    xs, sent = dense(seen)
    for k in range(K + 1):
        for stream in [payload.stream for payload in seen.records[0, 0].payloads]:
            found = seen.sent(stream, k)
            assert np.allclose(found, sent[k][stream], rtol=0, atol=1e-12), f"what round {k} sends"
    assert np.allclose(seen.final, xs[-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", ONCE)
@pytest.mark.parametrize("pair", ["the demo's ring with chords", "self-loops everywhere", "two agents"])
def test_a_run_is_its_definition_and_free_rounds_draw_nothing(
    method: str, pair: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Watched(run(method, pair)).play(monkeypatch)
    check_nothing_happens(seen)
    check_definition(seen)


class _Sent:
    """A place where nothing is known but what was sent: see ``algo.methods.base.Site``."""

    block = 1 << 14

    def __init__(self, seen: Watched, i: int) -> None:
        self._seen, self._i, self.said = seen, i, dict[Stream, F64]()
        network = registry.network_of(seen.run, Topology.from_config(seen.run.graph))
        self._incoming = network.incoming(i)

    def gradient(self, k: int, x: F64) -> F64:
        assert k in RELEASES, "no gradient is known to others"
        return np.full(x.shape, np.nan)

    def perturbed(self, k: int, private: F64, seen: Seen | None) -> F64:
        assert k in RELEASES and seen is not None, "nothing new is drawn"
        base = seen.base() if callable(seen.base) else seen.base
        return np.asarray((self.own(seen.stream, k + seen.later) - base) / seen.factor)

    def noised(self, stream: Stream, k: int, private: F64, public: F64) -> None:
        raise AssertionError("noise on a state")

    def send(self, stream: Stream, k: int, values: F64) -> None:
        self.said[stream] = values

    def own(self, stream: Stream, k: int) -> F64:
        return self._seen.records[self._i, k].on(stream).array()

    def drawn(self, k: int) -> F64:
        raise AssertionError("nobody else has the records")

    def mixing(self, stream: Stream, k: int) -> Any:
        edges = self._incoming[stream]

        def mix(step: float, into: F64, block: slice) -> None:
            for j, weight in edges:
                into += step * weight * self._seen.records[j, k].on(stream).array()[block]

        return mix


@pytest.mark.parametrize("method", ONCE)
def test_what_free_rounds_send_is_a_function_of_what_was_sent(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has the transcript alone computes every vector of every round but the noise of the releases.

    Where what is sent is rounded, it does not tell that noise: without rounding it tells more.
    """
    config = run(method)
    config = replace(config, method_options={"step": 0.0} if method == "q-dpsgd" else {})
    seen = Watched(config).play(monkeypatch)
    topology, schedule = Topology.from_config(seen.run.graph), Schedule.from_config(seen.run)
    for i in range(seen.run.n):
        site = _Sent(seen, i)
        rule = rule_of(seen.run).build(seen.run, topology, schedule, at(i))
        state: Vectors = rule.begin(site, seen.x0[i])
        for k in range(K + 1):
            state = rule.release(site, k, state)
            for stream, values in site.said.items():
                assert np.allclose(values, site.own(stream, k), rtol=0, atol=1e-12), (k, stream)
            if k < K:
                state = rule.advance(site, k, state)
        assert np.allclose(rule.final(site, K, state), seen.final[i], rtol=0, atol=1e-12)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("method", ONCE)
def test_the_fast_simulator_draws_the_same(method: str, law: NoiseLaw, tmp_path: Path) -> None:
    config = run(method)
    error, _, _ = both(replace(config, noise=replace(config.noise, law=law)), tmp_path)
    assert error < TOLERANCE


def test_the_fast_simulator_follows_exponents_too(tmp_path: Path) -> None:
    """Under S1 a scale grows with k, not with the number of releases."""
    config = run()
    scheme = model.SchemeS1(0.5, 0.4, 0.3, 1.0, 0.5, 0.5, 0.5, 0.0, samples=1, releases=RELEASES, settle=SETTLE)
    exponents = model.NoiseStream("exponent", (0.1, 0.2, 0.3, 0.4, 0.5))
    config = replace(config, scheme=scheme, noise=replace(config.noise, eta=exponents, multiplier=0.01))
    error, _, _ = both(config, tmp_path)
    assert error < TOLERANCE
    sigma = Schedule.from_config(config).sigma
    assert sigma("Y", 1, 9) == pytest.approx(0.01 * 10**0.2 * 1.5) and sigma("Y", 1, 8) == 0.0


def test_a_release_in_every_round_is_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits, whether the rounds are listed or not."""
    plain = cases.run("two agents", K=5)
    plain = replace(plain, algorithm=replace(plain.algorithm, mechanism="noise-once"))
    listed = replace(plain, scheme=replace(plain.scheme, releases=tuple(range(6))))
    one, two = (Watched(config).play(monkeypatch) for config in (plain, listed))
    assert one.final.tobytes() == two.final.tobytes()
    assert [r.payloads for r in one.records.values()] == [r.payloads for r in two.records.values()]


@pytest.mark.parametrize("method", ONCE)
def test_replay_from_a_free_round_gives_the_same_bits_and_draws_nothing(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash after round 10 with the checkpoint of round 3: over three releases and free rounds."""
    seen = Watched(run(method)).play(monkeypatch)
    topology, schedule = Topology.from_config(seen.run.graph), Schedule.from_config(seen.run)

    class NoEntropy:
        def stream(self, k: int, purpose: str) -> ByteStream:
            raise AssertionError(f"{purpose} of round {k} was drawn again")

    work = AgentWork(seen.run, topology, schedule, 1, build_oracle(seen.run, 1), NoEntropy(), LaplaceSampler())
    incoming = registry.network_of(seen.run, topology).incoming(1)
    state = seen.records[1, 3].checkpoint
    assert state is not None
    for k in range(3, 11):
        received = {s: {j: seen.records[j, k].on(s).array() for j, _ in edges} for s, edges in incoming.items()}
        record = seen.records[1, k + 1]
        state = work.advance(t.Advance(state, received, seen.records[1, k].payloads, record)).state
        expected = record.checkpoint
        assert expected is not None and list(state.vectors) == list(expected.vectors)
        assert state.batch.tobytes() == expected.batch.tobytes()
        assert all(v.tobytes() == expected.vectors[name].tobytes() for name, v in state.vectors.items()), k


# --- what would be wrong ----------------------------------------------------------------------------------------------


class DrawsInFreeRounds(NoiseOnce):
    """Noise where nothing is charged."""

    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        if self._release(k) is None:
            v = {**v, "t": v["t"] + 0.0 * site.perturbed(k, v["px"], Seen("Y", v["t"]))}
        return super().release(site, k, v)


class GradientInFreeRounds(NoiseOnce):
    """A gradient that nobody pays for, though it goes nowhere."""

    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        new = super().advance(site, k, v)
        if self._release(k + 1) is None:
            site.gradient(k + 1, new["tx"])
        return new


class SendsTheGradient(NoiseOnce):
    """A free round with the raw gradient in it: nothing is drawn, nothing is charged, everything is told."""

    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        new = super().advance(site, k, v)
        if self._release(k + 1) is None:
            g = site.gradient(k + 1, new["tx"])
            return {**new, "t": new["t"] + g - v["g"], "g": g}
        return new


class StepsWhileSettling(NoiseOnce):
    """gamma as in every other round."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.steps = replace(self.steps, settles=np.inf)


class ForgetsTheRelease(NoiseOnce):
    """g~ leaves y in the round after its release."""

    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        new = super().advance(site, k, v)
        return new if self._release(k + 1) is not None else {**new, "t": new["t"] - v["g"], "g": v["px"]}


class AtcStepsInFreeRounds(AtcDsgd):
    """x moves without a gradient."""

    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        if self._release(k) is not None:
            return super().release(site, k, v)
        site.send("X", k, v["x"] * (1.0 - self.gamma))
        return v


class PushesWithoutWeights(DynD2p):
    """z = u."""

    def _weight(self, k: int) -> float:
        return 1.0


class ForgetsMomentum(DpDsgd):
    """h = g~."""

    def stepped(self, k: int, v: Vectors, noisy: F64) -> Vectors:
        return {**super().stepped(k, v, noisy), "h": noisy}


class TracksWithoutMixing(DpDsgt):
    """y of an agent's own."""

    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        new = super().advance(site, k, v)
        return {**new, "y": v["y"] - v["g"]} if "raw" in new else {**new, "y": v["y"]}


class RoundsDown(QDpsgd):
    """Biased."""

    def told(self, k: int, x: F64) -> F64:
        return np.asarray(np.floor(x * 16) / 16)


class StepsAtOnce(GradientForm):
    """The step is taken before x is mixed."""

    def final(self, site: Site, k: int, v: Vectors) -> F64:
        return self._mixed(site, k, {**v, "x": v["x"] + self._step(k) * v["g"]})


class WeighsTwice(WeightedSgd):
    """gamma doubled."""

    def final(self, site: Site, k: int, v: Vectors) -> F64:
        return 2.0 * super().final(site, k, v) - v["x"]


OF = {
    PushesWithoutWeights: "dyn-d2p",
    ForgetsMomentum: "dp-dsgd",
    TracksWithoutMixing: "dp-dsgt",
    RoundsDown: "q-dpsgd",
    StepsAtOnce: "sampled-dsgd",
    WeighsTwice: "weighted-sgd",
    AtcStepsInFreeRounds: "atc-dsgd",
}
MUTANTS: Mapping[type[Rule], Callable[[Watched], None]] = {
    **dict.fromkeys(OF, check_definition),
    GradientInFreeRounds: check_nothing_happens,
    SendsTheGradient: check_nothing_happens,
    StepsWhileSettling: check_definition,
    ForgetsTheRelease: check_definition,
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_wrong_rule_is_caught(mutant: type[Rule], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpgt_node.agent.work.rule_of", lambda config: mutant)
    seen = Watched(run(OF.get(mutant, "dpgt"))).play(monkeypatch)
    with pytest.raises(AssertionError):
        MUTANTS[mutant](seen)


def test_a_draw_in_a_free_round_stops_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpgt_node.agent.work.rule_of", lambda config: DrawsInFreeRounds)
    with pytest.raises(Broken, match="draws nothing"):
        Watched(run()).play(monkeypatch)


def test_a_charge_that_is_missing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    release = AgentWork.release

    def uncharged(work: AgentWork, effect: t.DrawRelease) -> t.ReleaseReady:
        ready = release(work, effect)
        return replace(ready, rows=()) if ready.k == RELEASES[2] else ready

    monkeypatch.setattr(AgentWork, "release", uncharged)
    seen = Watched(run()).play(monkeypatch)
    with pytest.raises(AssertionError, match="rows of the ledger"):
        check_nothing_happens(seen)


@pytest.mark.parametrize("mechanism", [name for name, one in MECHANISMS.items() if not one.accounted.once])
def test_no_other_mechanism_has_free_rounds(mechanism: str) -> None:
    """Its y would leave without noise: refused even where no run file was read."""
    config = run()
    with pytest.raises(Broken, match="rounds without a draw"):
        Schedule.from_config(replace(config, algorithm=replace(config.algorithm, mechanism=mechanism)))
