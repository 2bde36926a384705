"""Kinds of values that are ours alone: agents, addresses, data sets, numbers of samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpgt_node.config.addresses import is_wildcard, parse_address
from dpgt_node.config.declare.kinds import MAX_TEXT, Integer, Number, Schema, Text, quantity
from dpgt_node.config.declare.reader import Section, bad_word, show, suggestion
from dpgt_node.config.vocabulary import DATASET_PREFIXES, DATASETS, MAX_AGENTS, MAX_CLASSES, NAME, PLUG_IN
from dpgt_node.values import dataclass

_CLASS_NAME = 255
"""Characters of the name of a class, which may be that of a folder."""

NORM_BOUND = Number(
    above=0.0, at_least=1e-100, because="norms are sums of squares, and squares of much smaller numbers are 0"
)
"""What a clip or C may be."""


@dataclass(frozen=True, slots=True)
class SampleCount:
    """A number of samples, or "full" for all of an agent's."""

    @property
    def placeholder(self) -> int | str:
        return 1

    def read(self, section: Section, key: str, value: object) -> int | str:
        if value == "full":
            return "full"
        if isinstance(value, str):
            section.problem(key, f'must be an integer >= 1 or "full", not {show(value)}')
            return 1
        return Integer(1).read(section, key, value)

    def schema(self) -> Schema:
        return {"anyOf": [Integer(1).schema(), {"enum": ["full"]}]}

    def words(self) -> str:
        return 'integer >= 1, or "full"'


@dataclass(frozen=True, slots=True)
class ClassNames:
    """How many classes there are, or their names in the order of the labels 0, 1, 2, ..."""

    @property
    def placeholder(self) -> int:
        return 1

    def read(self, section: Section, key: str, value: object) -> int | tuple[str, ...]:
        if not isinstance(value, list):
            return Integer(1, MAX_CLASSES).read(section, key, value)
        if not 1 <= len(value) <= MAX_CLASSES:
            section.problem(key, f"must hold 1 to {quantity(MAX_CLASSES)} names, not {len(value)}")
        names = tuple(Text(_CLASS_NAME).read(section, f"{key}[{i}]", name) for i, name in enumerate(value))
        if twice := [name for i, name in enumerate(names) if name and name in names[:i]]:
            section.problem(key, f"{show(twice[0])} is there twice")
        return names

    def schema(self) -> Schema:
        names = {"type": "array", "items": Text(_CLASS_NAME).schema(), "minItems": 1, "uniqueItems": True}
        return {"anyOf": [Integer(1, MAX_CLASSES).schema(), names]}

    def words(self) -> str:
        return f"{Integer(1, MAX_CLASSES).words()}, or a list of names"


@dataclass(frozen=True, slots=True)
class PerAgent:
    """A number for all agents, or a list with one per agent.

    Read as the numbers that are valid, one for all agents as a tuple of one: how many there must be is not known here.
    """

    number: Number

    @property
    def placeholder(self) -> tuple[float, ...]:
        return (1.0,)

    def read(self, section: Section, key: str, value: object) -> tuple[float, ...]:
        if not isinstance(value, list):
            return (self.number.read(section, key, value),)
        return tuple(self.number.read(section, f"{key}[{index}]", entry) for index, entry in enumerate(value))

    def schema(self) -> Schema:
        number = self.number.schema()
        return {"anyOf": [number, {"type": "array", "items": number, "minItems": 1, "maxItems": MAX_AGENTS}]}

    def words(self) -> str:
        return f"{self.number.words()}; one for all agents, or a list with one each"


@dataclass(frozen=True, slots=True)
class Names:
    """Names of agents of this run: one, or a list.  Whether there are such agents is not known here."""

    @property
    def placeholder(self) -> tuple[str, ...]:
        return ()

    def read(self, section: Section, key: str, value: object) -> tuple[str, ...]:
        given: Sequence[object] = value if isinstance(value, list) else [value]
        names = []
        for index, name in enumerate(given):
            where = f"{key}[{index}]" if isinstance(value, list) else key
            if not isinstance(name, str):
                section.problem(where, f"must be the name of an agent, not {show(name)}")
            elif name in given[:index]:
                section.problem(where, f"{show(name)} is there twice")
            else:
                names.append(name)
        return tuple(names)

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "uniqueItems": True}]}

    def words(self) -> str:
        return "name of an agent, or a list of names"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set that ships, one in files of the user's (``npz:PATH``), or a plug-in."""

    title = "Data sets"

    @property
    def placeholder(self) -> str:
        return ""

    def read(self, section: Section, key: str, value: object) -> str:
        name = Text().read(section, key, value)
        if not section.ok(key) or name in DATASETS.built:
            return name
        prefix, colon, path = name.partition(":")
        if colon and prefix in DATASET_PREFIXES.built:
            if not path:
                section.problem(key, f'"{prefix}:" needs a path')
            return name
        if PLUG_IN.fullmatch(name):
            return name
        available = (*DATASETS.built, *(f"{p}:PATH" for p in DATASET_PREFIXES.built))
        if name in DATASETS.planned or (colon and prefix in DATASET_PREFIXES.planned):
            section.problem(key, bad_word(name, available, (name,)))
        else:
            hint = suggestion(name, DATASETS.built + DATASETS.planned)
            words = ", ".join(f'"{word}"' for word in available)
            section.problem(key, f"{show(name)} is not a data set (available: {words}){hint}")
        return name

    def schema(self) -> Schema:
        patterns = [f"^{prefix}:." for prefix in DATASET_PREFIXES.built] + [f"^{PLUG_IN.pattern}$"]
        return {
            "anyOf": [{"enum": list(DATASETS.built)}, *({"type": "string", "pattern": p} for p in patterns)],
        }

    def words(self) -> str:
        return ", ".join(f'"{word}"' for word, _ in self.meanings())

    def meanings(self) -> tuple[tuple[str, str], ...]:
        files = ((f"{prefix}:PATH", text) for prefix, text in DATASET_PREFIXES.meanings())
        own = "yours, found by PYTHONPATH or in the current folder: returns a mapping with the four arrays of npz"
        return (*DATASETS.meanings(), *files, ("module:function", own))


@dataclass(frozen=True, slots=True)
class Agents:
    """How many agents, or their names.

    Bad names are reported and kept, so that the shapes of R and C can still be checked against their number.
    """

    @property
    def placeholder(self) -> tuple[str, ...]:
        return ()

    def read(self, section: Section, key: str, value: object) -> tuple[str, ...]:
        if isinstance(value, int) and not isinstance(value, bool):
            if 1 <= value <= MAX_AGENTS:
                return tuple(f"agent-{i}" for i in range(1, value + 1))
            section.problem(key, f"must be 1 to {MAX_AGENTS} agents, not {show(value)}")
        elif not isinstance(value, list):
            section.problem(key, f"must be a number of agents or a list of names, not {show(value)}")
        elif not 1 <= len(value) <= MAX_AGENTS:
            section.problem(key, f"must have 1 to {MAX_AGENTS} names, not {len(value)}")
        else:
            return self._names(section, key, value)
        return ()

    def _names(self, section: Section, key: str, names: list[object]) -> tuple[str, ...]:
        seen: dict[str, str] = {}
        checked: list[str] = []
        for index, name in enumerate(names):
            text = name if isinstance(name, str) else f"#{index}"
            if not isinstance(name, str):
                section.problem(f"{key}[{index}]", f"must be a name, not {show(name)}")
            elif not NAME.fullmatch(name):
                rule = "1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit"
                section.problem(f"{key}[{index}]", f"{show(name)} is not a name: {rule}")
            elif name.lower() in seen:
                section.problem(f"{key}[{index}]", f'"{name}" is an agent name twice (case does not count)')
            seen.setdefault(text.lower(), text)
            checked.append(text)
        return tuple(checked)

    def schema(self) -> Schema:
        name = {"type": "string", "pattern": f"^{NAME.pattern}$"}
        names = {"type": "array", "items": name, "minItems": 1, "maxItems": MAX_AGENTS, "uniqueItems": True}
        return {"anyOf": [Integer(1, MAX_AGENTS).schema(), names]}

    def words(self) -> str:
        return f"1 to {quantity(MAX_AGENTS)}, or a list of names"


@dataclass(frozen=True, slots=True)
class AgentName:
    @property
    def placeholder(self) -> str:
        return ""

    def read(self, section: Section, key: str, value: object) -> str:
        name = Text().read(section, key, value)
        if section.ok(key) and not NAME.fullmatch(name):
            section.problem(key, f"{show(name)} is not an agent name")
        return name

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^{NAME.pattern}$"}

    def words(self) -> str:
        return "agent name"


@dataclass(frozen=True, slots=True)
class Address:
    """``HOST:PORT``.  Only an address to listen on may be a wildcard or have port 0.

    The schema asks for a host and a port; the reader looks closer.
    """

    listening: bool = False

    @property
    def placeholder(self) -> str:
        return ""

    def read(self, section: Section, key: str, value: object) -> str:
        text = Text().read(section, key, value)
        if not section.ok(key):
            return text
        try:
            host, port = parse_address(text)
        except ValueError as error:
            section.problem(key, str(error))
            return text
        if not self.listening and port == 0:
            section.problem(key, f"{show(text)}: port 0 cannot be dialled")
        if not self.listening and is_wildcard(host):
            section.problem(key, f"{show(text)} is a wildcard; give an address that others can dial")
        return text

    def schema(self) -> Schema:
        return {"type": "string", "pattern": r"^\S+:[0-9]{1,5}$"}

    def words(self) -> str:
        return "address"


@dataclass(frozen=True, slots=True)
class FilePath:
    """A path; a relative one starts from the folder of the file that names it."""

    @property
    def placeholder(self) -> Path:
        return Path()

    def read(self, section: Section, key: str, value: object) -> Path:
        return section.base / Text().read(section, key, value)

    def schema(self) -> Schema:
        return Text().schema()

    def words(self) -> str:
        return "path"


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity in a certificate, ``dpgt:...``."""

    @property
    def placeholder(self) -> str:
        return ""

    def read(self, section: Section, key: str, value: object) -> str:
        identity = Text().read(section, key, value)
        if section.ok(key) and not identity.startswith("dpgt:"):
            section.problem(key, f'must be an identity such as "dpgt:coordinator", not {show(identity)}')
        elif section.ok(key) and identity.startswith(("dpgt:agent:", "dpgt:operator")):
            section.problem(key, f"{show(identity)} is no coordinator: it could read what an agent reports to one")
        return identity

    def schema(self) -> Schema:
        return {"type": "string", "pattern": "^dpgt:", "maxLength": MAX_TEXT}

    def words(self) -> str:
        return '"dpgt:..."'


@dataclass(frozen=True, slots=True)
class Several:
    """A list of one or more of the words; ``what`` they are, for messages."""

    choices: tuple[str, ...]
    what: str

    @property
    def placeholder(self) -> tuple[str, ...]:
        return ()

    def read(self, section: Section, key: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not value:
            section.problem(key, f"must be a list of {self.what}, not {show(value)}")
            return ()
        for index, word in enumerate(value):
            if word not in self.choices:
                section.problem(f"{key}[{index}]", bad_word(word, self.choices))
        return tuple(str(word) for word in value)

    def schema(self) -> Schema:
        return {"type": "array", "items": {"enum": list(self.choices)}, "minItems": 1}

    def words(self) -> str:
        return "list of " + ", ".join(f'"{word}"' for word in self.choices)


@dataclass(frozen=True, slots=True)
class SelfLoops:
    """Weights on the diagonal: none, those of the edges, or a number."""

    @property
    def placeholder(self) -> bool | float:
        return False

    def read(self, section: Section, key: str, value: object) -> bool | float:
        return value if isinstance(value, bool) else Number(at_least=0.0).read(section, key, value)

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "boolean"}, Number(at_least=0.0).schema()]}

    def words(self) -> str:
        return "true, false, or >= 0"


@dataclass(frozen=True, slots=True)
class AgentPair:
    """Two different agents, by number from 1 to ``at_most``."""

    at_most: int = MAX_AGENTS

    @property
    def placeholder(self) -> tuple[int, int]:
        return 1, 3

    def read(self, section: Section, key: str, value: object) -> tuple[int, int]:
        pair = value if isinstance(value, list) and len(value) == 2 else []
        numbers = [v for v in pair if isinstance(v, int) and not isinstance(v, bool) and 1 <= v <= self.at_most]
        if len(numbers) != 2 or numbers[0] == numbers[1]:
            who = f"two different agent numbers from 1 to {self.at_most}"
            section.problem(key, f"must be [sender, receiver], {who}")
            return 1, 3
        return numbers[0], numbers[1]

    def schema(self) -> Schema:
        number = Integer(1, self.at_most).schema()
        return {"type": "array", "items": number, "minItems": 2, "maxItems": 2, "uniqueItems": True}

    def words(self) -> str:
        return "two agent numbers"
