"""Which mechanism, law and noise meet a stated epsilon: the part of ``dpgt plan`` that decides on privacy alone.

``route`` picks mechanism, law and accountant; ``calibrate`` finds the smallest constant noise scales at which no
agent's account exceeds epsilon, by asking the accounts themselves: what is promised is what ``check``, the ledger and
the policy will read, rounded as they round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dpgt_node import figures
from dpgt_node.accounts.account import AgentAccount
from dpgt_node.accounts.towards import sharing
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.errors import ConfigError, Problem
from dpgt_node.privacy.accountants.accountant import Accountant
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, PLANNED, PURE, SOUND
from dpgt_node.privacy.laws.law import Law
from dpgt_node.privacy.laws.registry import admitting
from dpgt_node.privacy.mechanisms import MECHANISMS, NOISE_ONCE, TRACKING, Accounted
from dpgt_node.types import F64, NoiseLaw
from dpgt_node.values import dataclass

Accounts = Callable[[model.RunConfig], Sequence[AgentAccount]]
"""A run's accounts, one an agent, with what the sampler and the model add: ``agent.noise.account_for``."""

TOLERANCE: Final = 1e-9
"""How far below the promised epsilon an agent may stay, relative."""

_SMALLEST_SCALE, _LARGEST_SCALE = 1e-280, 1e280
_EVALUATIONS = 200


@dataclass(frozen=True, slots=True)
class Target:
    """What the user asks for; None leaves the choice to the planner.  ``delta`` 0: a pure guarantee.

    ``towards``: epsilon counts towards so many of the other agents together, None: towards all of them.  ``source``
    names where the options came from in messages.
    """

    epsilon: float
    delta: float | None = None
    accountant: str | None = None
    mechanism: str | None = None
    source: str = "command line"
    towards: int | None = None

    def colluding(self, n: int) -> int:
        """How many of the others of ``n`` agents may work together."""
        return n - 1 if self.towards is None else self.towards

    def shares(self, n: int) -> bool:
        """Whether noise that pairs of ``n`` agents share may count."""
        return self.colluding(n) < n - 1

    def problems(self, n: int) -> Iterator[Problem]:
        """Every part of it that no run of ``n`` agents could meet."""
        if not (math.isfinite(self.epsilon) and self.epsilon > 0.0):
            yield self._problem("epsilon", f"must be a finite number > 0, not {self.epsilon!r}")
        if self.delta is not None and not 0.0 <= self.delta < 1.0:
            yield self._problem("delta", f"must be at least 0 (a pure guarantee) and below 1, not {self.delta!r}")
        if self.accountant is not None and self.accountant not in PLANNED:
            known = self.accountant in ACCOUNTANTS
            other = f"; {self.accountant} says nothing about mechanisms of Algorithm 1" if known else ""
            yield self._problem("accountant", f"must be one of {', '.join(PLANNED)}{other}")
        mechanisms = sorted(one.name for one in TRACKING)
        if self.mechanism is not None and self.mechanism not in mechanisms:
            yield self._problem("mechanism", f"must be one of {', '.join(mechanisms)}")
        if not 0 <= self.colluding(n) <= n - 1:
            yield self._problem("towards", f"must be 0 (an eavesdropper) to {n - 1} (all others), not {self.towards}")

    def _problem(self, option: str, message: str) -> Problem:
        return Problem(self.source, f"--{option}", message)


@dataclass(frozen=True, slots=True)
class Route:
    """The frame of a plan.  ``delta``: of the guarantee, 0 when it is pure.  ``reasons``: one sentence a decision."""

    mechanism: str
    law: NoiseLaw
    accountant: str
    delta: float
    reasons: tuple[str, ...]

    @property
    def pure(self) -> bool:
        """Whether epsilon comes without a delta."""
        return ACCOUNTANTS[self.accountant].pure

    @property
    def accounted(self) -> Accounted:
        """What the accountants see of the mechanism."""
        return MECHANISMS[self.mechanism].accounted

    @property
    def both_streams(self) -> bool:
        """Whether x̆ is noised as well as y̆."""
        return not self.accounted.x_public

    def apply(self, run: model.RunConfig) -> model.RunConfig:
        """``run`` with this mechanism, law and delta, every agent's whole data set a round; noise still to be set."""
        # A pure guarantee needs no delta; the run file's own is left for the accountants that want one.
        privacy = run.privacy if self.delta == 0.0 else replace(run.privacy, delta=self.delta)
        return replace(
            run,
            algorithm=replace(run.algorithm, mechanism=self.mechanism),
            noise=replace(run.noise, law=self.law, multiplier=1.0),
            privacy=privacy,
        )


def route(run: model.RunConfig, target: Target) -> Route:
    """Mechanism, law and accountant for ``target``.  ConfigError when there are none, with what to change."""
    _check(run, target)
    delta = run.privacy.delta if target.delta is None else target.delta
    chosen = _accountant(run, target.mechanism, delta) if target.accountant is None else ACCOUNTANTS[target.accountant]
    accountant, pure = chosen.name, chosen.pure
    if pure:
        delta = 0.0
    elif delta == 0.0:
        alternatives = " or ".join(name for name in PURE if _shared(ACCOUNTANTS[name], chosen))
        raise ConfigError.one(
            target.source, "--delta", f"0 is a pure guarantee, but {accountant} needs a delta: take {alternatives}"
        )
    allowed = allowed_by(chosen)
    mechanism = target.mechanism or allowed[0]
    if mechanism not in allowed:
        fitting = [one.name for one in ACCOUNTANTS.values() if one.covers(MECHANISMS[mechanism])]
        raise ConfigError.one(
            target.source,
            "--mechanism",
            f"{accountant} says nothing about {mechanism}; it covers {', '.join(allowed)}, "
            f"and {mechanism} has {', '.join(fitting)}",
        )
    if target.shares(run.n) and not MECHANISMS[mechanism].accounted.once:
        raise ConfigError.one(
            target.source,
            "--towards",
            f"noise of {mechanism} is never shared, so its epsilon counts towards all others: leave --towards out, or "
            f"take the mechanism {NOISE_ONCE.name}",
        )
    if chosen.clip_l1 and run.privacy.clip_l1 is None:
        easier = [name for name in PURE if _shared(ACCOUNTANTS[name], chosen) and not ACCOUNTANTS[name].clip_l1]
        but = f" ({' or '.join(easier)} accepts it)" if easier else ""
        raise ConfigError.one("run file", "privacy", f"{accountant} needs clip_l1: C is declared, not enforced{but}")
    law = admitting(chosen.guarantee)[-1]
    reasons = (
        _why_mechanism(mechanism, asked=target.mechanism is not None),
        _why_law(chosen, law, delta),
        why_adjacency(run, pure),
    )
    return Route(mechanism, law.name, accountant, delta, reasons)


def allowed_by(accountant: Accountant) -> tuple[str, ...]:
    """Mechanisms the accountant covers: the paper's own first where it does, else the one with the least noise."""
    covered = [one for one in TRACKING if accountant.covers(one)]
    return tuple(one.name for one in (covered if covered[0].printed else reversed(covered)))


def calibrate(
    run: model.RunConfig,
    accountant: str,
    epsilon: float,
    accounts: Accounts,
    *,
    ratio: float | None = None,
    tolerance: float = TOLERANCE,
    colluding: int | None = None,
) -> model.RunConfig:
    """``run`` with the least constant noise at which every agent's ``accountant`` reads at most ``epsilon``.

    Each agent gets its own scale: it reads at least ``epsilon`` (1 - ``tolerance``).  Where pairs share noise all get
    the same one, and the agent that it costs most reads so much.  ``ratio``: scale_zeta as a multiple of scale_eta,
    None where x̆ is not noised.  ``colluding``: what is read is epsilon towards so many others, None: all.
    ConfigError when the accountant has no value here, or no scale is enough.
    """
    n = run.n
    low, high = np.full(n, _SMALLEST_SCALE), np.full(n, _LARGEST_SCALE)
    at_low, at_high = np.full(n, math.inf), np.full(n, -math.inf)
    scale = np.ones(n)
    for _ in range(_EVALUATIONS):
        cost = _costs(_with_scales(run, scale, ratio), accountant, accounts, colluding)
        fits = cost <= epsilon
        high, at_high = np.where(fits, scale, high), np.where(fits, cost, at_high)
        low, at_low = np.where(fits, low, scale), np.where(fits, at_low, cost)
        done = (at_high >= epsilon * (1.0 - tolerance)) | (high <= low * (1.0 + 4.0 * np.finfo(float).eps))
        if done.all():
            break
        scale = np.where(done, high, _guess(low, high, at_low, at_high, epsilon, tolerance))
    if (high == _LARGEST_SCALE).any():
        raise _unreachable(run, accountant, epsilon, accounts, ratio, colluding)
    return _with_scales(run, high, ratio)


def _guess(low: F64, high: F64, at_low: F64, at_high: F64, epsilon: float, tolerance: float) -> F64:
    """The next scale an agent: where the straight line through the logarithms meets epsilon, else the middle."""
    goal = math.log(epsilon) + math.log1p(-0.5 * tolerance)
    with np.errstate(all="ignore"):
        upper, lower = np.log(at_low), np.log(at_high)
        span = np.log(high / low)
        part = (upper - goal) / (upper - lower)
        # One side only is known: cost falls about as 1/scale.
        from_low = low * np.exp(np.minimum(upper - goal, 60.0)) * 1.01
        from_high = high * np.exp(np.maximum(lower - goal, -60.0)) / 1.01
        line = low * np.exp(span * part)
    middle = np.sqrt(low) * np.sqrt(high)
    guess = np.where(np.isfinite(at_low) & np.isfinite(lower), line, middle)
    guess = np.where(np.isfinite(at_low) & (at_high == -math.inf), from_low, guess)
    guess = np.where(np.isinf(at_low) & np.isfinite(lower), from_high, guess)
    # A line that only ever replaces one end would crawl; a bracket that is still wide is halved now and then.
    stuck = (span > 1e-3) & ((part < 0.02) | (part > 0.98))
    guess = np.where(stuck & np.isfinite(at_low) & np.isfinite(lower), middle, guess)
    return np.where((guess > low) & (guess < high), guess, middle)


def _with_scales(run: model.RunConfig, eta: F64, ratio: float | None) -> model.RunConfig:
    values = tuple(eta.tolist())
    zeta = None if ratio is None else model.NoiseStream("constant", tuple((eta * ratio).tolist()))
    return replace(run, noise=replace(run.noise, zeta=zeta, eta=model.NoiseStream("constant", values), multiplier=1.0))


def _costs(run: model.RunConfig, accountant: str, accounts: Accounts, colluding: int | None) -> F64:
    costs, shared = np.empty(run.n), sharing(run)
    for i, account in enumerate(accounts(run)):
        total = account.total(accountant)
        if total is None:
            reason = account.why_not(accountant) or "no value"
            raise ConfigError.one("run file", "", f"{accountant} gives {run.graph.agents[i]} no guarantee: {reason}")
        if shared is not None and colluding is not None:
            total = shared[i].towards(accountant, total, run.privacy.delta, colluding)
        costs[i] = total
    return costs if shared is None else np.full(run.n, costs.max())


def _unreachable(
    run: model.RunConfig,
    accountant: str,
    epsilon: float,
    accounts: Accounts,
    ratio: float | None,
    colluding: int | None,
) -> ConfigError:
    """No noise is enough: say what the largest noise gives."""
    largest = _with_scales(run, np.full(run.n, _LARGEST_SCALE), ratio)
    floor = figures.epsilon(float(_costs(largest, accountant, accounts, colluding).max()))
    releases = len(Schedule.from_config(run).releases)
    return ConfigError.one(
        "command line",
        "--epsilon",
        f"{epsilon:g} is out of reach with K = {run.K}: what the sampler's own rounding adds to {releases} releases "
        f"is {floor} already, whatever the noise; the nearest possible is above {floor}",
    )


def _check(run: model.RunConfig, target: Target) -> None:
    if problems := tuple(target.problems(run.n)):
        raise ConfigError(problems)
    privacy = run.privacy
    if privacy.adjacency is None and not privacy.enforced:
        raise ConfigError.one(
            "run file",
            "privacy",
            "no clip: without a bound on one sample's gradient no noise gives an epsilon. Set clip_l2 (for "
            "(epsilon, delta)) or clip_l1 (for pure epsilon); for softmax the gradient's L2 norm is at most sqrt(2) "
            "||(phi, bias)||_2, its L1 norm at most 2 ||(phi, bias)||_1, and smaller clips work",
        )


def _shared(one: Accountant, other: Accountant) -> bool:
    """Whether both speak of the same mechanisms."""
    return allowed_by(one) == allowed_by(other)


def _accountant(run: model.RunConfig, mechanism: str | None, delta: float) -> Accountant:
    """The tightest sound one: with a delta where one may be spent, else of pure epsilon."""
    planned = TRACKING[-1] if mechanism is None else MECHANISMS[mechanism]
    speaking = [ACCOUNTANTS[name] for name in SOUND if ACCOUNTANTS[name].covers(planned)]
    if len(speaking) == 1:
        return speaking[0]
    if delta > 0.0:
        return [one for one in speaking if not one.pure][-1]
    if run.privacy.clip_l2 is not None:
        raise ConfigError.one(
            "run file",
            "privacy.clip_l2",
            "a pure guarantee (delta = 0) needs an L1 bound: set clip_l1 instead, or allow a delta (--delta 1e-5)",
        )
    # At m = D, which a plan always takes, amplification changes no value; only clipping makes it sound.
    return [one for one in speaking if one.pure and (run.privacy.clip_l1 is not None or not one.clip_l1)][-1]


def _why_mechanism(mechanism: str, *, asked: bool) -> str:
    if asked:
        return f"{mechanism}: as asked for"
    if MECHANISMS[mechanism].printed:
        return f"{mechanism}: the only mechanism this accountant speaks of"
    return f"{mechanism}: {MECHANISMS[mechanism].advantage}"


def _why_law(accountant: Accountant, law: Law, delta: float) -> str:
    if not accountant.sound:
        return f"{law.name} noise, accountant {accountant.label}: as asked for; it is no proof"
    if not accountant.pure:
        remark = f" ({accountant.remark})" if accountant.remark else ""
        name = f"{accountant.name}{remark}"
        return f"{law.name} noise, accountant {name}: delta = {delta:g} allows L2 shifts, without a sqrt(d)"
    return f"{law.name} noise, accountant {accountant.name}: pure epsilon, no delta"


def why_adjacency(run: model.RunConfig, pure: bool) -> str:
    """Adjacency and what stands behind it, in one line."""
    privacy = run.privacy
    if privacy.clip_l2 is not None:
        return f"adjacency: one sample replaced, gradients within clip_l2 = {privacy.clip_l2:g}, enforced"
    if privacy.clip_l1 is not None:
        note = "" if pure else "; clip_l2 would be the sharper clip for Gaussian noise"
        return f"adjacency: one sample replaced, gradients within clip_l1 = {privacy.clip_l1:g}, enforced{note}"
    return f"adjacency: one sample replaced, C = {privacy.adjacency:g}: DECLARED, NOT ENFORCED"
