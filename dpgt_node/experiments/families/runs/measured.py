"""What finished runs say: accuracy over rounds, for one seed and over seeds."""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from dpgt_node.documents import read_json
from dpgt_node.errors import ConfigError
from dpgt_node.experiments.families.runs import epsilons
from dpgt_node.experiments.families.runs.folder import REFUSED, Folder
from dpgt_node.experiments.families.runs.job import JOB_FILE, Job
from dpgt_node.experiments.families.verdicts import TEST, TRAIN, Score
from dpgt_node.record.metrics import METRICS_FILE
from dpgt_node.record.rivals import load_rivals
from dpgt_node.report.experiments.values import Line, Point
from dpgt_node.values import dataclass

COLUMNS = {TRAIN: "accuracy_train", TEST: "accuracy_test"}


@dataclass(frozen=True, slots=True)
class Series:
    """Accuracy in [0, 1] of the worst agent at each k, by set."""

    ks: tuple[int, ...]
    worst: Mapping[str, tuple[float, ...]]

    def score(self) -> Score:
        """Area and end of both curves."""
        area = {which: statistics.fmean(values[1:] or values) for which, values in self.worst.items()}
        return Score(area, {which: values[-1] for which, values in self.worst.items()})


class Measured:
    """Reads the runs of a folder, each once.  ConfigError: one is damaged."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._series: dict[str, Series] = {}
        self._costs: dict[str, tuple[epsilons.Cost, ...]] = {}

    def has(self, jobs: Sequence[Job]) -> bool:
        """Whether all of these are there."""
        return all(self._folder.is_done(job.name) for job in jobs)

    def failed(self, job: Job) -> bool:
        """Whether the run failed for good."""
        return job.name in self._folder.failed

    def refused(self, job: Job) -> str:
        """Why the run was not begun; "" where it was, or may be."""
        said = self._folder.failed.get(job.name, "")
        return said.removeprefix(REFUSED) if said.startswith(REFUSED) else ""

    def series(self, job: Job) -> Series:
        """Of a run that is there."""
        if job.name not in self._series:
            self._series[job.name] = self._read(job)
        return self._series[job.name]

    def scores(self, jobs: Sequence[Job]) -> list[Score]:
        """One a seed."""
        return [self.series(job).score() for job in jobs]

    def line(self, label: str, jobs: Sequence[Job], which: str, *, beside: bool = False) -> Line:
        """Mean, least and largest over the seeds, at each k."""
        found = [self.series(job) for job in jobs]
        points = tuple(
            Point.over(float(k), [one.worst[which][at] for one in found]) for at, k in enumerate(found[0].ks)
        )
        return Line(label, points, tuple(job.name for job in jobs), beside)

    def alone(self, jobs: Sequence[Job], ks: Sequence[float], label: str) -> Line:
        """Test accuracy of the agent that by itself reaches least, as a level line."""
        held = [load_rivals(self._folder.run(job.name)) for job in jobs]
        values = [one.worst for one in held if one is not None]
        return Line(label, tuple(Point.over(k, values) for k in ks), tuple(job.name for job in jobs), beside=True)

    def costs(self, job: Job) -> tuple[epsilons.Cost, ...]:
        """What ``epsilon`` wrote."""
        if job.name not in self._costs:
            self._costs[job.name] = epsilons.read(self._folder.run(job.name) / epsilons.EPSILON_FILE)
        return self._costs[job.name]

    def text(self, job: Job, file: str) -> str:
        """What a run left in ``file``."""
        return (self._folder.run(job.name) / file).read_text(encoding="utf-8")

    def facts(self, job: Job) -> dict[str, int]:
        """n, K, m, d and D of a run that is there."""
        path = self._folder.run(job.name) / JOB_FILE
        try:
            held = read_json(path)
            return {name: int(held[name]) for name in ("n", "K", "m", "d", "D")}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError.one(str(path), "", f"is damaged ({error}): remove its folder") from error

    def _read(self, job: Job) -> Series:
        path = self._folder.run(job.name) / METRICS_FILE
        rows: dict[int, list[tuple[float, float]]] = defaultdict(list)
        try:
            with path.open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    train, test = (float(row[COLUMNS[which]]) for which in (TRAIN, TEST))
                    rows[int(row["k"])].append((train, test))
        except (OSError, KeyError, ValueError) as error:
            raise ConfigError.one(str(path), "", f"is damaged ({error}): remove its folder") from error
        ks = tuple(sorted(rows))
        worst = {which: tuple(min(one[at] for one in rows[k]) for k in ks) for at, which in enumerate((TRAIN, TEST))}
        return Series(ks, worst)
