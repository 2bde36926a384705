"""What an agent with an active role does to its vectors: pure functions of them, so daemons and simulator do the same.

Without a role nothing here is called.  ``config.roles`` says what each word means, docs/howto/active-adversaries.md
what it breaks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from dpgt_node.agent.imprint import Imprint
from dpgt_node.config.model import RunConfig
from dpgt_node.config.roles import Role
from dpgt_node.errors import ConfigError, Problem
from dpgt_node.learning.common import Oracle
from dpgt_node.protocol.types import Payload
from dpgt_node.types import F64, Codes, Stream
from dpgt_node.values import dataclass


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
    """Changes what leaves on links, and when.  ``names``: all agents.  ``receivers``: the agent's out-neighbours, by
    index.
    """

    def __init__(self, role: Role, names: Sequence[str], receivers: Sequence[int]) -> None:
        self._role = role
        chosen = [i for i in receivers if names[i] in role.to]
        if not role.to:
            chosen = list(receivers[1::2] or receivers) if role.word == "equivocate" else list(receivers)
        self._share = {i: place + 1 for place, i in enumerate(chosen)}
        self._before: dict[tuple[Stream, int], Payload] = {}

    def sent(self, receiver: int, payloads: Iterable[Payload]) -> tuple[Payload, ...]:
        """What agent ``receiver`` gets of one round's ``payloads``; fewer where some are withheld."""
        share, role, given = self._share.get(receiver, 0), self._role, tuple(payloads)
        if role.word in ("replay", "repeat"):
            self._remember(given)
        if not share or role.word in ("delay", "repeat"):
            return given
        if role.word == "withhold":
            return tuple(payload for payload in given if not role.acts(payload.stream, payload.k))
        if role.word == "replay":
            return tuple(self._older(payload) for payload in given)
        return tuple(self._shifted(payload, share) for payload in given)

    def again(self, receiver: int, payloads: Iterable[Payload]) -> tuple[Payload, ...]:
        """What it gets once more behind one round's ``payloads``, byte for byte."""
        role = self._role
        if role.word != "repeat" or receiver not in self._share:
            return ()
        found = (self._before.get((p.stream, p.k - role.lag)) for p in payloads if role.acts(p.stream, p.k))
        return tuple(payload for payload in found if payload is not None)

    def held_s(self, receiver: int, payloads: Iterable[Payload]) -> float:
        """For how long one round's ``payloads`` to ``receiver`` are held back, seconds."""
        role = self._role
        if role.word != "delay" or receiver not in self._share:
            return 0.0
        return role.ms / 1000.0 if any(role.acts(payload.stream, payload.k) for payload in payloads) else 0.0

    def _remember(self, payloads: Iterable[Payload]) -> None:
        for payload in payloads:
            self._before[payload.stream, payload.k] = payload
            for key in [key for key in self._before if key[1] < payload.k - self._role.lag]:
                del self._before[key]

    def _older(self, payload: Payload) -> Payload:
        """The vector of ``lag`` rounds before as that of this one; a round that is not known (any more) stays."""
        old = self._before.get((payload.stream, payload.k - self._role.lag))
        if old is None or not self._role.acts(payload.stream, payload.k):
            return payload
        return replace(payload, data=old.data, sha256=old.sha256)

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


@dataclass(frozen=True, slots=True)
class Sources:
    """Several, one after the other."""

    each: tuple[Source | Imprint, ...]

    def released(self, stream: Stream, k: int, values: F64) -> F64:
        """See :class:`Source`."""
        for one in self.each:
            values = one.released(stream, k, values)
        return values


@dataclass(frozen=True, slots=True)
class Tampering:
    """Several :class:`Links`, one after the other."""

    each: tuple[Links, ...]

    def sent(self, receiver: int, payloads: Iterable[Payload]) -> tuple[Payload, ...]:
        """What agent ``receiver`` gets of one round's ``payloads``."""
        given = tuple(payloads)
        for one in self.each:
            given = one.sent(receiver, given)
        return given

    def again(self, receiver: int, payloads: Iterable[Payload]) -> tuple[Payload, ...]:
        """What it gets once more behind them."""
        given = tuple(payloads)
        return tuple(payload for one in self.each for payload in one.again(receiver, given))

    def held_s(self, receiver: int, payloads: Iterable[Payload]) -> float:
        """For how long they are held back, seconds."""
        given = tuple(payloads)
        return sum(one.held_s(receiver, given) for one in self.each)


def check_coordinates(run: RunConfig, dimension: int) -> None:
    """ConfigError where a role names coordinates that vectors of ``dimension`` numbers do not have."""
    problems = [
        Problem(
            "run file",
            f"adversary.active.{name}",
            f"{role.word}: coordinates end at {role.coordinates[1]}, d = {dimension}",
        )
        for name, _ in run.adversary.active
        for role in run.adversary.active.of(name)
        if role.coordinates is not None and role.coordinates[1] > dimension
    ]
    if problems:
        raise ConfigError(problems)


def source_of(run: RunConfig, index: int, codes: Codes | None, oracle: Oracle) -> Sources | None:
    """Of agent ``index`` with its own samples; None: it releases what the method says."""
    roles = run.adversary.active.of(run.graph.agents[index])
    found = tuple(
        Imprint(role, oracle) if role.word == "imprint" else Source(role, codes) for role in roles if not role.on_links
    )
    return Sources(found) if found else None


def links_of(run: RunConfig, index: int, receivers: Sequence[int]) -> Tampering | None:
    """Of agent ``index`` with these out-neighbours; None: it sends what it released, when it released it."""
    roles = run.adversary.active.of(run.graph.agents[index])
    found = tuple(Links(role, run.graph.agents, receivers) for role in roles if role.on_links)
    return Tampering(found) if found else None
