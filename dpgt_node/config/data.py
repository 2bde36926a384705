"""Reads ``[data]``: which keys are allowed depends on the data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dpgt_node.config.model import Data, RunConfig, Scalar
from dpgt_node.config.reader import Section, bad_word, show, suggestion
from dpgt_node.config.vocabulary import (
    DATASET_PREFIXES,
    DATASETS,
    FEATURES,
    MAX_DIMENSION,
    NORMALISE,
    PARTITIONS,
    PLUG_IN,
    TOYS,
    Words,
)

_SAMPLE_KEYS = ("features", "normalise", "partition")
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "quadratic": ("dimension",),
    "zeros": ("dimension",),
    "pl-sine": ("start",),
    "pl-linear": ("dimension", "rows", "start"),
}
_MAX_ENTRIES = 10**8


def read_data(section: Section) -> Data:
    """``[data]``, with the defaults of the data set's own parameters filled in."""
    dataset = _dataset(section)
    seed = section.integer("seed", 0)
    if not section.ok("dataset"):
        return Data(dataset=dataset)
    explain = _explain(dataset)
    if dataset in TOYS:
        params = _toy_params(section, dataset)
        section.done(explain)
        return Data(dataset=dataset, seed=seed, params=params)
    data = Data(
        dataset=dataset,
        features=word_or_plug_in(section, "features", FEATURES, "raw"),
        normalise=section.choice("normalise", NORMALISE, "none"),
        partition=section.choice("partition", PARTITIONS.built, "iid", planned=PARTITIONS.planned),
        seed=seed,
    )
    section.done(explain)
    return data


def word_or_plug_in(section: Section, key: str, words: Words, default: str) -> str:
    """A built word; a planned word or ``module:function`` is refused as not in this version."""
    value = section.get(key)
    planned = words.planned
    if isinstance(value, str) and PLUG_IN.fullmatch(value):
        planned = (*planned, value)
    return section.choice(key, words.built, default, planned=planned)


def _dataset(section: Section) -> str:
    name = section.text("dataset")
    if not section.ok("dataset") or name in DATASETS.built:
        return name
    prefix, colon, path = name.partition(":")
    available = (*DATASETS.built, *(f"{p}:PATH" for p in DATASET_PREFIXES.built))
    if colon and prefix in DATASET_PREFIXES.built:
        if not path:
            section.problem("dataset", f'"{prefix}:" needs a path')
        return name
    planned = name in DATASETS.planned or (colon and prefix in DATASET_PREFIXES.planned) or PLUG_IN.fullmatch(name)
    if planned:
        section.problem("dataset", bad_word(name, available, (name,)))
    else:
        hint = suggestion(name, DATASETS.built + DATASETS.planned)
        words = ", ".join(f'"{word}"' for word in available)
        section.problem("dataset", f"{show(name)} is not a data set (available: {words}){hint}")
    return name


def _toy_params(section: Section, dataset: str) -> Mapping[str, Scalar]:
    params: dict[str, Scalar] = {}
    if dataset == "pl-linear":
        dimension = section.integer("dimension", 5, at_least=1, at_most=10_000)
        rows = section.integer("rows", 2 * dimension, at_least=1, at_most=_MAX_ENTRIES)
        if section.ok("dimension", "rows"):
            if rows < dimension:
                section.problem("rows", f"must be >= dimension = {dimension} (full column rank), not {rows}")
            elif rows * dimension > _MAX_ENTRIES:
                section.problem("rows", f"rows * dimension must be <= {_MAX_ENTRIES}, not {rows * dimension}")
        params |= {"dimension": dimension, "rows": rows, "start": section.number("start", 0.0)}
    elif dataset == "pl-sine":
        params["start"] = section.number("start", 2.0)
    else:
        params["dimension"] = section.integer("dimension", at_least=1, at_most=MAX_DIMENSION)
    return params


def _explain(dataset: str) -> dict[str, str]:
    """Keys that exist, but not for this data set."""
    explained: dict[str, str] = {}
    if dataset in TOYS:
        reason = f'has no meaning for "{dataset}": this objective has no samples'
        explained = dict.fromkeys(_SAMPLE_KEYS, reason)
    for owner, names in _PARAMETERS.items():
        for name in names:
            if name not in _PARAMETERS.get(dataset, ()):
                explained.setdefault(name, f'is no parameter of "{dataset}" (it is one of "{owner}")')
    return explained


def resolved_dataset(run: RunConfig) -> str:
    """``run.data.dataset`` with a relative path of ``npz:PATH`` made absolute against the run file's folder."""
    prefix, colon, path = run.data.dataset.partition(":")
    if not colon or prefix not in DATASET_PREFIXES.built or run.base is None:
        return run.data.dataset
    return f"{prefix}:{(run.base / Path(path)).absolute()}"
