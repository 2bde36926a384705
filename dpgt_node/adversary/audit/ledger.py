"""Is everything that was seen of an agent in its ledger, and does every row say what it costs?

What was captured is held against the rows by hash, round and stream; the rows against the run file; their costs against
:mod:`dpgt_node.adversary.audit.recount`, which shares nothing with the accountants that wrote them; heads and totals
against what the coordinator remembers and the summary says.  All of it is certain: no statistics.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np

from dpgt_node.adversary.audit.finding import Finding
from dpgt_node.adversary.audit.recount import Recount, recount
from dpgt_node.adversary.inference.observation import Facts
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.protocol.types import LedgerRow
from dpgt_node.types import STREAMS, Stream
from dpgt_node.values import dataclass
from dpgt_node.wire.transcript import Transcript

BELOW: Final = 1e-6
"""How far a cost may lie below what is counted here, relatively: rounding.  Above it nothing is wrong: a larger upper
bound is one, too.
"""
SCALE: Final = 1e-12

Captured = Mapping[tuple[Stream, int], frozenset[bytes]]
"""Hashes of an agent's intact vectors by stream and round."""
_Found = Callable[..., Finding]


@dataclass(frozen=True, slots=True)
class Books:
    """One agent's ledger of one run.

    ``broken``: why its chain does not hold; empty where it does.  ``samples``: D as its terms say.  ``heads``: the
    chain's head after each row.  ``remembered``: (round, head) that the coordinator has.  ``told``: epsilon by
    accountant that the run's summary says.  ``hides``: its noise came from the system's entropy; else a release costs
    infinity, whatever is counted.
    """

    rows: tuple[LedgerRow, ...]
    samples: int | None = None
    broken: str = ""
    heads: tuple[bytes, ...] = field(default=(), repr=False)
    remembered: tuple[int, bytes] | None = None
    told: Mapping[str, float | None] | None = None
    hides: bool = True


def captured(transcripts: Sequence[Transcript], name: str) -> Captured:
    """What was seen of agent ``name``.  A vector counts where its bytes have the hash that came with them."""
    found: dict[tuple[Stream, int], set[bytes]] = {}
    for transcript in transcripts:
        for entry in transcript:
            if entry.sender == name and entry.complete:
                found.setdefault((entry.stream, entry.k), set()).add(entry.sha256)
    return {key: frozenset(hashes) for key, hashes in found.items()}


def audit_ledger(facts: Facts, index: int, books: Books, seen: Captured) -> list[Finding]:
    """Every question of 0-based agent ``index``, in order; a ledger that cannot be read is the only finding."""
    name = facts.names[index]

    def found(question: str, faults: Sequence[str], clean: str, tested: bool = True) -> Finding:
        if not faults:
            return Finding("ledger", name, question, "not refuted" if tested else "not tested", clean)
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        return Finding("ledger", name, question, "refuted", faults[0] + more, numbers={"faults": len(faults)})

    if books.broken:
        return [found("chain", [books.broken], "")]
    charged = MECHANISMS[facts.run.algorithm.mechanism].charged
    rows = {(row.k, row.stream): row for row in books.rows}
    number = sum(len(hashes) for (stream, _), hashes in seen.items() if stream in charged)
    last = max((k for k in (*(row.k for row in books.rows), *(k for _, k in seen))), default=-1)
    out = [
        found("chain", [], f"{len(books.rows)} rows"),
        found("captured", list(_uncharged(facts, rows, seen, charged)), *_tied(number)),
        found("rows", list(_gaps(facts, books.rows, charged, last)), f"every release of rounds 0..{last} has its row"),
        *_heads(found, books),
    ]
    try:
        again = recount(facts, index, books.samples)
    except ValueError as error:
        return [*out, found("costs", [], str(error), tested=False)]
    out.append(found("terms", list(_terms(facts, index, books.rows, again)), "mechanism, law, scales and shifts"))
    return [*out, *_costs(found, books, again), *_totals(found, books)]


def _tied(number: int) -> tuple[str, bool]:
    if number == 0:
        return "no intact vector of a charged stream was seen", False
    return f"{number} vectors, all charged", True


def _uncharged(
    facts: Facts, rows: Mapping[tuple[int, Stream], LedgerRow], seen: Captured, charged: tuple[Stream, ...]
) -> Iterator[str]:
    for (stream, k), hashes in sorted(seen.items(), key=lambda one: (one[0][1], one[0][0])):
        if stream not in charged or facts.schedule.release(k) is None:
            continue  # a function of what is charged, or of what everybody sent: it draws nothing
        row = rows.get((k, stream))
        for sha256 in sorted(hashes):
            if row is None:
                yield f"{stream} of round {k} was sent ({sha256.hex()[:16]}...) and has no row"
            elif row.sha256 != sha256:
                yield f"{stream} of round {k}: sent {sha256.hex()[:16]}..., charged {row.sha256.hex()[:16]}..."


def _gaps(facts: Facts, rows: Sequence[LedgerRow], charged: tuple[Stream, ...], last: int) -> Iterator[str]:
    expected = [
        (k, stream)
        for k in range(last + 1)
        if facts.schedule.release(k) is not None
        for stream in STREAMS
        if stream in charged
    ]
    held = Counter((row.k, row.stream) for row in rows)
    for k, stream in expected:
        if (n := held[k, stream]) != 1:
            yield f"{stream} of round {k} has {n or 'no'} row{'s' * (n > 1)}"
    for k, stream in sorted(set(held) - set(expected)):
        yield f"{stream} of round {k} is charged, and nothing is drawn then"


def _terms(facts: Facts, index: int, rows: Sequence[LedgerRow], again: Recount) -> Iterator[str]:
    place = {row: i for i, row in enumerate(again.rows)}
    run = facts.run
    for row in rows:
        at = place.get((row.k, row.stream))
        if at is None:
            continue
        where = f"{row.stream} of round {row.k}"
        if (row.mechanism, row.law) != (run.algorithm.mechanism, run.noise.law):
            yield f"{where}: {row.mechanism} with {row.law} noise, the run file says {run.algorithm.mechanism}"
        if not math.isclose(row.scale, again.scale[at], rel_tol=SCALE):
            yield f"{where}: scale {row.scale:g}, the run file says {again.scale[at]:g}"
        if row.sensitivity is not None and not math.isclose(row.sensitivity, again.shift[at], rel_tol=1e-6):
            yield f"{where}: one sample moves it by {again.shift[at]:.6g}, the row says {row.sensitivity:.6g}"


def _costs(found: _Found, books: Books, again: Recount) -> Iterator[Finding]:
    place = {row: i for i, row in enumerate(again.rows)}
    said = {name for row in books.rows for name, cost in row.cost.items() if cost is not None}
    names = sorted(said | again.costs.keys())
    for name in names:
        counted = again.costs.get(name)
        if counted is None:
            yield found(f"cost by {name}", [], "is not counted again here", False)
            continue
        faults, least, most = [], math.inf, 0.0
        total = float(counted[-1]) if books.hides else math.inf
        for row in books.rows:
            at = place.get((row.k, row.stream))
            if at is None:
                continue
            cost, expected = row.cost.get(name), float(counted[at]) if books.hides else math.inf
            if cost is None:
                faults.append(f"{row.stream} of round {row.k} has no cost, counted again {expected:.6g}")
                continue
            if 0.0 < expected < math.inf:
                least, most = min(least, cost / expected), max(most, cost / expected)
            if not cost >= expected * (1.0 - BELOW):  # no number is no upper bound
                faults.append(f"{row.stream} of round {row.k} costs {expected:.6g}, the row says {cost:.6g}")
        one = found(f"cost by {name}", faults, f"{len(books.rows)} rows, total {_say(total)}")
        if math.isfinite(least):
            one.numbers.update(least_ratio=least, largest_ratio=most)
        yield one


def _heads(found: _Found, books: Books) -> Iterator[Finding]:
    if books.remembered is None:
        yield found("heads", [], "no coordinator's memory was given", False)
        return
    k, head = books.remembered
    after = [mine for row, mine in zip(books.rows, books.heads, strict=True) if row.k <= k]
    mine = after[-1] if after else b""
    fault = f"after round {k} the coordinator has {head.hex()[:16]}..., the ledger {mine.hex()[:16]}..."
    yield found("heads", [] if mine == head else [fault], f"the coordinator's after round {k}")


def _totals(found: _Found, books: Books) -> Iterator[Finding]:
    if books.told is None or not books.rows:
        yield found("totals", [], "no summary was given", False)
        return
    last = books.rows[-1].cost  # noise that hides nothing is charged by every accountant, one without a word too
    faults = [
        f"{name}: the summary says {_say(told)}, the ledger {_say(last.get(name))}"
        for name, told in sorted(books.told.items())
        if not (told is None and not books.hides) and not _same(told, last.get(name))
    ]
    yield found("totals", faults, "the summary's")


def _same(one: float | None, other: float | None) -> bool:
    return one == other if one is None or other is None else bool(np.isclose(one, other, rtol=1e-12, atol=0.0))


def _say(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.6g}"
