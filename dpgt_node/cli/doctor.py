"""``dpgt doctor``: preflight of one host before a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpgt_node.cli import common
from dpgt_node.cli.wrapping import say, wrapped
from dpgt_node.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from dpgt_node.runtime.launch.doctor import Row


@click.command()
@click.argument("file", metavar="NODE.toml|RUN.toml", type=click.Path(path_type=Path))
@click.option("--listen", metavar="HOST:PORT", help="With RUN.toml: where the coordinator is to listen.")
@click.option("--tls", "tls_folder", type=common.FOLDER, help="With RUN.toml: the coordinator's start-up folder.")
@click.option("--out", type=common.FOLDER, help="With RUN.toml: its output folder.")
@click.option(
    "--bundle",
    metavar="FILE.zip",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write what an issue needs: versions, configuration, these checks and logs, without secrets or data.",
)
@click.option(
    "--log",
    "logs",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --bundle: a log to go in, beside those that launch wrote; may be given several times.",
)
@common.format_option
def doctor(
    file: Path,
    listen: str | None,
    tls_folder: Path | None,
    out: Path | None,
    bundle: Path | None,
    logs: tuple[Path, ...],
    format_: str,
) -> ExitCode:
    """What would go wrong on this host, before anything is started: an agent's (NODE.toml) or the coordinator's.

    Exits 1 when a check failed, 2 when a file cannot be read.
    """
    from dpgt_node.runtime.process import raise_open_files

    raise_open_files()  # as the daemons do: their limit is the one to judge
    if logs and bundle is None:
        raise ConfigError.one("command line", "--log", "goes with --bundle FILE.zip")
    documents: dict[str, Mapping[str, Any]] = {}
    where = list(logs)
    try:
        rows = _examine(file, listen, tls_folder, out, documents, where)
    except ConfigError as error:
        if bundle is not None:
            _bundle(bundle, documents, [], where, str(error))
        raise
    if bundle is not None:
        _bundle(bundle, documents, rows, where)
    bad = sum(row.status == "failed" for row in rows)
    if format_ == "json":
        checks = [
            {
                "check": r.check,
                "status": r.status,
                "passed": r.passed,
                "found": r.found.replace("\n", "; "),
                "todo": r.todo,
            }
            for r in rows
        ]
        click.echo(json.dumps({"passed": bad == 0, "checks": checks}, indent=2, allow_nan=False))
    else:
        width = max(len(row.check) for row in rows)
        for row in rows:
            begin = f"{row.status:8}{row.check:{width}}  "
            for sentence in row.found.split("\n"):
                for line in wrapped(sentence, " " * (width + 12), first=begin):
                    click.echo(line)
                begin = " " * (width + 10)
            if row.todo and row.status != "passed":
                for line in wrapped(row.todo, " " * (width + 13), first=f"{'':{width + 10}}-> "):
                    click.echo(line)
        click.echo(f"{bad} failed" if bad else "ready")
    return ExitCode.CHECK_FAILED if bad else ExitCode.DONE


def _examine(
    file: Path,
    listen: str | None,
    tls_folder: Path | None,
    out: Path | None,
    documents: dict[str, Mapping[str, Any]],
    logs: list[Path],
) -> list[Row]:
    """Every check; what was read on the way goes into ``documents``, logs that were found into ``logs``."""
    from dpgt_node.config import load_node, load_run
    from dpgt_node.config.declare.reader import parse_toml, read_text
    from dpgt_node.runtime.launch.bundle import found_logs
    from dpgt_node.runtime.launch.doctor import examine_coordinator, examine_node

    tables = parse_toml(read_text(file), str(file))
    if "coordinator" not in tables:
        documents["run"] = tables
        logs += found_logs(out, None)
        if listen is not None:
            common.check_address(listen, "--listen")
        return common.run_async(examine_coordinator(load_run(file), listen, tls_folder, out))
    documents["node"] = tables  # "coordinator" is required there, and no key of a run file
    if given := [name for name, value in (("--listen", listen), ("--tls", tls_folder), ("--out", out)) if value]:
        raise ConfigError.one("command line", given[0], f"is for the coordinator's RUN.toml; {file} says it itself")
    config = load_node(file)
    logs += found_logs(None, config.state_dir)
    documents["run"] = parse_toml(read_text(config.run), str(config.run))
    return common.run_async(examine_node(config, load_run(config.run), data_root=common.data_root()))


def _bundle(
    path: Path, documents: Mapping[str, Mapping[str, Any]], rows: Sequence[Row], logs: Sequence[Path], problem: str = ""
) -> None:
    from dpgt_node.runtime.launch.bundle import write_bundle

    names = write_bundle(path, documents=documents, checks=rows, logs=logs, problem=problem)
    say(f"dpgt doctor: wrote {path} ({len(names)} files); read it before you attach it to an issue", err=True)
