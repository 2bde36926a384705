"""``dpgt eavesdrop``: the adversaries' tools; each part is imported when it is called."""

from __future__ import annotations

import importlib

import click

PARTS = {
    "capture": "dpgt_node.cli.eavesdrop_capture:capture",
    "decode": "dpgt_node.cli.eavesdrop_decode:decode",
    "attack": "dpgt_node.cli.eavesdrop_attack:attack",
    "audit": "dpgt_node.cli.eavesdrop_audit:audit",
    "lab": "dpgt_node.cli.eavesdrop_lab:lab",
    "sidecar": "dpgt_node.cli.eavesdrop_sidecar:sidecar",
}


class _Parts(click.Group):
    """Parts by name, in the order of their use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """From the wire to the verdict."""
        return list(PARTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the part."""
        target = PARTS.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group(cls=_Parts)
def eavesdrop() -> None:
    """Tap the links of a run, decode what crossed them, attack it and audit epsilon."""
