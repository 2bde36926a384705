"""The methods that the paper compares with, as Section IV-D sets them: steps, m_K and noise of Algorithm 1.

What Section IV-D leaves open is a number of ours here, one form of a method a curve.  A method's rules, and where they
come from, stand in its module (``dpgt_node.algo.methods``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cache
from typing import Any

from dpgt_node.algo.methods import METHODS
from dpgt_node.experiments.families.family import Arm
from dpgt_node.experiments.families.runs.job import Job
from dpgt_node.experiments.families.section_iv import Settings, jobs_of, run_of
from dpgt_node.privacy.mechanisms import NOISE_ONCE, RELEASED_STATE, RELEASED_SUM, STATE_NOISE, SUM_NOISE
from dpgt_node.values import dataclass

FORMS: Mapping[str, str] = {
    NOISE_ONCE.name: "gradient form",
    STATE_NOISE.name: "output form",
    RELEASED_STATE.name: "output form at the released point",
    SUM_NOISE.name: "noise on the sums",
    RELEASED_SUM.name: "noise on the sums, at the released point",
}
"""What a method's mechanism is called where it has several."""
NAMED = 0.9996
"""The exponent of S2 in Section IV-D, as captions name it."""


@dataclass(frozen=True, slots=True, eq=False)
class Rival:
    """``cite``: the paper's key; ``named``: Figs. 5 and 6 speak of it.  ``options``: of ``[method]``; ``changes``: of
    other tables; ``words``: what they are, for legends.
    """

    cite: str
    method: str
    named: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    words: str = ""

    @property
    def here(self) -> bool:
        """Whether this version has the method."""
        return self.method in METHODS

    @property
    def pending(self) -> str:
        """Why it is not shown."""
        return f"{self.cite}: method {self.method} is not part of this version"

    def forms(self) -> Iterator[Form]:
        """Its mechanisms, each a form."""
        rules = METHODS[self.method].rules
        for mechanism in rules:
            parts = (self.words, FORMS.get(mechanism, mechanism) if len(rules) > 1 else "")
            told = ", ".join(part for part in parts if part)
            yield Form(self, mechanism, f"{self.method}{f' ({told})' if told else ''}")


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """One form of a rival: a curve."""

    rival: Rival
    mechanism: str
    label: str

    def arm(self, settings: Settings) -> Arm:
        """Its runs."""
        jobs = jobs_of(settings, "S2", NAMED, **self._keys())
        return Arm(f"{self.label}, {self.rival.cite}", jobs)

    def epsilon(self, settings: Settings, lengths: tuple[int, ...]) -> Job:
        """Its epsilon by K, with and without 1/m."""
        return Job(run_of(settings, "S2", NAMED, **self._keys()), 0, "epsilon", lengths=lengths, both=True)

    def _keys(self) -> dict[str, Any]:
        return {
            "method": self.rival.method,
            "mechanism": self.mechanism,
            "options": self.rival.options,
            "changes": self.rival.changes,
            "tag": "-".join(self.rival.words.replace("=", "").replace(",", "").split()),
        }


RIVALS = (
    Rival("kang2021weighted", "weighted-sgd", named=True),
    *(Rival("wang2023quantization", "ternary-dsgd", named=True, options={"r": r}, words=f"r = {r:g}")
      for r in (1.0, 10.0, 100.0)),
    Rival("yan2024killing", "quantised-binomial-sgd", named=True, words="B = 1, 129 levels, as much noise",
          options={"bound": 1.0, "levels": 129, "trials": 7170}),
    Rival("wang2024differentiallya", "sampled-dsgd", named=True),
    Rival("chen2024differentially", "quantised-dsgd", named=True),
    Rival("chen2024locallya", "online-dsgd"),
    Rival("wang2023decentralized", "atc-dsgd"),
    Rival("ding2021differentially", "q-dpsgd"),
    Rival("wang2023gradient", "noisy-gt"),
    Rival("Bayrooti et al. 2023", "dp-dsgt"),
    Rival("Bayrooti et al. 2023", "dp-dsgd"),
    Rival("arXiv 2505.06651", "dyn-d2p", changes={"scheme": {"beta": 0.3}}),
)  # fmt: skip


@cache
def forms() -> tuple[Form, ...]:
    """Of every rival that is here."""
    return tuple(form for rival in RIVALS if rival.here for form in rival.forms())


def pending() -> list[str]:
    """Rivals that are not."""
    return list(dict.fromkeys(rival.pending for rival in RIVALS if not rival.here))
