"""``dpgt check``: everything the theory says about a run file before anything starts."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpgt_node.cli.common import (
    alike_option,
    data_root,
    find_shape,
    format_option,
    out_of_range,
    reddened,
    run_argument,
)
from dpgt_node.config import RunConfig, load_run
from dpgt_node.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from dpgt_node.accounts.towards import Towards
    from dpgt_node.algo.checks import Check
    from dpgt_node.algo.theory import CheckReport
    from dpgt_node.runtime.disk import DiskNeed
    from dpgt_node.sim.plans.staying import Staying

_WIDTH = 160
_NO_PRIVACY = "Privacy: none. Method {} draws no noise, so every epsilon is infinite."
_MARK = {True: "ok", False: "FAILS", None: "?"}


@click.command()
@run_argument
@format_option
@click.option(
    "--alone",
    is_flag=True,
    help="Also rehearse the run on synthetic data, beside every agent alone: is the exchange expected to pay?",
)
@alike_option
@click.option("--shape", "shape_text", metavar="P,CLASSES,D", help="With --alone: as for dpgt plan.")
def check(run_file: Path, format_: str, alone: bool, alike: str | None, shape_text: str | None) -> ExitCode:
    """Check the assumptions, step bounds and theorem conditions of RUN.toml; predict rates and epsilon.

    Exits 1 when a condition fails without which a run is refused, or when launch and simulate would refuse its data or
    model; all others are warnings.
    """
    from dpgt_node.algo.methods.dsgd.central import curated
    from dpgt_node.learning.oracle import data_problem, odd_about_data

    run = curated(load_run(run_file))
    report, unknown = examine(run), None
    if not alone and (alike is not None or shape_text is not None):
        raise ConfigError.one("command line", "--alike" if shape_text is None else "--shape", "goes with --alone")
    staying = expected(run, str(run_file), alike, shape_text) if alone and not report.failed_hard else None
    refused = data_problem(run, data_root())
    try:
        needs = disk_needs(run)
    except ConfigError as error:  # m_K > D, which the report says too; a model that this machine cannot build
        needs, unknown = (), str(error).splitlines()[0]
        refused = None if report.failed_hard else str(error)
    if refused is None and not report.failed_hard:
        refused = "\n".join(map(str, out_of_range(run))) or None
    odd = odd_about_data(run, data_root())
    if format_ == "json":
        by_agent = [words(report, i) for i in range(run.n)]
        strength = {name: [one[name] for one in by_agent] for name in report.epsilon}
        document = {
            **report.to_json(),
            "strength": strength,
            "delta_warning": warned_delta(report),
            "looked_at": looked_at(report),
            "data": list(odd),
            "refused": refused,
            "disk": disk_json(needs),
        }
        if staying is not None:
            document["alone"] = {
                "expected_alone": staying.alone,
                "expected_worst": staying.exchange.worst,
                "expected_mean": staying.exchange.mean,
                "alike": staying.alike.words,
            }
        if (whom := towards(report)) is not None:
            document |= {"towards": whom.to_json(), "epsilon_towards": whom.by_t()}
        click.echo(json.dumps(document, allow_nan=False, indent=2))
    else:
        click.echo(reddened(render(report, disk_lines(needs, unknown), odd)))
        if staying is not None:
            click.echo(staying.words)
        click.echo("\n".join(f"Refused: {line}" for line in (refused or "").splitlines()), nl=refused is not None)
    return ExitCode.CHECK_FAILED if report.failed_hard or refused is not None else ExitCode.DONE


def expected(run: RunConfig, source: str, alike: str | None, shape_text: str | None) -> Staying:
    """Whether the exchange is expected to pay, without a look at anybody's data but their shape."""
    from dpgt_node.sim.plans.alike import Alike
    from dpgt_node.sim.plans.staying import Ground

    shape, how = find_shape(run, source, shape_text), Alike.of(run) if alike is None else Alike.stated(alike)
    return Ground(run, shape, how).compare(run)


def examine(run: RunConfig) -> CheckReport:
    """Gather what this machine knows of the data and the objective, and judge ``run``."""
    from dpgt_node.accounts.account import agent_accounts, reasons, totals
    from dpgt_node.algo.graph import Topology
    from dpgt_node.algo.schedule import Schedule
    from dpgt_node.algo.theory import check_run
    from dpgt_node.learning.oracle import constants, data_is_here, sample_counts

    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    D: tuple[int | None, ...] = (None,) * run.n
    known: tuple[float, float | None] | None = None
    root = data_root()
    if data_is_here(run, root):
        D, known = sample_counts(run, root), constants(run, root)
    L1, mu = known if known is not None else (None, None)
    accounts = agent_accounts(run, topology, schedule, D, dimension=_coded(run))
    return check_run(run, topology, schedule, D=D, L1=L1, mu=mu, epsilon=totals(accounts), reasons=reasons(accounts))


def _coded(run: RunConfig) -> int | None:
    """d, where codes of gradients are accounted by it; None for other methods, and where d is not known here."""
    from dpgt_node.algo.methods import method_of
    from dpgt_node.learning.oracle import build_oracle, data_is_here

    if method_of(run).coins(run) is None or not data_is_here(run, data_root()):
        return None
    try:
        return build_oracle(run, 0, data_root=data_root()).dimension
    except ConfigError:  # said elsewhere: m_K > D, or a model that this machine cannot build
        return None


def towards(report: CheckReport) -> Towards | None:
    """What fewer than all others learn; None where pairs of agents share no noise."""
    from dpgt_node.accounts.towards import towards_whom

    names = report.facts.run.graph.agents
    costs = {agent: {name: of[i] for name, of in report.epsilon.items()} for i, agent in enumerate(names)}
    return towards_whom(report.facts.run, costs, dict(zip(names, report.facts.D, strict=True)))


def looked_at(report: CheckReport) -> str | None:
    """What in this report was computed from training samples, in words; None where nothing was."""
    from dpgt_node.config.vocabulary import TOYS
    from dpgt_node.learning.data.shards import unit_norms

    run, L1 = report.facts.run, report.facts.L1
    if L1 is None or run.data.dataset in TOYS or unit_norms(run):
        return None
    return (
        f"The training samples of all agents: L1 = {_number(L1)} follows from the largest norm among them. Whoever "
        "chooses steps, clip or features by it has looked at private data, and no epsilon covers that choice"
    )


def disk_needs(run: RunConfig) -> tuple[DiskNeed, ...]:
    """What each agent, in the order of the run file, and then the coordinator need; () where the data are not here.

    ConfigError: the model cannot be built.
    """
    from dpgt_node.algo.schedule import Schedule
    from dpgt_node.learning.oracle import build_oracle, data_is_here, sample_counts
    from dpgt_node.learning.tables import table_size
    from dpgt_node.runtime.disk import agent_need, coordinator_need

    root = data_root()
    if not data_is_here(run, root):
        return ()
    oracle = build_oracle(run, 0, data_root=root)
    schedule, D = Schedule.from_config(run), sample_counts(run, root)
    batches = [None if count is None else schedule.m_for(count) for count in D]
    d, size = oracle.dimension, oracle.sample_size
    agents = [
        agent_need(run, name, d, m, size, table_size(run, oracle, count))
        for name, m, count in zip(run.graph.agents, batches, D, strict=True)
    ]
    return (*agents, coordinator_need(run, d))


def disk_lines(needs: Sequence[DiskNeed], unknown: str | None = None) -> list[str]:
    """A table of the needs, in text; ``unknown``: why there are none."""
    if not needs:
        return [f"Disk: not known here, {'where the data are not' if unknown is None else unknown}"]
    from dpgt_node.runtime.disk import readable

    head = ["process", "disk needed", "rows kept", "payloads", "checkpoints", "log", "results"]
    parts = [[n.total, n.rounds, n.payloads, n.checkpoints, n.log, n.results] for n in needs]
    if any(need.recorded for need in needs):
        head.append("recorded")
        parts = [[*numbers, need.recorded] for need, numbers in zip(needs, parts, strict=True)]
    rows = [(need.name, *map(readable, numbers)) for need, numbers in zip(needs, parts, strict=True)]
    return ["Disk, at the worst moment of the run", *_table(head, rows)]


def disk_json(needs: Sequence[DiskNeed]) -> dict[str, Any] | None:
    """{ agents: [ { name, bytes, parts } ], coordinator: { bytes } }, null where d is not known."""
    if not needs:
        return None
    from dataclasses import asdict

    agents = [
        {"name": need.name, "bytes": need.total, "parts": {k: v for k, v in asdict(need).items() if k != "name"}}
        for need in needs[:-1]
    ]
    return {"agents": agents, "coordinator": {"bytes": needs[-1].total}}


def render(report: CheckReport, disk: Sequence[str] = (), odd: Sequence[str] = ()) -> str:
    """The report as text: graph, steps, one line a condition, rates, epsilon per agent, what goes before the end."""
    from dpgt_node.algo.conditions import NOT_APPLYING
    from dpgt_node.algo.methods import method_of

    f, t = report.facts, report.facts.topology
    s, rates, method = f.schedule, report.rates, method_of(f.run)
    r, c = method.couplings(t)

    def names(agents: Sequence[int]) -> str:
        return ", ".join(t.names[i] for i in agents) or "none"

    lines = [
        f"{f.run.name}: {f.n} agent{'s' * (f.n > 1)}, K = {s.K}, scheme {s.kind}",
        f"method {method.name} ({method.status}: {method.source}): {method.title}",
        "",
        "Graph",
        f"  roots of R         {names(t.roots_R)}",
        f"  roots of C'        {names(t.roots_C)}",
        f"  common roots       {names(t.common_roots)}",
        f"  eigenvalues of L1  {_complex(f.eigenvalues_L1)}",
        f"  eigenvalues of L2  {_complex(f.eigenvalues_L2)}",
        f"  r1, r2             {_number(f.r1)}, {_number(f.r2)}",
        "",
        *_table(
            ("agent", "r_i", "c_i", "a_i", "b_i", "v1", "v2", "D"),
            [
                (
                    t.names[i],
                    _number(float(r[i])),
                    _number(float(c[i])),
                    _number(float(s.alpha * r[i])),
                    _number(float(s.beta * c[i])),
                    _number(None if f.v1 is None else float(f.v1[i])),
                    _number(None if f.v2 is None else float(f.v2[i])),
                    _number(f.D[i]),
                )
                for i in range(f.n)
            ],
        ),
        "Steps",
        f"  alpha {_number(s.alpha)} (Lemma 1: below {_number(f.alpha_max)})   beta {_number(s.beta)} (below "
        f"{_number(f.beta_max)})   gamma {_number(s.gamma)}   m_K {s.m if s.m is not None else 'full'}",
        *([f"  {s.apart}"] if f.run.scheme.apart else []),
        "",
        *([f"Looked at: {looked}.", ""] if (looked := looked_at(report)) is not None else []),
        *(f"Data: {line}." for line in odd),
        *([""] if odd else []),
        *_table(("", "condition", "left", "", "right", "note"), [_row(row) for row in report.checks]),
        *(_privacy(report) if method.noisy else (_NO_PRIVACY.format(method.name), "")),
        "Predicted rate" + (f" (Theorem {rates.theorem}, if its assumptions hold)" if rates.theorem else ""),
    ]
    if rates.theorem == 2:
        lines.append(f"  E|grad F|^2 = O((K+1)^-{_number(rates.exponent)}), theta = {_number(rates.theta)}")
    elif rates.theorem == 3:
        lines.append(
            f"  E|grad F|^2 = O(q^K), q = {_factor(rates.factor)} = max(rho(A_K) = {_factor(rates.rho_A_K)}, 1/p_m = "
            f"{_factor(rates.inverse_p_m)}, max p^2 = {_factor(rates.max_p_squared)})"
        )
    lines.append(f"  oracle complexity, sum of m_k over all releases: {rates.oracle_complexity or '-'}")
    lines += [f"  {rates.note}"] if rates.note else []
    hard, soft = report.failed_hard, report.warnings
    applying = len(report.checks) - sum(row.note in NOT_APPLYING for row in report.checks)
    what = f"mechanism {f.run.algorithm.mechanism}" if method.noisy else f"method {method.name}"
    apply = f"{applying} of {len(report.checks)} conditions apply to {what}; "
    lines += ["", *disk]
    lines += [apply + (f"{len(soft)} of the paper's fail (warnings)." if soft else "no warning.")]
    lines += [f"Refused: {row.statement}" for row in hard]
    return "\n".join(line.rstrip() for line in lines)


def _privacy(report: CheckReport) -> list[str]:
    """The whole run's epsilon under every accountant, agent by agent, and why an accountant has none."""
    from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
    from dpgt_node.privacy.mechanisms import MECHANISMS
    from dpgt_node.record.epsilons import noise_words
    from dpgt_node.report.text import judged

    run, privacy, names = report.facts.run, report.facts.run.privacy, report.facts.topology.names
    if privacy.clip_l2 is not None:
        adjacency = f"C2 = {2.0 * privacy.clip_l2:g} (L2), enforced by clipping"
    elif privacy.adjacency is not None:
        adjacency = f"C = {privacy.adjacency:g} (L1), " + (
            "enforced by clipping" if privacy.enforced else "declared, not enforced"
        )
    else:
        adjacency = "no bound known"
    speaking = [name for name in ACCOUNTANTS if any(v is not None for v in report.epsilon.get(name, ()))]
    lines = [
        f"Epsilon of each agent's whole transcript, k = 0..{run.K}, mechanism {run.algorithm.mechanism}, "
        f"{noise_words(run.noise.law, run.algorithm.mechanism)}",
        f"  adjacent data sets: one sample replaced, gradients apart by at most {adjacency}; delta = {privacy.delta:g}",
        *(
            [f"  times {', '.join(f'{share:g}' for share in privacy.by_release)} by release"]
            if privacy.by_release
            else []
        ),
        *([f"  times {privacy.decay:g}^(-k/K) in round k"] if privacy.decay else []),
        *(["  the first release is of features summed by class"] if run.scheme.first == "class-sums" else []),
        *_table(
            ("agent", *(ACCOUNTANTS[name].label for name in speaking)),
            [
                (agent, *(judged(report.epsilon[name][i], words(report, i)[name]) for name in speaking))
                for i, agent in enumerate(names)
                if speaking
            ],
        ),
    ]
    lines += [f"  WARNING: {said}"] if (said := warned_delta(report)) is not None else []
    mechanism = MECHANISMS[run.algorithm.mechanism]
    for one in (one for one in ACCOUNTANTS.values() if not one.aside or one.covers(mechanism)):
        texts = report.reasons.get(one.name, ())
        for text in dict.fromkeys(text for text in texts if text is not None):
            agents = [agent for agent, other in zip(names, texts, strict=True) if other == text]
            whose = "" if len(agents) == len(names) else f" ({', '.join(agents)})"
            lines.append(f"  null: {one.label}{whose}: {text}")
    if (whom := towards(report)) is not None:
        lines += ["", *towards_lines(whom, names)]
    return [*lines, ""]


def towards_lines(whom: Towards, names: Sequence[str]) -> list[str]:
    """The table of epsilon towards any t of the others, with what it rests on."""
    from dpgt_node.accounts.towards import ASSUMPTIONS
    from dpgt_node.report.text import alike, judged

    rows = [(who, *(judged(value, word) for value, word in row)) for who, row in alike(names, whom.rows)]
    table = _table(("agent", *whom.heads), rows)
    return [whom.title, *table, f"  {whom.rests_on}", *(f"  - {text}" for text in ASSUMPTIONS)]


def words(report: CheckReport, i: int) -> dict[str, str]:
    """What the epsilon of agent ``i`` is worth, by accountant, in one word."""
    from dpgt_node.privacy.strength import strength

    privacy, D = report.facts.run.privacy, report.facts.D[i]
    return {
        name: strength(name, values[i], privacy.delta, samples=D, enforced=privacy.enforced)
        for name, values in report.epsilon.items()
    }


def warned_delta(report: CheckReport) -> str | None:
    """What must be said of a delta of 1/D or more, where an epsilon uses it."""
    from dpgt_node.privacy.accountants.registry import APPROXIMATE
    from dpgt_node.privacy.strength import delta_warning

    used = any(v is not None for name in APPROXIMATE for v in report.epsilon.get(name, ()))
    most = max((D for D in report.facts.D if D is not None), default=None)
    return delta_warning(report.facts.run.privacy.delta, most) if used else None


def _row(row: Check) -> tuple[str, ...]:
    mark = _MARK[row.passed] if not row.hard or row.passed is not False else "REFUSED"
    return mark, row.name, _number(row.lhs), row.relation, _number(row.rhs), row.note


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.6g}" if abs(value) < 1e4 else f"{value:,.1f}"


def _factor(value: float | None) -> str:
    """A factor a round: six digits would round a slow one to 1."""
    return f"1 - {1.0 - value:.3g}" if value is not None and 0.999 < value < 1.0 else _number(value)


def _complex(values: Sequence[complex]) -> str:
    shown = [f"{w.real:.4g}" + (f"{w.imag:+.4g}i" if w.imag else "") for w in values[:12]]
    return ", ".join(shown) + (f" and {len(values) - 12} more" if len(values) > 12 else "")


def _table(head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> list[str]:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in head:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    out = io.StringIO()
    Console(file=out, width=_WIDTH).print(table)
    return out.getvalue().splitlines()
