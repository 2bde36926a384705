"""How epsilons are named, chosen and laid out: by the terminal, the status reply and the report alike.

No number is shown without its accountant and, where it has one, its delta; the adjacency stands beside them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dpgt_node import figures
from dpgt_node.algo.methods import method_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import Noise, Privacy, RunConfig
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, APPROXIMATE, CONDITIONAL, EPSILONS, HEADLINE
from dpgt_node.privacy.laws.laplace import LAPLACE
from dpgt_node.privacy.mechanisms import MECHANISMS, PAPER
from dpgt_node.privacy.strength import Strength, delta_warning, strength, void
from dpgt_node.record.summary import PrivacySummary, Summary
from dpgt_node.values import dataclass

PAPER_AT_THIS_SCALE: Final = "The paper mechanism at the same scale, K, m and C"


def tightest(costs: Mapping[str, Sequence[float | None]], delta: float = 0.0, samples: int | None = None) -> str | None:
    """The sound accountant with the smallest epsilon of the worst agent; None when none covers every agent.

    ``costs``: by accountant, one epsilon an agent.  Where ``delta`` is 1/D or more, D = ``samples``, nothing that
    needs it leads.
    """
    empty = void(delta, samples)
    complete = {
        name: max((math.inf if v is None else v for v in costs[name]), default=math.inf)
        for name in HEADLINE
        if costs.get(name) and all(v is not None for v in costs[name]) and (ACCOUNTANTS[name].pure or not empty)
    }
    return min(complete, key=complete.__getitem__, default=None)


def shown_accountant(
    costs: Mapping[str, Sequence[float | None]], delta: float = 0.0, samples: int | None = None
) -> str | None:
    """Whose epsilon is shown where there is room for one: the tightest sound one, else a conditional one, else none."""
    if (name := tightest(costs, delta, samples)) is not None:
        return name
    return next((name for name in CONDITIONAL if any(v is not None for v in costs.get(name, ()))), None)


def qualifier(accountant: str, delta: float) -> str:
    """``gdp, delta 1e-05`` · ``tight, pure`` · ``Lemma 5; conditional``."""
    one = ACCOUNTANTS[accountant]
    if not one.sound:
        return f"{one.title}; conditional"
    return f"{accountant}, pure" if one.pure else f"{accountant}, delta {delta:g}"


def head(accountant: str, delta: float) -> str:
    """``epsilon (gdp, delta 1e-05)``; ``delta (at epsilon 0; conditional)`` where the value is one."""
    what = "epsilon" if accountant in EPSILONS else "delta"
    return f"{what} ({qualifier(accountant, delta)})"


def label(accountant: str, delta: float) -> str:
    """The accountant in full, ``Gaussian (delta = 1e-05)``."""
    return ACCOUNTANTS[accountant].label.replace("(epsilon, delta)", f"(delta = {delta:g})")


def merged(names: Sequence[str], reasons: Sequence[str | None]) -> str | None:
    """One line of why an accountant is null, naming agents where they differ; None where it has values everywhere."""
    parts = []
    for reason in dict.fromkeys(reason for reason in reasons if reason is not None):
        whose = [name for name, other in zip(names, reasons, strict=True) if other == reason]
        parts.append(reason if len(whose) == len(names) else f"{figures.some(whose)}: {reason}")
    return "; ".join(parts) or None


@dataclass(frozen=True, slots=True)
class Line:
    """What one accountant says: ``values`` an agent each, in the summary's order, or the ``reason`` for none."""

    accountant: str
    label: str
    values: tuple[float | None, ...]
    reason: str | None

    @property
    def speaks(self) -> bool:
        """Whether any agent has a value."""
        return any(value is not None for value in self.values)


def lines(summary: Summary) -> tuple[Line, ...]:
    """What accountants say of every agent's whole transcript so far, in their order.

    One that stands aside is left out, unless it has a value or is asked: then it says why it has none.
    """
    found, mechanism = [], MECHANISMS.get(summary.mechanism)
    for name in ACCOUNTANTS:
        values = tuple(agent.epsilon[name] for agent in summary.agents)
        reason = summary.reasons.get(name)
        if reason is None and all(value is None for value in values):
            reason = "not known before the run has a summary"
        line = Line(name, label(name, summary.privacy.delta), values, reason)
        one = ACCOUNTANTS[name]
        asked = mechanism is not None and one.covers(mechanism) and reason is not None
        found += [line] if line.speaks or asked or not one.aside else []
    return tuple(found)


def shown(summary: Summary) -> str | None:
    """The accountant of the summary's headline; else what its values allow."""
    named = summary.headline
    if named is not None:
        return named
    costs = {line.accountant: line.values for line in lines(summary)}
    return shown_accountant(costs, summary.privacy.delta, summary.privacy.samples)


def word(summary: Summary, accountant: str, value: float | None) -> Strength:
    """What ``value`` of ``accountant`` is worth in this run, in one word."""
    privacy = summary.privacy
    found = strength(accountant, value, privacy.delta, samples=privacy.samples, enforced=privacy.enforced)
    return found if summary.keystream is None else "none"


def warned_delta(summary: Summary) -> str | None:
    """What must be said of a delta of 1/D or more, where an epsilon of the run uses it; None where it is small."""
    used = any(line.speaks for line in lines(summary) if line.accountant in APPROXIMATE)
    return delta_warning(summary.privacy.delta, summary.privacy.samples) if used else None


def adjacency_line(privacy: PrivacySummary) -> str:
    """The relation every epsilon of a run is about, and how its constant is known."""
    return f"Adjacent data sets: {privacy.adjacency}; {enforcement(privacy)}."


def noise_words(law: str, mechanism: str) -> str:
    """What hides a run's states, in two words or three."""
    if MECHANISMS[mechanism].accounted.noise_on == "coins":
        return "counts of coins"
    return f"{law} noise" if MECHANISMS[mechanism].noises else "a random quantiser"


def no_guarantee_either(listed: Sequence[str]) -> str:
    """Of the conditional accountants in ``listed`` other than the paper's, with a space behind."""
    others = [f"{name} is {ACCOUNTANTS[name].label}" for name in listed if name in CONDITIONAL[1:]]
    return f"{'; '.join(others)}: it is none either. " if others else ""


def enforcement(privacy: PrivacySummary) -> str:
    """How C is known, in one phrase."""
    if privacy.enforced:
        return "enforced: every per-sample gradient is clipped"
    return "no C: every epsilon is null" if privacy.C is None else "declared, not enforced"


# ------------------------------------------------------------------------------ the paper at the same scale
def paper_twin(run: RunConfig) -> RunConfig | None:
    """``run`` with the paper's mechanism at the same scale, K, m and C, for a comparison; None for the paper's own, and
    for methods that the paper does not speak of.

    Lemma 5 wants Laplace noise on both streams and C in L1: the scale of y stands in for an x that is sent without
    noise, and 2 clip_l2 is taken for C as it is, which favours the paper (in L1 it may be sqrt(d) times that).  It
    releases in every round, all of them alike: it has no round without a draw.
    """
    mechanism, noise, privacy = MECHANISMS[run.algorithm.mechanism], run.noise, run.privacy
    if mechanism.printed or not method_of(run).theorems:
        return None
    zeta = noise.eta if mechanism.x_public else noise.zeta
    if privacy.clip_l2 is not None:
        privacy = Privacy(C=2.0 * privacy.clip_l2, delta=privacy.delta)
    return replace(
        run,
        algorithm=replace(run.algorithm, mechanism=PAPER.name),
        scheme=replace(run.scheme, release_every=None, releases=None, settle=0, first="gradient"),
        noise=Noise(zeta, noise.eta, law=LAPLACE.name, multiplier=noise.multiplier),
        privacy=replace(privacy, by_release=None, decay=None),
    )


def comparison_label(summary: Summary) -> str:
    """Who is compared: the paper mechanism, with what had to be changed to speak of it."""
    notes = []
    if summary.privacy.law != LAPLACE.name:
        notes.append("Laplace noise")
    if summary.privacy.clip_l2 is not None:
        notes.append(f"C = {2.0 * summary.privacy.clip_l2:g} taken in L1")
    return PAPER_AT_THIS_SCALE + (f" ({', '.join(notes)})" if notes else "")


def comparison(summary: Summary) -> tuple[float | None, ...] | None:
    """Lemma 5 of the paper mechanism at the same scale, one value an agent; None where there is nothing to compare."""
    values = tuple(agent.paper_lemma5 for agent in summary.agents)
    return values if any(value is not None for value in values) else None


def releases(run: RunConfig, through: int) -> int:
    """How many releases an agent makes in the rounds up to ``through``: vectors that are charged, a row of its ledger
    each.  What is sent besides is post-processing and costs nothing.
    """
    rounds = sum(k <= through for k in Schedule.from_config(run).releases)
    return rounds * len(MECHANISMS[run.algorithm.mechanism].charged)


def released_words(data: Mapping[str, Any]) -> str:
    """Of a privacy.json: which rounds there were, how many releases (older files do not say), and delta."""
    rounds, count = rounds_words(data), data["run"].get("releases")
    known = f"{rounds} released" if count is None else f"{count:,} releases (vectors charged) an agent in {rounds}"
    return f"{known}, delta {data['delta']:g}"


def rounds_words(data: Mapping[str, Any]) -> str:
    """Of a privacy.json: which rounds there were."""
    return f"rounds 0..{data['run']['released_through']} of 0..{data['run']['K']}"
