"""Which classes an agent holds: a fact about the whole data set, which record-level privacy does not cover.

The gradient of a class's row of W is the mean of p_c phi over the batch, less pi_c times the mean of phi in class c.
For a class that the agent does not hold it is positive along any typical sample; for one that it holds it is smaller.
So the statistic is the gradient along a direction (the public mean sample of the class with ``aux``, else the average
of all features, which needs features of one sign), added up over rounds with the inverse of its noise as weight; the
classes with the smallest ones are held.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from dpgt_node.adversary import estimators as es
from dpgt_node.adversary.attack import Finding, Options, Result, Verdict
from dpgt_node.adversary.attacks.common import (
    NO_TRUTH,
    Curves,
    auxiliary,
    mean,
    positive,
    result,
    setting,
    targets,
    whole,
)
from dpgt_node.adversary.fusion import least_squares
from dpgt_node.adversary.knowledge import Samples, Softmax, class_count
from dpgt_node.adversary.observation import Observation
from dpgt_node.protocol.types import F64
from dpgt_node.report.truth import Truth

_AUX = 2000


class _Properties:
    name: ClassVar[str] = "properties"
    needs: ClassVar[frozenset[str]] = frozenset()
    settings: ClassVar[Mapping[str, str]] = {
        "held": "how many classes each agent holds (default: what the run file's partition says, else by sign)",
        "classes": "number of classes, where the data set's name does not say it",
        "aux": "yes: use the test part of the run's data set as public samples (default no)",
        "data": "folder of the named picture sets (DPGT_DATA)",
        "through": "only rounds 0..THROUGH",
    }

    def run(self, observation: Observation, truth: Truth | None, options: Options) -> Result:
        """One finding an agent: whether its classes come out, and from which round on."""
        whole(observation, self.name)
        run = observation.facts.run
        public = auxiliary(observation, options, count=_AUX)
        classes = class_count(run, options.extra.get("classes")) if public is None else public.classes
        model = Softmax.of(run, observation.dimension, classes)
        known = run.data.params.get("num_classes_per_partition")
        held = setting(options, "held", None if known is None else int(known), positive)
        findings, curves = [], Curves()
        for i in targets(observation, options):
            v = es.view(observation, i, setting(options, "through", None, positive))
            findings.append(_one(v, model, public, held, truth, curves))
        told = [f for f in findings if f.verdict != "not measured"]
        right = sum(f.verdict == "succeeds" for f in told)
        first = [f.measured["rounds_needed"] for f in told]
        slowest = None if None in first or not first else max(x for x in first if x is not None)
        text = f"the classes of {right} of {len(told)} agents are right" if told else "not measured"
        if slowest is not None:
            text += f", of all of them from round {int(slowest)} on"
        return result(self.name, text, findings, observation, curves=curves)


def statistics(v: es.View, directions: F64, model: Softmax) -> tuple[F64, F64]:
    """Running weighted mean over rounds of each class's gradient along its direction, (rounds, classes), and its
    standard deviation from noise alone, (rounds,).  ``directions`` (classes, features + 1), unit rows; the last: bias.
    """
    fused = least_squares(v)
    W, b = model.split(fused.g)
    along = np.einsum("kcf,cf->kc", W, directions[:, :-1]) + b * directions[:, -1]
    seen = ~np.isnan(along).any(axis=1)
    variance = fused.variance[:, 0]
    noisy = bool(v.var_y.any())
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(seen, 1.0 / variance if noisy else 1.0, 0.0)
    total = np.cumsum(weight)
    with np.errstate(divide="ignore", invalid="ignore"):
        running = np.cumsum(np.nan_to_num(along) * weight[:, None], axis=0) / total[:, None]
    return running, _spread(v, weight, total) if noisy else np.zeros(v.rounds)


def _spread(v: es.View, weight: F64, total: F64) -> F64:
    """Deviation of the weighted mean of B's noise, eta_k + b sum_{t<k} eta_t (noise-once: eta_k); x adds little."""
    b = 0.0 if v.mechanism == "noise-once" else v.params.b
    out = np.full(v.rounds, np.nan)
    if np.isnan(v.y[:, 0]).all():
        return out
    for T in range(v.rounds):
        coefficients = weight[: T + 1] + b * (total[T] - total[: T + 1])
        out[T] = math.sqrt(float(coefficients**2 @ v.var_y[: T + 1])) / total[T] if total[T] else math.nan
    return out


def directions_of(model: Softmax, public: Samples | None) -> F64:
    """Unit rows: the public mean of each class and the bias, or the average of all features."""
    rows = np.ones((model.classes, model.features))
    if public is not None:
        for c in range(model.classes):
            own = public.phi[public.labels == c]
            rows[c] = own.mean(axis=0) if len(own) else public.phi.mean(axis=0)
    else:
        rows /= math.sqrt(model.features)
    whole = np.hstack([rows, np.full((model.classes, 1), model.bias)])
    return np.asarray(whole / np.linalg.norm(whole, axis=1, keepdims=True))


def _one(
    v: es.View, model: Softmax, public: Samples | None, held: int | None, truth: Truth | None, curves: Curves
) -> Finding:
    directions = directions_of(model, public)
    running, spread = statistics(v, directions, model)
    seen = np.asarray(~np.isnan(running).any(axis=1))
    if not seen.any():
        return Finding(v.name, "no power", {"classes_right": None, "rounds_needed": None}, note="no gradient was seen")
    guesses = [_guess(running[k], held) if seen[k] else None for k in range(v.rounds)]
    last = guesses[-1] if guesses[-1] is not None else next(g for g in reversed(guesses) if g is not None)
    text = "classes " + ", ".join(str(c) for c in sorted(last))
    gap = _expected_gap(model, directions, public, held)
    predicted = {"separation": _ratio(gap, float(spread[0]))}
    true = _classes(truth, v.name)
    if not true:
        return Finding(
            v.name, "not measured", {"classes_right": None, "rounds_needed": None}, predicted, f"{text}; {NO_TRUTH}"
        )
    right = np.array([g == true for g in guesses])
    wrong = np.flatnonzero(~right)
    needed = 0 if not wrong.size else int(wrong[-1]) + 1
    inside = [c in true for c in range(model.classes)]
    others = [not c for c in inside]
    first = running[np.flatnonzero(seen)[0]]
    apart = float(first[others].mean() - first[inside].mean()) if any(others) else None
    measured = {
        "classes_right": len(last & true) / len(true | last),
        "rounds_needed": float(needed) if needed < v.rounds else None,
        "separation": _ratio(apart, float(spread[0])),
    }
    rounds = np.arange(v.rounds, dtype=np.float64)
    curves[f"{v.name}: its classes are right"] = rounds, right.astype(np.float64)
    verdict: Verdict = "succeeds" if last == true else "partly" if len(last & true) else "fails"
    return Finding(v.name, verdict, measured, predicted, text)


def _ratio(gap: float | None, spread: float) -> float | None:
    return None if gap is None or not spread or math.isnan(spread) else gap / spread


def _guess(row: F64, held: int | None) -> set[int]:
    if held is None:
        return {int(c) for c in np.flatnonzero(row < 0.0)}
    return {int(c) for c in np.argsort(row, kind="stable")[:held]}


def _expected_gap(model: Softmax, directions: F64, public: Samples | None, held: int | None) -> float | None:
    """How much smaller a held class's statistic is at a start of zero: its mean sample's length over ``held``."""
    if public is None or held is None:
        return None
    pieces = []
    for c in range(model.classes):
        own = public.phi[public.labels == c]
        if len(own):
            pieces.append(float(directions[c, :-1] @ own.mean(axis=0) + directions[c, -1] * model.bias) / held)
    return mean(pieces)


def _classes(truth: Truth | None, name: str) -> set[int]:
    """All labels that were in any of the agent's batches."""
    if truth is None or name not in truth:
        return set()
    return {int(c) for one in truth[name] for c in np.unique(one.labels)}


attack = _Properties()
