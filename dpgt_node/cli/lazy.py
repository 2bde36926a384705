"""Groups of commands that are imported when they are called."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Mapping

import click


def settle() -> None:
    """A command's modules are there and stay: the collector goes on, and need not look at them again."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


class Lazy(click.Group):
    """Commands by name as "module:attribute", in the order of ``targets``; a subclass sets it, or gets its own.

    ``lines``: the first line of each one's help, so that a list of them imports none.  Empty: each says its own.
    """

    targets: Mapping[str, str]
    lines: Mapping[str, str] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.targets)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest verbs where there is none by that name."""
        name = args[0]
        if name not in self.list_commands(ctx) and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, self.list_commands(ctx), cutoff=0.6)
            hint = f" Did you mean {' or '.join(repr(one) for one in near)}?" if near else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, from ``lines`` where there are any."""
        if not self.lines:
            super().format_commands(ctx, formatter)
            return
        limit = formatter.width - 6 - max(map(len, self.lines))
        rows = [(name, click.Command(name, help=line).get_short_help_str(limit)) for name, line in self.lines.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = self.targets.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command
