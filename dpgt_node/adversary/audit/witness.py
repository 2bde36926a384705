"""The log-likelihood ratio of one transcript under two adjacent data sets, against what accountants claim.

    T = ln p_{D'} - ln p_D = sum over noised coordinates of ln P(draw | private part in D') - ln P(draw | ... in D)

T > 0 favours D'.  Under Laplace noise, up to the grid, it is

    T = sum_k [||x̆-x||_1 - ||x̆-x'||_1]/sigma_zeta + [||y̆-y||_1 - ||y̆-y'||_1]/sigma_eta

  |T| above a claimed PURE epsilon refutes that claim by itself, without statistics: no event of positive
probability may be more than e^epsilon times as likely in one world as in the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal

import numpy as np

from dpgt_node import figures
from dpgt_node.adversary.audit.replay import Replay, World, no_noise_shows
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.types import F64
from dpgt_node.values import dataclass

LITTLE = 0.1
"""A pair of data sets, or an audit, that can show less than this part of a claim says nothing about it."""

Verdict = Literal["refuted", "not refuted", "no power", "not tested"]


@dataclass(frozen=True, slots=True, eq=False)
class Ratio:
    """``T`` by coordinate, float64 (d,); ``doubt``: how far its sum may be off (rounding on the wire and here).

    ``reach``: the sum of ||shift||_1/scale (Laplace) along this transcript, by coordinate: |T| is at most that.
    ``foreign``: noised vectors that lie on no grid of the run file's law and scale; ``noised``: all of them.
    """

    T: F64 = field(repr=False)
    doubt: float
    reach: F64 = field(repr=False)
    foreign: int
    noised: int

    @property
    def total(self) -> float:
        """T of the whole transcript."""
        return math.fsum(self.T.tolist())


def log_ratio(replay: Replay, first: World, second: World) -> Ratio:
    """ln p_second - ln p_first of what the agent of ``replay`` released.  Raises Unseen."""
    T: F64 | None = None
    reach: F64 | None = None
    off, foreign, noised, size = 0.0, 0, 0, 0.0
    for one in replay.run((first, second)):
        here, there = (one.draw.log_probability(private) for private in one.private)
        gain, shift = there - here, np.abs(one.private[1] - one.private[0]) / one.draw.scale
        T = gain if T is None else T + gain
        reach = shift if reach is None else reach + shift
        noised += 1
        foreign += one.draw.kind == "foreign"
        size += float(np.abs(here).sum() + np.abs(there).sum())
        if one.draw.kind != "exact":
            off += float(one.draw.doubt(*one.private).sum())
            # Later gradients would be taken at a point that is not quite known.
            if replay.goes_on_from_draws:
                off = math.inf
    if T is None or reach is None:
        raise no_noise_shows()
    return Ratio(T, off + 2.0**-50 * size, reach, foreign, noised)


def log_likelihoods(replay: Replay, worlds: Sequence[World]) -> tuple[F64, int]:
    """ln p by world and coordinate, float64 (worlds, d), and how many vectors were foreign.  Raises Unseen."""
    total: F64 | None = None
    foreign = 0
    for one in replay.run(worlds):
        part = np.stack([one.draw.log_probability(private) for private in one.private])
        total = part if total is None else total + part
        foreign += one.draw.kind == "foreign"
    if total is None:
        raise no_noise_shows()
    return total, foreign


@dataclass(frozen=True, slots=True)
class Claim:
    """One accountant's epsilon for one mechanism, and what was measured against it.

    ``realised``: |T| of a transcript, or a lower bound of epsilon; None where this audit cannot test the claim.
    ``reach``: the most that could have been measured.
    """

    mechanism: str
    accountant: str
    claimed: float
    realised: float | None
    refuted: bool
    verdict: Verdict
    reach: float | None = None
    note: str = ""


def witness(mechanism: str, claimed: Mapping[str, float | None], ratio: Ratio, *, fixed: bool) -> list[Claim]:
    """Every claim against one transcript.  ``fixed``: its sampled batches were given, not averaged over (m < D).

    Then only ``tight`` is at stake, which holds for every sequence of batches; the others may count on not knowing it.
    """
    claims = []
    for accountant, epsilon in claimed.items():
        if epsilon is None:
            continue
        note = ""
        if not ACCOUNTANTS[accountant].pure:
            note = "an (epsilon, delta) claim: one transcript refutes nothing, repeated runs do (--runs)"
        elif fixed and not ACCOUNTANTS[accountant].any_batches:
            note = "the batches are fixed here, and this claim may count on their being secret"
        elif ratio.foreign:
            note = f"{ratio.foreign} of {ratio.noised} vectors lie on no grid of the run file's noise: not its sampler"
        elif math.isinf(ratio.doubt):
            note = "what was sent is rounded and does not tell the noise that the agent goes on from: repeated runs do"
        if note:
            claims.append(Claim(mechanism, accountant, epsilon, None, False, "not tested", note=note))
            continue
        realised, reach = abs(ratio.total), math.fsum(ratio.reach.tolist())
        refuted = realised - ratio.doubt > epsilon
        verdict: Verdict = "refuted" if refuted else "no power" if reach < LITTLE * epsilon else "not refuted"
        if verdict == "no power":
            note = f"this pair of data sets can show {figures.number(reach)} at most: it says nothing about the claim"
        claims.append(Claim(mechanism, accountant, epsilon, realised, refuted, verdict, reach, note))
    return claims
