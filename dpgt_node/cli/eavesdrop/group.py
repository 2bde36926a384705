"""``dpgt eavesdrop``: the adversaries' tools; each part is imported when it is called."""

from __future__ import annotations

import click

from dpgt_node.cli.lazy import Lazy

PARTS = {
    "capture": "dpgt_node.cli.eavesdrop.capture:capture",
    "decode": "dpgt_node.cli.eavesdrop.decode:decode",
    "attack": "dpgt_node.cli.eavesdrop.attack:attack",
    "audit": "dpgt_node.cli.eavesdrop.audit:audit",
    "study": "dpgt_node.cli.eavesdrop.study:study",
    "lab": "dpgt_node.cli.eavesdrop.lab:lab",
    "sidecar": "dpgt_node.cli.eavesdrop.sidecar:sidecar",
}


class _Parts(Lazy):
    """From the wire to the verdict."""

    targets = PARTS


@click.group(cls=_Parts)
def eavesdrop() -> None:
    """Tap the links of a run, decode what crossed them, attack it and audit epsilon."""
