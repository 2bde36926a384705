"""What passes between the stages above a tap, for each direction of a TCP connection.

What a tap saw becomes segments in order, without repetitions, and gaps where bytes are known to have crossed the link
but were not seen.  A stage (decryption, for example) turns segments and gaps into segments and gaps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Protocol

from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address: ``host`` as text (IPv4 or IPv6), ``port``."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Connection:
    """One TCP connection.  ``number``: from 0, in the order of appearance.  ``ends``: who opened it, who was dialled;
    where the tap started in mid-connection (``opened`` False), whoever was seen sending first comes first.

    Direction 0 is what ``ends[0]`` sends, direction 1 what ``ends[1]`` sends.
    """

    number: int
    ends: tuple[Endpoint, Endpoint]
    opened: bool


@dataclass(frozen=True, slots=True)
class Segment:
    """Bytes [offset, offset + len(data)) of one direction.  ``offset``: 0 is the first byte after SYN, or the first one
    that the tap saw.  ``data`` is only valid until the next call: who keeps it copies it.  ``time_ns``: when the last
    of it was seen.
    """

    offset: int
    data: bytes | memoryview = field(repr=False)
    time_ns: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes [start, end) of one direction that were sent and not seen."""

    start: int
    end: int


Item = Segment | Gap


class Stage(Protocol):
    """One direction of one connection; items arrive in order, each begins where the one before it ended."""

    def feed(self, item: Item) -> Iterable[Item]:
        """What follows from ``item``: offsets are those of the stage's own output."""
        ...

    def close(self) -> Iterable[Item]:
        """What is left when the direction has ended."""
        ...


class Stages(Protocol):
    """Makes the stages of each connection, such as a decryptor that holds a key log."""

    def open(self, connection: Connection) -> tuple[Stage, Stage]:
        """The stages of direction 0 and of direction 1."""
        ...


class Sink(Protocol):
    """Takes one direction of one connection: items in order, each begins where the one before it ended."""

    def feed(self, item: Item) -> None: ...

    def close(self) -> None:
        """The direction has ended: nothing follows."""
        ...


class Piped:
    """A sink behind a stage."""

    def __init__(self, stage: Stage, sink: Sink) -> None:
        self._stage = stage
        self._sink = sink

    def feed(self, item: Item) -> None:
        """What the stage makes of it goes on."""
        for made in self._stage.feed(item):
            self._sink.feed(made)

    def close(self) -> None:
        """What the stage still has goes on, then the end."""
        for made in self._stage.close():
            self._sink.feed(made)
        self._sink.close()
