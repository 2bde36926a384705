"""Which labels are in a batch: the output layer's bias gradient is mean(p) - n_c/m (Zhao et al. 2020, iDLG).

One sample a batch: the label is where the bias gradient is smallest, whatever the model.  More: n_c = m (p̄_c - g_c/s),
where p̄ is the mean output over the batch.  At x_0 of a softmax model that starts at zero p̄ = 1/classes exactly; later,
with public samples (``aux``), p̄ follows from how the model answers each class: g/s = (P' - I) pi with P[y][c] the mean
output c on public samples of class y, solved for class shares pi.  Without them later rounds of larger batches are
not attacked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from dpgt_node.adversary.attack import Finding, NotApplicable, Options, Result, Verdict
from dpgt_node.adversary.attacks.common import (
    NO_TRUTH,
    Curves,
    auxiliary,
    classes_of,
    known_rounds,
    last_round,
    mean,
    result,
    targets,
    whole,
)
from dpgt_node.adversary.inference import estimators as es
from dpgt_node.adversary.inference.dead_reckoning import gradient_points
from dpgt_node.adversary.inference.fusion import least_squares
from dpgt_node.adversary.inference.knowledge import TOYS, Samples, Softmax
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.record.truth import Truth
from dpgt_node.types import F64, I64

_AUX = 2000


class _Labels:
    name: ClassVar[str] = "labels"
    needs: ClassVar[frozenset[str]] = frozenset()
    settings: ClassVar[Mapping[str, str]] = {
        "classes": "number of classes, where the data set's name does not say it",
        "aux": "yes: use the test part of the run's data set as public samples (default no)",
        "data": "folder of the named picture sets (DPGT_DATA)",
        "through": "only rounds 0..THROUGH",
    }

    def run(self, observation: Observation, truth: Truth | None, options: Options) -> Result:
        """One finding an agent: how many labels of each batch come out right, beside guessing equal shares."""
        whole(observation, self.name)
        run = observation.facts.run
        if run.data.dataset in TOYS:
            raise NotApplicable.one("run file", "data.dataset", f"{run.data.dataset!r} has no labels")
        if run.model.name == "softmax" and not run.model.bias:
            raise NotApplicable.one("run file", "model.bias", "is 0: labels are read from the gradient of the bias")
        public = auxiliary(observation, options, count=_AUX)
        classes = classes_of(observation, options) if public is None else public.classes
        findings, curves = [], Curves()
        for i in targets(observation, options):
            v = es.view(observation, i, last_round(observation, options))
            findings.append(_one(observation, v, classes, public, truth, options, curves))
        right = mean([f.measured["labels_right"] for f in findings if f.measured["labels_right"] is not None])
        guess = mean([f.measured["guessing"] for f in findings if f.measured["guessing"] is not None])
        told = "not measured" if right is None else f"{right:.3g} of all labels right (guessing: {guess:.3g})"
        return result(self.name, told, findings, observation, curves=curves)


def batch_counts(v: es.View, classes: int, m: int, bias: float, public: Samples | None, model: Softmax | None) -> F64:
    """Estimated labels of each batch, (rounds, classes), summing to m; NaN where there is no estimate."""
    tail = es.columns(v, slice(v.y.shape[1] - classes, None))
    shares = -least_squares(tail).g / bias  # pi - p̄
    if m == 1:
        return _one_hot(shares)
    out = np.full((v.rounds, classes), np.nan)
    points = gradient_points(v) if public is not None and model is not None else None
    for k in range(v.rounds):
        if np.isnan(shares[k]).any():
            continue
        if points is not None and public is not None and model is not None and not np.isnan(points[k]).any():
            out[k] = m * _shares(shares[k], _answers(model, points[k], public))
        elif k == 0:  # p̄ = 1/classes: exactly where the start is zero, else on the average
            out[k] = m * _simplex(shares[k] + 1.0 / classes)
    return out


def rounded(counts: F64, m: int) -> I64:
    """Integers that sum to m, by largest remainder; (rounds, classes)."""
    out = np.floor(counts).astype(np.int64)
    for row, exact in zip(out, counts, strict=True):
        missing = m - int(row.sum())
        row[np.argsort(row - exact, kind="stable")[:missing]] += 1
    return out


def _one_hot(shares: F64) -> F64:
    out = np.full_like(shares, np.nan)
    seen = ~np.isnan(shares).any(axis=1)
    out[seen] = np.eye(shares.shape[1])[shares[seen].argmax(axis=1)]
    return out


def _answers(model: Softmax, x: F64, public: Samples) -> F64:
    """P[y][c]: the mean output c on public samples of class y."""
    p = model.probabilities(x, public.phi)
    answers = np.full((model.classes, model.classes), 1.0 / model.classes)
    for y in range(model.classes):
        rows = public.labels == y
        if rows.any():
            answers[y] = p[rows].mean(axis=0)
    return answers


def _shares(gap: F64, answers: F64) -> F64:
    """pi on the simplex nearest to solving (I - P') pi = gap, by projected gradient."""
    A = np.eye(len(gap)) - answers.T
    pi, step = np.full(len(gap), 1.0 / len(gap)), 1.0 / float(np.linalg.norm(A, 2) ** 2)
    for _ in range(300):
        pi = _simplex(pi - step * A.T @ (A @ pi - gap))
    return pi


def _simplex(v: F64) -> F64:
    """The nearest point with nonnegative entries that sum to 1."""
    ordered = np.sort(v)[::-1]
    excess = (np.cumsum(ordered) - 1.0) / np.arange(1, len(v) + 1)
    last = int(np.flatnonzero(ordered > excess)[-1])
    return np.asarray(np.maximum(v - excess[last], 0.0))


def _one(
    observation: Observation,
    v: es.View,
    classes: int,
    public: Samples | None,
    truth: Truth | None,
    options: Options,
    curves: Curves,
) -> Finding:
    run, d = observation.facts.run, v.y.shape[1]
    model = Softmax.of(run, d, classes) if run.model.name == "softmax" else None
    bias = model.bias if model is not None else 1.0
    found = known_rounds(truth, v.name, range(v.rounds), observation)
    m = observation.facts.schedule.m or next((len(t.labels) for t in found.values()), 0)
    if not m:
        note = f'm is "full" and not known without ground truth; {NO_TRUTH}'
        return Finding(v.name, "not measured", {"labels_right": None, "guessing": None}, note=note)
    counts = batch_counts(v, classes, m, bias, public, model)
    wanted = [k for k in range(v.rounds) if not options.rounds or k in options.rounds]
    have = [k for k in wanted if not np.isnan(counts[k]).any()]
    right, guessed, exact, errors, at = [], [], [], [], []
    for k in have:
        if k not in found or not len(found[k].labels):
            continue
        true = np.bincount(found[k].labels, minlength=classes)
        mine = rounded(counts[k][None], m)[0]
        right.append(float(np.minimum(mine, true).sum()) / m)
        guessed.append(float(np.minimum(np.full(classes, m / classes), true).sum()) / m)
        exact.append(float((mine == true).all()))
        errors.append(float(np.mean((counts[k] - true) ** 2)))
        at.append(float(k))
    variance = least_squares(es.columns(v, slice(d - classes, None))).variance
    noise = [float(np.broadcast_to(variance, (v.rounds, classes))[k].mean()) for k in have]
    spread = mean([m / bias * math.sqrt(value) for value in noise if not math.isnan(value)])
    measured = {
        "labels_right": mean(right),
        "guessing": mean(guessed),
        "batches_exact": mean(exact),
        "count_rms": None if not errors else math.sqrt(float(np.mean(errors))),
        "rounds": float(len(have)),
    }
    predicted = {"count_rms": spread if m > 1 else None}
    if at:
        curves[f"{v.name}: share of labels right"] = np.array(at), np.array(right)
    notes = [] if found else [NO_TRUTH]
    if spread and m > 1:
        notes.append("count_rms is predicted before counts are made nonnegative")
    if len(have) < len(wanted):
        why = "" if public is not None or m == 1 else ": later rounds need public samples (--set aux=yes)"
        notes.append(f"labels of {len(have)} of {len(wanted)} rounds{why}")
    if run.privacy.enforced:
        notes.append("clipping scales samples down: counts are too small where it does")
    return Finding(v.name, _verdict(measured, m), measured, predicted, "; ".join(notes))


def _verdict(measured: Mapping[str, float | None], m: int) -> Verdict:
    right, guess = measured["labels_right"], measured["guessing"]
    if right is None or guess is None:
        return "no power" if not measured["rounds"] else "not measured"
    if right <= guess + 0.25 * (1.0 - guess) / max(1.0, math.log10(m + 1)):
        return "fails"  # however many are right: of large batches a guess has most
    return "succeeds" if right >= 0.9 else "partly"


attack = _Labels()
