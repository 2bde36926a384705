"""What an agent's releases cost, counted again: from its own equations on unit gradients, not from an accountant.

The method's equations run once over a transcript of zeros (:class:`Replay`), with the gradient of round l in coordinate
l.  What is noised in a row is then the row of a matrix: S[row, l] = how far the sample's part in batch l moves it.

    pure         epsilon = sum over rows of sum_l |S[row, l]| / scale  (tight; same-point where points are private)
    amplified    w_l = sum over rows of |S[row, l]| / scale;  epsilon = sum_l ln(1 + (m_l/D) (e^w_l - 1))
    zcdp, gdp    M = S' scale^-2 S;  mu^2 = least sum of a diagonal matrix that is at least M: that of the row sums of
                 |M|, lambda_max I, or lambda_max(D^-1/2 M D^-1/2) D with D = diag(M);  rho = mu^2/2
    lemma5       Lemma 4's recursion on norms;  corrected: the same with all gradients moving from round 1 on

Costs of a prefix take the columns of batches that were released by then.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from dpgt_node.adversary.audit.replay import NO_NOISE_SHOWS, Replay
from dpgt_node.adversary.inference.observation import Facts
from dpgt_node.algo.methods import codes_of
from dpgt_node.privacy.accountants.amplified import AMPLIFIED
from dpgt_node.privacy.accountants.corrected import CORRECTED
from dpgt_node.privacy.accountants.gdp import GDP
from dpgt_node.privacy.accountants.lemma5 import LEMMA5
from dpgt_node.privacy.accountants.responses.same_point import SAME_POINT
from dpgt_node.privacy.accountants.tight import TIGHT
from dpgt_node.privacy.accountants.zcdp import ZCDP
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.privacy.mechanisms import MECHANISMS, TRACKING
from dpgt_node.types import F64, STREAMS, Stream
from dpgt_node.values import dataclass

MOST_ROUNDS = 2_500
"""Matrices are dense: beyond it nothing is counted again."""


class _Nothing(Mapping[tuple[int, Stream, int], F64]):
    """A transcript in which everybody sent zeros."""

    def __init__(self, dimension: int) -> None:
        self._zeros = np.zeros(dimension)

    def __getitem__(self, key: tuple[int, Stream, int]) -> F64:
        return self._zeros

    def __iter__(self) -> Iterator[tuple[int, Stream, int]]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Recount:
    """Rows of the ledger in their order: (k, stream), and what was counted of each.

    ``shift``: L1 norm of what one sample moves, as released, C included; ``scale``: of its noise, by the run file.
    ``costs``: cumulative epsilon after each row by accountant, float64 (rows,).
    """

    rows: tuple[tuple[int, Stream], ...]
    shift: F64
    scale: F64
    costs: dict[str, F64]


def recount(facts: Facts, index: int, samples: int | None) -> Recount:
    """Of 0-based agent ``index``, which holds ``samples`` (None: not known).  ValueError: there is no telling."""
    run, schedule = facts.run, facts.schedule
    mechanism = MECHANISMS[run.algorithm.mechanism]
    if run.K > MOST_ROUNDS:
        raise ValueError(f"K = {run.K}: costs of more than {MOST_ROUNDS} rounds are not counted again")
    if not schedule.noisy or not mechanism.noises:
        raise ValueError("no noise of the run file's laws is drawn")
    if samples is None and schedule.m is None:
        raise ValueError("m = D, and D is not known")
    sizes = np.array([float(schedule.m_at(k, samples or 0)) for k in range(run.K + 1)])
    shares = np.array([schedule.share(k) for k in range(run.K + 1)])
    rows, S = _matrix(facts, index, shares / sizes)
    scale = np.array([schedule.sigma(stream, index, k) for k, stream in rows])
    C, C2 = run.privacy.adjacency, run.privacy.adjacency
    if run.privacy.clip_l2 is not None:
        C2 = 2.0 * run.privacy.clip_l2
    ks = np.array([k for k, _ in rows])
    costs: dict[str, F64] = {}
    admits = LAWS[run.noise.law].admits
    if mechanism.accounted.public_point:
        if C is not None and "epsilon" in admits:
            costs[TIGHT.name] = np.cumsum(C * np.abs(S).sum(axis=1) / scale)
            if run.privacy.clip_l1 is not None and samples is not None and not schedule.arriving:
                weights = C * np.abs(S) / scale[:, None]
                costs[AMPLIFIED.name] = _amplified(weights, sizes / samples, rows, costs[TIGHT.name])
        if C2 is not None:
            square = C2**2 * _squares(S / scale[:, None], ks, rows)
            if "rho" in admits:
                rho = 0.5 * square
                costs[ZCDP.name] = rho + 2.0 * np.sqrt(rho * math.log(1.0 / run.privacy.delta))
            if "mu" in admits:
                costs[GDP.name] = gaussian_epsilons(np.sqrt(square), run.privacy.delta)
    elif mechanism not in TRACKING and C is not None and "epsilon" in admits:
        costs[SAME_POINT.name] = np.cumsum(C * np.abs(S).sum(axis=1) / scale)
    constant = C2 if C is None and not mechanism.printed else C
    shift = (math.nan if constant is None else constant) * np.abs(S).sum(axis=1)
    if mechanism in TRACKING and not mechanism.x_public and C is not None:
        printed = _recursion(facts, index, C, float(sizes[0]), run.K, every=False)
        shift = printed if mechanism.printed else shift
        if "epsilon" in admits:
            costs[LEMMA5.name] = np.cumsum(printed / scale)
        if "epsilon" in admits and mechanism.printed and run.privacy.clip_l1 is not None:
            moving = _recursion(facts, index, C, float(sizes[0]), run.K, every=True)
            costs[CORRECTED.name] = np.cumsum(moving / scale)
    return Recount(tuple(rows), shift, scale, costs)


def _matrix(facts: Facts, index: int, moves: F64) -> tuple[list[tuple[int, Stream]], F64]:
    """The rows, X before Y in a round, and S, float64 (rows, K+1)."""
    width = len(moves)

    def world(k: int, point: F64) -> F64:
        g = np.zeros(width)
        g[k] = moves[k]
        return g

    replay = Replay(unrounded(facts), index, np.zeros(width), _Nothing(width), "float64")
    found = {(one.k, one.stream): one.private[0].copy() for one in replay.run((world,))}
    if not found:
        raise ValueError(NO_NOISE_SHOWS)
    rows = sorted(found, key=lambda row: (row[0], STREAMS.index(row[1])))
    return rows, np.array([found[row] for row in rows])


def unrounded(facts: Facts) -> Facts:
    """The run without rounding of what is sent, which costs the same: what is rounded was noised before."""
    if codes_of(facts.run) is None:
        return facts
    return Facts.of(replace(facts.run, method_options={**facts.run.method_options, "step": 0.0}))


def _amplified(w: F64, rate: F64, rows: list[tuple[int, Stream]], tight: F64) -> F64:
    """What batches 0..k cost over the whole run; a row of x̆_k holds those before k.  Never above ``tight``."""
    each = np.log1p(rate * np.expm1(np.minimum(w.sum(axis=0), 700.0)))
    ahead = np.concatenate(([0.0], np.cumsum(each)))
    held = np.array([k if stream == "X" else k + 1 for k, stream in rows])
    return np.maximum.accumulate(np.minimum(ahead[held], tight))


def _squares(scaled: F64, ks: F64, rows: list[tuple[int, Stream]]) -> F64:
    """mu^2 per unit of C2^2 after each row, float64 (rows,)."""
    M = scaled.T @ scaled
    size = len(M)
    sums, diagonal = np.abs(M).sum(axis=1), np.diag(M).copy()
    bounds = [sums, np.full(size, np.linalg.eigvalsh(M)[-1])]
    live = diagonal > 0.0
    if live.any():
        root = np.sqrt(diagonal[live])
        largest = np.linalg.eigvalsh(M[np.ix_(live, live)] / np.outer(root, root))[-1]
        bounds.append(np.where(live, diagonal, 0.0) * largest)
    total = np.minimum.reduce([np.concatenate(([0.0], np.cumsum(bound))) for bound in bounds])
    held = np.array([k if stream == "X" else k + 1 for k, stream in rows])
    return np.maximum.accumulate(total[held])


def gaussian_epsilons(mu: F64, delta: float) -> F64:
    """Least epsilon with Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu) <= delta, by halving."""
    from scipy.special import log_ndtr

    def excess(epsilon: F64) -> F64:
        first = np.exp(log_ndtr(0.5 * some - epsilon / some))
        return np.asarray(first - np.exp(epsilon + log_ndtr(-0.5 * some - epsilon / some)) - delta)

    out = np.zeros(len(mu))
    some = mu[mu > 0.0]
    low, high = np.zeros(len(some)), 0.5 * some**2 + some * math.sqrt(2.0 * math.log(1.0 / delta)) + 1e-300
    for _ in range(200):
        middle = 0.5 * (low + high)
        over = excess(middle) > 0.0
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    out[mu > 0.0] = np.where(excess(np.zeros(len(some))) > 0.0, high, 0.0)
    return out


def _recursion(facts: Facts, index: int, C: float, m: float, K: int, *, every: bool) -> F64:
    """Norms of what moves in x_k, y_k by turns, (2(K+1),): Lemma 4's, or (``every``) with all gradients moving by C.

    Lemma 4    dy_0 = C/m;  dy_k = (1-b) dy_{k-1} + 2C/m;   dx_0 = 0;  dx_k = (1-a) dx_{k-1} + gamma dy_{k-1}
    corrected  sg_0 = C/m, sg_k = C;  sy_k = sh_k + sg_k;  sh_{k+1} = |1-b| sh_k + b sg_k;  x as above
    """
    steps, out = facts.steps(index), np.zeros(2 * (K + 1))
    x = h = 0.0
    y = C / m
    for k in range(K + 1):
        g = C / m if k == 0 or not every else C
        if every:
            y = h + g
        out[2 * k], out[2 * k + 1] = x, y
        x = abs(1.0 - steps.a) * x + facts.schedule.gamma * y
        h = abs(1.0 - steps.b) * h + steps.b * g
        if not every:
            y = abs(1.0 - steps.b) * y + 2.0 * C / m
    return out
