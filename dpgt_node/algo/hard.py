"""Conditions without which launch, simulate and coordinator refuse a run, as rows with both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpgt_node.algo.checks import Check, compare, listed, worst
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import method_of, network_of
from dpgt_node.algo.methods.base import Setting
from dpgt_node.algo.methods.robust import robust_rows
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.config.methods import method_options
from dpgt_node.config.vocabulary import TOYS


def hard_rows(run: model.RunConfig, t: Topology, s: Schedule, D: Sequence[int | None]) -> list[Check]:
    """What launch, simulate and coordinator refuse: Assumption 1 and a_i, b_i in [0, 1) where the paper speaks of the
    method, what the method asks for itself, and 1 <= m_K <= D.

    Steps and weights are never negative (``config``), so that only the upper end needs a row.
    """
    ones = (1.0,) * t.n
    rows = []
    if method_of(run).theorems:
        rows = [
            *graph_rows(t),
            worst("a_i = alpha r_i in [0, 1)", t.names, [float(s.alpha * r) for r in t.r], "<", ones, hard=True),
            worst("b_i = beta c_i in [0, 1)", t.names, [float(s.beta * c) for c in t.c], "<", ones, hard=True),
        ]
    own = [row for _, row in method_rows(run, t, s, D)]
    return [*rows, *own, *(() if s.arriving else _sampling_rows(run, t.names, s.m, D))]


def method_rows(run: model.RunConfig, t: Topology, s: Schedule, D: Sequence[int | None]) -> list[tuple[str, Check]]:
    """(key of the run file, row) of what the run's method asks for.  ConfigError: keys of [method] that it has not."""
    method, rows, setting = method_of(run), [], Setting(run, t, s, D)
    method_options(run, method.options)
    for demand in method.demands:
        names = demand.breakers(setting)
        row = compare(f"{method.name}: {demand.what}; agents outside", float(len(names)), "=", 0.0, hard=True)
        rows.append((demand.key, row.noted(listed(names) if names else "")))
    if not method.noisy:
        row = compare(f"{method.name}: draws no noise; multiplier", run.noise.multiplier, "=", 0.0, hard=True)
        remedy = "write noise.multiplier = 0.0" if row.passed is False else ""
        rows.append(("noise.multiplier", row.noted(remedy)))
    return [*rows, *robust_rows(run, method, t), *_role_rows(run, t)]


def _role_rows(run: model.RunConfig, t: Topology) -> list[tuple[str, Check]]:
    """Roles whose vectors the agent sends, to everybody whom they name."""
    rows: dict[str, tuple[str, Check]] = {}
    active = run.adversary.active
    if not active:
        return []
    network = network_of(run, t)
    for name, _ in active:
        peers = network.peers(t.names.index(name))
        for role in active.of(name):
            streams = [stream for stream in network.streams if role.stream in (None, stream)]
            reached = {t.names[i] for i, sent in peers.items() if not set(streams).isdisjoint(sent)}
            missing = [other for other in role.to if other not in reached]
            if not streams or (role.on_links and not reached):
                missing = ["nobody gets it from this agent"]
            what = f"active.{name}: {role.word} of {role.stream or 'X and Y'}; receivers without it"
            if missing:
                row = compare(what, float(len(missing)), "=", 0.0, hard=True).noted(listed(missing))
                rows[what] = (f"adversary.active.{name}", row)
    return list(rows.values())


def graph_rows(t: Topology) -> list[Check]:
    """Assumption 1."""
    named = {key: listed(names) for key, names in t.breakers().items()}
    return [
        compare("Assumption 1: roots of R", float(len(t.roots_R)), ">=", 1.0, hard=True).noted(
            f"no spanning tree; the widest sender does not reach: {named['R']}" if "R" in named else ""
        ),
        compare("Assumption 1: roots of C'", float(len(t.roots_C)), ">=", 1.0, hard=True).noted(
            f"no spanning tree; the widest receiver is not reached by: {named['C']}" if "C" in named else ""
        ),
        compare("Assumption 1: common roots", float(len(t.common_roots)), ">=", 1.0, hard=True).noted(
            "" if t.common_roots else f"roots of R: {_names(t, t.roots_R)}; roots of C': {_names(t, t.roots_C)}"
        ),
    ]


def _sampling_rows(run: model.RunConfig, names: tuple[str, ...], m: int | None, D: Sequence[int | None]) -> list[Check]:
    """1 <= m_K <= D; "full" takes each agent's own D.  A toy is a formula: it has no samples to run out of."""
    known = [(name, float(d)) for name, d in zip(names, D, strict=True) if d is not None]
    missing = [name for name, d in zip(names, D, strict=True) if d is None]
    holders, sizes = [name for name, _ in known], [d for _, d in known]
    taken = sizes if m is None else [float(m)] * len(known)
    if known:
        least = worst("m_K >= 1", holders, taken, ">=", [1.0] * len(known), hard=True)
        fits = worst("m_K <= D", holders, taken, "<=", sizes, hard=True)
    else:
        least = compare("m_K >= 1", None if m is None else float(m), ">=", 1.0, hard=True)
        fits = compare("m_K <= D", None if m is None else float(m), "<=", None, hard=True)
    if missing and run.data.dataset in TOYS:
        why = f"{run.data.dataset} is a formula without samples"
        return [least if m is not None else least.not_applying(why), fits.not_applying(why)]
    if missing:
        unknown = f"no D known here (data of another host): {listed(missing)}"
        fits = _unless_failed(fits).noted(unknown)
        if m is None:
            least = _unless_failed(least).noted(unknown)
    return [least, fits]


def _unless_failed(row: Check) -> Check:
    return row if row.passed is False else replace(row, passed=None)


def _names(t: Topology, agents: tuple[int, ...]) -> str:
    return listed([t.names[i] for i in agents]) or "none"


def hard_failures(
    run: model.RunConfig, topology: Topology, schedule: Schedule, D: Sequence[int | None]
) -> tuple[tuple[str, str], ...]:
    """(key of the run file, message) of every hard condition that does not hold; empty when the run may start."""
    keys = {
        "Assumption 1: roots of R": "graph.R",
        "Assumption 1: roots of C'": "graph.C",
        "Assumption 1: common roots": "graph",
        "a_i = alpha r_i in [0, 1)": "scheme.alpha" if schedule.kind == "S2" else "scheme.a1",
        "b_i = beta c_i in [0, 1)": "scheme.beta" if schedule.kind == "S2" else "scheme.a2",
        "m_K >= 1": "scheme",
        "m_K <= D": "scheme",
        **{row.name: key for key, row in method_rows(run, topology, schedule, D)},
    }
    rows = hard_rows(run, topology, schedule, D)
    return tuple((keys[row.name], row.statement) for row in rows if row.passed is False)
