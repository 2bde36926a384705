"""The data owner's limits ([policy] in NODE.toml), judged by the owner's own agent before it releases anything.

What the runs of a data set cost together is ``privacy.accountants.composition``.  The values of one run are those of
its ledger, so a run that was stopped counts with what it released.  The caps are fixed before the runs, so they are a
filter: under one accountant, named in the policy, runs may be chosen and stopped by looking at what was released.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Protocol

from dpgt_node import figures
from dpgt_node.accounts.account import AgentAccount
from dpgt_node.accounts.towards import ASSUMPTIONS, Sharing, sharing
from dpgt_node.config.model import RunConfig
from dpgt_node.config.node_model import Policy
from dpgt_node.privacy.accountants.composition import Part, Spent, Total, Way, as_written, tally, total, ways
from dpgt_node.privacy.accountants.registry import CONDITIONAL, PURE, SOUND, called
from dpgt_node.privacy.accountants.rounding import within
from dpgt_node.privacy.strength import strength
from dpgt_node.values import dataclass

STUDY = 'metrics = "study" gives the coordinator x_final and training metrics, which no epsilon covers'

DELTAS = "the deltas of this run"
"""How a shortfall begins that no larger epsilon_max cures."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a policy says to a run.

    ``problems``: what in the run contradicts the policy, whatever it costs.

    ``budget_through``: the last round that the budget covers, -1 for none; None without a cap.  ``shortfall``: why it
    does not cover the whole run; None when it does.  ``accountant``: whose epsilon is capped.  ``warnings``: what the
    owner should know of a run that is allowed.  ``total``: all runs with this one to its end.
    """

    problems: tuple[str, ...]
    budget_through: int | None
    shortfall: str | None
    accountant: str | None
    warnings: tuple[str, ...]
    total: Total | None = None


@dataclass(frozen=True, slots=True)
class _Option:
    """One way to add up: this run by ``accountant``, every other one as in ``past``.

    ``unbounded``: an earlier run that it cannot count.  ``whole``: all runs with this one to its end, None where an
    earlier run or no delta stands against it.
    """

    accountant: str
    way: Way
    past: tuple[Part, ...]
    unbounded: str | None
    whole: Total | None


@dataclass(frozen=True, slots=True)
class _Worth:
    """What stands beside an epsilon in a sentence: its word.

    ``samples``: D.  ``enforced``: whether clips enforce C in this run; ``others``: in all earlier ones.  ``cap``: of
    the same sentence.
    """

    samples: int | None
    enforced: bool
    others: bool
    cap: float | None

    def run(self, accountant: str, cost: float | None, delta: float) -> str:
        """Of this run."""
        return self._said(accountant, cost, delta, self.enforced)

    def earlier(self, spent: Total) -> str:
        """Of all runs before it."""
        return self._said(None, spent.epsilon, float(spent.delta), self.others and not spent.conditional)

    def whole(self, spent: Total) -> str:
        """Of all runs with it."""
        held = self.enforced and self.others and not spent.conditional
        return self._said(None, spent.epsilon, float(spent.delta), held)

    def _said(self, accountant: str | None, epsilon: float | None, delta: float, held: bool) -> str:
        word = strength(accountant, epsilon, delta, samples=self.samples, enforced=held)
        return f"{figures.epsilon(math.inf if epsilon is None else epsilon, self.cap)} ({word})"


class Costing(Protocol):
    """What a cap asks of an account."""

    def cost(self, accountant: str, k: int) -> float | None:
        """Cumulative epsilon after round ``k``."""
        ...

    def total(self, accountant: str) -> float | None:
        """Of the whole run."""
        ...

    def why_not(self, accountant: str) -> str | None:
        """Why there is none."""
        ...


@dataclass(frozen=True, slots=True)
class _TowardsSome:
    """What ``account`` costs towards any ``colluding`` of the other agents of a run that ends with round ``K``."""

    account: AgentAccount
    shared: Sharing | None
    delta: float
    colluding: int
    K: int

    def cost(self, accountant: str, k: int) -> float | None:
        """Cumulative epsilon after round ``k``."""
        cost = self.account.cost(accountant, k)
        if cost is None or self.shared is None:
            return cost
        return self.shared.towards(accountant, cost, self.delta, self.colluding)

    def total(self, accountant: str) -> float | None:
        """Of the whole run."""
        return self.cost(accountant, self.K)

    def why_not(self, accountant: str) -> str | None:
        """Why there is none."""
        return self.account.why_not(accountant)


def judge(
    policy: Policy, run: RunConfig, account: AgentAccount, spent: Sequence[Spent], *, samples: int | None
) -> Verdict:
    """Judge ``run`` for the agent of ``account`` (``samples``: its D) after ``spent``, all other runs on the data set.

    What all others together learn keeps to ``epsilon_max``, and what any ``colluding`` of them learn to
    ``epsilon_max_colluding``: whichever covers fewer rounds decides.
    """
    problems = (*_mechanism(policy, run), *_noise(policy, account), *study_problem(policy, run))
    warnings = [STUDY] if run.evaluate.metrics == "study" else []
    warnings += run.adversary.active.warnings()
    if policy.noise_min is not None and not run.privacy.enforced:
        warnings.append("noise_min limits nothing by itself where no clip bounds what the noise must hide")
    everybody = _capped(policy, run, account, spent, samples, problems, warnings, "epsilon_max")
    t, cap = policy.colluding, policy.epsilon_max_colluding
    if t is None or cap is None:
        return everybody
    shared = sharing(run)
    mine = None if shared is None else shared[account.agent]
    whom = f"towards any {t} of the other agents and the coordinator together"
    if mine is not None:
        warnings.append(f"{whom}, epsilon_max_colluding rests on this: {'; '.join(ASSUMPTIONS)}")
    capped = replace(policy, epsilon_max=cap)
    towards = _TowardsSome(account, mine, run.privacy.delta, t, run.K)
    less = [one if one.some is None else replace(one, epsilon=one.some) for one in spent]
    some = _capped(capped, run, towards, less, samples, problems, warnings, "epsilon_max_colluding")
    if everybody.budget_through is not None and everybody.budget_through <= (some.budget_through or 0):
        return replace(everybody, warnings=some.warnings)
    shortfall = None if some.shortfall is None else f"{whom}, {some.shortfall}"
    return replace(some, shortfall=shortfall, total=everybody.total)


def _capped(
    policy: Policy,
    run: RunConfig,
    account: Costing,
    spent: Sequence[Spent],
    samples: int | None,
    against: Sequence[str],
    remarks: Sequence[str],
    key: str,
) -> Verdict:
    """Judge by one cap, whose name is ``key``; ``against`` and ``remarks``: problems and warnings so far.

    A named accountant counts every run that it has a value for, the others by their smallest sound value.
    Without a name the one that covers most rounds is taken, the smallest total among those.
    """
    problems, warnings = list(against), list(remarks)
    if policy.epsilon_max is None and policy.delta_max is None:
        without = f"; accountant = {policy.accountant} has no effect" if policy.accountant else ""
        warnings.append(f"no [policy] epsilon_max: nothing caps what this agent releases{without}")
        return Verdict(tuple(problems), None, None, None, tuple(warnings))
    if policy.epsilon_max is None:
        warnings.append("no [policy] epsilon_max: epsilon may be any finite number")
    if policy.accountant in CONDITIONAL:
        warnings.append(
            f'accountant = "{policy.accountant}" is conditional: no proof stands behind its values, so this cap is no '
            f"guarantee (sound: {', '.join(SOUND)})"
        )
    problems += _declared(policy, run)
    named: tuple[str, ...] = (policy.accountant,) if policy.accountant is not None else SOUND
    names = [name for name in named if account.total(name) is not None]
    if not names:
        reasons: dict[str, None] = dict.fromkeys(f"{name}: {account.why_not(name)}" for name in named)
        which = f"accountant {policy.accountant}" if policy.accountant else "any sound accountant"
        problems.append(f"this run has no value under {which} ({'; '.join(reasons)})")
        return Verdict(tuple(problems), -1, None, None, tuple(warnings))
    counted = [_counted(policy, one) for one in spent]
    options = _options(policy, run, account, names, counted)
    allows, meant = _delta_cap(policy, samples)
    known = [(option, option.whole) for option in options if option.whole is not None]
    fitting = [(option, whole) for option, whole in known if allows(whole.delta)]
    if not fitting:
        first = next((option.unbounded for option in reversed(options) if option.unbounded is not None), None)
        if known:
            least = min(whole.delta for _, whole in known)
            why = f"{DELTAS} and {_earlier(len(spent))} add up to {float(least):.6g}, {meant}"
        else:
            believed = (
                "" if all(s.run != first or not s.declared for s in spent) else " (its C was declared, not enforced)"
            )
            why = f"earlier run {first} on this data set has no finite epsilon{believed}, so no cap can be kept"
        return Verdict(tuple(problems), -1, why, None, tuple(warnings))
    covered = [(_covered(policy, run, account, option, allows), option, whole) for option, whole in fitting]
    through, option, best = min(covered, key=lambda c: (-c[0], c[2].epsilon, c[2].delta))
    if policy.delta_max is None and best.delta > 0:
        warnings.append(f"no [policy] delta_max: the delta of this data set is {float(best.delta):.6g}")
    if not run.privacy.enforced:
        warnings.append("C is declared, not enforced: this epsilon holds only where it is true")
    shortfall = None
    if through < run.K:
        at = best.delta or None  # every number of the sentence is at this delta
        before = tally(counted, SOUND, policy.accountant, at) if counted else None
        name = option.accountant
        mine = Spent("this run", {name: account.total(name)}, run.privacy.delta, declared=False)
        alone = tally([mine], SOUND, name, at)
        words = "any finite epsilon" if policy.epsilon_max is None else f"{key} = {policy.epsilon_max:g}"
        worth = _Worth(samples, run.privacy.enforced, not any(one.declared for one in counted), policy.epsilon_max)
        shortfall = _shortfall(words, run, name, alone, best, before, _earlier(len(counted)), through, worth)
    return Verdict(tuple(problems), through, shortfall, option.accountant, tuple(warnings), best)


def _mechanism(policy: Policy, run: RunConfig) -> list[str]:
    mechanism = run.algorithm.mechanism
    if policy.mechanisms is None or mechanism in policy.mechanisms:
        return []
    return [f"mechanism {mechanism} is not allowed (mechanisms = {', '.join(policy.mechanisms)})"]


def _noise(policy: Policy, account: AgentAccount) -> list[str]:
    if policy.noise_min is None:
        return []
    least = [(account.least_scale(stream), stream) for stream in account.charged_streams()]
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


def _delta_total(policy: Policy) -> Fraction | None:
    """The delta at which composed runs are counted, where the owner states it."""
    return None if policy.delta_max is None else as_written(policy.delta_max)


def _options(
    policy: Policy, run: RunConfig, account: Costing, names: Sequence[str], spent: Sequence[Spent]
) -> list[_Option]:
    """Every way to add up under every one of ``names``; of those that count all runs alike, the first."""
    found: dict[tuple[object, ...], _Option] = {}
    numbers: dict[Part | None, int] = {}  # equal parts have one number: Fractions are slow to hash
    for way in (*ways(PURE), *ways(SOUND)):
        counted: dict[tuple[int, float], Part | None] = {}  # many runs of one cost are counted once
        past = []
        for one in spent:
            alike = id(one.epsilon), one.delta
            if alike not in counted:
                part = counted[alike] = way.part(one.epsilon, one.delta, policy.accountant)
                numbers.setdefault(part, len(numbers))
            past.append(counted[alike])
        number = {alike: numbers[part] for alike, part in counted.items()}
        key = tuple(number[id(one.epsilon), one.delta] for one in spent)
        parts = tuple(part for part in past if part is not None)
        missing = next((one.run for one, part in zip(spent, past, strict=True) if part is None), None)
        for name in names:
            mine = _part(policy, run, way, name, account.total(name))
            if (name, mine, key) in found:
                continue
            whole = None if missing is not None else total((*parts, mine), _delta_total(policy))
            found[name, mine, key] = _Option(name, way, parts, missing, whole)
    return list(found.values())


def _part(policy: Policy, run: RunConfig, way: Way, name: str, cost: float | None) -> Part:
    """How the run itself is counted where it costs ``cost`` under ``name``."""
    own = replace(way, others=(name,))
    part = own.part({name: cost}, run.privacy.delta, policy.accountant)
    if part is not None:
        return part
    free = own.part({name: 0.0}, run.privacy.delta, policy.accountant)
    if free is None:
        raise ValueError(f"no run is counted by {name}")
    return replace(free, amount=math.inf)


def _covered(
    policy: Policy, run: RunConfig, account: Costing, option: _Option, allows: Callable[[Fraction], bool]
) -> int:
    """The last round k up to which all runs fit, by bisection: costs never fall."""

    def fits(k: int) -> bool:
        mine = _part(policy, run, option.way, option.accountant, account.cost(option.accountant, k))
        made = total((*option.past, mine), _delta_total(policy))
        if made is None or not math.isfinite(made.epsilon) or not allows(made.delta):
            return False
        return policy.epsilon_max is None or within(made.epsilon, policy.epsilon_max)

    low, high = -1, run.K
    if fits(high):
        return high
    while low < high:
        k = (low + high + 1) // 2
        low, high = (k, high) if fits(k) else (low, k - 1)
    return low


def _delta_cap(policy: Policy, samples: int | None) -> tuple[Callable[[Fraction], bool], str]:
    """(whether a total delta is allowed, what one is that is not).

    A delta of 1/D or more allows to publish a whole sample: no guarantee of anything.
    """
    if policy.delta_max is not None:
        most = as_written(policy.delta_max)
        return lambda delta: delta <= most, f"above delta_max = {policy.delta_max:g}"
    if samples is not None:
        nothing = f"at or above 1/D = 1/{samples}, which guarantees nothing (delta_max would allow it)"
        return lambda delta: delta * samples < 1, nothing
    return lambda delta: True, ""


def _shortfall(
    cap: str,
    run: RunConfig,
    name: str,
    alone: Total,
    whole: Total,
    before: Total | None,
    earlier: str,
    k: int,
    worth: _Worth,
) -> str:
    costs = worth.run(name, alone.epsilon, float(alone.delta))
    if math.isinf(alone.epsilon):
        costs = "an infinite epsilon (its noise is off)"
    said = f"this run costs {costs} under {called(name)}{_at(whole.delta)}"
    if before is not None:
        said += f", with all earlier ones {worth.whole(whole)} ({whole.recipe})"
        said += f", {earlier} on this data set {worth.earlier(before)}"
        said += " (conditional)" if before.conditional else ""
    return f"{said}: {cap} covers {f'rounds 0..{k} of {run.K}' if k >= 0 else 'no round'}"


def _at(delta: Fraction) -> str:
    return f" and delta {float(delta):.6g}" if delta else ""


def _earlier(runs: int) -> str:
    return f"{runs} earlier run{'' if runs == 1 else 's'}"
