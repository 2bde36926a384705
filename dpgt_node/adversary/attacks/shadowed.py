"""Attacks that compare a run with shadow runs: ``lira`` on the transcript, ``lira-model`` and ``rmia`` on the published
model.

Each names its adversary.  All have the run file, public samples and the pool of candidates
(:mod:`dpgt_node.adversary.membership.shadows`).

* ``lira``: whoever was given the transcript; its signal is the matched filter's T, clipped as the agents clip.
* ``lira-model``, ``rmia``: whoever has the published model of an agent, the mean x̆ of the second half of the run, and
  saw nothing else; their signal is the probability of the right label.

``measured`` is of the run itself.  ``predicted`` is what the same attack reaches on the shadow runs, each in turn the
run under attack and the others its shadows; and the most that any attack can reach under the accountants' guarantees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from dpgt_node.adversary.attack import Finding, NotApplicable, Options, Result
from dpgt_node.adversary.attacks.common import Curves, result, setting, targets, whole
from dpgt_node.adversary.attacks.membership import verdict
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.adversary.membership import grouped, likelihood, rates
from dpgt_node.adversary.membership.shadows import NOBODY, Shadows, Signals
from dpgt_node.adversary.membership.signals import Lens, logit
from dpgt_node.record.released import window_start
from dpgt_node.record.truth import Truth
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

GAMMA, OFFLINE_A = 1.0, 0.3
LEAST = 5
"""Members and others that must be scored."""
_POINTS = 300
Scorer = Callable[[Signals, Signals, I64, int], Mapping[str, F64]]
"""(signals of the run, of its shadows, their ``held``, agent) -> scores (N,) by variant; the first is the main one."""


@dataclass(frozen=True, slots=True)
class Shadowed:
    """``of_model``: its adversary has the published model alone."""

    name: str
    of_model: bool
    said: str
    needs: ClassVar[frozenset[str]] = frozenset({"shadows"})

    @property
    def settings(self) -> Mapping[str, str]:
        """RMIA's; the likelihood ratio has none."""
        if self.name != "rmia":
            return {}
        return {
            "gamma": f"how many times likelier than a public sample (default {GAMMA:g})",
            "a": f"offline: how far reference models without a sample stand for those with it (default {OFFLINE_A:g})",
        }

    def run(self, observation: Observation, truth: Truth | None, options: Options) -> Result:
        """One finding an agent, and one of all of them together."""
        whole(observation, self.name)
        shadows = options.shadows
        if shadows is None:
            raise NotApplicable.one("command line", "--shadows", f"{self.name} needs shadow runs")
        if not self.of_model and np.isnan(shadows.signals.matched).all():
            message = "its filter is of softmax models: lira-model and rmia take every model"
            raise NotApplicable.one("run file", "model.name", message)
        scorer = self._scorer(options)
        m = observation.facts.schedule.m or round(float(np.mean(shadows.samples)))
        signals = Lens(observation, shadows.pool, m).look(observation)
        findings, curves, pooled = [], Curves(), list[_Scored]()
        for i in targets(observation, options):
            scored = _scored(scorer, signals, shadows, i)
            findings.append(_finding(observation.facts.names[i], scored, shadows, curves))
            pooled.append(scored)
        if len(pooled) > 1:
            findings.append(_finding("", _together(pooled), shadows, curves))
        last = findings[-1].measured
        text = "not measured" if last.get("auc") is None else _headline(last)
        made = result(self.name, f"{self.said}: {text}", findings, observation, curves=curves)
        return replace(made, vantage=self._adversary(observation, shadows))

    def _adversary(self, observation: Observation, shadows: Shadows) -> str:
        K = observation.facts.run.K
        used = f"; of it only each agent's published model, the mean x̆ of rounds {window_start(K)} to {K}"
        pool = f"knows {shadows.pool.size} samples, of which agents hold some, and trained {shadows.count} shadow runs"
        return f"{observation.vantage}{used if self.of_model else ''}; {pool}"

    def _scorer(self, options: Options) -> Scorer:
        if self.name == "rmia":
            gamma, a = setting(options, "gamma", GAMMA, _above_zero), setting(options, "a", OFFLINE_A, _share)
            return lambda *given: _rmia(*given, gamma=gamma, a=a)
        return _lira_model if self.of_model else _lira


@dataclass(frozen=True, slots=True)
class _Scored:
    """Scores by variant of members and others: of the run, and of each shadow run in its place; whose they are."""

    members: Mapping[str, F64]
    others: Mapping[str, F64]
    expected: tuple[tuple[Mapping[str, F64], Mapping[str, F64]], ...]
    agents: tuple[int, ...]

    def rates(self, prefix: str) -> tuple[dict[str, float | None], dict[str, float | None]]:
        """What was measured, and what the shadow runs let expect."""
        each = [(one[prefix], rest[prefix]) for one, rest in self.expected]
        members, others = (np.concatenate(side) for side in zip(*each, strict=True))
        runs = [rates.expected(one, rest, prefix) for one, rest in each if len(one) and len(rest)]
        found = rates.measured(self.members[prefix], self.others[prefix], prefix)
        return rates.widened(found, runs), rates.expected(members, others, prefix)


def _scored(scorer: Scorer, signals: Signals, shadows: Shadows, i: int) -> _Scored:
    inside, outside = _told(scorer(signals, shadows.signals, shadows.held, i), shadows.own, i)
    parts = []
    for s in range(shadows.count):
        rest = np.arange(shadows.count) != s
        one, others = _at(shadows.signals, s), _at(shadows.signals, rest)
        parts.append(_told(scorer(one, others, shadows.held[rest], i), shadows.held[s], i))
    return _Scored(inside, outside, tuple(parts), (i,))


def _told(scores: Mapping[str, F64], held: I64, i: int) -> tuple[dict[str, F64], dict[str, F64]]:
    """Scores of those that agent ``i`` holds, and of those that nobody holds; where anything is said of them."""
    inside = {key: values[(held == i) & ~np.isnan(values)] for key, values in scores.items()}
    return inside, {key: values[(held == NOBODY) & ~np.isnan(values)] for key, values in scores.items()}


def _at(signals: Signals, which: int | np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Signals:
    return Signals(signals.matched[which], signals.confidence[which], signals.public[which])


def _together(parts: list[_Scored]) -> _Scored:
    expected = [
        (_joined([one for one, _ in run]), _joined([rest for _, rest in run]))
        for run in zip(*(part.expected for part in parts), strict=True)
    ]
    members, others = _joined([part.members for part in parts]), _joined([part.others for part in parts])
    return _Scored(members, others, tuple(expected), tuple(i for part in parts for i in part.agents))


def _joined(parts: Sequence[Mapping[str, F64]]) -> dict[str, F64]:
    return {key: np.concatenate([one[key] for one in parts]) for key in parts[0]}


def _lira(run: Signals, shadows: Signals, held: I64, i: int) -> dict[str, F64]:
    return _two_sided(run.matched[i], shadows.matched[:, i], held, i)


def _lira_model(run: Signals, shadows: Signals, held: I64, i: int) -> dict[str, F64]:
    return _two_sided(logit(run.confidence[i]), logit(shadows.confidence[:, i]), held, i)


def _two_sided(signals: F64, shadows: F64, held: I64, i: int) -> dict[str, F64]:
    moments = likelihood.Moments.of(shadows, held == i, held == NOBODY)
    return {
        "": likelihood.lira_online(signals, moments),
        "offline_": likelihood.lira_offline(signals, moments),
    }


def _rmia(run: Signals, shadows: Signals, held: I64, i: int, *, gamma: float, a: float) -> dict[str, F64]:
    p, references = np.exp(run.confidence[i]), np.exp(shadows.confidence[:, i])
    public, beside = np.exp(run.public[i]), np.exp(shadows.public[:, i])
    moments = likelihood.Moments.of(references, held == i, held == NOBODY)
    mean_public = beside.mean(axis=0)
    online, offline = likelihood.reference_online(moments), likelihood.reference_offline(moments, a)
    return {
        "": likelihood.rmia(p, online, public, mean_public, gamma),
        "offline_": likelihood.rmia(p, offline, public, 0.5 * ((1.0 + a) * mean_public + (1.0 - a)), gamma),
    }


def _finding(name: str, scored: _Scored, shadows: Shadows, curves: Curves) -> Finding:
    least = min(len(side[key]) for side in (scored.members, scored.others) for key in side)
    if least < LEAST:
        note = "too few members or others of which shadow runs tell something: take more of them"
        return Finding(name, "no power", {"auc": None}, note=note)
    found: dict[str, float | None] = {}
    expected: dict[str, float | None] = {}
    for prefix in scored.members:
        measured, likely = scored.rates(prefix)
        found |= measured
        expected |= likely
    names = list(shadows.guarantees)
    guarantees = [shadows.guarantees[names[i]] for i in scored.agents] if names else []
    limits = [rates.bounds(one) for one in guarantees]
    if limits and all(limits):
        expected |= {key: max(value for one in limits if (value := one[key]) is not None) for key in limits[0]}
    curves[f"{name}: ROC"] = rates.roc(scored.members[""], scored.others[""])
    curves[f"{name}: ROC, expected of simulated runs"] = rates.thinned(
        *rates.roc(*(_joined(side)[""] for side in zip(*scored.expected, strict=True))), _POINTS
    )
    if limits and all(limits):
        alpha = np.logspace(-4.0, 0.0, _POINTS)
        most = np.max([rates.ceiling(one, alpha) for one in guarantees], axis=0)
        curves[f"{name}: ROC, the most that the guarantee allows"] = alpha, most
    refuted = [
        said
        for prefix in scored.members
        if len(guarantees) == 1
        and (said := grouped.broken(scored.members[prefix], scored.others[prefix], guarantees[0])) is not None
    ]
    note = "" if name else "all agents together"
    if refuted:
        note = f"REFUTES what is guaranteed: {refuted[0]}"
    return Finding(name, "succeeds" if refuted else verdict(found), found, expected, note)


def _headline(found: Mapping[str, float | None]) -> str:
    numbers = [found[key] for key in ("auc", "tpr_at_1_percent", "tpr_at_0.1_percent")]
    auc, one, tenth = (float("nan") if value is None else value for value in numbers)
    return f"AUC {auc:.3f} (0.5 is guessing), {one:.1%} of members at 1 % false alarms, {tenth:.1%} at 0.1 %"


def _above_zero(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise ValueError(f"{text} is not a number above 0")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{text} is not between 0 and 1")
    return value


lira = Shadowed("lira", False, "likelihood ratio of the transcript, by shadow runs")
lira_model = Shadowed("lira-model", True, "likelihood ratio of the published model's confidence, by shadow runs")
rmia = Shadowed("rmia", True, "the published model's confidence beside that of public samples and reference models")
