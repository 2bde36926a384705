"""``[adversary] active``: agents that do not follow the protocol, for studies of what they can and cannot break.

A role is one string, a word and its options: ``"poison scale=-1 from=20"``, or several with semicolons between.  Some
replace what the agent releases, so its ledger, its own mixing and its digests all have the same; the others change
what leaves on links, and when.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, cast

from dpgt_node.config.declare.kinds import Schema
from dpgt_node.config.declare.reader import Section, show, suggestion
from dpgt_node.types import Stream
from dpgt_node.values import dataclass

RoleWord = Literal["poison", "trap", "replay", "equivocate", "withhold", "delay", "repeat", "imprint"]
LINKS = ("equivocate", "withhold", "delay", "repeat")
"""Roles of what leaves on a link; the others are of what is released."""
_OPTIONS: dict[str, tuple[str, ...]] = {
    "poison": ("stream", "value", "scale", "coordinates", "from", "until"),
    "trap": ("stream", "value", "scale", "coordinates", "from", "until"),
    "replay": ("stream", "lag", "to", "from", "until"),
    "equivocate": ("stream", "value", "coordinates", "to", "from", "until"),
    "withhold": ("stream", "to", "from", "until"),
    "delay": ("ms", "stream", "to", "from", "until"),
    "repeat": ("lag", "stream", "to", "from", "until"),
    "imprint": ("value", "from", "until"),
}
_LAST = 2**32 - 1
HIDDEN = 128
"""Units of the hidden layer of ``mlp``, which an imprint is made for."""


@dataclass(frozen=True, slots=True)
class Role:
    """One agent's.  ``stream``: which vectors, None: both.  ``value``: what is put in place of values, or added to them
    (equivocate); ``scale``: what they are multiplied with instead.  ``coordinates``: [first, end) of them, None: all.
    ``to``: receivers, empty: all, or of equivocate every second one; a replay to some is no release.  Rounds ``first``
    to ``last``.  ``lag``: rounds.  ``ms``: how much later a delayed round leaves, milliseconds.
    """

    word: RoleWord
    stream: Stream | None = None
    value: float = 1000.0
    scale: float | None = None
    coordinates: tuple[int, int] | None = None
    to: tuple[str, ...] = ()
    first: int = 0
    last: int = _LAST
    lag: int = 1
    ms: float = 0.0

    @property
    def on_links(self) -> bool:
        """Whether it changes what leaves, and not what is released."""
        return self.word in LINKS or (self.word == "replay" and bool(self.to))

    @property
    def changes_values(self) -> bool:
        """Whether somebody gets other numbers than the method says."""
        return self.word not in ("withhold", "delay", "repeat")

    def overlaps(self, other: Role) -> bool:
        """Whether it is of the same word and of some vector of the same round to the same receiver; copies of
        different rounds (repeat) are different acts.
        """
        if self.word != other.word or self.on_links != other.on_links:
            return False
        if self.word == "repeat" and self.lag != other.lag:
            return False
        mine, others = self.coordinates or (0, _LAST), other.coordinates or (0, _LAST)
        return (
            (self.stream is None or other.stream in (None, self.stream))
            and self.first <= other.last
            and other.first <= self.last
            and mine[0] < others[1]
            and others[0] < mine[1]
            and (not self.to or not other.to or not set(self.to).isdisjoint(other.to))
        )

    def acts(self, stream: Stream, k: int) -> bool:
        """Whether it has to do with ``stream`` of round ``k``."""
        return self.stream in (None, stream) and self.first <= k <= self.last


class Roles(tuple[tuple[str, str], ...]):
    """(agent, role as the file gives it), in the order of the file; hashable, unlike a dict."""

    __slots__ = ()

    def table(self) -> dict[str, str]:
        """As the file gives it."""
        return dict(self)

    def of(self, name: str) -> tuple[Role, ...]:
        """Agent ``name``'s; empty: it follows the protocol."""
        text = self.table().get(name)
        return () if text is None else parse_roles(text)

    def acting(self, k: int) -> tuple[str, ...]:
        """Agents that have given somebody other numbers in round ``k`` or before."""
        return tuple(name for name, _ in self if any(role.changes_values and role.first <= k for role in self.of(name)))

    def warnings(self) -> tuple[str, ...]:
        """What everybody must read about a run with active roles; nothing where there is none."""
        line = ", ".join(f"{name} = {text}" for name, text in self)
        text = (
            f"ACTIVE ADVERSARIES: {line}. These agents attack the run on purpose, as its run file says: its model is a "
            "study object. Every agent's own epsilon stands."
        )
        return (text,) if self else ()


NOBODY = Roles()


def parse_roles(text: str) -> tuple[Role, ...]:
    """The roles that ``text`` says, with semicolons between.  ValueError says what is wrong with one."""
    return tuple(parse_role(one) for one in text.split(";"))


def parse_role(text: str) -> Role:
    """The one role that ``text`` says.  ValueError says what is wrong with it."""
    word, *given = text.split() or [""]
    if word not in _OPTIONS:
        raise ValueError(f"{show(word)} is no role{suggestion(word, tuple(_OPTIONS))}: {', '.join(_OPTIONS)}")
    options: dict[str, str] = {}
    for one in given:
        key, equals, value = one.partition("=")
        if key not in _OPTIONS[word] or not equals or not value or key in options:
            raise ValueError(f"{show(one)} is no option of {word}, which has {', '.join(_OPTIONS[word])}, each once")
        options[key] = value
    if "value" in options and "scale" in options:
        raise ValueError("give value or scale, not both")
    first, last = (_integer(options, key, end) for key, end in (("from", 0), ("until", _LAST)))
    if first > last:
        raise ValueError(f"from={first} is after until={last}")
    usual = "X" if word in ("trap", "imprint") else "both" if word in ("withhold", "delay", "repeat") else "Y"
    stream = options.get("stream", usual)
    if stream not in ("X", "Y", "both"):
        raise ValueError(f"stream={stream}: must be X, Y or both")
    return Role(
        cast(RoleWord, word),
        None if stream == "both" else cast(Stream, stream),
        _number(options, "value", 1000.0),
        _number(options, "scale", 1.0) if "scale" in options else None,
        _span(options["coordinates"]) if "coordinates" in options else None,
        tuple(options["to"].split(",")) if "to" in options else (),
        first,
        last,
        _lag(options),
        _milliseconds(options, word),
    )


def _integer(options: Mapping[str, str], key: str, default: int) -> int:
    text = options.get(key, str(default))
    if not text.isascii() or not text.isdigit() or int(text) > _LAST:
        raise ValueError(f"{key}={text}: must be an integer")
    return int(text)


def _lag(options: Mapping[str, str]) -> int:
    lag = _integer(options, "lag", 1)
    if lag == 0:
        raise ValueError("lag=0: must be at least 1, the round before")
    return lag


def _milliseconds(options: Mapping[str, str], word: str) -> float:
    ms = _number(options, "ms", 0.0)
    if word == "delay" and not 0.0 < ms <= 3.6e6:
        raise ValueError("delay needs ms, above 0 and at most 3,600,000")
    return ms


def _number(options: Mapping[str, str], key: str, default: float) -> float:
    try:
        value = float(options.get(key, default))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{key}={options[key]}: must be a finite number")
    return value


def _span(text: str) -> tuple[int, int]:
    first, colon, end = text.partition(":")
    found = {"coordinates": first}, {"coordinates": end}
    low, high = (_integer(one, "coordinates", 0) for one in found)
    if not colon or low >= high:
        raise ValueError(f"coordinates={text}: must be FIRST:END, 0 <= FIRST < END")
    return low, high


@dataclass(frozen=True, slots=True)
class ActiveRoles:
    """``{ agent = "ROLE" }``.  Whether there are such agents is not known here."""

    @property
    def placeholder(self) -> Roles:
        return Roles()

    def read(self, section: Section, key: str, value: object) -> Roles:
        if not isinstance(value, Mapping) or not value:
            section.problem(key, f'must be a table of roles, {{ agent = "poison" }}, not {show(value)}')
            return Roles()
        found = []
        for name, text in value.items():
            try:
                if not isinstance(text, str):
                    raise ValueError(f"must be a role, not {show(text)}")
                parse_roles(text)
            except ValueError as error:
                section.problem(f"{key}.{name}", str(error))
            else:
                found.append((str(name), " ".join(text.split())))
        return Roles(found)

    def schema(self) -> Schema:
        return {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}

    def words(self) -> str:
        return "table of roles by agent"


def check_roles(section: Section, active: Roles, model: str, last_round: int | None) -> None:
    """Report roles that can do nothing, that contradict each other, and imprints of a model that has no layer for them.

    ``last_round``: K, None: not known.
    """
    for name, _ in active:
        roles = active.of(name)
        said = [problem for role in roles if (problem := _idle(role, name, last_round)) is not None]
        said += [
            f"two acts of {one.word} overlap in streams, rounds and receivers: say one, or keep them apart"
            for i, one in enumerate(roles)
            if any(one.overlaps(other) for other in roles[:i])
        ]
        if model != "mlp" and any(role.word == "imprint" for role in roles):
            said.append(
                f'imprint needs model.name = "mlp", whose hidden layer it sorts samples with, not {show(model)}'
            )
        for problem in dict.fromkeys(said):
            section.problem(f"active.{name}", problem)


def _idle(role: Role, name: str, last_round: int | None) -> str | None:
    """Why ``role`` of agent ``name`` can do nothing in rounds 0 to ``last_round``, or a part of it; None: it can."""
    if name in role.to:
        return f"{role.word}: to={name} is the agent itself"
    if last_round is None:
        return None
    if role.first > last_round:
        return f"{role.word}: from={role.first} is after the last round, K = {last_round}"
    last = min(role.last, last_round)
    if role.word in ("replay", "repeat") and role.lag > last:
        return f"{role.word}: lag={role.lag} is before round 0 even in its last round, {last}"
    return None
