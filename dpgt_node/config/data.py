"""Reads ``[data]``: which keys are allowed depends on the data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpgt_node.config.declare.keys import Variants, declared, read_fields
from dpgt_node.config.declare.reader import Section
from dpgt_node.config.model import Data, Parameter, RunConfig
from dpgt_node.config.parameters import DATASET_KEYS, PARTITION_KEYS, Linear
from dpgt_node.config.vocabulary import DATASET_PREFIXES, MAX_ENTRIES, TOYS
from dpgt_node.errors import ConfigError, Problem


def read_data(section: Section) -> Data:
    """``[data]``, with the defaults of the data set's own parameters filled in."""
    values = read_fields(section, Data)
    dataset = values["dataset"]
    if not section.ok("dataset"):
        return Data(dataset=dataset)
    params = _own(section, DATASET_KEYS, dataset)
    if dataset not in TOYS:
        params |= _own(section, PARTITION_KEYS, values["partition"])
    section.done(_explain(dataset, values.get("partition")))
    return Data(**values, params=params)


def _own(section: Section, variants: Variants, word: str) -> dict[str, Parameter]:
    """The keys of one data set or partition; those that are absent by default are left out."""
    cls = variants.of(word)
    if cls is None:
        return {}
    values = read_fields(section, cls)
    if cls is Linear:
        _check_rows(section, values)
    return {key: value for key, value in values.items() if value is not None}


def _check_rows(section: Section, values: dict[str, Any]) -> None:
    dimension = values["dimension"]
    rows = values["rows"] = 2 * dimension if values["rows"] is None else values["rows"]
    if not section.ok("dimension", "rows"):
        return
    if rows < dimension:
        section.problem("rows", f"must be >= dimension = {dimension} (full column rank), not {rows}")
    elif rows * dimension > MAX_ENTRIES:
        section.problem("rows", f"rows * dimension must be <= {MAX_ENTRIES}, not {rows * dimension}")


def _explain(dataset: str, partition: str | None) -> Mapping[str, str]:
    """Why keys that exist are refused for this data set and partition."""
    no_samples = f'has no meaning for "{dataset}": this objective has no samples'
    explained: dict[str, str] = {}
    for table in PARTITION_KEYS.tables.values():
        for entry in declared(table):
            explained[entry.name] = (
                no_samples
                if partition is None
                else f'is no parameter of partition "{partition}" (it is one of "{PARTITION_KEYS.owner(entry.name)}")'
            )
    for table in DATASET_KEYS.tables.values():
        for entry in declared(table):
            owner = str(DATASET_KEYS.owner(entry.name)).rstrip(":")
            explained[entry.name] = f'is no parameter of "{dataset}" (it is one of "{owner}")'
    if partition is None:
        explained |= {entry.name: no_samples for entry in declared(Data) if entry.key.only is not None}
    return explained


def expanded(path: str) -> Path:
    """``~`` as the user's home folder.  ConfigError: there is none."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError.one("run file", "data.dataset", f"{path}: no home folder is known here: set HOME") from error


def resolved_dataset(run: RunConfig) -> str:
    """``run.data.dataset`` with a relative path (``npz:PATH``) made absolute against the run file's folder."""
    prefix, colon, path = run.data.dataset.partition(":")
    if not colon or prefix not in DATASET_PREFIXES.built or run.base is None:
        return run.data.dataset
    return f"{prefix}:{_settled(run.base / expanded(path))}"


def resolved_test(run: RunConfig) -> Path | None:
    """The ``test`` file of a table, absolute against the run file's folder; None where there is none."""
    if "test" not in run.data.params:
        return None
    path = expanded(str(run.data.params["test"]))
    return path if run.base is None else _settled(run.base / path)


def _settled(path: Path) -> Path:
    """The absolute path.  Without "..", so that a run file asked for from another folder is still the same run."""
    return path.resolve() if ".." in path.absolute().parts else path.absolute()


UNPUBLISHED = "not-published"
"""Stands in a published run file where the path of somebody's data stood."""


def without_paths(run: RunConfig) -> RunConfig:
    """``run`` as it may be published: it does not say where anybody's data lie, nor what their files are called."""
    prefix, colon, _ = run.data.dataset.partition(":")
    if not colon or prefix not in DATASET_PREFIXES.built:
        return run
    params = {name: UNPUBLISHED if name == "test" else value for name, value in run.data.params.items()}
    return replace(run, data=replace(run.data, dataset=f"{prefix}:{UNPUBLISHED}", params=params))


CLASSES: Mapping[str, int] = {"digits": 10, "mnist": 10, "fashion-mnist": 10, "cifar10": 10}
"""Of the data sets whose number of classes is part of what they are."""


def stated_classes(run: RunConfig) -> tuple[int | None, tuple[str, ...]]:
    """(number, names) of the classes as the run file alone gives them; None: the labels decide, (): it names none."""
    given = run.data.params.get("classes", CLASSES.get(run.data.dataset))
    if isinstance(given, tuple):
        return len(given), given
    return (None if given is None else int(given)), ()


def unstated_classes(run: RunConfig, source: str) -> Problem | None:
    """Why no node of ``run`` may have data of its own: its labels would decide d, which everybody is told."""
    if run.data.dataset in TOYS or stated_classes(run)[0] is not None:
        return None
    message = (
        "is needed where a node has data of its own ([data] path in NODE.toml): else its labels decide how many "
        "parameters there are, which everybody is told. Write classes = N, or a list of names, into the run file of all"
    )
    if run.data.dataset.partition(":")[0] not in DATASET_PREFIXES.built:
        message = f'"{run.data.dataset}" does not say how many classes there are, which data.path needs: name a file'
        return Problem(source, "data.dataset", f'{message}, e.g. dataset = "npz:own.npz" with classes = N')
    return Problem(source, "data.classes", message)
