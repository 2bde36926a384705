"""A comparison as a page and as JSON data: accuracy and attacks against epsilon, a table, what the run files differ in.

Every run is one draw of its noise: what differs by a point or two may be chance, and the page says so.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from dpgt_node import figures
from dpgt_node.config.model import RunConfig
from dpgt_node.durable import write_text
from dpgt_node.errors import ConfigError
from dpgt_node.record import epsilons, guessing
from dpgt_node.record.summary import to_json
from dpgt_node.report import svg, text
from dpgt_node.report.attack_table import VERDICTS, Reached
from dpgt_node.report.comparison.differences import differences
from dpgt_node.report.comparison.drawing import Dot, draw
from dpgt_node.report.comparison.runs import Compared
from dpgt_node.report.rendering import Answer, Mark, rendered
from dpgt_node.values import dataclass

ON_VALUES = (
    "gradients", "labels", "membership", "lira", "lira-model", "rmia", "population", "properties", "inversion",
)  # fmt: skip
"""Attacks whose success depends on epsilon; the others look for faults of an implementation."""
_BEGINS = "<!doctype html>"


@dataclass(frozen=True, slots=True)
class Figure:
    title: str
    aside: str
    drawing: str


@dataclass(frozen=True, slots=True)
class Row:
    """``head``: whose row it is; ``cells`` in the order of the table's heads behind the first.

    ``bad``: which of them, by number, should stop a reader.
    """

    mark: Mark | None
    head: str
    cells: Sequence[str]
    bad: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Table:
    heads: Sequence[str]
    rows: Sequence[Row]


def write_comparison(path: Path, runs: Sequence[Compared]) -> None:
    """Write the page to ``path``.  ConfigError: something else is there."""
    write_page(path, render(runs))


def write_page(path: Path, page: str) -> None:
    """Write ``page`` to ``path``.  ConfigError: something else is there."""
    try:
        if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(_BEGINS):
            raise ConfigError.one("command line", "--out", f"{path} is there and is no such page: choose another name")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, page)
    except OSError as error:
        raise ConfigError.one("command line", "--out", f"{path}: {error.strerror or error}") from error


def render(runs: Sequence[Compared]) -> str:
    """The whole page; equal runs give equal text, and what comes from files is escaped."""
    return rendered("comparison.html", values(runs))


def values(runs: Sequence[Compared]) -> dict[str, object]:
    """What comparison.html shows."""
    differing = differences([one.run for one in runs])
    letters = [one.letter for one in runs]
    return {
        "title": f"{len(runs)} runs on {_data(runs[0].run)}",
        "lead": _lead(runs),
        "answers": [_most_accurate(runs), _least_epsilon(runs), _not_beaten(runs), _eavesdropped(runs)],
        "legend": [Mark("thick", _variable(one), f"{one.letter}: {one.folder}") for one in runs],
        "figures": [_accuracy(runs), *_attacks(runs)],
        "runs": _table(runs),
        "attacks": _attack_table(runs),
        "differences": Table(letters, [Row(None, key, values) for key, values in differing.items()]),
        "conditional": any(one.word == "none" and one.epsilon < math.inf for one in runs),
    }


def document(runs: Sequence[Compared]) -> dict[str, Any]:
    """What the page says, as JSON data; an attack that was not run on a run is not there."""
    return {
        "runs": [to_json(_facts(one, runs)) for one in runs],
        "attacks": {
            name: {letter: to_json(one) for letter, one in found.items()} for name, found in _by_attack(runs).items()
        },
        "differences": {
            key: dict(zip((one.letter for one in runs), values, strict=True))
            for key, values in differences([one.run for one in runs]).items()
        },
    }


def beaten_by(one: Compared, runs: Sequence[Compared]) -> list[Compared]:
    """Runs whose worst agent is at least as accurate at no more epsilon, and better in one of both.

    An epsilon that protects nothing counts as infinite.
    """
    return [
        other
        for other in runs
        if other.worst >= one.worst
        and other.protected <= one.protected
        and (other.worst, -other.protected) != (one.worst, -one.protected)
    ]


def _facts(one: Compared, runs: Sequence[Compared]) -> dict[str, Any]:
    summary, alone = one.summary, one.alone
    sent = [agent.bytes_sent for agent in summary.agents if agent.bytes_sent is not None]
    return {
        "letter": one.letter, "folder": str(one.folder), "name": summary.name, "run_id": summary.run_id,
        "outcome": guessing.outcome(one.run, summary, one.rivals), "method": summary.method,
        "mechanism": summary.mechanism,
        "agents": len(summary.agents), "rounds": summary.rounds, "seconds": summary.seconds,
        "bytes_sent": sum(sent) if sent else None, "accuracy_worst": one.worst,
        "accuracy_median": text.middle(one.accuracies), "accuracy_best": one.accuracies[-1], "alone_worst": alone,
        "guessing": guessing.guess_rate(one.run, one.rivals), "accountant": one.accountant,
        "delta": one.delta,
        "epsilon": one.epsilon if one.accountant is not None else None, "strength": one.word,
        "beaten_by": [other.letter for other in beaten_by(one, runs)],
    }  # fmt: skip


def _data(run: RunConfig) -> str:
    kind, colon, path = run.data.dataset.partition(":")
    return Path(path).name if colon and path else kind


def _lead(runs: Sequence[Compared]) -> str:
    whose = "every agent's largest epsilon, one sample replaced"
    return f"{whose} · each run is one draw of its noise, so a point or two may be chance"


def _variable(one: Compared) -> str:
    at = ord(one.letter) - ord("A") + 1
    return f"--s{at}" if at <= svg.SERIES_MAX else "--muted"


def colour(one: Compared) -> str:
    at = ord(one.letter) - ord("A")
    return svg.SERIES[at] if at < svg.SERIES_MAX else svg.MUTED


def _spent(one: Compared) -> str:
    """Its epsilon in words, with what it is worth."""
    if one.accountant is None:
        return "no epsilon"
    return f"epsilon {text.judged(one.epsilon, one.word)}"


def _most_accurate(runs: Sequence[Compared]) -> Answer:
    best = max(runs, key=lambda one: (one.worst, -one.protected))
    beside = _beside(best)
    said = f"worst agent; {_spent(best)}{'; ' if beside else ''}{beside}"
    value = f"{best.letter}: {text.percent(best.worst)}"
    return Answer(
        "Most accurate", value, said, "bad" if guessing.learnt_nothing(best.run, best.summary, best.rivals) else ""
    )


def _beside(one: Compared) -> str:
    """What an accuracy is to be measured by, where it is known."""
    alone, guess = one.alone, guessing.guess_rate(one.run, one.rivals)
    parts = [] if alone is None else [f"alone {text.percent(alone)}"]
    parts += [] if guess is None else [f"guessing {text.percent(guess)}"]
    return ", ".join(parts)


def _least_epsilon(runs: Sequence[Compared]) -> Answer:
    best = min(runs, key=lambda one: (one.protected, -one.worst))
    if math.isinf(best.protected):
        return Answer(
            "Best protected", "none of them protects", "no epsilon here is a guarantee that hides anything", "bad"
        )
    value = f"{best.letter}: epsilon {figures.epsilon(best.epsilon)}"
    return Answer("Best protected", value, f"{best.word} protection; worst agent {text.percent(best.worst)}")


def _not_beaten(runs: Sequence[Compared]) -> Answer:
    beaten = {one.letter: [other.letter for other in beaten_by(one, runs)] for one in runs}
    kept = [letter for letter, by in beaten.items() if not by]
    lost = "; ".join(f"{letter} by {', '.join(by)}" for letter, by in beaten.items() if by)
    said = f"beaten in accuracy and epsilon: {lost}" if lost else "each buys accuracy with epsilon"
    return Answer("Not beaten", ", ".join(kept), said)


def _eavesdropped(runs: Sequence[Compared]) -> Answer:
    question = "What an eavesdropper got"
    attacked = [one for one in runs if one.attacks]
    if not attacked:
        return Answer(question, "nobody tried", "dpgt eavesdrop attack measures it")
    won: dict[str, list[str]] = {}
    for one in attacked:
        for got in one.attacks:
            if got.won:
                won.setdefault(got.attack, []).append(one.letter)
    if not won:
        value = f"nothing, of {', '.join(one.letter for one in attacked)}"
        return Answer(question, value, "that no attack succeeds proves nothing about the next one")
    whose = ", ".join(one.letter for one in attacked if any(got.won for got in one.attacks))
    said = "; ".join(f"{attack}: {', '.join(letters)}" for attack, letters in won.items())
    return Answer(question, f"something of {whose}", f"attacks that succeed, at least in part: {said}", "bad")


def _accuracy(runs: Sequence[Compared]) -> Figure:
    dots = [
        Dot(
            one.letter, colour(one), one.epsilon, one.worst, one.worst, one.accuracies[-1], one.word == "none",
            one.alone,
        )
        for one in runs
    ]  # fmt: skip
    guesses = {guessing.guess_rate(one.run, one.rivals) for one in runs}
    guess = next(iter(guesses)) if len(guesses) == 1 else None
    parts = ["dot: worst agent, line: up to the best"]
    parts += ["grey: worst agent alone"] if any(dot.beside is not None for dot in dots) else []
    parts += [] if guess is None else ["dashed: guessing"]
    drawing = draw("cmpaccuracy", "Test accuracy", "test accuracy", dots, guess, percent=True)
    return Figure("Test accuracy against epsilon", "; ".join(parts), drawing)


def _by_attack(runs: Sequence[Compared]) -> dict[str, dict[str, Reached]]:
    """Attack -> letter -> how far it got, in the order of the first run that has it."""
    found: dict[str, dict[str, Reached]] = {}
    for one in runs:
        for got in one.attacks:
            found.setdefault(got.attack, {})[one.letter] = got
    return found


def _attacks(runs: Sequence[Compared]) -> list[Figure]:
    """One chart an attack on private values that has a number for two runs or more."""
    figures = []
    for number, (name, found) in enumerate(_by_attack(runs).items()):
        if name not in ON_VALUES:
            continue
        dots = [
            Dot(one.letter, colour(one), one.epsilon, got.value, got.value if got.low is None else got.low,
                got.value if got.high is None else got.high, one.word == "none")
            for one in runs
            if (got := found.get(one.letter)) is not None and got.value is not None and math.isfinite(got.value)
        ]  # fmt: skip
        if len(dots) < 2:
            continue
        guesses = {got.guess for got in found.values() if got.value is not None}
        guess = next(iter(guesses)) if len(guesses) == 1 else None
        words = next(got.words for got in found.values() if got.words).partition(", by ")[0]
        aside = "dot: the attack's best" + ("" if guess is None else "; dashed: guessing")
        drawing = draw(f"cmpattack{number}", name, words, dots, guess, percent=False)
        figures.append(Figure(f"{name} against epsilon", aside, drawing))
    return figures


def _table(runs: Sequence[Compared]) -> Table:
    heads = ["worst agent", "median", "alone", "guessing", "epsilon", "by", "outcome", "rounds", "took", "sent"]
    rows = []
    for one in runs:
        facts, accountant = _facts(one, runs), one.accountant
        sent, sent_in_part = facts["bytes_sent"], text.sent_in_part(one.summary, *one.summary.agents)
        cells = (
            text.percent(one.worst),
            text.percent(facts["accuracy_median"]),
            text.percent(facts["alone_worst"]),
            text.percent(facts["guessing"]),
            "–" if accountant is None else text.judged(one.epsilon, one.word),
            "–" if accountant is None else epsilons.qualifier(accountant, one.summary.privacy.delta),
            str(facts["outcome"]),
            f"{facts['rounds']:,}",
            "–" if text.was_resumed(one.summary) else text.duration(facts["seconds"]),
            ("≥\xa0" if sent_in_part and sent is not None else "") + text.size(sent),
        )
        bad = [heads.index("epsilon")] if one.word == "none" else []
        bad += [heads.index("outcome")] if guessing.learnt_nothing(one.run, one.summary, one.rivals) else []
        rows.append(Row(Mark("thick", _variable(one)), f"{one.letter}: {one.folder.name or one.folder}", cells, bad))
    return Table(heads, rows)


def _attack_table(runs: Sequence[Compared]) -> Table | None:
    found = _by_attack(runs)
    if not found:
        return None
    order = list(VERDICTS)

    def worst(name: str) -> int:
        return min(order.index(got.verdict) for got in found[name].values())

    rows = []
    for name in sorted(found, key=worst):
        words = next((got.words for got in found[name].values() if got.words), "").partition(", by ")[0]
        cells = [_got(found[name].get(one.letter)) for one in runs]
        won = [at for at, one in enumerate(runs, start=1) if (got := found[name].get(one.letter)) and got.won]
        rows.append(Row(None, name, [words or "–", *cells], won))
    return Table(["quantity", *(one.letter for one in runs)], rows)


def _got(one: Reached | None) -> str:
    if one is None:
        return "not run"
    value = f" ({figures.number(one.value)})" if one.value is not None else ""
    return f"{one.verdict}{value}"
