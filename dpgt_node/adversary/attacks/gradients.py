"""Sampled-gradient inference: what the transcript says about each agent's g_k, with its error predicted and measured.

The estimators are those of :mod:`dpgt_node.adversary.inference.estimators`, each with the formula for its variance,
then the fusions: least squares on everything, the smoother with a prior fitted to the transcript, the L1 estimate.
The cosine between estimate and truth is predicted by 1/sqrt(1 + s^2), s the noise's share of the gradient's length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from dpgt_node.adversary.attack import Finding, Options, Result, Verdict
from dpgt_node.adversary.attacks.common import (
    NO_TRUTH,
    Curves,
    flag,
    known_rounds,
    last_round,
    mean,
    result,
    rms,
    setting,
    stacked,
    targets,
)
from dpgt_node.adversary.inference import estimators as es
from dpgt_node.adversary.inference import predictions as pr
from dpgt_node.adversary.inference.dead_reckoning import reckoned
from dpgt_node.adversary.inference.fusion import least_squares
from dpgt_node.adversary.inference.map_l1 import MAX_ROUNDS, most_probable
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.adversary.inference.smoothing import smooth
from dpgt_node.record.truth import Truth
from dpgt_node.types import F64
from dpgt_node.values import dataclass

SUCCEEDS, FAILS = 0.9, 0.3
_MAP_COORDINATES = 1024
_FUSIONS = ("fused", "smoothed", "likely")


@dataclass(frozen=True, slots=True)
class Estimate:
    """One estimator of one agent: (rounds, d), the variance of its error (rounds, 1 or d), and what it estimates.

    ``shrunk``: a conditional mean, whose error is uncorrelated with itself and not with the truth.
    """

    value: F64
    variance: F64
    of: str
    shrunk: bool = False


def estimates(v: es.View, *, fuse: bool = True) -> dict[str, Estimate]:
    """Every estimator by name, shorter ones padded with NaN.  ``of``: g, difference, y, p, px or x of the truth."""
    P, m = v.params, v.mechanism
    table = {
        "A": Estimate(es.difference(v), pr.difference(m, P.b, v.var_y), "difference"),
        "X": Estimate(es.tracker_from_x(v), pr.tracker_from_x(m, P.a, P.gamma, v.var_x, v.var_y), "y"),
        "B": Estimate(es.absolute(v), pr.absolute(m, P.b, v.var_y), "g"),
        "B_from_x": Estimate(es.absolute_from_x(v), pr.absolute_from_x(m, P.a, P.b, P.gamma, v.var_x, v.var_y), "g"),
        "D": Estimate(es.innovation(v), pr.innovation(m, P.b, v.var_y), "p"),
        "E": Estimate(es.from_x(v), pr.from_x(m, P.a, P.b, P.gamma, v.var_x, v.var_y), "px"),
        "x": Estimate(*reckoned(v), "x"),
    }
    if fuse:
        fused = least_squares(v)
        table["fused"] = Estimate(fused.g, fused.variance, "g")
        smoothed = smooth(v)
        table["smoothed"] = Estimate(smoothed.g, smoothed.variance, "g", True)
        if v.rounds <= MAX_ROUNDS and v.law.norm == 1 and (v.scale_y > 0.0).all():
            few = slice(0, None, -(-v.y.shape[1] // _MAP_COORDINATES))
            likely = np.full_like(v.y, np.nan)
            likely[:, few] = most_probable(es.columns(v, few), smoothed.prior)
            table["likely"] = Estimate(likely, np.full((v.rounds, 1), np.nan), "g")
    return {name: _padded(one, v.rounds) for name, one in table.items()}


def _padded(one: Estimate, rounds: int) -> Estimate:
    variance = one.variance if one.variance.ndim == 2 else one.variance[:, None]
    out = []
    for values in (one.value, variance):
        whole = np.full((rounds, values.shape[1]), np.nan)
        whole[: len(values)] = values
        out.append(whole)
    return Estimate(out[0], out[1], one.of, one.shrunk)


def aims(v: es.View, found: Mapping[str, F64]) -> dict[str, F64]:
    """What each kind of estimate is of, (rounds, d) by ``Estimate.of``; from the true x, y, g."""
    g = found["g"]
    p, px = es.private_parts(v, g)
    difference = np.full_like(g, np.nan)
    difference[:-1] = g[1:] - g[:-1]
    return {"g": g, "difference": difference, "y": found["y"], "p": p, "px": px, "x": found["x"]}


class _Gradients:
    name: ClassVar[str] = "gradients"
    needs: ClassVar[frozenset[str]] = frozenset()
    settings: ClassVar[Mapping[str, str]] = {
        "fuse": "yes | no: least squares, smoother and L1 on top of the estimators (default yes)",
        "through": "only rounds 0..THROUGH",
    }

    def run(self, observation: Observation, truth: Truth | None, options: Options) -> Result:
        """One finding an agent; curves of cosine and relative error by round."""
        fuse = setting(options, "fuse", True, flag)
        through = last_round(observation, options)
        findings, curves = [], Curves()
        for i in targets(observation, options):
            v = es.view(observation, i, through)
            findings.append(_one(observation, v, estimates(v, fuse=fuse), truth, options, curves))
        return result(self.name, _summary(findings), findings, observation, curves=curves)


def _one(
    observation: Observation,
    v: es.View,
    table: Mapping[str, Estimate],
    truth: Truth | None,
    options: Options,
    curves: Curves,
) -> Finding:
    d = v.y.shape[1]
    wanted = [k for k in range(v.rounds) if not options.rounds or k in options.rounds]
    outside = np.setdiff1d(np.arange(v.rounds), wanted)
    found = known_rounds(truth, v.name, range(v.rounds), observation)
    measured: dict[str, float | None] = {}
    predicted: dict[str, float | None] = {}
    best = table.get("smoothed", table["B"])
    notes = [_availability(table, wanted)]
    true = aims(v, {what: stacked(found, what, v.rounds, d) for what in ("x", "y", "g")}) if found else {}
    for name, one in table.items():
        value = one.value.copy()
        value[outside] = np.nan
        error = value - true[one.of] if found else np.full_like(value, np.nan)
        here = ~np.isnan(error) if found else ~np.isnan(value)
        measured[f"{name}_rms"] = rms(error)
        predicted[f"{name}_rms"] = _root_mean(one.variance, here)
        if one.of != "g":
            continue
        cosines, relative = _by_round(value, true["g"]) if found else (np.full(v.rounds, np.nan),) * 2
        expected, size = _expected(value, one, true.get("g"))
        measured[f"{name}_cosine"], predicted[f"{name}_cosine"] = mean(cosines), mean(expected)
        measured[f"{name}_relative_error"], predicted[f"{name}_relative_error"] = mean(relative), _finite(mean(size))
        if found and name in _FUSIONS:
            measured[f"{name}_over_B"] = _over(error, table["B"].value - true["g"])
        if one is best or name == "B":
            rounds = np.arange(v.rounds, dtype=np.float64)
            curves[f"{v.name}: cosine of {name}, predicted"] = rounds, expected
            if found:
                curves[f"{v.name}: cosine of {name}, measured"] = rounds, cosines
                curves[f"{v.name}: relative error of {name}, measured"] = rounds, relative
    if not found:
        notes.append(NO_TRUTH + "; predictions use the length of the estimate itself")
    reached = [measured[key] for key in measured if key.endswith("_cosine") and measured[key] is not None]
    return Finding(v.name, _verdict(reached, bool(found)), measured, predicted, "; ".join(filter(None, notes)))


def _verdict(cosines: list[float | None], known: bool) -> Verdict:
    if not known:
        return "not measured"
    if not cosines:
        return "no power"
    best = max(c for c in cosines if c is not None)
    return "succeeds" if best >= SUCCEEDS else "fails" if best <= FAILS else "partly"


def _root_mean(variance: F64, here: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> float | None:
    """Root of the predicted variance, averaged over what was estimated."""
    if not here.any():
        return None
    value = float(np.broadcast_to(variance, here.shape)[here].mean())
    return None if math.isnan(value) else math.sqrt(value)


def _over(error: F64, of_b: F64) -> float | None:
    """Its rms error over that of B, where both are known and B's is not 0."""
    both = ~np.isnan(error) & ~np.isnan(of_b)
    mine, other = rms(np.where(both, error, np.nan)), rms(np.where(both, of_b, np.nan))
    return None if mine is None or not other else mine / other


def _by_round(value: F64, true: F64) -> tuple[F64, F64]:
    """Cosine with the truth and relative error of every round, over the coordinates that were estimated."""
    seen = ~np.isnan(value) & ~np.isnan(true)
    a, b = np.where(seen, value, 0.0), np.where(seen, true, 0.0)
    size_a, size_b = np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine = np.where((size_a > 0.0) & (size_b > 0.0), (a * b).sum(axis=1) / (size_a * size_b), np.nan)
        relative = np.where(size_b > 0.0, np.linalg.norm(a - b, axis=1) / size_b, np.nan)
    return np.asarray(cosine), np.asarray(relative)


def _expected(value: F64, one: Estimate, true: F64 | None) -> tuple[F64, F64]:
    """Predicted cosine and relative error of every round.

    With s the noise's share of |g|: 1/sqrt(1 + s^2) where the noise was added to g, sqrt(1 - s^2) for a conditional
    mean.  Without truth |g|^2 is |estimate|^2 less the noise, for a conditional mean plus what it lacks.
    """
    seen = ~np.isnan(value) if true is None else ~np.isnan(value) & ~np.isnan(true)
    noise = np.where(seen, one.variance, 0.0).sum(axis=1)
    if true is None:
        power = (np.where(seen, value, 0.0) ** 2).sum(axis=1)
        power = np.maximum(power + (noise if one.shrunk else -noise), 0.0)
    else:
        power = (np.where(seen, true, 0.0) ** 2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        s = np.where(seen.any(axis=1) & ~np.isnan(noise), np.sqrt(noise / power), np.nan)
    if one.shrunk:
        return np.sqrt(np.maximum(1.0 - s * s, 0.0)), s
    return np.array([math.nan if math.isnan(x) else pr.cosine(x) for x in s.tolist()]), s


def _finite(value: float | None) -> float | None:
    """None for infinite: in some round nothing is left of |g|^2 under the noise."""
    return None if value is None or math.isinf(value) else value


def _availability(table: Mapping[str, Estimate], wanted: list[int]) -> str:
    """Which rounds the estimators have, where it is not all of them."""
    short = []
    for name in ("A", "X", "B", "D", "E"):
        whole = len(wanted) - (name in "AX" and bool(wanted))
        have = int((~np.isnan(table[name].value[wanted])).any(axis=1).sum())
        if have < whole:
            short.append(f"{name} {have} of {whole}")
    return f"rounds available: {', '.join(short)}" if short else ""


def _summary(findings: list[Finding]) -> str:
    pairs = []
    for key in ("B_cosine", "fused_cosine", "smoothed_cosine"):
        seen = [(f.measured.get(key), f.predicted.get(key)) for f in findings]
        m, p = (mean([x for x in side if x is not None]) for side in zip(*seen, strict=True))
        if p is not None:
            pairs.append(f"{key.replace('_', ' ')} {'not measured' if m is None else f'{m:.4g}'} (predicted {p:.4g})")
    return "; ".join(pairs) or "nothing was seen from which a gradient follows"


attack = _Gradients()
