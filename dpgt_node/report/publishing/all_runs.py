"""What all runs on one data set have cost, beside the cost of the one run that a model comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpgt_node import figures
from dpgt_node.privacy.accountants.composition import Total
from dpgt_node.privacy.strength import strength
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class DataSet:
    """What all runs on one agent's data have cost together, as its ledger says.

    ``also``: other ids under which a run had the same data, bit for bit.  ``runs``: their ids, hex, this one among
    them.  ``declared``: the C of one of them is declared, not enforced.  ``samples``: the largest D of a run.
    """

    id: str
    runs: tuple[str, ...]
    total: Total
    declared: bool
    samples: int | None = None
    also: tuple[str, ...] = ()


def data_set(known: DataSet) -> dict[str, Any]:
    """JSON data."""
    return {
        "id": known.id,
        "also_known_as": known.also,
        "runs": known.runs,
        "epsilon": known.total.epsilon,
        "delta": float(known.total.delta),
        "recipe": known.total.recipe,
        "unbounded": known.total.unbounded,
        "declared": known.declared,
        "strength": strength(
            None, known.total.epsilon, float(known.total.delta), samples=known.samples, enforced=not known.declared
        ),
    }


def all_runs(data: Mapping[str, Any]) -> list[str]:
    """What every agent's data have cost in all their runs, or how to learn it."""
    lines = ["All runs on an agent's data, of which this is one:", ""]
    run_id, unknown = data["run"]["run_id"], [name for name, known in data["data_sets"].items() if known is None]
    for name, known in data["data_sets"].items():
        if known is None:
            continue
        others = [other for other in known["runs"] if other != run_id]
        which = f"and {len(others)} other run{'s' if len(others) > 1 else ''} ({', '.join(others)})"
        also = ", ".join(f'"{one}"' for one in known["also_known_as"])
        known_as = f'"{known["id"]}"{f" (also known as {also})" if also else ""}'
        ledger = f"- {name}, data set {known_as}: this run {which if others else 'and no other in its ledger'}"
        lines.append(f"{ledger}: {_together(known)}")
    if unknown:
        lines.append(
            f"- {figures.some(unknown, 10)}: not known here, where no ledger of theirs is. There may be other runs "
            "on the same data, which no coordinator hears of. Each owner learns the total with `dpgt ledger "
            "STATE_DIR`; an export from that directory states it."
        )
    if len(unknown) < len(data["data_sets"]):
        lines.append("")
        lines.append("A ledger knows its own state directory: runs on the same data from another are not in it.")
    return [*lines, ""]


def more_than_this_run(data: Mapping[str, Any]) -> str:
    """The total where it is more than this run's: nobody may read the one for the other."""
    known = {name: one for name, one in data["data_sets"].items() if one is not None}
    more = [(name, one) for name, one in known.items() if len(one["runs"]) > 1]
    if not more:
        return (
            ""
            if len(known) == len(data["data_sets"])
            else " That is this run alone: other runs on the same data may have cost more."
        )
    totals = "; ".join(f"of {name} {_together(one)}"[:-1] for name, one in more[:10])
    return f"\n**That is this run alone. All runs on the data: {totals}.**"


def _together(known: Mapping[str, Any]) -> str:
    if known["unbounded"] is not None:
        return f"no finite epsilon, because run {known['unbounded']} has none."
    pure = f"delta {known['delta']:g}" if known["delta"] else "pure"
    condition = ", only where every declared C holds" if known["declared"] else ""
    return f"epsilon {figures.epsilon(known['epsilon'])} ({known['strength']}), {pure} ({known['recipe']}){condition}."
