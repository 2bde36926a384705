"""What an agent with an active role does to its vectors: pure functions of them, so daemons and simulator do the same.

Without a role nothing here is called.  ``config.roles`` says what each word means, docs/howto/active-adversaries.md
what it breaks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from dpgt_node.config.model import RunConfig
from dpgt_node.config.roles import Role
from dpgt_node.protocol.types import Payload
from dpgt_node.types import F64, Codes, Stream


class Source:
    """Replaces what an agent releases.  ``codes``: of a method that sends integers, whose range it keeps to."""

    def __init__(self, role: Role, codes: Codes | None) -> None:
        self._role, self._codes = role, codes
        self._before: dict[tuple[Stream, int], F64] = {}

    def released(self, stream: Stream, k: int, values: F64) -> F64:
        """Instead of ``values`` (d,), float64.  A replay knows the rounds that this process has seen; before, none."""
        role, after = self._role, values
        if role.word == "replay":
            self._before[stream, k] = values
            self._before.pop((stream, k - role.lag - 1), None)
            after = self._before.get((stream, k - role.lag), values) if role.acts(stream, k) else values
        elif role.acts(stream, k):
            after = values.copy()
            at = _at(role)
            after[at] = role.value if role.scale is None else role.scale * after[at]
        return after if after is values or self._codes is None else within(self._codes, after)


class Links:
    """Changes what leaves on links.  ``names``: all agents.  ``receivers``: the agent's out-neighbours, by index."""

    def __init__(self, role: Role, names: Sequence[str], receivers: Sequence[int]) -> None:
        self._role = role
        chosen = [i for i in receivers if names[i] in role.to]
        if not role.to:
            chosen = list(receivers[1::2] or receivers) if role.word == "equivocate" else list(receivers)
        self._share = {i: place + 1 for place, i in enumerate(chosen)}

    def sent(self, receiver: int, payloads: Iterable[Payload]) -> tuple[Payload, ...]:
        """What agent ``receiver`` gets of one round's ``payloads``; fewer where some are withheld."""
        share, role = self._share.get(receiver, 0), self._role
        if not share:
            return tuple(payloads)
        if role.word == "withhold":
            return tuple(payload for payload in payloads if not role.acts(payload.stream, payload.k))
        return tuple(self._shifted(payload, share) for payload in payloads)

    def _shifted(self, payload: Payload, share: int) -> Payload:
        """Every receiver's own: ``share`` times the role's value more."""
        if not self._role.acts(payload.stream, payload.k):
            return payload
        values = payload.array().copy()
        values[_at(self._role)] += share * self._role.value
        return with_values(payload, values)


def _at(role: Role) -> slice:
    return slice(None) if role.coordinates is None else slice(*role.coordinates)


def with_values(payload: Payload, values: F64) -> Payload:
    """The same vector with other ``values`` and the hash that belongs to them."""
    if payload.codes is None:
        data = values.astype(np.dtype(payload.dtype).newbyteorder("<")).tobytes()
    else:
        whole = np.clip(payload.codes.nearest(values), payload.codes.low, payload.codes.high)
        data = whole.astype(np.dtype(payload.dtype).newbyteorder("<")).tobytes()
    return replace(payload, data=data, sha256=hashlib.sha256(data).digest())


def within(codes: Codes, values: F64) -> F64:
    """The values that a code stands for, nearest to ``values``."""
    return codes.values(np.clip(codes.nearest(values), codes.low, codes.high))


def source_of(run: RunConfig, index: int, codes: Codes | None) -> Source | None:
    """Of agent ``index``; None: it releases what the method says."""
    role = run.adversary.active.of(run.graph.agents[index])
    return None if role is None or role.on_links else Source(role, codes)


def links_of(run: RunConfig, index: int, receivers: Sequence[int]) -> Links | None:
    """Of agent ``index`` with these out-neighbours; None: it sends what it released."""
    role = run.adversary.active.of(run.graph.agents[index])
    return Links(role, run.graph.agents, receivers) if role is not None and role.on_links else None
