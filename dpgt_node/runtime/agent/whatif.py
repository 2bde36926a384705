"""What a run would cost on a data set before anybody begins it: the question that its agent asks at the start."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpgt_node import figures
from dpgt_node.accounts.towards import sharing
from dpgt_node.agent.noise import account_for
from dpgt_node.agent.policy import Verdict, judge
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import NodeConfig, RunConfig, run_sha256
from dpgt_node.config.node_model import Policy
from dpgt_node.errors import ConfigError
from dpgt_node.learning.oracle import oracle_and_digest
from dpgt_node.privacy.accountants.composition import Spent, Total, tally
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, SOUND
from dpgt_node.privacy.strength import delta_warning, strength
from dpgt_node.record.summary import to_json
from dpgt_node.report.text import judged
from dpgt_node.runtime.agent.budget import Request, also_known
from dpgt_node.runtime.store.ledger import Charge
from dpgt_node.runtime.store.runs import RunInfo
from dpgt_node.runtime.store.terms import of_these_data
from dpgt_node.values import dataclass

_MOST = 1000
"""Of further runs that are counted."""


@dataclass(frozen=True, slots=True)
class GoesOn:
    """A run that was begun counts once: what all runs then cost, and how many of its K+1 rounds ``fit``."""

    after: Total
    fit: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What run ``run`` of ``agent`` would cost on data set ``data_id``; ``ids``: all that its data
    are known as.

    ``newest``: the newest run of this run file that the directory holds; None where it is new.  ``goes_on``: the
    judgement if the coordinator goes on with that one, which then counts once; None where nothing of it goes on, for it
    is finished, released nothing or is of other data.  All else is about a new run, the dearer of the two.
    ``after``: all runs, with this one to its end; ``before``: the other runs, None where there is none, and
    ``by_itself``: this one, both at the delta of ``after``; ``sound``: ``after`` by sound accountants alone, where it
    is conditional. ``alone``: by accountant, at the run's own delta. ``policy``: None where none was given. ``more``:
    how many runs like it fit after it, None without a cap.
    """

    run: RunConfig
    agent: str
    data_id: str
    ids: tuple[str, ...]
    samples: int | None
    dimension: int
    newest: RunInfo | None
    goes_on: GoesOn | None
    earlier: tuple[str, ...]
    alone: Spent
    by_itself: Total
    before: Total | None
    after: Total
    sound: Total | None
    policy: Policy | None
    verdict: Verdict
    more: int | None

    @property
    def fit(self) -> int:
        """How many of its K+1 rounds fit; 0 where the policy forbids the run."""
        return _fit(self.verdict, self.run.K)

    @property
    def allowed(self) -> bool:
        """Whether the policy lets it run to its end."""
        return self.fit == self.run.K + 1


def what_if(
    run: RunConfig,
    agent: str,
    data_id: str,
    charges: Sequence[Charge],
    runs: Sequence[RunInfo],
    node: NodeConfig | None,
    data_root: Path | None,
) -> Answer:
    """Ask the policy of ``node`` (None: there is none to ask) about ``run`` after all ``charges``.

    ConfigError: no such agent, or its data are not here.
    """
    if agent not in run.graph.agents:
        message = f"{agent} is not in the run, whose agents are {', '.join(run.graph.agents[:10])}"
        raise ConfigError.one("command line", "--agent", message)
    index = run.graph.agents.index(agent)
    shard = index if node is None or node.shard is None else node.shard - 1
    path, test = (None, None) if node is None else (node.data_path, node.data_test)
    oracle, digest = oracle_and_digest(run, shard, data_root=data_root, data_path=path, data_test=test)
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    account = account_for(run, topology, schedule, index, oracle.samples, oracle.dimension)
    sha256 = run_sha256(run)
    newest = next((known for known in reversed(runs) if (known.run_sha256, known.name) == (sha256, agent)), None)
    policy = Policy() if node is None else node.policy
    same = {known.run_id for known in of_these_data(runs, digest)}
    request = Request(policy, data_id, run, account, oracle.samples, charges, same=same)
    spent, verdict = request.verdict()
    declared = run.privacy.adjacency is not None and not run.privacy.enforced
    costs, shared, t = {name: account.total(name) for name in ACCOUNTANTS}, sharing(run), policy.colluding
    some = None if shared is None or t is None else shared[index].some(costs, run.privacy.delta, t)
    mine = Spent("this run", costs, run.privacy.delta, declared, some)
    cap = None if policy.delta_max is None else Fraction(repr(policy.delta_max))

    def fits(more: int) -> bool:
        asking = [*spent, *[replace(mine, run="one more")] * more]
        again = judge(policy, run, account, asking, samples=oracle.samples)
        return not again.problems and again.shortfall is None

    def together(others: Sequence[Spent], said: Verdict) -> Total:
        return said.total or tally([*others, mine], SOUND, policy.accountant, cap)

    goes_on, after = None, together(spent, verdict)
    at = after.delta or None
    released = {charge.run_id for charge in charges if charge.terms.data_id == data_id}
    if newest is not None and not newest.finished and newest.run_id in released:
        others, said = replace(request, run_id=newest.run_id).verdict()
        goes_on = GoesOn(together(others, said), _fit(said, run.K))
    return Answer(
        run,
        agent,
        data_id,
        request.ids(),
        oracle.samples,
        oracle.dimension,
        newest,
        goes_on,
        tuple(one.run for one in spent),
        mine,
        tally([mine], SOUND, None, at),
        tally(spent, SOUND, policy.accountant, at) if spent else None,
        after,
        tally([*spent, mine], SOUND, None, cap) if after.conditional else None,
        None if node is None else policy,
        verdict,
        None if verdict.budget_through is None else _how_many(fits),
    )


def _fit(verdict: Verdict, K: int) -> int:
    """How many of the K+1 rounds fit; 0 where the policy forbids the run."""
    through = verdict.budget_through
    return 0 if verdict.problems else (K if through is None else through) + 1


def _how_many(fits: Callable[[int], bool]) -> int:
    """The largest n <= _MOST for which ``fits(n)``; fewer fit wherever more do."""
    if not fits(0):
        return 0
    low, high = 0, 1
    while high < _MOST and fits(high):
        low, high = high, min(2 * high, _MOST)
    if high == _MOST and fits(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def document(answer: Answer) -> Any:
    """JSON data."""
    policy, verdict = answer.policy, answer.verdict
    return to_json(
        {
            "run": {"name": answer.run.name, "run_sha256": run_sha256(answer.run), "K": answer.run.K},
            "agent": answer.agent,
            "data_id": answer.data_id,
            "also_known_as": list(answer.ids[1:]),
            "samples": answer.samples,
            "dimension": answer.dimension,
            "begun": None if answer.newest is None else answer.newest.run_id.hex(),
            "finished": answer.newest is not None and answer.newest.finished,
            "goes_on": None
            if answer.goes_on is None
            else {"after": _total(answer.goes_on.after, answer), "rounds_that_fit": answer.goes_on.fit},
            "declared": answer.alone.declared,
            "epsilon": answer.alone.epsilon,
            "earlier": list(answer.earlier),
            "alone": _total(answer.by_itself, answer),
            "before": None if answer.before is None else _total(answer.before, answer),
            "after": _total(answer.after, answer),
            "sound": None if answer.sound is None else _total(answer.sound, answer),
            "policy": None
            if policy is None
            else {"epsilon_max": policy.epsilon_max, "delta_max": policy.delta_max, "accountant": policy.accountant},
            "remains": _remains(answer),
            "rounds_that_fit": answer.fit,
            "rounds": answer.run.K + 1,
            "more_like_it": answer.more,
            "allowed": answer.allowed,
            "problems": list(verdict.problems),
            "shortfall": verdict.shortfall,
            "warnings": list(verdict.warnings),
        }
    )


def render(answer: Answer) -> str:
    """Text: what it costs, what the data set has cost before and after it, and what the policy says."""
    D = "no samples" if answer.samples is None else f"{answer.samples} samples"
    lines = [
        f'if {answer.run.name} ran to round {answer.run.K} as {answer.agent} on data set "{answer.data_id}" '
        f"({D}, d = {answer.dimension}):"
    ]
    if also := also_known(answer.ids):
        lines.append(f"  data set{also}: the data are the same, bit for bit, and the runs count together")
    lines += _known(answer)
    lines.append(f"  this run      {_said(answer.by_itself, answer)}")
    earlier = f"{len(answer.earlier)} other run{'' if len(answer.earlier) == 1 else 's'}"
    lines.append(f"  {earlier:<13} {'no cost' if answer.before is None else _said(answer.before, answer)}")
    lines.append(f"  all together  {_said(answer.after, answer)}")
    if answer.sound is not None:
        lines.append("  WARNING: a conditional value has no proof: a cap on it is no guarantee")
        lines.append(f"  soundly       {_said(answer.sound, answer)}")
    if (warning := delta_warning(float(answer.after.delta), answer.samples)) is not None:
        lines.append(f"  WARNING: {warning}")
    if answer.alone.declared:
        lines.append("  C is declared, not enforced: these values hold only where it is true")
    lines += [f"  {word:<13} {text}" for word, text in _policy(answer)]
    return "\n".join(lines)


def _known(answer: Answer) -> list[str]:
    """What the directory holds of the same run file already."""
    if (newest := answer.newest) is None:
        return []
    run = f"run {newest.run_id.hex()[:12]}"
    if newest.finished:
        return [f"  {run} of this run file is finished here and counts as another run: this would be a new one"]
    last = newest.last_durable_round
    if last < 0:
        return [f"  it was begun here as {run}, nothing released yet"]
    begun = f"  it was begun here as {run}, rounds 0..{last} are released"
    if answer.goes_on is None:
        return [f"{begun} of other data: with this [data] id it cannot go on, and this would be a new run"]
    K, one = answer.run.K, answer.goes_on
    fit = "" if answer.policy is None else f", {one.fit} of {K + 1} rounds fit"
    return [
        begun,
        f"  if the coordinator goes on with it, it counts once: all together {_said(one.after, answer)}{fit}",
        "  if the coordinator starts anew, what was released counts as another run. That is dearer, and judged here:",
    ]


def _policy(answer: Answer) -> list[tuple[str, str]]:
    policy, verdict, K = answer.policy, answer.verdict, answer.run.K
    if policy is None:
        return [("policy", "none was given: --node NODE.toml asks the owner's")]
    if verdict.problems:
        return [("refused", problem) for problem in verdict.problems]
    if verdict.budget_through is None:
        return [("policy", "caps nothing: all rounds fit, and so do all later ones")]
    fit = f"all {K + 1} rounds" if answer.allowed else f"{answer.fit} of {K + 1} rounds" if answer.fit else "no round"
    found = [("fits", fit)]
    if verdict.shortfall is not None:
        found.append(("because", verdict.shortfall))
    if (left := _remains(answer)) is not None and answer.allowed:
        cap = f"epsilon {figures.epsilon(left)} of {policy.epsilon_max:g}, as a plain difference"
        often = f"{_MOST} or more runs" if answer.more == _MOST else f"{answer.more} more runs"
        found.append(("remains", f"{cap}; {'1 more run' if answer.more == 1 else often} like it would fit"))
    return [*found, *(("note", line) for line in verdict.warnings)]


def _remains(answer: Answer) -> float | None:
    """What is left of epsilon_max, rounded down; None without a cap."""
    cap = None if answer.policy is None else answer.policy.epsilon_max
    return None if cap is None else max(0.0, math.nextafter(cap - answer.after.epsilon, -math.inf))


def _total(one: Total, answer: Answer) -> dict[str, object]:
    word = _word(one, answer)
    found: dict[str, object] = {"epsilon": one.epsilon, "delta": float(one.delta), "recipe": one.recipe}
    return {**found, "strength": word, **({"conditional": True} if one.conditional else {})}


def _word(one: Total, answer: Answer) -> str:
    proven = not answer.alone.declared and not one.conditional
    return strength(None, one.epsilon, float(one.delta), samples=answer.samples, enforced=proven)


def _said(one: Total, answer: Answer) -> str:
    if math.isinf(one.epsilon):
        return "no finite epsilon" + (f" ({one.unbounded} has none)" if one.unbounded else "")
    delta = f"delta {float(one.delta):g}" if one.delta else "conditional" if one.conditional else "pure"
    return f"epsilon {judged(one.epsilon, _word(one, answer))}, {delta} ({one.recipe})"
