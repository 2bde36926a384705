"""An attack in one file: does the length of an agent's gradient show when it has learned?

    dpgt eavesdrop attack run.transcript --run run.toml --truth OUT --attack my_attack:attack

(in the folder of this file).  It estimates ||g_k||^2 from the transcript: the length of the estimate B less what noise
adds to it on the average, and predicts how far off that is.  docs/reference/attacks.md says what an attack may use.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dpgt_node.adversary.attack import Finding, Options, Result
from dpgt_node.adversary.attacks.common import between, known_rounds, result, setting, targets
from dpgt_node.adversary.inference import predictions
from dpgt_node.adversary.inference.estimators import absolute, view
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.record.truth import Truth


class GradientLength:
    """Any object with these three attributes and ``run`` is an attack."""

    name = "gradient-length"
    needs: frozenset[str] = frozenset()  # or "truth", "torch", "capture"
    settings: ClassVar[dict[str, str]] = {"skip": "leave out the first SKIP rounds (default 0)"}

    def run(self, observation: Observation, truth: Truth | None, options: Options) -> Result:
        """What was seen in, a result with its prediction out; ``truth`` is for ``measured`` alone."""
        findings, curves = [], {}
        skip = setting(options, "skip", 0, between(0, observation.facts.run.K))
        for i in targets(observation, options):
            seen = view(observation, i)  # what was seen of agent i, NaN where nothing was
            variance = predictions.absolute(seen.mechanism, seen.params.b, seen.var_y)
            d = seen.y.shape[1]
            squared = np.square(absolute(seen)).sum(axis=1) - d * variance
            usable = [k for k in range(skip, seen.rounds) if np.isfinite(squared[k])]
            if not usable:
                findings.append(Finding(seen.name, "no power", {"squared_error": None}, note="its y̆ were not seen"))
                continue
            length = np.sqrt(np.maximum(squared, 0.0))
            curves[f"{seen.name}: estimated length of g"] = np.array(usable, dtype=np.float64), length[usable]
            true = known_rounds(truth, seen.name, usable, observation)
            if not true:
                findings.append(Finding(seen.name, "not measured", {"squared_error": None}, note="no ground truth"))
                continue
            exact = {k: float(np.square(one.g).sum()) for k, one in true.items()}
            # |g + noise|^2 has variance 4 v |g|^2 + d (E noise^4 - v^2); 5 v^2 for Laplace's last bracket.
            fourth = 5.0 if seen.law.norm == 1 else 2.0
            expected = np.mean([4 * variance[k] * exact[k] + d * fourth * variance[k] ** 2 for k in exact])
            error = np.mean([(squared[k] - exact[k]) ** 2 for k in exact])
            falls = exact[max(exact)] < exact[min(exact)]
            right = falls == (squared[max(exact)] < squared[min(exact)])
            findings.append(
                Finding(
                    seen.name,
                    "succeeds" if right and expected < max(exact.values()) ** 2 else "fails",
                    {"squared_error": float(np.sqrt(error)), "rounds": float(len(exact))},
                    {"squared_error": float(np.sqrt(expected))},
                    "learned" if falls else "did not learn",
                )
            )
        right_ones = sum(finding.verdict == "succeeds" for finding in findings)
        return result(
            self.name, f"{right_ones} of {len(findings)} agents show it", findings, observation, curves=curves
        )


attack = GradientLength()
