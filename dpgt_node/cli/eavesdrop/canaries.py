"""Audits of the code by trials: canaries, coalitions, and labels told from whole runs, simulated or launched."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpgt_node.cli import common
from dpgt_node.errors import ConfigError

if TYPE_CHECKING:
    from dpgt_node.adversary.audit.report import Audit
    from dpgt_node.config import RunConfig
    from dpgt_node.experiments.trials import Test
    from dpgt_node.learning.common import Oracle

RUNS = 10_000
"""Canary trials a world."""
NOT_OF_SHARED = "Not audited where noise is shared: the agents' own clip and oracle, stores, sockets and processes."
LABELS = 8
"""Simulated runs that are proposed where as many as serve would take long."""


def _parties(
    file: Path, agents: Sequence[str], test_keystream: str | None
) -> Iterator[tuple[RunConfig, str, int, Oracle]]:
    """The run, and each agent to audit: its name, its place in the run, and what gives its gradients."""
    from dpgt_node.learning.oracle import build_oracle

    run = common.load_local_run(file)
    common.check_keystream(run, test_keystream)
    for name in _chosen(run, agents):
        index = run.graph.agents.index(name)
        yield run, name, index, build_oracle(run, index, data_root=common.data_root())


def canary_audits(
    file: Path,
    agents: Sequence[str],
    runs: int | None,
    resume: Path | None,
    jobs: int,
    count: int | None,
    test: Test,
    confidence: float,
    test_keystream: str | None,
) -> list[Audit]:
    """``runs``: canary trials a world; None: :data:`RUNS`, or fewer where that takes long, which a note says."""
    from dpgt_node.experiments.canary_runs import Campaign, conduct
    from dpgt_node.experiments.trials import PRESUME_NOTHING

    audits = []
    for run, name, index, oracle in _parties(file, agents, test_keystream):
        campaign = Campaign.of(
            run,
            index,
            dimension=oracle.dimension,
            samples=oracle.samples,
            count=count,
            test_keystream=test_keystream,
            lawless=test in PRESUME_NOTHING,
        )
        trials = campaign.kept_in(None if resume is None else resume / name)
        n, note = _asked(runs, campaign.canaries.count, run.K + 1)
        conduct(campaign, trials, n, jobs=jobs, progress=_progress)
        made = campaign.judge(trials, n, test=test, confidence=confidence)
        audits.append(_noted(made, note))
    return audits


def coalition_audits(
    file: Path,
    agents: Sequence[str],
    colluding: int | None,
    runs: int | None,
    resume: Path | None,
    test: Test,
    confidence: float,
    test_keystream: str | None,
) -> list[Audit]:
    """``runs`` as of :func:`canary_audits`; here a run is of all agents."""
    import os

    from dpgt_node.experiments.coalitions import Coalition, conduct

    secret = os.urandom(16).hex() if test_keystream is None else test_keystream
    audits = []
    for run, name, index, oracle in _parties(file, agents, test_keystream):
        size = run.n - 1 if colluding is None else colluding
        coalition = Coalition.of(run, index, size, dimension=oracle.dimension, samples=oracle.samples, secret=secret)
        trials = coalition.kept_in(None if resume is None else resume / f"{name}-{size}")
        n, note = _asked(runs, coalition.count, run.n * (run.K + 1))
        conduct(coalition, trials, n, progress=_progress)
        made = coalition.judge(trials, n, test=test, confidence=confidence)
        audits.append(_noted(made, note, NOT_OF_SHARED))
    return audits


def _asked(runs: int | None, count: int, rounds: int) -> tuple[int, str]:
    """Trials a world, and what to note of them; ``count`` and ``rounds`` as of ``trials.affordable``."""
    from dpgt_node.experiments.trials import affordable, left_out

    if runs is not None:
        return runs, ""
    n = affordable(count, rounds, RUNS)
    return n, left_out(count, rounds, n, RUNS)


def _noted(audit: Audit, *notes: str) -> Audit:
    return replace(audit, notes=(*audit.notes, *filter(None, notes)))


def launch_audits(
    file: Path,
    agents: Sequence[str],
    launches: int,
    resume: Path | None,
    test: Test,
    confidence: float,
) -> list[Audit]:
    return _told(common.load_local_run(file), agents, launches, resume, test, confidence)


def label_audits(
    file: Path,
    agents: Sequence[str],
    count: int | None,
    resume: Path | None,
    test: Test,
    confidence: float,
    test_keystream: str | None,
) -> tuple[list[Audit], str]:
    """Simulated runs, ``count`` or (None) as many as are affordable; and what is not audited, with its command."""
    from dpgt_node.experiments.launches import affordable

    run, again = common.load_local_run(file), f"dpgt eavesdrop audit {file}"
    fits, why = affordable(run, _samples(run)[run.graph.agents.index(_chosen(run, agents)[0])])
    if count == 0 or (count is None and not fits):
        text = f"Not audited{f' ({why})' if why else ''}: the agents' own clip and oracle."
        if run.privacy.enforced:
            text += f" They are by {again} --labels {fits or LABELS}, or in real launches by --launches N."
        return [], text
    count = fits if count is None else count
    kept = None if resume is None else resume / "labels"
    made = _told(run, agents, count, kept, test, confidence, simulated=True, test_keystream=test_keystream)
    return made, f"Stores, sockets and processes are not audited here, but by {again} --launches {count}"


def _samples(run: RunConfig) -> Sequence[int | None]:
    """D of every agent, where the run's data are here."""
    from dpgt_node.learning.data.shards import data_is_here
    from dpgt_node.learning.oracle import sample_counts

    root = common.data_root()
    return sample_counts(run, root) if data_is_here(run, root) else (None,) * run.n


def _told(
    run: RunConfig,
    agents: Sequence[str],
    count: int,
    resume: Path | None,
    test: Test,
    confidence: float,
    *,
    simulated: bool = False,
    test_keystream: str | None = None,
) -> list[Audit]:
    from dpgt_node.experiments.launches import Flips, conduct
    from dpgt_node.experiments.trials import PRESUME_NOTHING

    counts, audits = _samples(run), []
    with tempfile.TemporaryDirectory(prefix="dpgt-audit-") as temporary:
        for name in _chosen(run, agents):
            index = run.graph.agents.index(name)
            flips = Flips.of(
                run,
                index,
                counts[index],
                (resume or Path(temporary)) / name,
                lawless=test in PRESUME_NOTHING,
                simulated=simulated,
                test_keystream=test_keystream,
            )
            trials = flips.kept()
            n = conduct(flips, trials, count, lambda done: _progress(done, count))
            audits.append(flips.judge(trials, n, test=test, confidence=confidence))
    return audits


def _progress(done: int, runs: int) -> None:
    """On a terminal only."""
    if sys.stderr.isatty():
        click.echo(f"\r{done} of {runs} runs" + ("\n" if done >= runs else ""), err=True, nl=False)


def _chosen(run: RunConfig, agents: Sequence[str]) -> Sequence[str]:
    """``agents``, or the first one."""
    unknown = sorted(set(agents) - set(run.graph.agents))
    if unknown:
        raise ConfigError.one("command line", "--agent", f"{', '.join(unknown)}: not in the run file")
    return agents or run.graph.agents[:1]
