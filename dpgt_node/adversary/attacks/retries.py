"""Are all copies of one release byte-identical?  A release that was drawn twice is two releases.

Copies that differ on the way to one receiver were drawn again.  Copies that differ between receivers were, too, or
their sender equivocates: it gives different receivers different values, or somebody with its certificate does.

Every agent sends the same bytes to all of its neighbours, and again after a lost connection; a copy with other bytes
means that noise was drawn again: the average of n draws has n times less variance, and the second draw was never paid
for.  Counts both what a tap saw of one stream and copies on different edges.  Only intact copies accuse: each was seen
whole, with the hash that its sender declared.  A hash that was not seen, a hole or a damaged byte says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from dpgt_node.adversary.attack import Finding, Options, Result, Verdict
from dpgt_node.adversary.attacks.common import result, targets
from dpgt_node.adversary.inference.observation import Conflict, Observation
from dpgt_node.record.truth import Truth

_SHOWN = 5


class _Retries:
    name: ClassVar[str] = "retries"
    needs: ClassVar[frozenset[str]] = frozenset()
    settings: ClassVar[Mapping[str, str]] = {}

    def run(self, observation: Observation, truth: Truth | None, options: Options) -> Result:
        names = observation.facts.names
        findings = []
        wanted = targets(observation, options)
        for i in wanted:
            copies = [n for key, n in observation.copies.items() if key[0] == i]
            bad = [clash for clash in observation.conflicts if clash.sender == i]
            repeated = sum(n > 1 for n in copies)
            verdict: Verdict = "succeeds" if bad else "clean" if repeated else "no power"
            measured = {
                "releases": float(len(copies)),
                "with_copies": float(repeated),
                "copies": float(sum(copies)),
                "that_differ": float(len(bad)),
            }
            findings.append(Finding(names[i], verdict, measured, {"that_differ": 0.0}, _note(observation, i)))
        extra = observation.counts.conflicting
        total = sum(clash.sender in wanted for clash in observation.conflicts)
        verdicts = Counter(f.verdict for f in findings)
        text = (
            f"{total} copies differ from the first of their release" if total else
            "every copy of a release has the same bytes" if verdicts["clean"] else "no release was seen twice"
        )  # fmt: skip
        if extra:
            text += f"; the tap itself counted {extra} more"
        return result(self.name, text, findings, observation)


def _note(observation: Observation, i: int) -> str:
    clashes = [clash for clash in observation.conflicts if clash.sender == i]
    if not clashes:
        return ""
    split = [clash for clash in clashes if len(set(clash.receivers)) > 1]
    shown = ", ".join(f"{clash.stream} of round {clash.k}{_to(clash)}" for clash in clashes[:_SHOWN])
    more = f" and {len(clashes) - _SHOWN} more" if len(clashes) > _SHOWN else ""
    rms = [float(np.sqrt(np.nanmean(clash.difference**2))) for clash in clashes if clash.difference.size]
    size = f"; they differ by {np.mean(rms):.3g} rms a coordinate" if rms else ""
    what = "drawn again" if not split else "drawn again, or sent differently to different receivers"
    return f"{what}: {shown}{more}{size}"


def _to(clash: Conflict) -> str:
    one, other = clash.receivers
    return f" (at {one}, at {other})" if one != other else ""


attack = _Retries()
