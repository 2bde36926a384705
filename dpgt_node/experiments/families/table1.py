"""Table 1: rates fitted on problems with known minimisers over random digraphs, beside the claimed rate of each method.

A rate O(1/K^p) is about runs of growing length, whose steps fall with K: every K is a run of its own, and the slope of
log error is against log(K + 1).  A rate O(rho^K) is about the error along K.  Digraphs are drawn at random; slopes are
fitted graph by graph, and the interval is over graphs.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from dpgt_node.algo.graph import Topology, separated
from dpgt_node.algo.methods import METHODS
from dpgt_node.config import RunConfig, parse_document
from dpgt_node.experiments.families.runs.job import Job
from dpgt_node.experiments.families.runs.measured import Measured
from dpgt_node.experiments.families.runs.problems import RATE_FILE, Rate, fitted
from dpgt_node.experiments.families.schemes import claim
from dpgt_node.experiments.families.section_iv import PAPER_K, SCHEMES, Settings
from dpgt_node.experiments.families.verdicts import CONFIDENCE, Answered
from dpgt_node.privacy.mechanisms import NOISE_ONCE
from dpgt_node.report.experiments.values import Claim, Line, Panel, Point, Section, Table, Verdict
from dpgt_node.values import dataclass

Claimed = Literal["O(1/K^(1/3))", "O(rho^K)", "O(rho^K) to a neighbourhood", "O(1)", "-"]
AGENTS, P = 6, 0.35
REPETITIONS = 100
_LENGTHS = (125, 250, 500, 1000, 2000, 4000)
_FALLS = 0.5
"""A linear rate goes on: its second half is at least half as steep as its first."""
_FLAT = 0.1
"""... and an error that settles is less than a tenth as steep in its second half."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A line of the table.  ``along``: one run, error against k; else a run for each K.  ``scheme``, ``noise``,
    ``options``: of its run file.  ``problem``: see ``problems.PROBLEMS``.
    """

    cite: str
    method: str
    label: str
    claimed: Claimed
    problem: str
    scheme: Mapping[str, Any]
    noise: Mapping[str, Any]
    along: bool = False
    Ks: tuple[int, ...] = _LENGTHS
    mechanism: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    repetitions: int = REPETITIONS

    @property
    def against_log(self) -> bool:
        """Whether the claimed rate is a power of K."""
        return self.claimed in ("O(1/K^(1/3))", "O(1)", "-")

    def jobs(self, settings: Settings) -> tuple[Job, ...]:
        """One a graph; as many graphs as seeds."""
        shrink = min(1.0, settings.iterations / PAPER_K)
        Ks = tuple(sorted({max(4 + i, round(K * shrink)) for i, K in enumerate(self.Ks)}))
        repetitions = max(4, round(self.repetitions * shrink))
        detail = (("problem", self.problem), ("repetitions", repetitions), ("along", int(self.along)))
        return tuple(
            Job(self.run(settings, graph), graph, "rate", lengths=Ks, detail=detail) for graph in settings.all_seeds
        )

    def run(self, settings: Settings, graph: int) -> RunConfig:
        """The run file on that random digraph."""
        drawn = {"generator": "random", "p": P}
        seeds = strong_seeds(graph)
        algorithm: dict[str, Any] = {"iterations": max(self.Ks), "method": self.method}
        document: dict[str, Any] = {
            "name": f"rate-{self.label}-{self.problem}",
            "algorithm": {**algorithm, **({} if self.mechanism is None else {"mechanism": self.mechanism})},
            "scheme": dict(self.scheme),
            "noise": dict(self.noise),
            "graph": {"agents": AGENTS, "R": {**drawn, "seed": seeds[0]}, "C": {**drawn, "seed": seeds[1]}},
            "data": {"dataset": "pl-sine"} if self.problem == "pl-sine" else {"dataset": "quadratic", "dimension": 4},
            "privacy": {"C": 1.0},
        }
        if self.options:
            document["method"] = dict(self.options)
        return parse_document(document, "experiment", Path.cwd())


def strong_seeds(graph: int) -> tuple[int, int]:
    """Seeds of the generator whose R and C are strongly connected: the ``graph``-th such pair."""
    found, seed = list[int](), 0
    while len(found) < 2 * graph + 2:
        text = {"generator": "random", "p": P, "seed": seed}
        document = {
            "algorithm": {"iterations": 1},
            "scheme": {"kind": "S2", "alpha": 0.1, "beta": 0.1, "gamma": 0.1, "p_m": 1.0},
            "noise": {"multiplier": 0.0},
            "graph": {"agents": AGENTS, "R": text, "C": text},
            "data": {"dataset": "zeros", "dimension": 1},
        }
        topology = Topology.from_config(parse_document(document, "experiment", Path.cwd()).graph)
        if not separated(topology.names, topology.R):
            found.append(seed)
        seed += 1
    return found[2 * graph], found[2 * graph + 1]


def _polynomial(a1: float, a2: float, a3: float, alpha: float, beta: float, gamma: float) -> dict[str, Any]:
    return {"kind": "S1", "a1": a1, "a2": a2, "a3": a3, "a4": 1.0, "p_alpha": alpha, "p_beta": beta, "p_gamma": gamma,
            "p_m": 1.0, "samples": 1}  # fmt: skip


_S1 = {"kind": "S1", "a1": 0.25, "a2": 0.2, "a3": 0.03, "a4": 0.1, "p_alpha": 0.8, "p_beta": 0.6, "p_gamma": 0.9,
       "p_m": 1.6}  # fmt: skip
_CONSTANT = {"kind": "S2", "alpha": 0.1, "beta": 0.1, "gamma": 0.02, "p_m": 1.0, "samples": 1}
_FALLING = _polynomial(0.5, 0.5, 2.0, 0.6, 0.6, 0.9)
_NOISE_S1 = {"p_zeta": -0.05, "p_eta": 0.05}
_PAPER_S1, _PAPER_S2 = {"p_zeta": 0.1, "p_eta": 0.1}, {"p_zeta": 0.9996, "p_eta": 0.9996}
_LITTLE, _QUIET = {"scale_zeta": 0.1, "scale_eta": 0.1}, {"multiplier": 0.0}
_LINEAR_KS = tuple(range(40, 801, 40))
_SETTLING = (*range(5, 41, 5), *range(120, 681, 80))
_S2_KS, _LONGER = (500, 1000, 1500, 2000, 2500, 3000), (500, 1000, 2000, 4000)
ENTRIES = (
    Entry("This work", "dpgt", "S1 of Section IV", "O(1/K^(1/3))", "pl-sine", SCHEMES["S1"], _PAPER_S1, Ks=_LONGER),
    Entry("This work", "dpgt", "S1 of Section IV", "O(1/K^(1/3))", "quadratics", SCHEMES["S1"], _PAPER_S1, Ks=_LONGER),
    Entry("This work", "dpgt", "S1 within Assumption 4", "O(1/K^(1/3))", "pl-sine", _S1, _NOISE_S1),
    Entry("This work", "dpgt", "S2 of Section IV", "O(rho^K)", "pl-sine", SCHEMES["S2"], _PAPER_S2, Ks=_S2_KS),
    Entry("This work", "dpgt", "S2 of Section IV", "O(rho^K)", "quadratics", SCHEMES["S2"], _PAPER_S2, Ks=_S2_KS),
    Entry("This work", "dpgt", "S1 steps, noise once", "-", "quadratics", _FALLING, _LITTLE,
          mechanism=NOISE_ONCE.name),
    Entry("xin2020variance", "gt-saga", "GT-SAGA", "O(rho^K)", "finite-sums", _CONSTANT, _QUIET, along=True,
          Ks=_LINEAR_KS, repetitions=20),
    Entry("xin2020variance", "gt-svrg", "GT-SVRG", "O(rho^K)", "finite-sums", _CONSTANT, _QUIET, along=True,
          Ks=_LINEAR_KS, options={"snapshot_every": 20}, repetitions=20),
    Entry("xin2019distributed", "s-ab", "S-AB", "O(rho^K) to a neighbourhood", "finite-sums", _CONSTANT, _QUIET,
          along=True, Ks=_SETTLING, repetitions=20),
    Entry("wang2023gradient", "noisy-gt", "noisy GT", "-", "quadratics", _FALLING, _LITTLE),
    Entry("ding2021differentially", "q-dpsgd", "Q-DPSGD", "O(1/K^(1/3))", "quadratics", _FALLING, _LITTLE),
    Entry("wang2023decentralized", "atc-dsgd", "ATC-DSGD", "-", "quadratics", _FALLING, _LITTLE),
    Entry("wang2023quantization", "ternary-dsgd", "ternary DSGD, r = 8", "O(1)", "quadratics", _FALLING, _LITTLE,
          options={"r": 8.0}),
    Entry("chen2024differentially", "quantised-dsgd", "quantised DSGD", "O(1/K^(1/3))", "quadratics", _FALLING,
          _LITTLE),
    Entry("wang2024differentiallya", "sampled-dsgd", "sampled DSGD", "-", "quadratics", _FALLING, _LITTLE),
    Entry("Bayrooti et al. 2023", "dp-dsgt", "DP-DSGT", "-", "quadratics", _FALLING, _LITTLE),
    Entry("Bayrooti et al. 2023", "dp-dsgd", "DP-DSGD", "-", "quadratics", _FALLING, _LITTLE),
    Entry("kang2021weighted", "weighted-sgd", "weighted SGD", "-", "quadratics", _FALLING, _LITTLE),
    Entry("arXiv 2505.06651", "dyn-d2p", "Dyn-D2P", "-", "quadratics", _FALLING, _LITTLE),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fit:
    """Slopes over graphs: mean, and the interval (Student, 95 %); one graph: no interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def over(cls, values: Sequence[float]) -> Fit:
        """Of at least one."""
        mean = statistics.fmean(values)
        if len(values) == 1:
            return cls(mean, mean, mean)
        from scipy.special import stdtrit

        half = float(stdtrit(len(values) - 1, 0.5 + CONFIDENCE / 2)) * statistics.stdev(values)
        half /= math.sqrt(len(values))
        return cls(mean, mean - half, mean + half)

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.mean:.4g}"
        return f"{self.mean:.4g} ({self.low:.4g} to {self.high:.4g})"


def judge(claimed: Claimed, rates: Sequence[Rate]) -> Answered:
    """Whether slopes, one a graph, are as steep as ``claimed``.  ValueError for "-", which claims nothing."""
    whole, early, late = (Fit.over([getattr(rate, part) for rate in rates]) for part in ("whole", "early", "late"))
    graphs = "One graph, no interval" if len(rates) == 1 else f"{len(rates)} graphs, 95 % intervals"
    told = f"{graphs}; slopes: all {whole}, first half {early}, second half {late}."
    if claimed == "O(1/K^(1/3))":
        if whole.high <= -1.0 / 3.0:
            return Answered("reproduced", f"At least as steep as -1/3. {told}")
        verdict: Verdict = "not reproduced" if whole.low > -1.0 / 3.0 else "too close to call"
        return Answered(verdict, f"Not shown to be as steep as -1/3. {told}")
    if claimed == "O(1)":
        grows = late.low > 0.0
        return Answered("not reproduced" if grows else "reproduced", f"It {'grows' if grows else 'is bounded'}. {told}")
    goes_on = late.high < 0.0 and late.mean <= _FALLS * early.mean
    settles = early.high < 0.0 and late.mean > _FLAT * early.mean
    if claimed == "O(rho^K)":
        return Answered("reproduced" if goes_on else "not reproduced",
                        f"log error {'falls on and on' if goes_on else 'does not fall on and on'}. {told}")  # fmt: skip
    if claimed == "O(rho^K) to a neighbourhood":
        how = "falls, then settles" if settles else "does not fall and then settle"
        return Answered("reproduced" if settles else "not reproduced", f"It {how}. {told}")
    raise ValueError("nothing is claimed")


@dataclass(frozen=True, slots=True)
class Rates:
    """The family ``table1``."""

    name: str = "table1"
    title: str = "Table 1: rates"
    partial: bool = True

    def curves(self, settings: Settings) -> Sequence[Sequence[Job]]:
        """What is refused is left out."""
        return ()

    def jobs(self, settings: Settings, measured: Measured) -> Sequence[Job]:
        """Every entry whose method is here, on every graph."""
        return [job for entry in _here() for job in entry.jobs(settings)]

    def section(self, settings: Settings, measured: Measured) -> Section:
        """The table, one picture a kind of rate, and the claims."""
        rows, claims, lost = list[tuple[str, ...]](), list[Claim](), list[str]()
        for i, entry in enumerate(_here()):
            jobs = entry.jobs(settings)
            if not measured.has(jobs):
                lost.append(f"{entry.label}, {entry.problem}: its runs are not there")
                continue
            rates = [_fit(entry, *errors(measured, job)) for job in jobs]
            known = [rate for rate in rates if rate is not None]
            fit = str(Fit.over([rate.whole for rate in known])) if len(known) == len(rates) else "blows up"
            rows.append((entry.cite, entry.label, entry.problem, entry.claimed,
                         "log(K+1)" if entry.against_log else "K", fit))  # fmt: skip
            if entry.claimed != "-":
                answered = judge(entry.claimed, known) if len(known) == len(rates) else _blown(rates)
                reading = f"{entry.problem}, K = {jobs[0].lengths[0]} to {jobs[0].lengths[-1]}"
                text = f"{entry.cite}, {entry.label}: convergence rate {entry.claimed}."
                claims.append(claim(f"table1.{i + 1}", text, answered, f"slope {fit}", reading))
        heads = ("method", "here", "problem", "claimed", "slope of log error against", "measured, 95 % over graphs")
        caption = (
            f"Random digraphs of {AGENTS} agents, each edge with probability {P}, those strongly connected; "
            f"{settings.seeds} of them; {REPETITIONS} repetitions a run, fewer where no noise is drawn. Error: ||grad "
            "F||^2 on pl-sine, ||x_i - x*||^2 elsewhere, mean over repetitions, of the worst agent."
        )
        table = Table("Fitted slopes", heads, tuple(rows), caption)
        gone = [f"{entry.cite}: method {entry.method} is not part of this version" for entry in ENTRIES
                if entry.method not in METHODS]  # fmt: skip
        lead = "A theorem bounds from above: steeper than claimed is as claimed. Steps and noise of rivals are ours."
        panels = tuple(self._panel(settings, measured, along, caption) for along in (False, True))
        return Section(self.name, self.title, lead, tuple(panel for panel in panels if panel.lines), tuple(claims),
                       (table,), (*gone, *lost))  # fmt: skip

    def _panel(self, settings: Settings, measured: Measured, power: bool, caption: str) -> Panel:
        lines = []
        for entry in _here():
            jobs = entry.jobs(settings)
            if entry.against_log == power and measured.has(jobs):
                found = [errors(measured, job) for job in jobs]
                points = tuple(Point.over(float(K), [values[at] for _, values in found])
                               for at, K in enumerate(found[0][0]))  # fmt: skip
                lines.append(
                    Line(f"{entry.label}, {entry.problem}", points, tuple(job.name for job in jobs), marks=True)
                )
        key, title = ("powers", "error by the run's length") if power else ("linear", "error, linear rates")
        return Panel(key, f"Table 1: {title}", "K", "mean squared error", tuple(lines), caption,
                     x_scale="log" if power else "linear", y_scale="log")  # fmt: skip


def errors(measured: Measured, job: Job) -> tuple[list[int], list[float]]:
    """(K, errors) of a run that is there."""
    rows = list(csv.DictReader(measured.text(job, RATE_FILE).splitlines()))
    return [int(row["K"]) for row in rows], [float(row["error"]) for row in rows]


def _fit(entry: Entry, Ks: Sequence[int], values: Sequence[float]) -> Rate | None:
    return fitted(Ks, values, against_log=entry.against_log)


def _blown(rates: Sequence[Rate | None]) -> Answered:
    lost = sum(rate is None for rate in rates)
    return Answered("not reproduced", f"On {lost} of {len(rates)} graphs the error is 0 or grows beyond all bounds.")


def _here() -> list[Entry]:
    return [entry for entry in ENTRIES if entry.method in METHODS]


FAMILY = Rates()
