"""What an agent's reports to the coordinator tell: how many vectors it receives in a round, and how long it computes.

A report holds 16 bytes for each vector that was sent or received, so reports of agents with more in-neighbours are
longer, also where dummies hide the links.  Where all of them are as long, that tells nothing.  A report of small
vectors leaves when the next gradient is there, so whoever computes longest reports last, and all wait for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dpgt_node.adversary.attack import Finding, Verdict
from dpgt_node.adversary.inference.observation import Facts
from dpgt_node.protocol.digests import DIGEST_BYTES
from dpgt_node.types import I64
from dpgt_node.values import dataclass

_SIZES = range(100, 1 << 14)
_LEAST = 5
_OFTEN = 0.15
_SPREADS, _SHARE = 5.0, 0.05
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


def _limits(lags_s: Mapping[str, float], step_s: float | None) -> dict[str, float | None]:
    """Seconds above which each agent's lag stands out, >= 0; None where there is nobody to compare it with.

    That is the median of the others' lags, and the larger of five times their median deviation from it and 5 % of a
    round of ``step_s`` seconds.
    """
    above: dict[str, float | None] = dict.fromkeys(lags_s)
    for agent in lags_s:
        others = np.array([lag for name, lag in lags_s.items() if name != agent])
        if not len(others):
            continue
        middle = float(np.median(others))
        spread = float(np.median(np.abs(others - middle)))
        above[agent] = middle + max(_SPREADS * spread, _SHARE * (step_s or 0.0))
    return above


def _stands_out(lag: float | None, above: float | None) -> bool:
    return lag is not None and above is not None and lag > above


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


def of_lags(lags_s: Mapping[str, float], step_s: float | None) -> list[Finding]:
    """One an agent: it succeeds where the agent's lag stands out."""
    above = _limits(lags_s, step_s)
    return [
        Finding(
            agent,
            "succeeds" if _stands_out(lag, above[agent]) else "fails",
            {
                "lag_s": lag,
                "lag_of_step": lag / step_s if step_s else None,
                "stands_out_above_s": above[agent],
            },
            note="by when it sends",
        )
        for agent, lag in sorted(lags_s.items())
    ]


def findings(
    reports: Mapping[str, Reports], late: Mapping[str, float], step_s: float | None, facts: Facts | None
) -> list[Finding]:
    """One an agent; ``late``: by :func:`lags`; ``facts``: what they are compared with.

    Reports that are all as long tell nothing under a cover, or where the true numbers differ.
    """
    found, true = received_more(reports), dict[str, int]()
    if facts is not None:
        received = {
            name.lower(): sum(map(len, facts.network.senders(i).values())) for i, name in enumerate(facts.names)
        }
        here = {agent: received[agent.lower()] for agent in found if agent.lower() in received}
        true = {agent: count - min(here.values()) for agent, count in here.items()}
    above, made = _limits(late, step_s), []
    covered = facts is not None and facts.run.traffic.cover != "none"
    blind = not any(found.values()) and (covered or any(true.values()))
    for agent, more in sorted(found.items()):
        wrong = blind or (agent in true and true[agent] != more)
        slow = _stands_out(late.get(agent), above.get(agent))
        verdict: Verdict = "succeeds" if slow or not wrong else "fails"
        size = float(reports[agent].nbytes)
        measured: dict[str, float | None] = {
            "report_bytes": size,
            "received_more": float(more),
            "report_lag_s": late.get(agent),
            "stands_out_above_s": above.get(agent),
        }
        so: dict[str, float | None] = {"received_more": float(true[agent])} if agent in true else {}
        made.append(Finding(agent, verdict, measured, note="by its reports to the coordinator", true=so))
    return made
