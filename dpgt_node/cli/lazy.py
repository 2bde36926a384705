"""Groups of commands that are imported when they are called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click


class Lazy(click.Group):
    """Commands by name as "module:attribute", in the order of ``targets``; a subclass sets it."""

    targets: Mapping[str, str]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.targets)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = self.targets.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command
