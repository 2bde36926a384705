"""Every family by its word on the command line."""

from __future__ import annotations

from collections.abc import Mapping

from dpgt_node.experiments.families.family import Family
from dpgt_node.experiments.families.schemes import FIGURES

FAMILIES: Mapping[str, Family] = {one.name: one for one in FIGURES}
