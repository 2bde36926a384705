"""The part of ``report.html`` on who sent what: ``digests`` of summary.json, where agents compared what they sent."""

from __future__ import annotations

from collections.abc import Sequence

from dpgt_node.protocol.coordinator.comparison import Compared, Forgery
from dpgt_node.protocol.digests import shown
from dpgt_node.record.digests import from_json
from dpgt_node.record.summary import Summary
from dpgt_node.values import dataclass

VECTORS = {"X": "x̆", "Y": "y̆"}


@dataclass(frozen=True, slots=True)
class Line:
    """What is in dispute of one sender and stream.  ``said``: who holds which digest, of the first such round."""

    sender: str
    vector: str
    rounds: str
    said: Sequence[str]
    proven: str


@dataclass(frozen=True, slots=True)
class Section:
    """What disputes.html shows; without ``lines`` all who spoke agreed."""

    lead: str
    lines: Sequence[Line]

    @property
    def warnings(self) -> list[str]:
        """What the first screen says of it."""
        return [f"IN DISPUTE: {line.vector} of {line.sender}, {line.rounds}: {line.proven}." for line in self.lines]


def section(summary: Summary) -> Section | None:
    """None: nothing was compared, as in a simulation in which all agents follow the protocol."""
    found = None if summary.digests is None else from_json(summary.digests)
    return None if found is None else Section(_lead(found), [_line(one) for one in found.forgeries])


def _lead(found: Compared) -> str:
    spoke = f"Of {_rounds(found.rounds)} every agent said what it sent and what it received"
    part = f"; of {_rounds(found.incomplete)} not every agent did" if found.incomplete else ""
    if not found.forgeries:
        return f"{spoke}{part}. All who spoke agreed."
    return f"{spoke}{part}. Where they differ, the first such round of each sender is below; a word convicts nobody."


def _line(one: Forgery) -> Line:
    first = one.first
    held: dict[str, list[str]] = {}
    for name, word in first.words:
        if name != first.sender:
            held.setdefault(shown(word), []).append(name)
    said = [f"{first.sender} says that it sent {shown(word)}" for name, word in first.words if name == first.sender]
    said += [f"{', '.join(names)} received {word}" for word, names in held.items()]
    rounds = f"round {first.k}" if one.rounds == 1 else f"{_rounds(one.rounds)}, {first.k} to {one.last_k}"
    return Line(first.sender, VECTORS[first.stream], rounds, said, first.proven())


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count:,} rounds"
