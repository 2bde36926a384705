"""Private states rebuilt from a transcript: bit for bit in the true world, by the book in another."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from dpgt_node.adversary.audit.events import positions
from dpgt_node.adversary.audit.likelihood import Interval
from dpgt_node.adversary.audit.recount import recount
from dpgt_node.adversary.audit.replay import Replay, Unseen, Vectors, World
from dpgt_node.adversary.audit.witness import log_likelihoods, log_ratio, witness
from dpgt_node.adversary.inference.observation import Facts
from dpgt_node.agent.noise import sampler_for
from dpgt_node.algo.methods import METHODS
from dpgt_node.config import model
from dpgt_node.errors import ConfigError
from dpgt_node.privacy.laws.grid import grid_laplace_pmf
from dpgt_node.privacy.laws.keystream import TestKeystream
from dpgt_node.privacy.laws.sampler import LaplaceSampler
from dpgt_node.privacy.mechanisms import TRACKING
from dpgt_node.sim.scripted import Alone, ScriptedOracle
from dpgt_node.sim.world import Observer
from dpgt_node.sim.world import World as Sim
from tests.oracles import transcripts
from tests.sim import cases

WORDS = [one.name for one in TRACKING]

PAIRS = ("self-loops everywhere", "two agents", "non-uniform weights")


class Spy:
    """A sampler that remembers what it was given and what it returned."""

    clipped = 0

    def __init__(self, sampler) -> None:
        self.sampler, self.seen = sampler, []

    def perturb(self, private, scale, stream):
        out = self.sampler.perturb(private, scale, stream)
        self.seen.append((private.copy(), out.copy()))
        return out

    def lam(self, *arguments):
        return self.sampler.lam(*arguments)

    def range(self, scale):
        return self.sampler.range(scale)


def run_of(pair: str, rule: str, law: str = "laplace", dtype: str = "float64", K: int = 12) -> model.RunConfig:
    run = cases.run(pair, K=K)
    method, _, mechanism = rule.rpartition(" ")
    return replace(
        run,
        algorithm=replace(run.algorithm, method=method or "dpgt", mechanism=mechanism),
        noise=replace(run.noise, law=law),
        runtime=replace(run.runtime, wire_dtype=dtype),
    )


def bent(i: int, k: int, x: np.ndarray) -> np.ndarray:
    return x - (i + 1) + 0.1 * np.sin(k + x)


def played(run: model.RunConfig) -> tuple[Vectors, list[Spy]]:
    """The run in the simulator, every agent with its own spy."""
    from dpgt_node.sim.simulate import build_agents

    facts, spies, vectors = Facts.of(run), [], {}

    def spied(run: model.RunConfig) -> Spy:
        spies.append(Spy(sampler_for(run)))
        return spies[-1]

    def persisted(i, record) -> None:
        vectors.update({(i, payload.stream, record.k): payload.array() for payload in record.payloads})

    oracles = [ScriptedOracle(7, None, lambda k, x, batch, i=i: bent(i, k, x)) for i in range(run.n)]
    agents = build_agents(run, facts.topology, facts.schedule, tuple(oracles), "ab", spied)
    Sim(run.graph.agents, agents, run.K, observer=Observer(persisted=persisted)).run()
    return vectors, spies


ONCE = [f"{name} noise-once" for name in cases.CARRIED if "noise-once" in METHODS[name].rules]
ONCE = [rule for rule in ONCE if not rule.startswith(("dpgt", "q-dpsgd"))]
STATES = [
    f"{name} {mechanism}"
    for name, mechanisms in (
        ("sampled-dsgd", ("state-noise", "released-state")),
        ("noisy-gt", ("sum-noise", "released-sum")),
    )
    for mechanism in mechanisms
]


@pytest.mark.parametrize("mechanism", [*WORDS, *ONCE, *STATES])
@pytest.mark.parametrize(
    ("pair", "law", "dtype"),
    [
        *((pair, "laplace", "float64") for pair in PAIRS),
        ("self-loops everywhere", "laplace", "float32"),
        ("self-loops everywhere", "gaussian", "float64"),
    ],
)
def test_the_true_world_comes_out_bit_for_bit(pair: str, mechanism: str, law: str, dtype: str) -> None:
    run = run_of(pair, mechanism, law, dtype)
    vectors, spies = played(run)
    for i, spy in enumerate(spies):
        replay = Replay(Facts.of(run), i, np.zeros(7), vectors, dtype)  # type: ignore[arg-type]
        rebuilt = list(replay.run([lambda k, x, i=i: bent(i, k, x)]))
        # What shows a round later leaves the last draw to x_{K+1}, which nobody sends.
        assert len(rebuilt) == len(spy.seen) - (mechanism == "sampled-dsgd noise-once")
        for one, (private, out) in zip(rebuilt, spy.seen, strict=False):
            assert one.draw.kind == "exact"
            assert (one.draw.values == out).all()
            assert (one.private[0] == private).all()


def test_a_run_of_one_round_may_show_no_noise() -> None:
    """What round K draws shows in x_{K+1}, and nobody sends that."""
    run = run_of("two agents", "sampled-dsgd noise-once")
    run = replace(run, algorithm=replace(run.algorithm, iterations=0))
    facts, world = Facts.of(run), lambda k, x: bent(0, k, x)
    replay = Replay(facts, 0, np.zeros(7), played(run)[0], "float64")
    assert list(replay.run([world])) == []
    asked = (
        lambda: log_likelihoods(replay, [world]),
        lambda: log_ratio(replay, world, world),
        lambda: positions(replay, world, world),
    )
    for ask in asked:
        with pytest.raises(ConfigError, match="with one more iteration there is something to audit"):
            ask()
    with pytest.raises(ValueError, match="nothing that was sent carries noise"):
        recount(facts, 0, 10)


def test_what_is_rounded_does_not_tell_what_was_drawn() -> None:
    """Q-DPSGD: the middle stands in, and one transcript refutes nothing; without rounding it does."""
    run = replace(run_of("two agents", "q-dpsgd noise-once"), method_options={"step": 1e-4})
    vectors, spies = played(run)
    world = partial(bent, 0)
    replay = Replay(Facts.of(run), 0, np.zeros(7), vectors, "int16")
    gamma = run.scheme.gamma  # type: ignore[union-attr]
    for one, (_, out) in zip(replay.run([world]), spies[0].seen, strict=False):
        assert isinstance(one.draw, Interval) and one.draw.kind == "rounded"
        assert (one.draw.low < one.draw.high).all(), "x_{k+1} falls where the gradient rises"
        assert np.abs(one.draw.values - out).max() <= 3 * 1e-4 / gamma
    assert math.isinf(log_ratio(replay, world, world).doubt)
    (told,) = witness("noise-once", {"tight": 1.0}, log_ratio(replay, world, world), fixed=False)
    assert told.verdict == "not tested" and "repeated runs do" in told.note
    run = replace(run, method_options={"step": 0.0})
    vectors, spies = played(run)
    rebuilt = list(Replay(Facts.of(run), 0, np.zeros(7), vectors, "float64").run([partial(bent, 0)]))
    assert [one.draw.kind for one in rebuilt] == ["exact"] * run.K
    assert all((one.draw.values == out).all() for one, (_, out) in zip(rebuilt, spies[0].seen, strict=False))


@pytest.mark.parametrize("mechanism", ["state-noise", "released-state"])
def test_noise_that_is_rounded_afterwards_lies_in_between(mechanism: str) -> None:
    """Quantised DSGD: the states are rebuilt bit for bit, and what was drawn lies where Q says."""
    run = replace(run_of("two agents", f"quantised-dsgd {mechanism}"), method_options={"step": 0.01})
    vectors, spies = played(run)
    rebuilt = list(Replay(Facts.of(run), 0, np.zeros(7), vectors, "int32").run([partial(bent, 0)]))
    assert len(rebuilt) == run.K + 1
    for one, (private, out) in zip(rebuilt, spies[0].seen, strict=True):
        assert isinstance(one.draw, Interval)
        assert (one.private[0] == private).all()
        assert (one.draw.low - 1e-12 <= out).all() and (out <= one.draw.high + 1e-12).all()
        assert one.draw.high - one.draw.low == pytest.approx(np.full(7, 0.01))


def test_another_gradient_gives_other_states() -> None:
    """The comparison above can fail."""
    run = run_of("two agents", "paper")
    vectors, spies = played(run)
    replay = Replay(Facts.of(run), 0, np.zeros(7), vectors, "float64")
    rebuilt = list(replay.run([lambda k, x: bent(1, k, x)]))
    assert any((one.private[0] != private).any() for one, (private, _) in zip(rebuilt, spies[0].seen, strict=True))


def test_a_stream_that_nobody_saw_is_no_part_of_what_was_observed() -> None:
    run = run_of("two agents", "paper")
    vectors, _ = played(run)
    whole = list(Replay(Facts.of(run), 0, np.zeros(7), vectors, "float64").run([partial(bent, 0)]))
    seen = {key: vector for key, vector in vectors.items() if key[:2] != (0, "Y")}
    replay = Replay(Facts.of(run), 0, np.zeros(7), seen, "float64", skip=frozenset({"Y"}))
    part = list(replay.run([partial(bent, 0)]))
    assert [(one.k, one.stream) for one in part] == [(k, "X") for k in range(run.K + 1)]
    for one, other in zip(part, (one for one in whole if one.stream == "X"), strict=True):
        assert (one.private[0] == other.private[0]).all()


def test_a_vector_that_was_not_seen_is_named() -> None:
    run = run_of("two agents", "paper")
    vectors, _ = played(run)
    del vectors[1, "X", 3]  # type: ignore[attr-defined]
    with pytest.raises(Unseen) as caught:
        list(Replay(Facts.of(run), 0, np.zeros(7), vectors, "float64").run([partial(bent, 0)]))
    assert caught.value.args[0] == (1, "X", 3)


# ---------------------------------------------------------------- the ratio, by brute force
def tiny(mechanism: str, sampler, seed: int):
    """One agent with self-loops, K = 2, d = 2, gradients that are fixed numbers: (ratio, case, g, g', run, vectors)."""
    loop = ((0.8,),)
    scale = model.NoiseStream("constant", (0.5,))
    run = model.RunConfig(
        name="tiny",
        algorithm=model.Algorithm(iterations=2, mechanism=mechanism),
        scheme=model.SchemeS2(alpha=0.3, beta=0.2, gamma=0.4, p_m=1.0, samples=1),
        noise=model.Noise(scale, scale),
        graph=model.Graph(("agent-1",), loop, loop),
        data=model.Data("zeros", params={"dimension": 2}),
        privacy=model.Privacy(C=1.0),
    )
    rng = np.random.default_rng(seed)
    g, other = rng.normal(size=(2, 3, 2))
    oracle = ScriptedOracle(2, None, lambda k, x, batch: g[k])
    vectors = Alone(run, 0, oracle, sampler).play(TestKeystream(f"{seed:04x}", 0))
    replay = Replay(Facts.of(run), 0, np.zeros(2), vectors, "float64")
    worlds: tuple[World, World] = (lambda k, x: g[k], lambda k, x: other[k])
    return log_ratio(replay, *worlds), g, other, vectors


def by_the_book(mechanism: str, g: np.ndarray, vectors: Vectors) -> tuple[np.ndarray, np.ndarray]:
    """What the noise of x̆ and y̆ was centred on, from (alg,1) and (alg,2) read literally."""
    sent = {s: np.stack([vectors[0, s, k] for k in range(3)]) for s in ("X", "Y")}
    a, b = 0.3 * 0.8, 0.2 * 0.8
    return transcripts.centres(mechanism, a, b, 0.3, 0.2, 0.4, g, 0.8 * sent["X"], 0.8 * sent["Y"], sent["Y"])


@pytest.mark.parametrize("mechanism", ["paper", "published-point", "public-state"])
@pytest.mark.parametrize("seed", range(5))
def test_the_ratio_is_that_of_the_closed_form_densities(mechanism: str, seed: int) -> None:
    """With a plain floating-point sampler the densities are Laplace; |ln| of their ratio, both worlds by hand."""
    ratio, g, other, vectors = tiny(mechanism, LaplaceSampler(), seed)
    streams = ("Y",) if mechanism == "public-state" else ("X", "Y")
    point = np.concatenate([np.concatenate([vectors[0, s, k] for k in range(3)]) for s in streams])

    def density(gradients: np.ndarray) -> float:
        xs, ys = by_the_book(mechanism, gradients, vectors)
        means = np.concatenate([{"X": xs, "Y": ys}[s].ravel() for s in streams])
        return transcripts.log_density(point, means[None, :], np.full(point.size, 0.5))

    assert ratio.total == pytest.approx(density(other) - density(g), abs=1e-9)
    assert ratio.foreign == ratio.noised == 3 * len(streams)


@pytest.mark.parametrize("mechanism", ["paper", "published-point", "public-state"])
def test_on_the_grid_the_ratio_is_that_of_the_samplers_own_probabilities(mechanism: str) -> None:
    """Sum of ln of exact fractions, each world's private part by hand (x and y less what was received)."""
    ratio, g, other, vectors = tiny(mechanism, sampler_for(run_of("two agents", "paper")), 7)
    zeros = np.zeros((3, 2))
    x0, y0 = by_the_book(mechanism, zeros, vectors)  # without gradients: the transcript parts

    def log_probability(gradients: np.ndarray) -> float:
        xs, ys = by_the_book(mechanism, gradients, vectors)
        total = 0.0
        for stream, centres, base in (("X", xs, x0), ("Y", ys, y0)):
            if stream == "X" and mechanism == "public-state":
                continue
            for k in range(3):
                for j in range(2):
                    pmf = grid_laplace_pmf(float(centres[k, j] - base[k, j]), 0.5)
                    p = pmf.probability(pmf.index(float(vectors[0, stream, k][j] - base[k, j])))
                    total += math.log(p.numerator) - math.log(p.denominator)
        return total

    assert ratio.total == pytest.approx(log_probability(other) - log_probability(g), abs=1e-9)
    assert ratio.foreign == 0
    assert abs(ratio.total) <= ratio.reach.sum()
    assert ratio.doubt < 1e-9


def test_noise_once_is_the_ratio_of_the_perturbed_gradients() -> None:
    spy = Spy(LaplaceSampler())
    ratio, g, other, _ = tiny("noise-once", spy, 3)
    noisy = np.stack([out for _, out in spy.seen])
    assert ratio.total == pytest.approx((np.abs(noisy - g) - np.abs(noisy - other)).sum() / 0.5, abs=1e-9)


def test_the_sign_says_which_world_it_was() -> None:
    """T > 0 favours D': on average over transcripts of D it is negative (its mean is minus a divergence), and a T
    with the wrong sign is not."""
    draws = [tiny("paper", LaplaceSampler(), seed)[0].total for seed in range(60)]
    assert np.mean(draws) < -1.0
    mutant = [-T for T in draws]
    assert not np.mean(mutant) < -1.0
