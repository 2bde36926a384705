"""``dpgt evaluate``: what an exported model says on the data of whoever runs it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dpgt_node.cli import common
from dpgt_node.errors import ConfigError, ExitCode


@click.command()
@click.argument("folder", metavar="FOLDER", type=common.FOLDER)
@click.option(
    "--data",
    metavar="NAME|npz:PATH|...",
    help="Data to judge it on, as [data] dataset names them.  [default: those of the run file]",
)
@click.option("--part", type=click.Choice(["test", "train"]), default="test", show_default=True)
@common.format_option
def evaluate(folder: Path, data: str | None, part: str, format_: str) -> ExitCode:
    """Accuracy and loss of the model that `dpgt export` wrote into FOLDER.

    A figure of the test set is as public as the test set; one of --part train is about whoever's samples those are.
    """
    from dataclasses import replace

    from dpgt_node.config import load_run
    from dpgt_node.learning.published import MODEL_FILE, judge
    from dpgt_node.learning.shards import run_dataset

    if not (folder / MODEL_FILE).is_file() or not (folder / "run.toml").is_file():
        raise ConfigError.one("command line", "FOLDER", f"{folder} holds no exported model ({MODEL_FILE}, run.toml)")
    run = load_run(folder / "run.toml")
    looked = run if data is None else replace(run, data=replace(run.data, dataset=data), base=Path.cwd())
    found = judge(folder, run, run_dataset(looked, common.data_root()), part)
    said = {
        "model": str(folder),
        "dataset": looked.data.dataset,
        "part": part,
        "samples": found.samples,
        "accuracy": found.accuracy,
        "loss": found.loss,
        "calibrated": found.calibrated,
    }
    if format_ == "json":
        click.echo(json.dumps(said, indent=2, allow_nan=False))
        return ExitCode.DONE
    click.echo(
        f"{looked.data.dataset}, {part}: accuracy {100 * found.accuracy:.2f} %, loss {found.loss:.4f} nats, "
        f"{found.samples} samples"
    )
    if found.calibrated:
        click.echo(f"BatchNorm took its statistics from the first {found.calibrated} of them")
    return ExitCode.DONE
