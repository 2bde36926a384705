"""The ``dpgt`` command: the only reader of argv and of the environment.

Verbs are imported when they are called, so that ``dpgt status`` does not pay for matplotlib.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

# How many threads the user grants to one process; cli.common.threads() reads it.
THREADS_GRANTED = os.environ.get("OMP_NUM_THREADS", "")
# Before numpy is imported anywhere: five daemons on two cores must not start a BLAS pool each, and one thread gives
# the daemons and the simulator the same bits.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"
# Its C++ core says on standard error what is one clear message of ours already: a port in use, a goodbye of a peer.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# Names are what this host takes them for, in `dpgt doctor` as in a daemon: gRPC's own resolver asks DNS servers alone.
os.environ["GRPC_DNS_RESOLVER"] = "native"
# A message goes from the socket to the thread that hands it to Python, without one of gRPC's own pool in between.
os.environ.setdefault(
    "GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener,-event_engine_for_all_other_endpoints"
)

# Pictures go into files alone, whatever a notebook set for itself.
os.environ["MPLBACKEND"] = "agg"
# No picture bears a date, but matplotlib reads this even so, and stops where it is no number.
os.environ.pop("SOURCE_DATE_EPOCH", None)

import click  # noqa: E402  # after the environment is set

from dpgt_node import __version__  # noqa: E402
from dpgt_node.cli import signals  # noqa: E402
from dpgt_node.cli.display import Display  # noqa: E402
from dpgt_node.cli.lazy import Lazy, settle  # noqa: E402
from dpgt_node.cli.logs import TextLines, tell  # noqa: E402
from dpgt_node.errors import OPTIMISED, ConfigError, DpgtError, ExitCode, Problem  # noqa: E402

VERBS = {
    "init": "dpgt_node.cli.beginning.init:init",
    "demo": "dpgt_node.cli.running.demo:demo",
    "launch": "dpgt_node.cli.running.launch:launch",
    "node": "dpgt_node.cli.running.node:node",
    "coordinator": "dpgt_node.cli.running.coordinator:coordinator",
    "status": "dpgt_node.cli.running.control:status",
    "pause": "dpgt_node.cli.running.control:pause",
    "resume": "dpgt_node.cli.running.control:resume",
    "stop": "dpgt_node.cli.running.control:stop",
    "simulate": "dpgt_node.cli.running.simulate:simulate",
    "check": "dpgt_node.cli.check:check",
    "plan": "dpgt_node.cli.plan:plan",
    "eavesdrop": "dpgt_node.cli.eavesdrop.group:eavesdrop",
    "schema": "dpgt_node.cli.schema:schema",
    "report": "dpgt_node.cli.results.report:report",
    "export": "dpgt_node.cli.results.export:export",
    "evaluate": "dpgt_node.cli.results.evaluate:evaluate",
    "predict": "dpgt_node.cli.results.predict:predict",
    "data": "dpgt_node.cli.data:data",
    "ledger": "dpgt_node.cli.results.ledger:ledger",
    "pki": "dpgt_node.cli.pki.verbs:pki",
    "doctor": "dpgt_node.cli.doctor:doctor",
    "experiment": "dpgt_node.cli.experiment:experiment",
    "bench": "dpgt_node.cli.bench:bench",
}
LINES = {
    "init": "Write a run file that learns at EPSILON, with its reasons as comments; without options, ask for them.",
    "demo": (
        "Five agent processes and a coordinator over mTLS on loopback, real handwritten digits, a report at the end."
    ),
    "launch": "Run RUN.toml for real on this machine: mTLS with freshly minted certificates, one process an agent.",
    "node": "Serve one agent for one run, then exit 0 (for systemd, compose, Kubernetes).",
    "coordinator": "Coordinate one run in the foreground; exits 0 when every agent finished.",
    "status": "Where a run stands and who is connected.",
    "pause": "Keep the barrier shut after the current round.",
    "resume": "Open the barrier again.",
    "stop": "End the run; every process exits 5.",
    "simulate": (
        "Run RUN.toml in this process, no sockets: the daemons' own per-agent functions and the same bits, or --fast."
    ),
    "check": "Check the assumptions, step bounds and theorem conditions of RUN.toml; predict rates and epsilon.",
    "plan": (
        "Choose mechanism, noise, releases, clip, steps and features of RUN.toml so that every agent keeps to EPSILON."
    ),
    "eavesdrop": "Tap the links of a run, decode what crossed them, attack it and audit epsilon.",
    "schema": "Print the JSON Schema of RUN.toml or NODE.toml; editors complete from it.",
    "report": "Rebuild DIR/report.html from what the run wrote; of several DIR, compare the runs in --out FILE.html.",
    "export": (
        "Make a folder of what may be published of the run in DIR: a run's output folder, or an agent's state_dir."
    ),
    "evaluate": (
        "Accuracy and loss of the model that `dpgt export` wrote into FOLDER; exits 2 unless its files are as "
        "PRIVACY.md says."
    ),
    "predict": (
        "The class of every sample of FILE, by the model that `dpgt export` wrote into FOLDER: one line a sample, "
        "in the order of the file; of pictures in files with their names, sorted."
    ),
    "data": "Data sets: fetch the named ones, show how a run divides its own, train on an agent's alone.",
    "ledger": (
        "Show, export and verify the ledger in an agent's state directory; reads only, also while the agent runs."
    ),
    "pki": "Certificates for separate hosts: who is who in a run.",
    "doctor": (
        "What would go wrong on this host, before anything is started: an agent's (NODE.toml) or the coordinator's."
    ),
    "experiment": "Carry out a family of runs into --out, or say how far DIR has come (status DIR).",
    "bench": "Measure this machine: speed first, then studies of accuracy and attacks.",
}
"""What ``dpgt --help`` says of each: the first line of its own help, without importing it."""
ANSWERS = frozenset({"status", "check", "plan", "schema", "evaluate", "predict", "data", "ledger", "doctor", "bench"})
"""Verbs that do nothing but print: without standard output they have failed."""
DAEMONS = frozenset({"node", "coordinator"})
RUNS = frozenset({"simulate", "launch", "demo"})
_ASKS = frozenset({"-h", "--help", "--version"})
LEVELS = ("debug", "info", "warning", "error")


def _set_level(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.find_root().meta["log_level"] = value
        logging.getLogger().setLevel(value.upper())


def _log_level() -> click.Option:
    return click.Option(
        ["--log-level"],
        type=click.Choice(LEVELS),
        expose_value=False,
        callback=_set_level,
        help="How much is logged on standard error; debug also shows tracebacks.  [default: warning; daemons: info]",
    )


class _Verbs(Lazy):
    """In the order of a user's first hour; each understands --log-level."""

    targets = VERBS
    lines = LINES

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if cmd_name not in DAEMONS:  # those import more, and settle then
            settle()
        if command is not None and not any(parameter.name == "log_level" for parameter in command.params):
            command.params.append(_log_level())
        return command


def _version() -> list[click.Option]:
    """``--version``, and ``--verbose`` before or behind it: what a report of a fault should name."""

    def verbose(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        context.meta["dpgt.verbose"] = value

    def version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if not value:
            return
        click.echo(f"dpgt, version {__version__}")
        if context.meta["dpgt.verbose"]:
            for line in _versions():
                click.echo(line)
        context.exit()

    return [
        click.Option(["--version"], is_flag=True, expose_value=False, callback=version, help="The version, and exit."),
        click.Option(
            ["--verbose"], is_flag=True, expose_value=False, is_eager=True, callback=verbose,
            help="With --version: also the protocol, Python, libraries and cores.",
        ),
    ]  # fmt: skip


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _versions() -> list[str]:
    import ssl

    from dpgt_node.protocol.messages import PROTOCOL_VERSION
    from dpgt_node.record.summary import versions

    libraries = {name: version for name, version in versions().items() if name != "dpgt_node"}
    return [
        f"protocol {PROTOCOL_VERSION}",
        *(f"{'Python' if name == 'python' else name} {version}" for name, version in libraries.items()),
        ssl.OPENSSL_VERSION,
        f"cores {cores()}",
    ]


@click.group(cls=_Verbs, params=[_log_level(), *_version()], context_settings={"help_option_names": ["-h", "--help"]})
def dpgt() -> None:
    """Differentially private gradient tracking over directed graphs: real agents, one model, no data leaves its
    host.
    """


def _named(error: DpgtError, arguments: Sequence[str]) -> DpgtError:
    """Problems of "run file" under its name, where the command line gives just one."""
    given = [argument for argument in arguments if argument.endswith(".toml")]
    return error.of_run_file(given[0]) if isinstance(error, ConfigError) and len(given) == 1 else error


def _usage(error: click.UsageError, prefix: str) -> str:
    """``dpgt launch: command line: RUN.toml: is missing (dpgt launch --help)``: as every other problem is said."""
    path = prefix if error.ctx is None else error.ctx.command_path
    key, message = "", error.format_message()
    if isinstance(error, click.BadParameter):
        key = (error.param_hint if isinstance(error.param_hint, str) else None) or (
            error.param.get_error_hint(error.ctx) if error.param is not None and error.ctx is not None else ""
        )
        key = key.replace("'", "")
        message = "is missing" if isinstance(error, click.MissingParameter) else error.message
    problem = Problem("command line", key, message[:1].lower() + message[1:].rstrip("."))
    return f"{path}: {problem} ({path} --help)"


def run(arguments: Sequence[str], failed: Callable[[DpgtError], None] = lambda _: None) -> int:
    """Run one command line and return its exit code; every failure is one line with the cause, without a traceback.

    ``failed`` gets an error of ours as well.
    """
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(TextLines())
    logging.basicConfig(level=logging.WARNING, handlers=[lines], force=True)
    verb = next((a for a in arguments if a in VERBS), "")
    prefix = f"dpgt {verb}".strip()
    if not __debug__:
        tell(f"{prefix}: {OPTIMISED}")
        return int(ExitCode.CONFIG)
    try:
        result: Any = dpgt.main(args=list(arguments), prog_name="dpgt", standalone_mode=False)
        return int(result) if isinstance(result, int) else int(ExitCode.DONE)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # of click 8.2 on: it is the help
            error.show()
        else:
            tell(_usage(error, prefix))
        return int(ExitCode.CONFIG)
    except (click.Abort, KeyboardInterrupt):
        tell(f"{prefix}: interrupted")
        return int(ExitCode.STOPPED)
    except DpgtError as error:
        logging.getLogger(__name__).debug("traceback", exc_info=True)
        for line in str(_named(error, arguments)).splitlines() or [type(error).__name__]:
            tell(f"{prefix}: {line}")
        failed(error)
        return int(error.exit_code)
    except MemoryError:
        logging.getLogger(__name__).debug("traceback", exc_info=True)
        tell(f"{prefix}: out of memory: free some, or take fewer agents or a smaller model")
        return int(ExitCode.CONFIG)
    except Exception as error:  # the outermost frame: whatever is left is a bug and says so
        logging.getLogger(__name__).debug("traceback", exc_info=True)
        for line in (mendable := _mendable(error, verb)):
            tell(f"{prefix}: {line}")
        if mendable:
            return int(ExitCode.CONFIG)
        tell(f"{prefix}: this is a bug: {type(error).__name__}: {error} (--log-level debug shows where)")
        return int(ExitCode.BUG)


def _mendable(error: Exception, verb: str) -> list[str]:
    """What is wrong with this host, if that is why ``error`` came up."""
    from dpgt_node.durable import remedy
    from dpgt_node.runtime.requirements import outdated

    wrong = outdated()
    if wrong:
        return [f"{line}: pip install --upgrade it, or mend PYTHONPATH" for line in wrong]
    if isinstance(error, ImportError):
        return [f"{error}: a package is missing or damaged; install dpgt-node anew"]
    # A daemon names what its disk refuses by itself; anything else that comes up there is a bug, and it is restarted.
    if isinstance(error, OSError) and error.errno is not None and verb not in DAEMONS:
        where = f"{error.filename}: " if error.filename is not None else ""
        gone = ": is the current folder still there?" if error.errno == errno.ENOENT else remedy(error)
        return [f"{where}{error.strerror or error}{gone}"]
    return []


def main() -> None:
    """The process ``dpgt``: a run keeps its exit code without its display; an answer that nobody got is no success."""
    arguments = sys.argv[1:]
    verb = next((a for a in arguments if a in VERBS), "")
    signals.begin(verb, at_once=verb in RUNS | DAEMONS)
    display = Display()
    display.install()
    code = run(arguments)
    lost = display.lost()
    if lost is not None:
        print(f"dpgt {verb}".strip() + f": standard output: {lost}; what was printed there is lost", file=sys.stderr)
        answers = verb in ANSWERS or not _ASKS.isdisjoint(arguments)
        code = code or int(ExitCode.CONFIG if answers else ExitCode.DONE)
    signals.over(code)
    sys.exit(code)
