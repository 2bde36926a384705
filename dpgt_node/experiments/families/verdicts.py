"""From measurements to verdicts.  Nothing here knows what the paper, or anybody, expects."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

from dpgt_node import figures
from dpgt_node.report.experiments.values import Verdict
from dpgt_node.values import dataclass

Answer = Literal["yes", "no", "open"]
"""``open``: the difference is within what these seeds scatter."""
CONFIDENCE = 0.95
TRAIN, TEST = "training", "test"


@dataclass(frozen=True, slots=True)
class Score:
    """One seed's curve in four numbers, each a fraction: the area under it, as a mean over k > 0, and its end."""

    area: Mapping[str, float]
    end: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Answered:
    """The verdict with its reason."""

    verdict: Verdict
    reason: str


def larger(a: Sequence[float], b: Sequence[float]) -> Answer:
    """Whether ``a`` is larger than ``b`` in the mean; pair by pair, seeds alike.  One seed: by its sign alone.

    More seeds: "open" where the interval of the mean difference (Student, 95 %) holds 0.  Equal throughout is "no".
    ValueError: not as many.
    """
    differences = [x - y for x, y in zip(a, b, strict=True)]
    mean = statistics.fmean(differences)
    if not any(differences):
        return "no"
    if len(differences) > 1:
        from scipy.special import stdtrit

        half = float(stdtrit(len(differences) - 1, 0.5 + CONFIDENCE / 2)) * statistics.stdev(differences)
        if abs(mean) <= half / math.sqrt(len(differences)):
            return "open"
    return "yes" if mean > 0 else "no"


def faster(scores: Sequence[Sequence[Score]], names: Sequence[str]) -> Answered:
    """Whether each of ``scores`` (one list a curve, one score a seed) converges faster than the next.

    Faster is: a larger area and a higher end, on training and on test samples.
    """
    answers: dict[str, Answer] = {}
    for (first, second), pair in zip(pairwise(scores), pairwise(names), strict=True):
        for which in (TRAIN, TEST):
            for what in ("area", "end"):
                values = [[getattr(score, what)[which] for score in curve] for curve in (first, second)]
                answers[f"{pair[0]} over {pair[1]}, {which}, {what}"] = larger(*values)
    return combined(answers, seeds=len(scores[0]))


def combined(answers: Mapping[str, Answer], seeds: int = 0) -> Answered:
    """All yes: reproduced; any no: not reproduced; else too close to call.  ``seeds`` 0: nothing was drawn."""
    scatter = {0: "", 1: " One seed: no interval."}.get(seeds, f" {seeds} seeds, paired, 95 % intervals.")
    no, unsure = ([name for name, answer in answers.items() if answer == which] for which in ("no", "open"))
    if no:
        return Answered("not reproduced", f"Against it: {figures.some(no, between='; ')}.{scatter}")
    if unsure:
        return Answered("too close to call", f"Within the scatter: {figures.some(unsure, between='; ')}.{scatter}")
    times = f" in all {len(answers)} comparisons" if len(answers) > 1 else ""
    return Answered("reproduced", f"It holds{times}.{scatter}")


def ascending(values: Mapping[str, float], what: str) -> Answered:
    """Whether known numbers increase strictly in their order."""
    answers: dict[str, Answer] = {
        f"{what} of {a} is {values[a]:,.6g}, of {b} {values[b]:,.6g}": "yes" if values[a] < values[b] else "no"
        for a, b in pairwise(values)
    }
    return combined(answers)


def falls_from(curve: Mapping[int, float], start: int) -> Answered:
    """Whether a curve never rises from K = ``start`` on, at the K that were looked at."""
    rises = [(a, b) for a, b in pairwise(sorted(K for K in curve if start <= K)) if curve[b] > curve[a]]
    seen = {K: value for K, value in curve.items() if start <= K}
    peak = max(seen, key=seen.__getitem__)
    told = f"the largest of the {len(seen)} K looked at is {curve[peak]:,.6g} at K = {peak}"
    if rises:
        a, b = max(rises, key=lambda pair: curve[pair[1]] - curve[pair[0]])
        first = (
            f"it rises {len(rises)} times from there on, most from K = {a} ({curve[a]:,.6g}) to {b} ({curve[b]:,.6g})"
        )
        return Answered(
            "not reproduced", f"{first}; {told}. m_K is a whole number, and epsilon falls only where it steps."
        )
    return Answered("reproduced", f"It never rises from there on; {told}.")


def scale_that_reaches(shifts: Sequence[float], rounds: int, total: float, rule: Literal["sum", "product"]) -> float:
    """r at which a ternary quantiser's delta after ``rounds`` releases is ``total``.

    ``shifts``: D_k, how far one sample moves what is quantised in round k; delta_k = min(1, D_k/r).  ``sum``: the sum
    of delta_k; ``product``: 1 - prod(1 - delta_k), for ``total`` < 1.
    """
    moved = list(shifts[:rounds])
    if rule == "sum":
        return sum(moved) / total
    low, high = max(moved), max(moved) * 1e9  # at r = max the product is 1
    for _ in range(200):
        middle = math.sqrt(low * high)
        lost = -math.expm1(sum(math.log1p(-min(1.0 - 1e-16, shift / middle)) for shift in moved))
        low, high = (middle, high) if lost > total else (low, middle)
    return high


def hinges_on(name: str, values: Mapping[str, float]) -> Answered:
    """Of a claim that holds for one value of a number that the paper does not give.  ``values``: by rule."""
    told = "; ".join(f"{rule}: {name} = {value:,.4g}" for rule, value in values.items())
    if len({round(value, 9) for value in values.values()}) > 1 or not values:
        return Answered("not decidable from the paper", f"It holds for one {name} alone, which is not printed: {told}.")
    return Answered("reproduced", f"Every rule asks for the same value: {told}.")
