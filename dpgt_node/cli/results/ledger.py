"""``dpgt ledger``: what an agent has released and what it cost."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from dpgt_node.errors import ExitCode


@click.command()
@click.argument("state_dir", metavar="STATE_DIR", type=click.Path(path_type=Path))
@click.option("--format", "format_", type=click.Choice(["text", "json", "csv"]), default="text", show_default=True)
@click.option("--verify", is_flag=True, help="Only verify: one line with the number of rows and the head.")
@click.option("--head", metavar="HEX", help="A head written down earlier: exit 1 unless the chain passed through it.")
def ledger(state_dir: Path, format_: str, verify: bool, head: str | None) -> ExitCode:
    """Show, export and verify the ledger in an agent's state directory; reads only, also while the agent runs.

    The chain is verified in any case: exits 1 and names the first bad row when it does not hold.
    """
    from dpgt_node.runtime.store import statement
    from dpgt_node.runtime.store.ledger import NO_HEAD, LedgerBroken, read_ledger

    found = read_ledger(state_dir)
    if head is not None and head.lower() not in {NO_HEAD.hex(), *(entry.head.hex() for entry in found.entries)}:
        raise LedgerBroken(f"{state_dir}: the chain never had the head {head}: rows are missing, or it is another's")
    if verify:
        click.echo(f"verified: {len(found.entries)} rows, head {found.head.hex()}")
    elif format_ == "json":
        click.echo(json.dumps(statement.document(found), indent=2, allow_nan=False, ensure_ascii=False))
    elif format_ == "csv":
        statement.write_csv(found, sys.stdout)
    else:
        click.echo(statement.render(found))
    return ExitCode.DONE
