"""What an accountant is: a value that says when it applies, why it does not, and what every row of a ledger costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from dpgt_node.privacy.accountants.pure import Sensitivity
from dpgt_node.privacy.accountants.releases import Releases
from dpgt_node.privacy.accountants.responses.response import Steps
from dpgt_node.privacy.accountants.rounding import never_zero
from dpgt_node.privacy.laws.law import Guarantee
from dpgt_node.privacy.laws.registry import admitting
from dpgt_node.privacy.mechanisms import Accounted, Mechanism
from dpgt_node.types import F64
from dpgt_node.values import dataclass

NOT_KNOWN: Final = "is not known here"
"""In the reason of an accountant that would speak on a machine that has the data."""


def _tight_shifts(accounted: Accounted, a: float, b: float, gamma: float, unit: float, K: int) -> Sensitivity:
    return accounted.response(Steps.constant(a, b, gamma, K)).shifts(unit)


@dataclass(frozen=True, slots=True)
class Accountant:
    """``name``: the word of run files, ledgers and reports.  ``label``: in full, "(epsilon, delta)" where a delta goes.

    ``sound``: a proof stands behind it; else it is conditional, and ``title`` names whose claim it is.
    ``guarantee``: what the noise law must give; all but "epsilon" need a delta.
    ``covers``: mechanisms it speaks of; ``not_covered``: what is said of another one, ``{mechanism}`` in it.
    ``curve``: cumulative cost after every row of the ledger, float64 (2(K+1),), x̆_k before y̆_k, nondecreasing, an upper
    bound; called with noise on only.
    ``goal(epsilon, delta)``: how much shift in scales may add up, in L1 for a pure one, else in L2;
    ``shifts``: what moves, to first order, for a forecast.  ``epsilon_of(measured, delta)``:
    epsilon of a measured epsilon, rho or mu, by its guarantee.
    ``amounts(epsilon, delta)``: what a run of this cost has used up at most, by guarantee: epsilon, rho or mu^2, which
    add over runs, its own guarantee among them.  ``measured(amount)``: the epsilon, rho or mu of such a sum.
    ``clip_l1``: why nothing but clip_l1 will do, empty where C may be declared.  ``contracts``: needs a, b in [0, 1).
    ``also``: one more reason against it.  ``any_batches``: holds whatever batches are drawn, also if they are known.
    ``remark``: what a plan adds to its name.  ``aside``: pages leave it out where it has no value.
    """

    name: str
    label: str
    guarantee: Guarantee
    covers: Callable[[Mechanism], bool]
    not_covered: str
    curve: Callable[[Releases], F64]
    goal: Callable[[float, float], float] = lambda epsilon, delta: epsilon
    epsilon_of: Callable[[float, float], float] = lambda measured, delta: measured
    amounts: Callable[[float, float], Mapping[Guarantee, float]] = lambda epsilon, delta: {"epsilon": epsilon}
    measured: Callable[[float], float] = lambda amount: amount
    shifts: Callable[[Accounted, float, float, float, float, int], Sensitivity] = _tight_shifts
    sound: bool = True
    title: str = ""
    contracts: bool = True
    clip_l1: str = ""
    also: Callable[[Releases], str | None] = lambda releases: None
    any_batches: bool = False
    remark: str = ""
    aside: bool = False

    @property
    def pure(self) -> bool:
        """Whether epsilon comes without a delta."""
        return self.guarantee == "epsilon"

    @property
    def in_l1(self) -> bool:
        """Whether shifts count in L1."""
        return self.guarantee in ("epsilon", "total-variation")

    def why_not(self, r: Releases) -> str | None:
        """Why it says nothing about these releases, in one line; None where it has a value."""
        if r.mechanism.accounted.noise_on == "coins" and self.guarantee != "approximate":
            return "the noise is a count of coins, and no law of the run file (see binomial)"
        if r.mechanism.accounted.noise_on == "nothing" and self.guarantee != "total-variation":
            return "no noise is drawn: a random quantiser alone gives no epsilon, only a delta (see variation)"
        if not self.covers(r.mechanism):
            return self.not_covered.format(mechanism=r.mechanism.name)
        if self.guarantee not in r.law.admits and r.mechanism.noises:
            laws = " or ".join(law.label for law in admitting(self.guarantee))
            return f"{'pure epsilon ' if self.pure else ''}needs {laws} noise; the law is {r.law.name}"
        if (r.C if self.in_l1 else r.C2) is None:
            if r.clip == "l2":
                return "clip_l2 bounds no L1 norm: set clip_l1, or C"
            return "no adjacency constant: set clip_l1" + ("" if self.in_l1 else ", clip_l2") + ", or C"
        if r.m is None:
            return f'samples = "full", and D {NOT_KNOWN}'
        # Where each gradient is perturbed once, its kernel holds neither a nor b.
        if self.contracts and not r.mechanism.accounted.once and not r.steps.contract:
            return "needs a_i and b_i in [0, 1)"
        if self.clip_l1 and r.clip != "l1":
            return self.clip_l1
        return self.also(r)

    def costs(self, r: Releases) -> F64 | None:
        """Cumulative cost after every row, as ``curve``; infinite without noise, None where it says nothing."""
        if self.why_not(r) is not None:
            return None
        if r.noisy:
            curve = self.curve(r)
            # With a delta it may be 0; what it comes from is kept above 0 where it is computed.
            return never_zero(curve, after=1) if self.pure else curve
        endless = np.full(2 * (r.K + 1), math.inf)
        endless[0] = 0.0  # x̆_0 depends on no data
        return endless


def at_a_public_point(mechanism: Mechanism) -> bool:
    """The mechanisms that every rigorous accountant but ``corrected`` speaks of."""
    return mechanism.accounted.public_point


PUBLIC_POINT = "the gradient must be taken at a released point; under mechanism {mechanism} it is not (see corrected)"
"""What those accountants say of another mechanism."""
