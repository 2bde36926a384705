"""What an agent's releases cost, by every accountant, per round: one object an agent (privacy.md, sections 1 to 4).

The formulas and their proofs are in ``accountants``; here it is decided which of them applies to a run, with which
constants, and why another does not.  All six bound the whole transcript {x̆_k, y̆_k} of one agent whose data set changes
in one sample; ``lemma5`` is the paper's and CONDITIONAL: for k >= 1 the private x_k of two adjacent data sets differ,
so all m sampled gradients differ, not one, and Lemma 4 drops that term.

    lemma5     pure; mechanisms paper and published-point
    corrected  pure; mechanism paper
    tight      pure; published-point, public-state, noise-once
    amplified  pure; the same, sampled batches of clipped gradients
    zcdp       (epsilon, delta); the same, also for clip_l2 and for Gaussian noise
    gdp        (epsilon, delta); the same, Gaussian noise
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.privacy.accountants import concentrated, gaussian, pure
from dpgt_node.privacy.accountants.kernels import Kernel
from dpgt_node.privacy.accountants.pure import Sensitivity, lemma4, lemma5
from dpgt_node.privacy.accountants.rounding import PrivateState, inflated, private_state, within
from dpgt_node.privacy.mechanisms import MECHANISMS, Accounted, Mechanism
from dpgt_node.types import F64, Stream

__all__ = [
    "ACCOUNTANTS",
    "LEMMA5_LABEL",
    "AgentAccount",
    "Costs",
    "Sensitivity",
    "agent_accounts",
    "epsilon_table",
    "lemma4",
    "lemma5",
    "reasons",
    "totals",
    "within",
]

Costs = dict[str, float | None]
Leftover = Callable[[float, float | None], float]

ACCOUNTANTS: Final = ("lemma5", "corrected", "tight", "amplified", "zcdp", "gdp")
LEMMA5_LABEL: Final = "Lemma 5 (paper; conditional)"


class AgentAccount:
    """Costs of one agent's releases in one run; an accountant is computed when first asked for, then O(1) a query.

    ``agent``: 0-based.  ``D``: its number of samples, None where unknown.  ``leftover(scale, norm)``: what the sampler
    adds to every release whatever the shift (``Sampler.lam`` of d; ``norm`` bounds the L1 norm of the private part,
    None where nothing does): epsilon of the whole vector under Laplace noise, an L2 shift in scales under Gaussian
    noise.  ``dimension``: d, which spreads the former over the coordinates in ``zcdp``.

    Values are upper bounds in float64.  None where an accountant says nothing (``why_not`` gives the reason), infinite
    when the noise is off.
    """

    def __init__(
        self,
        run: model.RunConfig,
        topology: Topology,
        schedule: Schedule,
        agent: int,
        D: int | None,
        *,
        dimension: int | None = None,
        leftover: Leftover | None = None,
    ) -> None:
        self._run, self._schedule, self._agent, self._K = run, schedule, agent, schedule.K
        self._a = float(schedule.alpha * topology.r[agent])
        self._b = float(schedule.beta * topology.c[agent])
        self._m = schedule.m if schedule.m is not None else D
        self._D, self._dimension, self._leftover = D, dimension, leftover
        privacy = run.privacy
        self._C = privacy.adjacency
        self._C2 = 2.0 * privacy.clip_l2 if privacy.clip_l2 is not None else self._C
        self._mechanism = MECHANISMS[run.algorithm.mechanism]
        self._curves: dict[str, F64 | None] = {}

    @property
    def traits(self) -> tuple[object, ...]:
        """All that its costs depend on, within one run."""
        noise = (self._schedule.zeta, self._schedule.eta)
        return (self._a, self._b, self._D, *(None if one is None else one.values[self._agent] for one in noise))

    def share(self, twin: AgentAccount) -> None:
        """Take what ``twin``, of the same run and with equal traits, computes or has computed."""
        self._curves = twin._curves

    def scale(self, stream: Stream, k: int) -> float:
        """Noise scale sigma of round k; 0.0 is no noise (also for a stream that is sent as it is)."""
        return self._schedule.sigma(stream, self._agent, k) if stream in self.charged_streams() else 0.0

    def charged_streams(self) -> tuple[Stream, ...]:
        """Streams whose releases cost: x̆ then y̆, or y̆ alone where x is post-processing."""
        return self._mechanism.charged

    def sensitivity(self, stream: Stream, k: int) -> float | None:
        """Shift of what is noised in round k, C as configured: L1, or L2 under clip_l2; None where C is unknown.

        Lemma 4's for ``paper``; for the others the largest with the transcript fixed.  0.0 for a stream without noise.
        """
        shifts = self._shifts
        if shifts is None:
            return None
        return float((shifts.x if stream == "X" else shifts.y)[k])

    def cost_after(self, k: int, stream: Stream) -> Costs:
        """Cumulative cost after that row of the ledger; in every round x̆ is charged before y̆."""
        return self._costs(2 * k if stream == "X" else 2 * k + 1)

    def epsilon_after(self, k: int) -> Costs:
        """Cumulative cost after both rows of round k; k = -1 is before the first release."""
        return self._costs(2 * k + 1)

    def cost(self, accountant: str, k: int) -> float | None:
        """Cumulative cost under one accountant after round k (-1: none); computes no other accountant."""
        curve = self._curve(accountant)
        return None if curve is None else float(curve[2 * k + 1]) if k >= 0 else 0.0

    def total(self, accountant: str) -> float | None:
        """Cost of the whole run under one accountant."""
        return self.cost(accountant, self._K)

    def why_not(self, accountant: str) -> str | None:
        """Why the accountant is null here, in one line; None where it has a value."""
        assert accountant in ACCOUNTANTS
        return self._condition(accountant)

    # ---------------------------------------------------------------- which accountant applies
    def _condition(self, accountant: str) -> str | None:
        privacy, law, mechanism = self._run.privacy, self._run.noise.law, self._mechanism
        pure_one = accountant in ("lemma5", "corrected", "tight", "amplified")
        if not covers(accountant, mechanism):
            return _WRONG_MECHANISM[accountant].format(mechanism=mechanism.name)
        if pure_one and law != "laplace":
            return f"pure epsilon needs Laplace noise; the law is {law}"
        if accountant == "gdp" and law != "gaussian":
            return f"needs Gaussian noise; the law is {law}"
        if (self._C if pure_one else self._C2) is None:
            if privacy.clip_l2 is not None:
                return "clip_l2 bounds no L1 norm: set clip_l1, or C"
            return "no adjacency constant: set clip_l1" + ("" if pure_one else ", clip_l2") + ", or C"
        if self._m is None:
            return 'samples = "full", and D is not known here'
        if accountant != "lemma5" and not (0.0 <= self._a < 1.0 and 0.0 <= self._b < 1.0):
            return "needs a_i and b_i in [0, 1)"
        if accountant == "corrected" and privacy.clip_l1 is None:
            return "needs clip_l1: without it nothing bounds how far x_k moves the gradients"
        if accountant == "amplified":
            return self._no_amplification()
        return None

    def _no_amplification(self) -> str | None:
        assert self._m is not None
        if self._run.privacy.clip_l1 is None:
            return "C is declared, not enforced: amplification by sampling needs clip_l1"
        if self._D is None:
            return "D is not known here, so the sampling rate m/D is not either"
        return f"m = {self._m} exceeds D = {self._D}" if self._m > self._D else None

    # ---------------------------------------------------------------- values
    def _costs(self, row: int) -> Costs:
        costs: Costs = {}
        for name in ACCOUNTANTS:
            curve = self._curve(name)
            costs[name] = None if curve is None else float(curve[row]) if row >= 0 else 0.0
        return costs

    def _curve(self, accountant: str) -> F64 | None:
        if accountant not in self._curves:
            known = self._condition(accountant) is None
            self._curves[accountant] = self._compute(accountant) if known else None
        return self._curves[accountant]

    def _compute(self, accountant: str) -> F64:
        assert self._m is not None
        sigma_x, sigma_y = self._noise
        if not self._schedule.noisy:
            curve = np.full(2 * (self._K + 1), math.inf)
            curve[0] = 0.0  # x̆_0 depends on no data
            return curve
        if accountant == "zcdp":
            return concentrated.zcdp(self._shift_norms, self._run.privacy.delta)
        if accountant == "gdp":
            return gaussian.gdp(self._shift_norms, self._run.privacy.delta)
        assert self._C is not None
        if accountant == "lemma5":
            return lemma5(self._lemma4(self._C), sigma_x, sigma_y)
        left = [self._leftover_of(stream, 1.0) for stream in _STREAMS]
        if accountant == "corrected":
            C = inflated(self._C, self._m)
            shifts = pure.corrected_shifts(a=self._a, b=self._b, gamma=self._schedule.gamma, m=self._m, C=C, K=self._K)
            return pure.corrected(shifts, sigma_x, sigma_y, left[0], left[1])
        unit = inflated(self._C, self._m) / self._m
        tight = pure.tight(self._kernel, unit, sigma_x, sigma_y, left[0], left[1])
        if accountant == "tight":
            return tight
        assert self._D is not None
        w = pure.participation_weights(self._kernel, unit, sigma_x, sigma_y, left[0], left[1])
        ahead = pure.amplified(w, self._m / self._D)
        rows = np.concatenate((np.zeros(1), np.repeat(ahead, 2)[:-1]))  # row 2k holds the batches before k
        # ``tight`` charges only what was released so far; both bound every prefix.
        return np.minimum(rows, tight)

    @cached_property
    def _shift_norms(self) -> F64:
        """L2 shift of the transcript in scales after every row, (2(K+1),)."""
        assert self._C2 is not None and self._m is not None
        # Laplace: the sampler's leftover is spread evenly over d coordinates, each of them concentrated by itself.
        spread = math.sqrt(self._dimension or 1) if self._run.noise.law == "laplace" else 1.0
        left = np.empty(2 * (self._K + 1))
        left[0::2], left[1::2] = (self._leftover_of(stream, spread) for stream in _STREAMS)
        energy = _energy(
            self._mechanism.accounted,
            self._a,
            self._b,
            self._schedule.gamma,
            *(sigma.tobytes() for sigma in self._noise),
        )
        return concentrated.shift_norm(energy, inflated(self._C2, self._m) / self._m, left)

    def _leftover_of(self, stream: Stream, spread: float) -> F64:
        """What a row costs beside its exact shift, (K+1,): the sampler's part over ``spread``, and rounding."""
        first = stream == "X"
        sigma = self._noise[0 if first else 1]
        left = np.zeros(self._K + 1)
        if stream not in self.charged_streams() or not (sigma > 0.0).all():
            return left  # nothing is drawn, or everything is infinite anyway
        state = self._private_state
        if state is not None:
            left += (state.error_x if first else state.error_y) / sigma
        if self._leftover is not None:
            norm = None if state is None else float((state.norm_x if first else state.norm_y).max())
            if norm is not None and self._run.privacy.clip_l2 is not None:
                norm *= math.sqrt(self._dimension or math.inf)
            scales, where = np.unique(sigma, return_inverse=True)
            left += np.array([self._leftover(float(scale), norm) for scale in scales])[where] / spread
        if first:
            left[0] = 0.0  # the same bits in both worlds
        return left

    @cached_property
    def _private_state(self) -> PrivateState | None:
        if self._C2 is None or not self._run.privacy.enforced:
            return None
        once = self._mechanism.accounted.once
        return private_state(
            keep_a=1.0 - self._a,
            keep_b=0.0 if once else 1.0 - self._b,
            gamma_K=0.0 if once else self._schedule.gamma,
            C=self._C2,
            K=self._K,
        )

    @cached_property
    def _shifts(self) -> Sensitivity | None:
        printed = self._mechanism.printed
        constant = self._C2 if self._C is None else self._C
        if constant is None or self._m is None or (printed and self._C is None):
            return None
        if printed:
            return self._lemma4(constant)
        return pure.tight_shifts(self._kernel, constant / self._m)

    @cached_property
    def _kernel(self) -> Kernel:
        return self._mechanism.accounted.kernel(self._a, self._b, self._schedule.gamma, self._K)

    @cached_property
    def _noise(self) -> tuple[F64, F64]:
        rounds = range(self._K + 1)
        x, y = (np.array([self._schedule.sigma(s, self._agent, k) for k in rounds]) for s in _STREAMS)
        return x, y

    def _lemma4(self, C: float) -> Sensitivity:
        assert self._m is not None
        return lemma4(a=self._a, b=self._b, gamma=self._schedule.gamma, m=self._m, C=C, K=self._K)


def agent_accounts(
    run: model.RunConfig,
    topology: Topology,
    schedule: Schedule,
    D: Sequence[int | None],
    *,
    dimension: int | None = None,
    leftover: Leftover | None = None,
) -> tuple[AgentAccount, ...]:
    """One :class:`AgentAccount` an agent; ``D[i]``: samples of agent i.  Agents alike in everything share the work."""
    accounts = tuple(
        AgentAccount(run, topology, schedule, i, D[i], dimension=dimension, leftover=leftover)
        for i in range(topology.n)
    )
    first: dict[tuple[object, ...], AgentAccount] = {}
    for account in accounts:
        account.share(first.setdefault(account.traits, account))
    return accounts


def epsilon_table(
    run: model.RunConfig, topology: Topology, schedule: Schedule, D: Sequence[int | None]
) -> dict[str, list[float | None]]:
    """Epsilon of the whole run by accountant, one value an agent."""
    return totals(agent_accounts(run, topology, schedule, D))


def totals(accounts: Sequence[AgentAccount]) -> dict[str, list[float | None]]:
    """Epsilon of the whole run by accountant, one value an agent: what ``check`` prints."""
    return {name: [account.total(name) for account in accounts] for name in ACCOUNTANTS}


def reasons(accounts: Sequence[AgentAccount]) -> dict[str, list[str | None]]:
    """Why an accountant is null, by accountant, one line an agent; None where it has a value."""
    return {name: [account.why_not(name) for account in accounts] for name in ACCOUNTANTS}


def covers(accountant: str, mechanism: Mechanism) -> bool:
    """Whether the accountant says something about releases of this mechanism."""
    if accountant == "lemma5":
        return not mechanism.x_public
    return mechanism.printed if accountant == "corrected" else mechanism.accounted.public_point


@lru_cache(maxsize=32)
def _energy(accounted: Accounted, a: float, b: float, gamma: float, sigma_x: bytes, sigma_y: bytes) -> F64:
    """The one costly curve, O(K^2); agents with equal weights and scales share it."""
    x, y = np.frombuffer(sigma_x), np.frombuffer(sigma_y)
    return concentrated.energy(accounted.kernel(a, b, gamma, len(x) - 1), x, y)


_STREAMS: Final[tuple[Stream, Stream]] = ("X", "Y")
_WRONG_MECHANISM: Final = {
    "lemma5": "describes the releases of paper and published-point only; the mechanism is {mechanism}",
    "corrected": "is for mechanism paper; tight is sound and smaller for {mechanism}",
} | dict.fromkeys(
    ("tight", "amplified", "zcdp", "gdp"),
    "the gradient must be taken at a released point; under mechanism {mechanism} it is not (see corrected)",
)
