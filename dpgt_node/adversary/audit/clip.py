"""Does every gradient of a study's files respect the run file's clip?  Counted by code of its own.

A mean of m gradients that were clipped has at most the clip's norm; that holds for every model.  Of softmax models the
gradients of the batch are computed again from the samples in the files, clipped, and their mean is compared.
"""

from __future__ import annotations

import numpy as np

from dpgt_node.adversary.audit.finding import Finding
from dpgt_node.adversary.inference.knowledge import Softmax, class_count
from dpgt_node.adversary.inference.observation import Facts
from dpgt_node.errors import ConfigError
from dpgt_node.record.truth import TruthRound
from dpgt_node.types import F64

ROUNDING = 1e-6
"""Of a gradient, relative to the clip: agents clip a part of 2.4e-7 earlier, so that rounding stays below it."""


class ClipCheck:
    """Of one agent ``name``.  ``look`` is called with what each round's gradient was taken of."""

    def __init__(self, facts: Facts, name: str, dimension: int) -> None:
        self._schedule, self._name = facts.schedule, name
        privacy = facts.run.privacy
        self._order = 1 if privacy.clip_l1 is not None else 2
        self._clip = privacy.clip_l1 if privacy.clip_l1 is not None else privacy.clip_l2
        self._largest, self._off = (0.0, 0), (0.0, 0)
        self._seen = self._again = 0
        self._model, self._why = self._softmax(facts, dimension)

    @staticmethod
    def _softmax(facts: Facts, dimension: int) -> tuple[Softmax | None, str]:
        if facts.run.model.name != "softmax":
            return None, f"gradients of {facts.run.model.name} are not computed again here"
        try:
            return Softmax.of(
                facts.run, dimension, class_count(facts.run)
            ), "no study file has the samples of its batch"
        except ConfigError as error:
            return None, error.problems[0].message

    def look(self, k: int, point: F64, truth: TruthRound) -> None:
        """``point``: where the gradient of round ``k`` was taken, float64 (d,)."""
        if self._clip is None or self._schedule.sums(k):
            return
        bound = self._clip * self._schedule.share(k)
        norm = float(np.linalg.norm(truth.g, ord=self._order))
        self._seen += 1
        self._largest = max(self._largest, (norm / bound, k))
        if self._model is None or not len(truth.samples) or len(truth.samples) != len(truth.labels):
            return
        phi = truth.samples.reshape(len(truth.samples), -1)
        each = self._model.gradients(point, phi, truth.labels)
        norms = np.linalg.norm(each, ord=self._order, axis=1)
        mean = (each * np.minimum(1.0, bound / np.maximum(norms, 1e-300))[:, None]).mean(axis=0)
        self._again += 1
        self._off = max(self._off, (float(np.linalg.norm(truth.g - mean, ord=self._order)) / bound, k))

    def findings(self) -> list[Finding]:
        """Two questions."""
        if self._clip is None or not self._seen:
            why = "the run file has no clip" if self._clip is None else "no gradient was released"
            return [Finding("clip", self._name, "norm", "not tested", why)]
        ratio, k = self._largest
        text = f"the largest gradient has {ratio:.4g} of the clip's norm, in round {k}"
        found = [self._one("norm", ratio > 1.0 + ROUNDING, text, largest=ratio)]
        if not self._again:
            return [*found, Finding("clip", self._name, "gradients", "not tested", self._why)]
        off, k = self._off
        text = f"{self._again} gradients computed again are off by {off:.3g} of the clip at most, in round {k}"
        return [*found, self._one("gradients", off > ROUNDING, text, off=off)]

    def _one(self, question: str, refuted: bool, text: str, **numbers: float) -> Finding:
        return Finding("clip", self._name, question, "refuted" if refuted else "not refuted", text, numbers=numbers)
