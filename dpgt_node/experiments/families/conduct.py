"""Makes what families still lack, and writes the page of what is there."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from dpgt_node import __version__
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.hard import hard_failures
from dpgt_node.algo.methods.dsgd.central import curated
from dpgt_node.algo.schedule import Schedule
from dpgt_node.errors import ConfigError, Problem
from dpgt_node.experiments.families.catalogue import FAMILIES
from dpgt_node.experiments.families.family import Family
from dpgt_node.experiments.families.ours import FAMILY as OURS
from dpgt_node.experiments.families.runs.engine import Clock, Done, Pool, Task
from dpgt_node.experiments.families.runs.folder import REFUSED, Folder
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

    Runs that a method cannot do with these data are not begun: they are listed with the reason.  Where later runs
    follow from what earlier ones say, there is a stage for each.
    """
    folder.tidy()
    measured, failed = Measured(folder), set[str]()
    while True:
        wanted: list[Job] = []
        for name in names:
            jobs = FAMILIES[name].jobs(settings, measured)
            folder.ask(name, asdict(settings), [job.name for job in jobs])
            wanted.extend(jobs)
        missing = [job for job in folder.missing(wanted) if job.name not in failed]
        for name, why in refused(missing, data_root).items():
            folder.fail(name, f"{REFUSED}{why}")
            failed.add(name)
        tasks = [Task(job.name, job.arguments(data_root)) for job in missing if job.name not in failed]
        if not tasks:
            return tuple(name for name in sorted(failed) if not folder.failed[name].startswith(REFUSED))
        clock = Clock.start(len(tasks))
        progress(clock, None)
        for done in pool.map(carry_out, tasks):
            if done.files is not None:
                folder.keep(done.name, done.files)
            else:
                folder.fail(done.name, done.error)
            clock.done += done.last
            failed |= {done.name} if done.files is None and done.last else set()
            progress(clock, done)


def write(folder: Folder) -> Path:
    """Write the page of everything that was asked for in this folder; its path."""
    return write_page(folder.path, page(folder))


def page(folder: Folder) -> Page:
    """Everything that was asked for in this folder."""
    measured = Measured(folder)
    sections, runs = [], set[str]()
    for name, family in FAMILIES.items():
        if name in folder.families:
            settings = Settings.read(folder.families[name])
            jobs = family.jobs(settings, measured)
            runs |= {job.name for job in jobs}
            section = _section(family, settings, measured, jobs)
            sections.append(replace(section, lead=f"{settings.share(name)} {section.lead}".rstrip()))
    digest = hashlib.sha256("\n".join(sorted(runs)).encode()).hexdigest()[:16]
    cite = (
        f"dpgt-node {__version__}, dpgt experiment {' '.join(name for name in FAMILIES if name in folder.families)}, "
        f"{time.strftime('%Y-%m-%d')}, {len(runs)} runs, digest of their run files and seeds {digest}. "
        "Noise comes from the seeds, so every number can be made again; such a run protects nobody's data."
    )
    how = (
        "Runs are carried out by simulate --fast, which has the noise and the batches of the daemons and agrees with "
        "them to 1e-9; with --exact, bit for bit."
    )
    title = "The paper's experiments"
    lead = "What the paper says beside what was measured. Verdicts are computed from the measurements."
    readings = " Where the text has several readings, each has its line."
    if set(folder.families) == {OURS.name}:
        title, lead, readings = OURS.title, "The paper has no such comparison, so no claim of it is judged.", ""
    return Page(
        title,
        f"{lead} {how}{readings}{' ' if folder.others() else ''}{not_shown(folder)}",
        cite,
        tuple(sections),
        tuple(folder.failed.items()),
    )


def not_shown(folder: Folder) -> str:
    """What to know of runs that are there and not on the page; "" where there are none."""
    count = folder.others()
    if not count:
        return ""
    return (
        f"{count} more {'run is' if count == 1 else 'runs are'} in this folder and not on its page, which shows the "
        "last settings of each family alone. The settings that asked for them show them again, and repeat none."
    )


def _section(family: Family, settings: Settings, measured: Measured, jobs: Sequence[Job]) -> Section:
    missing = sum(not measured.has([job]) and not measured.refused(job) for job in jobs)
    if missing and not family.partial:
        lines = (f"{missing} of its {len(jobs)} runs are not there: the same command makes them",)
        return Section(family.name, family.title, "", pending=lines)
    return family.section(settings, measured)


def check(folder: Folder, names: Sequence[str], settings: Settings, data_root: Path | None) -> None:
    """ConfigError where data or model cannot be used here, or a family could show nothing: before anything runs."""
    measured, problems = Measured(folder), dict[str, str]()
    for name in names:
        jobs = FAMILIES[name].jobs(settings, measured)
        trained = [job for job in jobs if job.kind in ("fast", "exact")]
        if trained:
            build_oracle(trained[0].run, 0, data_root=data_root, device=settings.device)
        curves = FAMILIES[name].curves(settings)
        gone = refused([job for curve in curves for job in curve], data_root)
        if curves and all(any(job.name in gone for job in curve) for curve in curves):
            problems |= {job.run.name: gone[job.name] for curve in curves for job in curve if job.name in gone}
    if problems:
        raise ConfigError(Problem(name, "", why) for name, why in problems.items())


def refused(jobs: Sequence[Job], data_root: Path | None) -> dict[str, str]:
    """By name of the job, why its run would not be begun; those that would are left out.

    What epsilon costs is known of a run with steps too large to begin, not of one that asks for more samples than
    there are.
    """
    found, known = dict[str, str](), dict[tuple[str, bool], str]()
    for job in jobs:
        if job.kind not in ("fast", "exact", "private", "epsilon"):
            continue
        which = job.run.name, job.kind == "epsilon"
        if which not in known:
            run = curated(job.run)
            counts = sample_counts(run, data_root)
            failures = hard_failures(run, Topology.from_config(run.graph), Schedule.from_config(run), counts)
            telling = [(key, text) for key, text in failures if not which[1] or key in _OF_SAMPLES]
            known[which] = "; ".join(f"{key}: {text}" for key, text in telling)
        if known[which]:
            found[job.name] = known[which]
    return found


_OF_SAMPLES = ("algorithm.iterations", "scheme.samples")
"""Keys that a run is refused by when its agents hold too few samples."""
