"""What an agent's releases cost, by every accountant, per round: one object an agent (privacy.md, sections 1 to 4).

The accountants are values in ``privacy.accountants``; here a run file, a graph and a schedule become the numbers they
ask for.  All of them bound the whole transcript {x̆_k, y̆_k} of one agent whose data set changes in one sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import method_of, steps_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.privacy.accountants.lemma5 import shifts_of
from dpgt_node.privacy.accountants.pure import Sensitivity
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.privacy.accountants.releases import Leftover, Releases
from dpgt_node.privacy.accountants.responses.response import Steps
from dpgt_node.privacy.counts.code import COINS
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.privacy.laws.ternary import NAME as TERNARY
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.types import F64, Stream

Costs = dict[str, float | None]


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
        self._schedule, self._agent, self._K = schedule, agent, schedule.K
        self._mechanism = MECHANISMS[run.algorithm.mechanism]
        privacy, (a, b) = run.privacy, steps_of(run, topology, schedule)
        clip: Literal["l1", "l2"] | None = (
            "l1" if privacy.clip_l1 is not None else "l2" if privacy.clip_l2 is not None else None
        )
        sizes, code = _sizes(schedule), method_of(run).coins(run)
        m = (schedule.m if schedule.m is not None else D) if sizes is None else int(sizes[0])

        def share(k: int) -> float:
            """A larger batch is moved less by one of its samples."""
            return schedule.share(k) if sizes is None else float(sizes[0] / sizes[k]) * schedule.share(k)

        self.releases = Releases(
            mechanism=self._mechanism,
            law=LAWS[run.noise.law],
            K=schedule.K,
            a=float(a[agent]),
            b=float(b[agent]),
            gamma=schedule.gamma,
            m=m,
            D=D,
            C=privacy.adjacency,
            C2=2.0 * privacy.clip_l2 if privacy.clip_l2 is not None else privacy.adjacency,
            clip=clip,
            delta=privacy.delta,
            noisy=schedule.noisy and (code is None or code.trials > 0),
            scale=lambda stream, k: schedule.sigma(stream, agent, k),
            leftover=leftover,
            dimension=dimension,
            share=share,
            even=schedule.even and sizes is None,
            rounds=_rounds(run, topology, schedule, agent) if schedule.moving else None,
            sizes=sizes,
            arriving=schedule.arriving,
            range=schedule.range,
            code=code,
        )
        self._curves: dict[str, F64 | None] = {}
        self._whys: dict[str, str | None] = {}
        self._scales: dict[Stream, tuple[int, float]] = {}
        self._all: list[tuple[str, F64 | None]] = []
        """Every curve, once all were asked for."""

    @property
    def agent(self) -> int:
        """Whose it is, 0-based."""
        return self._agent

    @property
    def traits(self) -> tuple[object, ...]:
        """All that its costs depend on, within one run."""
        noise = (self._schedule.zeta, self._schedule.eta)
        scales = (None if one is None else one.values[self._agent] for one in noise)
        return (self.releases.a, self.releases.b, self.releases.D, *scales)

    def share(self, twin: AgentAccount) -> None:
        """Take what ``twin``, of the same run and with equal traits, computes or has computed."""
        self._curves, self._whys, self._all = twin._curves, twin._whys, []

    def scale(self, stream: Stream, k: int) -> float:
        """Noise scale sigma of round k; 0.0 is no noise (also for a stream that is sent as it is)."""
        known = self._scales.get(stream)
        if known is None or known[0] != k:  # what is drawn is asked for, then what is charged for it
            known = self._scales[stream] = (k, self._scale(stream, k))
        return known[1]

    def _scale(self, stream: Stream, k: int) -> float:
        if (code := self.releases.code) is not None:
            return code.scale if stream in self.charged_streams() and self._schedule.release(k) is not None else 0.0
        return self._schedule.sigma(stream, self._agent, k) if stream in self.charged_streams() else 0.0

    @cached_property
    def law(self) -> str:
        """What the noise is, for the ledger."""
        if self.releases.code is not None:
            return COINS
        return self.releases.law.name if self._mechanism.noises else TERNARY

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
        # Where each gradient is perturbed once, the shift is that of a whole C.
        part = self.releases.share(k) if self._mechanism.accounted.once else 1.0
        return float((shifts.x if stream == "X" else shifts.y)[k]) * part

    def least_scale(self, stream: Stream) -> float:
        """The smallest noise scale of a release; 0.0 is no noise."""
        if (code := self.releases.code) is not None:
            return code.scale if stream in self.charged_streams() else 0.0
        return min(self._schedule.scales(stream, self._agent)) if stream in self.charged_streams() else 0.0

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
        if accountant not in self._whys:
            self._whys[accountant] = ACCOUNTANTS[accountant].why_not(self.releases)
        return self._whys[accountant]

    def _costs(self, row: int) -> Costs:
        if not self._all:
            self._all = [(name, self._curve(name)) for name in ACCOUNTANTS]
        if row < 0:
            return {name: None if curve is None else 0.0 for name, curve in self._all}
        return {name: None if curve is None else curve.item(row) for name, curve in self._all}

    def _curve(self, accountant: str) -> F64 | None:
        if accountant not in self._curves:
            self._curves[accountant] = ACCOUNTANTS[accountant].costs(self.releases)
        return self._curves[accountant]

    @cached_property
    def _shifts(self) -> Sensitivity | None:
        r, printed = self.releases, self._mechanism.printed
        constant = r.C2 if r.C is None else r.C
        if constant is None or r.m is None or (printed and r.C is None):
            return None
        return shifts_of(r, constant) if printed else r.response.shifts(constant / r.m)


def _rounds(run: model.RunConfig, topology: Topology, schedule: Schedule, agent: int) -> Steps:
    """a, b and gamma of every round."""
    r, c = method_of(run).couplings(topology)
    rounds, one = range(schedule.K + 1), np.ones(schedule.K + 1)
    a = np.array([schedule.alpha_at(k) for k in rounds]) * r[agent]
    b = np.array([schedule.beta_at(k) for k in rounds]) * c[agent]
    return Steps(a, b, np.array([schedule.gamma_at(k) for k in rounds]), one)


def _sizes(schedule: Schedule) -> F64 | None:
    """m_k, float64 (K+1,); None where it is the same in every round."""
    if schedule.growth is None and not schedule.arriving:
        return None
    return np.array([float(schedule.m_at(k, schedule.K + 1)) for k in range(schedule.K + 1)])


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


def totals(accounts: Sequence[AgentAccount]) -> dict[str, list[float | None]]:
    """Epsilon of the whole run by accountant, one value an agent: what ``check`` prints."""
    return {name: [account.total(name) for account in accounts] for name in ACCOUNTANTS}


def reasons(accounts: Sequence[AgentAccount]) -> dict[str, list[str | None]]:
    """Why an accountant is null, by accountant, one line an agent; None where it has a value."""
    return {name: [account.why_not(name) for account in accounts] for name in ACCOUNTANTS}
