"""Everything ``dpgt check`` says about a run before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from dpgt_node.algo.checks import Check, json_number, judged_by_bounds, shown
from dpgt_node.algo.conditions import lemma1_rows, objective_rows, scheme_rows, step_rows
from dpgt_node.algo.facts import Facts, gather
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.hard import hard_rows
from dpgt_node.algo.methods import method_of
from dpgt_node.algo.rates import Rates, predict
from dpgt_node.algo.schedule import Schedule
from dpgt_node.algo.spectrum import Spectrum, spectrum, weight_step_bound
from dpgt_node.config import model
from dpgt_node.values import dataclass

Json = dict[str, object]
Epsilons = Mapping[str, Sequence[float | None]]
Reasons = Mapping[str, Sequence[str | None]]


@dataclass(frozen=True, slots=True, eq=False)
class CheckReport:
    """Graph facts, steps, judged conditions, predicted rates.

    ``epsilon`` per accountant and agent, and ``reasons`` where it is None, as handed in.
    """

    facts: Facts
    checks: tuple[Check, ...]
    rates: Rates
    epsilon: Epsilons
    reasons: Reasons

    @property
    def failed_hard(self) -> tuple[Check, ...]:
        """Hard conditions that do not hold: exit 1 in ``check``, exit 2 where a run would start."""
        return tuple(row for row in self.checks if row.hard and row.passed is False)

    @property
    def warnings(self) -> tuple[Check, ...]:
        """Failing rows that do not stop a run."""
        return tuple(row for row in self.checks if not row.hard and row.passed is False)

    def to_json(self) -> Json:
        """The object of ``check --format json``: no NaN, infinity as "inf", unknown as None, names not indices."""
        f, t = self.facts, self.facts.topology
        return {
            "graph": {
                "agents": list(t.names),
                "roots_R": [t.names[i] for i in t.roots_R],
                "roots_C": [t.names[i] for i in t.roots_C],
                "common_roots": [t.names[i] for i in t.common_roots],
                "breakers": {key: list(names) for key, names in t.breakers().items()},
                "r": [float(v) for v in t.r],
                "c": [float(v) for v in t.c],
                "eigenvalues_L1": [[w.real, w.imag] for w in f.spectrum_L1.values],
                "eigenvalues_L2": [[w.real, w.imag] for w in f.spectrum_L2.values],
                "bounds_L1": _bounds(f.spectrum_L1),
                "bounds_L2": _bounds(f.spectrum_L2),
                "v1": None if f.v1 is None else [float(v) for v in f.v1],
                "v2": None if f.v2 is None else [float(v) for v in f.v2],
                "r1": f.r1,
                "r2": f.r2,
            },
            "steps": {
                "alpha": f.schedule.alpha,
                "beta": f.schedule.beta,
                "gamma": f.schedule.gamma,
                "m": self._m(),
                "D": list(f.D),
                "alpha_max": json_number(f.alpha_max),
                "beta_max": json_number(f.beta_max),
            },
            "checks": [
                {
                    "name": row.name,
                    "passed": row.passed,
                    "applies": row.applies,
                    "lhs": json_number(row.lhs),
                    "relation": row.relation,
                    "rhs": json_number(row.rhs),
                    "note": row.note,
                    "hard": row.hard,
                }
                for row in self.checks
            ],
            "epsilon": {name: [json_number(v) for v in values] for name, values in self.epsilon.items()},
            "epsilon_reasons": {name: list(texts) for name, texts in self.reasons.items()},
            "rates": asdict(self.rates),
        }

    def _m(self) -> int | str | None:
        """m_K; "full" when it differs between agents, None when it is D and no D is known."""
        if self.facts.schedule.m is not None:
            return self.facts.schedule.m
        sizes = set(self.facts.D)
        return sizes.pop() if len(sizes) == 1 else "full"


def check_run(
    run: model.RunConfig,
    topology: Topology,
    schedule: Schedule,
    *,
    D: Sequence[int | None],
    L1: float | None = None,
    mu: float | None = None,
    epsilon: Epsilons | None = None,
    reasons: Reasons | None = None,
) -> CheckReport:
    """Judge a run.

    ``D``: samples of every agent, None where this machine cannot know.  ``L1``, ``mu``: constants of Assumptions 2(i)
    and 3, None where unknown.  ``epsilon``, ``reasons``: per accountant, per agent, from ``accounts.account`` (a
    layer above).
    """
    facts = gather(run, topology, schedule, tuple(D), L1, mu)
    rows = hard_rows(run, topology, schedule, facts.D)
    if method_of(run).theorems:
        rows += [*lemma1_rows(facts), *objective_rows(facts), *scheme_rows(facts)]
    return CheckReport(
        facts=facts, checks=tuple(rows), rates=predict(facts), epsilon=epsilon or {}, reasons=reasons or {}
    )


def step_warnings(topology: Topology, schedule: Schedule) -> tuple[str, ...]:
    """Bounds of Lemma 1 that the steps exceed, one line each: ``name: lhs relation rhs``."""
    spectra = (spectrum(topology.in_R), spectrum(topology.in_C))
    a, b = ((weight_step_bound(w), s.step_bound) for w, s in zip((topology.r, topology.c), spectra, strict=True))
    rows = step_rows(schedule, a, b)
    failing = [row for row in judged_by_bounds(rows, any(s.bounded for s in spectra)) if row.passed is False]
    return tuple(f"{row.name}: {shown(row.lhs)} {row.relation} {shown(row.rhs)}" for row in failing)


def _bounds(w: Spectrum) -> Json | None:
    """What stands in for eigenvalues that were not computed; None where all are there."""
    return {"least_real_part": json_number(w.least), "largest_modulus": w.radius} if w.bounded else None
