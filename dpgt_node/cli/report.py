"""``dpgt report``: rebuild DIR/report.html."""

from __future__ import annotations

from pathlib import Path

import click

from dpgt_node.errors import ExitCode


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def report(folder: Path) -> ExitCode:
    """Rebuild DIR/report.html from what the run wrote."""
    from dpgt_node.report.html import build_report

    click.echo(str(build_report(folder)))
    return ExitCode.DONE
