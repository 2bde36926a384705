"""Do the low bits of a release depend on the data?  Floating-point noise is not real-valued noise (Mironov 2012).

What was drawn with care lies on a grid that depends on the scale alone: private part plus noise is an odd multiple of
half a cell, whatever the data.  In round 0 the transcript parts are public constants, so the grid can be seen to the
last bit; later, up to the rounding of a sum.  Noise of a floating-point inverse CDF is -scale ln u with u a multiple of
2^-53, so near 0 it takes few of the doubles there; a sum of it and a private value takes others: whether 2^53
exp(-|y|/scale) is nearly an integer tells coordinates with a private value from those without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from dpgt_node.adversary.attack import Finding, Options, Result, Verdict
from dpgt_node.adversary.attacks.common import known_rounds, result, targets
from dpgt_node.adversary.inference import estimators as es
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.adversary.membership.rates import auc
from dpgt_node.privacy.laws.law import Law
from dpgt_node.record.truth import Truth
from dpgt_node.types import F64

_ENOUGH = 8  # coordinates; by chance that many lie on the grid with probability below 1e-12


class _Floats:
    name: ClassVar[str] = "floats"
    needs: ClassVar[frozenset[str]] = frozenset()
    settings: ClassVar[Mapping[str, str]] = {}

    def run(self, observation: Observation, truth: Truth | None, options: Options) -> Result:
        findings = [_one(observation, es.view(observation, i), truth) for i in targets(observation, options)]
        off = sum(f.verdict == "succeeds" for f in findings)
        text = f"the noise of {off} agents is not on the sampler's grid" if off else (
            "every release is on the sampler's grid" if any(f.verdict == "clean" for f in findings) else
            "no release was seen whose grid could be"
        )  # fmt: skip
        return result(self.name, text, findings, observation)


def on_grid(values: F64, law: Law, scale: float, rounding: float, offset: F64 | float = 0.0) -> F64:
    """1.0 where ``values`` - ``offset`` may be an odd multiple of half a cell, else 0.0; NaN where that is not visible.

    ``rounding``: relative error of a value on the wire; 2^-53 sees the grid exactly where ``offset`` is 0.
    """
    cell = law.cell(scale)
    private = values - offset
    with np.errstate(invalid="ignore"):
        nearest = cell * (np.floor(private / cell) + 0.5)
        # The nearest point, or the one beyond an edge of the cell, rounded as it was sent.
        exact = np.zeros(values.shape, dtype=np.bool_)
        slack = 2.0 * rounding * (np.abs(values) + np.abs(offset)) if rounding > 2.0**-53 or np.any(offset) else 0.0
        for shift in (-cell, 0.0, cell):
            exact |= np.abs(private - (nearest + shift)) <= slack
        out = exact.astype(np.float64)
        # Where rounding covers a good part of a cell, everything would seem to be on the grid.
        out[np.isnan(private) | (np.broadcast_to(slack, values.shape) > cell / 16.0)] = np.nan
    return out


def unreachable(values: F64, scale: float) -> F64:
    """How far 2^53 exp(-|value|/scale) is from an integer, 0 to 1/2: near 0 for bare inverse-CDF noise.

    NaN for values beyond scale/16, where the doubles are coarser than the noise.
    """
    with np.errstate(invalid="ignore"):
        steps = 2.0**53 * np.expm1(-np.abs(values) / scale)
        out = np.abs(steps - np.rint(steps))
        out[~(np.abs(values) < scale / 16.0)] = np.nan
    return np.asarray(out)


def _one(observation: Observation, v: es.View, truth: Truth | None) -> Finding:
    shares: list[float] = []
    rounds = 0
    t, tx = es.transcript_parts(v)
    # What noise was added to: y - t and x - tx, of noise-once g~.
    streams = [(v.y, t, v.scale_y), (v.x, tx, v.scale_x)] if not v.mechanism.x_public else [(v.y, t, v.scale_y)]
    if v.mechanism.accounted.once:
        # Later ones are sums of several.  A public factor is taken off again, with a rounding of its own.
        first = v.y[:1] if v.factor == 1.0 else v.y[:1] / v.factor
        streams = [(first, t[:1], v.scale_y / v.factor)]
    for values, offset, scale in streams:
        for k in range(len(values)):
            if scale[k] == 0.0:
                continue
            rounding = v.rounding if v.factor == 1.0 else 2.0 * v.rounding
            drawn = on_grid(values[k], v.law, float(scale[k]), rounding, offset[k])
            drawn = drawn[~np.isnan(drawn)]
            if drawn.size >= _ENOUGH:
                shares.append(float(drawn.mean()))
                rounds += 1
    if not shares:
        return Finding(
            v.name, "no power", {"on_grid": None}, {"on_grid": None}, "no noise, or a grid finer than the wire"
        )
    measured: dict[str, float | None] = {"on_grid": float(np.mean(shares)), "worst_release": min(shares)}
    verdict: Verdict = "clean" if min(shares) == 1.0 else "succeeds"
    note = ""
    if verdict == "succeeds":
        measured["low_bits_auc"] = _leak(observation, v, truth)
        note = "float noise: its low bits depend on the private value"
    measured["releases"] = float(rounds)
    return Finding(v.name, verdict, measured, {"on_grid": 1.0, "worst_release": 1.0}, note)


def _leak(observation: Observation, v: es.View, truth: Truth | None) -> float | None:
    """How well the low bits of y̆_0 tell where g_0 is not 0: AUC, measured with ground truth; None: too few to say."""
    found = known_rounds(truth, v.name, [0], observation)
    if 0 not in found or v.scale_y[0] == 0.0:
        return None
    distance, private = unreachable(v.y[0] / v.factor, float(v.scale_y[0]) / v.factor), found[0].g != 0.0
    inside, outside = (distance[~np.isnan(distance) & which] for which in (private, ~private))
    return auc(inside, outside)[0] if min(inside.size, outside.size) >= _ENOUGH else None


attack = _Floats()
