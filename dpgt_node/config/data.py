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
    "csv": ("label", "test", "test_fraction", "classes"),
    "parquet": ("label", "test", "test_fraction", "classes"),
    "npz": ("classes",),
    "folder": ("classes",),
}
_PARTITION_PARAMETERS: dict[str, tuple[str, ...]] = {
    "shards": ("num_shards_per_partition",),
    "dirichlet": ("alpha", "min_partition_size", "self_balancing"),
    "by-label": ("num_classes_per_partition", "class_assignment_mode"),
}
_MAX_ENTRIES = 10**8
_MAX_CLASSES = 1 << 16


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
    partition = section.choice("partition", PARTITIONS.built, "iid", planned=PARTITIONS.planned)
    data = Data(
        dataset=dataset,
        features=word_or_plug_in(section, "features", FEATURES, "raw"),
        normalise=section.choice("normalise", NORMALISE, "none"),
        partition=partition,
        seed=seed,
        params={**_file_params(section, dataset), **_partition_params(section, partition)},
    )
    for owner, names in _PARTITION_PARAMETERS.items():
        if owner != partition:
            explain |= dict.fromkeys(names, f'is no parameter of partition "{partition}" (it is one of "{owner}")')
    section.done(explain)
    return data


def word_or_plug_in(section: Section, key: str, words: Words, default: str) -> str:
    """A built word or ``module:function``; what is planned is refused as such."""
    value = section.get(key)
    if isinstance(value, str) and PLUG_IN.fullmatch(value):
        return value
    return section.choice(key, words.built, default, planned=words.planned)


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
    if PLUG_IN.fullmatch(name):
        return name
    if name in DATASETS.planned or (colon and prefix in DATASET_PREFIXES.planned):
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


def _file_params(section: Section, dataset: str) -> dict[str, Scalar]:
    """What the data set's own format needs to be told."""
    prefix, colon, _ = dataset.partition(":")
    known = _PARAMETERS.get(prefix, ()) if colon else ()
    params: dict[str, Scalar] = {}
    if "label" in known:
        params["label"] = section.text("label")
        if section.has("test") and section.has("test_fraction"):
            section.problem("test_fraction", "give test (a file) or test_fraction, not both")
        if section.has("test"):
            params["test"] = section.text("test")
        else:
            params["test_fraction"] = section.number("test_fraction", 0.2, at_least=0.0, below=1.0)
    if "classes" in known and section.has("classes"):
        params["classes"] = section.integer("classes", at_least=1, at_most=_MAX_CLASSES)
    return params


def _partition_params(section: Section, partition: str) -> dict[str, Scalar]:
    """The parameters of flwr-datasets' partitioners, by their names there."""
    if partition == "shards":
        return {"num_shards_per_partition": section.integer("num_shards_per_partition", 2, at_least=1)}
    if partition == "dirichlet":
        return {
            "alpha": section.number("alpha", above=0.0),
            "min_partition_size": section.integer("min_partition_size", 10, at_least=1),
            "self_balancing": section.flag("self_balancing", True),
        }
    if partition == "by-label":
        return {
            "num_classes_per_partition": section.integer("num_classes_per_partition", 2, at_least=1),
            "class_assignment_mode": section.choice(
                "class_assignment_mode", ("deterministic", "random"), "deterministic"
            ),
        }
    return {}


def _explain(dataset: str) -> dict[str, str]:
    """Keys that exist, but not for this data set."""
    explained: dict[str, str] = {}
    if dataset in TOYS:
        reason = f'has no meaning for "{dataset}": this objective has no samples'
        explained = dict.fromkeys(_SAMPLE_KEYS, reason)
    own = _PARAMETERS.get(dataset.partition(":")[0], ())
    for owner, names in _PARAMETERS.items():
        for name in names:
            if name not in own:
                explained.setdefault(name, f'is no parameter of "{dataset}" (it is one of "{owner}")')
    if dataset in TOYS:
        for names in _PARTITION_PARAMETERS.values():
            explained |= dict.fromkeys(names, f'has no meaning for "{dataset}": this objective has no samples')
    return explained


def resolved_dataset(run: RunConfig) -> str:
    """``run.data.dataset`` with a relative path (``npz:PATH``) made absolute against the run file's folder."""
    prefix, colon, path = run.data.dataset.partition(":")
    if not colon or prefix not in DATASET_PREFIXES.built or run.base is None:
        return run.data.dataset
    return f"{prefix}:{(run.base / Path(path).expanduser()).absolute()}"


def resolved_test(run: RunConfig) -> Path | None:
    """The ``test`` file of a table, absolute against the run file's folder; None where there is none."""
    if "test" not in run.data.params:
        return None
    path = Path(str(run.data.params["test"])).expanduser()
    return path if run.base is None else (run.base / path).absolute()
