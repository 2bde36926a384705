"""Figs. 5 and 6: Algorithm 1 beside the methods that the paper compares with, at the paper's own noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpgt_node.algo.graph import Topology, metropolis
from dpgt_node.algo.schedule import Schedule
from dpgt_node.experiments.families import rivals
from dpgt_node.experiments.families.family import Arm, about, accuracy_panels, bounds, pending_bounds
from dpgt_node.experiments.families.runs import epsilons
from dpgt_node.experiments.families.runs.job import Job
from dpgt_node.experiments.families.runs.measured import Measured
from dpgt_node.experiments.families.schemes import claim, ends
from dpgt_node.experiments.families.section_iv import PAPER_K, Settings, alone_jobs, jobs_of, run_of
from dpgt_node.experiments.families.verdicts import Answer, Answered, combined, faster, hinges_on, scale_that_reaches
from dpgt_node.privacy.accountants.lemma5 import LEMMA5
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.privacy.accountants.tight import TIGHT
from dpgt_node.privacy.mechanisms import NOISE_ONCE, PAPER, PUBLISHED_POINT
from dpgt_node.report.experiments.values import Claim, Line, Panel, Point, Section
from dpgt_node.values import dataclass

S2, S1 = "Algorithm 1, S2", "Algorithm 1, S1 with its own parameters"
ONCE = "Algorithm 1, S2, noise on the gradient once"
_FASTER = "Algorithm 1 with Scheme (S2) converges faster than the method of"
_CHEAPER = "The cumulative epsilon of Algorithm 1 with both schemes is smaller than that of"
_TERNARY = "The method of wang2023quantization reaches delta = 1 after 800 iterations."
_TERNARY_ROUNDS = 800


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Fig. 5."""

    name: str = "fig5"
    title: str = "Fig. 5: accuracy beside other methods"
    partial: bool = True

    def curves(self, settings: Settings) -> Sequence[Sequence[Job]]:
        """What is refused is left out."""
        return ()

    def jobs(self, settings: Settings, measured: Measured) -> Sequence[Job]:
        """Algorithm 1, every form of every rival, the bounds."""
        arms = [*self._ours(settings), *self._rivals(settings).values(), *self._bounds(settings)]
        return [*(job for arm in arms for job in arm.jobs), *alone_jobs(settings)]

    def section(self, settings: Settings, measured: Measured) -> Section:
        """Accuracy of all, and one claim a rival and form."""
        ours, others = self._ours(settings), self._rivals(settings)
        lead = (
            "Every method at the steps, m_K and Laplace scales of (S2), p = 0.9996, as Section IV-D asks. It says that "
            "(S1) has them too: then (S1) is the same run as (S2). (S1) with its own parameters stands beside it. "
            "Rivals are in the style of their papers; what the paper does not say of them is ours."
        )
        first = ours[0].jobs
        if not measured.has(first):
            return Section(self.name, self.title, lead, pending=("the runs of Algorithm 1 under (S2) are not there",))
        facts = about(measured, settings, first[0], "none, see Fig. 6")
        panels = accuracy_panels(
            measured, settings, [*ours, *others.values(), *self._bounds(settings)], self.title, facts
        )
        lost = [
            f"{arm.label}: its runs are not there" for arm in (*ours, *others.values()) if not measured.has(arm.jobs)
        ]
        return Section(
            self.name,
            self.title,
            lead,
            tuple(panels),
            tuple(self._claims(measured, ours, others, self._bounds(settings))),
            pending=(*rivals.pending(), *pending_bounds(), *lost),
        )

    def _claims(
        self, measured: Measured, ours: Sequence[Arm], others: Mapping[rivals.Form, Arm], beside: Sequence[Arm]
    ) -> list[Claim]:
        found, (s2, _, once) = [], ours
        for form, arm in others.items():
            if measured.has(arm.jobs) and form.rival.named:
                id_ = f"{self.name}.{form.rival.cite}"
                found.append(_race(measured, id_, f"{_FASTER} {form.rival.cite}.", s2, arm, form.label))
        for arm in (*beside, *((once,) if measured.has(once.jobs) else ())):
            if measured.has(arm.jobs):
                text = f"Algorithm 1 with Scheme (S2) converges faster than: {arm.label}."
                reading = "not a sentence of the paper, but what its figure leaves out"
                found.append(_race(measured, f"{self.name}.beside", text, s2, arm, reading))
        return found

    @staticmethod
    def _ours(settings: Settings) -> list[Arm]:
        return [
            Arm(S2, jobs_of(settings, "S2", rivals.NAMED)),
            Arm(S1, jobs_of(settings, "S1", 0.1)),
            Arm(ONCE, jobs_of(settings, "S2", rivals.NAMED, mechanism=NOISE_ONCE.name), beside=True),
        ]

    @staticmethod
    def _rivals(settings: Settings) -> dict[rivals.Form, Arm]:
        return {form: form.arm(settings) for form in rivals.forms()}

    @staticmethod
    def _bounds(settings: Settings) -> list[Arm]:
        return bounds(settings, "S2", rivals.NAMED)


def _race(measured: Measured, id_: str, text: str, first: Arm, second: Arm, reading: str) -> Claim:
    scores = [measured.scores(arm.jobs) for arm in (first, second)]
    return claim(id_, text, faster(scores, [first.label, second.label]), ends(measured, (first, second)), reading)


@dataclass(frozen=True, slots=True)
class Epsilon:
    """Fig. 6."""

    name: str = "fig6"
    title: str = "Fig. 6: epsilon and delta beside other methods"
    partial: bool = True

    def curves(self, settings: Settings) -> Sequence[Sequence[Job]]:
        """What is refused is left out."""
        return ()

    def jobs(self, settings: Settings, measured: Measured) -> Sequence[Job]:
        """Epsilon by K of Algorithm 1 under both schemes, and of every form of every rival."""
        lengths = _lengths(settings)
        return [*self._ours(settings).values(), *(form.epsilon(settings, lengths) for form in rivals.forms())]

    def section(self, settings: Settings, measured: Measured) -> Section:
        """Both readings of how rivals are charged, and the r that Fig. 6b needs."""
        ours = self._ours(settings)
        if not measured.has(list(ours.values())):
            return Section(self.name, self.title, "", pending=("the runs of Algorithm 1 are not there",))
        lead = (
            "No training: what the releases cost, at the noise, steps and m_K of Section IV-D, for the agent where it "
            "is most. The paper does not say whether rivals are charged for the mean over m samples (C/m) or not (C). "
            "Lemma 5 is conditional; the sound values are of Algorithm 1 with the gradient at the released point."
        )
        lengths = _lengths(settings)
        shown = {form: form.epsilon(settings, lengths) for form in rivals.forms()}
        shown = {form: job for form, job in shown.items() if measured.has([job])}
        claims = [one for form, job in shown.items() if form.rival.named
                  for one in self._cheaper(settings, measured, form, job)]  # fmt: skip
        panel = self._panel(settings, measured, shown)
        lost = [f"{form.label}: its run is not there" for form in rivals.forms() if form not in shown]
        silent = [f"{form.label}: no accountant speaks of it" for form, job in shown.items() if not measured.costs(job)]
        delta = self._delta(settings, measured, shown)
        panels = (panel, delta) if delta.lines else (panel,)
        return Section(self.name, self.title, lead, panels, (*claims, _ternary()),
                       pending=(*rivals.pending(), *lost, *silent))  # fmt: skip

    @staticmethod
    def _ours(settings: Settings) -> dict[str, Job]:
        lengths = _lengths(settings)
        return {
            "S2": Job(run_of(settings, "S2", rivals.NAMED), 0, "epsilon", lengths=lengths, both=True),
            "S1": Job(run_of(settings, "S1", 0.1), 0, "epsilon", lengths=lengths, both=True),
        }

    def _cheaper(self, settings: Settings, measured: Measured, form: rivals.Form, job: Job) -> list[Claim]:
        found, K = [], settings.iterations
        for words, (mechanism, accountant) in _OURS.items():
            curves = {name: epsilons.curve(measured.costs(own), mechanism, accountant)
                      for name, own in self._ours(settings).items()}  # fmt: skip
            if not all(K in curve for curve in curves.values()):
                continue  # so short that S1's steps are no averages
            mine = {name: curve[K] for name, curve in curves.items()}
            for charge, how in ((epsilons.WITH, "with 1/m"), (epsilons.WITHOUT, "without 1/m")):
                best = _best(measured, job, charge)
                if K not in best:
                    continue
                theirs, by = best[K]
                told = f"S1 {mine['S1']:,.6g}, S2 {mine['S2']:,.6g} against {theirs:,.6g} ({by}) at K = {K}"
                for reading, answered in _both_readings(mine, theirs).items():
                    text = f"{_CHEAPER} {form.rival.cite}."
                    how_read = f"{form.label}; Algorithm 1: {words}; rival {how}; {reading}"
                    found.append(claim(f"{self.name}.{form.rival.cite}", text, answered, told, how_read))
        return found

    def _panel(self, settings: Settings, measured: Measured, shown: Mapping[rivals.Form, Job]) -> Panel:
        lines = []
        for words, (mechanism, accountant) in _OURS.items():
            for name, own in self._ours(settings).items():
                curve = epsilons.curve(measured.costs(own), mechanism, accountant)
                lines.append(_line(f"Algorithm 1, {name}, {words}", curve, own))
        for form, job in shown.items():
            for charge, how in ((epsilons.WITH, "C/m"), (epsilons.WITHOUT, "C")):
                curve = {K: value for K, (value, _) in _best(measured, job, charge).items()}
                lines.append(_line(f"{form.label}, {how}", curve, job))
        caption = (
            "Cumulative epsilon as a function of the maximum iteration number; every K is a run of its own. Rivals are "
            "charged for a mean over m samples (C/m) and without it (C). "
            + about(
                measured, settings, self._ours(settings)["S2"], "as the legend says; the least that speaks of a rival"
            )
        )
        kept = tuple(line for line in lines if line.points)
        return Panel("epsilon", self.title, "maximum iteration number K", "epsilon", kept, caption, y_scale="log")

    def _delta(self, settings: Settings, measured: Measured, shown: Mapping[rivals.Form, Job]) -> Panel:
        lines = []
        for form, job in shown.items():
            for charge, how in ((epsilons.WITH, "C/m"), (epsilons.WITHOUT, "C")):
                curve = {K: v for K, (v, _) in _best(measured, job, charge, delta=True).items()}
                lines += [_line(f"{form.label}, {how}", curve, job)] if curve else []
        caption = (
            "Cumulative delta of methods whose quantiser is the only noise, as a function of the maximum iteration "
            "number: 1 - prod(1 - delta_k), which bounds the total variation. r is not printed in the paper. "
            + about(measured, settings, self._ours(settings)["S2"], "total variation, conditional as Lemma 5 is")
        )
        return Panel("delta", f"{self.title}: delta", "maximum iteration number K", "delta", tuple(lines), caption)


_OURS: Mapping[str, tuple[str, str]] = {
    "Lemma 5 (conditional)": (PAPER.name, LEMMA5.name),
    "sound": (PUBLISHED_POINT.name, TIGHT.name),
}


def _lengths(settings: Settings) -> tuple[int, ...]:
    K = settings.iterations
    return tuple(sorted({max(1, round(K * part / 8)) for part in range(1, 9)}))


def _best(measured: Measured, job: Job, charge: str, *, delta: bool = False) -> dict[int, tuple[float, str]]:
    """The least epsilon by K, and whose it is: pure and sound, else conditional, else at the run's delta.

    ``delta``: instead, the delta of a quantiser that is the only noise.
    """
    found: dict[int, tuple[int, float, str]] = {}
    for cost in measured.costs(job):
        one = ACCOUNTANTS[cost.accountant]
        if cost.mechanism != job.run.algorithm.mechanism or cost.charge != charge:
            continue
        if (one.guarantee == "total-variation") != delta:
            continue
        rank = 0 if one.pure and one.sound else 1 if not one.sound else 2
        more = ("", ", conditional", f", delta = {job.run.privacy.delta:g}")[rank]
        mine = (rank, cost.epsilon, f"{one.name}{more}")
        found[cost.K] = min(found.get(cost.K, mine), mine)
    return {K: (value, name) for K, (_, value, name) in found.items()}


def _line(label: str, curve: Mapping[int, float], job: Job) -> Line:
    return Line(label, tuple(Point.over(float(K), [value]) for K, value in sorted(curve.items())), (job.name,))


def _both_readings(mine: Mapping[str, float], theirs: float) -> dict[str, Answered]:
    """By what (S1) is in Section IV-D; one entry where it makes no difference."""
    own = _below({"S1": mine["S1"], "S2": mine["S2"]}, theirs)
    same = _below({"S1, which is S2": mine["S2"], "S2": mine["S2"]}, theirs)
    if own.verdict == same.verdict:
        return {"S1 with its own parameters or with those of S2": own}
    return {"S1 with its own parameters": own, "S1 with the parameters of S2": same}


def _below(mine: Mapping[str, float], theirs: float) -> Answered:
    answers: dict[str, Answer] = {
        f"{name} at {value:,.6g} is {'below' if value < theirs else 'not below'} {theirs:,.6g}":
            "yes" if value < theirs else "no"
        for name, value in mine.items()
    }  # fmt: skip
    return combined(answers)


def _ternary() -> Claim:
    """D_{k+1} = |1 - a| D_k + gamma C/m, a = alpha s_i: what one sample moves of the x that is quantised."""
    run = run_of(Settings(iterations=PAPER_K), "S2", rivals.NAMED)
    schedule, W = Schedule.from_config(run), metropolis(Topology.from_config(run.graph))
    a = schedule.alpha * min(1.0 - W[i, i] for i in range(run.n))
    values = {}
    for charge, m in (("with 1/m", schedule.m_for(None)), ("without 1/m", 1)):
        shifts = [0.0]
        while len(shifts) < _TERNARY_ROUNDS:
            shifts.append(abs(1.0 - a) * shifts[-1] + schedule.gamma / m)
        values[f"deltas add up to 1, {charge}"] = scale_that_reaches(shifts, len(shifts), 1.0, "sum")
        values[f"the product rule gives .99, {charge}"] = scale_that_reaches(shifts, len(shifts), 0.99, "product")
    measured = "; ".join(f"r = {value:,.4g} where {rule}" for rule, value in values.items())
    return claim("fig6.delta", _TERNARY, hinges_on("r", values), f"{measured}; K = {PAPER_K}", "C = 1, our weights")


FIGURES = (Accuracy(), Epsilon())
