"""The comparison that the paper could not make: every method at the same epsilon under its best sound accountant.

A cell is a method's form, an epsilon, a data set, a number of agents and a partition.  Each cell is tuned by the same
budget: so many different (K, gamma), one draw each, on training samples alone, of which a fixed sixth judges.  The best
is drawn once a seed and judged by the test set.  Noise is the least at which no agent's account exceeds epsilon.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from dpgt_node import figures
from dpgt_node.agent.noise import account_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import METHODS
from dpgt_node.algo.methods.dsgd.central import CENTRAL
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig, parse_document
from dpgt_node.errors import ConfigError
from dpgt_node.experiments.families.family import ALONE
from dpgt_node.experiments.families.rivals import FORMS
from dpgt_node.experiments.families.runs.job import JOB_FILE, Job
from dpgt_node.experiments.families.runs.measured import Measured
from dpgt_node.experiments.families.section_iv import C as DEMO_C
from dpgt_node.experiments.families.section_iv import R as DEMO_R
from dpgt_node.experiments.families.section_iv import Settings
from dpgt_node.experiments.families.verdicts import TEST
from dpgt_node.privacy.accountants.registry import APPROXIMATE
from dpgt_node.privacy.laws.gaussian import GAUSSIAN
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.record.summary import SUMMARY_FILE
from dpgt_node.report.experiments.values import Line, Panel, Point, Section, Table
from dpgt_node.values import dataclass

DELTA = 1e-5
GRID = ((150, 1.0), (60, 1.0), (150, 0.5), (60, 2.0), (150, 2.0), (60, 0.5), (150, 0.25), (60, 0.25))
"""(K, gamma as a multiple of the data set's), in the order in which a budget takes them."""
PARTITIONS: Mapping[str, Mapping[str, Any]] = {
    "iid": {"partition": "iid"},
    "dirichlet": {"partition": "inner-dirichlet", "alpha": 0.1},
}


@dataclass(frozen=True, slots=True)
class Frame:
    """What all methods share on a data set: features, clip, bias, and the gamma that the grid multiplies."""

    features: str
    clip_l2: float
    bias: float
    gamma: float


FRAMES = {"mnist": Frame("hog", 0.1, 0.2, 400.0), "fashion-mnist": Frame("hog", 0.1, 0.2, 400.0)}
_ELSE = Frame("raw", 1.0, 1.0, 2.0)
_KEYS: Mapping[str, Callable[[Frame], Mapping[str, Any]]] = {
    # No mean of clipped gradients has a larger coordinate.  Coins, and levels for them, are set for the epsilon.
    "quantised-binomial-sgd": lambda frame: {"bound": frame.clip_l2, "trials": 1 << 20},
}
"""Keys of a method that have no default."""
_QUANTISER = (
    "{method}: its only noise is a quantiser to -r, 0 and r, which has no epsilon at a useful delta. Where one sample "
    "moves a coordinate from 0 to D, r is sent with probability 0 and D/r, so delta is at least D/r whatever epsilon "
    "is. One step of gamma moves x by gamma C/m, so at delta = {delta:g} r is at least gamma C/(m {delta:g}), beside "
    "which x is 0"
)
_SILENT = "{method}: draws no noise, so it has no epsilon"
_GRAPHS: Mapping[int, tuple[Mapping[str, Any], float, float]] = {
    5: ({"R": [list(row) for row in DEMO_R], "C": [list(row) for row in DEMO_C]}, 0.475, 0.2),
    20: ({name: {"generator": "circulant", "offsets": [1, 3, 9]} for name in "RC"}, 0.2, 0.2),
    100: ({name: {"generator": "circulant", "offsets": [1, 3, 9, 27]} for name in "RC"}, 0.12, 0.12),
}
"""By the number of agents: the graphs, alpha and beta."""


@dataclass(frozen=True, slots=True)
class Cell:
    """``mechanism``: the form of the method."""

    method: str
    mechanism: str
    dataset: str
    agents: int
    partition: str
    epsilon: float

    @property
    def label(self) -> str:
        """Of the method's form."""
        rules = METHODS[self.method].rules
        if len(rules) == 1:
            return self.method
        # Algorithm 1 has mechanisms, the methods beside it have forms.
        ours = METHODS[self.method].theorems
        return f"{self.method}, {self.mechanism if ours else FORMS.get(self.mechanism, self.mechanism)}"

    @property
    def place(self) -> tuple[str, int, str]:
        """Where it is compared with others."""
        return self.dataset, self.agents, self.partition

    def run(self, K: int, part: float, seed: int) -> RunConfig:
        """Its run file; the noise of ``private`` jobs is set where they are carried out."""
        frame = FRAMES.get(self.dataset, _ELSE)
        graphs, alpha, beta = _GRAPHS[self.agents]
        noise: dict[str, Any] = {"scale_zeta": 1.0, "scale_eta": 1.0, "law": GAUSSIAN.name}
        keys: dict[str, Any] = {}
        if self.method in _KEYS:
            noise, keys = {}, {"method": dict(_KEYS[self.method](frame))}
        return parse_document(
            {
                **keys,
                "name": f"{self.method}-{self.mechanism}-{self.agents}-{self.partition}-eps{self.epsilon:g}",
                "algorithm": {"iterations": K, "method": self.method, "mechanism": self.mechanism},
                "scheme": {"kind": "S2", "alpha": alpha, "beta": beta, "gamma": part * frame.gamma, "p_m": 1.0,
                           "samples": "full"},
                "noise": noise,
                "graph": {"agents": self.agents, **graphs},
                "data": {"dataset": self.dataset, "features": frame.features, "seed": seed,
                         **PARTITIONS[self.partition]},
                "model": {"bias": frame.bias},
                "privacy": {"clip_l2": frame.clip_l2, "delta": DELTA},
                "evaluate": {"every": 1_000_000, "metrics": "study"},
            },
            "experiment",
            Path.cwd(),
        )  # fmt: skip

    def tuning(self, settings: Settings) -> list[tuple[int, float, Job]]:
        """(K, part of gamma, the run) of each candidate."""
        return [(K, part, self._job(self.run(K, part, 0), 0, tuning=True)) for K, part in candidates(settings)]

    def final(self, settings: Settings, K: int, part: float) -> tuple[Job, ...]:
        """The chosen one, for every seed."""
        return tuple(self._job(self.run(K, part, seed), seed, tuning=False) for seed in settings.all_seeds)

    def chosen(self, settings: Settings, measured: Measured) -> tuple[int, float] | None:
        """The candidate with the best worst agent; None while a candidate is missing.  Those that failed lose."""
        tried = [(K, part, job) for K, part, job in self.tuning(settings) if measured.has([job])]
        missing = [job for _, _, job in self.tuning(settings) if not measured.has([job]) and not measured.failed(job)]
        if missing or not tried:
            return None
        K, part, _ = max(tried, key=lambda one: measured.series(one[2]).score().end[TEST])
        return K, part

    def _job(self, run: RunConfig, seed: int, *, tuning: bool) -> Job:
        return Job(run, seed, "private", detail=(("epsilon", self.epsilon), ("tuning", int(tuning))))


@cache
def forms() -> tuple[tuple[str, str], ...]:
    """(method, mechanism) that a sound accountant of (epsilon, delta) covers, under Gaussian noise or coins."""
    found = []
    for method, value in METHODS.items():
        for mechanism in value.rules:
            try:
                run = Cell(method, mechanism, "digits", 5, "iid", 1.0).run(2, 1.0, 0)
                account = account_for(run, Topology.from_config(run.graph), Schedule.from_config(run), 0, 100, 10)
                totals = [account.total(name) for name in APPROXIMATE]
            except (ValueError, ConfigError):
                continue
            if any(total is not None and math.isfinite(total) for total in totals):
                found.append((method, mechanism))
    return tuple(found)


def uncovered() -> list[str]:
    """Methods that are not here, each with the reason."""
    covered, told = {method for method, _ in forms()}, list[str]()
    for name, method in METHODS.items():
        if name not in covered:
            quantised = MECHANISMS[next(iter(method.rules))].accounted.noise_on == "nothing"
            told.append((_QUANTISER if quantised else _SILENT).format(method=name, delta=DELTA))
    return told


@dataclass(frozen=True, slots=True)
class Ours:
    """The family ``ours``."""

    name: str = "ours"
    title: str = "Every method at the same epsilon"
    partial: bool = True

    def curves(self, settings: Settings) -> Sequence[Sequence[Job]]:
        """What is refused is left out."""
        return ()

    def jobs(self, settings: Settings, measured: Measured) -> Sequence[Job]:
        """Candidates of every cell; the chosen ones once all candidates of a cell are known; agents alone."""
        found = []
        for cell in cells(settings):
            found += [job for _, _, job in cell.tuning(settings)]
            chosen = cell.chosen(settings, measured)
            found += cell.final(settings, *chosen) if chosen is not None else ()
        return [*found, *(job for place in _places(settings) for job in _alone(settings, place))]

    def section(self, settings: Settings, measured: Measured) -> Section:
        """A table of all cells; for each data set, size and partition three pictures."""
        rows, panels, lost = list[tuple[str, ...]](), list[Panel](), list[str]()
        for place in _places(settings):
            here = [cell for cell in cells(settings) if cell.place == place]
            done: dict[Cell, tuple[Job, ...]] = {}
            for cell in here:
                chosen = cell.chosen(settings, measured)
                jobs = cell.final(settings, *chosen) if chosen is not None else ()
                if jobs and measured.has(jobs):
                    done[cell] = jobs
                    rows.append(_row(measured, cell, jobs))
                else:
                    lost.append(f"{cell.label}, {_words(place)}, epsilon {cell.epsilon:g}: its runs are not there")
            if done:
                panels += _panels(settings, measured, place, done)
        heads = ("data", "agents", "partition", "epsilon", "method", "K", "gamma", "worst agent, test accuracy",
                 "least, largest", "epsilon at most", "sent by an agent")  # fmt: skip
        caption = (
            f"(epsilon, {DELTA:g}) of every agent towards everybody else, one sample replaced, enforced by clip_l2; "
            "the accountant is the one that asks for the least noise. Accuracy of x_{K+1}. Epsilon covers "
            "neither the choice of the features nor that of K and gamma."
        )
        lead = (
            f"Each cell is tuned by {_counted(len(candidates(settings)))} (K, gamma), one draw each, on training "
            "samples alone, of which a sixth judges; the best is drawn for each seed and judged by the test set. All "
            "else is the same for all: features, clip, graphs, alpha and beta. Noise is Gaussian, or fair coins where "
            "a method sends integers with coins in them. Methods without a sound accountant are named below, with the "
            "reason."
        )
        lost += [line for line in uncovered() if line.partition(":")[0] in (settings.methods or METHODS)]
        table = Table("All cells", heads, tuple(rows), caption)
        return Section(self.name, self.title, lead, tuple(panels), (), (table,) if rows else (), tuple(lost))


def candidates(settings: Settings) -> list[tuple[int, float]]:
    """(K, part of gamma) of every cell, each once: a small ``iterations`` makes some of the grid the same."""
    grid = dict.fromkeys((max(1, min(K, settings.iterations)), part) for K, part in GRID)
    return list(grid)[: settings.budget]


def cells(settings: Settings) -> list[Cell]:
    """All of them, as far as ``settings`` asks."""
    return [
        Cell(method, mechanism, *place, epsilon)
        for place in _places(settings)
        for method, mechanism in forms()
        if method in (settings.methods or METHODS)
        for epsilon in settings.epsilons
    ]


def _places(settings: Settings) -> list[tuple[str, int, str]]:
    return [(data, n, how) for data in settings.sets for n in settings.agents for how in settings.partitions]


def _alone(settings: Settings, place: tuple[str, int, str]) -> tuple[Job, ...]:
    run = Cell("dpgt", next(iter(METHODS["dpgt"].rules)), *place, 1.0).run(1, 1.0, 0)
    return tuple(
        Job(replace(run, name=f"alone-{place[1]}-{place[2]}", data=replace(run.data, seed=seed)), seed, "alone")
        for seed in settings.all_seeds
    )


def _row(measured: Measured, cell: Cell, jobs: Sequence[Job]) -> tuple[str, ...]:
    values = [score.end[TEST] for score in measured.scores(jobs)]
    about = [json.loads(measured.text(job, JOB_FILE)) for job in jobs]
    spent = max(float(one["reached"]) for one in about)
    run = jobs[0].run
    gamma = f"{run.scheme.gamma:g}" if hasattr(run.scheme, "gamma") else "-"
    return (
        cell.dataset, str(cell.agents), cell.partition, f"{cell.epsilon:g}", cell.label, str(run.K), gamma,
        f"{100 * sum(values) / len(values):.2f} %", f"{100 * min(values):.2f}, {100 * max(values):.2f}",
        f"{figures.epsilon(spent)} ({about[0]['accountant']})",
        "all its data" if cell.method == CENTRAL.name else f"{_sent(measured, jobs[0]):,} bytes",
    )  # fmt: skip


def _sent(measured: Measured, job: Job) -> int:
    """Bytes of the agent that sends most."""
    summary = json.loads(measured.text(job, SUMMARY_FILE))
    return max(int(agent["bytes_sent"] or 0) for agent in summary["agents"])


def _panels(
    settings: Settings, measured: Measured, place: tuple[str, int, str], done: Mapping[Cell, tuple[Job, ...]]
) -> list[Panel]:
    by_label: dict[str, list[Cell]] = {}
    for cell in done:
        by_label.setdefault(cell.label, []).append(cell)
    lines = []
    for label, some in by_label.items():
        ordered = sorted(some, key=lambda cell: cell.epsilon)
        points = [Point.over(c.epsilon, [s.end[TEST] for s in measured.scores(done[c])]) for c in ordered]
        names = tuple(job.name for c in ordered for job in done[c])
        lines.append(Line(label, tuple(points), names, marks=True))
    alone = _alone(settings, place)
    if measured.has(alone):
        lines.append(measured.alone(alone, sorted({cell.epsilon for cell in done}), ALONE))
    key = "-".join(map(str, place))
    facts = (
        f"{_words(place)}, delta = {DELTA:g}, full batches, the best sound accountant of each method; "
        f"seeds {', '.join(map(str, settings.all_seeds))}."
    )
    accuracy = Panel(
        f"epsilon-{key}", f"{_words(place)}: accuracy against epsilon", "epsilon", "test accuracy, worst agent",
        tuple(lines), f"Test accuracy of the worst agent. {facts} Points are means over seeds, bars the least and the "
        "largest.", percent=True, x_scale="log",
    )  # fmt: skip
    at = min((cell.epsilon for cell in done), key=lambda epsilon: abs(math.log(epsilon)))
    tuned = {label: next(c for c in some if c.epsilon == at) for label, some in by_label.items()
             if any(c.epsilon == at for c in some)}  # fmt: skip
    return [
        accuracy,
        _front(settings, measured, place, tuned, "bytes", "bytes that an agent sends", facts, at),
        _front(settings, measured, place, tuned, "rounds", "rounds", facts, at),
    ]


def _front(
    settings: Settings,
    measured: Measured,
    place: tuple[str, int, str],
    tuned: Mapping[str, Cell],
    what: str,
    axis: str,
    facts: str,
    at: float,
) -> Panel:
    lines = []
    for label, cell in tuned.items():
        if what == "bytes" and cell.method == CENTRAL.name:
            continue  # its data would have to leave their hosts, which no count of what agents send holds
        tried = [job for _, _, job in cell.tuning(settings) if measured.has([job])]
        costs = [float(_sent(measured, job) if what == "bytes" else job.run.K + 1) for job in tried]
        gains = [measured.series(job).score().end[TEST] for job in tried]
        points = front(list(zip(costs, gains, strict=True)))
        names = tuple(job.name for job in tried)
        lines.append(Line(label, tuple(Point.over(x, [y]) for x, y in points), names, marks=True))
    caption = (
        f"What a candidate reaches on training samples that were kept back, against {axis}, at epsilon {at:g}: for "
        f"each method those candidates that no cheaper one beats. {facts}"
    )
    key = "-".join(map(str, place))
    return Panel(f"{what}-{key}", f"{_words(place)}: accuracy against {what}", axis, "accuracy, worst agent",
                 tuple(lines), caption, percent=True)  # fmt: skip


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those (cost, gain) that no other at the same cost or less beats, ascending."""
    best = [(cost, gain) for cost, gain in points if all(c > cost or g <= gain for c, g in points)]
    return sorted(set(best))


def _counted(number: int) -> str:
    return f"{number} {'candidate' if number == 1 else 'candidates'}"


def _words(place: tuple[str, int, str]) -> str:
    dataset, agents, partition = place
    return f"{dataset}, {agents} agents, {'Dirichlet(0.1)' if partition == 'dirichlet' else partition}"


FAMILY = Ours()
