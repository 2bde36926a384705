"""The ledger for people and scripts: text, JSON, CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from dpgt_node.accounts.towards import ASSUMPTIONS, Sharing, Towards, table
from dpgt_node.privacy.accountants.composition import Spent, as_written, tally
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, APPROXIMATE, EPSILONS, PURE, SOUND
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.privacy.strength import delta_warning, strength, void
from dpgt_node.record.summary import to_json
from dpgt_node.report.text import judged
from dpgt_node.runtime.agent.budget import also_known, known_as, spent_on
from dpgt_node.runtime.store.ledger import TEST, Charge, Ledger, LedgerEntry, last_charges

_COLUMNS = ("data", "run", "k", "stream", "mechanism", "law", "scale", "sensitivity", "sha256")


def document(ledger: Ledger) -> dict[str, Any]:
    """JSON data: rows; totals by accountant of all runs here, and by data set and run; the chain's head."""
    everything = [spent for _, _, its_spent in _data_sets(ledger) for spent in its_spent]
    made: dict[str, Any] = to_json(
        {
            "rows": [_row(ledger, entry) for entry in ledger.entries],
            "totals": totals(everything),
            "data_sets": [
                {
                    "id": name,
                    "also_known_as": [one for one in known_as(name, charges) if one != name],
                    "totals": totals(spent),
                    "delta": deltas(spent),
                    **{
                        f"smallest_{kind}": {
                            "pure": smallest(spent, PURE, _samples(charges)),
                            "any": smallest(spent, SOUND, _samples(charges)),
                        }
                        if kind == _standing(spent)
                        else None
                        for kind in ("sound", "declared")
                    },
                    "runs": [_run(charge) for charge in charges],
                }
                for name, charges, spent in _data_sets(ledger)
            ],
            "head": ledger.head.hex(),
        }
    )
    return made


def render(ledger: Ledger) -> str:
    """Text: every data set with its runs and totals.  No epsilon without its accountant, delta and adjacency."""
    lines, noisy = [], False
    for name, charges, spent in _data_sets(ledger):
        also = also_known(known_as(name, charges))
        lines.append(f'data set "{name}"{also}: {len(charges)} run{"" if len(charges) == 1 else "s"}')
        silent = {charge.run_id for charge in charges if _silent(ledger, charge)}
        noisy |= len(silent) < len(charges)
        lines += _smallest(spent, _samples(charges))
        total = max(deltas(spent).values())
        if (warning := delta_warning(total, _samples(charges))) is not None and (
            len(silent) < len(charges) and _uses_delta(spent)
        ):
            lines.append(f"  WARNING: {warning}")
        for charge in charges:
            count = sum(entry.run_id == charge.run_id for entry in ledger.entries)
            how = "no noise" if charge.run_id in silent else f"{charge.mechanism}, {charge.law} noise"
            lines.append(f"  run {charge.run_id.hex()}: {how}, {count:,} releases in rounds 0..{charge.k}")
            if charge.run_id in silent:
                lines.append("    Privacy: none. It has no noise, so every epsilon is infinite.")
                continue
            if charge.terms.keystream == TEST:
                lines.append("    NO GUARANTEE: its noise came from a test keystream")
            lines.append(f"    {charge.terms.adjacency}")
            own = dict.fromkeys(ACCOUNTANTS, charge.terms.delta)
            lines += _costs(charge.cost, own, charge.terms.samples, declared=charge.terms.declared)
            lines += _towards_lines(charge)
        if len(charges) > 1 and len(silent) < len(charges):
            lines.append("  all its runs together, by each accountant alone")
            declared = any(run.declared for run in spent)
            lines += _costs(totals(spent), deltas(spent), _samples(charges), declared=declared)
        lines.append("")
    if noisy:
        lines.append("totals are at the sum of the deltas; what a policy counts: --what-if RUN.toml --node NODE.toml")
    lines.append(f"{len(ledger.entries)} rows, one a release, chain verified; --format csv or json lists them")
    lines.append(f"head {ledger.head.hex()}")
    return "\n".join(lines)


def write_csv(ledger: Ledger, out: TextIO) -> None:
    """One line a row; infinite is inf, not applicable is empty; ``head`` is the chain's after the row."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_COLUMNS, *(f"cost_{name}" for name in ACCOUNTANTS), "head"])
    for entry in ledger.entries:
        cells = _row(ledger, entry)
        costs = (entry.row.cost.get(name) for name in ACCOUNTANTS)
        writer.writerow([*(cells[column] for column in _COLUMNS), *costs, entry.head.hex()])


def totals(spent: Sequence[Spent]) -> dict[str, float | None]:
    """What all runs cost by each accountant alone; None where one of the runs has no value."""
    found: dict[str, float | None] = {}
    for name in ACCOUNTANTS:
        all_valued = all(run.epsilon.get(name) is not None for run in spent)
        found[name] = tally(spent, (name,), name).epsilon if all_valued else None
    return found


def deltas(spent: Sequence[Spent]) -> dict[str, float]:
    """Sum by accountant: 0 for the pure ones, and for lemma5."""
    total = float(sum(as_written(run.delta) for run in spent))
    return {name: total if name in APPROXIMATE else 0.0 for name in ACCOUNTANTS}


def smallest(spent: Sequence[Spent], kinds: tuple[str, ...], samples: int | None = None) -> dict[str, Any] | None:
    """The smallest total, its recipe and its word, if every declared C holds; None where a run has no finite one of
    ``kinds``.  ``samples``: D, of which the word for a delta depends.
    """
    counted = tally(spent, kinds)
    if counted.unbounded is not None:
        return None
    delta = float(counted.delta)
    declared = any(run.declared for run in spent)
    word = strength(None, counted.epsilon, delta, samples=samples, enforced=not declared)
    return {"epsilon": counted.epsilon, "delta": delta, "recipe": counted.recipe, "strength": word}


def _smallest(spent: Sequence[Spent], samples: int | None) -> list[str]:
    """The smallest total of any kind, and of the pure ones where that is another."""
    least, pure = smallest(spent, SOUND, samples), smallest(spent, PURE, samples)
    if least is not None and pure is not None and void(least["delta"], samples):
        least = pure  # what a delta of 1/D makes small leads no list
    found = [] if least is None else [least]
    found += [pure] if pure is not None and pure != least else []
    whose = "the run" if len(spent) == 1 else "all its runs together"
    lines = []
    for one in found:
        delta = f"delta {one['delta']:g}" if one["delta"] else "pure"
        value = f"epsilon {judged(one['epsilon'], one['strength'])}, {delta} ({one['recipe']})"
        lines.append(f"  {whose} by the smallest {_standing(spent)} value: {value}")
    return lines


def _silent(ledger: Ledger, charge: Charge) -> bool:
    """Whether a run whose mechanism hides by noise added none to anything that it released."""
    scales = [entry.row.scale for entry in ledger.entries if entry.run_id == charge.run_id]
    mechanism = MECHANISMS.get(charge.mechanism)
    return mechanism is not None and mechanism.noises > 0 and not any(scales)


def _samples(charges: Sequence[Charge]) -> int | None:
    """The largest D of the runs: the first that a total delta gives away."""
    return max((D for charge in charges if (D := charge.terms.samples) is not None), default=None)


def _uses_delta(spent: Sequence[Spent]) -> bool:
    return any(run.epsilon.get(name) is not None for run in spent for name in APPROXIMATE)


def _standing(spent: Sequence[Spent]) -> str:
    """What the smallest values are: "sound", or "declared" where one rests on a C that nothing enforces."""
    return "declared" if any(run.declared for run in spent) else "sound"


def _data_sets(ledger: Ledger) -> list[tuple[str, list[Charge], list[Spent]]]:
    charges = last_charges((entry, ledger.terms[entry.run_id]) for entry in ledger.entries)
    found: dict[str, tuple[str, ...]] = {}
    for name in dict.fromkeys(charge.terms.data_id for charge in charges):
        if not any(name in ids for ids in found.values()):
            found[name] = known_as(name, charges)
    return [
        (name, [c for c in charges if c.terms.data_id in ids], spent_on(name, charges)) for name, ids in found.items()
    ]


def _row(ledger: Ledger, entry: LedgerEntry) -> dict[str, Any]:
    row = entry.row
    return {
        "run": entry.run_id.hex(),
        "data": ledger.terms[entry.run_id].data_id,
        "k": row.k,
        "stream": row.stream,
        "mechanism": row.mechanism,
        "law": row.law,
        "scale": row.scale,
        "sensitivity": row.sensitivity,
        "sha256": row.sha256.hex(),
        "cost": row.cost,
    }


def _run(charge: Charge) -> dict[str, Any]:
    whom = _towards(charge)
    return {
        "run": charge.run_id.hex(),
        "mechanism": charge.mechanism,
        "law": charge.law,
        "k": charge.k,
        "cost": charge.cost,
        "delta": charge.terms.delta,
        "adjacency": charge.terms.adjacency,
        "samples": charge.terms.samples,
        "keystream": charge.terms.keystream or None,
        "towards": None if whom is None else whom.to_json(),
        "epsilon_towards": None if whom is None else whom.by_t(),
    }


def _towards(charge: Charge) -> Towards | None:
    """What any t of the other agents together learned; None where noise was not shared, or hides nothing."""
    shared, delta = Sharing.of(charge.terms.shares), charge.terms.delta
    for name in reversed(APPROXIMATE):
        cost = charge.cost.get(name)
        if shared is not None and cost is not None and cost < math.inf:
            terms = charge.terms
            return table(name, delta, [(shared, cost)], [terms.samples], enforced=not terms.declared)
    return None


def _towards_lines(charge: Charge) -> list[str]:
    whom = _towards(charge)
    if whom is None:
        return []
    values = (f"{head}: {judged(*pair)}" for head, pair in zip(whom.heads, whom.rows[0], strict=True))
    return [
        f"    {whom.title}: {', '.join(values)}",
        f"    {whom.rests_on}",
        *(f"    - {text}" for text in ASSUMPTIONS),
    ]


def _costs(
    cost: Mapping[str, float | None], delta: Mapping[str, float], samples: int | None, *, declared: bool
) -> list[str]:
    lines = []
    for name, one in ACCOUNTANTS.items():
        if one.aside and cost.get(name) is None:
            continue
        with_delta = f", delta {delta[name]:g}" if name in APPROXIMATE and cost.get(name) is not None else ""
        word = strength(name, cost.get(name), delta[name], samples=samples, enforced=not declared)
        what = "epsilon" if name in EPSILONS else "delta"
        lines.append(f"    {one.label:<36} {what} {judged(cost.get(name), word)}{with_delta}")
    return lines
