"""The first screen of a report: what was learnt, what it cost, whether that protects, what an eavesdropper got."""

from __future__ import annotations

from collections.abc import Sequence

from dpgt_node import figures
from dpgt_node.algo.methods import method_of
from dpgt_node.config.model import RunConfig
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, EPSILONS
from dpgt_node.privacy.strength import hit_rate, void
from dpgt_node.record import epsilons, guessing
from dpgt_node.record.rivals import Rivals
from dpgt_node.record.summary import Summary
from dpgt_node.report import text
from dpgt_node.report.attack_table import Table
from dpgt_node.report.rendering import Answer


def answers(run: RunConfig, summary: Summary, attacks: Table | None, rivals: Rivals | None = None) -> list[Answer]:
    """The four answers, in the order of the page."""
    return [_learnt(run, summary, rivals), _privacy(run, summary), _eavesdropper(attacks), _took(summary)]


def _learnt(run: RunConfig, summary: Summary, rivals: Rivals | None) -> Answer:
    question, worst = "What was learnt", text.worst_agent(summary.agents)
    if worst is None:
        return Answer(question, "not shown", summary.no_accuracy or "no agent has an accuracy yet")
    if worst.accuracy_test is None:
        middle = figures.number(text.middle(agent.loss_train for agent in summary.agents), 4)
        said = f"training loss of the worst agent, {worst.name}; median {middle}"
        said += f". No test accuracy: {summary.no_accuracy}" if summary.no_accuracy else ""
        return Answer(question, f"loss {figures.number(worst.loss_train, 4)}", said)
    middle = text.percent(text.middle(agent.accuracy_test for agent in summary.agents))
    said = f"test accuracy of the worst agent, {worst.name}; median {middle}"
    if (guess := guessing.guess_rate(run, rivals)) is not None:
        said += f"; guessing {text.percent(guess)}"
    value = text.percent(worst.accuracy_test)
    if guessing.learnt_nothing(run, summary, rivals):
        return Answer(question, f"{value}: {guessing.GUESSES}", said, "bad")
    return Answer(question, value, said)


def _privacy(run: RunConfig, summary: Summary) -> Answer:
    question, accountant = "What it cost in privacy", epsilons.shown(summary)
    if text.noise_off(run):
        return Answer(question, "epsilon infinite: no protection", why_no_epsilon(run, summary), "bad")
    if accountant is None:
        return Answer(question, "no epsilon: no protection", why_no_epsilon(run, summary), "bad")
    value = text.largest_epsilon(summary, accountant)
    word, what = epsilons.word(summary, accountant, value), "epsilon" if accountant in EPSILONS else "delta"
    shown = f"{what} {figures.epsilon(value)}: {'no' if word == 'none' else word} protection"
    label = epsilons.label(accountant, summary.privacy.delta)
    return Answer(question, shown, f"{_worth(run, summary, accountant, value)}; {label}", _KIND[word])


_KIND = {"none": "bad", "weak": "", "moderate": "good", "strong": "good"}


def _worth(run: RunConfig, summary: Summary, accountant: str, value: float | None) -> str:
    """Why an epsilon has its word, in terms of who can be told to be in the data."""
    privacy = summary.privacy
    if summary.keystream is not None:
        return "anybody can compute the noise (test keystream)"
    if not ACCOUNTANTS[accountant].sound:
        return "a number without a proof"
    if not privacy.enforced:
        return "nothing enforces the declared C"
    delta = 0.0 if ACCOUNTANTS[accountant].pure else privacy.delta
    if void(delta, privacy.samples):
        return "delta is 1/D or more"
    epsilon = float("inf") if value is None else value
    if hit_rate(epsilon, delta, 1e-4) >= 1.0:
        return "who was in the data may come out, with less than one false alarm in 10,000"
    return f"at 1 % false alarms, at most {text.percent(hit_rate(epsilon, delta, 0.01))} of samples are found out"


def why_no_epsilon(run: RunConfig, summary: Summary) -> str:
    """Why there is none, in one sentence."""
    if text.noise_off(run):
        noisy = method_of(run).noisy
        return "The noise is off." if noisy else f"Method {run.algorithm.method} draws no noise."
    if summary.privacy.C is None and not summary.privacy.enforced:
        return "No bound on gradients is known: no epsilon."
    return "No accountant has a value." if summary.rounds > 0 else "No rounds yet."


def _eavesdropper(attacks: Table | None) -> Answer:
    question = "What an eavesdropper got"
    if attacks is None or not attacks.standings:
        return Answer(question, "nobody tried", "dpgt eavesdrop attack measures it")
    return Answer(question, attacks.headline, attacks.names, "bad" if attacks.won else "")


def _took(summary: Summary) -> Answer:
    sent: Sequence[int] = [agent.bytes_sent for agent in summary.agents if agent.bytes_sent is not None]
    parts = [text.pace(summary)]
    least = "at least " if text.sent_in_part(summary, *summary.agents) else ""
    parts += [f"{least}{text.size(sum(sent))} sent"] if sent else []
    parts += [] if summary.consensus_error is None else [f"consensus error {figures.number(summary.consensus_error)}"]
    parts.append(text.restarts(summary))
    return Answer("What it took", f"{summary.rounds:,} rounds", "; ".join(part for part in parts if part))
