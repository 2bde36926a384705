"""Pictures out of gradients: what an agent's batch looked like, from what the transcript says of its gradient.

Softmax models, and one sample of a torch model that begins with a linear layer, in closed form
(:mod:`dpgt_node.adversary.pictures.analytic`); other torch models by search
(:mod:`dpgt_node.adversary.pictures.search`).  Labels come first, from the gradient of the output layer.  Round 0 is
attacked unless ``--round`` says otherwise: its gradient was taken at x_0, which is public, and its noise is that of one
release.  Rounds that are of one batch are attacked together.

What comes out is judged beside the picture that needs no message (:mod:`dpgt_node.adversary.pictures.judge`), and
expected by trials of the same attack under the same law (:mod:`dpgt_node.adversary.pictures.expect`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dpgt_node.adversary.attack import Finding, Options, Result
from dpgt_node.adversary.attacks.common import (
    NO_TRUTH,
    between,
    flag,
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
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.adversary.membership.matched import Clipping
from dpgt_node.adversary.pictures import search
from dpgt_node.adversary.pictures.analytic import Seen
from dpgt_node.adversary.pictures.expect import Forecast, forecast, rule_of_thumb
from dpgt_node.adversary.pictures.judge import KEYS, judge, shown
from dpgt_node.adversary.pictures.model import Model, model_of
from dpgt_node.adversary.pictures.public import Public
from dpgt_node.adversary.pictures.recover import Batch, recover
from dpgt_node.record.truth import Truth, TruthRound
from dpgt_node.types import F64

_SHOWN = 8
_LARGEST_BATCH = 16
_TRIALS = {"closed form": 32, "search": 6}
_SEARCHES_TO = 200_000
"""Parameters up to which trials of a search are made unasked."""


class _Inversion:
    name: ClassVar[str] = "inversion"
    needs: ClassVar[frozenset[str]] = frozenset()
    settings: ClassVar[Mapping[str, str]] = {
        "m": 'samples of a batch, where the run file says "full"',
        "largest": f"do not try batches with more samples (default {_LARGEST_BATCH})",
        "shape": "channels,height,width of a picture, where the data set's name does not say it",
        "classes": "number of classes, where the data set's name does not say it",
        "aux": "yes | no: the test part of the run's data set as public pictures (default yes, where it is here)",
        "data": "folder of the named picture sets (DPGT_DATA)",
        "prior": "yes | no: what public pictures look like, in closed forms (default yes)",
        "joint": 'yes | no: the rounds attacked are of one batch (default: if the run file says "full")',
        "trials": "made-up batches for the expectation (default 32; 6 for a search, 0 for a large model)",
        "method": "auto | lbfgs | adam: how to search (default auto)",
        "steps": "of the search (default 600)",
        "restarts": "of the search, from other random pictures (default 1)",
    }

    def run(self, observation: Observation, truth: Truth | None, options: Options) -> Result:
        """One finding an agent and round, or an agent and batch, with the pictures."""
        whole(observation, self.name)
        root = options.extra.get("data")
        public = None
        if setting(options, "aux", True, flag):
            public = Public.here(observation.facts.run, None if root is None else Path(root))
        model = model_of(observation, options, public)
        search_settings(options)  # what it cannot take is said before anything is inverted
        rounds = sorted(set(options.rounds)) or [0]
        joint = setting(options, "joint", observation.facts.schedule.m is None, flag)
        clipping, forecasts = Clipping.of(observation), _Forecasts(model, options)
        findings: list[Finding] = []
        pictures: dict[str, F64] = {}
        for i in targets(observation, options):
            # One round more: where y̆_k was not seen, x̆_{k+1} holds it.
            v = es.view(observation, i, min(rounds[-1] + 1, observation.facts.run.K))
            fused, points = least_squares(v), gradient_points(v)
            variances = np.broadcast_to(fused.variance, fused.g.shape).mean(axis=1)
            true = known_rounds(truth, v.name, rounds, observation)
            for together in [rounds] if joint else [[k] for k in rounds]:
                where = f"{v.name}, round {', '.join(map(str, together))}"
                known = next((true[k] for k in together if k in true), None)
                m = _batch_size(observation, options, known)
                why = _impossible(v.name, fused.g[together], points[together], model, m, options)
                if m is None or why is not None:
                    findings.append(why or _refused(v.name, 'm is "full", and its value not known: give --set m=...'))
                    continue
                seen = [Seen(fused.g[k], points[k], float(variances[k]), _clip_of(clipping, k)) for k in together]
                finding, rows = self._one(v, together, seen, m, forecasts, known)
                findings.append(finding)
                pictures |= {f"{where}: {caption}": values for caption, values in rows.items()}
        return result(self.name, _summary(findings), findings, observation, pictures=pictures)

    def _one(
        self, v: es.View, rounds: list[int], seen: list[Seen], m: int, forecasts: _Forecasts, truth: TruthRound | None
    ) -> tuple[Finding, dict[str, F64]]:
        """The finding, and the rows of pictures by caption: recovered ones in the order of the true ones."""
        model, batch = forecasts.model, forecasts.attack(m, seen)
        notes = [f"round {', '.join(map(str, rounds))}, {m} a batch, {batch.how}", f"s = {batch.s:.3g}"]
        if batch.misfit is not None:
            notes.append(f"1 - cosine = {batch.misfit:.2g}")
        expected = forecasts.of(v, seen, batch)
        notes.append(f"a picture is {rule_of_thumb(batch)}" if expected is None else str(expected))
        if model.public is None:
            notes.append("no public pictures here: compared with the best flat one")
        predicted: dict[str, float | None] = {"psnr_unclipped_db": batch.psnr, "noise_ratio": batch.s}
        if expected is not None:
            predicted |= {"psnr_db": expected.psnr, "recovered": expected.recovered}
        measured: dict[str, float | None] = dict.fromkeys(KEYS)
        if truth is None or len(truth.labels) != len(batch.labels):
            finding = Finding(v.name, "not measured", measured, predicted, "; ".join([*notes, NO_TRUTH]))
            return finding, _rows(model, {"recovered": shown(model, batch)})
        length = np.linalg.norm(truth.g)
        first = seen[rounds.index(truth.k)].g if truth.k in rounds else seen[0].g
        measured["noise_ratio"] = float(np.linalg.norm(first - truth.g) / length) if length else None
        counts = (np.bincount(labels, minlength=model.classes) for labels in (truth.labels, batch.labels))
        measured["label_accuracy"] = float(np.minimum(*counts).sum()) / len(batch.labels)
        if truth.samples.size != batch.samples.size:
            note = "; ".join([*notes, "its samples were not kept"])
            return Finding(v.name, "not measured", measured, predicted, note), _rows(
                model, {"recovered": shown(model, batch)}
            )
        found = judge(model, batch, truth.samples, truth.labels)
        finding = Finding(v.name, found.verdict, {**measured, **found.figures}, predicted, "; ".join(notes))
        return finding, _rows(model, {"true": found.true, "recovered": found.found})


class _Forecasts:
    """The attack with its settings, and what is expected of it; the same question is simulated once."""

    def __init__(self, model: Model, options: Options) -> None:
        self.model = model
        self._settings = search_settings(options)
        self._prior = setting(options, "prior", True, flag)
        self._trials = setting(options, "trials", None, between(0))
        self._seed = options.seed
        self._known: dict[object, Forecast] = {}

    def attack(self, m: int, seen: Sequence[Seen]) -> Batch:
        return recover(self.model, seen, m, self._settings, prior=self._prior)

    def of(self, v: es.View, seen: Sequence[Seen], batch: Batch) -> Forecast | None:
        """None: there are no public pictures to try it on, or no trials were wanted."""
        searched = batch.misfit is not None
        trials = self._trials
        if trials is None:
            trials = _TRIALS["search" if searched else "closed form"]
            trials = 0 if searched and seen[0].g.size > _SEARCHES_TO else trials
        known = [one for one in seen if not np.isnan(one.x).any()]
        if self.model.public is None or not trials or not known:
            return None
        m = len(batch.labels)
        # Of one sample the label hardly matters to a search, whose trials are dear.
        labels = None if searched and m == 1 else batch.labels.tobytes()
        key = (m, labels, *((f"{one.variance:.3g}", one.x.tobytes(), one.clip) for one in known))
        if key not in self._known:
            rng = np.random.default_rng([self._seed, 1])
            self._known[key] = forecast(self.model, known, batch.labels, v.law, partial(self.attack, m), rng, trials)
        return self._known[key]


def search_settings(options: Options) -> search.Settings:
    """``--set method``, ``steps``, ``restarts``."""
    return search.Settings(
        setting(options, "method", "auto", _method),
        setting(options, "steps", 600, positive),
        setting(options, "restarts", 1, positive),
        options.seed,
    )


def _clip_of(clipping: Clipping, k: int) -> Any:
    """The clip of round ``k``'s samples; None: none, or the round releases no such gradient."""
    share = clipping.share(k)
    return clipping.clip.times(share) if clipping.clip is not None and share else None


def _rows(model: Model, rows: Mapping[str, F64]) -> dict[str, F64]:
    """(count, height, width) or (count, height, width, 3); nothing where samples are no pictures."""
    if model.picture is None:
        return {}
    channels = model.picture[0]
    shaped = {name: values[:_SHOWN].reshape(-1, *model.picture) for name, values in rows.items()}
    return {name: values[:, 0] if channels == 1 else values.transpose(0, 2, 3, 1) for name, values in shaped.items()}


def _summary(findings: list[Finding]) -> str:
    def seen(key: str) -> list[float]:
        return [value for f in findings if (value := f.measured.get(key)) is not None]

    if not seen("psnr_db"):
        tried = [f for f in findings if f.verdict != "no power"]
        hopeful = sum("not expected" not in f.note for f in tried)
        told = f", with a picture possible of {hopeful or 'none'} of them" if tried else ""
        return f"not measured: {len(tried)} of {len(findings)} gradients were inverted{told}"
    worked = sum(f.verdict == "succeeds" for f in findings)
    return (
        f"{worked} of {len(findings)} batches recovered; PSNR {mean(seen('psnr_db')):.1f} dB, without any message "
        f"{mean(seen('baseline_db')):.1f} dB; {100 * (mean(seen('label_accuracy')) or 0.0):.0f} % of labels right"
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


def _method(text: str) -> Any:
    if text not in ("auto", "lbfgs", "adam"):
        raise ValueError(f"{text!r} is none of auto, lbfgs, adam")
    return text


inversion = _Inversion()
