"""Figs. 2, 3, 4, 7 and 8: Algorithm 1 under both schemes, by its noise and by the self-loops of its graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpgt_node.experiments.families.family import Arm, about, accuracy_panels, bounds, pending_bounds
from dpgt_node.experiments.families.runs import epsilons
from dpgt_node.experiments.families.runs.job import Job
from dpgt_node.experiments.families.runs.measured import Measured
from dpgt_node.experiments.families.section_iv import (
    EXPONENTS,
    SchemeWord,
    Settings,
    alone_jobs,
    jobs_of,
    run_of,
)
from dpgt_node.experiments.families.verdicts import TEST, Answered, ascending, falls_from, faster
from dpgt_node.privacy.accountants.lemma5 import LEMMA5
from dpgt_node.privacy.accountants.tight import TIGHT
from dpgt_node.privacy.mechanisms import NOISE_ONCE, PAPER, PUBLISHED_POINT
from dpgt_node.report.experiments.values import Claim, Line, Panel, Point, Section
from dpgt_node.values import dataclass

READINGS: Mapping[str, tuple[str, str]] = {
    "Lemma 5 (conditional)": (PAPER.name, LEMMA5.name),
    "sound: gradient at the released point": (PUBLISHED_POINT.name, TIGHT.name),
    "sound: noise on the gradient once": (NOISE_ONCE.name, TIGHT.name),
}
"""By what epsilon is read: mechanism at the same noise, and accountant."""
FALLS_FROM: Mapping[SchemeWord, int] = {"S1": 88, "S2": 626}
"""K from which the paper says that epsilon decreases."""


@dataclass(frozen=True, slots=True)
class Case:
    """Algorithm 1 under ``scheme`` at the noise that captions name so."""

    label: str
    scheme: SchemeWord
    named: float
    loops: bool = False

    def arm(self, settings: Settings) -> Arm:
        """Its runs."""
        return Arm(self.label, jobs_of(settings, self.scheme, self.named, loops=self.loops))

    def epsilon(self, settings: Settings) -> Job:
        """Its epsilon by K."""
        run = run_of(settings, self.scheme, self.named, loops=self.loops)
        Ks = epsilons.lengths(run.scheme, settings.iterations, (settings.iterations, FALLS_FROM[self.scheme]))
        Ks = tuple(K for K in Ks if settings.iterations >= K)
        return Job(run, 0, "epsilon", lengths=Ks)


@dataclass(frozen=True, slots=True)
class Schemes:
    """One of these figures.  ``cases``: in the order in which the paper says that they converge, fastest first.

    ``cheapest_first``: the order of epsilon that it says, as indices of ``cases``.  ``quiet``: also without noise.
    """

    name: str
    title: str
    cases: tuple[Case, ...]
    converges: str
    cheapest_first: tuple[int, ...]
    costs: str
    falls: str = ""
    quiet: str = ""
    partial: bool = False

    def curves(self, settings: Settings) -> Sequence[Sequence[Job]]:
        """Its own: at a K so small that one of them has steps too large to begin with, the others are shown."""
        return [case.arm(settings).jobs for case in self.cases]

    def jobs(self, settings: Settings, measured: Measured) -> Sequence[Job]:
        """The figure's own, epsilon by K, and the bounds beside them."""
        arms = [*(case.arm(settings) for case in self.cases), *self._quiet(settings), *self._bounds(settings)]
        trained = [job for arm in arms for job in arm.jobs]
        return [*trained, *(case.epsilon(settings) for case in self.cases), *alone_jobs(settings)]

    def section(self, settings: Settings, measured: Measured) -> Section:
        """Accuracy, epsilon by K, and what the paper says of both."""
        arms = [case.arm(settings) for case in self.cases]
        first = next(arm for arm in arms if measured.has(arm.jobs))
        facts = about(measured, settings, first.jobs[0], "see the picture of epsilon")
        shown = [*arms, *self._quiet(settings), *self._bounds(settings)]
        panels = accuracy_panels(measured, settings, shown, self.title, facts)
        races = {f"{self.name}.1": (self.converges, arms, "")}
        if quiet := self._quiet(settings):
            races[f"{self.name}.4"] = (self.quiet, quiet, "without noise")
        claims = [_race(measured, id_, *race) for id_, race in races.items() if not _gone(measured, race[1])]
        claims[1:1] = [] if _gone(measured, arms) else self._costs(settings, measured)
        falls, short = self._falls(settings, measured)
        short += [f"{arm.label}: {why}" for arm in shown if (why := _gone(measured, [arm]))]
        short += [f'"{text}": a curve is missing' for text, some, _ in races.values() if _gone(measured, some)]
        short += [f'"{self.costs}": a curve is missing'] if _gone(measured, arms) else []
        lead = (
            "Algorithm 1 as printed, mechanism paper, at the noise, steps and m_K of Section IV; the graphs are ours."
        )
        return Section(
            self.name,
            self.title,
            lead,
            (*panels, self._epsilon_panel(settings, measured)),
            (*claims, *falls),
            pending=(*pending_bounds(), *short),
        )

    def _bounds(self, settings: Settings) -> list[Arm]:
        middle = self.cases[len(self.cases) // 2]
        return bounds(settings, middle.scheme, middle.named)

    def _quiet(self, settings: Settings) -> list[Arm]:
        if not self.quiet:
            return []
        return [
            Arm(f"{case.label}, no noise", jobs_of(settings, case.scheme, case.named, loops=case.loops, noise=False),
                beside=True)
            for case in self.cases
        ]  # fmt: skip

    def _costs(self, settings: Settings, measured: Measured) -> list[Claim]:
        found = []
        for reading in READINGS:
            curves = self._curves(settings, measured, reading)
            if not all(settings.iterations in curve for curve in curves.values()):
                continue  # so short that steps are no averages: no accountant speaks of them
            values = {case.label: curves[case.label][settings.iterations]
                      for case in (self.cases[i] for i in self.cheapest_first)}  # fmt: skip
            told = "; ".join(f"{label}: {value:,.6g}" for label, value in values.items())
            told += f" at K = {settings.iterations}"
            found.append(claim(f"{self.name}.2", self.costs, ascending(values, "epsilon"), told, reading))
        return found

    def _falls(self, settings: Settings, measured: Measured) -> tuple[list[Claim], list[str]]:
        if not self.falls:
            return [], []
        start = FALLS_FROM[self.cases[0].scheme]
        if settings.iterations < 2 * start:
            return [], [f'"{self.falls}": --iterations {settings.iterations} is too short to see it']
        found = []
        for case in self.cases:
            curve = self._curves(settings, measured, "Lemma 5 (conditional)")[case.label]
            told = f"{curve[start]:,.6g} at K = {start}, {curve[settings.iterations]:,.6g} at {settings.iterations}"
            found.append(claim(f"{self.name}.3", self.falls, falls_from(curve, start), told, case.label))
        return found, []

    def _curves(self, settings: Settings, measured: Measured, reading: str) -> Mapping[str, Mapping[int, float]]:
        mechanism, accountant = READINGS[reading]
        return {
            case.label: epsilons.curve(measured.costs(case.epsilon(settings)), mechanism, accountant)
            for case in self.cases
        }

    def _epsilon_panel(self, settings: Settings, measured: Measured) -> Panel:
        lines = []
        for reading in READINGS:
            for case in self.cases:
                curve = self._curves(settings, measured, reading)[case.label]
                points = tuple(Point.over(float(K), [epsilon]) for K, epsilon in sorted(curve.items()))
                if not points:
                    continue
                lines.append(Line(f"{case.label}, {reading}", points, (case.epsilon(settings).name,)))
        caption = (
            "Cumulative epsilon of the agent where it is largest, as a function of the maximum iteration number K: "
            "every point is a run of its own, whose steps, m_K and noise follow from its K. "
            "Sound values are of other mechanisms at the same noise, since the paper's own has no sound accountant. "
            + about(measured, settings, self.cases[0].epsilon(settings), "as the legend says")
        )
        return Panel("epsilon", f"{self.title}: cumulative epsilon", "maximum iteration number K", "epsilon",
                     tuple(lines), caption, y_scale="log")  # fmt: skip


def claim(id_: str, text: str, answered: Answered, measured: str, reading: str = "") -> Claim:
    """A sentence of the paper with its verdict."""
    return Claim(id_, text, answered.verdict, measured, answered.reason, reading)


def _race(measured: Measured, id_: str, text: str, arms: Sequence[Arm], reading: str) -> Claim:
    scores = [measured.scores(arm.jobs) for arm in arms]
    return claim(id_, text, faster(scores, [arm.label for arm in arms]), ends(measured, arms), reading)


def _gone(measured: Measured, arms: Sequence[Arm]) -> str:
    """Why one of these is not there; "" where all are."""
    missing = [job for arm in arms for job in arm.jobs if not measured.has([job])]
    return f"refused: {measured.refused(missing[0])}" if missing else ""


def ends(measured: Measured, arms: Sequence[Arm]) -> str:
    """Test accuracy of the worst agent at the end, mean and range over seeds."""
    told = []
    for arm in arms:
        values = [score.end[TEST] for score in measured.scores(arm.jobs)]
        range_ = f" ({100 * min(values):.1f} to {100 * max(values):.1f})" if len(values) > 1 else ""
        told.append(f"{arm.label}: {100 * sum(values) / len(values):.1f} %{range_}")
    return "test accuracy of the worst agent at the end: " + "; ".join(told)


def _noise(scheme: SchemeWord) -> tuple[Case, ...]:
    return tuple(Case(f"{scheme}, p = {named:g}", scheme, named) for named in EXPONENTS[scheme])


def _loops(scheme: SchemeWord, named: float) -> tuple[Case, ...]:
    return Case(f"{scheme}, no self-loops", scheme, named), Case(f"{scheme}, self-loops", scheme, named, loops=True)


_FASTER = "The smaller the privacy noise parameters are, the faster Algorithm 1 converges."
_CHEAPER = "The smaller the privacy noise parameters are, the smaller the cumulative budget epsilon is."
_SLOWER = "Self-loops slow down the convergence of Algorithm 1."
_LOOPS_CHEAPER = "Self-loops make the cumulative budget epsilon smaller."
_RADIUS = "Self-loops slow down convergence because the spectral radii of R and C are larger."
FIGURES = (
    Schemes("fig2", "Fig. 2: Scheme (S1) by its noise", _noise("S1"), _FASTER, (0, 1, 2), _CHEAPER,
            "Under (S1) epsilon decreases when K >= 88."),
    Schemes("fig3", "Fig. 3: Scheme (S2) by its noise", _noise("S2"), _FASTER, (0, 1, 2), _CHEAPER,
            "Under (S2) epsilon decreases when K >= 626."),
    Schemes("fig4", "Fig. 4: Schemes (S1) and (S2)", (Case("S2, p = 0.9996", "S2", 0.9996),
            Case("S1, p = 0.1", "S1", 0.1)), "Scheme (S2) converges faster than Scheme (S1).", (1, 0),
            "The epsilon of Scheme (S1) is smaller than that of Scheme (S2) (the text prints S1 twice)."),
    Schemes("fig7", "Fig. 7: self-loops under Scheme (S1)", _loops("S1", 0.1), _SLOWER, (1, 0), _LOOPS_CHEAPER,
            quiet=_RADIUS),
    Schemes("fig8", "Fig. 8: self-loops under Scheme (S2)", _loops("S2", 0.9996), _SLOWER, (1, 0), _LOOPS_CHEAPER,
            quiet=_RADIUS),
)  # fmt: skip
