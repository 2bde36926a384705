"""``dpgt evaluate``: what an exported model says on the data of whoever runs it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpgt_node.cli import common
from dpgt_node.cli.wrapping import say
from dpgt_node.config.data import CLASSES, UNPUBLISHED, expanded, without_paths
from dpgt_node.config.vocabulary import TOYS
from dpgt_node.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from dpgt_node.config import RunConfig
    from dpgt_node.learning.data.arrays import Dataset
    from dpgt_node.learning.published import Score

TABLES = ("csv", "parquet")
_NEAR = 0.02
"""A difference between chance and accuracy, or in loss, that is not worth a word."""
_ENOUGH = 50
"""Rows from which on chances are judged: a share of n rows is off by up to 0.5/sqrt(n) by chance alone, 0.07 here and
0.22 of 5 rows.  So few are often all right, and then the least loss is that of certainty, at the lowest temperature.
"""


@click.command()
@click.argument("folder", metavar="FOLDER", type=common.FOLDER)
@click.option(
    "--data",
    metavar="FILE|NAME|npz:PATH|...",
    help="Data to judge it on: a file, a folder of pictures, or as [data] dataset names them.  A table is judged "
    "whole, as other data without a test part are.  [default: those of the run file]",
)
@click.option(
    "--run",
    "run_file",
    metavar="RUN.toml",
    type=click.Path(path_type=Path),
    help="The run file itself, to judge the model on its data: the published one leaves out where they lie.",
)
@click.option(
    "--node",
    "node_file",
    metavar="NODE.toml",
    type=click.Path(path_type=Path),
    help="An owner's own node file, to judge the model on that host's data.",
)
@click.option(
    "--label",
    metavar="COLUMN",
    help="Of a table: the column with the labels.  [default: that of the run file's own table]",
)
@click.option("--part", type=click.Choice(["test", "train"]), default="test", show_default=True)
@common.format_option
def evaluate(
    folder: Path,
    data: str | None,
    run_file: Path | None,
    node_file: Path | None,
    label: str | None,
    part: str,
    format_: str,
) -> ExitCode:
    """Accuracy and loss of the model that `dpgt export` wrote into FOLDER; exits 2 unless its files are as PRIVACY.md
    says.

    A figure of the test set is as public as the test set; one of --part train is about whoever's samples those are.
    """
    from dpgt_node.learning.data.shards import run_dataset
    from dpgt_node.learning.published import held_frame, judge, takes_pixels

    run, data = run_of_model(folder), None if data is None else _kind_and_path(data)
    if sum(given is not None for given in (data, run_file, node_file)) > 1:
        raise click.UsageError("--run, --node and --data exclude each other")
    if node_file is not None:
        samples, what = _of_node(run, folder, node_file)
    else:
        if run_file is not None:
            run = _same_run(run, folder, run_file, "--run")
        frame = held_frame(folder)
        looked = _looked_at(run, data, label, () if frame is None else frame.names)
        option, what = "--data" if data is not None else None, looked.data.dataset
        samples = run_dataset(looked, common.data_root(), to_learn=False, option=option)
        if data is not None and takes_pixels(run) and takes_pixels(looked) is None:
            samples = _in_pixels(samples, what)
    if not len(samples.y_test if part == "test" else samples.y_train):
        if data is None:
            raise _no_samples(run, run_file, node_file, what, part)
        if part == "test":  # whoever judges a model on other data has no use for a part of them
            samples = replace(samples, x_test=samples.x_train, y_test=samples.y_train)
    found = judge(folder, run, samples, part)
    said = {
        "model": str(folder),
        "dataset": what,
        "part": part,
        "samples": found.samples,
        "accuracy": found.accuracy,
        "loss": found.loss,
        "calibrated": found.calibrated,
        "classes": found.classes,
        "mean_highest_chance": found.highest,
        "temperature": found.temperature,
        "loss_at_temperature": found.loss_then,
    }
    if format_ == "json":
        click.echo(json.dumps(said, indent=2, allow_nan=False))
        return ExitCode.DONE
    say(f"{what}, {part}: accuracy {100 * found.accuracy:.2f} %, loss {found.loss:.4f} nats, {found.samples} samples")
    say(_worth(found))
    if found.calibrated:
        say(f"BatchNorm took its statistics from the first {found.calibrated} of them")
    return ExitCode.DONE


def _worth(found: Score) -> str:
    """What the chances of the model are worth on the rows looked at."""
    off = found.highest - found.accuracy
    mean = f"chances: the highest one is {100 * found.highest:.1f} % on average"
    equal = f"Equal chances have a loss of {math.log(found.classes):.4f}."
    if found.samples < _ENOUGH:
        return f"{mean}; fewer than {_ENOUGH} rows do not tell whether the model is too sure. {equal}"
    sure = "about as sure as it is right" if abs(off) < _NEAR else f"too {'sure' if off > 0 else 'modest'}"
    said = f"{mean}, so the model is {sure}. {equal}"
    if found.loss > found.loss_then + _NEAR:
        T = float(f"{found.temperature:.2g}")  # by :g then 380, not 3.8e+02
        said += (
            f" At --temperature {T:g} of `dpgt predict` the loss is {found.loss_then:.4f} on these rows: "
            "a figure of theirs, as public as they are."
        )
    elif abs(off) >= _NEAR:
        said += f" No --temperature of `dpgt predict` makes the loss less by more than {_NEAR:g} on these rows."
    return said


def _in_pixels(samples: Dataset, what: str) -> Dataset:
    """An array of pictures for a model that was trained on pixels from 0 to 1.  ConfigError: it holds other numbers."""
    from dpgt_node.learning.data.pictures.layout import Unlike, divisor

    try:
        return replace(samples, divisor=divisor(samples.x_test if samples.x_test.size else samples.x_train))
    except Unlike as error:
        raise ConfigError.one("command line", "--data", f"{what} {error}") from error


def _same_run(run: RunConfig, folder: Path, run_file: Path, option: str) -> RunConfig:
    """The run file at ``run_file``.  ConfigError: it is not that of the model in ``folder``."""
    from dpgt_node.config import canonical_json, load_run

    own = load_run(run_file)
    if canonical_json(without_paths(own)) != canonical_json(run):
        raise ConfigError.one("command line", option, f"{run_file} is another run than that of {folder}")
    return own


def _of_node(run: RunConfig, folder: Path, node_file: Path) -> tuple[Dataset, str]:
    """The data of the owner of ``node_file``, and what they are; of a node with a shard, those of its run file."""
    from dpgt_node.config import load_node
    from dpgt_node.learning.data.shards import own_file, run_dataset

    node = load_node(node_file)
    own = _same_run(run, folder, node.run, "--node")
    if node.data_path is None:
        return run_dataset(own, common.data_root(), to_learn=False), own.data.dataset
    return own_file(own, node.data_path, node.data_test), f"{node.name}'s {node.data_path.name}"


def _kind_and_path(data: str) -> str:
    """A plain path as [data] dataset names it; what is named so already as it is.  ConfigError: it is neither."""
    from dpgt_node.learning.data.tables import KINDS

    if ":" in data or data in CLASSES or data in TOYS:
        return data
    path = expanded(data)
    if path.is_dir():
        return f"folder:{data}"
    kind = {**KINDS, ".npz": "npz"}.get(path.suffix.lower())
    if kind is None:
        known = ", ".join((*KINDS, ".npz", "a folder of pictures", *CLASSES))
        said = f"{data} is none of {known}" if path.exists() else f"there is no {data} here; data are {known}"
        raise ConfigError.one("command line", "--data", said)
    return f"{kind}:{data}"


def _no_samples(run: RunConfig, run_file: Path | None, node_file: Path | None, what: str, part: str) -> ConfigError:
    """The data that the run file or the node file names lack the ``part``: what to add, and where."""
    kind, other = run.data.dataset.partition(":")[0], "train" if part == "test" else "test"
    table, fraction = kind in TABLES, kind in ("npz", "folder")
    ways = [f"judge on other data: --data FILE|FOLDER{'' if node_file is None else ' in place of --node'}"]
    if node_file is not None:
        source, key = str(node_file), "data.test" if table else "data.path"
        if table:
            ways.insert(0, 'add test = "FILE.csv" under [data] of this file, a second table with the same columns')
        elif fraction:
            ways.insert(0, "write own_test_fraction = 0.2 under [data] of the run file before the next run")
    else:
        source, key = str(run_file or "run file"), "data"
        if table:
            ways.insert(0, 'write test = "FILE.csv" or test_fraction = 0.2 under [data] before the next run')
        elif fraction:
            ways.insert(0, "write test_fraction = 0.2 under [data] before the next run")
    return ConfigError.one(source, key, f"{what} has no {part} samples: {'; '.join(ways)}; or --part {other}")


def run_of_model(folder: Path) -> RunConfig:
    """The run file of the exported model in ``folder``.  ConfigError: there is none, or its files were changed."""
    from dpgt_node.config import load_run
    from dpgt_node.learning.published import MODEL_FILE
    from dpgt_node.report.publishing.export import verify

    if not (folder / MODEL_FILE).is_file() or not (folder / "run.toml").is_file():
        raise ConfigError.one("command line", "FOLDER", f"{folder} holds no exported model ({MODEL_FILE}, run.toml)")
    verify(folder)
    run = load_run(folder / "run.toml")
    if run.data.dataset in TOYS:
        message = f"{folder} holds x of {run.data.dataset!r}, a formula without samples: nothing says how good it is"
        raise ConfigError.one("command line", "FOLDER", message)
    return run


def _looked_at(run: RunConfig, data: str | None, label: str | None, names: tuple[str, ...]) -> RunConfig:
    """``run`` with the data set ``data`` in place of its own.  ConfigError: a table without a label column.

    ``names``: of the model's classes; the labels of a file are read as these.
    """
    kind, _, path = ("" if data is None else data).partition(":")
    if label is not None and kind not in TABLES:
        raise ConfigError.one("command line", "--label", "names a column of a table, --data FILE.csv or FILE.parquet")
    if data is None:
        if run.data.dataset.endswith(f":{UNPUBLISHED}"):
            message = (
                "is needed: the model does not say where its run's data lie; or give the run file itself, "
                "--run RUN.toml, or an owner's --node NODE.toml"
            )
            raise ConfigError.one("command line", "--data", message)
        return run
    params = {
        name: value
        for name, value in run.data.params.items()
        if name not in ("label", "test", "test_fraction", "own_test_fraction", "classes")
    }
    if kind in TABLES:
        column = run.data.params.get("label") if label is None else label
        if column is None:
            raise ConfigError.one("command line", "--label", f"{data} is a table: name the column with the labels")
        params |= {"label": column, "test": path}  # whoever judges a model on a table has no use for a part of it
    if names and kind in (*TABLES, "npz"):
        params["classes"] = names
    return replace(run, data=replace(run.data, dataset=data, params=params), base=Path.cwd())
