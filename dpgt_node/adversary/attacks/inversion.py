"""Pictures out of gradients: what an agent's batch looked like, from what the transcript says of its gradient.

Softmax models, and one sample of a torch model that begins with a linear layer, in closed form
(:mod:`.inversion_analytic`); other torch models by search (:mod:`.inversion_search`).  Labels come first, from the
gradient of the output layer.  Round 0 is attacked unless ``--round`` says otherwise: its gradient was taken at x_0,
which is public, and its noise is that of one release.

Expected: a search works for s = sqrt(d v)/||g|| <= 0.15, v the variance of one coordinate of the estimated gradient
(Laplace noise of scale b: sqrt(2d) b/||g||); the closed forms have their own prediction of the PSNR, before what lies
outside [0, 1] is clipped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dpgt_node.adversary.attack import Finding, NotApplicable, Options, Result, Verdict
from dpgt_node.adversary.attacks import inversion_analytic as analytic
from dpgt_node.adversary.attacks import inversion_measure as measure
from dpgt_node.adversary.attacks import inversion_search as search
from dpgt_node.adversary.attacks.common import (
    NO_TRUTH,
    classes_of,
    known_rounds,
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
from dpgt_node.adversary.inference.knowledge import PICTURES, TOYS, Softmax
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.record.truth import Truth, TruthRound
from dpgt_node.types import F64, I64

SUCCEEDS_DB, FAILS_DB = 20.0, 13.0
"""A picture is recognised above the first; below the second it is no nearer than the mean of a data set's pictures."""
_SHOWN = 8
_LARGEST_BATCH = 16


@dataclass(frozen=True, slots=True)
class Model:
    """The architecture as the run file says it.  ``shape``: of what goes in; ``module``: of torch, None for softmax.

    ``picture``: (channels, height, width) where samples are pictures with values in [0, 1].
    """

    softmax: Softmax | None
    module: Any
    shape: tuple[int, ...]
    classes: int
    picture: tuple[int, int, int] | None
    clip: Clip | None


@dataclass(frozen=True, slots=True)
class Batch:
    """What came out of one gradient: ``samples`` (m, *shape) before clipping to [0, 1], ``labels`` (m,), how.

    ``psnr``: predicted of ``samples``, None where only the rule for s applies; ``works``: the rule, or that PSNR.
    """

    samples: F64 = field(repr=False)
    labels: I64 = field(repr=False)
    how: str
    s: float
    psnr: float | None
    misfit: float | None = None


class _Inversion:
    name: ClassVar[str] = "inversion"
    needs: ClassVar[frozenset[str]] = frozenset()
    settings: ClassVar[Mapping[str, str]] = {
        "m": 'samples of a batch, where the run file says "full"',
        "largest": f"do not try batches with more samples (default {_LARGEST_BATCH})",
        "shape": "channels,height,width of a picture, where the data set's name does not say it",
        "classes": "number of classes, where the data set's name does not say it",
        "method": "auto | lbfgs | adam: how to search (default auto)",
        "steps": "of the search (default 600)",
        "restarts": "of the search, from other random pictures (default 1)",
    }

    def run(self, observation: Observation, truth: Truth | None, options: Options) -> Result:
        """One finding an agent and round, with the pictures."""
        whole(observation, self.name)
        model = model_of(observation, options)
        search_settings(options)  # what it cannot take is said before anything is inverted
        rounds = sorted(set(options.rounds)) or [0]
        findings: list[Finding] = []
        pictures: dict[str, F64] = {}
        for i in targets(observation, options):
            # One round more: where y̆_k was not seen, x̆_{k+1} holds it.
            v = es.view(observation, i, min(rounds[-1] + 1, observation.facts.run.K))
            fused, points = least_squares(v), gradient_points(v)
            true = known_rounds(truth, v.name, rounds, observation)
            for k in rounds:
                where = f"{v.name}, round {k}"
                m = _batch_size(observation, options, true.get(k))
                why = _impossible(v.name, fused.g[k], points[k], model, m, options)
                if m is None or why is not None:
                    findings.append(why or _refused(v.name, 'm is "full", and its value not known: give --set m=...'))
                    continue
                variance = float(np.mean(np.broadcast_to(fused.variance, fused.g.shape)[k]))
                batch = recover(model, fused.g[k], points[k], m, variance, options)
                finding, rows = judged(v.name, k, batch, model, fused.g[k], true.get(k))
                findings.append(finding)
                pictures |= {f"{where}: {caption}": values for caption, values in rows.items()}
        return result(self.name, _summary(findings), findings, observation, pictures=pictures)


def search_settings(options: Options) -> search.Settings:
    """``--set method``, ``steps``, ``restarts``."""
    return search.Settings(
        setting(options, "method", "auto", _method),
        setting(options, "steps", 600, positive),
        setting(options, "restarts", 1, positive),
        options.seed,
    )


def model_of(observation: Observation, options: Options) -> Model:
    """The model that everybody knows.  NotApplicable: there are no samples, or the run file does not say enough."""
    run, dimension = observation.facts.run, observation.dimension
    if run.data.dataset in TOYS:
        raise NotApplicable.one("run file", "data.dataset", f"{run.data.dataset!r} has no samples to recover")
    classes = classes_of(observation, options)
    given = setting(options, "shape", None, _shape)
    picture = given or PICTURES.get(run.data.dataset)
    raw = run.data.normalise == "none" and run.data.features == "raw"
    if run.data.features == "pool14":
        picture = (1, 14, 14)
    clip = Clip.from_config(run.privacy)
    if run.model.name == "softmax":
        softmax = Softmax.of(run, dimension, classes)
        p, side = softmax.features, math.isqrt(softmax.features)
        if picture is None and side * side == p:
            picture = (1, side, side)
        shows = (raw or run.data.features == "pool14") and picture is not None and math.prod(picture) == p
        return Model(softmax, None, (p,), classes, picture if shows else None, clip)
    if picture is None or not raw:
        message = f"the shape of a sample of {run.data.dataset!r} is not in the run file: give --set shape=1,28,28"
        if not raw:
            message = "torch models are attacked with features = raw and normalise = none only"
        raise NotApplicable.one("command line", "--set shape", message)
    from dpgt_node.learning.nets.torch_models import build_module

    seed = 0 if run.model.init_seed is None else run.model.init_seed
    module = build_module(run.model.name, picture, classes, norm=run.model.norm, seed=seed)
    have = sum(value.numel() for value in module.parameters() if value.requires_grad)
    if have != dimension:
        message = f"{run.model.name!r} has d = {have} for pictures of {picture}, the transcript {dimension}"
        raise NotApplicable.one("command line", "--set shape", message)
    if not search.takes(module, picture):
        message = f"{run.model.name!r} does not take pictures of {picture}"
        raise NotApplicable.one("command line", "--set shape", message)
    return Model(None, module, picture, classes, picture, clip)


def recover(model: Model, g: F64, x: F64, m: int, variance: float, options: Options | None = None) -> Batch:
    """The batch of ``m`` samples whose gradient at ``x`` (d,) was ``g`` (d,), known with ``variance`` a coordinate."""
    options = options or Options()
    s = noise_ratio(g, variance)
    if model.softmax is not None:
        return _softmax(model, model.softmax, g, x, m, variance, s)
    module = search.load(model.module, x)
    bias = output_bias(module, g, model.classes)
    first = first_layer(module, math.prod(model.shape), g) if m == 1 else None
    if first is not None:
        found = analytic.one_sample(*first, variance=variance)
        samples = found.phi.reshape(1, *model.shape)
        labels = np.array([analytic.label_of(bias)], dtype=np.int64)
        return Batch(samples, labels, "closed form", s, measure.psnr_of(found.mse))
    settings = search_settings(options)
    labels, seen = search.labels_and_samples(module, g, bias, m, model.shape, s=s, settings=settings)
    return Batch(seen.samples, labels, seen.method, s, None, seen.misfit)


def _softmax(model: Model, softmax: Softmax, g: F64, x: F64, m: int, variance: float, s: float) -> Batch:
    weights, bias = softmax.split(g)
    if m == 1:
        found = analytic.one_sample(weights, bias if softmax.bias else None, softmax.bias, variance)
        labels = np.array([analytic.label_of(found.errors[0])], dtype=np.int64)
    else:
        shares = bias / softmax.bias if softmax.bias else np.zeros(model.classes)
        start = softmax.probabilities(x, np.full((1, softmax.features), 0.1))[0]
        labels = analytic.labels_of(shares, m, start)
        found = analytic.softmax_batch(g, x, softmax, labels, clip=model.clip, variance=variance)
    # Two samples of one label come out as their mean at the best: nothing is predicted of them.
    predicted = measure.psnr_of(found.mse) if len(np.unique(labels)) == m < model.classes else None
    return Batch(found.phi, labels, "closed form", s, predicted)


def noise_ratio(g: F64, variance: float) -> float:
    """s = sqrt(d v)/||g|| of an estimate ``g`` whose noise has ``variance``; where noise drowns g, what is certain."""
    noise = g.size * variance
    rest = float(g @ g) - noise
    return math.sqrt(noise / max(rest, math.sqrt(2.0 * g.size) * variance)) if noise else 0.0


def output_bias(module: Any, g: F64, classes: int) -> F64:
    """The part of ``g`` that tells labels: of the last bias, or the row sums of the last weights, (classes,)."""
    last = [value for value in module.parameters() if value.requires_grad][-1]
    part = g[g.size - last.numel() :]
    if last.ndim == 1 and last.numel() == classes:
        return part
    if last.ndim == 2 and last.shape[0] == classes:
        sums: F64 = part.reshape(classes, -1).sum(axis=1)
        return sums
    raise NotApplicable.one("run file", "model.name", "its last parameter is no output layer: labels do not show in it")


def first_layer(module: Any, inputs: int, g: F64) -> tuple[F64, F64] | None:
    """Gradients of weights (q, p) and bias (q,) of a linear layer that takes the samples as they are; None: none."""
    trained = [value for value in module.parameters() if value.requires_grad]
    layers = [part for part in module.modules() if not list(part.children())]
    reached = next((part for part in layers if type(part).__name__ not in ("Flatten", "Identity")), None)
    if type(reached).__name__ != "Linear" or len(trained) < 2 or trained[0].ndim != 2 or trained[1].ndim != 1:
        return None
    q, p = (int(side) for side in trained[0].shape)
    if p != inputs or trained[1].numel() != q or trained[0] is not getattr(reached, "weight", None):
        return None
    return g[: q * p].reshape(q, p), g[q * p : q * p + q]


def judged(
    agent: str, k: int, batch: Batch, model: Model, g: F64, truth: TruthRound | None
) -> tuple[Finding, dict[str, F64]]:
    """The finding, and the rows of pictures by caption: recovered ones in the order of the true ones."""
    clipped = np.clip(batch.samples, 0.0, 1.0) if model.picture is not None else batch.samples
    expected = _expected(batch.psnr, batch.s)
    notes = [f"round {k}, {len(batch.labels)} a batch, {batch.how}", f"s = {batch.s:.3g}"]
    if batch.misfit is not None:
        notes.append(f"1 - cosine = {batch.misfit:.2g}")
    word = "expected" if batch.psnr is not None or not expected else "possible"  # the rule for s rules out, no more
    notes.append(f"a picture is {'' if expected else 'not '}{word}")
    predicted: dict[str, float | None] = {"psnr_unclipped_db": batch.psnr, "noise_ratio": batch.s}
    nothing = dict.fromkeys(("psnr_db", "psnr_unclipped_db", "ssim", "label_accuracy", "noise_ratio"))
    if truth is None or len(truth.labels) != len(batch.labels):
        finding = Finding(agent, "not measured", nothing, predicted, "; ".join([*notes, NO_TRUTH]))
        return finding, _rows(model, {"recovered": clipped})
    measured: dict[str, float | None] = dict(nothing)
    rest = np.linalg.norm(truth.g)
    measured["noise_ratio"] = float(np.linalg.norm(g - truth.g) / rest) if rest else None
    true_labels = np.bincount(truth.labels, minlength=model.classes)
    found_labels = np.bincount(batch.labels, minlength=model.classes)
    measured["label_accuracy"] = float(np.minimum(true_labels, found_labels).sum()) / len(batch.labels)
    if truth.samples.size != batch.samples.size:
        finding = Finding(agent, "not measured", measured, predicted, "; ".join([*notes, "its samples were not kept"]))
        return finding, _rows(model, {"recovered": clipped})
    true = truth.samples.reshape(batch.samples.shape)
    order = measure.matched(true, clipped)
    raw, clipped = batch.samples[order], clipped[order]
    each = [measure.psnr(a, b) for a, b in zip(true, clipped, strict=True)]
    measured["psnr_db"] = mean(each)
    measured["psnr_unclipped_db"] = measure.psnr(true, raw)
    if model.picture is not None:
        shaped = [array.reshape(-1, *model.picture) for array in (true, clipped)]
        measured["ssim"] = mean([measure.ssim(a, b) for a, b in zip(*shaped, strict=True)])
    finding = Finding(agent, _verdict(measured["psnr_db"]), measured, predicted, "; ".join(notes))
    return finding, _rows(model, {"true": true, "recovered": clipped})


def _expected(psnr: float | None, s: float | None) -> bool:
    """Whether a picture should come out, by the predicted PSNR; else whether the rule for s leaves it possible."""
    return psnr >= SUCCEEDS_DB if psnr is not None else s is not None and s <= search.WORKS_UP_TO


def _rows(model: Model, rows: Mapping[str, F64]) -> dict[str, F64]:
    """(count, height, width) or (count, height, width, 3); nothing where samples are no pictures."""
    if model.picture is None:
        return {}
    channels = model.picture[0]
    shaped = {name: values[:_SHOWN].reshape(-1, *model.picture) for name, values in rows.items()}
    return {name: values[:, 0] if channels == 1 else values.transpose(0, 2, 3, 1) for name, values in shaped.items()}


def _verdict(psnr: float | None) -> Verdict:
    if psnr is None:
        return "not measured"
    return "succeeds" if psnr >= SUCCEEDS_DB else "fails" if psnr < FAILS_DB else "partly"


def _summary(findings: list[Finding]) -> str:
    values = [f.measured["psnr_db"] for f in findings if f.measured.get("psnr_db") is not None]
    labels = [f.measured["label_accuracy"] for f in findings if f.measured.get("label_accuracy") is not None]
    if not values:
        tried = [f.predicted for f in findings if f.verdict != "no power"]
        hopeful = sum(_expected(p["psnr_unclipped_db"], p["noise_ratio"]) for p in tried)
        told = f", with a picture possible of {hopeful or 'none'} of them" if tried else ""
        return f"not measured: {len(tried)} of {len(findings)} gradients were inverted{told}"
    worked = sum(f.verdict == "succeeds" for f in findings)
    return (
        f"{worked} of {len(findings)} batches recovered; PSNR {mean([v for v in values if v is not None]):.1f} dB, "
        f"{100 * (mean([v for v in labels if v is not None]) or 0.0):.0f} % of labels right"
    )


def _batch_size(observation: Observation, options: Options, truth: TruthRound | None) -> int | None:
    given = setting(options, "m", None, positive)
    return given or observation.facts.schedule.m or (len(truth.labels) if truth is not None else None)


def _impossible(agent: str, g: F64, x: F64, model: Model, m: int | None, options: Options) -> Finding | None:
    largest = setting(options, "largest", _LARGEST_BATCH, positive)
    if np.isnan(g).any():
        return _refused(agent, "its gradient is not known in every coordinate: vectors were not seen")
    if m is not None and m > largest:
        return _refused(agent, f"{m} samples a batch, more than are tried (--set largest={largest})")
    if np.isnan(x).any() and (m != 1 or model.softmax is None):
        return _refused(agent, "where its gradient was taken is not known: vectors were not seen")
    return None


def _refused(agent: str, note: str) -> Finding:
    return Finding(agent, "no power", {"psnr_db": None}, note=note)


def _shape(text: str) -> tuple[int, int, int]:
    parts = tuple(positive(part) for part in text.split(","))
    if len(parts) != 3 or parts[0] not in (1, 3):
        raise ValueError(f"{text!r} is not channels,height,width with 1 or 3 channels")
    return parts[0], parts[1], parts[2]


def _method(text: str) -> Any:
    if text not in ("auto", "lbfgs", "adam"):
        raise ValueError(f"{text!r} is none of auto, lbfgs, adam")
    return text


inversion = _Inversion()
