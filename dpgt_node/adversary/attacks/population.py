"""Population attack: does the published model know a sample better than it knows public ones?  Needs no shadow runs.

A sample's score is ln of the probability that the model gives its label, the loss with a minus (Yeom et al. 2018).  The
adversary is whoever has each agent's published model, the mean x̆ of the second half of the run, and public samples,
whose quantiles are its thresholds (Ye et al. 2022).  Members are those that the study files show, others are public;
or, beside shadow runs, the members and others of their pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from dpgt_node.adversary.attack import Finding, NotApplicable, Options, Result
from dpgt_node.adversary.attacks.common import NO_TRUTH, Curves, mean, positive, result, setting, targets, whole
from dpgt_node.adversary.attacks.membership import members_of, verdict
from dpgt_node.adversary.inference.knowledge import public_samples
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.adversary.membership import rates
from dpgt_node.adversary.membership.shadows import NOBODY, Pool, Shadows
from dpgt_node.adversary.membership.signals import log_probabilities, published
from dpgt_node.record.released import window_start
from dpgt_node.record.truth import Truth
from dpgt_node.types import F64


class _Population:
    name: ClassVar[str] = "population"
    needs: ClassVar[frozenset[str]] = frozenset()
    settings: ClassVar[Mapping[str, str]] = {
        "public": "public samples that give the thresholds; the rest are non-members (default 300, or half of fewer)",
        "data": "folder of the named picture sets (DPGT_DATA)",
    }

    def run(self, observation: Observation, truth: Truth | None, options: Options) -> Result:
        """One finding an agent."""
        whole(observation, self.name)
        findings, curves = [], Curves()
        for i in targets(observation, options):
            name = observation.facts.names[i]
            x = published(observation, i)
            if np.isnan(x).any():
                findings.append(Finding(name, "no power", {"auc": None}, note="its x was not seen"))
                continue
            scores = (
                _of_files(observation, x, name, truth, options)
                if options.shadows is None
                else _of_pool(observation, x, i, options.shadows)
            )
            findings.append(_finding(name, scores, curves))
        aucs = [value for f in findings if (value := f.measured.get("auc")) is not None]
        text = "not measured" if not aucs else f"AUC {mean(aucs):.3f} (0.5 is guessing)"
        K = observation.facts.run.K
        made = result(self.name, f"the published model's loss: {text}", findings, observation, curves=curves)
        used = f"of it only each agent's published model, the mean x̆ of rounds {window_start(K)} to {K}"
        return replace(made, vantage=f"{observation.vantage}; {used}")


_Scores = tuple[F64, F64, F64]
"""Of public samples, members and others."""


def _of_pool(observation: Observation, x: F64, i: int, shadows: Shadows) -> _Scores:
    pool = shadows.pool
    log_p = log_probabilities(observation.facts.run, observation.dimension, pool)
    scores = log_p(x, pool.phi, pool.labels)
    return log_p(x, pool.public_phi, pool.public_labels), scores[shadows.own == i], scores[shadows.own == NOBODY]


def _of_files(observation: Observation, x: F64, name: str, truth: Truth | None, options: Options) -> _Scores | None:
    members = members_of(truth, name)
    if members is None:
        return None
    root = options.extra.get("data")
    public = public_samples(observation.facts.run, None if root is None else Path(root))
    count = len(public.labels)
    if not count:
        raise NotApplicable.one("run file", "data.dataset", "has no test part: there are no public samples")
    learn = setting(options, "public", 300 if count > 301 else max(1, count // 2), positive)
    order = np.random.default_rng(options.seed).permutation(count)
    phi, labels = public.phi[order], public.labels[order]
    shape = members.phi.shape[1:]
    pool = Pool(members.phi, members.labels, phi.reshape(count, *shape), labels, public.classes, count, shape)
    log_p = log_probabilities(observation.facts.run, observation.dimension, pool)
    beside = log_p(x, pool.public_phi, pool.public_labels)
    return beside[:learn], log_p(x, pool.phi, pool.labels), beside[learn:]


def _finding(name: str, scores: _Scores | None, curves: Curves) -> Finding:
    if scores is None:
        note = f"{NO_TRUTH} (or its samples were not kept), and there are no shadow runs, whose pool is known"
        return Finding(name, "not measured", {"auc": None}, note=note)
    public, members, others = scores
    if min(map(len, scores)) < 2:
        note = (
            f"{len(members)} members beside {len(others)} others and {len(public)} public ones: too few to tell apart"
        )
        return Finding(name, "no power", {"auc": None}, note=note)
    measured = rates.measured(members, others)
    for key, share in rates.FEW.items():
        threshold = float(np.quantile(public, 1.0 - share, method="higher"))
        measured[f"tpr_at_own_threshold_{key}"] = float((members > threshold).mean())
        measured[f"fpr_at_own_threshold_{key}"] = float((others > threshold).mean())
    curves[f"{name}: ROC"] = rates.roc(members, others)
    return Finding(name, verdict(measured), measured, note=rates.WITHIN)


attack = _Population()
