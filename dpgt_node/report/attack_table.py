"""What attacks found, in one table: by verdict, each with the quantity that it is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpgt_node import figures
from dpgt_node.values import dataclass

VERDICTS = {
    "succeeds": "bad",
    "partly": "bad",
    "fails": "good",
    "clean": "good",
    "no power": "",
    "not measured": "",
}
"""From the adversary's best to its worst, each with its class in the style sheet."""
MEANINGS = {
    "clean": "the attack looked for a fault, and found none",
    "no power": "the attack could not have told, whatever the truth; this is no sign of privacy",
}
"""Of the verdicts that do not speak for themselves."""
_WON = ("succeeds", "partly")
_MUTE = {"no power": "without power", "not measured": "not measured"}
"""Verdicts that say nothing either way, as a headline counts them."""
_TRAFFIC, _TRAFFIC_SHOWS = "traffic", "sizes and times show"
"""The attack that reads no payload: what it finds out are sizes and times, and no part of anybody's data."""
_NAMES_MAX = 3

ESTIMATORS = {
    "A": "difference of two gradients in a row, from two y̆",
    "X": "y of a round, from how x̆ moved",
    "B": "each gradient by itself, from all y̆ so far",
    "B from x": "each gradient by itself, from x̆ alone",
    "D": "the agent's own part of y: y̆ less what it mixed",
    "E": "the agent's own part of x: x̆ less what it mixed",
    "x": "x of a round, by dead reckoning from y̆",
    "fused": "least squares on D and E together",
    "smoothed": "a smoother with a prior that is fitted to what was seen",
    "likely": "the most probable gradients under the exact noise",
}
"""What each estimator of the gradients' attack is an estimate of."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """What an attack is judged by: ``keys`` of its findings, the first that is there; ``ends`` of its interval.

    ``guess``: what a guess reaches, a number or the key that has it.  ``least``: the smallest is the adversary's best.
    ``share``: of 1, and read as a percentage.
    """

    words: str
    keys: tuple[str, ...]
    ends: tuple[str, str] | None = None
    guess: float | str | None = None
    least: bool = False
    share: bool = False


_COSINES = ("likely", "smoothed", "fused", "B", "B_from_x")
QUANTITIES: Mapping[str, Quantity] = {
    "gradients": Quantity("cosine with the true gradient", tuple(f"{name}_cosine" for name in _COSINES), guess=0.0),
    "labels": Quantity("share of labels right", ("labels_right",), guess="guessing", share=True),
    "membership": Quantity("AUC: member or not", ("auc",), ("auc_low", "auc_high"), guess=0.5),
    "lira": Quantity("AUC: member or not", ("auc",), ("auc_low", "auc_high"), guess=0.5),
    "lira-model": Quantity("AUC: member or not", ("auc",), ("auc_low", "auc_high"), guess=0.5),
    "rmia": Quantity("AUC: member or not", ("auc",), ("auc_low", "auc_high"), guess=0.5),
    "population": Quantity("AUC: member or not", ("auc",), ("auc_low", "auc_high"), guess=0.5),
    "properties": Quantity("share of its classes right", ("classes_right",), guess="guessing", share=True),
    "inversion": Quantity("PSNR of pictures, dB", ("psnr_db",), guess="baseline_db"),
    "generator": Quantity("noise streams predicted", ("recovered",), guess=0.0),
    "reuse": Quantity("closest two noises, of what is expected", ("smallest",), least=True),
    "retries": Quantity("releases drawn again", ("that_differ",)),
    "floats": Quantity("share of noise on the grid", ("on_grid",), least=True, share=True),
    "traffic": Quantity("payloads read; sizes and times show", ("payloads_recovered",)),
}


@dataclass(frozen=True, slots=True)
class Reached:
    """How far an attack got: its quantity in words, the adversary's best value, its interval, what a guess reaches and
    what was predicted; None: not known.  ``agent``: whose it is, empty: the run's.
    """

    attack: str
    verdict: str
    words: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    guess: float | None = None
    predicted: float | None = None
    agent: str = ""

    @property
    def won(self) -> bool:
        """Whether it got anything."""
        return self.verdict in _WON


@dataclass(frozen=True, slots=True)
class Line:
    """One attack and one of its verdicts; ``cells``: quantity, value, interval, guessing, prediction, whose it is."""

    attack: str
    verdict: str
    kind: str
    cells: Sequence[str]


@dataclass(frozen=True, slots=True)
class Table:
    """``standings``: the worst verdict of each attack, by its name."""

    lines: Sequence[Line]
    standings: Mapping[str, str]

    @property
    def settings(self) -> Mapping[str, Mapping[str, str]]:
        """``standings`` by the setting behind their names, those of the run itself first ("", or "this run ...")."""
        by: dict[str, dict[str, str]] = {}
        for name, verdict in self.standings.items():
            base, _, setting = name.partition(", ")
            by.setdefault(setting, {})[base] = verdict
        return dict(sorted(by.items(), key=lambda item: not (item[0] == "" or item[0].startswith("this run"))))

    @property
    def own(self) -> Mapping[str, str]:
        """The standings of the first setting: a study beside the run, with other noise, says nothing of the run."""
        return next(iter(self.settings.values()), {})

    @property
    def won(self) -> bool:
        """Whether an attack got anything there; that sizes and times show is no such thing."""
        return bool(_won(self.own))

    @property
    def headline(self) -> str:
        """``2 of 8 attacks succeed, 1 in part, 3 not measured; sizes and times show``, of that setting alone."""
        told, shows = list(_told(self.own).values()), _shows(self.own)
        if not told:
            return f"no payload read; {_TRAFFIC_SHOWS}" if shows else "not measured"
        said = f"{told.count('succeeds')} of {len(told)} attacks succeed"
        said += f", {told.count('partly')} in part" if "partly" in told else ""
        for mute, words in _MUTE.items():
            count = list(self.own.values()).count(mute)
            said += f", {count} {words}" if count else ""
        return said + (f"; {_TRAFFIC_SHOWS}" if shows else "")

    @property
    def names(self) -> str:
        """Which succeed, in which setting where there are several; that none does proves nothing."""
        said = []
        for setting, standings in self.settings.items():
            won, told = _won(standings), _told(standings)
            if setting:
                counted = [f"{len(won)} of {len(told)}" + (f": {', '.join(won)}" if won else "")] if told else []
                shows = [_TRAFFIC_SHOWS] if _shows(standings) else []
                said.append(f"{setting} {', '.join([*counted, *shows]) or 'not measured'}")
            elif won:
                said.append(figures.some(won, _NAMES_MAX))
        return "; ".join(said) or "that none succeeds proves nothing about the next one"


def _shows(standings: Mapping[str, str]) -> bool:
    """Whether traffic analysis found something out."""
    return standings.get(_TRAFFIC) in _WON


def _told(standings: Mapping[str, str]) -> Mapping[str, str]:
    """Those that count: what could tell, of the attacks on what was sent."""
    return {
        name: verdict
        for name, verdict in standings.items()
        if verdict not in _MUTE and not (name == _TRAFFIC and verdict in _WON)
    }


def _won(standings: Mapping[str, str]) -> list[str]:
    return [name for name, verdict in _told(standings).items() if verdict in _WON]


def table(attacks: Sequence[Mapping[str, Any]]) -> Table:
    """Of the entries of attacks.json.  KeyError, TypeError: they are damaged."""
    lines, standings = [], {}
    for entry in attacks:
        name, findings = str(entry["attack"]), entry["findings"]
        met = {str(one["verdict"]) for one in findings}
        ordered = [verdict for verdict in VERDICTS if verdict in met]
        if ordered:
            standings[name] = ordered[0]
        for verdict in ordered:
            lines.append(_line(name, verdict, [one for one in findings if one["verdict"] == verdict]))
    order = list(VERDICTS)
    return Table(sorted(lines, key=lambda line: order.index(line.verdict)), standings)


def base_of(name: str) -> str:
    """The attack's own name, without the setting that a study puts behind it."""
    return name.partition(", ")[0]


def explained(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The estimators that an entry of the gradients' attack names, each with what it is."""
    if base_of(str(entry["attack"])) != "gradients":
        return []
    keys = {str(key).replace("_", " ") for one in entry["findings"] for key in one["measured"]}
    return [(name, words) for name, words in ESTIMATORS.items() if any(key.startswith(f"{name} ") for key in keys)]


def reached(entry: Mapping[str, Any]) -> Reached | None:
    """What the attack of an entry got furthest with, whatever the verdict; None: it found nothing."""
    verdicts = {str(one["verdict"]) for one in entry["findings"]}
    worst = next((verdict for verdict in VERDICTS if verdict in verdicts), None)
    return None if worst is None else _reached(str(entry["attack"]), worst, entry["findings"])


def _reached(name: str, verdict: str, findings: Sequence[Mapping[str, Any]]) -> Reached:
    quantity = QUANTITIES.get(base_of(name))
    best = _best(quantity, findings)
    if quantity is None or best is None:
        return Reached(name, verdict, "" if quantity is None else quantity.words)
    key, finding = best
    measured, words = finding["measured"], quantity.words
    if key.endswith("_cosine"):
        estimator = key.removesuffix("_cosine").replace("_", " ")
        words = f"{words}, by {estimator}: {ESTIMATORS.get(estimator, 'an estimate of its own')}"
    low, high = (None, None) if quantity.ends is None else (_float(measured.get(end)) for end in quantity.ends)
    guess = measured.get(quantity.guess) if isinstance(quantity.guess, str) else quantity.guess
    predicted = _float(finding["predicted"].get(key))
    return Reached(name, verdict, words, _float(measured[key]), low, high, _float(guess), predicted, finding["agent"])


def _line(name: str, verdict: str, findings: Sequence[Mapping[str, Any]]) -> Line:
    agents = [str(one["agent"]) for one in findings if one["agent"]]
    whose, got = figures.some(list(dict.fromkeys(agents)), _NAMES_MAX) or "the run", _reached(name, verdict, findings)
    several = got.value is not None and got.agent and len(set(agents)) > 1
    number = figures.percent if name in QUANTITIES and QUANTITIES[name].share else figures.number
    cells = (
        got.words or "–",
        number(got.value),
        "–" if got.low is None or got.high is None else f"{number(got.low)} to {number(got.high)}",
        number(got.guess),
        number(got.predicted),
        f"{whose}; value of {got.agent}" if several else whose,
    )
    return Line(name, verdict, VERDICTS[verdict], cells)


def _best(quantity: Quantity | None, findings: Sequence[Mapping[str, Any]]) -> tuple[str, Mapping[str, Any]] | None:
    """The adversary's best finding, with the key that has its number; None where there is no number."""
    if quantity is None:
        return None
    found = [
        (value, key, one)
        for one in findings
        for key in quantity.keys
        if (value := _float(one["measured"].get(key))) is not None
    ]
    if not found:
        return None
    _, key, one = (min if quantity.least else max)(found, key=lambda item: item[0])
    return key, one


def _float(value: object) -> float | None:
    return None if value is None else float(str(value))
