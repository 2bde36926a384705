"""``dpgt bench``: the measurements of ``dpgt_node.bench``, each a command made from its dataclass of settings."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import logging
import os
import platform
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from dpgt_node import __version__
from dpgt_node.bench.catalogue import CATALOGUE, Entry
from dpgt_node.cli import common
from dpgt_node.errors import ExitCode

_WORDS, _NUMBER, _SPREAD = 26, 10, 25


class _Benches(click.Group):
    """Made when they are called: some import torch, and a list of all must not."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(CATALOGUE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _command(cmd_name, CATALOGUE[cmd_name]) if cmd_name in CATALOGUE else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _line(entry)) for name, entry in CATALOGUE.items()])


def _line(entry: Entry) -> str:
    return f"{entry.line} (needs {entry.needs})" if entry.needs else entry.line


@click.group(cls=_Benches, invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="The list for programs.")
@click.pass_context
def bench(context: click.Context, as_json: bool) -> None:
    """Measure this machine: speed first, then studies of accuracy and attacks.  Without a name: what there is.

    Run it on an idle machine.  What is compared runs in turn; ratios are medians of pairs, with the least and the
    largest.
    """
    if context.invoked_subcommand is not None:
        return
    if as_json:
        click.echo(json.dumps({name: {"does": e.line, "needs": e.needs} for name, e in CATALOGUE.items()}, indent=2))
        return
    width = max(map(len, CATALOGUE))
    for name, entry in CATALOGUE.items():
        click.echo(f"{name:{width}}  {_line(entry)}")


# ---------------------------------------------------------------- from a dataclass to a command
def _command(name: str, entry: Entry) -> click.Command:
    module = importlib.import_module(f"dpgt_node.bench.{entry.module}")
    hints = typing.get_type_hints(module.Settings)
    parameters = [_parameter(field, hints[field.name]) for field in dataclasses.fields(module.Settings)]
    parameters += [
        click.Option(["--folder"], type=common.FOLDER, help="Where files go meanwhile.  [default: the system's]"),
        click.Option(["--json", "as_json"], is_flag=True, help="One JSON object at the end, for programs."),
    ]

    def run(folder: Path | None, as_json: bool, **values: Any) -> ExitCode:
        return _run(name, module, module.Settings(**values), folder, as_json)

    text = (module.__doc__ or "").strip()
    return click.Command(name, callback=run, params=parameters, help=text, short_help=_line(entry))


def _parameter(field: dataclasses.Field[Any], hint: Any) -> click.Parameter:
    given, many = dict(field.metadata), typing.get_origin(hint) is tuple
    kinds = [kind for kind in (typing.get_args(hint) or (hint,)) if kind not in (type(None), Ellipsis)]
    kind: Any = kinds[0]
    if given.get("choices"):
        kind = click.Choice(given["choices"])
    elif kind is int and given.get("least") is not None:
        kind = click.IntRange(min=given["least"])
    elif kind is Path:
        kind = click.Path(path_type=Path)
    if given.get("positional"):
        return click.Argument([field.name], type=kind, metavar=given["metavar"])
    flag = kind is bool
    missing = field.default is dataclasses.MISSING
    options: dict[str, Any] = {} if missing else {"default": field.default}
    if not flag:
        options |= {"type": kind, "multiple": many, "metavar": given.get("metavar")}
    return click.Option(
        [f"--{field.name.replace('_', '-')}", field.name],
        is_flag=flag,
        required=missing,
        show_default=not missing and not flag and field.default not in (None, ()),
        help=given["help"],
        **options,
    )


# ---------------------------------------------------------------- running one
def _run(name: str, module: Any, settings: Any, folder: Path | None, as_json: bool) -> ExitCode:
    from dpgt_node.bench.figures import Around

    around = Around(dict(os.environ), common.data_root() or Path("dpgt-data"), folder)
    machine, printed = _machine(), _Tables(silent=as_json)
    if not as_json:
        click.echo(", ".join(f"{key} {value}" for key, value in machine.items()))
    rows = []
    with _quiet():
        for row in module.figures(settings, around):
            rows.append(row)
            printed.show(row)
    failed = [row.failed for row in rows if row.failed]
    if as_json:
        found = {
            "bench": name,
            "settings": {key: _plain(value) for key, value in dataclasses.asdict(settings).items()},
            "machine": machine,
            "rows": [{"table": row.table, **{key: _plain(value) for key, value in row.cells.items()}} for row in rows],
            "failed": failed,
        }
        click.echo(json.dumps(found, allow_nan=False, indent=2))
    return ExitCode.CHECK_FAILED if failed else ExitCode.DONE


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No warnings of runs that nobody means to keep, unless a level was asked for."""
    logger = logging.getLogger("dpgt_node")
    before = logger.level
    if "log_level" not in click.get_current_context().find_root().meta:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _machine() -> dict[str, Any]:
    return {
        "dpgt": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value) if isinstance(value, Path) else value


class _Tables:
    """Prints rows as they come, under headings of their own."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._heading: tuple[Any, ...] = ()
        self._widths: list[int] = []
        self._words: list[bool] = []

    def show(self, row: Any) -> None:
        if self._silent:
            return
        cells = [_text(value) for value in row.cells.values()]
        if self._heading != (row.table, *row.cells):
            self._heading = (row.table, *row.cells)
            self._widths = [max(_width(value), len(key)) for key, value in row.cells.items()]
            self._words = [isinstance(value, str) for value in row.cells.values()]
            click.echo(f"\n{row.table}\n" + self._line(list(row.cells)))
        click.echo(self._line(cells))
        if row.failed:
            click.echo(f"  FAILED: {row.failed}")

    def _line(self, cells: list[str]) -> str:
        columns = zip(cells, self._widths, self._words, strict=True)
        return "  ".join(cell.ljust(width) if word else cell.rjust(width) for cell, width, word in columns).rstrip()


def _width(value: Any) -> int:
    """Of a column, by its first value; those to come may be longer."""
    return max(len(_text(value)), _WORDS if isinstance(value, str) else _NUMBER if _is_number(value) else _SPREAD)


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, int | float)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, str):
        return value
    if value.of == 1:
        return _text(value.median)
    return f"{_text(value.median)} ({_text(value.least)} to {_text(value.most)})"
