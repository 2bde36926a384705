"""``[method]``: the keys of one method, declared where the method is (``dpgt_node.algo.methods``), above this package.

A method hands in a frozen dataclass whose fields are declared like those of :mod:`dpgt_node.config.model`:

    register_options("atc-dsgd", Options)          # when the method's module loads
    options = method_options(run, Options)         # where the method is carried out

``METHODS_WITH_KEYS`` of ``vocabulary`` names it, so that its keys are not unknown ones where its module is not loaded.
A run keeps what the file gives, word by word: its hash does not depend on who registered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dpgt_node.config.declare.keys import Variants, declared, foreign, read_fields
from dpgt_node.config.declare.kinds import MAX_INTEGER, Text
from dpgt_node.config.declare.reader import Section, show
from dpgt_node.config.vocabulary import METHODS, METHODS_WITH_KEYS
from dpgt_node.errors import ConfigError, Problem

if TYPE_CHECKING:
    from dpgt_node.config.model import RunConfig, Scalar

D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Of a method without keys of its own."""


_OPTIONS: dict[str, type] = {word: NoOptions for word in METHODS.built if word not in METHODS_WITH_KEYS}
METHOD_KEYS = Variants("algorithm.method", "method", _OPTIONS)


def register_options(method: str, options: type) -> None:
    """Declare the keys that ``[method]`` has for ``method``; TypeError when a field of ``options`` declares none."""
    declared(options)
    _OPTIONS[method] = options


def read_options(section: Section, method: str) -> Mapping[str, Scalar]:
    """What ``[method]`` gives.  Checked against the method's declaration where it is registered already."""
    options = METHOD_KEYS.of(method)
    if options is not None:
        _check(section, method, options)
    return {key: value for key in section.names() if (value := _scalar(section, key)) is not None}


def method_options(run: RunConfig, options: type[D], source: str = "RUN.toml") -> D:
    """``run.method_options`` as the method declares them, with defaults; ConfigError lists all problems."""
    problems: list[Problem] = []
    section = Section(run.method_options, source, "method", problems, run.base or Path())
    values = _check(section, run.algorithm.method, options)
    if problems:
        raise ConfigError(problems)
    return options(**values)


def _check(section: Section, method: str, options: type) -> Mapping[str, Any]:
    values = read_fields(section, options)
    own = {entry.name for entry in declared(options)}
    others = {
        entry.name: f'is no key of method "{method}" (it is one of "{other}")'
        for other, table in _OPTIONS.items()
        for entry in declared(table)
        if entry.name not in own
    }
    section.done(others | foreign(options, values))
    return values


def _scalar(section: Section, key: str) -> Scalar | None:
    """The value of ``key`` where it can stand in canonical JSON, None after a problem."""
    value = section.get(key)
    if not section.ok(key):
        return None
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) <= MAX_INTEGER:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, str):
        return Text().read(section, key, value) or None
    section.problem(key, f"must be a word, a number, true or false, not {show(value)}")
    return None
