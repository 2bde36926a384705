"""Was this sample in the agent's data set?  A matched filter on the whole transcript, for softmax models.

The statistic, its law and the score are those of :mod:`dpgt_node.adversary.membership.matched`; ``filter=plain`` looks
along the sample's own gradient, without whitening.  The AUC's interval is DeLong's, 95 %, that of hits is Clopper and
Pearson's.  The ROC curve has an entry (i/c, share of members above the i-th highest of the c others); below i/c false
alarms no threshold reaches more.

Gradients are clipped as the agents clip theirs, each round by its own share of the run's clip: what a sample can move
is what the clip leaves of it.  Rounds that release no gradient, or class sums in its place, say nothing here.

The AUC predicted is that of noise, batches, clip, and of who else is in the data set, if all is normal.

Members are the samples that the study files show, others are public ones; with ``candidates`` (an npz of phi and
labels) anybody's samples are scored, and nothing is measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

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
from dpgt_node.adversary.audit.bounds import clopper_pearson
from dpgt_node.adversary.inference import estimators as es
from dpgt_node.adversary.inference.knowledge import Samples, Softmax, public_samples
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.adversary.membership import rates
from dpgt_node.adversary.membership.matched import Clipping, Filter, predicted_auc
from dpgt_node.errors import Broken, ConfigError
from dpgt_node.record.truth import Truth
from dpgt_node.types import F64


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
    members = members_of(truth, v.name)
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
    found = Filter(model, candidates, teach, m=m, whitened=whitened, clipping=clipping).scores(v, D)
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
    d_in, d_out = found.d[: len(inside)], found.d[len(inside) :]
    expected = None if D is None else predicted_auc(d_in, d_out)
    curves[f"{v.name}: ROC"] = rates.roc(inside, outside)
    measured = rates.measured(inside, outside) | {"rounds": float(found.rounds)}
    note = "" if D is not None else "D is not known: scores are T/sqrt(N), no AUC is predicted; "
    return Finding(v.name, verdict(measured), measured, {"auc": expected}, note + rates.WITHIN)


def verdict(found: Mapping[str, float | None]) -> Verdict:
    """By the AUC's interval, and by how many members are found at 1 % false alarms, whose own interval it must beat."""
    low, hits, others = (found[key] for key in ("auc_low", "tpr_at_1_percent_low", "others"))
    if low is None or hits is None or others is None:
        raise Broken("what was measured has an AUC")
    if low >= 0.9 or hits >= 0.5:
        return "succeeds"
    alarms = clopper_pearson(math.floor(0.01 * others), int(others), 0.025)[1]
    return "partly" if low > 0.5 or hits > alarms else "fails"


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


def members_of(truth: Truth | None, name: str) -> Samples | None:
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
