"""Run files as documents to edit."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any


def edited(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``document`` with dotted keys (``__`` for the dot) replaced; None takes a key out."""
    made: dict[str, Any] = copy.deepcopy(dict(document))
    for dotted, value in changes.items():
        *sections, key = dotted.split("__")
        at = made
        for section in sections:
            at = at.setdefault(section, {})
        if value is None:
            at.pop(key, None)
        else:
            at[key] = value
    return made


def quadratic(n: int, K: int) -> dict[str, Any]:
    """A small good run of ``n`` agents on a ring."""
    return {
        "name": "quadratic",
        "algorithm": {"iterations": K},
        "scheme": {"kind": "S2", "alpha": 0.2, "beta": 0.2, "gamma": 0.02, "p_m": 1.0},
        "noise": {"scale_zeta": 0.1, "scale_eta": 0.01},
        "graph": {"agents": n, "R": {"generator": "ring"}, "C": {"generator": "ring"}},
        "data": {"dataset": "quadratic", "dimension": 3},
        "evaluate": {"metrics": "study"},
    }
