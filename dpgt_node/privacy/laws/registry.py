"""Every noise law by the run file's word.  A plan takes the last one that gives the guarantee it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dpgt_node.privacy.laws.gaussian import GAUSSIAN
from dpgt_node.privacy.laws.laplace import LAPLACE
from dpgt_node.privacy.laws.law import Guarantee, Law

LAWS: Final[Mapping[str, Law]] = {law.name: law for law in (LAPLACE, GAUSSIAN)}
DEFAULT: Final = LAPLACE


def admitting(guarantee: Guarantee) -> tuple[Law, ...]:
    """The laws that give ``guarantee``."""
    return tuple(law for law in LAWS.values() if guarantee in law.admits)
