"""Whether pictures should come out: the attack itself, tried on gradients that are made up by the same law.

A trial takes held public samples of the labels that were found, their gradients at the same points, clipped in the same
way, and noise of the same law and variance; it attacks them as the run was attacked, and judges the pictures in the
same way.  So the share of pictures that come out is predicted by noise, batch, clip, point and model together.  What is
not simulated: that the noise of an estimated gradient of a later round is a sum of several draws, that the point of a
later round is itself an estimate, and that agents may hold other pictures than the public has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dpgt_node.adversary.audit.bounds import clopper_pearson
from dpgt_node.adversary.pictures.analytic import Seen
from dpgt_node.adversary.pictures.judge import judge
from dpgt_node.adversary.pictures.model import Model
from dpgt_node.adversary.pictures.recover import Batch, gradient_of
from dpgt_node.adversary.pictures.search import WORKS_UP_TO
from dpgt_node.privacy.laws.law import Law
from dpgt_node.types import I64
from dpgt_node.values import dataclass

_MISS = 0.05


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of ``trials`` batches ``succeeded`` came out; ``recovered``: mean share of pictures; ``psnr``: mean, dB."""

    trials: int
    succeeded: int
    recovered: float
    psnr: float

    @property
    def word(self) -> str:
        """``expected``, ``not expected`` where 95 % sure that more, or fewer, than half of all batches come out; else
        ``possible``.
        """
        low, high = clopper_pearson(self.succeeded, self.trials, _MISS)
        return "expected" if low > 0.5 else "not expected" if high < 0.5 else "possible"

    def __str__(self) -> str:
        return f"{self.succeeded} of {self.trials} simulated batches come out: a picture is {self.word}"


def forecast(
    model: Model,
    seen: Sequence[Seen],
    labels: I64,
    law: Law,
    attack: Callable[[Sequence[Seen]], Batch],
    rng: np.random.Generator,
    trials: int,
) -> Forecast:
    """``attack``: what was done to ``seen``.  The model has public samples."""
    assert model.public is not None
    found = []
    for _ in range(trials):
        made = model.public.like(labels, rng)
        noisy = []
        for one in seen:
            g = gradient_of(model, one, made.phi, made.labels)
            scale = np.sqrt(one.variance / law.ideal_variance)
            noisy.append(replace(one, g=g + scale * law.plain(rng, g.size) if scale else g))
        found.append(judge(model, attack(noisy), made.phi, made.labels))
    return Forecast(
        trials,
        sum(one.verdict == "succeeds" for one in found),
        float(np.mean([one.figures["recovered"] for one in found])),
        float(np.mean([one.figures["psnr_db"] for one in found])),
    )


def rule_of_thumb(batch: Batch) -> str:
    """``possible`` or ``not expected``, where nothing could be simulated: by s, or by the PSNR of a closed form."""
    hopeful = batch.s <= WORKS_UP_TO if batch.psnr is None else batch.psnr >= _VISIBLE_DB
    return "possible" if hopeful else "not expected"


_VISIBLE_DB = 20.0
