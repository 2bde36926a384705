"""What an agent's reports to the coordinator tell: how many vectors it receives in a round, and how long it computes.

A report holds 16 bytes for each vector that was sent or received, so reports of agents with more in-neighbours are
longer, also where dummies hide the links.  Where all of them are as long, that tells nothing.  A report of small
vectors leaves when the next gradient is there, so whoever computes longest reports last, and all wait for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpgt_node.adversary.attack import Finding, Verdict
from dpgt_node.adversary.inference.observation import Facts
from dpgt_node.protocol.digests import DIGEST_BYTES
from dpgt_node.types import I64

_SIZES = range(100, 1 << 14)
_LEAST = 5
_OFTEN = 0.15
_MORE = 80
"""Bytes that frames of HTTP/2's own add to a record, at most."""


@dataclass(frozen=True, slots=True)
class Reports:
    """Of one agent: ``nbytes`` of each, and when they came by."""

    nbytes: int
    times_ns: Sequence[int]

    @classmethod
    def of(cls, carried: Sequence[int], times_ns: Sequence[int]) -> Reports | None:
        """Among records to the coordinator; None: there are too few."""
        size = usual(carried)
        if size is None:
            return None
        return cls(size, [at for at, own in zip(times_ns, carried, strict=True) if size <= own < size + _MORE])


def lags(found: Mapping[str, Reports], starts_ns: I64) -> dict[str, float]:
    """Seconds by which an agent reports later than the first one, the median over rounds, which began at ``starts_ns``.

    The last report before the next round begins is the one that it waited for.
    """
    before: dict[str, float] = {}
    for agent, one in found.items():
        times: I64 = np.asarray(one.times_ns, dtype=np.int64)
        at = np.searchsorted(times, starts_ns[1:]) - 1
        spans = (starts_ns[1:] - times[at])[(at >= 0) & (times[at] >= starts_ns[:-1])]
        if len(spans) >= _LEAST:
            before[agent] = float(np.median(spans)) / 1e9
    return {agent: max(before.values()) - span for agent, span in before.items()}


def usual(carried: Iterable[int]) -> int | None:
    """Bytes of a report, among what records to the coordinator carried; None: too few are alike.

    The smallest that is frequent: HTTP/2's own frames make some longer.
    """
    sizes = Counter(size for size in carried if size in _SIZES)
    often = [size for size, count in sizes.items() if count >= max(_LEAST, _OFTEN * sizes.total())]
    return min(often, default=None)


def received_more(reports: Mapping[str, Reports]) -> dict[str, int]:
    """How many vectors more than the one that receives fewest an agent receives in a round."""
    least = min((one.nbytes for one in reports.values()), default=0)
    return {agent: round((one.nbytes - least) / DIGEST_BYTES) for agent, one in reports.items()}


def findings(reports: Mapping[str, Reports], late: Mapping[str, float], facts: Facts | None) -> list[Finding]:
    """One an agent; ``late``: by :func:`lags`; ``facts``: what they are compared with."""
    found, true = received_more(reports), dict[str, int]()
    if facts is not None:
        received = {
            name.lower(): sum(map(len, facts.network.senders(i).values())) for i, name in enumerate(facts.names)
        }
        here = {agent: received[agent.lower()] for agent in found if agent.lower() in received}
        true = {agent: count - min(here.values()) for agent, count in here.items()}
    made = []
    for agent, more in sorted(found.items()):
        verdict: Verdict = "fails" if agent in true and true[agent] != more else "succeeds"
        size = float(reports[agent].nbytes)
        measured: dict[str, float | None] = {
            "report_bytes": size,
            "received_more": float(more),
            "report_lag_s": late.get(agent),
        }
        predicted: dict[str, float | None] = {"received_more": float(true[agent])} if agent in true else {}
        made.append(Finding(agent, verdict, measured, predicted, "by its reports to the coordinator"))
    return made
