"""Reports of rounds, from agents to the coordinator."""

from __future__ import annotations

from dataclasses import field

from dpgt_node.protocol.pace import Spent
from dpgt_node.values import value

MAX_DONES = 64
"""Most reports in one message; no more than an agent says again where its call broke (digests.RESAID)."""


@value(frozen=True, slots=True)
class Done:
    """Round ``k`` is done; rounds <= ``durable_through`` (-1..K) will never be asked for again by this agent.

    ``ledger_head``: of the agent's ledger after round ``k``, 32 bytes; empty while it replays rounds of before.
    ``spent``: what the rounds since the Done before took.  ``words``: digests of what it sent and received
    (``digests``); empty: it has none, because it came with its result.
    """

    k: int
    durable_through: int
    bytes_sent: int
    ledger_head: bytes = b""
    spent: Spent = field(default=(), compare=False)
    words: bytes = field(default=b"", repr=False)


@value(frozen=True, slots=True)
class Dones:
    """Two to ``MAX_DONES`` reports, oldest first: it is as if each had come by itself."""

    dones: tuple[Done, ...]
