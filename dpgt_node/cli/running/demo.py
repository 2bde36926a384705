"""``dpgt demo``: five agents learn handwritten digits on this machine, with a report at the end."""

from __future__ import annotations

import time
from pathlib import Path

import click
from rich.console import Console

from dpgt_node.cli import common
from dpgt_node.cli.eavesdrop.demo import eavesdropped, watched
from dpgt_node.cli.running.launch import launch_run
from dpgt_node.cli.wrapping import say
from dpgt_node.errors import ExitCode


@click.command()
@click.option("--out", type=common.FOLDER, help="Default: runs/demo-DATE-TIME.")
@click.option("--iterations", metavar="K", type=int, help="Rounds k = 0..K.  [default: 200; with --private 100]")
@click.option("--seed", metavar="N", type=int, help="Partition and initial values; never noise.")
@click.option("--private", is_flag=True, help="At epsilon 8 and delta 1e-5, instead of the paper's mechanism.")
@click.option("--no-eavesdrop", is_flag=True, help="Without the eavesdropper: no tap on the run, no attacks after it.")
@click.pass_context
def demo(
    context: click.Context,
    out: Path | None,
    iterations: int | None,
    seed: int | None,
    private: bool,
    no_eavesdrop: bool,
) -> ExitCode:
    """Five agent processes and a coordinator over mTLS on loopback, real handwritten digits, a report at the end."""
    from dpgt_node.config import demo_toml, parse_run, with_overrides

    run = parse_run(demo_toml(private=private), "the demo's run file", Path.cwd())
    run = with_overrides(run, iterations=iterations, seed=seed)
    folder = out if out is not None else Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    if no_eavesdrop:
        code = launch_run(context, run, "the demo's run file", folder)
    else:
        code = launch_run(
            context,
            run,
            "the demo's run file",
            folder,
            places=watched(run, folder),
            after=lambda: eavesdropped(run, folder, Console()),
        )
    if not private:
        say("The same digits with a privacy guarantee that holds, epsilon 8 at delta 1e-5:\n  dpgt demo --private")
    return code
