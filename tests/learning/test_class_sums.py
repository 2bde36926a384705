"""Class sums as first release: what they are, how far a sample moves them, and a wrong one is caught."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpgt_node.adversary.audit.canaries import Canaries
from dpgt_node.adversary.audit.replay import Replay
from dpgt_node.adversary.audit.witness import log_ratio
from dpgt_node.adversary.inference.observation import Facts
from dpgt_node.agent.noise import account_for, sampler_for
from dpgt_node.algo.methods import METHODS
from dpgt_node.algo.methods.dpgt import NoiseOnce
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.learning.data.datasets import Dataset
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.learning.nets.models import SoftmaxOracle
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.learning.releases import Sources
from dpgt_node.protocol import types as t
from dpgt_node.sim.fast import TOLERANCE, FastRun
from dpgt_node.sim.scripted import Alone, ScriptedOracle
from dpgt_node.sim.simulate import build_agents, keystream_for
from dpgt_node.sim.world import Observer, World
from dpgt_node.types import F64, I64
from tests.sim import cases
from tests.sim.cases import CARRIED
from tests.sim.test_fast import both

FIRST, LATER, SCALE = 12.0, 4.0, 0.375
RELEASES, K = (0, 3, 5), 9


def digits(**privacy: Any) -> model.RunConfig:
    run = cases.run("the demo's ring with chords", K=K, data=model.Data("digits"))
    scheme = replace(run.scheme, samples="full", releases=RELEASES, settle=2, first="class-sums", first_scale=SCALE)
    privacy = privacy or {"clip_l1": LATER}
    return replace(
        run,
        algorithm=replace(run.algorithm, mechanism="noise-once"),
        scheme=scheme,
        noise=replace(run.noise, by_release=(3.0, 1.0)),
        privacy=model.Privacy(**privacy, by_release=(FIRST / LATER, 1.0)),
    )


def oracle_of(x: F64, y: I64, clip: Clip, bias: float = 0.5) -> SoftmaxOracle:
    data = Dataset(x, y, np.zeros((0, x.shape[1])), np.zeros(0, dtype=np.int64), 4)
    return SoftmaxOracle(data, None, bias=bias, clip=clip)


def by_hand(x: F64, y: I64, order: int, bound: float, bias: float, classes: int = 4) -> F64:
    """-(1/m) sum_j e_{y_j} times clip(phi_j), one entry at a time, nothing for b."""
    sums = np.zeros((classes, x.shape[1]))
    for phi, label in zip(x, y, strict=True):
        norm = np.linalg.norm(phi, order)
        if np.isfinite(norm):
            sums[label] -= phi * min(1.0, bound / norm) if norm else phi
    return np.concatenate([(sums / len(y)).ravel(), np.zeros(classes if bias else 0)])


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_class_sums_are_what_they_say(order: int, bias: float) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(20, 7)) * rng.uniform(0.1, 3.0, (20, 1)), rng.integers(0, 4, 20)
    x[3, 2], x[4] = np.inf, 0.0
    batch = np.array([0, 3, 4, 7, 9, 15])
    found = oracle_of(x, y, Clip(order, 2.0), bias).class_sums(batch)
    np.testing.assert_allclose(found, by_hand(x[batch], y[batch], order, 2.0, bias), rtol=1e-6)


@pytest.mark.parametrize("order", [1, 2])
def test_a_replaced_sample_moves_them_by_at_most_twice_the_clip_over_m(order: int) -> None:
    """Whatever the sample and its replacement, both norms; the bound is attained."""
    rng, m, c, closest = np.random.default_rng(2), 5, 1.5, 0.0
    for _ in range(200):
        x, y = rng.normal(size=(m, 6)) * 10 ** rng.uniform(-1, 2), rng.integers(0, 4, m)
        other, labels = x.copy(), y.copy()
        other[0] = -x[0] if rng.random() < 0.5 else rng.normal(size=6) * 10 ** rng.uniform(-1, 2)
        labels[0] = rng.integers(0, 4)
        everything = np.arange(m)
        one, two = (oracle_of(a, b, Clip(order, c)).class_sums(everything) for a, b in ((x, y), (other, labels)))
        moved = float(np.linalg.norm(one - two, order))
        assert moved <= 2 * c / m
        closest = max(closest, moved * m / (2 * c))
    assert closest > 0.9999


def test_the_softmax_gradient_at_zero_may_move_further() -> None:
    """What class sums save: (p - e_y) has an L1 norm of 2 (1 - 1/classes), e_y one of 1."""
    x, y = np.array([[1.0, 0.0]]), np.array([0])
    oracle = oracle_of(x, y, Clip(1, 100.0), 0.0)
    gradient, sums = oracle.gradient(np.zeros(8), np.arange(1)), oracle.class_sums(np.arange(1))
    assert np.abs(gradient).sum() == pytest.approx(1.5 * np.abs(sums).sum())


class Watched:
    """All that the agents of a run stored."""

    def __init__(self, run: model.RunConfig) -> None:
        self.run, facts = run, Facts.of(run)
        self.oracles = tuple(build_oracle(run, i) for i in range(run.n))
        agents = build_agents(run, facts.topology, facts.schedule, self.oracles, "ab")
        self.records: dict[tuple[int, int], t.RoundRecord] = {}
        World(run.graph.agents, agents, run.K, observer=Observer(persisted=self._persisted)).run()

    def _persisted(self, i: int, record: t.RoundRecord) -> None:
        self.records[i, record.k] = record

    def vectors(self) -> dict[Any, F64]:
        return {
            (i, payload.stream, k): payload.array()
            for (i, k), record in self.records.items()
            for payload in record.payloads
        }


def check_first_release(seen: Watched) -> None:
    """Round 0 sends the noised class sums times the public factor; later releases are softmax gradients."""
    schedule = Schedule.from_config(seen.run)
    for i, oracle in enumerate(seen.oracles):
        assert isinstance(oracle, SoftmaxOracle)
        everything = np.arange(oracle.samples)
        bound = FIRST * (1.0 - 2.0**-22)
        sums = by_hand(oracle.inputs(everything), oracle.labels(everything), 1, bound, 1.0, 10)
        drawn = seen.records[i, 0].noisy_gradient
        assert drawn is not None
        assert np.abs(drawn - sums).mean() < 2 * schedule.sigma("Y", i, 0), "the release is of class sums"
        sent = seen.records[i, 0].on("Y").array()
        np.testing.assert_allclose(sent, SCALE * drawn, rtol=1e-12, err_msg="times the factor")
        state = seen.records[i, 3].checkpoint
        later = seen.records[i, 3].noisy_gradient
        assert state is not None and later is not None
        expected = oracle.gradient(state.vectors["tx"], everything)
        assert np.abs(later - expected).mean() < 2 * schedule.sigma("Y", i, 3), "later releases are of gradients"


@pytest.fixture
def quiet() -> model.RunConfig:
    """So little noise that what it hides shows."""
    run = digits()
    return replace(run, noise=replace(run.noise, multiplier=0.02))


def test_the_first_release_of_a_run(quiet: model.RunConfig) -> None:
    check_first_release(Watched(quiet))


def test_what_a_study_keeps_is_what_was_released_without_its_noise() -> None:
    """Class sums in round 0 and a gradient under the clip of its own release in round 3."""
    run = digits(clip_l1=0.5)
    run = replace(run, privacy=replace(run.privacy, by_release=(2.0, 0.5)))
    facts, oracle = Facts.of(run), build_oracle(run, 0)
    assert isinstance(oracle, SoftmaxOracle)
    agent = build_agents(run, facts.topology, facts.schedule, (oracle,) * run.n, "ab")[0].work
    state = agent.advance(t.Advance(None)).state
    first, batch = agent.private(state, 0), np.arange(oracle.samples)
    sums = by_hand(oracle.inputs(batch), oracle.labels(batch), 1, 1.0 * (1.0 - 2.0**-22), 1.0, 10)
    np.testing.assert_allclose(first.g, sums, rtol=1e-9)
    later = agent.private(replace(state, k=3), 0)
    np.testing.assert_allclose(later.g, oracle.under(0.5).gradient(first.x, state.batch), rtol=1e-9)
    assert np.abs(later.g - oracle.gradient(first.x, state.batch)).max() > 1e-6
    assert agent.private(replace(state, k=4), 0).g.size == 0, "no release, no gradient"


@pytest.mark.parametrize("method", [name for name in CARRIED if "noise-once" in METHODS[name].rules])
def test_the_first_step_goes_as_far_as_the_factor_says(method: str) -> None:
    """Under the same noise x_1 is affine in the public factor, whatever carries the first release."""
    run = digits()
    run = replace(run, algorithm=replace(run.algorithm, method=method, iterations=0))
    run = replace(run, method_options={"step": 0.0} if method == "q-dpsgd" else {})
    ends = []
    for factor in (1e-300, SCALE, 2 * SCALE):
        state = FastRun(
            replace(run, scheme=replace(run.scheme, releases=(0,), settle=0, first_scale=factor)),
            tuple(build_oracle(run, i) for i in range(run.n)),
            "ab",
        )
        state.step()
        ends.append(state.x)
    assert np.abs(ends[1] - ends[0]).max() > 1e-3
    np.testing.assert_allclose(ends[2] - ends[0], 2 * (ends[1] - ends[0]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["dpgt", "atc-dsgd"])
@pytest.mark.parametrize("privacy", [{"clip_l1": LATER}, {"clip_l2": LATER}])
def test_the_fast_simulator_agrees(method: str, privacy: Mapping[str, float], tmp_path: Path) -> None:
    run = digits(**privacy)
    run = replace(run, algorithm=replace(run.algorithm, method=method))
    error, _, _ = both(run, tmp_path)
    assert error < TOLERANCE


def test_where_one_clip_is_for_all_releases_the_later_ones_are_of_gradients_still(tmp_path: Path) -> None:
    run = digits()
    run = replace(run, privacy=replace(run.privacy, by_release=None))
    oracle, schedule = build_oracle(run, 0), Schedule.from_config(run)
    assert isinstance(oracle, SoftmaxOracle)
    sources, x, batch = Sources(oracle, schedule), np.linspace(-1.0, 1.0, oracle.dimension), np.arange(oracle.samples)
    assert [schedule.share(k) for k in RELEASES] == [1.0] * len(RELEASES)
    assert (sources.at(0).gradient(x, batch) == oracle.class_sums(batch)).all()
    for k in RELEASES[1:]:
        assert (sources.at(k).gradient(x, batch) == oracle.gradient(x, batch)).all()
    error, _, _ = both(run, tmp_path)
    assert error < TOLERANCE


def claimed(run: model.RunConfig) -> float:
    facts = Facts.of(run)
    oracle = build_oracle(run, 0)
    total = account_for(run, facts.topology, facts.schedule, 0, oracle.samples, oracle.dimension).total("tight")
    assert total is not None
    return total


def by_release(run: model.RunConfig) -> float:
    """2c/(m b_0) + sum over later releases of 2 clip/(m b_k)."""
    schedule, m = Schedule.from_config(run), build_oracle(run, 0).samples
    assert m is not None
    bounds = (FIRST, LATER, LATER)
    return sum(2 * c / (m * schedule.sigma("Y", 0, k)) for c, k in zip(bounds, RELEASES, strict=True))


def test_each_release_costs_its_own_clip_over_its_own_scale() -> None:
    run = digits()
    assert by_release(run) <= claimed(run) <= by_release(run) * (1 + 1e-5)


def test_a_replay_reads_the_noise_off_releases_alone() -> None:
    """In the true world private parts come out to the bit; a world with another sample is no further than claimed."""
    run = digits()
    seen, facts = Watched(run), Facts.of(run)
    oracle = seen.oracles[0]
    assert oracle.samples is not None
    everything = np.arange(oracle.samples)
    replay = Replay(facts, 0, oracle.initial(), seen.vectors(), "float64")
    sources = Sources(oracle, facts.schedule)

    def here(k: int, point: F64) -> F64:
        return sources.at(k).gradient(point, everything)

    def swapped(k: int, point: F64) -> F64:
        one, other = (sources.at(k).gradient(point, np.array([s])) for s in (0, 1))
        return here(k, point) + (other - one) / oracle.samples  # type: ignore[operator]

    rebuilt = list(replay.run([here]))
    assert [one.k for one in rebuilt] == list(RELEASES)
    for one in rebuilt:
        drawn = seen.records[0, one.k].noisy_gradient
        assert drawn is not None and one.draw.kind == "exact" and (one.draw.values == drawn).all()
    ratio = log_ratio(replay, here, swapped)
    assert ratio.noised == 3 and not ratio.foreign
    assert 0.0 < abs(ratio.total) <= float(ratio.reach.sum()) <= claimed(run)


@pytest.mark.parametrize("factors", [(3.0, 1.0), (3.0, 2.0, 1.0)])
def test_canaries_attain_the_claim_of_a_run_whose_releases_differ(factors: tuple[float, ...]) -> None:
    """Spread over coordinates, each release shows all of its own clip over its own scale."""
    run, d, m = digits(), 300, 100
    run = replace(
        run,
        noise=replace(run.noise, by_release=factors),
        privacy=replace(run.privacy, by_release=factors),
    )
    facts = Facts.of(run)
    canaries = Canaries.plan(
        mechanism="noise-once", law="laplace", releases=3, dimension=d, samples=m, m=m, C=2 * LATER, stacked=False
    )
    signs = np.ones(canaries.count)

    def script(r: int, x: F64, batch: I64) -> F64:
        return canaries.gradient(r, signs, facts.schedule.clip_of(r))

    agent = Alone(run, 0, ScriptedOracle(d, m, script), sampler_for(run))
    vectors = agent.play(keystream_for("ab", 0))
    T, foreign = canaries.ratios(Replay(facts, 0, np.zeros(d), vectors, agent.wire_dtype))
    total = account_for(run, facts.topology, facts.schedule, 0, m, d).total("tight")
    assert total is not None and not foreign
    assert np.abs(T).max() <= total
    assert T.max() > 0.9 * total


# --- what would be wrong ----------------------------------------------------------------------------------------------


def unclipped(oracle: SoftmaxOracle, batch: I64) -> F64:
    return SoftmaxOracle.class_sums(oracle.under(1e6), batch)


def of_every_release(schedule: Schedule, k: int) -> bool:
    return schedule.class_sums


def of_no_release(schedule: Schedule, k: int) -> bool:
    return False


def test_a_sum_without_a_clip_is_caught() -> None:
    rng = np.random.default_rng(3)
    x, y = 100 * rng.normal(size=(9, 5)), rng.integers(0, 4, 9)
    oracle = oracle_of(x, y, Clip(1, 2.0))
    assert np.abs(unclipped(oracle, np.arange(9))).sum() > 2.0 >= np.abs(oracle.class_sums(np.arange(9))).sum()


@pytest.mark.parametrize("sums", [of_every_release, of_no_release])
def test_class_sums_in_the_wrong_release_are_caught(
    quiet: model.RunConfig, sums: Callable[[Schedule, int], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Schedule, "sums", sums)
    with pytest.raises(AssertionError):
        check_first_release(Watched(quiet))


def test_a_forgotten_factor_is_caught(quiet: model.RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NoiseOnce, "_with", lambda self, k, v, g: {**v, "p": v["px"], "t": v["t"] + g, "g": g})
    with pytest.raises(AssertionError, match="times the factor"):
        check_first_release(Watched(quiet))


def test_a_first_release_charged_like_the_others_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Schedule, "clip_of", lambda schedule, release: 1.0)
    run = digits()
    assert not by_release(run) <= claimed(run)
