"""Which classes an agent holds: a fact about the whole data set, which record-level privacy does not cover.

A gradient is about sum_y pi_y a_k(y), pi the shares of the classes and a_k(y) the mean gradient of class y at the point
where it was taken.  With public samples (``aux``) a_k is known, and pi follows by least squares over all coordinates
and rounds, each with the inverse of its noise as weight; the largest shares are held.

Without them: the gradient of a class's row of W is the mean of p_c phi over the batch, less pi_c times the mean of phi
in class c.  Along the average of all features (of one sign) it is smallest for classes that are held, as long as the
model does not answer everything with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from dpgt_node.adversary.attack import Finding, Options, Result, Verdict
from dpgt_node.adversary.attacks.common import (
    NO_TRUTH,
    Curves,
    auxiliary,
    between,
    classes_of,
    last_round,
    mean,
    result,
    setting,
    targets,
    whole,
)
from dpgt_node.adversary.inference import estimators as es
from dpgt_node.adversary.inference.dead_reckoning import gradient_points, point_variance
from dpgt_node.adversary.inference.fusion import least_squares
from dpgt_node.adversary.inference.knowledge import Samples, Softmax
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.figures import percent
from dpgt_node.record.truth import Truth
from dpgt_node.types import F64

_AUX = 2000
_SHARES = ("classes_right", "guessing")


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
        classes = classes_of(observation, options) if public is None else public.classes
        model = Softmax.of(run, observation.dimension, classes)
        known = run.data.params.get("num_classes_per_partition")
        held = setting(options, "held", None if known is None else int(known), between(1, classes))
        findings, curves = [], Curves()
        for i in targets(observation, options):
            v = es.view(observation, i, last_round(observation, options))
            findings.append(_one(v, model, public, held, truth, curves))
        told = [f for f in findings if f.verdict != "not measured"]
        right = sum(f.verdict == "succeeds" for f in told)
        first = [f.measured["rounds_needed"] for f in told]
        slowest = None if None in first or not first else max(x for x in first if x is not None)
        text = f"the classes of {right} of {len(told)} agents are named exactly" if told else "not measured"
        share, guess = (mean([x for f in told if (x := f.measured.get(key)) is not None]) for key in _SHARES)
        if share is not None and guess is not None:
            text += f"; named and held classes overlap by {percent(share)} on average (guessing: {percent(guess)})"
        if slowest is not None:
            text += f"; exact for all from round {int(slowest)} on"
        return result(self.name, text, findings, observation, curves=curves)


def shares(v: es.View, model: Softmax, public: Samples) -> tuple[F64, F64]:
    """pi from rounds 0..k, (rounds, classes), NaN before anything was seen, and one share's deviation, (rounds,)."""
    fused, points, unsure = least_squares(v), gradient_points(v), point_variance(v)
    gram, right = np.zeros((model.classes, model.classes)), np.zeros(model.classes)
    out, spread = np.full((v.rounds, model.classes), np.nan), np.full(v.rounds, np.nan)
    noisy = bool(v.var_y.any())
    # A point known up to ``unsure`` moves a sample's gradient by p(1 - p) |phi|^2 of it along phi, for rounds on end.
    size = float(np.mean(np.square(public.phi).sum(axis=1))) + model.bias**2
    for k in range(v.rounds):
        if not (np.isnan(fused.g[k]).any() or np.isnan(points[k]).any()):
            means = _class_means(model, points[k], float(unsure[k]), public)
            weight = 1.0 / (float(fused.variance[k].mean()) + 0.1 * size**2 * float(unsure[k])) if noisy else 1.0
            gram += weight * means @ means.T
            right += weight * means @ fused.g[k]
        if gram.any():
            inverse = np.linalg.inv(gram + np.eye(len(gram)) * 1e-9 * float(np.trace(gram)))
            out[k] = inverse @ right
            spread[k] = math.sqrt(float(np.diag(inverse).mean())) if noisy else 0.0
    return out, spread


def _class_means(model: Softmax, x: F64, spread: float, public: Samples) -> F64:
    """a_k(y), (classes, d): the mean gradient of the public samples of each class at ``x``, known up to ``spread``."""
    errors = model.errors(x, public.phi, public.labels, spread)
    rows = []
    for y in range(model.classes):
        own = np.flatnonzero(public.labels == y)
        e, phi = errors[own], public.phi[own]
        mean_gradient = (e.T @ phi).ravel()
        if model.bias:
            mean_gradient = np.concatenate([mean_gradient, model.bias * e.sum(axis=0)])
        rows.append(mean_gradient / max(1, len(own)))
    return np.array(rows)


def sums(v: es.View, model: Softmax) -> tuple[F64, F64]:
    """Running weighted mean over rounds of each class's gradient along the average of all features, (rounds, classes),
    and its deviation from noise alone, (rounds,).
    """
    direction = np.append(np.full(model.features, 1.0 / math.sqrt(model.features)), model.bias)
    direction /= float(np.linalg.norm(direction))
    fused = least_squares(v)
    W, b = model.split(fused.g)
    along = W @ direction[:-1] + b * direction[-1]
    seen = ~np.isnan(along).any(axis=1)
    noisy = bool(v.var_y.any())
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(seen, 1.0 / fused.variance.mean(axis=1) if noisy else 1.0, 0.0)
        total = np.cumsum(weight)
        running = np.cumsum(np.nan_to_num(along) * weight[:, None], axis=0) / total[:, None]
    return running, _spread(v, weight, total) if noisy else np.zeros(v.rounds)


def _spread(v: es.View, weight: F64, total: F64) -> F64:
    """Deviation of the weighted mean of B's noise, eta_k + b sum_{t<k} eta_t (noise-once: eta_k); x adds little."""
    b = 0.0 if v.mechanism.accounted.once else v.params.b
    out = np.full(v.rounds, np.nan)
    if np.isnan(v.y[:, 0]).all():
        return out
    for T in range(v.rounds):
        coefficients = weight[: T + 1] + b * (total[T] - total[: T + 1])
        out[T] = math.sqrt(float(coefficients**2 @ v.var_y[: T + 1])) / total[T] if total[T] else math.nan
    return out


def _one(
    v: es.View, model: Softmax, public: Samples | None, held: int | None, truth: Truth | None, curves: Curves
) -> Finding:
    running, spread = sums(v, model) if public is None else shares(v, model, public)
    if public is not None:
        running = -running
    seen = np.asarray(~np.isnan(running).any(axis=1))
    if not seen.any():
        return Finding(v.name, "no power", {"classes_right": None, "rounds_needed": None}, note="no gradient was seen")
    bar = 0.0 if public is None else -0.5 / model.classes
    guesses = [_guess(running[k], held, bar) if seen[k] else None for k in range(v.rounds)]
    last = guesses[-1] if guesses[-1] is not None else next(g for g in reversed(guesses) if g is not None)
    text = "classes " + ", ".join(str(c) for c in sorted(last))
    begin = int(np.flatnonzero(seen)[0])
    gap = None if public is None or held is None else 1.0 / held
    predicted = {"separation": _ratio(gap, float(spread[begin]))}
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
    first = running[begin]
    apart = float(first[others].mean() - first[inside].mean()) if any(others) else None
    share, guess = len(last & true) / len(true | last), guessing(len(true), model.classes, held)
    measured = {
        "classes_right": share,
        "guessing": guess,
        "rounds_needed": float(needed) if needed < v.rounds else None,
        "separation": _ratio(apart, float(spread[begin])),
    }
    rounds = np.arange(v.rounds, dtype=np.float64)
    curves[f"{v.name}: its classes are right"] = rounds, right.astype(np.float64)
    if guess == 1.0:
        text += "; a guess is right already: it holds every class"
    return Finding(v.name, _verdict(share, guess), measured, predicted, text)


def guessing(true: int, classes: int, held: int | None) -> float:
    """Share of classes right (those in both sets of those in either) without a transcript, where ``true`` are held:
    expected of ``held`` at random, else of naming all, which no random set beats.
    """
    if held is None:
        return true / classes
    both = range(max(0, held + true - classes), min(held, true) + 1)
    ways = [math.comb(true, j) * math.comb(classes - true, held - j) for j in both]
    return sum(w * j / (held + true - j) for w, j in zip(ways, both, strict=True)) / math.comb(classes, held)


def _verdict(share: float, guess: float) -> Verdict:
    """What is no better than a guess is nothing that the transcript gave away."""
    if share == 1.0:
        return "succeeds" if guess < 1.0 else "no power"
    return "partly" if share > guess else "fails"


def _ratio(gap: float | None, spread: float) -> float | None:
    return None if gap is None or not spread or math.isnan(spread) else gap / spread


def _guess(row: F64, held: int | None, bar: float) -> set[int]:
    if held is None:
        return {int(c) for c in np.flatnonzero(row < bar)}
    return {int(c) for c in np.argsort(row, kind="stable")[:held]}


def _classes(truth: Truth | None, name: str) -> set[int]:
    """All labels that were in any of the agent's batches."""
    if truth is None or name not in truth:
        return set()
    return {int(c) for one in truth[name] for c in np.unique(one.labels)}


attack = _Properties()
