"""The words and number formats that the report and the terminal share: labels, warnings, privacy statement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from dpgt_node import figures
from dpgt_node.accounts import towards
from dpgt_node.accounts.towards import Towards
from dpgt_node.algo.methods import method_of
from dpgt_node.config.model import NoiseStream, RunConfig
from dpgt_node.privacy.accountants.lemma5 import LEMMA5
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, EPSILONS
from dpgt_node.privacy.accountants.responses.same_point import SAME_POINT
from dpgt_node.privacy.accountants.responses.variation import VARIATION
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.privacy.strength import delta_warning, hit_rate
from dpgt_node.protocol.outliers import Outlier
from dpgt_node.protocol.pace import span as ms_span
from dpgt_node.record import epsilons
from dpgt_node.record.digests import from_json
from dpgt_node.record.rivals import Rivals
from dpgt_node.record.summary import AgentSummary, PrivacySummary, Summary
from dpgt_node.types import Stream

Row = tuple[tuple[float, str], ...]

WHY_CONDITIONAL = (
    "Lemma 5 is the paper's accountant and no guarantee as it stands: from round 1 on, the private points of two "
    "adjacent data sets differ, so all m sampled gradients differ and not only one; Lemma 4 drops that term, and there "
    "is a counterexample that satisfies every assumption of the paper."
)
WHY_NOT_THE_SAME_POINT = (
    "Gradients at the same points is no guarantee: it takes every gradient of both data sets at one point, but from "
    "round 1 on their private points differ, so all m sampled gradients differ and not only one. Lemma 5 has that gap."
)
WHY_ONLY_A_DELTA = (
    "A random quantiser alone gives no epsilon. What stands here is a delta at epsilon 0, and it is no guarantee: from "
    "round 1 on the private points of adjacent data sets differ, so all m sampled gradients differ and not only one."
)
_WHY = {LEMMA5.name: WHY_CONDITIONAL, SAME_POINT.name: WHY_NOT_THE_SAME_POINT, VARIATION.name: WHY_ONLY_A_DELTA}
STUDY = (
    "Study metrics: accuracy, loss and consensus error are computed from private states and are outside the guarantee."
)
RESTARTED_MAX = 5
"""So many processes that were started again are named."""
SENT_IN_PART = "Sent: a process counts from its last start. What was sent before a restart comes on top."
NOISE_OFF = "The noise is off: every epsilon is infinite and nothing is hidden."
STAY_ALONE = "Staying alone is better here: it costs no privacy."
TEST_KEYSTREAM = "Test keystream: the noise can be recomputed by anybody who knows the key; nothing is hidden."


def warnings_for(run: RunConfig, keystream: str | None = None) -> tuple[str, ...]:
    """What must be said in red about ``run``: test keystream, noise off, study metrics, active adversaries."""
    found = (
        (keystream is not None, TEST_KEYSTREAM),
        (noise_off(run), NOISE_OFF),
        (run.evaluate.metrics == "study", STUDY),
    )
    return (*(text for applies, text in found if applies), *run.adversary.active.warnings())


def outlying(summary: Summary) -> tuple[str, ...]:
    """Whose vectors lay far beyond the others', one line for each sender and stream."""
    found = None if summary.digests is None else from_json(summary.digests)
    places = {agent.name: place for place, agent in enumerate(summary.agents)}
    by_sender: dict[tuple[str, Stream], list[tuple[str, Outlier]]] = {}
    ordered = sorted(() if found is None else found.outliers, key=lambda item: places.get(item[0], len(places)))
    for receiver, one in ordered:
        by_sender.setdefault((one.sender, one.stream), []).append((receiver, one))
    return tuple(
        f"Outlier: {stream} of {sender} lay far beyond the others at {', '.join(receiver for receiver, _ in ones)}, in "
        f"{max(one.rounds for _, one in ones)} rounds or more. It attacks, or its data or settings are of another kind."
        for (sender, stream), ones in by_sender.items()
    )


def noise_off(run: RunConfig) -> bool:
    """Whether the run adds no noise at all."""
    return run.noise.multiplier == 0


def no_privacy(run: RunConfig) -> str | None:
    """That the run has no noise, in a sentence; None: it has."""
    if method_of(run).noisy and not noise_off(run):
        return None
    why = "The noise is off" if method_of(run).noisy else f"Method {run.algorithm.method} draws no noise"
    return f"Privacy: none. {why}, so every epsilon is infinite."


def privacy_line(run: RunConfig, privacy: PrivacySummary) -> str:
    """Adjacency, how C is known, the noise law and the mechanism, in one line; or that there is no noise."""
    if (none := no_privacy(run)) is not None:
        return none
    mechanism = run.algorithm.mechanism
    noise = epsilons.noise_words(privacy.law, mechanism)
    return f"Privacy: {privacy.adjacency}; {epsilons.enforcement(privacy)}; {noise}, mechanism {mechanism}."


def why_conditional(summary: Summary) -> tuple[str, ...]:
    """Why each conditional accountant that has a value is no guarantee."""
    return tuple(why for name, why in _WHY.items() if largest_epsilon(summary, name) is not None)


def privacy_statement(run: RunConfig, summary: Summary) -> tuple[str, ...]:
    """What the run's epsilons promise and what they do not, one paragraph an item, as plain text."""
    if noise_off(run):  # what is said of accountants, bounds and delta would be of nothing
        return (NOISE_OFF, *_of_study(run))
    streams = MECHANISMS[run.algorithm.mechanism].charged
    found = [
        "Each agent's epsilon is its own: local differential privacy of everything that agent released, all rounds"
        f"{' of both streams' if len(streams) == 2 else ''}, against an observer of every message and whatever its "
        "neighbours do."
    ]
    accountant = epsilons.shown(summary)
    if accountant is not None and accountant not in EPSILONS:
        found = []  # a delta alone promises nothing: the next paragraph says what it is
    if accountant is not None:
        found += why_conditional(summary)
        largest = largest_epsilon(summary, accountant)
        if largest is not None and hit_rate(largest, 0.0, 1e-4) >= 1.0:
            what = "An epsilon" if accountant in EPSILONS else "A delta"
            found.append(
                f"{what} of {figures.epsilon(largest)} ({epsilons.qualifier(accountant, summary.privacy.delta)}) "
                "protects nothing, even where it holds: every hit is possible with less than one false alarm in 10,000."
            )
    if (warning := delta_warning(summary.privacy.delta, summary.privacy.samples)) is not None:
        found.append(warning[0].upper() + warning[1:] + ".")
    if summary.privacy.enforced:
        found.append(
            "Clipping enforces the bound on every per-sample gradient and biases the gradients: Assumption 2(ii) of "
            "the paper, hence Theorems 1 to 3, no longer apply literally."
        )
    elif summary.privacy.C is not None:
        found.append("C was declared and is not enforced: should one gradient exceed it, no epsilon here holds.")
    else:
        found.append("No bound C is known, so there is no sensitivity and every epsilon is null.")
    found += _of_study(run)
    if summary.keystream is not None:
        found.append(TEST_KEYSTREAM)
    return tuple(found)


def _of_study(run: RunConfig) -> tuple[str, ...]:
    return (STUDY + "  They are for study on data that need no protection.",) * (run.evaluate.metrics == "study")


def bounds_of_columns(run: RunConfig) -> tuple[str, ...]:
    """What no epsilon covers of a table's bounds; empty where it has none."""
    if run.data.params.get("bounds_from") is not None:
        return (
            "The bounds of columns are the smallest and largest values of the rows themselves (`bounds_from`): the run "
            "file shows them, and no epsilon covers that.",
        )
    if run.data.params.get("bounds") is not None:
        return ("The bounds of columns count as public: where they were read from rows, no epsilon covers that.",)
    return ()


def alone_line(agents: Sequence[AgentSummary], rivals: Rivals | None) -> str:
    """What agents reach alone beside what the run gave them, the worst one of each; empty without a rival."""
    worst = worst_agent(agents)
    if rivals is None or not rivals.alone or worst is None or worst.accuracy_test is None:
        return ""
    gain = worst.accuracy_test - rivals.worst
    better = "the exchange gained" if gain > 0 else "the exchange lost"
    said = (
        f"Alone, without exchange and noise, at epsilon 0: worst agent {percent(rivals.worst)}, median "
        f"{percent(middle(rivals.alone.values()))}; {better} the worst agent {100 * abs(gain):.1f} points."
    )
    return said if gain > 0 else f"{said} {STAY_ALONE}"


def no_accuracy_line(summary: Summary) -> str:
    """Why there is no test accuracy; empty where there is."""
    return "" if summary.no_accuracy is None else f"No test accuracy: {summary.no_accuracy}"


def worst_first(agents: Iterable[AgentSummary]) -> list[AgentSummary]:
    """By test accuracy, lowest first, then by loss, largest first; agents without either last, in their order."""

    def key(agent: AgentSummary) -> tuple[float, float]:
        accurate, loss = agent.accuracy_test, agent.loss_train
        return (math.inf if accurate is None else accurate, math.inf if loss is None else -loss)

    return sorted(agents, key=key)


def worst_agent(agents: Iterable[AgentSummary]) -> AgentSummary | None:
    """The first of :func:`worst_first`; None when no agent has an accuracy or a loss."""
    first = next(iter(worst_first(agents)), None)
    return None if first is None or (first.accuracy_test is None and first.loss_train is None) else first


def middle(values: Iterable[float | None]) -> float | None:
    """The median of the values that are there."""
    there = [value for value in values if value is not None]
    return median(there) if there else None


def largest_epsilon(summary: Summary, accountant: str) -> float | None:
    """The largest epsilon of any agent; None when no agent has one."""
    values = (agent.epsilon[accountant] for agent in summary.agents)
    return max((value for value in values if value is not None), default=None)


def accountants_with_values(summary: Summary) -> tuple[str, ...]:
    """Accountants under which some agent has an epsilon."""
    return tuple(a for a in ACCOUNTANTS if largest_epsilon(summary, a) is not None)


def towards_whom(run: RunConfig, summary: Summary) -> Towards | None:
    """What fewer than all others learned of each agent; None where no noise is shared, or it hides nothing."""
    if summary.keystream is not None:
        return None
    costs = {agent.name: agent.epsilon for agent in summary.agents}
    return towards.towards_whom(run, costs, dict.fromkeys(costs, summary.privacy.samples))


def alike(names: Sequence[str], rows: Sequence[Row]) -> list[tuple[str, Row]]:
    """Agents with equal rows together, "every agent" where all are equal, each with its row."""
    together: dict[Row, list[str]] = {}
    for name, row in zip(names, rows, strict=True):
        together.setdefault(row, []).append(name)
    found = []
    for row, who in together.items():
        found.append(("every agent" if len(who) == len(names) > 1 else figures.some(who), row))
    return found


def pace(summary: Summary) -> str:
    """``in 2.4 s, 83.4 rounds/s``; of a run that was resumed, what its last start did; empty where it is not known."""
    seconds, rate = summary.seconds, summary.rounds_per_second
    if seconds is None or rate is None:
        return ""
    if not was_resumed(summary):
        return f"in {duration(seconds)}, {figures.number(rate)} rounds/s"
    speed = f"{figures.number(rate)} rounds/s"
    return f"(the last {_timed(summary):,} of them, since it was resumed, in {duration(seconds)}, {speed})"


def was_resumed(summary: Summary) -> bool:
    """Whether ``seconds`` are of the last start alone, which made fewer rounds than the run has."""
    return summary.seconds is not None and summary.rounds_per_second is not None and _timed(summary) < summary.rounds


def restarts(summary: Summary) -> str:
    """``started again: agent-2 once, coordinator 3 times``; empty where ``launch`` started no process again."""
    often = [(name, count) for name, count in sorted(summary.restarts.items()) if count > 0]
    said = [f"{name} {'once' if count == 1 else f'{count} times'}" for name, count in often[:RESTARTED_MAX]]
    more = [f"{len(often) - RESTARTED_MAX} more"] if len(often) > RESTARTED_MAX else []
    return f"started again: {', '.join(said + more)}" if said else ""


def sent(summary: Summary, agent: AgentSummary) -> str:
    """What ``agent`` sent, ``2.09 MB``, or what it sent at least, ``≥ 2.09 MB``, where :func:`sent_in_part`."""
    return ("≥\xa0" if agent.bytes_sent is not None and sent_in_part(summary, agent) else "") + size(agent.bytes_sent)


def sent_in_part(summary: Summary, *agents: AgentSummary) -> bool:
    """Whether one of ``agents`` may have sent more than ``bytes_sent``, which a process counts from its own start."""
    return was_resumed(summary) or any(summary.restarts.get(agent.name) for agent in agents)


def _timed(summary: Summary) -> int:
    """How many rounds took ``seconds``; of older versions' summaries what the rate says."""
    if summary.rounds_timed is not None:
        return summary.rounds_timed
    return round((summary.rounds_per_second or 0.0) * (summary.seconds or 0.0))


def noise_scale(stream: NoiseStream | None) -> str:
    """The scales of one stream: one number, or their range over the agents."""
    if stream is None:
        return "none"
    low, high = min(stream.values), max(stream.values)
    text = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return text if stream.kind == "constant" else f"exponent {text}"


def judged(value: float | None, word: str) -> str:
    """An epsilon and what it is worth, ``7.75 (weak)``; a dash alone where there is no value."""
    shown = figures.epsilon(value)
    return shown if value is None or math.isnan(value) or not word else f"{shown} ({word})"


def accuracy(value: float | None) -> str:
    """A fraction with three decimals, ``0.861``; a dash where there is no value."""
    return "–" if value is None or math.isnan(value) else f"{value:.3f}"


def percent(value: float | None) -> str:
    """``86.1 %``, with a no-break space; a dash where there is no value."""
    return "–" if value is None or math.isnan(value) else f"{100 * value:.1f}\u00a0%"


def size(count: int | None) -> str:
    """Bytes in decimal units, ``2.09 MB``; a dash where there is no value."""
    if count is None:
        return "–"
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.3g}\u00a0{unit}"
        value /= 1000
    return f"{value:.3g}\u00a0TB"


def span(seconds: float) -> str:
    """As :func:`duration`, and ``450 ms`` below a second."""
    return duration(seconds) if seconds >= 9.95 else ms_span(seconds)


def duration(seconds: float | None) -> str:
    """``2.4 s`` · ``3 min 20 s`` · ``2 h 05 min``; a dash where there is no value."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
