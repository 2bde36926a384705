"""Makes what families still lack, and writes the page of what is there."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from dpgt_node import __version__
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.algo.theory import hard_failures
from dpgt_node.errors import ConfigError, Problem
from dpgt_node.experiments.families.catalogue import FAMILIES
from dpgt_node.experiments.families.family import Family
from dpgt_node.experiments.families.runs.engine import Clock, Done, Pool, Task
from dpgt_node.experiments.families.runs.folder import Folder
from dpgt_node.experiments.families.runs.job import Job, carry_out
from dpgt_node.experiments.families.runs.measured import Measured
from dpgt_node.experiments.families.section_iv import Settings
from dpgt_node.learning.oracle import build_oracle, sample_counts
from dpgt_node.report.experiments.page import write_page
from dpgt_node.report.experiments.values import Page, Section

Progress = Callable[[Clock, Done | None], None]
"""Called before the first run of a stage and after each; the clock knows how many there are."""


def conduct(
    folder: Folder,
    names: Sequence[str],
    settings: Settings,
    pool: Pool,
    data_root: Path | None,
    progress: Progress = lambda clock, done: None,
) -> tuple[str, ...]:
    """Carry out every run that the families ``names`` lack; names of those that failed twice.

    Where later runs follow from what earlier ones say, there is a stage for each.
    """
    measured, failed = Measured(folder), list[str]()
    while True:
        wanted: list[Job] = []
        for name in names:
            jobs = FAMILIES[name].jobs(settings, measured)
            folder.ask(name, asdict(settings), [job.name for job in jobs])
            wanted.extend(jobs)
        tasks = [Task(job.name, job.arguments(data_root)) for job in folder.missing(wanted) if job.name not in failed]
        if not tasks:
            return tuple(failed)
        clock = Clock.start(len(tasks))
        progress(clock, None)
        for done in pool.map(carry_out, tasks):
            if done.files is not None:
                folder.keep(done.name, done.files)
            else:
                folder.fail(done.name, done.error)
            clock.done += done.last
            failed += [done.name] if done.files is None and done.last else []
            progress(clock, done)


def write(folder: Folder) -> Path:
    """The page of everything that was asked for in this folder; its path."""
    measured = Measured(folder)
    sections, runs = [], set[str]()
    for name, family in FAMILIES.items():
        if name in folder.families:
            settings = Settings.read(folder.families[name])
            jobs = family.jobs(settings, measured)
            runs |= {job.name for job in jobs}
            sections.append(_section(family, settings, measured, jobs))
    digest = hashlib.sha256("\n".join(sorted(runs)).encode()).hexdigest()[:16]
    cite = (
        f"dpgt-node {__version__}, dpgt experiment {' '.join(name for name in FAMILIES if name in folder.families)}, "
        f"{time.strftime('%Y-%m-%d')}, {len(runs)} runs, digest of their run files and seeds {digest}. "
        "Noise comes from the seeds, so every number can be made again; such a run protects nobody's data."
    )
    lead = (
        "What the paper says beside what was measured. Verdicts are computed from the measurements. Runs are carried "
        "out by simulate --fast, which has the noise and the batches of the daemons and agrees with them to 1e-9; "
        "with --exact, bit for bit. Where the text has several readings, each has its line."
    )
    page = Page("The paper's experiments", lead, cite, tuple(sections), tuple(folder.failed.items()))
    return write_page(folder.path, page)


def _section(family: Family, settings: Settings, measured: Measured, jobs: Sequence[Job]) -> Section:
    missing = sum(not measured.has([job]) for job in jobs)
    if missing and not family.partial:
        lines = (f"{missing} of its {len(jobs)} runs are not there: the same command makes them",)
        return Section(family.name, family.title, "", pending=lines)
    return family.section(settings, measured)


def check(folder: Folder, names: Sequence[str], settings: Settings, data_root: Path | None) -> None:
    """ConfigError where data or model cannot be used here, or runs would be refused: before anything runs."""
    measured, problems = Measured(folder), list[Problem]()
    seen = set[str]()
    for job in (job for name in names for job in FAMILIES[name].jobs(settings, measured)):
        if job.run.name in seen or job.kind not in ("fast", "exact"):
            continue
        if not seen:
            build_oracle(job.run, 0, data_root=data_root, device=settings.device)
        seen.add(job.run.name)
        counts = sample_counts(job.run, data_root)
        refused = hard_failures(job.run, Topology.from_config(job.run.graph), Schedule.from_config(job.run), counts)
        problems += [Problem(job.run.name, key, message) for key, message in refused]
    if problems:
        raise ConfigError(problems)
