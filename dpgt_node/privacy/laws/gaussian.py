"""Gaussian noise: (epsilon, delta) for L2 shifts, exactly."""

from __future__ import annotations

from typing import Final

from dpgt_node.privacy.laws.law import Law

GAUSSIAN: Final = Law("gaussian", "Gaussian", frozenset(("concentrated", "gaussian")), leftover_l1=False)
