"""Empirical audit of the release path: how well can the best test tell two adjacent data sets apart, measured?

One agent with a self-loop, the daemon's own AgentWork and sampler, a full batch, and a canary: a sample whose gradient
is 0 in one data set and +-C in one coordinate in the other, with the signs that make the shifts of the rounds add up.
A fair coin says which data set it is.  The statistic is the exact log-likelihood ratio of all rounds: the private
tracker of both worlds follows from what was sent.  Coordinates never meet on their way out, so a vector of many is
that many audits, each with its own canary and coin.

Pure epsilon: the auditor guesses only where the ratio is extreme (|ratio| is the whole shift in scales; every release
lies beyond both means, which happens with probability 2^-(K+1) (1 + e^-epsilon)).  Given any transcript, a guess is
right with a probability of at most e^epsilon/(1 + e^epsilon).  Gaussian noise: it always guesses, and is right with a
probability of at most Phi(mu/2).  So a Clopper-Pearson bound (95 %) of the share of right guesses bounds epsilon, or
mu, from below; above the claim it refutes the CODE.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpgt_node.agent.noise import account_for, sampler_for
from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.learning.oracle import Metrics
from dpgt_node.privacy.accountants.gaussian import gdp_mu
from dpgt_node.privacy.keystream import TestKeystream
from dpgt_node.protocol.types import Advance, DrawRelease

C, BETA = 2.0, 0.3
WIDTH = 100


class Canary:
    """Coordinate by coordinate: gradient 0, or +-C where the coin says so; m = D = 1, and it depends on no point."""

    dimension, samples, tested, shape_sha256 = WIDTH, 1, 0, "0" * 64

    def __init__(self, signs: tuple[int, ...]) -> None:
        self.signs, self.coins, self.k = signs, np.zeros(WIDTH, dtype=bool), 0

    def initial(self) -> np.ndarray:
        return np.zeros(WIDTH)

    def draw_batch(self, m: int, stream: object) -> np.ndarray:
        return np.zeros(1, dtype=np.int64)

    def gradient(self, x: np.ndarray, batch: np.ndarray) -> np.ndarray:
        self.k += 1
        return C * self.signs[self.k - 1] * self.coins

    def evaluate(self, x: np.ndarray, samples: int | None = None) -> Metrics:
        return Metrics()


class HalfNoise:
    """The planted bug: draws at half the scale that is charged."""

    def __init__(self, sampler) -> None:  # type: ignore[no-untyped-def]
        self.sampler = sampler

    def perturb(self, private, scale, stream):  # type: ignore[no-untyped-def]
        return self.sampler.perturb(private, scale / 2, stream)


def make_run(mechanism: str, law: str, K: int, scale: float) -> model.RunConfig:
    loop = ((1.0,),)
    return model.RunConfig(
        name="audit",
        algorithm=model.Algorithm(iterations=K, mechanism=mechanism),
        scheme=model.SchemeS2(alpha=0.1, beta=BETA, gamma=0.1, p_m=1.0, samples=1),
        noise=model.Noise(None, model.NoiseStream("constant", (scale,)), law=law),  # type: ignore[arg-type]
        graph=model.Graph(("agent-1",), loop, loop),
        data=model.Data("zeros", params={"dimension": WIDTH}),
        privacy=model.Privacy(clip_l1=C / 2) if law == "laplace" else model.Privacy(clip_l2=C / 2),
    )


def claim(run: model.RunConfig) -> float:
    """epsilon under `tight`, or the mu whose (epsilon, delta) `gdp` prints."""
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    account = account_for(run, topology, schedule, 0, 1, 1)
    if run.noise.law == "laplace":
        total = account.total("tight")
        assert total is not None
        return total
    epsilon = account.total("gdp")
    assert epsilon is not None
    return gdp_mu(epsilon, run.privacy.delta)


def signs_of(mechanism: str, K: int) -> tuple[int, ...]:
    """noise-once releases g_k by itself; y_k under public-state holds g_k - b g_{k-1} - ...: alternate."""
    return tuple((-1) ** k if mechanism == "public-state" else 1 for k in range(K + 1))


def transcript(run: model.RunConfig, canary: Canary, seed: int, sampler) -> np.ndarray:  # type: ignore[no-untyped-def]
    """What left the agent in rounds 0..K (K+1, WIDTH): y̆_k, or g~_k under noise-once."""
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    work = AgentWork(run, topology, schedule, 0, canary, TestKeystream(f"{seed:08x}", 0), sampler)  # type: ignore[arg-type]
    state = work.advance(Advance(None, {}, {})).state
    out = []
    for k in range(run.K + 1):
        release = work.release(DrawRelease(state))
        out.append(release.y.array() if release.noisy_gradient is None else release.noisy_gradient)
        if k < run.K:
            own = (release.x, release.y)
            step = Advance(release.state, {0: release.x.array()}, {0: release.y.array()}, own)
            state = work.advance(step).state
    return np.stack(out)


def shifts(mechanism: str, signs: tuple[int, ...]) -> np.ndarray:
    """What the canary adds to each release, the transcript before it being fixed: (K+1,)."""
    g = C * np.array(signs, dtype=float)
    if mechanism == "noise-once":
        return g
    out = g.copy()
    for k in range(1, len(g)):
        out[k] += (1 - BETA) * out[k - 1] - g[k - 1]
    return out


def log_ratios(run: model.RunConfig, shift: np.ndarray, sent: np.ndarray, scale: float) -> np.ndarray:
    """ln p(present) - ln p(absent) of every coordinate's transcript; under public-state y̆_{k-1} is known in both."""
    means = np.zeros_like(sent)
    if run.algorithm.mechanism == "public-state":
        for k in range(1, len(sent)):
            means[k] = (1 - BETA) * means[k - 1] + BETA * sent[k - 1]
    noise, u = sent - means, shift[:, None]
    if run.noise.law == "laplace":
        return (np.abs(noise) - np.abs(noise - u)).sum(axis=0) / scale
    return (u * (noise - u / 2)).sum(axis=0) / scale**2


def lower_bound(mechanism: str, law: str, target: float, K: int, canaries: int, *, half: bool = False) -> float:
    scale = claim(make_run(mechanism, law, K, 1.0)) / target
    run, signs = make_run(mechanism, law, K, scale), signs_of(mechanism, K)
    assert claim(run) == pytest.approx(target, rel=1e-4)
    sampler, shift, canary = sampler_for(run), shifts(mechanism, signs), Canary(signs)
    if half:
        sampler = HalfNoise(sampler)  # type: ignore[assignment]
    extreme = 0.98 * np.abs(shift).sum() / scale if law == "laplace" else 0.0
    rng = np.random.default_rng(0)
    right = guesses = 0
    for seed in range(canaries // WIDTH):
        canary.coins, canary.k = rng.integers(2, size=WIDTH).astype(bool), 0
        ratio = log_ratios(run, shift, transcript(run, canary, seed, sampler), scale)
        sure = np.abs(ratio) >= extreme
        guesses += int(sure.sum())
        right += int(((ratio > 0.0) == canary.coins)[sure].sum())
    share = float(stats.beta.ppf(0.05, right, guesses - right + 1))
    return math.log(share / (1 - share)) if law == "laplace" else 2.0 * float(stats.norm.ppf(share))


CANARIES = 20_000


@pytest.mark.parametrize("claimed", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_the_measured_bound_lies_just_below_the_claim(law: str, claimed: float) -> None:
    assert 0.85 * claimed < lower_bound("noise-once", law, claimed, 2, CANARIES) <= claimed


@pytest.mark.parametrize(("law", "K", "least"), [("laplace", 0, 0.9), ("laplace", 2, 0.75), ("gaussian", 2, 0.85)])
def test_the_tracker_s_releases_too(law: str, K: int, least: float) -> None:
    """public-state: beyond one round no canary in one coordinate reaches the bound (theory.md, theorem 1)."""
    assert least < lower_bound("public-state", law, 1.0, K, CANARIES) <= 1.0


@pytest.mark.parametrize("mechanism", ["noise-once", "public-state"])
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("K", [0, 2])
def test_half_the_noise_is_caught(mechanism: str, law: str, K: int) -> None:
    assert lower_bound(mechanism, law, 1.0, K, CANARIES // 4, half=True) > 1.3
