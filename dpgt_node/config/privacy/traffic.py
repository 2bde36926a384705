"""[traffic]: what a run does against those who see no more than who sends how much to whom, and when.

The keys alone; ``wire.traffic`` has the padding, ``protocol.agent.covers`` the dummies, ``runtime.pacing`` the ticks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from dpgt_node.config.declare.keys import Key
from dpgt_node.config.declare.kinds import Choice, Integer, Number, Schema
from dpgt_node.config.declare.reader import Section, show
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.config.model import Runtime

POWER_OF_TWO = "power-of-two"
MAX_PAD_BYTES = 1 << 30
MAX_INTERVAL_MS = 60_000.0
_TICKS = 20
"""So many ticks at least fit into the patience that others have."""
_BYTES = Integer(64, MAX_PAD_BYTES)


@dataclass(frozen=True, slots=True)
class PadTo:
    """A number of bytes, or "power-of-two"."""

    @property
    def placeholder(self) -> int | str:
        return POWER_OF_TWO

    def read(self, section: Section, key: str, value: object) -> int | str:
        if value == POWER_OF_TWO:
            return POWER_OF_TWO
        if isinstance(value, str):
            section.problem(key, f'must be a number of bytes or "{POWER_OF_TWO}", not {show(value)}')
            return POWER_OF_TWO
        return _BYTES.read(section, key, value)

    def schema(self) -> Schema:
        return {"anyOf": [_BYTES.schema(), {"enum": [POWER_OF_TWO]}]}

    def words(self) -> str:
        return f'{_BYTES.words()}, or "{POWER_OF_TWO}"'


COVERS: Choice[Literal["none", "all-pairs"]] = Choice(
    ("none", "all-pairs"),
    title="Cover traffic",
    texts=(
        "messages travel on the edges of the graph alone",
        "every agent sends to every other one in every round, dummies where the graph has no edge",
    ),
)


@dataclass(frozen=True, slots=True)
class Traffic:
    """``pad_to``: bytes, or "power-of-two".  ``interval_ms``: milliseconds between ticks."""

    pad_to: Annotated[
        int | str | None,
        Key(
            "what an agent sends to another in a round is as long on every edge, and a multiple of so many bytes, or "
            "a power of two",
            PadTo(),
            absent="no padding",
            unit="bytes",
        ),
    ] = None
    cover: Annotated[
        Literal["none", "all-pairs"],
        Key("who sends to whom without having anything to say; also makes rounds as long on every edge", COVERS),
    ] = "none"
    interval_ms: Annotated[
        float | None,
        Key(
            "messages of agents leave at ticks so far apart; what takes longer than a tick leaves at a later one",
            Number(at_least=1.0, at_most=MAX_INTERVAL_MS),
            absent="messages leave when they are there",
            unit="milliseconds",
        ),
    ] = None

    @property
    def alike(self) -> bool:
        """Whether a round is as long on every edge: a dummy stands for each vector that an edge does not carry."""
        return self.pad_to is not None or self.covered

    @property
    def covered(self) -> bool:
        """Whether agents send where the graph has no edge."""
        return self.cover != "none"

    @property
    def on(self) -> bool:
        """Whether anything is hidden."""
        return self.alike or self.interval_ms is not None

    def padded(self, nbytes: int) -> int:
        """What ``nbytes`` become."""
        if self.pad_to is None:
            return nbytes
        if isinstance(self.pad_to, str):
            return 1 << (nbytes - 1).bit_length()
        return -(-nbytes // self.pad_to) * self.pad_to


OPEN = Traffic()


def check_traffic(section: Section, traffic: Traffic, runtime: Runtime, key: str = "") -> None:
    """Report what does not go together, at ``key`` of ``section``."""
    if traffic.on and runtime.channel == "plain":
        section.problem(
            key, "padding, cover and ticks hide nothing on a channel that anybody can read: use mTLS, or no [traffic]"
        )
    most = 1000.0 * runtime.round_timeout_s / _TICKS
    if traffic.interval_ms is not None and traffic.interval_ms > most:
        section.problem(
            "interval_ms", f"must be at most {most:g}, a {_TICKS}th of runtime.round_timeout, or agents pass for lost"
        )
