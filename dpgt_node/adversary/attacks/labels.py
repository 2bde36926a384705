"""Which labels are in a batch: the output layer's bias gradient is mean(p) - n_c/m (Zhao et al. 2020, iDLG).

One sample a batch: the label is where the bias gradient is smallest, whatever the model and the clip.  More: the counts
of :mod:`dpgt_node.adversary.inference.counting`, from round 0 alone, where a softmax model that starts at zero answers
1/classes exactly; with public samples (``aux``) in all rounds, and with each sample clipped as the agents clip it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
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
from dpgt_node.adversary.inference.counting import (
    Responses,
    covariance,
    expected_right,
    responses,
    rounded,
    shares,
    shares_up_to_scale,
    untrained,
)
from dpgt_node.adversary.inference.dead_reckoning import gradient_points
from dpgt_node.adversary.inference.fusion import least_squares
from dpgt_node.adversary.inference.knowledge import TOYS, Samples, Softmax
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.adversary.membership.matched import AS_IT_IS, Clipping
from dpgt_node.figures import percent
from dpgt_node.record.truth import Truth
from dpgt_node.types import F64

_AUX = 2000
_SIMULATED = 16  # rounds of an agent whose batches are made up for a prediction


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
        told = "not measured" if right is None else f"{percent(right)} of all labels right (guessing: {percent(guess)})"
        return result(self.name, told, findings, observation, curves=curves)


def batch_counts(
    v: es.View,
    classes: int,
    m: int,
    bias: float,
    public: Samples | None,
    model: Softmax | None,
    clipping: Clipping = AS_IT_IS,
) -> tuple[F64, dict[int, Responses]]:
    """Estimated labels of each batch, (rounds, classes), summing to m, NaN where there is no estimate; and how classes
    answer in the rounds where that is known.
    """
    tail = es.columns(v, slice(v.y.shape[1] - classes, None))
    fused = least_squares(tail)
    gaps = fused.g / bias  # p̄ - pi
    noise = np.broadcast_to(fused.variance, gaps.shape).mean(axis=1) / bias**2
    out, known = np.full((v.rounds, classes), np.nan), {}
    points = gradient_points(v) if public is not None and model is not None else None
    for k in np.flatnonzero(~np.isnan(gaps).any(axis=1)).tolist():
        if model is not None and public is not None and points is not None and _usable(points[k], clipping.share(k)):
            known[k] = responses(model, points[k], public, partial(clipping.clipped, k, model))
        elif k == 0 and (clipping.clip is None or not clipping.share(k)):  # exactly so where the start is zero
            known[k] = untrained(classes)
        if m == 1:
            out[k] = np.eye(classes)[gaps[k].argmin()]
        elif k in known:
            out[k] = m * shares(gaps[k], known[k].mean, float(noise[k]))
        elif k == 0:
            out[k] = m * shares_up_to_scale(gaps[k])
    return out, known


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
    counts, known = batch_counts(v, classes, m, bias, public, model, Clipping.of(observation))
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
    noise = {k: float(np.broadcast_to(variance, (v.rounds, classes))[k].mean()) / bias**2 for k in have}
    measured = {
        "labels_right": mean(right),
        "guessing": mean(guessed),
        "batches_exact": mean(exact),
        "count_rms": None if not errors else math.sqrt(float(np.mean(errors))),
        "rounds": float(len(have)),
    }
    predicted = _predicted(counts, known, noise, m, options.seed)
    if at:
        curves[f"{v.name}: share of labels right"] = np.array(at), np.array(right)
    notes = [] if found else [NO_TRUTH]
    if predicted["count_rms"]:
        notes.append("count_rms is predicted before counts are made nonnegative and, under much noise, more equal")
    if len(have) < len(wanted):
        why = "" if public is not None or m == 1 else ": later rounds need public samples (--set aux=yes)"
        notes.append(f"labels of {len(have)} of {len(wanted)} rounds{why}")
    if run.privacy.enforced and m > 1 and not known:
        notes.append(
            "clipping scales samples down, by how much is not known without public samples (--set aux=yes): each batch "
            "is taken to lack a class"
        )
    return Finding(v.name, _verdict(measured, m), measured, predicted, "; ".join(notes))


def _usable(x: F64, share: float) -> bool:
    """Whether a gradient was taken at a point that is known."""
    return share > 0.0 and not np.isnan(x).any()


def _predicted(
    counts: F64, known: Mapping[int, Responses], noise: Mapping[int, float], m: int, seed: int
) -> dict[str, float | None]:
    """The same of batches as they were found, by noise and by how samples of one class differ."""
    rounds = [k for k in known if k in noise and not math.isnan(noise[k])]
    if not rounds:
        return {"labels_right": None, "count_rms": None}
    spreads = [m * m * np.trace(covariance(known[k], counts[k] / m, m, noise[k])) / counts.shape[1] for k in rounds]
    rng, some = np.random.default_rng(seed), rounds[:: -(-len(rounds) // _SIMULATED)]
    right = [expected_right(known[k], counts[k] / m, m, noise[k], rng) for k in some]
    return {"labels_right": mean(right), "count_rms": None if m == 1 else math.sqrt(float(np.mean(spreads)))}


def _verdict(measured: Mapping[str, float | None], m: int) -> Verdict:
    right, guess = measured["labels_right"], measured["guessing"]
    if right is None or guess is None:
        return "no power" if not measured["rounds"] else "not measured"
    if right <= guess + 0.25 * (1.0 - guess) / max(1.0, math.log10(m + 1)):
        return "fails"  # however many are right: of large batches a guess has most
    return "succeeds" if right >= 0.9 else "partly"


attack = _Labels()
