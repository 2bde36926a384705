"""``dpgt eavesdrop study``: run, tap, decode, attack and audit over a grid of noise, and one page of it.

Every step is the command of that name, and leaves the files that it leaves by hand.  What is whole already is not done
again, so the same command goes on where it was stopped.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpgt_node.cli import common
from dpgt_node.cli.wrapping import say
from dpgt_node.errors import ConfigError, DpgtError, ExitCode
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.config import RunConfig
    from dpgt_node.report.study.page import Studied

SHADOWS, CANARY_RUNS = 64, 2000
_KEPT = "study-settings.json"


@click.command()
@common.run_argument
@click.option("--out", required=True, type=common.FOLDER, help="Everything goes there, study.html last.")
@click.option(
    "--grid", default="1", show_default=True, metavar="X,Y,...", help="Times the run file's noise; one run each."
)
@click.option("--simulate", is_flag=True, help="Simulate the runs, seen by a coalition of all agents; no sockets.")
@click.option(
    "--shadows", type=click.IntRange(min=0), default=SHADOWS, show_default=True, help="Shadow runs a noise; 0: none."
)
@click.option(
    "--canaries", type=click.IntRange(min=0), default=CANARY_RUNS, show_default=True,
    help="Canary trials a world and noise; 0: none.",
)  # fmt: skip
@click.option(
    "--attack", "attacks", multiple=True, metavar="NAME", help="Only these attacks.  [default: all that apply]"
)
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Of the attacks' own randomness.")
@common.format_option
def study(
    run_file: Path, out: Path, grid: str, simulate: bool, shadows: int, canaries: int,
    attacks: tuple[str, ...], jobs: int, seed: int,
    format_: str,
) -> ExitCode:  # fmt: skip
    """Study what RUN.toml gives away: run it behind taps, attack and audit it, at every noise of a grid.

    The agents' private values are written down, so never on data that anybody cares for.  The same command goes on
    where it was stopped.  Exits 1 when an attack or an audit refutes what is claimed; that an attack succeeds is a
    result.
    """
    from dpgt_node.report.study.page import JSON_FILE, PAGE_FILE, write_study

    run = common.load_local_run(run_file)
    factors = _factors(grid, run)
    settings = {
        "simulate": simulate, "attacks": list(attacks), "shadows": shadows, "canaries": canaries, "seed": seed,
    }  # fmt: skip
    _claim(out, run, settings)
    points = []
    for factor in factors:
        case = _Case(out / f"noise-{factor:g}", factor, _studied(run, factor, simulate), simulate)
        _tell(f"noise x {factor:g}: {case.folder}")
        case.run_it()
        case.attack(attacks, shadows, jobs, seed)
        case.audit()
        case.report()
        points.append(case.canaries(canaries, jobs))
    about = {"dpgt_node": _version(), "run": run.name, "settings": settings}
    found = write_study(out, points, about)
    if format_ == "json":
        click.echo((out / JSON_FILE).read_text(encoding="utf-8"), nl=False)
    else:
        _print(found, out / PAGE_FILE)
    return ExitCode.CHECK_FAILED if found.refuted else ExitCode.DONE


def _print(found: Studied, page: Path) -> None:
    """What was found, by verdict, and where the rest is."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from dpgt_node.report.attack_table import MEANINGS

    console = Console()
    table = Table(title="Attacks by verdict", title_justify="left")
    for head in ("attack", *found.verdicts.heads[:4], found.verdicts.heads[-1]):
        short = head in ("verdict", "value")
        table.add_column(head, justify="right" if head in ("value", "interval") else "left", no_wrap=short)
    for row in found.verdicts.rows:
        brief = (cell.partition(", by ")[0] for cell in (*row.cells[:4], row.cells[-1]))  # the estimate: on the page
        table.add_row(row.head, *(Text(cell, style="red" if at in row.bad else "") for at, cell in enumerate(brief)))
    if found.verdicts.rows:
        console.print(table)
        say("An attack has a row for each verdict that it got, with the agents that got it.")
    for verdict, meaning in MEANINGS.items():
        if any(row.cells[0] == verdict for row in found.verdicts.rows):
            say(f"{verdict}: {meaning}.")
    if found.skipped:
        say(f"{found.skipped} attacks were not run: the page says why.")
    say("REFUTED: something that was claimed does not hold." if found.refuted else "Nothing claimed was refuted.")
    say(f"Page: {page}")


@dataclass(frozen=True, slots=True)
class _Case:
    """One noise of the grid in its folder."""

    folder: Path
    factor: float
    run: RunConfig
    simulated: bool

    @property
    def out(self) -> Path:
        """Of the run itself."""
        return self.folder / "run"

    @property
    def transcripts(self) -> list[Path]:
        if self.simulated:
            return [self.out / "agents" / name / "state" / "transcript" for name in self.run.graph.agents]
        return [self.folder / "all.transcript"]

    def run_it(self) -> None:
        """Launch behind a tap and decode, or simulate.  DpgtError with the command's own exit code."""
        from dpgt_node.config import to_toml
        from dpgt_node.durable import write_text

        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "run.toml"
        write_text(file, to_toml(self.run, absolute_paths=True))
        if not self._finished():
            if self.simulated:
                _call("simulate", str(file), "--out", str(self.out))
            else:
                tap = self.folder / f"capture-{len(self._captures()) + 1}.pcap"
                _call("launch", str(file), "--out", str(self.out), "--insecure", "--tap", str(tap))
        if not all(path.exists() for path in self.transcripts):
            captures = map(str, self._captures())
            _call("eavesdrop", "decode", *captures, "--run", str(self.out), "--out", str(self.transcripts[0]))

    def attack(self, names: Sequence[str], shadows: int, jobs: int, seed: int) -> None:
        """Every attack that applies, into the run's own folder."""
        if (self.out / "adversary" / "attacks.json").exists():
            return
        asked = ["--shadows", str(shadows), "--keep-shadows", str(self.folder / "shadows")] if shadows else []
        agents = [word for name in self.run.graph.agents for word in ("--agent", name)] if self.simulated else []
        chosen = [word for name in names for word in ("--attack", name)]
        _call(
            "eavesdrop", "attack", *map(str, self.transcripts), "--run", str(self.out), "--truth", str(self.out),
            "--out", str(self.out / "adversary"), "--jobs", str(jobs), "--seed", str(seed), *asked, *agents, *chosen,
            log=self.folder / "attack.txt",
        )  # fmt: skip

    def audit(self) -> None:
        """Ledgers and noise of the run, where it has any."""
        if (self.out / "adversary" / "audit.json").exists() or not self.run.noise.multiplier:
            return
        ledger = [] if self.simulated else ["--ledger", str(self.out)]
        _call(
            "eavesdrop", "audit", *map(str, self.transcripts), "--run", str(self.out), "--truth", str(self.out),
            "--noise", *ledger, "--out", str(self.out / "adversary"), log=self.folder / "audit.txt",
        )  # fmt: skip

    def report(self) -> None:
        """The run's own page, with what was found in it."""
        from dpgt_node.report.html import REPORT_FILE, build_report

        page, found = self.out / REPORT_FILE, self.out / "adversary"
        newest = max(path.stat().st_mtime_ns for path in (*found.glob("*"), self.out / "run.toml"))
        if not page.exists() or page.stat().st_mtime_ns < newest:
            build_report(self.out)

    def canaries(self, trials: int, jobs: int) -> Any:
        """Canary trials of the release path; why there are none where the run claims nothing."""
        from dpgt_node.report.study.page import CANARIES, Point

        if not trials:
            return Point(self.factor, self.folder, "no canary trials were asked for")
        if not (self.folder / CANARIES / "audit.json").exists():
            try:
                _call(
                    "eavesdrop", "audit", str(self.folder / "run.toml"), "--runs", str(trials), "--jobs", str(jobs),
                    "--out", str(self.folder / CANARIES), log=self.folder / "canaries.txt",
                )  # fmt: skip
            except ConfigError as error:
                return Point(self.factor, self.folder, str(error))
        return Point(self.factor, self.folder, "")

    def _captures(self) -> list[Path]:
        return sorted(self.folder.glob("capture-*.pcap"), key=lambda path: int(path.stem.partition("-")[2]))

    def _finished(self) -> bool:
        from dpgt_node.record.summary import load_summary

        summary = load_summary(self.out) if self.out.exists() else None
        return summary is not None and summary.status == "finished"


def _call(*words: str, log: Path | None = None) -> None:
    """The command ``dpgt WORDS``; its text goes to ``log``, else to standard error.  DpgtError: it failed.

    An exit code of 1 is a finding, which the files tell.
    """
    from dpgt_node.cli import dpgt

    with contextlib.ExitStack() as stack:
        target = sys.stderr if log is None else stack.enter_context(log.open("w", encoding="utf-8"))
        stack.enter_context(contextlib.redirect_stdout(target))
        code = dpgt.main(args=list(words), prog_name="dpgt", standalone_mode=False)
    if isinstance(code, int) and code not in (ExitCode.DONE, ExitCode.CHECK_FAILED):
        error = DpgtError(f"dpgt {' '.join(words[:2])} ended with exit code {int(code)}")
        error.exit_code = ExitCode(code)
        raise error


def _factors(grid: str, run: RunConfig) -> Sequence[float]:
    """ConfigError: no list of numbers from 0 on, or a grid of a run without noise."""
    try:
        factors = [float(part) for part in grid.split(",")]
        if not all(0.0 <= factor < float("inf") for factor in factors) or len(set(factors)) < len(factors):
            raise ValueError
    except ValueError:
        message = f"{grid!r} is no list of different numbers from 0 on, like 0.5,1,2"
        raise ConfigError.one("command line", "--grid", message) from None
    if not run.noise.multiplier and factors != [1.0]:
        raise ConfigError.one("command line", "--grid", "the run file's noise is off: there is nothing to multiply")
    return sorted(factors)


def _studied(run: RunConfig, factor: float, simulated: bool) -> RunConfig:
    """The run with that noise, whose agents write their private side down."""
    seen_by = run.graph.agents if simulated else run.adversary.semi_honest
    return replace(
        run,
        noise=replace(run.noise, multiplier=run.noise.multiplier * factor),
        evaluate=replace(run.evaluate, metrics="study"),
        adversary=replace(run.adversary, semi_honest=seen_by, truth=True),
    )


def _claim(out: Path, run: RunConfig, settings: dict[str, Any]) -> None:
    """Make ``out`` this study's.  ConfigError: it is another's, or holds something else."""
    from dpgt_node.config import run_sha256
    from dpgt_node.documents import read_json
    from dpgt_node.durable import write_text

    asked = {"run": run_sha256(run), **settings}
    path = out / _KEPT
    try:
        if path.exists():
            held = read_json(path)
            differ = [key for key in asked if held.get(key) != asked[key]]
            if differ:
                message = f"{out} holds a study with another {', '.join(differ)}: take another folder"
                raise ConfigError.one("command line", "--out", message)
            return
        if out.exists() and any(out.iterdir()):
            raise ConfigError.one(
                "command line", "--out", f"{out} is not empty and holds no study: take another folder"
            )
        out.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(asked, indent=2) + "\n")
    except (OSError, ValueError) as error:
        raise ConfigError.one("command line", "--out", f"{path}: {error}") from error


def _version() -> str:
    from dpgt_node import __version__

    return __version__


def _tell(line: str) -> None:
    say(line, err=True)
