"""``dpgt doctor``: preflight of one host before a run."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dpgt_node.cli import common
from dpgt_node.errors import ConfigError, ExitCode


@click.command()
@click.argument("file", metavar="NODE.toml|RUN.toml", type=click.Path(path_type=Path))
@click.option("--listen", metavar="HOST:PORT", help="With RUN.toml: where the coordinator is to listen.")
@click.option("--tls", "tls_folder", type=common.FOLDER, help="With RUN.toml: the coordinator's start-up folder.")
@click.option("--out", type=common.FOLDER, help="With RUN.toml: its output folder.")
@common.format_option
def doctor(file: Path, listen: str | None, tls_folder: Path | None, out: Path | None, format_: str) -> ExitCode:
    """What would go wrong on this host, before anything is started: an agent's (NODE.toml) or the coordinator's.

    Exits 1 when a check failed, 2 when a file cannot be read.
    """
    from dpgt_node.config import load_node, load_run
    from dpgt_node.config.declare.reader import parse_toml, read_text
    from dpgt_node.runtime.launch.doctor import examine_coordinator, examine_node
    from dpgt_node.runtime.process import raise_open_files

    raise_open_files()  # as the daemons do: their limit is the one to judge
    if "coordinator" in parse_toml(read_text(file), str(file)):  # required there, and no key of a run file
        if given := [name for name, value in (("--listen", listen), ("--tls", tls_folder), ("--out", out)) if value]:
            raise ConfigError.one("command line", given[0], f"is for the coordinator's RUN.toml; {file} says it itself")
        config = load_node(file)
        run = load_run(config.run)
        rows = common.run_async(examine_node(config, run, data_root=common.data_root()))
    else:
        if listen is not None:
            common.check_address(listen, "--listen")
        rows = common.run_async(examine_coordinator(load_run(file), listen, tls_folder, out))
    bad = sum(row.status == "failed" for row in rows)
    if format_ == "json":
        checks = [
            {"check": r.check, "status": r.status, "passed": r.passed, "found": r.found, "todo": r.todo} for r in rows
        ]
        click.echo(json.dumps({"passed": bad == 0, "checks": checks}, indent=2, allow_nan=False))
    else:
        width = max(len(row.check) for row in rows)
        for row in rows:
            click.echo(f"{row.status:8}{row.check:{width}}  {row.found}")
            if row.todo and row.status != "passed":
                click.echo(f"{'':8}{'':{width}}  -> {row.todo}")
        click.echo(f"{bad} failed" if bad else "ready")
    return ExitCode.CHECK_FAILED if bad else ExitCode.DONE
