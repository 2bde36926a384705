"""What this machine can say of a run file before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpgt_node.cli.common import data_root
from dpgt_node.cli.shape import find_shape
from dpgt_node.config import RunConfig
from dpgt_node.errors import ConfigError
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.accounts.towards import Towards
    from dpgt_node.algo.theory import CheckReport
    from dpgt_node.runtime.disk import DiskNeed
    from dpgt_node.sim.plans.staying import Staying


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
    from dpgt_node.learning.data.shards import data_is_here
    from dpgt_node.learning.oracle import constants, sample_counts

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
    from dpgt_node.learning.data.shards import data_is_here
    from dpgt_node.learning.oracle import build_oracle

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


def absent_data(run: RunConfig) -> tuple[str, ...]:
    """That the data are not on this machine, and what to do, a line a file; () where they are, or are a formula."""
    from dpgt_node.learning.data.shards import absent_files, data_is_here

    root, name = data_root(), run.data.dataset
    if data_is_here(run, root):
        return ()
    needed = "launch and simulate need it here, a coordinator alone does not"
    files = [f"{one.key}: {one.message}: it is not on this machine" for one in absent_files(run)]
    if files:
        return (*files[:-1], f"{files[-1]}. Correct the path, unless each agent has a file of its own; {needed}")
    where = "there is no data folder" if root is None else f"not in {root}"
    return (
        f"{name} is not on this machine ({where}): run `dpgt data fetch {name}`, or set DPGT_DATA to the folder that "
        f"has it; {needed}",
    )


def unknown_epsilon(report: CheckReport) -> str | None:
    """Why no epsilon is known on this machine, where the data would tell one; None: one is, or nothing could."""
    from dpgt_node.learning.data.shards import data_is_here
    from dpgt_node.privacy.accountants.accountant import NOT_KNOWN
    from dpgt_node.privacy.accountants.registry import SOUND
    from dpgt_node.report.text import no_privacy

    run = report.facts.run
    if _proved(report) or no_privacy(run) is not None or data_is_here(run, data_root()):
        return None
    texts = (text for name in SOUND for text in report.reasons.get(name, ()) if text is not None)
    return next((text for text in texts if NOT_KNOWN in text), None)


def _proved(report: CheckReport) -> bool:
    from dpgt_node.privacy.accountants.registry import SOUND

    return any(value is not None for name in SOUND for value in report.epsilon.get(name, ()))


_RANGES = (
    "The rows themselves: bounds of columns are their smallest and largest values (bounds_from). The run file shows "
    "them to all who read it, and no epsilon covers that. State what is publicly known instead"
)


def looked_at(report: CheckReport) -> str | None:
    """What in this report or run file was computed from training samples, in words; None where nothing was."""
    ranges = None if report.facts.run.data.params.get("bounds_from") is None else _RANGES
    return ". ".join(said for said in (ranges, _norms(report)) if said is not None) or None


def _norms(report: CheckReport) -> str | None:
    from dpgt_node.config.vocabulary import TOYS
    from dpgt_node.learning.data.shards import unit_norms

    run, L1 = report.facts.run, report.facts.L1
    if L1 is None or run.data.dataset in TOYS or unit_norms(run):
        return None
    return (
        f"The training samples of all agents: L1 = {number(L1)} follows from the largest norm among them. Whoever "
        "chooses steps, clip or features by it has looked at private data, and no epsilon covers that choice"
    )


def disk_needs(run: RunConfig) -> tuple[DiskNeed, ...]:
    """What each agent, in the order of the run file, and then the coordinator need; () where the data are not here.

    ConfigError: the model cannot be built.
    """
    from dpgt_node.algo.schedule import Schedule
    from dpgt_node.learning.data.shards import data_is_here
    from dpgt_node.learning.oracle import build_oracle, sample_counts
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


@dataclass(frozen=True, slots=True)
class Tables:
    """Memory that tables of gradients take: bytes by agent, () where D or q is not known here; and ``words``."""

    agents: tuple[int, ...]
    words: str


def tables(run: RunConfig) -> Tables | None:
    """None: the method keeps no table.  ConfigError: the model cannot be built, or one agent's does not fit here."""
    from dpgt_node.algo.methods import rule_of
    from dpgt_node.learning.data.shards import data_is_here
    from dpgt_node.learning.oracle import build_oracle, sample_counts
    from dpgt_node.learning.tables import Table, memory_bytes, table_bytes, table_size
    from dpgt_node.runtime.disk import readable

    root, name = data_root(), run.algorithm.method
    if not rule_of(run).keeps_table:
        return None
    if not data_is_here(run, root):
        q = "the number of classes" if run.model.name == "softmax" else "d"
        message = f"{name} keeps a table of D x q numbers, q = {q}: each agent's host needs {table_bytes(1)} D q bytes"
        return Tables((), f"{message} of memory for it. The data are not here, so check that on every host")
    oracle = build_oracle(run, 0, data_root=root)
    needs = tuple(table_bytes(table_size(run, oracle, count)) for count in sample_counts(run, root))
    (_, width), here = Table(oracle).shape, memory_bytes()
    text = f"{name}'s tables of D x {width:,} numbers take {readable(max(needs))} of memory an agent at most"
    if run.n > 1:
        text += f", {readable(sum(needs))} where all agents share a machine"
    if sum(needs) > here:
        text += f". This one has {readable(here)}: launch and simulate are refused here, hosts of their own may do"
    return Tables(needs, text)


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


def verdict(report: CheckReport) -> str:
    """How many conditions apply, how many of the paper's fail, and whether any epsilon is proved, in a sentence."""
    from dpgt_node.algo.methods import method_of
    from dpgt_node.report.text import no_privacy

    run, soft = report.facts.run, len(report.warnings)
    noisy = method_of(run).noisy
    what = f"mechanism {run.algorithm.mechanism}" if noisy else f"method {run.algorithm.method}"
    applying = sum(row.applies for row in report.checks)
    fail = f"{soft or 'none'} of the paper's fail{'s' * (soft < 2)}{' (warnings)' * (soft > 0)}."
    if unknown_epsilon(report) is not None:
        fail += " Epsilon is not known here."
    elif no_privacy(run) is None and not _proved(report):
        fail += " WARNING: no epsilon is proved for this run."
    return f"{applying} of {len(report.checks)} conditions apply to {what}; {fail}"


def number(value: float | None) -> str:
    """Six digits, or one decimal of large numbers; a dash where there is none."""
    return "-" if value is None else f"{value:,.6g}" if abs(value) < 1e4 else f"{value:,.1f}"
