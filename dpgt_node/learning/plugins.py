"""``module:function`` of the operator's own run file.  Nothing that came over a wire ever reaches this module."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

from dpgt_node.errors import ConfigError


def plugin(name: str, key: str) -> Callable[..., Any]:
    """The function; ``key``: the run file's key that names it.  The module is found as Python finds any (PYTHONPATH),
    and where it finds none, in the current folder.

    Raises ConfigError: no such module, an error while it was imported, no such function.
    """
    module_name, _, attribute = name.partition(":")
    here = os.getcwd()
    try:
        if here not in sys.path and not _found(module_name):
            sys.path.append(here)  # last, so that no file in it can stand for a module that is installed
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a plug-in's own code may fail in any way
        message = f"{name!r} cannot be imported: {_said(error)} (modules are those of PYTHONPATH and of this folder)"
        raise ConfigError.one("run file", key, message) from error
    function: Callable[..., Any] | None = getattr(module, attribute, None)
    if not callable(function):
        raise ConfigError.one("run file", key, f"{name!r}: {module_name} has no function {attribute}")
    return function


def _found(module_name: str) -> bool:
    """Whether Python knows where the module is, or the package that it is in."""
    return importlib.util.find_spec(module_name.partition(".")[0]) is not None


def called(name: str, key: str, *arguments: object) -> Any:
    """What the plug-in returns.  Raises ConfigError when it raises."""
    function = plugin(name, key)
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:
        raise ConfigError.one("run file", key, f"{name!r} failed: {_said(error)}") from error


def _said(error: BaseException) -> str:
    """On one line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}".removesuffix(": ")
