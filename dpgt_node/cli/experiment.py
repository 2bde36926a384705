"""``dpgt experiment``: the paper's figures beside what is measured here, as families of runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dpgt_node.cli import common, wrapping
from dpgt_node.cli.running.ended import say
from dpgt_node.config.vocabulary import METHOD_WORDS
from dpgt_node.errors import ConfigError, DpgtError, ExitCode

if TYPE_CHECKING:
    from dpgt_node.experiments.families.runs.engine import Clock, Done

WORDS = ("fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "table1", "ours")
ALL = "all"
STATUS = "status"
_LOOK = 2000
"""Samples of each set, where a look at all would cost more than the rounds between looks."""
_TOLD = 5
"""So many failures are named on the command line, and so many things that are not shown."""
_OF_OURS = ("agents", "partition", "epsilon", "method", "budget")
"""Options that no other family has."""


@click.command()
@click.argument("what", metavar=f"FAMILY|{STATUS}")
@click.argument("folder", required=False, type=common.FOLDER, metavar="[DIR]")
@click.option("--out", type=common.FOLDER, help="Folder of the runs, pictures, numbers and the page.")
@click.option(
    "--dataset", help="A named set of pictures, or digits, or npz:FILE. [default: mnist; of ours fashion-mnist, too]"
)
@click.option("--model", default="softmax", show_default=True, help="[model] name; the paper trains resnet18.")
@click.option("--iterations", type=click.IntRange(1), default=2000, show_default=True, help="K.")
@click.option("--seeds", type=click.IntRange(1, 1000), default=3, show_default=True, help="Runs of each curve.")
@click.option(
    "--look",
    type=click.IntRange(0),
    help="Accuracy by so many samples of each set, 0: by all.  [default: all; 2000 where the model is not softmax]",
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option(
    "--exact", is_flag=True, help="The daemons' own functions and bits, three to five times slower; else --fast."
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    help="Processes of this machine, by Dask.  [default: its cores; 1 without Dask]",
)
@click.option("--scheduler", metavar="ADDRESS", help="Instead: a Dask scheduler, tcp://HOST:PORT, that you trust.")
@click.option("--agents", type=click.Choice(["5", "20", "100"]), multiple=True, help="Of ours: sizes.  [default: all]")
@click.option("--partition", type=click.Choice(["iid", "dirichlet"]), multiple=True, help="Of ours.  [default: both]")
@click.option("--epsilon", type=click.FloatRange(0, min_open=True), multiple=True, help="Of ours.  [default: .5 1 3 8]")
@click.option("--method", metavar="NAME", multiple=True, help="Of ours: [algorithm] method.  [default: all]")
@click.option("--budget", type=click.IntRange(1, 8), default=8, show_default=True, help="Of ours: candidates a cell.")
@common.format_option
def experiment(
    what: str,
    folder: Path | None,
    out: Path | None,
    dataset: str | None,
    model: str,
    iterations: int,
    seeds: int,
    look: int | None,
    device: Literal["cpu", "cuda"],
    exact: bool,
    processes: int | None,
    scheduler: str | None,
    agents: tuple[str, ...],
    partition: tuple[str, ...],
    epsilon: tuple[float, ...],
    method: tuple[str, ...],
    budget: int,
    format_: str,
) -> ExitCode:
    """Carry out a family of runs into --out, or say how far DIR has come (status DIR).

    Families: fig2 to fig8, table1, ours (every method at the same epsilon), and all.
    What is in --out already is not done again: go on with the same command.  Exits 1 where a run failed twice.
    """
    from dpgt_node.config.data import expanded
    from dpgt_node.experiments.families import conduct
    from dpgt_node.experiments.families.catalogue import FAMILIES
    from dpgt_node.experiments.families.runs.engine import pool
    from dpgt_node.experiments.families.runs.folder import Folder
    from dpgt_node.experiments.families.section_iv import Settings
    from dpgt_node.learning.data.shards import why_absent
    from dpgt_node.report.experiments.page import write_page
    from dpgt_node.runtime.coordinator import outdir

    if what == STATUS:
        return _status(folder or out, format_)
    if folder is not None:
        raise click.UsageError(f"{folder}: give the folder as --out DIR; DIR alone goes with {STATUS}")
    if what not in (*FAMILIES, ALL):
        raise click.UsageError(f"no family is called {what}: {', '.join((*FAMILIES, ALL))}, or {STATUS} DIR")
    given = click.get_current_context().get_parameter_source
    lone = [f"--{name}" for name in _OF_OURS if given(name) is ParameterSource.COMMANDLINE]
    if lone and what not in ("ours", ALL):
        raise click.UsageError(f"{', '.join(lone)}: only ours has it; leave it out of {what}")
    if unknown := [name for name in method if name not in METHOD_WORDS]:
        raise click.UsageError(f"no method is called {', '.join(unknown)}: {', '.join(METHOD_WORDS)}")
    if out is None:
        raise ConfigError.one("command line", "--out", "is missing")
    if dataset is not None and dataset.startswith(("csv:", "parquet:")):
        why = "a table needs more keys than its path, and no option gives them: give its rows as npz:FILE"
        raise ConfigError.one("command line", "--dataset", why)
    kind, _, file = (dataset or "").partition(":")
    if kind in ("npz", "folder") and (absent := why_absent(expanded(file))) is not None:
        raise ConfigError.one("command line", "--dataset", absent)
    if scheduler is not None and processes is not None:
        raise click.UsageError("--scheduler has its own workers: leave out --processes")
    names = tuple(FAMILIES) if what == ALL else (what,)
    looked = (0 if model == "softmax" else _LOOK) if look is None else look
    settings = Settings(dataset or "mnist", model, iterations, seeds, device, exact, looked or None, budget=budget)
    shares: dict[str, Any] = {
        "sets": (dataset,) if dataset else (),
        "agents": tuple(map(int, agents)),
        "partitions": partition,
        "epsilons": epsilon,
        "methods": method,
    }
    settings = replace(settings, **{name: value for name, value in shares.items() if value})
    root = common.data_root()
    held = Folder(out)
    held.check_free()
    conduct.check(held, names, settings, root)
    with pool(processes, scheduler) as workers, outdir.claim(out):
        console = Console()
        say(console, f"{', '.join(names)} into {out}, {workers.words}")
        try:
            if "ours" in names:
                say(console, "ours: first the candidates of every cell, then the best of each, for every seed")
            with _progress(console) as progress:
                failed = conduct.conduct(held, names, settings, workers, root, progress)
        except KeyboardInterrupt as interrupt:
            error = DpgtError(f"interrupted\ngo on with the same command and --out {out}")
            error.exit_code = ExitCode.STOPPED
            raise error from interrupt
        finally:  # what an interrupted command has made is worth a look, too
            page = conduct.page(held)
            path = write_page(held.path, page)
    left_out = [
        f"{section.key}: {line}" for section in page.sections if section.key in names for line in section.pending
    ]
    for line in left_out[:_TOLD]:
        say(console, f"Not shown: {line}")
    if len(left_out) > _TOLD:
        say(console, f"Not shown: {len(left_out) - _TOLD} more, which the page names")
    if others := conduct.not_shown(held):
        say(console, others)
    say(console, f"Page: {path}")
    if failed:
        lines = [f"{name}: {held.failed[name]}" for name in failed[:_TOLD]]
        lines += [f"and {len(failed) - _TOLD} more: dpgt experiment status {out}"] if len(failed) > _TOLD else []
        error = DpgtError("\n".join([f"{len(failed)} runs failed twice; the same command tries them again", *lines]))
        error.exit_code = ExitCode.CHECK_FAILED
        raise error
    return ExitCode.DONE


def _status(path: Path | None, format_: str) -> ExitCode:
    from dpgt_node.experiments.families.conduct import not_shown
    from dpgt_node.experiments.families.runs.folder import STATE_FILE, Folder

    if path is None:
        raise click.UsageError(f"{STATUS} of which folder? dpgt experiment {STATUS} DIR")
    if not (path / STATE_FILE).exists():
        raise ConfigError.one("command line", "DIR", f"{path} holds no experiment")
    held = Folder(path)
    status = held.status()
    families = {name: held.family_status(name) for name in held.families}
    if format_ == "json":
        click.echo(
            json.dumps(
                {
                    "families": {name: {"done": done, "of": of} for name, (done, of) in families.items()},
                    "missing": status.missing,
                    "failed": dict(status.failed),
                    "not_shown": held.others(),
                }
            )
        )
        return ExitCode.DONE
    for name, (done, of) in families.items():
        click.echo(f"{name}: {done} of {of} runs")
    if others := not_shown(held):
        wrapping.say(others)
    for name, why in status.failed.items():
        wrapping.say(f"failed: {name}: {why}")
    return ExitCode.DONE


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[Clock, Done | None], None]]:
    """A bar with the time that is left; a line for every run where nobody sees a bar."""
    if not console.is_terminal or console.is_dumb_terminal:
        begun: list[Clock] = []

        def tell(clock: Clock, done: Done | None) -> None:
            if done is None:
                begun.append(clock)
                which = "" if len(begun) == 1 else " now: the best of each cell, for every seed"
                console.print(f"{clock.total} {'run' if clock.total == 1 else 'runs'} to do{which}", highlight=False)
            else:
                _line(console, clock, done)

        yield tell
        return
    columns = (
        TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("ETA"),
        TimeRemainingColumn(elapsed_when_finished=False),
    )  # fmt: skip
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("runs", total=None)

        def show(clock: Clock, done: Done | None) -> None:
            bar.update(task, total=clock.total, completed=clock.done)
            if done is not None and done.files is None:
                say(bar.console, _failure(done), "red")

        yield show


def _line(console: Console, clock: Clock, done: Done) -> None:
    from dpgt_node.report import text

    left = clock.left_s(time.monotonic())
    eta = "" if not left else f"  ETA {text.duration(left)}"
    said = done.name if done.files is not None else _failure(done)
    say(console, f"{clock.done}/{clock.total}  {said}{eta}")


def _failure(done: Done) -> str:
    return f"failed{'' if done.last else ', to be tried once more'}: {done.name}: {done.error}"
