"""``dpgt launch``: one coordinator and n node processes on this machine."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
from rich.console import Console

from dpgt_node import figures
from dpgt_node.cli import common, logs
from dpgt_node.errors import ConfigError, DpgtError, ExitCode

if TYPE_CHECKING:
    from dpgt_node.cli.running.live import LiveStatus
    from dpgt_node.config import RunConfig
    from dpgt_node.protocol.messages import StatusReply
    from dpgt_node.record.summary import Summary
    from dpgt_node.runtime.launch.places import Places
    from dpgt_node.runtime.launch.watched import Watched


ABSENT_SHOWN = 5
"""So many agents that never came are named."""


@click.command()
@common.run_argument
@common.out_option
@click.option("--insecure", is_flag=True, help="No TLS between the processes.")
@click.option("--no-restart", is_flag=True, help="A killed process ends the run.")
@click.option(
    "--durability",
    type=click.Choice(["process", "power"]),
    help="What a release survives before it is sent: the end of its process, or of the machine's power.  "
    "[default: power where noise is shared, else process]",
)
@common.alone_option
@common.test_keystream_option
@click.option(
    "--tap",
    metavar="FILE.pcap",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Let an eavesdropper record what agents send each other, in a new file (docs/howto/eavesdrop.md).",
)
@click.option("--tap-links", metavar="A>B,...", help="With --tap: only these links.  [default: all]")
@common.http_option
@common.metrics_option
@logs.log_format_option
@common.format_option
@click.option("--places", "places_file", hidden=True, type=click.Path(path_type=Path))  # of eavesdrop lab
@common.die_with_parent_option
@click.pass_context
def launch(
    context: click.Context,
    run_file: Path,
    out: Path,
    insecure: bool,
    no_restart: bool,
    durability: Literal["process", "power"] | None,
    alone: bool,
    test_keystream: str | None,
    tap: Path | None,
    tap_links: str | None,
    http: str | None,
    metrics: str | None,
    format_: str,
    places_file: Path | None,
    die_with_parent: int | None,
) -> ExitCode:
    """Run RUN.toml for real on this machine: mTLS with freshly minted certificates, one process an agent."""
    from dpgt_node.cli.eavesdrop.tapped_launch import check_capture, parse_links, tapped
    from dpgt_node.config import with_overrides
    from dpgt_node.runtime import process
    from dpgt_node.runtime.launch.places import read_places
    from dpgt_node.runtime.launch.watched import Watched

    if die_with_parent is not None:
        process.die_with_parent(die_with_parent)
    run = common.load_local_run(run_file)
    if insecure:
        run = with_overrides(run, channel="plain")
    places: AbstractAsyncContextManager[Places | None] = contextlib.nullcontext()
    if tap is not None:
        check_capture(tap, "--tap")
        places = tapped(run, tap, parse_links(tap_links, run, "--tap-links"))
    elif tap_links is not None:
        raise ConfigError.one("command line", "--tap-links", "goes with --tap FILE.pcap")
    elif places_file is not None:
        places = contextlib.nullcontext(read_places(places_file))
    return launch_run(
        context,
        run,
        str(run_file),
        out,
        durability,
        test_keystream,
        restart=not no_restart,
        alone=alone,
        watched=Watched(http, metrics, waits=sys.stdout.isatty()),
        places=places,
        format_=format_,
        go_on="" if tap is None else f", and --tap with another file name than {tap}",
    )


def launch_run(
    context: click.Context,
    run: RunConfig,
    source: str,
    out: Path,
    durability: Literal["process", "power"] | None = None,
    test_keystream: str | None = None,
    *,
    restart: bool = True,
    alone: bool = False,
    watched: Watched | None = None,
    places: AbstractAsyncContextManager[Places | None] | None = None,
    format_: str = "text",
    go_on: str = "",
    after: Callable[[], None] | None = None,
) -> ExitCode:
    """What launch and demo share: checks, the processes, the live view, the summary.

    ``alone``: what agents reach without exchange is computed here at the end, and printed beside the rest.
    ``format_``: of the result on standard output; with "json" all else goes to standard error.  ``places``: of the
    processes, open for as long as they run (:func:`dpgt_node.cli.eavesdrop.tapped_launch.tapped`).
    ``go_on``: what to change in the command that goes on with a run that was stopped.  ``after``: what is done when the
    run is finished, unless a signal came.  ``watched``: where the processes serve their pages.
    """
    from dpgt_node.cli.checking.facts import disk_needs
    from dpgt_node.cli.running.ended import print_result, say
    from dpgt_node.cli.running.live import LiveView
    from dpgt_node.config.privacy.cancelling import masks
    from dpgt_node.durable import contents
    from dpgt_node.record.rivals import write_rivals
    from dpgt_node.record.summary import load_summary
    from dpgt_node.runtime import process
    from dpgt_node.runtime.agent.sharing import require_means
    from dpgt_node.runtime.coordinator import outdir
    from dpgt_node.runtime.disk import require_room
    from dpgt_node.runtime.launch import hostcheck, launcher, supervisor
    from dpgt_node.sim.rivals import check_rivals, rivals, trivial

    console = Console(stderr=format_ == "json")
    process.raise_open_files()
    hostcheck.require_files(2 * run.n, source)
    if alone:
        check_rivals(run, "command line")
    common.check_keystream(run, test_keystream)
    durability = durability or ("process" if masks(run) is None else "power")
    if test_keystream is None:
        secure, keys = run.runtime.channel == "mtls", ("--insecure", "--durability")
        require_means(run, "command line", secure=secure, durability=durability, keys=keys)
    common.check_startable(run, source, counted=True)
    common.check_memory(run)
    common.warn_of_data(run, source)
    if not contents(out):  # what goes on is checked by each node
        needed = sum(need.total for need in disk_needs(run))
        require_room(out, needed, source="command line", key="--out", hint="free some, or choose another folder")
    with outdir.claim(out):
        keystream = "test" if test_keystream is not None else None
        claimed = outdir.prepare(out, run, source="command line", keystream=keystream, close=True)
        if (beside := trivial(run, common.data_root())) is not None:
            with outdir.blamed(out):
                write_rivals(out, beside)
        outdir.settle(out, source="command line")  # a coordinator or node started by hand keeps its files
        say(console, f"{run.name}: {run.n} agents, rounds 0..{run.K}, {run.runtime.channel}, in {out}")

        launched: launcher.Launcher | None = None

        async def main() -> supervisor.Ended:
            nonlocal launched
            with LiveView(run, console, keystream=keystream) as view:
                async with places or contextlib.nullcontext() as where:
                    launched = launcher.Launcher(
                        run,
                        claimed,
                        restart=restart,
                        durability=durability,
                        test_keystream=test_keystream,
                        places=where,
                        on_status=lambda status: view.update(live_status(status)),
                        say=lambda line: say(console, line),
                        log_level=str(context.find_root().meta.get("log_level", "info")),
                        watched=watched,
                        log_format=logs.log_format(context),
                    )
                    ended = await launched.run()
                    if ended.exit_code is ExitCode.DONE and (last := load_summary(out)) is not None:
                        view.update(last_status(last, run.K))
                    return ended

        ended = common.run_async(main())
        interrupted = launched is not None and launched.interrupted
    if ended.exit_code is not ExitCode.DONE:
        hint = f"\ngo on with the same command and --out {out}{go_on}" if ended.exit_code is ExitCode.STOPPED else ""
        error = DpgtError(ended.reason + hint)
        error.exit_code = ended.exit_code
        raise error
    with common.finished(str(context.info_name), out):
        summary = load_summary(out)
        assert summary is not None
        if alone and not interrupted:
            with common.after_run("what agents reach alone"):
                write_rivals(out, rivals(run, common.data_root()))
            common.report_or_word(out)
        print_result(run, summary, out, console, format_)
        if watched is not None and watched.http is not None:
            say(console, f"The live page is closed: its curves are in the report, its events in {out / 'events.jsonl'}")
        if after is not None:
            if interrupted:
                raise KeyboardInterrupt
            after()
    return ExitCode.DONE


def live_status(status: StatusReply) -> LiveStatus:
    """The coordinator's status as the live view takes it."""
    from dpgt_node.cli.running.live import LiveAgent, LiveStatus

    agents = tuple(LiveAgent(a.name, a.connected, a.k, a.accuracy_test, a.epsilon, a.strength) for a in status.agents)
    return LiveStatus(
        status.state,
        status.k,
        status.K,
        agents,
        status.rounds_per_second or None,
        status.consensus_error,
        status.accountant,
        status.delta,
        "" if status.over else _trouble(status),
        status.over,
    )


def last_status(summary: Summary, K: int) -> LiveStatus:
    """The end of a finished run, which is over before its coordinator can be asked again."""
    from dpgt_node.cli.running.live import LiveAgent, LiveStatus
    from dpgt_node.record import epsilons

    accountant = epsilons.shown(summary)
    agents = []
    for agent in summary.agents:
        spent = None if accountant is None else agent.epsilon[accountant]
        word = "" if accountant is None else epsilons.word(summary, accountant, spent)
        agents.append(LiveAgent(agent.name, True, K, agent.accuracy_test, spent, word))
    rate, error = summary.rounds_per_second, summary.consensus_error
    return LiveStatus(summary.status, K, K, tuple(agents), rate, error, accountant, summary.privacy.delta, over=True)


def _trouble(status: StatusReply) -> str:
    """Who is missing, for how long, until when; empty when all is well."""
    until = "" if status.gives_up_s is None else f"; the run ends in {status.gives_up_s:.0f} s unless they come"
    if any(a.state in ("left", "silent", "cut", "slow") for a in status.agents):
        return status.reason + until
    absent = [f"{a.name} ({a.missing_s:.0f} s)" for a in status.agents if a.missing_s is not None]
    if absent:
        return f"waited for: {figures.some(absent, ABSENT_SHOWN)}{until}"
    return status.reason if status.state in ("running", "paused") else ""
