"""A batch out of its gradients, by the way that fits the model: closed form, or search."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import field
from functools import partial

import numpy as np

from dpgt_node.adversary.inference.counting import responses, rounded, shares, shares_up_to_scale
from dpgt_node.adversary.inference.knowledge import Softmax
from dpgt_node.adversary.pictures import analytic, measure, search
from dpgt_node.adversary.pictures.analytic import Recovered, Seen
from dpgt_node.adversary.pictures.model import Model, first_layer, output_bias
from dpgt_node.adversary.pictures.public import Prior
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Batch:
    """What came out of a gradient: ``samples`` (m, *shape) before clipping to [0, 1], ``labels`` (m,), how.

    ``s``: the noise of the clearest gradient, as a part of its length.  ``psnr``: predicted of ``samples``, None where
    only the rule for s applies.
    """

    samples: F64 = field(repr=False)
    labels: I64 = field(repr=False)
    how: str
    s: float
    psnr: float | None
    misfit: float | None = None


def recover(
    model: Model, seen: Sequence[Seen], m: int, settings: search.Settings | None = None, *, prior: bool = True
) -> Batch:
    """The batch of ``m`` samples of which these gradients were seen; ``prior``: use that of the public pictures."""
    settings = settings or search.Settings()
    s = min(noise_ratio(one.g, one.variance) for one in seen)
    before = model.public.prior if prior and model.public is not None else None
    if model.softmax is not None:
        return _softmax(model, model.softmax, seen, m, before, s)
    first = seen[0]
    module = search.load(model.module, first.x)
    bias = output_bias(module, first.g, model.classes)
    layer = first_layer(module, math.prod(model.shape), first.g) if m == 1 else None
    if layer is not None:
        labels = np.array([analytic.label_of(bias)], dtype=np.int64)
        found = analytic.one_sample(*layer, variance=first.variance)
        how = "closed form"
        if before is not None and found.mse:
            weight = 1.0 / found.mse
            phi, mse = before.posterior(weight * found.phi, np.array([weight]), before.means[labels])
            found, how = Recovered(phi, found.errors, mse), "closed form and prior"
        return Batch(found.phi.reshape(1, *model.shape), labels, how, s, measure.psnr_of(found.mse))
    more = [(search.load(copy.deepcopy(model.module), one.x), one.g) for one in seen[1:]]
    labels, out = search.labels_and_samples(module, first.g, bias, m, model.shape, s=s, settings=settings, more=more)
    how = out.method + (f", {len(seen)} rounds" if more else "")
    return Batch(out.samples, labels, how, s, None, out.misfit)


def _softmax(model: Model, softmax: Softmax, seen: Sequence[Seen], m: int, prior: Prior | None, s: float) -> Batch:
    known = [one for one in seen if not np.isnan(one.x).any()]
    uses = prior is not None and bool(known) and min(one.variance for one in known) > 0.0
    if m == 1 and not uses and len(known) <= 1:
        weights, bias = softmax.split(seen[0].g)
        found = analytic.one_sample(weights, bias if softmax.bias else None, softmax.bias, seen[0].variance)
        labels = np.array([analytic.label_of(found.errors[0])], dtype=np.int64)
    else:
        labels = batch_labels(model, softmax, known, m)
        found = analytic.softmax_batch(known, softmax, labels, prior)
    how = "closed form" + (" and prior" if uses else "") + (f", {len(known)} rounds" if len(known) > 1 else "")
    # Two samples of one label come out as their mean at the best: nothing is predicted of them.
    tells = m == 1 or len(known) > 1 or uses or len(np.unique(labels)) == m < model.classes
    return Batch(found.phi, labels, how, s, measure.psnr_of(found.mse) if tells else None)


def batch_labels(model: Model, softmax: Softmax, seen: Sequence[Seen], m: int) -> I64:
    """Labels (m,), ascending, of the batch behind these gradients."""
    least = min(one.variance for one in seen)
    scales = [math.sqrt(least / one.variance) if least else 1.0 for one in seen]
    if not softmax.bias:  # without one, only the mean of all labels is sure
        pi = np.full(model.classes, 1.0 / model.classes)
        if m == 1:
            weights = softmax.split(seen[0].g)[0]
            pi = np.eye(model.classes)[analytic.label_of(analytic.one_sample(weights, None).errors[0])]
        return np.repeat(np.arange(model.classes), rounded(m * pi[None], m)[0])
    gaps = [softmax.split(one.g)[1] / softmax.bias for one in seen]
    if m == 1:
        return np.array([analytic.label_of(np.square(scales) @ np.array(gaps))])
    if model.public is not None:
        taught = model.public.taught
        answers = [
            w * responses(softmax, one.x, taught, partial(analytic.clip_errors, one.clip, softmax)).mean
            for w, one in zip(scales, seen, strict=True)
        ]
        gap = np.concatenate([w * gap for w, gap in zip(scales, gaps, strict=True)])
        pi = shares(gap, np.hstack(answers), least / softmax.bias**2)
    elif seen[0].clip is not None and not seen[0].x.any():
        pi = shares_up_to_scale(gaps[0])
    else:
        start = softmax.probabilities(seen[0].x, np.full((1, softmax.features), 0.1))[0]
        return analytic.labels_of(gaps[0], m, start)
    return np.repeat(np.arange(model.classes), rounded(m * pi[None], m)[0])


def noise_ratio(g: F64, variance: float) -> float:
    """s = sqrt(d v)/||g|| of an estimate ``g`` whose noise has ``variance``; where noise drowns g, what is certain."""
    noise = g.size * variance
    rest = float(g @ g) - noise
    return math.sqrt(noise / max(rest, math.sqrt(2.0 * g.size) * variance)) if noise else 0.0


def gradient_of(model: Model, one: Seen, samples: F64, labels: I64) -> F64:
    """The gradient (d,) that an agent with these samples (m, p) would have taken where ``one`` was."""
    m = len(labels)
    if model.softmax is not None:
        softmax = model.softmax
        errors = analytic.clip_errors(one.clip, softmax, softmax.errors(one.x, samples, labels), samples)
        parts = [(errors.T @ samples / m).ravel()]
        if softmax.bias:
            parts.append(softmax.bias * errors.mean(axis=0))
        return np.concatenate(parts)
    module, shaped = search.load(model.module, one.x), samples.reshape(m, *model.shape)
    if one.clip is None:
        return search.gradient(module, shaped, labels)
    each = np.stack([search.gradient(module, shaped[j : j + 1], labels[j : j + 1]) for j in range(m)])
    one.clip.scale(each.T, one.clip.norms(each, axis=1))
    return np.asarray(each.mean(axis=0))
