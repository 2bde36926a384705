"""Empirical audit of the release path: how well can the best test tell two adjacent data sets apart, measured?

One agent with a self-loop, a canary whose gradient moves by C/m in one coordinate (another one each round, d >
K), a full batch, the daemon's own AgentWork and sampler. The optimal statistic is the exact log-likelihood
ratio of the transcript: the private trackers of both worlds are recomputed on it. The first half of the runs
picks the threshold, the second half gives epsilon_low = ln(TPR_lo / FPR_hi), Clopper-Pearson at 97.5 % a side:
above the claim it refutes the CODE.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpgt_node.agent.noise import account_for
from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.learning.oracle import Metrics
from dpgt_node.privacy.grid_sampler import GridLaplaceSampler
from dpgt_node.privacy.keystream import TestKeystream
from dpgt_node.protocol.types import Advance, DrawRelease

D, C, BETA = 4, 2.0, 0.3
RUNS = 4000


class Canary:
    """Gradient 0 in one world, (C/m) e_{k mod d} with m = 1 in the other; it does not depend on the point."""

    dimension, samples, shape_sha256 = D, 1, "0" * 64

    def __init__(self, present: bool) -> None:
        self.present, self.k = present, 0

    def initial(self) -> np.ndarray:
        return np.zeros(D)

    def draw_batch(self, m: int, stream: object) -> np.ndarray:
        return np.zeros(1, dtype=np.int64)

    def gradient(self, x: np.ndarray, batch: np.ndarray) -> np.ndarray:
        g = np.zeros(D)
        if self.present:
            g[self.k % D] = C
        self.k += 1
        return g

    def evaluate(self, x: np.ndarray) -> Metrics:
        return Metrics()


class HalfNoise(GridLaplaceSampler):
    """The planted bug: draws at half the scale that is charged."""

    def perturb(self, private, scale, stream):
        return super().perturb(private, scale / 2, stream)


def make_run(K: int, scale: float) -> model.RunConfig:
    loop = ((1.0,),)
    return model.RunConfig(
        name="audit",
        algorithm=model.Algorithm(iterations=K, mechanism="public-state"),
        scheme=model.SchemeS2(alpha=0.1, beta=BETA, gamma=0.1, p_m=1.0, samples=1),
        noise=model.Noise(None, model.NoiseStream("constant", (scale,))),
        graph=model.Graph(("agent-1",), loop, loop),
        data=model.Data("zeros", params={"dimension": D}),
        privacy=model.Privacy(clip_l1=C / 2),
    )


def claim(run: model.RunConfig) -> float:
    """epsilon under `tight`."""
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    total = account_for(run, topology, schedule, 0, 1, D).total("tight")
    assert total is not None
    return total


def scale_for(epsilon: float, K: int) -> float:
    return claim(make_run(K, 1.0)) / epsilon


def transcript(run: model.RunConfig, present: bool, seed: int, sampler) -> np.ndarray:
    """y̆_0..y̆_K (K+1, d) of one run."""
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    keys = TestKeystream(f"{seed:08x}", int(present))
    work = AgentWork(run, topology, schedule, 0, Canary(present), keys, sampler)
    state = work.advance(Advance(None, {}, {})).state
    out = []
    for k in range(run.K + 1):
        release = work.release(DrawRelease(state))
        out.append(release.y.array())
        if k < run.K:
            own = (release.x, release.y)
            step = Advance(release.state, {0: release.x.array()}, {0: release.y.array()}, own)
            state = work.advance(step).state
    return np.stack(out)


def llr(sent: np.ndarray, scale: float) -> float:
    """ln p(canary present) - ln p(absent) of a transcript: both worlds' y_k follow from it."""
    total, y = 0.0, {False: np.zeros(D), True: np.zeros(D)}
    g_old = {False: np.zeros(D), True: np.zeros(D)}
    for k, row in enumerate(sent):
        distance = {}
        for world in (False, True):
            g = np.zeros(D)
            if world:
                g[k % D] = C
            mixed = 0.0 if k == 0 else (1 - BETA) * y[world] + BETA * sent[k - 1]
            y[world] = mixed + g - g_old[world]
            g_old[world] = g
            distance[world] = np.abs(row - y[world]).sum()
        total += (distance[False] - distance[True]) / scale
    return total


def lower_bound(epsilon: float, K: int, sampler) -> float:
    scale = scale_for(epsilon, K)
    run = make_run(K, scale)
    scores = {w: np.array([llr(transcript(run, w, s, sampler), scale) for s in range(RUNS)]) for w in (False, True)}
    half = RUNS // 2

    def bound(threshold: float, part: slice) -> float:
        hits, alarms = (int((scores[w][part] >= threshold).sum()) for w in (True, False))
        n = len(scores[True][part])
        low = stats.beta.ppf(0.025, hits, n - hits + 1) if hits else 0.0
        high = stats.beta.ppf(0.975, alarms + 1, n - alarms) if alarms < n else 1.0
        return math.log(low / high) if low > 0 else -math.inf

    first = slice(0, half)
    best = max(np.quantile(scores[True], np.linspace(0.02, 0.98, 49)), key=lambda t: bound(float(t), first))
    return bound(float(best), slice(half, RUNS))


@pytest.mark.parametrize(("epsilon", "K", "least"), [(1.0, 0, 0.75), (1.0, 2, 0.4)])
def test_the_measured_bound_lies_below_the_claim_and_has_power(epsilon: float, K: int, least: float) -> None:
    measured = lower_bound(epsilon, K, GridLaplaceSampler())
    assert least < measured <= epsilon


@pytest.mark.parametrize("K", [0, 2])
def test_half_the_noise_is_caught(K: int) -> None:
    assert lower_bound(1.0, K, HalfNoise()) > 1.0
