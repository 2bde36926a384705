"""What the formats know and what this version builds.  Later work moves words from ``planned`` to ``built``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from dpgt_node.privacy import mechanisms

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
MAX_AGENTS = 10_000
MAX_ITERATIONS = 10**9
MAX_DIMENSION = 10**9
MAX_ENTRIES = 10**8
MAX_CLASSES = 1 << 16
MAX_TIMEOUT_S = 1e7


@dataclass(frozen=True, slots=True)
class Words:
    """``planned`` words parse, but are refused as "not in this version"."""

    built: tuple[str, ...]
    planned: tuple[str, ...] = ()


METHODS = Words(
    ("dpgt",),
    (
        "weighted-sgd",
        "ternary-dsgd",
        "quantised-binomial-sgd",
        "sampled-dsgd",
        "quantised-dsgd",
        "online-dsgd",
        "s-ab",
        "gt-saga",
        "gt-svrg",
        "noisy-gt",
        "q-dpsgd",
        "atc-dsgd",
    ),
)
MECHANISMS = Words(tuple(mechanisms.MECHANISMS))
LAWS: tuple[Literal["laplace", "gaussian"], ...] = ("laplace", "gaussian")
LAWS_PLANNED: tuple[str, ...] = ()
FEATURES = Words(("raw", "pool14", "hog", "hog-shapes", "edges"))
NORMALISE: tuple[Literal["none", "l1", "l2"], ...] = ("none", "l1", "l2")
PARTITIONS = Words(("iid", "contiguous", "shards", "dirichlet", "by-label"))
MODELS = Words(("softmax", "mlp", "lenet", "cnn", "resnet18"))
ACCOUNTANTS = Words(("lemma5", "corrected", "tight", "amplified", "zcdp", "gdp"))

DATASETS = Words(("digits", "mnist", "fashion-mnist", "cifar10", "quadratic", "zeros", "pl-sine", "pl-linear"))
DATASET_PREFIXES = Words(("npz", "folder", "csv", "parquet"))
TOYS = ("quadratic", "zeros", "pl-sine", "pl-linear")
"""Objectives in closed form: no samples, no features, no model."""

PLUG_IN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""``module:function``: a plug-in of the operator's own, for data sets, models and features."""
