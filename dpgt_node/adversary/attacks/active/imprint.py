"""Single samples out of a batch's gradient, where an active adversary made the first layer sort them.

The role ``imprint`` leads a network's first layer to rows that answer the samples brighter than t_r (see the role).
Differences of neighbouring rows of the gradient then hold the samples between two thresholds,

    phî_r = (G_r - G_{r+1}) / (g_r - g_{r+1})        G (hidden, features), g (hidden,): gradients of W1 and b1

exactly the sample where there is one, up to the noise of G and g.  With variance v in every coordinate of the estimated
gradient its mean squared error is 2 v (1 + mean phi^2)/(g_r - g_{r+1})^2.  Rows whose difference of biases is within
four deviations of noise hold nothing that could be told from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from dpgt_node.adversary.attack import Finding, NotApplicable, Options, Result, Verdict
from dpgt_node.adversary.attacks.common import NO_TRUTH, classes_of, known_rounds, mean, result, targets, whole
from dpgt_node.adversary.inference import estimators as es
from dpgt_node.adversary.inference.fusion import least_squares
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.adversary.pictures import measure
from dpgt_node.config.roles import HIDDEN
from dpgt_node.record.truth import Truth, TruthRound
from dpgt_node.types import F64

SUCCEEDS_DB = 20.0
_DEVIATIONS = 4.0
_EXACT = 1e-4
"""Of the largest difference of biases: what rounding in float32 leaves."""


class _Imprint:
    name: ClassVar[str] = "imprint"
    needs: ClassVar[frozenset[str]] = frozenset()
    settings: ClassVar[Mapping[str, str]] = {"classes": "number of classes, where the data set's name does not say it"}

    def run(self, observation: Observation, truth: Truth | None, options: Options) -> Result:
        """One finding an agent: how many of the samples of its batches came out."""
        run = observation.facts.run
        if run.model.name != "mlp":
            raise NotApplicable.one("run file", "model.name", 'imprints are read from the hidden layer of "mlp"')
        whole(observation, self.name)
        classes = classes_of(observation, options)
        features = (observation.dimension - HIDDEN - classes * (HIDDEN + 1)) // HIDDEN
        findings = []
        for i in targets(observation, options):
            v = es.view(observation, i)
            rounds = [k for k in range(v.rounds) if not options.rounds or k in options.rounds]
            fused = least_squares(v)
            known = known_rounds(truth, v.name, rounds, observation)
            variance = np.broadcast_to(fused.variance, fused.g.shape)
            found = {k: separated(fused.g[k], features, float(variance[k].mean())) for k in rounds}
            findings.append(_finding(v.name, found, known))
        recovered = sum(f.measured["samples_recovered"] or 0.0 for f in findings)
        total = sum(f.measured["samples"] or 0.0 for f in findings)
        text = f"{recovered:.0f} of {total:.0f} samples came out" if total else "not measured"
        return result(self.name, text, findings, observation)


def separated(g: F64, features: int, variance: float) -> tuple[F64, F64]:
    """Samples (found, features) out of a gradient (d,), and the predicted mean squared error of each, (found,).

    Nothing where the gradient was not seen.
    """
    weights = HIDDEN * features
    W, b = g[:weights].reshape(HIDDEN, features), g[weights : weights + HIDDEN]
    if np.isnan(W).any() or np.isnan(b).any():
        return np.empty((0, features)), np.empty(0)
    W, b = np.diff(W, axis=0, append=0.0), np.diff(b, append=0.0)
    least = max(_EXACT * float(np.abs(b).max()), _DEVIATIONS * math.sqrt(2.0 * variance))
    kept = np.abs(b) > least
    samples = W[kept] / b[kept, None]
    return samples, 2.0 * variance * (1.0 + np.square(samples).mean(axis=1)) / np.square(b[kept])


def _finding(agent: str, found: Mapping[int, tuple[F64, F64]], known: Mapping[int, TruthRound]) -> Finding:
    errors = np.concatenate([mse for _, mse in found.values()]) if found else np.empty(0)
    predicted: dict[str, float | None] = {
        "psnr_db": measure.psnr_of(float(np.median(errors))) if errors.size else None,
    }
    kept = {k: one for k, one in known.items() if one.samples.size and k in found}
    note = f"{errors.size} differences of rows in {len(found)} rounds stand out of the noise"
    if not kept:
        nothing = {"samples_recovered": None, "samples": None, "psnr_db": None}
        return Finding(agent, "not measured", nothing, predicted, f"{note}; {NO_TRUTH}")
    best = [db for k, one in kept.items() for db in _best(one, found[k][0])]
    good = [db for db in best if db >= SUCCEEDS_DB]
    measured = {"samples_recovered": float(len(good)), "samples": float(len(best)), "psnr_db": mean(good)}
    verdict: Verdict = "succeeds" if good else "fails"
    return Finding(agent, verdict, measured, predicted, note)


def _best(truth: TruthRound, found: F64) -> list[float]:
    """PSNR of every true sample's nearest one, dB; values are in [0, 1]."""
    true = truth.samples.reshape(len(truth.labels), -1)
    if not len(found):
        return [0.0] * len(true)
    clipped = np.clip(found, 0.0, 1.0)
    return [max(measure.psnr(one, other) for other in clipped) for one in true]


attack = _Imprint()
