"""What several verbs share: options, the data folder, checks before anything starts."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dpgt_node import cli
from dpgt_node.cli import signals
from dpgt_node.cli.logs import remark, tell
from dpgt_node.config import RunConfig, listen_address, parse_address
from dpgt_node.errors import ConfigError, DpgtError, Problem, attempt

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class _Folder(click.Path):
    """A folder's path.  Empty is a mistake (an unset variable in a script), not the current folder."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """The path; a usage error for an empty one."""
        if value == "":
            self.fail("the path is empty", parameter, context)
        return super().convert(value, parameter, context)


FOLDER = _Folder(path_type=Path, file_okay=False)
run_argument = click.argument("run_file", metavar="RUN.toml", type=click.Path(path_type=Path))
out_option = click.option(
    "--out",
    required=True,
    type=FOLDER,
    help="Folder for everything the run writes.",
)
test_keystream_option = click.option(
    "--test-keystream", metavar="HEX", help="Derive all noise from HEX: no privacy at all, for tests; study runs only."
)
alike_option = click.option(
    "--alike",
    metavar="iid|by-label:N|dirichlet:ALPHA",
    help="How alike the agents' data are, as you state it: N classes an agent, or mixtures of classes.  [default: as "
    "the run file's partition]",
)
alone_option = click.option(
    "--alone",
    is_flag=True,
    help="Also train every agent alone, without exchange and noise, and print what that reaches beside the run; study "
    "runs only.",
)
metrics_option = click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    callback=lambda _context, _parameter, value: listen_option(value, "--metrics"),
    help="Serve Prometheus metrics at http://HOST:PORT/metrics; HOST: the loopback by default.",
)
health_option = click.option(
    "--health",
    metavar="[HOST:]PORT",
    callback=lambda _context, _parameter, value: listen_option(value, "--health"),
    help="Answer probes at http://HOST:PORT/livez and /readyz; HOST: the loopback by default.",
)
http_option = click.option(
    "--http",
    metavar="[HOST:]PORT",
    callback=lambda _context, _parameter, value: listen_option(value, "--http"),
    help="Serve the live page of the run at http://HOST:PORT/; HOST: the loopback by default.",
)
die_with_parent_option = click.option("--die-with-parent", type=int, hidden=True)
format_option = click.option(
    "--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True
)


def daemon_logging(context: click.Context) -> None:
    """Daemons log at info unless told otherwise."""
    if "log_level" not in context.find_root().meta:
        logging.getLogger().setLevel(logging.INFO)


def reddened(text: str) -> str:
    """``text`` with the word for an epsilon that protects nothing in red, on a terminal that wants colours."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return text.replace("(none)", click.style("(none)", fg="red")).replace(
        "WARNING:", click.style("WARNING:", fg="red")
    )


def threads() -> int:
    """How many threads of ours may share one computation: OMP_NUM_THREADS, else the processors of this process.

    BLAS has one in any case, so that numbers are the same bits.
    """
    granted = cli.THREADS_GRANTED
    return int(granted) if granted.isdecimal() and int(granted) else cli.cores()


def data_root() -> Path | None:
    """Where picture sets live: ``DPGT_DATA``, by default ``dpgt`` in the user's cache folder.

    None for a user without a home folder, as in containers: only who asks for such a set needs one.
    """
    value = os.environ.get("DPGT_DATA")
    if value:
        return Path(value)
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(cache) if cache else Path.home() / ".cache") / "dpgt"
    except RuntimeError:
        return None


def load_local_run(path: Path) -> RunConfig:
    """The run at ``path`` with absolute data paths: what launch and simulate copy into the output folder."""
    from dpgt_node.config import load_run, parse_run, to_toml

    return parse_run(to_toml(load_run(path), absolute_paths=True), str(path), path.absolute().parent)


def check_address(text: str, option: str) -> None:
    """ConfigError naming ``option`` unless ``text`` is HOST:PORT."""
    try:
        parse_address(text)
    except ValueError as error:
        raise ConfigError.one("command line", option, str(error)) from error


def check_dialled(text: str, option: str) -> None:
    """ConfigError naming ``option`` unless ``text`` is HOST:PORT that a process may listen on."""
    check_address(text, option)
    if parse_address(text)[1] == 0:
        raise ConfigError.one("command line", option, f"{text}: port 0 cannot be dialled")


def listen_option(text: str | None, option: str) -> str | None:
    """[HOST:]PORT as HOST:PORT; ConfigError naming ``option`` unless it is one."""
    if text is None:
        return None
    try:
        return listen_address(text)
    except ValueError as error:
        raise ConfigError.one("command line", option, str(error)) from error


def check_file(path: Path, option: str) -> None:
    """ConfigError naming ``option`` unless a file can be written at ``path``; it is there then, perhaps empty."""
    try:
        with path.open("ab"):
            pass
    except OSError as error:
        raise ConfigError.one("command line", option, f"{path} cannot be written: {error.strerror}") from error


def check_keystream(run: RunConfig, keystream: str | None) -> None:
    """The test keystream only where nobody may mistake the run for a private one."""
    if keystream is None:
        return
    if run.evaluate.metrics != "study":
        raise ConfigError.one(
            "command line", "--test-keystream", 'is refused unless evaluate.metrics = "study" in the run file'
        )
    from dpgt_node.privacy.laws.keystream import TestKeystream

    TestKeystream(keystream, 0)  # raises for bad digits


def check_startable(
    run: RunConfig,
    source: str,
    *,
    counted: bool = False,
    warn: bool = True,
    simulated: bool = False,
) -> None:
    """Hard conditions, all at once: Assumption 1, a_i and b_i in [0, 1), 1 <= m_K <= every known D.

    ``counted``: the data must be on this machine, and say D.  ``warn``: step sizes beyond Lemma 1's bounds are said.
    ``simulated``: in one process, where a method may run that daemons do not carry out.
    """
    from dpgt_node.algo.graph import Topology
    from dpgt_node.algo.hard import hard_failures
    from dpgt_node.algo.methods import method_of
    from dpgt_node.algo.schedule import Schedule

    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    samples: tuple[int | None, ...] = (None,) * run.n
    problems: list[Problem] = []
    if not simulated and (why := method_of(run).simulated):
        message = f'"{run.algorithm.method}" is for dpgt simulate alone: {why}'
        problems.append(Problem(source, "algorithm.method", message))
    if counted:
        from dpgt_node.learning.oracle import sample_counts

        samples = attempt(problems, lambda: sample_counts(run, data_root())) or samples
    problems.extend(Problem(source, *failure) for failure in hard_failures(run, topology, schedule, samples))
    if problems:
        raise ConfigError(problems)
    if unreachable := out_of_range(run):
        raise ConfigError(replace(problem, source=source) for problem in unreachable)
    if warn and method_of(run).theorems:
        from dpgt_node.algo.theory import step_warnings

        for line in step_warnings(topology, schedule):
            remark(f"{source}: FAILS {line}")


def check_memory(run: RunConfig) -> None:
    """ConfigError where the gradients that every agent of ``run`` keeps do not fit into this machine together."""
    from dpgt_node.algo.methods import rule_of
    from dpgt_node.sim.simulate import build_oracles

    if rule_of(run).keeps_table:
        build_oracles(run, data_root())


def out_of_range(run: RunConfig) -> tuple[Problem, ...]:
    """Why agents would not begin: noise so small that its sampler cannot cover what the clip allows."""
    from dpgt_node.agent.noise import check_range
    from dpgt_node.algo.graph import Topology
    from dpgt_node.algo.schedule import Schedule

    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    found: dict[Problem, None] = {}
    for agent in range(run.n):
        try:
            check_range(run, topology, schedule, agent)
        except ConfigError as error:
            found |= dict.fromkeys(error.problems)
    return tuple(found)


def warn_of_data(run: RunConfig, source: str, said: str | None = None) -> None:
    """Say what looks odd about the data on this machine, but for what was ``said``.  Raises ConfigError."""
    from dpgt_node.learning.oracle import odd_about_data

    for line in odd_about_data(run, data_root()):
        if said is not None and line.startswith(said):
            continue
        remark(f"{source}: data: {line}")


@contextlib.contextmanager
def after_run(what: str, remedy: str = "") -> Iterator[None]:
    """What fails in here is a warning: the run that it comes after is over and whole."""
    log = logging.getLogger("dpgt_node.report")
    try:
        yield
    except (OSError, DpgtError) as error:
        log.warning("no %s: %s; the run is whole%s", what, error, remedy)
    except Exception as error:  # of the libraries that draw
        log.debug("traceback", exc_info=True)
        log.warning("no %s: %s: %s; the run is whole%s", what, type(error).__name__, error, remedy)


@contextlib.contextmanager
def finished(verb: str, out: Path) -> Iterator[None]:
    """What comes after the end of the run in ``out``.  A signal ends that alone, with true advice; a second one ends
    the process at once.
    """
    asked = 0

    def interrupt(_number: int, _frame: object) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            signals.end_now(verb)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in signals.ending_signals()}
    try:
        yield
    except KeyboardInterrupt:
        again = f"; `dpgt report {out}` makes its report" if not (out / "report.html").exists() else ""
        tell(f"dpgt {verb}: interrupted; the run in {out} is finished{again}")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def report_or_word(out: Path) -> Path | None:
    """Build the report of the run in ``out``; None, and a warning, where that fails."""
    from dpgt_node.report.html import build_report

    path = None
    with after_run("report", f", and `dpgt report {out}` tries again"):
        path = build_report(out)
    return path


def run_async(main: Coroutine[Any, Any, T], made_by: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """``asyncio.run``, with the signals of before at the end.  ``made_by``: makes the loop, None: Python's own."""
    import asyncio

    from dpgt_node.cli.running.loops import Loop

    def loop() -> asyncio.AbstractEventLoop:
        made = Loop() if made_by is None else made_by()
        asyncio.set_event_loop(made)
        return made

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main)
