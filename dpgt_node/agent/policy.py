"""The data owner's limits ([policy] in NODE.toml), judged by the owner's own agent before it releases anything.

Epsilons add over the runs of a data set, and so do deltas, whichever accountant each run is counted by: basic
composition.  The values of one run are those of its ledger, so a run that was stopped counts with what it released.
Under a pure accountant that holds whatever made it stop; under zcdp and gdp it holds for stops that do not look at
the released values (an operator's stop, a crash, a cap).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpgt_node.accounts.account import AgentAccount
from dpgt_node.config.model import RunConfig
from dpgt_node.config.node_model import Policy
from dpgt_node.privacy.accountants.registry import APPROXIMATE, PURE, SOUND
from dpgt_node.privacy.accountants.rounding import within

STUDY = 'metrics = "study" gives the coordinator x_final and training metrics, which no epsilon covers'


@dataclass(frozen=True, slots=True)
class Spent:
    """What another run on the same data set has cost: ``epsilon`` by accountant; ``delta`` of zcdp and gdp.

    ``run``: its name in messages.  ``declared``: its C was declared, not enforced.
    """

    run: str
    epsilon: Mapping[str, float | None]
    delta: float
    declared: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """What several runs cost together; ``unbounded``: the first that has no finite epsilon, and epsilon is infinite."""

    epsilon: float
    delta: Fraction
    unbounded: str | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a policy says to a run.

    ``problems``: what in the run contradicts the policy, whatever it costs.

    ``budget_through``: the last round that the budget covers, -1 for none; None without a cap.  ``shortfall``: why it
    does not cover the whole run; None when it does.  ``accountant``: whose epsilon is capped.  ``warnings``: what the
    owner should know of a run that is allowed.
    """

    problems: tuple[str, ...]
    budget_through: int | None
    shortfall: str | None
    accountant: str | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Option:
    """One way to add up: this run by ``accountant``, every other one by one that has a value."""

    accountant: str
    past: Tally
    delta: Fraction
    predicted: float
    through: int


def judge(
    policy: Policy, run: RunConfig, account: AgentAccount, spent: Sequence[Spent], *, samples: int | None
) -> Verdict:
    """Judge ``run`` for the agent of ``account`` (``samples``: its D) after ``spent``, all other runs on the data set.

    A named accountant counts every run that it has a value for, the others by their smallest sound value.
    Without a name the one that covers most rounds is taken, the smallest total among those.
    """
    problems = [*_mechanism(policy, run), *_noise(policy, account, run.K), *study_problem(policy, run)]
    warnings = [STUDY] if run.evaluate.metrics == "study" else []
    if policy.epsilon_max is None and policy.delta_max is None:
        without = f"; accountant = {policy.accountant} has no effect" if policy.accountant else ""
        warnings.append(f"no [policy] epsilon_max: nothing caps what this agent releases{without}")
        return Verdict(tuple(problems), None, None, None, tuple(warnings))
    if policy.epsilon_max is None:
        warnings.append("no [policy] epsilon_max: epsilon may be any finite number")
    problems += _declared(policy, run)
    named: tuple[str, ...] = (policy.accountant,) if policy.accountant is not None else SOUND
    names = [name for name in named if account.total(name) is not None]
    if not names:
        reasons: dict[str, None] = dict.fromkeys(f"{name}: {account.why_not(name)}" for name in named)
        which = f"accountant {policy.accountant}" if policy.accountant else "any sound accountant"
        problems.append(f"this run has no value under {which} ({'; '.join(reasons)})")
        return Verdict(tuple(problems), -1, None, None, tuple(warnings))
    options = [_option(policy, run, account, name, spent, kinds) for name in names for kinds in (PURE, SOUND)]
    cap, meant = _delta_cap(policy, samples)
    bounded = [option for option in options if option.past.unbounded is None]
    fitting = [option for option in bounded if cap is None or option.delta <= cap]
    if not fitting:
        first = options[-1].past.unbounded
        believed = "" if all(s.run != first or not s.declared for s in spent) else " (its C was declared, not enforced)"
        why = f"earlier run {first} on this data set has no finite epsilon{believed}, so no cap can be kept"
        if bounded:
            least = min(option.delta for option in bounded)
            why = f"the deltas of this run and {_earlier(len(spent))} add up to {float(least):.6g}, above {meant}"
        return Verdict(tuple(problems), -1, why, None, tuple(warnings))
    best = min(fitting, key=lambda o: (-o.through, add_up((o.past.epsilon, o.predicted)), o.delta))
    if policy.delta_max is None and best.delta > 0:
        warnings.append(f"no [policy] delta_max: the delta of this data set is {float(best.delta):.6g}")
    if not run.privacy.enforced:
        warnings.append("C is declared, not enforced: this epsilon holds only where it is true")
    shortfall = None if best.through >= run.K else _shortfall(policy, run, best, len(spent))
    return Verdict(tuple(problems), best.through, shortfall, best.accountant, tuple(warnings))


def add_up(costs: Iterable[float]) -> float:
    """The sum, rounded up: never below the sum of the numbers as they are."""
    values = list(costs)
    try:
        total = math.fsum(values)
    except OverflowError:
        return math.inf
    # fsum is within half a unit; a sum that is exact, as one of a single run is, stays what it is.
    exact = math.isfinite(total) and sum(map(Fraction, values)) <= Fraction(total)
    return total if exact else math.nextafter(total, math.inf)


def _mechanism(policy: Policy, run: RunConfig) -> list[str]:
    mechanism = run.algorithm.mechanism
    if policy.mechanisms is None or mechanism in policy.mechanisms:
        return []
    return [f"mechanism {mechanism} is not allowed (mechanisms = {', '.join(policy.mechanisms)})"]


def _noise(policy: Policy, account: AgentAccount, K: int) -> list[str]:
    if policy.noise_min is None:
        return []
    # Every schedule is monotone in k: the smallest scale is the first or the last.
    least = [(min(account.scale(stream, k) for k in (0, K)), stream) for stream in account.charged_streams()]
    return [
        f"the noise scale of {stream.lower()} is {scale:g}, below noise_min = {policy.noise_min:g}"
        for scale, stream in least
        if scale < policy.noise_min
    ]


def study_problem(policy: Policy, run: RunConfig) -> list[str]:
    """Why the owner does not let the coordinator have private states; empty where the run does not ask for them."""
    if run.evaluate.metrics != "study" or not policy.limits or policy.allow_study:
        return []
    return [f"{STUDY} ([policy] allow_study = true would allow it)"]


def _declared(policy: Policy, run: RunConfig) -> list[str]:
    if run.privacy.C is None or policy.allow_declared:
        return []
    return [
        f"C = {run.privacy.C:g} is declared, not enforced, so the run counts as unbounded: clip_l1 or clip_l2 would "
        "enforce it ([policy] allow_declared = true would believe it)"
    ]


def _counted(policy: Policy, spent: Spent) -> Spent:
    """As the policy counts it: what rests on a declared C alone has no epsilon."""
    return replace(spent, epsilon={}) if spent.declared and not policy.allow_declared else spent


def tally(spent: Sequence[Spent], kinds: tuple[str, ...], named: str | None = None) -> Tally:
    """Add ``spent`` up: a run counts by ``named`` where that has a value for it, else by its smallest of ``kinds``."""
    epsilons, delta, unbounded = [], Fraction(0), None
    for run in spent:
        by = (named,) if named is not None and run.epsilon.get(named) is not None else kinds
        values = [(value, name) for name in by if (value := run.epsilon.get(name)) is not None and value < math.inf]
        if not values:
            unbounded = unbounded or run.run
            continue
        value, name = min(values, key=lambda pair: pair[0])
        epsilons.append(value)
        delta += as_written(run.delta) if name in APPROXIMATE else 0
    return Tally(math.inf if unbounded else add_up(epsilons), delta, unbounded)


def _option(
    policy: Policy, run: RunConfig, account: AgentAccount, name: str, spent: Sequence[Spent], kinds: tuple[str, ...]
) -> _Option:
    past, predicted = tally([_counted(policy, one) for one in spent], kinds, policy.accountant), account.total(name)
    assert predicted is not None
    delta = past.delta + (as_written(run.privacy.delta) if name in APPROXIMATE else 0)
    return _Option(name, past, delta, predicted, _covered(policy, account, name, past.epsilon, run.K))


def _covered(policy: Policy, account: AgentAccount, name: str, before: float, K: int) -> int:
    """The last round k whose cumulative cost fits, by bisection: costs never fall."""
    low, high = -1, K
    while low < high:
        k = (low + high + 1) // 2
        cost = account.cost(name, k)
        assert cost is not None
        total = add_up((before, cost))
        if math.isfinite(total) and (policy.epsilon_max is None or within(total, policy.epsilon_max)):
            low = k
        else:
            high = k - 1
    return low


def _delta_cap(policy: Policy, samples: int | None) -> tuple[Fraction | None, str]:
    """(cap, what it is).  A delta of 1/D or more allows to publish a whole sample: no guarantee of anything."""
    if policy.delta_max is not None:
        return as_written(policy.delta_max), f"delta_max = {policy.delta_max:g}"
    if samples is not None:
        return Fraction(1, samples), f"1/D = 1/{samples}, which guarantees nothing (delta_max would allow it)"
    return None, ""


def as_written(delta: float) -> Fraction:
    """The number as it was written: three runs of 1e-5 are 3e-5."""
    return Fraction(repr(delta))


def _shortfall(policy: Policy, run: RunConfig, best: _Option, earlier: int) -> str:
    cap = "any finite epsilon" if policy.epsilon_max is None else f"epsilon_max = {policy.epsilon_max:g}"
    spent = f", {_earlier(earlier)} on this data set {best.past.epsilon:.6g}" if earlier else ""
    delta = f" and delta {float(best.delta):.6g}" if best.delta else ""
    covers = f"rounds 0..{best.through} of {run.K}" if best.through >= 0 else "no round"
    costs = f"{best.predicted:.6g}" if math.isfinite(best.predicted) else "an infinite epsilon (its noise is off)"
    return f"this run costs {costs} under {best.accountant}{delta}{spent}: {cap} covers {covers}"


def _earlier(runs: int) -> str:
    return f"{runs} earlier run{'' if runs == 1 else 's'}"
