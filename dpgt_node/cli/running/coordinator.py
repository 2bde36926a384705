"""``dpgt coordinator``: waits for the n agents, runs the K+1 rounds, writes the results."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

import click

from dpgt_node.cli import common, lazy, logs, signals
from dpgt_node.cli.running.loops import daemons_loop
from dpgt_node.errors import ConfigError, ExitCode


@click.command()
@click.option("--config", "run_file", required=True, metavar="RUN.toml", type=click.Path(path_type=Path))
@click.option("--listen", required=True, metavar="HOST:PORT", help="Port 0 takes any free one (see coordinator.json).")
@common.out_option
@click.option("--tls", "tls_folder", type=click.Path(path_type=Path), help="Folder with ca.pem, cert.pem, key.pem.")
@click.option("--insecure", is_flag=True, help="No TLS: everybody on the network can read, send and control.")
@common.test_keystream_option
@common.http_option
@common.metrics_option
@common.health_option
@click.option("--page-waits", is_flag=True, hidden=True)  # of launch on a terminal
@logs.log_format_option
@common.die_with_parent_option
@click.pass_context
def coordinator(
    context: click.Context,
    run_file: Path,
    listen: str,
    out: Path,
    tls_folder: Path | None,
    insecure: bool,
    test_keystream: str | None,
    http: str | None,
    metrics: str | None,
    health: str | None,
    page_waits: bool,
    die_with_parent: int | None,
) -> ExitCode:
    """Coordinate one run in the foreground; exits 0 when every agent finished."""
    from dpgt_node.config import load_run
    from dpgt_node.runtime import process
    from dpgt_node.runtime.coordinator import outdir

    common.daemon_logging(context)
    if die_with_parent is not None:
        process.die_with_parent(die_with_parent)
    process.tune_malloc()
    process.raise_open_files()
    run = load_run(run_file)
    if insecure == (tls_folder is not None):
        raise ConfigError.one("command line", "--tls", "give exactly one of --tls DIR and --insecure")
    common.check_address(listen, "--listen")
    common.check_keystream(run, test_keystream)
    common.check_startable(run, str(run_file), warn=False)

    from dpgt_node.runtime.coordinator.serve import serve
    from dpgt_node.runtime.launch.hostcheck import require_files
    from dpgt_node.runtime.watching.sites import HEALTH, HTTP, METRICS, Sites

    require_files(2 * run.n, str(run_file))

    sites = Sites({HTTP: http, METRICS: metrics, HEALTH: health})

    async def main() -> ExitCode:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in signals.ending_signals():
            loop.add_signal_handler(number, lambda: signals.end_now("coordinator") if stop.is_set() else stop.set())
        keystream = "test" if test_keystream is not None else None
        outcome = await serve(
            run, out, listen, tls_folder, keystream=keystream, stop=stop, sites=sites, page_waits=page_waits
        )
        if outcome.summary is not None:
            with outdir.blamed(out):
                path = await _report(out, stop, outcome.conclude.exit_code)
                (out / outdir.CLOSING_FILE).unlink(missing_ok=True)
            if path is not None:
                logging.getLogger(__name__).info("report: %s", path)
        if outcome.conclude.exit_code is not ExitCode.DONE:
            with contextlib.suppress(OSError):  # its log may lie on the disk that is full
                logs.tell(f"dpgt coordinator: {outcome.conclude.status}: {outcome.conclude.reason}")
        return outcome.conclude.exit_code

    lazy.settle()
    return common.run_async(main(), daemons_loop)


async def _report(out: Path, stop: asyncio.Event, code: ExitCode) -> Path | None:
    """The report of the run, which is over.  A signal that comes now ends the process with ``code`` and true advice."""
    from dpgt_node.runtime.coordinator import outdir

    making = asyncio.ensure_future(asyncio.to_thread(common.report_or_word, out))
    if not stop.is_set():  # else this signal is what ended the run, and the report is of that
        asked = asyncio.ensure_future(stop.wait())
        await asyncio.wait((making, asked), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not making.done():  # a thread that cannot be stopped
            (out / outdir.CLOSING_FILE).unlink(missing_ok=True)
            words = f"interrupted; the run in {out} is over, and `dpgt report {out}` makes its report"
            signals.end_now("coordinator", words, code)
    return await making
