"""``dpgt report``: rebuild DIR/report.html."""

from __future__ import annotations

from pathlib import Path

import click

from dpgt_node.errors import ConfigError, ExitCode


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def report(folder: Path) -> ExitCode:
    """Rebuild DIR/report.html from what the run wrote."""
    from dpgt_node.record.metrics import METRICS_FILE
    from dpgt_node.record.summary import SUMMARY_FILE
    from dpgt_node.report.html import build_report
    from dpgt_node.runtime.coordinator.outdir import IDENTITY_FILE

    # A start-up folder has a run.toml too, and a page about it would show a run that never was.
    signs = (IDENTITY_FILE, SUMMARY_FILE, METRICS_FILE)
    if not any((folder / name).is_file() for name in signs):
        raise ConfigError.one("command line", "DIR", f"{folder} holds no run: none of {', '.join(signs)}")
    click.echo(str(build_report(folder)))
    return ExitCode.DONE
