"""``dpgt predict``: the class of every sample of a file, by an exported model."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpgt_node.cli import common
from dpgt_node.cli.results.evaluate import run_of_model
from dpgt_node.cli.wrapping import say
from dpgt_node.config.data import expanded
from dpgt_node.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from dpgt_node.config import RunConfig
    from dpgt_node.types import F64


@click.command()
@click.argument("folder", metavar="FOLDER", type=common.FOLDER)
@click.option(
    "--data",
    required=True,
    metavar="FILE",
    help="A table (.csv, .parquet) with the model's columns, or an array (N, p) in an .npy file.",
)
@click.option("--chances", is_flag=True, help="Also the model's probability of every class.")
@click.option(
    "--temperature",
    type=click.FloatRange(min=0.0, min_open=True),
    help="With --chances: divide the logits by it once more.  `dpgt evaluate` says which one fits its rows.",
)
@click.option("--format", "format_", type=click.Choice(["csv", "json"]), default="csv", show_default=True)
def predict(folder: Path, data: str, chances: bool, temperature: float | None, format_: str) -> ExitCode:
    """The class of every sample of FILE, by the model that `dpgt export` wrote into FOLDER: one line a sample, in the
    order of the file.

    A column with the labels may be there and is not looked at.  Exits 2 unless the model's files are as PRIVACY.md
    says.
    """
    from dpgt_node.learning.published import predicted

    if temperature is not None and not chances:
        raise ConfigError.one("command line", "--temperature", "changes no class, only chances: add --chances")
    run = run_of_model(folder)
    samples, odd = _samples(run, expanded(data))
    for line in odd:
        say(f"dpgt predict: warning: {data}: {line}", err=True)
    labels, probabilities, names = predicted(folder, run, samples, temperature or 1.0)
    if chances:
        say(f"dpgt predict: {_worth(run, temperature)}", err=True)
    head = [str(run.data.params.get("label", "class")), *(f"chance of {name}" for name in names if chances)]
    if format_ == "json":
        found = [
            {"class": names[label], **({"chances": dict(zip(names, row, strict=True))} if chances else {})}
            for label, row in zip(labels.tolist(), probabilities.tolist(), strict=True)
        ]
        click.echo(json.dumps(found, indent=2, allow_nan=False, ensure_ascii=False))
        return ExitCode.DONE
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(head)
    for label, row in zip(labels.tolist(), probabilities.tolist(), strict=True):
        writer.writerow([names[label], *(f"{chance:.6f}" for chance in row if chances)])
    return ExitCode.DONE


def _worth(run: RunConfig, given: float | None) -> str:
    """What the chances are worth, in a sentence."""
    if given is not None:
        return f"chances at the temperature {given:g} that you gave: as good as the rows that it was found on"
    stated, check = run.model.temperature, "`dpgt evaluate` on rows that you may look at says how far off they are"
    if stated is None:
        return (
            f"chances: nothing says that they fit; noise and long steps make a model far too sure. Trust the classes; "
            f"{check}"
        )
    return (
        f"chances: at the temperature {stated:g} of the run file. Where `dpgt plan` or `init` chose it, it fits "
        f"stand-in data, which yours need not be like; {check}"
    )


def _samples(run: RunConfig, path: Path) -> tuple[F64, tuple[str, ...]]:
    """The samples of the file (N, p), before the run's features, and what is odd about them.

    ConfigError: it cannot be read.
    """
    import numpy as np

    from dpgt_node.learning.data.columns import Columns
    from dpgt_node.learning.data.tables import KINDS, load_features

    kind = KINDS.get(ending := path.suffix.lower())
    if kind is None and ending != ".npy":
        raise ConfigError.one("command line", "--data", f"{path} is none of {', '.join(KINDS)}, .npy")
    if kind is not None:
        label = run.data.params.get("label")
        return load_features(kind, path, None if label is None else str(label), Columns.of(run.data.params))
    try:
        held = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ConfigError.one("command line", "--data", f"{path} cannot be read as an array: {error}") from error
    if not isinstance(held, np.ndarray) or held.dtype.kind not in "fiu" or held.ndim < 2 or not held.size:
        raise ConfigError.one("command line", "--data", f"{path} must hold real numbers (N, p), N > 0")
    samples: F64 = held.reshape(len(held), -1).astype(np.float64)
    if not np.isfinite(samples).all():
        raise ConfigError.one("command line", "--data", f"{path} has values that are not finite")
    return samples, ()
