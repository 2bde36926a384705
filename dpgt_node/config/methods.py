"""``[method]``: the keys of one method, declared where the method is (``dpgt_node.algo.methods``), above this package.

A method hands in a frozen dataclass whose fields are declared like those of :mod:`dpgt_node.config.model`:

    register_options("atc-dsgd", Options)          # when the method's module loads
    options_come_from(load)                        # which loads the module of any method
    options = method_options(run, Options)         # where the method is carried out

``METHODS_WITH_KEYS`` of ``vocabulary`` names it, so that its keys are not unknown ones where its module is not loaded.
A run keeps what the file gives, word by word: its hash does not depend on who registered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dpgt_node.config.declare.keys import Variants, declared, foreign, read_fields
from dpgt_node.config.declare.kinds import MAX_INTEGER, Text
from dpgt_node.config.declare.reader import Section, show
from dpgt_node.config.vocabulary import MAX_ENTRIES, METHODS, METHODS_WITH_KEYS
from dpgt_node.errors import ConfigError, Problem
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.config.model import RunConfig, Scalar

D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Of a method without keys of its own."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Of a method whose module is not loaded."""


_OPTIONS: dict[str, type] = {word: NoOptions for word in METHODS.built if word not in METHODS_WITH_KEYS}
_OPTIONS |= dict.fromkeys(METHODS_WITH_KEYS, Elsewhere)
METHOD_KEYS = Variants("algorithm.method", "method", _OPTIONS)
_load: Callable[[str], object] | None = None


def register_options(method: str, options: type) -> None:
    """Declare the keys that ``[method]`` has for ``method``; TypeError when a field of ``options`` declares none."""
    declared(options)
    _OPTIONS[method] = options


def options_come_from(load: Callable[[str], object]) -> None:
    """Have ``load(method)`` register the keys of a method when somebody reads them."""
    global _load
    _load = load


def _known(method: str) -> type | None:
    """What declares the keys of ``method``; None where its module is not here."""
    if METHOD_KEYS.of(method) is Elsewhere and _load is not None:
        _load(method)
    options = METHOD_KEYS.of(method)
    return None if options is Elsewhere else options


def read_options(section: Section, method: str) -> Mapping[str, Scalar | tuple[Scalar, ...]]:
    """What ``[method]`` gives.  Checked against the method's declaration where that is here."""
    options = _known(method)
    if options is not None:
        _check(section, method, options)
    return {key: value for key in section.names() if (value := _value(section, key)) is not None}


def method_options(run: RunConfig, options: type[D], source: str = "RUN.toml") -> D:
    """``run.method_options`` as the method declares them, with defaults; ConfigError lists all problems."""
    problems: list[Problem] = []
    given = {key: list(value) if isinstance(value, tuple) else value for key, value in run.method_options.items()}
    section = Section(given, source, "method", problems, run.base or Path())
    values = _check(section, run.algorithm.method, options)
    if problems:
        raise ConfigError(problems)
    return options(**values)


def _check(section: Section, method: str, options: type) -> Mapping[str, Any]:
    values = read_fields(section, options)
    own = {entry.name for entry in declared(options)}
    strange = [name for name in section.names() if name not in own]
    others = {
        entry.name: f'is no key of method "{method}" (it is one of "{other}")'
        for other in (_OPTIONS if strange else ())
        for entry in declared(_known(other) or NoOptions)
        if entry.name in strange
    }
    section.done(others | foreign(options, values))
    return values


def _value(section: Section, key: str) -> Scalar | tuple[Scalar, ...] | None:
    """The value of ``key`` where it can stand in canonical JSON, a list as a tuple; None after a problem."""
    value = section.get(key)
    if not section.ok(key):
        return None
    if not isinstance(value, list):
        return _scalar(section, key, value)
    if not 1 <= len(value) <= MAX_ENTRIES:
        section.problem(key, f"must not be a list of {len(value)} entries")
        return None
    read = (_scalar(section, f"{key}[{index}]", entry) for index, entry in enumerate(value))
    entries = tuple(entry for entry in read if entry is not None)
    return entries if len(entries) == len(value) else None


def _scalar(section: Section, key: str, value: object) -> Scalar | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) <= MAX_INTEGER:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, str):
        return Text().read(section, key, value) or None
    section.problem(key, f"must be a word, a number, true or false, or a list of such, not {show(value)}")
    return None
