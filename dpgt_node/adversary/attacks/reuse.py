"""Was noise used twice?  Two releases under the same noise give away the exact difference of what they cover.

For two releases take away their transcript parts and divide by their scales: private part over scale plus unit noise.
Independent noises make the mean square of the difference (and of the sum) at least twice the variance of one, whatever
the private parts are, for these are independent of the noise; noise that was used twice makes it the data's alone.
Every pair of (agent, stream, round) is compared: same seed for two agents, streams or rounds, both signs.

A vector that an agent released in one round and again in another is a replay, whatever the transcript parts are: with
new noise in every round two floating-point vectors are never the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from dpgt_node.adversary.attack import Finding, Options, Result, Verdict
from dpgt_node.adversary.attacks.common import positive, result, setting, targets
from dpgt_node.adversary.inference import estimators as es
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.record.truth import Truth
from dpgt_node.types import F64, Stream

Key = tuple[str, Stream, int]
_DEVIATIONS = 8.0


class _Reuse:
    name: ClassVar[str] = "reuse"
    needs: ClassVar[frozenset[str]] = frozenset()
    settings: ClassVar[Mapping[str, str]] = {
        "rows": "releases compared with each other, the first rounds of every agent (default 1200)"
    }

    def run(self, observation: Observation, truth: Truth | None, options: Options) -> Result:
        """One finding an agent: the smallest distance of one of its releases to any other."""
        limit = setting(options, "rows", 1200, positive)
        wanted = targets(observation, options)
        views = [es.view(observation, i) for i in wanted]
        rows, law = _rows(views, limit), LAWS[observation.facts.run.noise.law]
        expected = 2.0 * law.variance(1.0)
        findings = []
        pairs = _closest(rows, expected)
        for v in views:
            found = _finding(v.name, rows, pairs, expected)
            again = _replayed(observation, v)
            findings.append(replace(found, verdict="succeeds", note=again) if again else found)
        reused = sum(f.verdict == "succeeds" for f in findings)
        text = f"noise of {reused} agents was used twice" if reused else (
            "no noise was used twice" if any(f.verdict == "clean" for f in findings) else
            "no noise was seen, or data outweighs it everywhere"
        )  # fmt: skip
        return result(self.name, text, findings, observation)


def _rows(views: list[es.View], limit: int) -> dict[Key, F64]:
    """Unit-scale residuals, in order of rounds: private part over scale, plus unit noise."""
    out: dict[Key, F64] = {}
    parts: list[tuple[es.View, tuple[tuple[str, F64, F64], ...]]] = []
    for v in views:
        if v.mechanism.accounted.once:
            parts.append((v, (("Y", es.absolute(v), v.scale_y),)))
        elif v.mechanism.x_public:
            parts.append((v, (("Y", es.innovation(v), v.scale_y),)))
        else:
            parts.append((v, (("Y", es.innovation(v), v.scale_y), ("X", es.from_x(v), v.scale_x))))
    for k in range(max((v.rounds for v in views), default=0)):
        for v, streams in parts:
            for stream, values, scale in streams:
                row = values[k]
                if scale[k] > 0.0 and not np.isnan(row).any() and len(out) < limit:
                    out[v.name, "X" if stream == "X" else "Y", k] = row / scale[k]
    return out


def _replayed(observation: Observation, v: es.View) -> str:
    """Which round of agent ``v`` is an earlier one, byte for byte; empty: none, or it could be so by chance."""
    facts = v.mechanism.accounted
    if facts.once or v.mechanism.x_public or not observation.dtype.startswith("float"):
        return ""
    seen: dict[tuple[str, bytes], int] = {}
    i = observation.facts.names.index(v.name)
    for (sender, stream, k), values in sorted(observation.vectors.items(), key=lambda item: item[0][2]):
        scale = v.scale_x if stream == "X" else v.scale_y
        if sender != i or k >= len(scale) or not scale[k] > 0.0 or np.isnan(values).any():
            continue
        if (first := seen.setdefault((stream, values.tobytes()), k)) != k:
            return f"{stream} of round {k} is that of round {first} once more: it was replayed"
    return ""


def _closest(rows: Mapping[Key, F64], expected: float) -> dict[Key, tuple[Key, float, int]]:
    """Of every release its nearest other one: (which, mean square of the difference or sum, its sign)."""
    keys = list(rows)
    if len(keys) < 2:
        return {}
    Z = np.array([rows[key] for key in keys])
    d = Z.shape[1]
    gram = Z @ Z.T / d
    size = np.diag(gram)
    total = size[:, None] + size
    best: dict[Key, tuple[Key, float, int]] = {}
    for sign in (1, -1):
        distance = total - 2.0 * sign * gram
        np.fill_diagonal(distance, np.inf)
        nearest = distance.argmin(axis=1)
        for at, key in enumerate(keys):
            value = float(distance[at, nearest[at]])
            if key not in best or value < best[key][1]:
                best[key] = keys[int(nearest[at])], value, sign
    return best


def _finding(
    name: str, rows: Mapping[Key, F64], pairs: Mapping[Key, tuple[Key, float, int]], expected: float
) -> Finding:
    own = [(pairs[key][1], key) for key in rows if key[0] == name and key in pairs]
    if not own:
        return Finding(name, "no power", {"smallest": None, "releases": 0.0}, {"smallest": None}, "no noise was seen")
    value, key = min(own)
    other, _, sign = pairs[key]
    # Of two Laplace noises the square of the difference has mean 4 and variance 56; the second term covers what a
    # private part correlated by chance with the noise can take away.
    d = rows[key].size
    threshold = expected * (1.0 - _DEVIATIONS * float(np.sqrt(3.5 / d)) - _DEVIATIONS**2 / d)
    typical = float(np.median([value for value, _ in own]))
    noise_dominates = typical < 4.0 * expected
    verdict: Verdict = (
        "succeeds" if value < threshold else "clean" if threshold > 0.0 and noise_dominates else "no power"
    )
    measured = {"smallest": value / expected, "releases": float(len(own))}
    note = ""
    if verdict == "succeeds":
        what = "the same" if sign == 1 else "the opposite"
        note = f"{key[1]} of round {key[2]} and {other[1]} of round {other[2]} of {other[0]} hold {what} noise"
    elif verdict == "no power":
        note = "too few coordinates, or private parts outweigh the noise: a reuse would not show"
    return Finding(name, verdict, measured, {"smallest": 1.0}, note)


attack = _Reuse()
