"""``dpgt init``: a run file that learns at an epsilon, from data and a few words."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpgt_node.cli import common
from dpgt_node.cli.shape import find_shape
from dpgt_node.cli.wrapping import command, wrapped
from dpgt_node.errors import ConfigError, ExitCode, Problem, attempt

if TYPE_CHECKING:
    from dpgt_node.accounts.planner import Target
    from dpgt_node.cli.beginning.draft import Draft
    from dpgt_node.config import RunConfig
    from dpgt_node.sim.own_rows import OwnRows
    from dpgt_node.sim.plans.choosing import Choice
    from dpgt_node.sim.plans.rehearsal import Shape

_BARRIER_EVERY = 16
"""Softmax is small: where rounds are quick, waiting for the coordinator is a good part of them."""
_COMPLETE = 8
"""So many agents all send to each other."""
_OWN = "own"
"""Name of the data in the run file of owners, none of whom has a file of that name."""


@click.command()
@click.option(
    "--data",
    "names",
    multiple=True,
    metavar="FILE|FOLDER|NAME",
    help="A table (.csv, .parquet), an .npz file, a folder of pictures, mnist, fashion-mnist, cifar10 or digits; with "
    "--owners once for each.  [asked for where it is left out]",
)
@click.option("--label", metavar="COLUMN", help="Of a table: what is to be predicted.")
@click.option("--agents", type=click.IntRange(1, 10_000), help="How many agents share the data.  [default: 3]")
@click.option("--epsilon", type=float, help="What every agent's whole transcript may cost.  [default: 3]")
@click.option("--delta", type=float, help="0: a pure guarantee.  [default: 1e-5, less where an agent has many samples]")
@click.option(
    "--bounds",
    multiple=True,
    metavar="COLUMN=LOW:HIGH|table",
    help="What is publicly known of a column's range; may be given several times.  table: the ranges in the table are "
    "public.",
)
@click.option("--missing", type=click.Choice(["middle"]), help="What an empty cell is: the middle of its bounds.")
@click.option("--ignore", multiple=True, metavar="COLUMN", help="A column to leave out; may be given several times.")
@click.option(
    "--owners", is_flag=True, help="Every --data is an owner's own: also a start-up folder with a policy each."
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME=ADDR[:PORT]",
    help="With --owners: where coordinator, agent-1, ... are reached.  Each then makes its key on its own host.  "
    "[default: all on this machine]",
)
@click.option("--out", type=click.Path(path_type=Path), help="[default: run.toml; with --owners the folder hosts]")
@common.format_option
def init(
    names: tuple[str, ...],
    label: str | None,
    agents: int | None,
    epsilon: float | None,
    delta: float | None,
    bounds: tuple[str, ...],
    missing: str | None,
    ignore: tuple[str, ...],
    owners: bool,
    hosts: tuple[str, ...],
    out: Path | None,
    format_: str,
) -> ExitCode:
    """Write a run file that learns at EPSILON, with its reasons as comments; without options, ask for them.

    Everything is chosen: features, scaling, mechanism, noise, clip, steps, rounds, graph.  It is chosen on data that
    are nobody's.  Then the plan is tried on the rows here, for this screen alone, beside every agent alone.
    """
    from dpgt_node.accounts.planner import Target
    from dpgt_node.cli.beginning.draft import drafted
    from dpgt_node.cli.beginning.made import Made, again, asked_again, said, to_json
    from dpgt_node.cli.pki.shared import parse_hosts

    if not names:
        try:
            names, label, agents, epsilon, bounds = _asked(label, agents, epsilon, bounds)
        except click.Abort as error:
            if not isinstance(error.__context__, EOFError):  # Ctrl-C
                raise
            click.echo(err=True)  # the question stands in this line
            message = "is needed: nobody answers here, for standard input is at its end"
            raise ConfigError.one("command line", "--data", message) from error
    count = len(names) if owners else agents or 3
    target, target_file = (
        Target(3.0 if epsilon is None else epsilon, delta),
        out or Path("hosts" if owners else "run.toml"),
    )
    problems = [Problem("command line", *why) for why in _contradictions(names, agents, hosts, owners=owners)]
    problems += target.problems(count)
    if target_file.exists():
        problems.append(Problem("command line", "--out", f"{target_file} is there already; choose another name"))
    own_hosts = hosts if owners else ()
    every = tuple(f"agent-{i + 1}" for i in range(len(names)))
    places = attempt(problems, lambda: parse_hosts(own_hosts, every) if own_hosts else {})
    draft = attempt(problems, lambda: drafted(names, label, bounds=bounds, missing=missing, ignore=ignore))
    if problems or draft is None or places is None:
        raise ConfigError(problems)
    folder = target_file.absolute() / "coordinator" if owners else target_file.absolute().parent
    _placed(draft, folder)
    if owners:
        _own(draft, names)
    try:
        chosen, shape = _planned(draft, names if owners else (), count, target, folder)
    except ConfigError as error:  # the run file is not there yet, so an option is to blame
        raise error.of_run_file("command line", "--agents", only={"graph.agents"}) from error
    text = _rendered(draft, chosen, shape)
    rows = _tried(chosen.plan.run, names if owners else ())
    steps = _next(target_file, chosen.plan.run)
    if owners:
        from dpgt_node.cli.beginning.owners import write_owners

        steps = write_owners(target_file, text, chosen.plan, names, places)
    else:
        from dpgt_node.durable import write_text

        target_file.parent.mkdir(parents=True, exist_ok=True)
        write_text(target_file, text)
        common.warn_of_data(chosen.plan.run, str(target_file), draft.uneven)
    for hint in draft.hints:
        _say(f"dpgt init: {hint}")
    made = Made(target_file, chosen, shape, rows, draft, tuple(steps))
    given = {"--data": names, "--label": (label,), "--agents": (None if owners else count,), "--delta": (delta,)}
    given |= {"--bounds": bounds, "--missing": (missing,), "--ignore": ignore, "--host": hosts}
    if draft.ready:
        _say("dpgt init: Where ranges like these, this table's own rounded outwards, are publicly known:")
        ready = {**given, "--bounds": (*bounds, *draft.ready)}
        for line in command(asked_again(made, ready, target.epsilon, owners=owners)):
            click.echo(line, err=True)
    if not made.learns:
        made = replace(made, steps=(*again(made, given, owners=owners), *steps[not owners :]))
    click.echo(json.dumps(to_json(made), indent=2, allow_nan=False) if format_ == "json" else "\n".join(said(made)))
    return ExitCode.DONE


def _contradictions(
    names: Sequence[str], agents: int | None, hosts: Sequence[str], *, owners: bool
) -> Iterator[tuple[str, str]]:
    """Options that do not go together: the one to blame, and why."""
    if len(names) > 1 and not owners:
        yield "--data", "several files are of several owners: add --owners"
    if owners and (len(names) < 2 or agents not in (None, len(names))):
        yield "--owners", f"needs a --data for each owner, two or more: here are {len(names)}"
    if hosts and not owners:
        yield "--host", "goes with --owners: launch starts all agents on this machine"


def _say(line: str) -> None:
    for part in wrapped(line):
        click.echo(part, err=True)


def _tried(run: RunConfig, files: Sequence[str]) -> OwnRows | None:
    """What comes of the run on the rows that are here, for this screen alone."""
    from dpgt_node.sim.own_rows import tried

    _say("dpgt init: trying the plan on the rows here, for this screen alone")
    return tried(run, common.data_root(), [Path(name).expanduser().absolute() for name in files])


def _asked(
    label: str | None, agents: int | None, epsilon: float | None, bounds: tuple[str, ...]
) -> tuple[tuple[str, ...], str | None, int, float, tuple[str, ...]]:
    """The short dialogue."""
    from dpgt_node.cli.beginning.draft import FROM_TABLE, is_table
    from dpgt_node.config.data import expanded
    from dpgt_node.learning.data.tables import read_table

    name = click.prompt("Data (a .csv, .parquet or .npz file, a folder of pictures, mnist, ...)", err=True)
    if is_table(expanded(name)):
        columns = read_table(expanded(name))[0]
        if label is None:
            label = click.prompt(f"Column to predict ({', '.join(columns)})", default=columns[-1], err=True)
        if not bounds and click.confirm("Are the smallest and largest values of its columns public?", err=True):
            bounds = (FROM_TABLE,)
    agents = agents or click.prompt("Agents that share the data", default=3, type=click.IntRange(1), err=True)
    if epsilon is None:
        epsilon = click.prompt("Epsilon of each (1 is strong, 10 is weak)", default=3.0, type=float, err=True)
    return (name,), label, agents, epsilon, bounds


def _placed(draft: Draft, folder: Path) -> None:
    """The data path relative to the run file's folder."""
    kind, colon, path = draft.data["dataset"].partition(":")
    if colon:
        where = os.path.relpath(Path(path).expanduser().absolute(), folder)
        draft.data["dataset"] = f"{kind}:{where}"


def _own(draft: Draft, names: Sequence[str]) -> None:
    """What differs where every host has its own data: none has the run file's, and each keeps a test set back."""
    from dpgt_node.cli.beginning.draft import TEST_SHARE

    kind, colon, _ = draft.data["dataset"].partition(":")
    if not colon:
        raise ConfigError.one("command line", "--owners", f"needs data of the owners' own: {names[0]} is everybody's")
    draft.data["dataset"] = f"{kind}:{_OWN}{Path(names[0]).suffix.lower()}"
    if draft.data.pop("test_fraction", None) or "label" in draft.data:
        draft.data["own_test_fraction"] = TEST_SHARE
        draft.reasons = [one for one in draft.reasons if not one.startswith("test_fraction:")]
        draft.reasons.append("own_test_fraction: a fifth of every owner's data is its test set and not trained on")


def _planned(draft: Draft, files: Sequence[str], count: int, target: Target, folder: Path) -> tuple[Choice, Shape]:
    """The best plan of those that the inputs which suit the data give, by what stand-in data say of each."""
    from dpgt_node.sim.plans.choosing import choose, suited

    run = _run(draft, _name(draft, files), count, folder)
    shape = _shape(run, files)
    tried = suited(run.data.dataset, shape.p)
    chosen = choose(run, shape, target, tried, progress=lambda line: _say(f"dpgt init: {line}"))
    return chosen, shape


def _name(draft: Draft, files: Sequence[str]) -> str:
    """Of the run: after the file that all share; where every owner has one, after what is predicted."""
    if files:
        return f"{str(draft.data.get('label', 'pictures'))[:80]} of {len(files)} owners"
    return draft.data["dataset"].rpartition("/")[2].rpartition(":")[2].partition(".")[0][:100] or "run"


def _run(draft: Draft, name: str, count: int, folder: Path) -> RunConfig:
    """What is planned: a run without noise and steps of its own."""
    from dpgt_node.config import parse_document
    from dpgt_node.privacy.mechanisms import NOISE_ONCE

    ways: dict[str, Any] = {"generator": "complete"}
    if count > _COMPLETE:
        ways = {"generator": "circulant", "offsets": sorted({o for o in (1, 3, 9, 27, 81) if o < count})}
    return parse_document(
        {
            "name": name,
            "algorithm": {"mechanism": NOISE_ONCE.name, "iterations": 1},
            "scheme": {"kind": "S2", "alpha": 0.1, "beta": 0.1, "gamma": 1.0, "p_m": 1.0, "samples": "full"},
            "noise": {"multiplier": 0.0},
            "graph": {"agents": count, "R": ways, "C": ways},
            "data": draft.data,
            "runtime": {"barrier_every": _BARRIER_EVERY},
        },
        draft.data["dataset"],
        folder,
    )


def _shape(run: RunConfig, files: Sequence[str]) -> Shape:
    """The shape of the data; ``files``: of the owners, none: all agents share one."""
    from dpgt_node.learning.data.pictures.folders import measure
    from dpgt_node.learning.data.shards import own_file
    from dpgt_node.sim.plans.choosing import is_tabular
    from dpgt_node.sim.plans.rehearsal import Shape

    if not files:
        return find_shape(run, "dpgt init", None)
    held = [own_file(run, Path(name).expanduser().absolute()) for name in files]
    for data in held:
        measure(data)
    p = int(held[0].x_train.shape[1])
    tabular = is_tabular(run.data.dataset, p, picture=held[0].image is not None)
    return Shape(p, held[0].classes, tuple(len(data.y_train) for data in held), tabular)


def _rendered(draft: Draft, chosen: Choice, shape: Shape) -> str:
    from dpgt_node.cli.beginning.rendering import looked_at, render

    text = render(chosen, shape.stand_in, looked_at(shape, None), shape.samples, draft.reasons)
    return text.replace("# dpgt plan:", "# dpgt init:", 1)


def _next(target: Path, run: RunConfig) -> list[str]:
    """What to type, with names that are free here."""
    from dpgt_node.cli.beginning.made import free

    rows = {"csv": "new.csv", "parquet": "new.csv", "folder": "pictures"}.get(
        run.data.dataset.partition(":")[0], "new.npy"
    )
    first = target.stem == "run"
    out, model = map(
        shlex.quote,
        free("runs/first" if first else f"runs/{target.stem}", "model" if first else f"model-{target.stem}"),
    )
    typed = shlex.quote(str(target))
    return [
        "Next:",
        f"dpgt launch {typed} --out {out}",
        f"dpgt export {out} --out {model}",
        f"dpgt evaluate {model} --run {typed}",
        f"dpgt predict {model} --data {rows}",
    ]
