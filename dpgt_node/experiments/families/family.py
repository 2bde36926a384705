"""What a family is, and the parts that families share: arms of a picture, bounds beside them, captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dpgt_node.algo.methods import METHODS
from dpgt_node.experiments.families.runs.job import Job
from dpgt_node.experiments.families.runs.measured import Measured
from dpgt_node.experiments.families.section_iv import SchemeWord, Settings, alone_jobs, jobs_of
from dpgt_node.experiments.families.verdicts import TEST, TRAIN
from dpgt_node.report.experiments.values import Line, Panel, Section
from dpgt_node.values import dataclass

BOUNDS: Mapping[str, str] = {
    "no-communication": "no communication, the same noise",
    "central": "central, noise of one n-th",
}
"""By method: what stands beside every accuracy."""
ALONE = "alone, no noise, model kept at home"


class Family(Protocol):
    """Runs that belong together."""

    @property
    def name(self) -> str:
        """The word on the command line."""
        ...

    @property
    def title(self) -> str:
        """Of its section."""
        ...

    @property
    def partial(self) -> bool:
        """Whether it has something to show while runs are missing."""
        ...

    def curves(self, settings: Settings) -> Sequence[Sequence[Job]]:
        """Those without any of which it shows nothing; () where nothing stands or falls with one."""
        ...

    def jobs(self, settings: Settings, measured: Measured) -> Sequence[Job]:
        """The runs that it needs, as far as finished ones in ``measured`` let it know."""
        ...

    def section(self, settings: Settings, measured: Measured) -> Section:
        """What its finished runs say."""
        ...


@dataclass(frozen=True, slots=True)
class Arm:
    """One curve: a run for every seed.  ``beside``: a bound, or what the paper's own picture does not have."""

    label: str
    jobs: tuple[Job, ...]
    beside: bool = False


def bounds(settings: Settings, scheme: SchemeWord, named: float) -> list[Arm]:
    """The lines that stand in every accuracy figure, as far as their methods are there."""
    return [
        Arm(text, jobs_of(settings, scheme, named, method=method), beside=True)
        for method, text in BOUNDS.items()
        if method in METHODS
    ]


def pending_bounds() -> list[str]:
    """Bounds that this version cannot show."""
    return [f"{text}: method {method} is not part of this version" for method, text in BOUNDS.items()
            if method not in METHODS]  # fmt: skip


def accuracy_panels(
    measured: Measured, settings: Settings, arms: Sequence[Arm], title: str, about: str, key: str = "accuracy"
) -> list[Panel]:
    """Training and test accuracy of the worst agent over k; the level line "alone" beside the latter.

    Arms whose runs are missing are left out.
    """
    here = [arm for arm in arms if measured.has(arm.jobs)]
    panels = []
    for which in (TRAIN, TEST):
        lines = [measured.line(arm.label, arm.jobs, which, beside=arm.beside) for arm in here]
        alone = alone_jobs(settings)
        if which == TEST and lines and measured.has(alone):
            lines.append(measured.alone(alone, [p.x for p in lines[0].points], ALONE))
        caption = f"{which.capitalize()} accuracy of the worst of n agents. {about} {_lines(lines)}"
        panels.append(
            Panel(f"{key}-{which}", f"{title}: {which}", "k", f"{which} accuracy, worst agent", tuple(lines),
                  caption, percent=True)
        )  # fmt: skip
    return panels


def about(measured: Measured, settings: Settings, job: Job, accountant: str) -> str:
    """n, K, m, d, D, data, model, law, accountant, seeds: of a picture of which ``job`` is one run."""
    facts = measured.facts(job)
    seeds = ", ".join(str(seed) for seed in settings.all_seeds)
    look = f"; accuracy of {settings.look:,} samples of each set, evenly spaced" if settings.look is not None else ""
    return (
        f"{settings.dataset}, {settings.model}, n = {facts['n']}, K = {facts['K']}, m = {facts['m']} of D = "
        f"{facts['D']}, d = {facts['d']}, {job.run.noise.law} noise, C = {job.run.privacy.C:g} declared and not "
        f"enforced, accountant: {accountant}; seeds {seeds}{look}."
    )


def _lines(lines: Sequence[Line]) -> str:
    spread = any(p.high > p.low for line in lines for p in line.points)
    return "Lines are means over seeds, bands the least and the largest." if spread else "Lines are single seeds."
