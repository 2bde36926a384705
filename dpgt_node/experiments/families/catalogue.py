"""Every family by its word on the command line."""

from __future__ import annotations

from collections.abc import Mapping

from dpgt_node.experiments.families import comparison, ours, schemes, table1
from dpgt_node.experiments.families.family import Family

_ALL: tuple[Family, ...] = (*schemes.FIGURES, *comparison.FIGURES, table1.FAMILY, ours.FAMILY)
FAMILIES: Mapping[str, Family] = {one.name: one for one in sorted(_ALL, key=lambda family: family.name)}
