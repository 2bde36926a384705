"""Who is missing, cut off or slow, and since when: the coordinator's judgement from what it heard, and when.

    kind     what is known                                              named after             lost after
    -------------------------------------------------------------------------------------------------------
    left     its stream ended and it has not come back                  at once, again at T     T
    silent   its stream is open, but it gave no sign of life            T                       T
    cut      both ends are here, but nothing gets from one to the       ``settle`` when the     T
             other: the sender's stream is down, or the receiver        stream is down, T when
             hears no byte of a round that the sender released          it only looks open
    slow     it is here, and nobody has made a step since               T                       never

T is the liveness bound.  All times are the coordinator's own; a span that an agent reports is counted back from when
the report arrived.  Whoever is left or silent explains every wait for it, so an edge or a slow agent is only blamed
when both ends are here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal

from dpgt_node import figures
from dpgt_node.values import dataclass

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Lack:
    """A round lacks vectors of in-neighbour ``sender``; its last byte came ``silent_ns`` ago (None: never any)."""

    sender: str
    silent_ns: int | None


@dataclass(frozen=True, slots=True)
class Down:
    """The stream to out-neighbour ``receiver`` has not been open for ``for_ns``; ``cause``: one line."""

    receiver: str
    for_ns: int
    cause: str


@dataclass(frozen=True, slots=True)
class EdgeReport:
    """An agent's edges in trouble: its round ``k`` has waited ``waited_ns`` for ``lacks``; ``down``: lost streams."""

    k: int
    waited_ns: int
    lacks: tuple[Lack, ...] = ()
    down: tuple[Down, ...] = ()


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with ``agent`` (with its edge to ``other``) since ``since_ns``.

    ``before`` and ``after`` are the two halves of a sentence with the span between them.  ``named_ns``: from when on
    it is worth a line.
    """

    kind: Literal["left", "silent", "cut", "slow"]
    agent: str
    other: str | None
    since_ns: int
    named_ns: int
    before: str
    after: str = ""

    @property
    def key(self) -> tuple[str, str, str | None]:
        """What makes two troubles the same one."""
        return self.kind, self.agent, self.other

    def line(self, now_ns: int) -> str:
        """One line for the operator."""
        return f"{self.before} {max(0, now_ns - self.since_ns) / NS:.1f} s{self.after}"


@dataclass(slots=True)
class _Seen:
    heard_ns: int
    here: bool = False
    joined_ns: int = 0
    edges: EdgeReport | None = None
    edges_ns: int = 0


class Liveness:
    """What was heard of whom.  ``done(name)``: the agent's last finished round, kept by the barrier.

    ``liveness_ns``: T above.  ``settle_ns``: how long after an end came back its streams may still be down.
    """

    def __init__(
        self,
        agents: Sequence[str],
        done: Callable[[str], int],
        last_round: int,
        *,
        liveness_ns: int,
        settle_ns: int,
        now_ns: int,
    ) -> None:
        self._seen = {name: _Seen(now_ns) for name in agents}
        self._done = done
        self._K = last_round
        self._liveness_ns = liveness_ns
        self._settle_ns = settle_ns
        self._step_ns = now_ns

    # --- what was heard -----------------------------------------------------------------------------------------

    def heard(self, name: str, now_ns: int) -> None:
        """A sign of life.  Of an agent that is not here it changes nothing: only ``joined`` brings it back."""
        seen = self._seen[name]
        if seen.here:
            seen.heard_ns = now_ns

    def joined(self, name: str, now_ns: int) -> None:
        """The agent takes part (again); what it reported in an earlier life is void."""
        self._seen[name] = _Seen(now_ns, here=True, joined_ns=now_ns)

    def gone(self, name: str) -> None:
        """Its stream ended; it is away since its last sign of life."""
        self._seen[name].here = False
        self._seen[name].edges = None

    def reported(self, name: str, report: EdgeReport, now_ns: int) -> None:
        """The agent's edges, as a whole: what is not in the report is well."""
        seen = self._seen[name]
        seen.edges, seen.edges_ns = report, now_ns
        self.heard(name, now_ns)

    def stepped(self, now_ns: int) -> None:
        """Somebody finished a round, or the barrier opened: the run moves."""
        self._step_ns = now_ns

    # --- what may be asked --------------------------------------------------------------------------------------

    def here(self, name: str) -> bool:
        return self._seen[name].here

    def heard_ns(self, name: str) -> int:
        """When it gave its last sign of life, in the clock of the steps."""
        return self._seen[name].heard_ns

    def waits_for(self, name: str) -> tuple[str, ...]:
        """The in-neighbours that the agent's round lacks, as it reported."""
        return tuple(lack.sender for lack in self._lacks(name))

    def troubles(self, waiting_for: Collection[str], now_ns: int) -> tuple[Trouble, ...]:
        """Everything that is wrong now, root causes first.  ``waiting_for``: whom the barrier waits for."""
        missing = tuple(self._missing(now_ns))
        away = {trouble.agent for trouble in missing}
        cut = tuple(self._cut(away, now_ns))
        slow = () if missing or any(t.named_ns <= now_ns for t in cut) else tuple(self._slow(waiting_for, now_ns))
        return (*missing, *cut, *slow)

    def standstill(self, waiting_for: Collection[str], now_ns: int) -> str:
        """``round 7 has waited 8.0 s for agent-3``, where nobody has made a step for so long that agents have told
        whom they wait for; else empty.
        """
        if not waiting_for or now_ns - self._step_ns < self._settle_ns:
            return ""
        names = self._roots(waiting_for)
        return f"{self._waiting(names[0])} has waited {(now_ns - self._step_ns) / NS:.1f} s for {figures.some(names)}"

    def next_deadline_ns(self, judged_ns: int) -> int | None:
        """When something new may be wrong if nothing is heard until then; ``judged_ns``: when that was last asked."""
        since = [*(seen.heard_ns for seen in self._seen.values()), self._step_ns]
        return min((ns + self._liveness_ns for ns in since if ns + self._liveness_ns > judged_ns), default=None)

    # --- the judgement ------------------------------------------------------------------------------------------

    def _missing(self, now_ns: int) -> Iterator[Trouble]:
        for name, seen in self._seen.items():
            bound_ns = seen.heard_ns + self._liveness_ns
            round_ = self._done(name) + 1
            if not seen.here:
                yield Trouble(
                    "left", name, None, seen.heard_ns, bound_ns, f"{name} left in round {round_} and has been away for"
                )
            elif now_ns >= bound_ns:
                before, after = f"{name} gave no sign of life for", f", in round {round_}"
                yield Trouble("silent", name, None, seen.heard_ns, bound_ns, before, after)

    def _lacks(self, name: str) -> tuple[Lack, ...]:
        report = self._seen[name].edges
        return report.lacks if report is not None and report.k > self._done(name) else ()

    def _cut(self, away: Collection[str], now_ns: int) -> Iterator[Trouble]:
        here = [name for name in self._seen if name not in away]
        down = {(name, d.receiver): d for name in here for d in self._down(name)}
        lacking = {(lack.sender, name): lack for name in here for lack in self._lacks(name)}
        for sender, receiver in sorted(down.keys() | lacking.keys()):
            if sender in away or receiver in away or self._done(receiver) >= self._K:
                continue
            ends_ns = max(self._seen[sender].joined_ns, self._seen[receiver].joined_ns)
            lack = lacking.get((sender, receiver))
            broken = down.get((sender, receiver))
            what = f"{sender} cannot reach {receiver}"
            if broken is not None:
                since_ns = max(self._seen[sender].edges_ns - broken.for_ns, ends_ns)
                named_ns = since_ns + min(self._settle_ns, self._liveness_ns)
                why = f"its stream is down ({broken.cause})"
            elif lack is not None and self._released(sender, self._round(receiver)):
                seen, report = self._seen[receiver], self._seen[receiver].edges
                assert report is not None
                span_ns = report.waited_ns if lack.silent_ns is None else min(report.waited_ns, lack.silent_ns)
                since_ns = max(seen.edges_ns - span_ns, ends_ns)
                if now_ns - since_ns < self._settle_ns:
                    continue  # it may be on its way
                named_ns = since_ns + self._liveness_ns
                why = "its stream is open, but no byte arrives"
            else:
                continue
            if lack is not None:
                before = f"{receiver} has lacked round {self._round(receiver)} of {sender} for"
                yield Trouble("cut", sender, receiver, since_ns, named_ns, before, f": {what}; {why}")
            else:
                yield Trouble("cut", sender, receiver, since_ns, named_ns, f"{what} for", f": {why}")

    def _down(self, name: str) -> tuple[Down, ...]:
        report = self._seen[name].edges
        return () if report is None else report.down

    def _round(self, name: str) -> int:
        return self._done(name) + 1

    def _released(self, name: str, k: int) -> bool:
        """Whether the agent is known to have released round ``k``: it is done with it, or waits for others in it."""
        return self._done(name) >= k or (self._round(name) == k and self._lacks(name) != ())

    def _slow(self, waiting_for: Collection[str], now_ns: int) -> Iterator[Trouble]:
        bound_ns = self._step_ns + self._liveness_ns
        if now_ns < bound_ns or not waiting_for:
            return
        names = self._roots(waiting_for)
        heard_s = (now_ns - self._seen[names[0]].heard_ns) / NS
        lacks = self._lacks(names[0])
        state = f"alive, still receiving from {lacks[0].sender}" if lacks else "alive, but not done"
        after = f" for {figures.some(names)}: {state} (last heard {heard_s:.1f} s ago)"
        yield Trouble("slow", names[0], None, self._step_ns, bound_ns, f"{self._waiting(names[0])} has waited", after)

    def _roots(self, waiting_for: Collection[str]) -> list[str]:
        """Those who hold up the others: they do not wait for a vector themselves.  All where everybody waits."""
        return [name for name in waiting_for if not self._lacks(name)] or list(waiting_for)

    def _waiting(self, name: str) -> str:
        """What ``name`` is not done with; after the last round it is its result that has not come."""
        return f"round {self._round(name)}" if self._round(name) <= self._K else "the end of the run"
