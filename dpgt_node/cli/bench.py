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
from typing import Any, Final

import click

from dpgt_node import __version__
from dpgt_node.bench.baseline import Baseline
from dpgt_node.bench.catalogue import CATALOGUE, Entry
from dpgt_node.bench.figures import Around, Row
from dpgt_node.cli import common
from dpgt_node.cli.lazy import Lazy
from dpgt_node.errors import DpgtError, ExitCode, naming_run_file

_WORDS, _NUMBER, _SPREAD = 26, 10, 25
_LINE: Final = 110
"""Characters a line of a table; what is wider goes on below."""
_OF_DATA: Final = ("data", "data.dataset")
ALL: Final = "all"
_ALL_LINE = "every measurement of speed, one after the other; those that lack something here are named"


class _Benches(Lazy):
    """Made when they are called: some import torch, and a list of all must not."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*CATALOGUE, ALL]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == ALL:
            return _all_command()
        return _command(cmd_name, CATALOGUE[cmd_name]) if cmd_name in CATALOGUE else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*((name, _line(entry)) for name, entry in CATALOGUE.items()), (ALL, _ALL_LINE)])


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
    click.echo(f"{ALL:{width}}  {_ALL_LINE}")


# ---------------------------------------------------------------- from a dataclass to a command
def _command(name: str, entry: Entry) -> click.Command:
    module = importlib.import_module(f"dpgt_node.bench.{entry.module}")
    hints = typing.get_type_hints(module.Settings)
    parameters = [_parameter(field, hints[field.name]) for field in dataclasses.fields(module.Settings)]

    def run(folder: Path | None, as_json: bool, baseline: Path | None, **values: Any) -> ExitCode:
        before = _baseline(baseline)
        if before is not None:
            before.must_have(name)
        found = _run(name, module, module.Settings(**values), folder, as_json, before)
        if as_json:
            click.echo(json.dumps(found, allow_nan=False, indent=2))
        return ExitCode.CHECK_FAILED if found["failed"] else ExitCode.DONE

    text = (module.__doc__ or "").strip()
    parameters += _common_parameters()
    return click.Command(name, callback=run, params=parameters, help=text, short_help=_line(entry))


def _all_command() -> click.Command:
    def run(folder: Path | None, as_json: bool, baseline: Path | None) -> ExitCode:
        before = _baseline(baseline)
        found: list[dict[str, Any]] = []
        left_out: dict[str, str] = {}
        for name, entry in CATALOGUE.items():
            if entry.module.startswith("speed."):
                if not as_json:
                    click.echo(f"{name}: {entry.line}")
                try:
                    module = importlib.import_module(f"dpgt_node.bench.{entry.module}")
                    found.append(_run(name, module, module.Settings(), folder, as_json, before))
                except (DpgtError, ImportError) as error:
                    left_out[name] = " ".join(str(error).split())
                    click.echo(f"  not measured: {left_out[name]}", err=as_json)
                if not as_json:
                    click.echo()
        if as_json:
            click.echo(json.dumps({"all": found, "not_measured": left_out}, allow_nan=False, indent=2))
        elif left_out:
            click.echo(f"Not measured here: {', '.join(left_out)}.")
        return ExitCode.CHECK_FAILED if any(each["failed"] for each in found) else ExitCode.DONE

    text = f"""{_ALL_LINE[0].upper()}{_ALL_LINE[1:]}.

    Each in its default size; it takes most of an hour.  Studies (accuracy, attacks) are not among them."""
    return click.Command(ALL, callback=run, params=_common_parameters(), help=text, short_help=_ALL_LINE)


def _common_parameters() -> list[click.Parameter]:
    return [
        click.Option(
            ["--folder"],
            type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
            metavar="DIR",
            help="An existing folder where files go meanwhile.  [default: the system's]",
        ),
        click.Option(
            ["--baseline"],
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="What --json printed before: every figure beside it.",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="One JSON object at the end, for programs."),
    ]


def _baseline(path: Path | None) -> Baseline | None:
    return None if path is None else Baseline(path)


def _parameter(field: dataclasses.Field[Any], hint: Any) -> click.Parameter:
    given, many = dict(field.metadata), typing.get_origin(hint) is tuple
    kinds = [kind for kind in (typing.get_args(hint) or (hint,)) if kind not in (type(None), Ellipsis)]
    kind: Any = kinds[0]
    if given.get("choices"):
        kind = click.Choice(given["choices"])
    elif kind is int and given.get("least") is not None:
        kind = click.IntRange(min=given["least"])
    elif kind is float and given.get("least") is not None:
        kind = click.FloatRange(min=given["least"])
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
def _run(
    name: str, module: Any, settings: Any, folder: Path | None, as_json: bool, before: Baseline | None
) -> dict[str, Any]:
    """What --json prints of one measurement; its tables are printed as they come, unless ``as_json``."""

    def progress(line: str) -> None:
        click.echo(f"dpgt bench {name}: {line}", err=True)

    around = Around(dict(os.environ), common.data_root() or Path("dpgt-data"), folder, progress)
    machine, printed = _machine(), _Tables(silent=as_json)
    if not as_json:
        click.echo(", ".join(f"{key} {value}" for key, value in machine.items()))
    rows = []
    given = [field.metadata["metavar"] for field in dataclasses.fields(settings) if field.metadata.get("positional")]
    # Of a run file that the measurement itself wrote, the data are the argument's.
    with _quiet(), naming_run_file("command line", given[0] if given else None, _OF_DATA if given else ()):
        for row in module.figures(settings, around):
            rows.append(row)
            printed.show(row)
    found: dict[str, Any] = {
        "bench": name,
        "settings": {key: _plain(value) for key, value in dataclasses.asdict(settings).items()},
        "machine": machine,
        "rows": [_document(row) for row in rows],
        "failed": [row.failed for row in rows if row.failed],
    }
    if before is not None and before.has(name):
        beside, differs = list(before.rows(name, found["rows"])), list(before.differences(found))
        found["baseline"] = {"differs": differs, "rows": [_document(row) for row in beside]}
        for row in beside:
            printed.show(row)
        for sentence in differs if not as_json else ():
            click.echo(f"Since the baseline: {sentence}")
    return found


def _document(row: Row) -> dict[str, Any]:
    return {"table": row.table, **{key: _plain(value) for key, value in row.cells.items()}}


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
        self._breaks: set[int] = set()

    def show(self, row: Any) -> None:
        if self._silent:
            return
        cells = [_text(value) for value in row.cells.values()]
        if self._heading != (row.table, *row.cells):
            self._heading = (row.table, *row.cells)
            self._widths = [max(_width(value), len(key)) for key, value in row.cells.items()]
            self._words = [isinstance(value, str) for value in row.cells.values()]
            self._breaks = set(_breaks(self._widths))
            click.echo(f"\n{row.table}\n" + self._line(list(row.cells)))
        click.echo(self._line(cells))
        if row.failed:
            click.echo(f"  FAILED: {row.failed}")

    def _line(self, cells: list[str]) -> str:
        """The cells in their columns, on several lines where they must be."""
        lines: list[list[str]] = [[]]
        for column, (cell, width, word) in enumerate(zip(cells, self._widths, self._words, strict=True)):
            if column in self._breaks:
                lines.append([" " * self._widths[0]])
            lines[-1].append(cell.ljust(width) if word else cell.rjust(width))
        return "\n".join("  ".join(line).rstrip() for line in lines)


def _breaks(widths: list[int]) -> Iterator[int]:
    """Columns with which another line begins, below the second column."""
    used = 0
    for column, width in enumerate(widths):
        if column > 1 and used + 2 + width > _LINE:
            yield column
            used = widths[0]
        used += width + (2 if column else 0)


def _width(value: Any) -> int:
    """Of a column, by its first value; those to come may be longer."""
    return max(len(_text(value)), _WORDS if isinstance(value, str) else _NUMBER if _is_single(value) else _SPREAD)


def _is_single(value: Any) -> bool:
    """Whether it is one number: measured once it has no spread."""
    return value is None or isinstance(value, int | float) or value.of == 1


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, str):
        return value
    if value.least == value.most:  # of one draw, or the same in each
        return _text(value.median)
    return f"{_text(value.median)} ({_text(value.least)} to {_text(value.most)})"
