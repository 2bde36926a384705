"""How good recovered pictures are, beside the picture that needs no message: the mean of public ones, of all or of the
right class; where there are none, the best flat picture, which only the truth can tell.

A picture counts as recovered where its squared error is at most a quarter (6 dB) of that of the better of these.  Half
of it (3 dB, the mean over the batch) is a part of a success.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np

from dpgt_node.adversary.attack import Verdict
from dpgt_node.adversary.pictures import measure
from dpgt_node.adversary.pictures.model import Model
from dpgt_node.adversary.pictures.recover import Batch
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

GAIN_DB = 6.0
_HINT_DB = 3.0
KEYS = (
    "psnr_db", "psnr_unclipped_db", "ssim", "baseline_db", "psnr_mean_db", "psnr_class_mean_db", "ssim_mean",
    "ssim_class_mean", "recovered", "label_accuracy", "noise_ratio",
)  # fmt: skip
"""What is measured of a batch; None: not known.  ``recovered``: share of its pictures."""


@dataclass(frozen=True, slots=True)
class Judged:
    """``true``, ``found`` (m, *shape) in the same order, the latter clipped to [0, 1] if pictures; ``figures`` by the
    keys of KEYS; ``gain``: dB above what needs no message, the mean over the batch.
    """

    true: F64 = field(repr=False)
    found: F64 = field(repr=False)
    figures: Mapping[str, float | None]
    gain: float

    @property
    def verdict(self) -> Verdict:
        """By comparison with the picture that needs no message."""
        share = self.figures["recovered"] or 0.0
        return "succeeds" if share >= 0.5 else "partly" if share or self.gain >= _HINT_DB else "fails"


def shown(model: Model, batch: Batch) -> F64:
    """Its samples as they are shown and judged."""
    return np.clip(batch.samples, 0.0, 1.0) if model.picture is not None else batch.samples


def judge(model: Model, batch: Batch, samples: F64, labels: I64) -> Judged:
    """``samples`` (m, ...) and ``labels`` (m,) are the true ones, in any order."""
    found = shown(model, batch)
    true = samples.reshape(found.shape)
    order = measure.matched(true, found)
    raw, found = batch.samples[order], found[order]
    psnr = _psnr(true, found)
    figures: dict[str, float | None] = {"psnr_db": float(psnr.mean()), "psnr_unclipped_db": measure.psnr(true, raw)}
    others = without_a_message(model, true, labels)
    known = {name: _psnr(true, rows) for name, rows in others.items()}
    better = np.max(list(known.values()), axis=0)
    figures["baseline_db"] = float(better.mean())
    figures |= {f"psnr_{name}_db": float(values.mean()) for name, values in known.items() if name != "flat"}
    if model.picture is not None:
        figures["ssim"] = _ssim(model.picture, true, found)
        for name, rows in others.items():
            if name != "flat":
                figures[f"ssim_{name}"] = _ssim(model.picture, true, rows)
    figures["recovered"] = float((psnr - better >= GAIN_DB).mean())
    return Judged(true, found, figures, float((psnr - better).mean()))


def without_a_message(model: Model, true: F64, labels: I64) -> dict[str, F64]:
    """Pictures like ``true`` (m, *shape) that need no message: ``mean`` and ``class_mean``, or ``flat``."""
    if model.public is None:
        flat = true.reshape(len(true), -1).mean(axis=1)
        return {"flat": np.broadcast_to(flat.reshape(-1, *[1] * (true.ndim - 1)), true.shape)}
    public = model.public
    return {
        "mean": np.broadcast_to(public.mean.reshape(true.shape[1:]), true.shape),
        "class_mean": public.prior.means[labels].reshape(true.shape),
    }


def _psnr(true: F64, rows: F64) -> F64:
    return np.array([measure.psnr(a, b) for a, b in zip(true, rows, strict=True)])


def _ssim(picture: tuple[int, int, int], true: F64, found: F64) -> float:
    pairs = zip(true.reshape(-1, *picture), found.reshape(-1, *picture), strict=True)
    return float(np.mean([measure.ssim(a, b) for a, b in pairs]))
