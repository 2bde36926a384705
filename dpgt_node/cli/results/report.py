"""``dpgt report``: rebuild DIR/report.html, or compare several runs on one page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click

from dpgt_node.cli import common
from dpgt_node.errors import ConfigError, ExitCode


@click.command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    metavar="FILE.html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Of several DIR: the page that compares them.",
)
@common.format_option
def report(folders: tuple[Path, ...], out: Path | None, format_: Literal["text", "json"]) -> ExitCode:
    """Rebuild DIR/report.html from what the run wrote; of several DIR, compare the runs in --out FILE.html.

    A comparison has accuracy and attacks against epsilon, and what differs in the run files.
    """
    for folder in folders:
        _require_run(folder)
    if len(folders) > 1:
        return _compare(folders, out, format_)
    if out is not None:
        raise ConfigError.one("command line", "--out", "is for several DIR: the report of one is DIR/report.html")
    from dpgt_node.report.html import build_report

    path = build_report(folders[0])
    click.echo(json.dumps({"report": str(path)}) if format_ == "json" else str(path))
    return ExitCode.DONE


def _compare(folders: tuple[Path, ...], out: Path | None, format_: Literal["text", "json"]) -> ExitCode:
    from dpgt_node.report.comparison.page import document, write_comparison
    from dpgt_node.report.comparison.runs import load_runs

    if out is None and format_ == "text":
        raise ConfigError.one("command line", "--out", "is needed for several DIR: the page that compares them")
    runs = load_runs(folders)
    if out is not None:
        write_comparison(out, runs)
    if format_ == "json":
        found = {"report": None if out is None else str(out), **document(runs)}
        click.echo(json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        click.echo(str(out))
    return ExitCode.DONE


def _require_run(folder: Path) -> None:
    """ConfigError unless a run wrote into ``folder``: a start-up folder has a run.toml too, of a run that never was."""
    from dpgt_node.record.metrics import METRICS_FILE
    from dpgt_node.record.summary import SUMMARY_FILE
    from dpgt_node.runtime.coordinator.outdir import IDENTITY_FILE

    signs = (IDENTITY_FILE, SUMMARY_FILE, METRICS_FILE)
    if not any((folder / name).is_file() for name in signs):
        raise ConfigError.one("command line", "DIR", f"{folder} holds no run: none of {', '.join(signs)}")
