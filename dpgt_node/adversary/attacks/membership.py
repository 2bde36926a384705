"""Was this sample in the agent's data set?  A matched filter on the whole transcript, for softmax models.

If z is one of the agent's D samples, every g_k holds h_k(z)/D on the average, h_k(z) the gradient of z at the point of
round k.  With h̄_k and S_k, mean and covariance of gradients of public samples at that point, the residual
r_k = ĝ_k - h̄_k has covariance about V_k = S_k/m + v_k I, and the log-likelihood ratio of "z is in" is

    L(z) = T(z)/D - N(z)/(2 D^2),   T = sum_k (h_k - h̄_k)' V_k^-1 r_k,   N = sum_k (h_k - h̄_k)' V_k^-1 (h_k - h̄_k)

``filter=plain`` takes V_k = v_k I (1 where there is no noise) and scores T/sqrt(N).  Gradients are outer products, so
everything is done with inner products of samples; V_k^-1 by Woodbury.  The AUC's interval is DeLong's, 95 %.
The ROC curve has an entry (i/c, share of members above the i-th highest of the c others); below i/c false alarms no
threshold reaches more.

Gradients are clipped as the agents clip theirs, each round by its own share of the run's clip: what a sample can move
is what the clip leaves of it.  Rounds that release no gradient, or class sums in its place, say nothing here.

The AUC predicted is that of noise and sampling as V_k has them: near the truth where noise dominates, an upper bound
where the same samples return every round.

Members are the samples that the study files show, others are public ones; with ``candidates`` (an npz of phi and
labels) anybody's samples are scored, and nothing is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dpgt_node.adversary.attack import Finding, NotApplicable, Options, Result, Verdict
from dpgt_node.adversary.attacks.common import (
    NO_TRUTH,
    Curves,
    last_round,
    mean,
    positive,
    result,
    setting,
    targets,
    whole,
)
from dpgt_node.adversary.inference import estimators as es
from dpgt_node.adversary.inference.dead_reckoning import gradient_points
from dpgt_node.adversary.inference.fusion import least_squares
from dpgt_node.adversary.inference.knowledge import Samples, Softmax, public_samples
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.errors import ConfigError
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.record.truth import Truth
from dpgt_node.types import F64

_Z95 = NormalDist().inv_cdf(0.975)


class _Membership:
    name: ClassVar[str] = "membership"
    needs: ClassVar[frozenset[str]] = frozenset()
    settings: ClassVar[Mapping[str, str]] = {
        "D": "samples of an agent (default: the size of a batch when it is full, else unknown)",
        "filter": "whitened | plain (default whitened)",
        "public": "public samples that teach the filter; the rest are non-members (default 300, or half of fewer)",
        "candidates": "npz of phi (c, features) and labels (c,) to score; nothing is measured then",
        "data": "folder of the named picture sets (DPGT_DATA)",
        "through": "only rounds 0..THROUGH",
    }

    def run(self, observation: Observation, truth: Truth | None, options: Options) -> Result:
        """One finding an agent, with the AUC and its interval."""
        whole(observation, self.name)
        run = observation.facts.run
        root = options.extra.get("data")
        public = public_samples(run, None if root is None else Path(root))
        if not len(public.labels):
            raise NotApplicable.one("run file", "data.dataset", "has no test part: there are no public samples")
        model = Softmax.of(run, observation.dimension, public.classes)
        kind = setting(options, "filter", "whitened", _filter_name)
        learn = _teachers(options, len(public.labels))
        order = np.random.default_rng(options.seed).permutation(len(public.labels))
        teach, rest = _rows(public, order[:learn]), _rows(public, order[learn:])
        findings, curves = [], Curves()
        for i in targets(observation, options):
            v = es.view(observation, i, last_round(observation, options))
            findings.append(_one(observation, v, model, teach, rest, kind, truth, options, curves))
        aucs = [f.measured["auc"] for f in findings if f.measured.get("auc") is not None]
        text = "not measured" if not aucs else f"AUC {mean([a for a in aucs if a is not None]):.3f} (0.5 is guessing)"
        return result(self.name, text, findings, observation, curves=curves)


@dataclass(frozen=True, slots=True)
class Scores:
    """T, N of every candidate, (c,), and their log-likelihood ratios or, where D is unknown, T/sqrt(N)."""

    T: F64 = field(repr=False)
    N: F64 = field(repr=False)
    score: F64 = field(repr=False)
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Clipping:
    """What the agents do to each sample's gradient: ``clip`` (None: nothing), and its ``share`` in round k, 0.0 where
    the round releases no such gradient.
    """

    clip: Clip | None
    share: Callable[[int], float]

    @classmethod
    def of(cls, observation: Observation) -> Clipping:
        """As the run file says it."""
        schedule = observation.facts.schedule
        return cls(
            Clip.from_config(observation.facts.run.privacy), lambda k: 0.0 if schedule.sums(k) else schedule.share(k)
        )

    def clipped(self, k: int, model: Softmax, errors: F64, phi: F64) -> F64:
        """``errors`` (m, classes) of samples ``phi`` (m, p), scaled in place so that their gradients, the outer
        products of both, are those that the agents release in round ``k``.
        """
        if self.clip is not None:
            inputs = np.column_stack([phi, np.full(len(phi), model.bias)])
            norms = self.clip.norms(errors, axis=1) * self.clip.norms(inputs, axis=1)
            self.clip.times(self.share(k)).scale(errors.T, norms)
        return errors


_AS_IT_IS = Clipping(None, lambda _: 1.0)


def scores(
    v: es.View, model: Softmax, candidates: Samples, public: Samples, *, m: int, D: int | None, whitened: bool = True,
    clipping: Clipping = _AS_IT_IS,
) -> Scores:  # fmt: skip
    """The matched filter; ``m``: samples of a batch."""
    fused = least_squares(v)
    points = gradient_points(v)
    T, N, used = np.zeros(len(candidates.labels)), np.zeros(len(candidates.labels)), 0
    kernel_cc = np.square(candidates.phi).sum(axis=1) + model.bias**2
    kernel_cp = candidates.phi @ public.phi.T + model.bias**2
    kernel_pp = public.phi @ public.phi.T + model.bias**2
    for k in range(v.rounds):
        if np.isnan(fused.g[k]).any() or np.isnan(points[k]).any() or not clipping.share(k):
            continue
        ec, ep = (
            clipping.clipped(k, model, model.errors(points[k], one.phi, one.labels), one.phi)
            for one in (candidates, public)
        )
        W, b = model.split(fused.g[k])
        # Inner products of per-sample gradients are products of two small ones.
        cp, pp, cc = (ec @ ep.T) * kernel_cp, (ep @ ep.T) * kernel_pp, np.square(ec).sum(axis=1) * kernel_cc
        cg = ((candidates.phi @ W.T + model.bias * b) * ec).sum(axis=1)
        pg = ((public.phi @ W.T + model.bias * b) * ep).sum(axis=1)
        center = pp.mean(axis=0)
        # All relative to the public mean: h - h̄ and r = ĝ - h̄.
        c_r = cg - cp.mean(axis=1) - pg.mean() + center.mean()
        p_r = pg - center - pg.mean() + center.mean()
        c_p = cp - cp.mean(axis=1, keepdims=True) - center + center.mean()
        p_p = pp - center - center[:, None] + center.mean()
        c_c = cc - 2.0 * cp.mean(axis=1) + center.mean()
        noise = float(np.nanmean(fused.variance[k])) if v.var_y.any() else 0.0
        if not whitened:
            weight = 1.0 / noise if noise else 1.0
            T += weight * c_r
            N += weight * c_c
        else:
            spread = float(np.trace(p_p)) / len(pp)
            floor = max(noise, 1e-3 * spread / (m * v.y.shape[1]))
            factor = cho_factor(p_p + np.eye(len(pp)) * floor * m * len(pp), check_finite=False)
            solved = cho_solve(factor, c_p.T, check_finite=False)
            T += (c_r - solved.T @ p_r) / floor
            N += (c_c - np.einsum("cp,pc->c", c_p, solved)) / floor
        used += 1
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.nan_to_num(T / np.sqrt(N), nan=0.0)
    score = T / D - 0.5 * N / D**2 if D is not None and whitened else ratio
    return Scores(T, N, score, used)


def auc(members: F64, others: F64) -> tuple[float, float, float]:
    """AUC with its 95 % interval: DeLong's variance, on the logit; at 0 and 1 the exact bound of so many successes."""
    above = (members[:, None] > others).astype(np.float64) + 0.5 * (members[:, None] == others)
    value, n, o = float(above.mean()), len(members), len(others)
    if value in (0.0, 1.0):
        edge = 1.0 - 0.025 ** (1.0 / min(n, o))
        return value, (1.0 - edge if value else 0.0), (1.0 if value else edge)
    variance = float(above.mean(axis=1).var(ddof=1)) / n + float(above.mean(axis=0).var(ddof=1)) / o
    half = _Z95 * math.sqrt(variance) / (value * (1.0 - value))
    logit = math.log(value / (1.0 - value))
    low, high = (1.0 / (1.0 + math.exp(-x)) for x in (logit - half, logit + half))
    return value, low, high


def hits(members: F64, others: F64, false_alarms: float) -> float:
    """The share of members above the lowest threshold that at most this share of others exceeds (TPR at an FPR)."""
    allowed = math.floor(false_alarms * len(others) + 1e-9)
    return float((members > np.sort(others)[::-1][min(allowed, len(others) - 1)]).mean())


def _one(
    observation: Observation,
    v: es.View,
    model: Softmax,
    teach: Samples,
    rest: Samples,
    kind: str,
    truth: Truth | None,
    options: Options,
    curves: Curves,
) -> Finding:
    given = options.extra.get("candidates")
    m_run = observation.facts.schedule.m
    members = _members(truth, v.name)
    if given is not None:
        candidates, known = _load(Path(given), model), False
    elif members is None:
        note = f"{NO_TRUTH} (or its samples were not kept), and no --set candidates"
        return Finding(v.name, "not measured", {"auc": None}, note=note)
    else:
        count = min(len(members.labels), len(rest.labels))
        others = _rows(rest, np.arange(count))
        candidates = Samples(
            np.concatenate([members.phi, others.phi]), np.concatenate([members.labels, others.labels]), model.classes
        )
        known = True
    D = setting(options, "D", len(members.labels) if members is not None and m_run is None else None, positive)
    m = m_run or D
    if m is None:
        return Finding(v.name, "not measured", {"auc": None}, note='m is "full": say how many samples with --set D=')
    whitened, clipping = kind == "whitened", Clipping.of(observation)
    found = scores(v, model, candidates, teach, m=m, D=D, whitened=whitened, clipping=clipping)
    if not found.rounds:
        return Finding(v.name, "no power", {"auc": None}, note="no gradient was seen")
    if not known:
        order = np.arange(len(found.score), dtype=np.float64)
        curves[f"{v.name}: score of each candidate"] = order, found.score
        return Finding(v.name, "not measured", {"auc": None, "rounds": float(found.rounds)}, note="scores: see curves")
    assert members is not None
    if min(len(members.labels), len(rest.labels)) < 2:
        note = f"{len(members.labels)} members beside {len(rest.labels)} others: too few to tell apart"
        return Finding(v.name, "no power", {"auc": None}, note=note)
    inside, outside = found.score[: len(members.labels)], found.score[len(members.labels) :]
    value, low, high = auc(inside, outside)
    expected = None
    if D is not None and whitened:
        expected = NormalDist().cdf(math.sqrt(max(float(np.mean(found.N)), 0.0)) / D / math.sqrt(2.0))
    false = np.sort(outside)[::-1]
    curves[f"{v.name}: ROC"] = (
        np.arange(len(false) + 1) / len(false),
        np.array([0.0, *((inside > t).mean() for t in false)]),
    )
    measured = {
        "auc": value,
        "auc_low": low,
        "auc_high": high,
        "tpr_at_1_percent": hits(inside, outside, 0.01),
        "tpr_at_0.1_percent": hits(inside, outside, 0.001),
        "members": float(len(inside)),
        "others": float(len(outside)),
        "rounds": float(found.rounds),
    }
    note = "" if D is not None else "D is not known: scores are T/sqrt(N), no AUC is predicted"
    return Finding(v.name, _verdict(value, low, high), measured, {"auc": expected}, note)


def _verdict(value: float, low: float, high: float) -> Verdict:
    if low >= 0.9:
        return "succeeds"
    return "partly" if low > 0.5 else "fails"


def _teachers(options: Options, count: int) -> int:
    """How many of ``count`` public samples teach the filter.  ConfigError: so many that nobody is left to compare."""
    learn = setting(options, "public", 300 if count > 301 else max(1, count // 2), positive)
    if learn > count - 2 and "candidates" not in options.extra:
        message = f"{learn}: there are {count} public samples, so no two non-members are left to compare members with"
        raise ConfigError.one("command line", "--set public", message)
    return learn


def _filter_name(text: str) -> str:
    if text not in ("whitened", "plain"):
        raise ValueError(f"{text!r} is neither whitened nor plain")
    return text


def _rows(samples: Samples, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Samples:
    return Samples(samples.phi[rows], samples.labels[rows], samples.classes)


def _members(truth: Truth | None, name: str) -> Samples | None:
    """The agent's samples that were in any batch, each once; None where they were not kept."""
    if truth is None or name not in truth:
        return None
    kept: dict[int, tuple[F64, int]] = {}
    for one in truth[name]:
        if one.samples.ndim == 2 and len(one.samples) == len(one.batch) == len(one.labels):
            for index, phi, label in zip(one.batch.tolist(), one.samples, one.labels.tolist(), strict=True):
                kept.setdefault(index, (phi, label))
    if not kept:
        return None
    return Samples(
        np.array([phi for phi, _ in kept.values()]), np.array([label for _, label in kept.values()], dtype=np.int64), 0
    )


def _load(path: Path, model: Softmax) -> Samples:
    try:
        with np.load(path, allow_pickle=False) as file:
            phi, labels = np.asarray(file["phi"], dtype=np.float64), np.asarray(file["labels"], dtype=np.int64)
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError.one(str(path), "", f"is no npz with phi and labels: {error}") from error
    if phi.ndim != 2 or phi.shape != (len(labels), model.features) or (labels < 0).any():
        raise ConfigError.one(str(path), "phi", f"has shape {phi.shape}; the model takes {model.features} features")
    if len(labels) and labels.max() >= model.classes:
        raise ConfigError.one(str(path), "labels", f"go to {labels.max()}; the model has {model.classes} classes")
    return Samples(phi, labels, model.classes)


attack = _Membership()
