"""Laplace noise: pure epsilon for L1 shifts, and zero-concentrated for L2 ones."""

from __future__ import annotations

from typing import Final

from dpgt_node.privacy.laws.law import Law

LAPLACE: Final = Law("laplace", "Laplace", frozenset(("pure", "concentrated")), leftover_l1=True)
