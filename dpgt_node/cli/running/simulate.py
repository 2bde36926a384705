"""``dpgt simulate``: the same run in one process."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
from rich.console import Console

from dpgt_node.cli import common, signals
from dpgt_node.cli.wrapping import say
from dpgt_node.errors import ConfigError, DpgtError, ExitCode

if TYPE_CHECKING:
    from dpgt_node.record.recorder import RunRecorder


@click.command()
@common.run_argument
@common.out_option
@click.option(
    "--fast",
    is_flag=True,
    help="All agents at once as matrices: same noise and batches, other bits; values agree to 1e-9 relative "
    "(1e-5 on a float32 wire) on runs that converge.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where torch models compute; cuda means --fast.",
)
@common.alone_option
@common.test_keystream_option
@common.format_option
def simulate(
    run_file: Path,
    out: Path,
    fast: bool,
    device: Literal["cpu", "cuda"],
    alone: bool,
    test_keystream: str | None,
    format_: str,
) -> ExitCode:
    """Run RUN.toml in this process, no sockets: the daemons' own per-agent functions and the same bits, or --fast."""
    from dpgt_node.algo.methods.dsgd.central import curated
    from dpgt_node.cli.running.ended import print_result
    from dpgt_node.cli.running.live import LiveAgent, LiveStatus, LiveView
    from dpgt_node.config import Adversary
    from dpgt_node.learning.oracle import check_device
    from dpgt_node.record.rivals import write_rivals
    from dpgt_node.runtime.coordinator import outdir
    from dpgt_node.runtime.process import raise_open_files, tune_malloc
    from dpgt_node.sim import saved
    from dpgt_node.sim.fast import simulate_fast
    from dpgt_node.sim.rivals import check_rivals, rivals, trivial
    from dpgt_node.sim.simulate import simulate as simulate_all

    run, fast = curated(common.load_local_run(run_file)), fast or device == "cuda"
    if fast and run.adversary != Adversary():
        raise ConfigError.one(
            "command line", "--fast", f"{run_file} has [adversary], and --fast records nothing: simulate it without"
        )
    if alone:
        check_rivals(run, "command line")
    check_device(run, device)
    common.check_keystream(run, test_keystream)
    common.check_startable(run, str(run_file), counted=True, simulated=True)
    common.check_memory(run)
    common.warn_of_data(run, str(run_file))
    simulation = partial(simulate_fast, device=device, threads=common.threads()) if fast else simulate_all
    console = Console(stderr=format_ == "json")
    interrupted = False
    first: int | None = None
    tune_malloc()
    raise_open_files()

    def stop(_number: int, _frame: object) -> None:
        """In order after a round; at once before the first, where costs are computed, and the second time."""
        nonlocal interrupted
        if interrupted or first is None:
            raise KeyboardInterrupt
        interrupted = True

    with outdir.claim(out):
        keystream = "test" if test_keystream is not None else None
        claimed = outdir.prepare(out, run, source="command line", keystream=keystream, by="simulate")
        if claimed.resumed and saved.begins_anew(out):
            message = f"{out}: begins again from round 0: what ran there before was killed ahead of its first save"
            say(f"dpgt simulate: {message} (one a minute at most)", err=True)
        if (beside := trivial(run, common.data_root())) is not None:
            with outdir.blamed(out):
                write_rivals(out, beside)
        with LiveView(run, console, keystream=keystream) as view:

            def progress(k: int, recorder: RunRecorder, seconds: float) -> None:
                nonlocal first
                first = k if first is None else first
                agents = tuple(
                    LiveAgent(
                        name,
                        True,
                        k - 1,
                        recorder.accuracy[name],
                        recorder.spent(name, k - 1),
                        recorder.worth(name, k - 1),
                    )
                    for name in run.graph.agents
                )
                rate = (k - first) / seconds if seconds > 0 and k > first else None
                of = recorder.accountant
                view.update(
                    LiveStatus("running", k - 1, run.K, agents, rate, recorder.consensus, of, run.privacy.delta)
                )

            previous = {number: signal.signal(number, stop) for number in signals.ending_signals()}
            try:
                with outdir.blamed(out):
                    conclude, summary = simulation(
                        run,
                        out,
                        claimed.run_id,
                        data_root=common.data_root(),
                        test_keystream=test_keystream,
                        on_round=progress,
                        should_stop=lambda: interrupted,
                    )
            finally:
                for number, handler in previous.items():
                    signal.signal(number, handler)
        if conclude.exit_code is not ExitCode.DONE:
            common.report_or_word(out)
            error = DpgtError(f"{conclude.reason}\ngo on with the same command and --out {out}")
            error.exit_code = conclude.exit_code
            raise error
        with common.finished("simulate", out):
            if alone:
                with common.after_run("what agents reach alone"):
                    write_rivals(out, rivals(run, common.data_root()))
            common.report_or_word(out)
            print_result(run, summary, out, console, format_)
    return ExitCode.DONE
