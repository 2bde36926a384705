"""Gradients at private points under clipping, with the term that Lemma 4 drops: pure epsilon, sound, and large."""

from __future__ import annotations

from typing import Final

from dpgt_node.privacy.accountants import pure
from dpgt_node.privacy.accountants.accountant import Accountant
from dpgt_node.privacy.accountants.releases import Releases
from dpgt_node.privacy.mechanisms import PAPER, Mechanism
from dpgt_node.types import F64


def _private_point(mechanism: Mechanism) -> bool:
    return mechanism.noises > 0 and not mechanism.accounted.public_point


def _curve(r: Releases) -> F64:
    shifts = r.response.corrected(r.batch, r.constant)
    return pure.corrected(shifts, r.sigma_x, r.sigma_y, r.left("X"), r.left("Y"))


CORRECTED: Final = Accountant(
    "corrected",
    "Lemma 4 corrected (pure)",
    "epsilon",
    _private_point,
    f"is for mechanism {PAPER.name}; tight is sound and smaller for {{mechanism}}",
    _curve,
    amounts=pure.amounts,
    clip_l1="needs clip_l1: without it nothing bounds how far x_k moves the gradients",
)
