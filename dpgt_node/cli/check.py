"""``dpgt check``: everything the theory says about a run file before anything starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from dpgt_node.cli.checking.facts import (
    absent_data,
    disk_json,
    disk_needs,
    examine,
    expected,
    looked_at,
    tables,
    towards,
    warned_delta,
    words,
)
from dpgt_node.cli.common import (
    alike_option,
    check_startable,
    data_root,
    format_option,
    out_of_range,
    reddened,
    run_argument,
)
from dpgt_node.cli.wrapping import fitted, say
from dpgt_node.config import load_run
from dpgt_node.errors import ConfigError, ExitCode


@click.command()
@run_argument
@format_option
@click.option(
    "--alone",
    is_flag=True,
    help="Also rehearse the run on synthetic data, beside every agent alone: is the exchange expected to pay?",
)
@alike_option
@click.option("--all", "everything", is_flag=True, help="Every condition, table and figure, up to 160 columns wide.")
@click.option("--shape", "shape_text", metavar="P,CLASSES,D", help="With --alone: as for dpgt plan.")
def check(
    run_file: Path, format_: str, alone: bool, alike: str | None, everything: bool, shape_text: str | None
) -> ExitCode:
    """Check the assumptions, step bounds and theorem conditions of RUN.toml; predict rates and epsilon.

    What fails comes first; what holds is shown by --all.

    Exits 1 when a condition fails without which a run is refused, or when launch and simulate would refuse its data or
    model; all others are warnings. Exits 2 when a file of its data is not there, unless [data] states the classes: each
    agent may have a file of its own then. A line "Data: ..." says so, as of a picture set that was not fetched, and
    epsilon may not be known here.
    """
    from dpgt_node.agent.roles import check_coordinates
    from dpgt_node.algo.methods.dsgd.central import curated
    from dpgt_node.cli.checking.brief import brief
    from dpgt_node.cli.checking.full import disk_lines, render
    from dpgt_node.cli.checking.hiding import dimension, price
    from dpgt_node.learning.oracle import data_absent, data_problem, odd_about_data

    run = curated(load_run(run_file))
    if data_absent(run):
        check_startable(run, str(run_file), counted=True, simulated=True)
    report, unknown, memory = examine(run), None, None
    if not alone and (alike is not None or shape_text is not None):
        raise ConfigError.one("command line", "--alike" if shape_text is None else "--shape", "goes with --alone")
    staying = expected(run, str(run_file), alike, shape_text) if alone and not report.failed_hard else None
    refused = data_problem(run, data_root())
    try:
        needs, memory = disk_needs(run), tables(run)
    except ConfigError as error:  # m_K > D, which the report says too; a model that this machine cannot build
        needs, unknown = (), str(error).splitlines()[0]
        refused = None if report.failed_hard else str(error.of_run_file(run_file))
    if refused is None and not report.failed_hard:
        refused = str(ConfigError(out_of_range(run)).of_run_file(run_file)) or None
    if refused is None and run.adversary.active and (d := dimension(run)) is not None:
        try:
            check_coordinates(run, d)
        except ConfigError as error:
            refused = str(error.of_run_file(run_file))
    odd, cost = (*absent_data(run), *odd_about_data(run, data_root())), price(run)
    if format_ == "json":
        by_agent = [words(report, i) for i in range(run.n)]
        strength = {name: [one[name] for one in by_agent] for name in report.epsilon}
        document = {
            **report.to_json(),
            "strength": strength,
            "delta_warning": warned_delta(report),
            "looked_at": looked_at(report),
            "data": list(odd),
            "refused": refused,
            "disk": disk_json(needs),
            "tables": None if memory is None else {"agents": list(memory.agents) or None, "words": memory.words},
        }
        if cost is not None:
            document["traffic"] = cost.to_json()
        if staying is not None:
            document["alone"] = {
                "expected_alone": staying.alone,
                "expected_worst": staying.exchange.worst,
                "expected_mean": staying.exchange.mean,
                "alike": staying.alike.words,
            }
        if (whom := towards(report)) is not None:
            document |= {"towards": whom.to_json(), "epsilon_towards": whom.by_t()}
        click.echo(json.dumps(document, allow_nan=False, indent=2))
    else:
        lines = (refused or "").splitlines()
        if everything:
            said = [render(report, disk_lines(needs, unknown, memory), odd), *(f"Refused: {line}" for line in lines)]
            said += [f"[traffic]: {cost.words}."] if cost is not None else []
        else:
            said = [brief(report, needs, odd, lines, memory, None if cost is None else cost.words)]
        for line in run.adversary.active.warnings():
            click.secho(fitted(line, sys.stdout.isatty()), fg="red", bold=True)
        say(reddened("\n".join(said[:1])))
        if staying is not None:
            say(staying.words)
        for line in said[1:]:
            say(line)
    return ExitCode.CHECK_FAILED if report.failed_hard or refused is not None else ExitCode.DONE
